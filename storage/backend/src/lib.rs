//! Interface between Tideline and the storage engine that keeps its data.
//!
//! Two kinds of engines can implement [`Backend`]: an embedded engine (fjall), and a cluster (such as Cassandra or
//! ScyllaDB) for data sets larger than one machine. The trait makes only guarantees that both kinds can give.
//! Differences are *declared* in [`Capabilities`], which callers may use only for speed, never for correctness.
//!
//! | module | holds |
//! |---|---|
//! | [`contract`] | the trait, its types and its guarantees |
//! | [`error`] | the error kinds, one per reaction of the caller |
//! | [`limits`], [`page`] | checks and page building shared by all backends |
//! | [`memory`] | the in-memory backend for tests, embedded or distributed |
//! | [`conformance`] | test suite that every backend must pass |

pub mod conformance;
pub mod contract;
pub mod error;
pub mod limits;
pub mod memory;
pub mod page;

pub use contract::*;
pub use error::{BackendError, ErrorKind, Result};

//! The boundary between Tideline and the engine that keeps its bytes.
//!
//! Two real engines stand behind [`Backend`]: fjall in this process, and Cassandra or ScyllaDB for those who
//! outgrow one machine. What is here is what both can promise; where they differ, they *declare* it in
//! [`Capabilities`]. Code above may use a declared extra only to be faster, never to be right.
//!
//! | module | holds |
//! |---|---|
//! | [`contract`] | the trait, its words and its rules |
//! | [`error`] | the few kinds of failure, each meaning what the caller does next |
//! | [`limits`], [`page`] | what every backend checks and how it fills a page |
//! | [`memory`] | the in-memory backend, in both characters |
//! | [`conformance`] | the one suite that every backend and character passes |

pub mod conformance;
pub mod contract;
pub mod error;
pub mod limits;
pub mod memory;
pub mod page;

pub use contract::*;
pub use error::{BackendError, ErrorKind, Result};

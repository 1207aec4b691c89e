//! The open database: store, catalogs and index joined, and the verbs that services offer over them.
//!
//! Storage knows timelines by id only, the indexer knows no points. Here they meet: a write resolves its
//! timelines in the catalog and goes to the store; a search asks the index and the store's memory of when
//! timelines were seen; a restart gives the identities found in the journal back to the catalogs.
//!
//! A write in file names: the decoder asks [`resolve`] for each timeline → [`write`] checks the batch, turns it
//! into a delta and commits it → the store acknowledges → the timelines become visible.
//!
//! | module | verbs |
//! |---|---|
//! | [`engine`] | open, close, readiness |
//! | [`tables`] | create, list, alter, drop |
//! | [`resolve`] | raw series key → timeline |
//! | [`write`] | batch → acknowledged points and rejects |
//! | `line_order` | which line of one request wins |
//! | [`find`] | timelines by conditions, names, attributes |
//! | `warm` | reading ahead after a start |
//! | [`error`] | the few kinds of failure that services map to their protocols |

mod directory;
pub mod engine;
pub mod error;
pub mod find;
mod line_order;
pub mod resolve;
pub mod tables;
mod warm;
pub mod write;

pub use engine::{Engine, EngineStats, Readiness, Settings};
pub use error::{EngineError, ErrorKind, Result};
pub use find::{Timeline, TimelinePage};
pub use resolve::BatchResolver;
pub use tables::{Table, TableStats};
pub use write::{WriteOptions, WriteOutcome};

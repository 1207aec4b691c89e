//! The embedded backend: fjall 3 for segments, manifests and rows, one database for each tier, and own journal files.
//!
//! What fjall does well is used as it is; what it does not promise is done here, above it: journals that are freed
//! with their generation, checks before an open that could delete, a mark that notices lost acknowledgements, and a
//! store that reopens by itself. Code above sees only the `Backend` trait.
#![doc = include_str!("../FORMAT.md")]

mod backend;
mod cold;
mod copy;
mod engine;
mod error;
mod files;
mod format;
mod highwater;
mod journal;
mod keys;
mod keyspace_list;
mod ledger;
mod lock;
mod lost;
mod options;
mod parts;
mod renew;
mod safety;
mod segments;
mod store;
mod verify;
mod wal;

pub use backend::FjallBackend;
pub use options::FjallOptions;
pub use verify::{Inspection, VerifyReport, verify};

//! Embedded backend: fjall 3 for segments, parts, manifests and rows, with one database per tier. Journals are in
//! separate files.
//!
//! This crate adds features that fjall does not have:
//!
//! - journals that are freed file by file;
//! - checks before a store is opened, because fjall could delete data when it opens a damaged store;
//! - a high-water mark, which detects lost acknowledged writes;
//! - automatic reopening of a failed store.
//!
//! Callers use an open backend through the `Backend` trait.
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
mod lock;
mod lost;
mod options;
mod parts;
mod renew;
mod safety;
mod segments;
mod shard_state;
mod store;
mod verify;
mod wal;

pub use backend::FjallBackend;
pub use options::FjallOptions;
pub use verify::{Inspection, VerifyReport, verify};

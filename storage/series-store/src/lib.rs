//! Storage engine for the points of series timelines: durable writes, seals, moves between tiers, and reads.
//!
//! # Life cycle of a point
//!
//! 1. [`SeriesStore::commit`] passes a delta (the points of one write) to the [log](tideline_log). The log appends the
//!    delta to the journal of the backend together with other waiting deltas, syncs it if required, applies it to the
//!    [`head`] and to the [`latest`] values, and acknowledges it.
//! 2. When the head (the memtable) reaches its size budget or its maximum age, the log freezes it. A new generation
//!    begins in memory and in the journal.
//! 3. The log [seals](seal) (flushes) the frozen head: it is encoded as chunks and written as one segment per
//!    [`window`]. The log publishes the segments with one edit of the [`manifest`] that also advances the journal
//!    cursor, and removes the journal of that generation.
//!
//! A crash between any two steps neither loses nor duplicates a point: [`recovery`] replays the journal from the
//! published cursor, and segments that no manifest references are removed.
//!
//! # Reading
//!
//! [`SeriesStore::snapshot`] pins the manifest and the heads of one moment. [`scan`] iterates over timelines in id
//! order across all segments and heads, and returns merged columnar runs, in which the newest write of each field wins.
//!
//! # Out of scope
//!
//! The store handles timelines only by id. Names, tags and search are part of the indexer, which receives the new
//! timelines of a replayed journal through [`TimelineDirectory`]. This crate does not depend on HTTP, tantivy or
//! fjall.
#![doc = include_str!("../FORMAT.md")]

mod attach;
mod buckets;
pub mod check;
pub mod compaction;
mod deletes;
pub mod error;
pub mod head;
pub mod latest;
mod lists;
pub mod manifest;
mod merge;
mod model;
mod pages;
pub mod recovery;
mod retired;
pub mod scan;
pub mod schema;
pub mod seal;
mod seal_reports;
mod segment_writer;
pub mod settings;
mod sharding;
mod shared;
pub mod store;
pub mod survey;
pub mod tables;
#[cfg(test)]
mod test_store;
mod timeline_slots;
pub mod unsealed;
pub mod window;
mod writes;

pub use attach::{Attachment, TimelineSlots};
pub use compaction::{
    Evicted, Orphan, OrphanSearch, Orphans, OtherObjects, OtherObjectsOf, Rewrite, RewriteCause, RewriteCost,
    Rewritten, Throttle,
};
pub use error::{Result, StoreError};
pub use head::HeadBudget;
pub use latest::{LatestField, LatestRow, Seen};
pub use manifest::{Adopted, Segment};
pub use recovery::{Recovery, Replayed};
pub use scan::{Order, ReadCost, ScanReader, Selection, Snapshot, TierCost};
pub use schema::{FieldInfo, Shape, TableSchema};
pub use seal_reports::SealReport;
pub use settings::Settings;
pub use store::{Committed, SeriesStore, StoreStats, TimelineDirectory};
pub use survey::{HeadSurvey, SegmentSurvey, Survey, TableSurvey};
pub use tables::Table;
pub use tideline_chunk::{DELETE_TIMELINES_MAX, DeleteRecord as Delete};
pub use tideline_log::{LogError, LogSettings, RecentEntry, RecentError, RecentPage, Refusal, Stamps};
pub use unsealed::{Unsealed, UnsealedEstimate};

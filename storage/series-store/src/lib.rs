//! Points of series timelines: taken in, kept, read back, never lost.
//!
//! # The life of a point
//!
//! 1. [`SeriesStore::commit`] hands a delta to the [log](tideline_log): it is appended to the backend's journal with what
//!    else waits, synced, applied to the [`head`] and to the [`latest`] values, and answered.
//! 2. When the head passes its budget, or its oldest entry an age, the log freezes it: a new generation begins in memory
//!    and in the journal.
//! 3. The log has the frozen head [sealed](seal): it becomes chunks, one segment for each [`window`], which are loaded. The
//!    log publishes them with one edit of the [`manifest`] that also moves the journal cursor, and forgets the journal of
//!    that generation.
//!
//! A crash between any two steps neither loses nor doubles a point: [`recovery`] replays the journal from the
//! published cursor, and segments that no manifest names are swept.
//!
//! # Reading
//!
//! [`SeriesStore::snapshot`] pins the manifest and the heads of one moment; [`scan`] walks timelines in id
//! order over all of them and hands out merged columnar runs, newest write winning field by field.
//!
//! # What is absent
//!
//! The store knows timelines only by id. Names, tags and search live in the indexer, which is told of new
//! timelines found in a replayed journal through [`TimelineDirectory`]. It knows no HTTP, no tantivy, no fjall.
#![doc = include_str!("../FORMAT.md")]

mod attach;
mod buckets;
pub mod check;
mod deletes;
pub mod error;
pub mod head;
pub mod latest;
mod lists;
pub mod manifest;
mod merge;
mod model;
mod pages;
mod places;
pub mod recovery;
mod retired;
pub mod rewrite;
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
pub mod unsealed;
pub mod window;
mod writes;

pub use attach::Places;
pub use error::{Result, StoreError};
pub use head::HeadBudget;
pub use latest::{LatestField, LatestRow, Seen};
pub use manifest::{Adopted, Segment};
pub use recovery::{Recovery, Replayed};
pub use rewrite::{
    Evicted, Orphan, OrphanSearch, Orphans, Pace, Rewrite, RewriteCause, RewriteCost, Rewritten,
};
pub use scan::{Order, ReadCost, Selection, Snapshot, SweepReader, TierCost};
pub use schema::{FieldInfo, Shape, TableSchema};
pub use seal_reports::SealReport;
pub use settings::Settings;
pub use store::{Committed, SeriesStore, StoreStats, TimelineDirectory};
pub use survey::{HeadSurvey, SegmentSurvey, Survey, TableSurvey};
pub use tables::Table;
pub use tideline_chunk::{DELETE_TIMELINES_MAX, DeleteRecord as Delete};
pub use tideline_log::{LogError, LogSettings, Refusal, Stamps, TailEntry, TailError, TailPart};
pub use unsealed::{Unsealed, UnsealedEstimate};

//! Reading of runs: footers are fetched once, then the file blocks with the pages of the requested rows.
//!
//! | module | holds |
//! |---|---|
//! | [`footers`] | metadata of open files, cached in memory and on disk |
//! | [`checked`] | validation of footers |
//! | [`fetch`] | fetched bytes of a file, verified before they are decoded |
//! | [`pages`] | in-memory cache of file blocks |
//! | [`columns`] | forward reader of one column of a row group |
//! | [`mod@file`] | reader of runs of one file |
//! | [`segment`] | reader of runs of all files of a segment |
//! | [`local`] | complete foreign files on the local disk |
//! | [`timelines`] | reader of the file of timelines of a segment |
//! | [`fields`] | fields of a segment, read from its files |

mod checked;
mod columns;
pub(crate) mod fetch;
pub(crate) mod fields;
mod file;
pub(crate) mod footers;
mod local;
pub(crate) mod pages;
mod segment;
pub(crate) mod timelines;

pub use segment::{FieldNames, ReadMemory, SegmentReader};
pub use timelines::{TimelineRun, TimelineRuns, TimelinesFile};

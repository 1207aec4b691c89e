//! Reading runs out of files: footers first, once, then only the pages of the rows that are asked for.
//!
//! | file | part |
//! |---|---|
//! | [`footers`] | what is known of open files, in memory and on disk within budgets |
//! | [`checked`] | what a footer says, checked |
//! | [`fetch`] | the bytes of a file that were fetched ahead of decoding, compared with their checksums |
//! | [`pages`] | blocks of files that were read lately, in memory within a budget |
//! | [`columns`] | one column of a row group, read forwards |
//! | [`file`] | runs of one file |
//! | [`segment`] | runs of all files of a segment |
//! | [`local`] | whole files of others, on the local disk |
//! | [`timelines`] | the file of timelines of a segment |
//! | [`fields`] | the fields of a segment |

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

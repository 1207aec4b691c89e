//! The byte formats of Tideline's points, and nothing else: no I/O, no async, no clock.
//!
//! | type | is |
//! |---|---|
//! | [`Run`] | consecutive points of one timeline, unpacked |
//! | [`Chunk`] | the same as bytes, read in place; [`ChunkEncoder`] or [`encode_chunk`] writes it |
//! | [`Summaries`] | what the numbers of a chunk come to in buckets of time |
//! | [`Delta`] | a micro-batch of points of many timelines, or a delete, as the journal keeps it |
//!
//! Modules, from the small to the large: `wire` (numbers and checked reading), `bitpack` (kernels),
//! `packed_array` (single elements), `entropy` (codes), one codec a kind of column (`integers`, `floats`, `strings`,
//! `timestamps`, `presence`), `column` (choice by type), then `run`, `summaries`, `chunk` and `delta`.
//!
#![doc = include_str!("../FORMAT.md")]

mod bitpack;
mod chunk;
mod column;
mod delta;
mod entropy;
mod floats;
mod integers;
mod packed_array;
mod presence;
mod run;
mod strings;
mod summaries;
mod timestamps;
mod wire;

pub use chunk::{
    Chunk, ChunkEncoder, ChunkError, ChunkOptions, ColumnInfo, Columns, Effort, SequenceSpan, encode_chunk,
};
pub use column::UnknownType;
pub use delta::{
    DELETE_TIMELINES_MAX, DELTA_VALUES_MAX, DeleteRecord, Delta, DeltaError, DeltaGroup, NewTimeline,
    RequestRecord,
};
pub use presence::{Bitmap, Presence};
pub use run::{ROWS_MAX, Run, RunColumn, VALUES_MAX};
pub use summaries::{
    ColumnSummary, LoneSummaries, LoneSummaryWriter, Number, Sum, Summaries, SummaryBucket, ValueSummary,
};
pub use tideline_wire::varint;
pub use timestamps::Timestamps;
pub use wire::Damaged;

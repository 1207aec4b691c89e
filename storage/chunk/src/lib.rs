//! Byte formats of Tideline's points. This crate does no I/O, has no async code and reads no clock.
//!
//! | type | holds |
//! |---|---|
//! | [`Run`] | consecutive points of one timeline, decoded |
//! | [`Chunk`] | the encoded form of a run, read in place; written by [`ChunkEncoder`] or [`encode_chunk`] |
//! | [`Summaries`] | count, sum, extremes, first and last value of the numeric columns of a chunk per time bucket |
//! | [`LoneSummaries`] | summaries stored without their chunk, for rows in archive files |
//! | [`Delta`] | a micro-batch of points of many timelines, or a delete; one journal entry |
//!
//! Modules from the lowest to the highest layer: `wire` (numbers and checked reading), `bitpack` (kernels),
//! `packed_array` (random access to elements), `entropy` (tANS codes), one codec per kind of column (`integers`,
//! `floats`, `strings`, `timestamps`, `presence`), `column` (selects the codec by type), then `run`, `summaries`,
//! `chunk` and `delta`.
//!
//! # Examples
//!
//! ```
//! use tideline_chunk::{Chunk, Presence, Run, RunColumn, SequenceSpan, encode_chunk};
//! use tideline_model::{ColumnData, FieldId, SequenceNumber, TimeRange};
//!
//! let run = Run {
//!     timestamps: vec![1_000, 2_000, 3_000],
//!     columns: vec![RunColumn {
//!         field: FieldId(7),
//!         presence: Presence::All,
//!         values: ColumnData::Float(vec![0.5, 0.25, 0.75]),
//!     }],
//! };
//! let sequences = SequenceSpan { lowest: SequenceNumber(1), highest: SequenceNumber(4) };
//! let mut bytes = Vec::new();
//! encode_chunk(&run, sequences, &mut bytes)?;
//!
//! let chunk = Chunk::open(&bytes)?;
//! assert_eq!(chunk.sequences(), sequences);
//! assert_eq!(chunk.row_range(TimeRange::new(1_500, 2_500)), 1..2);
//! assert_eq!(chunk.to_run()?, run);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
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

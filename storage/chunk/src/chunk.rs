//! The chunk: the encoded run of one timeline, as it is stored in segments.

pub(crate) mod directory;
mod reader;
mod writer;

pub use reader::{Chunk, ColumnInfo, Columns};
pub use writer::{ChunkEncoder, ChunkOptions, Effort, encode_chunk};

use tideline_model::SequenceNumber;

use crate::column::UnknownType;
use crate::wire::Damaged;

/// Magic bytes at the start of every chunk.
const MAGIC: [u8; 2] = *b"TC";

/// Version without summaries and without entropy coding. Builds older than the cold tier read only this version.
const VERSION_PLAIN: u8 = 1;

/// Version that can hold summaries, entropy-coded columns, and entropy-coded timestamps with their time span. Written
/// only if a chunk needs one of these features.
const VERSION: u8 = 2;

/// Length of magic, version and checksum.
const PREFIX_BYTES: usize = 7;

/// Range of the journal sequences of the points in a chunk. If two chunks hold the same point, the write order of their
/// segments decides which point wins; this range does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SequenceSpan {
    /// Lowest sequence of any point in the chunk.
    pub lowest: SequenceNumber,
    /// Highest sequence of any point in the chunk.
    pub highest: SequenceNumber,
}

/// Error of encoding a run or of reading a chunk.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChunkError {
    /// The run exceeds [`ROWS_MAX`](crate::ROWS_MAX) or [`VALUES_MAX`](crate::VALUES_MAX); split it.
    #[error("a run of {rows} rows and {columns} columns is too large for one chunk")]
    TooLarge {
        /// Rows of the run.
        rows: usize,
        /// Columns of the run.
        columns: usize,
    },
    /// The run, its sequences or the width of the summary buckets is not valid.
    #[error("the run is malformed: {0}")]
    Malformed(&'static str),
    /// The bytes do not start with the magic of a chunk, or are too short for magic, version and checksum.
    #[error("not a chunk")]
    NotAChunk,
    /// The chunk has a version that this build does not support.
    #[error("chunk version {0} is not supported by this build")]
    UnknownVersion(u8),
    /// The content does not match the checksum.
    #[error("chunk checksum does not match")]
    Checksum,
    /// A column has a value type that this version does not support.
    #[error(transparent)]
    UnknownType(#[from] UnknownType),
    /// The checksum matches, but the content violates a rule of the format.
    #[error("chunk is damaged: {0}")]
    Damaged(#[from] Damaged),
    /// The requested rows exceed the rows of the chunk, or end before they start.
    #[error("requested rows end at {end}, but the chunk has {rows} rows")]
    NoSuchRows {
        /// End of the requested rows, or their start if it is larger.
        end: usize,
        /// Rows of the chunk.
        rows: usize,
    },
}

/// Returns the checksum of `content`: the low half of xxh3-64.
pub(crate) fn checksum(content: &[u8]) -> [u8; 4] {
    (xxhash_rust::xxh3::xxh3_64(content) as u32).to_le_bytes()
}

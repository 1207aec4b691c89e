//! The chunk: a sealed run of one timeline.

pub(crate) mod directory;
mod reader;
mod writer;

pub use reader::{Chunk, ColumnInfo, Columns};
pub use writer::{ChunkEncoder, ChunkOptions, Effort, encode_chunk};

use tideline_model::SequenceNumber;

use crate::column::UnknownType;
use crate::wire::Damaged;

/// The first bytes of every chunk.
const MAGIC: [u8; 2] = *b"TC";

/// The version without summaries, whose columns are bit-packed; readers from before the cold tier know no other.
const VERSION_PLAIN: u8 = 1;

/// The version that may have all of that. It is written only where a chunk needs it.
const VERSION: u8 = 2;

/// Magic, version and checksum.
const PREFIX_BYTES: usize = 7;

/// The journal sequences that went into a chunk; where chunks meet on a point the higher one wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SequenceSpan {
    /// The lowest sequence of any point in it.
    pub lowest: SequenceNumber,
    /// The highest sequence of any point in it.
    pub highest: SequenceNumber,
}

/// A run that cannot be encoded, or bytes that are not a whole chunk of this version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChunkError {
    /// A run is longer or wider than one chunk may be; split it.
    #[error("a run of {rows} rows and {columns} columns is too large for one chunk")]
    TooLarge {
        /// Rows of the run.
        rows: usize,
        /// Columns of the run.
        columns: usize,
    },
    /// A run or its sequences break a rule that their type states.
    #[error("the run is malformed: {0}")]
    Malformed(&'static str),
    /// The bytes do not begin as a chunk does.
    #[error("not a chunk")]
    NotAChunk,
    /// The chunk was written by a later version.
    #[error("chunk version {0} is not known here")]
    UnknownVersion(u8),
    /// The bytes are not those that were written.
    #[error("chunk checksum does not match")]
    Checksum,
    /// A column holds values of a type set aside for later.
    #[error(transparent)]
    UnknownType(#[from] UnknownType),
    /// The checksum matches, but the content breaks a rule of the format.
    #[error("chunk is damaged: {0}")]
    Damaged(#[from] Damaged),
    /// The caller asks for rows that the chunk does not have.
    #[error("rows up to {end} asked of a chunk of {rows}")]
    NoSuchRows {
        /// End of the rows asked for.
        end: usize,
        /// Rows of the chunk.
        rows: usize,
    },
}

/// The checksum over everything behind it: the low half of xxh3-64.
pub(crate) fn checksum(content: &[u8]) -> [u8; 4] {
    (xxhash_rust::xxh3::xxh3_64(content) as u32).to_le_bytes()
}

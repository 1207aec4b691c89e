//! Block: encoded rows of consecutive keys, compressed together. `FORMAT.md` describes the bytes.
//!
//! Rows that are compressed one by one hardly shrink, because each row repeats the names and types of its columns. A
//! block stores the names and types once, stores the values of each column together, and compresses the result with
//! zstd. [`BlockEncoder`] builds a block from rows in key order. [`Block`] returns the rows of a key range, byte for
//! byte as they were added.
//!
//! The texts, bytes and JSON documents of a column with a separate compression setting are stored apart, in a
//! *segment* ([`apart`]). A block with segments has the format 2.

mod apart;
mod by_column;
mod columns;
mod decode;
mod encode;
mod filter;

use tideline_model::GroupCompression;
use xxhash_rust::xxh3::xxh3_64;

pub(crate) use apart::{Packed, SegmentCodec, pack_lz4, unpack_lz4};
pub(crate) use by_column::BlockColumns;
pub(crate) use columns::{ColumnReader, cut};
pub(crate) use decode::{Block, BlockKeys};
pub(crate) use encode::BlockEncoder;

/// Format of a block, in its first byte.
const FORMAT: u8 = 1;
/// Format of a block with segments.
const FORMAT_APART: u8 = 2;
/// Maximum size of a block before compression, in bytes. A larger size in a header is damage.
const BODY_BYTES_MAX: usize = 8 << 20;
/// Size in bytes of the checksum of a header or of a segment.
const CHECKSUM_BYTES: usize = 4;

/// Returns the zstd level of a compression setting.
const fn level(of: GroupCompression) -> i32 {
    match of {
        GroupCompression::Fast => 1,
        GroupCompression::Dense => 12,
    }
}

/// Returns the checksum of a header, or of the stored bytes of a segment.
fn checksum(header: &[u8]) -> [u8; CHECKSUM_BYTES] {
    (xxh3_64(header) as u32).to_le_bytes()
}

#[cfg(test)]
mod tests;

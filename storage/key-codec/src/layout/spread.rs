//! Hashes that spread rows: digits of an MD5, buckets, and shards of search indexes.
//!
//! Stored rows are found by these hashes, so they never change.

use std::io::Write as _;

use md5::{Digest, Md5};
use xxhash_rust::xxh3::xxh3_64;

use crate::tuple::{KeyValue, push_value};

/// Joins the texts of the values by commas, and appends the first hexadecimal digits of the MD5 of the result.
pub(super) fn push_hash_digits<'v>(
    values: impl Iterator<Item = &'v KeyValue<'v>>,
    digits: u8,
    out: &mut Vec<u8>,
) {
    let mut text = Vec::new();
    for (number, value) in values.enumerate() {
        if number > 0 {
            text.push(b',');
        }
        push_text(value, &mut text);
    }
    let hash = Md5::digest(&text);
    let nibbles = hash.iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
    out.extend(nibbles.map(hex_digit).take(digits.into()));
}

/// Returns the lower-case hexadecimal digit of a number below 16.
pub(super) fn hex_digit(nibble: u8) -> u8 {
    b"0123456789abcdef"[usize::from(nibble & 0xf)]
}

/// Returns the bucket of the values, below `count`.
pub(super) fn bucket_of<'v>(values: impl Iterator<Item = &'v KeyValue<'v>>, count: u16) -> u8 {
    let mut tuple = Vec::new();
    for value in values {
        push_value(value, &mut tuple);
    }
    // The count is at most 256, so the remainder fits one byte.
    (xxh3_64(&tuple) % u64::from(count)) as u8
}

/// Returns the shard of a search index with `count` shards, 1 to 256, for the values of its routing columns.
pub fn shard_of<'v>(values: impl Iterator<Item = &'v KeyValue<'v>>, count: u16) -> usize {
    usize::from(bucket_of(values, count))
}

/// Appends the text of a value for the MD5. The text of a binary value is its bytes.
fn push_text(value: &KeyValue<'_>, out: &mut Vec<u8>) {
    // Writing to a vector never fails.
    let _ = match value {
        KeyValue::String(text) => out.write_all(text.as_bytes()),
        KeyValue::Signed(number) => write!(out, "{number}"),
        KeyValue::Unsigned(number) => write!(out, "{number}"),
        KeyValue::Binary(bytes) => out.write_all(bytes),
        KeyValue::Timestamp(time) => write!(out, "{}", time.nanos()),
        KeyValue::Decimal(number) => write!(out, "{number}"),
        KeyValue::Boolean(value) => write!(out, "{value}"),
    };
}

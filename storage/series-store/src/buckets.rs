//! Buckets of a segment: ranges of timelines that an engine stores as one partition each.

use tideline_backend::{Backend, BackendError, Row, SegmentRef};
use tideline_key_codec::{BUCKET_BITS_MAX, chunk_bucket, parse_chunk_key};

/// Approximate bytes of an extent. Used for the number of buckets of an archive segment.
pub(crate) const EXTENT_BYTES: u64 = 128;

/// Returns the number of leading id bits that select the bucket in a segment of `bytes` bytes. Returns `0` (one bucket)
/// below `2 * bucket_bytes`. The average bucket of any other segment has at least `bucket_bytes` and less than twice
/// `bucket_bytes`, unless [`BUCKET_BITS_MAX`] limits the number of buckets.
pub(crate) fn bucket_bits(bytes: u64, bucket_bytes: u64) -> u8 {
    let buckets = bytes / bucket_bytes.max(1);
    let bits = buckets.checked_ilog2().unwrap_or(0);
    u8::try_from(bits).unwrap_or(u8::MAX).min(BUCKET_BITS_MAX)
}

/// Writes a segment bucket by bucket from rows in key order.
///
/// # Errors
///
/// The errors of the backend and of `rows`. The segment is then incomplete, and the caller must discard it.
pub(crate) fn load_buckets(
    backend: &dyn Backend,
    location: SegmentRef,
    bits: u8,
    rows: &mut dyn Iterator<Item = Result<Row, BackendError>>,
) -> Result<(), BackendError> {
    let bucket_of = |row: &Row| parse_chunk_key(&row.key).map_or(0, |(id, _)| chunk_bucket(id, bits));
    let mut rows = rows.peekable();
    loop {
        let bucket = match rows.peek() {
            Some(Ok(row)) => bucket_of(row),
            _ => 0,
        };
        // An error counts as a row of the current bucket and ends the write of that bucket.
        let is_here =
            |row: &Result<Row, BackendError>| row.as_ref().map_or(true, |row| bucket_of(row) == bucket);
        let mut here = std::iter::from_fn(|| rows.next_if(is_here));
        backend.load(location, bucket, &mut here)?;
        if rows.peek().is_none() {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn buckets_have_between_one_and_two_times_their_bytes() {
        for (mib, bits) in [
            (0, 0),
            (63, 0),
            (64, 1),
            (127, 1),
            (128, 2),
            (1_024, 5),
            (1 << 40, 12),
        ] {
            assert_eq!(bucket_bits(mib * MIB, 32 * MIB), bits, "{mib} MiB");
        }
    }
}

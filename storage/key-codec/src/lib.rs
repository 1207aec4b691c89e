//! Encoding of every key of the store; the only crate that builds row keys.
//!
//! Keys are compared as unsigned bytes. Numbers are therefore big-endian, and signed numbers have their sign bit
//! inverted, so that the order of the bytes is the order of the values.
//!
//! # Key spaces
//!
//! | space | no. | key | value | written by |
//! |---|---|---|---|---|
//! | `CATALOG` | 1 | table ‖ timeline id | catalog row (timeline-catalog's `FORMAT.md`) | timeline-catalog |
//! | `SCHEMAS` | 3 | table ‖ measurement | fields with ids and types | series-store |
//! | `DELETES` | 4 | table ‖ sequence | journal entry of the delete | series-store |
//! | `METADATA` | 12 | table ‖ metric name | type, help and unit (timeline-catalog's `FORMAT.md`) | timeline-catalog |
//! | `REQUESTS` | 14 | table ‖ request key | outcome of a request with an idempotency key | log |
//! | `SEARCHES` | 16 | table ‖ name | saved search (timeline-catalog's `FORMAT.md`) | timeline-catalog |
//! | `CATALOG_CHANGES` | 17 | epoch ‖ number | recent changes of catalog rows (timeline-catalog's `FORMAT.md`) | timeline-catalog, only if other processes can take over the data |
//! | chunks | – | timeline id ‖ chunk start | chunk (`chunk`'s `FORMAT.md`) | series-store, in segments, one bucket per leading bits of the id |
//! | lists | – | list ‖ page | page of a list that is too long for the segment's manifest row | series-store, in segments, in a separate bucket |
//!
//! The missing numbers are reserved and have never been used. Rows of wide tables, feeds and indexes are stored in
//! parts, not in a key space: a part is dropped as a whole.
//!
//! Tables, segments, parts, cursors and jobs are rows of the shard's manifest, not of a key space: they change only by
//! a fenced edit. Each segment has its own partitions, so a late chunk never replaces a chunk of another segment.
//!
//! Key columns of wide tables are encoded by [`mod@tuple`], whose documentation specifies the byte format. [`layout`]
//! computes the key columns from the columns that users write and read.
//!
//! # Examples
//!
//! ```
//! use tideline_key_codec::{chunk_key, chunks_of, parse_chunk_key, timeline_id};
//! use tideline_model::TimeRange;
//!
//! // Timelines with the same source share the first half of their ids.
//! let cpu = timeline_id(Some("web-1"), b"cpu", 0);
//! let memory = timeline_id(Some("web-1"), b"memory", 0);
//! assert_eq!(cpu.0[..8], memory.0[..8]);
//!
//! // The chunks of a timeline sort by their start, also before 1970.
//! let (old, new) = (chunk_key(cpu, -5), chunk_key(cpu, 5));
//! assert!(old < new);
//! assert_eq!(parse_chunk_key(&old), Some((cpu, -5)));
//! let range = chunks_of(cpu, TimeRange::new(0, 5));
//! assert!(range.contains(&old) && !range.contains(&new));
//! ```

pub mod layout;
pub mod tuple;

use md5::{Digest, Md5};
use tideline_model::{
    KeyRange, PartId, Partition, SegmentId, SequenceNumber, Space, TableId, TimeRange, TimelineId,
};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Numbers of the key spaces; the crate documentation lists them in a table.
pub mod space {
    use tideline_model::Space;

    /// Catalog: one row per timeline.
    pub const CATALOG: Space = Space(1);
    /// Fields of each measurement, with ids and types.
    pub const SCHEMAS: Space = Space(3);
    /// Deletes that have not yet been applied to all segments.
    pub const DELETES: Space = Space(4);
    /// Metadata of metrics as sent by writers: type, help and unit.
    pub const METADATA: Space = Space(12);
    /// Outcomes of requests that carried an idempotency key.
    pub const REQUESTS: Space = Space(14);
    /// Saved searches.
    pub const SEARCHES: Space = Space(16);
    /// Recent changes of catalog rows, from which a standby completes the timelines that it has read ahead.
    pub const CATALOG_CHANGES: Space = Space(17);
    /// All key spaces of a database. A copy of a database has no `CATALOG_CHANGES`, because the keys of this space
    /// contain epochs of the original.
    pub const ALL: [Space; 6] = [CATALOG, SCHEMAS, DELETES, METADATA, REQUESTS, SEARCHES];
}

/// Length of a chunk key, in bytes.
pub const CHUNK_KEY_BYTES: usize = 24;

/// The only bucket of every key space, because one process owns the only shard. A distributed store would use the
/// number of the shard that stores the row. A shard is a range of timeline prefixes.
const SINGLE_SHARD_BUCKET: u16 = 0;

/// Derives the id of a timeline: the first 8 bytes of the MD5 of its source, then the xxh3-64 of its identity.
///
/// `source` is the value of the first source tag that is present; for `None`, the identity is used instead. `salt` is
/// 0, unless another identity of the table has the same id: the later identity then uses the next salt.
pub fn timeline_id(source: Option<&str>, identity: &[u8], salt: u32) -> TimelineId {
    let machine = Md5::digest(source.map_or(identity, str::as_bytes));
    let mut id = [0; 16];
    id[..8].copy_from_slice(&machine[..8]);
    id[8..].copy_from_slice(&xxh3_64_with_seed(identity, u64::from(salt)).to_be_bytes());
    TimelineId(id)
}

/// Returns the name of the manifest row that describes a segment.
pub fn segment_name(id: SegmentId) -> [u8; 8] {
    id.0.to_be_bytes()
}

/// Returns the name of the manifest row that describes a part.
pub fn part_name(id: PartId) -> [u8; 8] {
    id.0.to_be_bytes()
}

/// Parses the name of a part's manifest row; `None` if its length is not 8 bytes.
pub fn parse_part_name(name: &[u8]) -> Option<PartId> {
    Some(PartId(u64::from_be_bytes(name.try_into().ok()?)))
}

/// Returns the name of the manifest row that describes a table.
pub fn table_name(id: TableId) -> [u8; 4] {
    id.0.to_be_bytes()
}

/// Encodes a signed number so that byte order is numeric order.
pub fn ordered_i64(value: i64) -> [u8; 8] {
    (value as u64 ^ (1 << 63)).to_be_bytes()
}

/// Decodes the output of [`ordered_i64`].
pub fn from_ordered_i64(bytes: [u8; 8]) -> i64 {
    (u64::from_be_bytes(bytes) ^ (1 << 63)) as i64
}

/// Returns the key of a chunk inside a segment: the timeline id, then the start of the chunk.
pub fn chunk_key(id: TimelineId, start: i64) -> [u8; CHUNK_KEY_BYTES] {
    let mut key = [0; CHUNK_KEY_BYTES];
    key[..16].copy_from_slice(&id.0);
    key[16..].copy_from_slice(&ordered_i64(start));
    key
}

/// Parses a chunk key; `None` if its length is not [`CHUNK_KEY_BYTES`].
pub fn parse_chunk_key(key: &[u8]) -> Option<(TimelineId, i64)> {
    let key: &[u8; CHUNK_KEY_BYTES] = key.try_into().ok()?;
    let (id, start) = key.split_first_chunk::<16>()?;
    Some((TimelineId(*id), from_ordered_i64(start.try_into().ok()?)))
}

/// Returns the key range of all chunks of a timeline that start before `range.end`. The key range includes chunks that
/// start before `range.start`, because such a chunk may extend into `range`. The reader filters by the time span of
/// each chunk.
pub fn chunks_of(id: TimelineId, range: TimeRange) -> KeyRange {
    KeyRange::new(chunk_key(id, i64::MIN), chunk_key(id, range.end))
}

/// Returns the key range of all chunks of the timelines from `first` to `last`, both included.
pub fn chunks_between(first: TimelineId, last: TimelineId) -> KeyRange {
    KeyRange {
        start: first.0.to_vec(),
        end: KeyRange::prefix(&last.0).end,
    }
}

/// Maximum number of leading timeline id bits that select a segment's bucket.
pub const BUCKET_BITS_MAX: u8 = 12;

/// Returns the bucket that holds a timeline's chunks in a segment: the leading `bits` of the id, at most
/// [`BUCKET_BITS_MAX`]. Buckets sort in the order of the ids.
pub fn chunk_bucket(id: TimelineId, bits: u8) -> u16 {
    let [first, second, ..] = id.0;
    let leading = u32::from(u16::from_be_bytes([first, second]));
    u16::try_from(leading >> (16 - u32::from(bits.min(BUCKET_BITS_MAX)))).unwrap_or(0)
}

/// Bucket of a segment that holds its lists. It never holds chunks.
pub const LISTS_BUCKET: u16 = u16::MAX;

/// List of a segment. The number of the variant is part of the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum SegmentList {
    /// Files of the segment.
    Files = 1,
    /// Names of descriptions (sidecars) that other databases wrote. The points of the described files are in the
    /// segment.
    Replaces = 2,
}

/// Returns the key of one page of a list.
pub fn list_key(list: SegmentList, page: u32) -> [u8; 5] {
    let mut key = [list as u8; 5];
    key[1..].copy_from_slice(&page.to_be_bytes());
    key
}

/// Returns the key range of all pages of a list.
pub fn list_pages(list: SegmentList) -> KeyRange {
    KeyRange::prefix(&[list as u8])
}

/// Returns the partitions of all key spaces.
pub fn space_partitions() -> [Partition; 6] {
    space::ALL.map(|space| Partition::space(space, SINGLE_SHARD_BUCKET))
}

/// Returns the partition of a timeline's catalog row.
pub fn catalog_partition(_id: TimelineId) -> Partition {
    Partition::space(space::CATALOG, SINGLE_SHARD_BUCKET)
}

/// Returns the key of a catalog row.
pub fn catalog_key(table: TableId, id: TimelineId) -> [u8; 20] {
    let mut key = [0; 20];
    key[..4].copy_from_slice(&table.0.to_be_bytes());
    key[4..].copy_from_slice(&id.0);
    key
}

/// Parses a catalog key; `None` if its length is not 20 bytes.
pub fn parse_catalog_key(key: &[u8]) -> Option<(TableId, TimelineId)> {
    let (table, id) = key.split_first_chunk::<4>()?;
    Some((
        TableId(u32::from_be_bytes(*table)),
        TimelineId(id.try_into().ok()?),
    ))
}

/// Returns the partition of the recent changes of catalog rows.
pub fn catalog_changes_partition() -> Partition {
    Partition::space(space::CATALOG_CHANGES, SINGLE_SHARD_BUCKET)
}

/// Returns the key of a record of changed catalog rows: the epoch of the owner that wrote it, then its number.
pub fn catalog_changes_key(epoch: u64, number: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&epoch.to_be_bytes());
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

/// Returns the key range of the records of an epoch from a number on.
pub fn catalog_changes_from(epoch: u64, number: u64) -> KeyRange {
    KeyRange {
        start: catalog_changes_key(epoch, number).to_vec(),
        end: KeyRange::prefix(&epoch.to_be_bytes()).end,
    }
}

/// Parses the key of a record of changed catalog rows into epoch and number; `None` if its length is not 16 bytes.
pub fn parse_catalog_changes_key(key: &[u8]) -> Option<(u64, u64)> {
    let (epoch, number) = key.split_first_chunk::<8>()?;
    Some((
        u64::from_be_bytes(*epoch),
        u64::from_be_bytes(number.try_into().ok()?),
    ))
}

/// Divides a range of the catalog rows of a table into at most `parts` consecutive ranges. The first bytes of timeline ids
/// are evenly distributed, so the ranges between two bounds have about the same number of rows.
pub fn split_catalog_rows(table: TableId, range: &KeyRange, parts: u8) -> Vec<KeyRange> {
    let mut ranges = Vec::with_capacity(usize::from(parts));
    let mut start = range.start.clone();
    for part in 1..u16::from(parts) {
        let mut bound = table.0.to_be_bytes().to_vec();
        bound.push((part * 256 / u16::from(parts)) as u8);
        if bound > start && range.end.as_ref().is_none_or(|end| bound < *end) {
            ranges.push(KeyRange::new(start, bound.clone()));
            start = bound;
        }
    }
    let end = range.end.clone();
    ranges.push(KeyRange { start, end });
    ranges
}

/// Returns the partition of all rows of a table in a key space, and the range of their keys.
pub fn table_rows(space: Space, table: TableId) -> (Partition, KeyRange) {
    (
        Partition::space(space, SINGLE_SHARD_BUCKET),
        KeyRange::prefix(&table.0.to_be_bytes()),
    )
}

/// Returns the key of a row that has a name inside its table, such as a measurement or a request key.
pub fn named_key(table: TableId, name: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(4 + name.len());
    key.extend_from_slice(&table.0.to_be_bytes());
    key.extend_from_slice(name);
    key
}

/// Returns the key of a delete. Deletes of a table sort by their sequence in the journal.
pub fn delete_key(table: TableId, sequence: SequenceNumber) -> [u8; 12] {
    let mut key = [0; 12];
    key[..4].copy_from_slice(&table.0.to_be_bytes());
    key[4..].copy_from_slice(&sequence.0.to_be_bytes());
    key
}

/// Parses the key of a delete; `None` if its length is not 12 bytes.
pub fn parse_delete_key(key: &[u8]) -> Option<(TableId, SequenceNumber)> {
    let (table, sequence) = key.split_first_chunk::<4>()?;
    Some((
        TableId(u32::from_be_bytes(*table)),
        SequenceNumber(u64::from_be_bytes(sequence.try_into().ok()?)),
    ))
}

/// Parses a named key; `None` if it is shorter than 4 bytes.
pub fn parse_named_key(key: &[u8]) -> Option<(TableId, &[u8])> {
    let (table, name) = key.split_first_chunk::<4>()?;
    Some((TableId(u32::from_be_bytes(*table)), name))
}

#[cfg(test)]
mod tests;

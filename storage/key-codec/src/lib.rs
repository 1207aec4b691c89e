//! Every key of the store is made here, and nowhere else.
//!
//! Keys are compared as unsigned bytes, so numbers are written big-endian and signed ones with their sign bit
//! flipped: the order of the bytes is the order of the values.
//!
//! # The key spaces
//!
//! | space | no. | key | value | written by |
//! |---|---|---|---|---|
//! | `CATALOG` | 1 | table ‖ timeline id | catalog row (timeline-catalog's `FORMAT.md`) | timeline-catalog |
//! | `SCHEMAS` | 3 | table ‖ measurement | fields with ids and types | series-store |
//! | `DELETES` | 4 | table ‖ sequence | delta that holds the delete | series-store |
//! | `METADATA` | 12 | table ‖ metric name | type, help and unit (timeline-catalog's `FORMAT.md`) | timeline-catalog |
//! | `REQUESTS` | 14 | table ‖ request key | outcome of a request with an idempotency key | series-store |
//! | `SEARCHES` | 16 | table ‖ name | saved search (timeline-catalog's `FORMAT.md`) | timeline-catalog |
//! | chunks | – | timeline id ‖ chunk start | chunk (`chunk`'s `FORMAT.md`) | series-store, in segments, in buckets by leading bits of the id |
//! | lists | – | list ‖ page | page of a list that is too long for the segment's manifest row | series-store, in segments, in a bucket of their own |
//!
//! Numbers that are missing were set aside once and never used. Rows of wide tables, feeds and indexes are in parts, which are
//! dropped as a whole, not in a key space.
//!
//! Tables, segments, parts, cursors and jobs are rows of the shard's manifest, not of a key space: they change only
//! by a fenced edit. A segment's generation is the segment itself: its rows are a partition of their own, so
//! a late chunk never replaces another.
//!
//! Key columns of wide tables are encoded by [`mod@tuple`]; its page holds the byte format.

pub mod tuple;

use md5::{Digest, Md5};
use tideline_model::{
    KeyRange, PartId, Partition, SegmentId, SequenceNumber, Space, TableId, TimeRange, TimelineId,
};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The numbers of the key spaces; the table is in the crate's first page.
pub mod space {
    use tideline_model::Space;

    /// One row a timeline.
    pub const CATALOG: Space = Space(1);
    /// Fields of each measurement, with ids and types.
    pub const SCHEMAS: Space = Space(3);
    /// Deletes that segments still have to be cleared of.
    pub const DELETES: Space = Space(4);
    /// What senders say of metrics.
    pub const METADATA: Space = Space(12);
    /// Outcomes of requests that carried an idempotency key.
    pub const REQUESTS: Space = Space(14);
    /// Conditions that people gave a name.
    pub const SEARCHES: Space = Space(16);
}

/// Bytes of a chunk key.
pub const CHUNK_KEY_BYTES: usize = 24;

/// The single bucket of every space while one process owns the one shard; a distributed store takes the shard
/// of the row here, which is a range of timeline prefixes.
const SINGLE_SHARD_BUCKET: u16 = 0;

/// Derives the id of a timeline: 8 bytes of MD5 over its source, then xxh3-64 over its identity.
///
/// `source` is the machine, `None` when no source tag is present: then the whole identity stands for it.
/// `salt` is 0 but where two identities of one table clash; then the later one takes the next salt.
pub fn timeline_id(source: Option<&str>, identity: &[u8], salt: u32) -> TimelineId {
    let machine = Md5::digest(source.map_or(identity, str::as_bytes));
    let mut id = [0; 16];
    id[..8].copy_from_slice(&machine[..8]);
    id[8..].copy_from_slice(&xxh3_64_with_seed(identity, u64::from(salt)).to_be_bytes());
    TimelineId(id)
}

/// The name of a manifest row that describes the segment with this id.
pub fn segment_name(id: SegmentId) -> [u8; 8] {
    id.0.to_be_bytes()
}

/// The name of a manifest row that describes the part with this id.
pub fn part_name(id: PartId) -> [u8; 8] {
    id.0.to_be_bytes()
}

/// Reads the name of a part's manifest row; `None` when it has another length.
pub fn parse_part_name(name: &[u8]) -> Option<PartId> {
    Some(PartId(u64::from_be_bytes(name.try_into().ok()?)))
}

/// The name of a manifest row that describes the table with this id.
pub fn table_name(id: TableId) -> [u8; 4] {
    id.0.to_be_bytes()
}

/// Writes a signed number so that byte order is number order.
pub fn ordered_i64(value: i64) -> [u8; 8] {
    (value as u64 ^ (1 << 63)).to_be_bytes()
}

/// Reads what [`ordered_i64`] wrote.
pub fn from_ordered_i64(bytes: [u8; 8]) -> i64 {
    (u64::from_be_bytes(bytes) ^ (1 << 63)) as i64
}

/// The key of a chunk inside a segment: where its timeline lies, then when it begins.
pub fn chunk_key(id: TimelineId, start: i64) -> [u8; CHUNK_KEY_BYTES] {
    let mut key = [0; CHUNK_KEY_BYTES];
    key[..16].copy_from_slice(&id.0);
    key[16..].copy_from_slice(&ordered_i64(start));
    key
}

/// Reads a chunk key; `None` when it has another length.
pub fn parse_chunk_key(key: &[u8]) -> Option<(TimelineId, i64)> {
    let key: &[u8; CHUNK_KEY_BYTES] = key.try_into().ok()?;
    let (id, start) = key.split_first_chunk::<16>()?;
    Some((TimelineId(*id), from_ordered_i64(start.try_into().ok()?)))
}

/// The chunks of one timeline that begin before `range.end`. Those that begin before `range.start` may reach
/// into the range, so they are part of it; the reader looks at each chunk's own span.
pub fn chunks_of(id: TimelineId, range: TimeRange) -> KeyRange {
    KeyRange::new(chunk_key(id, i64::MIN), chunk_key(id, range.end))
}

/// All chunks of the timelines from `first` to `last`, both included.
pub fn chunks_between(first: TimelineId, last: TimelineId) -> KeyRange {
    KeyRange {
        start: first.0.to_vec(),
        end: KeyRange::prefix(&last.0).end,
    }
}

/// Most leading bits of a timeline id that a segment's buckets go by.
pub const BUCKET_BITS_MAX: u8 = 12;

/// The bucket of a segment that holds a timeline's chunks: the leading `bits` of its id, at most [`BUCKET_BITS_MAX`]. So
/// buckets follow each other in the order of ids.
pub fn chunk_bucket(id: TimelineId, bits: u8) -> u16 {
    let [first, second, ..] = id.0;
    let leading = u32::from(u16::from_be_bytes([first, second]));
    u16::try_from(leading >> (16 - u32::from(bits.min(BUCKET_BITS_MAX)))).unwrap_or(0)
}

/// The bucket of a segment that holds its lists; no timeline's chunks are in it.
pub const LISTS_BUCKET: u16 = u16::MAX;

/// A list of a segment. The number is part of the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum SegmentList {
    /// Its files.
    Files = 1,
    /// Descriptions of other databases whose points are in it.
    Replaces = 2,
}

/// The key of a page of a list.
pub fn list_key(list: SegmentList, page: u32) -> [u8; 5] {
    let mut key = [list as u8; 5];
    key[1..].copy_from_slice(&page.to_be_bytes());
    key
}

/// All pages of a list.
pub fn list_pages(list: SegmentList) -> KeyRange {
    KeyRange::prefix(&[list as u8])
}

/// Where the catalog row of a timeline lies.
pub fn catalog_partition(_id: TimelineId) -> Partition {
    Partition::space(space::CATALOG, SINGLE_SHARD_BUCKET)
}

/// The key of a catalog row.
pub fn catalog_key(table: TableId, id: TimelineId) -> [u8; 20] {
    let mut key = [0; 20];
    key[..4].copy_from_slice(&table.0.to_be_bytes());
    key[4..].copy_from_slice(&id.0);
    key
}

/// Reads a catalog key; `None` when it has another length.
pub fn parse_catalog_key(key: &[u8]) -> Option<(TableId, TimelineId)> {
    let (table, id) = key.split_first_chunk::<4>()?;
    Some((
        TableId(u32::from_be_bytes(*table)),
        TimelineId(id.try_into().ok()?),
    ))
}

/// Where all rows of a table in a space lie, and the range of their keys.
pub fn table_rows(space: Space, table: TableId) -> (Partition, KeyRange) {
    (
        Partition::space(space, SINGLE_SHARD_BUCKET),
        KeyRange::prefix(&table.0.to_be_bytes()),
    )
}

/// The key of a row that is named by text or bytes inside its table: a measurement, a request key.
pub fn named_key(table: TableId, name: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(4 + name.len());
    key.extend_from_slice(&table.0.to_be_bytes());
    key.extend_from_slice(name);
    key
}

/// The key of a delete: its place in the journal orders the rows of a table.
pub fn delete_key(table: TableId, sequence: SequenceNumber) -> [u8; 12] {
    let mut key = [0; 12];
    key[..4].copy_from_slice(&table.0.to_be_bytes());
    key[4..].copy_from_slice(&sequence.0.to_be_bytes());
    key
}

/// Reads the key of a delete; `None` when it has another length.
pub fn parse_delete_key(key: &[u8]) -> Option<(TableId, SequenceNumber)> {
    let (table, sequence) = key.split_first_chunk::<4>()?;
    Some((
        TableId(u32::from_be_bytes(*table)),
        SequenceNumber(u64::from_be_bytes(sequence.try_into().ok()?)),
    ))
}

/// Reads a named key; `None` when it is too short.
pub fn parse_named_key(key: &[u8]) -> Option<(TableId, &[u8])> {
    let (table, name) = key.split_first_chunk::<4>()?;
    Some((TableId(u32::from_be_bytes(*table)), name))
}

#[cfg(test)]
mod tests;

//! State of the store at one point in time: generations of the row buffer and parts of the tables.
//!
//! Readers take the current [`State`]. They read its generations, newest first, before the part. A flush writes rows
//! into the part while readers still overlay its generation, so a read has the same result before and after the row is
//! written. Only the *publication* of a flush drops a generation. If a flush was published while a reader read the
//! part, the reader reads again, because later generations may have overwritten rows of the part.
//!
//! The active generation grows after a reader has read it, so a flush may write changes into the part that the reader
//! has not read. Such a flush begins only after the generation is frozen. A reader therefore also reads again if a
//! generation was frozen while it read the part.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use hashbrown::hash_map::Entry;
use hashbrown::{DefaultHashBuilder, HashMap};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tideline_backend::{ManifestChange, ManifestKind, PartRef};
use tideline_key_codec::part_name;
use tideline_log::manifest::put_row;
use tideline_model::{KeyRange, SequenceNumber, TableId, Tier, TierScope};

use crate::buffer::{Found, Generation, LockedBuffer, Mutations, TableBuffer};
use crate::division::{ALL_PARTS, PartNumbers, WHOLE};
use crate::spans::Spans;
use crate::store::is_base;
use crate::tables::TableRules;

/// Key of a part: its table or index, and its number.
pub(crate) type PartKey = (TableId, i32);

/// Part of a table, with the content of its manifest row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) at: PartRef,
    pub(crate) detail: PartDetail,
}

/// Content of the manifest row of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PartDetail {
    /// Format of the manifest row; `FORMAT.md` lists the formats of parts.
    pub(crate) format: u8,
    /// Table of the part.
    pub(crate) table: u32,
    /// Number of buckets: 3 if the part can hold blocks; otherwise 2 if it can hold fragments; otherwise 1.
    pub(crate) buckets: u16,
    /// Size of the largest row that was ever written to the part, in bytes.
    pub(crate) row_bytes_max: u64,
    /// Upper bound of the size of every stored column with its versions, in bytes; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) column_bytes_max: Option<u64>,
    /// Newest version of the store at the last flush to the part, in nanoseconds since 1970-01-01T00:00:00Z. Versions
    /// that the server assigns later are higher.
    pub(crate) newest: i64,
    /// True if the server has assigned `newest`. Otherwise an earlier build has written it, and a client can have
    /// assigned it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) own_newest: bool,
    /// Highest version that an earlier build can have assigned after the version of a client; see
    /// [`versions`](crate::versions). `None` if there is no such version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) skipped_to: Option<i64>,
    /// True if a part of format 3 or above can hold fragments of large rows.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) fragments: bool,
    /// Sequence below which the journal was deleted while the table had search indexes. A search index with a lower
    /// position has missed changes. 0 if the table has had no search index.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) search_end: u64,
    /// Number of the part in a table that is divided by time; `None` if the table has one part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) number: Option<i32>,
    /// Tier that stores the rows.
    #[serde(default, skip_serializing_if = "is_hot")]
    pub(crate) tier: Tier,
    /// True if rows of the part cannot be written, because the part is being archived, or is in the archive.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) closed: bool,
    /// Time until which a restored part is not archived again, in nanoseconds since 1970-01-01T00:00:00Z; `None` if the
    /// part was never restored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) held_until: Option<i64>,
    /// Tier to which the part is about to move. Until the move, writes also maintain the entries of indexes that cover
    /// this tier. `None` unless entries of an index are built for the move.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) moves_to: Option<Tier>,
    /// Highest id of large values whose pieces another database may store, because the part was attached from its
    /// archive. `None` unless the part was attached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) values_elsewhere_to: Option<i64>,
    /// True if a dictionary of a column of the part was replaced, so that the part has several dictionaries for the
    /// column.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) replaced_dictionaries: bool,
    /// True if the part is in the archive, together with streamed values of its rows.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) archived_values: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "called by serde")]
fn is_hot(tier: &Tier) -> bool {
    *tier == Tier::Hot
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "called by serde")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Format of the [`PartDetail`] of a part without fragments.
pub(crate) const PART_FORMAT: u8 = 1;
/// Format of the [`PartDetail`] of a part that can hold fragments. Older builds refuse this format.
const PART_FORMAT_FRAGMENTS: u8 = 2;
/// Format of the [`PartDetail`] of a part that can hold blocks. Older builds refuse this format.
const PART_FORMAT_BLOCKS: u8 = 3;

/// Format of the [`PartDetail`] of one of several parts of a table. Older builds refuse this format.
const PART_FORMAT_DIVIDED: u8 = 4;

/// Format of the [`PartDetail`] of a part in the cold tier. Older builds refuse this format.
const PART_FORMAT_COLD: u8 = 5;

/// Format of the [`PartDetail`] of a part that is closed, archived or restored. Older builds refuse this format.
const PART_FORMAT_ARCHIVED: u8 = 6;

/// Format of the [`PartDetail`] of a part that is about to move to a tier with other indexes. Older builds refuse this
/// format.
const PART_FORMAT_MOVING: u8 = 7;

/// Format of the [`PartDetail`] of a part in which a dictionary was replaced. Older builds refuse this format.
const PART_FORMAT_REPLACED: u8 = 8;

/// Format of the [`PartDetail`] of a part in the archive whose streamed values are there too. Older builds refuse this
/// format: they would remove the files of the values as unreferenced objects.
pub(crate) const PART_FORMAT_VALUES: u8 = 9;

impl Part {
    /// Returns the number of the part in its table.
    pub(crate) fn number(&self) -> i32 {
        self.detail.number.unwrap_or(WHOLE)
    }

    /// Returns true if the rows are in the archive.
    pub(crate) fn is_archived(&self) -> bool {
        self.detail.tier == Tier::Archive
    }

    /// Returns true if the part is in the archive, or is being archived.
    pub(crate) fn is_closed(&self) -> bool {
        self.detail.closed
    }

    /// Returns true if the part was restored and must not be archived again yet. `now` is in nanoseconds since
    /// 1970-01-01T00:00:00Z.
    pub(crate) fn is_held(&self, now: i64) -> bool {
        self.detail.held_until.is_some_and(|until| now < until)
    }

    /// Returns the key of the part in [`State::parts`].
    pub(crate) fn key(&self) -> PartKey {
        (self.at.table, self.number())
    }
}

impl PartDetail {
    /// Returns the content of the manifest row of an empty part. Only parts of divided tables can be in another tier
    /// than hot.
    pub(crate) fn new(table: TableId, number: Option<i32>, tier: Tier) -> Self {
        Self {
            format: match (number, tier) {
                (None, _) => PART_FORMAT_BLOCKS,
                (Some(_), Tier::Hot) => PART_FORMAT_DIVIDED,
                (Some(_), Tier::Cold | Tier::Archive) => PART_FORMAT_COLD,
            },
            table: table.0,
            buckets: 3,
            row_bytes_max: 0,
            column_bytes_max: Some(0),
            newest: i64::MIN,
            own_newest: false,
            skipped_to: None,
            fragments: false,
            search_end: 0,
            number,
            tier,
            closed: false,
            held_until: None,
            moves_to: None,
            values_elsewhere_to: None,
            replaced_dictionaries: false,
            archived_values: false,
        }
    }

    /// Returns true if another database may store the pieces of a large value, given by its id.
    pub(crate) fn is_elsewhere(&self, value: u64) -> bool {
        self.values_elsewhere_to
            .is_some_and(|last| i128::from(value) <= i128::from(last))
    }

    /// Returns true if the part can hold fragments of large rows.
    pub(crate) fn has_fragments(&self) -> bool {
        self.fragments || self.format == PART_FORMAT_FRAGMENTS
    }

    /// Returns true if the part can hold blocks.
    pub(crate) fn has_blocks(&self) -> bool {
        self.format >= PART_FORMAT_BLOCKS && self.tier != Tier::Archive
    }

    /// Returns the sizes of the largest stored row and column, in bytes.
    pub(crate) fn largest(&self) -> (usize, usize) {
        let bytes = |bytes| usize::try_from(bytes).unwrap_or(usize::MAX);
        let row = bytes(self.row_bytes_max);
        (row, self.column_bytes_max.map_or(row, bytes))
    }

    /// Raises the recorded maximum column size to `bytes` if it is lower. `bytes` is the size of a column, or of a
    /// whole row as an upper bound.
    pub(crate) fn note_column(&mut self, bytes: usize) {
        self.column_bytes_max = self.column_bytes_max.map(|known| known.max(bytes as u64));
    }

    /// Records that the part holds fragments.
    pub(crate) fn set_fragments(&mut self) {
        match self.has_blocks() {
            true => self.fragments = true,
            false => (self.format, self.buckets) = (PART_FORMAT_FRAGMENTS, 2),
        }
    }

    /// Records the tier that stores the part: hot or cold.
    pub(crate) fn set_tier(&mut self, tier: Tier) {
        (self.tier, self.moves_to) = (tier, None);
        self.set_format();
    }

    /// Records that the rows are in the archive, and whether streamed values are there too.
    pub(crate) fn set_archived(&mut self, has_values: bool) {
        self.archived_values = has_values;
        (self.tier, self.closed, self.held_until) = (Tier::Archive, true, None);
        self.moves_to = None;
        // Files have no dictionaries.
        self.replaced_dictionaries = false;
        self.set_format();
    }

    /// Records that rows can be written, and that the part must not be archived again before a time.
    pub(crate) fn set_held(&mut self, until: i64) {
        self.closed = false;
        self.held_until = self.held_until.max(Some(until));
        self.set_format();
    }

    /// Records that the rows are in the cold tier again, and that the part must not be archived again before a time.
    pub(crate) fn set_restored(&mut self, until: i64) {
        (self.tier, self.archived_values) = (Tier::Cold, false);
        self.set_held(until);
    }

    /// Records whether rows can be written.
    pub(crate) fn set_closed(&mut self, is_closed: bool) {
        self.closed = is_closed;
        self.set_format();
    }

    /// Records that the part is about to move to another tier, so that writes also maintain the indexes of this tier.
    pub(crate) fn set_moving(&mut self, tier: Tier) {
        self.moves_to = Some(tier);
        self.set_format();
    }

    /// Chooses the format of a part of a divided table that has blocks.
    fn set_format(&mut self) {
        self.format = match self.tier {
            _ if self.archived_values => PART_FORMAT_VALUES,
            _ if self.replaced_dictionaries => PART_FORMAT_REPLACED,
            _ if self.moves_to.is_some() => PART_FORMAT_MOVING,
            _ if self.closed || self.held_until.is_some() => PART_FORMAT_ARCHIVED,
            Tier::Hot => PART_FORMAT_DIVIDED,
            Tier::Cold | Tier::Archive => PART_FORMAT_COLD,
        };
    }

    /// Records that a dictionary of a column was replaced.
    pub(crate) fn set_replaced_dictionaries(&mut self) {
        self.replaced_dictionaries = true;
        self.format = PART_FORMAT_REPLACED;
    }

    /// Records that the part holds blocks.
    pub(crate) fn set_blocks(&mut self) {
        self.fragments = self.has_fragments();
        (self.format, self.buckets) = (self.format.max(PART_FORMAT_BLOCKS), 3);
    }
}

/// Returns the change that removes the manifest row of a part.
pub(crate) fn removal_of(part: &Part) -> ManifestChange {
    let name = Bytes::copy_from_slice(&part_name(part.at.part));
    ManifestChange::Remove(ManifestKind::Part, name)
}

/// Returns the change that stores the manifest row of a part.
pub(crate) fn put_of(part: &Part) -> ManifestChange {
    put_row(ManifestKind::Part, &part_name(part.at.part), &part.detail)
}

/// Generations and parts at one point in time. A shared state is immutable, except that its active generation grows.
#[derive(Debug, Clone, Default)]
pub(crate) struct State {
    pub(crate) active: Arc<Generation>,
    /// Frozen generations, oldest first.
    pub(crate) frozen: Vec<Arc<Generation>>,
    pub(crate) parts: BTreeMap<PartKey, Part>,
    /// Number of flushes that were published since the start, and of edits that replaced or attached parts.
    pub(crate) flushes: u64,
    /// Spans of blocks in which reads of this state found no row. All states since the last change of `flushes` share
    /// them.
    pub(crate) spans: Arc<Spans>,
    /// Value that all states since the last replacement of parts share. The replaced parts are freed when no older
    /// state is left.
    pub(crate) readers: Arc<()>,
    /// Number of changes since the start that invalidate decided writes: parts that were closed, moved, marked for a
    /// move or attached, takeovers of the manifest, and raised floors. A write that was decided before the last change
    /// is decided again.
    pub(crate) closings: u64,
    /// Earliest time of the changes of a table that are decided now, for tables with such a floor. See
    /// [`WideStore::raise_times`](crate::store::WideStore::raise_times).
    pub(crate) floors: BTreeMap<TableId, i64>,
    /// Keys of the parts that are being attached. Writes to these parts are refused.
    pub(crate) attaching: BTreeSet<PartKey>,
}

impl State {
    /// Counts a publication of a flush, or of replaced or attached parts. The rows in the parts differ from those
    /// before.
    pub(crate) fn count_publication(&mut self) {
        self.flushes += 1;
        self.spans = Arc::default();
    }

    /// Returns the parts of a table or index with these numbers, in the order of their numbers.
    pub(crate) fn parts_of(&self, table: TableId, numbers: PartNumbers) -> impl Iterator<Item = &Part> {
        let bounds = (table, *numbers.start())..=(table, *numbers.end());
        // `BTreeMap::range` panics if the start is above the end.
        let parts = (!numbers.is_empty()).then(|| self.parts.range(bounds));
        parts.into_iter().flatten().map(|(_, part)| part)
    }

    /// Returns the tier of a part of a table. Rows that were never flushed are in the hot tier.
    pub(crate) fn tier_of(&self, table: TableId, number: i32) -> Tier {
        let part = self.parts.get(&(table, number));
        part.map_or(Tier::Hot, |part| part.detail.tier)
    }

    /// Returns true if writes maintain an index with this scope in a part of its table. This is the case if the index
    /// covers the tier of the part, or the tier to which the part is about to move.
    pub(crate) fn maintains(&self, table: TableId, number: i32, scope: TierScope) -> bool {
        if scope.is_all() {
            return true;
        }
        let part = self.parts.get(&(table, number));
        let moves_to = part.and_then(|part| part.detail.moves_to);
        scope.has(self.tier_of(table, number)) || moves_to.is_some_and(|tier| scope.has(tier))
    }

    /// Returns the sequence that the position of every search index of a table must have reached.
    pub(crate) fn search_end(&self, table: TableId) -> u64 {
        let parts = self.parts_of(table, ALL_PARTS);
        parts.map(|part| part.detail.search_end).max().unwrap_or(0)
    }

    /// Returns the buffers of a table, newest first.
    pub(crate) fn buffers(&self, table: TableId) -> Vec<Arc<TableBuffer>> {
        let frozen = self.frozen.iter().rev();
        std::iter::once(&self.active)
            .chain(frozen)
            .filter_map(|generation| generation.table(table))
            .collect()
    }

    /// Returns true if this database never had the pieces of a large value, given by the number of the part of its row
    /// and by its id. This is also the case if no large value was ever written to the table.
    pub(crate) fn is_elsewhere(
        &self,
        table: TableId,
        rules: &TableRules,
        (number, value): (i32, u64),
    ) -> bool {
        let part = self.parts.get(&(table, number));
        rules.large_values.is_none() || part.is_some_and(|part| part.detail.is_elsewhere(value))
    }

    /// Returns true if the buffers have a change of a row.
    pub(crate) fn is_buffered(&self, table: TableId, key: &[u8]) -> bool {
        let buffers = self.buffers(table);
        buffers.iter().any(|buffer| buffer.last_change(key).is_some())
    }

    /// Returns the revision of a row whose mutations were collected from the buffers of this state.
    /// [`are_unchanged`](Self::are_unchanged) compares it later to detect changes.
    pub(crate) fn revision_of(&self, found: &Buffered) -> Revision {
        Revision {
            last: found.last,
            flushes: self.flushes,
        }
    }

    /// Returns the revision of a range: the last buffered change of its rows.
    pub(crate) fn range_revision(&self, table: TableId, range: &KeyRange) -> RangeRevision {
        let buffers = self.buffers(table);
        RangeRevision(Revision {
            last: buffers
                .iter()
                .filter_map(|buffer| buffer.last_change_in(range))
                .max(),
            flushes: self.flushes,
        })
    }

    /// Returns true if no row has changed since its revision was taken. May return false for unchanged rows if a flush
    /// was published in between.
    pub(crate) fn are_unchanged(&self, table: TableId, rows: &[(Bytes, Revision)]) -> bool {
        if rows.is_empty() {
            return true;
        }
        let buffers = self.buffers(table);
        // Each lock is taken once for all rows.
        let buffers: Vec<LockedBuffer<'_>> = buffers.iter().map(|buffer| buffer.lock()).collect();
        rows.iter().all(|(key, seen)| {
            let now = buffers.iter().find_map(|buffer| buffer.last_change(key));
            match (seen.last, now) {
                (None, None) => seen.flushes == self.flushes,
                (last, now) => last == now,
            }
        })
    }
}

/// Revision of a row at the time of a read: its last buffered change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Revision {
    /// Sequence of the last change in the buffer; `None` if the buffer has no change of the row.
    last: Option<SequenceNumber>,
    /// Number of flushes that were published before the read.
    flushes: u64,
}

/// Revision of a range at the time of a read: the last buffered change of its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RangeRevision(Revision);

/// Collects the mutations of one row from the buffers, newest first, until one needs no older state. Returns the
/// mutations, oldest first, and whether they apply to the row in the part.
pub(crate) fn buffered(buffers: &[Arc<TableBuffer>], key: &[u8]) -> Buffered {
    let mut all: Vec<Mutations> = Vec::new();
    let mut needs_part = true;
    let mut last = None;
    for buffer in buffers {
        let (found, sequence) = buffer.find_with_sequence(key);
        // The first buffer with a change is the newest one.
        last = last.or(sequence);
        match found {
            Found::Nothing => {}
            Found::Deleted => {
                needs_part = false;
                break;
            }
            Found::Row(mutations) => {
                let is_base = mutations.first().is_some_and(|first| is_base(first));
                all.push(mutations);
                if is_base {
                    needs_part = false;
                    break;
                }
            }
        }
    }
    Buffered {
        mutations: all.into_iter().rev().flatten().collect(),
        needs_part,
        last,
    }
}

/// Mutations of a row in the buffer.
#[derive(Debug)]
pub(crate) struct Buffered {
    /// Mutations, oldest first.
    pub(crate) mutations: Vec<Bytes>,
    /// True if the mutations apply to the row in the part.
    pub(crate) needs_part: bool,
    /// Sequence of the last change of the row; `None` if the buffers have no change of the row.
    last: Option<SequenceNumber>,
}

/// Number of changes that were checked but not yet applied, by the hash of the row key.
///
/// The committer checks all entries of a group before it applies any of them. While a change of a row is pending, the
/// committer therefore cannot decide a condition on this row. If two keys have the same hash, a write may be retried
/// unnecessarily.
#[derive(Debug, Default)]
pub(crate) struct PendingRows {
    rows: Mutex<Counts>,
    /// Counts by the hash of the partition.
    partitions: Mutex<Counts>,
    /// Number of pending range deletions, each of which may change any row.
    ranges: AtomicU32,
    hasher: DefaultHashBuilder,
}

/// Number of pending changes by hash. A hash without pending changes has no entry.
type Counts = HashMap<u64, u32>;

impl PendingRows {
    fn hash(&self, table: TableId, key: &[u8]) -> u64 {
        self.hasher.hash_one((table.0, key))
    }

    /// Returns true if a change of one of the rows may be pending.
    pub(crate) fn is_any_pending<'k>(
        &self,
        table: TableId,
        mut keys: impl Iterator<Item = &'k [u8]>,
    ) -> bool {
        let rows = self.rows.lock();
        self.ranges.load(Ordering::Relaxed) > 0
            || (!rows.is_empty() && keys.any(|key| rows.contains_key(&self.hash(table, key))))
    }

    /// Returns true if a change of a row of the partition may be pending.
    pub(crate) fn is_partition_pending(&self, table: TableId, partition: &[u8]) -> bool {
        let hash = self.hash(table, partition);
        self.ranges.load(Ordering::Relaxed) > 0 || self.partitions.lock().contains_key(&hash)
    }

    /// Counts changes of rows as pending. Each row is given by its key and the length of the prefix that names its
    /// partition.
    pub(crate) fn begin_rows<'k>(&self, table: TableId, keys: impl Iterator<Item = (&'k [u8], usize)>) {
        let (mut rows, mut partitions) = (self.rows.lock(), self.partitions.lock());
        by_partition(
            keys,
            |key| *rows.entry(self.hash(table, key)).or_default() += 1,
            |partition, count| *partitions.entry(self.hash(table, partition)).or_default() += count,
        );
    }

    /// Reverses [`begin_rows`](Self::begin_rows).
    pub(crate) fn end_rows<'k>(&self, table: TableId, keys: impl Iterator<Item = (&'k [u8], usize)>) {
        let (mut rows, mut partitions) = (self.rows.lock(), self.partitions.lock());
        by_partition(
            keys,
            |key| end(&mut rows, self.hash(table, key), 1),
            |partition, count| end(&mut partitions, self.hash(table, partition), count),
        );
    }

    pub(crate) fn begin_ranges(&self, count: u32) {
        self.ranges.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn end_ranges(&self, count: u32) {
        self.ranges.fetch_sub(count, Ordering::Relaxed);
    }
}

/// Passes each key to `row`, and the prefix of each run of keys of one partition to `partition`, with the number of
/// these keys. Each key is given with the length of the prefix that names its partition. Most writes have many rows of
/// few partitions.
fn by_partition<'k>(
    keys: impl Iterator<Item = (&'k [u8], usize)>,
    mut row: impl FnMut(&[u8]),
    mut partition: impl FnMut(&[u8], u32),
) {
    let mut run: Option<(&[u8], u32)> = None;
    for (key, length) in keys {
        row(key);
        let name = &key[..length];
        if let Some((last, count)) = &mut run
            && *last == name
        {
            *count += 1;
            continue;
        }
        if let Some((last, count)) = run.replace((name, 1)) {
            partition(last, count);
        }
    }
    if let Some((last, count)) = run {
        partition(last, count);
    }
}

/// Subtracts `ended` pending changes of a hash.
fn end(counts: &mut Counts, hash: u64, ended: u32) {
    if let Entry::Occupied(mut count) = counts.entry(hash) {
        match count.get().checked_sub(ended) {
            None | Some(0) => {
                count.remove();
            }
            Some(left) => *count.get_mut() = left,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(tideline_testkit::proptest_config(256))]

        /// Entries of rows with keys of one byte for the partition and one for the rest. They end in any order.
        #[test]
        fn rows_and_partitions_are_pending_until_the_last_entry_with_them_ends(
            entries in proptest::collection::vec(
                (proptest::collection::vec((0..3u8, 0..4u8), 0..12), any::<prop::sample::Index>()),
                0..6,
            ),
        ) {
            let pending = PendingRows::default();
            let table = TableId(1);
            let (mut open, mut order) = (Vec::new(), Vec::new());
            for (rows, at) in entries {
                let keys = rows.into_iter().map(|(partition, rest)| vec![partition, rest]);
                let keys: Vec<Vec<u8>> = keys.collect();
                pending.begin_rows(table, keys.iter().map(|key| (key.as_slice(), 1)));
                open.push(keys);
                order.push(at);
            }
            for at in order {
                for partition in 0..3 {
                    let is_pending = open.iter().flatten().any(|key| key[0] == partition);
                    prop_assert_eq!(pending.is_partition_pending(table, &[partition]), is_pending);
                    for rest in 0..4 {
                        let key = [partition, rest];
                        let is_pending = open.iter().flatten().any(|open| open[..] == key);
                        prop_assert_eq!(pending.is_any_pending(table, [&key[..]].into_iter()), is_pending);
                    }
                }
                let ended = open.swap_remove(at.index(open.len()));
                pending.end_rows(table, ended.iter().map(|key| (key.as_slice(), 1)));
            }
            prop_assert!(pending.rows.lock().is_empty() && pending.partitions.lock().is_empty());
        }
    }

    #[test]
    fn a_part_that_is_about_to_move_has_a_later_format() {
        let mut detail: PartDetail = serde_json::from_str(
            r#"{"format":4,"table":1,"buckets":3,"row_bytes_max":9,"column_bytes_max":8,"newest":7,"number":-2}"#,
        )
        .expect("a row of an earlier build");
        detail.set_moving(Tier::Cold);
        assert_eq!(
            serde_json::to_string(&detail).expect("JSON"),
            r#"{"format":7,"table":1,"buckets":3,"row_bytes_max":9,"column_bytes_max":8,"newest":7,"number":-2,"moves_to":"cold"}"#
        );
        detail.set_tier(Tier::Cold);
        assert_eq!((detail.format, detail.moves_to), (PART_FORMAT_COLD, None));
    }
}

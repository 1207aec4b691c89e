//! Row buffer: changes that are in the journal and not yet in a part.
//!
//! A [`Generation`] holds the changes of all tables between two freezes. The active generation grows. Frozen
//! generations wait for their flush into the *parts*, which store the flushed rows of the tables. A generation holds
//! the encoded mutations of each changed row in journal order. A mutation that replaces or deletes the row drops the
//! earlier mutations. A deleted range removes the rows of the generation in this range, and hides the rows of older
//! generations and of the part.
//!
//! Keys and mutations share the memory of their journal entries. The size of a generation is therefore the size of the
//! applied entries plus a constant per row change. This size also bounds the time to replay the entries.

mod row_key;

use std::collections::BTreeMap;
use std::collections::btree_map::{self, Entry};
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::{RwLock, RwLockReadGuard};
use smallvec::SmallVec;
use tideline_backend::Direction;
use tideline_model::{KeyRange, SequenceNumber, TableId};

use crate::codec;
use crate::entry::Change;
use crate::error::Damage;
use crate::mutation::Effect;
pub(crate) use row_key::RowKey;

/// Mutations of one row, oldest first.
pub(crate) type Mutations = SmallVec<[Bytes; 1]>;

/// Number of mutations of one row at which the newest ones are merged into one.
const MUTATIONS_MAX: usize = 8;
/// Number of rows at which the prefix of their keys is chosen first. It is chosen again after each eightfold growth.
const PREFIX_ROWS_MIN: usize = 64;
/// Number of rows from which the prefix stays, because all keys must be changed with it, while readers wait.
const PREFIX_ROWS_MAX: usize = 4_096;
/// Memory of a row change in addition to its journal entry, in bytes: tree node and references.
const ROW_OVERHEAD: usize = 144;

/// Changes of all tables between two freezes.
#[derive(Debug, Default)]
pub(crate) struct Generation {
    /// Sequence after the last entry; 0 until the generation is frozen.
    end: AtomicU64,
    tables: RwLock<BTreeMap<TableId, Arc<TableBuffer>>>,
    bytes: AtomicUsize,
    /// Time of the first change, or of its replay.
    since: OnceLock<Instant>,
}

/// Changes of one table.
#[derive(Debug)]
pub(crate) struct TableBuffer {
    /// Time of the first change.
    since: Instant,
    /// Bytes of the applied changes, with an estimate of the memory per row change.
    bytes: AtomicUsize,
    changes: RwLock<Changes>,
    /// True if a range was deleted. While false, no key is in a deleted range, and readers skip the lock.
    has_ranges: AtomicBool,
}

#[derive(Debug)]
struct Changes {
    /// Changed rows. Their keys are created for `prefix`.
    rows: BTreeMap<RowKey<'static>, BufferedRow>,
    deleted: DeletedRanges,
    /// Bytes with which all keys began when the prefix was chosen.
    prefix: Vec<u8>,
    /// Number of rows at which the prefix is chosen again.
    prefix_due: usize,
}

#[derive(Debug)]
struct BufferedRow {
    /// Sequence of the last mutation.
    sequence: SequenceNumber,
    mutations: Mutations,
}

/// Content of a generation for one row.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// The generation does not change the row.
    Nothing,
    /// The row is in a deleted range and was not written after the deletion.
    Deleted,
    /// Mutations of the row, oldest first.
    Row(Mutations),
}

impl Generation {
    /// Returns the changes of a table; `None` if the generation has no change of the table.
    pub(crate) fn table(&self, table: TableId) -> Option<Arc<TableBuffer>> {
        self.tables.read().get(&table).cloned()
    }

    /// Returns all tables with changes.
    pub(crate) fn tables(&self) -> Vec<(TableId, Arc<TableBuffer>)> {
        let tables = self.tables.read();
        tables
            .iter()
            .map(|(id, buffer)| (*id, Arc::clone(buffer)))
            .collect()
    }

    /// Returns the bytes of the applied entries, with an estimate of the memory per row change.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns the time since the first change; zero if nothing was applied.
    pub(crate) fn age(&self) -> Duration {
        self.since.get().map_or(Duration::ZERO, Instant::elapsed)
    }

    /// Marks the generation as frozen: the sequences of its entries are below `end`.
    pub(crate) fn freeze(&self, end: SequenceNumber) {
        self.end.store(end.0, Ordering::Release);
    }

    /// Returns the sequence after the last entry of a frozen generation.
    pub(crate) fn end(&self) -> SequenceNumber {
        SequenceNumber(self.end.load(Ordering::Acquire))
    }

    /// Returns true if nothing was applied.
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes() == 0
    }

    /// Applies the changes of one entry. Called by the committer, and by journal replay.
    ///
    /// # Errors
    ///
    /// [`Damage`] if a mutation cannot be decoded; the changes before it are applied.
    pub(crate) fn apply(
        &self,
        table: TableId,
        changes: Vec<Change>,
        sequence: SequenceNumber,
        versions_max: usize,
    ) -> Result<(), Damage> {
        self.since.get_or_init(Instant::now);
        let buffer = match self.table(table) {
            Some(buffer) => buffer,
            None => Arc::clone(self.tables.write().entry(table).or_insert_with(TableBuffer::new)),
        };
        let mut bytes = 0;
        let mut locked = buffer.changes.write();
        let applied = changes.into_iter().try_for_each(|change| {
            bytes += change.bytes();
            match change {
                Change::Row { key, mutation } => {
                    bytes += ROW_OVERHEAD;
                    locked.put(key, mutation, sequence, versions_max)
                }
                Change::DeleteRange(range) => {
                    buffer.has_ranges.store(true, Ordering::Release);
                    locked.delete(range, sequence);
                    Ok(())
                }
            }
        });
        locked.choose_prefix();
        drop(locked);
        buffer.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.bytes.fetch_add(bytes.max(1), Ordering::Relaxed);
        applied
    }
}

impl TableBuffer {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            since: Instant::now(),
            bytes: AtomicUsize::new(0),
            changes: RwLock::new(Changes::new()),
            has_ranges: AtomicBool::new(false),
        })
    }

    /// Returns the time since the first change.
    pub(crate) fn age(&self) -> Duration {
        self.since.elapsed()
    }

    /// Returns the bytes of the applied changes, with an estimate of the memory per row change.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns the number of changed rows.
    pub(crate) fn rows(&self) -> usize {
        self.changes.read().rows.len()
    }

    /// Returns the content of the generation for a row.
    pub(crate) fn find(&self, key: &[u8]) -> Found {
        self.find_with_sequence(key).0
    }

    /// Returns the content of the generation for a row, and the sequence of the last change of the row; `None` if the
    /// generation does not change it. Both describe the same moment.
    pub(crate) fn find_with_sequence(&self, key: &[u8]) -> (Found, Option<SequenceNumber>) {
        let changes = self.changes.read();
        let deleted = changes.deleted.covering(key);
        match changes.row(key) {
            Some(row) => (Found::Row(row.mutations.clone()), Some(row.sequence).max(deleted)),
            None if deleted.is_some() => (Found::Deleted, deleted),
            None => (Found::Nothing, None),
        }
    }

    /// Returns the sequence of the last change of a row; `None` if the generation does not change it.
    pub(crate) fn last_change(&self, key: &[u8]) -> Option<SequenceNumber> {
        self.changes.read().last_change(key)
    }

    /// Prevents changes while the returned value exists, for queries of many rows.
    pub(crate) fn lock(&self) -> LockedBuffer<'_> {
        LockedBuffer(self.changes.read())
    }

    /// Returns the sequence of the last change in a range; `None` if the generation changes no row of the range. Takes
    /// time linear in the number of changed rows of the range.
    pub(crate) fn last_change_in(&self, range: &KeyRange) -> Option<SequenceNumber> {
        let changes = self.changes.read();
        let rows = changes.rows_in(range)?;
        let row = rows.map(|(_, row)| row.sequence).max();
        row.max(changes.deleted.touching(range))
    }

    /// Returns true if the key is in a deleted range.
    pub(crate) fn is_deleted(&self, key: &[u8]) -> bool {
        self.has_ranges.load(Ordering::Acquire) && self.changes.read().deleted.covering(key).is_some()
    }

    /// Returns up to `limit` rows of a range in scan order.
    pub(crate) fn page(
        &self,
        range: &KeyRange,
        direction: Direction,
        limit: usize,
    ) -> Vec<(Bytes, Mutations)> {
        let changes = self.changes.read();
        let Some(rows) = changes.rows_in(range) else {
            return Vec::new();
        };
        let copy = |(key, row): (&RowKey<'_>, &BufferedRow)| (key.to_bytes(), row.mutations.clone());
        match direction {
            Direction::Ascending => rows.take(limit).map(copy).collect(),
            Direction::Descending => rows.rev().take(limit).map(copy).collect(),
        }
    }

    /// Passes the changed rows to `take`, in key order.
    ///
    /// # Errors
    ///
    /// The errors of `take`.
    pub(crate) fn each_row(
        &self,
        take: &mut dyn FnMut(&RowKey<'_>, &Mutations) -> Result<(), Damage>,
    ) -> Result<(), Damage> {
        let changes = self.changes.read();
        let mut rows = changes.rows.iter();
        rows.try_for_each(|(key, row)| take(key, &row.mutations))
    }

    /// Returns the deleted ranges, ascending.
    pub(crate) fn deleted_ranges(&self) -> Vec<KeyRange> {
        self.changes.read().deleted.ranges()
    }
}

/// Changes of one table, which no other thread can extend meanwhile.
pub(crate) struct LockedBuffer<'b>(RwLockReadGuard<'b, Changes>);

impl LockedBuffer<'_> {
    /// Returns the same as [`TableBuffer::last_change`].
    pub(crate) fn last_change(&self, key: &[u8]) -> Option<SequenceNumber> {
        self.0.last_change(key)
    }
}

impl Changes {
    const fn new() -> Self {
        Self {
            rows: BTreeMap::new(),
            deleted: DeletedRanges(BTreeMap::new()),
            prefix: Vec::new(),
            prefix_due: PREFIX_ROWS_MIN,
        }
    }

    fn row<'k>(&'k self, key: &'k [u8]) -> Option<&'k BufferedRow> {
        ordered(&self.rows).get(&RowKey::borrowed(&self.prefix, key))
    }

    fn last_change(&self, key: &[u8]) -> Option<SequenceNumber> {
        let row = self.row(key).map(|row| row.sequence);
        row.max(self.deleted.covering(key))
    }

    /// Changes the prefix to the bytes with which all keys begin now, if the number of rows has grown enough since the
    /// last choice. Later keys need not begin with the prefix; comparisons of these keys take longer.
    fn choose_prefix(&mut self) {
        if self.rows.len() < self.prefix_due {
            return;
        }
        self.prefix_due = match self.rows.len() {
            PREFIX_ROWS_MAX.. => usize::MAX,
            rows => (8 * rows).min(PREFIX_ROWS_MAX),
        };
        let (Some((first, _)), Some((last, _))) = (self.rows.first_key_value(), self.rows.last_key_value())
        else {
            return;
        };
        let common = std::iter::zip(first.bytes(), last.bytes()).take_while(|(one, other)| one == other);
        let prefix = first.bytes()[..common.count()].to_vec();
        if prefix != self.prefix {
            let rows = std::mem::take(&mut self.rows).into_iter();
            self.rows = rows.map(|(key, row)| (key.with_prefix(&prefix), row)).collect();
            self.prefix = prefix;
        }
    }

    /// Returns the rows of a range in key order; `None` if the range is empty.
    fn rows_in<'k>(&'k self, range: &'k KeyRange) -> Option<btree_map::Range<'k, RowKey<'k>, BufferedRow>> {
        if range.is_empty() {
            return None;
        }
        let start = Bound::Included(RowKey::borrowed(&self.prefix, &range.start));
        let end = range.end.as_deref();
        let end = end.map(|end| RowKey::borrowed(&self.prefix, end));
        Some(ordered(&self.rows).range((start, end.map_or(Bound::Unbounded, Bound::Excluded))))
    }

    fn put(
        &mut self,
        key: Bytes,
        mutation: Bytes,
        sequence: SequenceNumber,
        versions_max: usize,
    ) -> Result<(), Damage> {
        let effect = codec::effect_of(&mutation)?;
        match self.rows.entry(RowKey::shared(&self.prefix, key)) {
            Entry::Occupied(mut row) => {
                let row = row.get_mut();
                row.sequence = sequence;
                if effect != Effect::Update {
                    row.mutations.clear();
                }
                row.mutations.push(mutation);
                if row.mutations.len() >= MUTATIONS_MAX {
                    merge_newest(&mut row.mutations, versions_max)?;
                }
            }
            Entry::Vacant(free) => {
                let is_alone =
                    effect == Effect::Update && self.deleted.covering(free.key().bytes()).is_some();
                let mutation = match is_alone {
                    // The row is in a deleted range: the update must not apply to an older version of the row.
                    true => Bytes::from(codec::with_effect(&mutation, Effect::Replace)?),
                    false => mutation,
                };
                let mutations = SmallVec::from_buf([mutation]);
                free.insert(BufferedRow { sequence, mutations });
            }
        }
        Ok(())
    }

    fn delete(&mut self, range: KeyRange, sequence: SequenceNumber) {
        if range.is_empty() {
            return;
        }
        let prefix = &self.prefix;
        let key_of = |bytes: &[u8]| RowKey::shared(prefix, Bytes::copy_from_slice(bytes));
        let mut covered = self.rows.split_off(&key_of(&range.start));
        if let Some(end) = &range.end {
            let mut after = covered.split_off(&key_of(end));
            self.rows.append(&mut after);
        }
        self.deleted.insert(range, sequence);
    }
}

/// Returns rows with keys that can be compared with borrowed keys.
fn ordered<'k>(rows: &'k BTreeMap<RowKey<'static>, BufferedRow>) -> &'k BTreeMap<RowKey<'k>, BufferedRow> {
    rows
}

/// Merges the newest mutations of a row. Includes an older mutation as long as it is at most twice as large as the
/// mutations merged so far, so the cost of n updates of a wide row is O(n log n).
fn merge_newest(mutations: &mut Mutations, versions_max: usize) -> Result<(), Damage> {
    let (mut start, mut bytes) = (mutations.len(), 0);
    for (at, mutation) in mutations.iter().enumerate().rev() {
        if mutations.len() - start >= 2 && mutation.len() > 2 * bytes {
            break;
        }
        (start, bytes) = (at, bytes + mutation.len());
    }
    let merged = merge(&mutations[start..], versions_max)?;
    mutations.truncate(start);
    mutations.push(merged);
    Ok(())
}

/// Merges encoded mutations of one row, oldest first, into one.
fn merge(mutations: &[Bytes], versions_max: usize) -> Result<Bytes, Damage> {
    let mut decoded = mutations.iter().map(|mutation| codec::decode(mutation));
    let first = decoded.next().ok_or(Damage("a row has no mutation"))??;
    let merged = decoded.try_fold(first, |merged, next| Ok(merged.then(next?, versions_max)))?;
    let mut out = Vec::new();
    codec::encode(&merged, &mut out);
    Ok(Bytes::from(out))
}

/// Disjoint deleted ranges, each with the sequence of its last deletion.
#[derive(Debug, Default)]
struct DeletedRanges(BTreeMap<Vec<u8>, (Option<Vec<u8>>, SequenceNumber)>);

impl DeletedRanges {
    /// Returns the sequence of the deleted range that contains the key; `None` if no range contains it.
    fn covering(&self, key: &[u8]) -> Option<SequenceNumber> {
        let before = (Bound::Unbounded, Bound::Included(key));
        let (_, (end, sequence)) = self.0.range::<[u8], _>(before).next_back()?;
        end.as_deref().is_none_or(|end| key < end).then_some(*sequence)
    }

    /// Returns the newest sequence of the deleted ranges that overlap `range`; `None` if there is no such range.
    fn touching(&self, range: &KeyRange) -> Option<SequenceNumber> {
        let end = range.end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let before = self.0.range::<[u8], _>((Bound::Unbounded, end)).rev();
        let touching = before.take_while(|(_, (end, _))| end.as_ref().is_none_or(|end| *end > range.start));
        touching.map(|(_, (_, sequence))| *sequence).max()
    }

    /// Adds a range and joins it with the ranges that it touches. A joined range has the newest sequence. A reader that
    /// compares sequences may therefore retry unnecessarily, but never misses a deletion.
    fn insert(&mut self, range: KeyRange, sequence: SequenceNumber) {
        let KeyRange { mut start, mut end } = range;
        loop {
            let touching = match &end {
                Some(end) => self
                    .0
                    .range::<[u8], _>((Bound::Unbounded, Bound::Included(end.as_slice()))),
                None => self
                    .0
                    .range::<[u8], _>((Bound::Unbounded::<&[u8]>, Bound::Unbounded)),
            };
            let reaches = |other: &Option<Vec<u8>>| other.as_ref().is_none_or(|other| *other >= start);
            let Some((other_start, (other_end, _))) = touching.last().filter(|(_, (end, _))| reaches(end))
            else {
                break;
            };
            end = match (end, other_end) {
                (Some(one), Some(other)) => Some(one.max(other.clone())),
                _ => None,
            };
            let other_start = other_start.clone();
            self.0.remove(&other_start);
            start = start.min(other_start);
        }
        self.0.insert(start, (end, sequence));
    }

    fn ranges(&self) -> Vec<KeyRange> {
        let range = |(start, (end, _)): (&Vec<u8>, &(Option<Vec<u8>>, SequenceNumber))| KeyRange {
            start: start.clone(),
            end: end.clone(),
        };
        self.0.iter().map(range).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn range(start: u8, end: Option<u8>) -> KeyRange {
        KeyRange {
            start: vec![start],
            end: end.map(|end| vec![end]),
        }
    }

    proptest! {
        #![proptest_config(tideline_testkit::proptest_config(256))]

        #[test]
        fn deleted_ranges_cover_what_was_deleted(
            ranges in proptest::collection::vec((0..20u8, proptest::option::weighted(0.9, 0..22u8)), 0..8)
        ) {
            let mut deleted = DeletedRanges::default();
            let mut naive = BTreeSet::new();
            for (at, (start, end)) in ranges.into_iter().enumerate() {
                let end = end.map(|end| end.max(start + 1));
                deleted.insert(range(start, end), SequenceNumber(at as u64));
                naive.extend(start..end.unwrap_or(30));
            }
            for key in 0..30 {
                prop_assert_eq!(deleted.covering(&[key]).is_some(), naive.contains(&key), "key {}", key);
            }
            let all = deleted.ranges();
            for pair in all.windows(2) {
                let end = pair[0].end.as_ref().expect("only the last is unbounded");
                prop_assert!(*end < pair[1].start, "{:?}", all);
            }
        }
    }

    fn update() -> Bytes {
        codec::encoded(&crate::mutation::Mutation {
            effect: Effect::Update,
            time: 1,
            columns: Vec::new(),
        })
    }

    proptest! {
        #![proptest_config(tideline_testkit::proptest_config(64))]

        /// Entries of many rows, so that the prefix changes while rows are added. The keys of an entry often begin
        /// with the same bytes, which other entries do not have.
        #[test]
        fn rows_are_found_and_ordered_whatever_prefix_was_chosen(
            entries in proptest::collection::vec(
                (
                    proptest::collection::vec(0..3u8, 0..4),
                    proptest::collection::vec(proptest::collection::vec(0..4u8, 0..6), 1..120),
                ),
                1..8,
            ),
            start in proptest::collection::vec(0..3u8, 0..3),
            end in proptest::collection::vec(0..3u8, 0..3),
        ) {
            let generation = Generation::default();
            let mut naive = BTreeMap::new();
            for (at, (prefix, keys)) in entries.into_iter().enumerate() {
                let keys = keys.iter().map(|key| [prefix.as_slice(), key.as_slice()].concat());
                let keys: Vec<Vec<u8>> = keys.collect();
                let change = |key: &Vec<u8>| Change::Row {
                    key: Bytes::from(key.clone()),
                    mutation: update(),
                };
                let sequence = SequenceNumber(at as u64);
                let applied = generation.apply(TableId(1), keys.iter().map(change).collect(), sequence, 1);
                applied.expect("it is applied");
                naive.extend(keys.into_iter().map(|key| (key, sequence)));
            }
            let buffer = generation.table(TableId(1)).expect("it has changes");
            prop_assert_eq!(buffer.rows(), naive.len());
            let keys_in = |range: &KeyRange| {
                let page = buffer.page(range, Direction::Ascending, usize::MAX);
                page.into_iter().map(|(key, _)| key.to_vec()).collect::<Vec<_>>()
            };
            prop_assert_eq!(keys_in(&KeyRange::ALL), naive.keys().cloned().collect::<Vec<_>>());
            let range = KeyRange::new(start, end);
            let expected = naive.keys().filter(|key| range.contains(key)).cloned();
            prop_assert_eq!(keys_in(&range), expected.collect::<Vec<_>>());
            let locked = buffer.lock();
            for (key, sequence) in &naive {
                prop_assert_eq!(locked.last_change(key), Some(*sequence));
                let (found, last) = buffer.find_with_sequence(key);
                prop_assert!(matches!(found, Found::Row(_)), "{:?}", key);
                prop_assert_eq!(last, Some(*sequence));
            }
        }
    }

    #[test]
    fn a_deleted_range_removes_rows_and_hides_older_ones() {
        let generation = Generation::default();
        let row = |key: &'static [u8]| Change::Row {
            key: Bytes::from_static(key),
            mutation: update(),
        };
        let apply = |changes, at| {
            generation
                .apply(TableId(1), changes, SequenceNumber(at), 1)
                .expect("it is applied");
        };
        apply(vec![row(b"a"), row(b"b"), row(b"c")], 1);
        apply(vec![Change::DeleteRange(KeyRange::new(*b"b", *b"c"))], 2);
        let buffer = generation.table(TableId(1)).expect("it has changes");
        let deleted = (Found::Deleted, Some(SequenceNumber(2)));
        assert_eq!(buffer.find_with_sequence(b"b"), deleted);
        assert_eq!(buffer.find(b"d"), Found::Nothing);
        assert_eq!(buffer.last_change(b"b"), Some(SequenceNumber(2)));
        apply(vec![row(b"b")], 3);
        let Found::Row(mutations) = buffer.find(b"b") else {
            panic!("it was written again");
        };
        assert_eq!(codec::effect_of(&mutations[0]), Ok(Effect::Replace));
        let page = buffer.page(&KeyRange::ALL, Direction::Descending, 2);
        let keys: Vec<_> = page.iter().map(|(key, _)| key.as_ref()).collect();
        assert_eq!(keys, [b"c", b"b"]);
    }
}

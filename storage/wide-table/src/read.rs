//! Reads: one row, and pages of rows in key order.
//!
//! A page is read in three steps: the buffers, then the parts, then a check that no generation was frozen and no flush
//! was published in between. Otherwise, the page is read again. Each row of a page therefore has a state that it had at
//! some time during the read. Two pages may reflect different points in time.
//!
//! In a table with column groups, the parts of the groups that the read needs are further sources of the merge. They
//! add columns to the rows of the main part. Every key in such a part is also the key of a row of the main part.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use smallvec::SmallVec;
use tideline_backend::{Direction, PageLimit, Partition};
use tideline_model::{KeyRange, TableId, TierScope};

use crate::blocks::PackedRows;
use crate::buffer::{Mutations, TableBuffer};
use crate::codec;
use crate::cold;
use crate::division::{ALL_PARTS, PartNumbers, PartSelection, WHOLE};
use crate::error::{Damage, Result, WideError};
use crate::fragments::{Head, join};
use crate::groups::{self, GroupSet};
use crate::mutation::{Effect, Mutation};
use crate::state::{Part, Revision, State, buffered};
use crate::store::{WideStore, is_base};
use crate::tables::TableRules;

/// Bucket of a part that holds the single rows.
pub(crate) const ROWS_BUCKET: u16 = 0;

/// Maximum number and size of the rows that one step of a long operation reads: a build, a removal, a check, a delete,
/// or a digest.
pub(crate) const STEP_PAGE: PageLimit = PageLimit {
    rows_max: 500,
    bytes_max: 1 << 20,
};

/// Number and bytes of the rows that are read first from each of several parts, and the factor by which each further
/// read is larger.
const FIRST_ROWS: usize = 16;
const FIRST_BYTES: usize = 16 << 10;
const FEED_GROWTH: usize = 4;

/// Range, direction and limit of a page.
type Wanted<'r> = (&'r KeyRange, Direction, PageLimit);

/// Parts that a read concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// All parts.
    All,
    /// Parts that are not closed for writes.
    Open,
    /// Parts of these tiers. For an index, the parts of these tiers that it covers.
    Tier(TierScope),
}

/// Stored row: its key and its encoded columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRow {
    /// Stored key.
    pub key: Bytes,
    value: Bytes,
    /// Encoded columns with the contents of cut values; `None` if `value` has all columns that are needed.
    whole: Option<Bytes>,
}

impl StoredRow {
    pub(crate) const fn new(key: Bytes, value: Bytes) -> Self {
        Self {
            key,
            value,
            whole: None,
        }
    }

    /// Returns a row with columns in the form of [`Mutation::encoded`], such as a copy of a row that is stored in
    /// another row.
    pub const fn with_columns(key: Bytes, columns: Bytes) -> Self {
        Self::new(key, columns)
    }

    /// Returns the row with columns that hold the contents of cut values. The stored bytes, of which digests are
    /// computed, stay the same.
    pub(crate) fn with_whole(self, whole: Bytes) -> Self {
        Self {
            whole: Some(whole),
            ..self
        }
    }

    /// Returns the row as if the contents of its cut values were stored with it.
    pub(crate) fn flattened(self) -> Self {
        match self.whole {
            Some(whole) => Self::new(self.key, whole),
            None => self,
        }
    }

    /// Decodes the columns. Texts and bytes are borrowed.
    ///
    /// # Errors
    ///
    /// [`Damage`] if the stored bytes are damaged.
    pub fn columns(&self) -> std::result::Result<Mutation<'_>, Damage> {
        codec::decode(self.whole.as_ref().unwrap_or(&self.value))
    }

    /// Returns the time of the row, as [`Mutation::time`] defines it, without decoding its columns.
    ///
    /// # Errors
    ///
    /// [`Damage`] if the stored bytes are damaged.
    pub fn time(&self) -> std::result::Result<i64, Damage> {
        codec::time_of(&self.value)
    }

    /// Returns the encoded columns, as they are stored.
    pub(crate) fn encoded(&self) -> &Bytes {
        &self.value
    }

    /// Returns the size of key and columns in bytes.
    pub fn bytes(&self) -> usize {
        self.key.len() + self.whole.as_ref().unwrap_or(&self.value).len()
    }
}

/// Page of rows.
#[derive(Debug)]
pub struct RowPage {
    /// Rows in scan order.
    pub rows: Vec<StoredRow>,
    /// Number of rows that were read for the page, including deleted rows.
    pub scanned: u64,
    /// Remaining range; `None` if the scan is complete.
    pub next: Option<KeyRange>,
}

impl WideStore {
    /// Returns a row; `None` if it does not exist.
    ///
    /// # Errors
    ///
    /// [`WideError::NoTable`] if the table does not exist, [`WideError::Damaged`] if stored bytes are damaged, and the
    /// errors of the backend and of the lease.
    pub fn row(&self, table: TableId, key: &[u8]) -> Result<Option<StoredRow>> {
        self.row_of_groups(table, key, GroupSet::ALL)
    }

    /// Returns a row like [`row`](Self::row), but only the columns of the given groups are complete: columns of other
    /// groups may be missing.
    ///
    /// # Errors
    ///
    /// The errors of [`row`](Self::row).
    pub fn row_of_groups(&self, table: TableId, key: &[u8], set: GroupSet) -> Result<Option<StoredRow>> {
        let damaged = |reason| WideError::Damaged { table, reason };
        let rules = self.rules(table)?;
        let number = rules.part_of(key).map_err(damaged)?;
        if !self.visible_parts(&rules).contains(&number) {
            return Ok(None);
        }
        self.unexpired_row(table, &rules, key, set)
    }

    /// Returns a row like [`row`](Self::row), but also if its part is hidden; see
    /// [`page_with_hidden`](Self::page_with_hidden).
    ///
    /// # Errors
    ///
    /// The errors of [`row`](Self::row).
    pub fn row_with_hidden(&self, table: TableId, key: &[u8]) -> Result<Option<StoredRow>> {
        self.unexpired_row(table, self.rules(table)?.as_ref(), key, GroupSet::ALL)
    }

    fn unexpired_row(
        &self,
        table: TableId,
        rules: &TableRules,
        key: &[u8],
        set: GroupSet,
    ) -> Result<Option<StoredRow>> {
        let Some(row) = self.some_of_row(table, rules, key, set, rules.versions_max)?.0 else {
            return Ok(None);
        };
        let row = self.expiry(rules).visible_stored(row);
        row.map_err(|reason| WideError::Damaged { table, reason })
    }

    /// Returns a row and its revision. The revision is taken before the row is read. The row may have expired, and its
    /// part may be hidden.
    pub(crate) fn row_at(
        &self,
        table: TableId,
        rules: &TableRules,
        key: &[u8],
    ) -> Result<(Option<StoredRow>, Revision)> {
        self.some_of_row(table, rules, key, GroupSet::ALL, rules.versions_max)
    }

    /// Returns a row with all versions that are stored or in the buffers, also those that exceed the current number of
    /// versions per column. They become visible if the number is raised before a flush has removed them. The row may
    /// have expired, and its part may be hidden.
    pub(crate) fn row_with_all_versions(
        &self,
        table: TableId,
        rules: &TableRules,
        key: &[u8],
    ) -> Result<Option<StoredRow>> {
        Ok(self.some_of_row(table, rules, key, GroupSet::ALL, usize::MAX)?.0)
    }

    /// Returns a row and its revision like [`row_at`](Self::row_at), with up to `versions_max` versions per column.
    /// Columns of groups that are not in `set` may be missing.
    fn some_of_row(
        &self,
        table: TableId,
        rules: &TableRules,
        key: &[u8],
        set: GroupSet,
        versions_max: usize,
    ) -> Result<(Option<StoredRow>, Revision)> {
        let damaged = |reason| WideError::Damaged { table, reason };
        let number = rules.part_of(key).map_err(damaged)?;
        self.log.check_lease()?;
        loop {
            let state = self.state();
            let revision = state.revision(table, key);
            if !rules.keeps(number) {
                return Ok((None, revision));
            }
            let found = buffered(&state.buffers(table), key);
            let part = state.parts.get(&(table, number)).filter(|_| found.needs_part);
            let base = match part {
                Some(part) => match self.stored_in(part, key)? {
                    Some(main) => Some(self.with_groups(&state, rules, part, (key, main), set)?),
                    None => None,
                },
                None => None,
            };
            if found.needs_part && self.must_read_again(&state) {
                continue;
            }
            self.log.check_lease()?;
            let value = resolve(base.as_ref(), &found.mutations, versions_max);
            let value = value.map_err(damaged)?;
            let row = value.map(|value| StoredRow::new(Bytes::copy_from_slice(key), value));
            return Ok((row, revision));
        }
    }

    /// Returns the bytes of a row in a part; `None` if the part does not have the row. The fragments of a large row are
    /// joined.
    pub(crate) fn stored_in(&self, part: &Part, key: &[u8]) -> Result<Option<Bytes>> {
        let found = match self.stored_raw(part, key)? {
            Some(value) => self.joined(part, key, value)?,
            None => None,
        };
        cold::count(part, || key.len() + found.as_ref().map_or(0, Bytes::len));
        Ok(found)
    }

    /// Returns a stored row. If `value` is a head, joins its fragments. If the row was rewritten meanwhile, reads it
    /// again; returns `None` if it was deleted meanwhile.
    pub(crate) fn joined(&self, part: &Part, key: &[u8], mut value: Bytes) -> Result<Option<Bytes>> {
        let damaged = |reason| WideError::Damaged {
            table: part.at.table,
            reason,
        };
        loop {
            let Some(head) = Head::decode(&value).map_err(damaged)? else {
                return Ok(Some(value));
            };
            let all: Vec<u32> = (0..).take(head.firsts.len()).collect();
            if let Some(fragments) = self.read_fragments(part.at, key, &head, &all)? {
                return join(&head, &fragments).map(Some).map_err(damaged);
            }
            let Some(now) = self.stored_raw(part, key)? else {
                return Ok(None);
            };
            if now == value {
                return Err(damaged(Damage("a fragment of a row is missing")));
            }
            value = now;
        }
    }

    /// Returns the size of a row in its part, in bytes without its key; 0 if the part does not have the row.
    pub(crate) fn stored_bytes(
        &self,
        state: &State,
        table: TableId,
        rules: &TableRules,
        key: &[u8],
    ) -> Result<usize> {
        let number = rules.part_of(key);
        let number = number.map_err(|reason| WideError::Damaged { table, reason })?;
        let Some(part) = state.parts.get(&(table, number)) else {
            return Ok(0);
        };
        let mut bytes = 0_usize;
        let of_groups = state.group_parts(rules, part, GroupSet::ALL);
        for part in std::iter::once(part).chain(of_groups.map(|(_, part)| part)) {
            if let Some(value) = self.stored_raw(part, key)? {
                let head = Head::decode(&value).map_err(|reason| WideError::Damaged { table, reason })?;
                let whole = head.map_or(value.len(), |head| {
                    usize::try_from(head.bytes).unwrap_or(usize::MAX)
                });
                bytes = bytes.saturating_add(whole);
            }
        }
        Ok(bytes)
    }

    /// Returns a stored row, or the head of a large row; `None` if the part does not have the row.
    pub(crate) fn stored_raw(&self, part: &Part, key: &[u8]) -> Result<Option<Bytes>> {
        if part.is_archived() {
            return self.archived_row(part, key);
        }
        let partition = Partition::part(part.at, ROWS_BUCKET);
        let backend = self.log.backend().as_ref();
        match backend.get(partition, key)? {
            Some(single) => Ok((!codec::is_delete(&single)).then_some(single)),
            None if part.detail.has_blocks() => {
                let packed = self.blocks(part.at).row(key);
                packed.map_err(|error| error.of(part.at.table))
            }
            None => Ok(None),
        }
    }

    /// Returns a page of rows of a range in scan order, from all visible parts. The page has at most `limit.rows_max`
    /// rows, and ends after the first row that makes it exceed `limit.bytes_max`. If all rows that were read are
    /// deleted, the page is empty; more rows may follow.
    ///
    /// # Errors
    ///
    /// The errors of [`row`](Self::row).
    pub fn page(
        &self,
        table: TableId,
        range: &KeyRange,
        direction: Direction,
        limit: PageLimit,
    ) -> Result<RowPage> {
        self.page_of_parts(table, &PartSelection::default(), range, direction, limit)
    }

    /// Returns a page of rows like [`page`](Self::page), but only from the visible parts of a selection. Parts outside
    /// of the selection are not read.
    ///
    /// # Errors
    ///
    /// The errors of [`row`](Self::row), and [`WideError::TierNotCovered`] if the read of an index concerns a part for
    /// which the index has no entries.
    pub fn page_of_parts(
        &self,
        table: TableId,
        parts: &PartSelection,
        range: &KeyRange,
        direction: Direction,
        limit: PageLimit,
    ) -> Result<RowPage> {
        self.page_of_groups(table, (parts, GroupSet::ALL), range, direction, limit)
    }

    /// Returns a page of rows like [`page_of_parts`](Self::page_of_parts), but only the columns of the given groups are
    /// complete: columns of other groups may be missing.
    ///
    /// # Errors
    ///
    /// The errors of [`page_of_parts`](Self::page_of_parts).
    pub fn page_of_groups(
        &self,
        table: TableId,
        (parts, set): (&PartSelection, GroupSet),
        range: &KeyRange,
        direction: Direction,
        limit: PageLimit,
    ) -> Result<RowPage> {
        let rules = self.rules(table)?;
        let visible = self.visible_parts(&rules);
        let numbers = &parts.numbers;
        let numbers = *visible.start().max(numbers.start())..=*visible.end().min(numbers.end());
        let scope = Scope::Tier(parts.tier);
        self.unexpired_page(table, &rules, (&numbers, scope, set), (range, direction, limit))
    }

    /// Returns a page like [`page`](Self::page), but also with the rows of hidden parts. The build of an index reads
    /// these rows, because they become visible again if the table is set to keep parts longer.
    ///
    /// # Errors
    ///
    /// The errors of [`row`](Self::row).
    pub fn page_with_hidden(
        &self,
        table: TableId,
        range: &KeyRange,
        direction: Direction,
        limit: PageLimit,
    ) -> Result<RowPage> {
        self.page_with_hidden_of(table, &ALL_PARTS, range, direction, limit)
    }

    /// Returns a page like [`page_with_hidden`](Self::page_with_hidden), but only from the parts with these numbers.
    ///
    /// # Errors
    ///
    /// The errors of [`row`](Self::row).
    pub fn page_with_hidden_of(
        &self,
        table: TableId,
        numbers: &PartNumbers,
        range: &KeyRange,
        direction: Direction,
        limit: PageLimit,
    ) -> Result<RowPage> {
        let rules = self.rules(table)?;
        let all = (numbers, Scope::All, GroupSet::ALL);
        self.unexpired_page(table, &rules, all, (range, direction, limit))
    }

    fn unexpired_page(
        &self,
        table: TableId,
        rules: &TableRules,
        (parts, scope, set): (&PartNumbers, Scope, GroupSet),
        wanted: Wanted<'_>,
    ) -> Result<RowPage> {
        let expiry = self.expiry(rules);
        let page = self.stored_page_of(table, rules, parts, (scope, set), wanted)?;
        let mut rows = Vec::with_capacity(page.rows.len());
        for row in page.rows {
            let row = expiry.visible_stored(row);
            rows.extend(row.map_err(|reason| WideError::Damaged { table, reason })?);
        }
        Ok(RowPage { rows, ..page })
    }

    /// Returns a page of the parts with these numbers, without dropped parts. The page includes rows that have expired.
    pub(crate) fn stored_page(
        &self,
        table: TableId,
        rules: &TableRules,
        parts: &PartNumbers,
        scope: Scope,
        wanted: Wanted<'_>,
    ) -> Result<RowPage> {
        self.stored_page_of(table, rules, parts, (scope, GroupSet::ALL), wanted)
    }

    /// Returns a page like [`stored_page`](Self::stored_page). Columns of groups that are not in `set` may be missing.
    fn stored_page_of(
        &self,
        table: TableId,
        rules: &TableRules,
        parts: &PartNumbers,
        (scope, set): (Scope, GroupSet),
        wanted: Wanted<'_>,
    ) -> Result<RowPage> {
        let (range, direction, limit) = wanted;
        let numbers = rules.kept_parts(range, parts);
        self.log.check_lease()?;
        let merge = loop {
            let state = self.state();
            if let Scope::Tier(tier) = scope {
                self.check_covered(&state, rules, &numbers, tier)?;
            }
            let merge = self.merged(&state, table, rules, (&numbers, scope, set), wanted)?;
            if !self.must_read_again(&state) {
                break merge;
            }
        };
        // If the lease has ended meanwhile, a newer owner may have freed a part before it was read.
        self.log.check_lease()?;
        let mut last = merge.horizon();
        let Merge {
            mut rows, scanned, ..
        } = merge;
        if let Some(end) = end_of_page(&rows, limit) {
            rows.truncate(end);
            last = rows.last().map(|row| row.key.clone());
        }
        Ok(RowPage {
            rows,
            scanned,
            next: last.and_then(|last| rest_of(range, &last, direction)),
        })
    }

    /// Merges the first rows of a range from the buffers and parts of one state.
    fn merged(
        &self,
        state: &State,
        table: TableId,
        rules: &TableRules,
        (numbers, scope, set): (&PartNumbers, Scope, GroupSet),
        (range, direction, limit): Wanted<'_>,
    ) -> Result<Merge> {
        let damaged = |reason| WideError::Damaged { table, reason };
        let is_read = |number: i32| match scope {
            Scope::All | Scope::Open => true,
            Scope::Tier(tier) => rules.is_read(state, (table, number), tier),
        };
        let buffers = state.buffers(table);
        let mut sources = Vec::with_capacity(buffers.len() + 2);
        for buffer in buffers {
            let rows = buffer.page(range, direction, limit.rows_max);
            let mut source = Source::of_buffer(buffer, rows, limit.rows_max);
            if rules.division.is_some() || !is_read(WHOLE) {
                let is_in = |key: &[u8]| {
                    let number = rules.part_of(key);
                    number.is_ok_and(|number| numbers.contains(&number) && is_read(number))
                };
                source.rows.retain(|(key, _)| is_in(key));
            }
            sources.push(source);
        }
        let parts = state.parts_of(table, numbers.clone());
        let is_open = |part: &Part| scope != Scope::Open || !part.is_closed();
        let parts: Vec<&Part> = parts
            .filter(|part| is_open(part) && is_read(part.number()))
            .collect();
        // If there are several parts, most of them have few rows of the page or none, so only their first rows are read
        // at first.
        let first = match parts.len() {
            0 | 1 => limit,
            _ => PageLimit {
                rows_max: limit.rows_max.min(FIRST_ROWS),
                bytes_max: limit.bytes_max.min(FIRST_BYTES),
            },
        };
        for part in &parts {
            let found = self.row_sources(state, rules, part, set, (range, direction, first))?;
            for (of, mut source) in found {
                source.feed = (parts.len() > 1).then_some(Feed {
                    part: of,
                    limit: first,
                });
                sources.push(source);
            }
        }
        let mut merge = Merge {
            sources,
            direction,
            versions_max: rules.versions_max,
            limit: (parts.len() > 1).then_some(limit),
            rows: Vec::new(),
            bytes: 0,
            scanned: 0,
        };
        loop {
            merge.run().map_err(damaged)?;
            let Some(horizon) = merge.horizon() else {
                return Ok(merge);
            };
            let is_full = end_of_page(&merge.rows, limit).is_some() || merge.rows.len() >= limit.rows_max;
            let was_extended = !is_full
                && merge.scanned < limit.rows_max as u64
                && self.extend(&mut merge, &horizon, range, limit)?;
            if !was_extended {
                return Ok(merge);
            }
        }
    }

    /// Reads further rows of the parts that have a source that ends at the horizon. Returns false if one of these
    /// sources cannot be read further.
    ///
    /// All sources of such a part are read again after the horizon. If only one of them was read, a row that moved
    /// from the single rows into a block since the last read could be missed.
    fn extend(&self, merge: &mut Merge, horizon: &Bytes, range: &KeyRange, limit: PageLimit) -> Result<bool> {
        let direction = merge.direction;
        let mut was_extended = false;
        for of_part in merge.sources.chunk_by_mut(Source::is_of_part_of) {
            let ends = |source: &Source| source.more_after.as_ref() == Some(horizon);
            if !of_part.iter().any(ends) {
                continue;
            }
            let Some(Feed { part, limit: before }) = of_part[0].feed else {
                return Ok(false);
            };
            let next = PageLimit {
                rows_max: limit.rows_max.min(before.rows_max * FEED_GROWTH),
                bytes_max: limit.bytes_max.min(before.bytes_max * FEED_GROWTH),
            };
            let more = match rest_of(range, horizon, direction) {
                Some(rest) => self.part_sources(&part, &rest, direction, next)?,
                None => Vec::new(),
            };
            let mut more = more.into_iter();
            for source in of_part {
                *source = Source {
                    group: source.group,
                    feed: Some(Feed { part, limit: next }),
                    ..more.next().unwrap_or_default()
                };
            }
            was_extended = true;
        }
        Ok(was_extended)
    }
}

/// Returns the number of leading rows that fit a page; `None` if all of them fit.
fn end_of_page(rows: &[StoredRow], limit: PageLimit) -> Option<usize> {
    let mut bytes = 0;
    for (at, row) in rows.iter().enumerate() {
        bytes += row.bytes();
        let count = at + 1;
        if count < rows.len() && (bytes > limit.bytes_max || count >= limit.rows_max) {
            return Some(count);
        }
    }
    None
}

/// Returns the rest of a range after a key in scan order; `None` if the rest is empty.
pub(crate) fn rest_of(range: &KeyRange, last: &[u8], direction: Direction) -> Option<KeyRange> {
    match direction {
        Direction::Ascending => range.above(last),
        Direction::Descending => range.below(last),
    }
}

/// Returns the beginning of a range in scan order up to a key, inclusive.
fn up_to(range: &KeyRange, last: &[u8], direction: Direction) -> KeyRange {
    match direction {
        Direction::Ascending => KeyRange {
            start: range.start.clone(),
            end: Some([last, &[0][..]].concat()),
        },
        Direction::Descending => KeyRange {
            start: last.to_vec(),
            end: range.end.clone(),
        },
    }
}

/// Applies the mutations of a row, oldest first, to its stored bytes. Returns `None` if the row does not exist
/// afterwards.
pub(crate) fn resolve(
    base: Option<&Bytes>,
    mutations: &[Bytes],
    versions_max: usize,
) -> std::result::Result<Option<Bytes>, Damage> {
    let mut all = base.into_iter().chain(mutations);
    let Some(first) = all.next() else {
        return Ok(None);
    };
    if usize::from(base.is_some()) + mutations.len() == 1 {
        // Fast path: most rows have one source and uniform columns, and are returned as stored.
        match codec::effect_of(first)? {
            Effect::Delete => return Ok(None),
            Effect::Replace if !codec::may_have_versions(first) => return Ok(Some(first.clone())),
            _ => {}
        }
    }
    let mut merged = codec::decode(first)?;
    for next in all {
        merged = merged.then(codec::decode(next)?, versions_max);
    }
    Ok(merged.on_nothing(versions_max).map(|row| {
        let mut out = Vec::new();
        codec::encode(&row, &mut out);
        Bytes::from(out)
    }))
}

/// Merge source: the rows of one buffer, or the single or the packed rows of a part, that are not merged yet.
#[derive(Default)]
struct Source {
    rows: VecDeque<(Bytes, Mutations)>,
    /// Last key that was read if more rows may follow; `None` otherwise.
    more_after: Option<Bytes>,
    buffer: Option<Arc<TableBuffer>>,
    /// Position from which further rows can be read during the merge; `None` if the page ends with the rows of this
    /// source.
    feed: Option<Feed>,
    /// Position of the column group whose columns this source holds; `None` for the columns outside of groups, and for
    /// a buffer.
    group: Option<usize>,
}

/// Rows of a part that are not read yet.
#[derive(Clone, Copy)]
struct Feed {
    part: Part,
    /// Limit of the last read.
    limit: PageLimit,
}

impl Source {
    fn of_buffer(buffer: Arc<TableBuffer>, rows: Vec<(Bytes, Mutations)>, limit: usize) -> Self {
        let is_full = rows.len() >= limit;
        Self {
            more_after: rows.last().filter(|_| is_full).map(|(key, _)| key.clone()),
            rows: rows.into(),
            buffer: Some(buffer),
            ..Self::default()
        }
    }

    /// Returns true if further rows of both sources can be read, from the same part.
    fn is_of_part_of(&self, other: &Self) -> bool {
        let part = |source: &Self| source.feed.map(|feed| feed.part.at);
        part(self).is_some() && part(self) == part(other)
    }

    /// Returns the bytes of the keys and rows.
    fn bytes(&self) -> usize {
        let of = |(key, rows): &(Bytes, Mutations)| key.len() + rows.iter().map(Bytes::len).sum::<usize>();
        self.rows.iter().map(of).sum()
    }

    fn of_blocks(packed: PackedRows) -> Self {
        let rows = packed.rows.into_iter();
        Self {
            rows: rows.map(|(key, row)| (key, Mutations::from_buf([row]))).collect(),
            more_after: packed.more_after,
            ..Self::default()
        }
    }
}

impl WideStore {
    /// Reads the first rows of a range of a part, and then the columns of these rows in the groups of `set`. Returns
    /// the sources, each with its part.
    ///
    /// The groups are read only up to the last row that was read from the part itself. Many rows may have no columns in
    /// a group, so the next row of the group could be far after this row.
    fn row_sources(
        &self,
        state: &State,
        rules: &TableRules,
        part: &Part,
        set: GroupSet,
        (range, direction, limit): Wanted<'_>,
    ) -> Result<Vec<(Part, Source)>> {
        let main = self.part_sources(part, range, direction, limit)?;
        let ends = main.iter().filter_map(|source| source.more_after.clone());
        let last = match direction {
            Direction::Ascending => ends.min(),
            Direction::Descending => ends.max(),
        };
        let mut sources: Vec<(Part, Source)> = main.into_iter().map(|source| (*part, source)).collect();
        let within = match &last {
            Some(last) => up_to(range, last, direction),
            None => range.clone(),
        };
        for (group, of_group) in state.group_parts(rules, part, set) {
            for mut source in self.part_sources(of_group, &within, direction, limit)? {
                source.group = Some(group);
                source.more_after = source.more_after.or_else(|| last.clone());
                sources.push((*of_group, source));
            }
        }
        Ok(sources)
    }

    /// Reads the first single rows of a range of a part, and its first packed rows. Returns the source of the single
    /// rows, and then the source of the packed rows if the part has blocks.
    ///
    /// Single rows are read only up to the last packed row of the page. Single rows beyond it are not needed, and if
    /// many of them were packed recently, the engine would have to read the remains of their deletes. A row that moves
    /// into a block between the two reads could be missed. If single rows were packed meanwhile, both are therefore
    /// read again, the single rows first.
    fn part_sources(
        &self,
        part: &Part,
        range: &KeyRange,
        direction: Direction,
        limit: PageLimit,
    ) -> Result<Vec<Source>> {
        if part.detail.has_blocks() {
            let packings = self.packings.load(Ordering::Acquire);
            let packed = self.part_source(part, true, range, direction, limit)?;
            let singles = match &packed.more_after {
                None => self.part_source(part, false, range, direction, limit)?,
                Some(last) => {
                    let before = up_to(range, last, direction);
                    let mut singles = self.part_source(part, false, &before, direction, limit)?;
                    singles.more_after.get_or_insert_with(|| last.clone());
                    singles
                }
            };
            if self.packings.load(Ordering::Acquire) == packings {
                return Ok(vec![singles, packed]);
            }
        }
        let mut sources = vec![self.part_source(part, false, range, direction, limit)?];
        if part.detail.has_blocks() {
            sources.push(self.part_source(part, true, range, direction, limit)?);
        }
        Ok(sources)
    }

    /// Reads the first single or packed rows of a range of a part.
    fn part_source(
        &self,
        part: &Part,
        is_packed: bool,
        range: &KeyRange,
        direction: Direction,
        limit: PageLimit,
    ) -> Result<Source> {
        let source = self.part_source_uncounted(part, is_packed, range, direction, limit)?;
        cold::count(part, || source.bytes());
        Ok(source)
    }

    fn part_source_uncounted(
        &self,
        part: &Part,
        is_packed: bool,
        range: &KeyRange,
        direction: Direction,
        limit: PageLimit,
    ) -> Result<Source> {
        let backend = self.log.backend().as_ref();
        if part.is_archived() {
            let rows = self.archived_page(part, range, direction, limit)?;
            return Ok(Source::of_blocks(rows));
        }
        if is_packed {
            let packed = self.blocks(part.at).page(range, direction, limit);
            return Ok(Source::of_blocks(
                packed.map_err(|error| error.of(part.at.table))?,
            ));
        }
        let page = backend.scan(Partition::part(part.at, ROWS_BUCKET), range, direction, limit)?;
        self.single_source(part, page, limit)
    }

    /// Converts a page of single rows into a merge source, with the fragments of large rows joined. The source ends
    /// after the first row that makes the joined rows exceed `limit.bytes_max`.
    fn single_source(&self, part: &Part, page: tideline_backend::Page, limit: PageLimit) -> Result<Source> {
        let mut rows = VecDeque::with_capacity(page.rows.len());
        let (mut more_after, mut bytes) = (None, 0);
        let has_more = page.next.is_some();
        let mut stored = page.rows.into_iter().peekable();
        while let Some(row) = stored.next() {
            if stored.peek().is_none() && has_more {
                more_after = Some(row.key.clone());
            }
            let Some(value) = self.joined(part, &row.key, row.value)? else {
                continue;
            };
            bytes += row.key.len() + value.len();
            rows.push_back((row.key.clone(), Mutations::from_buf([value])));
            if bytes > limit.bytes_max && stored.peek().is_some() {
                more_after = Some(row.key);
                break;
            }
        }
        Ok(Source {
            rows,
            more_after,
            ..Source::default()
        })
    }
}

/// Merge of the sources of a page. The sources are ordered from the newest to the oldest.
struct Merge {
    sources: Vec<Source>,
    direction: Direction,
    versions_max: usize,
    /// Limit of the page if there are many sources. The merge then ends at the first row that exceeds it.
    limit: Option<PageLimit>,
    /// Merged rows in scan order.
    rows: Vec<StoredRow>,
    /// Bytes of the merged rows.
    bytes: usize,
    /// Number of rows that were merged, including deleted rows.
    scanned: u64,
}

impl Merge {
    fn is_before(&self, one: &[u8], other: &[u8]) -> bool {
        match self.direction {
            Direction::Ascending => one < other,
            Direction::Descending => one > other,
        }
    }

    /// Returns the last key in scan order up to which all sources were read; `None` if all of them were read to the
    /// end.
    fn horizon(&self) -> Option<Bytes> {
        let ends = self.sources.iter().filter_map(|source| source.more_after.clone());
        ends.reduce(|one, other| if self.is_before(&other, &one) { other } else { one })
    }

    /// Merges the rows up to the horizon.
    fn run(&mut self) -> std::result::Result<(), Damage> {
        let horizon = self.horizon();
        let mut found = FoundRow::default();
        let mut is_over = false;
        loop {
            let heads = self.sources.iter().filter_map(|source| source.rows.front());
            let first = heads
                .map(|(key, _)| key)
                .reduce(|one, other| if self.is_before(other, one) { other } else { one });
            let Some(key) = first.cloned() else { break };
            let is_beyond = horizon
                .as_ref()
                .is_some_and(|horizon| self.is_before(horizon, &key));
            if is_beyond || is_over {
                break;
            }
            self.scanned += 1;
            found.clear();
            for source in &mut self.sources {
                found.take_from(source, &key);
            }
            if let Some(value) = found.resolve(self.versions_max)? {
                let row = StoredRow::new(key, value);
                is_over = self
                    .limit
                    .is_some_and(|limit| self.rows.len() >= limit.rows_max || self.bytes > limit.bytes_max);
                self.bytes += row.bytes();
                self.rows.push(row);
            }
        }
        Ok(())
    }
}

/// Data of one key, collected from all sources.
#[derive(Default)]
struct FoundRow {
    /// Mutations from the buffers and from the main part, from the newest to the oldest. They end with a mutation that
    /// does not depend on an older state, if there is one.
    mutations: Vec<Bytes>,
    is_complete: bool,
    /// True if the buffers determine the row without the part.
    is_buffered: bool,
    /// Columns of groups, or the marker of deleted columns, each with the position of its group.
    of_groups: SmallVec<[(usize, Bytes); 2]>,
}

impl FoundRow {
    fn clear(&mut self) {
        self.mutations.clear();
        self.of_groups.clear();
        (self.is_complete, self.is_buffered) = (false, false);
    }

    /// Takes the row with this key from the front of the next older source, if the source has it. Also records whether
    /// a deleted range of the source contains the key.
    fn take_from(&mut self, source: &mut Source, key: &Bytes) {
        let found = source.rows.pop_front_if(|(other, _)| other == key);
        if let Some(group) = source.group {
            // A single row hides a packed one.
            let is_hidden = || self.of_groups.iter().any(|(known, _)| *known == group);
            if let Some((_, found)) = found
                && !is_hidden()
            {
                self.of_groups.extend(found.into_iter().map(|row| (group, row)));
            }
            return;
        }
        if self.is_complete {
            return;
        }
        match found {
            Some((_, found)) => {
                self.is_complete = found.first().is_some_and(|first| is_base(first));
                self.mutations.extend(found.into_iter().rev());
            }
            None => {
                let buffer = source.buffer.as_ref();
                self.is_complete = buffer.is_some_and(|buffer| buffer.is_deleted(key));
            }
        }
        self.is_buffered = self.is_complete && source.buffer.is_some();
    }

    /// Returns the row; `None` if it does not exist.
    fn resolve(&mut self, versions_max: usize) -> std::result::Result<Option<Bytes>, Damage> {
        self.mutations.reverse();
        let is_stored = self.is_complete && !self.is_buffered;
        if let Some(main) = self.mutations.first_mut()
            && is_stored
            && !codec::is_delete(main)
        {
            let rows = self.of_groups.drain(..).map(|(_, row)| row);
            let rows: SmallVec<[Bytes; 2]> = rows.filter(|row| !codec::is_delete(row)).collect();
            *main = groups::join(std::mem::take(main), &rows)?;
        }
        resolve(None, &self.mutations, versions_max)
    }
}

//! Reads: one row, and pages of rows in key order.
//!
//! A read takes three steps: the buffers, then the parts, then a check that no generation was frozen and no flush was
//! published in between. Otherwise, the read is repeated. Each row therefore has a state that it had at some time during
//! the read. Two pages may reflect different points in time.
//!
//! In a table with column groups, the parts of the groups that the read needs are further sources. They add columns to
//! the rows of the main part. Every key in such a part is also the key of a row of the main part.
//!
//! This module reads one row. Its submodules read pages:
//!
//! | module | holds |
//! |---|---|
//! | `page` | pages of tables, and the rules that decide which rows they contain |
//! | `sources` | reads of the first rows of a part |
//! | `merge` | merge of the rows of buffers and parts |

mod merge;
mod page;
mod sources;

use std::sync::atomic::Ordering;

use bytes::Bytes;
use tideline_backend::{PageLimit, Partition};
use tideline_model::{KeyRange, TableId, TierScope};

pub(crate) use self::page::rest_of;
use crate::blocks::PackedRow;
use crate::codec;
use crate::cold;
use crate::error::{Damage, Result, WideError};
use crate::fragments::{Head, join};
use crate::groups::GroupSet;
use crate::mutation::{Effect, Mutation};
use crate::spans::FoundSpan;
use crate::state::{Part, Revision, State, buffered};
use crate::store::WideStore;
use crate::tables::TableRules;

/// Bucket of a part that holds the single rows.
pub(crate) const ROWS_BUCKET: u16 = 0;

/// Maximum number and size of the rows that one step of a long operation reads: a build, a removal, a check, a delete,
/// or a digest.
pub(crate) const STEP_PAGE: PageLimit = PageLimit {
    rows_max: 500,
    bytes_max: 1 << 20,
};

/// Parts that a read concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// All parts.
    All,
    /// Parts that are not closed for writes.
    Open,
    /// Parts of these tiers. For an index, the parts of these tiers that it covers.
    Tier(TierScope),
    /// Parts in which writes maintain an index that covers these tiers.
    Indexed(TierScope),
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

    /// Returns a row like [`row`](Self::row), but also if its part is hidden, and with its expired columns, or if it has
    /// expired; see [`page_with_hidden`](Self::page_with_hidden).
    ///
    /// # Errors
    ///
    /// The errors of [`row`](Self::row).
    pub fn row_with_hidden(&self, table: TableId, key: &[u8]) -> Result<Option<StoredRow>> {
        Ok(self.row_at(table, self.rules(table)?.as_ref(), key)?.0)
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
            let found = buffered(&state.buffers(table), key);
            let revision = state.revision_of(&found);
            if !rules.keeps(number) {
                return Ok((None, revision));
            }
            let part = state.parts.get(&(table, number)).filter(|_| found.needs_part);
            let (main, span) = match part {
                Some(part) => self.stored_in_state(&state, part, key)?,
                None => (None, None),
            };
            let base = match (part, main) {
                (Some(part), Some(main)) => Some(self.with_groups(&state, rules, part, (key, main), set)?),
                _ => None,
            };
            if found.needs_part && self.must_read_again(&state) {
                continue;
            }
            if let (Some(part), Some(span)) = (part, span) {
                state.spans.add(part.at.part, key, span);
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
        match self.single_row(part, key)? {
            Some(single) => Ok((!codec::is_delete(&single)).then_some(single)),
            None if part.detail.has_blocks() => {
                let packed = self.blocks(part.at).row(key);
                packed.map_err(|error| error.of(part.at.table))
            }
            None => Ok(None),
        }
    }

    /// Returns the single row of a key, or the marker of a deleted row. The part must not be in the archive.
    fn single_row(&self, part: &Part, key: &[u8]) -> Result<Option<Bytes>> {
        if self.singles.has_none(part.at.part) {
            return Ok(None);
        }
        let partition = Partition::part(part.at, ROWS_BUCKET);
        Ok(self.log.backend().get(partition, key)?)
    }

    /// Returns the bytes of a row in a part like [`stored_in`](Self::stored_in), for a reader of a state that contains
    /// the part. Uses the [spans](crate::spans) of the state. If the row was searched in a block and not found, also
    /// returns the span of the key.
    fn stored_in_state(
        &self,
        state: &State,
        part: &Part,
        key: &[u8],
    ) -> Result<(Option<Bytes>, Option<FoundSpan>)> {
        if part.is_archived() || !part.detail.has_blocks() {
            return Ok((self.stored_in(part, key)?, None));
        }
        let (mut value, mut span) = (None, None);
        if let Some(single) = self.single_row(part, key)? {
            value = Some(single).filter(|single| !codec::is_delete(single));
        } else {
            // Loaded after the search among the single rows, and before the search in the blocks.
            let packings = self.packings.load(Ordering::Acquire);
            if !state.spans.is_absent(part.at.part, key, packings) {
                let found = self.blocks(part.at).find(key);
                match found.map_err(|error| error.of(part.at.table))? {
                    PackedRow::Found(row) => value = Some(row),
                    PackedRow::Absent(block) => span = Some(FoundSpan { packings, block }),
                }
            }
        }
        let value = match value {
            Some(value) => self.joined(part, key, value)?,
            None => None,
        };
        cold::count(part, || key.len() + value.as_ref().map_or(0, Bytes::len));
        Ok((value, span))
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

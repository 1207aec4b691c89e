//! Evaluation of writes on the caller's thread: conditions, increments, sizes and images.
//!
//! A write whose outcome depends on its row reads the row once per request. The committer later compares the revision
//! of this read. Other writes read at most the stored size of their row, except in two cases. An update also reads the
//! row if it is large, could exceed a size limit, or follows another write of the same row in the request, or if the
//! rows of the table expire. In a table with indexes, all writes except those of new rows read the row, because its old
//! index entries must be removed.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use hashbrown::{HashMap, HashSet};
use smallvec::SmallVec;
use tideline_model::{TableId, Timestamp};

use super::{
    Action, COLUMN_BYTES_MAX, Image, Increment, ROW_BYTES_MAX, Refused, RowOutcome, RowWrite, Seen,
    WRITE_BYTES_MAX, WriteOptions,
};
use crate::codec;
use crate::division::{ALL_PARTS, PartNumbers};
use crate::entry::Change;
use crate::error::{Result, WideError};
use crate::expiry::Expiry;
use crate::index::{Index, changes_of};
use crate::large::whole::{cut_bytes, references_cut};
use crate::mutation::{Column, ColumnName, Effect, Mutation, Version};
use crate::state::{Part, State};
use crate::store::WideStore;
use crate::tables::TableRules;
use crate::value::CellValue;

/// Maximum size of an update that is accepted without reading its row, in bytes. For larger updates, the row is read to
/// check the size of the result.
const SMALL_UPDATE_BYTES: usize = 16 << 10;

impl WideStore {
    /// Reads the rows on which the writes depend, and determines the outcome of each write.
    pub(super) fn decide(
        &self,
        table: TableId,
        writes: &[RowWrite<'_>],
        options: &WriteOptions,
        seen: &mut Seen,
    ) -> Result<Decided> {
        let rules = self.rules(table)?;
        rules.check(table)?;
        seen.indexes = rules.index_ids().collect();
        let state = self.state();
        // The clock is read once, so that decisions on expiry and on the ages of parts agree.
        let now = match rules.depend_on_time() {
            true => self.log.trusted_now().now.nanos(),
            false => 0,
        };
        let keeps_rows = !writes.iter().all(is_independent);
        let mut deciding = Deciding {
            store: self,
            table,
            expiry: Expiry::new(rules.ttl, now),
            visible: rules.visible_parts(now),
            writable_from: match options.is_removal {
                true => i32::MIN,
                false => rules.writable_from(now),
            },
            floor: match options.is_removal {
                true => i64::MIN,
                false => state.floors.get(&table).copied().unwrap_or(i64::MIN),
            },
            now,
            state,
            rules: &rules,
            largest: OnceCell::new(),
            keeps_rows,
            rows: HashMap::with_capacity(if keeps_rows { writes.len() } else { 0 }),
            updates: HashMap::new(),
            scratch: Vec::new(),
            seen,
        };
        let mut outcomes = Vec::with_capacity(writes.len());
        let mut mutations = Vec::with_capacity(writes.len());
        for write in writes {
            let (mut outcome, mut mutation) = deciding.decide(write)?;
            let bytes = mutation.as_ref().map_or(0, |decided| decided.bytes(&write.key));
            // Later writes of the same row are not applied either, because they belong to the same partition.
            if bytes > WRITE_BYTES_MAX {
                (outcome, mutation) = (RowOutcome::Refused(Refused::WriteTooLarge(bytes)), None);
            }
            outcomes.push(outcome);
            mutations.push(mutation);
        }
        let failed: HashSet<&[u8]> = std::iter::zip(writes, &outcomes)
            .filter(|(_, outcome)| !matches!(outcome, RowOutcome::Written(_)))
            .map(|(write, _)| &write.key[..write.partition])
            .collect();
        let mut changes = Vec::with_capacity(writes.len());
        let mut index_changes: BTreeMap<TableId, Vec<Change>> = BTreeMap::new();
        let mut partitions = Vec::with_capacity(writes.len());
        for ((write, outcome), mutation) in writes.iter().zip(&mut outcomes).zip(mutations) {
            let is_failed = match options.is_whole {
                true => !failed.is_empty(),
                false => failed.contains(&write.key[..write.partition]),
            };
            if is_failed {
                if matches!(outcome, RowOutcome::Written(_)) {
                    *outcome = RowOutcome::NotApplied;
                }
            } else if let Some(decided) = mutation {
                changes.push(Change::Row {
                    key: write.key.clone(),
                    mutation: decided.mutation,
                });
                partitions.push(write.partition);
                for (index, change) in decided.index_changes {
                    index_changes.entry(index).or_default().push(change);
                }
            }
        }
        Ok(Decided {
            outcomes,
            changes,
            index_changes: index_changes.into_iter().collect(),
            partitions,
        })
    }
}

/// Returns true for a new row whose outcome depends on no other row, and which no other write of the request changes.
fn is_independent(write: &RowWrite<'_>) -> bool {
    matches!(&write.action, Action::Create(columns) if columns.iter().all(has_one_version))
        && write.condition.is_none()
        && write.image == Image::None
}

/// Returns true if the column has exactly one version.
fn has_one_version(column: &Column<'_>) -> bool {
    column.versions.len() == 1
}

/// Evaluated writes.
pub(super) struct Decided {
    pub(super) outcomes: Vec<RowOutcome>,
    pub(super) changes: Vec<Change>,
    /// Changes of index entries, with the id of their index.
    pub(super) index_changes: Vec<(TableId, Vec<Change>)>,
    /// Length of the key prefix that names the partition, for each change.
    pub(super) partitions: Vec<usize>,
}

/// Changes that one write causes.
#[derive(Default)]
struct DecidedRow {
    /// Encoded mutation of the row.
    mutation: Bytes,
    /// Changes of index entries, each with the id of its index.
    index_changes: Vec<(TableId, Change)>,
}

impl DecidedRow {
    /// Returns the approximate size of the changes in the journal.
    fn bytes(&self, key: &[u8]) -> usize {
        let of_indexes = self.index_changes.iter().map(|(_, change)| change.bytes());
        key.len() + self.mutation.len() + 8 + of_indexes.sum::<usize>()
    }

    /// Returns the changes of a write that changes its row but no index entries.
    fn of_row(mutation: Bytes) -> Option<Self> {
        Some(Self {
            mutation,
            index_changes: Vec::new(),
        })
    }
}

/// Row after the writes of the request that were evaluated so far.
enum Evaluated {
    /// Decoded row; `None` if it does not exist.
    Row(Option<Mutation<'static>>),
    /// Encoded mutation that needs no older state. It is decoded only on demand, because most rows are written once per
    /// request.
    Mutation(Bytes),
}

/// State of the evaluation of the writes of one request.
struct Deciding<'s> {
    store: &'s WideStore,
    table: TableId,
    /// Expiry of the rows at the time of the decision.
    expiry: Expiry,
    rules: &'s TableRules,
    /// Numbers of the parts that are visible at the time of the decision.
    visible: PartNumbers,
    /// Number of the first part that is not too old to be written.
    writable_from: i32,
    /// Earliest time of the changes of rows.
    floor: i64,
    state: Arc<State>,
    /// Trusted time, in nanoseconds since 1970-01-01T00:00:00Z; 0 if no decision depends on it.
    now: i64,
    /// Upper bounds of the sizes of a stored row and of a column of the table, in bytes. Computed for the first update
    /// that needs them.
    largest: OnceCell<(usize, usize)>,
    /// False if no write of the request can depend on an earlier one, so `rows` and `updates` stay empty.
    keeps_rows: bool,
    /// Rows that were read or written by earlier writes; `None` for rows that do not exist.
    rows: HashMap<Bytes, Evaluated>,
    /// Encoded updates of rows that were not read; at most one per row.
    updates: HashMap<Bytes, Bytes>,
    /// Memory in which mutations are encoded.
    scratch: Vec<u8>,
    seen: &'s mut Seen,
}

impl<'s> Deciding<'s> {
    /// Returns the reason why no row of the part of a key can be written, or deleted if `is_delete`; `None` if this is
    /// possible.
    fn refused_part(&self, key: &[u8], is_delete: bool) -> Result<Option<Refused>> {
        let Some(division) = &self.rules.division else {
            return Ok(None);
        };
        let table = self.table;
        let number = division.number_of(key);
        let number = number.map_err(|reason| WideError::Damaged { table, reason })?;
        let start_of = |number| Timestamp::from_nanos_clamped(division.spec.every.start_of(number));
        // Deletes are also possible in hidden parts. In dropped parts they change nothing.
        if !is_delete && !self.visible.contains(&number) {
            let first = start_of(*self.visible.start());
            return Ok(Some(match self.rules.keeps(number) {
                true => Refused::PartHidden(first),
                false => Refused::PartDropped(first),
            }));
        }
        // A part that was dropped may still be stored; it is ignored.
        let part = self.state.parts.get(&(table, number));
        let part = part.filter(|_| self.rules.keeps(number));
        if part.is_some_and(Part::is_closed) || self.state.attaching.contains(&(table, number)) {
            return Ok(Some(Refused::PartArchived));
        }
        if number < self.writable_from && !part.is_some_and(|part| part.is_held(self.now)) {
            return Ok(Some(Refused::PartClosed(start_of(self.writable_from))));
        }
        if is_delete {
            return Ok(None);
        }
        let is_open = self.store.open_part(table, self.rules, number)?;
        Ok((!is_open).then_some(Refused::TooManyParts))
    }

    /// Evaluates one write. Returns its outcome and its changes. The changes are `None` if the condition fails or the
    /// write is refused.
    fn decide(&mut self, write: &RowWrite<'_>) -> Result<(RowOutcome, Option<DecidedRow>)> {
        let is_delete = matches!(write.action, Action::Delete);
        if let Some(refused) = self.refused_part(&write.key, is_delete)? {
            return Ok((RowOutcome::Refused(refused), None));
        }
        if let Some(decided) = self.decide_put(write)? {
            return Ok(decided);
        }
        let simple = self.simple(write);
        if let Some(mutation) = simple {
            let out = self.encoded(mutation.effect, mutation.time, &mutation.columns);
            let bytes = write.key.len() + out.len();
            if let Some(refused) = over_limit(mutation.time, &mutation.columns, bytes) {
                return Ok((RowOutcome::Refused(refused), None));
            }
            // A later write of the same request must start from the result of this one.
            if mutation.effect != Effect::Update {
                self.updates.remove(&write.key);
                self.rows
                    .insert(write.key.clone(), Evaluated::Mutation(out.clone()));
                return Ok((RowOutcome::Written(None), DecidedRow::of_row(out)));
            }
            let is_first = !self.rows.contains_key(&write.key) && !self.updates.contains_key(&write.key);
            let size = out.len() + cut_bytes_of(&mutation.columns);
            if is_first && size <= SMALL_UPDATE_BYTES && self.grows_safely(&write.key, bytes)? {
                self.updates.insert(write.key.clone(), out.clone());
                return Ok((RowOutcome::Written(None), DecidedRow::of_row(out)));
            }
        }
        let stored = match write.action {
            Action::Create(_) => None,
            _ => self.read(&write.key, true)?,
        };
        let (stored, whole) = self.with_whole(write, stored)?;
        let before = stored.as_ref().and_then(|row| self.expiry.visible_of(row));
        // Conditions and images apply to the contents of cut values. The write itself depends on the references.
        let seen = whole.as_ref().or(before.as_deref());
        if write.condition.as_ref().is_some_and(|condition| !condition(seen)) {
            let image = seen.filter(|_| write.image != Image::None);
            return Ok((RowOutcome::ConditionFailed(image.cloned()), None));
        }
        let mut mutation = match resolve_action(write, before.as_deref()) {
            Ok(mutation) => self.dated(mutation.into_owned()),
            Err(refused) => return Ok((RowOutcome::Refused(refused), None)),
        };
        // An update must not bring back the columns of a row that has expired.
        if before.is_none() && stored.is_some() && mutation.effect == Effect::Update {
            mutation.effect = Effect::Replace;
        }
        let out = self.encoded(mutation.effect, mutation.time, &mutation.columns);
        let time = mutation.time;
        let after = applied(stored.clone(), mutation, self.rules.versions_max);
        if let Some(after) = &after {
            self.encode(after.effect, after.time, &after.columns);
            let bytes = write.key.len() + self.scratch.len();
            if let Some(refused) = over_limit(after.time, &after.columns, bytes) {
                return Ok((RowOutcome::Refused(refused), None));
            }
        }
        let indexes = self.maintained(&write.key)?;
        let columns_after = after.as_ref().map(|row| (row.time, &row.columns[..]));
        let index_changes = changes_of(&indexes, &write.key, stored.as_ref(), columns_after, time);
        let index_changes = match index_changes {
            Ok(changes) => changes,
            Err(reason) => return Ok((RowOutcome::Refused(Refused::NotIndexable(reason)), None)),
        };
        let image = match write.image {
            Image::None => None,
            Image::Before => seen.cloned(),
            Image::After => {
                let visible = after.as_ref().and_then(|row| self.expiry.visible_of(row));
                visible
                    .map(|row| self.image_of(&write.key, row.into_owned()))
                    .transpose()?
            }
        };
        self.rows.insert(write.key.clone(), Evaluated::Row(after));
        let decided = DecidedRow {
            mutation: out,
            index_changes,
        };
        Ok((RowOutcome::Written(image), Some(decided)))
    }

    /// Evaluates a write that puts a whole row: the columns of the write are the row, so they are encoded once and not
    /// copied. A row of a table with indexes is read for its old index entries, unless it is new. Returns `None` for
    /// other writes, and if a column has several versions, because the row may keep only some of them.
    fn decide_put(&mut self, write: &RowWrite<'_>) -> Result<Option<(RowOutcome, Option<DecidedRow>)>> {
        let (Action::Put(columns) | Action::Create(columns)) = &write.action else {
            return Ok(None);
        };
        if write.condition.is_some() || write.image != Image::None || !columns.iter().all(has_one_version) {
            return Ok(None);
        }
        let time = time_of(write, columns).max(self.floor);
        let out = self.encoded(Effect::Replace, time, columns);
        if let Some(refused) = over_limit(time, columns, write.key.len() + out.len()) {
            return Ok(Some((RowOutcome::Refused(refused), None)));
        }
        let mut index_changes = Vec::new();
        let is_new = matches!(write.action, Action::Create(_));
        let may_have_entries = |index: &Arc<Index>| !is_new || index.may_have_entry(columns);
        if self.rules.indexes.iter().any(may_have_entries) {
            let stored = match is_new {
                true => None,
                // The row that was read is replaced below by this write.
                false => self.read(&write.key, false)?,
            };
            let indexes = self.maintained(&write.key)?;
            let changes = changes_of(
                &indexes,
                &write.key,
                stored.as_ref(),
                Some((time, &columns[..])),
                time,
            );
            index_changes = match changes {
                Ok(changes) => changes,
                Err(reason) => {
                    // Later writes of the request start from the row that was read.
                    if !is_new {
                        self.rows.insert(write.key.clone(), Evaluated::Row(stored));
                    }
                    return Ok(Some((RowOutcome::Refused(Refused::NotIndexable(reason)), None)));
                }
            };
        }
        if self.keeps_rows {
            self.updates.remove(&write.key);
            self.rows
                .insert(write.key.clone(), Evaluated::Mutation(out.clone()));
        }
        let decided = DecidedRow {
            mutation: out,
            index_changes,
        };
        Ok(Some((RowOutcome::Written(None), Some(decided))))
    }

    /// Returns the row before a write, and its visible columns with the contents of its cut values. The second element
    /// is `None` if the write does not need these contents, or if the row has none. Reads the row again if it was
    /// overwritten meanwhile and the contents were removed.
    fn with_whole(
        &mut self,
        write: &RowWrite<'_>,
        mut stored: Option<Mutation<'static>>,
    ) -> Result<(Option<Mutation<'static>>, Option<Mutation<'static>>)> {
        let is_needed = write.condition.is_some() || write.image != Image::None;
        if !is_needed || !self.rules.cut_values {
            return Ok((stored, None));
        }
        loop {
            let before = stored.as_ref().and_then(|row| self.expiry.visible_of(row));
            let before = before.filter(|row| references_cut(row, &|_| true));
            let Some(before) = before.map(Cow::into_owned) else {
                return Ok((stored, None));
            };
            let (table, rules) = (self.table, self.rules);
            let whole = self
                .store
                .with_contents(table, rules, &write.key, before, &|_| true)?;
            if whole.is_some() {
                return Ok((stored, whole));
            }
            // The committer also compares the revision of the first read, so it refuses the entry of this attempt.
            self.rows.remove(&write.key);
            let again = self.read(&write.key, true)?;
            if again == stored {
                return Err(WideError::LargeMissing(table));
            }
            stored = again;
        }
    }

    /// Returns a row with the contents of its cut values. If they were removed meanwhile, the committer refuses the
    /// entry, so no client gets the references.
    fn image_of(&self, key: &Bytes, row: Mutation<'static>) -> Result<Mutation<'static>> {
        if !self.rules.cut_values || !references_cut(&row, &|_| true) {
            return Ok(row);
        }
        let (table, rules) = (self.table, self.rules);
        let whole = self
            .store
            .with_contents(table, rules, key, row.clone(), &|_| true)?;
        Ok(whole.unwrap_or(row))
    }

    /// Returns a mutation in its encoded form. The memory is as large as the mutation, and is allocated once.
    fn encoded(&mut self, effect: Effect, time: i64, columns: &[Column<'_>]) -> Bytes {
        self.encode(effect, time, columns);
        Bytes::copy_from_slice(&self.scratch)
    }

    /// Encodes a mutation into `scratch`.
    fn encode(&mut self, effect: Effect, time: i64, columns: &[Column<'_>]) {
        self.scratch.clear();
        codec::encode_columns(effect, time, columns, &mut self.scratch);
    }

    /// Returns the indexes whose entries a write of a row changes: the indexes that cover the tier of its part, or a
    /// tier to which the part is about to move.
    fn maintained(&self, key: &[u8]) -> Result<SmallVec<[&'s Index; 4]>> {
        let table = self.table;
        let number = self.rules.part_of(key);
        let number = number.map_err(|reason| WideError::Damaged { table, reason })?;
        let is_maintained = |index: &&Index| self.rules.maintains(&self.state, (table, number), index);
        let rules: &'s TableRules = self.rules;
        let indexes = rules.indexes.iter().map(AsRef::as_ref);
        Ok(indexes.filter(is_maintained).collect())
    }

    /// Returns the mutation of a write that does not depend on its row; `None` if it depends on the row.
    fn simple<'w>(&self, write: &RowWrite<'w>) -> Option<Mutation<'w>> {
        if write.condition.is_some() || write.image != Image::None || !self.rules.indexes.is_empty() {
            return None;
        }
        match &write.action {
            Action::Update(update) if !update.increments.is_empty() || !update.removed.is_empty() => None,
            // The row may have expired. An update must not keep columns of an expired row, so it reads the row.
            Action::Update(_) if self.expiry.is_of_rows() => None,
            // All other actions do not depend on the current row, and cannot fail.
            _ => Some(self.dated(resolve_action(write, None).ok()?)),
        }
    }

    /// Returns a mutation with a time that is not below the floor.
    fn dated<'w>(&self, mut mutation: Mutation<'w>) -> Mutation<'w> {
        mutation.time = mutation.time.max(self.floor);
        mutation
    }

    /// Returns true if a small update cannot make its row or a column exceed the size limit: the stored bytes, the
    /// buffered bytes and the update together use at most half of the limit. The other half is reserved for concurrent
    /// updates.
    fn grows_safely(&self, key: &[u8], bytes: usize) -> Result<bool> {
        let state = self.store.state();
        let buffered = crate::state::buffered(&state.buffers(self.table), key);
        let added = buffered.mutations.iter().map(Bytes::len).sum::<usize>() + bytes;
        let largest = || largest(&self.state, self.table, self.rules);
        let (row, column) = *self.largest.get_or_init(largest);
        // If only one version is kept, a column is as large as its newest value, so its size is not checked here.
        if self.rules.versions_max > 1 && column + added > COLUMN_BYTES_MAX / 2 {
            return Ok(false);
        }
        if row + added <= ROW_BYTES_MAX / 2 {
            return Ok(true);
        }
        let stored = self.store.stored_bytes(&state, self.table, self.rules, key)?;
        Ok(stored + added <= ROW_BYTES_MAX / 2)
    }

    /// Returns the row before a write, with the effect of earlier writes of the request. If `is_kept` is false, the
    /// caller must itself record the row for later writes of the request.
    fn read(&mut self, key: &Bytes, is_kept: bool) -> Result<Option<Mutation<'static>>> {
        let damaged = |reason| WideError::Damaged {
            table: self.table,
            reason,
        };
        let owned = |bytes: &Bytes| codec::decode(bytes).map(Mutation::into_owned).map_err(damaged);
        match self.rows.get(key) {
            Some(Evaluated::Row(row)) => return Ok(row.clone()),
            Some(Evaluated::Mutation(bytes)) => return Ok(owned(bytes)?.on_nothing(self.rules.versions_max)),
            None => {}
        }
        let (row, revision) = self.store.row_at(self.table, self.rules, key)?;
        let mut row = row.map(|row| owned(row.encoded())).transpose()?;
        if let Some(update) = self.updates.remove(key) {
            row = applied(row, owned(&update)?, self.rules.versions_max);
        }
        self.seen.rows.push((key.clone(), revision));
        if is_kept {
            self.rows.insert(key.clone(), Evaluated::Row(row.clone()));
        }
        Ok(row)
    }
}

/// Returns upper bounds of the sizes of a stored row and of a column of a table, in bytes. The sizes of the largest
/// shares are added for the bound of a row.
fn largest(state: &State, table: TableId, rules: &TableRules) -> (usize, usize) {
    let of = |id| {
        let sizes = state.parts_of(id, ALL_PARTS).map(|part| part.detail.largest());
        sizes.fold((0, 0), |one, other| (one.0.max(other.0), one.1.max(other.1)))
    };
    let shares = std::iter::once(table).chain(rules.groups.ids()).map(of);
    shares.fold((0_usize, 0), |one, other| {
        (one.0.saturating_add(other.0), one.1.max(other.1))
    })
}

/// Returns the total size of the cut values of the columns, in bytes.
fn cut_bytes_of(columns: &[Column<'_>]) -> usize {
    columns.iter().map(cut_bytes).fold(0, usize::saturating_add)
}

/// Returns the size limit that a row or one of its columns exceeds; `None` if no limit is exceeded. `bytes` is the size
/// of the row with its key. The contents of cut values count as if they were stored with the row.
fn over_limit(time: i64, columns: &[Column<'_>], bytes: usize) -> Option<Refused> {
    let bytes = bytes.saturating_add(cut_bytes_of(columns));
    if bytes > ROW_BYTES_MAX {
        return Some(Refused::TooLarge(bytes));
    }
    if bytes <= COLUMN_BYTES_MAX {
        return None;
    }
    columns.iter().find_map(|column| {
        let bytes = codec::column_bytes(time, column).saturating_add(cut_bytes(column));
        let name = || column.name.clone().into_owned();
        (bytes > COLUMN_BYTES_MAX).then(|| Refused::ColumnTooLarge(name(), bytes))
    })
}

/// Applies a mutation to a row. Returns `None` if the row does not exist afterwards.
fn applied(
    row: Option<Mutation<'static>>,
    mutation: Mutation<'static>,
    versions_max: usize,
) -> Option<Mutation<'static>> {
    match row {
        Some(row) => row.then(mutation, versions_max).on_nothing(versions_max),
        None => mutation.on_nothing(versions_max),
    }
}

/// Returns the time of the mutation of a write: the time of its newest version, or of the write if that is later.
fn time_of(write: &RowWrite<'_>, columns: &[Column<'_>]) -> i64 {
    let versions = columns.iter().flat_map(|column| &column.versions);
    versions.map(|version| version.time).fold(write.time, i64::max)
}

/// Returns the absolute mutation of a write. `before` is the row before the write.
fn resolve_action<'w>(
    write: &RowWrite<'w>,
    before: Option<&Mutation<'static>>,
) -> std::result::Result<Mutation<'w>, Refused> {
    let time = write.time;
    let mutation = |effect, columns: Vec<Column<'w>>| Mutation {
        effect,
        time: time_of(write, &columns),
        columns,
    };
    let update = match &write.action {
        Action::Put(columns) | Action::Create(columns) => {
            return Ok(mutation(Effect::Replace, columns.clone()));
        }
        Action::Delete => return Ok(Mutation::delete(time)),
        Action::Update(update) => update,
    };
    let mut changed: BTreeMap<ColumnName<'static>, Column<'static>> = update
        .columns
        .iter()
        .map(|column| (column.name.clone(), column.clone()))
        .collect();
    if update.follows_current {
        for column in changed.values_mut() {
            let current = before.and_then(|row| row.column(&column.name)?.newest());
            let assigned = column.versions.iter_mut().find(|version| version.time == time);
            if let Some((current, version)) = current.zip(assigned).filter(|_| !column.clears) {
                version.time = following(time, current);
            }
            column
                .versions
                .sort_by_key(|version| std::cmp::Reverse(version.time));
            column.versions.dedup_by_key(|version| version.time);
        }
    }
    for Increment {
        column: name,
        by,
        is_unsigned,
    } in &update.increments
    {
        let current = before.and_then(|row| row.column(name)?.newest());
        let value = current.map(|version| version.value.clone());
        let missing = match is_unsigned {
            true => CellValue::U64(0),
            false => CellValue::I64(0),
        };
        let value = incremented(name, &value.unwrap_or(missing), *by)?;
        let time = current.map_or(time, |current| following(time, current));
        changed.insert(name.clone(), Column::with(name.clone(), time, value));
    }
    // All versions that are removed from a column are removed together, because the change of the column holds the
    // versions that remain.
    let mut removed: BTreeMap<&ColumnName<'static>, BTreeSet<i64>> = BTreeMap::new();
    for (name, version) in &update.removed {
        removed.entry(name).or_default().insert(*version);
    }
    for (name, times) in removed {
        let current = before.and_then(|row| row.column(name));
        let rest = current.into_iter().flat_map(|column| &column.versions);
        let rest = rest.filter(|stored| !times.contains(&stored.time)).cloned();
        // Other changes of the same column in this update are added to the remaining versions.
        let column = changed.entry(name.clone()).or_insert_with(|| Column {
            name: name.clone(),
            clears: false,
            versions: Default::default(),
        });
        if !column.clears {
            let mut versions: BTreeMap<i64, Version<'static>> =
                rest.map(|version| (version.time, version)).collect();
            versions.extend(column.versions.drain(..).map(|version| (version.time, version)));
            column.clears = true;
            column.versions = versions.into_values().rev().collect();
        }
    }
    let columns = changed.into_values().map(Column::shortened).collect();
    Ok(mutation(Effect::Update, columns))
}

/// Returns the time of a version that replaces the current one: the time of the write, or a later time if a client has
/// given the current version a later time.
fn following(time: i64, current: &Version<'_>) -> i64 {
    let after = current.time.saturating_add(1).min(Timestamp::MAX.nanos());
    time.max(after)
}

/// Returns the sum of an integer and an increment, in the type of the integer.
fn incremented(
    name: &ColumnName<'static>,
    current: &CellValue<'static>,
    by: i64,
) -> std::result::Result<CellValue<'static>, Refused> {
    let sum = match current {
        CellValue::I64(number) => number.checked_add(by).map(CellValue::I64),
        CellValue::U64(number) => number.checked_add_signed(by).map(CellValue::U64),
        _ => return Err(Refused::NotAnInteger(name.clone())),
    };
    sum.ok_or_else(|| Refused::Overflow(name.clone()))
}

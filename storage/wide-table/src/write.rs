//! Writes: conditional changes of rows, all or none within a partition.
//!
//! A write that depends on stored rows (a condition, an increment, a returned row) is optimistic. The caller's thread
//! reads the rows, decides, and sends an entry that names the revisions it has read. The committer refuses the entry if
//! a row has changed since, and the caller begins again. The committer therefore compares numbers and never reads
//! stored rows, and no lock is held over a sync.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use tideline_log::{LogEntry, LogError, LogThreads, ModelError, Refusal, RequestRecord, Submitted};
use tideline_model::{Durability, KeyRange, SequenceNumber, TableId, Timestamp};

use crate::codec;
use crate::entry::{Change, Entry};
use crate::error::{Result, WideError};
use crate::mutation::{Column, ColumnName, Effect, Mutation, Version};
use crate::state::Revision;
use crate::store::WideStore;
use crate::value::CellValue;

/// Maximum size of a stored row, in bytes.
pub const ROW_BYTES_MAX: usize = 2 << 20;
/// Maximum size of the changes of one write, in bytes: half of the largest journal entry.
pub const WRITE_BYTES_MAX: usize = 4 << 20;
/// Size up to which an update does not read its row, in bytes. Larger ones check the size of the resulting row first.
const SMALL_UPDATE_BYTES: usize = 16 << 10;
/// Number of attempts before a write is refused as contended.
const ATTEMPTS_MAX: u32 = 1_000;

/// Decides about a write from the current row; `None` if the row does not exist.
pub type Condition<'a> = Box<dyn Fn(Option<&Mutation<'_>>) -> bool + Send + Sync + 'a>;

/// Builds the rows of a write; each call of the argument returns an id above all before.
pub type MakeRows<'f, 'w, E> =
    dyn Fn(&mut dyn FnMut() -> i64) -> std::result::Result<Vec<RowWrite<'w>>, E> + 'f;

/// Returns the outcome to store with an idempotency key, given the rows and their outcomes.
pub type RememberRows<'f, 'w> = dyn Fn(&[RowWrite<'w>], &[RowOutcome]) -> Option<RequestRecord> + 'f;

/// Operation on a row.
#[derive(Debug, Clone)]
pub enum Action {
    /// Replaces the row by these columns, sorted by name.
    Put(Vec<Column<'static>>),
    /// Changes columns of the row; creates it if it does not exist.
    Update(Update),
    /// Removes the row.
    Delete,
}

/// Changes of columns.
#[derive(Debug, Clone, Default)]
pub struct Update {
    /// Columns to set or to clear, sorted by name.
    pub columns: Vec<Column<'static>>,
    /// Integers to add to the newest version of columns. The result is a new version.
    pub increments: Vec<Increment>,
    /// Single versions to remove, by their times.
    pub removed: Vec<(ColumnName<'static>, i64)>,
    /// True if versions with the time of the write follow the current versions, even if a client has given those a later
    /// time. Applies to writes with a condition: it has passed on the current versions, so the update must be visible.
    pub follows_current: bool,
}

/// Addition to an integer column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Increment {
    /// The column.
    pub column: ColumnName<'static>,
    /// Number to add.
    pub by: i64,
    /// Type of a missing column, which counts as 0: `u64` if true, `i64` otherwise.
    pub is_unsigned: bool,
}

/// Row that a write returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Image {
    /// No row.
    #[default]
    None,
    /// The row before the write.
    Before,
    /// The row after the write.
    After,
}

/// Write of one row.
pub struct RowWrite<'a> {
    /// Stored key.
    pub key: Bytes,
    /// Length of the prefix of the key that names the partition. Writes of one partition are done all or not at all.
    pub partition: usize,
    /// Time of the write, in nanoseconds since 1970-01-01T00:00:00Z; see [`WideStore::next_version`].
    pub time: i64,
    /// Operation.
    pub action: Action,
    /// Condition; `None` = always.
    pub condition: Option<Condition<'a>>,
    /// Row to return.
    pub image: Image,
}

impl fmt::Debug for RowWrite<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowWrite")
            .field("key", &self.key)
            .field("action", &self.action)
            .field("is_conditional", &self.condition.is_some())
            .field("image", &self.image)
            .finish_non_exhaustive()
    }
}

/// Outcome of the write of one row.
#[derive(Debug, Clone, PartialEq)]
pub enum RowOutcome {
    /// The row was written. Holds the requested image; `None` if the row does not exist or no image was requested.
    Written(Option<Mutation<'static>>),
    /// The condition was not met. Holds the current row if an image was requested and the row exists.
    ConditionFailed(Option<Mutation<'static>>),
    /// The write itself was possible, but another write of the same partition was not.
    NotApplied,
    /// The write is not possible.
    Refused(Refused),
}

/// Reason why one row of a write is not possible.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// The column holds no integer.
    NotAnInteger(ColumnName<'static>),
    /// The sum is outside the range of the integer type.
    Overflow(ColumnName<'static>),
    /// The row would be larger than [`ROW_BYTES_MAX`]; holds its size.
    TooLarge(usize),
}

/// Options of a write.
#[derive(Debug, Clone, Default)]
pub struct WriteOptions {
    /// Durability of the acknowledgement.
    pub durability: Durability,
}

/// Outcomes of a write, in the order of its rows.
#[derive(Debug)]
pub struct Written {
    /// Sequence of the journal entry; `None` if nothing was written.
    pub sequence: Option<SequenceNumber>,
    /// Outcome of each row.
    pub rows: Vec<RowOutcome>,
}

impl WideStore {
    /// Writes rows. The rows of one partition are written all or not at all; rows of other partitions are independent
    /// of them. All rows that are written become visible and durable together.
    ///
    /// `remember` returns the outcome to store with an idempotency key, given the outcomes of the rows.
    ///
    /// # Errors
    ///
    /// [`WideError::NoTable`] if the table does not exist, [`WideError::TooLarge`] for more than [`WRITE_BYTES_MAX`]
    /// bytes, [`WideError::Contended`] if the rows were changed by others during every attempt, and the errors of reads
    /// and of the log.
    pub fn write(
        self: &Arc<Self>,
        threads: &LogThreads,
        table: TableId,
        writes: &[RowWrite<'_>],
        options: &WriteOptions,
        remember: &dyn Fn(&[RowOutcome]) -> Option<RequestRecord>,
    ) -> Result<Written> {
        for _ in 0..ATTEMPTS_MAX {
            let (outcomes, submitted) = self.submit(threads, table, writes, options, remember)?;
            if let Some(written) = wait(threads, outcomes, submitted)? {
                return Ok(written);
            }
        }
        Err(WideError::Contended {
            attempts: ATTEMPTS_MAX,
        })
    }

    /// Writes rows whose keys hold generated ids. `make` builds the rows; each call of its argument returns an id above
    /// all before. The rows of later calls are never visible before those of earlier ones, so a reader that has seen an
    /// id has seen all lower ids that will ever exist. Returns the rows that were written last.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write), and the error of `make`.
    pub fn write_generated<'w, E: From<WideError>>(
        self: &Arc<Self>,
        threads: &LogThreads,
        table: TableId,
        make: &MakeRows<'_, 'w, E>,
        options: &WriteOptions,
        remember: &RememberRows<'_, 'w>,
    ) -> std::result::Result<(Vec<RowWrite<'w>>, Written), E> {
        for _ in 0..ATTEMPTS_MAX {
            // Held until the entry is sent, not until it is committed.
            let order = self.generated.lock();
            let writes = make(&mut || self.next_version())?;
            let remember = |outcomes: &[RowOutcome]| remember(&writes, outcomes);
            let (outcomes, submitted) = self.submit(threads, table, &writes, options, &remember)?;
            drop(order);
            if let Some(written) = wait(threads, outcomes, submitted)? {
                return Ok((writes, written));
            }
        }
        Err(E::from(WideError::Contended {
            attempts: ATTEMPTS_MAX,
        }))
    }

    /// Decides writes and sends their entry to the committer. Without anything to write, nothing is sent.
    fn submit(
        self: &Arc<Self>,
        threads: &LogThreads,
        table: TableId,
        writes: &[RowWrite<'_>],
        options: &WriteOptions,
        remember: &dyn Fn(&[RowOutcome]) -> Option<RequestRecord>,
    ) -> Result<(Vec<RowOutcome>, Option<Submitted>)> {
        let Decided {
            outcomes,
            changes,
            seen,
        } = self.decide(table, writes)?;
        let request = remember(&outcomes);
        if changes.is_empty() && request.is_none() {
            return Ok((outcomes, None));
        }
        let bytes = changes.iter().map(Change::bytes).sum::<usize>();
        if bytes > WRITE_BYTES_MAX {
            return Err(WideError::TooLarge {
                what: "the size of a write in bytes",
                limit: WRITE_BYTES_MAX as u64,
                actual: bytes as u64,
            });
        }
        let entry = Entry {
            table,
            request,
            changes,
        };
        let entry = WideEntry::new(Arc::clone(self), entry, options.durability, seen);
        Ok((outcomes, Some(threads.submit(Box::new(entry))?)))
    }

    /// Deletes all rows whose keys are in a range. Costs one journal entry; the rows are removed by the next flush.
    ///
    /// # Errors
    ///
    /// [`WideError::NoTable`] if the table does not exist, and the errors of the log.
    pub fn delete_rows(
        self: &Arc<Self>,
        threads: &LogThreads,
        table: TableId,
        ranges: Vec<KeyRange>,
        options: &WriteOptions,
        request: Option<RequestRecord>,
    ) -> Result<SequenceNumber> {
        self.versions_max(table)?;
        let entry = Entry {
            table,
            request,
            changes: ranges.into_iter().map(Change::DeleteRange).collect(),
        };
        let entry = WideEntry::new(Arc::clone(self), entry, options.durability, Vec::new());
        Ok(threads.commit(Box::new(entry))?)
    }

    /// Reads the rows on which the writes depend, and decides each write.
    fn decide(&self, table: TableId, writes: &[RowWrite<'_>]) -> Result<Decided> {
        let versions_max = self.versions_max(table)?;
        let row_bytes_max = self
            .state()
            .parts
            .get(&table)
            .map_or(0, |part| part.detail.row_bytes_max);
        let mut deciding = Deciding {
            store: self,
            table,
            versions_max,
            row_bytes_max: usize::try_from(row_bytes_max).unwrap_or(usize::MAX),
            rows: BTreeMap::new(),
            updates: BTreeMap::new(),
            seen: Vec::new(),
        };
        let mut outcomes = Vec::with_capacity(writes.len());
        let mut mutations = Vec::with_capacity(writes.len());
        for write in writes {
            let (outcome, mutation) = deciding.decide(write)?;
            outcomes.push(outcome);
            mutations.push(mutation);
        }
        let failed: HashSet<&[u8]> = std::iter::zip(writes, &outcomes)
            .filter(|(_, outcome)| !matches!(outcome, RowOutcome::Written(_)))
            .map(|(write, _)| &write.key[..write.partition])
            .collect();
        let mut changes = Vec::with_capacity(writes.len());
        for ((write, outcome), mutation) in writes.iter().zip(&mut outcomes).zip(mutations) {
            if failed.contains(&write.key[..write.partition]) {
                if matches!(outcome, RowOutcome::Written(_)) {
                    *outcome = RowOutcome::NotApplied;
                }
            } else if let Some(mutation) = mutation {
                changes.push(Change::Row {
                    key: write.key.clone(),
                    mutation,
                });
            }
        }
        Ok(Decided {
            outcomes,
            changes,
            seen: deciding.seen,
        })
    }
}

/// Waits for a submitted write; `None` if its rows have changed since it was decided.
fn wait(
    threads: &LogThreads,
    rows: Vec<RowOutcome>,
    submitted: Option<Submitted>,
) -> Result<Option<Written>> {
    let Some(submitted) = submitted else {
        return Ok(Some(Written { sequence: None, rows }));
    };
    match threads.wait(submitted) {
        Ok(sequence) => Ok(Some(Written {
            sequence: Some(sequence),
            rows,
        })),
        Err(LogError::Refused(Refusal::Outdated)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Decided writes.
struct Decided {
    outcomes: Vec<RowOutcome>,
    changes: Vec<Change>,
    /// Rows that were read, with their revisions.
    seen: Vec<(Bytes, Revision)>,
}

/// Writes that are being decided, in their order.
struct Deciding<'s> {
    store: &'s WideStore,
    table: TableId,
    versions_max: usize,
    /// Largest stored row of the table.
    row_bytes_max: usize,
    /// Rows that were read or written by earlier writes; `None` for rows that do not exist.
    rows: BTreeMap<Bytes, Option<Mutation<'static>>>,
    /// Updates of rows that were not read; at most one per row.
    updates: BTreeMap<Bytes, Mutation<'static>>,
    seen: Vec<(Bytes, Revision)>,
}

impl Deciding<'_> {
    /// Decides one write. Returns its outcome, and the encoded mutation if it is possible.
    fn decide(&mut self, write: &RowWrite<'_>) -> Result<(RowOutcome, Option<Bytes>)> {
        let simple = self.simple(write);
        if let Some(mutation) = simple {
            let mut out = Vec::new();
            codec::encode(&mutation, &mut out);
            let bytes = write.key.len() + out.len();
            if bytes > ROW_BYTES_MAX {
                return Ok((RowOutcome::Refused(Refused::TooLarge(bytes)), None));
            }
            // A later write of the same request must see this one.
            if mutation.effect != Effect::Update {
                self.updates.remove(&write.key);
                self.rows
                    .insert(write.key.clone(), mutation.on_nothing(self.versions_max));
                return Ok((RowOutcome::Written(None), Some(Bytes::from(out))));
            }
            let is_first = !self.rows.contains_key(&write.key) && !self.updates.contains_key(&write.key);
            if is_first && out.len() <= SMALL_UPDATE_BYTES && self.grows_safely(&write.key, bytes) {
                self.updates.insert(write.key.clone(), mutation);
                return Ok((RowOutcome::Written(None), Some(Bytes::from(out))));
            }
        }
        let before = self.read(&write.key)?;
        if write
            .condition
            .as_ref()
            .is_some_and(|condition| !condition(before.as_ref()))
        {
            let image = before.filter(|_| write.image != Image::None);
            return Ok((RowOutcome::ConditionFailed(image), None));
        }
        let mutation = match resolve_action(write, before.as_ref()) {
            Ok(mutation) => mutation,
            Err(refused) => return Ok((RowOutcome::Refused(refused), None)),
        };
        let mut out = Vec::new();
        codec::encode(&mutation, &mut out);
        let after = applied(before.clone(), mutation, self.versions_max);
        if let Some(after) = &after {
            let mut stored = Vec::new();
            codec::encode(after, &mut stored);
            let bytes = write.key.len() + stored.len();
            if bytes > ROW_BYTES_MAX {
                return Ok((RowOutcome::Refused(Refused::TooLarge(bytes)), None));
            }
        }
        let image = match write.image {
            Image::None => None,
            Image::Before => before,
            Image::After => after.clone(),
        };
        self.rows.insert(write.key.clone(), after);
        Ok((RowOutcome::Written(image), Some(Bytes::from(out))))
    }

    /// Returns the mutation of a write that does not depend on its row.
    fn simple(&self, write: &RowWrite<'_>) -> Option<Mutation<'static>> {
        if write.condition.is_some() || write.image != Image::None {
            return None;
        }
        match &write.action {
            Action::Update(update) if !update.increments.is_empty() || !update.removed.is_empty() => None,
            // Reads nothing that can fail.
            _ => resolve_action(write, None).ok(),
        }
    }

    /// Returns true if a row cannot exceed its limit by a small update: the largest stored row and what the buffer holds
    /// of this row leave half of the limit for updates that run at the same time.
    fn grows_safely(&self, key: &[u8], bytes: usize) -> bool {
        let buffers = self.store.state().buffers(self.table);
        let buffered = crate::state::buffered(&buffers, key);
        let buffered: usize = buffered.mutations.iter().map(Bytes::len).sum();
        self.row_bytes_max + buffered + bytes <= ROW_BYTES_MAX / 2
    }

    /// Returns the row before a write, with the effect of earlier writes of the request.
    fn read(&mut self, key: &Bytes) -> Result<Option<Mutation<'static>>> {
        if let Some(row) = self.rows.get(key) {
            return Ok(row.clone());
        }
        let (row, revision) = self.store.row_at(self.table, key)?;
        let damaged = |reason| WideError::Damaged {
            table: self.table,
            reason,
        };
        let row = row
            .as_ref()
            .map(|row| row.columns())
            .transpose()
            .map_err(damaged)?;
        let mut row = row.map(Mutation::into_owned);
        if let Some(update) = self.updates.remove(key) {
            row = applied(row, update, self.versions_max);
        }
        self.seen.push((key.clone(), revision));
        self.rows.insert(key.clone(), row.clone());
        Ok(row)
    }
}

/// Returns a row after a mutation; `None` if it does not exist then.
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

/// Returns the absolute mutation of a write, given the row before it.
fn resolve_action(
    write: &RowWrite<'_>,
    before: Option<&Mutation<'static>>,
) -> std::result::Result<Mutation<'static>, Refused> {
    let time = write.time;
    let mutation = |effect, columns: Vec<Column<'static>>| {
        let versions = columns.iter().flat_map(|column| &column.versions);
        Mutation {
            effect,
            time: versions.map(|version| version.time).fold(time, i64::max),
            columns,
        }
    };
    let update = match &write.action {
        Action::Put(columns) => return Ok(mutation(Effect::Replace, columns.clone())),
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
    for (name, version) in &update.removed {
        let current = before.and_then(|row| row.column(name));
        let rest = current.into_iter().flat_map(|column| &column.versions);
        let rest = rest.filter(|stored| stored.time != *version).cloned();
        // Other changes of the same column in this update are applied to what is left.
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
    Ok(mutation(Effect::Update, changed.into_values().collect()))
}

/// Returns the time of a version that replaces the current one: the time of the write, or later if a client has given a
/// later time to the current version.
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

/// Entry on its way through the log.
struct WideEntry {
    store: Arc<WideStore>,
    entry: Entry,
    encoded: Bytes,
    durability: Durability,
    /// Rows that must not have changed, with the revisions that were read.
    seen: Vec<(Bytes, Revision)>,
    /// True while the rows of the entry count as pending.
    is_pending: AtomicBool,
}

impl WideEntry {
    fn new(
        store: Arc<WideStore>,
        entry: Entry,
        durability: Durability,
        seen: Vec<(Bytes, Revision)>,
    ) -> Self {
        Self {
            encoded: entry.encode(),
            store,
            entry,
            durability,
            seen,
            is_pending: AtomicBool::new(false),
        }
    }

    fn each_row(&self, row: impl Fn(&[u8]), range: impl Fn()) {
        for change in &self.entry.changes {
            match change {
                Change::Row { key, .. } => row(key),
                Change::DeleteRange(_) => range(),
            }
        }
    }
}

impl LogEntry for WideEntry {
    fn kind(&self) -> &'static str {
        "rows"
    }

    fn table(&self) -> TableId {
        self.entry.table
    }

    fn encoded(&self) -> &Bytes {
        &self.encoded
    }

    fn durability(&self) -> Durability {
        self.durability
    }

    fn request(&self) -> Option<RequestRecord> {
        self.entry.request.clone()
    }

    fn check(&self) -> std::result::Result<(), Refusal> {
        let (table, pending) = (self.entry.table, &self.store.pending);
        if !self.store.log.manifest().tables.contains_key(&table) {
            return Err(Refusal::TableDropped(table));
        }
        if !self.seen.is_empty() {
            let state = self.store.state();
            let is_current = |(key, revision): &(Bytes, Revision)| {
                !pending.is_pending(table, key) && state.is_unchanged(table, key, *revision)
            };
            if !self.seen.iter().all(is_current) {
                return Err(Refusal::Outdated);
            }
        }
        self.each_row(|key| pending.begin_row(table, key), || pending.begin_range());
        self.is_pending.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn apply(&self, sequence: SequenceNumber) -> std::result::Result<(), ModelError> {
        // A dropped table has no readers.
        let Ok(versions_max) = self.store.versions_max(self.entry.table) else {
            return Ok(());
        };
        // Keys and mutations share the memory of the encoded entry, which the recent entries keep as well.
        let changes = Entry::decode(&self.encoded)?.changes;
        let state = self.store.state();
        state
            .active
            .apply(self.entry.table, changes, sequence, versions_max)?;
        Ok(())
    }
}

impl Drop for WideEntry {
    fn drop(&mut self) {
        if self.is_pending.load(Ordering::Relaxed) {
            let (table, pending) = (self.entry.table, &self.store.pending);
            self.each_row(|key| pending.end_row(table, key), || pending.end_range());
        }
    }
}

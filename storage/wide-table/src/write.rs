//! Conditional changes of rows, atomic within a partition.
//!
//! A write that depends on stored rows (a condition, an increment, a returned row) is optimistic. The caller's thread
//! reads the rows, evaluates the write, and sends an entry together with the revisions of the rows. If a row has
//! changed in the meantime, the committer refuses the entry and the caller retries. The committer therefore only
//! compares revisions: it reads no stored rows, and no lock is held during a sync.

mod decide;
mod journal;

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use tideline_backend::Direction;
use tideline_log::{LogError, LogThreads, OUTCOME_BYTES_MAX, Refusal, RequestRecord, Submitted};
use tideline_model::{Durability, KeyRange, SequenceNumber, TableId, Timestamp};

use crate::entry::{Change, Entry};
use crate::error::{Result, WideError};
use crate::mutation::{Column, ColumnName, Mutation};
use crate::read::{STEP_PAGE, StoredRow};
use crate::state::Revision;
use crate::store::WideStore;
use crate::unchanged::{RowDigest, SeenRange, UNCHANGED_ROWS_MAX, Unchanged};
use decide::Decided;
pub(crate) use journal::WideEntry;

/// Maximum size of a stored row, in bytes.
pub const ROW_BYTES_MAX: usize = 8 << 20;
/// Maximum size of a stored column with all its versions, in bytes.
pub const COLUMN_BYTES_MAX: usize = 2 << 20;
/// Maximum size of the changes and the stored outcome of one write, in bytes: half of the largest journal entry.
pub const WRITE_BYTES_MAX: usize = 4 << 20;
/// Limited quantity in the [`WideError::TooLarge`] of a write with too many bytes. Fewer rows may fit.
pub const WRITE_SIZE: &str = "the size of a write with its index entries in bytes";
/// Limited quantity in the [`WideError::TooLarge`] of a write whose outcome has too many bytes. Fewer rows may fit.
pub const OUTCOME_SIZE: &str = "the size of the response of a write with an idempotency key in bytes";
/// Number of attempts before a write is refused as contended.
const ATTEMPTS_MAX: u32 = 1_000;

/// Condition of a write, tested on the current row. Its argument is `None` if the row does not exist. The write is
/// applied only if the condition returns true.
pub type Condition<'a> = Box<dyn Fn(Option<&Mutation<'_>>) -> bool + Send + Sync + 'a>;

/// Function that builds the rows of a write. Its argument is a function that returns a new id at each call. Each id is
/// above all previous ids.
pub type MakeRows<'f, 'w, E> =
    dyn Fn(&mut dyn FnMut() -> i64) -> std::result::Result<Vec<RowWrite<'w>>, E> + 'f;

/// Function that returns the request record to store with an idempotency key, given the rows and their outcomes.
pub type RememberRows<'f, 'w> = dyn Fn(&[RowWrite<'w>], &[RowOutcome]) -> Option<RequestRecord> + 'f;

/// Operation on a row.
#[derive(Debug, Clone)]
pub enum Action<'a> {
    /// Replaces the row with these columns, sorted by name.
    Put(Vec<Column<'a>>),
    /// Adds a row with these columns, sorted by name. The caller guarantees that no row has had this key, for example
    /// because the key holds a new generated id. Therefore no stored row is read.
    Create(Vec<Column<'a>>),
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
    /// If true, versions with the time of the write get a later time if needed, so that they follow the current
    /// versions even if a client has given these a later time. Set for conditional writes: the condition was tested on
    /// the current versions, so the update must become visible.
    pub follows_current: bool,
}

/// Addition to an integer column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Increment {
    /// The column.
    pub column: ColumnName<'static>,
    /// Number to add.
    pub by: i64,
    /// Type of the result if the column is missing and counts as 0: `u64` if true, `i64` otherwise.
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
    /// Length of the prefix of the key that names the partition. Either all writes of a partition are applied, or none.
    pub partition: usize,
    /// Time of the write, in nanoseconds since 1970-01-01T00:00:00Z; see [`WideStore::next_version`].
    pub time: i64,
    /// Operation.
    pub action: Action<'a>,
    /// Condition; `None` if the write is unconditional.
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
    /// The write was possible, but was not applied: another write of the same partition failed, or a required state has
    /// changed.
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
    /// The changes of the row and of its index entries would be larger than [`WRITE_BYTES_MAX`]; holds their size.
    WriteTooLarge(usize),
    /// The column with its versions would be larger than [`COLUMN_BYTES_MAX`]; holds its size.
    ColumnTooLarge(ColumnName<'static>, usize),
    /// The row cannot have an entry in an index; holds the reason.
    NotIndexable(String),
    /// The part of the row was dropped; holds the start of the first part that is kept.
    PartDropped(Timestamp),
    /// The part of the row is older than the setting `keep` allows; holds the start of the first part that is kept.
    PartHidden(Timestamp),
    /// The part of the row is too old to be written; holds the start of the first part that can be written.
    PartClosed(Timestamp),
    /// The part of the row is in the archive, or is being archived.
    PartArchived,
    /// The row would need a new part, but the table already has [`PARTS_MAX`](crate::PARTS_MAX) parts.
    TooManyParts,
}

/// Options of a write.
#[derive(Debug, Clone, Default)]
pub struct WriteOptions {
    /// Durability of the acknowledgement.
    pub durability: Durability,
    /// State that the writes require. If it has changed, nothing is written.
    pub unchanged: Vec<Unchanged>,
    /// True for the removal of expired data, which is also allowed in parts that are too old for other writes.
    pub is_removal: bool,
    /// True to write the rows of all partitions, or none.
    pub is_whole: bool,
}

/// Outcomes of a write, in the order of its rows.
#[derive(Debug)]
pub struct Written {
    /// Sequence of the journal entry; `None` if nothing was written.
    pub sequence: Option<SequenceNumber>,
    /// Outcome of each row.
    pub rows: Vec<RowOutcome>,
    /// Index of the first element of [`WriteOptions::unchanged`] that has changed; nothing was written then. `None` if
    /// all are unchanged.
    pub changed: Option<usize>,
}

impl WideStore {
    /// Writes rows. The rows of one partition are written atomically; rows of different partitions are independent of
    /// each other, unless [`WriteOptions::is_whole`] is set. All written rows become visible and durable together.
    ///
    /// `remember` returns the outcome to store with an idempotency key, given the outcomes of the rows.
    ///
    /// # Errors
    ///
    /// [`WideError::NoTable`] if the table does not exist, [`WideError::TooLarge`] for more than [`WRITE_BYTES_MAX`]
    /// bytes or an outcome of more than [`OUTCOME_BYTES_MAX`] bytes, [`WideError::Contended`] if the rows were changed
    /// by other writes during every attempt, and the errors of reads and of the log.
    pub fn write(
        self: &Arc<Self>,
        threads: &LogThreads,
        table: TableId,
        writes: &[RowWrite<'_>],
        options: &WriteOptions,
        remember: &dyn Fn(&[RowOutcome]) -> Option<RequestRecord>,
    ) -> Result<Written> {
        until_current(|| {
            let begun = self.begin(threads, table, writes, options, remember)?;
            begun.wait(threads)
        })
    }

    /// Writes rows whose keys hold generated ids. `make` builds the rows. Each call of its argument returns an id above
    /// all previous ids. Rows of a later call never become visible before the rows of an earlier call. Once a reader
    /// has seen an id, no lower id can therefore appear. Returns the rows of the last attempt with their outcomes.
    ///
    /// # Errors
    ///
    /// The errors of [`write`](Self::write), and the error of `make`.
    pub fn write_generated<'w, E: From<WideError>>(
        self: &Arc<Self>,
        threads: &LogThreads,
        table: TableId,
        make: &MakeRows<'_, 'w, E>,
        options: &WriteOptions,
        remember: &RememberRows<'_, 'w>,
    ) -> std::result::Result<(Vec<RowWrite<'w>>, Written), E> {
        until_current(|| {
            let (writes, begun) = self.begin_generated(threads, table, make, options, remember)?;
            let written = begun.wait(threads)?;
            Ok(written.map(|written| (writes, written)))
        })
    }

    /// Begins one attempt of [`write_generated`](Self::write_generated): numbers the rows and sends their entry to the
    /// committer, without waiting for it. Waits at most for other writes with generated ids that are being numbered and
    /// sent, not for their commits.
    ///
    /// # Errors
    ///
    /// The errors of [`write_generated`](Self::write_generated), except those of the commit.
    pub fn begin_generated<'w, E: From<WideError>>(
        self: &Arc<Self>,
        threads: &LogThreads,
        table: TableId,
        make: &MakeRows<'_, 'w, E>,
        options: &WriteOptions,
        remember: &RememberRows<'_, 'w>,
    ) -> std::result::Result<(Vec<RowWrite<'w>>, Begun), E> {
        // The required state can be many rows, so it is read before the lock is taken. A later change of it is found by
        // the committer.
        let compared = self.compared(table, options)?;
        // The lock is held until the entry is sent, so the order of the entries is that of the ids.
        let _order = self.generated.lock();
        let now = self.log.trusted_now().now.nanos();
        let mut last_id = None;
        let writes = make(&mut || {
            let id = self.version_at(now);
            last_id = Some(id);
            id
        })?;
        let remember = |outcomes: &[RowOutcome]| remember(&writes, outcomes);
        let compared = (compared, last_id);
        let begun = self.begin_compared(threads, table, &writes, options, &remember, compared)?;
        Ok((writes, begun))
    }

    /// Begins one attempt of [`write`](Self::write): evaluates the writes and sends their entry to the committer,
    /// without waiting for it. Sends nothing if there is neither a change nor an outcome to store.
    ///
    /// # Errors
    ///
    /// The errors of [`write`](Self::write), except those of the commit.
    pub fn begin(
        self: &Arc<Self>,
        threads: &LogThreads,
        table: TableId,
        writes: &[RowWrite<'_>],
        options: &WriteOptions,
        remember: &dyn Fn(&[RowOutcome]) -> Option<RequestRecord>,
    ) -> Result<Begun> {
        let compared = (self.compared(table, options)?, None);
        self.begin_compared(threads, table, writes, options, remember, compared)
    }

    /// Compares the required state of a write with the stored one. Returns the state that was read, and the index of the
    /// first element that has changed.
    fn compared(&self, table: TableId, options: &WriteOptions) -> Result<(Seen, Option<usize>)> {
        let mut seen = Seen::new(self);
        let changed = self.first_changed(table, &options.unchanged, &mut seen)?;
        Ok((seen, changed))
    }

    /// Begins a write whose required state was compared. `last_id` is the last id that was assigned for it; `None` without
    /// generated ids.
    fn begin_compared(
        self: &Arc<Self>,
        threads: &LogThreads,
        table: TableId,
        writes: &[RowWrite<'_>],
        options: &WriteOptions,
        remember: &dyn Fn(&[RowOutcome]) -> Option<RequestRecord>,
        ((mut seen, changed), last_id): ((Seen, Option<usize>), Option<i64>),
    ) -> Result<Begun> {
        if let Some(changed) = changed {
            return Ok(Begun {
                outcomes: writes.iter().map(|_| RowOutcome::NotApplied).collect(),
                changed: Some(changed),
                submitted: None,
            });
        }
        let Decided {
            outcomes,
            changes,
            index_changes,
            partitions,
        } = self.decide(table, writes, options, &mut seen)?;
        let request = remember(&outcomes);
        if changes.is_empty() && request.is_none() {
            return Ok(Begun::nothing(outcomes));
        }
        // Without its outcome, a repeated request would be executed again.
        let outcome_bytes = request.as_ref().map_or(0, |request| request.outcome.len());
        check_bytes(OUTCOME_SIZE, outcome_bytes, OUTCOME_BYTES_MAX)?;
        if self.versions.are_exhausted() {
            return Err(WideError::NoVersions);
        }
        let newest = self.versions.to_record(&changes, last_id);
        let entry = Entry {
            table,
            request,
            newest: newest.map_err(|reason| WideError::Damaged { table, reason })?,
            changes,
            index_changes,
        };
        check_bytes(WRITE_SIZE, entry.bytes(), WRITE_BYTES_MAX)?;
        let entry = WideEntry::new(Arc::clone(self), entry, options.durability, seen, partitions);
        Ok(Begun {
            submitted: Some(threads.submit(Box::new(entry))?),
            ..Begun::nothing(outcomes)
        })
    }

    /// Compares the required state with the stored one. Returns the index of the first element that differs; `None` if
    /// all are unchanged.
    fn first_changed(
        &self,
        table: TableId,
        unchanged: &[Unchanged],
        seen: &mut Seen,
    ) -> Result<Option<usize>> {
        let mut left = UNCHANGED_ROWS_MAX;
        for (index, required) in unchanged.iter().enumerate() {
            let is_unchanged = match required {
                Unchanged::Row { key, digest } => {
                    let (found, revision) = self.row_digest(table, key)?;
                    seen.rows.push((Bytes::copy_from_slice(key), revision));
                    found == *digest
                }
                Unchanged::RowOf {
                    table: other,
                    key,
                    digest,
                } => {
                    let (found, revision) = self.row_digest(*other, key)?;
                    seen.add_row_of(*other, Bytes::copy_from_slice(key), revision);
                    found == *digest
                }
                Unchanged::Range {
                    range,
                    partition,
                    digest,
                } => {
                    let (found, revision) = self.range_digest(table, range, &mut left)?;
                    seen.ranges.push(SeenRange {
                        range: range.clone(),
                        partition: *partition,
                        revision,
                    });
                    found == *digest
                }
            };
            if !is_unchanged {
                return Ok(Some(index));
            }
        }
        Ok(None)
    }

    /// Returns the digest and the revision of a row. The digest is `None` if the row does not exist.
    fn row_digest(&self, table: TableId, key: &[u8]) -> Result<(Option<RowDigest>, Revision)> {
        let rules = self.rules(table)?;
        let damaged = |reason| WideError::Damaged { table, reason };
        let (row, revision) = self.row_at(table, &rules, key)?;
        let visible = self.visible_parts(&rules);
        let is_visible = visible.contains(&rules.part_of(key).map_err(damaged)?);
        let row = match row.filter(|_| is_visible) {
            Some(row) => self.expiry(&rules).visible_stored(row).map_err(damaged)?,
            None => None,
        };
        Ok((row.map(|row| row.digest()), revision))
    }

    /// Deletes all rows whose keys are in one of the ranges.
    ///
    /// In a table without indexes, the delete writes one journal entry, and the next flush removes the rows. In a table
    /// with indexes, the rows are read and deleted page by page, because their index entries must be found. After an
    /// error or a stop, some of the rows may already be deleted. `is_stopped` is called before each page.
    ///
    /// # Errors
    ///
    /// [`WideError::NoTable`] if the table does not exist, [`WideError::PartClosed`] or [`WideError::PartArchived`] if
    /// a range reaches a part whose rows can no longer be written, [`WideError::Stopped`] if `is_stopped` returns true,
    /// and the errors of [`write`](Self::write).
    pub fn delete_rows(
        self: &Arc<Self>,
        threads: &LogThreads,
        table: TableId,
        ranges: &[KeyRange],
        durability: Durability,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<()> {
        until_current(|| {
            let seen = Seen::new(self);
            let rules = self.rules(table)?;
            ranges
                .iter()
                .try_for_each(|range| self.check_open(table, &rules, range))?;
            if !rules.indexes.is_empty() {
                let mut deletes = ranges
                    .iter()
                    .map(|range| self.delete_pages(threads, table, range, durability, is_stopped));
                return deletes.try_for_each(|delete| delete).map(Some);
            }
            let entry = Entry {
                table,
                request: None,
                changes: ranges.iter().cloned().map(Change::DeleteRange).collect(),
                index_changes: Vec::new(),
                newest: None,
            };
            // The entry is refused if an index was created meanwhile.
            self.commit(threads, entry, durability, seen)
        })
    }

    /// Gives all changes of rows of a table that are committed from now on the time `floor` or a later time, also those
    /// of writes that have begun before. The times of versions stay as they are, and removals of expired data keep the
    /// times of their rows. On return, all changes with an earlier time are visible. A row with an earlier time has
    /// therefore not changed since. `floor` is a version that [`next_version`](Self::next_version) has returned. The
    /// floor holds until the store is closed; all versions that are assigned after a restart are higher. The floors of
    /// dropped tables are removed.
    ///
    /// # Errors
    ///
    /// The errors of [`settle_writes`](Self::settle_writes).
    pub fn raise_times(self: &Arc<Self>, threads: &LogThreads, table: TableId, floor: i64) -> Result<()> {
        self.change_state(|state| {
            let tables = self.tables();
            state.floors.retain(|id, _| tables.contains(*id));
            let current = state.floors.entry(table).or_insert(floor);
            *current = floor.max(*current);
            state.closings += 1;
        });
        self.settle_writes(threads, table)
    }

    /// Writes rows like [`write`](Self::write), in several writes if they are too large for one: the changes of their
    /// index entries also count, and can be many times larger than the rows. Returns the outcome of each row.
    ///
    /// # Errors
    ///
    /// The errors of [`write`](Self::write). Some of the rows may then be written.
    pub(crate) fn write_divided(
        self: &Arc<Self>,
        threads: &LogThreads,
        table: TableId,
        writes: &[RowWrite<'_>],
        options: &WriteOptions,
    ) -> Result<Vec<RowOutcome>> {
        match self.write(threads, table, writes, options, &|_| None) {
            Err(WideError::TooLarge { .. }) if writes.len() > 1 => {
                let (first, second) = writes.split_at(writes.len() / 2);
                let mut outcomes = self.write_divided(threads, table, first, options)?;
                outcomes.extend(self.write_divided(threads, table, second, options)?);
                Ok(outcomes)
            }
            written => Ok(written?.rows),
        }
    }

    /// Commits an entry that does not depend on conditions. Returns `None` if the state on which it was decided has
    /// changed.
    pub(crate) fn commit(
        self: &Arc<Self>,
        threads: &LogThreads,
        entry: Entry,
        durability: Durability,
        seen: Seen,
    ) -> Result<Option<()>> {
        let entry = WideEntry::new(Arc::clone(self), entry, durability, seen, Vec::new());
        current(threads.commit(Box::new(entry)).map(drop))
    }

    /// Reads the rows of a range in pages, and deletes the rows of each page by one write.
    fn delete_pages(
        self: &Arc<Self>,
        threads: &LogThreads,
        table: TableId,
        range: &KeyRange,
        durability: Durability,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<()> {
        let options = WriteOptions {
            durability,
            ..WriteOptions::default()
        };
        let mut rest = Some(range.clone());
        while let Some(range) = rest {
            if is_stopped() {
                return Err(WideError::Stopped);
            }
            let page = self.page_with_hidden(table, &range, Direction::Ascending, STEP_PAGE)?;
            let time = self.next_version();
            let delete = |row: StoredRow| RowWrite {
                partition: row.key.len(),
                key: row.key,
                time,
                action: Action::Delete,
                condition: None,
                image: Image::None,
            };
            let writes: Vec<RowWrite<'_>> = page.rows.into_iter().map(delete).collect();
            for outcome in self.write_divided(threads, table, &writes, &options)? {
                match outcome {
                    RowOutcome::Refused(Refused::PartClosed(before)) => {
                        return Err(WideError::PartClosed { table, before });
                    }
                    RowOutcome::Refused(Refused::PartArchived) => return Err(WideError::PartArchived(table)),
                    _ => {}
                }
            }
            rest = page.next;
        }
        Ok(())
    }
}

/// Refuses a size above its limit.
fn check_bytes(what: &'static str, actual: usize, limit: usize) -> Result<()> {
    match actual <= limit {
        true => Ok(()),
        false => Err(WideError::TooLarge {
            what,
            limit: limit as u64,
            actual: actual as u64,
        }),
    }
}

/// Repeats an attempt until its entry is committed. The attempt returns `None` if the state on which its entry was
/// decided has changed.
///
/// # Errors
///
/// [`WideError::Contended`] if every attempt returned `None`, and the errors of the attempt.
pub(crate) fn until_current<T, E: From<WideError>>(
    mut attempt: impl FnMut() -> std::result::Result<Option<T>, E>,
) -> std::result::Result<T, E> {
    for _ in 0..ATTEMPTS_MAX {
        if let Some(done) = attempt()? {
            return Ok(done);
        }
    }
    Err(E::from(WideError::Contended {
        attempts: ATTEMPTS_MAX,
    }))
}

/// Converts the result of a commit. Returns `None` if the committer refused the entry as outdated; the attempt must
/// then be repeated.
///
/// # Errors
///
/// The other errors of the commit.
pub fn current<T>(committed: std::result::Result<T, LogError>) -> Result<Option<T>> {
    match committed {
        Ok(done) => Ok(Some(done)),
        Err(LogError::Refused(Refusal::Outdated)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Evaluated writes, with the entry that was sent to the committer.
#[derive(Debug)]
pub struct Begun {
    /// Outcome of each row if the entry is committed.
    pub outcomes: Vec<RowOutcome>,
    /// See [`Written::changed`].
    pub changed: Option<usize>,
    /// Submitted entry; `None` if nothing is written.
    pub submitted: Option<Submitted>,
}

impl Begun {
    fn nothing(outcomes: Vec<RowOutcome>) -> Self {
        Self {
            outcomes,
            changed: None,
            submitted: None,
        }
    }

    /// Waits until the entry is committed. Returns `None` if the committer refused it because the state that the write
    /// depends on has changed.
    fn wait(self, threads: &LogThreads) -> Result<Option<Written>> {
        let written = |sequence| Written {
            sequence,
            rows: self.outcomes,
            changed: self.changed,
        };
        let Some(submitted) = self.submitted else {
            return Ok(Some(written(None)));
        };
        let sequence = current(threads.wait(submitted))?;
        Ok(sequence.map(|sequence| written(Some(sequence))))
    }
}

/// State on which a write was decided: rows and ranges with their revisions, and the indexes of the table.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    rows: Vec<(Bytes, Revision)>,
    ranges: Vec<SeenRange>,
    /// Rows of other tables.
    others: Vec<(TableId, Vec<(Bytes, Revision)>)>,
    /// Ids of the indexes of the table when the write was decided.
    indexes: Vec<TableId>,
    /// [`State::closings`](crate::state::State::closings) before the decision.
    closings: u64,
}

impl Seen {
    /// Returns an empty state. Must be called before anything is decided.
    pub(crate) fn new(store: &WideStore) -> Self {
        Self {
            closings: store.state().closings,
            ..Self::default()
        }
    }

    /// Returns a state without rows, for a table with these indexes.
    pub(crate) fn of_indexes(store: &WideStore, indexes: Vec<TableId>) -> Self {
        Self {
            indexes,
            ..Self::new(store)
        }
    }

    /// Adds a row that was read.
    pub(crate) fn add_row(&mut self, key: Bytes, revision: Revision) {
        self.rows.push((key, revision));
    }

    /// Adds a row of another table that was read.
    fn add_row_of(&mut self, table: TableId, key: Bytes, revision: Revision) {
        match self.others.last_mut() {
            Some((last, rows)) if *last == table => rows.push((key, revision)),
            _ => self.others.push((table, vec![(key, revision)])),
        }
    }
}

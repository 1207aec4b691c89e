//! Operations on the rows of wide tables: write, read, scan, delete.
//!
//! A scan reads one key range, or one range per bucket of the key. The ranges of buckets are merged, so that rows are
//! returned in the order of the key columns after the bucket, as if there were no buckets.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tideline_backend::{Direction, PageLimit};
use tideline_key_codec::layout::{KeyLayout, Ranges};
use tideline_log::{RequestRecord, Submitted};
use tideline_model::{Durability, KeyRange, SequenceNumber};
use tideline_runtime::Reservation;
pub use tideline_wide_table::WideError;
pub use tideline_wide_table::{
    ALL_PARTS, Action, COLUMN_BYTES_MAX, CellValue, Column, ColumnName, ColumnPage, ColumnSpan,
    Condition as RowCondition, DictionaryStats, Effect, GroupSet, Image, Increment, MoveEnd, MoveProgress,
    Mutation, OUTCOME_SIZE, PARTS_MAX, PartNumbers, PartSelection, ROW_BYTES_MAX, RangeDigest, Refused,
    RowDigest, RowOutcome, RowPage, RowWrite, StoredRow, UNCHANGED_ROWS_MAX, Unchanged, Update, Version,
    WRITE_BYTES_MAX, WRITE_SIZE, WideStats, WideTableStats, Written, take_cold_bytes,
};
use tideline_wide_table::{MakeRows, WriteOptions, current};

use crate::engine::Engine;
use crate::error::{EngineError, Result};
use crate::indexes::Index;
use crate::row_load::RowAccess;
use crate::wide_table::WideTable;
use crate::write::{IdempotentRequest, RunningRequest};

/// Maximum number of rows that a scan reads from a range in one page.
const PAGE_ROWS: usize = 500;
/// Bytes after which a page of a range ends.
const PAGE_BYTES: usize = 1 << 20;
/// No part of a table.
const NO_PARTS: PartNumbers = PartNumbers::new(1, 0);
/// Minimum number of rows that a merged scan reads from each bucket in one page.
const BUCKET_ROWS_MIN: usize = 8;
/// Name of the memory of scans in errors and metrics.
const SCAN_MEMORY: &str = "rows of scans";

/// Result of starting a request with an idempotency key.
#[derive(Debug)]
pub enum RowRequestStart<'e> {
    /// The key is new; the rows must be written.
    New(RunningRequest<'e>),
    /// The same request was executed before with this key; holds its stored response. The rows must not be written
    /// again.
    Repeated(Box<RawValue>),
}

/// Stored outcome of a request: its response and the digest of the request.
#[derive(Debug, Serialize, Deserialize)]
struct StoredResponse {
    digest: String,
    response: Box<RawValue>,
}

/// Function that returns the response to store with an idempotency key, given the rows and their outcomes.
pub type MakeResponse<'r> = dyn Fn(&[RowWrite<'_>], &[RowOutcome]) -> Box<RawValue> + 'r;

/// Request with an idempotency key whose response is stored together with its rows.
pub struct RememberedResponse<'e, 'r> {
    /// Claim on the key.
    pub request: RunningRequest<'e>,
    /// Function that returns the response to store.
    pub response: &'r MakeResponse<'r>,
}

/// Settings of a write of rows.
#[derive(Default)]
pub struct RowWriteOptions<'e, 'r> {
    /// Durability that the acknowledgement guarantees; `None` = the table's setting.
    pub durability: Option<Durability>,
    /// Idempotency key and the function for the stored response; `None` without a key.
    pub request: Option<RememberedResponse<'e, 'r>>,
    /// State that must be unchanged when the rows are written; otherwise nothing is written.
    pub unchanged: Vec<Unchanged>,
    /// True to write the rows of all partitions, or none.
    pub is_whole: bool,
}

/// Rows whose write has begun.
#[derive(Debug)]
pub struct BegunRows<'w> {
    /// The rows.
    pub writes: Vec<RowWrite<'w>>,
    /// Outcome of each row if the commit succeeds.
    pub outcomes: Vec<RowOutcome>,
    /// The commit; `None` if nothing is written.
    pub commit: Option<RowCommit>,
}

/// Commit of rows. As a future, it returns the sequence of the journal entry, with the requested durability. It returns
/// `None` if the rows that the write depends on were changed meanwhile: nothing was written then, and the write must
/// begin again. The errors are those of [`Engine::write_rows`]; after an error of kind `Unavailable` the outcome is
/// unknown. A dropped commit is not waited for, and may still take place.
#[derive(Debug)]
pub struct RowCommit(Submitted);

impl Future for RowCommit {
    type Output = Result<Option<SequenceNumber>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let committed = Pin::new(&mut self.0).poll(context);
        committed.map(|committed| Ok(current(committed)?))
    }
}

impl Engine {
    /// Looks up an idempotency key of a write of rows, and claims it if it is new.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`begin_request`](Self::begin_request).
    pub fn begin_row_request(
        &self,
        table: &WideTable,
        request: &IdempotentRequest,
    ) -> Result<RowRequestStart<'_>> {
        let (running, earlier) = self.claim(table.table(), request)?;
        let Some(earlier) = earlier else {
            return Ok(RowRequestStart::New(running));
        };
        let stored: StoredResponse =
            serde_json::from_slice(&earlier).map_err(|_| EngineError::KeyReused(request.key().to_owned()))?;
        match stored.digest == request.digest_text() {
            true => Ok(RowRequestStart::Repeated(stored.response)),
            false => Err(EngineError::KeyReused(request.key().to_owned())),
        }
    }

    /// Returns a version for a write: a time in nanoseconds, higher than all versions returned before.
    pub fn next_version(&self) -> i64 {
        self.rows.next_version()
    }

    /// Returns an error if a version that a client has set is farther from the current time than the table allows.
    ///
    /// # Errors
    ///
    /// Returns [`EngineError::Invalid`] for a version that is too far from the current time.
    pub fn check_version(&self, table: &WideTable, version: i64) -> Result<()> {
        let Some(guard) = table.settings().version_guard else {
            return Ok(());
        };
        let now = self.store.trusted_now().now.nanos();
        match now.abs_diff(version) > guard.unsigned_abs() {
            false => Ok(()),
            true => Err(EngineError::Invalid(format!(
                "version {} is farther from now than version_guard of {} allows",
                tideline_model::Timestamp::from_nanos_clamped(version).to_rfc3339(),
                tideline_model::time::format_duration(guard)
            ))),
        }
    }

    /// Writes rows. `make` builds them; each call of its argument returns an id for a generated key column. Either all
    /// rows of one partition are written or none. Returns the rows and their outcomes.
    ///
    /// `Ok` guarantees the requested durability. Call [`wait_for_searches`](Self::wait_for_searches) before each of
    /// many writes.
    ///
    /// # Errors
    ///
    /// Returns [`EngineError::DiskFull`] below the watermark of free space, the error of `make`, and otherwise the
    /// errors of the row store. After an error of kind `Unavailable` the outcome is unknown.
    pub fn write_rows<'w>(
        &self,
        table: &WideTable,
        make: &MakeRows<'_, 'w, EngineError>,
        options: &RowWriteOptions<'_, '_>,
    ) -> Result<(Vec<RowWrite<'w>>, Written)> {
        self.check_writable()?;
        let (rows, threads) = (&self.rows, self.store.threads());
        let id = table.table().points().id();
        let remember = |writes: &[RowWrite<'w>], outcomes: &[RowOutcome]| -> Option<RequestRecord> {
            let remembered = options.request.as_ref()?;
            let stored = StoredResponse {
                digest: remembered.request.digest_text(),
                response: (remembered.response)(writes, outcomes),
            };
            Some(RequestRecord {
                key: remembered.request.key(),
                outcome: serde_json::to_vec(&stored).ok()?.into(),
            })
        };
        let options = WriteOptions {
            durability: options.durability.unwrap_or(table.table().spec().durability),
            unchanged: options.unchanged.clone(),
            is_removal: false,
            is_whole: options.is_whole,
        };
        if table.layout().generated().is_some() {
            self.admit_range(table, RowAccess::Write, &KeyRange::ALL, &NO_PARTS)?;
            let (writes, written) = rows.write_generated(threads, id, make, &options, &remember)?;
            self.note_writes(table, &writes)?;
            return Ok((writes, written));
        }
        let writes = make(&mut || self.next_version())?;
        self.admit_rows(table, RowAccess::Write, writes.iter().map(|write| &write.key[..]))?;
        self.note_writes(table, &writes)?;
        let remember = |outcomes: &[RowOutcome]| remember(&writes, outcomes);
        let written = rows.write(threads, id, &writes, &options, &remember)?;
        Ok((writes, written))
    }

    /// Begins one attempt of [`write_rows`](Self::write_rows), without waiting for the commit. Returns the rows, their
    /// outcomes, and the commit that the outcomes depend on. The commit is `None` if nothing is written. Does not wait
    /// for commits of other writes. Reads stored rows only if the table has indexes, or if a write depends on its row;
    /// a write of a new row with a generated id does not. `options` has no idempotency key and requires no unchanged
    /// state.
    ///
    /// # Errors
    ///
    /// The errors of [`write_rows`](Self::write_rows), except the errors of the commit.
    pub fn begin_rows<'w>(
        &self,
        table: &WideTable,
        make: &MakeRows<'_, 'w, EngineError>,
        options: &RowWriteOptions<'_, '_>,
    ) -> Result<BegunRows<'w>> {
        debug_assert!(options.request.is_none() && options.unchanged.is_empty());
        self.check_writable()?;
        let (rows, threads) = (&self.rows, self.store.threads());
        let id = table.table().points().id();
        let options = WriteOptions {
            durability: options.durability.unwrap_or(table.table().spec().durability),
            is_whole: options.is_whole,
            ..WriteOptions::default()
        };
        let (writes, begun) = match table.layout().generated().is_some() {
            true => {
                self.admit_range(table, RowAccess::Write, &KeyRange::ALL, &NO_PARTS)?;
                rows.begin_generated(threads, id, make, &options, &|_, _| None)?
            }
            false => {
                let writes = make(&mut || self.next_version())?;
                self.admit_rows(table, RowAccess::Write, writes.iter().map(|write| &write.key[..]))?;
                let begun = rows.begin(threads, id, &writes, &options, &|_| None)?;
                (writes, begun)
            }
        };
        self.note_writes(table, &writes)?;
        Ok(BegunRows {
            writes,
            outcomes: begun.outcomes,
            commit: begun.submitted.map(RowCommit),
        })
    }

    /// Waits on the current thread for the commit of rows. Returns what the future [`RowCommit`] returns.
    ///
    /// # Errors
    ///
    /// The errors of [`write_rows`](Self::write_rows).
    pub fn wait_for_rows(&self, commit: RowCommit) -> Result<Option<SequenceNumber>> {
        Ok(current(self.store.threads().wait(commit.0))?)
    }

    fn note_writes(&self, table: &WideTable, writes: &[RowWrite<'_>]) -> Result<()> {
        self.note_rows(table, RowAccess::Write, writes.len(), |number| {
            &writes[number].key
        });
        self.note_column_updates(table, writes);
        self.charge_tenant(writes.len());
        self.charge_writes(table, writes)
    }

    /// Deletes all rows of ranges: in one journal entry, or page by page if the table has indexes.
    ///
    /// # Errors
    ///
    /// Returns the errors of the row store. After an error of kind `Unavailable` the outcome is unknown.
    pub fn delete_rows(
        &self,
        table: &WideTable,
        ranges: &[KeyRange],
        durability: Option<Durability>,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<()> {
        for range in ranges {
            self.admit_range(table, RowAccess::Write, range, &ALL_PARTS)?;
        }
        // A delete frees space, so it is not refused while the disk is nearly full.
        let durability = durability.unwrap_or(table.table().spec().durability);
        let id = table.table().points().id();
        self.rows
            .delete_rows(self.store.threads(), id, ranges, durability, is_stopped)?;
        Ok(())
    }

    /// Returns a row by its stored key; `None` if it does not exist.
    ///
    /// # Errors
    ///
    /// Returns a store error if the table was dropped or stored data cannot be read.
    pub fn row(&self, table: &WideTable, key: &[u8]) -> Result<Option<StoredRow>> {
        self.row_of_groups(table, key, GroupSet::ALL)
    }

    /// Returns a row like [`row`](Self::row), without the columns of groups that are not in `groups`.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`row`](Self::row).
    pub fn row_of_groups(
        &self,
        table: &WideTable,
        key: &[u8],
        groups: GroupSet,
    ) -> Result<Option<StoredRow>> {
        self.admit_rows(table, RowAccess::Read, std::iter::once(key))?;
        self.note_rows(table, RowAccess::Read, 1, |_| key);
        let id = table.table().points().id();
        let mut read = || self.rows.row_of_groups(id, key, groups);
        let row = match read()? {
            Some(row) => self.rows.whole(id, row, &|_| true, &mut read)?,
            None => None,
        };
        self.charge_read(table, key, row.as_ref().map_or(0, StoredRow::bytes))?;
        Ok(row)
    }

    /// Returns some columns of a row by its stored key; `None` if the row does not exist.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`row`](Self::row).
    pub fn row_columns(
        &self,
        table: &WideTable,
        key: &[u8],
        span: &ColumnSpan<'_>,
    ) -> Result<Option<ColumnPage>> {
        self.admit_rows(table, RowAccess::Read, std::iter::once(key))?;
        self.note_rows(table, RowAccess::Read, 1, |_| key);
        let id = table.table().points().id();
        let found = self.rows.columns(id, key, span)?;
        self.charge_read(table, key, found.as_ref().map_or(0, |page| page.row.bytes()))?;
        let Some(ColumnPage { row, mut has_more }) = found else {
            return Ok(None);
        };
        let bytes = row.bytes();
        let whole = self.rows.whole(id, row, &|_| true, &mut || {
            let again = self.rows.columns(id, key, span)?;
            Ok(again.map(|page| {
                has_more = page.has_more;
                page.row
            }))
        });
        let whole = whole?;
        self.charge_contents(bytes, whole.as_ref());
        Ok(whole.map(|row| ColumnPage { row, has_more }))
    }

    /// Returns an error if a scan of an index would read parts for which the index has no entries, because the index
    /// does not cover their tier. A part can still move before the scan.
    ///
    /// # Errors
    ///
    /// Returns [`WideError::TierNotCovered`], and a store error if the index was dropped.
    pub fn check_index_covers(&self, index: &Index, ranges: &Ranges, parts: &PartSelection) -> Result<()> {
        Ok(self.rows.check_index_covers(index, parts, &ranges.ranges)?)
    }

    /// Begins a scan of `ranges` in the order of `path`. To continue an earlier scan of the same ranges, `after` is the
    /// [merge key](tideline_key_codec::layout::KeyLayout::merge_key) of the last [position](ScannedRow::position) that
    /// the earlier scan returned; the row at this position and all rows before it are skipped. `wanted` is the number
    /// of rows that the caller expects to take, so that a short scan does not read ahead.
    pub fn scan_rows<'e>(
        &'e self,
        table: Arc<WideTable>,
        path: RowPath,
        ranges: Ranges,
        direction: Direction,
        after: Option<&[u8]>,
        wanted: usize,
    ) -> RowScan<'e> {
        // Rows of a merged scan are spread over the ranges at random: most ranges have at most two standard deviations
        // more than their share, and then need no second page.
        let share = wanted.div_ceil(ranges.ranges.len().max(1));
        let page_rows = match ranges.ranges.len() {
            ..=1 => share.clamp(1, PAGE_ROWS),
            _ => share
                .saturating_add(2 * share.isqrt() + 1)
                .clamp(BUCKET_ROWS_MIN, PAGE_ROWS),
        };
        let layout = path.layout(&table);
        let ranges = ranges.ranges.into_iter().map(|range| match after {
            None => Some(range),
            Some(after) => {
                let bucket = layout.merge_key(&range.start).len();
                let bucket = &range.start[..range.start.len() - bucket];
                let last = [bucket, after].concat();
                match direction {
                    Direction::Ascending => range.above(&last),
                    Direction::Descending => range.below(&last),
                }
            }
        });
        let cursors: Vec<Cursor> = ranges
            .map(|rest| Cursor {
                rest,
                rows: VecDeque::new(),
                bytes: 0,
                page_rows,
            })
            .collect();
        RowScan {
            source: ScanSource {
                engine: self,
                table,
                path,
                parts: PartSelection::default(),
                groups: GroupSet::ALL,
                direction,
            },
            contents: None,
            order: Vec::with_capacity(cursors.len()),
            unordered: (0..cursors.len()).rev().collect(),
            read: ReadSoFar {
                memory: (cursors.len() > 1).then(|| self.memory().open(SCAN_MEMORY)),
                ..ReadSoFar::default()
            },
            cursors,
        }
    }
}

/// Order in which a scan reads the rows of a table.
#[derive(Debug, Clone, Default)]
pub enum RowPath {
    /// Order of the primary key.
    #[default]
    Primary,
    /// Order of the keys of a secondary index.
    Index {
        /// The index.
        index: Arc<Index>,
        /// True if the entries hold all columns that the scan needs, so that the rows themselves are not read. The
        /// returned rows then have only the columns that the entries hold.
        is_covered: bool,
    },
}

impl RowPath {
    /// Returns the layout of the keys of the path.
    pub fn layout<'p>(&'p self, table: &'p WideTable) -> &'p KeyLayout {
        match self {
            Self::Primary => table.layout(),
            Self::Index { index, .. } => index.layout(),
        }
    }

    /// Returns the index; `None` for the primary key.
    pub fn index(&self) -> Option<&Arc<Index>> {
        match self {
            Self::Primary => None,
            Self::Index { index, .. } => Some(index),
        }
    }
}

/// Row of a scan.
#[derive(Debug, Clone)]
pub struct ScannedRow {
    /// Key by which the scan is sorted: the stored key of the row, or of its index entry.
    pub position: Bytes,
    /// The row.
    pub row: StoredRow,
}

/// Scan of rows in the order of a path. Memory is bounded by one page per range. A scan of several ranges reserves it,
/// because a request can name thousands of ranges.
pub struct RowScan<'e> {
    source: ScanSource<'e>,
    /// Columns whose large values are read, if they were written with their rows; `None` = all.
    contents: Option<Vec<ColumnName<'static>>>,
    cursors: Vec<Cursor>,
    /// Numbers of the cursors of a merge that have rows, sorted by their next rows. The last one has the next row of the
    /// scan.
    order: Vec<usize>,
    /// Numbers of the cursors of a merge that are not in `order`, because they may need a page.
    unordered: Vec<usize>,
    read: ReadSoFar,
}

/// Rows that a scan reads.
struct ScanSource<'e> {
    engine: &'e Engine,
    table: Arc<WideTable>,
    path: RowPath,
    /// Parts that are read.
    parts: PartSelection,
    /// Column groups that are read.
    groups: GroupSet,
    direction: Direction,
}

/// State that all cursors of a scan share.
#[derive(Default)]
struct ReadSoFar {
    /// Memory of the last page of each range; `None` if it is not reserved.
    memory: Option<Reservation>,
    /// True if rows of the pages that were read may lack large values, which are stored in pieces.
    may_be_cut: bool,
    scanned: u64,
    /// First error of the cursors that helpers have filled.
    error: Option<EngineError>,
}

/// Position in one range.
struct Cursor {
    /// Range that is still to be read; `None` at its end.
    rest: Option<KeyRange>,
    /// Rows or index entries that were read but not returned yet.
    rows: VecDeque<StoredRow>,
    /// Reserved bytes of the last page.
    bytes: u64,
    /// Maximum number of rows of the next page; doubled with each page up to [`PAGE_ROWS`].
    page_rows: usize,
}

impl RowScan<'_> {
    /// Limits the scan to a selection of parts. Other parts are not read.
    pub fn in_parts(mut self, parts: PartSelection) -> Self {
        self.source.parts = parts;
        self
    }

    /// Limits the scan to the columns that are in no group or in one of `groups`. Other groups are not read. If the
    /// scan reads the rows of index entries, `groups` must include the groups with columns of the index key.
    pub fn with_groups(mut self, groups: GroupSet) -> Self {
        self.source.groups = groups;
        self
    }

    /// Limits the columns whose values the caller uses. Values of other columns that are stored in pieces are not read.
    pub fn with_columns<'c>(mut self, names: impl Iterator<Item = &'c str>) -> Self {
        self.contents = Some(names.map(|name| self.source.table.column(name).0).collect());
        self
    }

    /// Reserves the memory of each page, also if the scan has only one range. Requests that hold many scans at the
    /// same time need this. Called before the first row is read.
    pub fn with_memory(mut self) -> Self {
        self.read.memory = Some(self.source.engine.memory().open(SCAN_MEMORY));
        self
    }

    /// Returns the number of rows (or index entries) and tombstones read so far.
    pub fn scanned(&self) -> u64 {
        self.read.scanned
    }

    /// Returns the next row; `None` at the end. Reads further pages of each range whose rows have all been returned,
    /// until a page has a row or the range ends. If the index does not cover the read, each index entry costs a read of
    /// its row.
    ///
    /// # Errors
    ///
    /// Returns a store error if the table or the index was dropped or stored data cannot be read, and
    /// [`EngineError::Memory`] if the memory of a page cannot be reserved.
    pub fn next_row(&mut self) -> Result<Option<ScannedRow>> {
        while let Some(found) = self.next_stored()? {
            let position = found.key.clone();
            let row = match &self.source.path {
                RowPath::Primary if self.read.may_be_cut => self.whole(found)?,
                RowPath::Primary => Some(found),
                RowPath::Index { index, is_covered } => self.row_of_entry(index, *is_covered, &found)?,
            };
            if let Some(row) = row {
                return Ok(Some(ScannedRow { position, row }));
            }
        }
        Ok(None)
    }

    /// Returns the row of an index entry; `None` if the row was changed since the entry was read, so that the entry is
    /// obsolete.
    fn row_of_entry(&self, index: &Index, is_covered: bool, entry: &StoredRow) -> Result<Option<StoredRow>> {
        let ScanSource {
            engine,
            table: of,
            groups,
            ..
        } = &self.source;
        let table = of.table().points().id();
        let damaged = |reason| WideError::Damaged { table, reason };
        let covered = is_covered.then(|| index.covered_row(entry));
        let covered = covered.transpose().map_err(damaged)?;
        let key = match &covered {
            Some(row) => row.key.clone(),
            None => index.row_key(&entry.key).map_err(damaged)?.into(),
        };
        let mut read = || {
            engine.note_rows(of, RowAccess::Read, 1, |_| &key);
            let row = engine.rows.row_of_groups(table, &key, *groups)?;
            Ok(match row {
                Some(row) if index.is_entry_of(&entry.key, &row).map_err(damaged)? => Some(row),
                _ => None,
            })
        };
        engine.admit_rows(of, RowAccess::Read, std::iter::once(&key[..]))?;
        let row = match covered {
            Some(row) => Some(row),
            None => read()?,
        };
        let bytes = row.as_ref().map_or(0, StoredRow::bytes);
        engine.charge_read(of, &key, bytes)?;
        match row {
            Some(row) => {
                let whole = engine
                    .rows
                    .whole(table, row, &|name| self.needs(name), &mut read)?;
                engine.charge_contents(bytes, whole.as_ref());
                Ok(whole)
            }
            None => Ok(None),
        }
    }

    /// Returns a row with the large values that the caller uses; `None` if the row was deleted since it was read.
    fn whole(&self, row: StoredRow) -> Result<Option<StoredRow>> {
        let ScanSource { engine, groups, .. } = &self.source;
        let (table, key) = (self.source.table.table().points().id(), row.key.clone());
        let bytes = row.bytes();
        let mut again = || engine.rows.row_of_groups(table, &key, *groups);
        let whole = engine
            .rows
            .whole(table, row, &|name| self.needs(name), &mut again)?;
        engine.charge_contents(bytes, whole.as_ref());
        Ok(whole)
    }

    fn needs(&self, name: &ColumnName<'_>) -> bool {
        let contents = self.contents.as_ref();
        contents.is_none_or(|columns| columns.iter().any(|column| column == name))
    }

    /// Returns the next row or index entry as it is stored.
    fn next_stored(&mut self) -> Result<Option<StoredRow>> {
        if let [cursor] = &mut self.cursors[..] {
            self.source.fill(cursor, &mut self.read)?;
            return Ok(cursor.rows.pop_front());
        }
        if self.order.is_empty() && self.unordered.len() > 1 {
            self.fill_together()?;
        }
        while let Some(cursor) = self.unordered.last().copied() {
            self.source.fill(&mut self.cursors[cursor], &mut self.read)?;
            self.unordered.pop();
            if let Some(at) = self.place_of(cursor) {
                self.order.insert(at, cursor);
            }
        }
        let Some(cursor) = self.order.pop() else {
            return Ok(None);
        };
        self.unordered.push(cursor);
        Ok(self.cursors[cursor].rows.pop_front())
    }

    /// Fills all cursors, with the help of other threads.
    fn fill_together(&mut self) -> Result<()> {
        let (source, read) = (&self.source, Mutex::new(&mut self.read));
        source
            .engine
            .settings
            .helpers
            .for_each(&mut self.cursors, |cursor| source.fill_shared(cursor, &read));
        self.read.error.take().map_or(Ok(()), Err)
    }

    /// Returns the place of a cursor in `order`; `None` if it has no rows.
    fn place_of(&self, cursor: usize) -> Option<usize> {
        let layout = self.source.path.layout(&self.source.table);
        let head = |cursor: usize| Some(layout.merge_key(&self.cursors[cursor].rows.front()?.key));
        let own = head(cursor)?;
        let is_later = |other: &usize| {
            let order = head(*other).unwrap_or_default().cmp(own);
            let order = match self.source.direction {
                Direction::Ascending => order,
                Direction::Descending => order.reverse(),
            };
            order.then(other.cmp(&cursor)) == Ordering::Greater
        };
        Some(self.order.partition_point(is_later))
    }
}

impl ScanSource<'_> {
    /// Reads pages of a cursor until it has a row or its range ends.
    fn fill(&self, cursor: &mut Cursor, read: &mut ReadSoFar) -> Result<()> {
        while cursor.rows.is_empty() {
            let Some(page) = self.next_page(cursor)? else {
                break;
            };
            read.add(self, cursor, page)?;
        }
        Ok(())
    }

    /// Fills a cursor like [`fill`](Self::fill), beside other threads. Does nothing after an error.
    fn fill_shared(&self, cursor: &mut Cursor, read: &Mutex<&mut ReadSoFar>) {
        while cursor.rows.is_empty() && read.lock().error.is_none() {
            let page = self.next_page(cursor);
            let mut read = read.lock();
            let added = match page {
                Ok(None) => break,
                Ok(Some(page)) => read.add(self, cursor, page),
                Err(error) => Err(error),
            };
            if let Err(error) = added {
                read.error.get_or_insert(error);
            }
        }
    }

    /// Reads the next page of a cursor; returns `None` at the end of its range.
    fn next_page(&self, cursor: &mut Cursor) -> Result<Option<RowPage>> {
        let Some(range) = cursor.rest.take() else {
            return Ok(None);
        };
        let limit = PageLimit {
            rows_max: cursor.page_rows,
            bytes_max: PAGE_BYTES,
        };
        let of = (&self.parts, self.groups);
        let (engine, table) = (self.engine, self.table.table().points().id());
        let id = self.path.index().map_or(table, |index| index.id());
        let is_primary = self.path.index().is_none();
        if is_primary {
            engine.admit_range(&self.table, RowAccess::Read, &range, &self.parts.numbers)?;
        }
        let page = engine
            .rows
            .page_of_groups(id, of, &range, self.direction, limit)?;
        if is_primary {
            let rows = &page.rows;
            engine.note_rows(&self.table, RowAccess::Read, rows.len(), |number| {
                &rows[number].key
            });
            engine.charge_reads(&self.table, rows)?;
        }
        Ok(Some(page))
    }
}

impl ReadSoFar {
    /// Adds a page that was read to a cursor without rows.
    fn add(&mut self, source: &ScanSource<'_>, cursor: &mut Cursor, page: RowPage) -> Result<()> {
        self.scanned += page.scanned;
        if let Some(memory) = &mut self.memory {
            let bytes: u64 = page.rows.iter().map(|row| row.bytes() as u64).sum();
            memory.shrink(std::mem::take(&mut cursor.bytes));
            memory.grow(bytes)?;
            cursor.bytes = bytes;
        }
        if source.path.index().is_none() && !self.may_be_cut {
            // Checked after the read of the page: a table has the mark before it has the first such row, and keeps it.
            let table = source.table.table().points().id();
            self.may_be_cut = source.engine.rows.has_cut_values(table)?;
        }
        cursor.page_rows = (cursor.page_rows * 2).min(PAGE_ROWS);
        cursor.rest = page.next;
        cursor.rows = page.rows.into();
        Ok(())
    }
}

impl Drop for RowScan<'_> {
    fn drop(&mut self) {
        if let RowPath::Index { index, .. } = &self.source.path {
            let reads = &self.source.engine.index_reads;
            reads.count(index.id(), self.read.scanned);
        }
    }
}

impl From<WideError> for EngineError {
    fn from(error: WideError) -> Self {
        match error {
            WideError::Log(error) => Self::Store(error.into()),
            WideError::Backend(error) => error.into(),
            WideError::Archive(error) => Self::Store((*error).into()),
            WideError::NoTable(id) => Self::Store(tideline_series_store::StoreError::TableDropped(id)),
            WideError::TooLarge { what, limit, actual } => Self::OverLimit { what, limit, actual },
            error => Self::Rows(error),
        }
    }
}

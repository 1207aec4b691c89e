//! Copy of the rows of a table to a table with another key.
//!
//! Columns are matched by name: a key column of one table can be an ordinary column of the other table. Each row is
//! written as an update, with the times of the versions in the source. Newer values that clients write to the target
//! during the copy are therefore kept.
//!
//! An update can make values visible again that were deleted in the target before. Clients therefore write into the
//! source first, and then into the target. A batch is committed only if its source rows still have the content that was
//! read. A client that has deleted a row or a column in the target has deleted it in the source before, so the batch is
//! refused, and the changed rows are read again.
//!
//! This does not help once clients write into the target only. A repeated copy therefore writes only rows that have
//! changed in the source since the last complete copy ([`RowCopy`]). If a client has written the row into the target
//! after the last change in the source, the copy writes only the versions that the last complete copy can have missed.
//! If the key in the target contains such a version, the row can have had another key, so it is written as a whole.

use std::sync::Arc;

use tideline_engine::backend::Direction;
use tideline_engine::fail_points::{When, around, pass};
use tideline_engine::key_codec::tuple::KeyValue;
use tideline_engine::large::{LargeUpload, WideError};
use tideline_engine::row_copies::RowCopy;
use tideline_engine::row_limits::PacedReads;
use tideline_engine::rows::{
    Action, CellValue, Column, ColumnName, Image, Mutation, RowOutcome, RowPath, RowWrite, RowWriteOptions,
    StoredRow, Unchanged, Update, WRITE_SIZE,
};
use tideline_engine::{Engine, EngineError, WideTable};

use crate::cut::{Cut, RowValue};
use crate::error::{Result, RowsError};
use crate::large::end_failed;
use crate::write::refused_text;

/// Number of rows that are read for a batch.
const BATCH_ROWS: usize = 500;
/// Size in bytes of the rows that are read for a batch.
const BATCH_BYTES: usize = 1 << 20;
/// Number of attempts to copy a row that clients change during each attempt.
const ATTEMPTS_MAX: u32 = 100;

/// Progress of a copy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RekeyProgress {
    /// Number of rows that were read.
    pub read: u64,
    /// Number of rows that were written.
    pub written: u64,
    /// Number of rows that were not written because the last complete copy has covered them, or because the target row
    /// is newer and the source row has no version that the last copy can have missed.
    pub up_to_date: u64,
    /// Number of rows that clients deleted in the source after they were read; they were not written.
    pub deleted: u64,
    /// Number of rows that were not written because the target cannot hold them.
    pub refused: u64,
    /// Key of the first refused row, and the reason.
    pub first_refusal: Option<String>,
    /// True if the copy is complete, but could not be recorded as complete, so a repeated copy writes its rows again.
    /// This is the case if too many rows were refused, or if archived parts were attached to the source meanwhile.
    pub is_unrecorded: bool,
}

/// Running copy.
struct Running {
    progress: RekeyProgress,
    copy: RowCopy,
}

/// Planned copy.
#[derive(Debug)]
pub struct Rekey {
    from: Arc<WideTable>,
    into: Arc<WideTable>,
    /// Origin of the values of each logical key column of the target.
    key: Vec<KeyOrigin>,
    /// Logical key columns of the source that become ordinary columns of the target: position in the source key, and
    /// stored name in the target.
    demoted: Vec<(usize, ColumnName<'static>)>,
}

/// Origin of the values of a key column of the target.
#[derive(Debug)]
enum KeyOrigin {
    /// Logical key column of the source, by its position.
    Key(usize),
    /// Ordinary column of the source.
    Column(ColumnName<'static>),
}

impl Rekey {
    /// Plans a copy. If `merge` is true, the key of the target may lack columns of the source key. Several source rows
    /// can then become one row.
    ///
    /// # Errors
    ///
    /// [`RowsError::Invalid`] if both tables are the same, if a key column of the target has another type in the
    /// source, or if the key of the target lacks columns of the source key and `merge` is false.
    pub fn new(from: Arc<WideTable>, into: Arc<WideTable>, merge: bool) -> Result<Self> {
        if from.table().points().id() == into.table().points().id() {
            return Err(RowsError::Invalid(
                "into is the same table; name another one".into(),
            ));
        }
        let mut key = Vec::with_capacity(into.layout().logical().len());
        for column in into.layout().logical() {
            let found = from
                .layout()
                .logical()
                .iter()
                .position(|own| own.name == column.name);
            let own = from.type_of(&column.name);
            if own.is_some_and(|own| own != column.kind.column_type()) {
                return Err(RowsError::Invalid(format!(
                    "the key column {:?} of table {} has the type {}, and the column of table {} another one",
                    column.name,
                    into.table().name(),
                    column.kind,
                    from.table().name()
                )));
            }
            key.push(match found {
                Some(number) => KeyOrigin::Key(number),
                None => KeyOrigin::Column(from.column(&column.name).0),
            });
        }
        let logical = from.layout().logical().iter().enumerate();
        let demoted: Vec<_> = logical
            .filter(|(_, column)| !into.layout().has_column(&column.name))
            .map(|(number, column)| (number, into.column(&column.name).0))
            .collect();
        if let (Some((number, _)), false) = (demoted.first(), merge) {
            return Err(RowsError::Invalid(format!(
                "the key of table {} lacks the key column {:?} of table {}, so rows with the same other values become \
                 one row; add the column to the key, or set `merge` to true",
                into.table().name(),
                from.layout().logical()[*number].name,
                from.table().name()
            )));
        }
        Ok(Self {
            from,
            into,
            key,
            demoted,
        })
    }

    /// Returns the source.
    pub fn from(&self) -> &Arc<WideTable> {
        &self.from
    }

    /// Returns the target.
    pub fn into_table(&self) -> &Arc<WideTable> {
        &self.into
    }

    /// Copies all rows, or only those that have changed since the last complete copy. Calls `step` after each batch and
    /// before each further attempt to copy changed rows, and ends the copy if `step` returns false. Returns the
    /// progress, and true if the copy was not ended.
    ///
    /// # Errors
    ///
    /// The errors of the engine. A repeated copy completes the work.
    pub fn run(
        &self,
        engine: &Engine,
        step: &mut dyn FnMut(&RekeyProgress) -> bool,
    ) -> Result<(RekeyProgress, bool)> {
        let _unlimited = PacedReads::unlimited();
        let all = (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded);
        let ranges = self.from.layout().ranges(&[], all)?;
        // Begins before the first row is read.
        let mut running = Running {
            progress: RekeyProgress::default(),
            copy: engine.begin_row_copy(&self.from, &self.into)?,
        };
        let from = Arc::clone(&self.from);
        let mut scan = engine.scan_rows(
            from,
            RowPath::Primary,
            ranges,
            Direction::Ascending,
            None,
            usize::MAX,
        );
        loop {
            let (mut batch, mut rows, mut bytes, mut is_end) = (Vec::new(), 0, 0, false);
            while rows < BATCH_ROWS && bytes < BATCH_BYTES {
                let Some(found) = scan.next_row()? else {
                    is_end = true;
                    break;
                };
                rows += 1;
                running.progress.read += 1;
                bytes += found.row.bytes();
                match running.copy.is_covered(&found.row)? {
                    true => running.progress.up_to_date += 1,
                    false => batch.push(found.row),
                }
            }
            pass::<EngineError>("rekey", "page", When::Before)?;
            if !self.copy(engine, batch, &mut running, step)? {
                return Ok((running.progress, false));
            }
            pass::<EngineError>("rekey", "page", When::After)?;
            if is_end {
                let is_recorded =
                    around::<_, EngineError>("rekey", "record", || engine.end_row_copy(&running.copy))?;
                running.progress.is_unrecorded = !is_recorded;
                return Ok((running.progress, true));
            }
            if !step(&running.progress) {
                return Ok((running.progress, false));
            }
        }
    }

    /// Copies source rows. If some of them change meanwhile, or if they are too large for one write, reads all of them
    /// again, and copies them in two smaller batches. Calls `step` before each further attempt. Returns false if `step`
    /// has ended the copy.
    fn copy(
        &self,
        engine: &Engine,
        rows: Vec<StoredRow>,
        running: &mut Running,
        step: &mut dyn FnMut(&RekeyProgress) -> bool,
    ) -> Result<bool> {
        let mut batches = vec![(rows, 1)];
        while let Some((rows, attempt)) = batches.pop() {
            if attempt > 1 && !step(&running.progress) {
                return Ok(false);
            }
            let Some(changed) = self.write(engine, &rows, running)? else {
                continue;
            };
            let mut again = Vec::with_capacity(changed.len());
            for row in changed {
                match engine.row(&self.from, &row.key)? {
                    Some(row) => again.push(row),
                    None => running.progress.deleted += 1,
                }
            }
            if let ([row], ATTEMPTS_MAX..) = (&again[..], attempt) {
                running.refuse(
                    &self.from,
                    row,
                    "clients change it all the time; copy again later",
                );
                continue;
            }
            let second = again.split_off(again.len() / 2);
            batches.extend([(second, attempt + 1), (again, attempt + 1)]);
        }
        Ok(true)
    }

    /// Writes source rows into the target. If one of them has changed since it was read, if one of the target rows
    /// changes that a repeated copy has read, or if the rows with their index entries are too large for one write,
    /// writes nothing, and returns the rows that the target can hold.
    fn write(
        &self,
        engine: &Engine,
        rows: &[StoredRow],
        running: &mut Running,
    ) -> Result<Option<Vec<StoredRow>>> {
        let mut batch = Vec::with_capacity(rows.len());
        for row in rows {
            match self.converted(row) {
                Ok(row) => batch.push(row),
                Err(reason) => running.refuse(&self.from, row, &reason),
            }
        }
        let (batch, mut unchanged) = self.without_covered(engine, batch, running)?;
        if batch.is_empty() {
            return Ok(None);
        }
        let (mut rest, mut batch) = (batch.into_iter(), Vec::with_capacity(rows.len()));
        while let Some(mut row) = rest.next() {
            match self.copy_values(engine, &mut row) {
                Ok(()) => batch.push(row),
                Err(EngineError::Rows(error @ WideError::LargeNotArchived(_))) => {
                    running.refuse(&self.from, &row.source, &error.to_string());
                    row.uploads.into_iter().for_each(LargeUpload::abandon);
                }
                Err(EngineError::Rows(error @ WideError::LargeGone(_))) => {
                    let now = engine.row(&self.from, &row.source.key)?;
                    if now.is_none_or(|now| now.digest() != row.source.digest()) {
                        // The value was overwritten or deleted after the row was read.
                        batch.push(row);
                        batch.extend(rest);
                        return Ok(Some(abandoned(batch)));
                    }
                    // The pieces of the value are lost, or the part of the target was dropped.
                    running.refuse(&self.from, &row.source, &error.to_string());
                    row.uploads.into_iter().for_each(LargeUpload::abandon);
                }
                Err(error) => return Err(error.into()),
            }
        }
        if batch.is_empty() {
            return Ok(None);
        }
        unchanged.extend(batch.iter().map(|row| Unchanged::RowOf {
            table: self.from.table().points().id(),
            key: row.source.key.to_vec(),
            digest: Some(row.source.digest()),
        }));
        let options = RowWriteOptions {
            unchanged,
            ..RowWriteOptions::default()
        };
        let values = batch.iter_mut().enumerate();
        let values = values.flat_map(|(row, Converted { key, columns, .. })| {
            let key = &key[..];
            columns.iter_mut().flat_map(move |Column { name, versions, .. }| {
                let column = &*name;
                versions.iter_mut().map(move |version| RowValue {
                    row,
                    key,
                    column,
                    value: &mut version.value,
                })
            })
        });
        let cut = Cut::store(engine, &self.into, values)?;
        let make = |_: &mut dyn FnMut() -> i64| Ok(batch.iter().map(Converted::to_write).collect());
        engine.wait_for_searches(&self.into);
        let written = around("rekey", "write", || {
            engine.write_rows(&self.into, &make, &options)
        });
        let written = match cut.end(engine, written) {
            Ok((_, written)) if written.changed.is_some() => return Ok(Some(abandoned(batch))),
            Ok((_, written)) => written,
            Err(EngineError::Rows(WideError::Contended { .. })) => return Ok(Some(abandoned(batch))),
            // With its index entries, the batch is too large for one write.
            Err(EngineError::OverLimit { what: WRITE_SIZE, .. }) if batch.len() > 1 => {
                return Ok(Some(abandoned(batch)));
            }
            Err(error) => {
                let error = RowsError::from(error);
                let uploads = batch.into_iter().flat_map(|row| row.uploads);
                uploads.for_each(|upload| end_failed(upload, &error));
                return Err(error);
            }
        };
        self.end_batch(batch, written.rows, running)?;
        Ok(None)
    }

    /// Counts the written and the refused rows of a batch, and keeps or abandons the copies of their large values.
    fn end_batch(
        &self,
        batch: Vec<Converted>,
        outcomes: Vec<RowOutcome>,
        running: &mut Running,
    ) -> Result<()> {
        for (row, outcome) in batch.into_iter().zip(outcomes) {
            let reason = match outcome {
                RowOutcome::Written(_) => {
                    running.progress.written += 1;
                    row.uploads.into_iter().for_each(LargeUpload::kept);
                    running.copy.add_covered(&row.source)?;
                    continue;
                }
                RowOutcome::Refused(refused) => refused_text(&self.into, &refused),
                RowOutcome::ConditionFailed(_) | RowOutcome::NotApplied => "it was not applied".to_owned(),
            };
            running.refuse(&self.from, &row.source, &reason);
            row.uploads.into_iter().for_each(LargeUpload::abandon);
        }
        Ok(())
    }

    /// Removes versions that the last complete copy has covered from rows that are newer in the target, because clients
    /// may have removed these versions there. Keeps them if the row can have had another key in the target. Returns the
    /// rows that are left to write, and the state of the target that the write requires. A first copy reads nothing and
    /// writes all rows.
    fn without_covered(
        &self,
        engine: &Engine,
        rows: Vec<Converted>,
        running: &mut Running,
    ) -> Result<(Vec<Converted>, Vec<Unchanged>)> {
        if running.copy.is_first() {
            return Ok((rows, Vec::new()));
        }
        let (mut left, mut unchanged) = (Vec::with_capacity(rows.len()), Vec::with_capacity(rows.len()));
        for mut row in rows {
            let target = engine.row(&self.into, &row.key)?;
            // If the last copy can have missed a value of the key, the row can have had another key then.
            let from = match running.copy.is_recent(row.key_time) {
                true => i64::MIN,
                false => running.copy.versions_from(&row.source, target.as_ref())?,
            };
            row.remove_before(from);
            if from > i64::MIN && row.columns.is_empty() {
                running.progress.up_to_date += 1;
                running.copy.add_covered(&row.source)?;
                continue;
            }
            unchanged.push(Unchanged::Row {
                key: row.key.to_vec(),
                digest: target.map(|target| target.digest()),
            });
            left.push(row);
        }
        Ok((left, unchanged))
    }

    /// Copies the streamed large values of a row, because a stored large value can belong only to one row.
    fn copy_values(&self, engine: &Engine, row: &mut Converted) -> std::result::Result<(), EngineError> {
        let Converted {
            key,
            columns,
            source,
            uploads,
            ..
        } = row;
        for column in columns {
            for version in &mut column.versions {
                if let CellValue::Large(value) = version.value {
                    let from = (&*self.from, &source.key[..], value);
                    let into = (&self.into, &key[..], &column.name);
                    let (upload, copied) = engine.copy_large(from, into)?;
                    uploads.push(upload);
                    version.value = CellValue::Large(copied);
                }
            }
        }
        Ok(())
    }

    /// Converts a row to the form of the target.
    fn converted(&self, row: &StoredRow) -> std::result::Result<Converted, String> {
        let own = self
            .from
            .layout()
            .decode(&row.key)
            .map_err(|error| error.to_string())?;
        let columns = row.columns().map_err(|error| error.to_string())?;
        let (mut values, mut key_time) = (Vec::with_capacity(self.key.len()), i64::MIN);
        for (origin, column) in self.key.iter().zip(self.into.layout().logical()) {
            let value = match origin {
                KeyOrigin::Key(number) => Some(own[*number].clone()),
                KeyOrigin::Column(name) => {
                    let newest = columns.column(name).and_then(Column::newest);
                    newest.and_then(|version| {
                        key_time = key_time.max(version.time);
                        version.value.key_value()
                    })
                }
            };
            let value = value.filter(|value| value.kind() == column.kind);
            values.push(value.ok_or_else(|| {
                format!(
                    "it has no value of type {} for the key column {:?}",
                    column.kind, column.name
                )
            })?);
        }
        let mut key = Vec::new();
        let layout = self.into.layout();
        layout
            .encode(&values, &mut key)
            .map_err(|error| error.to_string())?;
        Ok(Converted {
            key: key.into(),
            key_time,
            time: columns.time,
            columns: self.columns(&own, &columns)?,
            source: row.clone(),
            uploads: Vec::new(),
        })
    }

    /// Returns the columns of a row in the target, sorted by name.
    fn columns(
        &self,
        key: &[KeyValue<'_>],
        row: &Mutation<'_>,
    ) -> std::result::Result<Vec<Column<'static>>, String> {
        let mut columns = Vec::with_capacity(row.columns.len() + self.demoted.len());
        for column in &row.columns {
            // If the declaration of a column was removed from the settings, its values have no name.
            let Some(name) = self.from.name_of(&column.name) else {
                continue;
            };
            if self.into.layout().has_column(name) {
                continue;
            }
            let (stored, declared) = self.into.column(name);
            let mut column = column.clone().into_owned();
            let other = column
                .versions
                .iter()
                .find(|version| declared.is_some_and(|declared| declared != version.value.column_type()));
            if let (Some(other), Some(declared)) = (other, declared) {
                let actual = other.value.column_type();
                return Err(format!(
                    "column {name:?} holds the type {actual}, and the target declares {declared}"
                ));
            }
            column.name = stored;
            columns.push(column);
        }
        for (number, name) in &self.demoted {
            let value = CellValue::of_key(&key[*number]).into_owned();
            columns.push(Column::with(name.clone(), row.time, value));
        }
        columns.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(columns)
    }
}

impl Running {
    fn refuse(&mut self, table: &WideTable, row: &StoredRow, reason: &str) {
        self.copy.add_refused(row);
        self.progress.refuse(table, row, reason);
    }
}

impl RekeyProgress {
    fn refuse(&mut self, table: &WideTable, row: &StoredRow, reason: &str) {
        self.refused += 1;
        self.first_refusal.get_or_insert_with(|| {
            let mut key = Vec::new();
            let named = crate::selection::write_key(table, &row.key, Default::default(), &mut key);
            let key = named.map_or_else(|_| "?".into(), |()| String::from_utf8_lossy(&key).into_owned());
            format!("{key}: {reason}")
        });
    }
}

/// Row in the form of the target.
struct Converted {
    key: bytes::Bytes,
    /// Newest time of the versions that the key consists of; [`i64::MIN`] if it consists of columns of the source key.
    key_time: i64,
    time: i64,
    columns: Vec<Column<'static>>,
    source: StoredRow,
    /// Copies of the large values of the row.
    uploads: Vec<LargeUpload>,
}

/// Abandons the copies of the large values of rows that were not written. Returns the source rows.
fn abandoned(batch: Vec<Converted>) -> Vec<StoredRow> {
    let sources = batch.into_iter().map(|row| {
        row.uploads.into_iter().for_each(LargeUpload::abandon);
        row.source
    });
    sources.collect()
}

impl Converted {
    /// Removes the versions before a time, and the columns without other versions.
    fn remove_before(&mut self, time: i64) {
        for column in &mut self.columns {
            column.versions.retain(|version| version.time >= time);
        }
        self.columns.retain(|column| !column.versions.is_empty());
    }

    fn to_write<'w>(&self) -> RowWrite<'w> {
        RowWrite {
            key: self.key.clone(),
            // Each row is given as a separate partition, so a refused row does not prevent other rows from being
            // written.
            partition: self.key.len(),
            time: self.time,
            action: Action::Update(Update {
                columns: self.columns.clone(),
                ..Update::default()
            }),
            condition: None,
            image: Image::None,
        }
    }
}

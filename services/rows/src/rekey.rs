//! Copy of the rows of a table to a table with another key.
//!
//! Columns are matched by name: a key column of one table can be an ordinary column of the other table. Each row is
//! written as an update, with the times of the versions in the source. A repeated copy therefore changes nothing, and
//! newer values that clients write to the target during the copy are kept.
//!
//! An update can make values visible again that were deleted in the target before. Clients therefore write into the
//! source first, and then into the target. A batch is committed only if its source rows still have the content that was
//! read. A client that has deleted a row or a column in the target has deleted it in the source before, so the batch is
//! refused, and the changed rows are read again. This does not help once clients write into the target only: the copy
//! must not be repeated then.

use std::sync::Arc;

use tideline_engine::backend::Direction;
use tideline_engine::key_codec::tuple::KeyValue;
use tideline_engine::large::{LargeUpload, WideError};
use tideline_engine::row_limits::PacedReads;
use tideline_engine::rows::{
    Action, CellValue, Column, ColumnName, Image, Mutation, RowOutcome, RowPath, RowWrite, RowWriteOptions,
    StoredRow, Unchanged, Update,
};
use tideline_engine::{Engine, EngineError, WideTable};

use crate::cut::{Cut, RowValue};
use crate::error::{Result, RowsError};
use crate::large::end_failed;
use crate::write::refused_text;

/// Number of rows at which a batch is written.
const BATCH_ROWS: usize = 500;
/// Size of the rows in bytes at which a batch is written.
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
    /// Number of rows that clients deleted in the source after they were read; they were not written.
    pub deleted: u64,
    /// Number of rows that were not written because the target cannot hold them.
    pub refused: u64,
    /// Key of the first refused row, and the reason.
    pub first_refusal: Option<String>,
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

    /// Copies all rows. Calls `step` after each batch and before each further attempt to copy changed rows, and ends the
    /// copy if `step` returns false. Returns the progress, and true if the copy was not ended.
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
        let from = Arc::clone(&self.from);
        let mut scan = engine.scan_rows(
            from,
            RowPath::Primary,
            ranges,
            Direction::Ascending,
            None,
            usize::MAX,
        );
        let mut progress = RekeyProgress::default();
        loop {
            let (mut batch, mut bytes, mut is_end) = (Vec::new(), 0, false);
            while batch.len() < BATCH_ROWS && bytes < BATCH_BYTES {
                let Some(found) = scan.next_row()? else {
                    is_end = true;
                    break;
                };
                progress.read += 1;
                bytes += found.row.bytes();
                batch.push(found.row);
            }
            if !self.copy(engine, batch, &mut progress, step)? {
                return Ok((progress, false));
            }
            if is_end {
                return Ok((progress, true));
            }
            if !step(&progress) {
                return Ok((progress, false));
            }
        }
    }

    /// Copies source rows. If some of them change meanwhile, reads all of them again, and copies them in two smaller
    /// batches. Calls `step` before each further attempt. Returns false if `step` has ended the copy.
    fn copy(
        &self,
        engine: &Engine,
        rows: Vec<StoredRow>,
        progress: &mut RekeyProgress,
        step: &mut dyn FnMut(&RekeyProgress) -> bool,
    ) -> Result<bool> {
        let mut batches = vec![(rows, 1)];
        while let Some((rows, attempt)) = batches.pop() {
            if attempt > 1 && !step(progress) {
                return Ok(false);
            }
            let Some(changed) = self.write(engine, &rows, progress)? else {
                continue;
            };
            let mut again = Vec::with_capacity(changed.len());
            for row in changed {
                match engine.row(&self.from, &row.key)? {
                    Some(row) => again.push(row),
                    None => progress.deleted += 1,
                }
            }
            if let ([row], ATTEMPTS_MAX..) = (&again[..], attempt) {
                progress.refuse(
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

    /// Writes source rows into the target. If one of them has changed since it was read, writes nothing, and returns
    /// the rows that the target can hold.
    fn write(
        &self,
        engine: &Engine,
        rows: &[StoredRow],
        progress: &mut RekeyProgress,
    ) -> Result<Option<Vec<StoredRow>>> {
        let mut batch = Vec::with_capacity(rows.len());
        for row in rows {
            match self.converted(row) {
                Ok(row) => batch.push(row),
                Err(reason) => progress.refuse(&self.from, row, &reason),
            }
        }
        if batch.is_empty() {
            return Ok(None);
        }
        let (mut rest, mut batch) = (batch.into_iter(), Vec::with_capacity(rows.len()));
        while let Some(mut row) = rest.next() {
            match self.copy_values(engine, &mut row) {
                Ok(()) => batch.push(row),
                Err(EngineError::Rows(error @ WideError::LargeNotArchived(_))) => {
                    progress.refuse(&self.from, &row.source, &error.to_string());
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
                    progress.refuse(&self.from, &row.source, &error.to_string());
                    row.uploads.into_iter().for_each(LargeUpload::abandon);
                }
                Err(error) => return Err(error.into()),
            }
        }
        if batch.is_empty() {
            return Ok(None);
        }
        let unchanged = batch.iter().map(|row| Unchanged::RowOf {
            table: self.from.table().points().id(),
            key: row.source.key.to_vec(),
            digest: Some(row.source.digest()),
        });
        let options = RowWriteOptions {
            unchanged: unchanged.collect(),
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
        let written = engine.write_rows(&self.into, &make, &options);
        let written = match cut.end(engine, written) {
            Ok((_, written)) if written.changed.is_some() => return Ok(Some(abandoned(batch))),
            Ok((_, written)) => written,
            Err(EngineError::Rows(WideError::Contended { .. })) => return Ok(Some(abandoned(batch))),
            Err(error) => {
                let error = RowsError::from(error);
                let uploads = batch.into_iter().flat_map(|row| row.uploads);
                uploads.for_each(|upload| end_failed(upload, &error));
                return Err(error);
            }
        };
        for (row, outcome) in batch.into_iter().zip(written.rows) {
            let reason = match outcome {
                RowOutcome::Written(_) => {
                    progress.written += 1;
                    row.uploads.into_iter().for_each(LargeUpload::kept);
                    continue;
                }
                RowOutcome::Refused(refused) => refused_text(&self.into, &refused),
                RowOutcome::ConditionFailed(_) | RowOutcome::NotApplied => "it was not applied".to_owned(),
            };
            progress.refuse(&self.from, &row.source, &reason);
            row.uploads.into_iter().for_each(LargeUpload::abandon);
        }
        Ok(None)
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
        let mut values = Vec::with_capacity(self.key.len());
        for (origin, column) in self.key.iter().zip(self.into.layout().logical()) {
            let value = match origin {
                KeyOrigin::Key(number) => Some(own[*number].clone()),
                KeyOrigin::Column(name) => {
                    let newest = columns.column(name).and_then(Column::newest);
                    newest.and_then(|version| version.value.key_value())
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

//! Writes of rows: converts JSON to one write of the engine, and returns an outcome per row.
//!
//! 1. Each row is parsed by the types of the table. A row that is not valid is refused. The other rows of its partition
//!    are then not applied, because the rows of a partition are written atomically.
//! 2. The remaining rows are written together. The engine evaluates conditions and assigns versions and ids.
//! 3. The outcomes of all rows are returned in the order of the request. If the request has an idempotency key, they
//!    are also stored with it.
//!
//! A body of lines is cut into entries, which are written one after the other.

use std::io;

use bytes::Bytes;
use hashbrown::HashSet;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tideline_engine::key_codec::layout::KeyLayout;
use tideline_engine::key_codec::tuple::{KeyKind, KeyValue};
use tideline_engine::model::{ColumnType, Durability, Timestamp};
use tideline_engine::rows::{
    Action, COLUMN_BYTES_MAX, Column, ColumnName, Image, Increment, Mutation, ROW_BYTES_MAX, Refused,
    RememberedResponse, RowOutcome as EngineOutcome, RowRequestStart, RowWrite as EngineWrite,
    RowWriteOptions, Update, Version,
};
use tideline_engine::wide_table::COLUMN_NAME_BYTES_MAX;
use tideline_engine::{Engine, EngineError, IdempotentRequest, WideTable};
use tideline_openapi::plain;
use tideline_openapi::row::{
    RowCounts, RowImage, RowIntegers, RowOperation, RowOutcome, RowStatus, RowWrite,
};

use crate::condition::RowMatcher;
use crate::error::{Result, RowsError};
use crate::key;
use crate::selection::{RowEncoder, Selection, write_key};
use crate::transaction::Transaction;
use crate::value::{GivenValue, parse_column};

/// Maximum number of rows of a request with a single JSON body.
pub const ROWS_MAX: usize = 10_000;
/// Maximum number of rows with the member `return` in a request, or in an entry of a body of lines. The returned rows
/// are held in memory until the response is sent.
pub const IMAGES_MAX: usize = 100;
/// Maximum number of lines of an entry.
const ENTRY_LINES: usize = 1_000;
/// Size in bytes at which an entry of a body of lines ends.
const ENTRY_BYTES: usize = 1 << 20;
/// Maximum size in bytes of all returned rows of an entry that are stored with an idempotency key. If the returned rows
/// are larger, the outcomes are stored without them.
const REMEMBERED_BYTES_MAX: usize = 1 << 20;

/// Settings of a write.
#[derive(Debug, Clone, Default)]
pub struct WriteSettings {
    /// Durability of the acknowledgement; `None` = the setting of the table.
    pub durability: Option<Durability>,
    /// Form of integers in outcomes.
    pub integers: RowIntegers,
    /// Idempotency key of the client.
    pub key: Option<String>,
    /// True if the valid rows of a partition are written although another row of the partition is not valid.
    pub is_independent: bool,
    /// Rows and ranges that must be unchanged; `None` = no requirement.
    pub transaction: Option<Transaction>,
}

/// Outcomes of a write.
#[derive(Debug, Clone, Default)]
pub struct Outcomes {
    /// Number of rows for each outcome.
    pub counts: RowCounts,
    /// Outcomes in the order of the rows.
    pub rows: Vec<RowOutcome>,
    /// True if these are the outcomes of an earlier request with the same idempotency key.
    pub repeated: bool,
}

/// Outcomes that are stored with an idempotency key.
#[derive(Debug, Serialize, Deserialize)]
struct Remembered {
    rows: Vec<RowOutcome>,
}

/// Row of a request.
struct Draft {
    index: u64,
    /// `None` if the key could not be read.
    key: Option<DraftKey>,
    state: State,
}

/// Key of a row.
struct DraftKey {
    /// Values of the logical key columns; `None` for an id assigned by the server.
    values: Vec<Option<KeyValue<'static>>>,
    /// Stored key; `None` if the server assigns an id.
    stored: Option<Bytes>,
    /// Bytes that identify the partition; `None` if it depends on an id assigned by the server.
    partition: Option<Bytes>,
}

/// Result of parsing a row.
enum State {
    /// The row is valid, and is passed to the engine.
    Ready(Box<Prepared>),
    /// The row is valid, but another row of its partition is not.
    Excluded,
    /// The row is not valid; holds the reason.
    Refused(String),
}

/// Parsed row without its key.
struct Prepared {
    operation: RowOperation,
    columns: Vec<(ColumnName<'static>, Vec<GivenValue>)>,
    cleared: Vec<ColumnName<'static>>,
    increments: Vec<Increment>,
    removed: Vec<(ColumnName<'static>, i64)>,
    condition: Option<Condition>,
    image: Image,
}

/// Condition of a write.
struct Condition {
    exists: Option<bool>,
    matcher: Option<RowMatcher>,
}

/// Writes the rows of a request. `body` identifies the content of the request if it has an idempotency key.
///
/// # Errors
///
/// [`RowsError::OverLimit`] for too many rows, [`RowsError::Invalid`] if a row does not belong to the partition of the
/// transaction, [`RowsError::Changed`] if a row or range of the transaction has changed, and the errors of
/// [`Engine::begin_row_request`] and [`Engine::write_rows`]. After an error of kind `Unavailable`, the rows may have
/// been written; after any other error, nothing was written.
pub fn write(
    engine: &Engine,
    table: &WideTable,
    rows: &[RowWrite],
    body: &[u8],
    settings: &WriteSettings,
) -> Result<Outcomes> {
    if rows.len() > ROWS_MAX {
        return Err(RowsError::over(
            "number of rows",
            ROWS_MAX as u64,
            rows.len() as u64,
        ));
    }
    let images = rows.iter().filter(|row| row.image != RowImage::None).count();
    if images > IMAGES_MAX {
        return Err(RowsError::over(
            "number of rows with `return`",
            IMAGES_MAX as u64,
            images as u64,
        ));
    }
    let rows = rows.iter().map(|row| Ok(row.clone()));
    write_entry(engine, table, rows, 0, body, settings)
}

/// Writes a body with one row per line, cut into entries, and passes the outcomes to `take`. Lines that are not valid
/// are refused. If an entry after the first cannot be written, its rows and all following rows are not applied. Their
/// outcomes are marked as retryable if the error is retryable.
///
/// An idempotency key covers each entry separately, so a repeated request continues after the last stored entry.
///
/// # Errors
///
/// The errors of [`write`] for the first entry, and those of `take`.
pub fn write_lines(
    engine: &Engine,
    table: &WideTable,
    body: &[u8],
    settings: &WriteSettings,
    take: &mut dyn FnMut(&RowOutcome) -> io::Result<()>,
) -> Result<RowCounts> {
    let mut counts = RowCounts::default();
    let mut lines = body
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.trim_ascii().is_empty())
        .zip(0_u64..)
        .peekable();
    let mut entries = 0_u64;
    while let Some((_, first)) = lines.peek().copied() {
        let (mut entry, mut bytes) = (Vec::new(), 0);
        while let Some((line, _)) =
            lines.next_if(|_| entry.len() < ENTRY_LINES && (entry.is_empty() || bytes < ENTRY_BYTES))
        {
            bytes += line.len();
            entry.push(line);
        }
        let settings = WriteSettings {
            key: settings.key.as_ref().map(|key| match entries {
                0 => key.clone(),
                number => format!("{key}#{number}"),
            }),
            ..settings.clone()
        };
        let mut images = 0;
        let rows = entry.iter().map(|line| {
            let row: RowWrite = plain::read(line).map_err(|fault| fault.message)?;
            images += usize::from(row.image != RowImage::None);
            match images > IMAGES_MAX {
                true => Err(format!(
                    "at most {IMAGES_MAX} of {ENTRY_LINES} lines can have the member `return`"
                )),
                false => Ok(row),
            }
        });
        let written = write_entry(engine, table, rows, first, &entry.concat(), &settings);
        let outcomes = match written {
            Ok(outcomes) => outcomes,
            Err(error) if entries == 0 => return Err(error),
            Err(error) => {
                let retryable = matches!(&error, RowsError::Engine(error) if error.is_retryable());
                let reason = error.to_string();
                let rest = first + entry.len() as u64 + lines.by_ref().count() as u64;
                for index in first..rest {
                    counts.add(RowStatus::NotApplied);
                    take(&RowOutcome {
                        reason: Some(reason.clone()),
                        retryable,
                        ..outcome(index, RowStatus::NotApplied)
                    })?;
                }
                return Ok(counts);
            }
        };
        entries += 1;
        for outcome in &outcomes.rows {
            counts.add(outcome.status);
            take(outcome)?;
        }
    }
    Ok(counts)
}

/// Writes rows as one entry. `first` is the index of the first row. For a row that could not be read, `rows` contains
/// the reason.
pub(crate) fn write_entry(
    engine: &Engine,
    table: &WideTable,
    rows: impl Iterator<Item = std::result::Result<RowWrite, String>>,
    first: u64,
    body: &[u8],
    settings: &WriteSettings,
) -> Result<Outcomes> {
    let running = match &settings.key {
        None => None,
        Some(key) => {
            let integers = [settings.integers as u8];
            let request = IdempotentRequest::new(key.clone(), body, &[b"rows", &integers]);
            match engine.begin_row_request(table, &request)? {
                RowRequestStart::New(running) => Some(running),
                RowRequestStart::Repeated(stored) => return repeated(table, &stored),
            }
        }
    };
    let now = engine.now();
    let mut drafts: Vec<Draft> = (first..)
        .zip(rows)
        .map(|(index, row)| Draft::new(engine, table, index, row, now))
        .collect();
    if !settings.is_independent {
        exclude_partitions(&mut drafts);
    }
    let drafts = drafts;
    if let Some(transaction) = &settings.transaction {
        check_partition(&drafts, transaction)?;
    }
    let make = |next_id: &mut dyn FnMut() -> i64| {
        let time = next_id();
        let ready = drafts.iter().filter_map(Draft::ready);
        ready
            .map(|(key, prepared)| to_write(table, key, prepared, time, next_id))
            .collect()
    };
    let response = |writes: &[EngineWrite<'_>], outcomes: &[EngineOutcome]| -> Box<RawValue> {
        let mut rows = outcomes_of(table, &drafts, writes, outcomes, settings.integers);
        let bytes = rows
            .iter()
            .filter_map(|row| row.row.as_ref())
            .map(|row| row.get().len());
        if bytes.sum::<usize>() > REMEMBERED_BYTES_MAX {
            rows.iter_mut().for_each(|row| row.row = None);
        }
        serde_json::value::to_raw_value(&Remembered { rows }).unwrap_or_default()
    };
    let options = RowWriteOptions {
        durability: settings.durability,
        request: running.map(|request| RememberedResponse {
            request,
            response: &response,
        }),
        unchanged: settings
            .transaction
            .as_ref()
            .map_or_else(Vec::new, |transaction| transaction.unchanged.clone()),
    };
    let (writes, written) = match drafts.iter().any(|draft| draft.ready().is_some()) {
        true => {
            let (writes, written) = engine.write_rows(table, &make, &options)?;
            if let Some(changed) = written.changed {
                return Err(RowsError::Changed(changed));
            }
            (writes, written.rows)
        }
        false => (Vec::new(), Vec::new()),
    };
    let rows = outcomes_of(table, &drafts, &writes, &written, settings.integers);
    Ok(Outcomes {
        counts: counts_of(&rows),
        rows,
        repeated: false,
    })
}

/// Returns the stored outcomes of an earlier request.
fn repeated(table: &WideTable, stored: &RawValue) -> Result<Outcomes> {
    let Remembered { rows } = serde_json::from_str(stored.get()).map_err(|error| RowsError::Damaged {
        table: table.table().name().to_string(),
        reason: format!("a stored outcome cannot be read: {error}"),
    })?;
    Ok(Outcomes {
        counts: counts_of(&rows),
        rows,
        repeated: true,
    })
}

fn counts_of(rows: &[RowOutcome]) -> RowCounts {
    let mut counts = RowCounts::default();
    rows.iter().for_each(|row| counts.add(row.status));
    counts
}

/// Returns an error if a row belongs to another partition than the transaction.
fn check_partition(drafts: &[Draft], transaction: &Transaction) -> Result<()> {
    let other = drafts.iter().find(|draft| {
        let key = draft.key.as_ref();
        key.is_some_and(|key| key.partition.as_deref() != Some(transaction.partition.as_slice()))
    });
    match other {
        None => Ok(()),
        Some(draft) => Err(RowsError::Invalid(format!(
            "rows/{} belongs to another partition than the elements of unchanged; a transaction covers one partition",
            draft.index
        ))),
    }
}

/// Excludes the valid rows of each partition that has an invalid row.
fn exclude_partitions(drafts: &mut [Draft]) {
    let partition_of = |draft: &Draft| draft.key.as_ref()?.partition.clone();
    let refused = drafts
        .iter()
        .filter(|draft| matches!(draft.state, State::Refused(_)));
    let refused: HashSet<Bytes> = refused.filter_map(partition_of).collect();
    if refused.is_empty() {
        return;
    }
    for draft in drafts {
        let is_excluded = partition_of(draft).is_some_and(|partition| refused.contains(&partition));
        if is_excluded && matches!(draft.state, State::Ready(_)) {
            draft.state = State::Excluded;
        }
    }
}

impl Draft {
    /// Parses a row.
    fn new(
        engine: &Engine,
        table: &WideTable,
        index: u64,
        row: std::result::Result<RowWrite, String>,
        now: Timestamp,
    ) -> Self {
        let row = match row {
            Ok(row) => row,
            Err(reason) => {
                return Self {
                    index,
                    key: None,
                    state: State::Refused(reason),
                };
            }
        };
        let key = match DraftKey::new(table, &row) {
            Ok(key) => key,
            Err(reason) => {
                return Self {
                    index,
                    key: None,
                    state: State::Refused(reason),
                };
            }
        };
        let prepared = Prepared::new(engine, table, &row, now);
        Self {
            index,
            key: Some(key),
            state: prepared.map_or_else(State::Refused, |prepared| State::Ready(Box::new(prepared))),
        }
    }

    /// Returns the key and the changes of a row that is passed to the engine; `None` for other rows.
    fn ready(&self) -> Option<(&DraftKey, &Prepared)> {
        match (&self.key, &self.state) {
            (Some(key), State::Ready(prepared)) => Some((key, prepared)),
            _ => None,
        }
    }
}

impl DraftKey {
    /// Parses the key of a row, and checks that it can be stored.
    fn new(table: &WideTable, row: &RowWrite) -> std::result::Result<Self, String> {
        let layout = table.layout();
        let values = key::parse_values(layout, &row.key)?;
        let generated = layout.generated();
        let is_assigned = generated.is_some_and(|number| values[number].is_none());
        if let Some(number) = generated {
            let name = &layout.logical()[number].name;
            if is_assigned && row.op != RowOperation::Put {
                return Err(format!(
                    "the key has no value of the generated column {name:?}; give the id of the row, or use the \
                     operation put to create a row"
                ));
            }
            let must_not_exist = row.condition.as_ref().is_some_and(|it| it.exists == Some(false));
            if !is_assigned && must_not_exist {
                return Err(format!(
                    "the generated column {name:?} has a value, and the row must not exist; omit the value, so that \
                     the server assigns a new id"
                ));
            }
        }
        // The partition is computed with 0 as a placeholder for an id that is not assigned yet.
        let complete: Vec<KeyValue<'_>> = values
            .iter()
            .map(|value| value.clone().unwrap_or(KeyValue::Signed(0)))
            .collect();
        let mut stored = Vec::new();
        layout
            .encode(&complete, &mut stored)
            .map_err(|error| error.to_string())?;
        let partition = layout.partition_len(&stored).map_err(|error| error.to_string())?;
        let stored = Bytes::from(stored);
        let partition = stored.slice(..partition);
        let is_known =
            !is_assigned || generated.is_none_or(|number| !layout.partition_columns().contains(&number));
        Ok(Self {
            values,
            stored: (!is_assigned).then_some(stored),
            partition: is_known.then_some(partition),
        })
    }
}

impl Prepared {
    /// Parses the changes of a row.
    fn new(
        engine: &Engine,
        table: &WideTable,
        row: &RowWrite,
        now: Timestamp,
    ) -> std::result::Result<Self, String> {
        check_members(row)?;
        check_names(row)?;
        let check_version = |version: Timestamp| {
            let checked = engine.check_version(table, version.nanos());
            checked.map_err(|error| error.to_string())
        };
        let mut columns = Vec::with_capacity(row.columns.0.len());
        for (name, json) in &row.columns.0 {
            let (column, declared) = column_of(table, name)?;
            let mut values = parse_column(json.get(), declared, now).map_err(|found| match declared {
                Some(declared) => format!("column {name:?} has the type {declared}; {found}"),
                None => format!(
                    "column {name:?} is not declared; {found}; give a text, a number, true, false, or an object \
                     with type and value"
                ),
            })?;
            values
                .iter()
                .filter_map(|value| value.version)
                .try_for_each(check_version)
                .map_err(|reason| format!("column {name:?}: {reason}"))?;
            values.sort_by_key(|value| std::cmp::Reverse(value.version));
            if values.windows(2).any(|pair| pair[0].version == pair[1].version) {
                return Err(format!("column {name:?}: two values have the same version"));
            }
            columns.push((column, values));
        }
        columns.sort_by(|one, other| one.0.cmp(&other.0));
        let mut cleared = Vec::with_capacity(row.clear.len());
        for name in &row.clear {
            cleared.push(column_of(table, name)?.0);
        }
        let mut increments = Vec::with_capacity(row.increment.len());
        for (name, by) in &row.increment {
            let (column, declared) = column_of(table, name)?;
            if !matches!(declared, None | Some(ColumnType::I64 | ColumnType::U64)) {
                let declared = declared.map_or("none", ColumnType::name);
                return Err(format!(
                    "column {name:?} has the type {declared}; only i64 and u64 can be incremented"
                ));
            }
            increments.push(Increment {
                column,
                by: *by,
                is_unsigned: declared == Some(ColumnType::U64),
            });
        }
        let mut removed = Vec::with_capacity(row.remove_versions.len());
        for version in &row.remove_versions {
            let (column, _) = column_of(table, &version.column)?;
            removed.push((column, version.version.resolve(now).nanos()));
        }
        let condition = match &row.condition {
            None => None,
            Some(condition) if condition.exists.is_none() && condition.filter.is_none() => {
                return Err("the condition is empty; give exists or where".into());
            }
            Some(condition) => {
                let filter = condition.filter.as_ref();
                let matcher = filter.map(|filter| RowMatcher::new(engine, table, filter));
                Some(Condition {
                    exists: condition.exists,
                    matcher: matcher.transpose().map_err(|error| error.to_string())?,
                })
            }
        };
        Ok(Self {
            operation: row.op,
            columns,
            cleared,
            increments,
            removed,
            condition,
            image: match row.image {
                RowImage::None => Image::None,
                RowImage::Before => Image::Before,
                RowImage::After => Image::After,
            },
        })
    }

    /// Returns the action of the write. `time` is the version that the server assigns.
    fn action<'p>(&'p self, time: i64) -> Action<'p> {
        let columns = self.columns.iter().map(|(name, values)| Column {
            name: name.borrowed(),
            clears: false,
            versions: {
                let version = |given: &'p GivenValue| Version {
                    time: given.version.map_or(time, Timestamp::nanos),
                    value: given.value.borrowed(),
                };
                match values.as_slice() {
                    [only] => std::iter::once(version(only)).collect(),
                    several => {
                        let mut versions: Vec<Version<'_>> = several.iter().map(version).collect();
                        versions.sort_by_key(|version| std::cmp::Reverse(version.time));
                        versions.dedup_by_key(|version| version.time);
                        versions.into_iter().collect()
                    }
                }
            },
        });
        match self.operation {
            RowOperation::Delete => Action::Delete,
            RowOperation::Put => Action::Put(columns.collect()),
            RowOperation::Update => {
                let cleared = self.cleared.iter().cloned().map(Column::cleared);
                let mut columns: Vec<Column<'static>> =
                    columns.map(Column::into_owned).chain(cleared).collect();
                columns.sort_by(|one, other| one.name.cmp(&other.name));
                Action::Update(Update {
                    columns,
                    increments: self.increments.clone(),
                    removed: self.removed.clone(),
                    follows_current: self.condition.is_some(),
                })
            }
        }
    }
}

/// Refuses a row that changes a column in several members. The names within `columns` and `increment` are unique.
fn check_names(row: &RowWrite) -> std::result::Result<(), String> {
    if row.clear.is_empty() && row.increment.is_empty() {
        return Ok(());
    }
    let columns = row.columns.0.iter().map(|(name, _)| name);
    let increments = row.increment.keys();
    let mut names = HashSet::new();
    let mut all = columns.chain(&row.clear).chain(increments);
    match all.find(|name| !names.insert(name.as_str())) {
        None => Ok(()),
        Some(name) => Err(format!(
            "column {name:?} is changed twice; name it once in columns, clear or increment"
        )),
    }
}

/// Returns an error if a row has a member that its operation does not allow.
fn check_members(row: &RowWrite) -> std::result::Result<(), String> {
    let members = [
        ("columns", !row.columns.is_empty(), row.op != RowOperation::Delete),
        ("clear", !row.clear.is_empty(), row.op == RowOperation::Update),
        (
            "increment",
            !row.increment.is_empty(),
            row.op == RowOperation::Update,
        ),
        (
            "remove_versions",
            !row.remove_versions.is_empty(),
            row.op == RowOperation::Update,
        ),
    ];
    let wrong = members
        .iter()
        .find(|(_, is_given, is_allowed)| *is_given && !is_allowed);
    match wrong {
        Some((name, ..)) => {
            let operation = match row.op {
                RowOperation::Put => "put",
                RowOperation::Update => "update",
                RowOperation::Delete => "delete",
            };
            Err(format!("the operation {operation} has no member `{name}`"))
        }
        None => Ok(()),
    }
}

/// Returns the stored name and the declared type of a column.
fn column_of(
    table: &WideTable,
    name: &str,
) -> std::result::Result<(ColumnName<'static>, Option<ColumnType>), String> {
    if name.is_empty() || name.len() > COLUMN_NAME_BYTES_MAX {
        return Err(format!(
            "a column name has {} bytes; 1 to {COLUMN_NAME_BYTES_MAX} are allowed",
            name.len()
        ));
    }
    if table.layout().has_column(name) {
        return Err(format!(
            "column {name:?} is a key column, which cannot be changed; put a row with another key"
        ));
    }
    Ok(table.column(name))
}

/// Returns the write of a row for the engine.
fn to_write<'w>(
    table: &'w WideTable,
    key: &'w DraftKey,
    prepared: &'w Prepared,
    time: i64,
    next_id: &mut dyn FnMut() -> i64,
) -> std::result::Result<EngineWrite<'w>, EngineError> {
    let layout = table.layout();
    let (stored, partition) = match (&key.stored, &key.partition) {
        (Some(stored), Some(partition)) => (stored.clone(), partition.len()),
        _ => with_id(layout, &key.values, next_id)?,
    };
    let condition = prepared.condition.as_ref().map(|condition| {
        let key = stored.clone();
        let is_met = move |row: Option<&Mutation<'_>>| {
            let exists = condition.exists.is_none_or(|exists| exists == row.is_some());
            let matcher = condition.matcher.as_ref();
            exists && matcher.is_none_or(|matcher| matcher.matches(layout, &key, row))
        };
        Box::new(is_met) as tideline_engine::rows::RowCondition<'w>
    });
    Ok(EngineWrite {
        key: stored,
        partition,
        time,
        action: prepared.action(time),
        condition,
        image: prepared.image,
    })
}

/// Encodes a key whose id the server assigns. Returns the key and the length of the prefix that names its partition.
fn with_id(
    layout: &KeyLayout,
    values: &[Option<KeyValue<'static>>],
    next_id: &mut dyn FnMut() -> i64,
) -> std::result::Result<(Bytes, usize), EngineError> {
    let values: Vec<KeyValue<'_>> = values
        .iter()
        .map(|value| value.clone().unwrap_or_else(|| KeyValue::Signed(next_id())))
        .collect();
    let mut stored = Vec::new();
    let encoded = layout.encode(&values, &mut stored);
    encoded.map_err(|error| EngineError::Invalid(error.to_string()))?;
    let partition = layout.partition_len(&stored);
    let partition = partition.map_err(|error| EngineError::Invalid(error.to_string()))?;
    Ok((stored.into(), partition))
}

/// Returns the outcomes of all rows. `writes` and `outcomes` have one element per row that was passed to the engine.
fn outcomes_of(
    table: &WideTable,
    drafts: &[Draft],
    writes: &[EngineWrite<'_>],
    outcomes: &[EngineOutcome],
    integers: RowIntegers,
) -> Vec<RowOutcome> {
    // A stored decimal number has lost its trailing zeros, so the stored key is returned.
    let mut logical = table.layout().logical().iter();
    let has_decimals = logical.any(|column| column.kind == KeyKind::Decimal);
    let selection = Selection::all(integers);
    let mut written = writes.iter().zip(outcomes);
    let to_outcome = |draft: &Draft| {
        let given = draft.key.as_ref().and_then(|key| {
            let values: Option<Vec<KeyValue<'_>>> = key.values.iter().cloned().collect();
            let mut out = Vec::new();
            key::write(table.layout(), &values?, integers, &mut out);
            raw(out)
        });
        let not_written = |status, reason: String| RowOutcome {
            key: given.clone(),
            reason: Some(reason),
            ..outcome(draft.index, status)
        };
        const OTHER: &str = "another row of its partition was not written";
        match &draft.state {
            State::Refused(reason) => return not_written(RowStatus::Refused, reason.clone()),
            State::Excluded => return not_written(RowStatus::NotApplied, OTHER.into()),
            State::Ready(_) => {}
        }
        let Some((write, result)) = written.next() else {
            return not_written(RowStatus::NotApplied, OTHER.into());
        };
        let row = |image: &Option<Mutation<'static>>| {
            let mut out = Vec::new();
            selection
                .write_row(table, &write.key, image.as_ref()?, None, &mut out)
                .ok()?;
            raw(out)
        };
        match result {
            EngineOutcome::Written(image) => {
                let key = given.filter(|_| !has_decimals).or_else(|| {
                    let mut key = Vec::new();
                    write_key(table, &write.key, integers, &mut key).ok()?;
                    raw(key)
                });
                RowOutcome {
                    key,
                    row: row(image),
                    ..outcome(draft.index, RowStatus::Written)
                }
            }
            EngineOutcome::ConditionFailed(image) => RowOutcome {
                row: row(image),
                ..not_written(RowStatus::ConditionFailed, "the condition is not met".into())
            },
            EngineOutcome::NotApplied => not_written(RowStatus::NotApplied, OTHER.into()),
            EngineOutcome::Refused(refused) => not_written(RowStatus::Refused, refused_text(table, refused)),
        }
    };
    drafts.iter().map(to_outcome).collect()
}

pub(crate) fn refused_text(table: &WideTable, refused: &Refused) -> String {
    let name = |column| table.name_of(column).unwrap_or_default().to_owned();
    match refused {
        Refused::NotAnInteger(column) => {
            format!(
                "column {:?} holds no integer, so it cannot be incremented",
                name(column)
            )
        }
        Refused::Overflow(column) => {
            format!(
                "the sum of column {:?} is outside the range of its type",
                name(column)
            )
        }
        Refused::ColumnTooLarge(column, bytes) => {
            format!(
                "column {:?} with its versions would have {bytes} bytes, over the limit of {COLUMN_BYTES_MAX}",
                name(column)
            )
        }
        Refused::NotIndexable(reason) => reason.clone(),
        Refused::TooLarge(bytes) => {
            format!("the row would have {bytes} bytes, over the limit of {ROW_BYTES_MAX}")
        }
    }
}

/// Returns an outcome without details.
fn outcome(index: u64, status: RowStatus) -> RowOutcome {
    RowOutcome {
        index,
        status,
        key: None,
        row: None,
        reason: None,
        retryable: false,
    }
}

/// Converts bytes that contain JSON to a JSON value; `None` if the JSON is not valid.
fn raw(json: Vec<u8>) -> Option<Box<RawValue>> {
    RawValue::from_string(String::from_utf8(json).ok()?).ok()
}

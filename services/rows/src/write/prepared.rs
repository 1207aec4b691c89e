//! Changes of a row, parsed according to the types of the table.
//!
//! The time of the write is not known when a row is parsed. The action for the engine is therefore built when the row
//! is written.

use std::sync::Arc;

use hashbrown::{HashMap, HashSet};
use smallvec::SmallVec;
use tideline_engine::model::{ColumnType, Timestamp};
use tideline_engine::rows::{Action, Column, ColumnName, Image, Increment, Update, Version};
use tideline_engine::runtime::MemoryFull;
use tideline_engine::wide_table::COLUMN_NAME_BYTES_MAX;
use tideline_engine::{Engine, EngineError, WideTable};
use tideline_openapi::condition::RowFilter;
use tideline_openapi::row::{RowImage, RowOperation, RowWrite};

use crate::condition::RowMatcher;
use crate::error::{Result, RowsError};
use crate::value::{GivenValue, GivenValues, parse_column};

/// Parsed row without the key.
pub(super) struct Prepared {
    pub(super) operation: RowOperation,
    pub(super) columns: Vec<(ColumnName<'static>, GivenValues)>,
    pub(super) cleared: Vec<ColumnName<'static>>,
    pub(super) increments: Vec<Increment>,
    pub(super) removed: Vec<(ColumnName<'static>, i64)>,
    pub(super) condition: Option<Condition>,
    pub(super) image: Image,
}

/// Condition of a write.
pub(super) struct Condition {
    pub(super) exists: Option<bool>,
    pub(super) matcher: Option<Arc<RowMatcher>>,
}

/// Reason why a row has no parsed form.
pub(super) enum Unprepared {
    /// The row is not valid; holds the reason.
    Refused(String),
    /// The engine failed, for example because it lacks memory. The row can be valid.
    Failed(RowsError),
}

impl From<String> for Unprepared {
    fn from(reason: String) -> Self {
        Self::Refused(reason)
    }
}

/// Parser of the rows of a request.
pub(super) struct Preparer<'p> {
    engine: &'p Engine,
    table: &'p WideTable,
    now: Timestamp,
    /// Compiled conditions by their JSON: a compiled pattern takes time and memory, and the rows of a request often have
    /// equal conditions. `None` for a request with one row.
    matchers: Option<HashMap<Vec<u8>, Arc<RowMatcher>>>,
}

impl<'p> Preparer<'p> {
    /// Creates a parser. With `has_one_row`, it keeps no compiled conditions.
    pub(super) fn new(engine: &'p Engine, table: &'p WideTable, has_one_row: bool) -> Self {
        Self {
            engine,
            table,
            now: engine.now(),
            matchers: (!has_one_row).then(HashMap::new),
        }
    }

    /// Returns the table.
    pub(super) fn table(&self) -> &'p WideTable {
        self.table
    }

    /// Parses the changes of a row.
    pub(super) fn prepare(&mut self, row: &RowWrite) -> std::result::Result<Prepared, Unprepared> {
        let (engine, table, now) = (self.engine, self.table, self.now);
        check_members(row)?;
        if row.image != RowImage::None {
            let allowed = engine.check_reads();
            allowed.map_err(|error| format!("`return`: {error}"))?;
        }
        check_names(row)?;
        let columns = columns_of(engine, table, row, now)?;
        let mut cleared = Vec::with_capacity(row.clear.len());
        for name in &row.clear {
            cleared.push(column_of(table, name)?.0);
        }
        let increments = increments_of(table, row)?;
        let mut removed = Vec::with_capacity(row.remove_versions.len());
        for version in &row.remove_versions {
            let (column, _) = column_of(table, &version.column)?;
            removed.push((column, version.version.resolve(now).nanos()));
        }
        let condition = self.condition_of(row)?;
        Ok(Prepared {
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

    /// Compiles the condition of a row; `None` if the row has no condition.
    fn condition_of(&mut self, row: &RowWrite) -> std::result::Result<Option<Condition>, Unprepared> {
        let Some(condition) = &row.condition else {
            return Ok(None);
        };
        if condition.exists.is_none() && condition.filter.is_none() {
            return Err(Unprepared::Refused(
                "the condition is empty; give exists or where".to_owned(),
            ));
        }
        let matcher = condition.filter.as_ref().map(|filter| self.matcher_of(filter));
        Ok(Some(Condition {
            exists: condition.exists,
            matcher: matcher.transpose().map_err(|error| match error {
                RowsError::Engine(EngineError::Memory(full)) if full.is_retryable() => {
                    Unprepared::Failed(self.with_held(full).into())
                }
                RowsError::Engine(error) if error.is_retryable() => Unprepared::Failed(error.into()),
                error => Unprepared::Refused(error.to_string()),
            })?,
        }))
    }

    /// Adds the memory of the other patterns of the request to an error. If the request as a whole needs more memory than
    /// there is, a repetition cannot succeed.
    fn with_held(&self, full: MemoryFull) -> EngineError {
        let others = self.matchers.iter().flatten();
        let held: u64 = others.map(|(_, matcher)| matcher.memory_bytes()).sum();
        EngineError::Memory(MemoryFull {
            held_bytes: full.held_bytes.saturating_add(held),
            ..full
        })
    }

    /// Compiles a condition, or returns the compiled form of an equal one.
    fn matcher_of(&mut self, filter: &RowFilter) -> Result<Arc<RowMatcher>> {
        let (engine, table) = (self.engine, self.table);
        let compile = || RowMatcher::new(engine, table, filter).map(Arc::new);
        let Some(matchers) = &mut self.matchers else {
            return compile();
        };
        let Ok(json) = serde_json::to_vec(filter) else {
            return compile();
        };
        if let Some(matcher) = matchers.get(&json) {
            return Ok(Arc::clone(matcher));
        }
        let matcher = compile()?;
        matchers.insert(json, Arc::clone(&matcher));
        Ok(matcher)
    }
}

impl Prepared {
    /// Returns the action of the write. `time` is the version that the server assigns.
    pub(super) fn action<'p>(&'p self, time: i64) -> Action<'p> {
        let columns = self.columns.iter().map(|(name, values)| Column {
            name: name.borrowed(),
            clears: false,
            versions: {
                let version = |given: &'p GivenValue| Version {
                    time: given.version.map_or(time, Timestamp::nanos),
                    value: given.value.borrowed(),
                };
                match values.as_slice() {
                    [only] => SmallVec::from_buf([version(only)]),
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

/// Parses the columns of a row. Returns them sorted by name, and the values of each column sorted from the newest to
/// the oldest version.
fn columns_of(
    engine: &Engine,
    table: &WideTable,
    row: &RowWrite,
    now: Timestamp,
) -> std::result::Result<Vec<(ColumnName<'static>, GivenValues)>, String> {
    let check_version = |version: Timestamp| {
        let checked = engine.check_version(table, version.nanos());
        checked.map_err(|error| error.to_string())
    };
    let mut columns = Vec::with_capacity(row.columns.len());
    for (name, json) in row.columns.iter() {
        let (column, declared) = column_of(table, name)?;
        let mut values = parse_column(json, declared, now).map_err(|found| match declared {
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
        if values.len() > 1 {
            values.sort_by_key(|value| std::cmp::Reverse(value.version));
        }
        if values.windows(2).any(|pair| pair[0].version == pair[1].version) {
            return Err(format!("column {name:?}: two values have the same version"));
        }
        columns.push((column, values));
    }
    columns.sort_by(|one, other| one.0.cmp(&other.0));
    Ok(columns)
}

/// Parses the increments of a row.
fn increments_of(table: &WideTable, row: &RowWrite) -> std::result::Result<Vec<Increment>, String> {
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
    Ok(increments)
}

/// Returns an error if several members of a row change the same column. Within `columns` and within `increment`, names
/// are already unique.
fn check_names(row: &RowWrite) -> std::result::Result<(), String> {
    if row.clear.is_empty() && row.increment.is_empty() {
        return Ok(());
    }
    let columns = row.columns.iter().map(|(name, _)| name);
    let others = row.clear.iter().chain(row.increment.keys());
    let mut names = HashSet::new();
    let mut all = columns.chain(others.map(String::as_str));
    match all.find(|name| !names.insert(*name)) {
        None => Ok(()),
        Some(name) => Err(format!(
            "column {name:?} is changed twice; name it once in columns, clear or increment"
        )),
    }
}

/// Returns an error if a row has a member that is not allowed for its operation.
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

//! `UPSERT`, `UPDATE` and `DELETE`: conversion to writes of rows. The rows crate executes these writes.
//!
//! A statement is planned like a read. If the plan has whole keys, it becomes one write per key, with the remaining
//! conditions as the condition of the write. Other deletes become one deletion of ranges, which cannot have further
//! conditions.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::value::RawValue;
use tideline_engine::key_codec::layout::Ranges;
use tideline_engine::key_codec::tuple::KeyValue;
use tideline_engine::model::{Durability, SequenceNumber};
use tideline_engine::{Engine, ErrorKind, WideTable};
use tideline_openapi::condition::RowFilter;
use tideline_openapi::row::{
    Members, RowCondition, RowCounts, RowImage, RowIntegers, RowOperation, RowOutcome, RowStatus, RowWrite,
};
use tideline_rows::read::newest_position;
use tideline_rows::value::{cell_of, write_plain};
use tideline_rows::write::{check_room, write};
use tideline_rows::{Outcomes, RowsError, WriteSettings};

use crate::error::{Position, Result, SqlError};
use crate::plan::{Access, AccessPath, FoundKey, filter_of};
use crate::statement::{Change, Delete, Name, OnDuplicate, Predicate, Update, Upsert, WriteStatement};

/// Maximum total size, in bytes, of the copies of the changes and of the filter of an `UPDATE` or `DELETE`. Each of at
/// most 2,000 keys gets a copy, so a request of a few megabytes would otherwise take gigabytes before the write checks
/// the sizes of its rows.
const COPIES_BYTES_MAX: usize = 64 << 20;
/// Bytes that a filter takes per byte of its text. Each short literal becomes a separate condition.
const FILTER_FACTOR: usize = 16;

/// Planned write.
#[derive(Debug)]
pub struct WritePlan {
    table: Arc<WideTable>,
    changes: Changes,
    /// True if a row that fails does not prevent the other rows of its partition from being written.
    is_independent: bool,
    /// True if existing rows are not an error.
    pub ignores_existing: bool,
}

#[derive(Debug)]
enum Changes {
    /// Writes of rows.
    Rows(Vec<RowWrite>),
    /// Deletion of ranges.
    Ranges(Ranges),
}

/// Result of a write.
#[derive(Debug)]
pub enum WriteResult {
    /// Outcomes of rows.
    Rows(Outcomes),
    /// Ranges were deleted; holds a sequence at or after the last journal entry of the delete.
    RangesDeleted(SequenceNumber),
}

impl WritePlan {
    /// Plans a statement.
    ///
    /// # Errors
    ///
    /// [`SqlError::Invalid`] for values that their columns cannot hold; [`SqlError::Refused`] for an `UPDATE` without
    /// values of all key columns, for further conditions on the deletion of a range, and for a deletion of all rows
    /// that is not allowed; also an error if the table does not exist.
    pub fn new(engine: &Engine, statement: WriteStatement) -> Result<Self> {
        match statement {
            WriteStatement::Upsert(upsert) => Self::upsert(engine, &upsert),
            WriteStatement::Update(update) => Self::update(engine, update),
            WriteStatement::Delete(delete) => Self::delete(engine, delete),
        }
    }

    /// Returns the table.
    pub fn table(&self) -> &WideTable {
        &self.table
    }

    /// Returns true if the statement deletes ranges of rows, and not rows by their keys.
    pub fn deletes_ranges(&self) -> bool {
        matches!(self.changes, Changes::Ranges(_))
    }

    fn upsert(engine: &Engine, upsert: &Upsert) -> Result<Self> {
        let table = engine.wide_table(&upsert.table.text)?;
        let rows = upsert.rows.iter().map(|values| upserted(&table, upsert, values));
        Ok(Self {
            changes: Changes::Rows(rows.collect::<Result<_>>()?),
            is_independent: upsert.on_duplicate == OnDuplicate::Ignore,
            ignores_existing: upsert.on_duplicate == OnDuplicate::Ignore,
            table,
        })
    }

    fn update(engine: &Engine, update: Update) -> Result<Self> {
        let table = engine.wide_table(&update.table.text)?;
        let (keys, filter, mut bytes) = by_keys(&table, "UPDATE", Some(update.condition))?;
        let mut columns = Members::default();
        let (mut clear, mut increment) = (Vec::new(), BTreeMap::new());
        for (column, change) in &update.changes {
            check_column(&table, column)?;
            bytes += column.text.len();
            match change {
                Change::Add(number) => {
                    increment.insert(column.text.clone(), *number);
                }
                Change::Set(value) => match value.to_column(table.column(&column.text).1)? {
                    Some(json) => {
                        bytes += json.get().len();
                        columns.push(&column.text, &json);
                    }
                    None => clear.push(column.text.clone()),
                },
            }
        }
        check_copies(keys.len(), bytes)?;
        let rows = keys.iter().map(|key| RowWrite {
            op: RowOperation::Update,
            key: members(&table, key),
            columns: columns.clone(),
            clear: clear.clone(),
            increment: increment.clone(),
            remove_versions: Vec::new(),
            condition: Some(RowCondition {
                exists: Some(true),
                filter: filter.clone(),
            }),
            image: RowImage::None,
        });
        Ok(Self {
            changes: Changes::Rows(rows.collect()),
            is_independent: true,
            ignores_existing: false,
            table,
        })
    }

    fn delete(engine: &Engine, delete: Delete) -> Result<Self> {
        let table = engine.wide_table(&delete.table.text)?;
        let access = Access::new(&table, delete.condition)?;
        let changes = match access.path(&table, delete.allow_scan, "DELETE")? {
            AccessPath::Keys(keys) => {
                check_copies(keys.len(), filter_bytes(&access.filter()))?;
                let filter = filter_of(&table, access.filter())?;
                let condition = filter.map(|filter| RowCondition {
                    exists: None,
                    filter: Some(filter),
                });
                let rows = keys.iter().map(|key| RowWrite {
                    op: RowOperation::Delete,
                    key: members(&table, key),
                    columns: Members::default(),
                    clear: Vec::new(),
                    increment: BTreeMap::new(),
                    remove_versions: Vec::new(),
                    condition: condition.clone(),
                    image: RowImage::None,
                });
                Changes::Rows(rows.collect())
            }
            AccessPath::Ranges(ranges) | AccessPath::Table(ranges) => {
                if let Some(condition) = access.filter().first() {
                    return Err(not_a_range(condition));
                }
                Changes::Ranges(ranges)
            }
        };
        Ok(Self {
            table,
            changes,
            is_independent: true,
            ignores_existing: false,
        })
    }

    /// Executes the plan. `key` is the idempotency key of the request, and `request` identifies the content of the
    /// request. Deletions of ranges ignore the idempotency key.
    ///
    /// # Errors
    ///
    /// The errors of [`tideline_rows::write::write`] and [`Engine::delete_rows`].
    pub fn run(
        &self,
        engine: &Engine,
        request: &[u8],
        durability: Option<Durability>,
        integers: RowIntegers,
        key: Option<String>,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<WriteResult> {
        match &self.changes {
            Changes::Rows(rows) => {
                let settings = WriteSettings {
                    durability,
                    integers,
                    key,
                    transaction: None,
                    is_independent: false,
                };
                self.write_rows(engine, rows, request, &settings)
                    .map(WriteResult::Rows)
            }
            Changes::Ranges(ranges) => {
                if !ranges.ranges.is_empty() {
                    engine.delete_rows(&self.table, &ranges.ranges, durability, is_stopped)?;
                }
                Ok(WriteResult::RangesDeleted(newest_position(engine)))
            }
        }
    }
}

/// Maximum number of rounds in which independent rows are written.
const ROUNDS_MAX: usize = 16;

impl WritePlan {
    /// Writes rows. A row that fails prevents the other rows of its partition from being written. If rows are
    /// independent, another round writes these other rows without the failed row. Each round reports all rows that
    /// fail, so more than two rounds are rare.
    ///
    /// If a round fails after an earlier one has written rows, the rows of the round are reported as not applied. An error
    /// after which these rows may have been written is returned.
    fn write_rows(
        &self,
        engine: &Engine,
        rows: &[RowWrite],
        request: &[u8],
        settings: &WriteSettings,
    ) -> Result<Outcomes> {
        if let Some(key) = &settings.key
            && self.is_independent
            && rows.len() > 1
        {
            let added = round_key("", ROUNDS_MAX - 1).len();
            check_room(key, added, "a statement that changes several rows")?;
        }
        let client_key = settings.key.as_deref();
        let mut all = write(engine, &self.table, rows, request, settings)?;
        for round in 1..ROUNDS_MAX {
            let stopped = all.rows.iter().filter(|row| row.status == RowStatus::NotApplied);
            let positions: Vec<usize> = stopped.map(|row| row.index as usize).collect();
            if !self.is_independent || positions.is_empty() {
                break;
            }
            let rest: Vec<RowWrite> = positions
                .iter()
                .filter_map(|position| rows.get(*position).cloned())
                .collect();
            let settings = WriteSettings {
                key: settings.key.as_ref().map(|key| round_key(key, round)),
                ..settings.clone()
            };
            let written = write(engine, &self.table, &rest, request, &settings);
            let written = match written.map_err(|error| error.with_key(client_key)) {
                Ok(written) => written,
                Err(error) if is_partial(&all) && wrote_nothing(&error) => {
                    let retryable = matches!(&error, RowsError::Engine(error) if error.is_retryable());
                    for position in positions {
                        all.rows[position].reason = Some(error.to_string());
                        all.rows[position].retryable = retryable;
                    }
                    break;
                }
                Err(error) => return Err(error.into()),
            };
            all.position = all.position.max(written.position);
            for (position, outcome) in positions.into_iter().zip(written.rows) {
                all.rows[position] = RowOutcome {
                    index: position as u64,
                    ..outcome
                };
            }
        }
        let mut counts = RowCounts::default();
        all.rows.iter().for_each(|row| counts.add(row.status));
        Ok(Outcomes { counts, ..all })
    }
}

/// Returns the idempotency key of a round after the first one.
fn round_key(key: &str, round: usize) -> String {
    format!("{key}#{round}")
}

/// Returns true if at least one row was written.
fn is_partial(outcomes: &Outcomes) -> bool {
    outcomes.rows.iter().any(|row| row.status == RowStatus::Written)
}

/// Returns true if a write that failed with this error has certainly written nothing.
fn wrote_nothing(error: &RowsError) -> bool {
    !matches!(error, RowsError::Engine(error) if matches!(error.kind(), ErrorKind::Unavailable))
}

/// Converts a row of an `UPSERT`.
fn upserted(table: &WideTable, upsert: &Upsert, values: &[crate::literal::Literal]) -> Result<RowWrite> {
    let layout = table.layout();
    let (mut key, mut columns) = (Members::default(), Members::default());
    let mut clear = Vec::new();
    for (column, value) in upsert.columns.iter().zip(values) {
        if let Ok(number) = layout.logical_number(&column.text) {
            let json = value.to_key_json(&column.text, layout.logical()[number].kind)?;
            key.push(&column.text, &json);
            continue;
        }
        check_column(table, column)?;
        match value.to_column(table.column(&column.text).1)? {
            Some(json) => columns.push(&column.text, &json),
            None => clear.push(column.text.clone()),
        }
    }
    // Without a value for the generated column, the server assigns an id, so the row is new.
    let is_new = layout.generated().is_some_and(|number| {
        let name = &layout.logical()[number].name;
        key.get(name).is_none()
    });
    Ok(RowWrite {
        op: if is_new {
            RowOperation::Put
        } else {
            RowOperation::Update
        },
        key,
        columns,
        clear: if is_new { Vec::new() } else { clear },
        increment: BTreeMap::new(),
        remove_versions: Vec::new(),
        condition: (upsert.on_duplicate != OnDuplicate::Update).then_some(RowCondition {
            exists: Some(false),
            filter: None,
        }),
        image: RowImage::None,
    })
}

/// Returns the keys that a condition selects, its remaining conditions as a filter, and the bytes of the filter.
fn by_keys(
    table: &WideTable,
    statement: &str,
    condition: Option<Predicate>,
) -> Result<(Vec<FoundKey>, Option<RowFilter>, usize)> {
    let access = Access::new(table, condition)?;
    if !access.is_whole_key() {
        let names = table.layout().logical().iter().map(|column| column.name.as_str());
        return Err(SqlError::refused(
            Position::default(),
            format!(
                "{statement} changes rows by their whole keys; give a value or a list of each key column by = or IN: {}. \
                 Find the keys by SELECT first",
                names.collect::<Vec<_>>().join(", ")
            ),
        ));
    }
    let AccessPath::Keys(keys) = access.path(table, false, statement)? else {
        return Ok((Vec::new(), None, 0));
    };
    let filter = access.filter();
    let bytes = filter_bytes(&filter);
    Ok((keys, filter_of(table, filter)?, bytes))
}

/// Returns an upper estimate of the size of a filter in bytes.
fn filter_bytes(filter: &[&Predicate]) -> usize {
    let texts = filter.iter().map(|condition| condition.to_string().len());
    FILTER_FACTOR * texts.sum::<usize>()
}

/// Checks the size of the changes and the filter, of which each key gets a copy.
fn check_copies(keys: usize, bytes: usize) -> Result<()> {
    let all = keys.saturating_mul(bytes);
    if all <= COPIES_BYTES_MAX {
        return Ok(());
    }
    Err(SqlError::OverLimit {
        message: format!(
            "the changes and conditions of {keys} keys take {all} bytes, over the limit of {COPIES_BYTES_MAX}; list \
             fewer keys in a statement, or shorten the values"
        ),
        limit: COPIES_BYTES_MAX as u64,
        actual: all as u64,
    })
}

/// Returns an error if the column is a key column.
fn check_column(table: &WideTable, column: &Name) -> Result<()> {
    match table.layout().logical_number(&column.text) {
        Ok(_) => Err(SqlError::refused(
            column.at,
            format!(
                "column {:?} is a key column, which cannot be changed; write a row with the new key, and delete the old \
                 one",
                column.text
            ),
        )),
        Err(_) => Ok(()),
    }
}

fn not_a_range(condition: &Predicate) -> SqlError {
    let text: String = condition.to_string().chars().take(100).collect();
    SqlError::refused(
        Position::default(),
        format!(
            "DELETE of a range of keys takes no other condition, and {text} does not restrict the range. Give values of \
             all key columns, or find the keys by SELECT and delete them by IN"
        ),
    )
}

/// Converts a key to the members of the `key` object of a request.
fn members(table: &WideTable, key: &FoundKey) -> Members {
    let json = |value: &KeyValue<'_>| {
        let mut out = Vec::new();
        write_plain(&cell_of(value), RowIntegers::Number, &mut out);
        let text = String::from_utf8(out).unwrap_or_default();
        RawValue::from_string(text).unwrap_or_else(|_| RawValue::NULL.to_owned())
    };
    let mut members = Members::default();
    for (column, value) in table.layout().logical().iter().zip(&key.values) {
        members.push(&column.name, &json(value));
    }
    members
}

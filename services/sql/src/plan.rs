//! Plans: access paths, orders and filters.
//!
//! 1. The conditions that are joined by `AND` are grouped by column. For key columns, `=` and `IN` become lists of
//!    values, and other comparisons become bounds.
//! 2. The access path that uses the most key columns is chosen. If every key column has a list, the path consists of
//!    whole keys. Otherwise, the path consists of ranges: the longest prefix of key columns with lists, with the bounds
//!    of the next column. Without such a prefix and such bounds, the path is the whole table, if this is allowed. A
//!    secondary index is used if the conditions restrict more of its key columns than of the primary key, or if only
//!    the index has the required order.
//! 3. Conditions that the path does not guarantee form the filter.
//! 4. `ORDER BY` must match the order in which the path returns its rows, or the reverse order.

mod filter;
mod index;
mod keys;
mod order;

use std::sync::Arc;

use tideline_engine::condition::Condition;
use tideline_engine::key_codec::layout::Ranges;
use tideline_engine::key_codec::tuple::KeyValue;
use tideline_engine::model::TierScope;
use tideline_engine::{Engine, WideTable};
use tideline_openapi::condition::RowFilter;
use tideline_openapi::row::ScanDirection;
use tideline_openapi::row_aggregate::{AggregateFunction, AggregateKey, AggregateMetric};
use tideline_rows::Scan;
use tideline_rows::read::{NeededColumns, RangeTerms};

use crate::error::{Result, SqlError};
use crate::projection::Projection;
use crate::statement::{GroupColumn, Grouping, Predicate, Select, SelectColumns};

pub use filter::condition as filter_condition;
pub use keys::Access;

/// Maximum number of ranges that a statement reads. Each range needs the memory of one page.
pub const RANGES_MAX: u64 = 256;

/// Access path that selects the rows of a statement.
#[derive(Debug)]
pub enum AccessPath {
    /// Rows by their whole keys, sorted by the stored keys.
    Keys(Vec<FoundKey>),
    /// Rows within ranges of stored keys.
    Ranges(Ranges),
    /// All rows of the table.
    Table(Ranges),
}

/// Whole key of a row.
#[derive(Debug, Clone)]
pub struct FoundKey {
    /// Stored key.
    pub stored: Vec<u8>,
    /// Values of the logical columns.
    pub values: Vec<KeyValue<'static>>,
}

/// Result of a `SELECT`.
#[derive(Debug)]
pub enum SelectResult {
    /// Rows with the columns of this projection.
    Rows(Projection),
    /// Number of rows, in a result column with this name.
    Count(String),
    /// Groups of rows.
    Groups(GroupResult),
}

/// Planned groups.
#[derive(Debug)]
pub struct GroupResult {
    /// Keys of the groups.
    pub by: Vec<AggregateKey>,
    /// Functions, grouped by column.
    pub metrics: Vec<AggregateMetric>,
    /// Names of the result columns, each with the position of its value. The values of a group are its keys, then the
    /// number of rows, then the functions.
    pub columns: Vec<(String, usize)>,
}

impl GroupResult {
    fn new(grouping: &Grouping) -> Self {
        let by: Vec<AggregateKey> = grouping
            .keys
            .iter()
            .map(|key| {
                let (window, zone) = key
                    .window
                    .clone()
                    .map_or((None, None), |(width, zone)| (Some(width), zone));
                AggregateKey {
                    column: key.column.clone(),
                    window,
                    zone,
                    offset: None,
                }
            })
            .collect();
        let mut metrics: Vec<AggregateMetric> = Vec::new();
        for (column, _) in &grouping.columns {
            let GroupColumn::Function(column, function) = column else {
                continue;
            };
            let known = metrics.iter_mut().find(|metric| metric.column == *column);
            match known {
                Some(metric) if metric.functions.contains(function) => {}
                Some(metric) => metric.functions.push(*function),
                None => metrics.push(AggregateMetric {
                    column: column.clone(),
                    functions: vec![*function],
                }),
            }
        }
        let position = |column: &str, function: &AggregateFunction| {
            let functions = metrics.iter().flat_map(|metric| {
                let functions = metric.functions.iter();
                functions.map(|function| (metric.column.as_str(), function))
            });
            let position = functions
                .into_iter()
                .position(|known| known == (column, function));
            by.len() + 1 + position.unwrap_or_default()
        };
        let columns = grouping.columns.iter().map(|(column, label)| {
            let position = match column {
                GroupColumn::Key(number) => *number,
                GroupColumn::Rows => by.len(),
                GroupColumn::Function(column, function) => position(column, function),
            };
            (label.clone(), position)
        });
        let columns = columns.collect();
        Self { by, metrics, columns }
    }
}

/// Planned `SELECT`.
#[derive(Debug)]
pub struct ReadPlan {
    /// The table.
    pub table: Arc<WideTable>,
    /// Access path.
    pub path: AccessPath,
    /// Conditions, divided into those that the path guarantees and those in the filter.
    pub access: Access,
    /// Condition that is tested on each row of the path.
    pub filter: Option<RowFilter>,
    /// Direction of the scan.
    pub direction: ScanDirection,
    /// Order of the rows: the key columns by which the path is sorted, each with true for descending order. Empty if
    /// the path is sorted by a hash.
    pub order: Vec<(String, bool)>,
    /// Form of the result.
    pub result: SelectResult,
    /// Maximum number of rows.
    pub limit: Option<u64>,
}

impl ReadPlan {
    /// Plans a `SELECT`.
    ///
    /// # Errors
    ///
    /// [`SqlError::Refused`] with the reason if the statement has no access path; also errors if the table does not
    /// exist, or if a value does not have the type of its column.
    pub fn new(engine: &Engine, select: &Select) -> Result<Self> {
        let table = engine.table_of_rows(&select.table.text)?;
        let primary = Access::new(&table, select.condition.clone())?;
        let access = index::choose(engine, &table, primary, select);
        if !access.is_restricted() && !select.allow_scan {
            let advice = index::advice(&table, &access, select);
            return Err(reads_everything(
                &table,
                "SELECT",
                access.reason(),
                advice.as_deref(),
            ));
        }
        let path = access.path(&table, select.allow_scan, "SELECT")?;
        let order = order::of_path(&table, &access);
        let is_backward = order::is_backward(&table, &access, &order, &select.order, select.order_at)
            .map_err(|error| match (error, index::advice(&table, &access, select)) {
                (SqlError::Refused { at, message }, Some(advice)) => SqlError::Refused {
                    at,
                    message: format!("{message}; or {advice}"),
                },
                (error, _) => error,
            })?;
        let filter = filter_of(&table, access.filter())?;
        let result = match &select.columns {
            SelectColumns::All => SelectResult::Rows(Projection::all(&table)),
            SelectColumns::Listed(columns) => SelectResult::Rows(Projection::listed(&table, columns)),
            SelectColumns::Count(label) => SelectResult::Count(label.clone()),
            SelectColumns::Groups(grouping) => SelectResult::Groups(GroupResult::new(grouping)),
        };
        let order = order.into_iter().map(|(number, is_descending)| {
            let name = access.layout(&table).logical()[number].name.clone();
            (name, is_descending != is_backward)
        });
        Ok(Self {
            order: order.collect(),
            path,
            filter,
            direction: match is_backward {
                true => ScanDirection::Backward,
                false => ScanDirection::Forward,
            },
            result,
            limit: select.limit,
            access,
            table,
        })
    }

    /// Returns true if the statement reaches parts of the table in the cold tier or in the archive.
    ///
    /// # Errors
    ///
    /// The errors of [`Scan::reaches_cold`] and [`Engine::has_cold_keys`].
    pub fn reaches_cold(&self, engine: &Engine) -> Result<bool> {
        let ranges = match &self.path {
            AccessPath::Keys(keys) => {
                let keys: Vec<Vec<u8>> = keys.iter().map(|key| key.stored.clone()).collect();
                return Ok(engine.has_cold_keys(&self.table, &keys)?);
            }
            AccessPath::Ranges(ranges) | AccessPath::Table(ranges) => ranges.clone(),
        };
        let terms = RangeTerms {
            index: self.access.index(),
            needed: NeededColumns::Named(&[]),
            direction: self.direction,
            filter: self.filter.as_ref(),
            tier: TierScope::All,
            page_token: None,
            encoder_terms: &[],
        };
        let scan = Scan::of_ranges(engine, &self.table, ranges, &terms)?;
        Ok(scan.reaches_cold(engine, &self.table)?)
    }
}

/// Returns the condition that joins `predicates` by `AND`; `None` if `predicates` is empty.
pub(crate) fn filter_of(table: &WideTable, predicates: Vec<&Predicate>) -> Result<Option<RowFilter>> {
    let conditions = predicates
        .into_iter()
        .map(|predicate| filter_condition(table, predicate));
    let mut conditions: Vec<Condition> = conditions.collect::<Result<_>>()?;
    Ok(match conditions.len() {
        0 | 1 => conditions.pop(),
        _ => Some(Condition::And(conditions)),
    }
    .map(RowFilter))
}

/// Returns the error of a statement that would read the whole table. `advice` names an index, if one can serve the
/// statement.
fn reads_everything(
    table: &WideTable,
    statement: &str,
    reason: Option<&str>,
    advice: Option<&str>,
) -> SqlError {
    let advice = advice.unwrap_or("keep a table whose key begins with the columns of the condition");
    let first = &table.layout().logical()[0].name;
    let because = match reason {
        Some(reason) => format!("because {reason}"),
        None => format!("because no condition by =, IN or a range restricts the first key column {first:?}"),
    };
    SqlError::refused(
        crate::error::Position::default(),
        format!(
            "{statement} would read the whole table {}, {because}. Three ways out: add a condition on {first:?}; {advice}; \
             or allow it by {statement} /*+ ALLOW_SCAN */ or ALLOW FILTERING at the end",
            table.table().name()
        ),
    )
}

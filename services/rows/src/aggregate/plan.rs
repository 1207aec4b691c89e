//! Checks of a request for aggregates: the origins of the values, the keys of the groups, and the functions.
//!
//! All checks take place here, before the first row is read.

use hashbrown::HashSet;
use tideline_engine::WideTable;
use tideline_engine::key_codec::tuple::KeyValue;
use tideline_engine::model::ColumnType;
use tideline_engine::rows::{CellValue, ColumnName, Mutation};
use tideline_openapi::row_aggregate::{AggregateFunction, AggregateKey, AggregateMetric};
use tideline_query::{Function, Percentile};

use super::state::State;
use super::window::{KnownWindows, window_of};
use crate::error::{Result, RowsError};

/// Maximum number of keys to group by.
pub const AGGREGATE_KEYS_MAX: usize = 8;
/// Maximum number of columns whose values are aggregated.
pub const AGGREGATE_METRICS_MAX: usize = 32;
/// Maximum number of functions of a column.
pub const AGGREGATE_FUNCTIONS_MAX: usize = 16;

/// Column whose values are read.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) name: String,
    pub(super) column_type: ColumnType,
    origin: Origin,
}

#[derive(Debug)]
enum Origin {
    /// Position of a logical key column.
    Key(usize),
    /// Stored name of a column.
    Column(ColumnName<'static>),
}

/// Key to group by.
#[derive(Debug)]
pub(super) struct GroupKey {
    pub(super) source: Source,
    pub(super) windows: Option<KnownWindows>,
}

/// Functions of a column.
#[derive(Debug)]
pub(super) struct Metric {
    pub(super) source: Source,
    pub(super) functions: Vec<Function>,
}

/// Value of a column in a row.
pub(super) enum Found<'v> {
    Value(CellValue<'v>),
    Missing,
    /// The value has the type of the column, but is streamed. Its content is not read.
    Streamed,
    /// The value does not have the type of the column.
    OtherType,
}

impl Source {
    fn new(table: &WideTable, member: &str, name: &str) -> Result<Self> {
        let logical = table.layout().logical();
        let (origin, declared) = match logical.iter().position(|key| key.name == name) {
            Some(number) => (Origin::Key(number), Some(logical[number].kind.column_type())),
            None => {
                let (stored, declared) = table.column(name);
                (Origin::Column(stored), declared)
            }
        };
        let column_type = declared.ok_or_else(|| {
            RowsError::Invalid(match table.layout().computed_from(name) {
                Some(of) => format!(
                    "{member}: column {name:?} of the key is computed; name the columns from which it is computed: {}",
                    of.join(", ")
                ),
                None => format!(
                    "{member}: column {name:?} is neither declared nor part of the key; declare it with its type first"
                ),
            })
        })?;
        Ok(Self {
            name: name.to_owned(),
            column_type,
            origin,
        })
    }

    /// Returns true if the column is part of the key.
    pub(super) fn is_key(&self) -> bool {
        matches!(self.origin, Origin::Key(_))
    }

    /// Returns the value of a row. `key` holds the values of its logical key columns.
    pub(super) fn value<'v>(&self, key: &'v [KeyValue<'_>], row: &'v Mutation<'_>) -> Found<'v> {
        match &self.origin {
            Origin::Key(number) => key
                .get(*number)
                .map_or(Found::Missing, |value| Found::Value(CellValue::of_key(value))),
            Origin::Column(name) => {
                let newest = row.column(name).and_then(|column| column.newest());
                match newest {
                    None => Found::Missing,
                    Some(version) if version.value.column_type() == self.column_type => match version.value {
                        CellValue::Large(_) => Found::Streamed,
                        _ => Found::Value(version.value.borrowed()),
                    },
                    Some(_) => Found::OtherType,
                }
            }
        }
    }
}

/// Checks the keys to group by.
pub(super) fn keys_of(table: &WideTable, keys: &[AggregateKey]) -> Result<Vec<GroupKey>> {
    limit("number of keys in by", AGGREGATE_KEYS_MAX, keys.len())?;
    let mut known = HashSet::new();
    let key_of = |key: &AggregateKey| {
        if !known.insert(key.column.clone()) {
            return Err(RowsError::Invalid(format!(
                "by: column {:?} is listed twice",
                key.column
            )));
        }
        let source = Source::new(table, "by", &key.column)?;
        let windows = match key.window {
            None if key.zone.is_some() || key.offset.is_some() => {
                return Err(RowsError::Invalid(format!(
                    "by: column {:?}: offset and zone require a window",
                    key.column
                )));
            }
            None => None,
            Some(_) if source.column_type != ColumnType::Timestamp => {
                return Err(RowsError::Invalid(format!(
                    "by: column {:?} has the type {}; only columns of timestamps have windows",
                    key.column, source.column_type
                )));
            }
            Some(width) => Some(KnownWindows::new(window_of(
                width,
                key.zone.as_deref(),
                key.offset,
            )?)?),
        };
        if source.column_type == ColumnType::Json {
            return Err(RowsError::Invalid(format!(
                "by: column {:?} has the type json, whose values are not groups; facets of a search index count its \
                 elements",
                key.column
            )));
        }
        Ok(GroupKey { source, windows })
    };
    keys.iter().map(key_of).collect()
}

/// Checks the columns and functions.
pub(super) fn metrics_of(table: &WideTable, metrics: &[AggregateMetric]) -> Result<Vec<Metric>> {
    limit("number of metrics", AGGREGATE_METRICS_MAX, metrics.len())?;
    let mut known = HashSet::new();
    let metric_of = |metric: &AggregateMetric| {
        let name = metric.column.as_str();
        if !known.insert(name.to_owned()) {
            return Err(RowsError::Invalid(format!(
                "metrics: column {name:?} is listed twice; list all of its functions together"
            )));
        }
        let source = Source::new(table, "metrics", name)?;
        if metric.functions.is_empty() {
            return Err(RowsError::Invalid(format!(
                "metrics: column {name:?} has no functions"
            )));
        }
        limit(
            "number of functions of a column",
            AGGREGATE_FUNCTIONS_MAX,
            metric.functions.len(),
        )?;
        let mut functions = Vec::with_capacity(metric.functions.len());
        for function in &metric.functions {
            let function = function_of(*function)?;
            if functions.contains(&function) {
                return Err(RowsError::Invalid(format!(
                    "metrics: column {name:?} has the function {function} twice"
                )));
            }
            if State::new(function, source.column_type).is_none() {
                return Err(RowsError::Invalid(format!(
                    "metrics: column {name:?} has the type {}, which has no {function}",
                    source.column_type
                )));
            }
            functions.push(function);
        }
        Ok(Metric { source, functions })
    };
    metrics.iter().map(metric_of).collect()
}

fn function_of(function: AggregateFunction) -> Result<Function> {
    Ok(match function {
        AggregateFunction::Count => Function::Count,
        AggregateFunction::CountDistinct => Function::CountDistinct,
        AggregateFunction::Sum => Function::Sum,
        AggregateFunction::Mean => Function::Mean,
        AggregateFunction::Stddev => Function::StdDev,
        AggregateFunction::Min => Function::Min,
        AggregateFunction::Max => Function::Max,
        AggregateFunction::Spread => Function::Spread,
        AggregateFunction::Mode => Function::Mode,
        AggregateFunction::First => Function::First,
        AggregateFunction::Last => Function::Last,
        AggregateFunction::Percentile(percent) => {
            let percentile = Percentile::new(percent).ok_or_else(|| {
                RowsError::Invalid(format!("metrics: percentile {percent}; 0 to 100 are possible"))
            })?;
            Function::Percentile(percentile)
        }
    })
}

fn limit(what: &str, limit: usize, actual: usize) -> Result<()> {
    match actual > limit {
        true => Err(RowsError::over(what, limit as u64, actual as u64)),
        false => Ok(()),
    }
}

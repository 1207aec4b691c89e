//! Types of the result columns, for formats that declare the types before the rows.
//!
//! A column can have values of several types, in one measurement or in several. Numbers of different types result in
//! a float column. A column with values of several kinds (numbers, booleans, strings, histograms) has no type.

use hashbrown::HashMap;
use tideline_engine::Table;
use tideline_engine::model::{FieldId, Value, ValueKind, ValueType};

use crate::compute::Computed;
use crate::fill::Fill;
use crate::function::Function;
use crate::plan::{AggregateSource, Columns, Scope};

/// Returns the type of each column of raw rows; see [`Header::types`](crate::Header::types).
pub(crate) fn of_rows(
    scope: &Scope,
    table: &Table,
    columns: &Columns<FieldId>,
    computed: &Computed,
) -> Vec<Option<ValueType>> {
    let types = Types::new(scope, table, computed);
    of_columns(columns, |measurement, field| types.of(measurement, *field))
}

/// Returns the type of each column of an aggregate.
pub(crate) fn of_aggregate(
    scope: &Scope,
    table: &Table,
    columns: &Columns<AggregateSource>,
    computed: &Computed,
    fill: Option<&Fill>,
) -> Vec<Option<ValueType>> {
    let types = Types::new(scope, table, computed);
    of_columns(columns, |measurement, source| {
        let given = gives(source.function, types.of(measurement, source.field)?);
        Some(filled(given, source, fill))
    })
}

/// Types of the fields of each measurement.
struct Types<'a> {
    stored: HashMap<(usize, FieldId), Vec<ValueType>>,
    computed: &'a Computed,
}

impl<'a> Types<'a> {
    fn new(scope: &Scope, table: &Table, computed: &'a Computed) -> Self {
        let stored = scope.types(table);
        Self { stored, computed }
    }

    fn of(&self, measurement: usize, field: FieldId) -> Option<ValueType> {
        if self.computed.name(field).is_some() {
            return Some(ValueType::Float);
        }
        let types = self.stored.get(&(measurement, field))?;
        // All types of one field of a measurement are of one kind.
        types.iter().copied().reduce(number)
    }
}

/// Returns the common type of each column over all measurements; `None` if its values are of several kinds or no type
/// is known.
fn of_columns<C>(
    columns: &Columns<C>,
    of: impl Fn(usize, &C) -> Option<ValueType>,
) -> Vec<Option<ValueType>> {
    let mut found: Vec<Vec<ValueType>> = vec![Vec::new(); columns.names.len()];
    for (measurement, of_each) in columns.by_measurement.iter().enumerate() {
        for (position, source) in of_each.positions.iter().zip(&of_each.sources) {
            found[*position].extend(of(measurement, source));
        }
    }
    let one = |types: Vec<ValueType>| {
        let kind = types.first()?.kind();
        let is_one_kind = types.iter().all(|value_type| value_type.kind() == kind);
        types.into_iter().reduce(number).filter(|_| is_one_kind)
    };
    found.into_iter().map(one).collect()
}

/// Returns the common type of two types of numbers: float if they differ.
fn number(a: ValueType, b: ValueType) -> ValueType {
    if a == b { a } else { ValueType::Float }
}

/// Returns the result type of a function for values of a type.
fn gives(function: Function, of: ValueType) -> ValueType {
    match function {
        Function::Count | Function::CountDistinct => ValueType::Unsigned,
        Function::Sum
        | Function::Increase
        | Function::Min
        | Function::Max
        | Function::First
        | Function::Last
        | Function::Mode => of,
        Function::Spread if of != ValueType::Float => ValueType::Unsigned,
        Function::Delta if of != ValueType::Float => ValueType::Signed,
        Function::Mean
        | Function::StdDev
        | Function::Spread
        | Function::Delta
        | Function::Percentile(_)
        | Function::Rate
        | Function::Integral
        | Function::TimeWeightedMean => ValueType::Float,
    }
}

/// Returns the type of a column after filling.
fn filled(given: ValueType, source: &AggregateSource, fill: Option<&Fill>) -> ValueType {
    if source.function.counts() || source.kind != ValueKind::Number {
        return given;
    }
    match fill {
        Some(Fill::Linear) => ValueType::Float,
        Some(Fill::Value(value)) => match value {
            Value::Float(_) | Value::Signed(_) | Value::Unsigned(_) => number(given, value.value_type()),
            Value::Boolean(_) | Value::String(_) | Value::Histogram(_) => given,
        },
        Some(Fill::Null | Fill::Previous { .. }) | None => given,
    }
}

//! Columns of an aggregate that are computed from other columns, cell by cell.
//!
//! Each aggregate has an accumulator, even if it occurs only in an expression. The accumulators that occur only in
//! expressions follow those of the requested columns and are not part of the result.

use std::collections::BTreeSet;

use tideline_engine::Table;
use tideline_engine::model::{ValueKind, ValueType};

use crate::budget::within;
use crate::compute::{Computation, Computed, check_names, no_such_field};
use crate::error::{QueryError, Result};
use crate::expression::{Expression, Input, Scope as Names, Stack};
use crate::plan::{AggregateSource, Columns, Scope, Wanted};
use crate::result::ValueRef;

/// Computed columns of a result.
#[derive(Debug)]
pub(super) struct Arithmetic {
    /// Number of requested columns; the columns after them are only inputs of expressions.
    shown: usize,
    names: Vec<String>,
    expressions: Vec<Expression>,
    by_measurement: Vec<OfMeasurement>,
}

/// Computed columns of one measurement.
#[derive(Debug, Default)]
struct OfMeasurement {
    /// Number of leading accumulators that are columns of the result. The others are only inputs of expressions.
    shown: usize,
    /// Positions of the result columns that the series of the measurement have: requested ones, then computed ones.
    positions: Vec<usize>,
    /// Expressions whose inputs all exist in the measurement: index of the expression, accumulators of its inputs.
    computed: Vec<(usize, Vec<usize>)>,
}

/// Maximum number of inputs of all expressions of a query; an aggregate counts once per expression.
const INPUTS_MAX: u64 = 256;

impl Arithmetic {
    /// Adds the inputs of the expressions to the columns. Returns an error if a name is empty or already used, an
    /// expression is invalid, or there are too many computations or inputs. Also returns an error if an input is of an
    /// unknown field or not a number.
    pub(super) fn new(
        computations: &[Computation],
        columns: &mut Columns<AggregateSource>,
        scope: &Scope,
        table: &Table,
        fields: &Computed,
    ) -> Result<Self> {
        check_names(computations)?;
        let parsed = computations
            .iter()
            .map(|one| Expression::parse(&one.expression, Names::Windows));
        let names: Vec<String> = computations.iter().map(|one| one.name.clone()).collect();
        if let Some(name) = names.iter().find(|name| columns.names.contains(name)) {
            return Err(QueryError::Invalid(format!(
                "{name:?} is already a column of the result; choose another name for the computed column"
            )));
        }
        let mut arithmetic = Self {
            shown: columns.names.len(),
            expressions: parsed.collect::<Result<_>>()?,
            names,
            by_measurement: Vec::new(),
        };
        for of in &columns.by_measurement {
            arithmetic.by_measurement.push(OfMeasurement {
                shown: of.positions.len(),
                positions: of.positions.clone(),
                computed: Vec::new(),
            });
        }
        let inputs = arithmetic.expressions.iter().map(|one| one.inputs().len() as u64);
        within("aggregates in expressions", INPUTS_MAX, inputs.sum())?;
        for (at, expression) in arithmetic.expressions.iter().enumerate() {
            let inputs = expression.inputs();
            let sources: Vec<Sources> = inputs
                .iter()
                .map(|input| sources(input, scope, table, fields))
                .collect::<Result<_>>()?;
            for (measurement, of) in arithmetic.by_measurement.iter_mut().enumerate() {
                let of_each = sources.iter().map(|sources| sources[measurement]);
                // A measurement without one of the fields does not have this column.
                let Some(of_each) = of_each.collect::<Option<Vec<_>>>() else {
                    continue;
                };
                let indices = inputs
                    .iter()
                    .zip(of_each)
                    .map(|(input, source)| accumulator_index(columns, measurement, source, input));
                of.computed.push((at, indices.collect()));
                of.positions.push(arithmetic.shown + at);
            }
        }
        Ok(arithmetic)
    }

    /// Returns the names of the result columns.
    pub(super) fn columns(&self, columns: &Columns<AggregateSource>) -> Vec<String> {
        let shown = columns.names[..self.shown].iter();
        shown.chain(&self.names).cloned().collect()
    }

    /// Returns the types of the result columns, from the types of all accumulators.
    pub(super) fn types(&self, mut types: Vec<Option<ValueType>>) -> Vec<Option<ValueType>> {
        types.truncate(self.shown);
        types.extend(self.names.iter().map(|_| Some(ValueType::Float)));
        types
    }

    /// Returns the names of the result columns that depend on the accumulators at the `positions`: the columns of
    /// these accumulators, and the columns computed from them.
    pub(super) fn made_of(
        &self,
        positions: &BTreeSet<usize>,
        columns: &Columns<AggregateSource>,
    ) -> Vec<String> {
        let shown = positions
            .range(..self.shown)
            .map(|position| &columns.names[*position]);
        let uses_one = |(at, _): &(usize, &String)| {
            let of_each = self.by_measurement.iter().zip(&columns.by_measurement);
            of_each.into_iter().any(|(of, measurement)| {
                let made_of = of.computed.iter().filter(|(expression, _)| expression == at);
                made_of
                    .flat_map(|(_, made_of)| made_of)
                    .any(|index| positions.contains(&measurement.positions[*index]))
            })
        };
        let computed = self.names.iter().enumerate().filter(uses_one);
        shown.chain(computed.map(|(_, name)| name)).cloned().collect()
    }

    /// Returns the positions of the columns of a measurement's series.
    pub(super) fn positions(&self, measurement: u32) -> &[usize] {
        &self.by_measurement[measurement as usize].positions
    }

    /// Replaces the accumulator values of a row by its column values; returns `false` if no column has a value.
    pub(super) fn apply(
        &self,
        measurement: u32,
        values: &mut Vec<Option<ValueRef<'_>>>,
        stack: &mut Stack,
    ) -> bool {
        let of = &self.by_measurement[measurement as usize];
        let count = values.len();
        for (expression, made_of) in &of.computed {
            let number = |index: usize| [values[index].and_then(number).unwrap_or(f64::NAN)];
            let inputs: Vec<[f64; 1]> = made_of.iter().map(|index| number(*index)).collect();
            let result = self.expressions[*expression].evaluate(1, |at| &inputs[at], stack)[0];
            values.push((!result.is_nan()).then_some(ValueRef::Float(result)));
        }
        values.drain(of.shown..count);
        values.iter().any(Option::is_some)
    }
}

/// Source of an aggregate in each measurement; `None` if the measurement does not have the field.
type Sources = Vec<Option<AggregateSource>>;

fn sources(input: &Input, scope: &Scope, table: &Table, computed: &Computed) -> Result<Sources> {
    let Input::Aggregate(function, field) = input else {
        return Ok(vec![None; scope.measurements.len()]);
    };
    let is_known = computed.field(field).is_some() || table.field(field).is_some();
    if !is_known {
        return Err(no_such_field(field, table));
    }
    let wanted = Wanted::named(std::slice::from_ref(field));
    let columns = scope.aggregate_columns(table, wanted, &[*function], computed)?;
    let first = columns
        .by_measurement
        .iter()
        .map(|of| of.sources.first().copied());
    let sources: Sources = first.collect();
    match sources
        .iter()
        .flatten()
        .find(|source| source.kind != ValueKind::Number)
    {
        Some(_) => Err(QueryError::Invalid(format!(
            "{function}({field}) is not a number; arithmetic needs numbers"
        ))),
        None => Ok(sources),
    }
}

/// Returns the accumulator index of an aggregate in a measurement; adds an accumulator if the aggregate does
/// not have one.
fn accumulator_index(
    columns: &mut Columns<AggregateSource>,
    measurement: usize,
    source: AggregateSource,
    input: &Input,
) -> usize {
    let is_same = |have: &AggregateSource| have.function == source.function && have.field == source.field;
    let of = &columns.by_measurement[measurement];
    if let Some(index) = of.sources.iter().position(is_same) {
        return index;
    }
    let name = match input {
        Input::Aggregate(function, field) => format!("{function}({field})"),
        Input::Field(field) => field.clone(),
    };
    columns.names.push(name);
    let of = &mut columns.by_measurement[measurement];
    of.positions.push(columns.names.len() - 1);
    of.sources.push(source);
    of.sources.len() - 1
}

fn number(value: ValueRef<'_>) -> Option<f64> {
    value.to_value().as_f64()
}

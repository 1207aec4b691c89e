//! Stages applied to every run before it is used: computed fields, then conditions on values.
//!
//! A computed field is evaluated for each point. Its field id is above those of stored fields, so that later code
//! handles it like a stored field.

use tideline_engine::Table;
use tideline_engine::condition::Condition;
use tideline_engine::model::{ColumnData, FieldId, ValueKind};
use tideline_engine::points::ZoneFilter;
use tideline_engine::points::{Bitmap, Presence, Run, RunColumn};

use crate::budget::within;
use crate::error::{QueryError, Result};
use crate::expression::{Expression, Input, Scope as Names, Stack};
use crate::filter::{Filter, plural};
use crate::function::Function;
use crate::plan::Scope;

/// Maximum number of computations of a query.
pub const COMPUTATIONS_MAX: u64 = 64;

/// Name and expression of a computed field or column; see [`expression`](crate::expression).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Computation {
    /// Name of the result.
    pub name: String,
    /// Expression that computes the values.
    pub expression: String,
}

impl Computation {
    /// Returns true if the text is a valid expression of aggregates and uses `rate`. Rates need a range with a start
    /// and an end.
    pub fn has_rates(&self) -> bool {
        let expression = Expression::parse(&self.expression, Names::Windows);
        expression.is_ok_and(|expression| {
            let is_rate = |input: &Input| matches!(input, Input::Aggregate(Function::Rate, _));
            expression.inputs().iter().any(is_rate)
        })
    }
}

/// Fields that a query computes for each point. They can be selected, filtered, ranked and aggregated like stored
/// fields.
#[derive(Debug, Clone, Default)]
pub(crate) struct Computed(Vec<ComputedField>);

#[derive(Debug, Clone)]
struct ComputedField {
    name: String,
    /// Field id, above those of stored fields.
    id: FieldId,
    expression: Expression,
    /// Fields that the expression uses, in order of its inputs.
    inputs: Vec<FieldId>,
}

/// Stages that every run passes through. Buffers are reused from run to run; each worker has a clone.
#[derive(Debug, Clone)]
pub(crate) struct Stages {
    pub(crate) computed: Computed,
    filter: Option<Filter>,
    extended: Run,
    stack: Stack,
    columns: Vec<Vec<f64>>,
}

impl Computed {
    /// Parses the expressions of a query. Returns an error for too many computations, invalid expressions, and empty or
    /// repeated names. Also returns an error for names of stored fields, and for inputs that do not exist or are not
    /// numbers.
    pub(crate) fn new(computations: &[Computation], scope: &Scope, table: &Table) -> Result<Self> {
        check_names(computations)?;
        let kinds = scope.kinds(table);
        let mut computed = Vec::with_capacity(computations.len());
        for (at, computation) in (0..).zip(computations) {
            let name = &computation.name;
            if table.field(name).is_some() {
                return Err(QueryError::Invalid(format!(
                    "{name:?} is a field of table {:?}; choose another name for the computed field",
                    table.name().as_str()
                )));
            }
            let expression = Expression::parse(&computation.expression, Names::Points)?;
            let mut inputs = Vec::with_capacity(expression.inputs().len());
            for input in expression.inputs() {
                let Input::Field(name) = input else { continue };
                let field = table.field(name).ok_or_else(|| no_such_field(name, table))?;
                let mut kinds = kinds.iter().filter(|(of, _)| *of == field);
                if let Some((_, kind)) = kinds.find(|(_, kind)| *kind != ValueKind::Number) {
                    let has = plural(*kind);
                    return Err(QueryError::Invalid(format!(
                        "field {name:?} holds {has}; arithmetic needs numbers"
                    )));
                }
                inputs.push(field);
            }
            computed.push(ComputedField {
                name: name.clone(),
                id: FieldId(u32::MAX - COMPUTATIONS_MAX as u32 + at),
                expression,
                inputs,
            });
        }
        Ok(Self(computed))
    }

    /// Returns the id of a computed field; `None` if no computed field has the name.
    pub(crate) fn field(&self, name: &str) -> Option<FieldId> {
        let found = self.0.iter().find(|field| field.name == name);
        found.map(|field| field.id)
    }

    /// Returns the name of a computed field; `None` for a stored field.
    pub(crate) fn name(&self, id: FieldId) -> Option<&str> {
        self.of(id).map(|field| field.name.as_str())
    }

    /// Returns the ids of all computed fields.
    pub(crate) fn ids(&self) -> impl Iterator<Item = FieldId> {
        self.0.iter().map(|field| field.id)
    }

    /// Returns the stored fields from which a field is computed; for a stored field, the field itself.
    pub(crate) fn inputs<'a>(&'a self, id: &'a FieldId) -> &'a [FieldId] {
        self.of(*id)
            .map_or(std::slice::from_ref(id), |field| &field.inputs)
    }

    fn of(&self, id: FieldId) -> Option<&ComputedField> {
        self.0.iter().find(|field| field.id == id)
    }
}

/// Returns an error for too many computations and for empty or repeated names.
pub(crate) fn check_names(computations: &[Computation]) -> Result<()> {
    within("computations", COMPUTATIONS_MAX, computations.len() as u64)?;
    let mut names: Vec<&str> = computations.iter().map(|one| one.name.as_str()).collect();
    names.sort_unstable();
    let is_twice = names.windows(2).any(|pair| pair[0] == pair[1]);
    if is_twice || names.contains(&"") {
        return Err(QueryError::Invalid(
            "every computation needs a name that no other computation has".into(),
        ));
    }
    Ok(())
}

pub(crate) fn no_such_field(name: &str, table: &Table) -> QueryError {
    QueryError::NoSuchField {
        field: name.into(),
        table: table.name().to_string(),
        did_you_mean: table.fields_like(name),
    }
}

impl Stages {
    /// Compiles the computed fields and the filter of a query.
    pub(crate) fn new(
        computations: &[Computation],
        values: Option<&Condition>,
        scope: &Scope,
        table: &Table,
    ) -> Result<Self> {
        let computed = Computed::new(computations, scope, table)?;
        let filter = values.map(|values| Filter::new(values, scope, table, &computed));
        Ok(Self {
            filter: filter.transpose()?,
            computed,
            extended: Run::default(),
            stack: Stack::default(),
            columns: Vec::new(),
        })
    }

    /// Returns the filter; `None` if all points match.
    pub(crate) fn filter(&self) -> Option<&Filter> {
        self.filter.as_ref()
    }

    /// Returns the filter as a zone filter, which excludes data by summaries before the data is read; `None` if all
    /// points match.
    pub(crate) fn zone_filter(&self) -> Option<&dyn ZoneFilter> {
        self.filter.as_ref().map(|filter| filter as &dyn ZoneFilter)
    }

    /// Returns the stored fields that must be read for the wanted fields and the filter, sorted.
    pub(crate) fn reads(&self, wanted: impl Iterator<Item = FieldId>) -> Vec<FieldId> {
        let mut fields: Vec<FieldId> = wanted.collect();
        fields.extend(self.filter.iter().flat_map(|filter| filter.fields()));
        let inputs = fields.iter().flat_map(|field| self.computed.inputs(field));
        let mut fields: Vec<FieldId> = inputs.copied().collect();
        fields.sort_unstable();
        fields.dedup();
        fields
    }

    /// Adds the computed fields to a run and removes the rows that do not match the filter; `None` if no row is
    /// left.
    pub(crate) fn apply<'r>(&'r mut self, run: &'r Run) -> Option<&'r Run> {
        let run = if self.computed.0.is_empty() {
            run
        } else {
            self.extend(run);
            &self.extended
        };
        match &mut self.filter {
            Some(filter) => filter.select(run),
            None => Some(run),
        }
    }

    fn extend(&mut self, run: &Run) {
        self.extended.clone_from(run);
        let rows = run.rows();
        for field in &self.computed.0 {
            for (at, input) in field.inputs.iter().enumerate() {
                if at == self.columns.len() {
                    self.columns.push(Vec::new());
                }
                gather(run, *input, &mut self.columns[at]);
            }
            let columns = &self.columns;
            let results = field
                .expression
                .evaluate(rows, |at| &columns[at], &mut self.stack);
            let values: Vec<f64> = results.iter().copied().filter(|value| !value.is_nan()).collect();
            if values.is_empty() {
                continue;
            }
            let presence = if values.len() == rows {
                Presence::All
            } else {
                Presence::Some(results.iter().map(|value| !value.is_nan()).collect::<Bitmap>())
            };
            self.extended.columns.push(RunColumn {
                field: field.id,
                presence,
                values: ColumnData::Float(values),
            });
        }
    }
}

/// Collects the values of a field as doubles, one per row; NaN for missing values.
pub(crate) fn gather(run: &Run, field: FieldId, values: &mut Vec<f64>) {
    values.clear();
    values.resize(run.rows(), f64::NAN);
    for column in run.columns.iter().filter(|column| column.field == field) {
        let presence = &column.presence;
        match &column.values {
            ColumnData::Float(from) => put(presence, from.iter().copied(), values),
            ColumnData::Signed(from) => put(presence, from.iter().map(|value| *value as f64), values),
            ColumnData::Unsigned(from) => put(presence, from.iter().map(|value| *value as f64), values),
            ColumnData::Boolean(_) | ColumnData::String(_) | ColumnData::Histogram(_) => {}
        }
    }
}

fn put(presence: &Presence, from: impl Iterator<Item = f64>, to: &mut [f64]) {
    match presence {
        Presence::All => to.iter_mut().zip(from).for_each(|(to, from)| *to = from),
        Presence::Some(bitmap) => bitmap
            .iter_ones()
            .zip(from)
            .for_each(|(row, from)| to[row] = from),
    }
}

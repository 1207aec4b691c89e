//! Dispatch of function calls, and functions that process each value separately.
//!
//! Functions with more complex evaluation are in separate modules, such as `range_call` and `info`.

use super::column::{Cell, Column, ColumnBuilder, is_absent, present};
use super::range_call::absent_labels;
use super::selector::Take;
use super::{Scalar, Scope, Value, cost};
use crate::ast::TextRange;
use crate::calendar::Date;
use crate::error::{PromqlError, Result};
use crate::labels::{Labels, METRIC_NAME};
use crate::math;
use crate::plan::{Call, Function, Kind, Node};

impl Scope<'_> {
    /// Evaluates a function call.
    pub(super) fn call(&self, call: &Call<'_>, at: TextRange) -> Result<Value> {
        let arguments = &call.arguments;
        Ok(Value::Vector(match call.function {
            Function::Range(_) | Function::AbsentOverTime => self.range_call(call)?,
            Function::Math(function) => self.mapped(&arguments[0], function)?,
            Function::Date(function) => self.dates(arguments.first(), function)?,
            Function::OfHistogram(function) => self.of_histograms(&arguments[0], function)?,
            Function::Absent => self.absent_call(&arguments[0])?,
            Function::Clamp | Function::ClampMin | Function::ClampMax => self.clamp(call)?,
            Function::Round => self.round(call)?,
            Function::Scalar => return self.scalar_of(&arguments[0]),
            Function::Vector => self.vector_of(&arguments[0])?,
            Function::Time | Function::Pi | Function::MaxOf | Function::MinOf => {
                return self.scalar_call(call);
            }
            Function::Timestamp => self.timestamps(&arguments[0])?,
            Function::StartTimestamp => self.start_timestamps(&arguments[0])?,
            Function::Sort
            | Function::SortDescending
            | Function::SortByLabel
            | Function::SortByLabelDescending => self.sort_call(call, at)?,
            Function::LabelReplace => self.label_replace(arguments)?,
            Function::LabelJoin => self.label_join(arguments)?,
            Function::Info => self.info(arguments)?,
            Function::HistogramQuantile => self.histogram_quantile(arguments)?,
            Function::HistogramQuantiles => self.histogram_quantiles(arguments)?,
            Function::HistogramFraction => self.histogram_fraction(arguments)?,
        }))
    }

    /// Transforms each column and drops its metric name. Replaces the columns and `scalars` scalar arguments
    /// in the budget by the result.
    fn each_column(
        &self,
        columns: Vec<Column>,
        scalars: usize,
        make: impl Fn(Column) -> Option<Column>,
    ) -> Result<Vec<Column>> {
        let before = cost(&columns) + scalars * self.grid.steps;
        let looked_at = columns.len() + scalars;
        let mut made = Vec::with_capacity(columns.len());
        for (position, column) in columns.into_iter().enumerate() {
            self.check_now_and_then(position)?;
            if let Some(mut column) = make(column) {
                self.drop_name(&mut column);
                made.push(column);
            }
        }
        let made = self.merged(made)?;
        self.exchange(looked_at, before, cost(&made))?;
        Ok(made)
    }

    fn mapped(&self, argument: &Node<'_>, function: fn(f64) -> f64) -> Result<Vec<Column>> {
        let columns = self.vector(argument)?;
        self.each_column(columns, 0, |column| column.map_floats(function))
    }

    fn dates(&self, argument: Option<&Node<'_>>, function: fn(&Date) -> i64) -> Result<Vec<Column>> {
        let of_seconds = |seconds: i64| function(&Date::of_seconds(seconds)) as f64;
        let Some(argument) = argument else {
            let mut column = Column::constant(Labels::empty(), 0.0, self.grid.steps);
            for (step, value) in column.values.iter_mut().enumerate() {
                *value = of_seconds(self.grid.time(step) / 1000);
            }
            self.budget().hold(column.cost())?;
            return Ok(vec![column]);
        };
        let columns = self.vector(argument)?;
        self.each_column(columns, 0, |column| {
            column.map_floats(|value| of_seconds(value as i64))
        })
    }

    fn of_histograms(
        &self,
        argument: &Node<'_>,
        function: fn(&tideline_histogram::Histogram) -> f64,
    ) -> Result<Vec<Column>> {
        let columns = self.vector(argument)?;
        let delays_names = self.delays_names();
        self.each_column(columns, 0, |column| {
            let mut builder = ColumnBuilder::new(self.grid.steps);
            for (step, cell) in column.cells() {
                if let Cell::Histogram(histogram) = cell {
                    builder.push_float(step, function(histogram));
                }
            }
            // Without delayed removal, the metric name is removed here. `each_column` also removes `__type__`
            // and `__unit__`.
            let labels = match delays_names {
                true => column.labels,
                false => column.labels.filtered(|name| name != METRIC_NAME),
            };
            builder.finish(labels, true)
        })
    }

    fn absent_call(&self, argument: &Node<'_>) -> Result<Vec<Column>> {
        let labels = match &argument.kind {
            Kind::Selector(selector) => absent_labels(selector.matchers),
            _ => Labels::empty(),
        };
        let columns = self.vector(argument)?;
        let absent = self.absent(&columns, labels)?;
        self.budget().release(cost(&columns));
        Ok(absent)
    }

    fn clamp(&self, call: &Call<'_>) -> Result<Vec<Column>> {
        let columns = self.vector(&call.arguments[0])?;
        let first = self.scalar(&call.arguments[1])?;
        let (low, high) = match call.function {
            Function::ClampMin => (first, Scalar::Constant(f64::INFINITY)),
            Function::ClampMax => (Scalar::Constant(f64::NEG_INFINITY), first),
            _ => (first, self.scalar(&call.arguments[2])?),
        };
        let scalars = call.arguments.len() - 1;
        self.each_column(columns, scalars, |column| {
            self.map_steps(&column, |step, value| {
                let (low, high) = (low.at(step), high.at(step));
                (high >= low || high.is_nan() || low.is_nan()).then(|| math::max(low, math::min(high, value)))
            })
        })
    }

    fn round(&self, call: &Call<'_>) -> Result<Vec<Column>> {
        let columns = self.vector(&call.arguments[0])?;
        let nearest = match call.arguments.get(1) {
            Some(argument) => self.scalar(argument)?,
            None => Scalar::Constant(1.0),
        };
        let scalars = call.arguments.len() - 1;
        self.each_column(columns, scalars, |column| {
            self.map_steps(&column, |step, value| {
                // Multiplying by the inverse loses less precision than dividing.
                let inverse = 1.0 / nearest.at(step);
                Some((value * inverse + 0.5).floor() / inverse)
            })
        })
    }

    /// Transforms each float together with its step; drops histograms.
    fn map_steps(&self, column: &Column, change: impl Fn(usize, f64) -> Option<f64>) -> Option<Column> {
        let mut builder = ColumnBuilder::new(self.grid.steps);
        for (at, value) in column
            .values
            .iter()
            .enumerate()
            .filter(|(_, value)| !is_absent(**value))
        {
            let step = column.first + at;
            if let Some(value) = change(step, *value) {
                builder.push_float(step, value);
            }
        }
        builder.finish(column.labels.clone(), column.drops_name)
    }

    /// Evaluates `scalar(vector)`: at each step, the float if exactly one series has a float, otherwise NaN.
    fn scalar_of(&self, argument: &Node<'_>) -> Result<Value> {
        let columns = self.vector(argument)?;
        let mut values = vec![f64::NAN; self.grid.steps];
        let mut counts = vec![0_u32; self.grid.steps];
        for column in &columns {
            for (at, value) in column
                .values
                .iter()
                .enumerate()
                .filter(|(_, value)| !is_absent(**value))
            {
                let step = column.first + at;
                values[step] = *value;
                counts[step] += 1;
            }
        }
        for (value, count) in values.iter_mut().zip(counts) {
            if count != 1 {
                *value = f64::NAN;
            }
        }
        self.exchange(columns.len(), cost(&columns), self.grid.steps)?;
        Ok(Value::Scalar(Scalar::Steps(values)))
    }

    fn vector_of(&self, argument: &Node<'_>) -> Result<Vec<Column>> {
        let scalar = self.scalar(argument)?;
        let mut column = Column::constant(Labels::empty(), 0.0, self.grid.steps);
        for (step, value) in column.values.iter_mut().enumerate() {
            *value = present(scalar.at(step));
        }
        self.exchange(1, self.grid.steps, column.cost())?;
        Ok(vec![column])
    }

    fn scalar_call(&self, call: &Call<'_>) -> Result<Value> {
        let pair = |function: fn(f64, f64) -> f64| {
            let (left, right) = (self.scalar(&call.arguments[0])?, self.scalar(&call.arguments[1])?);
            self.budget().release(2 * self.grid.steps);
            let values = (0..self.grid.steps).map(|step| function(left.at(step), right.at(step)));
            Ok::<_, PromqlError>(Scalar::Steps(values.collect()))
        };
        let scalar = match call.function {
            Function::MaxOf => pair(math::max)?,
            Function::MinOf => pair(math::min)?,
            Function::Pi => Scalar::Constant(std::f64::consts::PI),
            _ => Scalar::Steps(
                (0..self.grid.steps)
                    .map(|step| self.grid.time(step) as f64 / 1000.0)
                    .collect(),
            ),
        };
        self.budget().hold(self.grid.steps)?;
        Ok(Value::Scalar(scalar))
    }

    fn timestamps(&self, argument: &Node<'_>) -> Result<Vec<Column>> {
        if let Kind::Selector(selector) = &argument.kind {
            return self.sample_times(selector, Take::Time);
        }
        // Computed values have the timestamp of their step.
        let columns = self.vector(argument)?;
        self.each_column(columns, 0, |column| {
            let mut builder = ColumnBuilder::new(self.grid.steps);
            for (step, _) in column.cells() {
                builder.push_float(step, self.grid.time(step) as f64 / 1000.0);
            }
            builder.finish(column.labels, true)
        })
    }

    fn start_timestamps(&self, argument: &Node<'_>) -> Result<Vec<Column>> {
        match &argument.kind {
            Kind::Selector(selector) if self.shared.settings.start_timestamps => {
                self.sample_times(selector, Take::Start)
            }
            // Computed values have no start timestamp. Without the setting `start_timestamps`, no value has one.
            _ => {
                let columns = self.vector(argument)?;
                self.budget().release(cost(&columns));
                Ok(Vec::new())
            }
        }
    }
}

/// Returns the text of a string literal argument. Fails for any other argument.
pub(super) fn text_of<'a>(node: &Node<'a>) -> Result<&'a str> {
    match &node.kind {
        Kind::Text(text) => Ok(&text.value),
        _ => Err(PromqlError::Execution("expected a string literal".to_owned())),
    }
}

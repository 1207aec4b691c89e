//! Range functions: a window slides over the samples of each series.
//!
//! Simple functions over time are offered to the source, which may compute them from its summaries.

use super::budget::Making;
use super::column::{Column, ColumnBuilder, without_metadata};
use super::selector::Wanted;
use super::subquery::SubquerySamples;
use super::window::{CopiedSamples, Slice, Spec};
use super::{Scalar, Scope, cost};
use crate::annotations::Annotation;
use crate::ast::{Bounds, TextRange};
use crate::error::{PromqlError, Result};
use crate::labels::{Labels, LabelsBuilder, METRIC_NAME};
use crate::matcher::{MatchOp, Matcher};
use crate::plan::{Call, Function, Kind, Node, RangeSelector};
use crate::range::RangeFunction;
use crate::source::{OverTime, OverTimeFunction, SeriesData};

/// Computation on a window.
#[derive(Debug, Clone, Copy)]
enum Over {
    Function(RangeFunction),
    /// `absent_over_time`: presence of any sample.
    Presence,
}

impl Over {
    fn keeps_name(self) -> bool {
        matches!(self, Self::Function(function) if function.keeps_name())
    }
}

impl Scope<'_> {
    /// Evaluates a range function.
    pub(super) fn range_call(&self, call: &Call<'_>) -> Result<Vec<Column>> {
        let over = match call.function {
            Function::Range(function) => Over::Function(function),
            _ => Over::Presence,
        };
        let mut parameters = Vec::with_capacity(2);
        let mut ranged = None;
        for argument in &call.arguments {
            match argument.kind {
                Kind::Range(_) | Kind::Subquery(_) => ranged = Some(argument),
                _ => parameters.push(self.scalar(argument)?),
            }
        }
        let ranged =
            ranged.ok_or_else(|| PromqlError::Execution(format!("{} takes a range vector", call.name)))?;
        // Annotations refer to the first argument, even if it is not the range, as in Prometheus.
        let at = call.arguments[0].at;
        let columns = match &ranged.kind {
            Kind::Range(range) => self.over_selector(call, over, range, &parameters, at)?,
            Kind::Subquery(subquery) => self.over_subquery(over, subquery, &parameters, at)?,
            _ => Vec::new(),
        };
        self.budget().release(parameters.len() * self.grid.steps);
        if matches!(over, Over::Presence) {
            return self.absences(&columns, ranged);
        }
        self.must_differ(&columns)?;
        Ok(columns)
    }

    fn over_selector(
        &self,
        call: &Call<'_>,
        over: Over,
        range: &RangeSelector<'_>,
        parameters: &[Scalar],
        at: TextRange,
    ) -> Result<Vec<Column>> {
        check_bounds(call, over, range.selector.bounds)?;
        let spec = Spec::of(range, self.shared.lookback);
        let select = spec.select(range.selector.matchers, self.grid);
        let uses_starts = matches!(over, Over::Function(function) if function.uses_starts());
        let wanted = Wanted {
            first: select.start,
            last: select.end,
            over_time: self.over_time(over, range),
            with_starts: uses_starts && self.shared.settings.start_timestamps,
        };
        self.select(range.selector.matchers, wanted, |labels, data| match data {
            SeriesData::Steps { results, counts } => {
                self.count(counts.iter().copied().enumerate().take(self.grid.steps));
                let mut builder = ColumnBuilder::new(self.grid.steps);
                for (step, value) in results.iter().enumerate().take(self.grid.steps) {
                    if !super::column::is_absent(*value) {
                        builder.push_float(step, *value);
                    }
                }
                Ok(self.finished(builder, over, labels, false, at))
            }
            SeriesData::Samples(samples) => {
                let held = CopiedSamples::of(&samples, range.selector.skips_buckets);
                let mut slice = held.slice(&samples);
                if !wanted.with_starts {
                    (slice.starts, slice.histogram_starts) = (&[], &[]);
                }
                let (builder, last) = self.applied(over, &slice, spec, labels, parameters, at)?;
                let column = self.finished(builder, over, labels, false, at);
                // The result and the last window exist at the same time.
                self.budget()
                    .pass(column.as_ref().map_or(0, |column| column.cost() + last))?;
                Ok(column)
            }
        })
    }

    fn over_subquery(
        &self,
        over: Over,
        subquery: &crate::plan::Subquery<'_>,
        parameters: &[Scalar],
        at: TextRange,
    ) -> Result<Vec<Column>> {
        let (inner, grid, _) = self.subquery(subquery)?;
        let spec = Spec {
            reference: subquery.reference,
            width: subquery.width,
            before: subquery.width,
            after: 0,
            extent: crate::range::Extent::Plain,
            is_counted: true,
        };
        let mut columns = Vec::with_capacity(inner.len());
        let held = cost(&inner);
        for column in inner {
            self.check()?;
            // Reserves memory for the samples and the result, which exist in addition to the column, until the budget
            // accounts for the result.
            let bytes = SubquerySamples::bytes(&column) + self.grid.steps * size_of::<f64>();
            let _held = self.budget().bytes(bytes)?;
            let samples = SubquerySamples::of(&column, grid);
            let (builder, last) =
                self.applied(over, &samples.slice(), spec, &column.labels, parameters, at)?;
            if let Some(column) = self.finished(builder, over, &column.labels, column.drops_name, at) {
                self.exchange(last, 0, column.cost())?;
                columns.push(column);
            }
        }
        self.budget().release(held);
        Ok(columns)
    }

    fn applied(
        &self,
        over: Over,
        slice: &Slice<'_>,
        spec: Spec,
        labels: &Labels,
        parameters: &[Scalar],
        at: TextRange,
    ) -> Result<(ColumnBuilder, usize)> {
        let mut builder = ColumnBuilder::new(self.grid.steps);
        let mut scratch = Vec::new();
        // A function can build a new histogram at each step, from few samples. So the histograms are held from the
        // beginning, and not only when the column is complete.
        let mut making = Making::of(self.budget(), 0);
        let parameter =
            |position: usize, step| parameters.get(position).map_or(0.0, |scalar| scalar.at(step));
        let metric = labels.metric_name().unwrap_or_default();
        let looked = self.slide(slice, spec, metric, at, |step, window, notes| {
            match over {
                Over::Presence => builder.push_float(step, 1.0),
                Over::Function(function) => {
                    let parameters = [parameter(0, step), parameter(1, step)];
                    if let Some(point) = function.apply(window, parameters, &mut scratch, notes)? {
                        making.take_point(&point)?;
                        builder.push(step, point);
                    }
                }
            }
            Ok(())
        })?;
        self.budget().pass(looked.widest)?;
        Ok((builder, looked.last))
    }

    /// Builds the column with its final labels; `None` if it has no value. For `rate` and `increase`, adds the info of
    /// `doubt_counter`.
    fn finished(
        &self,
        builder: ColumnBuilder,
        over: Over,
        labels: &Labels,
        drops_name: bool,
        at: TextRange,
    ) -> Option<Column> {
        let drops_name = drops_name || !over.keeps_name();
        let kept = match drops_name && !self.delays_names() {
            true => without_metadata(labels),
            false => labels.clone(),
        };
        let column = builder.finish(kept, drops_name)?;
        if let Over::Function(RangeFunction::Rate | RangeFunction::Increase) = over {
            self.doubt_counter(labels, &column, at);
        }
        Some(column)
    }

    /// Adds an info if the metric has a name, the name is not that of a counter, and the column has
    /// a float.
    fn doubt_counter(&self, labels: &Labels, column: &Column, at: TextRange) {
        let metric = labels.metric_name().unwrap_or_default();
        let is_counter = ["_total", "_sum", "_count", "_bucket"]
            .iter()
            .any(|suffix| metric.ends_with(suffix));
        if !metric.is_empty()
            && !is_counter
            && column
                .values
                .iter()
                .any(|value| !super::column::is_absent(*value))
        {
            self.annotate(&Annotation::PossibleNonCounter { metric }, at);
        }
    }

    /// Returns the function over time that the source may compute, if any.
    fn over_time(&self, over: Over, range: &RangeSelector<'_>) -> Option<OverTime> {
        let function = match over {
            Over::Function(RangeFunction::SumOverTime) => OverTimeFunction::Sum,
            Over::Function(RangeFunction::AvgOverTime) => OverTimeFunction::Avg,
            Over::Function(RangeFunction::MinOverTime) => OverTimeFunction::Min,
            Over::Function(RangeFunction::MaxOverTime) => OverTimeFunction::Max,
            Over::Function(RangeFunction::CountOverTime) => OverTimeFunction::Count,
            _ => return None,
        };
        let is_plain = range.selector.bounds == Bounds::Plain;
        let is_regular = self.grid.steps == 1 || range.selector.reference.fixed.is_none();
        (is_plain && is_regular).then(|| OverTime {
            function,
            first: range.selector.reference.at(self.grid.start),
            step: self.grid.interval,
            steps: self.grid.steps,
            width: range.width,
        })
    }

    /// Returns a series with the value 1 at each step at which no series has a sample; no series if there is no such
    /// step.
    fn absences(&self, columns: &[Column], ranged: &Node<'_>) -> Result<Vec<Column>> {
        let matchers = match &ranged.kind {
            Kind::Range(range) => range.selector.matchers,
            _ => &[],
        };
        let absent = self.absent(columns, absent_labels(matchers))?;
        self.budget().release(cost(columns));
        Ok(absent)
    }

    /// Computes the series like `absences`, but does not release the cost of the columns.
    pub(super) fn absent(&self, columns: &[Column], labels: Labels) -> Result<Vec<Column>> {
        let is_there = self.steps_with_any(columns);
        let mut builder = ColumnBuilder::new(self.grid.steps);
        for (step, _) in is_there.iter().enumerate().filter(|(_, is_there)| !**is_there) {
            builder.push_float(step, 1.0);
        }
        let column = builder.finish(labels, true);
        self.budget().hold(column.as_ref().map_or(0, Column::cost))?;
        Ok(column.into_iter().collect())
    }
}

/// Returns the labels that equality matchers determine, without the metric name. A label is omitted if
/// another matcher of its name follows the equality.
pub(super) fn absent_labels(matchers: &[Matcher]) -> Labels {
    let mut labels = LabelsBuilder::default();
    let mut has: Vec<&str> = Vec::new();
    for matcher in matchers.iter().filter(|matcher| matcher.name != METRIC_NAME) {
        if matcher.op == MatchOp::Equal && !has.contains(&matcher.name.as_str()) {
            labels.set(&matcher.name, &matcher.value);
            has.push(&matcher.name);
        } else {
            labels.remove(&matcher.name);
        }
    }
    labels.build()
}

fn check_bounds(call: &Call<'_>, over: Over, bounds: Bounds) -> Result<()> {
    let (is_allowed, name, allowed) = match (bounds, over) {
        (Bounds::Plain, _) => return Ok(()),
        (Bounds::Anchored, over) => (
            matches!(over, Over::Function(function) if function.may_be_anchored()),
            "anchored",
            "changes, delta, increase, rate, resets",
        ),
        (Bounds::Smoothed, over) => (
            matches!(over, Over::Function(function) if function.may_be_smoothed()),
            "smoothed",
            "delta, increase, rate",
        ),
    };
    match is_allowed {
        true => Ok(()),
        false => Err(PromqlError::Execution(format!(
            "{name} modifier can only be used with: {allowed} - not with {}",
            call.name
        ))),
    }
}

//! Quantiles and fractions of native histograms and of classic ones, which have one series per bucket.
//!
//! Series are first grouped into families. A family is a native histogram, the buckets of a classic one, or
//! both.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::budget::Making;
use super::call::text_of;
use super::column::{Column, ColumnBuilder, is_absent, without_metadata};
use super::labels_call::with_label;
use super::{Scalar, Scope, cost};
use crate::annotations::Annotation;
use crate::ast::TextRange;
use crate::error::Result;
use crate::histogram_functions::{self, Bucket};
use crate::labels::Labels;
use crate::note::{Note, Notes};
use crate::number;
use crate::plan::Node;

/// Label with the upper bound of a bucket.
const BUCKET_LABEL: &str = "le";

/// Quantile or fraction to compute at a step.
#[derive(Debug, Clone, Copy)]
enum Measure {
    Quantile(f64),
    Fraction(f64, f64),
}

impl Measure {
    fn of_native(self, histogram: &tideline_histogram::Histogram, notes: &mut Notes<'_>) -> f64 {
        match self {
            Self::Quantile(quantile) => histogram_functions::histogram_quantile(quantile, histogram, notes),
            Self::Fraction(lower, upper) => {
                histogram_functions::histogram_fraction(lower, upper, histogram, notes)
            }
        }
    }

    fn of_classic(self, buckets: &mut Vec<Bucket>, notes: &mut Notes<'_>) -> f64 {
        match self {
            Self::Quantile(quantile) => histogram_functions::bucket_quantile(quantile, buckets, notes),
            Self::Fraction(lower, upper) => histogram_functions::bucket_fraction(lower, upper, buckets),
        }
    }
}

/// Series of one histogram: native, classic buckets, or both.
#[derive(Debug)]
struct Family<'a> {
    labels: Labels,
    native: Vec<&'a Column>,
    /// Upper bounds with their series.
    buckets: Vec<(f64, &'a Column)>,
}

impl Scope<'_> {
    /// Evaluates `histogram_quantile(quantile, vector)`.
    pub(super) fn histogram_quantile(&self, arguments: &[Node<'_>]) -> Result<Vec<Column>> {
        let quantile = self.scalar(&arguments[0])?;
        let columns = self.vector(&arguments[1])?;
        self.check_quantile(&quantile, arguments[0].at)?;
        let result = self.measured(&columns, arguments[1].at, |step| {
            Measure::Quantile(quantile.at(step))
        })?;
        self.exchanged(1, &columns, result)
    }

    /// Evaluates `histogram_fraction(lower, upper, vector)`.
    pub(super) fn histogram_fraction(&self, arguments: &[Node<'_>]) -> Result<Vec<Column>> {
        let (lower, upper) = (self.scalar(&arguments[0])?, self.scalar(&arguments[1])?);
        let columns = self.vector(&arguments[2])?;
        let result = self.measured(&columns, arguments[2].at, |step| {
            Measure::Fraction(lower.at(step), upper.at(step))
        })?;
        self.exchanged(2, &columns, result)
    }

    /// Evaluates `histogram_quantiles(vector, label, quantile, …)`.
    pub(super) fn histogram_quantiles(&self, arguments: &[Node<'_>]) -> Result<Vec<Column>> {
        let columns = self.vector(&arguments[0])?;
        let label = text_of(&arguments[1])?;
        let mut result = Vec::new();
        let mut making = Making::of(self.budget(), columns.len());
        for argument in &arguments[2..] {
            let quantile = self.scalar(argument)?;
            self.check_quantile(&quantile, argument.at)?;
            let measured = self.measured(&columns, arguments[0].at, |step| {
                Measure::Quantile(quantile.at(step))
            })?;
            for column in measured {
                self.labelled(&column, label, &quantile, &mut making, &mut result)?;
            }
        }
        let result = self.merged_always(result)?;
        self.exchanged(arguments.len() - 2, &columns, result)
    }

    /// Adds a label with the quantile. If the quantile varies, the column is split into one series per value.
    fn labelled(
        &self,
        column: &Column,
        label: &str,
        quantile: &Scalar,
        making: &mut Making<'_>,
        result: &mut Vec<Column>,
    ) -> Result<()> {
        let mut positions: HashMap<u64, usize> = HashMap::new();
        let mut made: Vec<(Labels, ColumnBuilder)> = Vec::new();
        for (number, (step, cell)) in column.cells().enumerate() {
            self.check_now_and_then(number)?;
            let quantile = quantile.at(step);
            let position = match positions.entry(quantile.to_bits()) {
                Entry::Occupied(entry) => *entry.get(),
                Entry::Vacant(entry) => {
                    let labels = with_label(&column.labels, label, &number::open_metrics(quantile));
                    making.take_series(&labels)?;
                    // There may be as many series as steps, so capacity is not reserved.
                    made.push((labels, ColumnBuilder::new(0)));
                    *entry.insert(made.len() - 1)
                }
            };
            made[position].1.push_cell(step, cell);
        }
        for (labels, builder) in made {
            if let Some(column) = builder.finish(labels, column.drops_name) {
                making.take(column.cost())?;
                result.push(column);
            }
        }
        Ok(())
    }

    fn exchanged(&self, scalars: usize, columns: &[Column], result: Vec<Column>) -> Result<Vec<Column>> {
        let before = scalars * self.grid.steps + cost(columns);
        self.exchange(scalars + columns.len(), before, cost(&result))?;
        Ok(result)
    }

    /// Warns of invalid quantiles. If the quantile varies, warnings are given only for the smallest and the
    /// largest invalid value and for NaN.
    fn check_quantile(&self, quantile: &Scalar, at: TextRange) -> Result<()> {
        let steps = match quantile {
            Scalar::Constant(_) => 1,
            Scalar::Steps(values) => values.len(),
        };
        let (mut has_nan, mut least, mut greatest) = (false, f64::INFINITY, f64::NEG_INFINITY);
        for step in 0..steps {
            self.check_now_and_then(step)?;
            let quantile = quantile.at(step);
            has_nan |= quantile.is_nan();
            (least, greatest) = (least.min(quantile), greatest.max(quantile));
        }
        let wrong = [
            (has_nan, f64::NAN),
            (least < 0.0, least),
            (greatest > 1.0, greatest),
        ];
        for (_, quantile) in wrong.into_iter().filter(|(is_wrong, _)| *is_wrong) {
            self.annotate(&Annotation::InvalidQuantile(quantile), at);
        }
        Ok(())
    }

    fn measured(
        &self,
        columns: &[Column],
        at: TextRange,
        measure: impl Fn(usize) -> Measure,
    ) -> Result<Vec<Column>> {
        let mut result = Vec::new();
        let mut making = Making::of(self.budget(), columns.len());
        for family in self.families(columns, at) {
            for column in self.measured_family(family, at, &measure)? {
                making.take(column.cost())?;
                result.push(column);
            }
        }
        self.merged_always(result)
    }

    /// Computes one column for each native histogram and one for the classic buckets. A step with both has no
    /// result.
    fn measured_family(
        &self,
        family: Family<'_>,
        at: TextRange,
        measure: impl Fn(usize) -> Measure,
    ) -> Result<Vec<Column>> {
        let names_metric = self.delays_names();
        let metric = match names_metric {
            true => family.labels.metric_name().unwrap_or_default(),
            false => "",
        };
        let mut builder = ColumnBuilder::new(self.grid.steps);
        let builder_of = |column: &&Column| ColumnBuilder::new(column.end());
        let mut native_builders: Vec<_> = family.native.iter().map(builder_of).collect();
        let mut buckets = Vec::with_capacity(family.buckets.len());
        for step in 0..self.grid.steps {
            self.check_now_and_then(step)?;
            let mut notes = |note: Note| {
                let time = self.grid.time(step);
                self.annotations(|annotations| annotations.add_note(note, metric, at, time));
            };
            buckets.clear();
            for (upper, column) in &family.buckets {
                let count = column.float(step);
                if !is_absent(count) {
                    buckets.push(Bucket { upper: *upper, count });
                }
            }
            let is_native = family
                .native
                .iter()
                .any(|column| column.histogram(step).is_some());
            if is_native && !buckets.is_empty() {
                self.annotate(&Annotation::MixedClassicNativeHistograms { metric }, at);
                continue;
            }
            for (column, builder) in family.native.iter().zip(&mut native_builders) {
                if let Some(histogram) = column.histogram(step) {
                    builder.push_float(step, measure(step).of_native(histogram, &mut notes));
                }
            }
            if !buckets.is_empty() {
                builder.push_float(step, measure(step).of_classic(&mut buckets, &mut notes));
            }
        }
        let labels = match names_metric {
            true => family.labels,
            false => without_metadata(&family.labels),
        };
        let builders = native_builders.into_iter().chain(std::iter::once(builder));
        Ok(builders
            .filter_map(|builder| builder.finish(labels.clone(), true))
            .collect())
    }

    /// Groups series into families: a native histogram has the labels of its classic form without `le`.
    fn families<'a>(&self, columns: &'a [Column], at: TextRange) -> Vec<Family<'a>> {
        let mut positions: HashMap<Labels, usize> = HashMap::new();
        let mut families: Vec<Family<'a>> = Vec::new();
        let mut family = |labels: Labels| {
            *positions.entry(labels.clone()).or_insert_with(|| {
                families.push(Family {
                    labels,
                    native: Vec::new(),
                    buckets: Vec::new(),
                });
                families.len() - 1
            })
        };
        let mut natives = Vec::new();
        let mut classics = Vec::new();
        for column in columns {
            if column.has_histograms() {
                natives.push((family(column.labels.clone()), column));
            }
            if column.values.iter().all(|value| is_absent(*value)) {
                continue;
            }
            let label = column.labels.get(BUCKET_LABEL).unwrap_or_default();
            match bucket_bound(label) {
                Some(upper) => {
                    let labels = column.labels.filtered(|name| name != BUCKET_LABEL);
                    classics.push((family(labels), upper, column));
                }
                None => {
                    let metric = match self.delays_names() {
                        true => column.labels.metric_name().unwrap_or_default(),
                        false => "",
                    };
                    self.annotate(&Annotation::BadBucketLabel { metric, label }, at);
                }
            }
        }
        for (position, column) in natives {
            families[position].native.push(column);
        }
        for (position, upper, column) in classics {
            families[position].buckets.push((upper, column));
        }
        families
    }
}

/// Parses the upper bound in a bucket label. NaN and finite numbers beyond the range of doubles are invalid.
fn bucket_bound(label: &str) -> Option<f64> {
    let bound: f64 = label.parse().ok().filter(|bound: &f64| !bound.is_nan())?;
    let is_named = label.bytes().any(|byte| matches!(byte, b'n' | b'N'));
    (bound.is_finite() || is_named).then_some(bound)
}

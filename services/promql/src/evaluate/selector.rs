//! Instant vectors: at each step, the last sample of each series within the lookback; stale markers are omitted. The
//! module also evaluates timestamps of samples, and range selectors at the root of a query.
//!
//! The source passes series from several threads at once. Columns are sorted by labels, so they do not depend on the
//! order in which the series are passed.

use std::sync::{Arc, Mutex, PoisonError};

use tideline_histogram::{Histogram, is_stale};

use super::Scope;
use super::budget::Making;
use super::column::{Column, ColumnBuilder, without_metadata};
use super::window::{CopiedSamples, Spec, with_found_reset};
use crate::ast::{Bounds, TextRange};
use crate::error::{PromqlError, Result};
use crate::labels::Labels;
use crate::plan::{Reference, Selector};
use crate::range::{self, Extent, Window};
use crate::source::{OverTime, Samples, Select, SeriesData};

/// Part of a sample that becomes the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Take {
    /// Value.
    Value,
    /// Timestamp in milliseconds.
    Time,
    /// Start timestamp in milliseconds, 0 if unknown.
    Start,
}

/// Index of the last sample, in the list of its type.
#[derive(Debug, Clone, Copy)]
enum Last {
    Number(usize),
    Histogram(usize),
}

/// Number of steps of a series between two checks for timeout and cancellation.
const UNCHECKED_MAX: usize = 1 << 20;

/// Request to the source: first and last timestamp (both inclusive, in milliseconds) and options.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    pub(super) first: i64,
    pub(super) last: i64,
    pub(super) over_time: Option<OverTime>,
    pub(super) with_starts: bool,
}

impl Scope<'_> {
    /// Builds a column for each selected series for which `make` returns one, in several threads at once. The result is
    /// sorted by labels.
    pub(super) fn select(
        &self,
        matchers: &[crate::matcher::Matcher],
        wanted: Wanted,
        make: impl Fn(&Labels, SeriesData<'_>) -> Result<Option<Column>> + Sync,
    ) -> Result<Vec<Column>> {
        let select = Select {
            matchers,
            start: wanted.first,
            end: wanted.last,
            over_time: wanted.over_time,
            with_starts: wanted.with_starts,
        };
        let columns = Mutex::new(Vec::new());
        self.shared.source.select(&select, &|labels, data| {
            self.check()?;
            let _reservation = self.budget().reserve_column(self.grid.steps)?;
            if let Some(column) = make(labels, data)? {
                self.budget().hold(column.cost())?;
                self.budget().hold_labels(&column.labels)?;
                columns
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(column);
            }
            Ok(())
        })?;
        let mut columns: Vec<Column> = columns.into_inner().unwrap_or_else(PoisonError::into_inner);
        columns.sort_unstable_by(|a, b| a.labels.cmp(&b.labels));
        Ok(columns)
    }

    /// Evaluates an instant vector selector.
    pub(super) fn instant_vector(&self, selector: &Selector<'_>, at: TextRange) -> Result<Vec<Column>> {
        if selector.bounds == Bounds::Smoothed {
            return self.smoothed_vector(selector, at);
        }
        self.last_samples(
            selector.matchers,
            selector.reference,
            Take::Value,
            selector.skips_buckets,
        )
    }

    /// Builds columns from the last sample within the lookback at each step.
    pub(super) fn last_samples(
        &self,
        matchers: &[crate::matcher::Matcher],
        reference: Reference,
        take: Take,
        skips_buckets: bool,
    ) -> Result<Vec<Column>> {
        let wanted = self.last_wanted(reference, take == Take::Start);
        let columns = self.select(matchers, wanted, |labels, data| {
            let SeriesData::Samples(samples) = data else {
                return Ok(None);
            };
            let column = self.taken(&samples, reference, take, skips_buckets)?;
            Ok(column.finish(labels.clone(), false))
        })?;
        self.count_values_of(&columns);
        Ok(columns)
    }

    /// Builds columns with the timestamps, in milliseconds, of the last samples within the lookback at each step. Only
    /// series that `takes` accepts are included. Fails if such a series has a histogram as its last sample at some
    /// step; `refusal` creates the error for the first of these series by labels.
    pub(super) fn last_times_of_numbers(
        &self,
        matchers: &[crate::matcher::Matcher],
        reference: Reference,
        takes: impl Fn(&Labels) -> bool + Sync,
        refusal: impl Fn(&Labels) -> PromqlError,
    ) -> Result<Vec<Column>> {
        let wanted = self.last_wanted(reference, false);
        let refused: Mutex<Option<Labels>> = Mutex::new(None);
        let columns = self.select(matchers, wanted, |labels, data| {
            let SeriesData::Samples(samples) = data else {
                return Ok(None);
            };
            if !takes(labels) {
                return Ok(None);
            }
            let mut builder = ColumnBuilder::new(self.grid.steps);
            let mut has_histogram = false;
            self.each_last(&samples, reference, |step, last| match last {
                Last::Number(at) => builder.push_float(step, samples.times[at] as f64),
                Last::Histogram(_) => has_histogram = true,
            })?;
            if has_histogram {
                // The source passes series in any order; keep the first by labels.
                let mut refused = refused.lock().unwrap_or_else(PoisonError::into_inner);
                if refused.as_ref().is_none_or(|before| labels < before) {
                    *refused = Some(labels.clone());
                }
            }
            Ok(builder.finish(labels.clone(), false))
        })?;
        if let Some(labels) = refused.into_inner().unwrap_or_else(PoisonError::into_inner) {
            return Err(refusal(&labels));
        }
        self.count_values_of(&columns);
        Ok(columns)
    }

    fn last_wanted(&self, reference: Reference, with_starts: bool) -> Wanted {
        Wanted {
            first: reference
                .at(self.grid.start)
                .saturating_sub(self.shared.lookback - 1),
            last: reference.at(self.grid.last()),
            over_time: None,
            with_starts,
        }
    }

    /// Counts the values as processed samples, histograms by their size.
    fn count_values_of(&self, columns: &[Column]) {
        for column in columns {
            self.count(column.cells().map(|(step, cell)| (step, cell.size() as u64)));
        }
    }

    /// Calls `visit` for each step with its last sample within the lookback, unless this sample is a stale marker.
    fn each_last(
        &self,
        samples: &Samples<'_>,
        reference: Reference,
        mut visit: impl FnMut(usize, Last),
    ) -> Result<()> {
        let (mut floats, mut histograms) = (0, 0);
        for step in 0..self.grid.steps {
            if step % UNCHECKED_MAX == UNCHECKED_MAX - 1 {
                self.check()?;
            }
            let time = reference.at(self.grid.time(step));
            floats += count_while(&samples.times[floats..], time);
            histograms += count_while(&samples.histogram_times[histograms..], time);
            let oldest = time.saturating_sub(self.shared.lookback);
            let float = floats.checked_sub(1).filter(|at| samples.times[*at] > oldest);
            let histogram = histograms
                .checked_sub(1)
                .filter(|at| samples.histogram_times[*at] > oldest);
            let last = match (float, histogram) {
                (None, None) => continue,
                (Some(at), None) => Last::Number(at),
                (None, Some(at)) => Last::Histogram(at),
                (Some(float), Some(histogram)) => {
                    match samples.histogram_times[histogram] > samples.times[float] {
                        true => Last::Histogram(histogram),
                        false => Last::Number(float),
                    }
                }
            };
            let value = match last {
                Last::Number(at) => samples.values[at],
                Last::Histogram(at) => samples.histograms[at].sum,
            };
            if !is_stale(value) {
                visit(step, last);
            }
        }
        Ok(())
    }

    fn taken(
        &self,
        samples: &Samples<'_>,
        reference: Reference,
        take: Take,
        skips_buckets: bool,
    ) -> Result<ColumnBuilder> {
        let mut builder = ColumnBuilder::new(self.grid.steps);
        let mut shared: Option<(usize, Arc<Histogram>)> = None;
        self.each_last(samples, reference, |step, last| {
            let value = match (take, last) {
                (Take::Value, Last::Number(at)) => samples.values[at],
                (Take::Time, Last::Number(at)) => samples.times[at] as f64,
                (Take::Start, Last::Number(at)) => start(samples.starts, at),
                (Take::Time, Last::Histogram(at)) => samples.histogram_times[at] as f64,
                (Take::Start, Last::Histogram(at)) => start(samples.histogram_starts, at),
                (Take::Value, Last::Histogram(at)) => {
                    let histogram = match shared.take().filter(|(of, _)| *of == at) {
                        Some((_, histogram)) => histogram,
                        None => Arc::new(match skips_buckets {
                            true => with_found_reset(&samples.histograms[at], before(samples, at)),
                            false => samples.histograms[at].clone(),
                        }),
                    };
                    builder.push_histogram(step, Arc::clone(&histogram));
                    shared = Some((at, histogram));
                    return;
                }
            };
            builder.push_float(step, value);
        })?;
        Ok(builder)
    }

    /// Evaluates `timestamp(selector)` and `start_timestamp(selector)`, in seconds.
    pub(super) fn sample_times(&self, selector: &Selector<'_>, take: Take) -> Result<Vec<Column>> {
        let columns = self.last_samples(selector.matchers, selector.reference, take, true)?;
        self.budget().pass(columns.len())?;
        let columns = columns.into_iter().filter_map(|column| {
            let mut column = column.map_floats(|milliseconds| milliseconds / 1000.0)?;
            column.drops_name = true;
            if !self.delays_names() {
                column.labels = without_metadata(&column.labels);
            }
            Some(column)
        });
        self.merged_held(columns.collect(), false)
    }

    /// Evaluates `selector smoothed`: interpolates between the adjacent samples.
    fn smoothed_vector(&self, selector: &Selector<'_>, at: TextRange) -> Result<Vec<Column>> {
        let lookback = self.shared.lookback;
        let reference = selector.reference;
        let wanted = Wanted {
            first: reference.at(self.grid.start).saturating_sub(lookback - 1),
            last: reference.at(self.grid.last()).saturating_add(lookback),
            over_time: None,
            with_starts: false,
        };
        self.select(selector.matchers, wanted, |labels, data| {
            let SeriesData::Samples(samples) = data else {
                return Ok(None);
            };
            let held = CopiedSamples::of(&samples, false);
            let slice = held.slice(&samples);
            let metric = labels.metric_name().unwrap_or_default();
            let spec = Spec {
                reference,
                width: 0,
                before: lookback,
                after: lookback,
                extent: Extent::Plain,
                is_counted: true,
            };
            let mut builder = ColumnBuilder::new(self.grid.steps);
            // Each step can have a new histogram, so the histograms are held before the column is complete.
            let mut making = Making::of(self.budget(), 0);
            self.slide(&slice, spec, metric, at, |step, window, notes| {
                if let Some(point) = range::smooth_at(window, notes) {
                    making.take_point(&point)?;
                    builder.push(step, point);
                }
                Ok(())
            })?;
            Ok(builder.finish(labels.clone(), false))
        })
    }

    /// Reads the samples of a range selector at the root of an instant query, with their own timestamps.
    pub(super) fn range_series(
        &self,
        range: &crate::plan::RangeSelector<'_>,
        at: TextRange,
    ) -> Result<Vec<crate::value::Series>> {
        let spec = Spec {
            // The returned samples, including interpolated bounds, are counted below instead.
            is_counted: false,
            ..Spec::of(range, self.shared.lookback)
        };
        let series = Mutex::new(Vec::new());
        let select = spec.select(range.selector.matchers, self.grid);
        self.shared.source.select(&select, &|labels, data| {
            self.check()?;
            let SeriesData::Samples(samples) = data else {
                return Ok(());
            };
            let held = CopiedSamples::of(&samples, range.selector.skips_buckets);
            let slice = held.slice(&samples);
            let metric = labels.metric_name().unwrap_or_default();
            self.slide(&slice, spec, metric, at, |step, window, _| {
                let found = range_samples(window, labels)?;
                let count = found.floats.len() + slice_cost(window);
                self.budget().hold(count)?;
                self.budget().hold_labels(labels)?;
                self.count(std::iter::once((step, count as u64)));
                if !found.floats.is_empty() || !found.histograms.is_empty() {
                    series.lock().unwrap_or_else(PoisonError::into_inner).push(found);
                }
                Ok(())
            })?;
            Ok(())
        })?;
        Ok(series.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}

fn range_samples(window: &Window<'_>, labels: &Labels) -> Result<crate::value::Series> {
    let name = match window.extent {
        Extent::Plain => None,
        Extent::Anchored => Some("anchored"),
        Extent::Smoothed => Some("smoothed"),
    };
    if let Some(name) = name.filter(|_| !window.histogram_times.is_empty()) {
        return Err(PromqlError::Execution(format!(
            "{name} modifier is not supported with histograms"
        )));
    }
    let times = window.times.iter().copied();
    let histogram_times = window.histogram_times.iter().copied();
    Ok(crate::value::Series {
        labels: labels.clone(),
        floats: match name {
            None => times.zip(window.values.iter().copied()).collect(),
            Some(_) => range::extend_floats(window),
        },
        histograms: histogram_times.zip(window.histograms.iter().cloned()).collect(),
    })
}

fn slice_cost(window: &Window<'_>) -> usize {
    window
        .histograms
        .iter()
        .map(|histogram| histogram.sample_size())
        .sum()
}

/// Returns the number of leading timestamps that are at most `until`.
#[inline]
pub(super) fn count_while(times: &[i64], until: i64) -> usize {
    // Steps are close together, so a linear search is faster than a binary search.
    times.iter().take_while(|time| **time <= until).count()
}

fn before<'a>(samples: &Samples<'a>, at: usize) -> Option<&'a Histogram> {
    at.checked_sub(1).map(|before| &samples.histograms[before])
}

fn start(starts: &[i64], at: usize) -> f64 {
    starts.get(at).copied().unwrap_or(0) as f64
}

//! Sample buffers of the series of one timeline, filled run by run and reused for the next timeline.
//!
//! If several points fall into one millisecond, the last one counts. If a series has a number and a histogram in
//! one millisecond, the number counts.

use tideline_engine::model::{ColumnData, FieldId};
use tideline_engine::points::{Presence, Run, RunColumn};
use tideline_histogram::{Histogram, Span};
use tideline_promql::{PromqlError, Result, Samples};

use crate::names::Measurement;
use crate::time::to_millis;

/// Size in bytes up to which buffers are reused for the next timeline; larger ones are freed.
const KEPT_BYTES_MAX: u64 = 4 << 20;

/// Role of a field in the series of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// Numbers of the metric with this index.
    Number(usize),
    /// Histograms of the metric with this index.
    Histogram(usize),
    /// Start timestamps of all metrics.
    Start,
}

/// Roles of the fields of a measurement, by field id.
#[derive(Debug)]
pub(crate) struct Layout {
    roles: Vec<(FieldId, Role)>,
    /// Number of metrics of the measurement.
    pub(crate) metrics: usize,
}

/// Samples of one series.
#[derive(Debug, Clone, Default)]
pub(crate) struct SampleBuffer {
    pub(crate) numbers: Line<f64>,
    pub(crate) histograms: Line<Histogram>,
    /// Bytes that the histograms hold on the heap.
    heap: u64,
}

/// Values of one kind in ascending order of milliseconds.
#[derive(Debug, Clone)]
pub(crate) struct Line<T> {
    pub(crate) times: Vec<i64>,
    pub(crate) values: Vec<T>,
    /// Start timestamps, one per value; empty if none is known.
    pub(crate) starts: Vec<i64>,
}

/// Samples of all series of one timeline.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    /// Series, by index of the metric.
    pub(crate) series: Vec<SampleBuffer>,
    /// Timestamps of the rows of the current run in milliseconds.
    times: Vec<i64>,
    /// Start timestamps of the rows of the current run, 0 = unknown; empty if the run has none.
    starts: Vec<i64>,
}

impl Layout {
    /// Returns the layout of a measurement. `start` is the field of start timestamps, if they are wanted.
    pub(crate) fn new(measurement: &Measurement, start: Option<FieldId>) -> Self {
        Self::of_some(measurement, start, |_| true)
    }

    /// Returns a layout with only the metrics whose index `takes` accepts.
    pub(crate) fn of_some(
        measurement: &Measurement,
        start: Option<FieldId>,
        takes: impl Fn(usize) -> bool,
    ) -> Self {
        let mut roles: Vec<(FieldId, Role)> = start.map(|field| (field, Role::Start)).into_iter().collect();
        let metrics = measurement.metrics.iter().enumerate();
        for (at, metric) in metrics.filter(|(at, _)| takes(*at)) {
            roles.extend(metric.number.map(|field| (field, Role::Number(at))));
            roles.extend(metric.histogram.map(|field| (field, Role::Histogram(at))));
        }
        roles.sort_unstable_by_key(|(field, _)| *field);
        Self {
            roles,
            metrics: measurement.metrics.len(),
        }
    }

    fn role(&self, field: FieldId) -> Option<Role> {
        let at = self
            .roles
            .binary_search_by_key(&field, |(field, _)| *field)
            .ok()?;
        Some(self.roles[at].1)
    }

    /// Returns the index of the metric whose numbers a field contains.
    pub(crate) fn number(&self, field: FieldId) -> Option<usize> {
        match self.role(field)? {
            Role::Number(metric) => Some(metric),
            Role::Histogram(_) | Role::Start => None,
        }
    }
}

impl Gathered {
    /// Starts a timeline with this number of metrics.
    pub(crate) fn begin(&mut self, metrics: usize) {
        self.series
            .resize_with(metrics.max(self.series.len()), SampleBuffer::default);
        self.series.iter_mut().for_each(SampleBuffer::clear);
        if self.bytes() > KEPT_BYTES_MAX {
            self.series.fill_with(SampleBuffer::default);
        }
    }

    /// Returns the approximate memory in bytes. Visits each metric.
    pub(crate) fn bytes(&self) -> u64 {
        self.series.iter().map(SampleBuffer::bytes).sum()
    }

    /// Sets the reset hints of the histograms, which depend on earlier samples, and then removes the samples before
    /// `start`. All runs of the timeline must have been added.
    pub(crate) fn forget_before(&mut self, start: i64) {
        for series in &mut self.series {
            series.note_resets();
            series.numbers.retain(|time| time >= start);
            series.histograms.retain(|time| time >= start);
        }
    }

    /// Adds a run of the timeline.
    pub(crate) fn take(&mut self, run: &Run, layout: &Layout) -> Result<()> {
        let is_plain = to_millis(&run.timestamps, &mut self.times);
        self.take_starts(run, layout);
        for columns in run.columns.chunk_by(|a, b| a.field == b.field) {
            let role = layout.role(columns[0].field);
            match (role, columns) {
                (Some(Role::Number(metric)), [column]) => {
                    let line = &mut self.series[metric].numbers;
                    line.take_numbers(column, &self.times, &self.starts, is_plain);
                }
                (Some(Role::Number(metric)), columns) => {
                    let line = &mut self.series[metric].numbers;
                    line.take_mixed(columns, &self.times, &self.starts);
                }
                (Some(Role::Histogram(metric)), columns) => {
                    let series = &mut self.series[metric];
                    for column in columns {
                        let line = &mut series.histograms;
                        series.heap += line.take_histograms(column, &self.times, &self.starts)?;
                    }
                }
                (Some(Role::Start) | None, _) => {}
            }
        }
        Ok(())
    }

    /// Removes all samples except the last number and the last histogram of each series, which determine the reset hint
    /// of the next histogram.
    pub(crate) fn keep_last(&mut self) {
        for series in &mut self.series {
            *series = SampleBuffer::of(series.numbers.split_last(), series.histograms.split_last());
        }
    }

    /// Returns the last millisecond of the last added run, which may be a run of an earlier timeline; `None` if no run
    /// has been added.
    pub(crate) fn last(&self) -> Option<i64> {
        self.times.last().copied()
    }

    fn take_starts(&mut self, run: &Run, layout: &Layout) {
        self.starts.clear();
        let is_start = |column: &&RunColumn| layout.role(column.field) == Some(Role::Start);
        for column in run.columns.iter().filter(is_start) {
            self.starts.resize(run.rows(), 0);
            for (at, row) in rows(column, run.rows()).enumerate() {
                self.starts[row] = match &column.values {
                    ColumnData::Signed(values) => values[at],
                    ColumnData::Unsigned(values) => i64::try_from(values[at]).unwrap_or(0),
                    ColumnData::Float(values) => values[at] as i64,
                    _ => 0,
                };
            }
        }
    }
}

impl SampleBuffer {
    pub(crate) fn is_empty(&self) -> bool {
        self.numbers.times.is_empty() && self.histograms.times.is_empty()
    }

    fn clear(&mut self) {
        self.numbers.clear();
        self.histograms.clear();
        self.heap = 0;
    }

    /// Creates a buffer from existing lines.
    pub(crate) fn of(numbers: Line<f64>, histograms: Line<Histogram>) -> Self {
        let heap = histograms.values.iter().map(heap_bytes).sum();
        Self {
            numbers,
            histograms,
            heap,
        }
    }

    /// Removes histograms with the timestamp of a number, sets the reset hints, and returns the samples.
    pub(crate) fn samples(&mut self) -> Samples<'_> {
        if !self.histograms.times.is_empty() && !self.numbers.times.is_empty() {
            let numbers = &self.numbers.times;
            self.histograms
                .retain(|time| numbers.binary_search(&time).is_err());
        }
        self.note_resets();
        Samples {
            times: &self.numbers.times,
            values: &self.numbers.values,
            starts: &self.numbers.starts,
            histogram_times: &self.histograms.times,
            histograms: &self.histograms.values,
            histogram_starts: &self.histograms.starts,
        }
    }

    /// Sets the reset hint of each histogram from its predecessor; the first keeps its stored hint.
    fn note_resets(&mut self) {
        let Self {
            numbers, histograms, ..
        } = self;
        for at in 1..histograms.values.len() {
            let (before, rest) = histograms.values.split_at_mut(at);
            // A histogram that follows a number has no predecessor.
            let times = (histograms.times[at - 1], histograms.times[at]);
            let next_number = numbers.times.partition_point(|time| *time < times.0);
            let is_behind_number = numbers.times.get(next_number).is_some_and(|time| *time < times.1);
            let previous = before.last().filter(|_| !is_behind_number);
            rest[0].reset_hint = rest[0].reset_hint_after(previous);
        }
    }

    /// Returns the approximate memory in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.numbers.bytes() + self.histograms.bytes() + self.heap
    }
}

impl<T> Default for Line<T> {
    fn default() -> Self {
        Self {
            times: Vec::new(),
            values: Vec::new(),
            starts: Vec::new(),
        }
    }
}

impl<T> Line<T> {
    fn clear(&mut self) {
        self.times.clear();
        self.values.clear();
        self.starts.clear();
    }

    /// Returns the approximate memory in bytes, without heap data of the values.
    fn bytes(&self) -> u64 {
        let instants = self.times.capacity() + self.starts.capacity();
        (instants * size_of::<i64>() + self.values.capacity() * size_of::<T>()) as u64
    }

    /// Appends a value, replacing one in the same millisecond. `start` is 0 if it is not known.
    pub(crate) fn push(&mut self, time: i64, value: T, start: i64) {
        if self.times.last() == Some(&time) {
            self.times.pop();
            self.values.pop();
            self.starts.truncate(self.times.len());
        }
        if start != 0 && self.starts.is_empty() {
            self.starts.resize(self.times.len(), 0);
        }
        if start != 0 || !self.starts.is_empty() {
            self.starts.push(start);
        }
        self.times.push(time);
        self.values.push(value);
    }

    /// Removes and returns the last value, if there is one.
    fn split_last(&mut self) -> Self {
        let last = self.times.len().saturating_sub(1);
        Self {
            times: self.times.split_off(last),
            values: self.values.split_off(last),
            starts: self.starts.split_off(last.min(self.starts.len())),
        }
    }

    fn retain(&mut self, keep: impl Fn(i64) -> bool) {
        let kept: Vec<bool> = self.times.iter().map(|time| keep(*time)).collect();
        if kept.iter().all(|kept| *kept) {
            return;
        }
        let mut next = kept.iter();
        self.times.retain(|_| next.next() == Some(&true));
        let mut next = kept.iter();
        self.values.retain(|_| next.next() == Some(&true));
        let mut next = kept.iter();
        self.starts.retain(|_| next.next() == Some(&true));
    }
}

impl Line<f64> {
    /// Appends the numbers of a column. `is_plain` is true if no two rows are in one millisecond.
    fn take_numbers(&mut self, column: &RunColumn, times: &[i64], starts: &[i64], is_plain: bool) {
        let follows = is_plain && self.times.last() < times.first();
        let is_whole =
            matches!(column.presence, Presence::All) && starts.is_empty() && self.starts.is_empty();
        if follows && is_whole {
            self.times.extend_from_slice(times);
            match &column.values {
                ColumnData::Float(values) => self.values.extend_from_slice(values),
                ColumnData::Signed(values) => self.values.extend(values.iter().map(|value| *value as f64)),
                ColumnData::Unsigned(values) => self.values.extend(values.iter().map(|value| *value as f64)),
                ColumnData::Boolean(values) => {
                    self.values
                        .extend(values.iter().map(|value| f64::from(u8::from(*value))));
                }
                ColumnData::String(_) | ColumnData::Histogram(_) => self.times.truncate(self.values.len()),
            }
            return;
        }
        for (at, row) in rows(column, times.len()).enumerate() {
            if let Some(value) = number(&column.values, at) {
                self.push(times[row], value, starts.get(row).copied().unwrap_or(0));
            }
        }
    }

    /// Appends the numbers of columns of several types.
    fn take_mixed(&mut self, columns: &[RunColumn], times: &[i64], starts: &[i64]) {
        let mut all: Vec<(usize, f64)> = Vec::new();
        for column in columns {
            let numbered = rows(column, times.len()).enumerate();
            all.extend(numbered.filter_map(|(at, row)| Some((row, number(&column.values, at)?))));
        }
        all.sort_unstable_by_key(|(row, _)| *row);
        for (row, value) in all {
            self.push(times[row], value, starts.get(row).copied().unwrap_or(0));
        }
    }
}

impl Line<Histogram> {
    /// Appends the histograms of a column; returns their heap bytes.
    fn take_histograms(&mut self, column: &RunColumn, times: &[i64], starts: &[i64]) -> Result<u64> {
        let ColumnData::Histogram(values) = &column.values else {
            return Ok(0);
        };
        let mut heap = 0;
        for (at, row) in rows(column, times.len()).enumerate() {
            let histogram = Histogram::from_bytes(values.get(at)).map_err(|error| PromqlError::Storage {
                message: format!("a stored histogram cannot be read: {error}"),
                is_overloaded: false,
            })?;
            heap += heap_bytes(&histogram);
            self.push(times[row], histogram, starts.get(row).copied().unwrap_or(0));
        }
        Ok(heap)
    }
}

/// Returns the samples from `from` (included) to `until` (excluded), in milliseconds; `None` if there are no samples.
pub(crate) fn between(all: Samples<'_>, from: i64, until: Option<i64>) -> Option<Samples<'_>> {
    let within = |times: &[i64]| {
        let first = times.partition_point(|time| *time < from);
        let end = until.map_or(times.len(), |until| times.partition_point(|time| *time < until));
        first..end.max(first)
    };
    let (numbers, histograms) = (within(all.times), within(all.histogram_times));
    let is_some = !(numbers.is_empty() && histograms.is_empty());
    is_some.then(|| Samples {
        times: &all.times[numbers.clone()],
        values: &all.values[numbers.clone()],
        starts: all.starts.get(numbers).unwrap_or_default(),
        histogram_times: &all.histogram_times[histograms.clone()],
        histograms: &all.histograms[histograms.clone()],
        histogram_starts: all.histogram_starts.get(histograms).unwrap_or_default(),
    })
}

/// Returns the heap bytes of a histogram.
fn heap_bytes(histogram: &Histogram) -> u64 {
    let spans = histogram.positive_spans.capacity() + histogram.negative_spans.capacity();
    let counts = histogram.positive_buckets.capacity() + histogram.negative_buckets.capacity();
    let numbers = counts + histogram.custom_values.capacity();
    (spans * size_of::<Span>() + numbers * size_of::<f64>()) as u64
}

/// Returns the rows that have a value in a column, ascending.
pub(crate) fn rows(column: &RunColumn, count: usize) -> impl Iterator<Item = usize> {
    let (all, some) = match &column.presence {
        Presence::All => (0..count, None),
        Presence::Some(bitmap) => (0..0, Some(bitmap.iter_ones())),
    };
    all.chain(some.into_iter().flatten())
}

fn number(values: &ColumnData, at: usize) -> Option<f64> {
    match values {
        ColumnData::Float(values) => Some(values[at]),
        ColumnData::Signed(values) => Some(values[at] as f64),
        ColumnData::Unsigned(values) => Some(values[at] as f64),
        ColumnData::Boolean(values) => Some(f64::from(u8::from(values[at]))),
        ColumnData::String(_) | ColumnData::Histogram(_) => None,
    }
}

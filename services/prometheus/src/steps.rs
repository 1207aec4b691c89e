//! Windows of a timeline's series, computed run by run without keeping samples.
//!
//! Sums are compensated, or exact for integers, and therefore at least as exact as sums of single samples. Unusual data
//! must be evaluated from samples: NaN including stale markers, sums beyond the range of doubles, sums whose values
//! nearly cancel, and several points in one millisecond.

use tideline_engine::model::{ColumnData, CompensatedSum};
use tideline_engine::points::{ColumnSummary, Number, Presence, Run, RunColumn, Sum, ValueSummary};
use tideline_engine::points::{Grid, Part};
use tideline_promql::source::{NO_RESULT_BITS, OverTime, OverTimeFunction, SeriesData};

use crate::samples::{Layout, rows};
use crate::time::{NANOS_PER_MILLI, to_millis};

/// Maximum number of cells (metrics × windows) of a timeline; with more, windows are computed from samples. Each worker
/// holds the cells of one timeline, also those of windows without samples.
const CELLS_MAX: usize = 1 << 18;
/// Bytes of a cell, its result and its count.
const CELL_BYTES: usize = size_of::<Cell>() + size_of::<f64>() + size_of::<u64>();
/// Largest ratio subtrahend ÷ result before cancellation makes the difference of doubles unreliable.
const LARGE: f64 = 16.0;
/// Largest ratio correction ÷ sum at which a sum counts as reliable.
const CANCELLED: f64 = 1e-6;
/// Offset that maps signed to unsigned integers in the same order.
const BIAS: u64 = 1 << 63;

/// Windows of the series of one timeline.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    over_time: Option<OverTime>,
    /// Cells, metric by metric and window by window.
    cells: Vec<Cell>,
    results: Vec<f64>,
    counts: Vec<u64>,
    /// Flags by metric: true if some window has a value.
    has_any: Vec<bool>,
    /// True if the windows cannot be computed without samples.
    is_doubtful: bool,
    times: Vec<i64>,
    sparse_times: Vec<i64>,
    segments: Vec<Segment>,
    /// Last millisecond so far.
    last: Option<i64>,
    /// True if the last timeline was read with summaries and has timestamps that are not whole milliseconds.
    pub(crate) has_fractions: bool,
}

/// Accumulated values of a window.
#[derive(Debug, Clone, Copy, Default)]
struct Cell {
    count: u64,
    /// Sum of the values. For `Min` and `Max`, its field `sum` holds the lowest or highest value.
    value: CompensatedSum,
}

/// Values of a run that are in one window.
#[derive(Debug, Clone, Copy)]
struct Segment {
    window: usize,
    start: usize,
    end: usize,
}

impl Steps {
    /// Returns true if windows can be computed here: each sample is in at most one window.
    pub(crate) fn can_compute(over_time: &OverTime) -> bool {
        over_time.step > 0 && (over_time.width <= over_time.step || over_time.steps <= 1)
    }

    /// Returns the bytes that a timeline with this number of metrics takes; `None` if it has too many cells, so that
    /// samples are needed.
    pub(crate) fn bytes(over_time: &OverTime, metrics: usize) -> Option<u64> {
        let cells = metrics.checked_mul(over_time.steps)?;
        (cells <= CELLS_MAX).then(|| (cells * CELL_BYTES) as u64)
    }

    /// Starts a timeline with this number of metrics.
    pub(crate) fn begin(&mut self, over_time: &OverTime, metrics: usize) {
        let step = match over_time.steps {
            0 | 1 => over_time.width.max(1),
            _ => over_time.step,
        };
        self.over_time = Some(OverTime { step, ..*over_time });
        self.has_fractions = false;
        self.cells.clear();
        self.cells.resize(metrics * over_time.steps, Cell::default());
        (self.is_doubtful, self.last) = (false, None);
    }

    /// Returns the windows for a read in which summaries may replace samples; `None` if summaries must not be used.
    ///
    /// Windows of the reader include their start; windows of PromQL include their end. The first value of a summary is
    /// therefore moved to the previous window if its timestamp is the start of a window. The move requires a function
    /// from whose result a value can be subtracted, windows without gaps, and timestamps in whole milliseconds.
    pub(crate) fn grid(&self) -> Option<Grid> {
        let over_time = self.over_time?;
        let is_sum = match over_time.function {
            OverTimeFunction::Sum | OverTimeFunction::Avg | OverTimeFunction::Count => true,
            OverTimeFunction::Min | OverTimeFunction::Max => false,
        };
        let width = over_time.step.checked_mul(NANOS_PER_MILLI)?;
        let offset = over_time.first.checked_mul(NANOS_PER_MILLI)?.rem_euclid(width);
        (is_sum && over_time.step == over_time.width).then_some(Grid::Windows { width, offset })
    }

    /// Adds a part of a read with summaries; parts can come in any order. Returns false if samples are needed, so
    /// that reading can stop.
    pub(crate) fn take_part(&mut self, part: Part<'_>, layout: &Layout) -> bool {
        let is_computed = match part {
            Part::Run(run) => {
                self.has_fractions |= run.timestamps.iter().any(|nanos| nanos % NANOS_PER_MILLI != 0);
                self.last = None;
                !self.has_fractions && self.take(run, layout)
            }
            Part::Summaries(field, summaries) => match layout.number(field) {
                Some(metric) => summaries.iter().all(|summary| match summary {
                    ColumnSummary::Known(summary) => self.take_summary(metric, summary).is_some(),
                    ColumnSummary::Empty | ColumnSummary::Unknown => true,
                }),
                None => true,
            },
        };
        self.is_doubtful |= !is_computed;
        is_computed
    }

    /// Adds a summary to its window. A first value at the start of the window is added to the previous window instead.
    /// Returns `None` if samples are needed.
    fn take_summary(&mut self, metric: usize, summary: &ValueSummary) -> Option<()> {
        let OverTime {
            first, step, steps, ..
        } = self.over_time?;
        let (begin, last) = (summary.first.0, summary.last.0);
        if begin % NANOS_PER_MILLI != 0 || last % NANOS_PER_MILLI != 0 {
            self.has_fractions = true;
            return None;
        }
        let (begin, last) = (begin / NANOS_PER_MILLI, last / NANOS_PER_MILLI);
        if i128::from(summary.count) > i128::from(last) - i128::from(begin) + 1 {
            return None;
        }
        let since = begin.checked_sub(first)?;
        let window = since.div_euclid(step) + 1;
        let is_before = since.rem_euclid(step) == 0;
        let index = |window: i64| {
            let window = usize::try_from(window).ok().filter(|window| *window < steps)?;
            Some(metric * steps + window)
        };
        let value = number(summary.first.1);
        if is_before {
            let before = &mut self.cells[index(window - 1)?];
            before.value.add(value);
            before.count += 1;
        }
        let count = summary.count - u64::from(is_before);
        if count == 0 {
            return Some(());
        }
        let rest = &mut self.cells[index(window)?];
        rest.count += count;
        match (summary.sum, summary.first.1) {
            (Sum::Integer(sum), Number::Signed(value)) if is_before => {
                rest.value.add((sum - i128::from(value)) as f64);
            }
            (Sum::Integer(sum), Number::Unsigned(value)) if is_before => {
                rest.value.add((sum - i128::from(value)) as f64);
            }
            (Sum::Integer(sum), _) => rest.value.add(sum as f64),
            (Sum::Float { sum, correction }, _) => {
                let left = sum - value + correction;
                // The rounding error of a large value can exceed the remainder.
                if is_before && value.abs() > LARGE * left.abs() {
                    return None;
                }
                rest.value.add(sum);
                rest.value.compensation += correction;
                if is_before {
                    rest.value.add(-value);
                }
            }
        }
        Some(())
    }

    /// Adds a run. Returns false if samples are needed, so that reading can stop.
    pub(crate) fn take(&mut self, run: &Run, layout: &Layout) -> bool {
        let Some(over_time) = self.over_time else {
            return false;
        };
        let is_plain = to_millis(&run.timestamps, &mut self.times);
        if !is_plain || self.last >= self.times.first().copied() {
            self.is_doubtful = true;
            return false;
        }
        self.last = self.times.last().copied();
        let mut dense = std::mem::take(&mut self.segments);
        cut(&over_time, &self.times, &mut dense);
        for column in &run.columns {
            let Some(metric) = layout.number(column.field) else {
                continue;
            };
            let sparse = match column.presence {
                Presence::All => None,
                Presence::Some(_) => Some(self.sparse(&over_time, column)),
            };
            let cells = &mut self.cells[metric * over_time.steps..][..over_time.steps];
            let segments = sparse.as_ref().unwrap_or(&dense);
            if !take_column(over_time.function, &column.values, segments, cells) {
                self.is_doubtful = true;
                break;
            }
        }
        self.segments = dense;
        !self.is_doubtful
    }

    /// Computes the results of the added values; returns false if samples are needed.
    pub(crate) fn finish(&mut self) -> bool {
        let Some(over_time) = self.over_time.filter(|_| !self.is_doubtful) else {
            return false;
        };
        self.results.clear();
        self.results
            .extend(self.cells.iter().map(|cell| cell.result(over_time.function)));
        self.counts.clear();
        self.counts.extend(self.cells.iter().map(|cell| cell.count));
        let is_complete =
            |(cell, result): (&Cell, &f64)| cell.count == 0 || (result.is_finite() && !cell.is_cancelled());
        if !self.cells.iter().zip(&self.results).all(is_complete) {
            return false;
        }
        self.has_any.clear();
        let windows = self.cells.chunks(over_time.steps.max(1));
        self.has_any
            .extend(windows.map(|windows| windows.iter().any(|cell| cell.count > 0)));
        true
    }

    /// Returns the results of a metric and the number of samples of each window; `None` if the metric has no samples.
    pub(crate) fn of(&self, metric: usize) -> Option<SeriesData<'_>> {
        let steps = self.over_time?.steps;
        let has_any = self.has_any.get(metric).copied().unwrap_or(false);
        has_any.then(|| SeriesData::Steps {
            results: &self.results[metric * steps..][..steps],
            counts: &self.counts[metric * steps..][..steps],
        })
    }

    fn sparse(&mut self, over_time: &OverTime, column: &RunColumn) -> Vec<Segment> {
        self.sparse_times.clear();
        let times = &self.times;
        self.sparse_times
            .extend(rows(column, times.len()).map(|row| times[row]));
        let mut segments = Vec::new();
        cut(over_time, &self.sparse_times, &mut segments);
        segments
    }
}

impl Cell {
    fn result(&self, function: OverTimeFunction) -> f64 {
        match function {
            _ if self.count == 0 => f64::from_bits(NO_RESULT_BITS),
            OverTimeFunction::Sum => self.value.total(),
            OverTimeFunction::Avg => self.value.total() / self.count as f64,
            OverTimeFunction::Min | OverTimeFunction::Max => self.value.sum,
            OverTimeFunction::Count => self.count as f64,
        }
    }

    /// Returns true if cancellation has left so little of a sum that the order of additions affects the result.
    fn is_cancelled(&self) -> bool {
        self.value.compensation.abs() > CANCELLED * self.value.sum.abs()
    }
}

/// Cuts ascending milliseconds at the window boundaries. Values outside of all windows are omitted.
fn cut(over_time: &OverTime, times: &[i64], segments: &mut Vec<Segment>) {
    segments.clear();
    let OverTime {
        first,
        step,
        steps,
        width,
        ..
    } = *over_time;
    let mut at = 0;
    while at < times.len() {
        // The first window that does not end before the timestamp.
        let distance = i128::from(times[at]) - i128::from(first);
        let window = usize::try_from(
            (distance + i128::from(step) - 1)
                .div_euclid(i128::from(step))
                .max(0),
        );
        let Some(window) = window.ok().filter(|window| *window < steps) else {
            return;
        };
        let end = i128::from(first) + window as i128 * i128::from(step);
        let begin = end - i128::from(width);
        let rest = &times[at..];
        let start = at + rest.partition_point(|time| i128::from(*time) <= begin);
        let next = at + rest.partition_point(|time| i128::from(*time) <= end);
        if start < next {
            segments.push(Segment {
                window,
                start,
                end: next,
            });
        }
        at = next;
    }
}

/// Adds the values of segments to their windows; returns false if samples are needed.
fn take_column(
    function: OverTimeFunction,
    values: &ColumnData,
    segments: &[Segment],
    cells: &mut [Cell],
) -> bool {
    segments.iter().all(|segment| {
        let (part, cell) = (segment.start..segment.end, &mut cells[segment.window]);
        match values {
            ColumnData::Float(values) => take_floats(function, &values[part], cell),
            ColumnData::Signed(values) => {
                let unsigned = |value: i64| value as u64 ^ BIAS;
                take_whole(
                    function,
                    &values[part],
                    cell,
                    |value| value as f64,
                    (unsigned, BIAS),
                )
            }
            ColumnData::Unsigned(values) => take_whole(
                function,
                &values[part],
                cell,
                |value| value as f64,
                (|value| value, 0),
            ),
            ColumnData::Boolean(values) => {
                let float = |value| f64::from(u8::from(value));
                take_whole(function, &values[part], cell, float, (u64::from, 0))
            }
            ColumnData::String(_) | ColumnData::Histogram(_) => true,
        }
    })
}

fn number(value: Number) -> f64 {
    match value {
        Number::Float(value) => value,
        Number::Signed(value) => value as f64,
        Number::Unsigned(value) => value as f64,
    }
}

/// Adds doubles to a cell; returns false if samples are needed.
fn take_floats(function: OverTimeFunction, values: &[f64], cell: &mut Cell) -> bool {
    match function {
        OverTimeFunction::Count => {}
        OverTimeFunction::Sum | OverTimeFunction::Avg => {
            let (mut lanes, rest) = CompensatedSum::sum_in_parallel(values);
            rest.iter().for_each(|value| lanes[0].add(*value));
            lanes.into_iter().for_each(|lane| cell.value.merge(lane));
        }
        OverTimeFunction::Min | OverTimeFunction::Max => take_extreme(function, values.iter().copied(), cell),
    }
    cell.count += values.len() as u64;
    // The accumulated value of an extreme or a count does not reveal a NaN.
    match function {
        OverTimeFunction::Sum | OverTimeFunction::Avg => cell.value.sum.is_finite(),
        _ => !values.iter().fold(false, |is_nan, value| is_nan | value.is_nan()),
    }
}

/// Adds integers to a cell. `to_unsigned` maps them to unsigned integers that are larger by `bias`.
fn take_whole<T: Copy>(
    function: OverTimeFunction,
    values: &[T],
    cell: &mut Cell,
    to_float: impl Fn(T) -> f64,
    (to_unsigned, bias): (impl Fn(T) -> u64, u64),
) -> bool {
    match function {
        OverTimeFunction::Count => {}
        OverTimeFunction::Sum | OverTimeFunction::Avg => {
            let sum = sum_unsigned(values.iter().map(|value| to_unsigned(*value)));
            let too_much = values.len() as i128 * i128::from(bias);
            cell.value.add((sum - too_much) as f64);
        }
        OverTimeFunction::Min | OverTimeFunction::Max => {
            take_extreme(function, values.iter().map(|value| to_float(*value)), cell);
        }
    }
    cell.count += values.len() as u64;
    true
}

/// Returns the exact sum of the numbers of a run. Low and high halves are added separately: no run is long enough
/// to overflow them, and the compiler vectorizes the loop.
fn sum_unsigned(values: impl Iterator<Item = u64>) -> i128 {
    let (low, high) = values.fold((0u64, 0u64), |(low, high), value| {
        (
            low.wrapping_add(value & u64::from(u32::MAX)),
            high.wrapping_add(value >> 32),
        )
    });
    (i128::from(high) << 32) + i128::from(low)
}

fn take_extreme(function: OverTimeFunction, values: impl Iterator<Item = f64>, cell: &mut Cell) {
    let better = |kept: f64, value: f64| match function {
        OverTimeFunction::Min if value < kept => value,
        OverTimeFunction::Max if value > kept => value,
        _ => kept,
    };
    let mut values = values.peekable();
    if let Some(first) = values.peek() {
        let kept = if cell.count == 0 { *first } else { cell.value.sum };
        cell.value.sum = values.fold(kept, better);
    }
}

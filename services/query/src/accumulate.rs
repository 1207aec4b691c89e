//! Accumulators: the state of one result column for each window while points are read.
//!
//! One [`Accumulator`] serves one function of one field in one group. It takes values as slices that are already cut
//! at the window boundaries, so that the inner loops run over plain numbers. It can be merged with the accumulator of
//! another worker, and returns one value per window at the end. `count` is a plain counter in this file. The states
//! of the other functions are in these files:
//!
//! | file | functions |
//! |---|---|
//! | [`sum`] | `sum`, `mean` |
//! | [`deviation`] | `stddev` |
//! | [`extreme`] | `min`, `max` |
//! | [`spread`] | `spread`, `delta` |
//! | [`percentile`] | `percentile` |
//! | [`tally`] | `count_distinct`, `mode` |
//! | [`edge`] | `first`, `last` |
//! | [`counter`] | `increase`, `rate` |
//! | [`area`] | `integral`, `time_weighted_mean` |
//! | [`scalar`] | no function: number or boolean of any type, used by most of these files |

pub mod area;
pub mod counter;
pub mod deviation;
pub mod edge;
pub mod extreme;
pub mod percentile;
pub mod scalar;
pub mod spread;
pub mod sum;
pub mod tally;

use tideline_engine::model::ColumnData;
use tideline_engine::points::ValueSummary;

use self::area::Areas;
use self::counter::Counter;
use self::deviation::Deviation;
use self::edge::{Edge, Edges};
use self::extreme::{Extreme, Extremes};
use self::percentile::Percentiles;
use self::scalar::Scalar;
use self::spread::{Delta, Spread};
use self::sum::Sum;
use self::tally::Tallies;
use crate::function::Function;
use crate::result::ValueRef;
use crate::window::{Segment, Windows};

/// Values of one field and type of one timeline, in time order, cut at the window boundaries.
#[derive(Debug, Clone, Copy)]
pub struct Slice<'a> {
    /// Timestamps of the values, in nanoseconds since the epoch.
    pub times: &'a [i64],
    /// Values, one for each timestamp.
    pub values: &'a ColumnData,
    /// Runs of consecutive values in one window: the window and the positions of the values.
    pub segments: &'a [Segment],
}

/// State of one function over one field of one group, for every window.
#[derive(Debug)]
pub enum Accumulator {
    /// `count`.
    Count(Vec<u64>),
    /// `count_distinct`.
    CountDistinct(Tallies),
    /// `sum`.
    Sum(Vec<Sum>),
    /// `mean`: sums and counts.
    Mean(Vec<(Sum, u64)>),
    /// `stddev`.
    StdDev(Vec<Deviation>),
    /// `min` and `max`.
    Extreme(Extremes),
    /// `spread`.
    Spread(Spread),
    /// `percentile`.
    Percentile(Percentiles),
    /// `mode`.
    Mode(Tallies),
    /// `first` and `last`.
    Edge(Edges),
    /// `delta`.
    Delta(Delta),
    /// `increase`.
    Increase(Counter),
    /// `rate`.
    Rate(Counter),
    /// `integral`.
    Integral(Areas),
    /// `time_weighted_mean`.
    TimeWeightedMean(Areas),
}

/// Upper bound, in bytes, of a cell of any function. A cell is the fixed-size state of one window.
const CELL_BYTES_MAX: u64 = 128;
/// Upper bound, in bytes, of a cell of `sum`, `mean`, `min` or `max`.
const SMALL_CELL_BYTES_MAX: u64 = 64;

/// Integer sum that does not fit its type. Holds the double nearest to the exact sum.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Overflow(pub f64);

impl Accumulator {
    /// Returns an empty accumulator for the windows of a query. The caller has checked the number of windows against
    /// the cell limit.
    pub fn new(function: Function, grid: &Windows) -> Self {
        let windows = grid.count() as usize;
        match function {
            Function::Count => Self::Count(vec![0; windows]),
            Function::CountDistinct => Self::CountDistinct(Tallies::new(windows)),
            Function::Sum => Self::Sum(vec![Sum::default(); windows]),
            Function::Mean => Self::Mean(vec![(Sum::default(), 0); windows]),
            Function::StdDev => Self::StdDev(vec![Deviation::default(); windows]),
            Function::Min => Self::Extreme(Extremes::new(Extreme::Lowest, windows)),
            Function::Max => Self::Extreme(Extremes::new(Extreme::Highest, windows)),
            Function::Spread => Self::Spread(Spread::new(windows)),
            Function::Percentile(percentile) => Self::Percentile(Percentiles::new(percentile, windows)),
            Function::Mode => Self::Mode(Tallies::new(windows)),
            Function::First => Self::Edge(Edges::new(Edge::First, windows)),
            Function::Last => Self::Edge(Edges::new(Edge::Last, windows)),
            Function::Delta => Self::Delta(Delta::new(windows)),
            Function::Increase => Self::Increase(Counter::new(windows)),
            Function::Rate => Self::Rate(Counter::new(windows)),
            Function::Integral => Self::Integral(Areas::new(grid.clone())),
            Function::TimeWeightedMean => Self::TimeWeightedMean(Areas::new(grid.clone())),
        }
    }

    /// Returns an upper bound of the bytes of the cells: the memory that depends on the number of windows and not on
    /// the number of values.
    pub fn cells_bytes(function: Function, grid: &Windows) -> u64 {
        let cell = match function {
            Function::Count => size_of::<u64>() as u64,
            Function::Sum | Function::Mean | Function::Min | Function::Max => SMALL_CELL_BYTES_MAX,
            _ => CELL_BYTES_MAX,
        };
        grid.count().saturating_mul(cell)
    }

    /// Ends the current timeline. Timelines of a group are read in order of id.
    pub fn end_timeline(&mut self) {
        match self {
            Self::Increase(counter) | Self::Rate(counter) => counter.end_timeline(),
            Self::Integral(areas) | Self::TimeWeightedMean(areas) => areas.end_timeline(),
            Self::Delta(delta) => delta.end_timeline(),
            _ => {}
        }
    }

    /// Returns true if the values of a timeline must be added as one sequence in time order, regardless of their
    /// types.
    pub fn needs_sequence(&self) -> bool {
        matches!(
            self,
            Self::Increase(_) | Self::Rate(_) | Self::Integral(_) | Self::TimeWeightedMean(_)
        )
    }

    /// Returns the bytes held in addition to the cells: the memory that grows with the number of values.
    pub fn held(&self) -> u64 {
        match self {
            Self::CountDistinct(tallies) | Self::Mode(tallies) => tallies.held(),
            Self::Percentile(percentiles) => percentiles.held(),
            Self::Edge(edges) => edges.held(),
            Self::Count(_)
            | Self::Sum(_)
            | Self::Mean(_)
            | Self::StdDev(_)
            | Self::Extreme(_)
            | Self::Spread(_)
            | Self::Delta(_)
            | Self::Increase(_)
            | Self::Rate(_)
            | Self::Integral(_)
            | Self::TimeWeightedMean(_) => 0,
        }
    }

    /// Adds values. Values of one timeline and type must be added in time order. Values of a type that the function
    /// does not support are skipped.
    pub fn add(&mut self, slice: &Slice<'_>) {
        match self {
            Self::Count(counts) => {
                for segment in slice.segments {
                    counts[segment.window] += segment.values.len() as u64;
                }
            }
            Self::Sum(sums) => sum::add(slice, |window, sum, _| sums[window].merge(&sum)),
            Self::Mean(means) => sum::add(slice, |window, sum, count| {
                means[window].0.merge(&sum);
                means[window].1 += count;
            }),
            Self::StdDev(windows) => deviation::add(slice, windows),
            Self::Extreme(extremes) => extremes.add(slice),
            Self::Spread(spread) => spread.add(slice),
            Self::Percentile(percentiles) => percentiles.add(slice),
            Self::CountDistinct(tallies) | Self::Mode(tallies) => tallies.add(slice),
            Self::Edge(edges) => edges.add(slice),
            Self::Delta(delta) => delta.add(slice),
            Self::Increase(counter) | Self::Rate(counter) => counter.add(slice),
            Self::Integral(areas) | Self::TimeWeightedMean(areas) => areas.add(slice),
        }
    }

    /// Adds a summary of values of one timeline and type. All these values must be in the window. Supported only by
    /// functions that [take summaries](Function::takes_summaries). Summaries of a timeline may be added in any order.
    pub fn add_summary(&mut self, window: usize, summary: &ValueSummary) {
        match self {
            Self::Count(counts) => counts[window] += summary.count,
            Self::Sum(sums) => sums[window].merge(&summary.into()),
            Self::Mean(means) => {
                means[window].0.merge(&summary.into());
                means[window].1 += summary.count;
            }
            Self::Extreme(extremes) => extremes.add_summary(window, summary),
            Self::Spread(spread) => spread.add_summary(window, summary),
            Self::Edge(edges) => edges.add_summary(window, summary),
            Self::Delta(delta) => delta.add_summary(window, summary),
            _ => debug_assert!(false, "a summary has neither steps nor the values themselves"),
        }
    }

    /// Adds the next values of a timeline, of any types, in time order. Has an effect only if
    /// [`needs_sequence`](Self::needs_sequence) returns true.
    pub fn add_sequence(&mut self, sequence: &[(i64, Scalar)], segments: &[Segment]) {
        for segment in segments {
            for (time, value) in &sequence[segment.values.clone()] {
                match self {
                    Self::Increase(counter) | Self::Rate(counter) => counter.add_one(segment.window, *value),
                    Self::Integral(areas) | Self::TimeWeightedMean(areas) => {
                        areas.add_one(segment.window, *time, *value);
                    }
                    _ => {}
                }
            }
        }
    }

    /// Merges an accumulator of the same function and windows that was filled from timelines with higher ids.
    pub fn merge(&mut self, other: Self) {
        match (self, other) {
            (Self::Count(counts), Self::Count(others)) => {
                counts
                    .iter_mut()
                    .zip(others)
                    .for_each(|(count, other)| *count += other);
            }
            (Self::Sum(sums), Self::Sum(others)) => {
                sums.iter_mut()
                    .zip(&others)
                    .for_each(|(sum, other)| sum.merge(other));
            }
            (Self::Mean(means), Self::Mean(others)) => {
                for (mean, (sum, count)) in means.iter_mut().zip(&others) {
                    mean.0.merge(sum);
                    mean.1 += count;
                }
            }
            (Self::StdDev(windows), Self::StdDev(others)) => {
                let pairs = windows.iter_mut().zip(&others);
                pairs.for_each(|(window, other)| window.merge(other));
            }
            (Self::Extreme(extremes), Self::Extreme(others)) => extremes.merge(&others),
            (Self::Spread(spread), Self::Spread(other)) => spread.merge(&other),
            (Self::Percentile(percentiles), Self::Percentile(others)) => percentiles.merge(others),
            (Self::CountDistinct(tallies), Self::CountDistinct(others))
            | (Self::Mode(tallies), Self::Mode(others)) => tallies.merge(others),
            (Self::Delta(delta), Self::Delta(other)) => delta.merge(&other),
            (Self::Integral(areas), Self::Integral(others))
            | (Self::TimeWeightedMean(areas), Self::TimeWeightedMean(others)) => areas.merge(&others),
            (Self::Edge(edges), Self::Edge(others)) => edges.merge(others),
            (Self::Increase(counter), Self::Increase(other)) | (Self::Rate(counter), Self::Rate(other)) => {
                counter.merge(&other);
            }
            _ => debug_assert!(false, "accumulators of different functions are never merged"),
        }
    }

    /// Returns the value of a window; `None` if the function has no value there or the count is zero.
    ///
    /// # Errors
    ///
    /// [`Overflow`] if a sum of integers does not fit its type.
    pub fn finish(&self, window: usize, windows: &Windows) -> Result<Option<ValueRef<'_>>, Overflow> {
        Ok(match self {
            Self::Count(counts) => (counts[window] > 0).then_some(ValueRef::Unsigned(counts[window])),
            Self::Sum(sums) => sums[window].total()?,
            Self::Mean(means) => {
                let (sum, count) = &means[window];
                (*count > 0).then(|| ValueRef::Float(sum.as_f64() / *count as f64))
            }
            Self::StdDev(windows) => windows[window].get(),
            Self::Extreme(extremes) => extremes.get(window),
            Self::Spread(spread) => spread.get(window),
            Self::Percentile(percentiles) => percentiles.get(window),
            Self::CountDistinct(tallies) => tallies.distinct(window),
            Self::Mode(tallies) => tallies.mode(window),
            Self::Edge(edges) => edges.get(window),
            Self::Delta(delta) => delta.total(window)?,
            Self::Integral(areas) => areas.integral(window),
            Self::TimeWeightedMean(areas) => areas.mean(window),
            Self::Increase(counter) => counter.total(window)?,
            Self::Rate(counter) => counter
                .as_f64(window)
                .map(|total| ValueRef::Float(total / windows.seconds(window))),
        })
    }

    /// Returns true if the value of a window is an estimate.
    pub fn is_estimate(&self, window: usize) -> bool {
        matches!(self, Self::Percentile(percentiles) if percentiles.is_estimate(window))
    }
}

//! Where series come from, and what a plan asks of them.

use tideline_histogram::Histogram;

use crate::error::Result;
use crate::labels::Labels;
use crate::matcher::Matcher;

/// What a plan wants of one selector.
#[derive(Debug, Clone, PartialEq)]
pub struct Select<'a> {
    /// All must be met.
    pub matchers: &'a [Matcher],
    /// First wanted instant, in milliseconds, inclusive.
    pub start: i64,
    /// Last wanted instant, in milliseconds, inclusive.
    pub end: i64,
    /// What will be made of the samples; a source that can compute it exactly may hand out the results instead.
    pub over_time: Option<OverTime>,
    /// Whether samples' start times are wanted.
    pub with_starts: bool,
}

/// A function over windows of samples, evaluated at regular instants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OverTime {
    /// The function.
    pub function: OverTimeFunction,
    /// The first window's end, in milliseconds, after any shift.
    pub first: i64,
    /// From one window's end to the next, in milliseconds, above zero.
    pub step: i64,
    /// How many windows.
    pub steps: usize,
    /// The windows' width, in milliseconds; they are open on the left: `(end - width, end]`.
    pub width: i64,
}

/// Functions that a source may compute itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "each is the function of its name")]
pub enum OverTimeFunction {
    Sum,
    Avg,
    Min,
    Max,
    Count,
}

/// What a source has of one series.
#[derive(Debug, Clone, Copy)]
pub enum SeriesData<'a> {
    /// Its samples in the wanted range.
    Samples(Samples<'a>),
    /// What was computed of the windows of [`Select::over_time`], one after the other.
    Steps {
        /// The result of each; NaN with all bits set where a window has no sample.
        results: &'a [f64],
        /// How many samples each has.
        counts: &'a [u64],
    },
}

/// Bits that stand in [`SeriesData::Steps`] where there is no result.
pub const NO_RESULT_BITS: u64 = u64::MAX;

/// Samples of one series, by rising instants; numbers and histograms apart, no instant in both.
#[derive(Debug, Clone, Copy, Default)]
pub struct Samples<'a> {
    /// Instants of the numbers, in milliseconds.
    pub times: &'a [i64],
    /// The numbers, stale markers among them.
    pub values: &'a [f64],
    /// When what each number counts began, in milliseconds, 0 = unknown; empty when not wanted or nowhere known.
    pub starts: &'a [i64],
    /// Instants of the histograms, in milliseconds.
    pub histogram_times: &'a [i64],
    /// The histograms.
    pub histograms: &'a [Histogram],
    /// As `starts`, of the histograms.
    pub histogram_starts: &'a [i64],
}

/// Takes the series of a selection, from several threads at once and in no order. An error ends the selection.
pub type Visit<'a> = dyn Fn(&Labels, SeriesData<'_>) -> Result<()> + Sync + 'a;

/// Where series come from.
pub trait Source: Sync {
    /// Hands each series that meets all matchers and has a sample in the range to `visit`, each once.
    ///
    /// Fails with [`PromqlError::Storage`](crate::PromqlError::Storage) or what `visit` failed with, and stops early when the
    /// question's time is over or its client has left.
    fn select(&self, select: &Select<'_>, visit: &Visit<'_>) -> Result<()>;

    /// Whether the evaluation should go on: fails when the time is over or the client has left. Cheap; asked often.
    fn check(&self) -> Result<()>;

    /// Takes into account that an evaluation holds `now` bytes where it held `before`. Fails where there is no room for more;
    /// fewer are always taken. A source without an account of memory takes all. Called by several threads, once a series.
    fn hold(&self, before: u64, now: u64) -> Result<()> {
        let _ = (before, now);
        Ok(())
    }
}

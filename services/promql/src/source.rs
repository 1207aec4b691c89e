//! Storage interface of the evaluator: series sources and the requests of a plan.
//!
//! A source may compute simple functions over time itself, for example from precomputed summaries.

use tideline_histogram::Histogram;

use crate::error::Result;
use crate::labels::Labels;
use crate::matcher::Matcher;

/// Request for the series of one selector.
#[derive(Debug, Clone, PartialEq)]
pub struct Select<'a> {
    /// Matchers; a series must satisfy all.
    pub matchers: &'a [Matcher],
    /// First timestamp in milliseconds (inclusive).
    pub start: i64,
    /// Last timestamp in milliseconds (inclusive).
    pub end: i64,
    /// Function that will be applied to the samples. A source that can compute it exactly may return its
    /// results instead of samples.
    pub over_time: Option<OverTime>,
    /// True if start timestamps of samples are needed.
    pub with_starts: bool,
}

/// Function over windows of samples, evaluated at regular timestamps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OverTime {
    /// Function to compute.
    pub function: OverTimeFunction,
    /// End of the first window, in milliseconds, after any time shift.
    pub first: i64,
    /// Distance between the ends of two windows, in milliseconds, above zero.
    pub step: i64,
    /// Number of windows.
    pub steps: usize,
    /// Width of the windows, in milliseconds. A window is `(end - width, end]`.
    pub width: i64,
}

/// Functions that a source may compute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "each is the function of its name")]
pub enum OverTimeFunction {
    Sum,
    Avg,
    Min,
    Max,
    Count,
}

/// Data of one series.
#[derive(Debug, Clone, Copy)]
pub enum SeriesData<'a> {
    /// Samples in the requested range.
    Samples(Samples<'a>),
    /// Results for the windows of [`Select::over_time`], in order.
    Steps {
        /// Result per window; NaN with all bits set for a window without samples.
        results: &'a [f64],
        /// Number of samples per window.
        counts: &'a [u64],
    },
}

/// Bits of a missing result in [`SeriesData::Steps`].
pub const NO_RESULT_BITS: u64 = u64::MAX;

/// Samples of one series. Floats and histograms are separate lists with rising timestamps; no timestamp is in
/// both.
#[derive(Debug, Clone, Copy, Default)]
pub struct Samples<'a> {
    /// Timestamps of the floats, in milliseconds.
    pub times: &'a [i64],
    /// Floats, including stale markers.
    pub values: &'a [f64],
    /// Start timestamps of the floats, in milliseconds, 0 if unknown; empty if not requested or all unknown.
    pub starts: &'a [i64],
    /// Timestamps of the histograms, in milliseconds.
    pub histogram_times: &'a [i64],
    /// Histograms.
    pub histograms: &'a [Histogram],
    /// Start timestamps of the histograms, in the form of `starts`.
    pub histogram_starts: &'a [i64],
}

/// Receiver of the selected series. A source may call it from several threads at once, in any order. An
/// error ends the selection.
pub type Visit<'a> = dyn Fn(&Labels, SeriesData<'_>) -> Result<()> + Sync + 'a;

/// Source of series.
pub trait Source: Sync {
    /// Passes each series that satisfies all matchers and has a sample in the range to `visit`, each exactly
    /// once.
    ///
    /// # Errors
    ///
    /// Returns [`PromqlError::Storage`](crate::PromqlError::Storage) if reading fails, the error of `visit`,
    /// and the error of [`Self::check`] if the query ends early.
    fn select(&self, select: &Select<'_>, visit: &Visit<'_>) -> Result<()>;

    /// Checks for timeout and cancellation. The evaluator calls this method often, so it must be
    /// cheap.
    ///
    /// # Errors
    ///
    /// Returns [`PromqlError::Timeout`](crate::PromqlError::Timeout) or
    /// [`PromqlError::Canceled`](crate::PromqlError::Canceled) if the evaluation must stop.
    fn check(&self) -> Result<()>;

    /// Updates the memory account: the evaluation replaces `before` held bytes with `now` bytes. Several
    /// threads call this method, at least once per series. The default implementation accepts everything.
    ///
    /// # Errors
    ///
    /// Returns an error if no memory is available. A reduction never fails.
    fn hold(&self, before: u64, now: u64) -> Result<()> {
        let _ = (before, now);
        Ok(())
    }
}

//! Common representation of the float and histogram samples of a range.

use tideline_histogram::Histogram;

use super::Window;
use super::starts::Stamp;

/// Sample with its timestamps.
#[derive(Clone, Copy)]
pub(super) struct StampedSample<'a> {
    pub(super) stamp: Stamp,
    pub(super) value: Either<'a>,
}

/// Value of a sample.
#[derive(Clone, Copy)]
pub(super) enum Either<'a> {
    Float(f64),
    Histogram(&'a Histogram),
}

impl Window<'_> {
    /// Returns the float sample at an index.
    pub(super) fn float_sample(&self, at: usize) -> StampedSample<'_> {
        StampedSample {
            stamp: Stamp::at(self.times, self.starts, at),
            value: Either::Float(self.values[at]),
        }
    }

    /// Returns the histogram sample at an index.
    pub(super) fn histogram_sample(&self, at: usize) -> StampedSample<'_> {
        StampedSample {
            stamp: Stamp::at(self.histogram_times, self.histogram_starts, at),
            value: Either::Histogram(&self.histograms[at]),
        }
    }
}

//! Common representation of the float and histogram samples of a range.

use tideline_histogram::Histogram;

use super::Window;
use super::starts::Stamp;

/// Sample with its timestamps.
#[derive(Clone, Copy)]
pub(super) struct Placed<'a> {
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
    pub(super) fn placed_number(&self, at: usize) -> Placed<'_> {
        Placed {
            stamp: Stamp::at(self.times, self.starts, at),
            value: Either::Float(self.values[at]),
        }
    }

    /// Returns the histogram sample at an index.
    pub(super) fn placed_histogram(&self, at: usize) -> Placed<'_> {
        Placed {
            stamp: Stamp::at(self.histogram_times, self.histogram_starts, at),
            value: Either::Histogram(&self.histograms[at]),
        }
    }
}

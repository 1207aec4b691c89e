//! Numbers and histograms of a range as samples of one kind.

use tideline_histogram::Histogram;

use super::Window;
use super::starts::Stamp;

/// A sample in its place.
#[derive(Clone, Copy)]
pub(super) struct Placed<'a> {
    pub(super) stamp: Stamp,
    pub(super) value: Either<'a>,
}

/// Its value.
#[derive(Clone, Copy)]
pub(super) enum Either<'a> {
    Float(f64),
    Histogram(&'a Histogram),
}

impl Window<'_> {
    /// The number at a place among the numbers.
    pub(super) fn placed_number(&self, at: usize) -> Placed<'_> {
        Placed {
            stamp: Stamp::at(self.times, self.starts, at),
            value: Either::Float(self.values[at]),
        }
    }

    /// The histogram at a place among the histograms.
    pub(super) fn placed_histogram(&self, at: usize) -> Placed<'_> {
        Placed {
            stamp: Stamp::at(self.histogram_times, self.histogram_starts, at),
            value: Either::Histogram(&self.histograms[at]),
        }
    }
}

//! Sum and average of a range's histograms. The range must contain at least one histogram.
//!
//! Sums are compensated (Kahan). The average switches to an incremental mean if the sum overflows.

use std::sync::Arc;

use tideline_histogram::{Histogram, HistogramError, ResetHint};

use super::rate::note_bounds;
use crate::note::{HistogramOperation, Note, Notes};

/// Returns the sum; `None`, with a note, if the histograms are incompatible.
pub(super) fn sum(histograms: &[Arc<Histogram>], notes: &mut Notes<'_>) -> Option<Histogram> {
    let mut sum = Sum::of(histograms);
    let added = histograms[1..]
        .iter()
        .try_for_each(|histogram| sum.add(histogram));
    let total = added.and_then(|()| sum.total());
    report(total, histograms, sum.bounds_reconciled, notes)
}

/// Returns the average. If the sum overflows, an incremental mean is computed. Returns `None`, with a note,
/// if the histograms are incompatible.
pub(super) fn average(histograms: &[Arc<Histogram>], notes: &mut Notes<'_>) -> Option<Histogram> {
    let mut sum = Sum::of(histograms);
    let average = try_average(histograms, &mut sum);
    report(average, histograms, sum.bounds_reconciled, notes)
}

fn try_average(histograms: &[Arc<Histogram>], sum: &mut Sum) -> Result<Histogram, HistogramError> {
    for (at, histogram) in histograms.iter().enumerate().skip(1) {
        sum.add(histogram)?;
        if sum.sum.has_overflow() {
            // Overflow is rare: recomputing the sum of the previous histograms is cheaper than a copy before
            // each addition.
            *sum = Sum {
                bounds_reconciled: sum.bounds_reconciled,
                ..Sum::of(histograms)
            };
            histograms[1..at]
                .iter()
                .try_for_each(|histogram| sum.add(histogram))?;
            return moving_average(sum, at, &histograms[at..]);
        }
    }
    sum.scale(|histogram| histogram.div(histograms.len() as f64));
    sum.total()
}

/// Continues as an incremental mean after `count` histograms.
fn moving_average(
    mean: &mut Sum,
    count: usize,
    rest: &[Arc<Histogram>],
) -> Result<Histogram, HistogramError> {
    let mut count = count as f64;
    mean.scale(|histogram| histogram.div(count));
    for histogram in rest {
        let before = count;
        count += 1.0;
        mean.scale(|histogram| histogram.mul(before / count));
        let mut part = Histogram::clone(histogram);
        part.div(count);
        mean.add(&part)?;
    }
    mean.total()
}

/// Compensated sum of histograms.
struct Sum {
    sum: Histogram,
    compensation: Option<Histogram>,
    bounds_reconciled: bool,
}

impl Sum {
    fn of(histograms: &[Arc<Histogram>]) -> Self {
        Self {
            sum: Histogram::clone(&histograms[0]),
            compensation: None,
            bounds_reconciled: false,
        }
    }

    fn add(&mut self, histogram: &Histogram) -> Result<(), HistogramError> {
        let outcome = self.sum.kahan_add(histogram, &mut self.compensation)?;
        self.bounds_reconciled |= outcome.bounds_reconciled;
        Ok(())
    }

    fn scale(&mut self, scale: impl Fn(&mut Histogram)) {
        scale(&mut self.sum);
        if let Some(compensation) = &mut self.compensation {
            scale(compensation);
        }
    }

    fn total(&self) -> Result<Histogram, HistogramError> {
        let mut total = self.sum.clone();
        if let Some(compensation) = &self.compensation {
            total.add(compensation)?;
        }
        Ok(total)
    }
}

fn report(
    result: Result<Histogram, HistogramError>,
    histograms: &[Arc<Histogram>],
    bounds_reconciled: bool,
    notes: &mut Notes<'_>,
) -> Option<Histogram> {
    let Ok(histogram) = result else {
        notes(Note::MixedExponentialCustomHistograms);
        return None;
    };
    let has = |hint: ResetHint| histograms.iter().any(|histogram| histogram.reset_hint == hint);
    if has(ResetHint::Reset) && has(ResetHint::NotReset) {
        notes(Note::CounterResetCollision(HistogramOperation::Aggregation));
    }
    note_bounds(bounds_reconciled, HistogramOperation::Aggregation, notes);
    Some(histogram)
}

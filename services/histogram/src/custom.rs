//! Combination of histograms with different custom bounds, on the bounds that both have.

use crate::buckets::side_slots;
use crate::histogram::Histogram;
use crate::merge::{Sign, add_compensated};
use crate::spans::SpansBuilder;

/// Adds or subtracts the buckets of a histogram with different custom bounds. The result has only the bounds that
/// both operands have, and no empty buckets.
pub(crate) fn add_mismatched(
    histogram: &mut Histogram,
    other: &Histogram,
    sign: Sign,
    compensation: Option<&mut Histogram>,
) {
    let bounds = shared_bounds(&histogram.custom_values, &other.custom_values);
    let mut sums = vec![(0.0, 0.0); bounds.len() + 1];
    let lost = compensation
        .as_ref()
        .map_or(&[][..], |compensation| &compensation.positive_buckets);
    for (from, (to, count)) in mapped(histogram, &bounds).enumerate() {
        let sum: &mut (f64, f64) = &mut sums[to];
        *sum = add_compensated(count, sum.0, sum.1);
        if let Some(lost) = lost.get(from) {
            *sum = add_compensated(*lost, sum.0, sum.1);
        }
    }
    for (to, count) in mapped(other, &bounds) {
        let sum = &mut sums[to];
        *sum = add_compensated(sign.of(count), sum.0, sum.1);
    }
    let mut spans = SpansBuilder::default();
    let kept = sums.iter().enumerate().filter(|(_, sum)| **sum != (0.0, 0.0));
    let (counts, lost): (Vec<_>, Vec<_>) = kept
        .map(|(index, sum)| {
            spans.push(index as i32);
            *sum
        })
        .unzip();
    histogram.positive_spans = spans.build();
    histogram.positive_buckets = counts;
    if let Some(compensation) = compensation {
        compensation.positive_spans.clone_from(&histogram.positive_spans);
        compensation.positive_buckets = lost;
        compensation.custom_values.clone_from(&bounds);
    }
    histogram.custom_values = bounds;
}

/// Returns true if any bucket of the shared bounds has a lower count than in `previous`.
pub(crate) fn is_reset_of_mismatched(histogram: &Histogram, previous: &Histogram) -> bool {
    let bounds = shared_bounds(&histogram.custom_values, &previous.custom_values);
    let totals = |of: &Histogram| {
        let mut totals = vec![0.0; bounds.len() + 1];
        mapped(of, &bounds).for_each(|(to, count)| totals[to] += count);
        totals
    };
    totals(histogram)
        .iter()
        .zip(totals(previous))
        .any(|(now, before)| *now < before)
}

/// Returns the bounds that both lists contain; both lists must be rising.
fn shared_bounds(left: &[f64], right: &[f64]) -> Vec<f64> {
    let mut right = right.iter().peekable();
    let shared = left.iter().filter(|bound| {
        while right.next_if(|other| *other < *bound).is_some() {}
        right.next_if_eq(bound).is_some()
    });
    shared.copied().collect()
}

/// Returns, for each bucket, the index of the coarser bucket that contains it, and the count of the bucket.
fn mapped<'a>(histogram: &'a Histogram, bounds: &'a [f64]) -> impl Iterator<Item = (usize, f64)> + 'a {
    let mut to = 0;
    side_slots(&histogram.positive_spans, &histogram.positive_buckets).map(move |(index, count)| {
        let upper = histogram.bound(index);
        while to < bounds.len() && bounds[to] < upper {
            to += 1;
        }
        (to, count)
    })
}

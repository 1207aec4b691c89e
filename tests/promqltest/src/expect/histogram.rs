//! Comparison of histograms: counts and sums within the tolerance of numbers.

use tideline_promql::histogram::{Histogram, Span};

use super::almost_equal;
use crate::api;

/// Returns true if two histograms are equal: counts and sums within the tolerance, everything else exactly. The reset
/// hint is compared only if `with_hint` is true.
pub(super) fn equal(expected: &Histogram, got: &Histogram, with_hint: bool) -> bool {
    let (mut expected, mut got) = (expected.clone(), got.clone());
    expected.compact(0);
    got.compact(0);
    let numbers = [
        (expected.count, got.count),
        (expected.sum, got.sum),
        (expected.zero_count, got.zero_count),
    ];
    expected.schema == got.schema
        && numbers.iter().all(|(a, b)| almost_equal(*a, *b))
        && expected.custom_values == got.custom_values
        && expected.zero_threshold == got.zero_threshold
        && layout(&expected.positive_spans) == layout(&got.positive_spans)
        && layout(&expected.negative_spans) == layout(&got.negative_spans)
        && all_equal(&expected.positive_buckets, &got.positive_buckets)
        && all_equal(&expected.negative_buckets, &got.negative_buckets)
        && (!with_hint || expected.reset_hint == got.reset_hint)
}

/// Returns true if a histogram equals one in listed form, with all numbers within the tolerance.
pub(super) fn equal_as_listed(expected: &Histogram, got: &Histogram) -> bool {
    let expected = api::listed(expected.count, expected.sum, expected.listed_buckets());
    almost_equal(expected.count, got.count)
        && almost_equal(expected.sum, got.sum)
        && all_equal(&expected.custom_values, &got.custom_values)
        && all_equal(&expected.positive_buckets, &got.positive_buckets)
}

/// Returns first bucket and length of each span; adjacent spans are joined, empty spans removed.
fn layout(spans: &[Span]) -> Vec<(i64, i64)> {
    let mut runs: Vec<(i64, i64)> = Vec::new();
    let mut next = 0;
    for span in spans {
        let start = next + i64::from(span.offset);
        let length = i64::from(span.length);
        next = start + length;
        match runs.last_mut() {
            Some((first, run)) if *first + *run == start => *run += length,
            _ if length > 0 => runs.push((start, length)),
            _ => {}
        }
    }
    runs
}

fn all_equal(a: &[f64], b: &[f64]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| almost_equal(*a, *b))
}

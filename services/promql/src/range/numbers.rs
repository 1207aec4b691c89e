//! Aggregations of a range's floats. The range must contain at least one float.
//!
//! Sums are compensated (Kahan). The average switches to an incremental mean if the sum overflows.

use tideline_model::CompensatedSum;

use crate::histogram_functions;
use crate::note::{Note, Notes};

pub(super) fn sum(values: &[f64]) -> f64 {
    let mut sum = CompensatedSum::default();
    values.iter().for_each(|value| sum.add(*value));
    if sum.sum.is_infinite() {
        sum.sum
    } else {
        sum.total()
    }
}

/// Returns the average. If the sum overflows, an incremental mean is computed.
pub(super) fn average(values: &[f64]) -> f64 {
    let mut sum = CompensatedSum::new(values[0]);
    for (at, value) in values.iter().enumerate().skip(1) {
        let mut next = sum;
        next.add(*value);
        if next.sum.is_infinite() {
            return moving_average(sum, at, &values[at..]);
        }
        sum = next;
    }
    let count = values.len() as f64;
    sum.sum / count + sum.compensation / count
}

/// Continues as an incremental mean after `count` floats.
fn moving_average(sum: CompensatedSum, count: usize, rest: &[f64]) -> f64 {
    let mut count = count as f64;
    let mut mean = CompensatedSum {
        sum: sum.sum / count,
        compensation: sum.compensation / count,
    };
    for value in rest {
        let before = count;
        count += 1.0;
        let part = before / count;
        mean = CompensatedSum {
            sum: part * mean.sum,
            compensation: part * mean.compensation,
        };
        mean.add(value / count);
    }
    mean.total()
}

/// Returns the minimum; NaN only if all values are NaN.
pub(super) fn min(values: &[f64]) -> f64 {
    -most(values, |value| -value)
}

/// Returns the maximum; NaN only if all values are NaN.
pub(super) fn max(values: &[f64]) -> f64 {
    most(values, |value| value)
}

/// Returns the maximum of the mapped values, computed in parallel SIMD lanes.
#[inline]
fn most(values: &[f64], of: impl Fn(f64) -> f64) -> f64 {
    const LANES: usize = 8;
    let greater = |most: f64, value: f64| if of(value) > most { of(value) } else { most };
    let mut lanes = [f64::NEG_INFINITY; LANES];
    let (chunks, rest) = values.as_chunks::<LANES>();
    for chunk in chunks {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            *lane = greater(*lane, *value);
        }
    }
    let most = lanes.into_iter().fold(f64::NEG_INFINITY, f64::max);
    let most = rest.iter().fold(most, |most, value| greater(most, *value));
    match most == f64::NEG_INFINITY && values.iter().all(|value| value.is_nan()) {
        true => values[0],
        false => most,
    }
}

/// Returns the last index of the minimum.
pub(super) fn last_min(values: &[f64]) -> usize {
    last(values, |value, least| value <= least)
}

/// Returns the last index of the maximum.
pub(super) fn last_max(values: &[f64]) -> usize {
    last(values, |value, greatest| value >= greatest)
}

fn last(values: &[f64], wins: impl Fn(f64, f64) -> bool) -> usize {
    let mut found = 0;
    for (at, value) in values.iter().enumerate() {
        if wins(*value, values[found]) || values[found].is_nan() {
            found = at;
        }
    }
    found
}

/// Returns the population variance.
pub(super) fn variance(values: &[f64]) -> f64 {
    let (mut count, mut mean, mut squares) = (0.0, CompensatedSum::default(), CompensatedSum::default());
    for value in values {
        count += 1.0;
        let distance = value - mean.total();
        mean.add(distance / count);
        squares.add(distance * (value - mean.total()));
    }
    squares.total() / count
}

/// Returns the median of the absolute deviations from the median; NaN if any value is NaN.
pub(super) fn mad(values: &[f64], scratch: &mut Vec<f64>) -> f64 {
    if values.iter().any(|value| value.is_nan()) {
        return f64::NAN;
    }
    scratch.clear();
    scratch.extend_from_slice(values);
    let median = histogram_functions::quantile(0.5, scratch);
    scratch
        .iter_mut()
        .for_each(|value| *value = (*value - median).abs());
    histogram_functions::quantile(0.5, scratch)
}

pub(super) fn quantile(phi: f64, values: &[f64], scratch: &mut Vec<f64>, notes: &mut Notes<'_>) -> f64 {
    if !(0.0..=1.0).contains(&phi) {
        notes(Note::InvalidQuantile(phi));
    }
    scratch.clear();
    scratch.extend_from_slice(values);
    histogram_functions::quantile(phi, scratch)
}

//! Growth of counters: the increases between consecutive points of a timeline, summed over timelines.
//!
//! The rules are documented on [`Function`](crate::Function): an increase counts in the window of its later point, a
//! decrease is a reset to zero, and nothing is extrapolated.

use tideline_engine::model::{ColumnData, ValueType};

use super::scalar::Scalar;
use super::sum::Sum;
use super::{Overflow, Slice};
use crate::result::ValueRef;

/// Growth in each window.
#[derive(Debug, Clone)]
pub struct Counter {
    windows: Vec<Sum>,
    /// Last point of the current timeline.
    before: Option<Scalar>,
}

impl Counter {
    pub(super) fn new(windows: usize) -> Self {
        Self {
            windows: vec![Sum::default(); windows],
            before: None,
        }
    }

    pub(super) fn end_timeline(&mut self) {
        self.before = None;
    }

    pub(super) fn add(&mut self, slice: &Slice<'_>) {
        for segment in slice.segments {
            match slice.values {
                ColumnData::Signed(values) => {
                    let part = &values[segment.values.clone()];
                    self.add_integers(segment.window, part, Scalar::Signed);
                }
                ColumnData::Unsigned(values) => {
                    let part = &values[segment.values.clone()];
                    self.add_integers(segment.window, part, Scalar::Unsigned);
                }
                ColumnData::Float(values) => {
                    for value in &values[segment.values.clone()] {
                        self.add_one(segment.window, Scalar::Float(*value));
                    }
                }
                ColumnData::Boolean(_) | ColumnData::String(_) | ColumnData::Histogram(_) => {}
            }
        }
    }

    /// Adds the next point of the timeline.
    pub(crate) fn add_one(&mut self, window: usize, value: Scalar) {
        if value.is_nan() {
            return;
        }
        if let Some(before) = self.before.replace(value) {
            let sum = &mut self.windows[window];
            match (before.as_integer(), value.as_integer()) {
                (Some(from), Some(to)) => {
                    sum.mark(before.value_type());
                    add_step(sum, value.value_type(), integer_step(from, to));
                }
                _ => sum.add(Scalar::Float(float_step(before.as_f64(), value.as_f64()))),
            }
        }
    }

    /// Adds the next points, all in one window and of one type. The point before them may have another type.
    fn add_integers<T: Copy + Into<i128> + PartialOrd>(
        &mut self,
        window: usize,
        values: &[T],
        scalar: impl Fn(T) -> Scalar,
    ) {
        let (Some(first), Some(last)) = (values.first(), values.last()) else {
            return;
        };
        self.add_one(window, scalar(*first));
        let last = scalar(*last);
        if values.len() > 1 {
            let growth = last_minus_first(values) + restarts(values);
            add_step(&mut self.windows[window], last.value_type(), growth);
        }
        self.before = Some(last);
    }

    pub(super) fn merge(&mut self, other: &Self) {
        let pairs = self.windows.iter_mut().zip(&other.windows);
        pairs.for_each(|(sum, other)| sum.merge(other));
    }

    pub(super) fn total(&self, window: usize) -> Result<Option<ValueRef<'static>>, Overflow> {
        self.windows[window].total()
    }

    pub(super) fn as_f64(&self, window: usize) -> Option<f64> {
        let sum = &self.windows[window];
        (!sum.is_empty()).then(|| sum.as_f64())
    }
}

/// Returns the last value minus the first, which is the growth if no value decreases. Panics without values.
fn last_minus_first<T: Copy + Into<i128>>(values: &[T]) -> i128 {
    values[values.len() - 1].into() - values[0].into()
}

/// Returns the growth that [`last_minus_first`] lacks because of resets. Resets are rare, so the loop mostly compares
/// neighboring values.
fn restarts<T: Copy + Into<i128> + PartialOrd>(values: &[T]) -> i128 {
    let drops = values.windows(2).filter(|pair| pair[1] < pair[0]);
    let step_for_difference = |pair: &[T]| {
        let (from, to) = (pair[0].into(), pair[1].into());
        integer_step(from, to) - (to - from)
    };
    drops.map(step_for_difference).sum()
}

fn add_step(sum: &mut Sum, value_type: ValueType, step: i128) {
    sum.mark(value_type);
    sum.add_integer(step);
}

fn integer_step(from: i128, to: i128) -> i128 {
    if to >= from { to - from } else { to.max(0) }
}

fn float_step(from: f64, to: f64) -> f64 {
    if to > from {
        to - from
    } else if to == from {
        0.0
    } else {
        to.max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn growth(values: &[Scalar]) -> Option<ValueRef<'static>> {
        let mut counter = Counter::new(1);
        values.iter().for_each(|value| counter.add_one(0, *value));
        counter.total(0).expect("it fits")
    }

    #[test]
    fn a_drop_is_a_restart_from_zero() {
        let signed = |values: &[i64]| growth(&values.iter().map(|v| Scalar::Signed(*v)).collect::<Vec<_>>());
        assert_eq!(signed(&[]), None);
        assert_eq!(signed(&[9]), None);
        assert_eq!(signed(&[9, 9]), Some(ValueRef::Signed(0)));
        assert_eq!(signed(&[9, 12, 2, 5]), Some(ValueRef::Signed(3 + 2 + 3)));
        assert_eq!(signed(&[5, -3, 1]), Some(ValueRef::Signed(4)));
    }

    #[test]
    fn nan_is_not_seen_and_types_mix_into_float() {
        let floats = [1.0, f64::NAN, 4.0].map(Scalar::Float);
        assert_eq!(growth(&floats), Some(ValueRef::Float(3.0)));
        let mixed = [Scalar::Signed(1), Scalar::Unsigned(5)];
        assert_eq!(growth(&mixed), Some(ValueRef::Float(4.0)));
        let mixed = [Scalar::Signed(1), Scalar::Float(5.5)];
        assert_eq!(growth(&mixed), Some(ValueRef::Float(4.5)));
    }
}

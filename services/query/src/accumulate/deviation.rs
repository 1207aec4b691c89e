//! Standard deviations from sums of distances and of their squares, in double-double arithmetic.
//!
//! The textbook formula `Σx²/n − (Σx/n)²` loses all precision if the mean is large compared with the deviation. Here x
//! is the distance from the first value. Distances are exact as pairs of doubles, and the sums are also pairs (106
//! bits). The cancellation error is therefore far below the promised 1e-12, in any order of the values.
//!
//! The arithmetic on pairs follows Dekker (*A floating-point technique for extending the available precision*,
//! 1971).

use tideline_engine::model::ColumnData;

use super::Slice;
use super::scalar::Scalar;
use crate::result::ValueRef;

/// Unevaluated sum of two doubles, the second at most half a unit in the last place of the first.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Pair {
    high: f64,
    low: f64,
}

/// Sums over the values of one window.
#[derive(Debug, Clone, Copy, Default)]
pub struct Deviation {
    count: u64,
    /// True if some value was not finite.
    has_odd: bool,
    /// Origin of the distances: the first value.
    origin: Pair,
    distances: Pair,
    squares: Pair,
}

impl Pair {
    /// Returns the exact sum of two doubles.
    fn sum(a: f64, b: f64) -> Self {
        let high = a + b;
        let back = high - a;
        let low = (a - (high - back)) + (b - back);
        Self { high, low }
    }

    /// Converts a number without loss; a pair represents every 64-bit integer.
    fn of(value: Scalar) -> Self {
        let high = value.as_f64();
        let low = value
            .as_integer()
            .map_or(0.0, |exact| (exact - high as i128) as f64);
        Self { high, low }
    }

    fn plus(self, other: Self) -> Self {
        let high = Self::sum(self.high, other.high);
        let low = Self::sum(self.low, other.low);
        let folded = Self::sum(high.high, high.low + low.high);
        Self::sum(folded.high, folded.low + low.low)
    }

    fn minus(self, other: Self) -> Self {
        self.plus(Self {
            high: -other.high,
            low: -other.low,
        })
    }

    fn times(self, other: Self) -> Self {
        let high = self.high * other.high;
        let error = self.high.mul_add(other.high, -high);
        Self::sum(high, error + (self.high * other.low + self.low * other.high))
    }

    fn times_count(self, count: u64) -> Self {
        self.times(Self::of(Scalar::Unsigned(count)))
    }

    fn over_count(self, count: u64) -> Self {
        let count = Self::of(Scalar::Unsigned(count));
        let high = self.high / count.high;
        let rest = self.minus(Self { high, low: 0.0 }.times(count));
        Self::sum(high, rest.high / count.high)
    }
}

impl Deviation {
    /// Adds a number. A value that is not finite makes the deviation NaN.
    pub fn add(&mut self, value: Scalar) {
        if !value.as_f64().is_finite() {
            self.has_odd = true;
        }
        let value = Pair::of(value);
        if self.count == 0 {
            self.origin = value;
        } else {
            let distance = value.minus(self.origin);
            self.distances = self.distances.plus(distance);
            self.squares = self.squares.plus(distance.times(distance));
        }
        self.count += 1;
    }

    /// Merges the sums of `other`, with its distances shifted to the origin of `self`.
    pub(super) fn merge(&mut self, other: &Self) {
        if self.count == 0 || other.count == 0 {
            if self.count == 0 {
                *self = *other;
            }
            return;
        }
        let shift = other.origin.minus(self.origin);
        let shifted = shift.times_count(other.count);
        let twice = other.distances.plus(other.distances).plus(shifted);
        self.distances = self.distances.plus(other.distances).plus(shifted);
        self.squares = self.squares.plus(other.squares).plus(shift.times(twice));
        self.count += other.count;
        self.has_odd |= other.has_odd;
    }

    /// Returns the population standard deviation: `None` without values, NaN if some value was not finite, infinity if
    /// the sums exceed the range of doubles.
    pub fn get(&self) -> Option<ValueRef<'static>> {
        if self.count == 0 {
            return None;
        }
        if self.has_odd {
            return Some(ValueRef::Float(f64::NAN));
        }
        let mean = self.distances.over_count(self.count);
        let variance = self
            .squares
            .minus(mean.times(self.distances))
            .over_count(self.count);
        let deviation = if variance.high.is_nan() {
            // The sums of squares exceed the range of doubles.
            f64::INFINITY
        } else {
            variance.high.max(0.0).sqrt()
        };
        Some(ValueRef::Float(deviation))
    }
}

/// Adds the values of a slice to their windows.
pub(super) fn add(slice: &Slice<'_>, windows: &mut [Deviation]) {
    for segment in slice.segments {
        let window = &mut windows[segment.window];
        let part = segment.values.clone();
        match slice.values {
            ColumnData::Float(values) => values[part].iter().for_each(|v| window.add(Scalar::Float(*v))),
            ColumnData::Signed(values) => values[part].iter().for_each(|v| window.add(Scalar::Signed(*v))),
            ColumnData::Unsigned(values) => {
                values[part].iter().for_each(|v| window.add(Scalar::Unsigned(*v)));
            }
            ColumnData::Boolean(_) | ColumnData::String(_) | ColumnData::Histogram(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deviation(values: &[f64]) -> f64 {
        let mut window = Deviation::default();
        values.iter().for_each(|value| window.add(Scalar::Float(*value)));
        match window.get() {
            Some(ValueRef::Float(deviation)) => deviation,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_large_mean_takes_nothing_from_a_small_deviation() {
        assert_eq!(deviation(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]), 2.0);
        assert_eq!(deviation(&[0.1; 1_000]), 0.0);
        assert_eq!(
            deviation(&[1e15 + 1.0, 1e15 + 2.0, 1e15 + 3.0]),
            (2.0f64 / 3.0).sqrt()
        );
        let mut window = Deviation::default();
        for value in [i64::MAX, i64::MAX - 2] {
            window.add(Scalar::Signed(value));
        }
        assert_eq!(window.get(), Some(ValueRef::Float(1.0)));
    }

    #[test]
    fn any_parting_gives_the_same() {
        let values: Vec<f64> = (0..997)
            .map(|at| 1e9 + f64::from((at * 7_919) % 997) / 1e3)
            .collect();
        let whole = deviation(&values);
        for parts in [2, 7, 100, 997] {
            let mut merged = Deviation::default();
            for part in values.chunks(values.len().div_ceil(parts)).rev() {
                let mut window = Deviation::default();
                part.iter().for_each(|value| window.add(Scalar::Float(*value)));
                merged.merge(&window);
            }
            let Some(ValueRef::Float(found)) = merged.get() else {
                panic!("a number")
            };
            assert!((found - whole).abs() <= 1e-14 * whole, "{parts}: {found} {whole}");
        }
    }

    #[test]
    fn what_is_not_finite_has_no_deviation() {
        assert!(deviation(&[1.0, f64::NAN]).is_nan());
        assert!(deviation(&[f64::INFINITY]).is_nan());
        assert_eq!(deviation(&[1e300, -1e300]), f64::INFINITY);
        assert_eq!(deviation(&[7.0]), 0.0);
    }
}

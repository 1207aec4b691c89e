//! Sums: exact in 128 bits for integers, compensated for floats.
//!
//! The inner loops over integers add 32-bit halves, so that the compiler can vectorize them without losing
//! exactness.

use tideline_engine::model::{ColumnData, CompensatedSum, ValueType};
use tideline_engine::points::ValueSummary;

use super::scalar::Scalar;
use super::{Overflow, Slice};
use crate::result::ValueRef;

/// Maximum number of values for which one-by-one 128-bit addition is at least as fast as addition in halves.
const SHORT: usize = 8;

/// Sum of numbers of any type.
///
/// Integers of both kinds are added exactly: 2⁶³ values of 64 bits fit. Floats are kept as an unevaluated pair
/// (Neumaier's variant of Kahan summation). The order of additions and merges therefore changes the result by at most
/// 1e-12 (relative), unless values far larger than the result cancel each other. A result beyond the range of doubles
/// is infinite.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sum {
    integers: i128,
    floats: CompensatedSum,
    types: Types,
}

/// Set of the types that have been added.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Types(u16);

impl Types {
    fn of(value_type: ValueType) -> Self {
        Self(1 << value_type.code())
    }
}

impl Sum {
    /// Adds one number.
    pub fn add(&mut self, value: Scalar) {
        self.types.0 |= Types::of(value.value_type()).0;
        match value.as_integer() {
            Some(integer) => self.integers += integer,
            None => self.floats.add(value.as_f64()),
        }
    }

    /// Adds to the integer part; the caller [marks](Self::mark) the type.
    pub(crate) fn add_integer(&mut self, integer: i128) {
        self.integers += integer;
    }

    /// Marks a type as added without adding a value.
    pub(crate) fn mark(&mut self, value_type: ValueType) {
        self.types.0 |= Types::of(value_type).0;
    }

    /// Merges another sum.
    pub fn merge(&mut self, other: &Self) {
        self.types.0 |= other.types.0;
        self.integers += other.integers;
        if other.types.0 & Types::of(ValueType::Float).0 != 0 {
            self.floats.merge(other.floats);
        }
    }

    /// Returns true if no value was added and no type was marked.
    pub fn is_empty(&self) -> bool {
        self.types == Types::default()
    }

    /// Returns the sum in the type of the values, as float if they had several types; `None` if nothing was
    /// added.
    ///
    /// # Errors
    ///
    /// [`Overflow`] if all values are of one integer type and their sum does not fit it.
    pub fn total(&self) -> Result<Option<ValueRef<'static>>, Overflow> {
        let only = |value_type| self.types == Types::of(value_type);
        Ok(if self.is_empty() {
            None
        } else if only(ValueType::Signed) {
            Some(ValueRef::Signed(self.exact()?))
        } else if only(ValueType::Unsigned) {
            Some(ValueRef::Unsigned(self.exact()?))
        } else {
            Some(ValueRef::Float(self.as_f64()))
        })
    }

    /// Returns the integer sum as type `T`.
    fn exact<T: TryFrom<i128>>(&self) -> Result<T, Overflow> {
        T::try_from(self.integers).map_err(|_| Overflow(self.integers as f64))
    }

    /// Returns the sum as a double, rounded once if all values were integers.
    pub fn as_f64(&self) -> f64 {
        let mut floats = self.floats;
        if self.integers != 0 {
            // Nearly every sum fits 64 bits. Converting 64 bits takes a tenth of the time of converting 128 bits.
            let small = i64::try_from(self.integers);
            let rounded = small.map_or_else(|_| self.integers as f64, |small| small as f64);
            floats.add(rounded);
        }
        if floats.sum.is_finite() {
            floats.total()
        } else {
            floats.sum
        }
    }
}

impl From<&ValueSummary> for Sum {
    fn from(summary: &ValueSummary) -> Self {
        let types = Types::of(Scalar::from(summary.min).value_type());
        match summary.sum {
            tideline_engine::points::Sum::Integer(integers) => Self {
                integers,
                types,
                ..Self::default()
            },
            tideline_engine::points::Sum::Float { sum, correction } => Self {
                floats: CompensatedSum {
                    sum,
                    compensation: correction,
                },
                types,
                ..Self::default()
            },
        }
    }
}

/// Sums each segment of a slice and passes its window, sum and count to `take`. Slices that do not contain numbers
/// are skipped.
pub(super) fn add(slice: &Slice<'_>, mut take: impl FnMut(usize, Sum, u64)) {
    match slice.values {
        ColumnData::Float(values) => {
            for segment in slice.segments {
                let part = &values[segment.values.clone()];
                let mut sum = Sum::default();
                sum.mark(ValueType::Float);
                part.iter().for_each(|value| sum.floats.add(*value));
                take(segment.window, sum, part.len() as u64);
            }
        }
        ColumnData::Signed(values) => {
            for segment in slice.segments {
                let part = &values[segment.values.clone()];
                let sum = Sum {
                    integers: sum_signed(part),
                    types: Types::of(ValueType::Signed),
                    ..Sum::default()
                };
                take(segment.window, sum, part.len() as u64);
            }
        }
        ColumnData::Unsigned(values) => {
            for segment in slice.segments {
                let part = &values[segment.values.clone()];
                let sum = Sum {
                    integers: sum_unsigned(part),
                    types: Types::of(ValueType::Unsigned),
                    ..Sum::default()
                };
                take(segment.window, sum, part.len() as u64);
            }
        }
        ColumnData::Boolean(_) | ColumnData::String(_) | ColumnData::Histogram(_) => {}
    }
}

/// Returns the exact sum of signed integers.
///
/// The integers are biased by 2⁶³ to unsigned so that the loop vectorizes: SSE2 has no arithmetic right shift of 64-bit
/// integers.
fn sum_signed(values: &[i64]) -> i128 {
    if values.len() <= SHORT {
        return values.iter().map(|value| i128::from(*value)).sum();
    }
    const BIAS: u64 = 1 << 63;
    let biased = sum_halves(values.iter().map(|value| *value as u64 ^ BIAS), values.len());
    biased - (values.len() as i128) * i128::from(BIAS)
}

/// Returns the exact sum of unsigned integers.
fn sum_unsigned(values: &[u64]) -> i128 {
    if values.len() <= SHORT {
        return values.iter().map(|value| i128::from(*value)).sum();
    }
    sum_halves(values.iter().copied(), values.len())
}

/// Adds the low and high 32 bits separately: two plain 64-bit sums, which the compiler vectorizes.
fn sum_halves(values: impl Iterator<Item = u64>, count: usize) -> i128 {
    // A run has at most 2¹⁷ rows, so neither half can overflow; a wrapping sum needs no check in the loop.
    debug_assert!(count <= 1 << 32);
    let (low, high) = values.fold((0u64, 0u64), |(low, high), value| {
        (
            low.wrapping_add(value & u64::from(u32::MAX)),
            high.wrapping_add(value >> 32),
        )
    });
    (i128::from(high) << 32) + i128::from(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_add_up_exactly_at_the_ends_of_their_types() {
        let signed = [
            i64::MIN,
            i64::MAX,
            -1,
            0,
            5,
            i64::MIN,
            i64::MAX,
            7,
            9,
            i64::MIN,
            3,
        ];
        for length in 0..=signed.len() {
            let exact: i128 = signed[..length].iter().map(|value| i128::from(*value)).sum();
            assert_eq!(sum_signed(&signed[..length]), exact, "{length}");
        }
        let unsigned = vec![u64::MAX; 100];
        assert_eq!(sum_unsigned(&unsigned), i128::from(u64::MAX) * 100);
    }

    #[test]
    fn floats_that_cancel_leave_what_is_small() {
        let mut sum = Sum::default();
        for value in [1e100, 1.0, -1e100, 1e-3] {
            sum.add(Scalar::Float(value));
        }
        assert_eq!(sum.as_f64(), 1.001);
        let mut halves = [Sum::default(), Sum::default()];
        halves[0].add(Scalar::Float(1e100));
        halves[0].add(Scalar::Float(1.0));
        halves[1].add(Scalar::Float(-1e100));
        let [mut left, right] = halves;
        left.merge(&right);
        assert_eq!(left.as_f64(), 1.0);
    }

    #[test]
    fn infinities_and_nan_stay_what_they_are() {
        let of = |values: &[f64]| {
            let mut sum = Sum::default();
            values.iter().for_each(|value| sum.add(Scalar::Float(*value)));
            sum.as_f64()
        };
        assert_eq!(of(&[1.0, f64::INFINITY, 2.0]), f64::INFINITY);
        assert!(of(&[f64::INFINITY, f64::NEG_INFINITY]).is_nan());
        assert!(of(&[1.0, f64::NAN]).is_nan());
        assert_eq!(of(&[f64::MAX, f64::MAX]), f64::INFINITY);
    }

    #[test]
    fn types_decide_the_type_of_the_sum() {
        let of = |values: &[Scalar]| {
            let mut sum = Sum::default();
            values.iter().for_each(|value| sum.add(*value));
            sum.total()
        };
        assert_eq!(of(&[]), Ok(None));
        assert_eq!(
            of(&[Scalar::Signed(-3), Scalar::Signed(1)]),
            Ok(Some(ValueRef::Signed(-2)))
        );
        assert_eq!(of(&[Scalar::Unsigned(3)]), Ok(Some(ValueRef::Unsigned(3))));
        assert_eq!(
            of(&[Scalar::Unsigned(3), Scalar::Signed(-1)]),
            Ok(Some(ValueRef::Float(2.0)))
        );
        assert_eq!(
            of(&[Scalar::Float(0.5), Scalar::Signed(1)]),
            Ok(Some(ValueRef::Float(1.5)))
        );
        let big = [Scalar::Signed(i64::MAX), Scalar::Signed(1)];
        assert_eq!(of(&big), Err(Overflow(9_223_372_036_854_775_808.0)));
        let big = [Scalar::Unsigned(u64::MAX), Scalar::Unsigned(1)];
        assert_eq!(of(&big), Err(Overflow(18_446_744_073_709_551_616.0)));
    }
}

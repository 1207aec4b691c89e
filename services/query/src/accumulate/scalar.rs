//! One number or boolean of any type, small enough to copy.
//!
//! Accumulators, ranks and samples use this type; comparisons between numbers of different types are exact.

use std::cmp::Ordering;

use tideline_engine::model::{ColumnData, Value, ValueType};
use tideline_engine::points::Number;

use crate::result::ValueRef;

/// Value that is neither a string nor a histogram.
#[derive(Debug, Clone, Copy)]
pub enum Scalar {
    /// Double.
    Float(f64),
    /// Signed integer.
    Signed(i64),
    /// Unsigned integer.
    Unsigned(u64),
    /// Boolean.
    Boolean(bool),
}

impl Scalar {
    /// Returns the value at a position of a column; `None` for strings and histograms.
    pub fn at(values: &ColumnData, at: usize) -> Option<Self> {
        Some(match values {
            ColumnData::Float(values) => Self::Float(values[at]),
            ColumnData::Signed(values) => Self::Signed(values[at]),
            ColumnData::Unsigned(values) => Self::Unsigned(values[at]),
            ColumnData::Boolean(values) => Self::Boolean(values[at]),
            ColumnData::String(_) | ColumnData::Histogram(_) => return None,
        })
    }

    /// Returns the type.
    pub fn value_type(self) -> ValueType {
        match self {
            Self::Float(_) => ValueType::Float,
            Self::Signed(_) => ValueType::Signed,
            Self::Unsigned(_) => ValueType::Unsigned,
            Self::Boolean(_) => ValueType::Boolean,
        }
    }

    /// Returns the scalar as an owned value.
    pub fn to_value(self) -> Value {
        match self {
            Self::Float(value) => Value::Float(value),
            Self::Signed(value) => Value::Signed(value),
            Self::Unsigned(value) => Value::Unsigned(value),
            Self::Boolean(value) => Value::Boolean(value),
        }
    }

    /// Returns true if the scalar is a NaN float.
    pub fn is_nan(self) -> bool {
        matches!(self, Self::Float(value) if value.is_nan())
    }

    /// Returns an integer, or a boolean as 0 or 1, without loss; `None` for floats.
    pub fn as_integer(self) -> Option<i128> {
        match self {
            Self::Float(_) => None,
            Self::Signed(value) => Some(value.into()),
            Self::Unsigned(value) => Some(value.into()),
            Self::Boolean(value) => Some(value.into()),
        }
    }

    /// Returns the value as a double; integers beyond 2⁵³ are rounded.
    pub fn as_f64(self) -> f64 {
        match self {
            Self::Float(value) => value,
            Self::Signed(value) => value as f64,
            Self::Unsigned(value) => value as f64,
            Self::Boolean(value) => f64::from(u8::from(value)),
        }
    }

    /// Compares by exact numeric value, then by type, then by the bits of floats. This is a total order in which
    /// only identical scalars are equal. NaN is below or above all numbers, depending on its sign.
    pub fn compare(self, other: Self) -> Ordering {
        let by_value = match (self.as_integer(), other.as_integer()) {
            (Some(a), Some(b)) => a.cmp(&b),
            (None, None) => return self.as_f64().total_cmp(&other.as_f64()),
            (Some(a), None) => compare_mixed(a, other.as_f64()),
            (None, Some(b)) => compare_mixed(b, self.as_f64()).reverse(),
        };
        by_value.then(self.value_type().cmp(&other.value_type()))
    }

    /// Compares by exact numeric value only: −0.0 equals 0.0, and numbers of different types with the same value are
    /// equal. NaN is below or above all numbers, depending on its sign.
    pub fn compare_values(self, other: Self) -> Ordering {
        match (self.as_integer(), other.as_integer()) {
            (Some(a), Some(b)) => a.cmp(&b),
            (None, None) => {
                let (a, b) = (self.as_f64(), other.as_f64());
                a.partial_cmp(&b).unwrap_or_else(|| a.total_cmp(&b))
            }
            (Some(a), None) => compare_mixed(a, other.as_f64()),
            (None, Some(b)) => compare_mixed(b, self.as_f64()).reverse(),
        }
    }
}

impl From<Scalar> for ValueRef<'_> {
    fn from(scalar: Scalar) -> Self {
        match scalar {
            Scalar::Float(value) => Self::Float(value),
            Scalar::Signed(value) => Self::Signed(value),
            Scalar::Unsigned(value) => Self::Unsigned(value),
            Scalar::Boolean(value) => Self::Boolean(value),
        }
    }
}

impl From<Number> for Scalar {
    fn from(number: Number) -> Self {
        match number {
            Number::Float(value) => Self::Float(value),
            Number::Signed(value) => Self::Signed(value),
            Number::Unsigned(value) => Self::Unsigned(value),
        }
    }
}

/// Compares an integer of at most 65 bits exactly with a double.
fn compare_mixed(integer: i128, float: f64) -> Ordering {
    if float.is_nan() {
        return if float.is_sign_negative() {
            Ordering::Greater
        } else {
            Ordering::Less
        };
    }
    // The cast saturates only far beyond the range of `integer`. If the whole parts are equal, the fraction is compared
    // with zero.
    let whole = float.trunc();
    integer
        .cmp(&(whole as i128))
        .then(0.0f64.partial_cmp(&(float - whole)).unwrap_or(Ordering::Equal))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mixed_numbers_compare_exactly() {
        let rising = [
            Scalar::Float(f64::NEG_INFINITY),
            Scalar::Signed(i64::MIN),
            Scalar::Float(-0.5),
            Scalar::Float(-0.0),
            Scalar::Float(0.0),
            Scalar::Signed(0),
            Scalar::Unsigned(0),
            Scalar::Float(0.5),
            Scalar::Signed((1 << 53) + 1),
            Scalar::Float(((1u64 << 53) + 2) as f64),
            Scalar::Signed(i64::MAX),
            Scalar::Float(9_223_372_036_854_775_808.0),
            Scalar::Unsigned((1 << 63) + 1),
            Scalar::Unsigned(u64::MAX),
            Scalar::Float(18_446_744_073_709_551_616.0),
            Scalar::Float(f64::INFINITY),
        ];
        for (i, a) in rising.iter().enumerate() {
            for (j, b) in rising.iter().enumerate() {
                assert_eq!(a.compare(*b), i.cmp(&j), "{a:?} {b:?}");
            }
        }
    }
}

//! Input of the evaluation of a condition.

use tideline_model::{GeoPoint, TimelineId, Timestamp};

use crate::condition::Subject;
use crate::literal::Literal;

/// A timeline, point, row or message that conditions are evaluated on.
pub trait Record {
    /// Calls `take` with each value of the subject until `take` returns true; returns true if a call returned true. A
    /// list has several values, a missing subject has no value. The values of [`Subject::Any`] are all texts of the
    /// record.
    fn any_value(&self, subject: &Subject, take: impl FnMut(ValueRef<'_>) -> bool) -> bool;
}

/// One value of a subject.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ValueRef<'a> {
    /// Text.
    Text(&'a str),
    /// A double.
    Float(f64),
    /// A signed integer.
    Signed(i64),
    /// An unsigned integer.
    Unsigned(u64),
    /// True or false.
    Boolean(bool),
    /// A time. In a column of a row, the column has no declared type; declared timestamps are
    /// [`Signed`](Self::Signed).
    Time(Timestamp),
    /// Decimal in a column without a declared type, as a text. The texts sort like the decimals, and no text is a prefix
    /// of another one. Declared decimals are such texts as [`Text`](Self::Text).
    Decimal(&'a str),
    /// Bytes in a column without a declared type, as a text. The texts sort like the bytes. Declared bytes are such texts
    /// as [`Text`](Self::Text).
    Bytes(&'a str),
    /// A geo point.
    Point(GeoPoint),
    /// A timeline id.
    Id(TimelineId),
    /// Value that no operator compares, such as a histogram.
    Opaque,
}

impl ValueRef<'_> {
    /// Returns true if the value equals a literal that is neither text nor a list. Attributes hold doubles, so
    /// integers are compared as doubles. Field values are compared by [`crate::intervals::Intervals`].
    pub(crate) fn is(&self, literal: &Literal) -> bool {
        match (self, literal) {
            (Self::Float(value), literal) => literal.as_f64() == Some(*value),
            (Self::Boolean(value), Literal::Boolean(literal)) => value == literal,
            (Self::Time(value), literal) => literal.as_time() == Some(*value),
            (Self::Point(value), Literal::Point(lat_lon)) => lat_lon.point() == Some(*value),
            _ => false,
        }
    }
}

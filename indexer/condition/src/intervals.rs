//! Intervals of values, for each type that a column may have.
//!
//! The bounds of an interval may have any number type. For a column of another type, each bound is moved inward to the
//! next value of the column's type. A comparison in the type of the column is then exact.
//!
//! A column of a row without a declared type may also have timestamps, decimals and bytes. The intervals of these kinds
//! are separate, because a literal has another form for each of them ([`LiteralForms`]).

use std::ops::{Bound, RangeBounds};

use tideline_model::ValueKind;

use crate::literal::{Literal, LiteralForms};
use crate::record::ValueRef;

/// Bounds of an interval of texts.
type TextEnds = (Bound<Box<str>>, Bound<Box<str>>);

/// Sorted intervals of values. Intervals of numbers include both ends.
#[derive(Debug, Clone, Default)]
pub struct Intervals {
    kind: Option<ValueKind>,
    floats: Vec<(f64, f64)>,
    signed: Vec<(i64, i64)>,
    unsigned: Vec<(u64, u64)>,
    booleans: [bool; 2],
    /// Single texts, sorted.
    texts: Vec<Box<str>>,
    /// Interval of texts.
    between: Option<TextEnds>,
    /// Intervals of the other kinds of values; only if a literal has forms of them.
    typed: Option<Box<TypedIntervals>>,
}

/// Intervals of the values that only columns without a declared type have.
#[derive(Debug, Clone)]
struct TypedIntervals {
    /// Timestamps, as nanoseconds.
    times: Intervals,
    /// Decimals, as texts.
    decimals: Intervals,
    /// Bytes, as texts.
    bytes: Intervals,
}

impl Intervals {
    /// Creates intervals from a list of single values, or from one pair of bounds.
    ///
    /// # Errors
    ///
    /// A message if the values have different kinds, are not finite, or cannot be compared.
    pub fn new(values: &[(Bound<&Literal>, Bound<&Literal>)]) -> Result<Self, &'static str> {
        let mut literals = values
            .iter()
            .flat_map(|(from, to)| [from, to])
            .filter_map(value_of);
        if !literals.any(|literal| matches!(literal, Literal::Forms(_))) {
            return Self::of_plain(values);
        }
        let of = |form: fn(&LiteralForms) -> Option<&Literal>, is_plain| {
            let ends = values.iter().filter_map(|(from, to)| {
                Some((
                    end_in_form(*from, form, is_plain)?,
                    end_in_form(*to, form, is_plain)?,
                ))
            });
            Self::of_plain(&ends.collect::<Vec<_>>())
        };
        let typed = TypedIntervals {
            times: of(|forms| forms.nanos.as_ref(), false)?,
            decimals: of(|forms| forms.decimal.as_ref(), false)?,
            bytes: of(|forms| forms.bytes.as_ref(), false)?,
        };
        Ok(Self {
            typed: Some(Box::new(typed)),
            ..of(|forms| forms.plain.as_ref(), true)?
        })
    }

    /// Creates intervals of texts, booleans and numbers.
    fn of_plain(values: &[(Bound<&Literal>, Bound<&Literal>)]) -> Result<Self, &'static str> {
        let mut intervals = Self::default();
        for (from, to) in values {
            for value in [from, to].into_iter().filter_map(value_of) {
                let kind = kind_of(value)?;
                if intervals.kind.replace(kind).is_some_and(|other| other != kind) {
                    return Err("a test must compare with values of one kind");
                }
                if value.as_f64().is_some_and(|value| !value.is_finite()) {
                    return Err("a test must compare with finite numbers");
                }
            }
            intervals.push(*from, *to)?;
        }
        intervals.floats.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        intervals.signed.sort_unstable();
        intervals.unsigned.sort_unstable();
        intervals.texts.sort_unstable();
        Ok(intervals)
    }

    /// Returns the kind of the values; `None` if there are no texts, booleans and numbers.
    pub fn kind(&self) -> Option<ValueKind> {
        self.kind
    }

    /// Returns true if a double is in one of the intervals.
    #[inline]
    pub fn has_float(&self, value: f64) -> bool {
        has(&self.floats, value)
    }

    /// Returns true if a signed integer is in one of the intervals.
    #[inline]
    pub fn has_signed(&self, value: i64) -> bool {
        has(&self.signed, value)
    }

    /// Returns true if an unsigned integer is in one of the intervals.
    #[inline]
    pub fn has_unsigned(&self, value: u64) -> bool {
        has(&self.unsigned, value)
    }

    /// Returns true if a boolean is in one of the intervals.
    #[inline]
    pub fn has_boolean(&self, value: bool) -> bool {
        self.booleans[usize::from(value)]
    }

    /// Returns true if a text is in one of the intervals.
    pub fn has_text(&self, value: &str) -> bool {
        match &self.between {
            None => self.texts.binary_search_by(|text| (**text).cmp(value)).is_ok(),
            Some((from, to)) => {
                let ends = (from.as_ref().map(Box::as_ref), to.as_ref().map(Box::as_ref));
                RangeBounds::<str>::contains(&ends, value)
            }
        }
    }

    /// Returns true if a value is in one of the intervals.
    pub fn has(&self, value: ValueRef<'_>) -> bool {
        match value {
            ValueRef::Text(text) => self.has_text(text),
            ValueRef::Float(number) => self.has_float(number),
            ValueRef::Signed(number) => self.has_signed(number),
            ValueRef::Unsigned(number) => self.has_unsigned(number),
            ValueRef::Boolean(boolean) => self.has_boolean(boolean),
            ValueRef::Time(time) => self
                .typed
                .as_ref()
                .is_some_and(|typed| typed.times.has_signed(time.nanos())),
            ValueRef::Decimal(text) => self
                .typed
                .as_ref()
                .is_some_and(|typed| typed.decimals.has_text(text)),
            ValueRef::Bytes(text) => self
                .typed
                .as_ref()
                .is_some_and(|typed| typed.bytes.has_text(text)),
            ValueRef::Point(_) | ValueRef::Id(_) | ValueRef::Opaque => false,
        }
    }

    /// Returns the intervals of doubles, sorted. Both ends are included.
    pub fn floats(&self) -> &[(f64, f64)] {
        &self.floats
    }

    /// Returns the intervals of signed integers, sorted. Both ends are included.
    pub fn signed(&self) -> &[(i64, i64)] {
        &self.signed
    }

    /// Returns the intervals of unsigned integers, sorted. Both ends are included.
    pub fn unsigned(&self) -> &[(u64, u64)] {
        &self.unsigned
    }

    /// Returns the single texts, sorted.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.texts.iter().map(Box::as_ref)
    }

    /// Returns the interval of texts; `None` if the intervals are single texts.
    pub fn text_range(&self) -> Option<(Bound<&str>, Bound<&str>)> {
        let (from, to) = self.between.as_ref()?;
        Some((from.as_ref().map(Box::as_ref), to.as_ref().map(Box::as_ref)))
    }

    /// Returns true if an interval overlaps the inclusive range of doubles.
    pub fn overlaps_floats(&self, min: f64, max: f64) -> bool {
        overlaps(&self.floats, min, max)
    }

    /// Returns true if an interval overlaps the inclusive range of signed integers.
    pub fn overlaps_signed(&self, min: i64, max: i64) -> bool {
        overlaps(&self.signed, min, max)
    }

    /// Returns true if an interval overlaps the inclusive range of unsigned integers.
    pub fn overlaps_unsigned(&self, min: u64, max: u64) -> bool {
        overlaps(&self.unsigned, min, max)
    }

    fn push(&mut self, from: Bound<&Literal>, to: Bound<&Literal>) -> Result<(), &'static str> {
        match self.kind {
            None => {}
            Some(ValueKind::Number) => self.push_numbers(scalar(from), scalar(to)),
            Some(ValueKind::Boolean) => match (from, to) {
                (Bound::Included(Literal::Boolean(from)), Bound::Included(Literal::Boolean(to)))
                    if from == to =>
                {
                    self.booleans[usize::from(*from)] = true;
                }
                _ => {
                    return Err(
                        "booleans are equal or not: they have no order, use equals, not_equals or in",
                    );
                }
            },
            Some(ValueKind::String) => match (from, to) {
                (Bound::Included(Literal::Text(from)), Bound::Included(Literal::Text(to))) if from == to => {
                    self.texts.push(from.as_str().into());
                }
                _ => self.between = Some((from.map(text), to.map(text))),
            },
            Some(ValueKind::Histogram) => {}
        }
        Ok(())
    }

    fn push_numbers(&mut self, from: Bound<Scalar>, to: Bound<Scalar>) {
        let (low, high) = (lowest_float(from), highest_float(to));
        if low <= high {
            self.floats.push((low, high));
        }
        let (low, high) = (lowest_integer(from), highest_integer(to));
        let (first, last) = (low.max(i64::MIN.into()), high.min(i64::MAX.into()));
        if first <= last {
            self.signed.push((first as i64, last as i64));
        }
        let (first, last) = (low.max(0), high.min(u64::MAX.into()));
        if first <= last {
            self.unsigned.push((first as u64, last as u64));
        }
    }
}

fn value_of<'a>(bound: &Bound<&'a Literal>) -> Option<&'a Literal> {
    match bound {
        Bound::Included(value) | Bound::Excluded(value) => Some(value),
        Bound::Unbounded => None,
    }
}

/// Returns an end of an interval in one of the forms of its literal. A literal without forms is plain. Returns `None` if
/// the literal does not have the form; the interval then has no values of this kind.
fn end_in_form<'a>(
    end: Bound<&'a Literal>,
    form: fn(&LiteralForms) -> Option<&Literal>,
    is_plain: bool,
) -> Option<Bound<&'a Literal>> {
    let in_form = |literal: &'a Literal| match literal {
        Literal::Forms(forms) => form(forms),
        literal => is_plain.then_some(literal),
    };
    Some(match end {
        Bound::Included(literal) => Bound::Included(in_form(literal)?),
        Bound::Excluded(literal) => Bound::Excluded(in_form(literal)?),
        Bound::Unbounded => Bound::Unbounded,
    })
}

fn text(value: &Literal) -> Box<str> {
    match value {
        Literal::Text(text) => text.as_str().into(),
        _ => Box::default(),
    }
}

/// Returns the kind of field values that a literal belongs to.
fn kind_of(literal: &Literal) -> Result<ValueKind, &'static str> {
    match literal {
        Literal::Text(_) => Ok(ValueKind::String),
        Literal::Boolean(_) => Ok(ValueKind::Boolean),
        Literal::Signed(_) | Literal::Unsigned(_) | Literal::Float(_) | Literal::Digits(_) => {
            Ok(ValueKind::Number)
        }
        Literal::Time { .. }
        | Literal::Point(_)
        | Literal::Texts(_)
        | Literal::Numbers(_)
        | Literal::Typed(_)
        | Literal::Forms(_) => Err("a test must compare with a text, a boolean or a number"),
    }
}

/// Number of any type.
#[derive(Debug, Clone, Copy)]
enum Scalar {
    Float(f64),
    Signed(i64),
    Unsigned(u64),
}

impl Scalar {
    fn as_integer(self) -> Option<i128> {
        match self {
            Self::Float(_) => None,
            Self::Signed(value) => Some(value.into()),
            Self::Unsigned(value) => Some(value.into()),
        }
    }

    fn as_f64(self) -> f64 {
        match self {
            Self::Float(value) => value,
            Self::Signed(value) => value as f64,
            Self::Unsigned(value) => value as f64,
        }
    }
}

fn scalar(bound: Bound<&Literal>) -> Bound<Scalar> {
    bound.map(|value| match value {
        Literal::Float(value) => Scalar::Float(*value),
        Literal::Unsigned(value) => Scalar::Unsigned(*value),
        Literal::Signed(value) => Scalar::Signed(*value),
        Literal::Digits(_) => Scalar::Float(value.as_f64().unwrap_or_default()),
        _ => Scalar::Signed(0),
    })
}

/// Returns true if a value is in one of the sorted, disjoint intervals.
fn has<T: PartialOrd + Copy>(intervals: &[(T, T)], value: T) -> bool {
    if let [(low, high)] = intervals {
        return *low <= value && value <= *high;
    }
    let begun = intervals.partition_point(|(low, _)| *low <= value);
    begun > 0 && value <= intervals[begun - 1].1
}

/// Returns true if one of the intervals overlaps an inclusive range.
fn overlaps<T: PartialOrd + Copy>(intervals: &[(T, T)], min: T, max: T) -> bool {
    intervals.iter().any(|(low, high)| *low <= max && min <= *high)
}

/// Returns the lowest double that a lower bound allows.
fn lowest_float(from: Bound<Scalar>) -> f64 {
    let (value, is_inside) = match from {
        Bound::Unbounded => return f64::NEG_INFINITY,
        Bound::Included(value) => (value, true),
        Bound::Excluded(value) => (value, false),
    };
    let near = value.as_f64();
    // An integer may be between two doubles, so the nearest double may be below or above it.
    let order = value
        .as_integer()
        .map_or(0i128.cmp(&0), |exact| (near as i128).cmp(&exact));
    if order.is_gt() || (order.is_eq() && is_inside) {
        near
    } else {
        near.next_up()
    }
}

/// Returns the highest double that an upper bound allows.
fn highest_float(to: Bound<Scalar>) -> f64 {
    let (value, is_inside) = match to {
        Bound::Unbounded => return f64::INFINITY,
        Bound::Included(value) => (value, true),
        Bound::Excluded(value) => (value, false),
    };
    let near = value.as_f64();
    let order = value
        .as_integer()
        .map_or(0i128.cmp(&0), |exact| (near as i128).cmp(&exact));
    if order.is_lt() || (order.is_eq() && is_inside) {
        near
    } else {
        near.next_down()
    }
}

/// Returns the lowest integer that a lower bound allows. The casts saturate far beyond 64 bits.
fn lowest_integer(from: Bound<Scalar>) -> i128 {
    match from {
        Bound::Unbounded => i128::MIN,
        Bound::Included(value) => value
            .as_integer()
            .unwrap_or_else(|| value.as_f64().ceil() as i128),
        Bound::Excluded(value) => {
            let below = value
                .as_integer()
                .unwrap_or_else(|| value.as_f64().floor() as i128);
            below.saturating_add(1)
        }
    }
}

/// Returns the highest integer that an upper bound allows.
fn highest_integer(to: Bound<Scalar>) -> i128 {
    match to {
        Bound::Unbounded => i128::MAX,
        Bound::Included(value) => value
            .as_integer()
            .unwrap_or_else(|| value.as_f64().floor() as i128),
        Bound::Excluded(value) => {
            let above = value
                .as_integer()
                .unwrap_or_else(|| value.as_f64().ceil() as i128);
            above.saturating_sub(1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_of_any_type_bound_columns_of_any_type_exactly() {
        let big = 1i64 << 53;
        let ends = [
            Literal::Signed(-3),
            Literal::Float(-2.5),
            Literal::Float(-0.0),
            Literal::Unsigned(0),
            Literal::Float(0.5),
            Literal::Signed(7),
            Literal::Signed(big + 1),
            Literal::Float(9_007_199_254_740_994.0),
            Literal::Signed(i64::MAX),
            Literal::Unsigned(u64::MAX),
            Literal::Float(1e300),
        ];
        let integers = [i64::MIN, -4, -3, -2, 0, 1, 7, 8, big, big + 1, big + 2, i64::MAX];
        let floats = [
            -1e300,
            -3.0,
            -2.5,
            -0.0,
            0.0,
            0.25,
            0.5,
            7.0,
            9_007_199_254_740_992.0,
            1e300,
        ];
        for end in &ends {
            let Bound::Included(of) = scalar(Bound::Included(end)) else {
                panic!("a number")
            };
            let above = Intervals::new(&[(Bound::Excluded(end), Bound::Unbounded)]).expect("numbers");
            let upto = Intervals::new(&[(Bound::Unbounded, Bound::Included(end))]).expect("numbers");
            let below = Intervals::new(&[(Bound::Unbounded, Bound::Excluded(end))]).expect("numbers");
            let from = Intervals::new(&[(Bound::Included(end), Bound::Unbounded)]).expect("numbers");
            let same = Intervals::new(&[(Bound::Included(end), Bound::Included(end))]).expect("numbers");
            for value in integers {
                let order = exact(Scalar::Signed(value), of);
                assert_eq!(above.has_signed(value), order.is_gt(), "{value} > {end:?}");
                assert_eq!(upto.has_signed(value), order.is_le(), "{value} <= {end:?}");
                assert_eq!(below.has_signed(value), order.is_lt(), "{value} < {end:?}");
                assert_eq!(from.has_signed(value), order.is_ge(), "{value} >= {end:?}");
                assert_eq!(same.has_signed(value), order.is_eq(), "{value} = {end:?}");
            }
            for value in floats {
                let order = exact(Scalar::Float(value), of);
                assert_eq!(above.has_float(value), order.is_gt(), "{value} > {end:?}");
                assert_eq!(upto.has_float(value), order.is_le(), "{value} <= {end:?}");
                assert_eq!(below.has_float(value), order.is_lt(), "{value} < {end:?}");
                assert_eq!(from.has_float(value), order.is_ge(), "{value} >= {end:?}");
                assert_eq!(same.has_float(value), order.is_eq(), "{value} = {end:?}");
            }
            assert!(!above.has_float(f64::NAN) && !upto.has_float(f64::NAN));
        }
    }

    /// Compares two numbers by exact value.
    fn exact(a: Scalar, b: Scalar) -> std::cmp::Ordering {
        match (a, b) {
            (Scalar::Float(a), Scalar::Float(b)) => a.partial_cmp(&b).expect("numbers"),
            (Scalar::Float(float), other) | (other, Scalar::Float(float)) => {
                let integer = other.as_integer().expect("an integer");
                let order = if float.abs() >= 1e30 {
                    0.0.partial_cmp(&float).expect("a number")
                } else {
                    let whole = float.floor();
                    let order = integer.cmp(&(whole as i128));
                    if order.is_eq() && float > whole {
                        std::cmp::Ordering::Less
                    } else {
                        order
                    }
                };
                // `order` is the order of the integer relative to the float.
                if matches!(a, Scalar::Float(_)) {
                    order.reverse()
                } else {
                    order
                }
            }
            _ => a.as_integer().cmp(&b.as_integer()),
        }
    }
}

//! Distinct values of a window with their numbers of occurrences, for `count_distinct` and `mode`.
//!
//! Each window with values has hash maps that grow with its distinct values. The estimated bytes of the maps count
//! against the query budget.

use std::cmp::Ordering;

use hashbrown::HashMap;
use tideline_engine::model::ColumnData;

use super::Slice;
use super::scalar::Scalar;
use crate::result::ValueRef;

/// Estimated bytes of a map entry, for a map that may be half empty. The bytes of a string count in addition.
const ENTRY_BYTES: u64 = 96;
/// Bytes of the maps of one window, with their initial tables.
const TALLY_BYTES: u64 = 256;

/// Distinct values of each window.
#[derive(Debug)]
pub struct Tallies {
    windows: Vec<Option<Box<Tally>>>,
    held: u64,
}

/// Distinct values of one window.
#[derive(Debug, Default)]
struct Tally {
    scalars: HashMap<Key, Seen>,
    texts: HashMap<Box<str>, u64>,
}

/// Key of a value. Numbers of different types have the same key if their exact values are equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Key {
    Unsigned(u64),
    Negative(i64),
    /// Bits of a double that is not a 64-bit integer.
    Float(u64),
    Boolean(bool),
}

/// Number of occurrences of a value.
#[derive(Debug, Clone, Copy)]
struct Seen {
    count: u64,
    /// Lowest of the equal scalars (of several types) that were added.
    form: Scalar,
}

impl Key {
    fn of(value: Scalar) -> Self {
        match value {
            Scalar::Unsigned(value) => Self::Unsigned(value),
            Scalar::Signed(value) => u64::try_from(value).map_or(Self::Negative(value), Self::Unsigned),
            Scalar::Boolean(value) => Self::Boolean(value),
            Scalar::Float(value) if value.is_nan() => Self::Float(f64::NAN.to_bits()),
            // The casts saturate. A value that is unchanged by the round trip, and is not 2⁶⁴, is a whole number in
            // range.
            Scalar::Float(value) if value as u64 as f64 == value && value < 18_446_744_073_709_551_616.0 => {
                Self::Unsigned(value as u64)
            }
            Scalar::Float(value) if value < 0.0 && value as i64 as f64 == value => {
                Self::Negative(value as i64)
            }
            Scalar::Float(value) => Self::Float(value.to_bits()),
        }
    }
}

impl Tallies {
    pub(super) fn new(windows: usize) -> Self {
        let mut all = Vec::new();
        all.resize_with(windows, || None);
        Self {
            windows: all,
            held: 0,
        }
    }

    /// Returns the bytes of the maps, which are held in addition to the cells.
    pub(super) fn held(&self) -> u64 {
        self.held
    }

    pub(super) fn add(&mut self, slice: &Slice<'_>) {
        for segment in slice.segments {
            let tally = tally_of(&mut self.windows[segment.window], &mut self.held);
            for at in segment.values.clone() {
                self.held += match slice.values {
                    ColumnData::String(texts) => tally.add_text(texts.get(at), 1),
                    values => {
                        Scalar::at(values, at).map_or(0, |form| tally.add_scalar(Seen { count: 1, form }))
                    }
                };
            }
        }
    }

    pub(super) fn merge(&mut self, other: Self) {
        for (kept, other) in self.windows.iter_mut().zip(other.windows) {
            let Some(other) = other else { continue };
            let kept = tally_of(kept, &mut self.held);
            for seen in other.scalars.into_values() {
                self.held += kept.add_scalar(seen);
            }
            for (text, count) in other.texts {
                self.held += kept.add_text(&text, count);
            }
        }
    }

    /// Returns `count_distinct`; `None` if there is no value.
    pub(super) fn distinct(&self, window: usize) -> Option<ValueRef<'static>> {
        let tally = self.windows[window].as_ref()?;
        Some(ValueRef::Unsigned(
            (tally.scalars.len() + tally.texts.len()) as u64,
        ))
    }

    /// Returns the most frequent value, and of equally frequent values the lowest; `None` if there
    /// is no value.
    pub(super) fn mode(&self, window: usize) -> Option<ValueRef<'_>> {
        let tally = self.windows[window].as_ref()?;
        let most = tally.scalars.values().copied().reduce(|a, b| {
            let order = a.count.cmp(&b.count).then_with(|| b.form.compare(a.form));
            if order == Ordering::Less { b } else { a }
        });
        // A field holds either strings or other values, never both.
        most.map(|seen| seen.form.into()).or_else(|| {
            let texts = tally.texts.iter();
            let most = texts.max_by(|(a, m), (b, n)| m.cmp(n).then_with(|| b.cmp(a)));
            most.map(|(text, _)| ValueRef::String(text))
        })
    }
}

/// Returns the tally of a window; creates it on first use.
fn tally_of<'a>(window: &'a mut Option<Box<Tally>>, held: &mut u64) -> &'a mut Tally {
    window.get_or_insert_with(|| {
        *held += TALLY_BYTES;
        Box::default()
    })
}

impl Tally {
    /// Counts a value; returns the number of bytes added.
    fn add_scalar(&mut self, new: Seen) -> u64 {
        let mut grown = 0;
        let seen = self.scalars.entry(Key::of(new.form)).or_insert_with(|| {
            grown = ENTRY_BYTES;
            Seen { count: 0, ..new }
        });
        seen.count += new.count;
        if new.form.compare(seen.form).is_lt() {
            seen.form = new.form;
        }
        grown
    }

    fn add_text(&mut self, text: &str, count: u64) -> u64 {
        if let Some(seen) = self.texts.get_mut(text) {
            *seen += count;
            return 0;
        }
        self.texts.insert(text.into(), count);
        ENTRY_BYTES + text.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_numbers_of_any_type_are_one_value() {
        for (a, b, equal) in [
            (Scalar::Signed(4), Scalar::Float(4.0), true),
            (Scalar::Signed(4), Scalar::Unsigned(4), true),
            (Scalar::Signed(-4), Scalar::Float(-4.0), true),
            (Scalar::Float(0.0), Scalar::Float(-0.0), true),
            (Scalar::Float(f64::NAN), Scalar::Float(-f64::NAN), true),
            (Scalar::Float(4.5), Scalar::Signed(4), false),
            (Scalar::Boolean(true), Scalar::Signed(1), false),
            (
                Scalar::Unsigned(u64::MAX),
                Scalar::Float(18_446_744_073_709_551_616.0),
                false,
            ),
            (
                Scalar::Signed(i64::MIN),
                Scalar::Float(-9_223_372_036_854_775_808.0),
                true,
            ),
            (Scalar::Float(f64::NEG_INFINITY), Scalar::Signed(i64::MIN), false),
            (Scalar::Float(f64::INFINITY), Scalar::Unsigned(u64::MAX), false),
        ] {
            assert_eq!(Key::of(a) == Key::of(b), equal, "{a:?} {b:?}");
        }
    }
}

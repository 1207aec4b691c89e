//! Lowest and highest values, in the type in which they were stored.
//!
//! Numbers of different types are compared exactly, so that the result does not depend on the order of the values.

use std::cmp::Ordering;

use tideline_engine::model::ColumnData;
use tideline_engine::points::ValueSummary;

use super::Slice;
use super::scalar::Scalar;
use crate::result::ValueRef;

/// Kind of extreme.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extreme {
    /// `min`.
    Lowest,
    /// `max`.
    Highest,
}

/// Extreme value of each window. NaN is kept only if there is no other value.
#[derive(Debug, Clone)]
pub struct Extremes {
    extreme: Extreme,
    windows: Vec<Option<Scalar>>,
}

impl Extremes {
    pub(super) fn new(extreme: Extreme, windows: usize) -> Self {
        let windows = vec![None; windows];
        Self { extreme, windows }
    }

    pub(super) fn add(&mut self, slice: &Slice<'_>) {
        let extreme = self.extreme;
        for segment in slice.segments {
            let part = segment.values.clone();
            let found = match slice.values {
                ColumnData::Float(values) => float(extreme, &values[part]).map(Scalar::Float),
                ColumnData::Signed(values) => ordered(extreme, &values[part]).map(Scalar::Signed),
                ColumnData::Unsigned(values) => ordered(extreme, &values[part]).map(Scalar::Unsigned),
                ColumnData::Boolean(values) => ordered(extreme, &values[part]).map(Scalar::Boolean),
                ColumnData::String(_) | ColumnData::Histogram(_) => None,
            };
            self.offer(segment.window, found);
        }
    }

    pub(super) fn add_summary(&mut self, window: usize, summary: &ValueSummary) {
        let found = match self.extreme {
            Extreme::Lowest => summary.min,
            Extreme::Highest => summary.max,
        };
        self.offer(window, Some(found.into()));
    }

    pub(super) fn merge(&mut self, other: &Self) {
        for (window, found) in other.windows.iter().enumerate() {
            self.offer(window, *found);
        }
    }

    pub(super) fn get(&self, window: usize) -> Option<ValueRef<'static>> {
        self.scalar(window).map(ValueRef::from)
    }

    pub(super) fn scalar(&self, window: usize) -> Option<Scalar> {
        self.windows[window]
    }

    fn offer(&mut self, window: usize, found: Option<Scalar>) {
        let Some(found) = found else { return };
        let kept = &mut self.windows[window];
        let replaces = match *kept {
            None => true,
            Some(kept) if kept.is_nan() || found.is_nan() => kept.is_nan() && !found.is_nan(),
            Some(kept) => self.extreme.prefers(found.compare(kept)),
        };
        if replaces {
            *kept = Some(found);
        }
    }
}

impl Extreme {
    /// Returns true if a candidate replaces the kept value. `candidate` is the order of the
    /// candidate relative to the kept value.
    fn prefers(self, candidate: Ordering) -> bool {
        match self {
            Self::Lowest => candidate.is_lt(),
            Self::Highest => candidate.is_gt(),
        }
    }
}

fn ordered<T: Ord + Copy>(extreme: Extreme, values: &[T]) -> Option<T> {
    match extreme {
        Extreme::Lowest => values.iter().copied().min(),
        Extreme::Highest => values.iter().copied().max(),
    }
}

fn float(extreme: Extreme, values: &[f64]) -> Option<f64> {
    let mut kept = *values.first()?;
    for value in &values[1..] {
        if kept.is_nan() || (!value.is_nan() && extreme.prefers(value.total_cmp(&kept))) {
            kept = *value;
        }
    }
    Some(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nan_counts_only_where_there_is_nothing_else() {
        let (nan, lowest) = (f64::NAN, Extreme::Lowest);
        assert_eq!(float(lowest, &[nan, 2.0, nan, 1.0, nan]), Some(1.0));
        assert!(float(lowest, &[nan, -nan]).is_some_and(f64::is_nan));
        let mut extremes = Extremes::new(Extreme::Highest, 1);
        extremes.offer(0, Some(Scalar::Float(nan)));
        extremes.offer(0, Some(Scalar::Signed(-7)));
        extremes.offer(0, Some(Scalar::Float(nan)));
        assert_eq!(extremes.get(0), Some(ValueRef::Signed(-7)));
    }

    #[test]
    fn equal_numbers_of_two_types_give_the_same_one_in_any_order() {
        for extreme in [Extreme::Lowest, Extreme::Highest] {
            let mut forth = Extremes::new(extreme, 1);
            let mut back = Extremes::new(extreme, 1);
            let (one, other) = (Some(Scalar::Signed(4)), Some(Scalar::Float(4.0)));
            [one, other].into_iter().for_each(|found| forth.offer(0, found));
            [other, one].into_iter().for_each(|found| back.offer(0, found));
            assert_eq!(forth.get(0), back.get(0));
        }
    }
}

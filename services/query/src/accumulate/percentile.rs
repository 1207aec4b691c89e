//! Percentiles: exact for at most [`EXACT_VALUES_MAX`] values per window, otherwise estimated from a histogram.
//!
//! The histogram ([`LogLinearHistogram`]) gives the same estimate for any distribution of the values over tiers and
//! workers. The width of a bucket of normal doubles is at most 1/256 of its values.

use tideline_engine::model::{ColumnData, LogLinearHistogram};

use super::Slice;
use crate::function::Percentile;
use crate::result::ValueRef;

/// Maximum number of values of one window for which a percentile is exact, at 8 bytes each.
pub const EXACT_VALUES_MAX: usize = 4_096;
/// Estimated bytes of a bucket in the map.
const BUCKET_BYTES: u64 = 20;

/// Histogram of the values of a window. Its buckets distinguish eight bits of the fraction.
type Histogram = LogLinearHistogram<8>;

/// Values of each window.
#[derive(Debug)]
pub struct Percentiles {
    percentile: Percentile,
    windows: Vec<Values>,
    held: u64,
}

/// Values of one window.
#[derive(Debug, Default)]
struct Values {
    /// All values except NaN, in any order; empty if there is a histogram.
    exact: Vec<f64>,
    histogram: Option<Box<Histogram>>,
}

impl Percentiles {
    /// Creates empty windows.
    pub fn new(percentile: Percentile, windows: usize) -> Self {
        let mut all = Vec::new();
        all.resize_with(windows, Values::default);
        Self {
            percentile,
            windows: all,
            held: 0,
        }
    }

    /// Returns the bytes of the exact values and the buckets, which are held in addition to the cells.
    pub fn held(&self) -> u64 {
        self.held
    }

    pub(super) fn add(&mut self, slice: &Slice<'_>) {
        for segment in slice.segments {
            let window = segment.window;
            let part = segment.values.clone();
            match slice.values {
                ColumnData::Float(values) => self.extend(window, values[part].iter().copied()),
                ColumnData::Signed(values) => self.extend(window, values[part].iter().map(|v| *v as f64)),
                ColumnData::Unsigned(values) => self.extend(window, values[part].iter().map(|v| *v as f64)),
                ColumnData::Boolean(_) | ColumnData::String(_) | ColumnData::Histogram(_) => {}
            }
        }
    }

    pub(super) fn merge(&mut self, other: Self) {
        for (window, values) in other.windows.into_iter().enumerate() {
            match values.histogram {
                None => self.extend(window, values.exact.into_iter()),
                Some(other) => {
                    let kept = &mut self.windows[window];
                    let before = kept.bytes();
                    kept.histogram().merge(&other);
                    self.held = self.held + kept.bytes() - before;
                }
            }
        }
    }

    /// Returns the percentile of a window; `None` without values.
    pub fn get(&self, window: usize) -> Option<ValueRef<'static>> {
        let values = &self.windows[window];
        let value = match &values.histogram {
            None => exact(&values.exact, self.percentile),
            Some(histogram) => estimate(histogram, self.percentile),
        };
        value.map(ValueRef::Float)
    }

    /// Returns true if the value of a window is an estimate.
    pub fn is_estimate(&self, window: usize) -> bool {
        self.windows[window].histogram.is_some()
    }

    /// Adds a value to a window. NaN is ignored.
    pub fn push(&mut self, window: usize, value: f64) {
        self.extend(window, std::iter::once(value));
    }

    fn extend(&mut self, window: usize, values: impl Iterator<Item = f64>) {
        let kept = &mut self.windows[window];
        let before = kept.bytes();
        let mut values = values.filter(|value| !value.is_nan());
        if kept.histogram.is_none() {
            let room = EXACT_VALUES_MAX - kept.exact.len();
            kept.exact.extend(values.by_ref().take(room));
        }
        let mut values = values.peekable();
        if values.peek().is_some() {
            let histogram = kept.histogram();
            for value in values {
                histogram.add(value);
            }
        }
        self.held = self.held + kept.bytes() - before;
    }
}

impl Values {
    fn bytes(&self) -> u64 {
        let buckets = self.histogram.as_ref().map_or(0, |of| of.capacity());
        (self.exact.capacity() * size_of::<f64>()) as u64 + buckets as u64 * BUCKET_BYTES
    }

    /// Returns the histogram; creates it from the exact values on first use.
    fn histogram(&mut self) -> &mut Histogram {
        let exact = std::mem::take(&mut self.exact);
        let histogram = self.histogram.get_or_insert_default();
        for value in exact {
            histogram.add(value);
        }
        histogram
    }
}

/// Estimates the percentile of the values of a histogram; `None` without values.
fn estimate(histogram: &Histogram, percentile: Percentile) -> Option<f64> {
    let ranked = histogram.ranked()?;
    Some(between(ranked.last() + 1, percentile, |rank| ranked.at(rank)))
}

/// Returns the percentile of values in any order; `None` without values.
fn exact(values: &[f64], percentile: Percentile) -> Option<f64> {
    if values.is_empty() {
        return None;
    }
    let mut values = values.to_vec();
    values.sort_unstable_by(f64::total_cmp);
    Some(between(values.len() as u64, percentile, |rank| {
        values[rank as usize]
    }))
}

/// Returns the percentile among `count` (at least one) sorted values, interpolated between whole ranks.
fn between(count: u64, percentile: Percentile, at: impl Fn(u64) -> f64) -> f64 {
    let position = (count - 1) as f64 * percentile.percent() / 100.0;
    let rank = (position.floor() as u64).min(count - 1);
    let share = position - rank as f64;
    let low = at(rank);
    if share <= 0.0 || rank + 1 >= count {
        return low;
    }
    let high = at(rank + 1);
    if low == high {
        low
    } else {
        low * (1.0 - share) + high * share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn percentile(percent: f64) -> Percentile {
        Percentile::new(percent).expect("a share")
    }

    #[test]
    fn ranks_are_interpolated() {
        let values = [15.0, 20.0, 35.0, 40.0, 50.0];
        for (percent, expected) in [
            (0.0, 15.0),
            (25.0, 20.0),
            (40.0, 29.0),
            (50.0, 35.0),
            (100.0, 50.0),
        ] {
            assert_eq!(exact(&values, percentile(percent)), Some(expected), "{percent}");
        }
        assert_eq!(exact(&[], percentile(50.0)), None);
        assert_eq!(exact(&[7.0], percentile(99.0)), Some(7.0));
    }

    #[test]
    fn an_estimate_is_near_and_the_same_for_any_parting() {
        let values: Vec<f64> = (0..20_000)
            .map(|at| f64::from((at * 7_919) % 20_011 - 3_000))
            .collect();
        let mut whole = Percentiles::new(percentile(95.0), 1);
        whole.extend(0, values.iter().copied());
        assert!(whole.is_estimate(0));
        let mut merged = Percentiles::new(percentile(95.0), 1);
        for part in values.chunks(777) {
            let mut of_part = Percentiles::new(percentile(95.0), 1);
            of_part.extend(0, part.iter().copied());
            merged.merge(of_part);
        }
        assert_eq!(merged.get(0), whole.get(0));
        let exact = exact(&values, percentile(95.0)).expect("values");
        let Some(ValueRef::Float(found)) = whole.get(0) else {
            panic!("a number")
        };
        assert!((found - exact).abs() <= exact.abs() / 512.0, "{found} {exact}");
        assert!(whole.held() > 0 && whole.held() < 200_000, "{}", whole.held());
    }
}

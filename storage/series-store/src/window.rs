//! Windows: aligned time spans. Each level is twice as wide as the one below it.
//!
//! Two windows are either disjoint or one contains the other. Live data is sealed into windows of the base width. A
//! seal may write only a limited number of windows. If its points are spread over more windows, the seal merges
//! neighboring windows. A random backfill of years therefore results in few wide segments instead of thousands of
//! narrow ones.

use serde::{Deserialize, Serialize};
use tideline_model::TimeRange;

/// Aligned time span: `[index · width, (index + 1) · width)` with `width = base · 2^level`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Window {
    /// Number of doublings of the base width, at most [`LEVEL_MAX`].
    pub level: u8,
    /// Position: time divided by width, rounded down. Negative before the epoch.
    pub index: i64,
}

/// Minimum number of doublings of the base window for a cold window: a day with the default base of three hours.
pub const COLD_LEVEL: u8 = 3;

/// Maximum level. At this level, one window of any base width of a second or more spans all time on one side of the
/// epoch.
pub const LEVEL_MAX: u8 = 34;

impl Window {
    /// Returns the window of a level that contains a timestamp.
    pub fn of(nanos: i64, base: i64, level: u8) -> Self {
        Self {
            level,
            index: nanos.div_euclid(base) >> level,
        }
    }

    /// Returns the window of twice the width that contains this window.
    pub fn parent(self) -> Self {
        Self {
            level: self.level + 1,
            index: self.index >> 1,
        }
    }

    /// Returns the time span, clamped to the range of timestamps.
    pub fn range(self, base: i64) -> TimeRange {
        let width = i128::from(base) << self.level;
        let clamp = |at: i128| at.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64;
        TimeRange::new(
            clamp(i128::from(self.index) * width),
            clamp((i128::from(self.index) + 1) * width),
        )
    }

    /// Returns true if `other` is this window or is contained in it.
    pub fn holds(self, other: Self) -> bool {
        self.level >= other.level && other.index >> (self.level - other.level) == self.index
    }
}

/// Returns the start of the narrowest cold window that contains a timestamp. Every cold window that ends at or before
/// the timestamp ends at or before this start.
pub fn cold_boundary(nanos: i64, base: i64) -> i64 {
    Window::of(nanos, base, COLD_LEVEL).range(base).start
}

/// Chooses windows within `bounds` that contain all `occupied` ones. The occupied windows must be within the bounds.
/// Returns at most `count_max` windows, plus at most two per level if wider ones would cross the bounds.
///
/// 1. Start with the occupied windows in time order.
/// 2. While there are too many, replace all windows except the newest `count_max / 2` (at least one) with their
///    parents. A window whose parent would cross the bounds stays.
///
/// The newest windows stay narrow because live data is read most. The result is sorted, and its windows are
/// disjoint.
pub fn choose(mut occupied: Vec<Window>, base: i64, bounds: TimeRange, count_max: usize) -> Vec<Window> {
    occupied.sort_unstable_by_key(|window| i128::from(window.index) << window.level);
    occupied.dedup();
    let mut old = occupied;
    let keep_narrow = (count_max / 2).max(1);
    let narrow = old.split_off(old.len().saturating_sub(keep_narrow));
    let widened = |window: Window| {
        let range = window.parent().range(base);
        (window.level < LEVEL_MAX && bounds.start <= range.start && range.end <= bounds.end)
            .then(|| window.parent())
    };
    while old.len() + narrow.len() > count_max {
        // A window that the bounds keep narrow is never inside a widened window: otherwise its own parent would be
        // within the bounds.
        let wider: Vec<Window> = old
            .iter()
            .map(|window| widened(*window).unwrap_or(*window))
            .collect();
        if wider == old {
            break;
        }
        old = wider;
        old.dedup();
    }
    // Drops narrow windows that a widened neighbor contains.
    let narrow = narrow
        .into_iter()
        .filter(|window| !old.iter().any(|wide| wide.holds(*window)));
    let mut chosen: Vec<Window> = old.iter().copied().chain(narrow).collect();
    chosen.sort_unstable_by_key(|window| i128::from(window.index) << window.level);
    chosen
}

/// Chooses the windows that a seal writes. `cuts` are increasing timestamps that no window may span, each a
/// [`cold_boundary`]. Points before the last cut go directly to the cold tier; the other cuts separate points that
/// leave the cold tier at different times.
///
/// Cold windows have at least [`COLD_LEVEL`], as in migrations. Between two cuts there are about `count_max` windows
/// at most (see [`choose`]).
pub fn choose_tiers(occupied: &[Window], base: i64, cuts: &[i64], count_max: usize) -> Vec<Window> {
    let starts = std::iter::once(i64::MIN).chain(cuts.iter().copied());
    let ends = cuts.iter().copied().chain([i64::MAX]);
    let mut chosen = Vec::new();
    for (number, (start, end)) in starts.zip(ends).enumerate() {
        let bounds = TimeRange::new(start, end);
        let is_cold = number < cuts.len();
        let inside = occupied.iter().filter(|window| {
            let range = window.range(base);
            // The last window is clamped at the maximum timestamp, so only the start of a window is compared.
            bounds.start <= range.start && range.start < bounds.end
        });
        let widened = inside.map(|window| {
            let mut wide = *window;
            while is_cold && wide.level < COLD_LEVEL {
                wide = wide.parent();
            }
            wide
        });
        chosen.extend(choose(widened.collect(), base, bounds, count_max));
    }
    chosen
}

/// Divides `range` into the widest possible windows, in order. The ends of `range` must be boundaries of windows of
/// `level`.
pub fn tiles(range: TimeRange, base: i64, level: u8) -> Vec<Window> {
    let mut found = Vec::new();
    let mut at = range.start;
    while at < range.end {
        let mut window = Window::of(at, base, level);
        loop {
            let wider = window.parent();
            let around = wider.range(base);
            if wider.level > LEVEL_MAX || around.start != at || around.end > range.end {
                break;
            }
            window = wider;
        }
        found.push(window);
        at = window.range(base).end;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_window_spans_the_boundary_of_the_cold_tier() {
        let base = 3 * HOUR;
        let day = 24 * HOUR;
        for seed in tideline_testkit::seeds("windows of a seal", 200) {
            let (now, step) = ((seed % 5_000) as i64 * 7 * HOUR, 1 + (seed / 5_000 % 40) as i64);
            let spread: Vec<_> = (0..600)
                .map(|at| Window::of(now, base, 0).index - at * step)
                .map(|index| Window { level: 0, index })
                .collect();
            let cuts = [
                cold_boundary(now - 20 * day, base),
                cold_boundary(now - 5 * day, base),
            ];
            let chosen = choose_tiers(&spread, base, &cuts, 24);
            assert!(chosen.len() <= 3 * 24 + 30, "seed {seed}: {}", chosen.len());
            assert!(
                chosen
                    .windows(2)
                    .all(|pair| pair[0].range(base).end <= pair[1].range(base).start),
                "seed {seed}: apart and in order"
            );
            for window in &chosen {
                let range = window.range(base);
                let is_cut = |cut: &i64| range.start < *cut && *cut < range.end;
                assert!(!cuts.iter().any(is_cut), "seed {seed}: {window:?}");
                assert!(
                    range.end > cuts[1] || window.level >= COLD_LEVEL,
                    "seed {seed}: {window:?}"
                );
            }
            for window in spread {
                let holding = chosen.iter().filter(|wide| wide.holds(window));
                assert_eq!(holding.count(), 1, "seed {seed}: {window:?}");
            }
        }
    }

    #[test]
    fn without_a_boundary_all_is_as_wide_as_it_has_to_be() {
        let base = 3 * HOUR;
        let spread: Vec<_> = (0..600)
            .map(|at| Window {
                level: 0,
                index: at * 8,
            })
            .collect();
        assert!(choose_tiers(&spread, base, &[], 24).len() <= 24);
        let ends = [i64::MIN, -1, 0, i64::MAX - 1].map(|at| Window::of(at, base, 0));
        assert_eq!(choose_tiers(&ends, base, &[0], 24).len(), 4);
    }

    #[test]
    fn tiles_are_the_widest_windows_of_a_range() {
        let base = 3 * HOUR;
        let day = 24 * HOUR;
        for (from, to, expected) in [
            (0, 1, vec![1]),
            (1, 64, vec![1, 2, 4, 8, 16, 32]),
            (0, 63, vec![32, 16, 8, 4, 2, 1]),
            (-3, 5, vec![1, 2, 4, 1]),
            (7, 7, vec![]),
        ] {
            let range = TimeRange::new(from * day, to * day);
            let found = tiles(range, base, COLD_LEVEL);
            let widths: Vec<i64> = found.iter().map(|tile| 1 << (tile.level - COLD_LEVEL)).collect();
            assert_eq!(widths, expected, "{from}..{to}");
            let ends = found.iter().map(|tile| tile.range(base));
            let all = ends.reduce(|one, other| {
                assert_eq!(one.end, other.start);
                TimeRange::new(one.start, other.end)
            });
            assert_eq!(all.unwrap_or(range), range);
        }
    }

    const HOUR: i64 = 3_600_000_000_000;

    #[test]
    fn a_window_spans_its_instant_before_and_after_the_epoch() {
        for nanos in [-1, 0, 1, HOUR, -HOUR * 30, i64::MAX - 1, i64::MIN + 2] {
            for level in [0, 3, LEVEL_MAX] {
                let window = Window::of(nanos, HOUR, level);
                assert!(window.range(HOUR).contains(nanos), "{nanos} at {level}");
                assert!(window.parent().holds(window));
            }
        }
    }

    #[test]
    fn live_data_keeps_narrow_windows() {
        let occupied: Vec<_> = (100..108).map(|index| Window { level: 0, index }).collect();
        assert_eq!(choose(occupied.clone(), HOUR, TimeRange::ALL, 24), occupied);
    }

    #[test]
    fn a_backfill_of_years_fits_into_few_windows_that_hold_everything() {
        let occupied: Vec<_> = (0..5 * 8_760)
            .map(|index| Window {
                level: 0,
                index: index * 3 - 7,
            })
            .collect();
        let chosen = choose(occupied.clone(), HOUR, TimeRange::ALL, 24);
        assert!(chosen.len() <= 24, "{}", chosen.len());
        for window in occupied {
            assert_eq!(
                chosen.iter().filter(|wide| wide.holds(window)).count(),
                1,
                "{window:?}"
            );
        }
    }
}

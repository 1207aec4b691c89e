//! Windows: aligned spans of time, each twice as wide as the next narrower.
//!
//! Two windows are either apart or one lies in the other. Live data seals into windows of the base width; a
//! seal whose points spread over more windows than it may write joins neighbours until they fit, so a random
//! backfill of years costs few wide segments and not thousands of narrow ones.

use serde::{Deserialize, Serialize};
use tideline_model::TimeRange;

/// One aligned span: `[index · width, (index + 1) · width)` with `width = base · 2^level`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Window {
    /// Doublings of the base width; at most [`LEVEL_MAX`].
    pub level: u8,
    /// Position, floor of time over width; negative before the epoch.
    pub index: i64,
}

/// Doublings of the base window that a cold window has at least: a day.
pub const COLD_LEVEL: u8 = 3;

/// At this level one window of any base width of a second or more spans all of time around the epoch.
pub const LEVEL_MAX: u8 = 34;

impl Window {
    /// The window of a level that holds an instant.
    pub fn of(nanos: i64, base: i64, level: u8) -> Self {
        Self {
            level,
            index: nanos.div_euclid(base) >> level,
        }
    }

    /// The window twice as wide that holds this one.
    pub fn parent(self) -> Self {
        Self {
            level: self.level + 1,
            index: self.index >> 1,
        }
    }

    /// The span of time, clamped to what a timestamp can hold.
    pub fn range(self, base: i64) -> TimeRange {
        let width = i128::from(base) << self.level;
        let clamp = |at: i128| at.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64;
        TimeRange::new(
            clamp(i128::from(self.index) * width),
            clamp((i128::from(self.index) + 1) * width),
        )
    }

    /// Whether `other` is this window or lies inside it.
    pub fn holds(self, other: Self) -> bool {
        self.level >= other.level && other.index >> (self.level - other.level) == self.index
    }
}

/// The start of the cold window of the narrowest level that holds an instant: whole cold windows end there or before.
pub fn cold_boundary(nanos: i64, base: i64) -> i64 {
    Window::of(nanos, base, COLD_LEVEL).range(base).start
}

/// Chooses windows inside `bounds` that hold all `occupied` ones, which lie there as well: at most `count_max`, and a few
/// more where a wider one would cross the bounds (two for each level at most).
///
/// 1. Start with the occupied windows themselves, in order.
/// 2. While there are too many, replace all windows older than the newest `count_max / 2` by their parents, except
///    those whose parents cross the bounds.
///
/// The newest stay narrow because live data is read most. The result is sorted and its windows are apart.
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
        // One that is kept narrow by the bounds never lies in one that was widened: its own parent would.
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
    // A widened window may have grown over its narrow neighbours: they go into it.
    let narrow = narrow
        .into_iter()
        .filter(|window| !old.iter().any(|wide| wide.holds(*window)));
    let mut chosen: Vec<Window> = old.iter().copied().chain(narrow).collect();
    chosen.sort_unstable_by_key(|window| i128::from(window.index) << window.level);
    chosen
}

/// Chooses the windows that a seal writes. `cuts` are instants that no window spans, rising, each a
/// [`cold_boundary`]: what lies before the last of them is cold at once, and the others separate what is to leave the
/// cold tier at different times.
///
/// Cold windows are a day at least, as those that migrations write; between two cuts there are about `count_max` at
/// most ([`choose`]).
pub fn choose_tiers(occupied: &[Window], base: i64, cuts: &[i64], count_max: usize) -> Vec<Window> {
    let starts = std::iter::once(i64::MIN).chain(cuts.iter().copied());
    let ends = cuts.iter().copied().chain([i64::MAX]);
    let mut chosen = Vec::new();
    for (number, (start, end)) in starts.zip(ends).enumerate() {
        let bounds = TimeRange::new(start, end);
        let is_cold = number < cuts.len();
        let inside = occupied.iter().filter(|window| {
            let range = window.range(base);
            // The last window of all time ends where time does.
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

/// The widest windows that together are `range`, whose ends are bounds of windows of `level`, in order.
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

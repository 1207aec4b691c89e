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

/// Chooses at most `count_max` windows that hold all `occupied` base windows.
///
/// 1. Start with the occupied windows themselves, in order.
/// 2. While there are too many, find the lowest level among them whose parents save a window, and replace all
///    windows older than the newest `count_max / 2` by their parents; when that no longer helps, all of them.
///
/// The newest stay narrow because live data is read most. The result is sorted and its windows are apart.
pub fn choose(mut occupied: Vec<Window>, count_max: usize) -> Vec<Window> {
    occupied.sort_unstable_by_key(|window| window.index);
    occupied.dedup();
    let mut old = occupied;
    let keep_narrow = (count_max / 2).max(1);
    let narrow = old.split_off(old.len().saturating_sub(keep_narrow));
    while old.len() + narrow.len() > count_max && old.first().is_some_and(|window| window.level < LEVEL_MAX) {
        old = old.into_iter().map(Window::parent).collect();
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

/// The windows that a seal writes where some of them are cold already: those that end by `cold_to`.
///
/// Cold windows are a day at least, as those that migrations write; of hot and cold ones there are at most
/// `count_max` each.
pub fn choose_tiers(occupied: Vec<Window>, base: i64, cold_to: i64, count_max: usize) -> Vec<Window> {
    let (mut cold, mut hot) = (Vec::new(), Vec::new());
    for window in occupied {
        let mut day = window;
        while day.level < COLD_LEVEL {
            day = day.parent();
        }
        if day.range(base).end <= cold_to {
            cold.push(day);
        } else {
            hot.push(window);
        }
    }
    let mut cold = choose(cold, count_max);
    // One that was widened may hold its neighbours of the other tier.
    hot.retain(|window| !cold.iter().any(|wide| wide.holds(*window)));
    let hot = choose(hot, count_max);
    cold.retain(|window| {
        !hot.iter()
            .any(|wide| wide.level >= window.level && wide.holds(*window))
    });
    let mut chosen: Vec<Window> = cold.into_iter().chain(hot).collect();
    chosen.sort_unstable_by_key(|window| i128::from(window.index) << window.level);
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cold_at_the_seal_goes_to_whole_days() {
        let base = 3 * HOUR;
        let occupied: Vec<_> = (0..80).map(|index| Window { level: 0, index }).collect();
        // Seven days and a part are cold; the part's day is not.
        let cold_to = 7 * 24 * HOUR + 5 * HOUR;
        let chosen = choose_tiers(occupied.clone(), base, cold_to, 24);
        let cold = chosen.iter().filter(|window| window.range(base).end <= cold_to);
        assert_eq!(
            cold.clone().count(),
            7 + 1,
            "seven days, and the hot window of the eighth that is old too"
        );
        assert_eq!(cold.filter(|window| window.level == COLD_LEVEL).count(), 7);
        for seed in 0..200i64 {
            let spread: Vec<_> = (0..60)
                .map(|at| Window {
                    level: 0,
                    index: at * (seed % 17 + 1) - seed * 3,
                })
                .collect();
            let chosen = choose_tiers(spread.clone(), base, seed * 40 * HOUR, 8);
            assert!(chosen.len() <= 16);
            for window in spread {
                let holding = chosen
                    .iter()
                    .filter(|wide| wide.level >= window.level && wide.holds(window));
                assert_eq!(holding.count(), 1, "{seed} {window:?}");
            }
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
        assert_eq!(choose(occupied.clone(), 24), occupied);
    }

    #[test]
    fn a_backfill_of_years_fits_into_few_windows_that_hold_everything() {
        let occupied: Vec<_> = (0..5 * 8_760)
            .map(|index| Window {
                level: 0,
                index: index * 3 - 7,
            })
            .collect();
        let chosen = choose(occupied.clone(), 24);
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

//! Tests of the planner on years of simulated data.
//!
//! They check that the numbers of segments and of written bytes stay low, and that planning ends when no work is due.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tideline_engine::model::{JobKind, Policy, Tier};

use super::simulated::SimulatedStore;
use super::{BASE, DAY, HOUR, START};

/// Seals points every `every` nanoseconds for `lasting` nanoseconds. Each seal holds all points since the previous
/// seal, and late points. Returns the store.
fn live(policy: Policy, every: i64, lasting: i64, late_percent: u64) -> SimulatedStore {
    let mut store = SimulatedStore::new(START, policy);
    store.cold_percent = 40;
    let mut now = START;
    while now < START + lasting {
        let mut occupied: BTreeMap<i64, u64> = BTreeMap::new();
        // One byte per microsecond, counted by the minute.
        for minute in 0..every / 60_000_000_000 {
            let at = now + minute * 60_000_000_000;
            *occupied.entry(at.div_euclid(BASE)).or_default() += 60_000_000;
            if late_percent > 0 && minute == 0 {
                for days in [1, 3, 9] {
                    let late = (at - days * DAY - HOUR).div_euclid(BASE);
                    *occupied.entry(late).or_default() += 60_000_000 * late_percent / 100;
                }
            }
        }
        now += every;
        store.set_now(now);
        store.seal(&occupied);
        store.settle();
    }
    store
}

#[test]
fn live_load_is_never_folded_while_hot_and_becomes_one_segment_a_day() {
    let store = live(Policy::default(), 2 * HOUR, 60 * DAY, 0);
    let cold = store
        .segments()
        .iter()
        .filter(|segment| segment.tier == Tier::Cold);
    assert_eq!(cold.clone().count(), 53);
    assert!(cold.clone().all(|segment| segment.window.level == 3));
    assert!(store.stack_max(Tier::Hot) <= 3, "{}", store.stack_max(Tier::Hot));
    assert_eq!(
        store.rewritten.keys().copied().collect::<Vec<_>>(),
        [JobKind::Migrate]
    );
}

#[test]
fn writes_of_a_live_load_stay_within_bounds() {
    // A seal every two hours represents a quiet fleet; a seal every three minutes, a load of a million values per
    // second.
    for (minutes, days, late_percent, folded_max, written_max, segments_max) in [
        (120, 60, 0, 0, 350, 200),
        (120, 60, 20, 0, 350, 450),
        (30, 40, 0, 0, 350, 450),
        (30, 40, 20, 10, 350, 950),
        (3, 16, 0, 110, 650, 950),
        (3, 16, 20, 200, 850, 950),
    ] {
        let store = live(Policy::default(), minutes * HOUR / 60, days * DAY, late_percent);
        let case = format!("a seal every {minutes} min, {late_percent} % late");
        let folded = store.rewritten.get(&JobKind::Fold).copied().unwrap_or(0) * 100 / store.sealed;
        assert!(
            folded <= folded_max,
            "{case}: {folded} % of what was sealed is folded"
        );
        let written = store.amplification_percent();
        assert!(
            written <= written_max,
            "{case}: {written} % of what ends up cold is written"
        );
        assert!(
            store.stack_max(Tier::Hot) <= 12,
            "{case}: {}",
            store.stack_max(Tier::Hot)
        );
        assert!(
            store.stack_max(Tier::Cold) <= 6,
            "{case}: {}",
            store.stack_max(Tier::Cold)
        );
        assert!(
            store.segments_peak <= segments_max,
            "{case}: {} segments",
            store.segments_peak
        );
    }
}

#[test]
fn decades_of_days_stay_below_a_thousand_segments() {
    let store = live(Policy::default(), DAY, 6 * 365 * DAY, 0);
    assert!(store.segments_peak <= 600, "{}", store.segments_peak);
    let folded = store.rewritten[&JobKind::Fold] * 100 / store.bytes();
    assert!(
        folded <= 150,
        "{folded} % of the store was written again to join its windows"
    );
    let young = store
        .segments()
        .iter()
        .filter(|segment| segment.last > START + (6 * 365 - 300) * DAY);
    assert!(
        young.clone().all(|segment| segment.window.level <= 3),
        "young windows stay narrow"
    );
}

#[test]
fn a_random_backfill_of_five_years_settles() {
    let mut store = SimulatedStore::new(START, Policy::default());
    let first = (START - 5 * 365 * DAY).div_euclid(BASE);
    let last = START.div_euclid(BASE);
    for _ in 0..44 {
        store.seal(&(first..last).map(|index| (index, 1_000)).collect());
        store.settle();
    }
    // There are 24 hot windows, each with a stack of at most 12, and the cold windows.
    assert!(store.segments_peak <= 450, "{} segments", store.segments_peak);
    let written = store.amplification_percent();
    assert!(written <= 300, "{written} % of the data is written");
}

proptest! {
    #![proptest_config(tideline_testkit::proptest_config(64))]

    #[test]
    fn whatever_is_sealed_comes_to_rest(
        seals in proptest::collection::vec(
            (proptest::collection::vec((0i64..60 * 8, 1u64..1_000_000), 1..40), 0i64..10 * 24),
            1..60,
        ),
        hot_days in proptest::option::of(1i64..30),
    ) {
        let policy = Policy { hot_ttl: hot_days.map(|days| days * DAY), ..Policy::default() };
        let mut store = SimulatedStore::new(START, policy);
        let mut now = START;
        for (points, hours) in seals {
            now += hours * HOUR;
            store.set_now(now);
            let newest = now.div_euclid(BASE);
            store.seal(&points.into_iter().map(|(back, bytes)| (newest - back, bytes)).collect());
            store.settle();
        }
        prop_assert!(store.stack_max(Tier::Cold) <= 12, "{}", store.stack_max(Tier::Cold));
        prop_assert!(store.segments_peak <= 1_000);
    }
}

//! Migrate: the hot segments of a window become cold once the whole window is old enough.
//!
//! A cold window is a day at least; the hot windows inside it go together, in one rewrite, so that a point is written
//! to the cold tier once. Where another segment was written between them they go in several, in the order of writes.

use hashbrown::HashMap;
use tideline_model::Tier;
use tideline_series_store::window::Window;

use super::facts::{Facts, Past, SegmentFacts, TableFacts};
use super::moves::{Move, Moving};
use super::{Manner, Planned, Taken, writes};
use crate::chore::Chore;

pub(super) fn plan(
    facts: &Facts,
    table: &TableFacts,
    past: &Past,
    taken: &mut Taken,
    planned: &mut Vec<Planned>,
) {
    let groups = old_enough(facts, table, taken);
    if groups.is_empty() {
        return;
    }
    let age = table.policy.hot_ttl.unwrap_or_default();
    let moved = Move {
        chore: Chore::Migrate,
        tier: Tier::Cold,
        age,
        name: "hot segments",
    };
    let moving = groups.into_iter().flat_map(|(window, segments)| {
        let runs = writes::runs(segments, &table.segments);
        runs.into_iter().map(move |inputs| Moving {
            window,
            inputs,
            waits: None,
            manner: Manner::Plain,
        })
    });
    moved.plan(facts, table, past, moving, (taken, planned));
}

/// The hot segments of each cold window that is older than `hot_ttl`, oldest window first.
pub(super) fn old_enough<'a>(
    facts: &Facts,
    table: &'a TableFacts,
    taken: &Taken,
) -> Vec<(Window, Vec<&'a SegmentFacts>)> {
    let (now, base) = (facts.now(), facts.window_nanos);
    let mut groups: HashMap<Window, Vec<&SegmentFacts>> = HashMap::new();
    for segment in &table.segments {
        let window = segment.cold_window();
        let is_old = table.cold_at(window, base).is_some_and(|at| at <= now);
        if segment.tier == Tier::Hot && is_old && !taken.holds(segment) {
            groups.entry(window).or_default().push(segment);
        }
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_unstable_by_key(|(window, _)| (window.range(base).start, window.level));
    groups
}

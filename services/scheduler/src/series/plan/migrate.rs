//! Migrate: hot segments become cold once their whole day is old enough.
//!
//! A cold window is at least a day. The hot windows inside it move together in one rewrite, so that a point is written
//! to the cold tier once. If a segment that does not move was written between the segments of these windows, they move
//! in several rewrites, in write order.
//!
//! A backfill creates hot windows of several days. Once a whole day of such a window is old enough, the window is
//! cut. Its old days become cold. The other days become hot windows whose widths double with the distance from the
//! cut, so that later cuts rewrite few of them. Under a continuous schedule, no point stays hot for longer than a day
//! beyond `hot_ttl`.

use hashbrown::HashMap;
use tideline_engine::model::{JobKind, Tier, TimeRange};
use tideline_engine::moves::window::Window;

use super::facts::{Facts, History, SegmentFacts, TableFacts};
use super::moves::{Move, Moving};
use super::{Claimed, writes};
use crate::maintenance::{Mode, Planned};

pub(super) fn plan(
    facts: &Facts,
    table: &TableFacts,
    history: &History,
    claimed: &mut Claimed,
    planned: &mut Vec<Planned>,
) {
    let groups = old_enough(facts, table, claimed);
    if groups.is_empty() {
        return;
    }
    let age = table.policy.hot_ttl.unwrap_or_default();
    let moved = Move {
        kind: JobKind::Migrate,
        tier: Tier::Cold,
        age,
        name: "hot segments",
    };
    let moving = groups.into_iter().flat_map(|group| {
        let runs = writes::runs(group.segments, &table.segments);
        let mode = group.cut.map_or(Mode::Plain, Mode::Cut);
        runs.into_iter().map(move |inputs| Moving {
            window: group.window,
            inputs,
            waits: None,
            mode,
        })
    });
    moved.plan(facts, table, history, moving, (claimed, planned));
}

/// Hot segments of one cold window.
pub(super) struct Group<'a> {
    pub(super) window: Window,
    pub(super) segments: Vec<&'a SegmentFacts>,
    /// Only points before this timestamp are old enough; `None` = all points.
    pub(super) cut: Option<i64>,
}

impl Group<'_> {
    /// Returns the time range whose points move.
    pub(super) fn range(&self, base: i64) -> TimeRange {
        let range = self.window.range(base);
        TimeRange::new(range.start, self.cut.unwrap_or(range.end))
    }
}

/// Returns the hot segments with points of days older than `hot_ttl`, by cold window, oldest first.
pub(super) fn old_enough<'a>(facts: &Facts, table: &'a TableFacts, claimed: &Claimed) -> Vec<Group<'a>> {
    let base = facts.window_nanos;
    let Some(before) = table.cold_before(facts) else {
        return Vec::new();
    };
    let mut groups: HashMap<Window, Vec<&SegmentFacts>> = HashMap::new();
    for segment in &table.segments {
        if segment.tier == Tier::Hot && segment.first < before && !claimed.holds(segment) {
            groups.entry(segment.cold_window()).or_default().push(segment);
        }
    }
    let groups = groups.into_iter().map(|(window, segments)| Group {
        window,
        segments,
        cut: (window.range(base).end > before).then_some(before),
    });
    let mut groups: Vec<Group<'_>> = groups.collect();
    groups.sort_unstable_by_key(|group| (group.window.range(base).start, group.window.level));
    groups
}

//! Migrate: the hot segments of a window become cold once the whole window is old enough.
//!
//! A cold window is a day at least; the hot windows inside it go together, in one rewrite, so that a point is written
//! to the cold tier once. Where another segment was written between them they go in several, in the order of writes.

use hashbrown::HashMap;
use tideline_model::Tier;
use tideline_model::time::{NANOS_PER_SECOND, format_duration};
use tideline_series_store::window::Window;

use super::facts::{Facts, Past, SegmentFacts, TableFacts};
use super::{Planned, Taken, Urgency, begins, work, writes};
use crate::chore::Chore;

/// A move that begins within this time keeps its segments from folds and purges: it does their work too. Nanoseconds.
const SOON: i64 = 3_600 * NANOS_PER_SECOND;

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
    let at = begins(facts, table, past, Chore::Migrate, facts.now());
    let is_soon = at.is_some_and(|at| at <= facts.now().saturating_add(SOON));
    let age = format_duration(table.policy.hot_ttl.unwrap_or_default());
    for (window, segments) in groups {
        for run in writes::runs(segments, &table.segments) {
            let work = Planned {
                tier: Tier::Cold,
                reason: format!(
                    "{} hot segments lie in a window that ended more than {age} ago",
                    run.segments.len()
                ),
                at,
                urgency: Urgency::Moves,
                ..work(Chore::Migrate, table, &run.segments, window, facts.window_nanos)
            };
            if is_soon {
                taken.take(&work);
            }
            planned.push(work);
        }
    }
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

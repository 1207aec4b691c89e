//! Purge: rewrites a segment without its deleted points.
//!
//! Deleted points are invisible at once. A purge only frees their bytes and the record of the delete. A purge waits a
//! little, because deletes often arrive in groups, and one rewrite then applies the whole group.

use tideline_engine::model::JobKind;
use tideline_engine::model::time::NANOS_PER_SECOND;

use super::facts::{Facts, History, SegmentFacts, TableFacts};
use super::{Claimed, work};
use crate::maintenance::{Planned, Urgency};

/// Time for which a segment waits for more deletes before they are applied, nanoseconds.
pub const PURGE_AFTER: i64 = 600 * NANOS_PER_SECOND;

pub(super) fn plan(
    facts: &Facts,
    table: &TableFacts,
    history: &History,
    claimed: &mut Claimed,
    planned: &mut Vec<Planned>,
) {
    let now = facts.now();
    let since = |segment: &SegmentFacts| {
        history
            .deletes_since
            .get(&segment.id)
            .copied()
            .unwrap_or(now)
            .min(now)
    };
    let waiting = table
        .segments
        .iter()
        .filter(|segment| segment.has_deletes && !claimed.holds(segment));
    let mut waiting: Vec<&SegmentFacts> = waiting.collect();
    waiting.sort_by_key(|segment| (since(segment), segment.first));
    for segment in waiting {
        let work = Planned {
            reason: "the segment holds deleted points".into(),
            at: Some(since(segment).saturating_add(PURGE_AFTER)),
            urgency: Urgency::Space,
            ..work(
                JobKind::Purge,
                table,
                &[segment],
                segment.window,
                facts.window_nanos,
            )
        };
        claimed.take(&work);
        planned.push(work);
    }
}

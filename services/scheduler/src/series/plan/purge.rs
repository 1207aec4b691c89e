//! Purge: a segment with deletes is rewritten without the deleted points.
//!
//! Deleted points are invisible from the first moment; a purge only frees their bytes and lets the delete itself be
//! forgotten. It waits a little, since deletes tend to come in groups and one rewrite serves them all.

use tideline_engine::model::JobKind;
use tideline_engine::model::time::NANOS_PER_SECOND;

use super::facts::{Facts, Past, SegmentFacts, TableFacts};
use super::{Taken, work};
use crate::maintenance::{Planned, Urgency};

/// How long a segment waits for more deletes before they are applied to it, nanoseconds.
pub const PURGE_AFTER: i64 = 600 * NANOS_PER_SECOND;

pub(super) fn plan(
    facts: &Facts,
    table: &TableFacts,
    past: &Past,
    taken: &mut Taken,
    planned: &mut Vec<Planned>,
) {
    let now = facts.now();
    let since = |segment: &SegmentFacts| {
        past.deletes_since
            .get(&segment.id)
            .copied()
            .unwrap_or(now)
            .min(now)
    };
    let waiting = table
        .segments
        .iter()
        .filter(|segment| segment.has_deletes && !taken.holds(segment));
    let mut waiting: Vec<&SegmentFacts> = waiting.collect();
    waiting.sort_by_key(|segment| (since(segment), segment.first));
    for segment in waiting {
        let work = Planned {
            reason: "it holds points that were deleted".into(),
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
        taken.take(&work);
        planned.push(work);
    }
}

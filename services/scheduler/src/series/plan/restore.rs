//! Restore: archived points return to the cold tier for a while, on request.
//!
//! Whole segments are restored. Cold segments of the same range stay in the cold tier for the same time. Restores are
//! planned only on request, never automatically.

use tideline_engine::model::{JobKind, Tier, TimeRange, Timestamp};

use super::facts::{Facts, SegmentFacts, TableFacts};
use super::of_table;
use crate::maintenance::{Amount, Mode, Planned, Urgency};

/// Plans a restore of the archived and cold segments that overlap `range` and have visible points. The restored
/// segments stay in the cold tier until the trusted time reaches `until`. `None` if there is no such segment.
pub(crate) fn restore(facts: &Facts, table: &TableFacts, range: TimeRange, until: i64) -> Option<Planned> {
    let now = facts.now();
    let is_wanted = |segment: &&SegmentFacts| {
        segment.tier != Tier::Hot && segment.range().overlaps(&range) && table.is_visible(segment, now)
    };
    let mut wanted: Vec<&SegmentFacts> = table.segments.iter().filter(is_wanted).collect();
    wanted.sort_unstable_by_key(|segment| (segment.first, segment.id));
    let spans = wanted
        .iter()
        .map(|segment| segment.window.range(facts.window_nanos));
    let span =
        spans.reduce(|one, other| TimeRange::new(one.start.min(other.start), one.end.max(other.end)))?;
    let archived = wanted.iter().filter(|segment| segment.tier == Tier::Archive);
    let until_text = Timestamp::from_nanos_clamped(until);
    Some(Planned {
        inputs: wanted.iter().map(|segment| segment.id).collect(),
        tier: Tier::Cold,
        range: span,
        amount: Amount::of(archived.copied()),
        reason: format!("requested in the cold tier until {until_text}"),
        at: Some(now),
        urgency: Urgency::Moves,
        mode: Mode::Held(until),
        ..of_table(JobKind::Restore, table, "")
    })
}

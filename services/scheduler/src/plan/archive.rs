//! Archive: the cold segments of a window become files once the whole window is old enough.
//!
//! What was archived of the same time before goes along: late points lie beside it as cold segments until then, and become
//! part of the next files.

use tideline_model::time::NANOS_PER_DAY;
use tideline_model::{Tier, TimeRange};
use tideline_series_store::window::Window;

use super::facts::{Amount, Facts, Past, SegmentFacts, TableFacts};
use super::moves::Move;
use super::{Planned, Taken, Urgency, writes};
use crate::chore::Chore;

/// Between two looks for files that nothing names, nanoseconds: they are left alone for a day anyway.
const SWEEP_EVERY: i64 = NANOS_PER_DAY;

pub(super) fn plan(
    facts: &Facts,
    table: &TableFacts,
    past: &Past,
    taken: &mut Taken,
    planned: &mut Vec<Planned>,
) {
    let Some(policy) = &table.policy.archive else {
        return;
    };
    let groups = old_enough(facts, table, taken);
    if groups.is_empty() {
        return;
    }
    let moved = Move {
        chore: Chore::Archive,
        tier: Tier::Archive,
        age: policy.after,
        name: "segments",
    };
    let is_new = |run: &writes::Inputs<'_>| run.segments.iter().any(|segment| segment.tier == Tier::Cold);
    let of_window = |(window, segments)| {
        let runs = writes::runs(segments, &table.segments).into_iter();
        (window, runs.filter(is_new).collect())
    };
    moved.plan(
        facts,
        table,
        past,
        groups.into_iter().map(of_window),
        (taken, planned),
    );
}

/// The cold segments of windows that are older than the policy says, with what is archived of the same time; oldest
/// window first.
pub(super) fn old_enough<'a>(
    facts: &Facts,
    table: &'a TableFacts,
    taken: &Taken,
) -> Vec<(Window, Vec<&'a SegmentFacts>)> {
    let Some(policy) = &table.policy.archive else {
        return Vec::new();
    };
    let before = facts.now().saturating_sub(policy.after);
    let span = |window: Window| window.range(facts.window_nanos);
    let is_old = |segment: &SegmentFacts| match segment.tier {
        Tier::Hot => false,
        Tier::Cold => span(segment.cold_window()).end <= before,
        Tier::Archive => true,
    };
    let mut segments: Vec<&SegmentFacts> = table
        .segments
        .iter()
        .filter(|segment| is_old(segment) && !taken.holds(segment))
        .collect();
    // Wider windows first: of two that meet one lies in the other.
    segments.sort_unstable_by_key(|segment| {
        (
            span(segment.cold_window()).start,
            u8::MAX - segment.cold_window().level,
        )
    });
    let mut groups: Vec<(Window, Vec<&SegmentFacts>)> = Vec::new();
    for segment in segments {
        match groups.last_mut() {
            Some((window, group)) if window.holds(segment.cold_window()) => group.push(segment),
            _ => groups.push((segment.cold_window(), vec![segment])),
        }
    }
    groups.retain(|(_, group)| group.iter().any(|segment| segment.tier == Tier::Cold));
    groups
}

/// Now and then, files that nothing names are looked for.
pub(super) fn plan_sweep(facts: &Facts, table: &TableFacts, past: &Past, planned: &mut Vec<Planned>) {
    let is_archived = |segment: &SegmentFacts| segment.tier == Tier::Archive;
    if table.policy.archive.is_none() && !table.segments.iter().any(is_archived) {
        return;
    }
    let now = facts.now();
    let served = past.served.get(&(table.id, Chore::Sweep)).copied();
    let at = served
        .filter(|at| *at <= now)
        .map_or(now, |at| at.saturating_add(SWEEP_EVERY));
    planned.push(Planned {
        chore: Chore::Sweep,
        table: Some(table.id),
        inputs: Vec::new(),
        tier: Tier::Archive,
        window: None,
        range: TimeRange::ALL,
        amount: Amount::default(),
        reason: "files that nothing names any more are looked for once a day".into(),
        at: Some(at),
        urgency: Urgency::Regular,
    });
}

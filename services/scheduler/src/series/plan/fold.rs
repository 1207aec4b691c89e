//! Fold: merges several segments of a window into one, so that a read opens few segments.
//!
//! A read at a timestamp opens every segment whose window contains the timestamp: its *stack*. Folding lowers stacks,
//! but writes bytes again. The height of stacks and the written bytes are balanced as in size-tiered compaction:
//!
//! 1. A stack may be as high as its tier allows ([`Shape::height`]). Above that, a run of neighbors in write order
//!    is folded: the one with the fewest bytes per segment saved.
//! 2. Only runs that grow are folded: the output is at least [`Shape::growth`] times the largest input. A byte is
//!    therefore rewritten about as often as the logarithm of the number of segments to the base `growth`.
//! 3. Above [`Shape::height_max`] a stack is folded even if no run grows.
//!
//! A store that keeps data for decades has many windows with few segments each. Above [`SEGMENTS_CROWDED`] segments,
//! further segments are merged wherever that costs least: late data within a window, or eight neighboring windows into
//! one. Old windows thus become wide while recent ones stay narrow. Hot segments that migrate soon are counted, but not
//! merged.

use std::collections::BTreeSet;

use hashbrown::HashSet;
use tideline_engine::model::time::NANOS_PER_DAY;
use tideline_engine::model::{JobKind, Tier};
use tideline_engine::moves::window::{LEVEL_MAX, Window};

use super::facts::{COLD_LEVEL, Facts, SegmentFacts, TableFacts, widened};
use super::writes::{INPUTS_MAX, Inputs};
use super::{Claimed, work, writes};
use crate::maintenance::{Planned, Urgency};

/// Number of segments in a store above which neighbors are joined. A read of all time opens this many segments, and a
/// start reads their rows. The limit is far below 1,000, so that late data and a backfill do not exceed 1,000 segments
/// before the next fold.
pub const SEGMENTS_CROWDED: usize = 600;
/// Number of lasting segments (those that do not migrate soon) up to which nothing is joined, however many hot segments
/// will migrate soon.
pub const SEGMENTS_LASTING_MIN: usize = 300;
/// Minimum ratio of the output of a join to its largest input, so that a large window is not rewritten for a little
/// late data.
const JOIN_GROWTH: u64 = 2;
/// Number of times that one join doubles the width of a window: eight neighbors are joined at once. A byte is then
/// rewritten twice until 64 neighbors have become one window. If windows were joined in pairs, it would be rewritten
/// six times.
const JOIN_LEVELS: u8 = 3;
/// A joined window spans at most 1/8 of the age at which its points move or expire, because points may stay longer by
/// that span. A day is always allowed.
const JOIN_AGE_PARTS: i64 = 8;
/// Minimum time until the migration of a hot segment that may be joined, nanoseconds. Other hot segments leave the tier
/// soon anyway.
const JOIN_HOT_LEFT: i64 = 30 * NANOS_PER_DAY;
/// Hot windows that migrate within 1/8 of `hot_ttl` are not folded, because the migration rewrites them anyway.
const MIGRATES_SOON_PARTS: i64 = 8;
/// Maximum number of runs that are tried before a stack is left unchanged. A run fails if a segment between its inputs
/// cannot be included, or if the output would grow too little with that segment.
const RUNS_TRIED_MAX: usize = 64;

/// Limits of stacks in a tier.
#[derive(Debug, Clone, Copy)]
struct Shape {
    /// Number of segments that a stack may have.
    height: usize,
    /// Minimum ratio of the output of a fold to its largest input.
    growth: u64,
    /// Number of segments above which a stack is folded at any cost.
    height_max: usize,
}

const fn shape(tier: Tier) -> Shape {
    match tier {
        // A hot segment lives for days and is rewritten once more when it migrates. Folding each byte less than once on
        // average keeps all writes within four times the bytes that become cold.
        Tier::Hot => Shape {
            height: 12,
            growth: 3,
            height_max: 24,
        },
        // A cold segment stays for years, so a lower stack is worth its cost.
        Tier::Cold | Tier::Archive => Shape {
            height: 4,
            growth: 3,
            height_max: 12,
        },
    }
}

/// Plans folds of the stacks of a table that are too high.
pub(super) fn plan(facts: &Facts, table: &TableFacts, claimed: &mut Claimed, planned: &mut Vec<Planned>) {
    // Archived segments are not folded. They are merged with later points when these points are archived.
    for tier in Tier::KEPT {
        let members = members(facts, table, tier, claimed);
        let mut windows: Vec<Window> = members.iter().map(|segment| fold_window(segment)).collect();
        windows.sort_unstable();
        windows.dedup();
        for window in windows {
            let stack = members
                .iter()
                .filter(|segment| fold_window(segment).holds(window));
            let stack: Vec<_> = stack.filter(|segment| !claimed.holds(segment)).copied().collect();
            let shape = shape(tier);
            if stack.len() <= shape.height {
                continue;
            }
            let is_deep = stack.len() > shape.height_max;
            let growth = if is_deep { 1 } else { shape.growth };
            let Some((inputs, _)) = cheapest(stack.clone(), table, &members, growth, claimed) else {
                continue;
            };
            let reason = format!(
                "{} segments overlap; reads are best below {}",
                stack.len(),
                shape.height + 1
            );
            let work = fold(facts, table, &inputs, reason, Urgency::Reads);
            claimed.take(&work);
            planned.push(work);
        }
    }
}

/// Plans merges where they cost least, while the store holds too many segments.
pub(super) fn plan_crowded(facts: &Facts, claimed: &mut Claimed, planned: &mut Vec<Planned>) {
    let lasts = |table: &TableFacts, segment: &SegmentFacts| {
        segment.tier != Tier::Hot || !migrates_within(facts, table, segment, JOIN_HOT_LEFT)
    };
    let lasting = |table: &TableFacts| {
        table
            .segments
            .iter()
            .filter(|segment| lasts(table, segment))
            .count()
    };
    let total: usize = facts.tables.iter().map(|table| table.segments.len()).sum();
    let lasting: usize = facts.tables.iter().map(lasting).sum();
    let allowed = SEGMENTS_CROWDED
        .saturating_sub(total - lasting)
        .max(SEGMENTS_LASTING_MIN);
    let saved = |work: &Planned| match work.kind {
        JobKind::Fold => work.inputs.len() - 1,
        JobKind::Expire => work.inputs.len(),
        JobKind::Seal
        | JobKind::Migrate
        | JobKind::Archive
        | JobKind::Evict
        | JobKind::Restore
        | JobKind::Purge
        | JobKind::CleanCatalog
        | JobKind::SweepArchive
        | JobKind::AttachArchive
        | JobKind::WriteSettings
        | JobKind::SetAttributes
        | JobKind::BuildIndex
        | JobKind::RemoveExpired
        | JobKind::Rekey
        | JobKind::SurveyRows
        | JobKind::FanOut => 0,
    };
    let mut left = lasting.saturating_sub(planned.iter().map(saved).sum());
    if left <= allowed {
        return;
    }
    let mut candidates = Vec::new();
    for table in &facts.tables {
        for tier in Tier::KEPT {
            candidates.extend(joinable(facts, table, tier, claimed));
        }
    }
    // Among about equal costs, the oldest segments are merged first, because late data mostly belongs to recent
    // windows.
    let cheapest = candidates
        .iter()
        .map(|candidate| candidate.cost.max(1))
        .min()
        .unwrap_or(1);
    candidates.sort_by_cached_key(|candidate| {
        let oldest = candidate
            .inputs
            .segments
            .iter()
            .map(|segment| segment.first)
            .min();
        ((candidate.cost / cheapest).checked_ilog2(), oldest)
    });
    for candidate in candidates {
        if left <= allowed {
            return;
        }
        if candidate
            .inputs
            .segments
            .iter()
            .any(|segment| claimed.holds(segment))
        {
            continue;
        }
        let reason = format!("the store holds {total} segments; neighbors are joined to keep them few");
        let work = fold(
            facts,
            candidate.table,
            &candidate.inputs,
            reason,
            Urgency::Crowded,
        );
        left = left.saturating_sub(saved(&work));
        claimed.take(&work);
        planned.push(work);
    }
}

/// Segments that could become one.
struct Candidate<'a> {
    table: &'a TableFacts,
    inputs: Inputs<'a>,
    /// Bytes to write per segment saved.
    cost: u64,
}

/// Returns the cheapest possible fold within each window of a tier, and within each wider window that neighbors may
/// form.
fn joinable<'a>(facts: &Facts, table: &'a TableFacts, tier: Tier, claimed: &Claimed) -> Vec<Candidate<'a>> {
    let mut members = members(facts, table, tier, claimed);
    members.retain(|segment| tier == Tier::Cold || !migrates_within(facts, table, segment, JOIN_HOT_LEFT));
    let own: HashSet<Window> = members.iter().map(|segment| fold_window(segment)).collect();
    let wider = own
        .iter()
        .map(|window| widened(*window, (window.level + JOIN_LEVELS).min(LEVEL_MAX)));
    let wider = wider.filter(|window| may_be_joined(facts, table, tier, *window));
    let targets: BTreeSet<Window> = wider.chain(own.iter().copied()).collect();
    let within = |target: &Window| {
        // Neighbors must have about the same width: narrow windows are first joined with each other.
        let is_like = |window: Window| window.level + JOIN_LEVELS >= target.level || own.contains(target);
        let inside = members
            .iter()
            .filter(|segment| target.holds(fold_window(segment)));
        let inside: Vec<&SegmentFacts> = inside.copied().collect();
        let like: Vec<_> = inside
            .iter()
            .filter(|segment| is_like(fold_window(segment)))
            .copied()
            .collect();
        // Most windows have one segment, so there is nothing to save.
        if like.len() < 2 {
            return None;
        }
        let (inputs, cost) = cheapest(like, table, &inside, JOIN_GROWTH, claimed)?;
        Some(Candidate { table, inputs, cost })
    };
    targets.iter().filter_map(within).collect()
}

/// Returns true if neighbors may become this window: the window is old enough, and does not keep points for much
/// longer than the policy does.
fn may_be_joined(facts: &Facts, table: &TableFacts, tier: Tier, window: Window) -> bool {
    let span = window.range(facts.window_nanos);
    let width = span.end.saturating_sub(span.start);
    let leaves = match tier {
        Tier::Hot => table.policy.hot_ttl,
        // Archiving must not cut a joined window again at once.
        Tier::Cold | Tier::Archive => table.policy.archive.as_ref().map(|archive| archive.after),
    };
    let ages = [table.policy.visible_age(), leaves].into_iter().flatten();
    let width_max = ages
        .min()
        .map_or(i64::MAX, |age| (age / JOIN_AGE_PARTS).max(facts.day()));
    let young = table
        .policy
        .hot_ttl
        .filter(|_| tier == Tier::Cold)
        .unwrap_or(NANOS_PER_DAY);
    width <= width_max && span.end <= facts.now().saturating_sub(young)
}

/// Returns the run of neighbors in write order with the lowest cost (bytes per segment saved), and the cost.
///
/// The output is at least `growth` times the largest input. Segments between the inputs join the run, but are not
/// counted in its cost. If such a segment is claimed or not among `members`, or if the output would grow too little
/// with such segments, the next cheapest run is tried. `None` if no run is found.
fn cheapest<'a>(
    mut stack: Vec<&'a SegmentFacts>,
    table: &'a TableFacts,
    members: &[&SegmentFacts],
    growth: u64,
    claimed: &Claimed,
) -> Option<(Inputs<'a>, u64)> {
    writes::sort(&mut stack);
    let mut runs = Vec::new();
    for start in 0..stack.len() {
        let (mut bytes, mut largest) = (0u64, 0u64);
        for (end, segment) in stack.iter().enumerate().skip(start).take(INPUTS_MAX) {
            bytes = bytes.saturating_add(segment.bytes);
            largest = largest.max(segment.bytes);
            let saved = (end - start) as u64;
            if saved > 0 && bytes >= largest.saturating_mul(growth) {
                runs.push((bytes / saved, start..end + 1));
            }
        }
    }
    runs.sort_unstable_by_key(|(cost, run)| (*cost, run.start, run.end));
    let is_member = |segment: &SegmentFacts| members.iter().any(|member| member.id == segment.id);
    runs.into_iter().take(RUNS_TRIED_MAX).find_map(|(cost, run)| {
        let inputs = Inputs::from_slice(&stack[run])?;
        let inputs = inputs.closed(&table.segments, |other| is_member(other) && !claimed.holds(other))?;
        grows(&inputs, growth).then_some((inputs, cost))
    })
}

fn grows(inputs: &Inputs<'_>, growth: u64) -> bool {
    let bytes = || inputs.segments.iter().map(|segment| segment.bytes);
    bytes().sum::<u64>() >= bytes().max().unwrap_or(0).saturating_mul(growth)
}

/// Returns the segments of a tier that may be folded.
fn members<'a>(facts: &Facts, table: &'a TableFacts, tier: Tier, claimed: &Claimed) -> Vec<&'a SegmentFacts> {
    let soon = table.policy.hot_ttl.unwrap_or_default() / MIGRATES_SOON_PARTS;
    let stays = |segment: &SegmentFacts| tier == Tier::Cold || !migrates_within(facts, table, segment, soon);
    // Segments that are already written into files need not be rewritten by a fold.
    let members = table
        .segments
        .iter()
        .filter(|segment| segment.tier == tier && !segment.is_copied);
    members
        .filter(|segment| !claimed.holds(segment) && stays(segment))
        .collect()
}

fn migrates_within(facts: &Facts, table: &TableFacts, segment: &SegmentFacts, nanos: i64) -> bool {
    let at = table.cold_at(segment, facts.window_nanos);
    at.is_some_and(|at| at <= facts.now().saturating_add(nanos))
}

/// Returns the window in which a segment is folded. Windows of cold and archived segments are at least a day wide.
fn fold_window(segment: &SegmentFacts) -> Window {
    match segment.tier {
        Tier::Hot => segment.window,
        Tier::Cold | Tier::Archive => segment.cold_window(),
    }
}

fn fold(facts: &Facts, table: &TableFacts, inputs: &Inputs<'_>, reason: String, urgency: Urgency) -> Planned {
    let segments = &inputs.segments;
    // Widens the window of the first input until it contains all inputs.
    let mut window = fold_window(segments[0]);
    while window.level < LEVEL_MAX && !segments.iter().all(|segment| window.holds(fold_window(segment))) {
        window = window.parent();
    }
    Planned {
        reason,
        at: Some(facts.now()),
        urgency,
        ..work(JobKind::Fold, table, segments, window, facts.window_nanos)
    }
}

const _: () = assert!(COLD_LEVEL < LEVEL_MAX, "a cold window can widen");

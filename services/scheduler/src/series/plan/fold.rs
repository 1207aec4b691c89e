//! Fold: several segments of a window become one, so that a read opens few.
//!
//! A read of some instant opens every segment whose window holds it: the *stack* of that instant. Folding makes
//! stacks lower, and writes bytes again; the two are balanced as in a size-tiered merge:
//!
//! 1. A stack may be as high as the tier allows ([`Shape::height`]). Above that, the run of neighbours in the order
//!    of writes that costs fewest bytes for each segment saved is folded.
//! 2. Only runs that grow count: the output is at least [`Shape::growth`] times the largest input. So a byte is
//!    rewritten about log(segments) times to the base of the growth, whatever comes in.
//! 3. Beyond [`Shape::height_max`] a stack is folded even where nothing grows.
//!
//! A store that keeps data for decades has many windows that each have few segments. Once it holds more than
//! [`SEGMENTS_CROWDED`], the cheapest segments to save are saved wherever they are: late data among itself, or eight
//! neighbouring windows into one. Old windows thus become wide while young ones stay narrow. Hot segments that are
//! about to migrate are counted, but left alone.

use std::collections::BTreeSet;

use hashbrown::HashSet;
use tideline_engine::model::time::NANOS_PER_DAY;
use tideline_engine::model::{JobKind, Tier};
use tideline_engine::moves::window::{LEVEL_MAX, Window};

use super::facts::{COLD_LEVEL, Facts, SegmentFacts, TableFacts, widened};
use super::writes::{INPUTS_MAX, Inputs};
use super::{Taken, work, writes};
use crate::maintenance::{Planned, Urgency};

/// Segments of a store above which neighbours are joined: a read of all time opens so many, and a start reads their
/// rows. Well below a thousand, so that late data and a backfill find room before the next fold.
pub const SEGMENTS_CROWDED: usize = 600;
/// Segments that stay are not joined below this number, however many hot ones are on their way through.
pub const SEGMENTS_LASTING_MIN: usize = 300;
/// The least by which joining grows its largest input: a large window is not rewritten for a little late data.
const JOIN_GROWTH: u64 = 2;
/// Doublings by which windows widen when neighbours are joined: eight at once, so that a byte is rewritten twice in
/// a century of days, and not seven times as it would be by pairs.
const JOIN_LEVELS: u8 = 3;
/// A joined window spans at most this part of the age at which its points move or expire: they may stay longer by as
/// much.
const JOIN_AGE_PARTS: i64 = 8;
/// Time that hot segments must still have before them to be joined: those that migrate earlier leave by themselves.
const JOIN_HOT_LEFT: i64 = 30 * NANOS_PER_DAY;
/// A hot window is not folded when it migrates within this part of `hot_ttl`: it is about to be rewritten anyway.
const MIGRATES_SOON_PARTS: i64 = 8;
/// Runs of a stack that are tried before it is left as it is, where others lie between the cheapest ones.
const RUNS_TRIED_MAX: usize = 64;

/// How stacks of a tier may look.
#[derive(Debug, Clone, Copy)]
struct Shape {
    /// Segments that a stack may have.
    height: usize,
    /// The least by which a fold grows its largest input.
    growth: u64,
    /// Segments above which a stack is folded whatever it costs.
    height_max: usize,
}

const fn shape(tier: Tier) -> Shape {
    match tier {
        // A hot segment is rewritten once more when it migrates, and lives for days: folding it less than once is
        // what keeps all writes within four times the bytes that end up cold.
        Tier::Hot => Shape {
            height: 12,
            growth: 3,
            height_max: 24,
        },
        // A cold segment stays for years: worth a lower stack.
        Tier::Cold | Tier::Archive => Shape {
            height: 4,
            growth: 3,
            height_max: 12,
        },
    }
}

/// Lowers the stacks of a table that are too high.
pub(super) fn plan(facts: &Facts, table: &TableFacts, taken: &mut Taken, planned: &mut Vec<Planned>) {
    // What is archived is put together with what comes to it later.
    for tier in Tier::KEPT {
        let members = members(facts, table, tier, taken);
        let mut windows: Vec<Window> = members.iter().map(|segment| fold_window(segment)).collect();
        windows.sort_unstable();
        windows.dedup();
        for window in windows {
            let stack = members
                .iter()
                .filter(|segment| fold_window(segment).holds(window));
            let stack: Vec<_> = stack.filter(|segment| !taken.holds(segment)).copied().collect();
            let shape = shape(tier);
            if stack.len() <= shape.height {
                continue;
            }
            let is_deep = stack.len() > shape.height_max;
            let growth = if is_deep { 1 } else { shape.growth };
            let Some((inputs, _)) = cheapest(stack.clone(), table, &members, growth, taken) else {
                continue;
            };
            let reason = format!(
                "{} segments overlap; reads are best below {}",
                stack.len(),
                shape.height + 1
            );
            let work = fold(facts, table, &inputs, reason, Urgency::Reads);
            taken.take(&work);
            planned.push(work);
        }
    }
}

/// Saves segments where it costs least, while the store holds too many.
pub(super) fn plan_crowded(facts: &Facts, taken: &mut Taken, planned: &mut Vec<Planned>) {
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
        | JobKind::SetAttributes => 0,
    };
    let mut left = lasting.saturating_sub(planned.iter().map(saved).sum());
    if left <= allowed {
        return;
    }
    let mut candidates = Vec::new();
    for table in &facts.tables {
        for tier in Tier::KEPT {
            candidates.extend(joinable(facts, table, tier, taken));
        }
    }
    // Among what costs about the same the oldest go first: late data comes to young windows.
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
            .any(|segment| taken.holds(segment))
        {
            continue;
        }
        let reason = format!("the store holds {total} segments; neighbours are joined to keep them few");
        let work = fold(
            facts,
            candidate.table,
            &candidate.inputs,
            reason,
            Urgency::Crowded,
        );
        left = left.saturating_sub(saved(&work));
        taken.take(&work);
        planned.push(work);
    }
}

/// Segments that could become one.
struct Candidate<'a> {
    table: &'a TableFacts,
    inputs: Inputs<'a>,
    /// Bytes to write for each segment saved.
    cost: u64,
}

/// The cheapest fold within each window of a table, and of the neighbours in each wider window that may be made.
fn joinable<'a>(facts: &Facts, table: &'a TableFacts, tier: Tier, taken: &Taken) -> Vec<Candidate<'a>> {
    let mut members = members(facts, table, tier, taken);
    members.retain(|segment| tier == Tier::Cold || !migrates_within(facts, table, segment, JOIN_HOT_LEFT));
    let own: HashSet<Window> = members.iter().map(|segment| fold_window(segment)).collect();
    let wider = own
        .iter()
        .map(|window| widened(*window, (window.level + JOIN_LEVELS).min(LEVEL_MAX)));
    let wider = wider.filter(|window| may_be_joined(facts, table, tier, *window));
    let targets: BTreeSet<Window> = wider.chain(own.iter().copied()).collect();
    let within = |target: &Window| {
        // Neighbours are about as wide as each other: a narrow window is joined to its like first.
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
        // Most windows have one segment, and nothing to save.
        if like.len() < 2 {
            return None;
        }
        let (inputs, cost) = cheapest(like, table, &inside, JOIN_GROWTH, taken)?;
        Some(Candidate { table, inputs, cost })
    };
    targets.iter().filter_map(within).collect()
}

/// Whether neighbours may become a window as wide as this one: it lies in the past, and does not keep points for
/// much longer than they should be.
fn may_be_joined(facts: &Facts, table: &TableFacts, tier: Tier, window: Window) -> bool {
    let span = window.range(facts.window_nanos);
    let width = span.end.saturating_sub(span.start);
    let leaves = match tier {
        Tier::Hot => table.policy.hot_ttl,
        // A window that is archived may not be cut again at once.
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

/// The run of neighbours in the order of writes that costs fewest bytes for each segment saved, with that cost.
///
/// The output is at least `growth` times the largest input. What lies between the run joins it if it is among
/// `members`.
fn cheapest<'a>(
    mut stack: Vec<&'a SegmentFacts>,
    table: &'a TableFacts,
    members: &[&SegmentFacts],
    growth: u64,
    taken: &Taken,
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
        let inputs = inputs.closed(&table.segments, |other| is_member(other) && !taken.holds(other))?;
        grows(&inputs, growth).then_some((inputs, cost))
    })
}

fn grows(inputs: &Inputs<'_>, growth: u64) -> bool {
    let bytes = || inputs.segments.iter().map(|segment| segment.bytes);
    bytes().sum::<u64>() >= bytes().max().unwrap_or(0).saturating_mul(growth)
}

/// The segments of a tier that may be folded.
fn members<'a>(facts: &Facts, table: &'a TableFacts, tier: Tier, taken: &Taken) -> Vec<&'a SegmentFacts> {
    let soon = table.policy.hot_ttl.unwrap_or_default() / MIGRATES_SOON_PARTS;
    let stays = |segment: &SegmentFacts| tier == Tier::Cold || !migrates_within(facts, table, segment, soon);
    // What is written into files already need not be written again for being folded.
    let members = table
        .segments
        .iter()
        .filter(|segment| segment.tier == tier && !segment.is_copied);
    members
        .filter(|segment| !taken.holds(segment) && stays(segment))
        .collect()
}

fn migrates_within(facts: &Facts, table: &TableFacts, segment: &SegmentFacts, nanos: i64) -> bool {
    let at = table.cold_at(segment, facts.window_nanos);
    at.is_some_and(|at| at <= facts.now().saturating_add(nanos))
}

/// The window in which a segment is folded: cold ones share a day at least.
fn fold_window(segment: &SegmentFacts) -> Window {
    match segment.tier {
        Tier::Hot => segment.window,
        Tier::Cold | Tier::Archive => segment.cold_window(),
    }
}

fn fold(facts: &Facts, table: &TableFacts, inputs: &Inputs<'_>, reason: String, urgency: Urgency) -> Planned {
    let segments = &inputs.segments;
    // All inputs lie in the window that the stack or the neighbours share: the widest, or the one around all.
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

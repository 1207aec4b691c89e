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
//! [`SEGMENTS_CROWDED`], the cheapest segments to save are saved wherever they are: late data into its window, or
//! eight neighbouring windows into one. Old windows thus become wide while young ones stay narrow.

use hashbrown::HashSet;
use tideline_model::Tier;
use tideline_model::time::NANOS_PER_DAY;
use tideline_series_store::window::{LEVEL_MAX, Window};

use super::facts::{COLD_LEVEL, Facts, SegmentFacts, TableFacts, widened};
use super::writes::{INPUTS_MAX, Inputs};
use super::{Planned, Taken, Urgency, work, writes};
use crate::chore::Chore;

/// Segments of a store above which neighbours are joined: a read of all time opens so many, and a start reads their
/// rows. Well below a thousand, so that late data and a backfill find room before the next fold.
pub const SEGMENTS_CROWDED: usize = 600;
/// Doublings by which windows widen when neighbours are joined: eight at once, so that a byte is rewritten twice in
/// a century of days, and not seven times as it would be by pairs.
const JOIN_LEVELS: u8 = 3;
/// A joined window spans at most this part of the age at which its points move or expire: they may stay longer by as
/// much.
const JOIN_AGE_PARTS: i64 = 8;
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
        Tier::Cold => Shape {
            height: 4,
            growth: 3,
            height_max: 12,
        },
    }
}

/// Lowers the stacks of a table that are too high.
pub(super) fn plan(facts: &Facts, table: &TableFacts, taken: &mut Taken, planned: &mut Vec<Planned>) {
    for tier in Tier::ALL {
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
    let total: usize = facts.tables.iter().map(|table| table.segments.len()).sum();
    let saved = |planned: &[Planned]| -> usize {
        let folds = planned
            .iter()
            .filter(|work| !work.inputs.is_empty() && work.chore != Chore::Expire);
        folds.map(|work| work.inputs.len() - 1).sum()
    };
    if total.saturating_sub(saved(planned)) <= SEGMENTS_CROWDED {
        return;
    }
    let mut candidates = Vec::new();
    for table in &facts.tables {
        for tier in Tier::ALL {
            candidates.extend(joinable(facts, table, tier, taken));
        }
    }
    candidates.sort_by_key(|candidate: &Candidate<'_>| candidate.cost);
    while let Some(cheapest) = candidates.first().map(|candidate| candidate.cost) {
        if total.saturating_sub(saved(planned)) <= SEGMENTS_CROWDED {
            return;
        }
        // Among what costs about the same the oldest go first: late data comes to young windows.
        let like = candidates.partition_point(|candidate| candidate.cost <= cheapest.saturating_mul(2));
        let oldest = (0..like).min_by_key(|at| candidates[*at].inputs.segments[0].first);
        let chosen = candidates.remove(oldest.unwrap_or(0));
        if chosen.inputs.segments.iter().any(|segment| taken.holds(segment)) {
            continue;
        }
        let reason =
            format!("the store holds {total} segments; above {SEGMENTS_CROWDED} neighbours are joined");
        let work = fold(facts, chosen.table, &chosen.inputs, reason, Urgency::Crowded);
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

/// The cheapest fold within each window of a table, and within each wider window that may be made.
fn joinable<'a>(facts: &Facts, table: &'a TableFacts, tier: Tier, taken: &Taken) -> Vec<Candidate<'a>> {
    let members = members(facts, table, tier, taken);
    let own = || members.iter().map(|segment| fold_window(segment));
    let wider = own().map(|window| widened(window, (window.level + JOIN_LEVELS).min(LEVEL_MAX)));
    let wider = wider.filter(|window| may_be_joined(facts, table, tier, *window));
    let targets: HashSet<Window> = own().chain(wider).collect();
    let mut targets: Vec<Window> = targets.into_iter().collect();
    targets.sort_unstable();
    let within = |target: &Window| {
        let inside = members
            .iter()
            .filter(|segment| target.holds(fold_window(segment)));
        let inside: Vec<&SegmentFacts> = inside.copied().collect();
        // Most windows have one segment, and nothing to save.
        if inside.len() < 2 {
            return None;
        }
        let (inputs, cost) = cheapest(inside.clone(), table, &inside, 1, taken)?;
        Some(Candidate { table, inputs, cost })
    };
    targets.iter().filter_map(within).collect()
}

/// Whether neighbours may become a window as wide as this one: it lies in the past, and does not keep points for
/// much longer than they should be.
fn may_be_joined(facts: &Facts, table: &TableFacts, tier: Tier, window: Window) -> bool {
    let span = window.range(facts.window_nanos);
    let width = span.end.saturating_sub(span.start);
    let hot_ttl = table.policy.hot_ttl.filter(|_| tier == Tier::Hot);
    let ages = [table.policy.visible_age(), hot_ttl].into_iter().flatten();
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
    let stays = |segment: &SegmentFacts| tier == Tier::Cold || !migrates_soon(facts, table, segment);
    let members = table.segments.iter().filter(|segment| segment.tier == tier);
    members
        .filter(|segment| !taken.holds(segment) && stays(segment))
        .collect()
}

fn migrates_soon(facts: &Facts, table: &TableFacts, segment: &SegmentFacts) -> bool {
    let soon = table.policy.hot_ttl.unwrap_or_default() / MIGRATES_SOON_PARTS;
    let at = table.cold_at(segment.cold_window(), facts.window_nanos);
    at.is_some_and(|at| at <= facts.now().saturating_add(soon))
}

/// The window in which a segment is folded: cold ones share a day at least.
fn fold_window(segment: &SegmentFacts) -> Window {
    match segment.tier {
        Tier::Hot => segment.window,
        Tier::Cold => segment.cold_window(),
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
        ..work(Chore::Fold, table, segments, window, facts.window_nanos)
    }
}

const _: () = assert!(COLD_LEVEL < LEVEL_MAX, "a cold window can widen");

//! Archive: the cold segments of a window become files once the whole window is old enough.
//!
//! What was archived of the same time before goes along, since files are never added to. So that a trickle of late points
//! does not have a window written again and again, late ones lie beside it as cold segments until they are a good part of
//! it, or until a while has passed since it was written.
//!
//! A cold window of many days, made by a backfill or by joining, is cut once whole days of it are old enough, and these
//! are archived then: no point stays in the cold tier for longer than a day beyond the policy.
//!
//! Where points stay in the cold tier for a while after that, they are one cold segment with a copy in files, and evicting
//! it later only puts the copy in its place.

use std::collections::BTreeMap;

use tideline_engine::model::time::{NANOS_PER_DAY, format_duration};
use tideline_engine::model::{JobKind, Tier};
use tideline_engine::moves::window::{COLD_LEVEL, Window, cold_boundary};

use super::facts::{Facts, Past, SegmentFacts, TableFacts};
use super::moves::{Move, Moving, Waits};
use super::writes::Inputs;
use super::{Taken, of_table, work, writes};
use crate::maintenance::{Amount, Mode, Planned, Urgency};

/// Between two looks for files that nothing names, nanoseconds: they are left alone for a day anyway.
const SWEEP_EVERY: i64 = NANOS_PER_DAY;
/// Late points are put into files at once where they are at least this part of what lies there: then all is written again
/// at most so often while it doubles.
pub const LATE_PARTS: u64 = 8;
/// Fewer late points have a window written again at most this often, nanoseconds.
pub const LATE_EVERY: i64 = 7 * NANOS_PER_DAY;

/// Segments that are evicted at once: each costs a look at its files.
const EVICTED_AT_ONCE: usize = 64;

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
    let evicted = evicted(facts, table, taken);
    let is_evicted = |segment: &&SegmentFacts| evicted.iter().any(|other| other.id == segment.id);
    let mut moving = moving(facts, table, taken);
    // Their files are part of what lies there from then on.
    moving.retain(|moving| !moving.inputs.segments.iter().any(is_evicted));
    plan_eviction(facts, table, &evicted, taken, planned);
    moving.extend(cutting(facts, table, taken));
    let moved = Move {
        kind: JobKind::Archive,
        tier: Tier::Archive,
        age: policy.after,
        name: "segments",
    };
    moved.plan(facts, table, past, moving.into_iter(), (taken, planned));
}

/// The cold segments of windows of many days of which only some are old enough.
fn cutting<'a>(facts: &Facts, table: &'a TableFacts, taken: &Taken) -> Vec<Moving<'a>> {
    let base = facts.window_nanos;
    let Some(before) = before(facts, table) else {
        return Vec::new();
    };
    let (now, at) = (facts.now(), cold_boundary(before, base));
    let mut groups: BTreeMap<Window, Vec<&SegmentFacts>> = BTreeMap::new();
    for segment in &table.segments {
        let window = segment.cold_window();
        let is_cut = segment.tier == Tier::Cold && segment.first < at && window.range(base).end > at;
        if is_cut && !segment.is_copied && !segment.is_held(now) && !taken.holds(segment) {
            groups.entry(window).or_default().push(segment);
        }
    }
    let runs = groups.into_iter().flat_map(|(window, segments)| {
        let runs = writes::runs(segments, &table.segments);
        runs.into_iter().map(move |inputs| Moving {
            window,
            inputs,
            waits: None,
            mode: Mode::Cut(at),
        })
    });
    runs.collect()
}

/// The cold segments with a copy whose time in the cold tier is over, oldest first.
fn evicted<'a>(facts: &Facts, table: &'a TableFacts, taken: &Taken) -> Vec<&'a SegmentFacts> {
    let is_over = |segment: &&SegmentFacts| {
        let stays = cold_until(facts, table, segment.cold_window()).is_some_and(|until| until > facts.now());
        segment.is_copied && !stays && !segment.is_held(facts.now()) && !taken.holds(segment)
    };
    let mut over: Vec<&SegmentFacts> = table.segments.iter().filter(is_over).collect();
    over.sort_unstable_by_key(|segment| (segment.first, segment.id));
    over.truncate(EVICTED_AT_ONCE);
    over
}

fn plan_eviction(
    facts: &Facts,
    table: &TableFacts,
    evicted: &[&SegmentFacts],
    taken: &mut Taken,
    planned: &mut Vec<Planned>,
) {
    let Some(first) = evicted.first() else { return };
    let work = Planned {
        tier: Tier::Archive,
        slot: None,
        reason: format!(
            "{} cold segments have been in files for as long as the policy keeps them cold too",
            evicted.len()
        ),
        at: Some(facts.now()),
        urgency: Urgency::Free,
        ..work(
            JobKind::Evict,
            table,
            evicted,
            first.cold_window(),
            facts.window_nanos,
        )
    };
    taken.take(&work);
    planned.push(work);
}

/// Until when the points of an archived window stay in the cold tier too.
fn cold_until(facts: &Facts, table: &TableFacts, window: Window) -> Option<i64> {
    let policy = table.policy.archive.as_ref()?;
    let leaves = window.range(facts.window_nanos).end.saturating_add(policy.after);
    Some(leaves.saturating_add(policy.keep_cold.unwrap_or_default()))
}

/// Everything that is to become files, oldest window first.
fn moving<'a>(facts: &Facts, table: &'a TableFacts, taken: &Taken) -> Vec<Moving<'a>> {
    let mut moving = Vec::new();
    for (window, segments) in old_enough(facts, table, taken) {
        let stays = cold_until(facts, table, window).is_some_and(|until| until > facts.now());
        let runs = writes::runs(segments, &table.segments).into_iter();
        let is_new = |run: &Inputs<'_>| run.segments.iter().any(|segment| !is_there(segment));
        moving.extend(runs.filter(is_new).map(|inputs| Moving {
            waits: waits(&inputs, facts.now()),
            mode: mode(&inputs, stays),
            window,
            inputs,
        }));
    }
    moving
}

/// Whether the points of a segment are in files.
fn is_there(segment: &SegmentFacts) -> bool {
    segment.tier == Tier::Archive || segment.is_copied
}

/// Points stay in the cold tier only where all of a window's are there.
fn mode(inputs: &Inputs<'_>, stays: bool) -> Mode {
    let segments = &inputs.segments;
    if !stays || segments.iter().any(|segment| segment.tier == Tier::Archive) {
        return Mode::Plain;
    }
    Mode::Copied {
        folded: segments.len() > 1 || segments.iter().any(|segment| segment.has_deletes),
    }
}

/// Few late points wait for more of them.
fn waits(inputs: &Inputs<'_>, now: i64) -> Option<Waits> {
    let of = |there: bool| {
        let segments = inputs.segments.iter();
        segments.filter(move |segment| is_there(segment) == there)
    };
    let points = |there: bool| of(there).map(|segment| segment.points).sum::<u64>();
    let (late, there) = (points(false), points(true));
    if late.saturating_mul(LATE_PARTS) >= there {
        return None;
    }
    // An instant of the future is one of a clock that went back: it says nothing.
    let written = of(true).filter_map(|segment| segment.archived.filter(|at| *at <= now));
    let until = written.max()?.saturating_add(LATE_EVERY);
    (until > now).then(|| Waits {
        until,
        why: format!(
            "{late} late points wait beside {there} archived ones until they are one in {LATE_PARTS}, or {} after those \
             were written",
            format_duration(LATE_EVERY)
        ),
    })
}

/// Segments that leave the tiers before the archive by its policy, hot segments that are old enough for both moves included. Of a
/// segment that is cut, the part that leaves, estimated.
pub(super) fn leaving(facts: &Facts, table: &TableFacts, taken: &Taken) -> Vec<SegmentFacts> {
    let moving = moving(facts, table, taken);
    let moving = moving.into_iter().filter(|moving| moving.waits.is_none());
    let cold = moving
        .flat_map(|moving| moving.inputs.segments)
        .filter(|segment| !is_there(segment));
    let at = before(facts, table).map_or(i64::MIN, |before| cold_boundary(before, facts.window_nanos));
    let is_old =
        |segment: &&SegmentFacts| segment.tier == Tier::Hot && !taken.holds(segment) && segment.first < at;
    let cut = cutting(facts, table, taken);
    let cut = cut.into_iter().flat_map(|moving| moving.inputs.segments);
    let cut = cut.chain(table.segments.iter().filter(is_old));
    let part = |segment: &SegmentFacts| match segment.cold_window().range(facts.window_nanos).end <= at {
        true => segment.clone(),
        false => segment.before(at),
    };
    cold.cloned().chain(cut.map(part)).collect()
}

/// How far the archive of a table has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Standing {
    /// What is in files only.
    pub archived: Amount,
    /// What is in files and stays in the cold tier for a while.
    pub copied: Amount,
    /// What is old enough for files and not in any.
    pub waiting: Amount,
    /// When the first of that became old enough, trusted nanoseconds since the epoch.
    pub waiting_since: Option<i64>,
    /// Late points that wait for more of them.
    pub late: Amount,
}

/// How far the archive of a table has come, whatever is being moved just now.
pub(crate) fn standing(facts: &Facts, table: &TableFacts) -> Standing {
    let nothing = Taken::expired(facts.now(), table);
    let waiting = leaving(facts, table, &nothing);
    let after = table.policy.archive.as_ref().map(|policy| policy.after);
    let became_old = |segment: &SegmentFacts| {
        let day = Window::of(segment.first, facts.window_nanos, COLD_LEVEL);
        let end = day.range(facts.window_nanos).end;
        after.map(|after| end.saturating_add(after))
    };
    let late = moving(facts, table, &nothing)
        .into_iter()
        .filter(|moving| moving.waits.is_some())
        .flat_map(|moving| moving.inputs.segments)
        .filter(|segment| !is_there(segment));
    let of = |is_of: fn(&SegmentFacts) -> bool| {
        let segments = table.segments.iter();
        Amount::of(segments.filter(|segment| is_of(segment)))
    };
    Standing {
        archived: of(|segment| segment.tier == Tier::Archive),
        copied: of(|segment| segment.is_copied),
        waiting_since: waiting.iter().filter_map(became_old).min(),
        waiting: Amount::of(&waiting),
        late: Amount::of(late),
    }
}

/// Windows that end by this instant are old enough.
fn before(facts: &Facts, table: &TableFacts) -> Option<i64> {
    let policy = table.policy.archive.as_ref()?;
    Some(facts.now().saturating_sub(policy.after))
}

/// The cold segments of windows that are older than the policy says, with what is archived of the same time; oldest
/// window first.
fn old_enough<'a>(
    facts: &Facts,
    table: &'a TableFacts,
    taken: &Taken,
) -> Vec<(Window, Vec<&'a SegmentFacts>)> {
    let Some(before) = before(facts, table) else {
        return Vec::new();
    };
    let span = |window: Window| window.range(facts.window_nanos);
    let is_old = |segment: &SegmentFacts| match segment.tier {
        Tier::Hot => false,
        Tier::Cold => span(segment.cold_window()).end <= before,
        Tier::Archive => true,
    };
    let mut segments: Vec<&SegmentFacts> = table
        .segments
        .iter()
        .filter(|segment| is_old(segment) && !segment.is_held(facts.now()) && !taken.holds(segment))
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
    groups.retain(|(_, group)| group.iter().any(|segment| !is_there(segment)));
    groups
}

/// Settings that have changed are written to the targets, so that another database that attaches the files applies them.
pub(super) fn plan_settings(facts: &Facts, table: &TableFacts, planned: &mut Vec<Planned>) {
    if !table.has_unwritten_settings {
        return;
    }
    planned.push(Planned {
        tier: Tier::Archive,
        at: Some(facts.now()),
        ..of_table(
            JobKind::WriteSettings,
            table,
            "targets with files of the table may hold other settings than it has",
        )
    });
}

/// Now and then, files that nothing names are looked for.
pub(super) fn plan_sweep(facts: &Facts, table: &TableFacts, past: &Past, planned: &mut Vec<Planned>) {
    let is_archived = |segment: &SegmentFacts| segment.tier == Tier::Archive;
    if table.policy.archive.is_none() && !table.segments.iter().any(is_archived) {
        return;
    }
    let now = facts.now();
    let served = past.served.get(&(table.id, JobKind::SweepArchive)).copied();
    let at = served
        .filter(|at| *at <= now)
        .map_or(now, |at| at.saturating_add(SWEEP_EVERY));
    planned.push(Planned {
        tier: Tier::Archive,
        at: Some(at),
        ..of_table(
            JobKind::SweepArchive,
            table,
            "files that nothing names any more are looked for once a day",
        )
    });
}

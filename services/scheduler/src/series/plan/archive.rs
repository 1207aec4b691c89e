//! Archive: the cold segments of a window become files once the whole window is old enough.
//!
//! Files are never extended, so segments of the same window that were archived earlier are rewritten together with
//! the new segments. A few late points must not cause a rewrite of their window each time. Late points therefore stay
//! in cold segments until they reach 1/8 of the archived points ([`LATE_PARTS`]), or until a week has passed since
//! the files were written ([`LATE_EVERY`]).
//!
//! A cold window of several days, from a backfill or a join, is cut once whole days of it are old enough. These days
//! are archived. Apart from late points and waits for the schedule, no point stays in the cold tier for longer than a
//! day beyond the policy.
//!
//! If the policy also keeps points in the cold tier for a while, a window becomes one cold segment with a copy in
//! files. Eviction later only replaces the segment by its copy.

use std::collections::BTreeMap;

use tideline_engine::model::time::{NANOS_PER_DAY, format_duration};
use tideline_engine::model::{JobKind, Tier};
use tideline_engine::moves::window::{COLD_LEVEL, Window, cold_boundary};

use super::facts::{Facts, History, SegmentFacts, TableFacts};
use super::moves::{Move, Moving, Waits};
use super::writes::Inputs;
use super::{Claimed, of_table, work, writes};
use crate::maintenance::{Amount, Mode, Planned, Urgency};

/// Interval between searches for files that no segment refers to, in nanoseconds. Such files are kept for at least a
/// day.
const ORPHANS_EVERY: i64 = NANOS_PER_DAY;
/// Denominator of a share: late points that reach this share of the archived points are archived at once. A window is
/// then rewritten at most this many times while its points double.
pub const LATE_PARTS: u64 = 8;
/// Smallest interval between rewrites of a window for fewer late points, nanoseconds.
pub const LATE_EVERY: i64 = 7 * NANOS_PER_DAY;

/// Maximum number of segments evicted at once. Each requires a check of its files.
const EVICTED_AT_ONCE: usize = 64;

pub(super) fn plan(
    facts: &Facts,
    table: &TableFacts,
    history: &History,
    claimed: &mut Claimed,
    planned: &mut Vec<Planned>,
) {
    let Some(policy) = &table.policy.archive else {
        return;
    };
    let evicted = evicted(facts, table, claimed);
    let is_evicted = |segment: &&SegmentFacts| evicted.iter().any(|other| other.id == segment.id);
    let mut moving = moving(facts, table, claimed);
    // Eviction turns these segments into archived ones; later moves of their windows are planned after the eviction.
    moving.retain(|moving| !moving.inputs.segments.iter().any(is_evicted));
    plan_eviction(facts, table, &evicted, claimed, planned);
    moving.extend(cutting(facts, table, claimed));
    let moved = Move {
        kind: JobKind::Archive,
        tier: Tier::Archive,
        age: policy.after,
        name: "segments",
    };
    moved.plan(facts, table, history, moving.into_iter(), (claimed, planned));
}

/// Returns the cuts of cold segments in multi-day windows of which only some days are old enough.
fn cutting<'a>(facts: &Facts, table: &'a TableFacts, claimed: &Claimed) -> Vec<Moving<'a>> {
    let base = facts.window_nanos;
    let Some(before) = before(facts, table) else {
        return Vec::new();
    };
    let (now, at) = (facts.now(), cold_boundary(before, base));
    let mut groups: BTreeMap<Window, Vec<&SegmentFacts>> = BTreeMap::new();
    for segment in &table.segments {
        let window = segment.cold_window();
        let is_cut = segment.tier == Tier::Cold && segment.first < at && window.range(base).end > at;
        if is_cut && !segment.is_copied && !segment.is_held(now) && !claimed.holds(segment) {
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

/// Returns the cold segments that have a copy in files and whose time in the cold tier is over: oldest first, at most
/// [`EVICTED_AT_ONCE`].
fn evicted<'a>(facts: &Facts, table: &'a TableFacts, claimed: &Claimed) -> Vec<&'a SegmentFacts> {
    let is_over = |segment: &&SegmentFacts| {
        let stays = cold_until(facts, table, segment.cold_window()).is_some_and(|until| until > facts.now());
        segment.is_copied && !stays && !segment.is_held(facts.now()) && !claimed.holds(segment)
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
    claimed: &mut Claimed,
    planned: &mut Vec<Planned>,
) {
    let Some(first) = evicted.first() else { return };
    let work = Planned {
        tier: Tier::Archive,
        slot: None,
        reason: format!(
            "{} archived segments have passed the time for which the policy also keeps them cold",
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
    claimed.take(&work);
    planned.push(work);
}

/// Returns the time until which the points of an archived window stay in the cold tier too; `None` if the policy has no
/// archive.
fn cold_until(facts: &Facts, table: &TableFacts, window: Window) -> Option<i64> {
    let policy = table.policy.archive.as_ref()?;
    let leaves = window.range(facts.window_nanos).end.saturating_add(policy.after);
    Some(leaves.saturating_add(policy.keep_cold.unwrap_or_default()))
}

/// Returns the moves into files, including those that wait, oldest window first.
fn moving<'a>(facts: &Facts, table: &'a TableFacts, claimed: &Claimed) -> Vec<Moving<'a>> {
    let mut moving = Vec::new();
    for (window, segments) in old_enough(facts, table, claimed) {
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

/// Returns true if the points of a segment are in files.
fn is_there(segment: &SegmentFacts) -> bool {
    segment.tier == Tier::Archive || segment.is_copied
}

/// Returns the mode of a move. The points stay in the cold tier only if `stays` is true and no input has left the cold
/// tier.
fn mode(inputs: &Inputs<'_>, stays: bool) -> Mode {
    let segments = &inputs.segments;
    if !stays || segments.iter().any(|segment| segment.tier == Tier::Archive) {
        return Mode::Plain;
    }
    Mode::Copied {
        folded: segments.len() > 1 || segments.iter().any(|segment| segment.has_deletes),
    }
}

/// Returns the wait of late points that are too few to be archived at once; `None` if they need not wait.
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
    // A timestamp in the future was recorded before the clock was set back; it is ignored.
    let written = of(true).filter_map(|segment| segment.archived.filter(|at| *at <= now));
    let until = written.max()?.saturating_add(LATE_EVERY);
    (until > now).then(|| Waits {
        until,
        why: format!(
            "{late} late points wait until they reach 1/{LATE_PARTS} of the {there} archived points, or \
             until {} after those were written",
            format_duration(LATE_EVERY)
        ),
    })
}

/// Returns the segments whose points move to the archive under the policy, including hot segments that are old enough
/// for migration and archive. Late points that wait are omitted. A segment that is cut counts only with the estimated
/// part that moves.
pub(super) fn leaving(facts: &Facts, table: &TableFacts, claimed: &Claimed) -> Vec<SegmentFacts> {
    let moving = moving(facts, table, claimed);
    let moving = moving.into_iter().filter(|moving| moving.waits.is_none());
    let cold = moving
        .flat_map(|moving| moving.inputs.segments)
        .filter(|segment| !is_there(segment));
    let at = before(facts, table).map_or(i64::MIN, |before| cold_boundary(before, facts.window_nanos));
    let is_old =
        |segment: &&SegmentFacts| segment.tier == Tier::Hot && !claimed.holds(segment) && segment.first < at;
    let cut = cutting(facts, table, claimed);
    let cut = cut.into_iter().flat_map(|moving| moving.inputs.segments);
    let cut = cut.chain(table.segments.iter().filter(is_old));
    let part = |segment: &SegmentFacts| match segment.cold_window().range(facts.window_nanos).end <= at {
        true => segment.clone(),
        false => segment.before(at),
    };
    cold.cloned().chain(cut.map(part)).collect()
}

/// Progress of the archive of a table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ArchiveProgress {
    /// Points that are only in files.
    pub archived: Amount,
    /// Points in files that stay in the cold tier for a while.
    pub copied: Amount,
    /// Points that are old enough for files but are not in a file yet, except those in `late`.
    pub waiting: Amount,
    /// Time when the first waiting points became old enough, by the trusted clock, in nanoseconds since the epoch;
    /// `None` = no points wait.
    pub waiting_since: Option<i64>,
    /// Late points that wait until there are more of them, or until a week has passed.
    pub late: Amount,
}

/// Returns the progress of the archive of a table, including segments that are being moved.
pub(crate) fn standing(facts: &Facts, table: &TableFacts) -> ArchiveProgress {
    let nothing = Claimed::expired(facts.now(), table);
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
    ArchiveProgress {
        archived: of(|segment| segment.tier == Tier::Archive),
        copied: of(|segment| segment.is_copied),
        waiting_since: waiting.iter().filter_map(became_old).min(),
        waiting: Amount::of(&waiting),
        late: Amount::of(late),
    }
}

/// Returns the timestamp by which a window must end to be old enough; `None` if the policy has no archive.
fn before(facts: &Facts, table: &TableFacts) -> Option<i64> {
    let policy = table.policy.archive.as_ref()?;
    Some(facts.now().saturating_sub(policy.after))
}

/// Returns the cold segments of windows that are old enough for the policy, with the archived segments of the same
/// windows; oldest window first. Held and claimed segments are omitted.
fn old_enough<'a>(
    facts: &Facts,
    table: &'a TableFacts,
    claimed: &Claimed,
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
        .filter(|segment| is_old(segment) && !segment.is_held(facts.now()) && !claimed.holds(segment))
        .collect();
    // Wider windows first: of two overlapping windows, one contains the other.
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

/// Plans the write of changed settings to the targets, so that another database that attaches the files applies them.
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
            "targets with files of the table may hold outdated settings",
        )
    });
}

/// Plans a regular search for files that no segment refers to.
pub(super) fn plan_gc(facts: &Facts, table: &TableFacts, history: &History, planned: &mut Vec<Planned>) {
    let is_archived = |segment: &SegmentFacts| segment.tier == Tier::Archive;
    if table.policy.archive.is_none() && !table.segments.iter().any(is_archived) {
        return;
    }
    let now = facts.now();
    let served = history.served.get(&(table.id, JobKind::SweepArchive)).copied();
    let at = served
        .filter(|at| *at <= now)
        .map_or(now, |at| at.saturating_add(ORPHANS_EVERY));
    planned.push(Planned {
        tier: Tier::Archive,
        at: Some(at),
        ..of_table(
            JobKind::SweepArchive,
            table,
            "files that no segment refers to are removed once a day",
        )
    });
}

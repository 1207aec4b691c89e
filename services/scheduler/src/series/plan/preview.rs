//! What a policy would do now, without doing it.

use tideline_engine::model::{JobKind, Policy, Tier, TimeRange};
use tideline_engine::moves::Unsealed;
use tideline_engine::moves::window::{Window, cold_boundary};

use super::expire::{freed_before, paused};
use super::facts::{Facts, Past, SegmentFacts, TableFacts};
use super::{Taken, archive, begins, migrate};
use crate::maintenance::{Amount, PlanSettings};

/// What a policy would move, hide and free, seen from now.
///
/// Amounts are exact for segments that are moved or freed whole. Of a segment that a boundary cuts, the part that is
/// moved or hidden is estimated as if its points were spread evenly. Unsealed points are counted one by one; they have
/// no windows, segments and bytes yet.
#[derive(Debug, Clone, PartialEq)]
pub struct Preview {
    /// Trusted time of the preview, nanoseconds since the epoch.
    pub now: i64,
    /// The policy that it is about.
    pub policy: Policy,
    /// What moves from hot to cold.
    pub migrates: Amount,
    /// The windows that move, oldest first; at most [`WINDOWS_MAX`].
    pub migrating: Vec<TimeRange>,
    /// When that begins; `None` = never, by this policy.
    pub migrates_at: Option<i64>,
    /// What moves into files; `None` = the policy has no archive.
    pub archives: Option<Archives>,
    /// The first instant that is visible; `None` = everything is.
    pub visible_from: Option<i64>,
    /// What is hidden at once and for as long as the policy stays.
    pub hides: Amount,
    /// What of that is in segments that hold nothing else: those are dropped, the others stay until they do.
    pub drops: Amount,
    /// The windows that are dropped, oldest first; at most [`WINDOWS_MAX`].
    pub dropping: Vec<TimeRange>,
    /// When the first of them may be dropped: until then a longer policy shows its points again. `None` while
    /// expiry is paused or there is nothing to drop.
    pub drops_at: Option<i64>,
    /// Why nothing expires just now, where that is so.
    pub expiry_paused: Option<String>,
    /// How many of all these points are not sealed yet.
    pub unsealed: UnsealedPoints,
}

/// Points of a preview that are not sealed yet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UnsealedPoints {
    /// Those that go to the cold tier when they are sealed.
    pub migrates: u64,
    /// Those that are old enough for files.
    pub archives: u64,
    /// Those that are hidden.
    pub hides: u64,
    /// Hidden ones of whole days that are hidden, which are freed with what they are sealed into.
    pub drops: u64,
}

/// The instants before which unsealed points are counted for a preview.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Boundaries {
    migrates: i64,
    archives: i64,
    hides: i64,
    drops: i64,
}

/// The unsealed points before each of the [`Boundaries`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UnsealedBefore {
    migrates: Unsealed,
    archives: Unsealed,
    hides: Unsealed,
    drops: Unsealed,
}

impl Boundaries {
    /// The boundaries of a table's policy, or with `policy` of that one.
    pub fn of(facts: &Facts, table: &TableFacts, policy: Option<&Policy>) -> Self {
        let policy = policy.unwrap_or(&table.policy);
        let (now, base) = (facts.now(), facts.window_nanos);
        let day = |age: Option<i64>| age.map_or(i64::MIN, |age| cold_boundary(now.saturating_sub(age), base));
        let visible_from = policy
            .visible_age()
            .map_or(i64::MIN, |age| now.saturating_sub(age));
        // A point that is not cold yet is not archived.
        let archive = policy.archive.as_ref().zip(policy.hot_ttl);
        Self {
            migrates: day(policy.hot_ttl),
            archives: day(archive.map(|(archive, hot_ttl)| archive.after.max(hot_ttl))),
            hides: visible_from,
            drops: day(policy.visible_age()),
        }
    }

    /// All of them, in the order in which [`UnsealedBefore::new`] takes the counts.
    pub fn all(&self) -> [i64; 4] {
        [self.migrates, self.archives, self.hides, self.drops]
    }
}

impl UnsealedBefore {
    /// The counts before [`Boundaries::all`]. As with segments, what is dropped is not moved.
    pub fn new([migrates, archives, hides, drops]: [Unsealed; 4]) -> Self {
        Self {
            migrates: without(migrates, drops),
            archives: without(archives, drops),
            hides,
            drops,
        }
    }
}

/// The points of `all` that are not among the oldest of them.
fn without(all: Unsealed, oldest: Unsealed) -> Unsealed {
    let points = all.points.saturating_sub(oldest.points);
    Unsealed {
        timelines: if points == 0 { 0 } else { all.timelines },
        points,
        values: all.values.saturating_sub(oldest.values),
        span: all.span.filter(|_| points > 0),
    }
}

/// What a policy would archive.
#[derive(Debug, Clone, PartialEq)]
pub struct Archives {
    /// How much leaves the cold tier, with what has to become cold for it. Late points that wait are not counted.
    pub amount: Amount,
    /// The windows, oldest first; at most [`WINDOWS_MAX`].
    pub windows: Vec<TimeRange>,
    /// When that begins; `None` = there is nothing, or never by this policy.
    pub at: Option<i64>,
}

/// Most windows that a preview names; its amounts are about all of them.
pub const WINDOWS_MAX: usize = 1_000;

/// What the policy of a table would do now; with `policy`, what that one would do if it were set now.
pub fn preview(
    facts: &Facts,
    table: &TableFacts,
    policy: Option<Policy>,
    unsealed: &UnsealedBefore,
    past: &Past,
    settings: &PlanSettings,
) -> Preview {
    let now = facts.now();
    let mut table = table.clone();
    if let Some(policy) = policy.filter(|policy| *policy != table.policy) {
        table.policy = policy;
        table.policy_changed = now;
    }
    let moving = migrate::old_enough(facts, &table, &Taken::new(facts, [&table]));
    let ready = (!moving.is_empty()).then_some(now);
    let visible_from = table.visible_from(now);
    let hidden = table
        .segments
        .iter()
        .filter(|segment| segment.first < visible_from);
    let dropped: Vec<&SegmentFacts> = table
        .segments
        .iter()
        .filter(|segment| !table.is_visible(segment, now))
        .collect();
    let migrates_at = ready.and_then(|ready| begins(facts, &table, past, JobKind::Migrate, ready));
    let segments_moving: Vec<SegmentFacts> = moving
        .iter()
        .flat_map(|group| {
            let part = |segment: &&SegmentFacts| match group.cut {
                Some(cut) => segment.before(cut),
                None => SegmentFacts::clone(segment),
            };
            group.segments.iter().map(part)
        })
        .collect();
    Preview {
        now,
        migrates: with(Amount::of(&segments_moving), &unsealed.migrates),
        migrating: moving
            .iter()
            .map(|group| group.range(facts.window_nanos))
            .take(WINDOWS_MAX)
            .collect(),
        migrates_at,
        archives: archives(facts, &table, &unsealed.archives, past, migrates_at),
        visible_from: (visible_from > i64::MIN).then_some(visible_from),
        hides: with(hides(hidden, visible_from), &unsealed.hides),
        drops: with(Amount::of(dropped.iter().copied()), &unsealed.drops),
        dropping: windows(facts, dropped.iter().copied(), |segment| segment.window),
        drops_at: drops_at(facts, &table, (&dropped, &unsealed.drops), past, settings),
        expiry_paused: paused(facts, settings),
        unsealed: UnsealedPoints {
            migrates: unsealed.migrates.points,
            archives: unsealed.archives.points,
            hides: unsealed.hides.points,
            drops: unsealed.drops.points,
        },
        policy: table.policy,
    }
}

/// An amount with unsealed points.
fn with(mut amount: Amount, unsealed: &Unsealed) -> Amount {
    amount.timelines = amount.timelines.max(unsealed.timelines);
    amount.points += unsealed.points;
    amount.values += unsealed.values;
    amount
}

/// What moves into files: cold windows, and hot ones that are old enough for both moves.
fn archives(
    facts: &Facts,
    table: &TableFacts,
    unsealed: &Unsealed,
    past: &Past,
    migrates_at: Option<i64>,
) -> Option<Archives> {
    table.policy.archive.as_ref()?;
    let moving = archive::leaving(facts, table, &Taken::new(facts, [table]));
    let is_cold = moving.iter().any(|segment| segment.tier == Tier::Cold);
    let ready = if is_cold { Some(facts.now()) } else { migrates_at };
    Some(Archives {
        at: ready
            .filter(|_| !moving.is_empty())
            .and_then(|ready| begins(facts, table, past, JobKind::Archive, ready)),
        windows: windows(facts, &moving, SegmentFacts::cold_window),
        amount: with(Amount::of(&moving), unsealed),
    })
}

/// The hidden part of segments.
fn hides<'a>(segments: impl Iterator<Item = &'a SegmentFacts>, visible_from: i64) -> Amount {
    let parts: Vec<SegmentFacts> = segments.map(|segment| segment.before(visible_from)).collect();
    Amount::of(&parts)
}

fn windows<'a>(
    facts: &Facts,
    segments: impl IntoIterator<Item = &'a SegmentFacts>,
    window: impl Fn(&SegmentFacts) -> Window,
) -> Vec<TimeRange> {
    let mut windows: Vec<_> = segments
        .into_iter()
        .map(|segment| window(segment).range(facts.window_nanos))
        .collect();
    windows.sort_unstable_by_key(|window| (window.start, window.end));
    windows.dedup();
    windows.truncate(WINDOWS_MAX);
    windows
}

/// When the first of the expired segments may be dropped.
fn drops_at(
    facts: &Facts,
    table: &TableFacts,
    (dropped, unsealed): (&[&SegmentFacts], &Unsealed),
    past: &Past,
    settings: &PlanSettings,
) -> Option<i64> {
    let sealed = dropped.iter().map(|segment| segment.last);
    let unsealed = unsealed.span.map(|(_, last)| last);
    let oldest = sealed.chain(unsealed).min()?;
    let age = table.policy.visible_age()?;
    let hidden_at = oldest.saturating_add(age);
    let kept_until = hidden_at
        .max(table.policy_changed)
        .saturating_add(settings.purge_delay);
    let ready = kept_until.max(facts.now());
    let is_paused = freed_before(facts, table, settings).is_none() && paused(facts, settings).is_some();
    (!is_paused)
        .then(|| begins(facts, table, past, JobKind::Expire, ready))
        .flatten()
}

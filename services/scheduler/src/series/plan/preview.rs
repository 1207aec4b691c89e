//! Preview of a policy: amounts that the policy would move, hide and free now.
//!
//! The preview uses the functions of the planner and changes nothing.

use tideline_engine::model::{JobKind, Policy, Tier, TimeRange};
use tideline_engine::moves::Unsealed;
use tideline_engine::moves::window::{Window, cold_boundary};

use super::expire::{freed_before, paused};
use super::facts::{Facts, History, SegmentFacts, TableFacts};
use super::{Claimed, archive, begins, migrate};
use crate::maintenance::{Amount, PlanSettings};

/// Effects of a policy, computed at one moment.
///
/// Amounts are exact for segments that are moved or freed as a whole. If a boundary cuts a segment, the part that is
/// moved or hidden is estimated as if its points were spread evenly. Unsealed points are counted one by one; they
/// have no windows, segments or bytes yet.
#[derive(Debug, Clone, PartialEq)]
pub struct Preview {
    /// Trusted time of the preview, nanoseconds since the epoch.
    pub now: i64,
    /// Policy of the preview.
    pub policy: Policy,
    /// Amount that moves from hot to cold.
    pub migrates: Amount,
    /// Windows that move, oldest first; at most [`WINDOWS_MAX`].
    pub migrating: Vec<TimeRange>,
    /// Time when this move starts; `None` = nothing to move, or never under this policy.
    pub migrates_at: Option<i64>,
    /// Moves into files; `None` = the policy has no archive.
    pub archives: Option<Archives>,
    /// First visible timestamp; `None` = all points are visible.
    pub visible_from: Option<i64>,
    /// Amount that is hidden at once, for as long as the policy stays.
    pub hides: Amount,
    /// Part of the hidden amount in segments that are hidden completely. These segments are dropped; other segments
    /// stay until they are hidden completely.
    pub drops: Amount,
    /// Windows that are dropped, oldest first; at most [`WINDOWS_MAX`].
    pub dropping: Vec<TimeRange>,
    /// Time when the first of these windows may be dropped. Until then, a policy with a longer age makes the points of
    /// the window visible again. `None` while expiry is paused, or if nothing is ever dropped.
    pub drops_at: Option<i64>,
    /// Reason why nothing expires now; `None` if expiry is not paused.
    pub expiry_paused: Option<String>,
    /// Unsealed points included in the amounts above.
    pub unsealed: UnsealedPoints,
}

/// Unsealed points of a preview.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UnsealedPoints {
    /// Number of points that go to the cold tier when they are sealed.
    pub migrates: u64,
    /// Number of points that are old enough for files.
    pub archives: u64,
    /// Number of points that are hidden.
    pub hides: u64,
    /// Number of hidden points in days that are hidden completely. These points are freed with the segments into which
    /// they are sealed.
    pub drops: u64,
}

/// Timestamps before which unsealed points are counted for a preview.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Boundaries {
    migrates: i64,
    archives: i64,
    hides: i64,
    drops: i64,
}

/// Unsealed points before each of the [`Boundaries`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UnsealedBefore {
    migrates: Unsealed,
    archives: Unsealed,
    hides: Unsealed,
    drops: Unsealed,
}

impl Boundaries {
    /// Computes the boundaries of `policy`, or of the table's policy if it is `None`.
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

    /// Returns all boundaries, in the order of the counts for [`UnsealedBefore::new`].
    pub fn all(&self) -> [i64; 4] {
        [self.migrates, self.archives, self.hides, self.drops]
    }
}

impl UnsealedBefore {
    /// Creates the value from the counts before each of [`Boundaries::all`]. As with segments, dropped points do not
    /// count as moved.
    pub fn new([migrates, archives, hides, drops]: [Unsealed; 4]) -> Self {
        Self {
            migrates: without(migrates, drops),
            archives: without(archives, drops),
            hides,
            drops,
        }
    }
}

/// Subtracts the points and values of `oldest` from the points and values of `all`. If points are left, the span and
/// the number of timelines are unchanged.
fn without(all: Unsealed, oldest: Unsealed) -> Unsealed {
    let points = all.points.saturating_sub(oldest.points);
    Unsealed {
        timelines: if points == 0 { 0 } else { all.timelines },
        points,
        values: all.values.saturating_sub(oldest.values),
        span: all.span.filter(|_| points > 0),
    }
}

/// Moves into files under a policy.
#[derive(Debug, Clone, PartialEq)]
pub struct Archives {
    /// Amount that moves into files, including hot points that must become cold first. Waiting late points are not
    /// counted.
    pub amount: Amount,
    /// Windows that move, oldest first; at most [`WINDOWS_MAX`].
    pub windows: Vec<TimeRange>,
    /// Time when this move starts; `None` = nothing to move, or never under this policy.
    pub at: Option<i64>,
}

/// Maximum number of windows in a list of a preview. The amounts of the preview include all windows.
pub const WINDOWS_MAX: usize = 1_000;

/// Previews the policy of a table now, or the effect of setting `policy` now.
pub fn preview(
    facts: &Facts,
    table: &TableFacts,
    policy: Option<Policy>,
    unsealed: &UnsealedBefore,
    history: &History,
    settings: &PlanSettings,
) -> Preview {
    let now = facts.now();
    let mut table = table.clone();
    if let Some(policy) = policy.filter(|policy| *policy != table.policy) {
        table.policy = policy;
        table.policy_changed = now;
    }
    let moving = migrate::old_enough(facts, &table, &Claimed::new(facts, [&table]));
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
    let migrates_at = ready.and_then(|ready| begins(facts, &table, history, JobKind::Migrate, ready));
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
        archives: archives(facts, &table, &unsealed.archives, history, migrates_at),
        visible_from: (visible_from > i64::MIN).then_some(visible_from),
        hides: with(hides(hidden, visible_from), &unsealed.hides),
        drops: with(Amount::of(dropped.iter().copied()), &unsealed.drops),
        dropping: windows(facts, dropped.iter().copied(), |segment| segment.window),
        drops_at: drops_at(facts, &table, (&dropped, &unsealed.drops), history, settings),
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

/// Adds unsealed points to an amount.
fn with(mut amount: Amount, unsealed: &Unsealed) -> Amount {
    amount.timelines = amount.timelines.max(unsealed.timelines);
    amount.points += unsealed.points;
    amount.values += unsealed.values;
    amount
}

/// Returns the moves into files: cold windows, and hot windows that are old enough for migration and archive. `None` if
/// the policy has no archive.
fn archives(
    facts: &Facts,
    table: &TableFacts,
    unsealed: &Unsealed,
    history: &History,
    migrates_at: Option<i64>,
) -> Option<Archives> {
    table.policy.archive.as_ref()?;
    let moving = archive::leaving(facts, table, &Claimed::new(facts, [table]));
    let is_cold = moving.iter().any(|segment| segment.tier == Tier::Cold);
    let ready = if is_cold { Some(facts.now()) } else { migrates_at };
    Some(Archives {
        at: ready
            .filter(|_| !moving.is_empty())
            .and_then(|ready| begins(facts, table, history, JobKind::Archive, ready)),
        windows: windows(facts, &moving, SegmentFacts::cold_window),
        amount: with(Amount::of(&moving), unsealed),
    })
}

/// Returns the total of the hidden parts of segments.
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

/// Returns the time when the first of the expired segments may be dropped; `None` while expiry is paused, or if there
/// is nothing to drop.
fn drops_at(
    facts: &Facts,
    table: &TableFacts,
    (dropped, unsealed): (&[&SegmentFacts], &Unsealed),
    history: &History,
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
        .then(|| begins(facts, table, history, JobKind::Expire, ready))
        .flatten()
}

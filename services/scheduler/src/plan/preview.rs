//! What a policy would do now, without doing it.

use tideline_model::{Policy, Tier, TimeRange};
use tideline_series_store::window::Window;

use super::expire::{freed_before, paused};
use super::facts::{Amount, Facts, Past, SegmentFacts, TableFacts};
use super::{PlanSettings, Taken, archive, begins, migrate};
use crate::chore::Chore;

/// What a policy would move, hide and free, seen from now.
///
/// Amounts are exact for segments that are moved or freed whole. Of a segment that a boundary cuts, the part that is
/// moved or hidden is estimated as if its points were spread evenly. Points that are not sealed yet are not counted.
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
    let migrates_at = ready.and_then(|ready| begins(facts, &table, past, Chore::Migrate, ready));
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
        migrates: Amount::of(&segments_moving),
        migrating: moving
            .iter()
            .map(|group| group.range(facts.window_nanos))
            .take(WINDOWS_MAX)
            .collect(),
        migrates_at,
        archives: archives(facts, &table, past, migrates_at),
        visible_from: (visible_from > i64::MIN).then_some(visible_from),
        hides: hides(hidden, visible_from),
        drops: Amount::of(dropped.iter().copied()),
        dropping: windows(facts, dropped.iter().copied(), |segment| segment.window),
        drops_at: drops_at(facts, &table, &dropped, past, settings),
        expiry_paused: paused(facts, settings),
        policy: table.policy,
    }
}

/// What moves into files: cold windows, and hot ones that are old enough for both moves.
fn archives(facts: &Facts, table: &TableFacts, past: &Past, migrates_at: Option<i64>) -> Option<Archives> {
    table.policy.archive.as_ref()?;
    let moving = archive::leaving(facts, table, &Taken::new(facts, [table]));
    let is_cold = moving.iter().any(|segment| segment.tier == Tier::Cold);
    let ready = if is_cold { Some(facts.now()) } else { migrates_at };
    Some(Archives {
        at: ready
            .filter(|_| !moving.is_empty())
            .and_then(|ready| begins(facts, table, past, Chore::Archive, ready)),
        windows: windows(facts, &moving, SegmentFacts::cold_window),
        amount: Amount::of(&moving),
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
    dropped: &[&SegmentFacts],
    past: &Past,
    settings: &PlanSettings,
) -> Option<i64> {
    let oldest = dropped.iter().map(|segment| segment.last).min()?;
    let age = table.policy.visible_age()?;
    let hidden_at = oldest.saturating_add(age);
    let kept_until = hidden_at
        .max(table.policy_changed)
        .saturating_add(settings.purge_delay);
    let ready = kept_until.max(facts.now());
    let is_paused = freed_before(facts, table, settings).is_none() && paused(facts, settings).is_some();
    (!is_paused)
        .then(|| begins(facts, table, past, Chore::Expire, ready))
        .flatten()
}

//! Expire: drops segments whose points have all been hidden for a while.
//!
//! Points are hidden automatically when they exceed the age in the policy. Then the bytes of the points are kept for
//! the purge delay. After a policy change, the bytes are kept for the same time, so that a wrong policy can be
//! corrected. Nothing expires while the clock is in doubt. If the clock has jumped and was accepted only because it was
//! steady, nothing expires for the purge delay after the acceptance.

use std::time::Duration;

use tideline_engine::model::JobKind;
use tideline_engine::model::time::format_duration;

use super::facts::{Facts, History, SegmentFacts, TableFacts};
use super::{Claimed, begins, work};
use crate::maintenance::{PlanSettings, Planned, Urgency};

pub(super) fn plan(
    facts: &Facts,
    table: &TableFacts,
    history: &History,
    settings: &PlanSettings,
    claimed: &mut Claimed,
    planned: &mut Vec<Planned>,
) {
    let Some(before) = freed_before(facts, table, settings) else {
        return;
    };
    let expired = |segment: &&SegmentFacts| segment.last < before && !segment.is_moving;
    let segments: Vec<_> = table.segments.iter().filter(expired).collect();
    let Some(first) = segments.first() else { return };
    let age = table.policy.visible_age().unwrap_or_default();
    let work = Planned {
        slot: None,
        reason: format!(
            "{} segments hold only points older than {} and have been hidden for {}",
            segments.len(),
            format_duration(age),
            format_duration(settings.purge_delay)
        ),
        at: begins(facts, table, history, JobKind::Expire, facts.now()),
        urgency: Urgency::Free,
        ..work(
            JobKind::Expire,
            table,
            &segments,
            first.window,
            facts.window_nanos,
        )
    };
    claimed.take(&work);
    planned.push(work);
}

/// Returns the timestamp before which segments must end to be dropped; `None` if no segment may be dropped.
pub(super) fn freed_before(facts: &Facts, table: &TableFacts, settings: &PlanSettings) -> Option<i64> {
    if paused(facts, settings).is_some() {
        return None;
    }
    let expire_now = facts.clock.expire_now?.nanos();
    let age = table.policy.visible_age()?;
    let kept_since_change = table.policy_changed.saturating_add(settings.purge_delay) <= facts.now();
    kept_since_change.then(|| {
        expire_now
            .saturating_sub(age)
            .saturating_sub(settings.purge_delay)
    })
}

/// Returns the reason why nothing expires in any table now; `None` if expiry is not paused.
pub(super) fn paused(facts: &Facts, settings: &PlanSettings) -> Option<String> {
    if let Some(doubt) = facts.clock.doubt {
        return Some(doubt.reason());
    }
    let delay = Duration::from_nanos(settings.purge_delay.max(0).unsigned_abs());
    match facts.clock.settled_for() {
        Some(settled) if settled < delay => {
            let left = (delay - settled).as_secs();
            Some(format!(
                "the wall clock jumped and was accepted because it was steady; nothing expires for \
                 another {left} s"
            ))
        }
        _ if facts.clock.expire_now.is_none() => Some("nothing is stored".into()),
        _ => None,
    }
}

//! Taking timelines out of the catalog that nobody can see anything of any more.
//!
//! A timeline goes when no tier holds a visible point of it and nobody has given it attributes, or when it has been
//! silent for longer than its table's `timeline_ttl`; then with its points and attributes.
//!
//! 1. Which timelines may go is looked up in groups, beside everything else that runs.
//! 2. For those of a group, writers are held up for some milliseconds and the look is taken again: what somebody has
//!    written meanwhile stays. The delete is committed before writers go on, so their next write introduces the
//!    timeline again.
//!
//! Nothing goes by a clock in doubt, nor soon after a clock that was believed because it was steady, nor soon after
//! the policy was changed: until then a mistake can be taken back.

use std::time::Duration;

use tideline_log::TrustedNow;
use tideline_model::{Ordinal, TimeRange, TimelineId};

use crate::engine::Engine;
use crate::error::Result;
use crate::tables::Table;

/// Timelines that writers are held up for at once: about 25 ms.
const CLEANED_GROUP: usize = 16_384;
/// How long running writes are waited for; beyond it the rest stays for another time.
const WRITERS_WAIT: Duration = Duration::from_millis(100);

/// What a clean-up has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CatalogCleaned {
    /// Timelines removed.
    pub removed: u64,
}

/// Which timelines may go now.
#[derive(Debug, Clone, Copy)]
struct Terms {
    /// Those without a visible point and attributes.
    empty: bool,
    /// Those whose last point lies before.
    silent_before: Option<i64>,
    /// The first visible instant; `i64::MIN` where all are.
    visible_from: i64,
}

impl Engine {
    /// Removes timelines that have no visible point and no attribute, and those that have been silent for too long.
    ///
    /// `now` is what [`SeriesStore::trusted_now`](tideline_series_store::SeriesStore::trusted_now) says; while it is
    /// in doubt nothing is done. A pass over a million timelines whose times are known takes part of a second.
    pub fn clean_catalog(&self, table: &Table, now: TrustedNow) -> Result<CatalogCleaned> {
        let mut cleaned = CatalogCleaned::default();
        let Some(terms) = self.terms(table, now) else {
            return Ok(cleaned);
        };
        let mut ids: Vec<TimelineId> = {
            let reader = table.catalog.reader();
            let visible = reader.visible().iter();
            visible.map(|ordinal| reader.id(Ordinal(ordinal))).collect()
        };
        ids.sort_unstable();
        for group in ids.chunks(CLEANED_GROUP) {
            let perhaps = self.removable(table, group, terms)?;
            if perhaps.is_empty() {
                continue;
            }
            let Some(removed) = self.remove_while_nobody_writes(table, &perhaps, terms)? else {
                break;
            };
            if removed > 0 {
                self.forget_removed(table)?;
                cleaned.removed += removed;
            }
        }
        Ok(cleaned)
    }

    /// Removes those of `perhaps` that may still go once nobody can write them; how many. `None` when writers would
    /// have to be held up for too long.
    fn remove_while_nobody_writes(
        &self,
        table: &Table,
        perhaps: &[TimelineId],
        terms: Terms,
    ) -> Result<Option<u64>> {
        let Some(_nobody_writes) = table.activity.writers.try_write_for(WRITERS_WAIT) else {
            return Ok(None);
        };
        let surely = self.removable(table, perhaps, terms)?;
        let removed = surely.len() as u64;
        if removed > 0 {
            // They have no visible point from there on, so segments that lie after it need not be cleared of them.
            let silent_before = terms.silent_before.unwrap_or(i64::MIN);
            let range = TimeRange::new(i64::MIN, silent_before.max(terms.visible_from));
            self.remove_timelines(table, surely, range)?;
        }
        Ok(Some(removed))
    }

    fn terms(&self, table: &Table, now: TrustedNow) -> Option<Terms> {
        if now.doubt.is_some() {
            return None;
        }
        let policy = &table.spec().policy;
        let delay = self.settings.purge_delay;
        let delay_nanos = i64::try_from(delay.as_nanos()).unwrap_or(i64::MAX);
        let kept_since_change = table.points.policy_changed().saturating_add(delay_nanos) <= now.now.nanos();
        let expire_now = now.expire_now.map(|at| at.nanos());
        let expire_now = expire_now.filter(|_| !now.is_unsure(delay) && kept_since_change);
        let terms = Terms {
            // Where points expire, no visible one may mean one that expires only by a time that expiry does not go by.
            empty: policy.visible_age().is_none() || expire_now == Some(now.now.nanos()),
            silent_before: expire_now
                .zip(policy.timeline_ttl)
                .map(|(at, ttl)| at.saturating_sub(ttl)),
            visible_from: self.store.visible_from(&table.points),
        };
        (terms.empty || terms.silent_before.is_some()).then_some(terms)
    }

    /// Those of `ids` that may go.
    fn removable(&self, table: &Table, ids: &[TimelineId], terms: Terms) -> Result<Vec<TimelineId>> {
        let seen = self.store.seen(&table.points, ids)?;
        let reader = table.catalog.reader();
        let bare = |id: TimelineId| {
            let entry = reader.by_id(id).and_then(|ordinal| reader.entry(ordinal));
            let attributes = entry.map(|entry| entry.attributes().next().is_none());
            attributes.unwrap_or(false)
        };
        let may_go = |(id, seen): &(TimelineId, Option<tideline_series_store::Seen>)| match seen {
            Some(seen) => terms.silent_before.is_some_and(|before| seen.last < before),
            None => (terms.empty && bare(*id)) || terms.hidden_are_silent(),
        };
        let looked_at = ids.iter().copied().zip(seen);
        Ok(looked_at.filter(may_go).map(|(id, _)| id).collect())
    }
}

impl Terms {
    /// Whether a timeline whose points have all expired has been silent for too long, too.
    fn hidden_are_silent(&self) -> bool {
        let expires = self.visible_from > i64::MIN;
        expires
            && self
                .silent_before
                .is_some_and(|before| self.visible_from <= before)
    }
}

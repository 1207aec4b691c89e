//! Removal of timelines that no query returns any more, and of timelines that have been silent for too long.
//!
//! A timeline is removed if no tier holds a visible point of the timeline, its last point has been hidden for the
//! purge delay, and it has no attributes. It is also removed, with its points and attributes, if it has been silent
//! for longer than the `timeline_ttl` of its table. The purge delay is necessary because a clock that is ahead by up
//! to an hour does not count as in doubt. After the clock is corrected, the points become visible again.
//!
//! 1. Candidates are determined in groups, while other work continues.
//! 2. Writers are blocked for a few milliseconds, and the candidates of a group are checked again; a timeline written
//!    meanwhile stays. The delete is committed before writers continue, so their next write introduces the timeline
//!    again.
//!
//! While the clock is in doubt, nothing is removed. After a policy change, and after a clock was accepted only
//! because it was steady, the removal is restricted for the duration of the purge delay: only empty timelines of
//! tables without retention are removed. A wrong clock or policy can be corrected until then.

use std::time::Duration;

use tideline_log::TrustedNow;
use tideline_model::{Ordinal, TimeRange, TimelineId};

use crate::engine::Engine;
use crate::error::Result;
use crate::tables::Table;

/// Maximum number of timelines checked while writers are blocked, which takes about 25 ms.
const CLEANED_GROUP: usize = 16_384;
/// Longest wait for running writes. If it is exceeded, the clean-up ends, and the next one removes the remaining
/// timelines.
const WRITERS_WAIT: Duration = Duration::from_millis(100);

/// Result of a clean-up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CatalogCleaned {
    /// Timelines removed.
    pub removed: u64,
}

/// Conditions under which a timeline may be removed now.
#[derive(Debug, Clone, Copy)]
struct Terms {
    /// True if timelines with neither visible points nor attributes may be removed.
    empty: bool,
    /// Timelines whose last point is older than this timestamp may be removed; `None` = no timeline is removed because
    /// it is silent.
    silent_before: Option<i64>,
    /// First visible timestamp; `i64::MIN` if all points are visible.
    visible_from: i64,
}

impl Engine {
    /// Removes timelines that have no visible point and no attribute, and timelines that have been silent for too long.
    ///
    /// `now` is the result of [`SeriesStore::trusted_now`](tideline_series_store::SeriesStore::trusted_now). While
    /// the clock is in doubt, nothing is removed. A pass over a million timelines whose spans are in memory takes a
    /// fraction of a second.
    ///
    /// # Errors
    ///
    /// Returns an error if spans cannot be read or a removal cannot be committed. Timelines removed before stay
    /// removed.
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
            let Some(removed) = self.remove_excluding_writers(table, &perhaps, terms)? else {
                break;
            };
            if removed > 0 {
                self.forget_removed(table)?;
                cleaned.removed += removed;
            }
        }
        Ok(cleaned)
    }

    /// Blocks writers and removes the candidates that may still be removed. Returns their number, or `None` if
    /// running writes do not end in time.
    fn remove_excluding_writers(
        &self,
        table: &Table,
        perhaps: &[TimelineId],
        terms: Terms,
    ) -> Result<Option<u64>> {
        let Some(_no_writers) = table.activity.writers.try_write_for(WRITERS_WAIT) else {
            return Ok(None);
        };
        let surely = self.removable(table, perhaps, terms)?;
        let removed = surely.len() as u64;
        if removed > 0 {
            // No removed timeline has a visible point at or after the end of this range, so later segments need not be
            // rewritten.
            let silent_before = terms.silent_before.unwrap_or(i64::MIN);
            let range = TimeRange::new(i64::MIN, silent_before.max(terms.visible_from));
            self.remove_timelines(table, &surely, range)?;
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
            // With a retention, points that are hidden at the current time may still be stored, because expiry uses an
            // earlier time. A timeline with such points is not empty.
            empty: policy.visible_age().is_none() || expire_now == Some(now.now.nanos()),
            silent_before: expire_now
                .zip(policy.timeline_ttl)
                .map(|(at, ttl)| at.saturating_sub(ttl)),
            visible_from: self.store.visible_from(&table.points),
        };
        (terms.empty || terms.silent_before.is_some()).then_some(terms)
    }

    /// Returns the timelines of `ids` that may be removed.
    fn removable(&self, table: &Table, ids: &[TimelineId], terms: Terms) -> Result<Vec<TimelineId>> {
        let seen = self.store.seen(&table.points, ids)?;
        let reader = table.catalog.reader();
        let bare = |id: TimelineId| {
            let entry = reader.by_id(id).and_then(|ordinal| reader.entry(ordinal));
            let attributes = entry.map(|entry| entry.attributes().next().is_none());
            attributes.unwrap_or(false)
        };
        let (mut removable, mut empty) = (Vec::new(), Vec::new());
        for (id, seen) in ids.iter().copied().zip(seen) {
            let is_silent = match seen {
                Some(seen) => terms.silent_before.is_some_and(|before| seen.last < before),
                None => terms.hidden_are_silent(),
            };
            if is_silent {
                removable.push(id);
            } else if seen.is_none() && terms.empty && bare(id) {
                empty.push(id);
            }
        }
        // Without a retention no point is hidden.
        if terms.visible_from > i64::MIN {
            let delay = self.settings.purge_delay;
            let have_points = self.store.have_points_within(&table.points, &empty, delay)?;
            let mut have_points = have_points.into_iter();
            empty.retain(|_| have_points.next() == Some(false));
        }
        removable.extend(empty);
        removable.sort_unstable();
        Ok(removable)
    }
}

impl Terms {
    /// Returns true if each timeline whose points have all expired counts as silent for too long.
    fn hidden_are_silent(&self) -> bool {
        let expires = self.visible_from > i64::MIN;
        expires
            && self
                .silent_before
                .is_some_and(|before| self.visible_from <= before)
    }
}

//! Versions that the server assigns: they always rise, also across restarts and after a clock that was set back.
//!
//! A version is the trusted time, or the newest assigned version plus one if this is higher. The newest assigned version
//! is stored with every part that a flush writes. The changes in the journal lead to it as well. Versions that clients
//! assign do not raise it: otherwise, one of them in the future would become the clock of all tables.
//!
//! The time of a change can be the version of a client. An entry with a change that is later than the newest assigned
//! version therefore records this version. An entry without a record has no such change, unless an earlier build has
//! written it. The generated ids in the keys of an entry follow the time of their write. An entry whose ids are more than
//! [`IDS`] after its changes records the newest version too.
//!
//! Earlier builds also stored versions of clients as the newest one. What they have written counts only up to
//! [`FAR`] after the trusted time. What does not count now must not count later either, when the time has come closer:
//! the parts that this build writes therefore keep the highest such version.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use tideline_model::Timestamp;
use tideline_model::time::{NANOS_PER_DAY, NANOS_PER_SECOND};

use crate::codec;
use crate::entry::{Change, Entry};
use crate::error::Damage;
use crate::state::PartDetail;

/// Distance to the trusted time, in nanoseconds, up to which a version in data of an earlier build is regarded as one
/// of the server. Trusted clocks can be set back, but rarely by more.
const FAR: i64 = NANOS_PER_DAY;
/// Distance to the trusted time, in nanoseconds, beyond which every entry records the newest version.
const AHEAD: i64 = 3_600 * NANOS_PER_SECOND;
/// Versions before a skipped one that are not assigned, in nanoseconds. An earlier build counted up to the skipped
/// version from a version of a client. One hour has more versions than it can have assigned.
const SKIPPED: i64 = 3_600 * NANOS_PER_SECOND;
/// Distance to the newest change of an entry without a record, in nanoseconds, up to which ids can be in its keys. Other
/// threads assign versions meanwhile, and rows that are refused have ids too, so the number of rows is no bound.
const IDS: i64 = NANOS_PER_SECOND / 100;

/// Newest version in stored data.
#[derive(Debug)]
pub(crate) struct StoredVersions {
    newest: i64,
    /// Highest version that counts if an earlier build can have written it.
    limit: i64,
    skipped_to: Option<i64>,
}

impl StoredVersions {
    /// Reads the versions of all parts. `now` is the trusted time in nanoseconds.
    pub(crate) fn new<'p>(parts: impl Iterator<Item = &'p PartDetail> + Clone, now: i64) -> Self {
        let own = parts
            .clone()
            .filter(|part| part.own_newest)
            .map(|part| part.newest);
        let own = own.max().unwrap_or(i64::MIN);
        let reached = own.max(now);
        let limit = reached.saturating_add(FAR);
        let known = parts.clone().filter_map(|part| part.skipped_to).max();
        let (mut newest, mut skipped_to) = (own, known);
        for part in parts {
            let is_skipped = part.newest > reached && known.is_some_and(|last| part.newest <= last);
            match part.newest <= limit && !is_skipped {
                true => newest = newest.max(part.newest),
                false => skipped_to = skipped_to.max(Some(part.newest)),
            }
        }
        Self {
            newest,
            limit,
            skipped_to,
        }
    }

    /// Adds an entry of the journal.
    ///
    /// # Errors
    ///
    /// [`Damage`] if a mutation of the entry is cut off.
    pub(crate) fn add(&mut self, entry: &Entry) -> Result<(), Damage> {
        if let Some(newest) = entry.newest {
            self.newest = self.newest.max(newest);
            return Ok(());
        }
        for change in &entry.changes {
            if let Change::Row { mutation, .. } = change {
                let time = codec::time_of(mutation)?;
                let last = time.saturating_add(IDS);
                match time <= self.limit {
                    true => self.newest = self.newest.max(last),
                    // An earlier build can have assigned ids after it, after a restart.
                    false => self.skipped_to = self.skipped_to.max(Some(last)),
                }
            }
        }
        Ok(())
    }
}

/// Source of versions.
#[derive(Debug)]
pub(crate) struct Versions {
    /// Newest version that was assigned, in this run or an earlier one.
    newest: AtomicI64,
    /// True once a version was far ahead of the trusted time, because the clock was set back.
    is_ahead: AtomicBool,
    /// Highest version that an earlier build can have assigned on the basis of a version of a client.
    skipped_to: Option<i64>,
}

impl Versions {
    pub(crate) fn new(stored: &StoredVersions) -> Self {
        Self {
            newest: AtomicI64::new(stored.newest),
            is_ahead: AtomicBool::new(false),
            skipped_to: stored.skipped_to,
        }
    }

    /// Assigns a version. `now` is the trusted time in nanoseconds.
    pub(crate) fn next(&self, now: i64) -> i64 {
        let mut next = now;
        let given = self
            .newest
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |newest| {
                next = self.without_skipped(now.max(newest.saturating_add(1)));
                Some(next)
            });
        debug_assert!(given.is_ok());
        if next.saturating_sub(now) > AHEAD {
            self.is_ahead.store(true, Ordering::Relaxed);
        }
        next.min(Timestamp::MAX.nanos())
    }

    /// Returns a version, or the one after the skipped ones if it is skipped. They can be in stored keys.
    fn without_skipped(&self, version: i64) -> i64 {
        match self.skipped_to {
            Some(last) if version <= last && version > last.saturating_sub(SKIPPED) => last.saturating_add(1),
            _ => version,
        }
    }

    /// Returns the newest version so far.
    pub(crate) fn newest(&self) -> i64 {
        self.newest.load(Ordering::Relaxed)
    }

    /// Returns true if all versions were assigned, so that [`next`](Self::next) has returned the last one repeatedly.
    pub(crate) fn are_exhausted(&self) -> bool {
        self.newest() > Timestamp::MAX.nanos()
    }

    /// Takes over the newest version of rows that another database has archived, unless it is more than [`FAR`] after
    /// the trusted time `now`, in nanoseconds.
    pub(crate) fn take_over(&self, newest: i64, now: i64) {
        if newest <= now.saturating_add(FAR) {
            self.newest.fetch_max(newest, Ordering::Relaxed);
        }
    }

    /// Records the newest version in the manifest row of a part.
    pub(crate) fn record(&self, part: &mut PartDetail) {
        part.newest = self.newest();
        part.own_newest = true;
        part.skipped_to = self.skipped_to;
    }

    /// Returns the newest version if an entry with these changes must record it. Called after the versions of the entry
    /// were assigned. `last_id` is the highest id that can be in its keys; `None` without generated ids.
    ///
    /// # Errors
    ///
    /// [`Damage`] if a mutation is cut off.
    pub(crate) fn to_record(&self, changes: &[Change], last_id: Option<i64>) -> Result<Option<i64>, Damage> {
        let newest = self.newest();
        if self.is_ahead.load(Ordering::Relaxed) {
            return Ok(Some(newest));
        }
        let mut latest: Option<i64> = None;
        for change in changes {
            if let Change::Row { mutation, .. } = change {
                latest = latest.max(Some(codec::time_of(mutation)?));
            }
        }
        let must_record = latest.is_some_and(|latest| {
            latest > newest || last_id.is_some_and(|id| id > latest.saturating_add(IDS))
        });
        Ok(must_record.then_some(newest))
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use tideline_model::{TableId, Tier};

    use super::*;
    use crate::mutation::Effect;

    const NOW: i64 = 1_800_000_000 * NANOS_PER_SECOND;

    fn part(newest: i64, own_newest: bool) -> PartDetail {
        PartDetail {
            newest,
            own_newest,
            ..PartDetail::new(TableId(1), None, Tier::Hot)
        }
    }

    fn entry(times: &[i64], newest: Option<i64>) -> Entry {
        let change = |time: &i64| {
            let mut mutation = Vec::new();
            codec::encode_columns(Effect::Replace, *time, &[], &mut mutation);
            Change::Row {
                key: Bytes::from_static(b"a"),
                mutation: mutation.into(),
            }
        };
        Entry {
            table: TableId(1),
            request: None,
            changes: times.iter().map(change).collect(),
            index_changes: Vec::new(),
            newest,
        }
    }

    fn stored(parts: &[PartDetail], entries: &[Entry]) -> StoredVersions {
        let mut stored = StoredVersions::new(parts.iter(), NOW);
        for entry in entries {
            stored.add(entry).expect("it is intact");
        }
        stored
    }

    #[test]
    fn versions_of_clients_in_data_of_earlier_builds_do_not_count_if_they_are_far_away() {
        let far = NOW + 10 * FAR;
        let stored = stored(
            &[part(NOW - 7, false), part(far, false)],
            &[entry(&[NOW - 5, far + 3], None), entry(&[far], None)],
        );
        let versions = Versions::new(&stored);
        let last = NOW - 5 + IDS;
        assert_eq!(versions.next(NOW - 9), last + 1);
        assert_eq!(versions.next(NOW + FAR), NOW + FAR);
        // Ids after the version of the client can be in keys.
        let skipped_to = far + 3 + IDS;
        assert_eq!(versions.next(far - 1), skipped_to + 1);
        let mut rewritten = part(NOW - 7, false);
        versions.record(&mut rewritten);
        assert_eq!(
            (rewritten.newest, rewritten.skipped_to),
            (skipped_to + 1, Some(skipped_to))
        );
        let again = Versions::new(&StoredVersions::new([rewritten].iter(), NOW));
        assert_eq!(again.next(NOW), skipped_to + 2);
    }

    #[test]
    fn a_version_of_a_client_that_did_not_count_does_not_count_later() {
        let far = NOW + 10 * FAR;
        let mut rewritten = part(NOW, false);
        let old = [part(far, false), part(far - FAR, false)];
        Versions::new(&stored(&old, &[])).record(&mut rewritten);
        let parts = [old, [rewritten, part(NOW, false)]].concat();
        for now in [far - 2 * FAR, far - FAR - SKIPPED, far - SKIPPED - 9] {
            let versions = Versions::new(&StoredVersions::new(parts.iter(), now));
            assert_eq!(versions.next(now), now);
        }
        // It counts once it is in the past.
        let versions = Versions::new(&StoredVersions::new(parts.iter(), far + 1));
        assert_eq!(versions.next(far), far + 1);
    }

    #[test]
    fn versions_of_the_server_count_however_far_away_they_are() {
        let far = NOW + 10 * FAR;
        let of_part = Versions::new(&stored(&[part(far, true)], &[]));
        assert_eq!(of_part.next(NOW), far + 1);
        assert_eq!(of_part.to_record(&[], None), Ok(Some(far + 1)));
        let of_entry = Versions::new(&stored(&[], &[entry(&[far + 9], Some(far))]));
        assert_eq!(of_entry.next(NOW), far + 1);
    }

    #[test]
    fn an_entry_with_a_later_change_records_the_newest_version() {
        let versions = Versions::new(&stored(&[], &[]));
        let newest = versions.next(NOW);
        for (time, recorded) in [(newest, None), (newest + 1, Some(newest))] {
            let changes = entry(&[newest - 3, time], None).changes;
            assert_eq!(versions.to_record(&changes, None), Ok(recorded));
        }
    }

    #[test]
    fn an_entry_whose_ids_are_long_after_its_changes_records_the_newest_version() {
        let versions = Versions::new(&stored(&[], &[]));
        let time = versions.next(NOW);
        let newest = versions.next(NOW + 2 * IDS);
        let changes = entry(&[time], None).changes;
        for (last_id, recorded) in [(time + IDS, None), (time + IDS + 1, Some(newest))] {
            assert_eq!(versions.to_record(&changes, Some(last_id)), Ok(recorded));
        }
        assert_eq!(versions.to_record(&[], Some(newest)), Ok(None));
        // Ids that are not recorded are not assigned again.
        let replayed = Versions::new(&stored(&[], &[entry(&[time], None)]));
        assert!(replayed.next(NOW) > time + IDS);
    }

    #[test]
    fn no_version_is_assigned_twice_unnoticed() {
        let versions = Versions::new(&stored(&[], &[]));
        let last = Timestamp::MAX.nanos();
        assert_eq!(versions.next(last), last);
        assert!(!versions.are_exhausted());
        versions.next(last);
        assert!(versions.are_exhausted());
    }
}

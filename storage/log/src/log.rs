//! The log: state shared by the committer, the flusher and callers.
//!
//! The log holds the current manifest, the recent entries, the remembered requests, the clock, stamps and ids. Other
//! modules of the crate add methods for edits, flushes and the lease.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;

use crate::trusted_clock::{StoredClock, TrustedNow};
use bytes::Bytes;
use parking_lot::{Condvar, Mutex, RwLock};
use tideline_backend::{Backend, BackendError, Epoch, Health, History, ManifestChange, PartRef, Shard};
use tideline_model::{Clock, GroupId, PartId, SegmentId, SequenceNumber, TableId};

use crate::clock::LogClock;
use crate::edits::OpenEdit;
use crate::error::{LogError, Result};
use crate::lease::{Ownership, Renewer};
use crate::manifest::{Cursor, Manifest, put_cursor, put_job, remove_job};
use crate::model::LogModel;
use crate::recent_entries::{RecentEntries, RecentError, RecentPage};
use crate::requests::{RequestKey, Requests};
use crate::settings::LogSettings;
use crate::stamps::Stamps;

/// Shard of the log. A process has only one shard.
pub const SHARD: Shard = Shard(0);

/// Log of a shard. It numbers, journals and applies the writes of the models, and publishes their flushed generations.
///
/// Opened by [`Opening`](crate::Opening) and driven by [`LogThreads`](crate::LogThreads).
pub struct Log {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) ownership: Arc<Ownership>,
    pub(crate) settings: LogSettings,
    pub(crate) recent: RecentEntries,
    pub(crate) requests: Requests,
    pub(crate) counters: Counters,
    pub(crate) manifest: RwLock<Arc<Manifest>>,
    /// Edit with an unknown outcome, if any. The lock is held during every edit of the manifest.
    pub(crate) edit: Mutex<Option<OpenEdit>>,
    /// True if `edit` holds an edit with an unknown outcome.
    pub(crate) has_open_edit: AtomicBool,
    /// Ends of the frozen generations, oldest first.
    pub(crate) frozen: Mutex<Vec<SequenceNumber>>,
    pub(crate) flushing: Mutex<FlushProgress>,
    /// Notified when a generation is frozen or flushed, when a flush fails, when a thread panics, and when the log
    /// stops.
    pub(crate) flushing_changed: Condvar,
    /// Renews the lease; `None` if the lease has no end.
    pub(crate) renewer: Mutex<Option<Renewer>>,
    /// Parts that no row of the manifest referenced at the start. Empty once the flusher has tried to free them.
    pub(crate) orphans: Mutex<Vec<PartRef>>,
    models: OnceLock<Vec<Weak<dyn LogModel>>>,
    /// Sequence after the newest entry that is applied and durable.
    pub(crate) durable_end: AtomicU64,
    stamps: Stamps,
    clock: LogClock,
    next_id: AtomicU64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) commits: AtomicU64,
    pub(crate) appends: AtomicU64,
}

#[derive(Debug, Default)]
pub(crate) struct FlushProgress {
    /// Error of the last flush or, while frozen generations wait, of the last attempt to resolve an edit. Cleared by a
    /// success, and by a caller that begins to wait for a flush.
    pub(crate) error: Option<String>,
    pub(crate) is_stopping: bool,
    /// Time at which the stopping thread began to store the trusted time. `None` before.
    pub(crate) storing_since: Option<Instant>,
    /// True once the stopping thread has done its last work.
    pub(crate) has_ended: bool,
    /// True once a stop has not waited any longer for the thread.
    pub(crate) is_left: bool,
}

/// Counters since the start.
#[derive(Debug, Clone, Copy, Default)]
pub struct LogCounts {
    /// Number of committed entries.
    pub commits: u64,
    /// Number of groups that were appended to the journal, including failed appends. Without failures,
    /// `commits / appends` is the average size of a group.
    pub appends: u64,
}

/// Entries of all tables from a sequence on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntriesPage {
    /// Sequence from which the page is complete: the requested one, unless later entries were freed or are damaged.
    pub from: SequenceNumber,
    /// True if entries between the requested sequence and `from` are damaged; false if they were freed.
    pub is_damaged: bool,
    /// Entries in their encoded form, by sequence.
    pub entries: Vec<(SequenceNumber, Bytes)>,
    /// Sequence to continue from.
    pub next: SequenceNumber,
}

impl Log {
    pub(crate) fn new(
        backend: Arc<dyn Backend>,
        ownership: Arc<Ownership>,
        clock: Arc<dyn Clock>,
        settings: LogSettings,
        manifest: Manifest,
        requests: Requests,
        recent: RecentEntries,
    ) -> Self {
        let stored = manifest.cursor.stored_clock();
        Self {
            stamps: Stamps::new(Arc::clone(&clock), Arc::clone(&ownership)),
            clock: LogClock::new(clock, stored, settings.clock_floor),
            next_id: AtomicU64::new(manifest.cursor.next_segment),
            manifest: RwLock::new(Arc::new(manifest)),
            renewer: Mutex::default(),
            orphans: Mutex::default(),
            models: OnceLock::new(),
            edit: Mutex::default(),
            has_open_edit: AtomicBool::new(false),
            frozen: Mutex::default(),
            flushing: Mutex::default(),
            flushing_changed: Condvar::new(),
            counters: Counters::default(),
            durable_end: AtomicU64::new(recent.end().0),
            backend,
            ownership,
            settings,
            requests,
            recent,
        }
    }

    /// Returns the models that write to the log and still exist.
    pub(crate) fn models(&self) -> Vec<Arc<dyn LogModel>> {
        let models = self.models.get().into_iter().flatten();
        models.filter_map(Weak::upgrade).collect()
    }

    pub(crate) fn set_models(&self, models: &[Arc<dyn LogModel>]) {
        let models = models.iter().map(Arc::downgrade).collect();
        let set = self.models.set(models);
        set.expect("the threads of a log are started once");
    }

    // --- parts of the log --------------------------------------------------------------------------------

    /// Returns the backend.
    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.backend
    }

    /// Returns the epoch in which this process owns the shard.
    pub fn epoch(&self) -> Epoch {
        self.ownership.epoch
    }

    /// Returns the source of stamps for rows that are changed in place.
    pub fn stamps(&self) -> &Stamps {
        &self.stamps
    }

    /// Returns the current version of the shared rows of the manifest.
    pub fn manifest(&self) -> Arc<Manifest> {
        Arc::clone(&self.manifest.read())
    }

    /// Returns the counters since the start.
    pub fn counts(&self) -> LogCounts {
        LogCounts {
            commits: self.counters.commits.load(Ordering::Relaxed),
            appends: self.counters.appends.load(Ordering::Relaxed),
        }
    }

    /// Returns an error if a thread on which the database depends has panicked.
    ///
    /// # Errors
    ///
    /// [`LogError::Failed`] if a thread has panicked.
    pub fn check_threads(&self) -> Result<()> {
        match self.settings.supervisor.failure() {
            Some(failure) => Err(LogError::Failed(failure.clone())),
            None => Ok(()),
        }
    }

    /// Returns the error for a call to a thread that has ended without a reply.
    pub(crate) fn ended(&self) -> LogError {
        self.check_threads().err().unwrap_or(LogError::Closed)
    }

    /// Returns an error while the backend is read-only. Callers then refuse changes, to preserve a damaged database.
    ///
    /// # Errors
    ///
    /// [`BackendError::Misconfigured`] if the backend is read-only.
    pub fn check_not_read_only(&self) -> Result<()> {
        match self.backend.health() {
            Health::ReadOnly { reason } => Err(BackendError::Misconfigured {
                reason: format!("read-only, because acknowledged data is missing: {reason}"),
            }
            .into()),
            _ => Ok(()),
        }
    }

    // --- time and ids ------------------------------------------------------------------------------------

    /// Returns the clock of the machine.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        self.clock.clock()
    }

    /// Returns the trusted time, and the time that expiry may use.
    pub fn trusted_now(&self) -> TrustedNow {
        self.clock.now()
    }

    /// Records the newest timestamp that is stored. The time for expiry is at most
    /// [`TOLERANCE`](crate::trusted_clock::TOLERANCE) after it.
    pub fn note_newest(&self, instant: i64) {
        self.clock.note_stored(instant);
    }

    /// Returns the number of times that the trusted time went back since the start. Each time, expired data may have
    /// become visible again.
    pub fn clock_regressions(&self) -> u64 {
        self.clock.regressions()
    }

    /// Accepts the wall clock as correct, because an operator has confirmed it. Stores the new trusted time
    /// immediately, so that the clock is not in doubt again after a crash.
    pub fn confirm_clock(&self) {
        self.clock.confirm();
        self.store_clock();
    }

    /// Stores the trusted time, unless the backend is read-only. The next start compares the wall clock with it. A
    /// failure is only logged.
    pub(crate) fn store_clock(&self) {
        if self.check_not_read_only().is_err() {
            return;
        }
        let stored = self.edit_shared(|manifest| {
            manifest.cursor = self.cursor(manifest.cursor, manifest.cursor.sealed_to);
            vec![put_cursor(&manifest.cursor)]
        });
        if let Err(error) = stored {
            tracing::warn!(%error, "the trusted time could not be stored; it will be retried");
        }
    }

    /// Returns a segment id that was never used.
    pub fn next_segment(&self) -> SegmentId {
        SegmentId(self.next_id())
    }

    /// Returns a group id that was never used.
    pub fn next_group(&self) -> GroupId {
        GroupId(self.next_id())
    }

    /// Returns a part id that was never used.
    pub fn next_part(&self) -> PartId {
        PartId(self.next_id())
    }

    fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns `current` with the given `sealed_to`, the next id and the trusted time. An edit that adds rows with new
    /// ids must also publish this cursor.
    pub fn cursor(&self, current: Cursor, sealed_to: SequenceNumber) -> Cursor {
        let mut cursor = current;
        cursor.sealed_to = sealed_to;
        cursor.next_segment = self.next_id.load(Ordering::Relaxed);
        let StoredClock { now, settled } = self.trusted_now().stored();
        cursor.trusted_now = now;
        cursor.trusted_settled = settled;
        cursor
    }

    // --- requests ----------------------------------------------------------------------------------------

    /// Returns the outcome of an earlier request with this idempotency key; `None` if no outcome is remembered.
    pub fn request_outcome(&self, table: TableId, key: RequestKey) -> Option<Bytes> {
        self.requests.outcome(table, key)
    }

    // --- the newest entries ------------------------------------------------------------------------------

    /// Returns the sequence after the newest committed entry.
    pub fn recent_end(&self) -> SequenceNumber {
        self.recent.end()
    }

    /// Returns the entries of a table from a sequence on. Stops after the entry at which the encoded bytes of the
    /// returned entries total at least `bytes_max`; returns no entry if `bytes_max` is 0.
    ///
    /// The entries are read from memory, which holds the newest entries of all tables up to
    /// [`LogSettings::tail_bytes_max`]. All returned entries are in the journal and applied; the replies to their
    /// writers may still be pending.
    ///
    /// # Errors
    ///
    /// [`RecentError::TooOld`] if entries from `from` on, of any table, are no longer kept; [`RecentError::NotReached`]
    /// if the journal does not reach `from`, or `from` is a sequence that was skipped.
    pub fn recent(
        &self,
        table: TableId,
        from: SequenceNumber,
        bytes_max: usize,
    ) -> std::result::Result<RecentPage, RecentError> {
        self.recent.read(table, from, bytes_max)
    }

    /// Registers `wake`, which is called after each committed group and by [`wake_watchers`](Self::wake_watchers). The
    /// committer calls `wake` on its own thread, so `wake` must not block.
    pub fn on_recent_entries(&self, wake: impl Fn() + Send + Sync + 'static) {
        self.recent.on_change(Box::new(wake));
    }

    /// Calls all wakers, because other state that watchers read has changed.
    pub fn wake_watchers(&self) {
        self.recent.wake();
    }

    // --- entries of all tables, from the journal kept longer -------------------------------------------------

    /// Keeps the journal from `from` on for [`entries`](Self::entries), even after its entries are flushed; `None`
    /// keeps only the entries that a restart needs. Frees kept entries below `from`. The setting is durable on return.
    ///
    /// # Errors
    ///
    /// The errors of [`Backend::keep_history`].
    pub fn keep_entries(&self, from: Option<SequenceNumber>) -> Result<()> {
        Ok(self.backend.keep_history(SHARD, self.epoch(), from)?)
    }

    /// Returns the kept units of the flushed journal.
    ///
    /// # Errors
    ///
    /// The errors of [`Backend::history`].
    pub fn kept_entries(&self) -> Result<History> {
        Ok(self.backend.history(SHARD)?)
    }

    /// Returns the sequence after the newest entry that is applied and on stable storage.
    pub fn durable_end(&self) -> SequenceNumber {
        SequenceNumber(self.durable_end.load(Ordering::Acquire))
    }

    /// Returns the number of entries of all tables with the sequences from `from` to before `to`, without the sequences
    /// that the last runs skipped at their starts. Other skipped sequences count as entries.
    pub fn entries_between(&self, from: SequenceNumber, to: SequenceNumber) -> u64 {
        let skipped = self.manifest.read().cursor.leaps.skipped(from.0..to.0);
        to.0.saturating_sub(from.0).saturating_sub(skipped)
    }

    /// Returns entries of all tables from a sequence on, from memory or from the kept journal. Returns only entries
    /// that are applied and on stable storage, so a power cut cannot remove any of them. Stops after the entry at which
    /// the encoded bytes total at least `bytes_max`.
    ///
    /// # Errors
    ///
    /// [`LogError::Recent`] if the journal does not reach `from`, and the errors of [`Backend::read_history`].
    pub fn entries(&self, from: SequenceNumber, bytes_max: usize) -> Result<EntriesPage> {
        let end = self.durable_end();
        let mut page = match self.recent.read_all(from, bytes_max) {
            Ok(page) => EntriesPage {
                from,
                is_damaged: false,
                entries: page
                    .entries
                    .into_iter()
                    .map(|entry| (entry.sequence, entry.encoded))
                    .collect(),
                next: page.next,
            },
            Err(RecentError::TooOld) => {
                let page = self.backend.read_history(SHARD, from, bytes_max)?;
                EntriesPage {
                    from: page.from,
                    is_damaged: page.is_damaged,
                    entries: page
                        .entries
                        .into_iter()
                        .map(|entry| (entry.sequence, entry.value))
                        .collect(),
                    next: page.next,
                }
            }
            Err(error @ RecentError::NotReached) => return Err(LogError::Recent(error)),
        };
        page.entries.retain(|(sequence, _)| *sequence < end);
        page.next = page.next.min(end).max(page.from);
        Ok(page)
    }

    // --- jobs --------------------------------------------------------------------------------------------

    /// Adds, replaces and removes job rows in one edit. The change is durable on return.
    ///
    /// # Errors
    ///
    /// The errors of [`edit_shared`](Self::edit_shared): the edit was not applied, or its outcome is unknown.
    pub fn edit_job_rows(&self, put: Vec<(Bytes, Bytes)>, remove: Vec<Bytes>) -> Result<()> {
        self.edit_shared(|manifest| {
            let mut changes: Vec<ManifestChange> = Vec::with_capacity(put.len() + remove.len());
            for name in remove {
                changes.push(remove_job(&name));
                manifest.jobs.remove(&name);
            }
            for (name, detail) in put {
                changes.push(put_job(&name, &detail));
                manifest.jobs.insert(name, detail);
            }
            changes
        })
    }
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Log")
            .field("backend", &self.backend)
            .field("ownership", &self.ownership)
            .finish_non_exhaustive()
    }
}

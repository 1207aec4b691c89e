//! The log: the parts that committer, flusher and callers share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use crate::trusted_clock::{StoredClock, TrustedNow};
use bytes::Bytes;
use parking_lot::{Condvar, Mutex, RwLock};
use tideline_backend::{Backend, BackendError, Epoch, Health, ManifestChange, PartRef, Shard};
use tideline_model::{Clock, GroupId, PartId, SegmentId, SequenceNumber, TableId};

use crate::clock::LogClock;
use crate::edits::OpenEdit;
use crate::error::{LogError, Result};
use crate::lease::{Ownership, Renewer};
use crate::manifest::{Cursor, Manifest, put_cursor, put_job, remove_job};
use crate::model::LogModel;
use crate::requests::{RequestKey, Requests};
use crate::settings::LogSettings;
use crate::stamps::Stamps;
use crate::tail::{Tail, TailError, TailPart};

/// The one shard of a single process.
pub const SHARD: Shard = Shard(0);

/// The log of a shard: it numbers, journals and applies what models write, and publishes what they have flushed.
///
/// It is opened by [`Opening`](crate::Opening) and driven by [`LogThreads`](crate::LogThreads).
pub struct Log {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) ownership: Arc<Ownership>,
    pub(crate) settings: LogSettings,
    pub(crate) tail: Tail,
    pub(crate) requests: Requests,
    pub(crate) counters: Counters,
    pub(crate) manifest: RwLock<Arc<Manifest>>,
    /// Held while an edit of the manifest is made; the edit whose outcome is open.
    pub(crate) edit: Mutex<Option<OpenEdit>>,
    /// Whether there is one.
    pub(crate) has_open_edit: AtomicBool,
    /// Ends of frozen generations, oldest first.
    pub(crate) frozen: Mutex<Vec<SequenceNumber>>,
    pub(crate) flushing: Mutex<FlushProgress>,
    /// Signalled when a generation is frozen or flushed, when a flush fails, and at the end.
    pub(crate) flushing_changed: Condvar,
    /// Renews the lease, where it holds for a while only.
    pub(crate) renewer: Mutex<Option<Renewer>>,
    /// Parts that no row of the manifest named at the start, until they are freed.
    pub(crate) orphans: Mutex<Vec<PartRef>>,
    models: OnceLock<Vec<Weak<dyn LogModel>>>,
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
    /// Why the last flush failed, until one succeeds.
    pub(crate) error: Option<String>,
    pub(crate) is_stopping: bool,
}

/// Counts since the start.
#[derive(Debug, Clone, Copy, Default)]
pub struct LogCounts {
    /// Entries committed.
    pub commits: u64,
    /// Appends to the journal: `commits` over this is the size of a group.
    pub appends: u64,
}

impl Log {
    pub(crate) fn new(
        backend: Arc<dyn Backend>,
        ownership: Arc<Ownership>,
        clock: Arc<dyn Clock>,
        settings: LogSettings,
        manifest: Manifest,
        requests: Requests,
        tail: Tail,
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
            backend,
            ownership,
            settings,
            requests,
            tail,
        }
    }

    /// The models that write to it, those that are still there.
    pub(crate) fn models(&self) -> Vec<Arc<dyn LogModel>> {
        let models = self.models.get().into_iter().flatten();
        models.filter_map(Weak::upgrade).collect()
    }

    pub(crate) fn set_models(&self, models: &[Arc<dyn LogModel>]) {
        let models = models.iter().map(Arc::downgrade).collect();
        let set = self.models.set(models);
        set.expect("the threads of a log are started once");
    }

    // --- what it is made of ------------------------------------------------------------------------------

    /// The backend.
    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.backend
    }

    /// The epoch in which this process owns the shard.
    pub fn epoch(&self) -> Epoch {
        self.ownership.epoch
    }

    /// Rising stamps for rows that are changed in place.
    pub fn stamps(&self) -> &Stamps {
        &self.stamps
    }

    /// The shared rows of the manifest.
    pub fn manifest(&self) -> Arc<Manifest> {
        Arc::clone(&self.manifest.read())
    }

    /// Counts since the start.
    pub fn counts(&self) -> LogCounts {
        LogCounts {
            commits: self.counters.commits.load(Ordering::Relaxed),
            appends: self.counters.appends.load(Ordering::Relaxed),
        }
    }

    /// Fails once a thread that the database depends upon has panicked: nothing is committed or flushed from then on.
    ///
    /// # Errors
    ///
    /// [`LogError::Failed`].
    pub fn check_threads(&self) -> Result<()> {
        match self.settings.supervisor.failure() {
            Some(failure) => Err(LogError::Failed(failure.clone())),
            None => Ok(()),
        }
    }

    /// The error of a call that a thread has left without a reply.
    pub(crate) fn ended(&self) -> LogError {
        self.check_threads().err().unwrap_or(LogError::Closed)
    }

    /// Refuses what would change something while the backend keeps a damaged database as it is.
    ///
    /// # Errors
    ///
    /// The backend is read-only.
    pub fn check_not_read_only(&self) -> Result<()> {
        match self.backend.health() {
            Health::ReadOnly { reason } => Err(BackendError::Misconfigured {
                reason: format!("read-only, because something acknowledged is missing: {reason}"),
            }
            .into()),
            _ => Ok(()),
        }
    }

    // --- time and numbers --------------------------------------------------------------------------------

    /// The machine's clock.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        self.clock.clock()
    }

    /// The time, as far as it can be trusted, and whether expiry may go by it.
    pub fn trusted_now(&self) -> TrustedNow {
        self.clock.now()
    }

    /// Takes note of the newest instant that is stored: expiry never goes beyond what the data itself says.
    pub fn note_newest(&self, instant: i64) {
        self.clock.note_stored(instant);
    }

    /// How often the trusted time went back since the start: what had expired was visible again after it.
    pub fn clock_turns(&self) -> u64 {
        self.clock.turns()
    }

    /// An operator says that the wall clock is right. That is stored at once: else a crash would bring the doubt back.
    pub fn confirm_clock(&self) {
        self.clock.confirm();
        self.store_clock();
    }

    /// Stores the trusted time, for the next start to compare the wall clock with.
    pub(crate) fn store_clock(&self) {
        if self.check_not_read_only().is_err() {
            return;
        }
        let stored = self.edit_shared(|manifest| {
            manifest.cursor = self.cursor(manifest.cursor, manifest.cursor.sealed_to);
            vec![put_cursor(&manifest.cursor)]
        });
        if let Err(error) = stored {
            tracing::warn!(%error, "the trusted time could not be stored; it is tried again");
        }
    }

    /// A segment id that was never used.
    pub fn next_segment(&self) -> SegmentId {
        SegmentId(self.next_id())
    }

    /// A group id that was never used.
    pub fn next_group(&self) -> GroupId {
        GroupId(self.next_id())
    }

    /// A part id that was never used.
    pub fn next_part(&self) -> PartId {
        PartId(self.next_id())
    }

    fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// The cursor to publish together with what uses the ids given out so far.
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

    /// The outcome of an earlier request with this idempotency key.
    pub fn request_outcome(&self, table: TableId, key: RequestKey) -> Option<Bytes> {
        self.requests.outcome(table, key)
    }

    // --- the newest entries ------------------------------------------------------------------------------

    /// The place in the journal after everything that was committed so far.
    pub fn tail_end(&self) -> SequenceNumber {
        self.tail.end()
    }

    /// What was written to a table from a place in the journal on: at least one entry where there is any, and at most about
    /// `bytes_max` of them.
    ///
    /// From memory, which holds the newest entries of all tables up to [`LogSettings::tail_bytes_max`]. All of them have
    /// been acknowledged, and readers see them.
    ///
    /// # Errors
    ///
    /// The place is not kept any more, or was never reached.
    pub fn tail(
        &self,
        table: TableId,
        from: SequenceNumber,
        bytes_max: usize,
    ) -> std::result::Result<TailPart, TailError> {
        self.tail.read(table, from, bytes_max)
    }

    /// Has `wake` called whenever the tail has grown. It is called on the committer's thread and must not block.
    pub fn on_tail_change(&self, wake: impl Fn() + Send + Sync + 'static) {
        self.tail.on_change(Box::new(wake));
    }

    /// Calls everybody who waits for the tail, because something else has changed that they look at.
    pub fn wake_watchers(&self) {
        self.tail.wake();
    }

    // --- jobs --------------------------------------------------------------------------------------------

    /// Adds, alters and removes rows about jobs, in one edit. Durable on return.
    ///
    /// # Errors
    ///
    /// The edit was not made, or its outcome is not known.
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

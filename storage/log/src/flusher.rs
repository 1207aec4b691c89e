//! Flusher: writes frozen generations to segments and rows, and publishes them.
//!
//! 1. Each model writes its share of the generation, invisible to readers, and rows for all other state that only the
//!    journal holds. One sync makes all rows durable.
//! 2. Publish: one edit of the manifest adds the output of all models and moves the cursor of the journal. Once the
//!    edit is durable, the readers of each model switch from the generation in memory to the published data.
//! 3. Delete the flushed journal.
//!
//! A failure before step 2 leaves orphans, which the next start removes; the same generation is flushed again later. A
//! crash between steps 2 and 3 leaves a journal below the cursor, which replay skips.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tideline_backend::ManifestChange;
use tideline_model::SequenceNumber;
use tideline_runtime::{SupervisedThread, background};

use crate::edits::Edit;
use crate::error::{LogError, Result};
use crate::fail_points::around;
use crate::log::{Log, SHARD};
use crate::manifest::{Manifest, put_cursor};
use crate::model::{Flushed, LogModel};

/// Name of the thread in metrics and fail points.
const THREAD: &str = "sealer";
/// Interval at which the trusted time is stored, in addition to the flushes that store it. After a crash, the next
/// start counts the time since the last store as part of a jump of the clock.
const TRUSTED_INTERVAL: Duration = Duration::from_secs(60);
/// Longest time for which a stop waits for the store of the trusted time, if other processes can take the shard.
const STORE_PATIENCE: Duration = Duration::from_millis(500);
/// Maximum pause of the thread: before a failed flush is retried, and while no generation is frozen.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Handle of the flusher thread.
#[derive(Debug)]
pub(crate) struct Flusher {
    log: Arc<Log>,
    thread: SupervisedThread,
}

/// Work of the thread.
pub(crate) struct Worker {
    pub(crate) log: Arc<Log>,
    pub(crate) models: Vec<Arc<dyn LogModel>>,
}

impl Flusher {
    pub(crate) fn start(log: Arc<Log>, models: Vec<Arc<dyn LogModel>>) -> Self {
        let worker = Worker {
            log: Arc::clone(&log),
            models,
        };
        let supervisor = &log.settings.supervisor;
        // Callers that wait for a flush, including the committer, must not wait for a thread that has ended.
        let waited_for = Arc::downgrade(&log);
        supervisor.on_failure(move |_| {
            if let Some(log) = waited_for.upgrade() {
                log.notify_flusher();
            }
        });
        let thread = supervisor.spawn(THREAD, move || worker.run());
        let thread = thread.expect("the system has a thread left at start");
        Self { log, thread }
    }

    /// Ends the thread after the generation that it is flushing. May be called repeatedly.
    ///
    /// If other processes can take the shard, they wait for the end of this stop. So the stop waits at most
    /// [`STORE_PATIENCE`] for the store of the trusted time, and then leaves the thread to itself. The store is an edit
    /// of the manifest: it is applied before the next owner takes the shard, or it is refused, because the shard then
    /// has another epoch. If it is not applied, the next owner starts with the time that was stored before, as after a
    /// store that has failed.
    pub(crate) fn stop(&self) {
        self.log.flushing.lock().is_stopping = true;
        self.log.notify_flusher();
        if !self.log.has_limited_lease() || self.wait_for_store() {
            self.thread.join();
        }
    }

    /// Waits until the stopping thread has done its last work, or has panicked. Returns false if it is still storing
    /// the trusted time after [`STORE_PATIENCE`].
    fn wait_for_store(&self) -> bool {
        let log = &self.log;
        let mut progress = log.flushing.lock();
        while !progress.has_ended && log.check_threads().is_ok() {
            let left = progress.storing_since.map_or(RETRY_INTERVAL, |since| {
                STORE_PATIENCE.saturating_sub(since.elapsed())
            });
            if left.is_zero() {
                if !std::mem::replace(&mut progress.is_left, true) {
                    tracing::warn!("the trusted time is not stored yet; the stop does not wait for it");
                }
                return false;
            }
            log.flushing_changed.wait_for(&mut progress, left);
        }
        true
    }
}

impl Log {
    /// Wakes the flusher and all callers that wait for a flush.
    pub fn notify_flusher(&self) {
        let _no_lost_wakeup = self.flushing.lock();
        self.flushing_changed.notify_all();
    }

    /// Returns the error of the last flush or, while frozen generations wait, of the last attempt to resolve an edit.
    /// Returns `None` after a success, and after a caller has begun to wait for a flush.
    pub fn flush_error(&self) -> Option<String> {
        self.flushing.lock().error.clone()
    }

    /// Waits until all entries below `end` are flushed. Returns an error if a flush fails, the flusher stops or a
    /// thread panics.
    pub(crate) fn wait_flushed(&self, end: SequenceNumber) -> Result<()> {
        let mut progress = self.flushing.lock();
        progress.error = None;
        while self.frozen.lock().first().is_some_and(|first| *first <= end) {
            self.check_threads()?;
            if progress.is_stopping {
                return Err(LogError::Closed);
            }
            if let Some(reason) = &progress.error {
                return Err(LogError::of_flush(reason));
            }
            self.flushing_changed.wait(&mut progress);
        }
        Ok(())
    }

    /// Applies backpressure: blocks the committer, and so all writers, until all frozen generations are flushed, the
    /// flusher stops or a thread panics. If flushes fail, returns once `patience` has passed without a notification;
    /// this costs the memory of one more generation.
    pub(crate) fn wait_for_flush(&self, patience: Duration) {
        let started = Instant::now();
        let mut progress = self.flushing.lock();
        let is_over = || self.frozen.lock().is_empty() || self.settings.supervisor.failure().is_some();
        while !is_over() && !progress.is_stopping {
            let timed_out = self
                .flushing_changed
                .wait_for(&mut progress, patience)
                .timed_out();
            if timed_out && progress.error.is_some() {
                break;
            }
        }
        tracing::warn!(waited = ?started.elapsed(), "writers waited for a seal");
    }
}

impl Worker {
    fn run(&self) {
        // Requests do not wait until the time slice of a flush is over. A lower priority could block writers, because
        // they wait if flushes are too slow.
        background::share();
        let log = &self.log;
        let mut stored = Instant::now();
        loop {
            log.settings.supervisor.round(THREAD);
            if stored.elapsed() >= TRUSTED_INTERVAL {
                stored = Instant::now();
                log.store_clock();
            }
            let has_failed = !self.work();
            let mut progress = log.flushing.lock();
            if progress.is_stopping {
                progress.storing_since = Some(Instant::now());
                drop(progress);
                log.notify_flusher();
                // Stores the trusted time, so that the next start counts only the time since this stop as part of a
                // jump of the clock, and the trusted time does not go back.
                log.store_clock();
                log.flushing.lock().has_ended = true;
                log.notify_flusher();
                return;
            }
            let idle = log.frozen.lock().is_empty();
            if has_failed || idle {
                // After the timeout, failed work is retried, and models free data that readers no longer hold.
                log.flushing_changed.wait_for(&mut progress, RETRY_INTERVAL);
            }
        }
    }

    /// Does the deferred work of the models, resolves an open edit, and flushes the oldest frozen generation. Returns
    /// false if some of it failed.
    pub(crate) fn work(&self) -> bool {
        self.models.iter().for_each(|model| model.tidy());
        let is_read_only = self.log.check_not_read_only().is_err();
        let settled = self.settle();
        if is_read_only {
            return false;
        }
        self.reclaim_orphans();
        let oldest = self.log.frozen.lock().first().copied();
        settled && oldest.is_none_or(|end| self.flush_and_report(end).is_ok())
    }

    /// Frees parts that the manifest did not reference at the start. The next start retries failures.
    fn reclaim_orphans(&self) {
        let orphans = std::mem::take(&mut *self.log.orphans.lock());
        for part in orphans {
            match self.log.backend.reclaim_part(part) {
                Ok(()) => tracing::info!(?part, "a part that no manifest names was freed"),
                Err(error) => {
                    tracing::warn!(%error, ?part, "reclaiming a part failed; the next start tries again");
                }
            }
        }
    }

    /// Resolves an edit with an unknown outcome, such as that of the last flush. Returns true if no open edit is left.
    fn settle(&self) -> bool {
        let log = &self.log;
        let settled = log.settle();
        if matches!(settled, Ok(true)) {
            let sealed_to = log.manifest().cursor.sealed_to;
            if let Err(error) = log.backend.forget(SHARD, log.epoch(), sealed_to) {
                tracing::warn!(%error, "the flushed journal could not be deleted; the next flush retries it");
            }
        }
        let mut progress = log.flushing.lock();
        match &settled {
            Ok(true) => progress.error = None,
            Ok(false) => return true,
            Err(error) if !log.frozen.lock().is_empty() => progress.error = Some(error.to_string()),
            Err(_) => return false,
        }
        log.flushing_changed.notify_all();
        settled.is_ok()
    }

    fn flush_and_report(&self, end: SequenceNumber) -> Result<()> {
        let flushed = self.flush(end);
        let mut progress = self.log.flushing.lock();
        match &flushed {
            Ok(()) => progress.error = None,
            Err(error) => {
                tracing::warn!(%error, "seal failed; the seal is retried");
                progress.error = Some(error.to_string());
            }
        }
        self.log.flushing_changed.notify_all();
        flushed
    }

    fn flush(&self, end: SequenceNumber) -> Result<()> {
        let log = &self.log;
        // If the cursor has reached `end`, an earlier try with an unknown outcome was published.
        if log.manifest().cursor.sealed_to < end {
            let mut flushed = Vec::with_capacity(self.models.len());
            for model in &self.models {
                flushed.extend(model.flush(end).map_err(LogError::Model)?);
            }
            let requests = log.requests.write_rows(log.backend.as_ref(), log.stamps())?;
            around("seal", "sync", || {
                Ok::<_, LogError>(log.backend.sync_rows(SHARD)?)
            })?;
            log.requests.synced(&requests);
            for flushed in &mut flushed {
                flushed.synced().map_err(LogError::Model)?;
            }
            around("seal", "edit", || self.publish(end, flushed))?;
        }
        self.models.iter().for_each(|model| model.flushed(end));
        log.frozen.lock().retain(|frozen| *frozen > end);
        around("seal", "forget", || {
            Ok::<_, LogError>(log.backend.forget(SHARD, log.epoch(), end)?)
        })
    }

    fn publish(&self, end: SequenceNumber, flushed: Vec<Box<dyn Flushed>>) -> Result<()> {
        let flushed = RefCell::new(flushed);
        let change = |current: &Arc<Manifest>| -> Result<Edit> {
            let mut flushed = flushed.borrow_mut();
            let mut manifest = Manifest::clone(current);
            manifest.cursor = self.log.cursor(manifest.cursor, end);
            let mut changes: Vec<ManifestChange> = Vec::new();
            for part in flushed.iter_mut() {
                changes.extend(part.edit(&mut manifest).map_err(LogError::Model)?);
            }
            changes.push(put_cursor(&manifest.cursor));
            Ok(Edit {
                manifest,
                changes,
                adds: flushed.iter().flat_map(|part| part.adds()).collect(),
            })
        };
        let follow = |manifest: &Arc<Manifest>| {
            for part in flushed.take() {
                part.follow(manifest);
            }
        };
        self.log.edit(change, follow)?;
        Ok(())
    }
}

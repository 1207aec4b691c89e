//! Maintenance thread: writes the high-water mark, frees dropped tables, reopens failed stores, repairs failed journals,
//! and starts compactions.
//!
//! The thread runs one round per [`FjallOptions::high_water_interval`](crate::FjallOptions::high_water_interval). This
//! module also closes the backend.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tideline_backend::{BackendError, Result};
use tideline_runtime::SupervisedThread;

use super::Inner;
use crate::error::{During, from_io};
use crate::shard_state::{ShardState, settle_counts};
use crate::store::Store;

/// Name of the thread.
const THREAD: &str = "maintenance";
/// Name of the threads that compact parts.
const COMPACTION: &str = "row compaction";

/// Handle of the maintenance thread.
#[derive(Debug)]
pub(super) struct Maintenance {
    signal: Arc<Signal>,
    thread: SupervisedThread,
}

#[derive(Debug, Default)]
struct Signal {
    is_stopped: Mutex<bool>,
    changed: Condvar,
}

impl Maintenance {
    /// Starts the thread.
    pub(super) fn start(inner: &Arc<Inner>) -> std::io::Result<Self> {
        let signal = Arc::new(Signal::default());
        let weak = Arc::downgrade(inner);
        let interval = inner.options.high_water_interval;
        let seen = Arc::clone(&signal);
        let supervisor = &inner.options.supervisor;
        let thread = supervisor.spawn(THREAD, move || keep(&weak, &seen, interval))?;
        Ok(Self { signal, thread })
    }

    /// Stops the thread and waits for it.
    pub(super) fn stop(&self) {
        *self.signal.is_stopped.lock() = true;
        self.signal.changed.notify_all();
        self.thread.join();
    }
}

fn keep(inner: &Weak<Inner>, signal: &Signal, interval: Duration) {
    let mut is_stopped = signal.is_stopped.lock();
    while !*is_stopped {
        signal.changed.wait_for(&mut is_stopped, interval);
        if *is_stopped {
            return;
        }
        let Some(inner) = inner.upgrade() else { return };
        parking_lot::MutexGuard::unlocked(&mut is_stopped, || {
            inner.options.supervisor.round(THREAD);
            inner.tick();
            compact(&inner);
        });
    }
}

/// Starts the compactions that are due, each on its own thread.
fn compact(inner: &Arc<Inner>) {
    let stores: [fn(&Inner) -> &Store; 2] = [|inner| &inner.hot, |inner| &inner.cold.store];
    for store in stores {
        if !store(inner).begin_compaction() {
            continue;
        }
        let shared = Arc::clone(inner);
        let supervisor = &inner.options.supervisor;
        if let Err(error) = supervisor.spawn(COMPACTION, move || store(&shared).compact()) {
            tracing::warn!(%error, "a compaction cannot be started");
            store(inner).end_compaction();
        }
    }
}

impl Inner {
    /// Runs one round of maintenance.
    pub(super) fn tick(&self) {
        if self.is_closed.load(Ordering::Acquire) {
            return;
        }
        if let Err(error) = self.high_water.save() {
            tracing::warn!(%error, "the high-water mark cannot be written");
        }
        self.heal_journals();
        self.hot.tend(|engine| {
            let mut shard_state = ShardState::read(engine)?;
            self.note_lacking(&shard_state);
            if self.loss.lock().is_none() {
                settle_counts(engine, &mut shard_state)?;
            }
            *self.shard_state.lock() = shard_state;
            Ok(())
        });
        self.cold.store.tend(|_| Ok(()));
    }

    /// Compares a reopened store with the acknowledged commits. Refuses writes until a restart if the store has fewer
    /// commits, or if one of its keyspaces lacks promised (acknowledged as durable) commits.
    fn note_lacking(&self, shard_state: &ShardState) {
        let acknowledged = self.high_water.commits();
        let lost = (shard_state.complete() < acknowledged).then(|| {
            let lost = acknowledged - shard_state.complete();
            format!("{lost} of {acknowledged} commits of rows and manifests")
        });
        if let Some(missing) = shard_state.lacking().map(str::to_owned).or(lost) {
            tracing::error!(missing, "acknowledged data is missing: the store is read-only");
            *self.loss.lock() = Some(missing);
        }
    }

    fn heal_journals(&self) {
        if self.journal_failure.lock().is_none() {
            return;
        }
        let mut is_healed = true;
        for journal in self.journals.all() {
            if let Err(error) = journal.lock().heal() {
                tracing::warn!(%error, "the journal is still broken");
                is_healed = false;
                if let Some(failure) = &mut *self.journal_failure.lock() {
                    failure.attempts = failure.attempts.saturating_add(1);
                    failure.last_error = Some(error.to_string());
                }
            }
        }
        if is_healed {
            tracing::info!("the journal works again");
            *self.journal_failure.lock() = None;
        }
    }

    /// Syncs and closes the journals and both stores, even if one of them fails. Returns the first failure.
    pub(super) fn close(&self) -> Result<()> {
        if self.is_closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let mut failures: Vec<BackendError> = Vec::new();
        for journal in self.journals.all() {
            let mut journal = journal.lock();
            match journal.sync() {
                // After a clean stop the mark is exact, so that the loss of any entry is detected.
                Ok(()) if self.loss.lock().is_none() => self.note_entries(&journal),
                Ok(()) => {}
                Err(error) => failures.push(error),
            }
        }
        // After a clean stop the mark is exact.
        let is_whole = self.loss.lock().is_none();
        let is_exact = |store: &Store| is_whole && !store.has_failed();
        let [is_hot_exact, is_cold_exact] = [is_exact(&self.hot), is_exact(&self.cold.store)];
        let commits = self.shard_state.lock().commits();
        match self.cold.close() {
            Ok(()) if is_cold_exact => self.high_water.note_cold_load(self.cold.counted()),
            closed => failures.extend(closed.err()),
        }
        match self.hot.close() {
            Ok(()) if is_hot_exact => self.high_water.note_commit(commits),
            closed => failures.extend(closed.err()),
        }
        let saved = self.high_water.save();
        failures.extend(
            saved
                .err()
                .map(|error| from_io(&error, "the high-water mark", During::Write)),
        );
        *self.lock.lock() = None;
        match failures.into_iter().next() {
            Some(failure) => Err(failure),
            None => Ok(()),
        }
    }
}

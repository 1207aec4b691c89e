//! What happens by itself while the backend is open: the high-water mark is written, and a failed store reopened.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tideline_backend::{BackendError, Result};

use super::Inner;
use crate::error::{During, from_fjall, from_io};
use crate::ledger::Ledger;
use crate::safety;

/// Longest pause between two tries to reopen.
const REOPEN_PAUSE_MAX: Duration = Duration::from_secs(30);

/// A thread that looks after the backend until it is stopped.
#[derive(Debug)]
pub(super) struct Keeper {
    signal: Arc<Signal>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct Signal {
    is_stopped: Mutex<bool>,
    changed: Condvar,
}

impl Keeper {
    /// Starts the thread.
    pub(super) fn start(inner: &Arc<Inner>) -> std::io::Result<Self> {
        let signal = Arc::new(Signal::default());
        let weak = Arc::downgrade(inner);
        let interval = inner.options.high_water_interval;
        let seen = Arc::clone(&signal);
        let thread = std::thread::Builder::new()
            .name("tideline-keeper".to_owned())
            .spawn(move || keep(&weak, &seen, interval))?;
        Ok(Self {
            signal,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Stops the thread and waits for it.
    pub(super) fn stop(&self) {
        *self.signal.is_stopped.lock() = true;
        self.signal.changed.notify_all();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the keeper had panicked");
        }
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
        parking_lot::MutexGuard::unlocked(&mut is_stopped, || inner.tick());
    }
}

/// A store that has failed.
#[derive(Debug)]
pub(super) struct Poison {
    pub(super) reason: String,
    tries: u32,
    next_try: Instant,
}

impl Poison {
    pub(super) fn new(reason: &str) -> Self {
        Self {
            reason: reason.to_owned(),
            tries: 0,
            next_try: Instant::now(),
        }
    }

    /// Makes the next round try, however long the pause.
    #[cfg(test)]
    pub(super) fn try_now(&mut self) {
        self.next_try = Instant::now();
    }
}

impl Inner {
    /// One round of the keeper.
    pub(super) fn tick(&self) {
        if self.is_closed.load(Ordering::Acquire) {
            return;
        }
        self.drop_safety();
        if let Err(error) = self.high_water.save() {
            tracing::warn!(%error, "the high-water mark cannot be written");
        }
        let failure = self.engine().ok().and_then(|engine| engine.check().err());
        if let Some(failure) = failure {
            self.poison(&failure.to_string());
        }
        self.heal();
    }

    /// Removes the copy that was made for an open which has been proven good.
    fn drop_safety(&self) {
        if self.has_safety.swap(false, Ordering::AcqRel)
            && let Err(error) = safety::remove(&self.folder)
        {
            tracing::warn!(%error, "the safety copy cannot be removed");
        }
    }

    /// Reopens what has failed, if it is time.
    fn heal(&self) {
        self.heal_journals();
        let is_due = self.poison.lock().as_ref().is_some_and(|poison| {
            poison.tries < self.options.reopen_tries_max && poison.next_try <= Instant::now()
        });
        if !is_due {
            return;
        }
        let reopened = self.reopen();
        let mut poison = self.poison.lock();
        match (reopened, &mut *poison) {
            (Ok(()), _) => {
                tracing::info!("the store works again");
                *poison = None;
            }
            (Err(error), Some(poison)) => {
                poison.tries += 1;
                let pause = Duration::from_secs(1 << poison.tries.min(5));
                poison.next_try = Instant::now() + pause.min(REOPEN_PAUSE_MAX);
                tracing::error!(%error, tries = poison.tries, "the store cannot be reopened");
            }
            (Err(_), None) => {}
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
            }
        }
        if is_healed {
            tracing::info!("the journal works again");
            *self.journal_failure.lock() = None;
        }
    }

    /// Closes and opens the store. Waits for calls that use it.
    fn reopen(&self) -> Result<()> {
        let mut slot = self.engine.write();
        if self.is_closed.load(Ordering::Acquire) {
            return Ok(());
        }
        *slot = None;
        let (engine, keyspaces) = super::open::open_engine(&self.folder, &self.options)?;
        *self.keyspaces.lock() = keyspaces;
        *self.ledger.lock() = Ledger::read(&engine)?;
        self.has_safety.store(true, Ordering::Release);
        *slot = Some(engine);
        Ok(())
    }

    /// Syncs and closes everything. The first failure is returned, after everything has been tried.
    pub(super) fn close(&self) -> Result<()> {
        if self.is_closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let mut failures: Vec<BackendError> = Vec::new();
        for journal in self.journals.all() {
            failures.extend(journal.lock().sync().err());
        }
        if let Some(engine) = self.engine.write().take() {
            let synced = engine.sync();
            failures.extend(synced.err().map(|error| from_fjall(error, During::Write)));
        }
        let saved = self.high_water.save();
        failures.extend(
            saved
                .err()
                .map(|error| from_io(&error, "the high-water mark", During::Write)),
        );
        self.drop_safety();
        *self.lock.lock() = None;
        match failures.into_iter().next() {
            Some(failure) => Err(failure),
            None => Ok(()),
        }
    }
}

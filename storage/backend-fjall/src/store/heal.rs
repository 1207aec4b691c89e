//! Reopening of a failed store. Until an attempt succeeds, changes are refused; reads are refused once an attempt has
//! failed.
//!
//! The number of attempts is unlimited. The pauses grow up to [`FjallOptions::reopen_pause_max`](crate::FjallOptions),
//! and the next attempt follows at once when the disk has space again.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tideline_backend::{BackendError, Health, Reopening, Result};

use super::open::{Opening, open_engine};
use super::{EngineGuard, Slot, Store};
use crate::engine::Engine;
use crate::error::{During, RETRY_AFTER, from_fjall};
use crate::renew::note_failure;
use crate::safety;

/// Pause after the first failed attempt to reopen. Each further failure doubles the pause.
const REOPEN_PAUSE_MIN: Duration = Duration::from_secs(1);

/// Failure of a store, and the attempts to reopen it.
#[derive(Debug)]
pub(super) struct Poison {
    pub(super) reason: String,
    attempts: u32,
    last_error: Option<String>,
    next_try: Instant,
    is_running: bool,
    /// True if the disk was nearly full at the last check.
    was_low: bool,
}

impl Poison {
    /// Returns the time until the next attempt.
    fn next_in(&self) -> Duration {
        self.next_try.saturating_duration_since(Instant::now())
    }

    /// Returns the delay after which a refused call may succeed.
    pub(super) fn retry_after(&self) -> Duration {
        self.next_in().max(RETRY_AFTER)
    }

    pub(super) fn health(&self) -> Health {
        Health::Poisoned {
            reason: self.reason.clone(),
            reopening: Reopening {
                reads: self.attempts == 0,
                is_running: self.is_running,
                attempts: self.attempts,
                last_error: self.last_error.clone(),
                next_in: self.next_in(),
            },
        }
    }
}

impl Store {
    /// Marks the store as failed: changes are refused until it has been reopened.
    pub(crate) fn poison(&self, reason: &str) {
        let mut poison = self.poison.lock();
        if poison.is_none() {
            let tier = self.setup.tier;
            tracing::error!(%tier, reason, "the store failed and will be reopened");
            if let Err(error) = note_failure(&self.location.root, reason) {
                tracing::warn!(%error, "the failure could not be recorded for a start after a kill");
            }
            *poison = Some(Poison {
                reason: reason.to_owned(),
                attempts: 0,
                last_error: None,
                next_try: Instant::now(),
                is_running: false,
                was_low: self.free_space.get().is_low(),
            });
        }
    }

    /// Runs one round of maintenance: removes the safety copy, frees dropped tables, detects a failure, and reopens a
    /// failed store if an attempt is due. `reopened` is called with the new engine before it is in use.
    pub(crate) fn tend(&self, reopened: impl FnOnce(&Engine) -> Result<()>) {
        self.drop_safety();
        let is_poisoned = self.poison.lock().is_some();
        let round = |engine: EngineGuard<'_>| {
            engine.check()?;
            if is_poisoned {
                return Ok(());
            }
            engine.free_dropped_tables()
        };
        if let Some(Err(failure)) = self.engine().ok().flatten().map(round) {
            self.poison(&failure.to_string());
        }
        if !self.begin_attempt() {
            return;
        }
        let outcome = self.reopen(reopened);
        let tier = self.setup.tier;
        let mut poison = self.poison.lock();
        match (outcome, &mut *poison) {
            (Ok(()), _) => {
                tracing::info!(%tier, "the store works again");
                *poison = None;
            }
            (Err(error), Some(poison)) => {
                let pause = REOPEN_PAUSE_MIN.saturating_mul(1 << poison.attempts.min(16));
                let pause = pause.min(self.setup.reopen_pause_max);
                poison.attempts = poison.attempts.saturating_add(1);
                poison.next_try = Instant::now() + pause;
                poison.is_running = false;
                let attempts = poison.attempts;
                tracing::error!(%tier, %error, attempts, ?pause, "the store could not be reopened; retrying");
                poison.last_error = Some(error.to_string());
            }
            (Err(_), None) => {}
        }
    }

    /// Returns true if an attempt to reopen is due, and marks it as running.
    fn begin_attempt(&self) -> bool {
        let is_low = self.free_space.get().is_low();
        let mut poison = self.poison.lock();
        let Some(poison) = &mut *poison else {
            return false;
        };
        let has_space_again = std::mem::replace(&mut poison.was_low, is_low) && !is_low;
        if has_space_again {
            poison.next_try = Instant::now();
        }
        poison.is_running = poison.next_try <= Instant::now();
        poison.is_running
    }

    /// Removes the safety copy of an open that has succeeded.
    fn drop_safety(&self) {
        if self.has_safety.swap(false, Ordering::AcqRel)
            && let Err(error) = safety::remove(&self.location.root)
        {
            tracing::warn!(%error, "the safety copy cannot be removed");
        }
    }

    /// Waits for the calls that use the store, then closes and opens it.
    fn reopen(&self, reopened: impl FnOnce(&Engine) -> Result<()>) -> Result<()> {
        let mut slot = self.slot.write();
        if matches!(*slot, Slot::Closed | Slot::Unmade) {
            return Ok(());
        }
        *slot = Slot::Failed;
        self.doubt_buffered();
        let opened = open_engine(&self.location, &self.setup, Opening::AfterFailure, None)?;
        reopened(&opened.engine)?;
        self.install(&mut slot, opened);
        Ok(())
    }

    /// Syncs and closes the store. Waits for the calls that use the store; running loads end early.
    pub(crate) fn close(&self) -> Result<()> {
        self.is_closing.store(true, Ordering::Release);
        let slot = std::mem::replace(&mut *self.slot.write(), Slot::Closed);
        let synced = match slot {
            Slot::Open(engine) => engine.sync(),
            _ => Ok(()),
        };
        self.drop_safety();
        synced.map_err(|error| -> BackendError { from_fjall(error, During::Write) })
    }

    /// Makes the next attempt due now.
    #[cfg(test)]
    pub(crate) fn try_now(&self) {
        self.poison.lock().as_mut().expect("poisoned").next_try = Instant::now();
    }

    /// Delays the next attempt, so that only a change of free space triggers it.
    #[cfg(test)]
    pub(crate) fn try_late(&self) {
        let late = Instant::now() + Duration::from_secs(3_600);
        self.poison.lock().as_mut().expect("poisoned").next_try = late;
    }
}

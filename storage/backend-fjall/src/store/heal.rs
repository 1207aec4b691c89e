//! Reopening of a failed store. It refuses changes meanwhile, and reads once an attempt has failed.
//!
//! Attempts never end: pauses grow up to [`FjallOptions::reopen_pause_max`](crate::FjallOptions), and when the disk has
//! space again the next attempt comes at once.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tideline_backend::{BackendError, Health, Reopening, Result};

use super::open::{Opening, open_engine};
use super::{EngineGuard, Slot, Store};
use crate::engine::Engine;
use crate::error::{During, RETRY_AFTER, from_fjall};
use crate::renew::note_failure;
use crate::safety;

/// Pause after the first failed attempt to reopen; it doubles with each further one.
const REOPEN_PAUSE_MIN: Duration = Duration::from_secs(1);

/// The failure of a store, and the attempts to reopen it.
#[derive(Debug)]
pub(super) struct Poison {
    pub(super) reason: String,
    attempts: u32,
    last_error: Option<String>,
    next_try: Instant,
    is_running: bool,
    /// Whether the disk was nearly full at the last look.
    was_low: bool,
}

impl Poison {
    /// Time until the next attempt.
    fn next_in(&self) -> Duration {
        self.next_try.saturating_duration_since(Instant::now())
    }

    /// When a refused call may work.
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
    /// Refuses changes from now on, until the store has been reopened.
    pub(crate) fn poison(&self, reason: &str) {
        let mut poison = self.poison.lock();
        if poison.is_none() {
            let tier = self.setup.tier;
            tracing::error!(%tier, reason, "the store failed and will be reopened");
            if let Err(error) = note_failure(&self.place.root, reason) {
                tracing::warn!(%error, "the failure cannot be noted for a start after a kill");
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

    /// One round of the keeper: frees what was dropped, notices a failure, and reopens what has failed, if it is time.
    /// `reopened` sees the engine before anybody else.
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
                tracing::error!(%tier, %error, attempts, ?pause, "the store cannot be reopened; it is tried again");
                poison.last_error = Some(error.to_string());
            }
            (Err(_), None) => {}
        }
    }

    /// Whether an attempt to reopen is due; it begins then.
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

    /// Removes the copy that was made for an open which has been proven good.
    fn drop_safety(&self) {
        if self.has_safety.swap(false, Ordering::AcqRel)
            && let Err(error) = safety::remove(&self.place.root)
        {
            tracing::warn!(%error, "the safety copy cannot be removed");
        }
    }

    /// Closes and opens the store. Waits for calls that use it.
    fn reopen(&self, reopened: impl FnOnce(&Engine) -> Result<()>) -> Result<()> {
        let mut slot = self.slot.write();
        if matches!(*slot, Slot::Closed | Slot::Unmade) {
            return Ok(());
        }
        *slot = Slot::Failed;
        self.doubt_buffered();
        let opened = open_engine(&self.place, &self.setup, Opening::AfterFailure, None)?;
        reopened(&opened.engine)?;
        self.install(&mut slot, opened);
        Ok(())
    }

    /// Syncs and closes. Waits for calls that use it; a load among them ends early.
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

    /// Makes the next round try, however long the pause.
    #[cfg(test)]
    pub(crate) fn try_now(&self) {
        self.poison.lock().as_mut().expect("poisoned").next_try = Instant::now();
    }

    /// Makes only the return of space bring the next attempt.
    #[cfg(test)]
    pub(crate) fn try_late(&self) {
        let late = Instant::now() + Duration::from_secs(3_600);
        self.poison.lock().as_mut().expect("poisoned").next_try = late;
    }
}

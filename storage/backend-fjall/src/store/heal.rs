//! What becomes of a store that has failed: it refuses changes, and is opened again, with longer and longer pauses.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tideline_backend::{BackendError, Result};

use super::open::{Opening, open_engine};
use super::{EngineGuard, Slot, Store};
use crate::engine::Engine;
use crate::error::{During, from_fjall};
use crate::renew::note_failure;
use crate::safety;

/// Longest pause between two tries to reopen.
const REOPEN_PAUSE_MAX: Duration = Duration::from_secs(30);

/// Why a store has failed, and when it is opened again.
#[derive(Debug)]
pub(super) struct Poison {
    pub(super) reason: String,
    tries: u32,
    next_try: Instant,
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
                tries: 0,
                next_try: Instant::now(),
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
        let is_due = self.poison.lock().as_ref().is_some_and(|poison| {
            poison.tries < self.setup.reopen_tries_max && poison.next_try <= Instant::now()
        });
        if !is_due {
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
                poison.tries += 1;
                let pause = Duration::from_secs(1 << poison.tries.min(5));
                poison.next_try = Instant::now() + pause.min(REOPEN_PAUSE_MAX);
                tracing::error!(%tier, %error, tries = poison.tries, "the store cannot be reopened");
            }
            (Err(_), None) => {}
        }
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
}

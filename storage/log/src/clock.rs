//! The trusted clock of a log. Its time is stored with the cursor of the journal, so that the next start can compare
//! the wall clock with the trusted time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::trusted_clock::{StoredClock, TrustedClock, TrustedNow};
use parking_lot::Mutex;
use tideline_model::{Clock, Timestamp};

/// Trusted clock of a log.
#[derive(Debug)]
pub(crate) struct LogClock {
    clock: Arc<dyn Clock>,
    trusted: Mutex<TrustedClock>,
    regressions: AtomicU64,
}

impl LogClock {
    pub(crate) fn new(clock: Arc<dyn Clock>, stored: StoredClock, floor: Timestamp) -> Self {
        let trusted = TrustedClock::new(stored, floor, clock.now(), clock.monotonic());
        Self {
            clock,
            trusted: Mutex::new(trusted),
            regressions: AtomicU64::new(0),
        }
    }

    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// Returns the trusted time.
    pub(crate) fn now(&self) -> TrustedNow {
        let (wall, monotonic) = (self.clock.now(), self.clock.monotonic());
        let mut trusted = self.trusted.lock();
        let before = trusted.now();
        let shown = trusted.observe(wall, monotonic);
        self.count_regression(before, &trusted);
        shown
    }

    /// Accepts the wall clock as correct, because an operator has confirmed it.
    pub(crate) fn confirm(&self) {
        let (wall, monotonic) = (self.clock.now(), self.clock.monotonic());
        let mut trusted = self.trusted.lock();
        let before = trusted.now();
        trusted.confirm(wall, monotonic);
        self.count_regression(before, &trusted);
    }

    /// Records the newest timestamp that is stored.
    pub(crate) fn note_stored(&self, newest: i64) {
        self.trusted.lock().note_stored(newest);
    }

    /// Returns the number of times that the trusted time went back since the start.
    pub(crate) fn regressions(&self) -> u64 {
        self.regressions.load(Ordering::SeqCst)
    }

    fn count_regression(&self, before: Timestamp, trusted: &TrustedClock) {
        if trusted.now() < before {
            self.regressions.fetch_add(1, Ordering::SeqCst);
        }
    }
}

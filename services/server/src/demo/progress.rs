//! What the demo's agents have done so far, and how they are told to stop.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tideline_server::Stop;

/// Counts of one run, shared by its threads.
#[derive(Debug)]
pub(crate) struct Progress {
    /// The server that is written to.
    server: Stop,
    /// Points of this machine that were acknowledged.
    pub(crate) measured: AtomicU64,
    /// Points of the simulated fleet that were acknowledged.
    pub(crate) simulated: AtomicU64,
    /// The fleet has caught up with the present.
    pub(crate) has_caught_up: AtomicBool,
    /// Writes that failed.
    failures: AtomicU64,
    last_failure: Mutex<String>,
    is_stopped: Mutex<bool>,
    stopped: Condvar,
}

impl Progress {
    /// Nothing has been done yet to the server that this stops.
    pub(crate) fn new(server: Stop) -> Self {
        Self {
            server,
            measured: AtomicU64::default(),
            simulated: AtomicU64::default(),
            has_caught_up: AtomicBool::default(),
            failures: AtomicU64::default(),
            last_failure: Mutex::default(),
            is_stopped: Mutex::default(),
            stopped: Condvar::default(),
        }
    }

    /// Counts a failed write; the first of several is logged. A server that stops refuses rightly.
    pub(crate) fn fail(&self, reason: String) {
        if self.server.is_asked() {
            return;
        }
        if self.failures.fetch_add(1, Ordering::Relaxed) == 0 {
            tracing::warn!("the demo cannot write: {reason}");
        }
        *self.last_failure.lock().unwrap_or_else(PoisonError::into_inner) = reason;
    }

    /// Why the last write failed; empty if none has.
    pub(crate) fn last_failure(&self) -> String {
        let reason = self.last_failure.lock().unwrap_or_else(PoisonError::into_inner);
        reason.clone()
    }

    /// Whether both kinds of data are there up to now.
    pub(crate) fn is_ready(&self) -> bool {
        self.measured.load(Ordering::Relaxed) > 0 && self.has_caught_up.load(Ordering::Relaxed)
    }

    /// One line on how it goes.
    pub(crate) fn status(&self) -> String {
        let failures = match self.failures.load(Ordering::Relaxed) {
            0 => String::new(),
            failures => format!(", {failures} writes failed"),
        };
        format!(
            "{} points of this machine, {} simulated{failures}",
            self.measured.load(Ordering::Relaxed),
            self.simulated.load(Ordering::Relaxed)
        )
    }

    /// Tells all threads to stop.
    pub(crate) fn stop(&self) {
        *self.is_stopped.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.stopped.notify_all();
    }

    /// Waits so long, or until [`Self::stop`]. Whether to go on.
    pub(crate) fn pause(&self, pause: Duration) -> bool {
        let end = Instant::now() + pause;
        let mut is_stopped = self.is_stopped.lock().unwrap_or_else(PoisonError::into_inner);
        while !*is_stopped {
            let Some(left) = end.checked_duration_since(Instant::now()) else {
                return true;
            };
            let woken = self.stopped.wait_timeout(is_stopped, left);
            is_stopped = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        false
    }
}

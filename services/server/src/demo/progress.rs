//! Progress of the demo's agents, and the signal that stops them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tideline_server::Stop;

/// Counters of one run, shared by its threads.
#[derive(Debug)]
pub(crate) struct Progress {
    /// Stop handle of the server to which the agents write.
    server: Stop,
    /// Acknowledged points of this machine.
    pub(crate) measured: AtomicU64,
    /// Acknowledged points of the simulated fleet.
    pub(crate) simulated: AtomicU64,
    /// True once the fleet has caught up with the present.
    pub(crate) has_caught_up: AtomicBool,
    failures: AtomicU64,
    last_failure: Mutex<String>,
    is_stopped: Mutex<bool>,
    stopped: Condvar,
}

impl Progress {
    /// Creates the progress of a new run. `server` is the stop handle of its server.
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

    /// Counts a failed write; only the first one is logged. Failures while the server stops are expected and
    /// ignored.
    pub(crate) fn fail(&self, reason: String) {
        if self.server.is_requested() {
            return;
        }
        if self.failures.fetch_add(1, Ordering::Relaxed) == 0 {
            tracing::warn!("the demo cannot write: {reason}");
        }
        *self.last_failure.lock().unwrap_or_else(PoisonError::into_inner) = reason;
    }

    /// Returns the reason for the last failed write; empty without a failure.
    pub(crate) fn last_failure(&self) -> String {
        let reason = self.last_failure.lock().unwrap_or_else(PoisonError::into_inner);
        reason.clone()
    }

    /// Returns true if current data of both agents is stored.
    pub(crate) fn is_ready(&self) -> bool {
        self.measured.load(Ordering::Relaxed) > 0 && self.has_caught_up.load(Ordering::Relaxed)
    }

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

    /// Signals all threads to stop.
    pub(crate) fn stop(&self) {
        *self.is_stopped.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.stopped.notify_all();
    }

    /// Waits for the time `pause`, or until [`Self::stop`] is called. Returns false in the latter case.
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

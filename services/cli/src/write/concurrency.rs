//! Concurrency control: the number of batches in flight adapts to the load of the server.
//!
//! At most one batch per connection is in flight. A retryable response or a lost connection halves the limit and pauses
//! sending: for the time that the server requests, otherwise for a time that doubles with each retry. A stored batch
//! raises the limit by 1 divided by the limit, unless the limit was halved while the batch was in flight. Several
//! writers thus share a server without coordination.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use crate::error::CliError;

/// First wait if the server requests no time. The wait doubles with each retry, up to [`WAIT_MAX`].
const FIRST_WAIT: Duration = Duration::from_millis(200);
/// Longest wait, also if the server requests more.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// Concurrency limit shared by all connections.
pub(super) struct ConcurrencyLimit {
    state: Mutex<State>,
    changed: Condvar,
    maximum: usize,
    /// Set when the run has failed, for threads that wait for input.
    stopped: Arc<AtomicBool>,
}

struct State {
    allowed: f64,
    in_flight: usize,
    not_before: Option<Instant>,
    /// Time at which the limit was last halved; `None` if it never was.
    slowed: Option<Instant>,
    failure: Option<CliError>,
    has_failed: bool,
}

/// Permit to send a batch. The permit must be released by [`ConcurrencyLimit::stored`], [`ConcurrencyLimit::busy`] or
/// [`ConcurrencyLimit::release`].
pub(super) struct Permit {
    begun: Instant,
}

impl ConcurrencyLimit {
    /// Waits for the sending threads. A panic of a thread, which the thread has already printed, counts as a failure of
    /// the run.
    pub(super) fn join(&self, workers: Vec<ScopedJoinHandle<'_, ()>>) {
        for worker in workers {
            if worker.join().is_err() {
                self.fail(CliError::Incomplete("a sending thread failed".into()));
            }
        }
    }

    /// Creates a limit of `maximum` batches in flight.
    pub(super) fn new(maximum: usize) -> Self {
        Self {
            state: Mutex::new(State {
                allowed: maximum as f64,
                in_flight: 0,
                not_before: None,
                slowed: None,
                failure: None,
                has_failed: false,
            }),
            changed: Condvar::new(),
            maximum,
            stopped: Arc::default(),
        }
    }

    /// Waits for a permit. Returns `None` if the run has failed.
    pub(super) fn acquire(&self) -> Option<Permit> {
        let mut state = self.lock();
        loop {
            if state.has_failed {
                return None;
            }
            let now = Instant::now();
            let wait = state
                .not_before
                .and_then(|until| until.checked_duration_since(now));
            let is_free = (state.in_flight as f64) < state.allowed.max(1.0).floor();
            match wait {
                Some(wait) if !wait.is_zero() => {
                    let waited = self.changed.wait_timeout(state, wait);
                    state = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
                _ if is_free => {
                    state.in_flight += 1;
                    return Some(Permit { begun: now });
                }
                _ => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// Releases the permit of a stored batch. Raises the limit unless the limit was halved while the batch was in
    /// flight.
    pub(super) fn stored(&self, permit: &Permit) {
        let mut state = self.lock();
        if state.slowed.is_none_or(|slowed| slowed < permit.begun) {
            state.allowed = (state.allowed + 1.0 / state.allowed).min(self.maximum as f64);
        }
        self.end(state);
    }

    /// Releases the permit of a batch that must be sent again, lowers the limit and pauses sending. Batches that were
    /// sent at the same time lower the limit only once. `tries` is the number of earlier failed tries, `retry_after`
    /// the time that the server requested.
    pub(super) fn busy(&self, permit: &Permit, tries: u32, retry_after: Option<Duration>) {
        let mut state = self.lock();
        if state.slowed.is_none_or(|slowed| slowed < permit.begun) {
            state.allowed = (state.allowed / 2.0).max(1.0);
            state.slowed = Some(Instant::now());
        }
        let wait = retry_after.unwrap_or_else(|| FIRST_WAIT.saturating_mul(1 << tries.min(8)));
        let until = Instant::now() + wait.min(WAIT_MAX);
        state.not_before = Some(state.not_before.map_or(until, |before| before.max(until)));
        self.end(state);
    }

    /// Releases the permit of a batch whose result does not depend on the server's load.
    pub(super) fn release(&self, _turn: &Permit) {
        self.end(self.lock());
    }

    /// Ends the run. Only the first failure is kept.
    pub(super) fn fail(&self, failure: CliError) {
        let mut state = self.lock();
        if !state.has_failed {
            state.has_failed = true;
            state.failure = Some(failure);
        }
        drop(state);
        self.stopped.store(true, Ordering::Release);
        self.changed.notify_all();
    }

    /// Returns the flag that is set when the run has failed.
    pub(super) fn stopped(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stopped)
    }

    /// Takes the failure of the run; `None` if the run has not failed, or if the failure was taken before.
    pub(super) fn failure(&self) -> Option<CliError> {
        self.lock().failure.take()
    }

    fn end(&self, mut state: MutexGuard<'_, State>) {
        state.in_flight = state.in_flight.saturating_sub(1);
        drop(state);
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_server_gets_fewer_at_once_and_then_more_again() {
        let limit = ConcurrencyLimit::new(8);
        let permits: Vec<Permit> = (0..8).map(|_| limit.acquire().expect("free")).collect();
        for permit in &permits {
            limit.busy(permit, 0, Some(Duration::from_millis(20)));
        }
        assert_eq!(
            limit.lock().allowed,
            4.0,
            "halved once for all that were sent together"
        );
        let begun = Instant::now();
        let permit = limit.acquire().expect("after the wait");
        assert!(
            begun.elapsed() >= Duration::from_millis(15),
            "as long as the server requests"
        );
        limit.stored(&permit);
        for _ in 0..100 {
            let permit = limit.acquire().expect("free");
            limit.stored(&permit);
        }
        assert_eq!(limit.lock().allowed, 8.0);
    }

    #[test]
    fn a_failure_wakes_those_who_wait() {
        let limit = ConcurrencyLimit::new(1);
        let permit = limit.acquire().expect("free");
        limit.busy(&permit, 0, Some(Duration::from_secs(30)));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| limit.acquire().is_none());
            limit.fail(CliError::Incomplete("first".into()));
            limit.fail(CliError::Incomplete("second".into()));
            assert!(waiting.join().expect("it ends"));
        });
        assert_eq!(limit.failure().expect("it failed").to_string(), "first");
    }
}

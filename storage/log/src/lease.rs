//! The lease of the shard: the time until which this process may serve the shard, and the stamps that it may use.
//!
//! A backend inside this process grants a lease that holds until the backend is closed. A backend that other processes
//! can reach grants a lease for a limited time, and a thread renews it in time. If renewals fail until the lease has
//! expired, reads and writes are refused until a renewal succeeds. If the shard has a newer owner, they are refused
//! permanently. The lease is checked again after the backend has acknowledged an append, before the reply to the
//! writer: a newer owner may have replayed the journal without the appended entries.
//!
//! A process whose lease is limited in time gives up the shard when an append has an unknown outcome: the entries of
//! the append may be in the journal without being applied. If the process continued, it could accept a repeated message
//! or a conditional write that contradicts these entries, and the next replay would apply both. The next owner, usually
//! the same process, decides by its replay which entries exist.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crossbeam_channel::{RecvTimeoutError, Sender, bounded};
use parking_lot::{Condvar, Mutex};
use tideline_backend::{Backend, BackendError, Epoch, ErrorKind, Lease, Stamp};
use tideline_model::Clock;
use tideline_runtime::{SupervisedThread, Supervisor};

use crate::error::{LogError, Result};
use crate::log::{Log, SHARD};

/// Name of the thread.
const THREAD: &str = "lease";
/// Divisor of the lease time. Renewals happen at intervals of a quarter of the lease, so the lease survives two
/// failures in a row.
const RENEWED_AFTER: u32 = 4;
/// Value of `holds_until` of a lease without an end.
const FOR_EVER: u64 = u64::MAX;

/// State of this process's lease.
pub(crate) struct Ownership {
    pub(crate) epoch: Epoch,
    /// Lowest stamp that may be used.
    pub(crate) stamp_min: Stamp,
    clock: Arc<dyn Clock>,
    /// Monotonic time, in nanoseconds, until which the lease holds.
    holds_until: AtomicU64,
    stamp_max: AtomicU64,
    /// Reason why the shard is lost; unset while the shard is not lost.
    lost: OnceLock<String>,
    /// Listener that is called when the shard is lost.
    on_loss: OnceLock<Box<dyn Fn() + Send + Sync>>,
    /// Held while the state changes.
    changing: Mutex<()>,
    /// Notified when the lease is renewed or lost.
    changed: Condvar,
}

impl Ownership {
    /// Creates the state of a lease. `sent` is the monotonic time before the call that took the lease.
    pub(crate) fn new(lease: &Lease, sent: Duration, clock: Arc<dyn Clock>) -> Self {
        let ownership = Self {
            epoch: lease.epoch,
            stamp_min: lease.stamp_min,
            clock,
            holds_until: AtomicU64::new(FOR_EVER),
            stamp_max: AtomicU64::new(lease.stamp_max.0),
            lost: OnceLock::new(),
            on_loss: OnceLock::new(),
            changing: Mutex::new(()),
            changed: Condvar::new(),
        };
        ownership.renewed(lease, sent);
        ownership
    }

    /// Extends the lease after a successful renewal that was sent at monotonic time `sent`, unless the shard is lost.
    fn renewed(&self, lease: &Lease, sent: Duration) {
        let until = lease.holds.map_or(FOR_EVER, |holds| nanos(sent + holds));
        self.stamp_max.fetch_max(lease.stamp_max.0, Ordering::Relaxed);
        let _changing = self.changing.lock();
        if self.lost.get().is_none() {
            self.holds_until.store(until, Ordering::Release);
        }
        self.changed.notify_all();
    }

    /// Marks the shard as lost: it has a newer owner, or this process must take it again.
    pub(crate) fn lose(&self, reason: &str) {
        if self.lost.set(reason.to_owned()).is_ok() {
            tracing::error!(
                epoch = self.epoch.0,
                reason,
                "this process stopped serving the data"
            );
        }
        {
            let _changing = self.changing.lock();
            self.holds_until.store(0, Ordering::Release);
            self.changed.notify_all();
        }
        if let Some(on_loss) = self.on_loss.get() {
            on_loss();
        }
    }

    /// Sets the listener that is called when the shard is lost. Only the first call has an effect.
    pub(crate) fn on_loss(&self, listener: impl Fn() + Send + Sync + 'static) {
        let _first_stays = self.on_loss.set(Box::new(listener));
    }

    /// Returns an error unless the lease holds now. Costs one atomic load if the lease has no end.
    pub(crate) fn check(&self) -> Result<()> {
        let until = self.holds_until.load(Ordering::Acquire);
        if until == FOR_EVER || nanos(self.clock.monotonic()) < until {
            return Ok(());
        }
        Err(match self.lost.get() {
            Some(reason) => LogError::LeaseLost {
                reason: reason.clone(),
            },
            None => LogError::LeaseExpired,
        })
    }

    /// Returns true if the lease is limited in time.
    pub(crate) fn is_limited(&self) -> bool {
        self.holds_until.load(Ordering::Acquire) != FOR_EVER
    }

    /// Waits until an expired lease is renewed or lost, at most for `patience`. Returns an error if the lease does not
    /// hold afterwards.
    pub(crate) fn wait_for_renewal(&self, patience: Duration) -> Result<()> {
        if self.check().is_ok() {
            return Ok(());
        }
        let deadline = Instant::now() + patience;
        let mut changing = self.changing.lock();
        loop {
            let checked = self.check();
            let is_expired = matches!(checked, Err(LogError::LeaseExpired));
            if !is_expired || self.changed.wait_until(&mut changing, deadline).timed_out() {
                return checked;
            }
        }
    }

    /// Returns the highest stamp that may be used now.
    pub(crate) fn stamp_max(&self) -> Stamp {
        Stamp(self.stamp_max.load(Ordering::Relaxed))
    }

    /// Renews the lease if `error` indicates that this process may no longer be the owner.
    pub(crate) fn check_error(&self, error: &BackendError, backend: &dyn Backend) {
        if error.kind() == ErrorKind::Refused {
            self.renew(backend);
        }
    }

    /// Renews the lease. Returns false if the shard has a newer owner, true otherwise, even if the renewal failed.
    pub(crate) fn renew(&self, backend: &dyn Backend) -> bool {
        let sent = self.clock.monotonic();
        match backend.renew(SHARD, self.epoch) {
            Ok(lease) => {
                self.renewed(&lease, sent);
                true
            }
            Err(error) if error.kind() == ErrorKind::Refused => {
                self.lose(&error.to_string());
                false
            }
            Err(error) => {
                tracing::warn!(%error, "the lease could not be renewed; the renewal is retried");
                true
            }
        }
    }
}

impl fmt::Debug for Ownership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ownership")
            .field("epoch", &self.epoch)
            .field("lost", &self.lost)
            .finish_non_exhaustive()
    }
}

/// Converts a duration to nanoseconds; 64 bits suffice for centuries.
fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(FOR_EVER - 1)
}

/// Thread that renews a lease of limited time.
#[derive(Debug)]
pub(crate) struct Renewer {
    stop: Sender<()>,
    thread: SupervisedThread,
}

impl Renewer {
    /// Starts the thread for a lease; `None` if the lease has no end.
    pub(crate) fn of(
        lease: &Lease,
        ownership: &Arc<Ownership>,
        backend: Arc<dyn Backend>,
        supervisor: &Supervisor,
    ) -> Option<Self> {
        let start = |holds| Self::start(backend, Arc::clone(ownership), supervisor, holds);
        lease.holds.map(start)
    }

    /// Starts the thread. `holds` is the time for which each lease holds.
    fn start(
        backend: Arc<dyn Backend>,
        ownership: Arc<Ownership>,
        supervisor: &Supervisor,
        holds: Duration,
    ) -> Self {
        let (stop, stopped) = bounded(1);
        let renew = move || {
            while stopped.recv_timeout(holds / RENEWED_AFTER) == Err(RecvTimeoutError::Timeout) {
                if !ownership.renew(backend.as_ref()) {
                    return;
                }
            }
        };
        let thread = supervisor.spawn(THREAD, renew);
        let thread = thread.expect("the system has a thread left at start");
        Self { stop, thread }
    }

    /// Ends the thread. May be called repeatedly.
    pub(crate) fn stop(&self) {
        // Fails if the thread has already ended or a stop is already pending.
        let _ = self.stop.try_send(());
        self.thread.join();
    }
}

impl Log {
    /// Returns true if the shard has a newer owner.
    pub fn is_lease_lost(&self) -> bool {
        self.ownership.lost.get().is_some()
    }

    /// Returns an error if this process does not own the shard now. Its reads may then be outdated, and a newer owner
    /// may lack the data that it writes.
    ///
    /// # Errors
    ///
    /// [`LogError::LeaseExpired`] until an expired lease is renewed; [`LogError::LeaseLost`], permanently, if there is
    /// a newer owner.
    pub fn check_lease(&self) -> Result<()> {
        self.ownership.check()
    }

    /// Returns true if the lease is limited in time. The last writes of an earlier owner may then still take effect
    /// after this process has taken the shard. Otherwise, every earlier owner has ended, and so have its writes.
    pub fn has_limited_lease(&self) -> bool {
        self.ownership.is_limited()
    }

    /// Marks the lease as lost, permanently. Must be called before the backend is closed while appends may still run:
    /// even if the backend acknowledges them, their writers get an error, because the next owner may have closed the
    /// journal without their entries.
    pub fn end_lease(&self, reason: &str) {
        self.ownership.lose(reason);
    }
}

impl Drop for Renewer {
    fn drop(&mut self) {
        self.stop();
    }
}

//! The lease of the shard: until when this process may serve it, and which stamps it may give.
//!
//! A backend in this process gives a lease for as long as it is open. One that other processes reach too gives it for a
//! while: a thread renews it in time. Where that fails until the lease has run out, nothing is read or written until a
//! renewal succeeds; once the shard has a newer owner, for ever. Whoever answers a write looks at the lease after the
//! backend has acknowledged it: a newer owner may not have found it.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crossbeam_channel::{RecvTimeoutError, Sender, bounded};
use tideline_backend::{Backend, BackendError, Epoch, ErrorKind, Lease, Stamp};
use tideline_model::Clock;
use tideline_runtime::{SupervisedThread, Supervisor};

use crate::error::{LogError, Result};
use crate::log::{Log, SHARD};

/// Name of the thread.
const THREAD: &str = "lease";
/// A lease is renewed after this part of the time that it holds: two failures in a row do no harm.
const RENEWED_AFTER: u32 = 4;
/// A lease without an end.
const FOR_EVER: u64 = u64::MAX;

/// What this process knows of its lease.
pub(crate) struct Ownership {
    pub(crate) epoch: Epoch,
    /// The lowest stamp that may be given.
    pub(crate) stamp_min: Stamp,
    clock: Arc<dyn Clock>,
    /// The monotonic time, in nanoseconds, until which it holds.
    holds_until: AtomicU64,
    stamp_max: AtomicU64,
    /// Why the shard is lost, once it is.
    lost: OnceLock<String>,
    /// Called when it is.
    on_loss: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl Ownership {
    /// `sent` is the monotonic time before the call that took it.
    pub(crate) fn new(lease: &Lease, sent: Duration, clock: Arc<dyn Clock>) -> Self {
        let ownership = Self {
            epoch: lease.epoch,
            stamp_min: lease.stamp_min,
            clock,
            holds_until: AtomicU64::new(FOR_EVER),
            stamp_max: AtomicU64::new(lease.stamp_max.0),
            lost: OnceLock::new(),
            on_loss: OnceLock::new(),
        };
        ownership.renewed(lease, sent);
        ownership
    }

    /// A renewal has succeeded that was sent at this monotonic time.
    fn renewed(&self, lease: &Lease, sent: Duration) {
        let until = lease.holds.map_or(FOR_EVER, |holds| nanos(sent + holds));
        self.stamp_max.fetch_max(lease.stamp_max.0, Ordering::Relaxed);
        if self.lost.get().is_none() {
            self.holds_until.store(until, Ordering::Release);
        }
    }

    /// The shard has a newer owner.
    pub(crate) fn lose(&self, reason: &str) {
        if self.lost.set(reason.to_owned()).is_ok() {
            tracing::error!(
                epoch = self.epoch.0,
                reason,
                "another process owns the data: this one serves it no more"
            );
        }
        self.holds_until.store(0, Ordering::Release);
        if let Some(on_loss) = self.on_loss.get() {
            on_loss();
        }
    }

    /// Has `listener` called when the shard is lost. The first one stays.
    pub(crate) fn on_loss(&self, listener: impl Fn() + Send + Sync + 'static) {
        let _first_stays = self.on_loss.set(Box::new(listener));
    }

    /// Refuses to go on without a lease that holds now. Costs a load where leases have no end.
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

    /// The highest stamp that may be given now.
    pub(crate) fn stamp_max(&self) -> Stamp {
        Stamp(self.stamp_max.load(Ordering::Relaxed))
    }

    /// Looks into the error of a call that only the owner may make: whether it is still this process.
    pub(crate) fn look_into(&self, error: &BackendError, backend: &dyn Backend) {
        if error.kind() == ErrorKind::Refused {
            self.renew(backend);
        }
    }

    /// Renews the lease; false where the shard has a newer owner.
    fn renew(&self, backend: &dyn Backend) -> bool {
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
                tracing::warn!(%error, "the lease could not be renewed; it is tried again");
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

/// Nanoseconds, which last for centuries.
fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(FOR_EVER - 1)
}

/// The thread that renews a lease which holds for a while.
#[derive(Debug)]
pub(crate) struct Renewer {
    stop: Sender<()>,
    thread: SupervisedThread,
}

impl Renewer {
    /// Starts the thread; `holds` is how long each lease holds.
    pub(crate) fn start(
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

    /// Ends the thread. Repeatable.
    pub(crate) fn stop(&self) {
        // Fails where the thread has ended already, or was told to.
        let _ = self.stop.try_send(());
        self.thread.join();
    }
}

impl Log {
    /// Refuses to go on where this process does not own the shard now: what it reads may be old, and what it writes may be
    /// found by nobody.
    ///
    /// # Errors
    ///
    /// [`LogError::LeaseExpired`] until the lease is renewed, [`LogError::LeaseLost`] for ever.
    pub fn check_lease(&self) -> Result<()> {
        self.ownership.check()
    }
}

impl Drop for Renewer {
    fn drop(&mut self) {
        self.stop();
    }
}

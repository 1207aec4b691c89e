//! Strictly increasing stamps for rows that are changed in place.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tideline_backend::{BackendError, Result, Stamp};
use tideline_model::Clock;

use crate::error::LogError;
use crate::lease::Ownership;

/// Retry delay that is reported if the lease has expired, or does not cover the next stamp yet.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Only source of stamps of a shard: wall-clock microseconds, strictly increasing, within the bounds of the lease.
#[derive(Debug)]
pub struct Stamps {
    last: AtomicU64,
    clock: Arc<dyn Clock>,
    ownership: Arc<Ownership>,
}

impl Stamps {
    /// Creates a source of stamps that are not below the lowest stamp of the lease.
    pub(crate) fn new(clock: Arc<dyn Clock>, ownership: Arc<Ownership>) -> Self {
        Self {
            last: AtomicU64::new(ownership.stamp_min.0.saturating_sub(1)),
            clock,
            ownership,
        }
    }

    /// Returns the next stamp. The lease is checked, because without it a newer owner may already change the rows that
    /// the stamp is for.
    ///
    /// # Errors
    ///
    /// `Unavailable` if the lease has expired, or covers no higher stamp until it is renewed; `Refused` if the lease is
    /// lost.
    pub fn next(&self) -> Result<Stamp> {
        self.ownership.check().map_err(|error| {
            let reason = error.to_string();
            match error {
                LogError::LeaseLost { .. } => BackendError::Refused { reason },
                _ => BackendError::Unavailable {
                    reason,
                    retry_after: RETRY_AFTER,
                },
            }
        })?;
        let max = self.ownership.stamp_max().0;
        // A wall clock above the highest stamp of the lease is ignored.
        let wall = u64::try_from(self.clock.now().nanos() / 1_000).unwrap_or(0);
        let wall = if wall <= max { wall } else { 0 };
        let mut next = 0;
        let given = self
            .last
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| {
                next = wall.max(last.checked_add(1)?);
                (next <= max).then_some(next)
            });
        given.map_err(|last| BackendError::Unavailable {
            reason: format!("the lease covers stamps up to {max}; the last one issued is {last}"),
            retry_after: RETRY_AFTER,
        })?;
        Ok(Stamp(next))
    }
}

#[cfg(test)]
mod tests {
    use tideline_backend::{Epoch, ErrorKind, Lease};
    use tideline_model::{ManualClock, Timestamp};

    use super::*;

    #[test]
    fn a_lease_that_does_not_hold_gives_no_stamp() {
        let clock = ManualClock::new(Timestamp::from_nanos_clamped(0));
        let lease = Lease {
            epoch: Epoch(1),
            stamp_min: Stamp(10),
            stamp_max: Stamp(u64::MAX),
            holds: Some(Duration::from_nanos(5)),
        };
        let ownership = Ownership::new(&lease, Duration::ZERO, Arc::new(clock.clone()));
        let ownership = Arc::new(ownership);
        let stamps = Stamps::new(Arc::new(clock.clone()), Arc::clone(&ownership));
        assert_eq!(stamps.next().expect("the lease holds"), Stamp(10));
        clock.advance(5);
        let expired = stamps.next().expect_err("the lease has expired");
        assert_eq!(expired.kind(), ErrorKind::Unavailable);
        ownership.lose("another process owns the shard");
        let lost = stamps.next().expect_err("the lease is lost");
        assert_eq!(lost.kind(), ErrorKind::Refused);
    }
}

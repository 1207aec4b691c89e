//! Strictly increasing stamps for rows that are changed in place.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tideline_backend::{BackendError, Result, Stamp};
use tideline_model::Clock;

use crate::lease::Ownership;

/// Retry delay that is reported if the lease does not cover the next stamp yet.
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

    /// Returns the next stamp.
    ///
    /// # Errors
    ///
    /// `Unavailable` if the lease covers no higher stamp until it is renewed.
    pub fn next(&self) -> Result<Stamp> {
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

//! The time that requests go by: the wall clock as far as it can be trusted.
//!
//! A server whose clock is wrong still takes points that bear a time. It gives none its own, refuses none for good because
//! of it, and resolves `now-1h` by the trusted time.

pub use tideline_log::{ClockDoubt, StoredClock, TrustedClock, TrustedNow};
use tideline_model::Timestamp;

use crate::engine::Engine;
use crate::error::{EngineError, Result};

/// The moments that a write may take for now.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WriteClock {
    pub(crate) earliest: i64,
    pub(crate) latest: i64,
    /// Whether it may be another moment: then what is out of bounds may be within.
    pub(crate) is_in_doubt: bool,
}

impl Engine {
    /// The time of arrival, for points without a time; `None` while the clock is in doubt.
    pub fn arrival_time(&self) -> Option<Timestamp> {
        let trusts_wall = self.store.trusted_now().trusts_wall();
        trusts_wall.then(|| self.clock.now())
    }

    /// The time of arrival, for a request that cannot be done without.
    pub fn need_arrival_time(&self) -> Result<Timestamp> {
        self.arrival_time().ok_or(EngineError::ClockInDoubt)
    }

    /// The time that relative times of a request count from.
    pub fn now(&self) -> Timestamp {
        let trusted = self.store.trusted_now();
        match trusted.trusts_wall() {
            true => self.clock.now(),
            false => trusted.now,
        }
    }

    /// Both clocks. A point within the bounds by either is taken: the trusted one is behind after a long stop, and the
    /// other one may be wrong.
    pub(crate) fn write_clock(&self) -> WriteClock {
        let trusted = self.store.trusted_now();
        let (wall, trusted_now) = (self.clock.now().nanos(), trusted.now.nanos());
        WriteClock {
            earliest: wall.min(trusted_now),
            latest: wall.max(trusted_now),
            is_in_doubt: trusted.doubt.is_some(),
        }
    }
}

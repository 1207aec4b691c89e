//! Time of requests: the wall clock, as far as it can be trusted.
//!
//! A server with a wrong clock still accepts points that have a timestamp. It assigns no timestamps, refuses no point
//! permanently because of the clock, and resolves relative times such as `now-1h` by the trusted time.

pub use tideline_log::{ClockDoubt, StoredClock, TrustedClock, TrustedNow};
use tideline_model::Timestamp;

use crate::engine::Engine;
use crate::error::{EngineError, Result};

/// Earliest and latest possible current time of a write.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WriteClock {
    pub(crate) earliest: i64,
    pub(crate) latest: i64,
    /// True if the current time may be outside this range. A point out of bounds may be valid then.
    pub(crate) is_in_doubt: bool,
}

impl Engine {
    /// Returns the arrival time, for points without a timestamp; `None` while the clock is in doubt.
    pub fn arrival_time(&self) -> Option<Timestamp> {
        let trusts_wall = self.store.trusted_now().trusts_wall();
        trusts_wall.then(|| self.clock.now())
    }

    /// Returns the arrival time, for a request that requires it.
    ///
    /// # Errors
    ///
    /// Returns [`EngineError::ClockInDoubt`] while the clock is in doubt.
    pub fn need_arrival_time(&self) -> Result<Timestamp> {
        self.arrival_time().ok_or(EngineError::ClockInDoubt)
    }

    /// Returns the time to which relative times in a request refer.
    pub fn now(&self) -> Timestamp {
        let trusted = self.store.trusted_now();
        match trusted.trusts_wall() {
            true => self.clock.now(),
            false => trusted.now,
        }
    }

    /// Returns the range from the earlier to the later of the trusted and the wall clock. A point within the bounds of
    /// either clock is accepted: the trusted clock is late after a long stop, and the wall clock may be wrong.
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

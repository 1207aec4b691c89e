//! Rising stamps for rows that are changed in place.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tideline_backend::Stamp;
use tideline_model::Clock;

/// Gives rising stamps for rows that are changed in place: wall-clock microseconds, never twice the same.
#[derive(Debug)]
pub struct Stamps {
    last: AtomicU64,
    clock: Arc<dyn Clock>,
}

impl Stamps {
    /// Stamps after now.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            last: AtomicU64::new(0),
            clock,
        }
    }

    /// The next stamp.
    pub fn next(&self) -> Stamp {
        let now = u64::try_from(self.clock.now().nanos() / 1_000).unwrap_or(0);
        let bump = |last: u64| Some(now.max(last + 1));
        let last = self
            .last
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, bump)
            .unwrap_or_else(|last| last);
        Stamp(now.max(last + 1))
    }
}

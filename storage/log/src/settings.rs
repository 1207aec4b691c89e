//! What can be set about the log.

use std::time::Duration;

use tideline_model::Timestamp;
use tideline_runtime::Supervisor;

/// Settings of a [`Log`](crate::Log).
#[derive(Debug, Clone)]
pub struct LogSettings {
    /// Bytes of encoded entries that may wait for the committer. Beyond it a write is refused as overload.
    pub pending_bytes_max: usize,
    /// Bytes after which the committer stops gathering and writes what it has.
    pub group_bytes_max: usize,
    /// Outcomes of requests with an idempotency key that are remembered, oldest dropped first.
    pub requests_max: usize,
    /// How long such an outcome is remembered.
    pub request_ttl: Duration,
    /// Bytes of the newest journal entries that are kept in memory for those who watch.
    pub tail_bytes_max: usize,
    /// No right clock shows a time before it: a first start, which has nothing to compare the clock with, believes none that
    /// does.
    pub clock_floor: Timestamp,
    /// Starts the threads of the log, and records whether one of them has panicked.
    pub supervisor: Supervisor,
}

impl Default for LogSettings {
    fn default() -> Self {
        Self {
            pending_bytes_max: 64 << 20,
            group_bytes_max: 8 << 20,
            requests_max: 100_000,
            request_ttl: Duration::from_secs(24 * 3_600),
            tail_bytes_max: 16 << 20,
            clock_floor: Timestamp::MIN,
            supervisor: Supervisor::default(),
        }
    }
}

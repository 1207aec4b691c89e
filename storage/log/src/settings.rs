//! Settings of the log.

use std::time::Duration;

use tideline_model::Timestamp;
use tideline_runtime::Supervisor;

/// Settings of a [`Log`](crate::Log).
#[derive(Debug, Clone)]
pub struct LogSettings {
    /// Maximum bytes of encoded entries that wait for the committer. Further writes are refused as overload. An entry
    /// above this limit is accepted if no other entry waits.
    pub pending_bytes_max: usize,
    /// Group size in bytes at which the committer stops collecting entries and writes the group.
    pub group_bytes_max: usize,
    /// Maximum number of remembered outcomes of requests with an idempotency key. The oldest are evicted first.
    /// Outcomes are also evicted if all outcomes together exceed 128 MiB.
    pub requests_max: usize,
    /// Time for which the outcome of a request is remembered.
    pub request_ttl: Duration,
    /// Maximum bytes of the newest journal entries that are kept in memory for watches.
    pub tail_bytes_max: usize,
    /// Earliest time that a correct clock can show. A first start has no stored time to compare the clock with, so
    /// a clock that is before this time is not trusted.
    pub clock_floor: Timestamp,
    /// Longest wait of an acknowledged append for the renewal of a lease that expired during the append. After this
    /// time, the process gives up the shard.
    pub renewal_patience: Duration,
    /// Supervisor that starts the threads of the log, and records a panic of any of them.
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
            renewal_patience: Duration::from_secs(10),
            supervisor: Supervisor::default(),
        }
    }
}

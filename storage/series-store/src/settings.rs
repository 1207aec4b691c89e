//! What can be set about the store: plain values with unit and default.

use std::sync::Arc;
use std::time::Duration;

use tideline_archive::Archive;
use tideline_model::time::NANOS_PER_SECOND;
use tideline_model::{Supervisor, Timestamp};

use crate::head::HeadBudget;

/// Settings of a [`SeriesStore`](crate::SeriesStore).
#[derive(Debug, Clone)]
pub struct Settings {
    /// Memory for unsealed points, at which they are sealed.
    pub head: HeadBudget,
    /// Age of the oldest unsealed point at which the head is frozen whatever its size: bounds the journal
    /// that a restart has to replay.
    pub head_age_max: Duration,
    /// Bytes of decoded batches that may wait for the committer. Beyond it a write is refused as overload.
    pub pending_bytes_max: usize,
    /// Bytes after which the committer stops gathering and writes what it has.
    pub group_bytes_max: usize,
    /// Width of the narrowest window, in nanoseconds; windows are aligned to the epoch and double from here.
    pub window_nanos: i64,
    /// Most windows of each tier that one seal writes; beyond it neighbours are joined into wider ones.
    pub windows_per_seal_max: usize,
    /// Outcomes of requests with an idempotency key that are remembered, oldest dropped first.
    pub requests_max: usize,
    /// How long such an outcome is remembered.
    pub request_ttl: Duration,
    /// Bytes of the newest journal entries that are kept in memory for those who watch.
    pub tail_bytes_max: usize,
    /// No right clock shows a time before it: a first start, which has nothing to compare the clock with, believes none that
    /// does.
    pub clock_floor: Timestamp,
    /// Where archived points are; without it none can be read or written.
    pub archive: Option<Arc<Archive>>,
    /// Open although the catalog or the schema lacks rows that segments need. Their numbers are not given out again.
    pub accept_loss: bool,
    /// Starts the threads of the store, and records whether one of them has panicked.
    pub supervisor: Supervisor,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            head: HeadBudget::default(),
            head_age_max: Duration::from_secs(2 * 3_600),
            pending_bytes_max: 64 << 20,
            group_bytes_max: 8 << 20,
            window_nanos: 3 * 3_600 * NANOS_PER_SECOND,
            windows_per_seal_max: 24,
            requests_max: 100_000,
            request_ttl: Duration::from_secs(24 * 3_600),
            tail_bytes_max: 16 << 20,
            clock_floor: Timestamp::MIN,
            archive: None,
            accept_loss: false,
            supervisor: Supervisor::default(),
        }
    }
}

//! What can be set about the store: plain values with unit and default.

use std::sync::Arc;
use std::time::Duration;

use tideline_archive::Archive;
use tideline_log::LogSettings;
use tideline_model::time::NANOS_PER_SECOND;

use crate::head::HeadBudget;

/// Settings of a [`SeriesStore`](crate::SeriesStore).
#[derive(Debug, Clone)]
pub struct Settings {
    /// The log.
    pub log: LogSettings,
    /// Memory for unsealed points, at which they are sealed.
    pub head: HeadBudget,
    /// Age of the oldest unsealed point at which the head is frozen whatever its size: bounds the journal
    /// that a restart has to replay.
    pub head_age_max: Duration,
    /// Width of the narrowest window, in nanoseconds; windows are aligned to the epoch and double from here.
    pub window_nanos: i64,
    /// Bytes of a bucket of a segment, at least, where it has several: a bucket has up to twice as many.
    pub bucket_bytes: u64,
    /// Most windows of each tier that one seal writes; beyond it neighbours are joined into wider ones.
    pub windows_per_seal_max: usize,
    /// Where archived points are; without it none can be read or written.
    pub archive: Option<Arc<Archive>>,
    /// Open although the catalog or the schema lacks rows that segments need. Their numbers are not given out again.
    pub accept_loss: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            log: LogSettings::default(),
            head: HeadBudget::default(),
            head_age_max: Duration::from_secs(2 * 3_600),
            window_nanos: 3 * 3_600 * NANOS_PER_SECOND,
            bucket_bytes: 32 << 20,
            windows_per_seal_max: 24,
            archive: None,
            accept_loss: false,
        }
    }
}

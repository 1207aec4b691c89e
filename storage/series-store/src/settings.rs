//! Settings of the store: plain values with unit and default.

use std::sync::Arc;
use std::time::Duration;

use tideline_archive::Archive;
use tideline_log::LogSettings;
use tideline_model::time::NANOS_PER_SECOND;

use crate::head::HeadBudget;

/// Settings of a [`SeriesStore`](crate::SeriesStore).
#[derive(Debug, Clone)]
pub struct Settings {
    /// Settings of the log.
    pub log: LogSettings,
    /// Memory budget of unsealed points, which are sealed when the budget is reached.
    pub head: HeadBudget,
    /// Time since the creation of the active head after which it is frozen, regardless of its size. An empty head is
    /// not frozen, and no head is frozen for its age while another head is being sealed. Limits the journal that a
    /// restart has to replay.
    pub head_age_max: Duration,
    /// Width of the narrowest window in nanoseconds. Windows are aligned to the epoch; each level doubles the width.
    pub window_nanos: i64,
    /// Minimum average size of the buckets of a segment in bytes. The average is less than twice this size, unless
    /// the number of buckets is at its maximum. A segment of less than twice this size has one bucket.
    pub bucket_bytes: u64,
    /// Approximate maximum number of windows that one seal writes per table and age range (see
    /// [`choose_tiers`](crate::window::choose_tiers)). Beyond it, neighboring windows are merged into wider ones.
    pub windows_per_seal_max: usize,
    /// Archive for archived points. Without it, archived points can be neither read nor written.
    pub archive: Option<Arc<Archive>>,
    /// True to open the store although the catalog or the schema lacks rows that segments need. The numbers of lost
    /// fields are not assigned again.
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

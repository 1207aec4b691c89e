//! What background work needs of the database, and nothing more: the runner is tried against a fake of it.

use std::sync::Arc;

use bytes::Bytes;
use tideline_model::{Clock, SegmentId, TableId, TrustedNow};
use tideline_series_store::{Evicted, Pace, Rewrite, Rewritten, SealReport, StoreError, Unsealed};

use crate::plan::Facts;

/// The database as the runner sees it. Calls block.
pub trait Work: Send + Sync + 'static {
    /// What there is now.
    fn facts(&self) -> Facts;

    /// Returns the facts, with the unsealed points of a table before each of the timestamps that `before` returns for
    /// it, all of one moment.
    fn facts_and_unsealed(
        &self,
        table: TableId,
        before: &dyn Fn(&Facts) -> [i64; 4],
    ) -> Result<(Facts, [Unsealed; 4]), WorkError>;

    /// What time it is, as far as it can be trusted.
    fn trusted_now(&self) -> TrustedNow;

    /// Makes one segment of several; asks `pace` every so often whether and how fast to go on. A rewrite that ends
    /// early leaves everything as it was.
    fn rewrite(&self, rewrite: &Rewrite, pace: &mut dyn Pace) -> Result<Rewritten, WorkError>;

    /// Puts files in the place of cold segments that have them already.
    fn evict(&self, table: TableId, segments: &[SegmentId]) -> Result<Evicted, WorkError>;

    /// Drops whole segments; how many there were.
    fn drop_segments(&self, table: TableId, segments: &[SegmentId]) -> Result<u64, WorkError>;

    /// Whether the database is kept as it is, because something acknowledged is missing: then nothing is moved.
    fn is_read_only(&self) -> bool {
        false
    }

    /// Seals everything written so far.
    fn seal(&self) -> Result<(), WorkError>;

    /// Hands out the reports of seals that have ended since the last call, oldest first.
    fn take_seal_reports(&self) -> Vec<SealReport>;

    /// Removes files that a crash or a failure has left at the target of a table's archive; how many.
    fn sweep_archive(&self, table: TableId) -> Result<u64, WorkError>;

    /// Writes the settings of a table to the targets that hold files of it; to how many places.
    fn write_settings(&self, table: TableId) -> Result<u64, WorkError>;

    /// Takes timelines without points out of a table's catalog, and those that are silent for too long `now`; how
    /// many.
    fn clean_catalog(&self, table: TableId, now: TrustedNow) -> Result<u64, WorkError>;

    /// The rows kept about jobs, by name.
    fn job_rows(&self) -> Vec<(Bytes, Bytes)>;

    /// Adds, alters and removes rows about jobs, in one step, durable on return. A row has at most 64 KiB.
    fn edit_job_rows(&self, put: Vec<(Bytes, Bytes)>, remove: Vec<Bytes>) -> Result<(), WorkError>;

    /// Believes the machine's clock from now on.
    fn confirm_clock(&self);

    /// The clock that paces and retries go by.
    fn clock(&self) -> Arc<dyn Clock>;
}

/// Why work was not done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WorkError {
    /// The pace ended it.
    #[error("given up")]
    GivenUp,
    /// What was planned does not fit the store any more; a new plan will.
    #[error("overtaken: {0}")]
    Overtaken(String),
    /// It failed, and may be tried again.
    #[error("{0}")]
    Failed(String),
}

impl From<StoreError> for WorkError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Cancelled => Self::GivenUp,
            StoreError::Interleaved { .. }
            | StoreError::Cut { .. }
            | StoreError::NoCopy(_)
            | StoreError::SegmentGone(_)
            | StoreError::TableDropped(_)
            | StoreError::NoSuchTable(_) => Self::Overtaken(error.to_string()),
            error => Self::Failed(error.to_string()),
        }
    }
}

//! Interface from the scheduler to the database, the same for all table models.

use std::sync::Arc;

use bytes::Bytes;
use tideline_engine::Engine;
use tideline_engine::model::{Clock, TableModel};
use tideline_engine::time::TrustedNow;

use crate::maintenance::WorkError;

/// Operations of the database that the runner uses. Calls block.
pub trait Database: Send + Sync + 'static {
    /// Returns the models that require a registered maintenance.
    fn models(&self) -> &[TableModel];

    /// Returns the trusted time and the state of the clock.
    fn trusted_now(&self) -> TrustedNow;

    /// Returns true while the database must not change, because acknowledged data is missing. No work is done then.
    fn is_read_only(&self) -> bool {
        false
    }

    /// Returns the stored rows about jobs, as pairs of name and content.
    fn job_rows(&self) -> Vec<(Bytes, Bytes)>;

    /// Adds, replaces and removes rows about jobs in one atomic step. The changes are durable on return. A row has at
    /// most 64 KiB.
    ///
    /// # Errors
    ///
    /// Returns an error if the rows cannot be committed.
    fn edit_job_rows(&self, put: Vec<(Bytes, Bytes)>, remove: Vec<Bytes>) -> Result<(), WorkError>;

    /// Accepts the clock of the machine as correct from now on.
    fn confirm_clock(&self);

    /// Returns the clock for throttles and retries.
    fn clock(&self) -> Arc<dyn Clock>;
}

impl Database for Engine {
    fn models(&self) -> &[TableModel] {
        // The maintenance of wide tables also maintains the rows of feed tables.
        &[TableModel::Series, TableModel::Wide]
    }

    fn trusted_now(&self) -> TrustedNow {
        self.store().trusted_now()
    }

    fn is_read_only(&self) -> bool {
        self.store().is_read_only()
    }

    fn job_rows(&self) -> Vec<(Bytes, Bytes)> {
        self.store().job_rows()
    }

    fn edit_job_rows(&self, put: Vec<(Bytes, Bytes)>, remove: Vec<Bytes>) -> Result<(), WorkError> {
        Ok(self.store().edit_job_rows(put, remove)?)
    }

    fn confirm_clock(&self) {
        self.store().confirm_clock();
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(Self::clock(self))
    }
}

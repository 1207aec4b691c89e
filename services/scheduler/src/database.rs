//! What the scheduler needs of the database, whatever the models of its tables.

use std::sync::Arc;

use bytes::Bytes;
use tideline_engine::Engine;
use tideline_engine::model::{Clock, TableModel};
use tideline_engine::time::TrustedNow;

use crate::maintenance::WorkError;

/// The database as the runner sees it. Calls block.
pub trait Database: Send + Sync + 'static {
    /// Models of which tables can be created. Each needs a registered maintenance.
    fn models(&self) -> &[TableModel];

    /// The current time, as far as it can be trusted.
    fn trusted_now(&self) -> TrustedNow;

    /// True while the database is kept as it is, because acknowledged data is missing: then no work is done.
    fn is_read_only(&self) -> bool {
        false
    }

    /// The rows kept about jobs, by name.
    fn job_rows(&self) -> Vec<(Bytes, Bytes)>;

    /// Adds, alters and removes rows about jobs, in one step, durable on return. A row has at most 64 KiB.
    fn edit_job_rows(&self, put: Vec<(Bytes, Bytes)>, remove: Vec<Bytes>) -> Result<(), WorkError>;

    /// Trusts the clock of the machine from now on.
    fn confirm_clock(&self);

    /// The clock that throttles and retries go by.
    fn clock(&self) -> Arc<dyn Clock>;
}

impl Database for Engine {
    fn models(&self) -> &[TableModel] {
        Self::models(self)
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

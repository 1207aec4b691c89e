//! The real database behind [`Work`].

use std::sync::Arc;

use bytes::Bytes;
use tideline_engine::{Engine, EngineError};
use tideline_model::{Clock, SegmentId, TableId, TrustedNow};
use tideline_series_store::{Evicted, Pace, Rewrite, Rewritten, SealReport, Survey, Unsealed};

use crate::plan::Facts;
use crate::work::{Work, WorkError};

impl Work for Engine {
    fn facts(&self) -> Facts {
        if let Err(error) = self.forget_dropped_tables() {
            tracing::warn!(%error, "rows of dropped tables could not be removed; it is tried again");
        }
        Facts::from(&self.store().survey())
    }

    fn facts_and_unsealed(
        &self,
        table: TableId,
        before: &dyn Fn(&Facts) -> [i64; 4],
    ) -> Result<(Facts, [Unsealed; 4]), WorkError> {
        let bounds = |survey: &Survey| before(&Facts::from(survey));
        let (survey, unsealed) = self.store().survey_unsealed(table, bounds)?;
        Ok((Facts::from(&survey), unsealed))
    }

    fn trusted_now(&self) -> TrustedNow {
        self.store().trusted_now()
    }

    fn rewrite(&self, rewrite: &Rewrite, pace: &mut dyn Pace) -> Result<Rewritten, WorkError> {
        Ok(self.store().rewrite(rewrite, pace)?)
    }

    fn evict(&self, table: TableId, segments: &[SegmentId]) -> Result<Evicted, WorkError> {
        Ok(self.store().evict(table, segments)?)
    }

    fn drop_segments(&self, table: TableId, segments: &[SegmentId]) -> Result<u64, WorkError> {
        Ok(self.store().drop_segments(table, segments)?)
    }

    fn is_read_only(&self) -> bool {
        self.store().is_read_only()
    }

    fn seal(&self) -> Result<(), WorkError> {
        Ok(Self::seal(self)?)
    }

    fn take_seal_reports(&self) -> Vec<SealReport> {
        self.store().take_seal_reports()
    }

    fn clean_catalog(&self, table: TableId, now: TrustedNow) -> Result<u64, WorkError> {
        let tables = self.tables();
        let found = tables.iter().find(|found| found.points().id() == table);
        let found = found.ok_or_else(|| WorkError::Overtaken(format!("table {table} was dropped")))?;
        Ok(Self::clean_catalog(self, found, now)?.removed)
    }

    fn sweep_archive(&self, table: TableId) -> Result<u64, WorkError> {
        Ok(self.store().sweep_archive(table)?)
    }

    fn write_settings(&self, table: TableId) -> Result<u64, WorkError> {
        Ok(self.store().write_settings(table)?)
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

impl From<EngineError> for WorkError {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Store(error) => error.into(),
            error => Self::Failed(error.to_string()),
        }
    }
}

//! Interface from the maintenance of series tables to the database.
//!
//! The interface is a trait, so that tests can replace the engine by a fake.

use tideline_engine::model::{SegmentId, TableId, TableModel};
use tideline_engine::moves::{
    Evicted, Rewrite, Rewritten, SealReport, StoreError, Survey as StoreSurvey, TableSurvey, Throttle,
    Unsealed,
};
use tideline_engine::{Engine, EngineError};

use super::plan::Facts;
use crate::maintenance::WorkError;

/// Operations on series tables. Calls block.
pub trait SeriesWork: Send + Sync + 'static {
    /// Returns the facts of all series tables now.
    fn facts(&self) -> Facts;

    /// Returns the facts, and for each timestamp that `before` returns, the counts of the unsealed points of a table
    /// that are older. Facts and counts are of the same moment.
    ///
    /// # Errors
    ///
    /// Returns an error if the unsealed points cannot be read.
    fn facts_and_unsealed(
        &self,
        table: TableId,
        before: &dyn Fn(&Facts) -> [i64; 4],
    ) -> Result<(Facts, [Unsealed; 4]), WorkError>;

    /// Rewrites segments. Calls `throttle` regularly, which throttles or ends the rewrite. A rewrite that ends early
    /// leaves everything unchanged.
    ///
    /// # Errors
    ///
    /// Returns [`WorkError::GivenUp`] if `throttle` ends the rewrite, [`WorkError::Overtaken`] if its inputs have
    /// changed, and [`WorkError::Failed`] otherwise.
    fn rewrite(&self, rewrite: &Rewrite, throttle: &mut dyn Throttle) -> Result<Rewritten, WorkError>;

    /// Replaces cold segments by the files that hold their points already.
    ///
    /// # Errors
    ///
    /// Returns [`WorkError::Overtaken`] if the segments have changed, and [`WorkError::Failed`] otherwise.
    fn evict(&self, table: TableId, segments: &[SegmentId]) -> Result<Evicted, WorkError>;

    /// Drops whole segments. Returns their number.
    ///
    /// # Errors
    ///
    /// Returns [`WorkError::Overtaken`] if the segments have changed, and [`WorkError::Failed`] otherwise.
    fn drop_segments(&self, table: TableId, segments: &[SegmentId]) -> Result<u64, WorkError>;

    /// Seals everything written so far.
    ///
    /// # Errors
    ///
    /// Returns [`WorkError::Failed`] if the seal fails.
    fn seal(&self) -> Result<(), WorkError>;

    /// Returns the reports of seals that ended since the last call, oldest first.
    fn take_seal_reports(&self) -> Vec<SealReport>;

    /// Removes files that a crash or a failure has left at the target of a table's archive. Returns their number.
    ///
    /// # Errors
    ///
    /// Returns an error if the table was dropped or its target cannot be reached.
    fn sweep_archive(&self, table: TableId) -> Result<u64, WorkError>;

    /// Writes the settings of a table to the targets that hold its files. Returns the number of targets written.
    ///
    /// # Errors
    ///
    /// Returns an error if the table was dropped or a target cannot be reached.
    fn write_settings(&self, table: TableId) -> Result<u64, WorkError>;

    /// Removes timelines from a table's catalog: those that have neither visible points nor attributes, and those that
    /// were silent for too long. Returns their number.
    ///
    /// # Errors
    ///
    /// Returns an error if the table was dropped or the catalog cannot be changed.
    fn clean_catalog(&self, table: TableId) -> Result<u64, WorkError>;
}

/// Returns true for a series table.
fn is_series(table: &TableSurvey) -> bool {
    table.table.spec().model == TableModel::Series
}

impl SeriesWork for Engine {
    fn facts(&self) -> Facts {
        if let Err(error) = self.forget_dropped_tables() {
            tracing::warn!(%error, "failed to remove rows of dropped tables; it is retried");
        }
        self.follow_searches();
        let mut survey = self.store().survey();
        survey.tables.retain(is_series);
        Facts::from(&survey)
    }

    fn facts_and_unsealed(
        &self,
        table: TableId,
        before: &dyn Fn(&Facts) -> [i64; 4],
    ) -> Result<(Facts, [Unsealed; 4]), WorkError> {
        let bounds = |survey: &StoreSurvey| before(&Facts::from(survey));
        let (mut survey, unsealed) = self.store().survey_unsealed(table, bounds)?;
        survey.tables.retain(is_series);
        Ok((Facts::from(&survey), unsealed))
    }

    fn rewrite(&self, rewrite: &Rewrite, throttle: &mut dyn Throttle) -> Result<Rewritten, WorkError> {
        Ok(self.store().rewrite(rewrite, throttle)?)
    }

    fn evict(&self, table: TableId, segments: &[SegmentId]) -> Result<Evicted, WorkError> {
        Ok(self.store().evict(table, segments)?)
    }

    fn drop_segments(&self, table: TableId, segments: &[SegmentId]) -> Result<u64, WorkError> {
        Ok(self.store().drop_segments(table, segments)?)
    }

    fn seal(&self) -> Result<(), WorkError> {
        Ok(Self::seal(self)?)
    }

    fn take_seal_reports(&self) -> Vec<SealReport> {
        self.store().take_seal_reports()
    }

    fn sweep_archive(&self, table: TableId) -> Result<u64, WorkError> {
        Ok(self.store().sweep_archive(table)?)
    }

    fn write_settings(&self, table: TableId) -> Result<u64, WorkError> {
        Ok(self.store().write_settings(table)?)
    }

    fn clean_catalog(&self, table: TableId) -> Result<u64, WorkError> {
        let tables = self.series_tables();
        let found = tables.iter().find(|found| found.points().id() == table);
        let found = found.ok_or_else(|| WorkError::Overtaken(format!("table {table} was dropped")))?;
        Ok(Self::clean_catalog(self, found, self.store().trusted_now())?.removed)
    }
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

impl From<EngineError> for WorkError {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Store(error) => error.into(),
            error => Self::Failed(error.to_string()),
        }
    }
}

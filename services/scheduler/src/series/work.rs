//! What maintenance of series tables needs of the database, so that it can be tried against a fake.

use tideline_engine::model::{SegmentId, TableId};
use tideline_engine::moves::{
    Evicted, Pace, Rewrite, Rewritten, SealReport, StoreError, Survey as StoreSurvey, Unsealed,
};
use tideline_engine::{Engine, EngineError};

use super::plan::Facts;
use crate::maintenance::WorkError;

/// Series tables as their maintenance sees them. Calls block.
pub trait SeriesWork: Send + Sync + 'static {
    /// Returns the facts of all series tables now.
    fn facts(&self) -> Facts;

    /// Returns the facts, with the unsealed points of a table before each of the timestamps that `before` returns for
    /// it, all of one moment.
    fn facts_and_unsealed(
        &self,
        table: TableId,
        before: &dyn Fn(&Facts) -> [i64; 4],
    ) -> Result<(Facts, [Unsealed; 4]), WorkError>;

    /// Makes one segment of several; calls `pace` every so often, which holds it back or ends it. A rewrite that ends
    /// early leaves everything as it was.
    fn rewrite(&self, rewrite: &Rewrite, pace: &mut dyn Pace) -> Result<Rewritten, WorkError>;

    /// Replaces cold segments by the files that hold their points already.
    fn evict(&self, table: TableId, segments: &[SegmentId]) -> Result<Evicted, WorkError>;

    /// Drops whole segments; returns their number.
    fn drop_segments(&self, table: TableId, segments: &[SegmentId]) -> Result<u64, WorkError>;

    /// Seals everything written so far.
    fn seal(&self) -> Result<(), WorkError>;

    /// Returns the reports of seals that have ended since the last call, oldest first.
    fn take_seal_reports(&self) -> Vec<SealReport>;

    /// Removes files that a crash or a failure has left at the target of a table's archive; returns their number.
    fn sweep_archive(&self, table: TableId) -> Result<u64, WorkError>;

    /// Writes the settings of a table to the targets that hold files of it; returns the number of places.
    fn write_settings(&self, table: TableId) -> Result<u64, WorkError>;

    /// Removes timelines without points, and those that have been silent for too long, from a table's catalog; returns
    /// their number.
    fn clean_catalog(&self, table: TableId) -> Result<u64, WorkError>;
}

impl SeriesWork for Engine {
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
        let bounds = |survey: &StoreSurvey| before(&Facts::from(survey));
        let (survey, unsealed) = self.store().survey_unsealed(table, bounds)?;
        Ok((Facts::from(&survey), unsealed))
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

//! Job that sets and removes attributes of all selected timelines, in steps of at most a thousand timelines.

use roaring::RoaringBitmap;
use tideline_engine::catalog::AttributeChanges;
use tideline_engine::find::Stop;
use tideline_engine::model::JobKind;
use tideline_engine::{AttributesChanged, Engine, EngineError, Table, TimelineSelector};

use super::{JobEnding, RequestedJob};
use crate::scheduler::Scheduler;

/// Started job that changes attributes.
pub struct AttributesJob {
    /// Handle of the job in the scheduler's list of jobs.
    pub job: RequestedJob,
    table: Table,
    selected: RoaringBitmap,
}

impl AttributesJob {
    /// Selects the timelines and adds the job to the list.
    ///
    /// # Errors
    ///
    /// Returns an error if the table does not exist, or if the search fails or is stopped.
    pub fn begin(
        scheduler: &Scheduler,
        engine: &Engine,
        table: &str,
        selector: &TimelineSelector,
        stop: Stop<'_>,
    ) -> Result<Self, EngineError> {
        let table = engine.table(table)?;
        let selected = engine.selected(&table, selector, stop)?;
        let job = scheduler.begin(
            JobKind::SetAttributes,
            Some((table.points().id(), table.name().as_str())),
            "attributes of the selected timelines are changed".to_owned(),
            selected.len(),
        );
        Ok(Self { job, table, selected })
    }

    /// Changes the timelines until `watch` returns false, the job is cancelled or `is_stopping` returns true. Returns
    /// the progress, and true if all selected timelines were processed.
    ///
    /// # Errors
    ///
    /// Returns the error of a failed step. Earlier steps stay, and the job records the error.
    pub fn perform(
        self,
        engine: &Engine,
        changes: &AttributeChanges,
        is_stopping: &dyn Fn() -> bool,
        watch: &mut dyn FnMut(&AttributesChanged) -> bool,
    ) -> Result<(AttributesChanged, bool), EngineError> {
        let Self { job, table, selected } = self;
        let mut step = |progress: &AttributesChanged| {
            let is_wanted = job.step(progress.seen()) && !is_stopping();
            watch(progress) && is_wanted
        };
        let progress = match engine.set_attributes_of(&table, &selected, changes, &mut step) {
            Ok(progress) => progress,
            Err(error) => {
                job.end(JobEnding::Failed(error.to_string()));
                return Err(error);
            }
        };
        let is_done = progress.seen() == progress.selected;
        let came = format!(
            "{} changed, {} unchanged, {} gone, {} refused",
            progress.changed, progress.unchanged, progress.gone, progress.refused
        );
        let ending = match is_done {
            true => JobEnding::Done(came),
            false => job.cut_short(&came, is_stopping()),
        };
        job.end(ending);
        Ok((progress, is_done))
    }
}

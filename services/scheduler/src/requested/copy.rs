//! Job that copies points of a table into another one, some timelines per step.

use tideline_engine::model::{JobKind, TimeRange};
use tideline_engine::{Engine, EngineError, PointsCopied, Table};

use super::{JobEnding, RequestedJob};
use crate::scheduler::Scheduler;

/// Started job that copies points.
pub struct CopyJob {
    /// Handle of the job in the scheduler's list of jobs.
    pub job: RequestedJob,
    from: Table,
    into: Table,
}

impl CopyJob {
    /// Looks up both tables and adds the job to the list; `None` if both are the same table.
    ///
    /// # Errors
    ///
    /// Returns an error if one of the tables does not exist.
    pub fn begin(
        scheduler: &Scheduler,
        engine: &Engine,
        from: &str,
        into: &str,
    ) -> Result<Option<Self>, EngineError> {
        let (from, into) = (engine.table(from)?, engine.table(into)?);
        if from.points().id() == into.points().id() {
            return Ok(None);
        }
        let source = (from.points().id(), from.name().as_str());
        let job = scheduler.begin_into(
            JobKind::Restore,
            (Some(source), Some(into.name().as_str())),
            "requested copy of its points".to_owned(),
            from.reader().visible().len(),
        );
        Ok(Some(Self { job, from, into }))
    }

    /// Copies points until all are copied, the job is cancelled or `is_stopping` returns true. The job records the
    /// outcome.
    pub fn perform(self, engine: &Engine, range: TimeRange, is_stopping: &dyn Fn() -> bool) {
        let Self { job, from, into } = self;
        let mut step = |progress: &PointsCopied| job.step(progress.seen) && !is_stopping();
        let copied = match engine.copy_points(&from, &into, range, &mut step) {
            Ok(copied) => copied,
            Err(error) => return job.end(JobEnding::Failed(error.to_string())),
        };
        let mut came = format!("{} points copied from {} timelines", copied.points, copied.seen);
        if let Some(reason) = &copied.first_refusal {
            came = format!("{came}, {} points refused, the first: {reason}", copied.refused);
        }
        let ending = match copied.seen == copied.timelines {
            true => JobEnding::Done(came),
            false => job.cut_short(&came, is_stopping()),
        };
        job.end(ending);
    }
}

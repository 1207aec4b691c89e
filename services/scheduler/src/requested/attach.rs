//! Job that attaches the archive of another database. Each step covers at most a thousand timelines, one segment or one
//! file of a part.

use tideline_engine::model::JobKind;
use tideline_engine::{AttachPlan, AttachProgress, AttachRequest, Engine, EngineError};

use super::{JobEnding, RequestedJob};
use crate::scheduler::Scheduler;

/// Started job that attaches an archive.
pub struct AttachJob {
    /// Handle of the job in the scheduler's list of jobs.
    pub job: RequestedJob,
    plan: AttachPlan,
}

impl AttachJob {
    /// Plans the attachment and adds the job to the list.
    ///
    /// # Errors
    ///
    /// Returns an error if the target cannot be read or its archive cannot be attached.
    pub fn begin(
        scheduler: &Scheduler,
        engine: &Engine,
        request: &AttachRequest,
    ) -> Result<Self, EngineError> {
        let plan = engine.plan_attach(request)?;
        let of_rows = plan.rows.iter().map(|table| table.name.as_str());
        let names = plan.tables.iter().map(|table| table.name.as_str()).chain(of_rows);
        let names: Vec<&str> = names.collect();
        let reason = format!(
            "the archive at {} is attached: {}",
            request.target,
            names.join(", ")
        );
        let job = scheduler.begin(JobKind::AttachArchive, None, reason, plan.entries);
        Ok(Self { job, plan })
    }

    /// Attaches until `watch` returns false, the job is cancelled or `is_stopping` returns true. Returns the progress,
    /// and false if the run was stopped. If parts could not be attached, the job is recorded as failed.
    ///
    /// # Errors
    ///
    /// Returns the error of a failed step. Attached segments and parts stay, and the job records the error.
    pub fn perform(
        self,
        engine: &Engine,
        is_stopping: &dyn Fn() -> bool,
        watch: &mut dyn FnMut(&AttachProgress) -> bool,
    ) -> Result<(AttachProgress, bool), EngineError> {
        let Self { job, plan } = self;
        let mut step = |progress: &AttachProgress| {
            let is_wanted = job.step(progress.entries) && !is_stopping();
            watch(progress) && is_wanted
        };
        let attached = engine.attach(&plan, &mut step);
        // The indexes of tables with attached parts are built now.
        job.shared.wake_up();
        let (progress, is_done) = match attached {
            Ok(ended) => ended,
            Err(error) => {
                job.end(JobEnding::Failed(format!(
                    "{error}; attached segments and parts stay; send the request again for the others"
                )));
                return Err(error);
            }
        };
        let came = outcome(&progress);
        let ending = match (is_done, progress.problems.first()) {
            (true, None) => JobEnding::Done(came),
            (true, Some(first)) => {
                let count = progress.problem_count;
                JobEnding::Failed(format!("{came}; {count} problems, the first: {first}"))
            }
            (false, _) => job.cut_short(&came, is_stopping()),
        };
        job.end(ending);
        Ok((progress, is_done))
    }
}

fn outcome(progress: &AttachProgress) -> String {
    let AttachProgress {
        tables,
        segments,
        attached,
        timelines,
        points,
        parts,
        parts_attached,
        rows,
        superseded,
        known,
        ..
    } = progress;
    let of_rows = match parts {
        0 => String::new(),
        parts => format!(", {parts_attached} of {parts} parts with {rows} rows"),
    };
    format!(
        "{tables} tables, {attached} of {segments} segments, {timelines} new timelines, {points} points{of_rows}; \
         {superseded} superseded, {known} known before"
    )
}

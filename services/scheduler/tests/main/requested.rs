//! Tests of requested jobs.
//!
//! The jobs are listed, cancelled and recorded.

use std::time::Duration;

use tideline_model::time::NANOS_PER_SECOND;
use tideline_model::{JobKind, Policy, TableId};
use tideline_scheduler::{JobEnding, JobFilter, JobState, RequestedJob, Scheduler, SchedulerError};

use crate::fake::{FakeWork, in_state, old_days, only};

fn begin(scheduler: &Scheduler) -> RequestedJob {
    scheduler.begin(
        JobKind::SetAttributes,
        Some((TableId(1), "default")),
        "on request".into(),
        100,
    )
}

#[test]
fn a_requested_job_is_listed_with_its_progress_beside_the_planned_work() {
    let work = FakeWork::new(Policy::default(), old_days(1));
    let scheduler = work.scheduler();
    let requested = begin(&scheduler);
    assert!(requested.step(0));
    work.clock.hand.advance(3 * NANOS_PER_SECOND);
    assert!(requested.step(25));
    let job = only(in_state(&scheduler, JobState::Running));
    assert_eq!(
        (job.id, job.kind, job.by_hand),
        (requested.id(), JobKind::SetAttributes, true)
    );
    assert_eq!((job.done.timelines, job.total.timelines), (25, 100));
    assert_eq!(job.done.seconds_left, Some(9));
    assert!(scheduler.run_due() > 0, "no move waits for it");
    assert_eq!(in_state(&scheduler, JobState::Running).len(), 1);
    requested.end(JobEnding::Done("all".into()));
    let done = scheduler.job(job.id).expect("it is remembered");
    assert_eq!(
        (done.state, done.outcome.as_deref()),
        (JobState::Done, Some("all"))
    );
    assert_eq!(done.done.seconds_left, None);
    let listed = scheduler.jobs(&JobFilter::default());
    assert_eq!(listed.iter().filter(|listed| listed.id == job.id).count(), 1);
    assert_eq!(
        scheduler.metrics().ended[&(JobKind::SetAttributes, JobState::Done)],
        1
    );
}

#[test]
fn it_is_cancelled_between_two_steps_and_cannot_be_paused() {
    let work = FakeWork::new(Policy::default(), Vec::new());
    let scheduler = work.scheduler();
    let requested = begin(&scheduler);
    let id = requested.id();
    assert_eq!(scheduler.pause(id), Err(SchedulerError::RequestedJob(id)));
    assert_eq!(scheduler.resume(id), Err(SchedulerError::NotPaused(id)));
    let other = begin(&scheduler);
    let shown = scheduler.cancel(id).expect("it runs");
    assert_eq!(shown.state, JobState::Running, "it ends at its next step");
    assert!(!requested.step(60));
    assert!(other.step(1), "others go on");
    let ending = requested.cut_short("60 changed", false);
    requested.end(ending);
    let cancelled = only(in_state(&scheduler, JobState::Cancelled));
    assert_eq!((cancelled.id, cancelled.done.timelines), (id, 60));
    assert_eq!(
        cancelled.outcome.as_deref(),
        Some("cancelled: 60 changed; completed work stays")
    );
    let left = other.cut_short("1 changed", false);
    assert_eq!(
        left,
        JobEnding::Cancelled("client disconnected: 1 changed; completed work stays".into())
    );
    let ended = SchedulerError::Ended {
        id,
        state: JobState::Cancelled,
    };
    assert_eq!(scheduler.cancel(id), Err(ended));
}

#[test]
fn one_that_is_dropped_has_failed_and_one_that_a_crash_ends_was_interrupted() {
    let work = FakeWork::new(Policy::default(), Vec::new());
    let scheduler = work.scheduler();
    drop(begin(&scheduler));
    let failed = only(in_state(&scheduler, JobState::Failed));
    assert!(failed.error.is_some());
    let requested = begin(&scheduler);
    let crashed = work.rows.lock().clone();
    let id = requested.id();
    requested.end(JobEnding::Done(String::new()));
    *work.rows.lock() = crashed;
    let scheduler = work.scheduler();
    let interrupted = only(in_state(&scheduler, JobState::Cancelled));
    assert_eq!(interrupted.id, id);
    let outcome = "interrupted by the end of the process; send the request again to do the rest";
    assert_eq!(interrupted.outcome.as_deref(), Some(outcome));
    assert!(begin(&scheduler).id() > id, "ids are never used again");
}

#[test]
fn a_stop_ends_requested_jobs_and_waits_for_them() {
    let work = FakeWork::new(Policy::default(), Vec::new());
    let scheduler = work.scheduler();
    let requested = begin(&scheduler);
    let stopping = std::sync::Arc::clone(&scheduler);
    let stop = std::thread::spawn(move || stopping.stop());
    while requested.step(1) {
        std::thread::yield_now();
    }
    assert_eq!(
        scheduler.cancel(requested.id()).map(|job| job.state),
        Ok(JobState::Running)
    );
    assert!(!requested.step(2), "a stop stays");
    let JobEnding::Cancelled(said) = requested.cut_short("2 changed", false) else {
        panic!("it is cut short");
    };
    assert_eq!(
        said,
        "service stopped: 2 changed; send the request again to do the rest"
    );
    requested.end(JobEnding::Cancelled(said));
    stop.join().expect("the stop returns");
    assert_eq!(
        scheduler.wait(1, Duration::ZERO).map(|job| job.state),
        Some(JobState::Cancelled)
    );
    assert!(!begin(&scheduler).step(0), "nothing begins after a stop");
}

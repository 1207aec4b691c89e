//! Tests of seals as jobs, started by the store or by a request.
//!
//! Jobs that were listed are in the history also after a stop.

use std::sync::mpsc;

use tideline_model::{JobKind, Policy};
use tideline_scheduler::{Job, JobFilter, JobState, Scheduler, Settings};

use crate::fake::{FakeWork, old_days, sealed};

/// Returns past seals, newest first.
fn past(scheduler: &Scheduler) -> Vec<Job> {
    let filter = JobFilter {
        kind: Some(JobKind::Seal),
        state: Some(JobState::Done),
        ..JobFilter::default()
    };
    scheduler.jobs(&filter)
}

#[test]
fn seals_of_the_store_are_listed_at_once_and_after_a_restart() {
    let work = FakeWork::new(Policy::default(), Vec::new());
    let scheduler = work.scheduler();
    work.seals.lock().extend([sealed(100), sealed(200)]);
    let jobs = past(&scheduler);
    let points: Vec<u64> = jobs.iter().map(|job| job.total.points).collect();
    assert_eq!(points, [200, 100]);
    for job in &jobs {
        assert_eq!(
            (job.done.points, job.done.bytes),
            (job.total.points, job.total.bytes)
        );
        assert!(!job.by_hand && job.finished > job.started && job.from.is_some());
    }
    assert_eq!(past(&scheduler).len(), 2, "each is listed once");
    scheduler.run_due();
    assert_eq!(past(&work.scheduler()), jobs, "rows keep them");
}

#[test]
fn a_stop_keeps_seals_that_were_never_listed() {
    let work = FakeWork::new(Policy::default(), Vec::new());
    let scheduler = work.scheduler();
    work.seals.lock().push(sealed(100));
    scheduler.stop();
    assert_eq!(past(&work.scheduler()).len(), 1);
}

#[test]
fn a_stop_of_the_thread_keeps_seals_that_were_never_listed() {
    // At this rate, the rewrite waits in its first step until the stop ends it.
    let policy = Policy {
        move_bytes_per_second: Some(1),
        ..Policy::default()
    };
    let work = FakeWork::new(policy, old_days(1));
    let (tell, hear) = mpsc::channel();
    work.on_step(move |_| tell.send(()).expect("the test hears"));
    let scheduler = Scheduler::start(work.clone() as _, work.models(), Settings::default());
    hear.recv().expect("it runs");
    work.seals.lock().push(sealed(100));
    scheduler.stop();
    assert_eq!(past(&work.scheduler()).len(), 1);
}

#[test]
fn a_requested_seal_is_one_job() {
    let work = FakeWork::new(Policy::default(), Vec::new());
    let scheduler = work.scheduler();
    work.seals.lock().push(sealed(100));
    let ids = scheduler.run(JobKind::Seal, None).expect("a seal");
    scheduler.run_due();
    let jobs = past(&scheduler);
    assert_eq!(jobs.len(), 2, "{jobs:?}");
    let requested = jobs
        .iter()
        .find(|job| ids.contains(&job.id))
        .expect("it is listed");
    assert_eq!(
        (requested.by_hand, requested.total.points, requested.done.points),
        (true, 500, 500)
    );

    let job = scheduler
        .seal(|| {
            work.seals.lock().extend([sealed(1), sealed(2)]);
            Ok::<(), String>(())
        })
        .expect("sealed");
    assert_eq!((job.total.points, job.total.segments, job.by_hand), (3, 2, true));
    assert_eq!(scheduler.job(job.id), Some(job));
    assert_eq!(past(&scheduler).len(), 3);

    let failed = scheduler.seal(|| Err("the disk is full".to_owned()));
    assert_eq!(failed, Err("the disk is full".to_owned()));
    let failed = scheduler.jobs(&JobFilter {
        state: Some(JobState::Failed),
        ..JobFilter::default()
    });
    assert_eq!(failed[0].error.as_deref(), Some("the disk is full"));
}

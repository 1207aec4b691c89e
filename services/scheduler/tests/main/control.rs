//! Tests of the control of jobs.
//!
//! They cover pause, resume, cancel, stop and rate.

use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use tideline_model::time::NANOS_PER_SECOND;
use tideline_model::{JobKind, Policy, Tier};
use tideline_scheduler::{Job, JobState, Scheduler, SchedulerError};

use crate::fake::{DAY, FakeWork, HOUR, START, day, in_state, nightly, old_days, only, table};

fn running(scheduler: &Scheduler) -> Job {
    only(in_state(scheduler, JobState::Running))
}

fn migrations(scheduler: &Scheduler, state: JobState) -> Vec<Job> {
    let jobs = in_state(scheduler, state);
    jobs.into_iter()
        .filter(|job| job.kind == JobKind::Migrate)
        .collect()
}

/// Calls `act` once, with the scheduler and the running job, at step `step` of the next rewrite.
fn at_step(
    work: &FakeWork,
    scheduler: &Arc<Scheduler>,
    step: u64,
    mut act: impl FnMut(&Scheduler, Job) + Send + 'static,
) {
    // A callback that owned the scheduler could drop it inside a rewrite, and the stop would wait for itself.
    let scheduler = Arc::downgrade(scheduler);
    let mut is_done = false;
    work.on_step(move |at| {
        if at == step && !std::mem::replace(&mut is_done, true) {
            let scheduler = scheduler.upgrade().expect("the test holds it");
            act(&scheduler, running(&scheduler));
        }
    });
}

#[test]
fn a_running_job_shows_progress_rate_and_time_left() {
    let work = FakeWork::new(Policy::default(), old_days(1));
    let scheduler = work.scheduler();
    let (tell, hear) = mpsc::channel();
    let clock = Arc::clone(&work.clock);
    at_step(&work, &scheduler, 5, move |scheduler, _| {
        clock.hand.advance(4 * NANOS_PER_SECOND);
        tell.send(running(scheduler)).expect("the test hears");
    });
    scheduler.run_due();
    let job = hear.recv().expect("it ran");
    assert_eq!((job.done.bytes, job.total.bytes), (400, 1_000));
    assert_eq!(
        (job.done.bytes_per_second, job.done.seconds_left),
        (Some(100), Some(6))
    );
}

#[test]
fn a_request_for_work_that_runs_gets_its_job_too() {
    let work = FakeWork::new(Policy::default(), old_days(2));
    let scheduler = work.scheduler();
    let (tell, hear) = mpsc::channel();
    at_step(&work, &scheduler, 3, move |scheduler, job| {
        let of_all = scheduler.run(JobKind::Migrate, None).expect("there is such work");
        let others = scheduler.run(JobKind::Purge, None).expect("there is such work");
        tell.send((job.id, of_all, others)).expect("the test hears");
    });
    scheduler.run_due();
    let (running, of_all, others) = hear.recv().expect("it ran");
    assert_eq!(of_all.first(), Some(&running));
    assert_eq!(of_all.len(), 2, "the other day too: {of_all:?}");
    assert!(others.is_empty(), "{others:?}");
}

#[test]
fn a_cancelled_job_leaves_everything_and_comes_again_after_an_hour() {
    let work = FakeWork::new(Policy::default(), old_days(2));
    let scheduler = work.scheduler();
    at_step(&work, &scheduler, 3, |scheduler, job| {
        scheduler.cancel(job.id).expect("it runs");
    });
    scheduler.run_due();
    assert_eq!(work.log(), ["Catalog", "Migrate [2]"]);
    let cancelled = only(migrations(&scheduler, JobState::Cancelled));
    assert_eq!(
        cancelled.outcome.as_deref(),
        Some("cancelled; nothing was changed")
    );
    assert_eq!(cancelled.done.bytes, 300);
    assert_eq!(
        scheduler.cancel(cancelled.id),
        Err(SchedulerError::Ended {
            id: cancelled.id,
            state: JobState::Cancelled
        })
    );
    work.advance(HOUR - 1);
    scheduler.run_due();
    assert_eq!(work.log(), ["Catalog"]);
    work.advance(1);
    scheduler.run_due();
    assert_eq!(work.log(), ["Migrate [1]"]);
}

#[test]
fn cancelled_work_with_a_schedule_waits_for_its_next_instant() {
    let work = FakeWork::new(
        Policy {
            migrate: nightly(),
            ..Policy::default()
        },
        old_days(1),
    );
    let scheduler = work.scheduler();
    at_step(&work, &scheduler, 3, |scheduler, job| {
        scheduler.cancel(job.id).expect("it runs");
    });
    // The schedule was never served, so it is served at once, at midnight.
    scheduler.run_due();
    work.advance(3 * HOUR - 1);
    scheduler.run_due();
    assert_eq!(migrations(&scheduler, JobState::Done), []);
    work.advance(1);
    scheduler.run_due();
    only(migrations(&scheduler, JobState::Done));
}

#[test]
fn a_waiting_job_can_be_cancelled() {
    let work = FakeWork::new(
        Policy {
            migrate: nightly(),
            ..Policy::default()
        },
        Vec::new(),
    );
    let scheduler = work.scheduler();
    scheduler.run_due();
    work.tables.lock()[0].segments = old_days(1);
    scheduler.run_due();
    let waiting = only(migrations(&scheduler, JobState::Planned));
    let job = scheduler.cancel(waiting.id).expect("it waits");
    assert_eq!(
        (job.state, job.outcome.as_deref()),
        (JobState::Cancelled, Some("cancelled before it began"))
    );
    assert_eq!(
        scheduler.job(waiting.id).map(|job| job.state),
        Some(JobState::Cancelled)
    );
    assert_eq!(scheduler.wait(waiting.id, Duration::ZERO), Some(job));
    assert_eq!(scheduler.cancel(4_711), Err(SchedulerError::NoSuchJob(4_711)));
}

#[test]
fn a_paused_rewrite_goes_on_where_it_was() {
    let work = FakeWork::new(Policy::default(), old_days(1));
    let scheduler = work.scheduler();
    let (tell, hear) = mpsc::channel();
    at_step(&work, &scheduler, 5, move |scheduler, job| {
        let paused = scheduler.pause(job.id).expect("it runs");
        assert_eq!(paused.state, JobState::Paused);
        tell.send(paused.id).expect("the test hears");
    });
    std::thread::scope(|scope| {
        let runner = scope.spawn(|| scheduler.run_due());
        let id = hear.recv().expect("it ran");
        assert_eq!(scheduler.job(id).map(|job| job.state), Some(JobState::Paused));
        assert_eq!(scheduler.metrics().kinds_paused, 1);
        scheduler.resume(id).expect("it is paused");
        assert_eq!(runner.join().expect("no panic"), 2);
        assert_eq!(scheduler.job(id).map(|job| job.state), Some(JobState::Done));
    });
    assert_eq!(work.log(), ["Catalog", "Migrate [1]"]);
    assert_eq!(scheduler.metrics().kinds_paused, 0);
}

#[test]
fn a_rewrite_that_stays_paused_gives_way_to_other_work() {
    let work = FakeWork::new(Policy::default(), old_days(1));
    work.tables
        .lock()
        .push(table(2, "other", Policy::default(), vec![day(7, Tier::Hot, 3)]));
    let scheduler = work.scheduler();
    // Each reading of the clock lets time pass while the rewrite waits.
    let clock = Arc::clone(&work.clock);
    at_step(&work, &scheduler, 5, move |scheduler, job| {
        scheduler.pause(job.id).expect("it runs");
        clock.passes.store(20 * NANOS_PER_SECOND, Ordering::Relaxed);
    });
    scheduler.tick();
    scheduler.tick();
    scheduler.tick();
    work.clock.passes.store(0, Ordering::Relaxed);
    scheduler.run_due();
    assert!(work.log().contains(&"Migrate [7]".to_owned()));
    let paused = only(in_state(&scheduler, JobState::Paused));
    assert_eq!((paused.kind, paused.done.bytes), (JobKind::Migrate, 0));
    assert_eq!(
        scheduler.resume(paused.id).map(|job| job.state),
        Ok(JobState::Planned)
    );
    assert_eq!(
        scheduler.resume(paused.id),
        Err(SchedulerError::NotPaused(paused.id))
    );
    scheduler.run_due();
    assert_eq!(work.log(), ["Migrate [1]"]);
    assert_eq!(
        scheduler.job(paused.id).map(|job| job.state),
        Some(JobState::Done),
        "it is the same job"
    );
}

#[test]
fn a_command_to_a_paused_rewrite_is_not_lost_while_the_rewrite_ends() {
    type Command = fn(&Scheduler, u64) -> Result<Job, SchedulerError>;
    let cases: [(Command, JobState); 2] = [
        (Scheduler::resume, JobState::Done),
        (Scheduler::cancel, JobState::Cancelled),
    ];
    for (command, state) in cases {
        let work = FakeWork::new(Policy::default(), old_days(1));
        let scheduler = work.scheduler();
        let id = only(scheduler.run(JobKind::Migrate, None).expect("a table"));
        let clock = Arc::clone(&work.clock);
        at_step(&work, &scheduler, 5, move |scheduler, job| {
            scheduler.pause(job.id).expect("it runs");
            clock.passes.store(20 * NANOS_PER_SECOND, Ordering::Relaxed);
        });
        let (weak, clock) = (Arc::downgrade(&scheduler), Arc::clone(&work.clock));
        work.on_given_up(move || {
            clock.passes.store(0, Ordering::Relaxed);
            let scheduler = weak.upgrade().expect("the test holds it");
            command(&scheduler, id).expect("it is paused");
        });
        scheduler.run_due();
        assert_eq!(scheduler.job(id).map(|job| job.state), Some(state));
        assert_eq!(
            work.log().contains(&"Migrate [1]".to_owned()),
            state == JobState::Done
        );
    }
}

#[test]
fn pausing_planned_work_pauses_its_kind() {
    let work = FakeWork::new(
        Policy {
            migrate: nightly(),
            ..Policy::default()
        },
        Vec::new(),
    );
    let scheduler = work.scheduler();
    scheduler.run_due();
    work.tables.lock()[0].segments = old_days(2);
    scheduler.run_due();
    work.log();
    let jobs = migrations(&scheduler, JobState::Planned);
    scheduler.pause(jobs[0].id).expect("it waits");
    assert_eq!(migrations(&scheduler, JobState::Paused).len(), 2);
    work.advance(DAY);
    scheduler.run_due();
    assert_eq!(work.log(), ["Catalog"]);
    // The work of the missed night is done now.
    scheduler.resume(jobs[1].id).expect("it is paused");
    scheduler.run_due();
    assert_eq!(work.log(), ["Migrate [1]", "Migrate [2]"]);
}

#[test]
fn requested_work_is_paused_automatically() {
    let work = FakeWork::new(
        Policy {
            migrate: nightly(),
            ..Policy::default()
        },
        Vec::new(),
    );
    let scheduler = work.scheduler();
    scheduler.run_due();
    work.tables.lock()[0].segments = old_days(2);
    work.log();
    let ids = scheduler.run(JobKind::Migrate, None).expect("a table");
    scheduler.pause(ids[0]).expect("it waits");
    assert_eq!(scheduler.metrics().kinds_paused, 0);
    scheduler.run_due();
    assert_eq!(work.log(), ["Migrate [2]"]);
    scheduler.resume(ids[0]).expect("it is paused");
    scheduler.run_due();
    assert_eq!(work.log(), ["Migrate [1]"]);
}

#[test]
fn a_table_reads_no_faster_than_its_policy_says() {
    let policy = Policy {
        move_bytes_per_second: Some(1_000),
        ..Policy::default()
    };
    let work = FakeWork::new(policy, old_days(6));
    let scheduler = work.scheduler();
    let before = work.now();
    work.clock.passes.store(NANOS_PER_SECOND / 2, Ordering::Relaxed);
    while migrations(&scheduler, JobState::Done).len() < 6 {
        scheduler.tick();
    }
    // 6,000 bytes are read; one second of reads is free at the start.
    let seconds = (work.now() - before) / NANOS_PER_SECOND;
    assert!(seconds >= 5, "{seconds} s");
}

#[test]
fn stopping_interrupts_the_running_rewrite() {
    let work = FakeWork::new(Policy::default(), old_days(1));
    let scheduler = work.scheduler();
    at_step(&work, &scheduler, 5, |scheduler, _| scheduler.stop());
    scheduler.run_due();
    let job = only(migrations(&scheduler, JobState::Cancelled));
    let outcome = "interrupted by the end of the process; the same work is planned again";
    assert_eq!(job.outcome.as_deref(), Some(outcome));
    assert_eq!(work.tables.lock()[0].segments, old_days(1));
    assert_eq!((job.from, scheduler.run_due()), (Some(START + DAY), 0));
}

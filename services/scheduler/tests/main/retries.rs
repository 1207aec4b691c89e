//! Tests of failures.
//!
//! Failed work is retried at growing intervals, and other work continues.

use tideline_model::time::NANOS_PER_SECOND;
use tideline_model::{JobKind, Policy, Tier};
use tideline_scheduler::{JobState, WorkError};

use crate::fake::{FakeWork, HOUR, day, in_state, old_days, only, table};

fn failed() -> WorkError {
    WorkError::Failed("the disk is full".into())
}

#[test]
fn a_failing_job_is_tried_again_ever_less_often() {
    let work = FakeWork::new(Policy::default(), old_days(1));
    let scheduler = work.scheduler();
    work.fail_next((0..10).map(|_| failed()));
    scheduler.run_due();
    let mut waits = Vec::new();
    let mut waited = 0;
    while waits.len() < 9 {
        work.advance(NANOS_PER_SECOND);
        waited += 1;
        let before = in_state(&scheduler, JobState::Failed).len();
        scheduler.run_due();
        if in_state(&scheduler, JobState::Failed).len() > before {
            waits.push(std::mem::take(&mut waited));
        }
    }
    assert_eq!(waits, [5, 10, 20, 40, 80, 160, 320, 600, 600]);
    let job = in_state(&scheduler, JobState::Failed).remove(0);
    assert_eq!(
        (job.error.as_deref(), job.outcome),
        (Some("the disk is full"), None)
    );
    work.advance(600 * NANOS_PER_SECOND);
    scheduler.run_due();
    assert!(work.log().contains(&"Migrate [1]".to_owned()));
    assert_eq!(
        scheduler.metrics().ended[&(JobKind::Migrate, JobState::Failed)],
        10
    );
}

#[test]
fn a_success_resets_the_count_of_failures() {
    let work = FakeWork::new(Policy::default(), old_days(1));
    let scheduler = work.scheduler();
    work.fail_next([failed(), failed()]);
    for _ in 0..3 {
        scheduler.run_due();
        work.advance(HOUR / 60);
    }
    // A late segment of the same day.
    work.tables.lock()[0].segments.push(day(9, Tier::Hot, 1));
    work.fail_next([failed()]);
    scheduler.run_due();
    work.advance(5 * NANOS_PER_SECOND);
    work.log();
    scheduler.run_due();
    assert_eq!(work.log(), ["Migrate [9]"]);
}

#[test]
fn other_work_goes_on_meanwhile() {
    let work = FakeWork::new(Policy::default(), old_days(1));
    work.tables
        .lock()
        .push(table(2, "other", Policy::default(), vec![day(7, Tier::Hot, 3)]));
    let scheduler = work.scheduler();
    work.fail_next([failed()]);
    scheduler.run_due();
    assert_eq!(work.log(), ["Catalog", "Catalog", "Migrate [7]"]);
    assert_eq!(
        only(in_state(&scheduler, JobState::Failed))
            .table
            .map(|table| table.name)
            .as_deref(),
        Some("default")
    );
}

#[test]
fn a_plan_that_was_overtaken_is_made_anew() {
    let work = FakeWork::new(Policy::default(), old_days(1));
    let scheduler = work.scheduler();
    work.fail_next([WorkError::Overtaken("segment 1 is gone".into())]);
    scheduler.run_due();
    let job = only(in_state(&scheduler, JobState::Cancelled));
    assert_eq!(job.outcome.as_deref(), Some("overtaken: segment 1 is gone"));
    work.advance(5 * NANOS_PER_SECOND);
    scheduler.run_due();
    assert_eq!(work.log(), ["Catalog", "Migrate [1]"]);
}

#[test]
fn a_panic_is_a_failure_and_not_the_end() {
    let work = FakeWork::new(Policy::default(), old_days(1));
    let scheduler = work.scheduler();
    work.on_step(|_| panic!("a bug, for the test"));
    scheduler.run_due();
    let job = only(in_state(&scheduler, JobState::Failed));
    assert_eq!(job.error.as_deref(), Some("it panicked; see the log"));
    *work.on_step.lock() = None;
    work.advance(5 * NANOS_PER_SECOND);
    scheduler.run_due();
    assert_eq!(work.log(), ["Catalog", "Migrate [1]"]);
}

//! Tests of moves to the archive and back.
//!
//! They cover the steps of a move, its job, its throttle and its failures.

use std::sync::{Arc, mpsc};

use tideline_model::time::NANOS_PER_SECOND;
use tideline_model::{ArchivePolicy, JobKind, Policy, Schedule, SegmentId, Tier, TimeRange};
use tideline_scheduler::series::plan::SegmentFacts;
use tideline_scheduler::{Job, JobFilter, JobState, Scheduler, WorkError};

use crate::fake::{DAY, FakeWork, HOUR, START, day, in_state, only};

fn policy(keep_cold: Option<i64>) -> Policy {
    Policy {
        archive: Some(ArchivePolicy {
            target: "default".into(),
            after: 10 * DAY,
            schedule: Schedule::Continuous,
            keep_cold,
            keep: None,
        }),
        ..Policy::default()
    }
}

/// Returns the descriptions of the completed work, without clean-ups of the catalog.
fn moved(work: &FakeWork) -> Vec<String> {
    work.log().into_iter().filter(|done| done != "Catalog").collect()
}

fn jobs(scheduler: &Scheduler, kind: JobKind) -> Vec<Job> {
    let filter = JobFilter {
        kind: Some(kind),
        ..JobFilter::default()
    };
    scheduler.jobs(&filter)
}

/// Creates a late segment of a day that already has a segment.
fn late(id: u64, days: i64) -> SegmentFacts {
    day(id, Tier::Cold, days)
}

#[test]
fn points_stay_cold_beside_their_files_and_leave_when_their_time_is_over() {
    let days = vec![day(1, Tier::Cold, 1), day(2, Tier::Cold, 2), late(3, 2)];
    let work = FakeWork::new(policy(Some(15 * DAY)), days);
    let scheduler = work.scheduler();
    scheduler.run_due();
    assert_eq!(moved(&work), ["Copy [1]", "Fold [2, 3]", "Copy [1002]"]);
    let done = jobs(&scheduler, JobKind::Archive);
    assert_eq!(done.len(), 2, "folding is part of the same job");
    assert_eq!(done[0].done.bytes, 3_000, "both of its parts are counted");
    let outcome = done[0].outcome.as_deref().unwrap_or_default();
    assert!(
        outcome.starts_with("2 segments are in files, and stay in the cold tier as one"),
        "{outcome}"
    );
    // Day 1 ends at START + 2 days and is due for the archive ten days later. The day leaves the cold tier 15 days
    // after that due time, at START + 27 days. The current time is START + 20 days.
    work.advance(7 * DAY - 1);
    scheduler.run_due();
    assert_eq!(moved(&work), [] as [&str; 0]);
    work.advance(1);
    scheduler.run_due();
    assert_eq!(moved(&work), ["Evict [1]"]);
    let evicted = only(jobs(&scheduler, JobKind::Evict));
    assert_eq!(
        evicted.outcome.as_deref(),
        Some("1 segments left the cold tier: 1000 bytes")
    );
    work.advance(DAY);
    scheduler.run_due();
    assert_eq!(moved(&work), ["Evict [1002]"]);
}

#[test]
fn late_points_join_what_stays_or_what_has_left() {
    let mut there = day(1, Tier::Cold, 1);
    (there.is_copied, there.archived) = (true, Some(START));
    let work = FakeWork::new(policy(Some(15 * DAY)), vec![there.clone(), late(2, 1)]);
    let scheduler = work.scheduler();
    scheduler.run_due();
    assert_eq!(moved(&work), ["Fold [1, 2]", "Copy [1001]"]);
    // The archived day is no longer in the cold tier. Its late segment is therefore archived together with it, without
    // a separate fold.
    (there.tier, there.is_copied) = (Tier::Archive, false);
    let work = FakeWork::new(policy(Some(15 * DAY)), vec![there, late(2, 1)]);
    work.scheduler().run_due();
    assert_eq!(moved(&work), ["Archive [1, 2]"]);
}

#[test]
fn a_move_into_files_is_paced_paused_resumed_and_cancelled() {
    let mut slow = policy(None);
    slow.move_bytes_per_second = Some(1_000);
    let work = FakeWork::new(slow, (1..=6).map(|id| day(id, Tier::Cold, id as i64)).collect());
    let scheduler = work.scheduler();
    let before = work.now();
    work.clock
        .passes
        .store(NANOS_PER_SECOND / 2, std::sync::atomic::Ordering::Relaxed);
    while moved(&work).is_empty()
        || jobs(&scheduler, JobKind::Archive)
            .iter()
            .any(|job| job.state != JobState::Done)
    {
        scheduler.tick();
    }
    assert!(
        (work.now() - before) / NANOS_PER_SECOND >= 5,
        "a second's worth is free at the start"
    );

    let work = FakeWork::new(policy(None), vec![day(1, Tier::Cold, 1)]);
    let scheduler = work.scheduler();
    let (tell, hear) = mpsc::channel();
    let told = Arc::downgrade(&scheduler);
    work.on_step(move |step| {
        let scheduler = told.upgrade().expect("the test holds it");
        if step == 5 && jobs(&scheduler, JobKind::Archive).len() == 1 {
            let job = only(in_state(&scheduler, JobState::Running));
            scheduler.pause(job.id).expect("it runs");
            tell.send(job.id).expect("the test hears");
        }
    });
    std::thread::scope(|scope| {
        let runner = scope.spawn(|| scheduler.run_due());
        let id = hear.recv().expect("it ran");
        assert_eq!(scheduler.job(id).map(|job| job.state), Some(JobState::Paused));
        scheduler.resume(id).expect("it is paused");
        runner.join().expect("no panic");
        assert_eq!(scheduler.job(id).map(|job| job.state), Some(JobState::Done));
    });
    assert_eq!(moved(&work), ["Archive [1]"]);

    let work = FakeWork::new(policy(None), vec![day(1, Tier::Cold, 1)]);
    let scheduler = work.scheduler();
    let told = Arc::downgrade(&scheduler);
    let mut is_told = false;
    work.on_step(move |_| {
        if !std::mem::replace(&mut is_told, true) {
            let scheduler = told.upgrade().expect("the test holds it");
            let job = only(in_state(&scheduler, JobState::Running));
            scheduler.cancel(job.id).expect("it runs");
        }
    });
    scheduler.run_due();
    assert_eq!(moved(&work), [] as [&str; 0]);
    assert_eq!(
        only(in_state(&scheduler, JobState::Cancelled)).kind,
        JobKind::Archive
    );
    work.advance(HOUR);
    scheduler.run_due();
    assert_eq!(moved(&work), ["Archive [1]"]);
}

#[test]
fn the_outcome_of_a_cancelled_archive_job_describes_a_completed_merge() {
    // The first step is part of the merge of both segments; step 11 is part of the copy into files.
    for (cancelled_at, left) in [
        (1, "nothing was changed"),
        (
            11,
            "no points were archived; their merged segment stays in the cold tier",
        ),
    ] {
        let work = FakeWork::new(policy(Some(15 * DAY)), vec![day(2, Tier::Cold, 2), late(3, 2)]);
        let scheduler = work.scheduler();
        let weak = Arc::downgrade(&scheduler);
        let mut steps = 0;
        work.on_step(move |_| {
            steps += 1;
            if steps == cancelled_at {
                let scheduler = weak.upgrade().expect("the test holds it");
                let job = only(in_state(&scheduler, JobState::Running));
                scheduler.cancel(job.id).expect("it runs");
            }
        });
        scheduler.run_due();
        let job = only(in_state(&scheduler, JobState::Cancelled));
        assert_eq!(job.kind, JobKind::Archive);
        assert_eq!(job.outcome, Some(format!("cancelled; {left}")));
    }
}

#[test]
fn what_is_restored_stays_for_the_requested_time() {
    let days = (1..=4).map(|id| day(id, Tier::Archive, id as i64)).collect();
    let work = FakeWork::new(policy(None), days);
    let scheduler = work.scheduler();
    scheduler.run_due();
    moved(&work);
    let range = TimeRange::new(START + 2 * DAY, START + 3 * DAY + 1);
    let until = work.now() + 7 * DAY;
    let nothing = TimeRange::new(START + 9 * DAY, START + 10 * DAY);
    assert_eq!(scheduler.restore("default", nothing, until), Ok(None));
    let job = scheduler
        .restore("default", range, until)
        .expect("a table")
        .expect("two days");
    assert_eq!(
        (job.kind, job.by_hand, job.total.segments),
        (JobKind::Restore, true, 2)
    );
    assert_eq!(jobs(&scheduler, JobKind::Restore).len(), 1, "it is listed once");
    scheduler.run_due();
    assert_eq!(
        moved(&work),
        [format!("Restore({until}) [2]"), format!("Restore({until}) [3]")]
    );
    let done = scheduler.job(job.id).expect("it is remembered");
    assert_eq!((done.state, done.done.bytes), (JobState::Done, 2_000));
    work.advance(7 * DAY - 1);
    scheduler.run_due();
    assert_eq!(moved(&work), [] as [&str; 0]);
    work.advance(1);
    scheduler.run_due();
    assert_eq!(
        moved(&work),
        ["Evict [1002, 1003]"],
        "their files are still there"
    );
}

#[test]
fn a_restore_that_ends_early_keeps_what_came_back() {
    let days = (1..=3).map(|id| day(id, Tier::Archive, id as i64)).collect();
    let work = FakeWork::new(policy(None), days);
    let scheduler = work.scheduler();
    scheduler.run_due();
    let until = work.now() + DAY;
    let ask = |scheduler: &Scheduler| {
        scheduler
            .restore("default", TimeRange::ALL, until)
            .expect("a table")
    };
    let requested = ask(&scheduler).expect("three days");
    // The process ends before the job started.
    drop(scheduler);
    let scheduler = work.scheduler();
    let lost = scheduler.job(requested.id).expect("it is remembered");
    let outcome = lost.outcome.unwrap_or_default();
    assert_eq!(lost.state, JobState::Cancelled);
    assert!(outcome.ends_with("request the rest again"), "{outcome}");
    // One segment has changed, and another one cannot be read.
    let gone = WorkError::Overtaken("segment 1 is gone".into());
    work.fail_next([gone, WorkError::Failed("the target is down".into())]);
    let failed = ask(&scheduler).expect("three days");
    scheduler.run_due();
    let failed = scheduler.job(failed.id).expect("it is remembered");
    assert_eq!(
        (failed.state, failed.error.as_deref()),
        (JobState::Failed, Some("the target is down"))
    );
    let again = ask(&scheduler).expect("three days");
    scheduler.run_due();
    assert_eq!(scheduler.job(again.id).map(|job| job.state), Some(JobState::Done));
    let tables = work.tables.lock();
    let held: Vec<SegmentId> = tables[0]
        .segments
        .iter()
        .filter(|one| one.stays_until == Some(until))
        .map(|one| one.id)
        .collect();
    assert_eq!(held.len(), 3);
}

#[test]
fn a_target_that_is_down_is_reported_and_costs_nothing_but_delay() {
    let work = FakeWork::new(policy(None), vec![day(1, Tier::Cold, 1)]);
    let scheduler = work.scheduler();
    let state = |scheduler: &Scheduler| only(scheduler.archives());
    // The day of the segment ended at START + 2 days and was due ten days later. The current time is START + 20 days.
    let waiting = state(&scheduler);
    assert_eq!(
        (waiting.moves.behind, waiting.standing.waiting.segments),
        (8 * DAY, 1)
    );
    let down = || WorkError::Failed("s3://bucket cannot be reached".into());
    work.fail_next([down(), down()]);
    scheduler.run_due();
    let failed = only(in_state(&scheduler, JobState::Failed));
    let error = failed.error.unwrap_or_default();
    assert!(
        error.starts_with(
            "s3://bucket cannot be reached; the cold tier keeps the points, and it is tried again at 20"
        ),
        "{error}"
    );
    work.advance(5 * NANOS_PER_SECOND);
    scheduler.run_due();
    let waiting = state(&scheduler);
    assert_eq!(
        (waiting.moves.failures, waiting.moves.tried_again),
        (2, Some(work.now() + 10 * NANOS_PER_SECOND))
    );
    assert!(
        waiting
            .moves
            .last_job
            .is_some_and(|job| job.state == JobState::Failed)
    );
    let planned = jobs(&scheduler, JobKind::Archive).remove(0);
    assert!(
        planned
            .reason
            .contains("; the last 2 tries failed, the next is at "),
        "{}",
        planned.reason
    );
    assert_eq!(planned.due, waiting.moves.tried_again);
    work.advance(10 * NANOS_PER_SECOND);
    scheduler.run_due();
    let there = state(&scheduler);
    assert_eq!(
        (there.moves.failures, there.moves.tried_again, there.moves.behind),
        (0, None, 0)
    );
    assert_eq!(
        (there.standing.waiting.points, there.standing.archived.segments),
        (0, 1)
    );
    assert!(
        there
            .moves
            .last_job
            .is_some_and(|job| job.state == JobState::Done)
    );
}

#[test]
fn late_and_copied_points_are_not_behind() {
    let mut there = day(1, Tier::Archive, 1);
    (there.archived, there.points) = (Some(START + 19 * DAY), 100_000);
    let mut copied = day(3, Tier::Cold, 2);
    copied.is_copied = true;
    let work = FakeWork::new(policy(Some(30 * DAY)), vec![there, late(2, 1), copied]);
    let state = only(work.scheduler().archives());
    assert_eq!((state.moves.behind, state.standing.waiting.segments), (0, 0));
    assert_eq!(
        (state.standing.late.segments, state.standing.copied.segments),
        (1, 1)
    );
}

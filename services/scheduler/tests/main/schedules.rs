//! Tests of the times and the order of work.
//!
//! They cover schedules, requests, expiry, previews and metrics.

use std::sync::Arc;
use std::time::Duration;

use tideline_model::{JobKind, Policy, SegmentId, Tier, Timestamp};
use tideline_scheduler::{JobFilter, JobState, Scheduler, SchedulerError, Settings};

use crate::fake::{DAY, FakeWork, HOUR, START, day, in_state, nightly, old_days, only, table};

/// Returns the descriptions of the completed work, without clean-ups of the catalog.
fn moved(work: &FakeWork) -> Vec<String> {
    work.log().into_iter().filter(|line| line != "Catalog").collect()
}

#[test]
fn due_work_is_done_and_written_down() {
    let work = FakeWork::new(Policy::default(), old_days(2));
    let scheduler = work.scheduler();
    assert_eq!(scheduler.run_due(), 3);
    assert_eq!(moved(&work), ["Migrate [1]", "Migrate [2]"]);
    let filter = JobFilter {
        kind: Some(JobKind::Migrate),
        table: Some("default".into()),
        state: Some(JobState::Done),
    };
    let done = scheduler.jobs(&filter);
    assert_eq!(done.len(), 2);
    assert!(done[0].id > done[1].id, "new jobs come first");
    let job = &done[1];
    assert_eq!(
        job.outcome.as_deref(),
        Some("1 segments became one: 1000 bytes read, 500 written")
    );
    assert_eq!(
        job.reason,
        "1 hot segments are in a window that ended more than 7d ago"
    );
    assert_eq!(
        (job.done.bytes, job.done.points, job.total.bytes),
        (1_000, 1_000, 1_000)
    );
    assert_eq!((job.from, job.to), (Some(START + DAY), Some(START + 2 * DAY)));
    assert_eq!((job.started, job.finished), (Some(work.now()), Some(work.now())));
    assert_eq!(scheduler.run_due(), 0);
}

#[test]
fn waiting_jobs_keep_their_ids_until_there_is_no_such_work() {
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
    let kind = |kind| JobFilter {
        kind: Some(kind),
        ..JobFilter::default()
    };
    let waiting = only(scheduler.jobs(&kind(JobKind::Migrate)));
    assert_eq!(
        (waiting.state, waiting.due),
        (JobState::Planned, Some(START + 20 * DAY + 3 * HOUR))
    );
    scheduler.run_due();
    assert_eq!(only(scheduler.jobs(&kind(JobKind::Migrate))), waiting);
    work.tables.lock()[0].segments.clear();
    scheduler.run_due();
    assert_eq!(scheduler.jobs(&kind(JobKind::Migrate)), []);
    assert_eq!(scheduler.job(waiting.id), None);
}

#[test]
fn a_nightly_schedule_moves_at_night_and_once() {
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
    assert_eq!(moved(&work), [] as [&str; 0]);
    work.advance(3 * HOUR - 1);
    scheduler.run_due();
    assert_eq!(moved(&work), [] as [&str; 0]);
    work.advance(1);
    scheduler.run_due();
    assert_eq!(moved(&work), ["Migrate [1]", "Migrate [2]"]);
    // Segments that become old during the day wait for the next night.
    work.tables.lock()[0].segments.push(day(3, Tier::Hot, 3));
    work.advance(20 * HOUR);
    scheduler.run_due();
    assert_eq!(moved(&work), [] as [&str; 0]);
    work.advance(4 * HOUR);
    scheduler.run_due();
    assert_eq!(moved(&work), ["Migrate [3]"]);
}

/// Creates a table with more moves than the scheduler lists, and the table `other` with one move, planned after them.
fn long_plan(other: Policy) -> Arc<FakeWork> {
    let days = (1..=1_001).map(|id| day(id, Tier::Hot, -(id as i64)));
    let work = FakeWork::new(Policy::default(), days.collect());
    let other = table(2, "other", other, vec![day(2_000, Tier::Hot, 1)]);
    work.tables.lock().push(other);
    work
}

#[test]
fn paused_work_does_not_displace_work_that_may_start() {
    let work = long_plan(Policy::default());
    let scheduler = work.scheduler();
    scheduler
        .pause_kind(JobKind::Migrate, Some("default"))
        .expect("a table");
    scheduler.run_due();
    assert_eq!(moved(&work), ["Migrate [2000]"]);
    assert_eq!(in_state(&scheduler, JobState::Paused).len(), 1_000);
}

#[test]
fn a_schedule_is_not_served_while_its_work_is_not_listed() {
    let work = long_plan(Policy {
        migrate: nightly(),
        ..Policy::default()
    });
    let scheduler = work.scheduler();
    for table in ["default", "other"] {
        scheduler
            .pause_kind(JobKind::Migrate, Some(table))
            .expect("a table");
    }
    scheduler.run_due();
    assert_eq!(moved(&work), [] as [&str; 0]);
    scheduler
        .resume_kind(JobKind::Migrate, Some("other"))
        .expect("a table");
    scheduler.run_due();
    assert_eq!(moved(&work), ["Migrate [2000]"]);
}

#[test]
fn work_can_be_requested_whatever_its_schedule_and_pauses() {
    let work = FakeWork::new(
        Policy {
            migrate: nightly(),
            ..Policy::default()
        },
        Vec::new(),
    );
    work.tables.lock().push(table(
        2,
        "other",
        Policy {
            migrate: nightly(),
            ..Policy::default()
        },
        old_days(1),
    ));
    let scheduler = work.scheduler();
    assert_eq!(scheduler.run(JobKind::Migrate, Some("default")), Ok(Vec::new()));
    scheduler.run_due();
    work.log();
    work.tables.lock()[0].segments = old_days(2);
    scheduler
        .pause_kind(JobKind::Migrate, Some("default"))
        .expect("a table");
    let ids = scheduler.run(JobKind::Migrate, Some("default")).expect("a table");
    assert_eq!(ids.len(), 2);
    assert_eq!(
        scheduler.run(JobKind::Migrate, Some("default")),
        Ok(ids.clone()),
        "requested before"
    );
    assert!(
        in_state(&scheduler, JobState::Planned)
            .iter()
            .filter(|job| job.by_hand)
            .count()
            == 2
    );
    scheduler.run_due();
    assert_eq!(moved(&work), ["Migrate [1]", "Migrate [2]"]);
    assert_eq!(scheduler.job(ids[1]).map(|job| job.state), Some(JobState::Done));
    let missing = scheduler.run(JobKind::Migrate, Some("nowhere"));
    assert_eq!(missing, Err(SchedulerError::NoSuchTable("nowhere".into())));
}

#[test]
fn a_seal_and_a_clean_up_can_be_requested() {
    let work = FakeWork::new(Policy::default(), Vec::new());
    let scheduler = work.scheduler();
    scheduler.run_due();
    work.log();
    let seal = scheduler.run(JobKind::Seal, None).expect("always");
    let catalog = scheduler.run(JobKind::CleanCatalog, None).expect("always");
    scheduler.run_due();
    assert_eq!(work.log(), ["Seal", "Catalog"]);
    let outcome = |ids: &[u64]| scheduler.job(ids[0]).and_then(|job| job.outcome);
    assert_eq!(
        outcome(&seal).as_deref(),
        Some("500 points are in 1 segments, 1000 bytes")
    );
    assert_eq!(outcome(&catalog).as_deref(), Some("0 timelines removed"));
}

#[test]
fn the_catalog_is_cleaned_every_ten_minutes_and_reported_when_it_mattered() {
    let work = FakeWork::new(Policy::default(), Vec::new());
    let scheduler = work.scheduler();
    for _ in 0..6 {
        scheduler.run_due();
        work.advance(5 * HOUR / 60);
    }
    assert_eq!(work.log().len(), 3);
    assert_eq!(in_state(&scheduler, JobState::Done), []);
    *work.catalog_finds.lock() = 7;
    work.advance(HOUR);
    scheduler.run_due();
    let job = only(in_state(&scheduler, JobState::Done));
    assert_eq!(
        (job.kind, job.outcome.as_deref()),
        (JobKind::CleanCatalog, Some("7 timelines removed"))
    );
}

#[test]
fn expired_segments_are_dropped_unless_the_clock_is_in_doubt() {
    let policy = Policy {
        retention: Some(10 * DAY),
        ..Policy::default()
    };
    let work = FakeWork::new(
        policy,
        (0..4).map(|at| day(at + 1, Tier::Cold, 6 + at as i64)).collect(),
    );
    let scheduler = work.scheduler();
    // Days 6 to 9 are hidden. Day 9 is kept for one more day.
    scheduler.run_due();
    assert_eq!(moved(&work), ["Drop [1, 2, 3]"]);
    work.clock
        .hand
        .set(Timestamp::from_nanos_clamped(work.now() + 300 * DAY));
    work.advance(HOUR);
    scheduler.run_due();
    assert_eq!(moved(&work), [] as [&str; 0]);
    let metrics = scheduler.metrics();
    assert_eq!(metrics.clock_off_by, Some(300 * DAY));
    assert!(
        metrics
            .clock_doubt
            .is_some_and(|reason| reason.contains("300d ahead"))
    );
    scheduler.confirm_clock();
    scheduler.run_due();
    assert_eq!(moved(&work), ["Drop [4]"]);
    assert_eq!(scheduler.metrics().clock_doubt, None);
}

#[test]
fn deletes_are_applied_after_a_while() {
    let work = FakeWork::new(Policy::default(), vec![day(1, Tier::Cold, 1)]);
    let scheduler = work.scheduler();
    scheduler.run_due();
    work.tables.lock()[0].segments[0].has_deletes = true;
    scheduler.run_due();
    work.advance(HOUR / 6 - 1);
    scheduler.run_due();
    assert_eq!(moved(&work), [] as [&str; 0]);
    work.advance(1);
    scheduler.run_due();
    assert_eq!(moved(&work), ["Purge [1]"]);
    assert_eq!(work.tables.lock()[0].segments[0].id, SegmentId(1_001));
}

#[test]
fn a_preview_reads_and_does_nothing() {
    let work = FakeWork::new(
        Policy {
            hot_ttl: None,
            ..Policy::default()
        },
        old_days(3),
    );
    let scheduler = work.scheduler();
    let shown = scheduler
        .preview("default", Some(Policy::default()))
        .expect("a table");
    assert_eq!(shown.migrates.segments, 3);
    let as_it_is = scheduler.preview("default", None).expect("a table");
    assert_eq!(as_it_is.migrates.segments, 0);
    assert!(scheduler.preview("nowhere", None).is_err());
    scheduler.run_due();
    assert_eq!(moved(&work), [] as [&str; 0]);
}

#[test]
fn figures_count_what_waits_and_what_was_moved() {
    let work = FakeWork::new(Policy::default(), old_days(2));
    work.tables.lock().push(table(
        2,
        "other",
        Policy {
            migrate: nightly(),
            ..Policy::default()
        },
        Vec::new(),
    ));
    let scheduler = work.scheduler();
    scheduler.run_due();
    work.tables.lock()[1].segments = old_days(3);
    scheduler
        .pause_kind(JobKind::Migrate, Some("other"))
        .expect("a table");
    scheduler.run_due();
    let metrics = scheduler.metrics();
    assert_eq!(metrics.waiting[&JobKind::Migrate], 3);
    assert_eq!(metrics.due.get(&JobKind::Migrate), None);
    assert_eq!(metrics.ended[&(JobKind::Migrate, JobState::Done)], 2);
    assert_eq!(
        (
            metrics.moved[&JobKind::Migrate].bytes_read,
            metrics.moved[&JobKind::Migrate].bytes_written
        ),
        (2_000, 1_000)
    );
    assert_eq!(
        (metrics.kinds_paused, metrics.segments, metrics.segments_retired),
        (1, 5, 3)
    );
    assert_eq!((metrics.running, metrics.clock_off_by), (None, None));
}

#[test]
fn the_thread_works_automatically_and_ends_on_request() {
    let work = FakeWork::new(Policy::default(), Vec::new());
    let settings = Settings {
        tick_interval: Duration::from_millis(5),
        ..Settings::default()
    };
    let scheduler = Scheduler::start(work.clone() as _, work.models(), settings);
    work.tables.lock()[0].segments = old_days(1);
    let id = loop {
        if let Some(job) = scheduler
            .jobs(&JobFilter {
                kind: Some(JobKind::Migrate),
                ..JobFilter::default()
            })
            .first()
        {
            break job.id;
        }
        std::thread::yield_now();
    };
    let job = scheduler.wait(id, Duration::from_secs(60)).expect("the job");
    assert_eq!(job.state, JobState::Done);
    let seal = scheduler.run(JobKind::Seal, None).expect("always")[0];
    let seal = scheduler.wait(seal, Duration::from_secs(60)).expect("the job");
    assert_eq!(seal.state, JobState::Done);
    scheduler.stop();
    scheduler.stop();
    assert!(!scheduler.tick());
}

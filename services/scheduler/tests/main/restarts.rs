//! Tests of restarts: jobs, ids, schedules and pauses survive.
//!
//! They also check the bytes of stored rows.

use bytes::Bytes;
use tideline_model::{JobKind, Policy, Schedule, TableId, Tier};
use tideline_scheduler::{JobFilter, JobState, Settings, WorkError};

use crate::fake::{DAY, FakeWork, HOUR, day, in_state, nightly, old_days, only, table};

#[test]
fn a_job_that_was_running_is_interrupted_and_its_work_planned_again() {
    let work = FakeWork::new(Policy::default(), old_days(1));
    let scheduler = work.scheduler();
    // The rows are copied while the job runs, and restored after it: a crash would leave them in this state.
    let (tell, hear) = std::sync::mpsc::channel();
    let observed = std::sync::Arc::clone(&work);
    work.on_step(move |_| tell.send(observed.rows.lock().clone()).expect("the test hears"));
    scheduler.run_due();
    let crashed = hear.recv().expect("it ran");
    drop(scheduler);
    *work.on_step.lock() = None;
    *work.rows.lock() = crashed;
    work.tables.lock()[0].segments = old_days(1);
    let scheduler = work.scheduler();
    let interrupted = only(in_state(&scheduler, JobState::Cancelled));
    let outcome = "interrupted by the end of the process; the same work is planned again";
    assert_eq!(
        (interrupted.kind, interrupted.outcome.as_deref()),
        (JobKind::Migrate, Some(outcome))
    );
    scheduler.run_due();
    let done = only(in_state(&scheduler, JobState::Done));
    assert!(done.id > interrupted.id, "ids are never used again");
    assert_eq!(in_state(&work.scheduler(), JobState::Cancelled), [interrupted]);
}

#[test]
fn past_jobs_and_ids_outlive_the_process() {
    let work = FakeWork::new(Policy::default(), old_days(2));
    let scheduler = work.scheduler();
    scheduler.run_due();
    let before = in_state(&scheduler, JobState::Done);
    let seal = scheduler.run(JobKind::Seal, None).expect("always")[0];
    let scheduler = work.scheduler();
    assert_eq!(in_state(&scheduler, JobState::Done), before);
    let next = scheduler.run(JobKind::Seal, None).expect("always")[0];
    assert!(
        next > seal,
        "an id that was only planned is not used again either"
    );
}

#[test]
fn schedules_are_not_served_twice_and_missed_ones_are_caught_up() {
    let work = FakeWork::new(
        Policy {
            migrate: nightly(),
            ..Policy::default()
        },
        Vec::new(),
    );
    work.scheduler().run_due();
    work.tables.lock()[0].segments = old_days(1);
    work.log();
    work.scheduler().run_due();
    assert_eq!(work.log(), ["Catalog"], "last night was served, without work");
    work.advance(3 * HOUR);
    work.scheduler().run_due();
    assert_eq!(work.log(), ["Catalog", "Migrate [1]"]);
    work.tables.lock()[0].segments.push(day(2, Tier::Hot, 2));
    work.advance(HOUR);
    work.scheduler().run_due();
    assert_eq!(work.log(), ["Catalog"]);
    // The process is off for the night.
    work.advance(DAY);
    work.scheduler().run_due();
    assert_eq!(work.log(), ["Catalog", "Migrate [2]"]);
}

#[test]
fn a_schedule_that_never_has_work_is_stored_as_served_every_hour() {
    let every_half_hour = Schedule::Cron {
        expression: "*/30 * * * *".into(),
        time_zone: "UTC".into(),
    };
    let work = FakeWork::new(
        Policy {
            migrate: every_half_hour,
            ..Policy::default()
        },
        Vec::new(),
    );
    let scheduler = work.scheduler();
    let row = || work.rows.lock().get(&Bytes::from("table-0000000001")).cloned();
    let mut stored = Vec::new();
    for _ in 0..7 {
        work.advance(HOUR / 2);
        let before = row();
        scheduler.run_due();
        stored.push(row() != before);
    }
    assert_eq!(stored, [true, false, true, false, true, false, true]);
    // A restart before the next scheduled time finds nothing that was missed.
    work.advance(HOUR / 4);
    work.tables.lock()[0].segments = old_days(1);
    work.log();
    work.scheduler().run_due();
    assert_eq!(work.log(), ["Catalog"]);
    // A restart reads the stored served time, so the interval of an hour does not begin again at the restart.
    work.tables.lock()[0].segments.clear();
    work.advance(HOUR / 4);
    let before = row();
    let scheduler = work.scheduler();
    scheduler.run_due();
    assert_eq!(row(), before, "half an hour after the stored time");
    work.advance(HOUR / 2);
    scheduler.run_due();
    assert_ne!(row(), before, "an hour after the stored time");
}

#[test]
fn paused_kinds_stay_paused() {
    let work = FakeWork::new(Policy::default(), old_days(1));
    let scheduler = work.scheduler();
    scheduler
        .pause_kind(JobKind::Migrate, Some("default"))
        .expect("a table");
    scheduler.pause_kind(JobKind::Seal, None).expect("always");
    let scheduler = work.scheduler();
    assert_eq!(scheduler.metrics().kinds_paused, 2);
    scheduler.run_due();
    assert_eq!(work.log(), ["Catalog"]);
    scheduler
        .resume_kind(JobKind::Migrate, Some("default"))
        .expect("a table");
    work.scheduler().run_due();
    assert!(work.log().contains(&"Migrate [1]".to_owned()));
}

#[test]
fn what_is_kept_about_a_dropped_table_goes_with_it() {
    let work = FakeWork::new(Policy::default(), Vec::new());
    work.tables
        .lock()
        .push(table(2, "other", Policy::default(), Vec::new()));
    let scheduler = work.scheduler();
    scheduler
        .pause_kind(JobKind::Migrate, Some("other"))
        .expect("a table");
    let has_row = || work.rows.lock().contains_key(&Bytes::from("table-0000000002"));
    scheduler.run_due();
    assert!(has_row());
    work.tables.lock().retain(|table| table.id == TableId(1));
    scheduler.run_due();
    assert!(!has_row());
}

#[test]
fn history_is_bounded_and_keeps_something_of_each_kind() {
    let work = FakeWork::new(Policy::default(), old_days(1));
    let settings = Settings {
        history: 10,
        ..Settings::default()
    };
    let scheduler = work.scheduler_with(work.models(), settings);
    scheduler.run_due();
    for _ in 0..50 {
        scheduler.run(JobKind::Seal, None).expect("always");
        scheduler.run_due();
    }
    let past = in_state(&scheduler, JobState::Done);
    assert_eq!(past.len(), 10);
    only(
        past.into_iter()
            .filter(|job| job.kind == JobKind::Migrate)
            .collect(),
    );
    let rows = work
        .rows
        .lock()
        .keys()
        .filter(|name| name.starts_with(b"job-"))
        .count();
    assert_eq!(rows, 10);
}

#[test]
fn long_texts_are_shortened_and_unknown_rows_left_out() {
    let work = FakeWork::new(Policy::default(), old_days(1));
    work.fail_next([WorkError::Failed("x".repeat(1 << 20))]);
    work.scheduler().run_due();
    assert!(work.rows.lock().values().all(|detail| detail.len() < 64 << 10));
    let mut rows = work.rows.lock();
    rows.insert(
        "job-00000000000000000999".into(),
        r#"{"format":2,"what":"ever"}"#.into(),
    );
    rows.insert("store".into(), "not json".into());
    rows.insert("elsewhere".into(), "{}".into());
    drop(rows);
    let scheduler = work.scheduler();
    assert_eq!(in_state(&scheduler, JobState::Failed).len(), 1);
    assert!(scheduler.run(JobKind::Seal, None).expect("always")[0] > 999);
}

/// Rows as version 1 wrote them. Such rows are on disk, so they must stay readable.
#[test]
fn golden_rows_read_back_and_are_written_the_same() {
    let job = r#"{"format":1,"id":7,"kind":"migrate","table":{"id":1,"name":"default"},"state":"done","by_hand":false,"reason":"why","created":5,"due":6,"started":7,"finished":8,"from":-10,"to":20,"tier":"cold","total":{"windows":1,"segments":2,"timelines":3,"points":4,"values":5,"bytes":6},"done":{"timelines":3,"points":4,"values":5,"bytes":6,"bytes_written":2,"bytes_per_second":9,"seconds_left":null},"outcome":"what","error":null}"#;
    let table = r#"{"format":1,"served":{"migrate":11},"paused":["fold"]}"#;
    let store = r#"{"format":1,"next_id":42,"paused":["seal"]}"#;
    let work = FakeWork::new(Policy::default(), Vec::new());
    for (name, detail) in [
        ("job-00000000000000000007", job),
        ("table-0000000001", table),
        ("store", store),
    ] {
        work.rows.lock().insert(name.into(), detail.into());
    }
    let scheduler = work.scheduler();
    let read = only(scheduler.jobs(&JobFilter {
        kind: Some(JobKind::Migrate),
        ..JobFilter::default()
    }));
    assert_eq!(
        (read.id, read.outcome.as_deref(), read.to),
        (7, Some("what"), Some(20))
    );
    assert_eq!(scheduler.metrics().kinds_paused, 2);
    assert!(scheduler.run(JobKind::Seal, None).expect("always")[0] >= 42);

    // Two opposite changes write the row of the table again. The job is read as running and written as interrupted.
    work.rows.lock().insert(
        "job-00000000000000000007".into(),
        job.replace("done\",\"by_hand", "running\",\"by_hand").into(),
    );
    let scheduler = work.scheduler();
    scheduler
        .pause_kind(JobKind::Purge, Some("default"))
        .expect("a table");
    scheduler
        .resume_kind(JobKind::Purge, Some("default"))
        .expect("a table");
    let rows = work.rows.lock();
    let text =
        |name: &str| String::from_utf8_lossy(&rows[&Bytes::copy_from_slice(name.as_bytes())]).into_owned();
    assert_eq!(text("table-0000000001"), table);
    let interrupted = job
        .replace("done\",\"by_hand", "cancelled\",\"by_hand")
        .replace("\"finished\":8", "\"finished\":7")
        .replace(
            "\"what\"",
            "\"interrupted by the end of the process; the same work is planned again\"",
        );
    assert_eq!(text("job-00000000000000000007"), interrupted);
}

/// Rows with kinds whose stored names are shorter than the names in the API, as version 1 wrote them.
#[test]
fn golden_rows_keep_the_short_names_of_kinds() {
    let kinds = [
        (JobKind::CleanCatalog, "catalog"),
        (JobKind::SetAttributes, "attributes"),
        (JobKind::AttachArchive, "attach"),
        (JobKind::SweepArchive, "sweep"),
        (JobKind::WriteSettings, "settings"),
    ];
    let work = FakeWork::new(Policy::default(), Vec::new());
    let table = r#"{"format":1,"served":{"catalog":11,"sweep":12},"paused":["attributes","settings"]}"#;
    let mut rows = vec![("table-0000000001".to_owned(), table.to_owned())];
    for (id, (_, stored)) in (1..).zip(kinds) {
        let job = format!(
            r#"{{"format":1,"id":{id},"kind":"{stored}","table":null,"state":"running","by_hand":true,"reason":"","created":5,"due":6,"started":7,"finished":null,"from":null,"to":null,"tier":"hot","total":{{"windows":0,"segments":0,"timelines":0,"points":0,"values":0,"bytes":0}},"done":{{"timelines":0,"points":0,"values":0,"bytes":0,"bytes_written":0,"bytes_per_second":null,"seconds_left":null}},"outcome":null,"error":null}}"#
        );
        rows.push((format!("job-{id:020}"), job));
    }
    for (name, row) in &rows {
        work.rows.lock().insert(name.clone().into(), row.clone().into());
    }
    let scheduler = work.scheduler();
    for (id, (kind, _)) in (1..).zip(kinds) {
        assert_eq!(scheduler.job(id).map(|job| job.kind), Some(kind));
    }
    assert_eq!(scheduler.metrics().kinds_paused, 2);
    // Interrupted jobs were written again at the start. Two opposite changes write the row of the table.
    scheduler
        .pause_kind(JobKind::Purge, Some("default"))
        .expect("a table");
    scheduler
        .resume_kind(JobKind::Purge, Some("default"))
        .expect("a table");
    let written = work.rows.lock();
    for (at, (name, row)) in rows.iter().enumerate() {
        let text = String::from_utf8_lossy(&written[name.as_bytes()]).into_owned();
        match at {
            0 => assert_eq!(text, *row),
            at => assert!(
                text.contains(&format!(r#""kind":"{}","#, kinds[at - 1].1)),
                "{text}"
            ),
        }
    }
}

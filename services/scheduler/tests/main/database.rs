//! Tests of the scheduler over the whole database: store, catalogs, index and rows.
//!
//! The tests set the clock and run due jobs themselves.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use tideline_archive::{Archive, ArchiveSettings};
use tideline_backend::Direction;
use tideline_backend::memory::{Character, MemoryBackend, MemoryDisk};
use tideline_condition::Condition;
use tideline_engine::feeds::FeedName;
use tideline_engine::find::NEVER;
use tideline_engine::key_codec::tuple::KeyValue;
use tideline_engine::rows::{Action, CellValue, Column, Image, RowPath, RowWrite, RowWriteOptions};
use tideline_engine::{Engine, Settings, Table, TimelineSelector, WideTable, WriteOptions};
use tideline_ingest_protocols::{DecodeOptions, line_protocol};
use tideline_message_feed::members::join;
use tideline_message_feed::send::{WriteTerms, send};
use tideline_model::feed::{MessageSettings, rows_of};
use tideline_model::time::NANOS_PER_SECOND;
use tideline_model::{
    FeedSpec, InboxEntries, InboxSpec, JobKind, ManualClock, PartsArchive, Schedule, TableModel, TableName,
    TableSpec, Tier, TimeRange, Timestamp,
};
use tideline_openapi::feed::NewMessage;
use tideline_scheduler::{JobFilter, Models, Scheduler};
use tideline_search_index::FindRequest;

use crate::fake::{DAY, HOUR, START};

/// Opens an empty engine and its scheduler.
fn opened(clock: &ManualClock, settings: Settings) -> (Arc<Engine>, Scheduler) {
    let backend = Arc::new(MemoryBackend::open(&MemoryDisk::new(Character::Embedded)));
    let engine = Engine::open(backend, Arc::new(clock.clone()), settings).expect("the engine opens");
    let engine = Arc::new(engine);
    let scheduler = Scheduler::without_thread(
        engine.clone() as _,
        Models::of_engine(&engine),
        tideline_scheduler::Settings::default(),
    );
    (engine, scheduler)
}

fn write(engine: &Engine, table: &Table, lines: &str) {
    let options = DecodeOptions::new(engine.clock().now());
    let batch = line_protocol::decode(lines.as_bytes(), options, &mut engine.resolver(table));
    let outcome = engine
        .write(table, batch, &WriteOptions::default())
        .expect("a write");
    assert_eq!(outcome.rejected, 0);
}

fn hosts(engine: &Engine, table: &Table) -> Vec<String> {
    let request = FindRequest {
        condition: Condition::All,
        limit: 100,
        ..FindRequest::default()
    };
    let page = engine.find(table, &request, NEVER).expect("a page");
    page.found
        .into_iter()
        .filter_map(|found| found.timeline.source)
        .collect()
}

#[test]
fn days_become_cold_deletes_are_applied_and_empty_timelines_go() {
    let clock = ManualClock::new(Timestamp::from_nanos_clamped(START));
    let index = tempfile::tempdir().expect("a temporary folder");
    let settings = Settings::new(index.path().join("index"));
    let (engine, scheduler) = opened(&clock, settings);
    let table = engine.default_table().expect("the default table");
    for hour in 0..12 * 24 {
        let now = START + hour * HOUR;
        write(
            &engine,
            &table,
            &format!("m,host=a f={hour} {now}\nm,host=b f={hour} {now}\n"),
        );
        clock.advance(HOUR);
        if hour % 2 == 1 {
            engine.seal().expect("a seal");
            scheduler.run_due();
        }
    }
    let stats = engine.table_stats(&table);
    assert_eq!(
        (stats.cold.segments, stats.cold.points, stats.sealed_points),
        (5, 2 * 5 * 24, 2 * 12 * 24)
    );

    let b = TimelineSelector::Condition(Condition::tag("host", "b"));
    engine
        .delete_points(&table, &b, TimeRange::ALL, NEVER)
        .expect("a delete");
    assert_eq!(
        hosts(&engine, &table).len(),
        2,
        "the timeline is there until it is cleaned up"
    );
    clock.advance(DAY / 24);
    scheduler.run_due();
    clock.advance(DAY / 24);
    scheduler.run_due();
    assert_eq!(hosts(&engine, &table), ["a"]);
    let stats = engine.table_stats(&table);
    assert_eq!((stats.sealed_points, stats.deletes_waiting), (12 * 24, 0));
    let moved = scheduler.metrics().moved;
    assert!(moved[&JobKind::Migrate].points_written >= 2 * 5 * 24);
    assert!(moved.contains_key(&JobKind::Purge));
}

/// Writes rows with the ids of a range.
fn write_rows(engine: &Engine, table: &WideTable, ids: std::ops::Range<u64>) {
    let (column, _) = table.column("n");
    let write = |id: u64| {
        let mut key = Vec::new();
        table
            .layout()
            .encode(&[KeyValue::from(id)], &mut key)
            .expect("a valid key");
        let time = engine.next_version();
        RowWrite {
            partition: key.len(),
            key: key.into(),
            time,
            action: Action::Put(vec![Column::with(
                column.clone(),
                time,
                CellValue::I64(id as i64),
            )]),
            condition: None,
            image: Image::None,
        }
    };
    let make = |_: &mut dyn FnMut() -> i64| Ok(ids.clone().map(write).collect());
    engine
        .write_rows(table, &make, &RowWriteOptions::default())
        .expect("they are written");
}

/// Returns the number of rows that are visible through a path: the primary key or an index.
fn visible(engine: &Engine, path: RowPath) -> usize {
    let table = engine.wide_table("rows").expect("it exists");
    let all = (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded);
    let ranges = path.layout(&table).ranges(&[], all).expect("valid bounds");
    let mut scan = engine.scan_rows(table, path, ranges, Direction::Ascending, None, 1_000);
    std::iter::from_fn(|| scan.next_row().expect("it is read")).count()
}

#[test]
fn an_index_is_built_and_expired_rows_are_removed_some_time_after_they_are_hidden() {
    let clock = ManualClock::new(Timestamp::from_nanos_clamped(START));
    let index = tempfile::tempdir().expect("a temporary folder");
    let mut settings = Settings::new(index.path().join("index"));
    settings.purge_delay = Duration::from_secs(3_600);
    let (engine, scheduler) = opened(&clock, settings);
    let wide = serde_json::json!({
        "key": [{"name": "id", "type": "u64"}],
        "columns": [{"name": "n", "type": "i64"}],
        "ttl": {"after": 2 * HOUR, "of": "row"},
    });
    let spec = TableSpec {
        model: TableModel::Wide,
        wide: Some(serde_json::from_value(wide).expect("valid settings")),
        ..TableSpec::default()
    };
    engine
        .create_table(TableName::new("rows").expect("a name"), spec)
        .expect("it is created");
    let table = engine.wide_table("rows").expect("it exists");
    write_rows(&engine, &table, 0..700);
    let by_n = serde_json::json!({"name": "by_n", "key": [{"name": "n", "type": "i64"}]});
    engine
        .create_index("rows", serde_json::from_value(by_n).expect("a valid index"))
        .expect("it is created");
    scheduler.run_due();
    let by_n = || {
        let table = engine.wide_table("rows").expect("it exists");
        RowPath::Index {
            index: Arc::clone(table.index("by_n").expect("it is ready")),
            is_covered: true,
        }
    };
    assert_eq!(
        (visible(&engine, RowPath::Primary), visible(&engine, by_n())),
        (700, 700)
    );
    clock.advance(HOUR);
    write_rows(&engine, &table, 600..800);
    // The timestamp of each row is one nanosecond later than the timestamp of the previous row.
    clock.advance(HOUR + 1_000);
    assert_eq!(
        (visible(&engine, RowPath::Primary), visible(&engine, by_n())),
        (200, 200)
    );
    scheduler.run_due();
    let stored = |id| {
        let read = engine.remove_expired_rows(id, &mut |_| ControlFlow::Continue(()));
        read.expect("it is read").expect("it is not ended").rows
    };
    let (rows, entries) = (
        table.table().points().id(),
        by_n().index().expect("an index").id(),
    );
    assert_eq!(
        (stored(rows), stored(entries)),
        (800, 800),
        "hidden rows are kept for an hour"
    );
    clock.advance(HOUR);
    assert_eq!(
        (visible(&engine, RowPath::Primary), visible(&engine, by_n())),
        (0, 0)
    );
    scheduler.run_due();
    let done = scheduler.jobs(&JobFilter {
        kind: Some(JobKind::RemoveExpired),
        ..JobFilter::default()
    });
    let outcomes: Vec<_> = done.iter().filter_map(|job| job.outcome.as_deref()).collect();
    assert_eq!(
        outcomes,
        ["600 of 800 rows had expired and were removed"],
        "{done:?}"
    );
    assert_eq!((stored(rows), stored(entries)), (200, 200));
}

/// Writes a row for each of these numbers of days before [`START`].
fn write_days(engine: &Engine, table: &WideTable, days: &[i64]) {
    let write = |days: &i64| {
        let at = Timestamp::from_nanos_clamped(START - days * DAY);
        let mut key = Vec::new();
        let encoded = table
            .layout()
            .encode(&[KeyValue::from(7_u64), at.into()], &mut key);
        encoded.expect("a valid key");
        RowWrite {
            partition: key.len(),
            key: key.into(),
            time: engine.next_version(),
            action: Action::Put(Vec::new()),
            condition: None,
            image: Image::None,
        }
    };
    let make = |_: &mut dyn FnMut() -> i64| Ok(days.iter().map(write).collect::<Vec<_>>());
    let written = engine.write_rows(table, &make, &RowWriteOptions::default());
    written.expect("they are written");
}

/// Creates the table `rows`, which is divided by day, with rows of four days. Returns its settings.
fn divided_by_day(engine: &Engine) -> TableSpec {
    let wide = serde_json::json!({
        "key": [{"name": "id", "type": "u64"}, {"name": "at", "type": "timestamp"}],
        "parts": {"by": "at", "every": "day"},
    });
    let spec = TableSpec {
        model: TableModel::Wide,
        wide: Some(serde_json::from_value(wide).expect("valid settings")),
        ..TableSpec::default()
    };
    let name = TableName::new("rows").expect("a name");
    engine.create_table(name, spec.clone()).expect("it is created");
    let table = engine.wide_table("rows").expect("it exists");
    write_days(engine, &table, &[0, 1, 9, 30]);
    spec
}

/// Returns the tiers of the parts of the table `rows`.
fn tiers(engine: &Engine) -> Vec<Option<Tier>> {
    let parts = engine.table_parts(&engine.wide_table("rows").expect("it exists"));
    parts.expect("parts").iter().map(|part| part.tier).collect()
}

#[test]
fn parts_move_to_the_cold_tier_and_are_dropped_by_their_ages() {
    let clock = ManualClock::new(Timestamp::from_nanos_clamped(START));
    let index = tempfile::tempdir().expect("a temporary folder");
    let settings = Settings::new(index.path().join("index"));
    let (engine, scheduler) = opened(&clock, settings);
    let mut spec = divided_by_day(&engine);
    let outcomes = || -> Vec<String> {
        let filter = JobFilter {
            kind: Some(JobKind::RemoveExpired),
            ..JobFilter::default()
        };
        let done = scheduler.jobs(&filter).into_iter();
        done.filter_map(|job| job.outcome.clone()).collect()
    };
    scheduler.run_due();
    assert!(outcomes().is_empty(), "parts are kept for ever by default");
    engine.seal().expect("the rows are flushed");
    let parts = spec.wide.as_mut().and_then(|wide| wide.parts.as_mut());
    parts.expect("it is divided").hot = Some(8 * DAY);
    engine.alter_table("rows", spec.clone()).expect("it is changed");
    scheduler.run_due();
    let tiers = || tiers(&engine);
    let (hot, cold) = (Some(Tier::Hot), Some(Tier::Cold));
    assert_eq!(tiers(), [cold, cold, hot, hot]);
    assert_eq!(visible(&engine, RowPath::Primary), 4, "cold parts are read");
    let parts = spec.wide.as_mut().and_then(|wide| wide.parts.as_mut());
    let parts = parts.expect("it is divided");
    (parts.hot, parts.keep) = (None, Some(5 * DAY));
    engine.alter_table("rows", spec).expect("it is changed");
    assert_eq!(
        visible(&engine, RowPath::Primary),
        2,
        "older parts are hidden at once"
    );
    scheduler.run_due();
    assert_eq!(outcomes(), ["2 old parts were dropped"]);
    let left = engine.table_parts(&engine.wide_table("rows").expect("it exists"));
    assert_eq!(left.expect("parts").len(), 2);
}

#[test]
fn parts_move_and_are_dropped_at_the_times_of_their_schedules() {
    let clock = ManualClock::new(Timestamp::from_nanos_clamped(START));
    let index = tempfile::tempdir().expect("a temporary folder");
    let settings = Settings::new(index.path().join("index"));
    let (engine, scheduler) = opened(&clock, settings);
    let mut spec = divided_by_day(&engine);
    engine.seal().expect("the rows are flushed");
    // The time of each schedule is six hours after the change of the settings, or slightly earlier.
    let after = |hours: i64| Schedule::Cron {
        expression: format!("0 {} * * *", (START / HOUR + hours).rem_euclid(24)),
        time_zone: "UTC".to_owned(),
    };
    let parts = spec.wide.as_mut().and_then(|wide| wide.parts.as_mut());
    let parts = parts.expect("it is divided");
    (parts.hot, parts.keep) = (Some(5 * DAY), Some(20 * DAY));
    (parts.migrate, parts.expire) = (after(6), after(12));
    parts.move_bytes_per_second = Some(1 << 40);
    engine.alter_table("rows", spec).expect("it is changed");
    let tiers = || tiers(&engine);
    let pass = |hours: i64| {
        for _ in 0..hours {
            clock.advance(HOUR);
            engine.store().trusted_now();
        }
        scheduler.run_due();
    };
    let (hot, cold) = (Some(Tier::Hot), Some(Tier::Cold));
    scheduler.run_due();
    pass(4);
    assert_eq!(tiers(), [hot; 4], "the times of the schedules have not come");
    pass(4);
    assert_eq!(tiers()[1..], [cold, hot, hot]);
    pass(6);
    assert_eq!(tiers(), [cold, hot, hot], "the oldest part was dropped");
}

/// Creates a table of rows with a number.
fn create_rows(engine: &Engine) -> Arc<WideTable> {
    let wide = serde_json::json!({
        "key": [{"name": "id", "type": "u64"}],
        "columns": [{"name": "n", "type": "i64"}],
    });
    let spec = TableSpec {
        model: TableModel::Wide,
        wide: Some(serde_json::from_value(wide).expect("valid settings")),
        ..TableSpec::default()
    };
    engine
        .create_table(TableName::new("rows").expect("a name"), spec)
        .expect("it is created");
    engine.wide_table("rows").expect("it exists")
}

#[test]
fn a_changed_table_is_surveyed_at_most_every_ten_minutes() {
    let clock = ManualClock::new(Timestamp::from_nanos_clamped(START));
    let index = tempfile::tempdir().expect("a temporary folder");
    let (engine, scheduler) = opened(&clock, Settings::new(index.path().join("index")));
    let table = create_rows(&engine);
    let id = table.table().points().id();
    let stored = || engine.row_survey(id).map(|survey| survey.rows.rows);
    write_rows(&engine, &table, 0..700);
    engine.seal().expect("it is flushed");
    scheduler.run_due();
    assert_eq!(stored(), None, "a survey does not slow down a start");
    // The first survey is due within a minute.
    clock.advance(HOUR / 40);
    scheduler.run_due();
    assert_eq!(stored(), Some(700));
    write_rows(&engine, &table, 700..800);
    engine.seal().expect("it is flushed");
    scheduler.run_due();
    assert_eq!(stored(), Some(700), "the last survey is too recent");
    clock.advance(HOUR);
    scheduler.run_due();
    assert_eq!(stored(), Some(800));
    clock.advance(HOUR);
    let at = engine.row_survey(id).expect("a survey").at;
    scheduler.run_due();
    let again = engine.row_survey(id).expect("a survey").at;
    assert_eq!(at, again, "the table has not changed");
    let done = scheduler.jobs(&JobFilter {
        kind: Some(JobKind::SurveyRows),
        ..JobFilter::default()
    });
    let outcomes: Vec<_> = done.iter().filter_map(|job| job.outcome.as_deref()).collect();
    assert!(
        outcomes.is_empty(),
        "surveys that pack nothing are not recorded: {done:?}"
    );
}

#[test]
fn rows_that_a_survey_has_missed_are_counted_by_the_next_one() {
    let clock = ManualClock::new(Timestamp::from_nanos_clamped(START));
    let index = tempfile::tempdir().expect("a temporary folder");
    let (engine, scheduler) = opened(&clock, Settings::new(index.path().join("index")));
    let table = create_rows(&engine);
    let id = table.table().points().id();
    let stored = || engine.row_survey(id).map(|survey| survey.rows.rows);
    clock.advance(HOUR / 40);
    scheduler.run_due();
    assert_eq!(stored(), Some(0), "the table is empty");
    write_rows(&engine, &table, 0..700);
    engine.seal().expect("it is flushed");
    // A survey that found no rows is repeated after 30 seconds.
    clock.advance(HOUR / 100);
    scheduler.run_due();
    assert_eq!(stored(), Some(700));
    write_rows(&engine, &table, 700..800);
    clock.advance(HOUR);
    scheduler.run_due();
    // The survey may have missed the rows in the row buffer.
    engine.seal().expect("it is flushed");
    clock.advance(HOUR);
    scheduler.run_due();
    assert_eq!(stored(), Some(800));
    assert_eq!(engine.next_row_survey(id), None, "all rows are counted");
}

#[test]
fn parts_move_to_the_archive_by_their_age_and_unused_files_are_removed() {
    let clock = ManualClock::new(Timestamp::from_nanos_clamped(START));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let target = folder.path().join("target");
    std::fs::create_dir_all(&target).expect("a folder");
    let mut settings = Settings::new(folder.path().join("index"));
    let archive = ArchiveSettings::new(folder.path().join("temporary"));
    settings.store.archive = Some(Arc::new(Archive::open(archive).expect("it opens")));
    let (engine, scheduler) = opened(&clock, settings);
    let mut spec = divided_by_day(&engine);
    engine.seal().expect("the rows are flushed");
    let parts = spec.wide.as_mut().and_then(|wide| wide.parts.as_mut());
    parts.expect("it is divided").archive = Some(PartsArchive {
        target: format!("file://{}", target.display()),
        after: 8 * DAY,
        schedule: Schedule::Continuous,
    });
    engine.alter_table("rows", spec).expect("it is changed");
    let files = || -> usize {
        let rows = target.join("rows");
        let below = |path: &std::path::Path| std::fs::read_dir(path).into_iter().flatten().flatten();
        let folders = below(&rows).filter(|folder| folder.file_name() != "_parts");
        folders.map(|folder| below(&folder.path()).count()).sum()
    };
    let tiers = || tiers(&engine);
    scheduler.run_due();
    let (hot, cold, archived) = (Some(Tier::Hot), Some(Tier::Cold), Some(Tier::Archive));
    assert_eq!(tiers(), [archived, archived, hot, hot]);
    assert_eq!(files(), 2);
    assert_eq!(visible(&engine, RowPath::Primary), 4, "archived parts are read");

    // A restored part stays for its time, and is archived again.
    let table = engine.wide_table("rows").expect("it exists");
    let parts = engine.table_parts(&table).expect("parts");
    let until = Timestamp::from_nanos_clamped(START + 2 * DAY);
    let restored = engine.restore_parts(&table, &parts[..1], until, &mut |_| ControlFlow::Continue(()));
    assert_eq!(restored.expect("it is restored").map(|(count, _)| count), Some(1));
    scheduler.run_due();
    assert_eq!(tiers(), [cold, archived, hot, hot]);
    // The trusted clock follows the clock hour by hour.
    for _ in 0..60 {
        clock.advance(HOUR);
        engine.store().trusted_now();
    }
    scheduler.run_due();
    assert_eq!(tiers()[..2], [archived, archived]);
    assert_eq!(visible(&engine, RowPath::Primary), 4);
    // The timestamps of the files come from the clock of the machine, which is behind the clock of the test, so all
    // files count as old.
    for _ in 0..30 {
        clock.advance(HOUR);
        engine.store().trusted_now();
    }
    scheduler.run_due();
    assert_eq!(files(), 2, "the files of the first archiving are gone");
    assert_eq!(visible(&engine, RowPath::Primary), 4);
}

#[test]
fn messages_are_written_to_inboxes_when_they_have_waited_for_a_minute() {
    let clock = ManualClock::new(Timestamp::from_nanos_clamped(START));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (engine, scheduler) = opened(&clock, Settings::new(folder.path().join("index")));
    let feed = FeedSpec {
        inboxes: Some(InboxSpec {
            push_max: 1,
            fan_out_max: 10,
            entries: InboxEntries::Reference,
        }),
        ..FeedSpec::default()
    };
    let spec = TableSpec {
        model: TableModel::Feed,
        feed: Some(feed),
        wide: Some(Box::new(rows_of(feed, MessageSettings::default()))),
        ..TableSpec::default()
    };
    let name = TableName::new("chat").expect("a name");
    engine.create_table(name, spec).expect("it is created");
    let table = engine.feed_table("chat").expect("it exists");
    let room = FeedName::parse("room,name=lobby");
    for user in ["ann", "bea", "cid"] {
        join(&engine, &table, &room, user, None, &|| false).expect("a member");
    }
    let send_one = || {
        let message = serde_json::from_str(r#"[{"columns": {"text": "hello"}}]"#);
        let messages: Vec<NewMessage> = message.expect("a message");
        send(&engine, &table, &room, &messages, &WriteTerms::default()).expect("it is sent");
    };
    let waiting = || engine.waiting_feeds(&table).len();
    let jobs = || {
        scheduler.jobs(&JobFilter {
            kind: Some(JobKind::FanOut),
            ..JobFilter::default()
        })
    };
    // The first job looks up the messages that waited before the start, and is not recorded.
    scheduler.run_due();
    assert!(jobs().is_empty(), "{:?}", jobs());
    send_one();
    clock.advance(59 * NANOS_PER_SECOND);
    scheduler.run_due();
    assert_eq!(waiting(), 1, "not due");
    clock.advance(2 * NANOS_PER_SECOND);
    scheduler.run_due();
    assert_eq!(waiting(), 0);
    let done = jobs();
    assert_eq!((done.len(), done[0].done.points, done[0].total.points), (1, 3, 3));
    let outcome = done[0].outcome.as_deref().expect("it ended");
    assert_eq!(
        outcome,
        "1 messages of 1 feeds were written to inboxes: 3 entries"
    );
    assert_eq!(engine.fan_out_entries(), 3);
    send_one();
    clock.advance(120 * NANOS_PER_SECOND);
    scheduler.run_due();
    assert_eq!((waiting(), engine.fan_out_entries()), (0, 6));
}

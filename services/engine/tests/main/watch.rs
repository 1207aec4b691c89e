//! Tests of watching a table.
//!
//! Each acknowledged point of the watched timelines is reported once, in order, from any cursor on. New and edited
//! timelines and deletes are reported on request.

use tideline_condition::operators::{Exists, Within};
use tideline_condition::{Condition, Subject};
use tideline_engine::find::NEVER;
use tideline_engine::watch::{WatchCursor, WatchEvents, WatchPart, WatchRequest, Watcher};
use tideline_engine::{Engine, ErrorKind, Table, TimelineSelector, WriteOptions};
use tideline_model::{ColumnData, PointBatch, PointGroup, SeriesResolver, TableName, TableSpec, TimeRange};
use tideline_timeline_catalog::AttributeValue;

use crate::support::{Fixture, found, host, set_owner, write};

fn request(condition: Condition) -> WatchRequest {
    WatchRequest {
        details: false,
        timelines: TimelineSelector::Condition(condition),
        fields: Vec::new(),
        includes_points: true,
        includes_timelines: false,
        includes_deletes: false,
        from: None,
    }
}

/// Returns all pending events as text, each with the cursor of its [`WatchPart`].
fn reported(watcher: &mut Watcher, engine: &Engine) -> Vec<(String, WatchCursor)> {
    let mut reported = Vec::new();
    loop {
        let parts = watcher.step(engine).expect("a step");
        if parts.is_empty() {
            return reported;
        }
        for part in parts {
            let WatchPart { cursor, events } = part;
            match events {
                WatchEvents::Points(series) => {
                    for series in series {
                        let host = series.timeline.tags[0].1.clone();
                        for (row, time) in series.timestamps.iter().enumerate() {
                            let values = series.fields.iter().zip(&series.columns);
                            let values: Vec<String> = values
                                .map(|(field, column)| format!("{field}={}", shown(column, row)))
                                .collect();
                            reported.push((format!("{host} {time} {}", values.join(",")), cursor));
                        }
                    }
                }
                WatchEvents::Timelines(timelines) => reported.extend(timelines.into_iter().map(|timeline| {
                    assert!(timeline.seen.is_some(), "each has points: {timeline:?}");
                    let attributes: Vec<&String> = timeline.attributes.keys().collect();
                    (format!("{} has {attributes:?}", timeline.tags[0].1), cursor)
                })),
                WatchEvents::Deleted(deleted) => {
                    let what = if deleted.is_removed { "removed" } else { "deleted" };
                    let range = deleted.range;
                    reported.extend(deleted.timelines.iter().map(|id| {
                        let text = match deleted.is_removed {
                            true => format!("{id} {what}"),
                            false => format!("{id} {what} {}..{}", range.start, range.end),
                        };
                        (text, cursor)
                    }));
                }
            }
        }
    }
}

fn shown(column: &ColumnData, row: usize) -> String {
    match column {
        ColumnData::Float(values) => values[row].to_string(),
        ColumnData::Signed(values) => format!("{}i", values[row]),
        ColumnData::Unsigned(values) => format!("{}u", values[row]),
        ColumnData::Boolean(values) => values[row].to_string(),
        ColumnData::String(texts) => format!("{:?}", texts.get(row)),
        ColumnData::Histogram(histograms) => format!("{:?}", histograms.get(row)),
    }
}

fn texts(reported: &[(String, WatchCursor)]) -> Vec<&str> {
    reported.iter().map(|(text, _)| text.as_str()).collect()
}

fn table(engine: &Engine) -> Table {
    engine.default_table().expect("the default table")
}

#[test]
fn new_points_of_matching_timelines_are_reported_in_order() {
    let fixture = Fixture::new();
    let engine = fixture.open();
    let table = table(&engine);
    write(&engine, &table, "m,host=a f=0 1\n");
    let mut watcher = engine
        .watch(&table, request(Condition::tag("host", "a")))
        .expect("a watch");
    assert!(reported(&mut watcher, &engine).is_empty());
    write(
        &engine,
        &table,
        "m,host=a f=1,g=\"x\" 2\nm,host=b f=9 2\nm,host=a f=2 1\n",
    );
    write(&engine, &table, "m,host=b f=9 3\n");
    let got = reported(&mut watcher, &engine);
    assert_eq!(texts(&got), ["a 2 f=1,g=\"x\"", "a 1 f=2"]);
    let of_field = WatchRequest {
        fields: vec!["g".into()],
        from: Some(watcher.cursor()),
        ..request(Condition::All)
    };
    let mut of_field = engine.watch(&table, of_field).expect("a watch");
    write(&engine, &table, "m,host=b f=1,g=\"y\" 4\nm,host=b f=2 5\n");
    assert_eq!(texts(&reported(&mut of_field, &engine)), ["b 4 g=\"y\""]);
    assert!(reported(&mut watcher, &engine).is_empty());
}

#[test]
fn from_any_cursor_on_the_rest_is_reported_once_also_after_a_restart() {
    let fixture = Fixture::new();
    let (all, begin) = {
        let engine = fixture.open();
        let table = table(&engine);
        let mut watcher = engine.watch(&table, request(Condition::All)).expect("a watch");
        let begin = watcher.cursor();
        // One batch that is reported in several parts, between two small batches.
        write(&engine, &table, "m,host=a f=0 0\n");
        let lines: String = (0..7_000)
            .map(|row| format!("m,host=h{} f={row}i {row}\n", row % 3))
            .collect();
        write(&engine, &table, &lines.replace("i ", " "));
        write(&engine, &table, "m,host=a f=1 1\n");
        let all = reported(&mut watcher, &engine);
        engine.close().expect("a clean close");
        (all, begin)
    };
    assert_eq!(all.len(), 7_002);
    let mut cursors: Vec<WatchCursor> = all.iter().map(|(_, cursor)| *cursor).collect();
    cursors.dedup();
    assert!(cursors.len() > 4, "the batch is reported in parts: {cursors:?}");
    let engine = fixture.open();
    let table = table(&engine);
    for cursor in [begin].into_iter().chain(cursors) {
        let text = cursor.to_string();
        let resumed = WatchRequest {
            from: Some(text.parse().expect("a cursor reads back")),
            ..request(Condition::All)
        };
        let mut watcher = engine.watch(&table, resumed).expect("a watch");
        let told_before = all
            .iter()
            .rposition(|(_, reported)| *reported == cursor)
            .map_or(0, |last| last + 1);
        assert_eq!(
            texts(&reported(&mut watcher, &engine)),
            texts(&all[told_before..]),
            "from {text}"
        );
    }
}

#[test]
fn timelines_are_reported_when_new_and_when_an_edit_makes_them_match() {
    let fixture = Fixture::new();
    let engine = fixture.open();
    let table = table(&engine);
    write(&engine, &table, "m,host=a f=1 1\n");
    let owned = Condition::leaf(Subject::Attribute("owner".into()), Exists(true));
    let wanted = WatchRequest {
        includes_timelines: true,
        ..request(Condition::Or(vec![Condition::tag("host", "b"), owned]))
    };
    let mut watcher = engine.watch(&table, wanted).expect("a watch");
    write(
        &engine,
        &table,
        "m,host=a f=1 2\nm,host=b f=1 2\nm,host=c f=1 2\n",
    );
    assert_eq!(texts(&reported(&mut watcher, &engine)), ["b has []", "b 2 f=1"]);
    let a = found(&engine, &table, Condition::tag("host", "a"))["a"].id;
    set_owner(&engine, &table, a, "me");
    assert_eq!(texts(&reported(&mut watcher, &engine)), ["a has [\"owner\"]"]);
    write(&engine, &table, "m,host=a f=1 3\n");
    assert_eq!(texts(&reported(&mut watcher, &engine)), ["a 3 f=1"]);
}

#[test]
fn what_cannot_be_reported_is_refused_by_name() {
    let fixture = Fixture::new();
    let engine = fixture.open();
    let table = table(&engine);
    let other = TableName::new("other").expect("valid");
    let other = engine.create_table(other, TableSpec::default()).expect("a table");
    let of_other = engine
        .watch(&other, request(Condition::All))
        .expect("a watch")
        .cursor();
    let from = |cursor| WatchRequest {
        from: Some(cursor),
        ..request(Condition::All)
    };
    let refused = engine
        .watch(&table, from(of_other))
        .expect_err("of another table");
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    let seen = Condition::leaf(Subject::LastSeen, Within::from(tideline_model::TimeRange::ALL));
    assert_eq!(
        engine.watch(&table, request(seen)).expect_err("seen").kind(),
        ErrorKind::Invalid
    );
    assert!("1-2-3".parse::<WatchCursor>().is_err() && "1-2-3-x".parse::<WatchCursor>().is_err());
    let table_number = of_other.to_string();
    let ahead = format!("{}-ffffff-0-0", table_number.split('-').next().expect("a number"));
    let mut ahead = engine
        .watch(&other, from(ahead.parse().expect("a cursor")))
        .expect("its form is right");
    assert_eq!(
        ahead.step(&engine).expect_err("ahead of the journal").kind(),
        ErrorKind::Gone
    );
    let mut watcher = engine.watch(&other, request(Condition::All)).expect("a watch");
    engine.drop_table("other").expect("it goes");
    assert_eq!(
        watcher.step(&engine).expect_err("dropped").kind(),
        ErrorKind::NotFound
    );
}

#[test]
fn deletes_are_reported_with_the_matching_timelines_also_after_a_restart() {
    let fixture = Fixture::new();
    let engine = fixture.open();
    let of_default = table(&engine);
    write(
        &engine,
        &of_default,
        "m,host=a f=1 1\nm,host=b f=1 1\nm,host=c f=1 1\n",
    );
    let all = found(&engine, &of_default, Condition::All);
    let id = |host: &str| all[host].id;
    let wanted = WatchRequest {
        includes_deletes: true,
        ..request(Condition::tag("host", "a"))
    };
    let watcher = engine.watch(&of_default, wanted.clone()).expect("a watch");
    let begin = watcher.cursor();
    let range = TimeRange::new(1, 5);
    let every = TimelineSelector::Condition(Condition::All);
    engine
        .delete_points(&of_default, &every, range, NEVER)
        .expect("deleted");
    write(&engine, &of_default, "m,host=a f=2 2\n");
    engine
        .delete_points(&of_default, &host("b"), range, NEVER)
        .expect("deleted");
    engine
        .delete_timelines(&of_default, &host("c"), NEVER)
        .expect("removed");
    let expected = [
        format!("{} deleted 1..5", id("a")),
        // This timeline is removed, so the condition cannot be checked any more.
        format!("{} deleted 1..5", id("c")),
        "a 2 f=2".to_owned(),
        format!("{} removed", id("c")),
    ];
    let ask = |engine: &Engine, request: WatchRequest| {
        let mut watcher = engine.watch(&table(engine), request).expect("a watch");
        reported(&mut watcher, engine)
    };
    let from = |cursor| WatchRequest {
        from: Some(cursor),
        ..wanted.clone()
    };
    let first = ask(&engine, from(begin));
    assert_eq!(texts(&first), expected);
    drop(engine);
    let engine = fixture.open();
    assert_eq!(texts(&ask(&engine, from(begin))), expected);
    assert_eq!(texts(&ask(&engine, from(first[1].1))), expected[2..]);
    let not_asked = WatchRequest {
        includes_deletes: false,
        ..from(begin)
    };
    assert_eq!(texts(&ask(&engine, not_asked)), expected[2..3]);
}

#[test]
fn a_delete_of_very_many_timelines_is_reported_to_its_end_from_any_cursor_on() {
    let fixture = Fixture::new();
    let engine = fixture.open();
    let table = table(&engine);
    let lines: String = (0..12_000)
        .map(|host| format!("m,host=h{host} f=1 1\n"))
        .collect();
    write(&engine, &table, &lines);
    let wanted = WatchRequest {
        includes_deletes: true,
        ..request(Condition::All)
    };
    let mut watcher = engine.watch(&table, wanted.clone()).expect("a watch");
    let every = TimelineSelector::Condition(Condition::All);
    engine
        .delete_points(&table, &every, TimeRange::new(0, 9), NEVER)
        .expect("deleted");
    let all = reported(&mut watcher, &engine);
    assert_eq!(all.len(), 12_000);
    let middle = all[7_000].1;
    let behind = all.iter().skip_while(|(_, cursor)| *cursor != middle);
    let behind = behind.skip_while(|(_, cursor)| *cursor == middle).count();
    assert!(behind > 3_000, "{behind}");
    let resumed = WatchRequest {
        from: Some(middle),
        ..wanted
    };
    let mut resumed = engine.watch(&table, resumed).expect("a watch");
    assert_eq!(reported(&mut resumed, &engine).len(), behind);
}

#[test]
fn a_watcher_that_stays_away_too_long_gets_an_error() {
    let fixture = Fixture::new();
    let engine = fixture.open_with(|settings| settings.store.log.tail_bytes_max = 200);
    let table = table(&engine);
    let mut watcher = engine.watch(&table, request(Condition::All)).expect("a watch");
    for at in 0..50 {
        write(&engine, &table, &format!("m,host=a f={at} {at}\n"));
    }
    let lost = watcher.step(&engine).expect_err("the first are gone");
    assert_eq!(lost.kind(), ErrorKind::Gone);
    assert!(lost.to_string().contains("not kept any more"), "{lost}");
}

#[test]
fn a_batch_of_very_many_new_timelines_is_reported_to_its_end() {
    let fixture = Fixture::new();
    let engine = fixture.open();
    let table = table(&engine);
    let wanted = WatchRequest {
        includes_timelines: true,
        ..request(Condition::All)
    };
    let mut watcher = engine.watch(&table, wanted).expect("a watch");
    let lines: String = (0..9_000).map(|host| format!("m,host=h{host} f=1 1\n")).collect();
    write(&engine, &table, &lines);
    let all = reported(&mut watcher, &engine);
    let points = all.iter().filter(|(text, _)| text.ends_with(" 1 f=1")).count();
    assert_eq!((all.len(), points), (18_000, 9_000));
}

#[test]
fn many_edits_are_reported_from_any_cursor_on() {
    let fixture = Fixture::new();
    let engine = fixture.open();
    let table = table(&engine);
    let lines: String = (0..1_200).map(|host| format!("m,host=h{host} f=1 1\n")).collect();
    write(&engine, &table, &lines);
    let wanted = WatchRequest {
        includes_points: false,
        includes_timelines: true,
        ..request(Condition::All)
    };
    let mut watcher = engine.watch(&table, wanted.clone()).expect("a watch");
    let changes =
        std::collections::BTreeMap::from([("owner".to_owned(), Some(AttributeValue::Text("me".into())))]);
    let all = engine.select(&table, &Condition::All, NEVER).expect("all");
    engine
        .set_attributes_of(&table, &all, &changes, &mut |_| true)
        .expect("edits");
    let told_of = reported(&mut watcher, &engine);
    assert_eq!(told_of.len(), 1_200);
    let first = told_of[0].1;
    let behind = told_of.iter().filter(|(_, cursor)| *cursor != first).count();
    let resumed = WatchRequest {
        from: Some(first),
        ..wanted
    };
    let mut resumed = engine.watch(&table, resumed).expect("a watch");
    assert_eq!(reported(&mut resumed, &engine).len(), behind);
    assert!(behind > 0);
}

#[test]
fn writes_to_a_table_that_is_gone_do_not_end_cursors_of_others() {
    let fixture = Fixture::new();
    let cursor = {
        let engine = fixture.open();
        let other = TableName::new("other").expect("valid");
        let other = engine.create_table(other, TableSpec::default()).expect("a table");
        let mut watcher = engine
            .watch(&table(&engine), request(Condition::All))
            .expect("a watch");
        write(&engine, &table(&engine), "m,host=a f=1 1\n");
        write(&engine, &other, "m,host=a f=1 1\n");
        engine.drop_table("other").expect("it goes");
        assert_eq!(reported(&mut watcher, &engine).len(), 1);
        engine.close().expect("a clean close");
        watcher.cursor()
    };
    let engine = fixture.open();
    let resumed = WatchRequest {
        from: Some(cursor),
        ..request(Condition::All)
    };
    let mut resumed = engine.watch(&table(&engine), resumed).expect("a watch");
    assert!(reported(&mut resumed, &engine).is_empty());
}

#[test]
fn parts_of_histograms_are_as_small_as_those_of_texts() {
    let fixture = Fixture::new();
    let engine = fixture.open();
    let table = table(&engine);
    let mut watcher = engine.watch(&table, request(Condition::All)).expect("a watch");
    let (rows, stored) = (2_000, [7; 1_000]);
    let mut resolver = engine.resolver(&table);
    let group = PointGroup {
        measurements: "m".into(),
        fields: vec!["h".into()],
        columns: vec![ColumnData::Histogram(
            std::iter::repeat_n(&stored[..], rows).collect(),
        )],
        timelines: vec![resolver.resolve(b"m,host=a").expect("a valid key"); rows],
        timestamps: (0..rows as i64).collect(),
        lines: (1..=rows as u32).collect(),
    };
    drop(resolver);
    let batch = PointBatch {
        groups: vec![group],
        rejects: Vec::new(),
    };
    let outcome = engine.write(&table, batch, &WriteOptions::default());
    assert_eq!(outcome.expect("a write").rejects, []);
    let parts = watcher.step(&engine).expect("a step");
    let of_each = parts.iter().map(|part| match &part.events {
        WatchEvents::Points(series) => series[0].columns[0].bytes(),
        _ => 0,
    });
    let of_each: Vec<usize> = of_each.collect();
    assert_eq!(of_each.iter().sum::<usize>(), rows * 1_008);
    assert!(of_each.iter().all(|bytes| *bytes < 300 << 10), "{of_each:?}");
}

#[test]
fn a_dropped_table_and_a_crash_do_not_take_sequences_back() {
    let fixture = Fixture::new();
    let cursor = {
        let engine = fixture.open();
        let kept = table(&engine);
        let doomed = TableName::new("doomed").expect("valid");
        let doomed = engine
            .create_table(doomed, TableSpec::default())
            .expect("a table");
        write(&engine, &kept, "m,host=a f=0 1\n");
        let mut watcher = engine.watch(&kept, request(Condition::All)).expect("a watch");
        for at in 0..10 {
            write(&engine, &doomed, &format!("m,host=a f=0 {at}\n"));
        }
        assert!(reported(&mut watcher, &engine).is_empty());
        engine.drop_table("doomed").expect("dropped");
        watcher.cursor()
        // The points are unsealed, so the next start replays the journal.
    };
    let engine = fixture.open();
    let kept = table(&engine);
    let resumed = WatchRequest {
        from: Some(cursor),
        ..request(Condition::All)
    };
    let mut watcher = engine.watch(&kept, resumed).expect("a watch");
    assert!(reported(&mut watcher, &engine).is_empty());
    for at in 1..20 {
        write(&engine, &kept, &format!("m,host=a f={at} {at}\n"));
    }
    let expected: Vec<String> = (1..20).map(|at| format!("a {at} f={at}")).collect();
    assert_eq!(texts(&reported(&mut watcher, &engine)), expected);
    drop(watcher);
    drop((kept, engine));
    // Each entry keeps its position in the journal across another start.
    let engine = fixture.open();
    let resumed = WatchRequest {
        from: Some(cursor),
        ..request(Condition::All)
    };
    let mut watcher = engine.watch(&table(&engine), resumed).expect("a watch");
    assert_eq!(texts(&reported(&mut watcher, &engine)), expected);
}

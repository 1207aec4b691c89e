//! Tests of copies of points into another table.
//!
//! A copy includes points of several types and shapes, and identities and attributes of timelines. It is limited to
//! the range, ends on request and counts refused points.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use tideline_condition::Condition;
use tideline_engine::{Engine, PointsCopied, Table};
use tideline_model::{Policy, TimeRange};
use tideline_series_store::{Order, Selection};
use tideline_timeline_catalog::AttributeValue;

use crate::support::{DAY, Fixture, SECOND, START, found, table_with, write};

/// Returns the points of a machine: timestamp, field, and value with its type as text.
fn points(engine: &Engine, table: &Table, host: &str) -> Vec<(i64, String, String)> {
    let timelines = [found(engine, table, Condition::tag("host", host))[host].id];
    let snapshot = engine.store().snapshot();
    let mut reader = snapshot.reader(Selection {
        table: table.points().id(),
        timelines: &timelines,
        range: TimeRange::ALL,
        fields: None,
        order: Order::Ascending,
        tier: None,
    });
    let mut points = Vec::new();
    let read = reader.timeline(timelines[0], &mut |run| {
        for column in &run.columns {
            let name = table.points().schema().field_name(column.field).expect("a name");
            let rows = (0..run.rows()).filter(|row| column.presence.contains(*row));
            points.extend(rows.map(|row| {
                let value = column.values.pick([column.presence.rank(row)].into_iter());
                (run.timestamps[row], name.clone(), format!("{value:?}"))
            }));
        }
        Ok(ControlFlow::Continue(()))
    });
    read.expect("the points can be read");
    points.sort();
    points
}

/// Returns many points of few machines: some points have fields that others lack, and one machine has another
/// measurement.
fn lines() -> String {
    let mut lines = String::new();
    for at in 0..10_000i64 {
        let time = START - DAY + at * SECOND;
        lines.push_str(&format!("m,host=a f={at}.5,n={at}i {time}\n"));
        let text = if at % 3 == 0 {
            format!(",text=\"t {at}\"")
        } else {
            String::new()
        };
        let up = if at % 5 == 0 { ",up=true" } else { "" };
        lines.push_str(&format!("m,host=b f={at}{text}{up} {time}\n"));
    }
    lines.push_str(&format!("other\\ one,host=c,rack=r\\,1 u=7u {START}\n"));
    lines
}

#[test]
fn a_copy_answers_as_what_it_was_made_of_and_again() {
    let fixture = Fixture::new();
    let engine = fixture.open();
    let from = table_with(&engine, "from", Policy::default());
    let into = table_with(&engine, "into", Policy::default());
    assert_eq!(write(&engine, &from, &lines()).rejected, 0);
    let owner = BTreeMap::from([("owner".to_owned(), Some(AttributeValue::Text("team".into())))]);
    let id = found(&engine, &from, Condition::tag("host", "b"))["b"].id;
    engine.set_attributes(&from, id, &owner).expect("set");
    for time in ["first", "again"] {
        let copied = engine
            .copy_points(&from, &into, TimeRange::ALL, &mut |_| true)
            .expect("a copy");
        assert_eq!(
            (copied.timelines, copied.seen, copied.points, copied.refused),
            (3, 3, 20_001, 0),
            "{time}"
        );
        for host in ["a", "b", "c"] {
            assert_eq!(
                points(&engine, &into, host),
                points(&engine, &from, host),
                "{time}: {host}"
            );
        }
        let attributes = |host: &str| found(&engine, &into, Condition::All)[host].attributes.clone();
        assert_eq!(attributes("b").keys().collect::<Vec<_>>(), ["owner"], "{time}");
        assert!(attributes("a").is_empty(), "{time}");
    }
}

#[test]
fn a_copy_has_the_range_alone_ends_on_request_and_reports_what_was_refused() {
    let fixture = Fixture::new();
    let engine = fixture.open();
    let from = table_with(&engine, "from", Policy::default());
    write(&engine, &from, &lines());
    let some = table_with(&engine, "some", Policy::default());
    let range = TimeRange::new(START - DAY, START - DAY + 10 * SECOND);
    let copied = engine
        .copy_points(&from, &some, range, &mut |_| true)
        .expect("a copy");
    assert_eq!(copied.points, 20);
    let hosts: Vec<String> = found(&engine, &some, Condition::All).into_keys().collect();
    assert_eq!(hosts, ["a", "b"], "who has no point there is not there");
    let short = Policy {
        retention: Some(DAY / 2),
        ..Policy::default()
    };
    let short = table_with(&engine, "short", short);
    let copied = engine
        .copy_points(&from, &short, TimeRange::ALL, &mut |_| true)
        .expect("a copy");
    assert_eq!((copied.points, copied.refused, copied.seen), (1, 20_000, 3));
    assert!(
        copied
            .first_refusal
            .is_some_and(|reason| reason.contains("retention"))
    );
    let part = table_with(&engine, "part", Policy::default());
    let mut reported: Vec<PointsCopied> = Vec::new();
    let copied = engine.copy_points(&from, &part, TimeRange::ALL, &mut |progress| {
        reported.push(progress.clone());
        false
    });
    let copied = copied.expect("a part of it");
    assert!(copied.points > 0 && copied.points < 20_001, "{copied:?}");
    assert_eq!((copied.seen, copied.timelines), (0, 3), "{reported:?}");
    assert!(engine.copy_points(&from, &from, range, &mut |_| true).is_err());
}

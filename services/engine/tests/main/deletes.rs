//! Tests of deletes of points and timelines.
//!
//! Deleted data is invisible immediately and stays invisible; later writes are visible.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tideline_condition::Condition;
use tideline_engine::find::NEVER;
use tideline_engine::{Deleted, Engine, ErrorKind, Table, TimelineSelector};
use tideline_model::{TimeRange, TimelineId};
use tideline_timeline_catalog::NameSelection;

use crate::support::{Fixture, found, host, hosts, instants, owned, set_owner, write};

const NAMES: NameSelection<'_> = NameSelection {
    prefix: "",
    after: None,
    limit: 1_000,
};

fn counted(engine: &Engine, table: &Table) -> Vec<(String, u32)> {
    let values = engine.tag_values(table, "host", &NAMES);
    values
        .into_iter()
        .map(|value| (value.name, value.timelines))
        .collect()
}

fn id_of(engine: &Engine, table: &Table, host: &str) -> TimelineId {
    found(engine, table, Condition::tag("host", host))[host].id
}

#[test]
fn points_of_a_selection_and_range_are_gone_and_others_stay() {
    let fixture = Fixture::new();
    let engine = fixture.open();
    let table = engine.default_table().expect("the default table");
    let lines: Vec<String> = (0..10)
        .flat_map(|at| ["a", "b"].map(|host| format!("m,host={host} f=1 {}", fixture.now() + at)))
        .collect();
    write(&engine, &table, &lines[..10].join("\n"));
    engine.seal().expect("a seal");
    write(&engine, &table, &lines[10..].join("\n"));
    let (a, b) = (id_of(&engine, &table, "a"), id_of(&engine, &table, "b"));
    let now = fixture.now();
    let range = TimeRange::new(now + 3, now + 7);
    for _ in 0..2 {
        let deleted = engine
            .delete_points(&table, &host("a"), range, NEVER)
            .expect("a delete");
        assert_eq!(deleted, Deleted { timelines: 1 });
    }
    let after = |times: &[i64]| times.iter().map(|at| at - now).collect::<Vec<_>>();
    assert_eq!(after(&instants(&engine, &table, a)), [0, 1, 2, 7, 8, 9]);
    assert_eq!(instants(&engine, &table, b).len(), 10);
    write(&engine, &table, &format!("m,host=a f=1 {}", now + 5));
    let all = TimeRange::ALL;
    let deleted = engine.delete_points(&table, &TimelineSelector::Ids(vec![b, b]), all, NEVER);
    assert_eq!(deleted.expect("a delete"), Deleted { timelines: 1 });
    drop((table, engine));

    for _ in 0..2 {
        let engine = fixture.open();
        let table = engine.default_table().expect("the default table");
        assert_eq!(after(&instants(&engine, &table, a)), [0, 1, 2, 5, 7, 8, 9]);
        assert!(instants(&engine, &table, b).is_empty());
        let timelines = found(&engine, &table, Condition::All);
        assert_eq!(timelines["b"].seen, None, "the timeline stays, without a point");
        assert_eq!(timelines["a"].seen.map(|seen| seen.last.nanos() - now), Some(9));
        engine.seal().expect("a seal");
    }
}

#[test]
fn a_deleted_timeline_is_gone_and_a_later_write_brings_it_back_bare() {
    let fixture = Fixture::new();
    for sealed in [false, true] {
        let name = if sealed { "sealed" } else { "unsealed" };
        let engine = fixture.open();
        let table = crate::support::table_with(&engine, name, tideline_model::Policy::default());
        write(&engine, &table, "m,host=a f=1 1\nm,host=b f=1 1\nm,host=c f=1 1");
        let a = id_of(&engine, &table, "a");
        set_owner(&engine, &table, a, "ops");
        let selector = TimelineSelector::Ids(vec![a]);
        engine.store().seal().expect("a seal");
        let deleted = engine
            .delete_timelines(&table, &selector, NEVER)
            .expect("a delete");
        assert_eq!(deleted, Deleted { timelines: 1 });
        let check_gone = |engine: &Engine, table: &Table| {
            assert_eq!(hosts(engine, table, Condition::All), ["b", "c"]);
            assert_eq!(counted(engine, table), [("b".to_owned(), 1), ("c".to_owned(), 1)]);
            let gone = engine.timeline(table, a).expect_err("it is gone").kind();
            assert_eq!(gone, ErrorKind::NotFound);
            assert!(instants(engine, table, a).is_empty());
            let again = engine
                .delete_timelines(table, &selector, NEVER)
                .expect_err("nothing to delete");
            assert_eq!(again.kind(), ErrorKind::NotFound);
        };
        check_gone(&engine, &table);
        if sealed {
            engine.seal().expect("a seal");
        }
        drop((table, engine));

        let engine = fixture.open();
        let table = engine.table(name).expect("the table");
        check_gone(&engine, &table);
        write(&engine, &table, "m,host=a f=2 7");
        assert_eq!(id_of(&engine, &table, "a"), a);
        assert!(hosts(&engine, &table, owned("ops")).is_empty());
        set_owner(&engine, &table, a, "dev");
        drop((table, engine));

        for _ in 0..2 {
            let engine = fixture.open();
            let table = engine.table(name).expect("the table");
            assert_eq!(hosts(&engine, &table, Condition::All), ["a", "b", "c"]);
            assert_eq!(hosts(&engine, &table, owned("dev")), ["a"]);
            assert_eq!(instants(&engine, &table, a), [7]);
            engine.seal().expect("a seal");
        }
    }
}

#[test]
fn what_cannot_be_meant_is_refused_before_anything_is_done() {
    let fixture = Fixture::new();
    let engine = fixture.open();
    let table = engine.default_table().expect("the default table");
    write(&engine, &table, "m,host=a f=1 1");
    let a = id_of(&engine, &table, "a");
    let unknown = TimelineSelector::Ids(vec![a, TimelineId::MAX]);
    let refused = engine.delete_points(&table, &unknown, TimeRange::ALL, NEVER);
    assert_eq!(refused.expect_err("unknown").kind(), ErrorKind::NotFound);
    let refused = engine.delete_timelines(&table, &unknown, NEVER);
    assert_eq!(refused.expect_err("unknown").kind(), ErrorKind::NotFound);
    let refused = engine.delete_points(&table, &host("a"), TimeRange::new(5, 5), NEVER);
    assert_eq!(refused.expect_err("empty").kind(), ErrorKind::Invalid);
    assert_eq!(instants(&engine, &table, a), [1]);
    let unknown = engine
        .delete_timelines(&table, &host("unknown"), NEVER)
        .expect("a delete");
    assert_eq!(unknown, Deleted { timelines: 0 });
}

#[test]
fn a_large_selection_is_deleted_in_parts() {
    const TIMELINES: usize = 66_000;
    let fixture = Fixture::new();
    let engine = fixture.open();
    let table = engine.default_table().expect("the default table");
    let lines: Vec<String> = (0..TIMELINES)
        .map(|number| format!("m,host=h{number},dc=x f=1 1"))
        .collect();
    write(&engine, &table, &lines.join("\n"));
    let everything = TimelineSelector::Condition(Condition::tag("dc", "x"));
    let deleted = engine
        .delete_timelines(&table, &everything, NEVER)
        .expect("a delete");
    assert_eq!(deleted.timelines, TIMELINES as u64);
    assert_eq!(engine.table_stats(&table).timelines, 0);
    write(&engine, &table, "m,host=h65999,dc=x f=1 1");
    assert_eq!(hosts(&engine, &table, Condition::All), ["h65999"]);
}

/// Writers run concurrently with deletes of all timelines. Each point stored in the end has a timeline.
#[test]
fn no_point_is_ever_stored_without_its_timeline() {
    let fixture = Fixture::new();
    let engine = Arc::new(fixture.open());
    let table = engine.default_table().expect("the default table");
    let host_lines = |at: usize| -> String {
        let lines = (0..20).map(|host| format!("m,host=h{host} f=1 {}\n", at + 1));
        lines.collect()
    };
    write(&engine, &table, &host_lines(0));
    let ids: Vec<TimelineId> = found(&engine, &table, Condition::All)
        .into_values()
        .map(|timeline| timeline.id)
        .collect();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..2)
            .map(|writer| {
                let (engine, table) = (&engine, &table);
                scope.spawn(move || {
                    for step in 0..150 {
                        write(engine, table, &host_lines(1 + 2 * step + writer));
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            let everything = TimelineSelector::Condition(Condition::All);
            while !done.load(Ordering::Relaxed) {
                engine
                    .delete_timelines(&table, &everything, NEVER)
                    .expect("a delete");
            }
        });
        for writer in writers {
            writer.join().expect("writes are never refused for it");
        }
        done.store(true, Ordering::Relaxed);
    });
    let check = |engine: &Engine, table: &Table| {
        for id in &ids {
            let stored = instants(engine, table, *id);
            let named = engine.timeline(table, *id).is_ok();
            assert!(named || stored.is_empty(), "{id} has {} points", stored.len());
        }
        hosts(engine, table, Condition::All)
    };
    let before = check(&engine, &table);
    drop((table, engine));
    let engine = fixture.open();
    let table = engine.default_table().expect("the default table");
    assert_eq!(check(&engine, &table), before);
    write(&engine, &table, &host_lines(1_000));
    assert_eq!(hosts(&engine, &table, Condition::All).len(), 20);
}

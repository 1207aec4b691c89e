//! Tests of writing, finding and describing timelines, across restarts.
//!
//! They also cover rejected lines, time bounds, idempotency keys, attributes, metric metadata, and the creation and
//! removal of tables.

use tideline_condition::operators::Words;
use tideline_condition::{Condition, Subject};
use tideline_engine::catalog::{MetricKind, MetricMetadata};
use tideline_engine::find::NEVER;
use tideline_engine::{ErrorKind, IdempotentRequest, WriteOptions, WriteOutcome};
use tideline_model::{PointBatch, SearchAnalyzer, SearchLanguage, TableName, TableSpec, Value};
use tideline_search_index::FindRequest;

use crate::support::{Fixture, decode, found, hosts, instants, owned, set_owner, write, write_once};

#[test]
fn a_write_is_findable_and_readable_at_once_and_after_a_restart() {
    let fixture = Fixture::new();
    for _ in 0..2 {
        let engine = fixture.open();
        let table = engine.default_table().expect("the default table");
        let outcome = write(
            &engine,
            &table,
            "cpu,host=a,dc=x usage=1.5 7\ncpu,host=b,dc=y usage=2 8\n",
        );
        assert_eq!((outcome.points, outcome.rejected), (2, 0));
        assert_eq!(hosts(&engine, &table, Condition::tag("dc", "x")), ["a"]);
        engine.close().expect("a clean close");
    }
    let engine = fixture.open();
    let table = engine.default_table().expect("the default table");
    assert_eq!(hosts(&engine, &table, Condition::All), ["a", "b"]);
    engine.seal().expect("a seal");
    let request = FindRequest {
        condition: Condition::tag("host", "b"),
        limit: 1,
        ..FindRequest::default()
    };
    let found = engine
        .find(&table, &request, NEVER)
        .expect("a page")
        .found
        .remove(0)
        .timeline;
    assert_eq!(found.seen.map(|seen| seen.last.nanos()), Some(8));
    let fields = table.points().schema().fields_of("cpu");
    let latest = engine
        .store()
        .latest(table.points(), found.id, &fields)
        .expect("latest");
    assert_eq!(latest[0].value, Value::Float(2.0));
}

#[test]
fn analyzers_of_attributes_take_effect_at_once_and_survive_a_restart() {
    let fixture = Fixture::new();
    let engine = fixture.open();
    let table = engine.default_table().expect("the default table");
    write(&engine, &table, "cpu,host=a usage=1 7\ncpu,host=b usage=2 8\n");
    for (host, title) in [("a", "connected houses"), ("b", "a house")] {
        let timeline = found(&engine, &table, Condition::tag("host", host));
        set_owner(&engine, &table, timeline[host].id, title);
    }
    let word = |text: &str| {
        let text = text.to_owned();
        Condition::leaf(
            Subject::Attribute("owner".to_owned()),
            Words { text, distance: 0 },
        )
    };
    let analyzed = |key: &str, analyzer| TableSpec {
        attribute_analyzers: [(key.to_owned(), analyzer)].into(),
        ..TableSpec::default()
    };
    assert_eq!(hosts(&engine, &table, word("house")), ["b"]);
    let english = SearchAnalyzer::Language(SearchLanguage::English);
    let altered = engine.alter_table(TableName::DEFAULT, analyzed("owner", english));
    assert!(altered.is_ok(), "{altered:?}");
    assert_eq!(hosts(&engine, &table, word("house")), ["a", "b"]);
    engine.close().expect("a clean close");
    let engine = fixture.open();
    let table = engine.default_table().expect("the default table");
    assert_eq!(hosts(&engine, &table, word("connection")), ["a"]);
    let grams = engine.alter_table(TableName::DEFAULT, analyzed("owner", SearchAnalyzer::Ngram(3)));
    assert!(grams.is_ok(), "{grams:?}");
    assert_eq!(hosts(&engine, &table, word("ous")), ["a", "b"]);
    let several = |count: usize| {
        let analyzers = (0..count).map(|number| (format!("a{number}"), english));
        TableSpec {
            attribute_analyzers: analyzers.collect(),
            ..TableSpec::default()
        }
    };
    for (spec, kind) in [
        (analyzed("owner", SearchAnalyzer::Ngram(5)), ErrorKind::Invalid),
        (analyzed("", english), ErrorKind::Invalid),
        (analyzed(&"k".repeat(257), english), ErrorKind::OverLimit),
        (several(65), ErrorKind::OverLimit),
    ] {
        let refused = engine
            .alter_table(TableName::DEFAULT, spec)
            .expect_err("it is refused");
        assert_eq!(refused.kind(), kind, "{refused}");
    }
    engine
        .alter_table(TableName::DEFAULT, several(64))
        .expect("64 are possible");
    assert_eq!(hosts(&engine, &table, word("house")), ["b"]);
}

/// A write larger than one journal entry, which holds at most 8 MiB, is stored completely. The texts all differ, so
/// each takes its full length in the entry.
#[test]
fn a_write_beyond_an_entry_of_the_journal_is_whole_and_does_not_hurt_its_neighbors() {
    let fixture = Fixture::new();
    let engine = fixture.open();
    let table = engine.default_table().expect("the default table");
    let text = |seed: usize| -> String {
        let word = |at: usize| format!("{:08x}", (seed * 7_919 + at).wrapping_mul(0x9e37_79b9));
        (0..3_500).map(word).collect()
    };
    let lines: String = (0..800)
        .map(|at| format!("log,host=h{} text=\"{}\" {}\n", at % 7, text(at), at + 1))
        .collect();
    std::thread::scope(|threads| {
        let small = threads.spawn(|| {
            let one = |at: i64| write(&engine, &table, &format!("up,host=n value=1 {at}")).points;
            (1..200).map(one).sum::<u64>()
        });
        assert_eq!(write(&engine, &table, &lines).points, 800);
        assert_eq!(small.join().expect("no panic"), 199);
    });
    engine.close().expect("a clean close");
    let engine = fixture.open();
    let table = engine.default_table().expect("the default table");
    let points = |host: &str| -> usize {
        let all = found(&engine, &table, Condition::tag("host", host)).into_values();
        all.map(|timeline| instants(&engine, &table, timeline.id).len())
            .sum()
    };
    assert_eq!((0..7).map(|at| points(&format!("h{at}"))).sum::<usize>(), 800);
    assert_eq!(points("n"), 199);
}

#[test]
fn good_lines_are_stored_and_bad_ones_named() {
    let fixture = Fixture::new();
    let engine = fixture.open();
    let table = engine.default_table().expect("the default table");
    let outcome = write(
        &engine,
        &table,
        "m,host=a f=1 1\nm,host=a f=\"text\" 2\nnonsense\nm,host=a f=2i 3\n",
    );
    assert_eq!(outcome.points, 2);
    let lines: Vec<u32> = outcome.rejects.iter().map(|reject| reject.line).collect();
    assert_eq!(lines, [2, 3]);
    let conflict = r#"field type conflict: input field "f" on measurement "m" is type string, already exists as type float"#;
    assert_eq!(outcome.rejects[0].reason.to_string(), conflict);
}

#[test]
fn a_table_takes_points_within_its_bounds_only() {
    let fixture = Fixture::new();
    let engine = fixture.open();
    let spec = TableSpec {
        write_past: Some(100),
        write_future: Some(10),
        ..TableSpec::default()
    };
    let table = engine
        .create_table(TableName::new("narrow").expect("valid"), spec)
        .expect("a table");
    let now = engine.clock().now().nanos();
    let lines: Vec<String> = [-101, -100, 0, 10, 11]
        .iter()
        .map(|at| format!("m,host=a f=1 {}", now + at))
        .collect();
    let outcome = write(&engine, &table, &lines.join("\n"));
    assert_eq!(outcome.points, 3);
    let refused: Vec<u32> = outcome.rejects.iter().map(|reject| reject.line).collect();
    assert_eq!(refused, [1, 5]);
}

#[test]
fn a_repeated_request_is_answered_and_not_done() {
    let fixture = Fixture::new();
    let request = |body: &str| IdempotentRequest::new("order-7".into(), body.as_bytes(), &[]);
    let first = {
        let engine = fixture.open();
        let table = engine.default_table().expect("the default table");
        write_once(&engine, &table, "m,host=a f=1 1\nbad\n", &request("first")).expect("a write")
    };
    for sealed in [false, true] {
        let engine = fixture.open();
        let table = engine.default_table().expect("the default table");
        let other = "m,host=other f=2 1\n";
        let again = write_once(&engine, &table, other, &request("first")).expect("an outcome");
        assert!(again.repeated && again.points == first.points, "{sealed}");
        let said = |outcome: &WriteOutcome| {
            let rejects = outcome.rejects.iter();
            let rejects = rejects.map(|reject| {
                let text = reject.reason.to_string();
                (
                    reject.line,
                    text,
                    reject.reason.is_retryable(),
                    reject.excerpt.clone(),
                )
            });
            rejects.collect::<Vec<_>>()
        };
        assert_eq!(said(&again), said(&first), "{sealed}");
        let refused = write_once(&engine, &table, other, &request("second"));
        let refused = refused.expect_err("the key of another request");
        assert_eq!(refused.kind(), ErrorKind::KeyReused, "{sealed}: {refused}");
        assert!(!refused.is_retryable());
        assert_eq!(hosts(&engine, &table, Condition::All), ["a"]);
        engine.seal().expect("a seal");
    }
}

#[test]
fn of_requests_that_share_a_key_at_once_one_body_wins() {
    let fixture = Fixture::new();
    let engine = fixture.open();
    let table = engine.default_table().expect("the default table");
    let send = |host: &str| {
        let lines = format!("m,host={host} f=1 1\n");
        let request = IdempotentRequest::new("order-7".into(), lines.as_bytes(), &[]);
        loop {
            match write_once(&engine, &table, &lines, &request) {
                Err(error) if error.is_retryable() => std::thread::yield_now(),
                answer => return answer.map(|outcome| outcome.repeated),
            }
        }
    };
    let answers: Vec<(&str, Result<bool, ErrorKind>)> = std::thread::scope(|scope| {
        let hosts = ["a", "b", "a", "b", "a", "b", "a", "b"];
        let running = hosts.map(|host| {
            (
                host,
                scope.spawn(move || send(host).map_err(|error| error.kind())),
            )
        });
        running
            .into_iter()
            .map(|(host, thread)| (host, thread.join().expect("no panic")))
            .collect()
    });
    let (winner, _) = answers
        .iter()
        .find(|(_, answer)| *answer == Ok(false))
        .expect("one is stored");
    let stored = |(_, answer): &&(&str, Result<bool, ErrorKind>)| *answer == Ok(false);
    assert_eq!(answers.iter().filter(stored).count(), 1, "{answers:?}");
    for (host, answer) in &answers {
        match host == winner {
            true => assert!(answer.is_ok(), "{answers:?}"),
            false => assert_eq!(*answer, Err(ErrorKind::KeyReused), "{answers:?}"),
        }
    }
    // The names in refused bodies may be registered, but none of their points is stored.
    let found = found(&engine, &table, Condition::All);
    let with_points: Vec<&String> = found
        .iter()
        .filter(|(_, timeline)| timeline.seen.is_some())
        .map(|(host, _)| host)
        .collect();
    assert_eq!(with_points, [winner]);
}

#[test]
fn attributes_are_durable_and_findable() {
    let fixture = Fixture::new();
    let engine = fixture.open();
    let table = engine.default_table().expect("the default table");
    write(&engine, &table, "m,host=a f=1 1\nm,host=b f=1 1\n");
    let request = FindRequest {
        condition: Condition::tag("host", "a"),
        limit: 1,
        ..FindRequest::default()
    };
    let id = engine.find(&table, &request, NEVER).expect("a page").found[0]
        .timeline
        .id;
    set_owner(&engine, &table, id, "ops");
    drop((table, engine));

    let engine = fixture.open();
    let table = engine.default_table().expect("the default table");
    assert_eq!(hosts(&engine, &table, owned("ops")), ["a"]);
}

#[test]
fn a_dropped_table_is_gone_and_its_name_is_free() {
    let fixture = Fixture::new();
    let engine = fixture.open();
    let name = || TableName::new("events").expect("valid");
    let table = engine
        .create_table(name(), TableSpec::default())
        .expect("a table");
    write(&engine, &table, "m,host=a f=1 1\n");
    engine.seal().expect("a seal");
    engine.drop_table("events").expect("a drop");
    assert_eq!(
        engine.table("events").expect_err("gone").kind(),
        ErrorKind::NotFound
    );
    let batch = PointBatch::default();
    engine
        .write(&table, batch, &WriteOptions::default())
        .expect("nothing to store is no error");
    let batch = decode(&engine, &table, "m,host=a f=1 1\n");
    let refused = engine
        .write(&table, batch, &WriteOptions::default())
        .expect_err("a dropped table");
    assert_eq!(refused.kind(), ErrorKind::NotFound);

    let table = engine
        .create_table(name(), TableSpec::default())
        .expect("the name again");
    assert!(hosts(&engine, &table, Condition::All).is_empty());
    let source_tags = vec!["rack".to_owned()];
    engine
        .alter_table(
            "events",
            TableSpec {
                source_tags,
                ..TableSpec::default()
            },
        )
        .expect("nothing written yet");
    write(&engine, &table, "m,rack=r1,host=a f=1 1\n");
    assert_eq!(hosts(&engine, &table, Condition::All), ["r1"]);
    let refused = engine
        .alter_table("events", TableSpec::default())
        .expect_err("tags are fixed");
    assert_eq!(refused.kind(), ErrorKind::Conflict);
    assert_eq!(
        engine.drop_table("default").expect_err("always there").kind(),
        ErrorKind::Conflict
    );
}

#[test]
fn what_is_said_of_metrics_outlives_restarts_but_not_its_table() {
    let fixture = Fixture::new();
    let metric = |name: &str, help: &str| MetricMetadata {
        name: name.into(),
        kind: MetricKind::Counter,
        help: help.into(),
        unit: "bytes".into(),
    };
    let names = |engine: &tideline_engine::Engine, table: &str| -> Vec<String> {
        let table = engine.table(table).expect("the table");
        let all = engine.metadata(&table).into_iter();
        all.map(|metric| format!("{} {}", metric.name, metric.help))
            .collect()
    };
    let other = TableName::new("other").expect("a name");
    let engine = fixture.open();
    let table = engine.default_table().expect("the default table");
    let second = engine
        .create_table(other.clone(), TableSpec::default())
        .expect("made");
    let said = [metric("b_total", "Bytes."), metric("a_total", "As.")];
    assert_eq!(engine.put_metadata(&table, &said).expect("kept"), 0);
    assert_eq!(engine.put_metadata(&second, &said[..1]).expect("kept"), 0);
    assert_eq!(
        engine
            .put_metadata(&table, &[metric("b_total", "Octets.")])
            .expect("kept"),
        0
    );
    engine.close().expect("a clean close");
    let engine = fixture.open();
    assert_eq!(names(&engine, "default"), ["a_total As.", "b_total Octets."]);
    assert_eq!(names(&engine, "other"), ["b_total Bytes."]);
    let second = engine.table("other").expect("there");
    engine.drop_table("other").expect("dropped");
    let refused = engine
        .put_metadata(&second, &said)
        .expect_err("the table is gone");
    assert_eq!(refused.kind(), ErrorKind::NotFound);
    engine
        .create_table(other, TableSpec::default())
        .expect("made again");
    assert_eq!(names(&engine, "other"), [""; 0]);
}

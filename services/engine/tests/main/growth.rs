//! A table takes so many new timelines a minute, and says which tag brings them.

use tideline_engine::growth::is_growth_refusal;
use tideline_engine::{IdempotentRequest, Table, WriteOptions};
use tideline_model::Policy;

use crate::support::{Fixture, SECOND, decode, table_with, write};

fn limited(engine: &tideline_engine::Engine, limit: u64) -> Table {
    let policy = Policy {
        timelines_per_minute: Some(limit),
        ..Policy::default()
    };
    table_with(engine, "limited", policy)
}

fn pods(numbers: std::ops::Range<u32>) -> String {
    let lines = numbers.map(|pod| format!("m,host=a,pod=p{pod} f=1 1\n"));
    lines.collect()
}

#[test]
fn lines_of_too_many_new_timelines_are_refused_for_a_while() {
    let fixture = Fixture::new();
    let engine = fixture.open();
    let table = limited(&engine, 10);
    assert_eq!(write(&engine, &table, &pods(0..4)).rejected, 0);
    let outcome = write(&engine, &table, &pods(0..20));
    assert_eq!(
        (outcome.points, outcome.rejected, outcome.retryable),
        (10, 10, 10)
    );
    let said = &outcome.rejects[0];
    assert_eq!(said.line, 11);
    assert_eq!(
        said.reason,
        "table limited takes at most 10 new timelines a minute; tag `pod` grows fastest (11 new values in the last \
         minute); retry later or raise timelines_per_minute"
    );
    assert!(is_growth_refusal(&said.reason));
    assert_eq!(engine.stats().timelines_refused, 10);
    assert_eq!(
        write(&engine, &table, &pods(0..10)).rejected,
        0,
        "known ones are always taken"
    );
    fixture.pass(&engine, 71 * SECOND);
    let outcome = write(&engine, &table, &pods(5..20));
    assert_eq!((outcome.points, outcome.rejected), (15, 0));
    let other = engine.default_table().expect("the default table");
    assert_eq!(write(&engine, &other, &pods(0..1_000)).rejected, 0);
}

#[test]
fn new_combinations_of_old_values_have_no_tag_to_blame() {
    let fixture = Fixture::new();
    let engine = fixture.open();
    let table = limited(&engine, 2);
    write(&engine, &table, "m,host=a,pod=x f=1 1\nm,host=b,pod=y f=1 1");
    let outcome = write(&engine, &table, "n,host=a,pod=y f=1 1");
    assert!(
        outcome.rejects[0].reason.contains("tag `"),
        "their values came in this minute: {}",
        outcome.rejects[0].reason
    );
    fixture.pass(&engine, 71 * SECOND);
    write(&engine, &table, "n,host=a,pod=x f=1 1\nn,host=b,pod=y f=1 1");
    let outcome = write(&engine, &table, "n,host=b,pod=x f=1 1");
    let reason = &outcome.rejects[0].reason;
    assert!(
        reason.contains("new combinations of known tag values"),
        "{reason}"
    );
}

#[test]
fn a_request_that_stored_nothing_for_now_may_be_repeated_under_its_key() {
    let fixture = Fixture::new();
    let engine = fixture.open();
    let table = limited(&engine, 1);
    write(&engine, &table, &pods(0..1));
    let options = WriteOptions {
        request: Some(IdempotentRequest::new("order-7".into(), b"body", &[])),
        ..WriteOptions::default()
    };
    let send = || {
        let batch = decode(&engine, &table, &pods(1..2));
        let outcome = engine.write(&table, batch, &options).expect("an answer");
        fixture.pass(&engine, 71 * SECOND);
        (outcome.points, outcome.retryable, outcome.repeated)
    };
    assert_eq!(send(), (0, 1, false));
    assert_eq!(send(), (1, 0, false));
    assert_eq!(send(), (1, 0, true));
}

//! Tables of the server: the jobs of tables apply to them, and their names are reserved.
//!
//! The tests of `services/http` read the audit table with tokens of each role.

use std::ops::ControlFlow;
use std::time::Duration;

use tideline_engine::audit_table::{AUDIT_TABLE, AuditKind, AuditRecord, RETENTION_DEFAULT};
use tideline_engine::state_table::{STATE_TABLE, StateRow};
use tideline_engine::{Engine, ErrorKind};
use tideline_model::{TableName, TableSpec, Timestamp};

use crate::support::{DAY, Fixture, START};

fn record(at: i64, number: i64) -> AuditRecord {
    AuditRecord {
        at: Timestamp::from_nanos_clamped(at),
        number,
        kind: AuditKind::Change,
        principal: Some("configured token".to_owned()),
        tenant: None,
        client: None,
        proxy: None,
        method: "PUT".to_owned(),
        path: "/v1/tenants/acme".to_owned(),
        status: Some(200),
        code: None,
        count: 1,
        request_id: None,
        detail: None,
    }
}

fn rows(engine: &Engine, name: &str) -> u64 {
    let table = engine.table_of_any_model(name).expect("it exists");
    let survey = engine.survey_rows(table.points().id(), &mut |_| ControlFlow::Continue(()));
    survey.expect("it can be surveyed");
    let survey = engine.row_survey(table.points().id()).expect("a survey");
    survey.rows.rows
}

#[test]
fn tables_of_the_server_are_surveyed_like_others() {
    let fixture = Fixture::new();
    let engine = fixture.open_with(|settings| settings.tables.tables_max = 1);
    // A record that is written again after an unknown outcome is stored once.
    for number in [1, 2, 2] {
        engine.put_audit(&[record(START, number)]).expect("written");
    }
    let row = StateRow {
        name: "a".to_owned(),
        part: String::new(),
        value: Some("text".to_owned()),
    };
    engine.put_state("owner", &[row]).expect("written");
    engine.seal().expect("flushed");
    assert_eq!((rows(&engine, AUDIT_TABLE), rows(&engine, STATE_TABLE)), (2, 1));
    assert!(
        engine
            .stored_data()
            .iter()
            .all(|table| table.table.as_str() == TableName::DEFAULT),
        "no tenant pays for them"
    );
    assert_eq!(engine.audit_retention().expect("read"), RETENTION_DEFAULT);
    engine.set_audit_retention(30 * DAY).expect("set");
    assert_eq!(engine.audit_retention().expect("read"), 30 * DAY);
    let error = engine.set_audit_retention(DAY - 1).expect_err("too short");
    assert_eq!(error.kind(), ErrorKind::Invalid);
}

#[test]
fn an_audit_table_of_an_earlier_release_gets_its_new_columns() {
    let spec = |engine: &Engine| {
        let table = engine.store().table(AUDIT_TABLE).expect("it exists");
        TableSpec::clone(&table.spec())
    };
    let columns = |spec: &TableSpec| {
        let columns = &spec.wide.as_ref().expect("rows").columns;
        let names = columns.iter().map(|column| column.name.clone());
        names.collect::<Vec<_>>()
    };
    let current = Fixture::new();
    let engine = current.open();
    engine.put_audit(&[record(START, 1)]).expect("written");
    let mut earlier = spec(&engine);
    let all = columns(&earlier);
    let wide = earlier.wide.as_mut().expect("rows");
    wide.columns.retain(|column| column.name != "detail");
    wide.ttl.as_mut().expect("a retention").after = 30 * DAY;

    let fixture = Fixture::new();
    {
        let engine = fixture.open();
        let name = TableName::new(AUDIT_TABLE).expect("a name");
        engine.store().create_table(name, earlier).expect("created");
        assert_eq!(columns(&spec(&engine)).len() + 1, all.len());
        let detailed = AuditRecord {
            detail: Some("retention: \"365d\" → \"90d\"".to_owned()),
            ..record(START, 1)
        };
        engine.put_audit(&[detailed]).expect("written");
        assert_eq!(columns(&spec(&engine)), all);
        engine.seal().expect("flushed");
        assert_eq!(rows(&engine, AUDIT_TABLE), 1);
        engine.close().expect("closed");
    }
    let engine = fixture.open();
    engine.put_audit(&[record(START, 2)]).expect("written");
    engine.seal().expect("flushed");
    assert_eq!(rows(&engine, AUDIT_TABLE), 2);
    assert_eq!(
        engine.audit_retention().expect("read"),
        30 * DAY,
        "the retention stays"
    );
}

#[test]
fn a_state_row_that_is_too_large_is_an_error_and_prevents_the_others() {
    let fixture = Fixture::new();
    let engine = fixture.open();
    let row = |name: &str, bytes: usize| StateRow {
        name: name.to_owned(),
        part: String::new(),
        value: Some("x".repeat(bytes)),
    };
    for bytes in [3 << 20, 9 << 20] {
        let refused = engine.put_state("owner", &[row("a", 1), row("b", bytes)]);
        let error = refused.expect_err("too large");
        assert_eq!(error.kind(), ErrorKind::OverLimit, "{error}");
        assert_eq!(engine.state_count("owner").expect("readable"), 0);
    }
}

#[test]
fn without_a_lease_the_tables_of_the_server_are_not_missing() {
    let fixture = Fixture::distributed();
    let lease = Duration::from_secs(3_600);
    fixture.disk.limit_leases(lease, 1_000_000);
    let engine = fixture.open();
    let row = StateRow {
        name: "a".to_owned(),
        part: String::new(),
        value: Some("text".to_owned()),
    };
    engine.put_state("owner", &[row]).expect("written");
    engine.put_audit(&[record(START, 1)]).expect("written");
    fixture.clock.advance(lease.as_nanos() as i64);
    // A permanent error would drop the record.
    let refused = engine.put_audit(&[record(START, 2)]).expect_err("no lease");
    assert!(refused.is_retryable(), "{refused}");
    let refused = engine.state_rows("owner").expect_err("not an empty list");
    assert!(refused.is_retryable(), "{refused}");
    let refused = engine.audit_retention().expect_err("not the default");
    assert!(refused.is_retryable(), "{refused}");
}

#[test]
fn a_table_of_an_earlier_release_with_the_name_is_named_in_the_error() {
    let fixture = Fixture::new();
    let engine = fixture.open();
    let name = || TableName::new(AUDIT_TABLE).expect("a name");
    let refused = engine.create_table(name(), TableSpec::default());
    assert_eq!(refused.expect_err("reserved").kind(), ErrorKind::Forbidden);
    // Creates the table through the store, as an earlier release without an audit table would.
    engine
        .store()
        .create_table(name(), TableSpec::default())
        .expect("created");
    let error = engine.put_audit(&[record(START, 1)]).expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains(AUDIT_TABLE), "{error}");
}

//! Tests of the table models that the engine serves: creation, settings and their checks, and access to a table of
//! another model.

use tideline_engine::{EngineError, ErrorKind};
use tideline_model::feed::{MessageSettings, rows_of};
use tideline_model::{
    ColumnType, FeedSpec, KeyColumnSpec, KeyOrder, KeySource, TableModel, TableName, TableSpec, TtlScope,
    WideSpec,
};

use crate::support::Fixture;

fn spec(model: TableModel) -> TableSpec {
    let key = KeyColumnSpec {
        name: "id".to_owned(),
        source: KeySource::Type(ColumnType::String),
        order: KeyOrder::Ascending,
    };
    let wide = WideSpec {
        key: vec![key],
        columns: Vec::new(),
        next_column: 1,
        max_versions: 1,
        version_guard: None,
        allow_rising_key: false,
        indexes: Vec::new(),
        search_indexes: Vec::new(),
        large_values: None,
        cut_values: false,
        codecs: false,
        ttl_of: TtlScope::default(),
        limits: Vec::new(),
        groups: Vec::new(),
        ttl: None,
        parts: None,
    };
    TableSpec {
        model,
        wide: match model {
            TableModel::Series => None,
            TableModel::Wide => Some(Box::new(wide)),
            TableModel::Feed => {
                let messages = MessageSettings::default();
                Some(Box::new(rows_of(FeedSpec::default(), messages)))
            }
        },
        feed: (model == TableModel::Feed).then(FeedSpec::default),
        ..TableSpec::default()
    }
}

#[test]
fn tables_of_each_model_are_created_and_a_model_is_fixed() {
    let fixture = Fixture::new();
    let engine = fixture.open();
    for model in TableModel::ALL {
        let name = TableName::new(model.name()).expect("a name");
        let created = engine.create_table(name, spec(model)).expect("a table");
        assert_eq!(created.spec().model, model);
    }
    let named = |tables: Vec<tideline_engine::Table>| -> Vec<String> {
        tables.iter().map(|table| table.name().to_string()).collect()
    };
    assert_eq!(named(engine.tables()), ["default", "feed", "series", "wide"]);
    assert_eq!(named(engine.series_tables()), ["default", "series"]);
    let fixed = engine.alter_table("default", spec(TableModel::Feed));
    assert_eq!(fixed.expect_err("fixed").kind(), ErrorKind::Conflict);
    assert!(engine.alter_table("default", spec(TableModel::Series)).is_ok());
}

#[test]
fn each_request_is_for_tables_of_its_model() {
    let fixture = Fixture::new();
    let engine = fixture.open();
    for model in TableModel::ALL {
        let name = TableName::new(model.name()).expect("a name");
        engine.create_table(name, spec(model)).expect("a table");
    }
    for model in TableModel::ALL {
        let name = model.name();
        let is_wrong = |error: EngineError| error.kind() == ErrorKind::WrongModel;
        assert_eq!(
            engine.table(name).is_err_and(is_wrong),
            model != TableModel::Series
        );
        assert_eq!(
            engine.wide_table(name).is_err_and(is_wrong),
            model != TableModel::Wide
        );
        assert_eq!(
            engine.feed_table(name).is_err_and(is_wrong),
            model != TableModel::Feed
        );
        assert_eq!(
            engine.table_of_rows(name).is_err_and(is_wrong),
            model == TableModel::Series
        );
    }
}

#[test]
fn schedules_of_parts_that_never_run_are_refused_by_name() {
    let fixture = Fixture::new();
    let engine = fixture.open();
    let spec = |changes: &str| {
        let wide = format!(
            r#"{{"key":[{{"name":"id","type":"u64"}},{{"name":"at","type":"timestamp"}}],"allow_rising_key":true,"parts":{{"by":"at","every":"day"{changes}}}}}"#
        );
        TableSpec {
            model: TableModel::Wide,
            wide: Some(serde_json::from_str(&wide).expect("settings")),
            ..TableSpec::default()
        }
    };
    let cron = |member: &str, expression: &str, time_zone: &str| {
        format!(r#","{member}":{{"cron":{{"expression":"{expression}","time_zone":"{time_zone}"}}}}"#)
    };
    let nightly = cron("migrate", "0 3 * * *", "UTC");
    let name = || TableName::new("days").expect("a name");
    engine.create_table(name(), spec(&nightly)).expect("a table");
    let archive = cron("schedule", "60 3 * * *", "UTC");
    for (changes, said) in [
        (cron("migrate", "every night", "UTC"), "parts.migrate: "),
        (cron("expire", "0 0 30 2 *", "UTC"), "never comes"),
        (
            cron("expire", "0 3 * * *", "berlin"),
            "did you mean Europe/Berlin?",
        ),
        (
            format!(r#","archive":{{"target":"default","after":5{archive}}}"#),
            "parts.archive.schedule: ",
        ),
    ] {
        let altered = engine.alter_table("days", spec(&changes));
        let created = engine.create_table(TableName::new("other").expect("a name"), spec(&changes));
        for refused in [altered, created] {
            let error = refused.expect_err(&changes);
            assert_eq!(error.kind(), ErrorKind::Invalid, "{changes}");
            assert!(error.to_string().contains(said), "{changes}: {error}");
        }
    }
}

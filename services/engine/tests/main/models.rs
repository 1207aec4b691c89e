//! Tests of the table models that the engine serves.

use tideline_engine::ErrorKind;
use tideline_model::{
    ColumnType, KeyColumnSpec, KeyOrder, KeySource, TableModel, TableName, TableSpec, WideSpec,
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
        groups: Vec::new(),
        ttl: None,
        parts: None,
    };
    TableSpec {
        model,
        wide: (model == TableModel::Wide).then(|| Box::new(wide)),
        ..TableSpec::default()
    }
}

#[test]
fn only_served_models_are_created_and_a_model_is_fixed() {
    let fixture = Fixture::new();
    let engine = fixture.open();
    for model in TableModel::ALL {
        let name = TableName::new(model.name()).expect("a name");
        let created = engine.create_table(name, spec(model));
        match engine.models().contains(&model) {
            true => assert_eq!(created.expect("served").spec().model, model),
            false => assert_eq!(created.expect_err("not served").kind(), ErrorKind::WrongModel),
        }
    }
    let fixed = engine.alter_table("default", spec(TableModel::Feed));
    assert_eq!(fixed.expect_err("fixed").kind(), ErrorKind::Conflict);
    assert!(engine.alter_table("default", spec(TableModel::Series)).is_ok());
}

#[test]
fn a_database_with_a_table_of_another_model_is_not_opened() {
    let fixture = Fixture::new();
    let engine = fixture.open();
    // Creates the table as a build that serves the model does.
    let name = TableName::new("messages").expect("a name");
    engine
        .store()
        .create_table(name, spec(TableModel::Feed))
        .expect("a table");
    assert_eq!(
        engine.table("messages").expect_err("no series").kind(),
        ErrorKind::WrongModel
    );
    let named = |tables: Vec<tideline_engine::Table>| -> Vec<String> {
        tables.iter().map(|table| table.name().to_string()).collect()
    };
    assert_eq!(named(engine.tables()), ["default", "messages"]);
    assert_eq!(named(engine.series_tables()), ["default"]);
    engine.close().expect("closes");
    drop(engine);
    let refused = fixture
        .try_open_with(|_| {})
        .expect_err("its journal may hold messages");
    assert_eq!(
        refused.to_string(),
        "table messages: this server does not serve the model feed; it serves: series, wide"
    );
}

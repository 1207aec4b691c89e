//! Fuzz target for requests of rows and messages: arbitrary text as a condition, as a value of a column, as writes of
//! rows, and as messages. Parsing returns an error or a request and never panics. A condition and a value are unchanged
//! after they are written and parsed again. Conditions are compiled, and evaluated on rows with values of all types in
//! declared and undeclared columns.
#![no_main]

use std::sync::{Arc, LazyLock};

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use tideline_engine::backend::memory::{Character, MemoryBackend, MemoryDisk};
use tideline_engine::feeds::FeedName;
use tideline_engine::key_codec::tuple::{Decimal, KeyValue};
use tideline_engine::model::{ColumnType, ManualClock, Timestamp};
use tideline_engine::rows::{CellValue, Column, Effect, Mutation};
use tideline_engine::{Engine, Settings, WideTable};
use tideline_message_feed::send::read_body;
use tideline_openapi::condition::RowFilter;
use tideline_openapi::plain;
use tideline_openapi::row::{Members, RowIntegers, RowsBody};
use tideline_rows::condition::RowMatcher;
use tideline_rows::value::{parse_column, write_typed};
use tideline_sql::run::table::change;
use tideline_sql::{Statement, parse};

static ENGINE: LazyLock<Engine> = LazyLock::new(|| {
    let index = std::env::temp_dir().join(format!("tideline-fuzz-rows-{}", std::process::id()));
    let clock = ManualClock::new(Timestamp::EPOCH);
    let backend = MemoryBackend::open(&MemoryDisk::new(Character::Embedded));
    let engine =
        Engine::open(Arc::new(backend), Arc::new(clock), Settings::new(index)).expect("the engine opens");
    let table = "CREATE TABLE t (a VARCHAR, s VARCHAR, i BIGINT, u BIGINT UNSIGNED, f DOUBLE, o BOOLEAN, b VARBINARY, \
        d DECIMAL, j JSON, t TIMESTAMP, PRIMARY KEY (a))";
    let Ok(Statement::Change(statement)) = parse(table, &[]) else {
        panic!("{table}")
    };
    change(&engine, *statement, &|_, _| {}).expect("a table");
    engine
});

static TABLE: LazyLock<Arc<WideTable>> = LazyLock::new(|| ENGINE.wide_table("t").expect("it exists"));

/// Row with a value of each type in a declared column, and in an undeclared one with the name in upper case.
static ROW: LazyLock<Mutation<'static>> = LazyLock::new(|| {
    let decimal = Decimal::parse("-1.50").expect("a decimal");
    let values = [
        ("s", CellValue::String("1.5".into())),
        ("i", CellValue::I64(-1)),
        ("u", CellValue::U64(u64::MAX)),
        ("f", CellValue::F64(1.5)),
        ("o", CellValue::Bool(true)),
        ("b", CellValue::Binary(vec![0, 255].into())),
        ("d", CellValue::Decimal(decimal)),
        ("j", CellValue::Json(r#"["a",1,{"lat":1,"lon":2}]"#.into())),
        ("t", CellValue::Timestamp(Timestamp::EPOCH)),
    ];
    let mut columns = Vec::new();
    for (name, value) in values {
        for name in [name.to_owned(), name.to_uppercase()] {
            columns.push(Column::with(TABLE.column(&name).0, 0, value.clone()));
        }
    }
    columns.sort_by(|one, other| one.name.cmp(&other.name));
    Mutation {
        effect: Effect::Replace,
        time: 0,
        columns,
    }
});

/// Content of one fuzzing run.
#[derive(Debug, Arbitrary)]
enum Input {
    Condition(String),
    /// Value of a column. The number selects its declared type; undeclared if it is too high.
    Column(String, u8),
    Rows(String),
    Messages(String),
    Feed(String),
}

fn condition(text: &str) {
    let Ok(filter) = serde_json::from_str::<RowFilter>(text) else {
        return;
    };
    let written = serde_json::to_string(&filter).expect("plain data");
    let again: RowFilter = serde_json::from_str(&written).expect("what was written can be read");
    assert_eq!(serde_json::to_string(&again).expect("plain data"), written);
    let Ok(matcher) = RowMatcher::new(&ENGINE, &TABLE, &filter) else {
        return;
    };
    let mut key = Vec::new();
    let encoded = TABLE.layout().encode(&[KeyValue::String("a".into())], &mut key);
    encoded.expect("a key");
    let _ = matcher.matches(TABLE.layout(), &key, Some(&*ROW));
    let _ = matcher.matches(TABLE.layout(), &key, None);
}

fn column(json: &str, declared: Option<ColumnType>) {
    let Ok(values) = parse_column(json, declared, Timestamp::EPOCH) else {
        return;
    };
    for given in values {
        let version = given.version.map(Timestamp::nanos);
        let typed = |value: &CellValue<'_>| {
            let mut out = Vec::new();
            write_typed(value, version, RowIntegers::Number, &mut out);
            String::from_utf8(out).expect("JSON is text")
        };
        let written = typed(&given.value);
        let again = parse_column(&written, None, Timestamp::EPOCH).expect("what was written can be read");
        assert_eq!(again.len(), 1);
        assert_eq!(again[0].version, given.version);
        assert_eq!(typed(&again[0].value), written);
    }
}

fn members(members: &Members) {
    for (name, json) in members.iter() {
        column(json, TABLE.column(name).1);
    }
}

fuzz_target!(|input: Input| {
    match input {
        Input::Condition(text) => condition(&text),
        Input::Column(json, declared) => {
            // A request contains only valid JSON without white space around the values.
            if serde_json::from_str::<serde_json::Value>(&json).is_ok() {
                column(json.trim(), ColumnType::ALL.get(usize::from(declared)).copied());
            }
        }
        Input::Rows(text) => {
            if let Ok(body) = plain::read::<RowsBody>(text.as_bytes()) {
                body.rows.iter().for_each(|row| members(&row.columns));
            }
        }
        Input::Messages(text) => {
            if let Ok(body) = read_body(text.as_bytes()) {
                body.messages.iter().for_each(|message| members(&message.columns));
            }
        }
        Input::Feed(text) => {
            let _ = FeedName::parse(&text).identity();
        }
    }
});

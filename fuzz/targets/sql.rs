//! Fuzz target: arbitrary text as an SQL statement, which is parsed and planned against tables with each kind of key.
//! Neither step panics, and the statement generated from a parsed `CREATE TABLE` parses to the same definition.
#![no_main]

use std::sync::{Arc, LazyLock};

use libfuzzer_sys::fuzz_target;
use tideline_engine::backend::memory::{Character, MemoryBackend, MemoryDisk};
use tideline_engine::model::{ManualClock, TableModel, TableSpec, Timestamp};
use tideline_engine::{Engine, Settings};
use tideline_sql::definition::create_table;
use tideline_sql::plan::ReadPlan;
use tideline_sql::run::read::explain;
use tideline_sql::run::table::change;
use tideline_sql::run::write::WritePlan;
use tideline_sql::statement::TableStatement;
use tideline_sql::{Statement, parse};

static ENGINE: LazyLock<Engine> = LazyLock::new(|| {
    let index = std::env::temp_dir().join(format!("tideline-fuzz-sql-{}", std::process::id()));
    let clock = ManualClock::new(Timestamp::EPOCH);
    let backend = MemoryBackend::open(&MemoryDisk::new(Character::Embedded));
    let engine = Engine::open(Arc::new(backend), Arc::new(clock), Settings::new(index)).expect("the engine opens");
    for table in [
        "CREATE TABLE t (a VARCHAR, b BIGINT, c DECIMAL, j JSON, x VARBINARY, PRIMARY KEY (a, b DESC))",
        "CREATE TABLE u (a VARCHAR, b BIGINT, t TIMESTAMP, PRIMARY KEY (bucket(a, 4), a, b, t))",
        "CREATE TABLE v (a VARCHAR, b BIGINT, c VARCHAR, i BIGINT, PRIMARY KEY (hash_prefix(a, 2), splice(a, pad(b, 4)), \
         reverse(c), generated(i)))",
    ] {
        let Ok(Statement::Change(statement)) = parse(table, &[]) else { panic!("{table}") };
        change(&engine, *statement, &|_, _| {}).expect("a table");
    }
    engine
});

fuzz_target!(|text: &str| {
    match parse(text, &[]) {
        Ok(Statement::Select(select) | Statement::Explain(select)) => {
            if let Ok(plan) = ReadPlan::new(&ENGINE, &select) {
                assert!(explain(&plan).starts_with('{'));
            }
        }
        Ok(Statement::Write(write)) => {
            let _ = WritePlan::new(&ENGINE, write);
        }
        Ok(Statement::Change(statement)) => {
            let TableStatement::Create(create) = *statement else {
                return;
            };
            let spec = TableSpec {
                model: TableModel::Wide,
                ..TableSpec::default()
            };
            let shown = create_table(&create.table.text, &spec, &create.rows);
            let Ok(Statement::Change(again)) = parse(&shown, &[]) else {
                panic!("{shown}");
            };
            let TableStatement::Create(again) = *again else {
                panic!("{shown}");
            };
            assert_eq!(again.rows, create.rows, "{shown}");
        }
        Ok(_) | Err(_) => {}
    }
});

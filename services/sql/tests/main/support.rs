//! In-memory engine that executes statements.
//!
//! Statements are executed by the same functions as in the HTTP server.

use std::ops::ControlFlow;
use std::sync::Arc;

use serde_json::Value;
use serde_json::value::RawValue;
use tempfile::TempDir;
use tideline_engine::backend::memory::{Character, MemoryBackend, MemoryDisk};
use tideline_engine::indexes::BuildEnd;
use tideline_engine::model::{ManualClock, Timestamp};
use tideline_engine::{Engine, Settings};
use tideline_openapi::row::{RowCounts, RowIntegers};
use tideline_sql::plan::ReadPlan;
use tideline_sql::run::read::{End, Extent, explain, select};
use tideline_sql::run::table::{change, show};
use tideline_sql::run::write::{WritePlan, WriteResult};
use tideline_sql::{Result, SqlError, Statement, parse};

/// Time of the test clock, in nanoseconds since 1970-01-01T00:00:00Z.
const NOW: i64 = 1_800_000_000_000_000_000;

pub(crate) struct Database {
    engine: Engine,
    _index: TempDir,
}

/// Result of a statement.
#[derive(Debug)]
pub(crate) enum Done {
    Rows(Vec<Value>, End),
    Written(RowCounts),
    RangesDeleted,
    Changed,
}

impl Database {
    pub(crate) fn new() -> Self {
        let index = tempfile::tempdir().expect("a temporary folder");
        let disk = MemoryDisk::new(Character::Embedded);
        let clock = ManualClock::new(Timestamp::from_nanos_clamped(NOW));
        let settings = Settings::new(index.path().join("index"));
        let engine = Engine::open(Arc::new(MemoryBackend::open(&disk)), Arc::new(clock), settings);
        Self {
            engine: engine.expect("the engine opens"),
            _index: index,
        }
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    pub(crate) fn run(&self, text: &str) -> Result<Done> {
        self.run_with(text, &[], Extent::All)
    }

    pub(crate) fn run_with(&self, text: &str, parameters: &[Value], extent: Extent<'_>) -> Result<Done> {
        let parameters: Vec<Box<RawValue>> = parameters
            .iter()
            .map(|value| RawValue::from_string(value.to_string()).expect("JSON"))
            .collect();
        let engine = &self.engine;
        Ok(match parse(text, &parameters)? {
            Statement::Select(statement) => {
                let plan = ReadPlan::new(engine, &statement)?;
                let mut rows = Vec::new();
                let end = select(
                    engine,
                    &plan,
                    extent,
                    RowIntegers::Number,
                    &|| false,
                    &mut |row| {
                        rows.push(serde_json::from_slice(row).expect("a row is JSON"));
                        Ok(())
                    },
                )?;
                Done::Rows(rows, end)
            }
            Statement::Explain(statement) => {
                let plan = ReadPlan::new(engine, &statement)?;
                Done::Rows(vec![parsed(&explain(&plan))], End::default())
            }
            Statement::Show(statement) => {
                let rows = show(engine, &statement)?;
                Done::Rows(rows.iter().map(|row| parsed(row)).collect(), End::default())
            }
            Statement::Write(statement) => {
                let plan = WritePlan::new(engine, statement)?;
                match plan.run(engine, text.as_bytes(), None, RowIntegers::Number, None, &|| {
                    false
                })? {
                    WriteResult::Rows(outcomes) => Done::Written(outcomes.counts),
                    WriteResult::RangesDeleted(_) => Done::RangesDeleted,
                }
            }
            Statement::Change(statement) => {
                change(engine, *statement, &|_, _| {})?;
                Done::Changed
            }
        })
    }

    /// Runs a statement that returns rows.
    pub(crate) fn rows(&self, text: &str) -> Vec<Value> {
        match self.run(text) {
            Ok(Done::Rows(rows, _)) => rows,
            other => panic!("{text}: {other:?}"),
        }
    }

    /// Builds all indexes that are not ready.
    pub(crate) fn build_indexes(&self) {
        for building in self.engine.building_indexes() {
            let built = self
                .engine
                .build_index(&building, &mut |_| ControlFlow::Continue(()));
            assert!(matches!(built, Ok(BuildEnd::Ready(_))), "{built:?}");
        }
    }

    /// Runs a statement that must succeed.
    pub(crate) fn succeed(&self, text: &str) {
        if let Err(error) = self.run(text) {
            panic!("{text}: {error}");
        }
    }

    /// Runs a statement that must fail, and returns its error.
    pub(crate) fn fail(&self, text: &str) -> SqlError {
        match self.run(text) {
            Err(error) => error,
            Ok(done) => panic!("{text}: {done:?}"),
        }
    }
}

fn parsed(row: &str) -> Value {
    serde_json::from_str(row).expect("a row is JSON")
}

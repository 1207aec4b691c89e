//! Test support: an engine on the real backend, points written one by one, and short helpers for queries.
//!
//! Times are milliseconds unless a helper states nanoseconds.

use std::ops::ControlFlow;
use std::sync::Arc;

use tempfile::TempDir;
use tideline_backend_fjall::{FjallBackend, FjallOptions};
use tideline_engine::{Engine, Settings, Table, WriteOptions};
use tideline_model::{
    ColumnData, ManualClock, PointBatch, PointGroup, SeriesResolver, Tier, Timestamp, Value, ValueType,
};
use tideline_prometheus::SeriesView;
use tideline_promql::{MatchOp, Matcher};
use tideline_query::{Budget, Cancel, Querier, QuerySettings};
use tideline_series_store::{Rewrite, RewriteCause, RewriteCost, Throttle};

/// Nanoseconds per millisecond.
pub(crate) const MILLI: i64 = 1_000_000;

/// Names and values of fields.
pub(crate) type Fields = Vec<(&'static str, Value)>;

pub(crate) struct World {
    pub(crate) engine: Arc<Engine>,
    pub(crate) table: Table,
    pub(crate) querier: Querier,
    _folder: TempDir,
}

/// Point: raw series key, milliseconds, fields.
pub(crate) type Point<'a> = (&'a str, i64, Vec<(&'a str, Value)>);

impl World {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let backend = FjallBackend::open(&folder.path().join("data"), FjallOptions::default());
        let clock = ManualClock::new(Timestamp::EPOCH);
        let settings = Settings::new(folder.path().join("index"));
        let engine = Engine::open(Arc::new(backend.expect("a store")), Arc::new(clock), settings);
        let engine = Arc::new(engine.expect("it opens"));
        let table = engine.default_table().expect("it exists");
        let settings = QuerySettings {
            threads: Some(2),
            ..QuerySettings::default()
        };
        let querier = Querier::new(Arc::clone(&engine), &settings).expect("threads");
        Self {
            engine,
            table,
            querier,
            _folder: folder,
        }
    }

    pub(crate) fn with(points: &[Point<'_>]) -> Self {
        let world = Self::new();
        world.write(points);
        world
    }

    /// Writes numbers at timestamps in nanoseconds.
    pub(crate) fn write_nanos(&self, points: &[(&str, i64, f64)]) {
        let each = points
            .iter()
            .map(|(key, time, value)| (*key, *time, float(*value)));
        self.write_all(&each.collect::<Vec<_>>());
    }

    /// Writes points at timestamps in nanoseconds.
    pub(crate) fn write_at(&self, points: &[(String, i64, Fields)]) {
        let each = points
            .iter()
            .map(|(key, time, fields)| (key.as_str(), *time, fields.clone()));
        self.write_all(&each.collect::<Vec<_>>());
    }

    pub(crate) fn write(&self, points: &[Point<'_>]) {
        let each = points
            .iter()
            .map(|(key, time, fields)| (*key, time * MILLI, fields.clone()));
        self.write_all(&each.collect::<Vec<_>>());
    }

    /// Writes many values of one field of one timeline at timestamps in nanoseconds.
    pub(crate) fn write_line(&self, key: &str, field: &str, times: &[i64], values: ColumnData) {
        let mut resolver = self.engine.resolver(&self.table);
        let group = PointGroup {
            measurements: key.split(',').next().expect("a key").into(),
            fields: vec![field.into()],
            columns: vec![values],
            timelines: vec![resolver.resolve(key.as_bytes()).expect("a valid key"); times.len()],
            timestamps: times.to_vec(),
            lines: (1..).take(times.len()).collect(),
        };
        drop(resolver);
        let batch = PointBatch {
            groups: vec![group],
            rejects: Vec::new(),
        };
        let outcome = self.engine.write(&self.table, batch, &WriteOptions::default());
        assert_eq!(outcome.expect("written").rejects, []);
    }

    fn write_all(&self, points: &[Point<'_>]) {
        let mut resolver = self.engine.resolver(&self.table);
        let groups = points
            .iter()
            .zip(1..)
            .map(|((key, time, fields), line)| PointGroup {
                measurements: key.split(',').next().expect("a key").into(),
                fields: fields.iter().map(|(name, _)| (*name).into()).collect(),
                columns: fields.iter().map(|(_, value)| column(value)).collect(),
                timelines: vec![resolver.resolve(key.as_bytes()).expect("a valid key")],
                timestamps: vec![*time],
                lines: vec![line],
            });
        let batch = PointBatch {
            groups: groups.collect(),
            rejects: Vec::new(),
        };
        drop(resolver);
        let outcome = self.engine.write(&self.table, batch, &WriteOptions::default());
        assert_eq!(outcome.expect("written").rejects, []);
    }

    /// Seals the points and moves all segments to the cold tier; all points must be of one day.
    pub(crate) fn seal_and_move(&self) {
        self.engine.seal().expect("sealed");
        let store = self.engine.store();
        let table = self.table.points().id();
        let snapshot = store.snapshot();
        let segments = snapshot.manifest().of_table(table);
        let rewrite = Rewrite {
            table,
            inputs: segments.map(|segment| segment.id).collect(),
            tier: Tier::Cold,
            cause: RewriteCause::Migrate,
        };
        store.rewrite(&rewrite, &mut Hurry).expect("moved");
    }

    pub(crate) fn view(&self) -> SeriesView<'_> {
        SeriesView::new(&self.querier, &self.table, Budget::default(), &Cancel::new())
    }

    /// Returns the series that match all matchers, as text.
    pub(crate) fn series(&self, matchers: &[Matcher]) -> Vec<String> {
        let listed = self
            .view()
            .series(&[matchers.to_vec()], None, None)
            .expect("listed");
        assert!(!listed.is_cut);
        listed.items.iter().map(ToString::to_string).collect()
    }
}

/// Throttle that never waits.
struct Hurry;

impl Throttle for Hurry {
    fn step(&mut self, _: &RewriteCost) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

fn column(value: &Value) -> ColumnData {
    match value {
        Value::Float(value) => ColumnData::Float(vec![*value]),
        Value::Signed(value) => ColumnData::Signed(vec![*value]),
        Value::Unsigned(value) => ColumnData::Unsigned(vec![*value]),
        Value::Boolean(value) => ColumnData::Boolean(vec![*value]),
        Value::String(value) => {
            let mut column = ColumnData::new(ValueType::String);
            if let ColumnData::String(texts) = &mut column {
                texts.push(value);
            }
            column
        }
        Value::Histogram(value) => ColumnData::Histogram([&**value].into_iter().collect()),
    }
}

pub(crate) fn float(value: f64) -> Vec<(&'static str, Value)> {
    vec![("value", Value::Float(value))]
}

pub(crate) fn matcher(name: &str, op: MatchOp, value: &str) -> Matcher {
    Matcher::new(name, op, value).expect("a valid expression")
}

pub(crate) fn eq(name: &str, value: &str) -> Matcher {
    matcher(name, MatchOp::Equal, value)
}

pub(crate) fn re(name: &str, value: &str) -> Matcher {
    matcher(name, MatchOp::Regex, value)
}

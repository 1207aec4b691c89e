//! Test support: an engine in memory, points written one by one, and a sink that keeps its rows.
//!
//! Random data comes from [`Dice`]; set `TIDELINE_SEED` to replay it.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::{Arc, LazyLock};

use tempfile::TempDir;
use tideline_backend::memory::{Character, MemoryBackend, MemoryDisk};
use tideline_condition::Condition;
use tideline_engine::{Engine, Settings, Table, WriteOptions};
use tideline_model::time::NANOS_PER_DAY;
use tideline_model::{
    ColumnData, ManualClock, PointBatch, PointGroup, SegmentId, SeriesResolver, Tier, TimeRange, TimelineId,
    Timestamp, Value, ValueKind, ValueType,
};
use tideline_query::{
    Aggregate, Budget, Cancel, Direction, Function, GroupBy, Header, Percentile, PointQuery, Querier,
    QuerySettings, RowSink, Rows, Selector, Series, Shape, SinkClosed, Summary, ValueRef, WindowSpec,
};
use tideline_series_store::{Delete, Rewrite, RewriteCause, RewriteCost, Throttle};

/// Engine in memory with a table, a querier and a manual clock.
pub(crate) struct World {
    pub(crate) engine: Arc<Engine>,
    pub(crate) table: Table,
    pub(crate) querier: Querier,
    pub(crate) clock: ManualClock,
    _index: TempDir,
}

/// Point: raw series key, timestamp, fields.
pub(crate) type Point<'a> = (&'a str, i64, Vec<(&'a str, Value)>);

impl World {
    pub(crate) fn new() -> Self {
        Self::with_settings(&QuerySettings {
            threads: Some(3),
            ..QuerySettings::default()
        })
    }

    /// Opens a world whose clock starts at `now`.
    pub(crate) fn at(now: i64) -> Self {
        Self::open(&QuerySettings::default(), Timestamp::from_nanos_clamped(now))
    }

    pub(crate) fn with_settings(settings: &QuerySettings) -> Self {
        Self::open(settings, Timestamp::EPOCH)
    }

    /// Opens a world whose in-memory backend behaves like a cluster ([`Character::Distributed`]).
    pub(crate) fn distributed() -> Self {
        Self::on(
            Character::Distributed,
            &QuerySettings::default(),
            Timestamp::EPOCH,
        )
    }

    fn open(settings: &QuerySettings, now: Timestamp) -> Self {
        Self::on(Character::Embedded, settings, now)
    }

    fn on(character: Character, settings: &QuerySettings, now: Timestamp) -> Self {
        let disk = MemoryDisk::new(character);
        let backend = Arc::new(MemoryBackend::open(&disk));
        let index = tempfile::tempdir().expect("a folder");
        let clock = ManualClock::new(now);
        let engine = Engine::open(
            backend,
            Arc::new(clock.clone()),
            Settings::new(index.path().into()),
        );
        let engine = Arc::new(engine.expect("it opens"));
        let table = engine.default_table().expect("it exists");
        let querier = Querier::new(Arc::clone(&engine), settings).expect("threads");
        Self {
            engine,
            table,
            querier,
            clock,
            _index: index,
        }
    }

    /// Opens a world with these points, written in this order.
    pub(crate) fn with(points: &[Point<'_>]) -> Self {
        let world = Self::new();
        world.write(points);
        world
    }

    pub(crate) fn write(&self, points: &[Point<'_>]) {
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

    pub(crate) fn seal(&self) {
        self.engine.seal().expect("sealed");
    }

    /// Seals the points, then moves to the cold tier each storage window for which `chosen` returns true. `chosen`
    /// receives the number of the window: days since the Unix epoch.
    pub(crate) fn seal_and_move(&self, mut chosen: impl FnMut(i64) -> bool) {
        self.seal();
        let store = self.engine.store();
        let table = self.table.points().id();
        let mut windows: BTreeMap<i64, Vec<SegmentId>> = BTreeMap::new();
        let manifest = store.snapshot();
        for segment in manifest.manifest().of_table(table) {
            let window = segment.first.div_euclid(NANOS_PER_DAY);
            assert_eq!(
                window,
                segment.last.div_euclid(NANOS_PER_DAY),
                "seals cut at days"
            );
            windows.entry(window).or_default().push(segment.id);
        }
        for (window, inputs) in windows {
            if chosen(window) {
                let (tier, cause) = (Tier::Cold, RewriteCause::Migrate);
                let rewrite = Rewrite {
                    table,
                    inputs,
                    tier,
                    cause,
                };
                store.rewrite(&rewrite, &mut Hurry).expect("moved");
            }
        }
    }

    /// Deletes the points of a timeline in a range.
    pub(crate) fn delete(&self, key: &str, range: TimeRange) {
        let delete = Delete {
            timelines: vec![self.id(key)],
            range,
            removes_timelines: false,
        };
        let deleted = self.engine.store().delete(self.table.points(), delete);
        deleted.expect("deleted");
    }

    pub(crate) fn id(&self, key: &str) -> TimelineId {
        let ordinal = self.engine.resolver(&self.table).resolve(key.as_bytes());
        self.table.reader().id(ordinal.expect("a valid key"))
    }

    pub(crate) fn run(&self, query: &PointQuery) -> tideline_query::Result<CollectedResult> {
        let mut result = CollectedResult::default();
        let summary = self
            .querier
            .points(&self.table, query, &Cancel::new(), &mut result)?;
        result.summary = Some(summary);
        Ok(result)
    }
}

fn column(value: &Value) -> ColumnData {
    match value {
        Value::Float(value) => ColumnData::Float(vec![*value]),
        Value::Signed(value) => ColumnData::Signed(vec![*value]),
        Value::Unsigned(value) => ColumnData::Unsigned(vec![*value]),
        Value::Boolean(value) => ColumnData::Boolean(vec![*value]),
        Value::String(value) => ColumnData::String([&**value].into_iter().collect()),
        Value::Histogram(value) => ColumnData::Histogram([&**value].into_iter().collect()),
    }
}

/// Throttle that never waits.
struct Hurry;

impl Throttle for Hurry {
    fn step(&mut self, _: &RewriteCost) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

/// Sink that keeps the result.
#[derive(Debug, Default)]
pub(crate) struct CollectedResult {
    pub(crate) header: Header,
    pub(crate) series: Vec<KeptSeries>,
    pub(crate) summary: Option<Summary>,
    /// Maximum number of rows to accept.
    pub(crate) rows_max: Option<usize>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct KeptSeries {
    pub(crate) id: Option<TimelineId>,
    pub(crate) measurement: String,
    pub(crate) tags: Vec<(String, String)>,
    /// Names of the columns.
    pub(crate) columns: Vec<String>,
    pub(crate) rows: Vec<(i64, Vec<Option<Value>>)>,
}

impl CollectedResult {
    /// Returns the rows of the only series; empty if the result has no series.
    pub(crate) fn rows(&self) -> Vec<(i64, Vec<Option<Value>>)> {
        assert!(self.series.len() <= 1, "{:?}", self.series);
        self.series
            .iter()
            .flat_map(|series| series.rows.clone())
            .collect()
    }

    pub(crate) fn summary(&self) -> &Summary {
        self.summary.as_ref().expect("it ended well")
    }
}

impl RowSink for CollectedResult {
    fn needs_tags(&self) -> bool {
        true
    }

    fn needs_types(&self) -> bool {
        true
    }

    fn begin(&mut self, header: &Header) -> Result<(), SinkClosed> {
        self.header = header.clone();
        Ok(())
    }

    fn series(&mut self, series: &Series<'_>) -> Result<(), SinkClosed> {
        let names = series.columns.iter().map(|at| self.header.columns[*at].clone());
        self.series.push(KeptSeries {
            id: series.id,
            measurement: series.measurement.into(),
            tags: series.tags.to_vec(),
            columns: names.collect(),
            rows: Vec::new(),
        });
        Ok(())
    }

    fn row(&mut self, time: i64, values: &[Option<ValueRef<'_>>]) -> Result<(), SinkClosed> {
        let taken: usize = self.series.iter().map(|series| series.rows.len()).sum();
        if self.rows_max.is_some_and(|most| taken >= most) {
            return Err(SinkClosed);
        }
        let values: Vec<_> = values.iter().map(|value| value.map(ValueRef::to_value)).collect();
        let series = self.series.last_mut().expect("a series comes first");
        for (name, value) in series.columns.iter().zip(&values) {
            let position = self.header.columns.iter().position(|column| column == name);
            let stated = self.header.types[position.expect("a column of the header")];
            assert!(
                fits(value.as_ref(), stated),
                "{value:?} in {name:?}, a column of {stated:?}"
            );
        }
        series.rows.push((time, values));
        Ok(())
    }
}

/// Returns true if a column of a type can hold a value; a column without a type can hold any value.
fn fits(value: Option<&Value>, stated: Option<ValueType>) -> bool {
    let is_number = |of: ValueType| of.kind() == ValueKind::Number;
    match (value.map(Value::value_type), stated) {
        (None, _) | (_, None) => true,
        (Some(of), Some(ValueType::Float)) => is_number(of),
        (Some(of), Some(stated)) => of == stated,
    }
}

/// Returns a query for all points of all timelines.
pub(crate) fn rows_query() -> PointQuery {
    PointQuery {
        details: false,
        timelines: Selector::Condition(Condition::All),
        fields: Vec::new(),
        range: TimeRange::ALL,
        values: None,
        compute: Vec::new(),
        tier: None,
        shape: Shape::Rows(Rows::default()),
        budget: Budget::default(),
    }
}

/// Returns a query that computes `functions` over all fields of all timelines, in windows of `width` if given.
pub(crate) fn aggregate_query(
    functions: &[Function],
    range: TimeRange,
    width: Option<i64>,
    group_by: GroupBy,
) -> PointQuery {
    PointQuery {
        range,
        shape: Shape::Aggregate(Aggregate {
            fill: None,
            functions: functions.to_vec(),
            window: width.map(|width| WindowSpec::aligned(width).into()),
            group_by,
            order: Direction::Ascending,
            limit: None,
            ..Aggregate::default()
        }),
        ..rows_query()
    }
}

/// Seed of this test run.
static SEED: LazyLock<u64> = LazyLock::new(|| tideline_testkit::seed("query"));

/// Repeatable random numbers.
pub(crate) struct Dice(u64);

impl Dice {
    /// Creates the random sequence with the number `sequence` from the seed of the test run; equal numbers yield equal
    /// sequences. Prints the seed, so that a failure can be replayed with `TIDELINE_SEED`.
    pub(crate) fn new(sequence: u64) -> Self {
        println!("sequence {sequence} of TIDELINE_SEED={}", *SEED);
        Self(Self(SEED.wrapping_add(sequence)).next())
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub(crate) fn one_in(&mut self, chances: u64) -> bool {
        self.below(chances) == 0
    }
}

/// Returns the functions that support all of the types, including a random percentile.
pub(crate) fn functions_of(dice: &mut Dice, types: &[ValueType]) -> Vec<Function> {
    let percents = [0.0, 50.0, 100.0, dice.below(1_001) as f64 / 10.0];
    let percentile = Percentile::new(percents[dice.below(4) as usize]).expect("a share");
    let all = Function::PLAIN
        .into_iter()
        .chain([Function::Percentile(percentile)]);
    all.filter(|function| types.iter().all(|of| function.suits(of.kind())))
        .collect()
}

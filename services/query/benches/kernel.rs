//! Wall and CPU time of representative queries over sealed points in fjall, hot and cold.
//!
//! `cargo bench -p tideline-query --bench kernel [-- HOSTS STEPS]` loads HOSTS hosts (default 1,000) with ten
//! integer fields every ten seconds for STEPS steps (default 8,640, a day). Queries by hour cover the first twelve
//! hours.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use tideline_backend_fjall::{FjallBackend, FjallOptions};
use tideline_condition::Condition;
use tideline_engine::{Engine, Settings, Table, WriteOptions};
use tideline_model::{
    ColumnData, Durability, ManualClock, Ordinal, PointBatch, PointGroup, SegmentId, SeriesResolver, Tier,
    TimeRange, Timestamp,
};
use tideline_query::{
    Aggregate, Budget, Cancel, Direction, Function, GroupBy, Header, LatestQuery, PointQuery, Querier,
    QuerySettings, RowSink, Rows, Selector, Series, Shape, SinkClosed, ValueRef, WindowSpec,
};
use tideline_series_store::{Rewrite, RewriteCause, RewriteCost, Throttle};

const FIELDS: usize = 10;
const SECOND: i64 = 1_000_000_000;
const STEP: i64 = 10 * SECOND;
const HOUR: i64 = 3_600 * SECOND;
/// Midnight of a day in 2023 (UTC).
const START: i64 = 1_700_006_400 * SECOND;
const RUNS: usize = 15;

fn main() {
    let numbers: Vec<usize> = std::env::args()
        .filter_map(|argument| argument.parse().ok())
        .collect();
    let hosts = numbers.first().copied().unwrap_or(1_000);
    let steps = numbers.get(1).copied().unwrap_or(8_640);
    let folder = tempfile::tempdir().expect("a folder");
    let backend = FjallBackend::open(&folder.path().join("store"), FjallOptions::default()).expect("a store");
    let clock = Arc::new(ManualClock::new(Timestamp::from_nanos_clamped(START)));
    let settings = Settings::new(folder.path().join("index"));
    let engine = Arc::new(Engine::open(Arc::new(backend), clock, settings).expect("it opens"));
    let table = engine.default_table().expect("it exists");
    load(&engine, &table, hosts, steps);
    let querier = Querier::new(Arc::clone(&engine), &QuerySettings::default()).expect("threads");
    let end = START + steps as i64 * STEP;
    ask_all("hot", &querier, &table, end);
    let started = Instant::now();
    let bytes = move_to_cold(&engine, &table);
    println!(
        "moved to the cold tier, {bytes} bytes, in {:?}",
        started.elapsed()
    );
    ask_all("cold", &querier, &table, end);
    engine.close().expect("closed");
}

/// Runs and measures all queries. `end` is the end of the loaded time range.
fn ask_all(tier: &str, querier: &Querier, table: &Table, end: i64) {
    let run = |name: &str, query: &PointQuery| {
        measure(&format!("{tier}: {name}"), || {
            let mut count = Count::default();
            let summary = querier
                .points(table, query, &Cancel::new(), &mut count)
                .expect("answered");
            let cost = summary.cost.total();
            (count.rows, cost.values, cost.summaries)
        });
    };
    let half_day = TimeRange::new(START, end.min(START + 12 * HOUR));
    for function in [Function::Mean, Function::Max, Function::Increase] {
        let query = aggregate(function, &[], half_day, HOUR, GroupBy::Tags(vec!["host".into()]));
        run(&format!("{function} of all fields by host and hour"), &query);
    }
    let ragged = TimeRange::new(START + HOUR / 3, end.min(START + 12 * HOUR + HOUR / 3));
    let query = aggregate(
        Function::Mean,
        &[],
        ragged,
        HOUR,
        GroupBy::Tags(vec!["host".into()]),
    );
    run("the mean, twenty minutes later", &query);
    let last_hour = TimeRange::new(end - HOUR.min(end - START), end);
    let query = aggregate(Function::Mean, &["f3"], last_hour, 60 * SECOND, GroupBy::Nothing);
    run("mean of one field by minute over all hosts, one hour", &query);
    let mut query = aggregate(Function::Mean, &["f3"], last_hour, 60 * SECOND, GroupBy::Nothing);
    query.timelines = Selector::Condition(Condition::tag("host", "h7"));
    run("mean of one field by minute of one timeline, one hour", &query);
    let rows = PointQuery {
        shape: Shape::Rows(Rows {
            limit: Some(1_000_000),
            ..Rows::default()
        }),
        ..aggregate(Function::Mean, &[], half_day, HOUR, GroupBy::Nothing)
    };
    run("a million raw rows of ten fields", &rows);
    measure(&format!("{tier}: latest of all fields of all hosts"), || {
        let query = LatestQuery {
            details: false,
            timelines: Selector::Condition(Condition::All),
            fields: Vec::new(),
            tier: None,
            limit: None,
            after: None,
            budget: Budget::default(),
        };
        let mut count = Count::default();
        let summary = querier
            .latest(table, &query, &Cancel::new(), &mut count)
            .expect("answered");
        (count.rows, summary.cost.total().values, 0)
    });
}

/// Moves all sealed points to the cold tier; returns the bytes written.
fn move_to_cold(engine: &Engine, table: &Table) -> u64 {
    let id = table.points().id();
    let mut days: BTreeMap<i64, Vec<SegmentId>> = BTreeMap::new();
    for segment in engine.store().snapshot().manifest().of_table(id) {
        let day = segment.first.div_euclid(24 * HOUR);
        days.entry(day).or_default().push(segment.id);
    }
    let moved = days.into_values().map(|inputs| {
        let rewrite = Rewrite {
            table: id,
            inputs,
            tier: Tier::Cold,
            cause: RewriteCause::Migrate,
        };
        let moved = engine.store().rewrite(&rewrite, &mut Hurry).expect("moved");
        moved.cost.bytes_written
    });
    moved.sum()
}

struct Hurry;

impl Throttle for Hurry {
    fn step(&mut self, _: &RewriteCost) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

fn aggregate(
    function: Function,
    fields: &[&str],
    range: TimeRange,
    width: i64,
    group_by: GroupBy,
) -> PointQuery {
    PointQuery {
        details: false,
        timelines: Selector::Condition(Condition::All),
        fields: fields.iter().map(|field| (*field).to_owned()).collect(),
        range,
        values: None,
        compute: Vec::new(),
        tier: None,
        shape: Shape::Aggregate(Aggregate {
            fill: None,
            functions: vec![function],
            window: Some(WindowSpec::aligned(width).into()),
            group_by,
            order: Direction::Ascending,
            limit: None,
            ..Aggregate::default()
        }),
        budget: Budget::default(),
    }
}

/// Loads random walks of integers between 0 and 100, as TSBS generates them.
fn load(engine: &Engine, table: &Table, hosts: usize, steps: usize) {
    let keys: Vec<String> = (0..hosts)
        .map(|host| format!("cpu,host=h{host},region=r{}", host % 9))
        .collect();
    let ordinals: Vec<Ordinal> = {
        let mut resolver = engine.resolver(table);
        keys.iter()
            .map(|key| resolver.resolve(key.as_bytes()).expect("a key"))
            .collect()
    };
    let mut walks = vec![50i64; hosts * FIELDS];
    let mut seed = 1u64;
    let options = WriteOptions {
        durability: Some(Durability::Buffered),
        request: None,
    };
    let steps_per_batch = (10_000 / hosts).max(1);
    let started = Instant::now();
    for first in (0..steps).step_by(steps_per_batch) {
        let count = steps_per_batch.min(steps - first);
        let mut columns: [Vec<i64>; FIELDS] = std::array::from_fn(|_| Vec::with_capacity(hosts * count));
        let mut timestamps = Vec::with_capacity(hosts * count);
        for step in first..first + count {
            for host in 0..hosts {
                timestamps.push(START + step as i64 * STEP);
                for (field, column) in columns.iter_mut().enumerate() {
                    seed = seed
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    let walk = &mut walks[host * FIELDS + field];
                    *walk = (*walk + (seed >> 61) as i64 % 3 - 1).clamp(0, 100);
                    column.push(*walk);
                }
            }
        }
        let rows = timestamps.len();
        let group = PointGroup {
            measurements: "cpu".into(),
            fields: (0..FIELDS).map(|field| format!("f{field}").into()).collect(),
            columns: columns.into_iter().map(ColumnData::Signed).collect(),
            timelines: ordinals.iter().copied().cycle().take(rows).collect(),
            timestamps,
            lines: (1..=rows as u32).collect(),
        };
        let batch = PointBatch {
            groups: vec![group],
            rejects: Vec::new(),
        };
        engine.write(table, batch, &options).expect("written");
    }
    engine.seal().expect("sealed");
    let values = hosts * steps * FIELDS;
    println!("{values} values loaded and sealed in {:?}", started.elapsed());
}

/// Measures a query. `run` returns the numbers of rows, values read, and summaries used.
fn measure(name: &str, mut run: impl FnMut() -> (u64, u64, u64)) {
    let (rows, values, summaries) = run();
    let mut walls = Vec::with_capacity(RUNS);
    let before = processor_seconds();
    for _ in 0..RUNS {
        let started = Instant::now();
        black_box(run());
        walls.push(started.elapsed().as_secs_f64() * 1e3);
    }
    let processor = (processor_seconds() - before) * 1e3 / RUNS as f64;
    walls.sort_by(f64::total_cmp);
    println!(
        "{name}: median {:.2} ms, best {:.2} ms, processor {processor:.1} ms; {rows} rows of {values} values \
         and {summaries} summaries",
        walls[RUNS / 2],
        walls[0]
    );
}

/// Returns the user and system time of the process in seconds, in steps of 10 ms; zero if `/proc` is not available.
fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let ticks = |at: usize| {
        after_name
            .split_whitespace()
            .nth(at)
            .and_then(|field| field.parse::<f64>().ok())
    };
    (ticks(11).unwrap_or(0.0) + ticks(12).unwrap_or(0.0)) / 100.0
}

#[derive(Default)]
struct Count {
    rows: u64,
}

impl RowSink for Count {
    fn begin(&mut self, _: &Header) -> Result<(), SinkClosed> {
        Ok(())
    }

    fn series(&mut self, _: &Series<'_>) -> Result<(), SinkClosed> {
        Ok(())
    }

    fn row(&mut self, _: i64, values: &[Option<ValueRef<'_>>]) -> Result<(), SinkClosed> {
        black_box(values);
        self.rows += 1;
        Ok(())
    }
}

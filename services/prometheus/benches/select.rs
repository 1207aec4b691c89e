//! Wall time of selections for PromQL over sealed points in fjall, hot and cold, compared with an equivalent native
//! query.
//!
//! `cargo bench -p tideline-prometheus --bench select [-- HOSTS STEPS]` loads HOSTS hosts (default 1,000) with ten
//! integer fields every ten seconds for STEPS steps (default 4,320, half a day).

use std::collections::BTreeMap;
use std::hint::black_box;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use tideline_backend_fjall::{FjallBackend, FjallOptions};
use tideline_condition::Condition;
use tideline_engine::{Engine, Settings, Table, WriteOptions};
use tideline_model::{
    ColumnData, Durability, ManualClock, PointBatch, PointGroup, SegmentId, SeriesResolver, Tier, TimeRange,
    Timestamp,
};
use tideline_prometheus::SeriesView;
use tideline_promql::source::{OverTime, OverTimeFunction, Select, SeriesData, Source};
use tideline_promql::{MatchOp, Matcher, QueryParameters, Settings as Evaluation, evaluate, parse};
use tideline_query::{
    Aggregate, Budget, Cancel, Direction, Function, GroupBy, Header, PointQuery, Querier, QuerySettings,
    RowSink, Selector, Series, Shape, SinkClosed, ValueRef, WindowSpec,
};
use tideline_series_store::{Rewrite, RewriteCause, RewriteCost, Throttle};

const FIELDS: usize = 10;
const SECOND: i64 = 1_000_000_000;
const HOUR: i64 = 3_600 * SECOND;
const MILLI: i64 = 1_000_000;
/// Midnight of a day in 2023 (UTC).
const START: i64 = 1_700_006_400 * SECOND;
const RUNS: usize = 9;

fn main() {
    let numbers: Vec<usize> = std::env::args()
        .filter_map(|argument| argument.parse().ok())
        .collect();
    let hosts = numbers.first().copied().unwrap_or(1_000);
    let steps = numbers.get(1).copied().unwrap_or(4_320);
    let folder = tempfile::tempdir().expect("a folder");
    let backend = FjallBackend::open(&folder.path().join("store"), FjallOptions::default()).expect("a store");
    let clock = Arc::new(ManualClock::new(Timestamp::from_nanos_clamped(START)));
    let settings = Settings::new(folder.path().join("index"));
    let engine = Arc::new(Engine::open(Arc::new(backend), clock, settings).expect("it opens"));
    let table = engine.default_table().expect("it exists");
    load(&engine, &table, hosts, steps);
    let querier = Querier::new(Arc::clone(&engine), &QuerySettings::default()).expect("threads");
    for tier in ["hot", "cold"] {
        if tier == "cold" {
            move_to_cold(&engine, &table);
        }
        run_all(tier, &querier, &table, steps);
    }
    engine.close().expect("closed");
}

/// Runs and measures all selections and queries on the points of a tier.
fn run_all(tier: &str, querier: &Querier, table: &Table, steps: usize) {
    let hours = (steps / 360).max(1);
    let range = TimeRange::new(START, START + hours as i64 * HOUR);
    measure(
        &format!("{tier}: query, mean of all fields by host and hour"),
        || native(querier, table, range),
    );
    let names = Matcher::new("__name__", MatchOp::Regex, "cpu_(f0|f1|f2|f3|f4|f5|f6|f7|f8|f9)");
    let names = [names.expect("an expression")];
    let over_time = OverTime {
        function: OverTimeFunction::Avg,
        first: START / MILLI + HOUR / MILLI,
        step: HOUR / MILLI,
        steps: hours,
        width: HOUR / MILLI,
    };
    for (what, over_time) in [("windows", Some(over_time)), ("samples", None)] {
        let select = Select {
            matchers: &names,
            start: START / MILLI + 1,
            end: range.end / MILLI,
            over_time,
            with_starts: false,
        };
        measure(&format!("{tier}: {what} of all series"), || {
            let view = SeriesView::new(querier, table, Budget::default(), &Cancel::new());
            let count = AtomicU64::new(0);
            let visit = |_: &tideline_promql::Labels, data: SeriesData<'_>| {
                let more = match data {
                    SeriesData::Samples(samples) => samples.values.len(),
                    SeriesData::Steps { results, .. } => results.len(),
                };
                count.fetch_add(more as u64, Ordering::Relaxed);
                Ok(())
            };
            view.source().select(&select, &visit).expect("selected");
            count.into_inner()
        });
    }
    let texts = [
        "avg by (field, host) (label_replace(avg_over_time({__name__=~\"cpu_(f0|f1|f2|f3|f4|f5|f6|f7|f8|f9)\"}[1h]), \
         \"field\", \"$1\", \"__name__\", \"cpu_(.*)\"))",
        "sum(rate(cpu_f3[5m]))",
        "cpu_f3{host=\"h7\"}",
    ];
    for text in texts {
        let expr = parse(text).expect("PromQL");
        measure(&format!("{tier}: {text}"), || {
            let view = SeriesView::new(querier, table, Budget::default(), &Cancel::new());
            let is_instant = text.starts_with("cpu_f3{");
            let parameters = QueryParameters {
                text,
                start: if is_instant {
                    range.end / MILLI
                } else {
                    START / MILLI + HOUR / MILLI
                },
                end: range.end / MILLI,
                step: if is_instant { 0 } else { HOUR / MILLI },
                lookback_delta: None,
            };
            // By default, functions over ranges remove the metric name immediately, but `label_replace` still
            // needs it here.
            let settings = Evaluation {
                delayed_name_removal: true,
                ..Evaluation::default()
            };
            let answer = evaluate(&view.source(), &expr, &parameters, &settings).expect("evaluated");
            black_box(&answer.value);
            1
        });
    }
}

fn native(querier: &Querier, table: &Table, range: TimeRange) -> u64 {
    let query = PointQuery {
        details: false,
        timelines: Selector::Condition(Condition::All),
        fields: Vec::new(),
        range,
        tier: None,
        compute: Vec::new(),
        values: None,
        shape: Shape::Aggregate(Aggregate {
            functions: vec![Function::Mean],
            window: Some(WindowSpec::aligned(HOUR).into()),
            group_by: GroupBy::Tags(vec!["host".into()]),
            compute: Vec::new(),
            fill: None,
            rank: None,
            order: Direction::Ascending,
            limit: None,
        }),
        budget: Budget::default(),
    };
    let mut count = Count(0);
    querier
        .points(table, &query, &Cancel::new(), &mut count)
        .expect("answered");
    count.0
}

/// Sink that counts values.
struct Count(u64);

impl RowSink for Count {
    fn begin(&mut self, _: &Header) -> Result<(), SinkClosed> {
        Ok(())
    }

    fn series(&mut self, _: &Series<'_>) -> Result<(), SinkClosed> {
        Ok(())
    }

    fn row(&mut self, _: i64, values: &[Option<ValueRef<'_>>]) -> Result<(), SinkClosed> {
        self.0 += values.len() as u64;
        Ok(())
    }
}

/// Prints the best and the median time of several runs.
fn measure(name: &str, run: impl Fn() -> u64) {
    let mut times = Vec::new();
    let mut said = 0;
    for _ in 0..RUNS {
        let started = Instant::now();
        said = black_box(run());
        times.push(started.elapsed());
    }
    times.sort_unstable();
    println!(
        "{name}: {:?} (median {:?}), {said} values",
        times[0],
        times[RUNS / 2]
    );
}

/// Writes the points of all hosts in batches of 90 steps and seals the points.
fn load(engine: &Engine, table: &Table, hosts: usize, steps: usize) {
    let names: Vec<Box<str>> = (0..FIELDS).map(|field| format!("f{field}").into()).collect();
    let options = WriteOptions {
        durability: Some(Durability::Buffered),
        ..WriteOptions::default()
    };
    for first in (0..steps).step_by(90) {
        let mut resolver = engine.resolver(table);
        let mut group = PointGroup {
            measurements: "cpu".into(),
            fields: names.clone(),
            columns: (0..FIELDS).map(|_| ColumnData::Signed(Vec::new())).collect(),
            timelines: Vec::new(),
            timestamps: Vec::new(),
            lines: Vec::new(),
        };
        for host in 0..hosts {
            let key = format!("cpu,dc=d{},host=h{host},rack=r{}", host % 7, host % 100);
            let ordinal = resolver.resolve(key.as_bytes()).expect("a valid key");
            for step in first..steps.min(first + 90) {
                group.timelines.push(ordinal);
                group.timestamps.push(START + step as i64 * 10 * SECOND);
                group.lines.push(1);
                for (field, column) in group.columns.iter_mut().enumerate() {
                    if let ColumnData::Signed(values) = column {
                        let wave = ((step * (field + 3) + host * 7) % 613) as i64 - 300;
                        values.push(50 + wave / 7);
                    }
                }
            }
        }
        drop(resolver);
        let batch = PointBatch {
            groups: vec![group],
            rejects: Vec::new(),
        };
        engine.write(table, batch, &options).expect("written");
    }
    engine.seal().expect("sealed");
}

/// Moves all sealed points to the cold tier.
fn move_to_cold(engine: &Engine, table: &Table) {
    let id = table.points().id();
    let mut days: BTreeMap<i64, Vec<SegmentId>> = BTreeMap::new();
    for segment in engine.store().snapshot().manifest().of_table(id) {
        days.entry(segment.first.div_euclid(24 * HOUR))
            .or_default()
            .push(segment.id);
    }
    for inputs in days.into_values() {
        let rewrite = Rewrite {
            table: id,
            inputs,
            tier: Tier::Cold,
            cause: RewriteCause::Migrate,
        };
        engine.store().rewrite(&rewrite, &mut Hurry).expect("moved");
    }
}

struct Hurry;

impl Throttle for Hurry {
    fn step(&mut self, _: &RewriteCost) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

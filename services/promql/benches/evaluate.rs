//! Benchmark of evaluation without storage, on queries typical of dashboards.
//!
//! The source is in memory and passes series from two threads.

#![allow(clippy::unwrap_used, reason = "a bench may panic")]

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tideline_promql::source::{SeriesData, Visit};
use tideline_promql::{Labels, QueryParameters, Result, Samples, Select, Settings, Source, evaluate, parse};

/// Number of series of the metric. Each has a sample every ten seconds for four hours.
const SERIES: usize = 1000;
const SAMPLES: usize = 1440;
const INTERVAL: i64 = 10_000;

/// Number of threads that pass series to the evaluator.
const THREADS: usize = 2;

/// Series as arrays with common timestamps.
struct Arrays {
    times: Vec<i64>,
    series: Vec<(Labels, Vec<f64>)>,
}

impl Arrays {
    fn new() -> Self {
        let series = (0..SERIES).map(|at| {
            let (host, job) = (format!("host-{at:04}"), format!("job-{}", at % 20));
            let le = ["0.01", "0.1", "1", "10", "+Inf"][at % 5];
            let labels = Labels::from_sorted([
                ("__name__", "requests_total"),
                ("datacenter", "fra1"),
                ("instance", &host),
                ("job", &job),
                ("le", le),
            ]);
            let values = (0..SAMPLES).map(|sample| (sample * (at % 7 + 1)) as f64);
            (labels, values.collect())
        });
        Self {
            times: (0..SAMPLES as i64).map(|at| at * INTERVAL).collect(),
            series: series.collect(),
        }
    }
}

impl Source for Arrays {
    fn select(&self, select: &Select<'_>, visit: &Visit<'_>) -> Result<()> {
        let first = self.times.partition_point(|time| *time < select.start);
        let end = self.times.partition_point(|time| *time <= select.end);
        let hand_out = |series: &[(Labels, Vec<f64>)]| {
            series.iter().try_for_each(|(labels, values)| {
                let samples = Samples {
                    times: &self.times[first..end],
                    values: &values[first..end],
                    ..Samples::default()
                };
                visit(labels, SeriesData::Samples(samples))
            })
        };
        std::thread::scope(|scope| {
            let parts = self.series.chunks(SERIES.div_ceil(THREADS));
            let threads: Vec<_> = parts.map(|part| scope.spawn(move || hand_out(part))).collect();
            threads.into_iter().try_for_each(|thread| thread.join().unwrap())
        })
    }

    fn check(&self) -> Result<()> {
        Ok(())
    }
}

fn queries(criterion: &mut Criterion) {
    let arrays = Arrays::new();
    let mut group = criterion.benchmark_group("evaluate");
    group.throughput(Throughput::Elements((SERIES * SAMPLES) as u64));
    group.sample_size(20);
    // 360 steps of 40 s: four hours.
    let steps = (0, SAMPLES as i64 * INTERVAL - INTERVAL, 4 * INTERVAL);
    for query in [
        "requests_total",
        "sum by (job) (rate(requests_total[5m]))",
        "histogram_quantile(0.9, sum by (le) (rate(requests_total[5m])))",
        "max_over_time(requests_total[1h])",
        "requests_total / on (instance) requests_total",
        "topk(5, rate(requests_total[5m]))",
        "max_over_time(rate(requests_total[5m])[30m:1m])",
    ] {
        let expr = parse(query).unwrap();
        let parameters = QueryParameters {
            text: query,
            start: steps.0,
            end: steps.1,
            step: steps.2,
            lookback_delta: None,
        };
        group.bench_function(query, |bencher| {
            bencher.iter(|| evaluate(&arrays, black_box(&expr), &parameters, &Settings::default()).unwrap());
        });
    }
    group.finish();
}

criterion_group!(benches, queries);
criterion_main!(benches);

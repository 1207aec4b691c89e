//! Size and speed of chunks, summaries and deltas for typical workloads.
//!
//! Run with `cargo bench -p tideline-chunk`. Throughput is in values per second. Prints the size of each chunk and
//! delta.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tideline_chunk::{Bitmap, Chunk, ChunkEncoder, ChunkOptions, Delta, Run};
use tideline_model::{ColumnData, FieldId, TimeRange, ValueType};

#[path = "../tests/main/workload.rs"]
mod workload;

use workload::{
    COLD, cpu_delta, cpu_run, decimal_run, encoded, encoded_delta, encoded_with, sequences, sine_run,
};

fn chunks(criterion: &mut Criterion) {
    let hot = ChunkOptions::default();
    let shapes: [(&str, Run, ChunkOptions); 9] = [
        ("cpu_540x10", cpu_run(1, 540), hot),
        ("cpu_128x10", cpu_run(1, 128), hot),
        ("cpu_10x10", cpu_run(1, 10), hot),
        ("decimals_540x10", decimal_run(1, 540), hot),
        ("sines_540x10", sine_run(540), hot),
        ("cold_cpu_8640x10", cpu_run(1, 8_640), COLD),
        ("cold_cpu_360x10", cpu_run(1, 360), COLD),
        ("cold_decimals_8640x10", decimal_run(1, 8_640), COLD),
        ("cold_sines_8640x10", sine_run(8_640), COLD),
    ];
    for (name, run, options) in &shapes {
        let bytes = encoded_with(run, options);
        let per_value = bytes.len() as f64 / run.values() as f64;
        println!("chunk/{name}: {} bytes, {per_value:.3} per value", bytes.len());
        let mut group = criterion.benchmark_group(format!("chunk/{name}"));
        group.throughput(Throughput::Elements(run.values() as u64));
        let mut out = Vec::new();
        let mut encoder = ChunkEncoder::default();
        group.bench_function("encode", |bencher| {
            bencher.iter(|| {
                out.clear();
                encoder
                    .encode(black_box(run), sequences(1, 9), options, &mut out)
                    .expect("the run is well formed");
            });
        });
        let mut values = ColumnData::new(ValueType::Signed);
        let mut presence = Bitmap::default();
        group.bench_function("open_and_decode", |bencher| {
            bencher.iter(|| {
                let chunk = Chunk::open(black_box(&bytes)).expect("it was just written");
                for column in chunk.columns() {
                    chunk
                        .decode(&column, 0..chunk.rows(), &mut values, &mut presence)
                        .expect("it was just written");
                    black_box(&values);
                }
            });
        });
        group.finish();
    }
}

fn point_read(criterion: &mut Criterion) {
    let run = cpu_run(1, 540);
    let bytes = encoded(&run);
    let mut values = ColumnData::new(ValueType::Signed);
    let mut presence = Bitmap::default();
    let range = TimeRange::new(run.timestamps[300], run.timestamps[306]);
    criterion.bench_function("chunk/one_minute_of_one_field", |bencher| {
        bencher.iter(|| {
            let chunk = Chunk::open_trusted(black_box(&bytes)).expect("it was just written");
            let column = chunk.find(FieldId(5)).next().expect("ten fields");
            chunk
                .decode(&column, chunk.row_range(range), &mut values, &mut presence)
                .expect("it was just written");
            black_box(&values);
        });
    });
}

/// Reads the hourly summaries of one host for one day: 24 buckets of ten fields.
fn summaries(criterion: &mut Criterion) {
    let bytes = encoded_with(&cpu_run(1, 8_640), &COLD);
    let mut found = Vec::new();
    let mut group = criterion.benchmark_group("chunk/summaries_24x10");
    group.throughput(Throughput::Elements(240));
    group.bench_function("read", |bencher| {
        bencher.iter(|| {
            let chunk = Chunk::open_trusted(black_box(&bytes)).expect("it was just written");
            let summaries = chunk.summaries().expect("24 buckets of 360 rows");
            for field in 1..=10 {
                summaries.column(FieldId(field), ValueType::Signed, &mut found);
                black_box(&found);
            }
        });
    });
    group.finish();
}

fn deltas(criterion: &mut Criterion) {
    for machines in [1_000, 4_000] {
        let delta = cpu_delta(1, 10_000, machines);
        let bytes = encoded_delta(&delta);
        let per_row = bytes.len() as f64 / delta.rows() as f64;
        println!(
            "delta/{machines}_machines: {} bytes, {per_row:.2} per row",
            bytes.len()
        );
        let mut group = criterion.benchmark_group(format!("delta/{machines}_machines"));
        group.throughput(Throughput::Elements(delta.values() as u64));
        let mut out = Vec::new();
        group.bench_function("encode", |bencher| {
            bencher.iter(|| {
                out.clear();
                black_box(&delta)
                    .encode(&mut out)
                    .expect("the delta is well formed");
            });
        });
        group.bench_function("decode", |bencher| {
            bencher.iter(|| Delta::decode(black_box(&bytes)).expect("it was just written"));
        });
        group.finish();
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(std::time::Duration::from_millis(300))
        .measurement_time(std::time::Duration::from_secs(1))
        .sample_size(30);
    targets = chunks, point_read, summaries, deltas
}
criterion_main!(benches);

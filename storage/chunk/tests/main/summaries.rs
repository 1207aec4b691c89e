//! Summaries equal the aggregates computed from the rows, and are unknown if the sum is not finite. Size limits hold.
//!
//! The expected values are computed row by row, independently of the encoder.

use std::ops::Range;

use proptest::prelude::*;
use tideline_chunk::{
    Chunk, ChunkEncoder, ChunkError, ChunkOptions, ColumnSummary, Effort, LoneSummaries, LoneSummaryWriter,
    Number, Presence, Run, RunColumn, Sum, Summaries, SummaryBucket, ValueSummary,
};
use tideline_model::{ColumnData, FieldId, ValueType};

use crate::samples::run;
use crate::workload::{cpu_run, decimal_run, encoded_with, sequences, sine_run};

const HOUR: i64 = 3_600_000_000_000;

fn options(width: i64) -> ChunkOptions {
    ChunkOptions {
        effort: Effort::Fast,
        summaries: Some(width),
    }
}

/// Returns the buckets of a run, computed row by row.
fn buckets_of(run: &Run, width: i64) -> Vec<SummaryBucket> {
    let mut buckets: Vec<SummaryBucket> = Vec::new();
    for (row, instant) in run.timestamps.iter().enumerate() {
        let start = instant.div_euclid(width).saturating_mul(width);
        match buckets.last_mut() {
            Some(bucket) if bucket.start == start => {
                bucket.rows.end = row + 1;
                bucket.last_timestamp = *instant;
            }
            _ => buckets.push(SummaryBucket {
                start,
                rows: row..row + 1,
                first_timestamp: *instant,
                last_timestamp: *instant,
            }),
        }
    }
    buckets
}

fn numbers(values: &ColumnData) -> Option<Vec<Number>> {
    match values {
        ColumnData::Float(values) => Some(values.iter().copied().map(Number::Float).collect()),
        ColumnData::Signed(values) => Some(values.iter().copied().map(Number::Signed).collect()),
        ColumnData::Unsigned(values) => Some(values.iter().copied().map(Number::Unsigned).collect()),
        ColumnData::Boolean(_) | ColumnData::String(_) | ColumnData::Histogram(_) => None,
    }
}

fn as_integer(number: Number) -> i128 {
    match number {
        Number::Signed(value) => value.into(),
        Number::Unsigned(value) => value.into(),
        Number::Float(_) => unreachable!("integers only"),
    }
}

fn as_float(number: Number) -> f64 {
    match number {
        Number::Float(value) => value,
        _ => unreachable!("floats only"),
    }
}

/// Returns the sum and its correction by Neumaier's algorithm, and the sum of magnitudes.
fn compensated(values: impl Iterator<Item = f64>) -> (f64, f64, f64) {
    values.fold((0.0f64, 0.0, 0.0), |(sum, correction, magnitude), value| {
        let next = sum + value;
        let lost = if sum.abs() >= value.abs() {
            (sum - next) + value
        } else {
            (value - next) + sum
        };
        (next, correction + lost, magnitude + value.abs())
    })
}

fn same(a: Number, b: Number) -> bool {
    match (a, b) {
        (Number::Float(a), Number::Float(b)) => a.to_bits() == b.to_bits(),
        _ => a == b,
    }
}

/// Compares a summary with the aggregates of the values.
fn check_bucket(column: &RunColumn, times: &[i64], rows: Range<usize>, summary: &ColumnSummary) {
    let all = numbers(&column.values).expect("a column of numbers");
    let places: Vec<usize> = rows.filter(|row| column.presence.contains(*row)).collect();
    let values: Vec<Number> = places.iter().map(|row| all[column.presence.rank(*row)]).collect();
    let (Some(first), Some(last)) = (values.first(), values.last()) else {
        assert_eq!(*summary, ColumnSummary::Empty);
        return;
    };
    let floats = || values.iter().copied().map(as_float);
    let is_float = matches!(first, Number::Float(_));
    if is_float {
        let (sum, correction, _) = compensated(floats());
        if !(sum + correction).is_finite() {
            assert_eq!(*summary, ColumnSummary::Unknown);
            return;
        }
    }
    let ColumnSummary::Known(ValueSummary {
        count,
        sum,
        min,
        max,
        first: (first_at, first_is),
        last: (last_at, last_is),
    }) = *summary
    else {
        panic!("{summary:?} of {values:?}");
    };
    assert_eq!(count, values.len() as u64);
    assert!(same(first_is, *first) && same(last_is, *last));
    assert_eq!(
        (first_at, last_at),
        (times[places[0]], times[places[places.len() - 1]])
    );
    match sum {
        Sum::Integer(sum) => {
            let integers = || values.iter().copied().map(as_integer);
            assert_eq!(sum, integers().sum::<i128>());
            assert_eq!(as_integer(min), integers().min().expect("one at least"));
            assert_eq!(as_integer(max), integers().max().expect("one at least"));
        }
        Sum::Float { sum, correction } => {
            let (raw, raw_correction, magnitude) = compensated(floats());
            let difference = (sum - raw) + (correction - raw_correction);
            assert!(
                difference.abs() <= magnitude * 1e-17,
                "{sum} {correction} {raw} {raw_correction}"
            );
            assert!(same(
                min,
                Number::Float(floats().min_by(f64::total_cmp).expect("one at least"))
            ));
            assert!(same(
                max,
                Number::Float(floats().max_by(f64::total_cmp).expect("one at least"))
            ));
        }
    }
}

/// Encodes a run and checks its summaries. Returns true if the chunk has summaries.
fn check(run: &Run, width: i64) -> bool {
    let bytes = encoded_with(run, &options(width));
    check_bytes(&bytes, run, width)
}

/// Checks every bucket of every column of a stored run. Returns true if there were summaries.
pub(crate) fn check_bytes(bytes: &[u8], run: &Run, width: i64) -> bool {
    let chunk = Chunk::open(bytes).expect("it was just written");
    assert_eq!(chunk.to_run().as_ref(), Ok(run));
    let Some(summaries) = chunk.summaries() else {
        return false;
    };
    assert_eq!(summaries.width(), width);
    check_all(run, &summaries);
    true
}

/// Compares summaries with summaries computed from the rows of a run.
fn check_all(run: &Run, summaries: &Summaries<'_>) {
    assert_eq!(summaries.buckets(), buckets_of(run, summaries.width()));
    let mut found = vec![ColumnSummary::Empty; 3];
    for column in &run.columns {
        let value_type = column.values.value_type();
        let is_numeric = numbers(&column.values).is_some();
        assert_eq!(summaries.column(column.field, value_type, &mut found), is_numeric);
        assert_eq!(
            found.len(),
            if is_numeric { summaries.buckets().len() } else { 0 }
        );
        for (summary, bucket) in found.iter().zip(summaries.buckets()) {
            check_bucket(column, &run.timestamps, bucket.rows.clone(), summary);
        }
    }
    assert!(!summaries.column(FieldId(77), ValueType::Float, &mut found));
}

/// Encodes and checks lone summaries. Returns their bucket width, or `None` if nothing was written.
fn check_lone(run: &Run, widths: &[i64]) -> Option<i64> {
    let mut stored = Vec::new();
    let written = LoneSummaryWriter::default().write(run, widths, &mut stored);
    written.expect("a well-formed run");
    let has_numbers = run.columns.iter().any(|column| numbers(&column.values).is_some());
    assert_eq!(
        stored.is_empty(),
        !has_numbers || run.rows() == 0 || widths.is_empty()
    );
    if stored.is_empty() {
        return None;
    }
    let lone = LoneSummaries::open(&stored).expect("just written");
    let summaries = lone.summaries();
    check_all(run, summaries);
    assert_eq!(lone.is_dense(), summaries.buckets().len() <= run.rows() / 16);
    for end in 0..stored.len() {
        assert!(LoneSummaries::open(&stored[..end]).is_err());
    }
    Some(summaries.width())
}

/// Moves the timestamps of a run so that row `n` falls into the `n`-th interval of `gap` nanoseconds.
fn gathered(mut run: Run, gap: i64) -> Run {
    for (row, instant) in run.timestamps.iter_mut().enumerate() {
        *instant = -5 * HOUR + row as i64 * gap + (*instant).rem_euclid(gap);
    }
    run
}

proptest! {
    #![proptest_config(tideline_testkit::proptest_config(200))]

    #[test]
    fn summaries_are_what_the_rows_come_to(run in run(), gap in prop::sample::select(vec![1, 60_000_000_000i64, 200_000_000_000])) {
        check(&run, HOUR);
        check(&gathered(run, gap), HOUR);
    }

    #[test]
    fn lone_summaries_of_any_run_are_what_the_rows_come_to(run in run(), gap in prop::sample::select(vec![1, 60_000_000_000i64, 3_000_000_000_000])) {
        check_lone(&run, &[HOUR, 24 * HOUR]);
        check_lone(&gathered(run, gap), &[HOUR, 24 * HOUR]);
    }

    #[test]
    fn buckets_reach_to_the_ends_of_time(width in 1..i64::MAX, starts_low in any::<bool>()) {
        let step = i64::MAX / 64;
        let first = if starts_low { i64::MIN + 2 } else { i64::MAX - 1 - 63 * step };
        let run = Run {
            timestamps: (0..64).map(|row| first + row * step).collect(),
            columns: vec![RunColumn {
                field: FieldId(1),
                presence: Presence::All,
                values: ColumnData::Signed((0..64).map(|row| i64::MAX - row).collect()),
            }],
        };
        check(&run, width);
    }
}

#[test]
fn workloads_are_summed_up_by_the_hour() {
    for run in [cpu_run(1, 8_640), decimal_run(2, 8_640), sine_run(8_640)] {
        assert!(check(&run, HOUR));
        assert!(check(&run, 24 * HOUR));
    }
}

#[test]
fn lone_summaries_have_buckets_as_their_rows_are_dense() {
    let every = |gap: i64, rows: usize| gathered(cpu_run(1, rows), gap);
    for (gap, rows, width) in [
        (HOUR / 60, 1_440, HOUR),
        (HOUR / 60, 20, HOUR),
        (HOUR / 60, 10, 24 * HOUR),
        (HOUR / 4, 96, 24 * HOUR),
        (HOUR, 24, 24 * HOUR),
        (24 * HOUR, 1, 24 * HOUR),
        (24 * HOUR, 400, 24 * HOUR),
    ] {
        assert_eq!(
            check_lone(&every(gap, rows), &[HOUR, 24 * HOUR]),
            Some(width),
            "{rows} rows"
        );
    }
    assert_eq!(check_lone(&every(HOUR, 24), &[]), None);
}

#[test]
fn few_rows_a_bucket_get_no_summaries() {
    let run = cpu_run(1, 8_640);
    let plain = encoded_with(&run, &ChunkOptions::default());
    assert_eq!(plain[2], 1);
    assert_eq!(encoded_with(&run, &options(HOUR / 24)), plain);
    assert_eq!(encoded_with(&run, &options(HOUR / 22))[2], 2);
    assert!(
        Chunk::open(&plain)
            .expect("it was just written")
            .summaries()
            .is_none()
    );
    let outcome = ChunkEncoder::default().encode(&run, sequences(1, 1), &options(0), &mut Vec::new());
    assert!(matches!(outcome, Err(ChunkError::Malformed(_))), "{outcome:?}");
}

#[test]
fn a_bucket_with_a_nan_or_an_infinity_is_unknown_alone() {
    for odd in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX] {
        let mut run = decimal_run(1, 720);
        if let ColumnData::Float(values) = &mut run.columns[3].values {
            values[100] = odd;
            values[200] = odd;
        }
        let bytes = encoded_with(&run, &options(HOUR));
        let chunk = Chunk::open(&bytes).expect("it was just written");
        let summaries = chunk.summaries().expect("two buckets of 360 rows");
        let mut found = Vec::new();
        assert!(summaries.column(FieldId(4), ValueType::Float, &mut found));
        assert_eq!(found[0], ColumnSummary::Unknown);
        assert!(matches!(found[1], ColumnSummary::Known(_)));
        assert!(check(&run, HOUR));
    }
}

#[test]
fn a_sum_that_cancels_keeps_its_digits() {
    // Tenths have no exact representation as doubles. Their rounding errors in the sum are far below the last digit of
    // any value.
    let values: Vec<f64> = (0..720).map(|row| [0.1, 0.2, -0.3][row % 3]).collect();
    let mut run = decimal_run(1, 720);
    run.columns.truncate(1);
    run.columns[0].values = ColumnData::Float(values.clone());
    let bytes = encoded_with(&run, &options(HOUR));
    let chunk = Chunk::open(&bytes).expect("it was just written");
    let mut found = Vec::new();
    chunk
        .summaries()
        .expect("two buckets of 360 rows")
        .column(FieldId(1), ValueType::Float, &mut found);
    let ColumnSummary::Known(ValueSummary {
        sum: Sum::Float { sum, correction },
        ..
    }) = found[0]
    else {
        panic!("{:?}", found[0]);
    };
    let (raw, raw_correction, _) = compensated(values[..360].iter().copied());
    let (raw, ours) = (raw + raw_correction, sum + correction);
    assert!(raw > 0.0 && (ours - raw).abs() <= raw * 1e-3, "{ours:e} {raw:e}");
}

#[test]
fn summaries_cost_what_was_promised() {
    for (name, run, most) in [
        ("walks", cpu_run(1, 8_640), 0.02),
        ("decimals", decimal_run(1, 8_640), 0.03),
        ("sines", sine_run(8_640), 0.12),
    ] {
        let bytes = encoded_with(&run, &options(HOUR)).len();
        let plain = encoded_with(&run, &ChunkOptions::default()).len();
        let per_value = (bytes - plain) as f64 / run.values() as f64;
        println!("{name}: {per_value:.4} bytes per value for hourly summaries");
        assert!(per_value < most, "{name}: {per_value:.4}");
    }
}

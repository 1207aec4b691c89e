//! A chunk decodes to the run that was encoded, as a whole and in parts.
//!
//! The tests also check the size limits of typical workloads and that malformed runs are rejected.

use proptest::prelude::*;
use tideline_chunk::{
    Bitmap, Chunk, ChunkError, ChunkOptions, Presence, ROWS_MAX, Run, RunColumn, encode_chunk,
};
use tideline_model::{ColumnData, FieldId, TimeRange, ValueType};

use crate::samples::{column, run};
use crate::workload::{COLD, cpu_run, decimal_run, encoded, encoded_with, sequences, sine_run};

/// Returns the values of `run_column` in the given rows, and the presence of these rows, taken directly from the
/// run.
fn part_of(run_column: &RunColumn, start: usize, end: usize) -> (ColumnData, Bitmap) {
    let present: Bitmap = (start..end)
        .map(|row| run_column.presence.contains(row))
        .collect();
    let ranks = run_column.presence.rank(start)..run_column.presence.rank(end);
    let values = match &run_column.values {
        ColumnData::Float(values) => ColumnData::Float(values[ranks].to_vec()),
        ColumnData::Signed(values) => ColumnData::Signed(values[ranks].to_vec()),
        ColumnData::Unsigned(values) => ColumnData::Unsigned(values[ranks].to_vec()),
        ColumnData::Boolean(values) => ColumnData::Boolean(values[ranks].to_vec()),
        ColumnData::String(values) => ColumnData::String(ranks.map(|row| values.get(row)).collect()),
        ColumnData::Histogram(values) => ColumnData::Histogram(ranks.map(|row| values.get(row)).collect()),
    };
    (values, present)
}

fn options() -> impl Strategy<Value = ChunkOptions> {
    prop::sample::select(vec![ChunkOptions::default(), COLD])
}

proptest! {
    #![proptest_config(tideline_testkit::proptest_config(200))]

    #[test]
    fn a_run_reads_back_whole(run in run(), options in options()) {
        let bytes = encoded_with(&run, &options);
        let chunk = Chunk::open(&bytes).expect("it was just written");
        prop_assert_eq!(chunk.rows(), run.rows());
        prop_assert_eq!(chunk.values(), run.values());
        prop_assert_eq!(chunk.sequences(), sequences(7, 4_000));
        prop_assert_eq!(Some(&chunk.first_timestamp()), run.timestamps.first());
        prop_assert_eq!(Some(&chunk.last_timestamp()), run.timestamps.last());
        let read = chunk.to_run().expect("it was just written");
        let again = encoded_with(&read, &options);
        prop_assert_eq!(read, run);
        prop_assert_eq!(again, bytes);
    }

    #[test]
    fn any_part_reads_back_into_buffers_used_before(
        run in run(), options in options(), a in 0.0..1.0f64, b in 0.0..1.0f64
    ) {
        let bytes = encoded_with(&run, &options);
        let chunk = Chunk::open(&bytes).expect("it was just written");
        let row = |fraction: f64| (fraction * (run.rows() + 1) as f64) as usize;
        let (start, end) = (row(a.min(b)), row(a.max(b)));
        let mut timestamps = Vec::new();
        chunk.timestamps().decode(start..end, &mut timestamps);
        prop_assert_eq!(&timestamps, &run.timestamps[start..end]);
        let mut values = ColumnData::new(ValueType::Float);
        let mut presence = Bitmap::present(3);
        for run_column in &run.columns {
            let info = chunk
                .find(run_column.field)
                .find(|info| info.value_type() == run_column.values.value_type())
                .expect("the column was written");
            prop_assert_eq!(info.count(), run_column.values.len());
            prop_assert_eq!(info.is_dense(), run_column.presence == Presence::All);
            chunk.decode(&info, start..end, &mut values, &mut presence).expect("it was just written");
            let wanted = part_of(run_column, start, end);
            prop_assert_eq!((&values, &presence), (&wanted.0, &wanted.1));
        }
    }

    #[test]
    fn a_time_range_finds_its_rows(run in run(), options in options(), a in any::<prop::sample::Index>(), b in any::<prop::sample::Index>(), by in -1..=1i64) {
        let bytes = encoded_with(&run, &options);
        let chunk = Chunk::open(&bytes).expect("it was just written");
        let range = TimeRange::new(a.get(&run.timestamps).saturating_add(by), *b.get(&run.timestamps));
        let wanted: Vec<usize> = (0..run.rows()).filter(|row| range.contains(run.timestamps[*row])).collect();
        prop_assert_eq!(chunk.row_range(range).collect::<Vec<_>>(), wanted);
    }

    #[test]
    fn long_columns_of_every_type_read_back(
        columns in prop::sample::select(ValueType::ALL.to_vec()).prop_flat_map(|value_type| column(value_type, 3_000)),
        options in options(),
    ) {
        let run = Run {
            timestamps: (0..3_000).collect(),
            columns: vec![RunColumn { field: FieldId(3), presence: Presence::All, values: columns }],
        };
        let bytes = encoded_with(&run, &options);
        prop_assert_eq!(Chunk::open(&bytes).and_then(|chunk| chunk.to_run()), Ok(run));
    }
}

#[test]
fn the_sizes_that_were_promised_hold() {
    let hour_and_a_half = 540;
    let total: usize = (0..20)
        .map(|seed| encoded(&cpu_run(seed, hour_and_a_half)).len())
        .sum();
    let per_value = total as f64 / (20 * hour_and_a_half * 10) as f64;
    println!("{per_value:.4} bytes per value at {hour_and_a_half} rows");
    assert!(per_value <= 0.42, "{per_value:.4} bytes per value");

    let decimals = encoded(&decimal_run(1, hour_and_a_half)).len() as f64 / 5_400.0;
    assert!(decimals <= 0.8, "{decimals:.4} bytes per decimal");
    let sines = encoded(&sine_run(hour_and_a_half)).len() as f64 / 5_400.0;
    assert!(sines <= 8.0, "{sines:.4} bytes per sine");

    let total: usize = (0..20).map(|seed| encoded(&cpu_run(seed, 10)).len()).sum();
    println!("{} bytes for 10 rows of 10 fields", total / 20);
    assert!(total / 20 <= 135, "{} bytes for 10 rows", total / 20);
}

#[test]
fn a_cold_day_takes_the_bytes_that_were_promised() {
    let day = 8_640;
    let size = |run: &Run| encoded_with(run, &COLD).len() as f64 / run.values() as f64;
    let walks = (0..5).map(|seed| size(&cpu_run(seed, day))).sum::<f64>() / 5.0;
    println!("{walks:.4} bytes per value for a day of walks, including hourly summaries");
    assert!(walks <= 0.30, "{walks:.4} bytes per value");
    let decimals = size(&decimal_run(1, day));
    println!("{decimals:.4} bytes per value for a day of decimals");
    assert!(decimals <= 0.60, "{decimals:.4} bytes per decimal");
    assert!(size(&sine_run(day)) <= 6.5);
    assert!(size(&cpu_run(1, 360)) <= 0.42);
    // Runs too short for any gain are encoded as in version 1.
    let few = cpu_run(1, 10);
    assert_eq!(encoded_with(&few, &COLD), encoded(&few));
}

#[test]
fn numbers_of_three_types_live_in_one_field() {
    let presence = |rows: [bool; 3]| Presence::Some(rows.into_iter().collect());
    let column = |presence, values| RunColumn {
        field: FieldId(9),
        presence,
        values,
    };
    let run = Run {
        timestamps: vec![10, 20, 35],
        columns: vec![
            column(presence([true, false, false]), ColumnData::Float(vec![0.5])),
            column(presence([false, true, false]), ColumnData::Signed(vec![-3])),
            column(
                presence([false, false, true]),
                ColumnData::Unsigned(vec![u64::MAX]),
            ),
        ],
    };
    let bytes = encoded(&run);
    let chunk = Chunk::open(&bytes).expect("it was just written");
    let types: Vec<ValueType> = chunk.find(FieldId(9)).map(|info| info.value_type()).collect();
    assert_eq!(types, [ValueType::Float, ValueType::Signed, ValueType::Unsigned]);
    assert_eq!(
        chunk.find(FieldId(8)).count() + chunk.find(FieldId(10)).count(),
        0
    );
    for (fields, found) in [(vec![], 0), (vec![8, 10], 0), (vec![10, 9, 1], 3)] {
        let fields: Vec<FieldId> = fields.into_iter().map(FieldId).collect();
        assert_eq!(chunk.columns_of(Some(&fields)).count(), found, "{fields:?}");
    }
    assert_eq!(chunk.columns_of(None).count(), 3);
    assert_eq!(chunk.to_run(), Ok(run));
}

#[test]
fn a_malformed_run_is_refused_and_leaves_nothing() {
    let good = cpu_run(1, 5);
    let mut descending = good.clone();
    descending.timestamps.reverse();
    let mut unsorted = good.clone();
    unsorted.columns.reverse();
    let mut short = good.clone();
    short.columns[2].values = ColumnData::Signed(vec![1, 2]);
    let mut narrow = good.clone();
    narrow.columns[2].presence = Presence::Some(Bitmap::present(4));
    for run in [Run::default(), descending, unsorted, short, narrow] {
        let mut bytes = vec![1, 2, 3];
        let outcome = encode_chunk(&run, sequences(1, 2), &mut bytes);
        assert!(matches!(outcome, Err(ChunkError::Malformed(_))), "{outcome:?}");
        assert_eq!(bytes, [1, 2, 3]);
    }
    let outcome = encode_chunk(&good, sequences(2, 1), &mut Vec::new());
    assert!(matches!(outcome, Err(ChunkError::Malformed(_))), "{outcome:?}");
    let long = Run {
        timestamps: (0..=ROWS_MAX as i64).collect(),
        columns: Vec::new(),
    };
    let outcome = encode_chunk(&long, sequences(1, 1), &mut Vec::new());
    assert!(matches!(outcome, Err(ChunkError::TooLarge { .. })), "{outcome:?}");
}

#[test]
fn a_reader_requests_only_existing_rows() {
    let bytes = encoded(&cpu_run(1, 5));
    let chunk = Chunk::open(&bytes).expect("it was just written");
    let info = chunk.columns().next().expect("ten columns");
    let mut values = ColumnData::new(ValueType::Signed);
    let outcome = chunk.decode(&info, 2..6, &mut values, &mut Bitmap::default());
    assert_eq!(outcome, Err(ChunkError::NoSuchRows { end: 6, rows: 5 }));
}

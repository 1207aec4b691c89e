//! Any mixture of summaries and rows yields the same aggregates as the rows of an overlap group.
//!
//! Fragments, deletes, ranges and grids are random; some fragments are in files that must be read only if needed.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use tideline_archive::Extent;
use tideline_chunk::{
    Chunk, ChunkEncoder, ChunkOptions, ColumnSummary, DeleteRecord, Effort, LoneSummaryWriter, Number,
    Presence, Run, RunColumn, SequenceSpan, Sum, ValueSummary,
};
use tideline_model::{
    ColumnData, FieldId, SequenceNumber, TableId, Tier, TimeRange, TimelineId, Value, ValueType,
};

use super::fragment::{ArchivedRows, Fragment, FragmentData, Wanted};
use super::overlap_group::{OverlapGroupReader, Part, ReadFiles};
use super::reader::chunk_fragment;
use super::summary_push_down::Grid;
use crate::deletes::Deletes;
use crate::error::Result;
use crate::merge::value_at;

const ID: TimelineId = TimelineId([7; 16]);
/// Bucket width of the summaries.
const WIDTH: i64 = 250;
const SPAN: i64 = 4_000;

/// Reproducible random generator.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % end
    }

    fn one_in(&mut self, chances: u64) -> bool {
        self.below(chances) == 0
    }
}

/// Returns a random value for a field. Field 3 changes its type from row to row.
fn value(dice: &mut Dice, field: u32) -> Value {
    match (field, dice.below(2)) {
        (1, _) | (3, 0) => Value::Signed(dice.below(2_000) as i64 - 1_000),
        (2, _) if dice.one_in(400) => Value::Float(f64::NAN),
        (2, _) | (3, _) => Value::Float(dice.below(100_000) as f64 / 10.0),
        (4, _) => Value::Unsigned(u64::MAX - dice.below(9)),
        (5, _) => Value::Boolean(dice.one_in(2)),
        _ => Value::String(format!("t{}", dice.below(9)).into()),
    }
}

fn random_run(dice: &mut Dice, first: i64, end: i64, step: u64) -> Run {
    let mut run = Run::default();
    let mut at = first;
    while at < end {
        run.timestamps.push(at);
        at += 1 + dice.below(step) as i64;
    }
    let rows = run.rows();
    let gaps = 1 + dice.below(40);
    for field in 1..=6 {
        if dice.one_in(8) {
            continue;
        }
        let is_dense = dice.one_in(2);
        let values: Vec<Option<Value>> = (0..rows)
            .map(|_| (is_dense || !dice.one_in(gaps)).then(|| value(dice, field)))
            .collect();
        for value_type in ValueType::ALL {
            let of_type = |value: &Option<Value>| {
                value
                    .as_ref()
                    .is_some_and(|value| value.value_type() == value_type)
            };
            if values.iter().any(of_type) {
                run.columns.push(column(FieldId(field), value_type, &values));
            }
        }
    }
    run
}

fn column(field: FieldId, value_type: ValueType, values: &[Option<Value>]) -> RunColumn {
    let mut data = ColumnData::new(value_type);
    let mut present = Vec::new();
    for value in values {
        let value = value.as_ref().filter(|value| value.value_type() == value_type);
        present.push(value.is_some());
        match (value, &mut data) {
            (Some(Value::Float(value)), ColumnData::Float(data)) => data.push(*value),
            (Some(Value::Signed(value)), ColumnData::Signed(data)) => data.push(*value),
            (Some(Value::Unsigned(value)), ColumnData::Unsigned(data)) => data.push(*value),
            (Some(Value::Boolean(value)), ColumnData::Boolean(data)) => data.push(*value),
            (Some(Value::String(value)), ColumnData::String(data)) => data.push(value),
            _ => {}
        }
    }
    let presence = if present.iter().all(|present| *present) {
        Presence::All
    } else {
        Presence::Some(present.into_iter().collect())
    };
    RunColumn {
        field,
        presence,
        values: data,
    }
}

fn chunk(run: &Run, rank: u64, tier: Tier) -> Fragment {
    let sequences = SequenceSpan {
        lowest: SequenceNumber(rank),
        highest: SequenceNumber(rank),
    };
    let options = ChunkOptions {
        effort: Effort::Fast,
        summaries: (tier == Tier::Cold).then_some(WIDTH),
    };
    let mut bytes = Vec::new();
    let encoded = ChunkEncoder::default().encode(run, sequences, &options, &mut bytes);
    encoded.expect("a well-formed run");
    chunk_fragment(bytes.into(), rank, tier, SequenceNumber(rank)).expect("it was just written")
}

/// Runs that simulate rows in files, by the rank of their fragments, and the number of reads.
#[derive(Default)]
struct Far(BTreeMap<u64, Run>, usize);

impl ReadFiles for Far {
    fn read(&mut self, fragments: &mut [Fragment], range: TimeRange) -> Result<()> {
        for fragment in fragments {
            if fragment.range().overlaps(&range) && matches!(fragment.data, FragmentData::Archived(_)) {
                fragment.data = FragmentData::Read(self.0[&fragment.rank].clone(), 1);
                self.1 += 1;
            }
        }
        Ok(())
    }
}

/// Returns a fragment whose rows are in a file, with or without summaries.
fn in_file(fragment: &Fragment, run: &Run, is_summarized: bool) -> Fragment {
    let mut summaries = Vec::new();
    if is_summarized {
        let written = LoneSummaryWriter::default().write(run, &[WIDTH], &mut summaries);
        written.expect("a well-formed run");
    }
    let extent = Extent {
        file: 0,
        row: 0,
        rows: run.rows() as u32,
        first: fragment.first,
        last: fragment.last,
        points: run.rows() as u32,
        values: run.values() as u32,
        sequences: SequenceSpan {
            lowest: SequenceNumber(fragment.rank),
            highest: SequenceNumber(fragment.rank),
        },
    };
    Fragment {
        tier: Tier::Archive,
        data: FragmentData::Archived(ArchivedRows {
            extent,
            bytes: 1,
            summaries: summaries.into(),
        }),
        ..*fragment
    }
}

/// Returns the same fragments, some of them in files.
fn some_in_files(fragments: &[Fragment], dice: &mut Dice) -> (Vec<Fragment>, Far) {
    let mut far = Far::default();
    let moved = fragments.iter().map(|fragment| {
        let run = match &fragment.data {
            FragmentData::Chunk(bytes) => Chunk::open(bytes).expect("a chunk").to_run().expect("it decodes"),
            FragmentData::Open(run) => run.clone(),
            FragmentData::Archived(_) | FragmentData::Read(..) => Run::default(),
        };
        let moved = match (&fragment.data, dice.below(4)) {
            (FragmentData::Chunk(bytes), 0) => Fragment {
                data: FragmentData::Chunk(bytes.clone()),
                ..*fragment
            },
            (_, chance) => in_file(fragment, &run, chance > 1),
        };
        far.0.insert(fragment.rank, run);
        moved
    });
    (moved.collect(), far)
}

/// Returns a long cold fragment, and up to three other fragments that may overlap it.
fn random_fragments(dice: &mut Dice) -> Vec<Fragment> {
    let mut fragments = vec![chunk(&random_run(dice, 17, SPAN, 9), 1, Tier::Cold)];
    for rank in 2..2 + dice.below(4) {
        let first = dice.below(SPAN as u64 + 1_000) as i64 - 500;
        let longest = if dice.one_in(3) { 3_000 } else { 200 };
        let length = 1 + dice.below(longest) as i64;
        let run = random_run(dice, first, first + length, 12);
        if run.columns.is_empty() {
            continue;
        }
        fragments.push(match dice.below(3) {
            0 => chunk(&run, rank, Tier::Cold),
            1 => chunk(&run, rank, Tier::Hot),
            _ => Fragment {
                first,
                last: run.timestamps[run.rows() - 1],
                rank,
                tier: Tier::Hot,
                deletes_from: SequenceNumber(rank),
                data: FragmentData::Open(run),
            },
        });
    }
    fragments.sort_by_key(|fragment| (fragment.first, fragment.rank));
    fragments
}

fn random_deletes(dice: &mut Dice) -> Deletes {
    let mut deletes = Deletes::default();
    for sequence in 0..dice.below(3) {
        let start = dice.below(SPAN as u64) as i64;
        let record = DeleteRecord {
            timelines: vec![ID],
            range: TimeRange::new(start, start + 1 + dice.below(300) as i64),
            removes_timelines: false,
        };
        deletes.add(TableId(1), SequenceNumber(sequence), &record);
    }
    deletes
}

/// Aggregates by window, field and type.
#[derive(Debug, Default)]
struct Totals(BTreeMap<(i64, u32, ValueType), Total>);

#[derive(Debug)]
struct Total {
    count: u64,
    integers: i128,
    floats: f64,
    min: Value,
    max: Value,
    first: (i64, Value),
    last: (i64, Value),
}

impl Totals {
    fn add(&mut self, window: i64, field: FieldId, more: Total) {
        let key = (window, field.0, more.first.1.value_type());
        let Some(total) = self.0.get_mut(&key) else {
            self.0.insert(key, more);
            return;
        };
        total.count += more.count;
        total.integers += more.integers;
        total.floats += more.floats;
        if is_below(&more.min, &total.min) {
            total.min = more.min;
        }
        if is_below(&total.max, &more.max) {
            total.max = more.max;
        }
        if more.first.0 < total.first.0 {
            total.first = more.first;
        }
        if more.last.0 > total.last.0 {
            total.last = more.last;
        }
    }

    fn add_run(&mut self, grid: Grid, run: &Run) {
        for column in &run.columns {
            for (row, time) in run.timestamps.iter().enumerate() {
                if let Some(value) = value_at(column, row) {
                    self.add(window(grid, *time), column.field, single(*time, value));
                }
            }
        }
    }

    fn add_summary(&mut self, grid: Grid, field: FieldId, summary: &ValueSummary) {
        let (integers, floats) = match summary.sum {
            Sum::Integer(sum) => (sum, 0.0),
            Sum::Float { sum, correction } => (0, sum + correction),
        };
        assert_eq!(
            window(grid, summary.first.0),
            window(grid, summary.last.0),
            "{grid:?}"
        );
        let total = Total {
            count: summary.count,
            integers,
            floats,
            min: number(summary.min),
            max: number(summary.max),
            first: (summary.first.0, number(summary.first.1)),
            last: (summary.last.0, number(summary.last.1)),
        };
        self.add(window(grid, summary.first.0), field, total);
    }

    fn check(&self, other: &Self, about: &str) {
        assert_eq!(
            self.0.keys().collect::<Vec<_>>(),
            other.0.keys().collect::<Vec<_>>(),
            "{about}"
        );
        for (key, a) in &self.0 {
            let b = &other.0[key];
            let exact = |total: &Total| {
                let Total {
                    count,
                    integers,
                    min,
                    max,
                    first,
                    last,
                    ..
                } = total;
                format!("{count} {integers} {min:?} {max:?} {first:?} {last:?}")
            };
            assert_eq!(exact(a), exact(b), "{key:?} {about}");
            let is_close = (a.floats - b.floats).abs() <= 1e-9 * a.floats.abs();
            assert!(
                is_close || (a.floats.is_nan() && b.floats.is_nan()),
                "{a:?} {b:?} {about}"
            );
        }
    }
}

fn single(time: i64, value: Value) -> Total {
    let (integers, floats) = match value {
        Value::Float(value) => (0, value),
        Value::Signed(value) => (value.into(), 0.0),
        Value::Unsigned(value) => (value.into(), 0.0),
        _ => (0, 0.0),
    };
    Total {
        count: 1,
        integers,
        floats,
        min: value.clone(),
        max: value.clone(),
        first: (time, value.clone()),
        last: (time, value),
    }
}

/// Returns true if `a` is less than `b`. NaN is greater than all other values.
fn is_below(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Float(a), Value::Float(b)) => a < b || (b.is_nan() && !a.is_nan()),
        (Value::Signed(a), Value::Signed(b)) => a < b,
        (Value::Unsigned(a), Value::Unsigned(b)) => a < b,
        _ => false,
    }
}

fn number(number: Number) -> Value {
    match number {
        Number::Float(value) => Value::Float(value),
        Number::Signed(value) => Value::Signed(value),
        Number::Unsigned(value) => Value::Unsigned(value),
    }
}

fn window(grid: Grid, time: i64) -> i64 {
    match grid {
        Grid::Whole => 0,
        Grid::Windows { width, offset } => (time - offset).div_euclid(width),
    }
}

fn random_grid(dice: &mut Dice) -> Grid {
    match dice.below(4) {
        0 => Grid::Whole,
        1 => Grid::Windows {
            width: WIDTH * (1 + dice.below(6) as i64),
            offset: 0,
        },
        _ => Grid::Windows {
            width: 1 + dice.below(2_000) as i64,
            offset: dice.below(3_000) as i64 - 1_500,
        },
    }
}

#[test]
fn summaries_and_rows_come_to_the_same_as_rows() {
    let mut summarized = 0;
    for seed in tideline_testkit::seeds("summaries", 400) {
        println!("seed {seed}");
        let mut dice = Dice(seed);
        let fragments = random_fragments(&mut dice);
        let deletes = random_deletes(&mut dice);
        let masks = deletes.of(TableId(1)).map_or(&[][..], |table| table.masks(ID));
        for _ in 0..6 {
            let start = dice.below(SPAN as u64) as i64 - 200;
            let range = TimeRange::new(start, start + 1 + dice.below(SPAN as u64) as i64);
            let grid = random_grid(&mut dice);
            let some: Vec<FieldId> = (1..=6).filter(|_| dice.one_in(2)).map(FieldId).collect();
            let wanted = Wanted {
                range,
                fields: dice.one_in(2).then_some(&some),
                masks,
            };
            let (mut expected, mut found) = (Totals::default(), Totals::default());
            let mut reader = OverlapGroupReader::default();
            for overlap_group in super::fragment::overlap_groups(&fragments) {
                let read = reader.rows(ID, &fragments[overlap_group.clone()], wanted, &mut |run| {
                    expected.add_run(grid, run);
                    Ok(ControlFlow::Continue(()))
                });
                assert!(read.expect("read").is_continue());
            }
            let mut mixed = OverlapGroupReader::default();
            let (mut fragments, mut far) = some_in_files(&fragments, &mut dice);
            for overlap_group in super::fragment::overlap_groups(&fragments) {
                let overlap_group = &mut fragments[overlap_group];
                let read = mixed.summarized(ID, overlap_group, &mut far, (wanted, grid), &mut |part| {
                    match part {
                        Part::Run(run) => {
                            assert!(range.contains(run.timestamps[0]));
                            found.add_run(grid, run);
                        }
                        Part::Summaries(field, summaries) => {
                            for summary in summaries {
                                if let ColumnSummary::Known(known) = summary {
                                    found.add_summary(grid, field, known);
                                }
                            }
                        }
                    }
                    Ok(ControlFlow::Continue(()))
                });
                assert!(read.expect("read").is_continue());
            }
            found.check(&expected, &format!("{wanted:?} {grid:?}"));
            let (rows, cost) = (reader.cost.total(), mixed.cost.total());
            assert!(cost.values <= rows.values && cost.chunks <= rows.chunks);
            summarized += cost.summaries;
        }
    }
    assert!(summarized > 1_000, "{summarized}");
}

#[test]
fn whole_buckets_of_a_fragment_that_is_alone_need_no_row() {
    let mut run = Run {
        timestamps: (0..1_000).map(|row| row * 5).collect(),
        columns: Vec::new(),
    };
    for field in 1..=3 {
        run.columns.push(RunColumn {
            field: FieldId(field),
            presence: Presence::All,
            values: ColumnData::Signed((0..1_000).collect()),
        });
    }
    let read = |range: TimeRange, grid: Grid| {
        let mut fragments = [chunk(&run, 1, Tier::Cold)];
        let mut reader = OverlapGroupReader::default();
        let wanted = Wanted {
            range,
            fields: None,
            masks: &[],
        };
        let visit = &mut |_: Part<'_>| Ok(ControlFlow::Continue(()));
        let read = reader.summarized(ID, &mut fragments, &mut Far::default(), (wanted, grid), visit);
        assert!(read.expect("read").is_continue());
        let cost = reader.cost.of(Tier::Cold);
        (cost.chunks, cost.summaries, cost.summarized_points, cost.points)
    };
    let hours = Grid::Windows {
        width: WIDTH,
        offset: 0,
    };
    assert_eq!(read(TimeRange::ALL, Grid::Whole), (1, 20, 1_000, 0));
    assert_eq!(read(TimeRange::ALL, hours), (1, 20, 1_000, 0));
    // The range contains two whole buckets, and ten rows on either side.
    assert_eq!(read(TimeRange::new(200, 800), hours), (1, 2, 100, 20));
    // The same applies to rows in a file, which is read only if needed.
    for (range, asked, points) in [(TimeRange::ALL, 0, 0), (TimeRange::new(200, 800), 1, 20)] {
        let wanted = Wanted {
            range,
            fields: None,
            masks: &[],
        };
        let mut fragments = [in_file(&chunk(&run, 1, Tier::Cold), &run, true)];
        let mut far = Far::default();
        far.0.insert(1, run.clone());
        let mut reader = OverlapGroupReader::default();
        let visit = &mut |_: Part<'_>| Ok(ControlFlow::Continue(()));
        let read = reader.summarized(ID, &mut fragments, &mut far, (wanted, hours), visit);
        assert!(read.expect("read").is_continue());
        assert_eq!((far.1, reader.cost.of(Tier::Archive).points), (asked, points));
    }
    let crossing = Grid::Windows {
        width: WIDTH,
        offset: 125,
    };
    assert_eq!(read(TimeRange::ALL, crossing), (1, 0, 0, 1_000));
    assert_eq!(read(TimeRange::new(9_000, 9_001), hours), (0, 0, 0, 0));
}

#[test]
fn a_late_point_between_buckets_is_not_lost() {
    let mut run = Run::default();
    for bucket in 0..8 {
        run.timestamps.extend((0..25).map(|row| bucket * WIDTH + row * 5));
    }
    run.columns.push(RunColumn {
        field: FieldId(1),
        presence: Presence::All,
        values: ColumnData::Signed(vec![1; 200]),
    });
    let mut late = run.clone();
    late.timestamps = vec![3 * WIDTH + 200];
    late.columns[0].values = ColumnData::Signed(vec![7]);
    let fragments = [chunk(&run, 1, Tier::Cold), chunk(&late, 2, Tier::Hot)];
    let wanted = Wanted {
        range: TimeRange::ALL,
        fields: None,
        masks: &[],
    };
    let mut reader = OverlapGroupReader::default();
    let mut totals = Totals::default();
    let mut fragments = fragments;
    let whole = (wanted, Grid::Whole);
    let read = reader.summarized(ID, &mut fragments, &mut Far::default(), whole, &mut |part| {
        match part {
            Part::Run(run) => totals.add_run(Grid::Whole, run),
            Part::Summaries(field, summaries) => {
                for summary in summaries {
                    if let ColumnSummary::Known(known) = summary {
                        totals.add_summary(Grid::Whole, field, known);
                    }
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    });
    assert!(read.expect("read").is_continue());
    let total = &totals.0[&(0, 1, ValueType::Signed)];
    assert_eq!((total.count, total.integers), (201, 207));
    assert_eq!(reader.cost.of(Tier::Cold).summaries, 8);
    assert_eq!(reader.cost.of(Tier::Hot).points, 1);
}

//! Proptest strategies for random runs and deltas.
//!
//! The samples include the edge cases of each codec: extreme integers, NaN and −0.0, regular and irregular timestamps,
//! presence with gaps.

use proptest::collection::vec;
use proptest::prelude::*;
use tideline_chunk::{
    Bitmap, DeleteRecord, Delta, DeltaGroup, NewTimeline, Presence, RequestRecord, Run, RunColumn,
};
use tideline_model::batch::StringColumn;
use tideline_model::{ColumnData, FieldId, Measurements, Ordinal, TableId, TimeRange, TimelineId, ValueType};

fn integers() -> BoxedStrategy<i64> {
    prop_oneof![
        any::<i64>(),
        -100..100i64,
        Just(i64::MIN),
        Just(i64::MAX),
        Just(0),
        1_000_000_000..1_000_001_000i64,
    ]
    .boxed()
}

fn floats() -> BoxedStrategy<f64> {
    prop_oneof![
        any::<u64>().prop_map(f64::from_bits),
        (-10_000..10_000i32).prop_map(|cents| f64::from(cents) / 100.0),
        Just(-0.0),
        Just(f64::INFINITY),
        Just(f64::from_bits(0x7ff8_0000_dead_beef)),
        any::<f32>().prop_map(f64::from),
    ]
    .boxed()
}

/// Generates columns of `count` values of one type, from one distribution or from mixed distributions.
pub(crate) fn column(value_type: ValueType, count: usize) -> BoxedStrategy<ColumnData> {
    match value_type {
        ValueType::Float => prop_oneof![
            vec(floats(), count),
            vec((0..1_000i32).prop_map(|n| f64::from(n) / 10.0), count)
        ]
        .prop_map(ColumnData::Float)
        .boxed(),
        ValueType::Signed => prop_oneof![
            vec(integers(), count),
            vec(-50..50i64, count),
            vec(Just(5i64), count),
            (any::<i64>(), 0..100i64).prop_map(move |(start, step)| {
                (0..count as i64)
                    .map(|row| start.wrapping_add(row * step))
                    .collect()
            }),
        ]
        .prop_map(ColumnData::Signed)
        .boxed(),
        ValueType::Unsigned => vec(integers().prop_map(|value| value as u64), count)
            .prop_map(ColumnData::Unsigned)
            .boxed(),
        ValueType::Boolean => vec(any::<bool>(), count).prop_map(ColumnData::Boolean).boxed(),
        ValueType::String => prop_oneof![vec("\\PC{0,8}", count), vec("[ab]", count)]
            .prop_map(|values| {
                let column: StringColumn = values.iter().map(String::as_str).collect();
                ColumnData::String(column)
            })
            .boxed(),
        ValueType::Histogram => prop_oneof![vec(vec(any::<u8>(), 0..40), count), vec(vec(7..9u8, 1), count)]
            .prop_map(|values| ColumnData::Histogram(values.iter().map(Vec::as_slice).collect()))
            .boxed(),
    }
}

fn timestamps(rows: usize) -> BoxedStrategy<Vec<i64>> {
    let regular = (-1_000_000..1_000_000i64, 1..100i64).prop_map(move |(first, step)| {
        let unit = 1_000_000_000;
        (0..rows as i64).map(|row| (first + row * step) * unit).collect()
    });
    let jittered = vec(1..2_000_000_000i64, rows).prop_map(|gaps| {
        gaps.iter()
            .scan(1_700_000_000_000_000_000, |at, gap| {
                *at += gap;
                Some(*at)
            })
            .collect()
    });
    let wild = proptest::collection::btree_set(i64::MIN + 2..i64::MAX, rows)
        .prop_map(|set| set.into_iter().collect());
    prop_oneof![regular, jittered, wild].boxed()
}

fn presence(rows: usize) -> BoxedStrategy<Presence> {
    let alternating = vec(any::<bool>(), rows).prop_map(|rows| Presence::Some(rows.into_iter().collect()));
    let one_gap = (0..=rows, 0..=rows).prop_map(move |(a, b)| {
        let gap = a.min(b)..a.max(b);
        let bitmap: Bitmap = (0..rows).map(|row| !gap.contains(&row)).collect();
        Presence::Some(bitmap)
    });
    prop_oneof![2 => Just(Presence::All), 1 => alternating, 1 => one_gap].boxed()
}

fn run_column(field: u32, value_type: ValueType, rows: usize) -> BoxedStrategy<RunColumn> {
    presence(rows)
        .prop_flat_map(move |presence| {
            let count = presence.count(rows);
            column(value_type, count).prop_map(move |values| RunColumn {
                field: FieldId(field),
                presence: presence.clone(),
                values,
            })
        })
        .boxed()
}

pub(crate) fn value_type() -> impl Strategy<Value = ValueType> {
    proptest::sample::select(ValueType::ALL.to_vec())
}

/// Generates runs of fewer than 400 rows (up to four blocks) with any mixture of at most five columns.
pub(crate) fn run() -> BoxedStrategy<Run> {
    let rows = prop_oneof![1..12usize, 120..140usize, 200..400usize];
    let columns = proptest::collection::btree_set((prop_oneof![0..6u32, any::<u32>()], value_type()), 0..6);
    (rows, columns)
        .prop_flat_map(|(rows, columns)| {
            let columns: Vec<_> = columns
                .into_iter()
                .map(|(field, value_type)| run_column(field, value_type, rows))
                .collect();
            (timestamps(rows), columns)
        })
        .prop_map(|(timestamps, columns)| Run { timestamps, columns })
        .boxed()
}

fn timeline_id() -> impl Strategy<Value = TimelineId> {
    (0..3u8, any::<u8>()).prop_map(|(machine, metric)| {
        let mut id = [machine; 16];
        id[8..].fill(metric);
        TimelineId(id)
    })
}

fn measurements(rows: usize) -> BoxedStrategy<Measurements> {
    let one = ".{0,10}".prop_map(Measurements::from);
    let several = vec(".{0,10}", 2..5).prop_flat_map(move |names| {
        let places = vec(0..names.len() as u32, rows);
        places.prop_map(move |places| {
            let names = names.iter().map(|name| name.as_str().into()).collect();
            Measurements::of_rows(names, places)
        })
    });
    prop_oneof![one, several].boxed()
}

fn group(timelines: usize) -> BoxedStrategy<DeltaGroup> {
    (0..300usize, vec((".{0,6}", value_type()), 0..5))
        .prop_flat_map(move |(rows, shape)| {
            let columns: Vec<_> = shape
                .iter()
                .map(|(_, value_type)| column(*value_type, rows))
                .collect();
            let fields: Vec<Box<str>> = shape.into_iter().map(|(name, _)| name.into()).collect();
            (
                measurements(rows),
                Just(fields),
                columns,
                vec(0..timelines as u32, rows),
                vec(prop_oneof![any::<i64>(), Just(1_000_000_000)], rows),
            )
        })
        .prop_map(
            |(measurements, fields, columns, timelines, timestamps)| DeltaGroup {
                measurements,
                fields,
                columns,
                timelines,
                timestamps,
            },
        )
        .boxed()
}

fn delete() -> BoxedStrategy<DeleteRecord> {
    let timelines = proptest::collection::btree_set(timeline_id(), 0..12);
    (timelines, any::<i64>(), any::<i64>(), any::<bool>())
        .prop_map(|(timelines, start, end, removes_timelines)| DeleteRecord {
            timelines: timelines.into_iter().collect(),
            range: TimeRange::new(start, end),
            removes_timelines,
        })
        .boxed()
}

/// Generates deltas with any mixture of sections.
pub(crate) fn delta() -> BoxedStrategy<Delta> {
    let request = (any::<[u8; 16]>(), vec(any::<u8>(), 0..40))
        .prop_map(|(key, outcome)| RequestRecord { key, outcome })
        .boxed();
    let new_timeline = (timeline_id(), any::<u32>(), vec(any::<u8>(), 0..30))
        .prop_map(|(id, ordinal, identity)| NewTimeline {
            id,
            ordinal: Ordinal(ordinal),
            identity,
        })
        .boxed();
    vec(timeline_id(), 1..20)
        .prop_flat_map(move |timelines| {
            (
                any::<u32>(),
                proptest::option::of(request.clone()),
                vec(new_timeline.clone(), 0..5),
                vec(group(timelines.len()), 0..4),
                Just(timelines),
                proptest::option::weighted(0.3, delete()),
                vec(vec(any::<u8>(), 0..30), 0..3),
            )
        })
        .prop_map(
            |(table, request, new_timelines, groups, timelines, delete, identity)| {
                let removing = delete.as_ref().filter(|delete| delete.removes_timelines);
                let removed = removing.map_or(0, |delete| delete.timelines.len());
                let identities = identity.into_iter().cycle().take(removed);
                Delta {
                    table: TableId(table),
                    request,
                    new_timelines,
                    timelines,
                    groups,
                    delete,
                    removed: identities.collect(),
                }
            },
        )
        .boxed()
}

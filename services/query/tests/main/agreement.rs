//! Random data and random queries: results must equal the results of the naive evaluator.
//!
//! Points are partly sealed and partly in memory; raw rows are read in pages of random size.

use std::collections::BTreeMap;

use tideline_condition::Condition;
use tideline_model::{TimeRange, TimelineId, Value, ValueKind, ValueType};
use tideline_query::{
    Aggregate, Direction, Fill, Function, GroupBy, PointQuery, Rows, Shape, Window, WindowSpec,
};

use crate::naive::{GroupKey, GroupRows, Model};
use crate::naive_fill;
use crate::naive_values::condition;
use crate::support::{Dice, KeptSeries, World, functions_of, rows_query};

const SECOND: i64 = 1_000_000_000;
const HOUR: i64 = 3_600 * SECOND;
/// Time span of the points around the epoch; covers several storage windows.
const SPAN: i64 = 12 * HOUR;

/// Names and types of the fields; a field can have numbers of several types.
const FIELDS: [(&str, &[ValueType]); 7] = [
    ("signed", &[ValueType::Signed]),
    ("unsigned", &[ValueType::Unsigned]),
    ("float", &[ValueType::Float]),
    (
        "mixed",
        &[ValueType::Signed, ValueType::Unsigned, ValueType::Float],
    ),
    ("flag", &[ValueType::Boolean]),
    ("text", &[ValueType::String]),
    ("spread", &[ValueType::Histogram]),
];

fn value(dice: &mut Dice, value_type: ValueType) -> Value {
    match value_type {
        ValueType::Float if dice.one_in(40) => Value::Float(f64::NAN),
        ValueType::Float => Value::Float(dice.below(2_000_000) as f64 / 1_000.0 - 1_000.0),
        ValueType::Signed => Value::Signed(dice.below(2_000) as i64 - 500),
        ValueType::Unsigned => Value::Unsigned(dice.below(1_000)),
        ValueType::Boolean => Value::Boolean(dice.one_in(2)),
        ValueType::String => Value::String(format!("t{}", dice.below(50)).into()),
        ValueType::Histogram => Value::Histogram([dice.below(256) as u8].into()),
    }
}

fn key(dice: &mut Dice) -> String {
    let host = dice.below(12);
    let measurement = ["cpu", "mem"][dice.below(2) as usize];
    if host == 11 {
        return format!("{measurement},zone=none");
    }
    format!("{measurement},dc=d{},host=h{host}", host % 3)
}

/// Writes random points to the engine and the model. Seals at random, so that points are in segments and in memory.
fn fill(dice: &mut Dice, world: &World, model: &mut Model) {
    let mut clock = -SPAN / 2;
    for _ in 0..60 {
        let mut batch = Vec::new();
        for _ in 0..dice.below(60) {
            clock = (clock + dice.below(60) as i64 * SECOND).min(SPAN / 2 - 1);
            // Some points are late, some overwrite an existing timestamp.
            let time = if dice.one_in(6) {
                dice.below(SPAN as u64) as i64 - SPAN / 2
            } else {
                clock / SECOND * SECOND
            };
            let mut fields = Vec::new();
            for (name, types) in FIELDS {
                if !dice.one_in(3) {
                    let value_type = types[dice.below(types.len() as u64) as usize];
                    fields.push((name, value(dice, value_type)));
                }
            }
            // Within one request the order of points with the same timestamp and different fields is undefined.
            let key = key(dice);
            let is_new = !batch.iter().any(|(have, at, _)| (have, at) == (&key, &time));
            if is_new && !fields.is_empty() {
                batch.push((key, time, fields));
            }
        }
        for (key, time, fields) in &batch {
            model.write(world.id(key), key, *time, fields);
        }
        let points: Vec<_> = batch
            .iter()
            .map(|(key, time, fields)| (key.as_str(), *time, fields.clone()))
            .collect();
        world.write(&points);
        if dice.one_in(8) {
            world.seal();
        }
    }
}

#[test]
fn aggregates_agree_with_the_naive_evaluator() {
    for seed in [1, 2, 3] {
        let mut dice = Dice::new(seed);
        let (world, mut model) = (World::new(), Model::default());
        fill(&mut dice, &world, &mut model);
        let questions: Vec<_> = (0..120).map(|_| random_query(&mut dice)).collect();
        let unsealed: Vec<_> = questions
            .iter()
            .map(|random_query| check_aggregate(&world, &model, random_query))
            .collect();
        world.seal();
        for (random_query, unsealed) in questions.iter().zip(unsealed) {
            let sealed = check_aggregate(&world, &model, random_query);
            for (a, b) in sealed.iter().zip(&unsealed) {
                assert_eq!(
                    (&a.tags, &a.columns, a.rows.len()),
                    (&b.tags, &b.columns, b.rows.len())
                );
            }
        }
    }
}

fn random_query(dice: &mut Dice) -> PointQuery {
    let field = &FIELDS[dice.below(FIELDS.len() as u64) as usize];
    let mut functions = functions_of(dice, field.1);
    functions.retain(|_| !dice.one_in(3));
    if functions.is_empty() {
        functions.push(Function::Count);
    }
    let start = dice.below(SPAN as u64) as i64 - SPAN / 2;
    let range = TimeRange::new(start, start + 1 + dice.below(SPAN as u64) as i64);
    let width = 1 + dice.below(2 * HOUR as u64) as i64;
    let window = (!dice.one_in(4)).then(|| WindowSpec {
        width: width.max((range.end - range.start) / 400),
        offset: dice.below(HOUR as u64) as i64,
    });
    let group_by = match dice.below(4) {
        0 => GroupBy::Timeline,
        1 => GroupBy::Nothing,
        2 => GroupBy::Tags(vec!["dc".into()]),
        _ => GroupBy::Tags(vec!["host".into(), "zone".into()]),
    };
    PointQuery {
        fields: vec![field.0.into()],
        range,
        values: dice.one_in(3).then(|| condition(dice, &FIELDS, &value, 3)),
        shape: Shape::Aggregate(Aggregate {
            fill: window.and_then(|_| fill_for(dice, field.1, &functions)),
            functions,
            window: window.map(Into::into),
            group_by,
            order: if dice.one_in(3) {
                Direction::Descending
            } else {
                Direction::Ascending
            },
            limit: None,
            ..Aggregate::default()
        }),
        ..rows_query()
    }
}

/// Returns a random fill, or `None`. Each of `functions`, applied to a field with these types, supports the fill.
fn fill_for(dice: &mut Dice, types: &[ValueType], functions: &[Function]) -> Option<Fill> {
    let kind = types[0].kind();
    let is_number = |function: &Function| function.gives(kind) == ValueKind::Number;
    match dice.below(6) {
        0 => Some(Fill::Null),
        1 => Some(Fill::Previous {
            reach: dice.below(3 * HOUR as u64) as i64,
        }),
        2 if functions.iter().all(is_number) => Some(Fill::Linear),
        3 if functions.iter().all(is_number) => Some(Fill::Value(Value::Signed(-7))),
        3 if functions
            .iter()
            .all(|function| function.counts() || !is_number(function)) =>
        {
            Some(Fill::Value(value(dice, types[0])))
        }
        _ => None,
    }
}

fn check_aggregate(world: &World, model: &Model, query: &PointQuery) -> Vec<KeptSeries> {
    let Shape::Aggregate(shape) = &query.shape else {
        panic!("an aggregate")
    };
    let columns: Vec<(Function, String)> = shape
        .functions
        .iter()
        .map(|function| (*function, query.fields[0].clone()))
        .collect();
    let window = shape.window.map(|window| match window {
        Window::Fixed(spec) => spec,
        Window::Calendar(_) => panic!("{window:?}"),
    });
    let mut expected =
        model
            .filtered(query.values.as_ref())
            .aggregate(&columns, query.range, window, &shape.group_by);
    if let (Some(fill), Some(window)) = (&shape.fill, window) {
        for rows in expected.values_mut() {
            *rows = naive_fill::filled(rows, &columns, query.range, window, fill);
        }
    }
    let result = world.run(query).expect("answered");
    let mut found: BTreeMap<GroupKey, GroupRows> = BTreeMap::new();
    for series in &result.series {
        let rows: GroupRows = series.rows.iter().cloned().collect();
        assert_eq!(rows.len(), series.rows.len(), "a window comes once");
        let rising = series.rows.is_sorted_by(|a, b| a.0 < b.0);
        let falling = series.rows.is_sorted_by(|a, b| a.0 > b.0);
        assert!(if shape.order == Direction::Ascending {
            rising
        } else {
            falling
        });
        found.insert((series.measurement.clone(), series.id, series.tags.clone()), rows);
    }
    assert_eq!(
        found.keys().collect::<Vec<_>>(),
        expected.keys().collect::<Vec<_>>(),
        "{query:?}"
    );
    for (key, rows) in &expected {
        let got = &found[key];
        assert_eq!(
            got.keys().collect::<Vec<_>>(),
            rows.keys().collect::<Vec<_>>(),
            "{key:?} {query:?}"
        );
        for (start, row) in rows {
            for ((a, b), column) in got[start].iter().zip(row).zip(&columns) {
                assert!(
                    alike(a.as_ref(), b.as_ref()),
                    "{a:?} is not {b:?}: {column:?} at {start} of {key:?}, {query:?}"
                );
            }
        }
    }
    result.series
}

/// Compares floats with a tolerance, since the naive sum is not compensated, and other values exactly.
fn alike(a: Option<&Value>, b: Option<&Value>) -> bool {
    match (a, b) {
        (Some(Value::Float(a)), Some(Value::Float(b))) => {
            (a.is_nan() && b.is_nan()) || (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1.0)
        }
        _ => a == b,
    }
}

#[test]
fn rows_agree_with_the_naive_evaluator_in_pages_of_any_size() {
    for seed in [11, 12] {
        let mut dice = Dice::new(seed);
        let (world, mut model) = (World::new(), Model::default());
        fill(&mut dice, &world, &mut model);
        for _ in 0..40 {
            let start = dice.below(SPAN as u64) as i64 - SPAN / 2;
            let range = TimeRange::new(start, start + 1 + dice.below(SPAN as u64) as i64);
            let order = if dice.one_in(2) {
                Direction::Descending
            } else {
                Direction::Ascending
            };
            let mut fields = Vec::new();
            for (name, _) in FIELDS {
                if dice.one_in(2) {
                    fields.push(name.to_owned());
                }
            }
            let values = dice.one_in(2).then(|| condition(&mut dice, &FIELDS, &value, 3));
            let model = model.filtered(values.as_ref());
            let expected = naive_rows(&model, range, order, &fields);
            let limit = (!dice.one_in(4)).then(|| 1 + dice.below(200));
            let found = paged_rows(&world, range, order, &fields, values.as_ref(), limit);
            for (at, (found, expected)) in found.iter().zip(&expected).enumerate() {
                assert_eq!(
                    found, expected,
                    "row {at}, {fields:?} {range:?} {order:?} {limit:?}"
                );
            }
            assert_eq!(
                found.len(),
                expected.len(),
                "{fields:?} {range:?} {order:?} {limit:?}"
            );
        }
    }
}

type FlatRow = (TimelineId, i64, BTreeMap<String, String>);

fn naive_rows(model: &Model, range: TimeRange, order: Direction, fields: &[String]) -> Vec<FlatRow> {
    let mut rows = Vec::new();
    for (id, timeline) in &model.timelines {
        let inside = timeline.points.range(range.start..range.end);
        let mut of_timeline: Vec<FlatRow> = Vec::new();
        for (time, point) in inside {
            let wanted = point
                .iter()
                .filter(|(name, _)| fields.is_empty() || fields.contains(name));
            let shown: BTreeMap<_, _> = wanted
                .map(|(name, value)| (name.clone(), format!("{value:?}")))
                .collect();
            if !shown.is_empty() {
                of_timeline.push((*id, *time, shown));
            }
        }
        if order == Direction::Descending {
            of_timeline.reverse();
        }
        rows.extend(of_timeline);
    }
    rows
}

fn paged_rows(
    world: &World,
    range: TimeRange,
    order: Direction,
    fields: &[String],
    values: Option<&Condition>,
    limit: Option<u64>,
) -> Vec<FlatRow> {
    let mut rows = Vec::new();
    let mut after = None;
    loop {
        let query = PointQuery {
            fields: fields.to_vec(),
            range,
            values: values.cloned(),
            shape: Shape::Rows(Rows {
                order,
                limit,
                after,
                sample: None,
                sort: None,
            }),
            ..rows_query()
        };
        let result = world.run(&query).expect("answered");
        let before = rows.len();
        for series in &result.series {
            for (time, values) in &series.rows {
                let present = series
                    .columns
                    .iter()
                    .zip(values)
                    .filter_map(|(name, value)| Some((name.clone(), format!("{:?}", value.as_ref()?))));
                rows.push((series.id.expect("a timeline"), *time, present.collect()));
            }
        }
        let summary = result.summary();
        assert_eq!(summary.rows, (rows.len() - before) as u64);
        assert_eq!(summary.more, summary.next.is_some());
        match &summary.next {
            Some(next) => {
                assert_eq!(Some(summary.rows), limit, "only a full page has a next one");
                after = Some(tideline_query::PageToken::parse(next).expect("a token"));
            }
            None => return rows,
        }
    }
}

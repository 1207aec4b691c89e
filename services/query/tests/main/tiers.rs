//! The same points in different tiers must give the same results, even with late and deleted points.
//!
//! Also tests the read cost of each tier, and queries of a single tier.

use tideline_condition::Condition;
use tideline_model::{Tier, TimeRange, Value, ValueType};
use tideline_query::{
    Aggregate, Cancel, Direction, Function, GroupBy, LatestQuery, PointQuery, Selector, Shape, TierCost,
    Window, WindowSpec,
};

use crate::naive::Model;
use crate::naive_values::condition;
use crate::support::{
    CollectedResult, Dice, KeptSeries, Point, World, aggregate_query, functions_of, rows_query,
};

const SECOND: i64 = 1_000_000_000;
const HOUR: i64 = 3_600 * SECOND;
const DAY: i64 = 24 * HOUR;
/// Number of days from the epoch that have points.
const DAYS: i64 = 3;
const KEYS: [&str; 4] = [
    "cpu,host=a,dc=x",
    "cpu,host=b,dc=x",
    "cpu,host=c,dc=y",
    "mem,host=a,dc=x",
];

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
        ValueType::Float if dice.one_in(500) => Value::Float(f64::NAN),
        ValueType::Float => Value::Float(dice.below(2_000_000) as f64 / 1_000.0 - 1_000.0),
        ValueType::Signed => Value::Signed(dice.below(2_000) as i64 - 500),
        ValueType::Unsigned => Value::Unsigned(dice.below(1_000)),
        ValueType::Boolean => Value::Boolean(dice.one_in(2)),
        ValueType::String => Value::String(format!("t{}", dice.below(50)).into()),
        ValueType::Histogram => Value::Histogram([dice.below(256) as u8].into()),
    }
}

/// One step of a history.
enum Step {
    Write(Vec<Point<'static>>),
    Delete(&'static str, TimeRange),
}

/// Returns a random history: writes in time order with gaps, late points, overwritten points, and deletes.
fn history(dice: &mut Dice) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut clock = 0;
    while clock < DAYS * DAY {
        let mut batch: Vec<Point<'static>> = Vec::new();
        let end = (clock + 4 * HOUR).min(DAYS * DAY);
        if dice.one_in(12) {
            clock = end;
            continue;
        }
        while clock < end {
            for key in KEYS {
                let late = dice.below(clock.max(1) as u64) as i64 / SECOND * SECOND;
                let time = if dice.one_in(300) { late } else { clock };
                let is_new = !batch.iter().any(|(have, at, _)| (*have, *at) == (key, time));
                let mut fields = Vec::new();
                for (name, types) in FIELDS {
                    if !dice.one_in(20) {
                        let value_type = types[dice.below(types.len() as u64) as usize];
                        fields.push((name, value(dice, value_type)));
                    }
                }
                if is_new {
                    batch.push((key, time, fields));
                }
            }
            clock += (60 + dice.below(120) as i64) * SECOND;
        }
        steps.push(Step::Write(batch));
        if dice.one_in(6) {
            let start = dice.below(clock as u64) as i64;
            let range = TimeRange::new(start, start + 1 + dice.below(2 * HOUR as u64) as i64);
            steps.push(Step::Delete(KEYS[dice.below(4) as usize], range));
        }
    }
    steps
}

/// Replays a history; calls `moves` after each step to seal or move days.
fn live(steps: &[Step], mut moves: impl FnMut(&World)) -> World {
    let world = World::new();
    for step in steps {
        match step {
            Step::Write(points) => world.write(points),
            Step::Delete(key, range) => world.delete(key, *range),
        }
        moves(&world);
    }
    world
}

fn model(world: &World, steps: &[Step]) -> Model {
    let mut model = Model::default();
    for step in steps {
        match step {
            Step::Write(points) => {
                for (key, time, fields) in points {
                    model.write(world.id(key), key, *time, fields);
                }
            }
            Step::Delete(key, range) => model.delete(world.id(key), *range),
        }
    }
    model
}

fn random_query(dice: &mut Dice) -> PointQuery {
    let (name, types) = FIELDS[dice.below(FIELDS.len() as u64) as usize];
    let mut functions = functions_of(dice, types);
    let takes_summaries = !dice.one_in(5);
    functions.retain(|function| function.takes_summaries() || !takes_summaries);
    functions.retain(|_| !dice.one_in(3));
    if functions.is_empty() {
        functions.push(Function::Count);
    }
    let span = (DAYS * DAY) as u64;
    let (mut start, mut end) = (dice.below(span) as i64, dice.below(span) as i64);
    if dice.one_in(2) {
        (start, end) = (start / HOUR * HOUR, end / HOUR * HOUR);
    }
    let range = TimeRange::new(start.min(end), start.max(end) + 1);
    let (width, offset) = match dice.below(4) {
        0 => (1 + dice.below(DAY as u64) as i64, dice.below(HOUR as u64) as i64),
        1 => (HOUR, 0),
        2 => (6 * HOUR, HOUR * dice.below(9) as i64),
        _ => (HOUR / 4, 0),
    };
    PointQuery {
        fields: vec![name.into()],
        range,
        values: dice.one_in(5).then(|| condition(dice, &FIELDS, &value, 2)),
        shape: Shape::Aggregate(Aggregate {
            fill: None,
            functions,
            window: (!dice.one_in(4)).then(|| {
                let width = width.max((range.end - range.start) / 400);
                WindowSpec { width, offset }.into()
            }),
            group_by: match dice.below(4) {
                0 => GroupBy::Timeline,
                1 => GroupBy::Nothing,
                _ => GroupBy::Tags(vec!["dc".into()]),
            },
            order: Direction::Ascending,
            limit: None,
            ..Aggregate::default()
        }),
        ..rows_query()
    }
}

/// Compares floats with a tolerance and other values exactly.
fn assert_alike(a: &[KeptSeries], b: &[KeptSeries], tolerance: f64, about: &str) {
    assert_eq!(a.len(), b.len(), "{about}");
    for (a, b) in a.iter().zip(b) {
        assert_eq!((&a.measurement, &a.tags), (&b.measurement, &b.tags), "{about}");
        assert_eq!(a.rows.len(), b.rows.len(), "{about}");
        for ((time, a), (other_time, b)) in a.rows.iter().zip(&b.rows) {
            assert_eq!(time, other_time, "{about}");
            for (a, b) in a.iter().zip(b) {
                let is_alike = match (a, b) {
                    (Some(Value::Float(a)), Some(Value::Float(b))) => {
                        (a.is_nan() && b.is_nan())
                            || (a - b).abs() <= tolerance * a.abs().max(b.abs()).max(1.0)
                    }
                    _ => format!("{a:?}") == format!("{b:?}"),
                };
                assert!(is_alike, "{a:?} is not {b:?} at {time}, {about}");
            }
        }
    }
}

#[test]
fn results_are_the_same_whatever_tier_the_points_are_in() {
    let mut summarized = [0; 4];
    for seed in [21, 22, 23] {
        let mut dice = Dice::new(seed);
        let steps = history(&mut dice);
        let mut chance = Dice::new(seed + 100);
        let mut now_and_then = |world: &World| match chance.below(4) {
            0 => world.seal(),
            1 => {
                let day = chance.below(DAYS as u64) as i64;
                world.seal_and_move(|of| of <= day);
            }
            _ => {}
        };
        let hot = live(&steps, |_| {});
        let mixed = live(&steps, &mut now_and_then);
        let half = live(&steps, |_| {});
        half.seal_and_move(|day| day < DAYS / 2);
        let cold = live(&steps, |_| {});
        cold.seal_and_move(|_| true);
        hot.seal();
        let model = model(&hot, &steps);
        for _ in 0..220 {
            let query = random_query(&mut dice);
            let Shape::Aggregate(shape) = &query.shape else {
                panic!("an aggregate")
            };
            let columns: Vec<_> = shape
                .functions
                .iter()
                .map(|function| (*function, query.fields[0].clone()))
                .collect();
            let raw = hot.run(&query).expect("answered");
            let expected = model.filtered(query.values.as_ref()).aggregate(
                &columns,
                query.range,
                shape.window.map(|window| match window {
                    Window::Fixed(spec) => spec,
                    Window::Calendar(_) => panic!("{window:?}"),
                }),
                &shape.group_by,
            );
            let mut expected: Vec<KeptSeries> = expected
                .into_iter()
                .map(|((measurement, id, tags), rows)| KeptSeries {
                    id,
                    measurement,
                    tags,
                    columns: Vec::new(),
                    rows: rows.into_iter().collect(),
                })
                .collect();
            if shape.group_by == GroupBy::Timeline {
                expected.sort_by_key(|series| series.id);
            }
            let is_exact = raw.summary().estimated.is_empty();
            let tolerance = if is_exact { 1e-9 } else { 1.0 / 512.0 };
            assert_alike(&raw.series, &expected, tolerance, &format!("{query:?}"));
            for (at, world) in [&hot, &mixed, &half, &cold].into_iter().enumerate() {
                let result = world.run(&query).expect("answered");
                assert_alike(
                    &result.series,
                    &raw.series,
                    1e-12,
                    &format!("world {at}, {query:?}"),
                );
                assert_eq!(result.summary().estimated, raw.summary().estimated);
                summarized[at] += result.summary().cost.total().summaries;
            }
        }
    }
    assert_eq!(summarized[0], 0, "hot chunks have no summaries");
    assert!(
        summarized[1..].iter().all(|summaries| *summaries > 1_000),
        "{summarized:?}"
    );
}

/// Returns a world with two days of one point per minute; the first day is cold.
fn two_days() -> World {
    let world = World::new();
    let point = |at: i64| {
        let fields = vec![("v", Value::Signed(at)), ("w", Value::Float(at as f64 / 4.0))];
        ("m,host=a", at * 60 * SECOND, fields)
    };
    world.write(&(0..2 * 1_440).map(point).collect::<Vec<_>>());
    world.seal_and_move(|day| day == 0);
    world
}

#[test]
fn a_query_may_be_about_one_tier() {
    let world = two_days();
    let count = |tier| {
        let query = PointQuery {
            tier,
            ..aggregate_query(&[Function::Count], TimeRange::ALL, None, GroupBy::Nothing)
        };
        let rows = world.run(&query).expect("answered").rows();
        rows[0].1[0].clone()
    };
    assert_eq!(count(None), Some(Value::Unsigned(2_880)));
    assert_eq!(count(Some(Tier::Hot)), Some(Value::Unsigned(1_440)));
    assert_eq!(count(Some(Tier::Cold)), Some(Value::Unsigned(1_440)));
    for (tier, first) in [(None, 0), (Some(Tier::Hot), DAY), (Some(Tier::Cold), 0)] {
        let query = PointQuery { tier, ..rows_query() };
        assert_eq!(world.run(&query).expect("answered").rows()[0].0, first);
    }
}

#[test]
fn the_cost_counts_what_was_read_per_tier() {
    let world = two_days();
    let range = TimeRange::new(11 * HOUR + HOUR / 3, DAY + 10 * 60 * SECOND);
    let query = aggregate_query(&[Function::Mean], range, Some(HOUR), GroupBy::Nothing);
    let cost = world.run(&query).expect("answered").summary().cost;
    let cold = TierCost {
        bytes: cost.of(Tier::Cold).bytes,
        segments: 1,
        chunks: 1,
        // One point per minute in the forty minutes before the first whole hour, each with two fields.
        points: 40,
        values: 80,
        summaries: 12,
        summarized_points: 720,
    };
    assert_eq!(cost.of(Tier::Cold), cold);
    let hot = cost.of(Tier::Hot);
    assert_eq!(
        (hot.segments, hot.points, hot.values, hot.summaries),
        (1, 10, 20, 0)
    );
    assert!(cold.bytes > 0);
    let rate = aggregate_query(&[Function::Rate], range, Some(HOUR), GroupBy::Nothing);
    let cost = world.run(&rate).expect("answered").summary().cost;
    assert_eq!((cost.total().points, cost.total().summaries), (770, 0));
}

#[test]
fn newest_values_of_one_tier_are_found() {
    let world = two_days();
    // One field is only in the cold tier, and one point is late.
    world.write(&[(
        "m,host=b",
        5,
        vec![("v", Value::Signed(1)), ("old", Value::Signed(7))],
    )]);
    world.seal_and_move(|day| day == 0);
    world.write(&[("m,host=b", 3, vec![("v", Value::Signed(2))])]);
    let run = |tier| {
        let query = LatestQuery {
            details: false,
            timelines: Selector::Condition(Condition::All),
            fields: Vec::new(),
            tier,
            limit: None,
            after: None,
            budget: Default::default(),
        };
        let mut result = CollectedResult::default();
        let requested = world
            .querier
            .latest(&world.table, &query, &Cancel::new(), &mut result);
        requested.expect("answered");
        let mut found = Vec::new();
        for series in result.series {
            for (time, values) in series.rows {
                for (column, value) in series.columns.iter().zip(values) {
                    if let Some(Value::Signed(value)) = value {
                        found.push(format!("{} {column} {time} {value}", series.tags[0].1));
                    }
                }
            }
        }
        found.sort();
        found
    };
    let newest = (2 * 1_440 - 1) * 60 * SECOND;
    let newest_cold = 1_439 * 60 * SECOND;
    assert_eq!(
        run(None),
        [
            format!("a v {newest} 2879"),
            "b old 5 7".to_owned(),
            "b v 5 1".to_owned(),
        ]
    );
    assert_eq!(
        run(Some(Tier::Cold)),
        [
            format!("a v {newest_cold} 1439"),
            "b old 5 7".to_owned(),
            "b v 5 1".to_owned(),
        ]
    );
    assert_eq!(
        run(Some(Tier::Hot)),
        [format!("a v {newest} 2879"), "b v 3 2".to_owned(),]
    );
}

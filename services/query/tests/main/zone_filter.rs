//! Conditions on values of cold points: data excluded by summaries is not read, and no matching row is missing.
//!
//! Results of hot, partly cold and cold worlds are compared with the naive evaluator.

use tideline_condition::operators::Equals;
use tideline_condition::{Condition, Subject, Test};
use tideline_model::{TimeRange, TimelineId, Value, ValueType};
use tideline_query::{Direction, Function, GroupBy, PointQuery, Rows, Shape};

use crate::naive::Model;
use crate::naive_values::{between, condition, literal};
use crate::support::{CollectedResult, Dice, Point, World, aggregate_query, rows_query};

const MINUTE: i64 = 60_000_000_000;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const DAYS: i64 = 3;
const KEYS: [&str; 3] = ["m,host=a", "m,host=b", "m,host=c"];
const FIELDS: [(&str, &[ValueType]); 4] = [
    ("wave", &[ValueType::Signed, ValueType::Float]),
    ("level", &[ValueType::Unsigned]),
    ("rare", &[ValueType::Float]),
    ("text", &[ValueType::String]),
];

/// Returns a random bound for a condition, near the values that [`fields`] returns.
fn bound(dice: &mut Dice, value_type: ValueType) -> Value {
    match value_type {
        ValueType::Signed => Value::Signed(dice.below(220) as i64 - 110),
        ValueType::Float => Value::Float(dice.below(440) as f64 / 2.0 - 110.0),
        ValueType::Unsigned => Value::Unsigned(dice.below(80)),
        ValueType::Boolean => Value::Boolean(dice.one_in(2)),
        ValueType::String => Value::String(format!("t{}", dice.below(5)).into()),
        ValueType::Histogram => unreachable!("it is not compared"),
    }
}

/// Returns fields that change slowly, so that hours differ. Types change, and some values are missing or not
/// finite.
fn fields(dice: &mut Dice, time: i64) -> Vec<(&'static str, Value)> {
    let wave = 100.0 * (time as f64 / (11 * HOUR) as f64 * std::f64::consts::TAU).sin();
    let mut fields = Vec::new();
    if !dice.one_in(15) {
        fields.push((
            "wave",
            match dice.below(600) {
                0 => Value::Float(f64::NAN),
                1 => Value::Float(f64::INFINITY),
                _ if time / (5 * HOUR) % 2 == 0 => Value::Signed(wave as i64),
                _ => Value::Float((wave * 4.0).round() / 4.0),
            },
        ));
    }
    fields.push(("level", Value::Unsigned((time / HOUR) as u64)));
    if time / HOUR % 9 == 4 && dice.one_in(3) {
        fields.push(("rare", Value::Float([-0.0, 0.0, 2.5][dice.below(3) as usize])));
    }
    if dice.one_in(40) {
        fields.push(("text", Value::String(format!("t{}", dice.below(5)).into())));
    }
    fields
}

/// Writes the random history of a seed to a world and to the model. `is_cold` selects the days that move to the cold
/// tier.
fn live(seed: u64, is_cold: impl Fn(i64) -> bool) -> (World, Model) {
    let mut dice = Dice::new(seed);
    let world = World::new();
    let mut model = Model::default();
    let write = |dice: &mut Dice, world: &World, model: &mut Model, times: Vec<i64>| {
        let mut points: Vec<Point<'static>> = Vec::new();
        for time in times {
            points.extend(KEYS.map(|key| (key, time, fields(dice, time))));
        }
        world.write(&points);
        for (key, time, fields) in &points {
            model.write(world.id(key), key, *time, fields);
        }
    };
    for day in 0..DAYS {
        let times = (0..1_440).map(|minute| day * DAY + minute * MINUTE).collect();
        write(&mut dice, &world, &mut model, times);
    }
    world.seal_and_move(&is_cold);
    // Late points overlap cold chunks, or are between two of their points.
    for _ in 0..3 {
        let begin = dice.below((DAYS * DAY / MINUTE) as u64) as i64 * MINUTE;
        let shift = [0, MINUTE / 2][dice.below(2) as usize];
        let times = (0..30).map(|at| begin + shift + at * MINUTE).collect();
        write(&mut dice, &world, &mut model, times);
        if dice.one_in(2) {
            world.seal();
        }
        let start = dice.below((DAYS * DAY) as u64) as i64;
        let range = TimeRange::new(start, start + dice.below(3 * HOUR as u64) as i64 + 1);
        let key = KEYS[dice.below(3) as usize];
        world.delete(key, range);
        model.delete(world.id(key), range);
    }
    (world, model)
}

type KeptRow = (TimelineId, i64, Vec<Option<Value>>);

fn kept(result: &CollectedResult) -> Vec<KeptRow> {
    let rows = result.series.iter().flat_map(|series| {
        let id = series.id.expect("rows are of timelines");
        series
            .rows
            .iter()
            .map(move |(time, values)| (id, *time, values.clone()))
    });
    rows.collect()
}

fn expected(model: &Model, range: TimeRange, order: Direction) -> Vec<KeptRow> {
    let mut rows = Vec::new();
    for (id, timeline) in &model.timelines {
        let points = timeline.points.range(range.start..range.end);
        let value = |point: &std::collections::BTreeMap<String, Value>| -> Vec<Option<Value>> {
            FIELDS.iter().map(|(name, _)| point.get(*name).cloned()).collect()
        };
        let mut of_timeline: Vec<KeptRow> = points.map(|(time, point)| (*id, *time, value(point))).collect();
        if order == Direction::Descending {
            of_timeline.reverse();
        }
        rows.extend(of_timeline);
    }
    rows
}

#[test]
fn rows_and_aggregates_of_conditions_are_those_of_every_point_looked_at() {
    let (mut read, mut kept_rows) = ([0; 3], 0);
    for seed in [61, 62, 63] {
        let worlds = [
            live(seed, |_| false),
            live(seed, |_| true),
            live(seed, |day| day != 1),
        ];
        let mut dice = Dice::new(seed + 1_000);
        for _ in 0..40 {
            let span = (DAYS * DAY) as u64;
            let (start, end) = (dice.below(span) as i64, dice.below(span) as i64);
            let range = match dice.one_in(2) {
                true => TimeRange::new(0, DAYS * DAY),
                false => TimeRange::new(start.min(end), start.max(end) + 1),
            };
            let order = [Direction::Ascending, Direction::Descending][dice.below(2) as usize];
            let values = Some(condition(&mut dice, &FIELDS, &bound, 2));
            let query = PointQuery {
                fields: FIELDS.iter().map(|(name, _)| (*name).into()).collect(),
                range,
                values: values.clone(),
                shape: Shape::Rows(Rows {
                    order,
                    ..Rows::default()
                }),
                ..rows_query()
            };
            let count = PointQuery {
                values: values.clone(),
                fields: vec!["level".into()],
                ..aggregate_query(
                    &[Function::Count, Function::Increase],
                    range,
                    Some(HOUR),
                    GroupBy::Nothing,
                )
            };
            let counts = |world: &World| format!("{:?}", world.run(&count).expect("answered").series);
            for (at, (world, model)) in worlds.iter().enumerate() {
                let result = world.run(&query).expect("answered");
                let about = format!("seed {seed}, world {at}, {query:?}");
                let wanted = expected(&model.filtered(values.as_ref()), range, order);
                assert_eq!(format!("{:?}", kept(&result)), format!("{wanted:?}"), "{about}");
                assert_eq!(counts(world), counts(&worlds[0].0), "{about}");
                read[at] += result.summary().cost.total().points;
                kept_rows += wanted.len();
            }
        }
    }
    assert!(kept_rows > 10_000, "{kept_rows} rows");
    // The share of points that the filter saves depends on the seed. The share is usually at least a fortieth; the test
    // requires a hundredth.
    assert!(read[1] < read[0] * 99 / 100 && read[2] < read[0], "{read:?}");
}

#[test]
fn hours_that_a_condition_rules_out_are_not_read() {
    let world = World::new();
    let point = |minute: i64| {
        (
            "m,host=a",
            minute * MINUTE,
            vec![("v", Value::Signed(minute / 60))],
        )
    };
    world.write(&(0..1_440).map(point).collect::<Vec<_>>());
    world.seal_and_move(|_| true);
    let above = |bound: i64| PointQuery {
        values: Some(Condition::leaf(
            Subject::Field("v".to_owned()),
            between(
                std::ops::Bound::Excluded(Value::Signed(bound)),
                std::ops::Bound::Unbounded,
            ),
        )),
        ..rows_query()
    };
    for (bound, hours) in [(21, 2), (22, 1), (23, 0), (-1, 24)] {
        let result = world.run(&above(bound)).expect("answered");
        let cost = result.summary().cost.total();
        assert_eq!(
            (result.summary().rows, cost.points),
            (hours * 60, hours * 60),
            "{bound}"
        );
        assert_eq!(cost.chunks, u64::from(hours > 0));
    }
    let either = Condition::Or(vec![
        above(22).values.expect("a condition"),
        Condition::leaf(
            Subject::Field("v".to_owned()),
            Test::from(Equals(literal(Value::Float(3.0)))),
        ),
    ]);
    let query = |values| PointQuery {
        values: Some(values),
        ..rows_query()
    };
    let result = world.run(&query(either.clone())).expect("answered");
    assert_eq!(result.summary().cost.total().points, 120, "two hours apart");
    // Summaries cannot exclude rows for a negated condition.
    let neither = query(Condition::Not(Box::new(either)));
    let result = world.run(&neither).expect("answered");
    assert_eq!(
        (result.summary().rows, result.summary().cost.total().points),
        (1_320, 1_440)
    );
    // A pending delete hides rows that are read, and late points are merged with the points that they overlap.
    world.delete("m,host=a", TimeRange::new(23 * HOUR, 23 * HOUR + 30 * MINUTE));
    assert_eq!(world.run(&above(22)).expect("answered").summary().rows, 30);
    world.write(&[("m,host=a", HOUR, vec![("v", Value::Signed(99))])]);
    assert_eq!(world.run(&above(22)).expect("answered").summary().rows, 31);
}

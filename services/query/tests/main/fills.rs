//! Fill of windows without a value, the fills that are refused, and the memory of filled windows.
//!
//! The same world with two values is queried with each kind of fill.

use std::sync::Arc;

use tideline_engine::Engine;
use tideline_model::{TimeRange, Value};
use tideline_query::{
    Aggregate, Cancel, Direction, Fill, Function, GroupBy, Header, PointQuery, RowSink, Series, Shape,
    SinkClosed, ValueRef, WindowSpec,
};

use crate::support::{World, rows_query};

const SECOND: i64 = 1_000_000_000;

/// Returns a world with values in the windows at 20 and 50 s; the windows of the range start at 0, 10 … 70 s.
fn world() -> World {
    let point = |at: i64, number: i64, text: &str| {
        let fields = vec![("n", Value::Signed(number)), ("s", Value::String(text.into()))];
        ("m,host=a", at * SECOND, fields)
    };
    World::with(&[point(23, 4, "x"), point(50, 10, "y")])
}

fn query(field: &str, function: Function, fill: Option<Fill>, order: Direction) -> PointQuery {
    PointQuery {
        fields: vec![field.into()],
        range: TimeRange::new(0, 75 * SECOND),
        shape: Shape::Aggregate(Aggregate {
            functions: vec![function],
            window: Some(WindowSpec::aligned(10 * SECOND).into()),
            fill,
            group_by: GroupBy::Nothing,
            order,
            limit: None,
            ..Aggregate::default()
        }),
        ..rows_query()
    }
}

/// Returns the values of the column in each window.
fn column(field: &str, function: Function, fill: &Fill) -> Vec<Option<Value>> {
    let world = world();
    let run = |order| {
        let result = world
            .run(&query(field, function, Some(fill.clone()), order))
            .expect("answered");
        result.rows()
    };
    let rows = run(Direction::Ascending);
    let starts: Vec<i64> = rows.iter().map(|(start, _)| *start / SECOND).collect();
    assert_eq!(starts, [0, 10, 20, 30, 40, 50, 60, 70]);
    let mut back = run(Direction::Descending);
    back.reverse();
    assert_eq!(back, rows);
    rows.into_iter().map(|(_, mut values)| values.remove(0)).collect()
}

fn float(value: f64) -> Option<Value> {
    Some(Value::Float(value))
}

fn signed(value: i64) -> Option<Value> {
    Some(Value::Signed(value))
}

#[test]
fn every_fill_fills_what_it_says() {
    let (four, ten) = (signed(4), signed(10));
    let nothing = || None;
    let sum = |fill| column("n", Function::Sum, &fill);
    assert_eq!(
        sum(Fill::Null),
        [nothing(), None, four.clone(), None, None, ten.clone(), None, None]
    );
    assert_eq!(
        sum(Fill::Previous { reach: 10 * SECOND }),
        [
            nothing(),
            None,
            four.clone(),
            four.clone(),
            None,
            ten.clone(),
            ten.clone(),
            None
        ]
    );
    assert_eq!(
        sum(Fill::Linear),
        [
            nothing(),
            None,
            four.clone(),
            float(6.0),
            float(8.0),
            ten.clone(),
            None,
            None
        ]
    );
    let zero = || signed(0);
    assert_eq!(
        sum(Fill::Value(Value::Signed(0))),
        [zero(), zero(), four, zero(), zero(), ten, zero(), zero()]
    );
    let text = |text: &str| Some(Value::String(text.into()));
    assert_eq!(
        column("s", Function::Last, &Fill::Previous { reach: i64::MAX }),
        [
            nothing(),
            None,
            text("x"),
            text("x"),
            text("x"),
            text("y"),
            text("y"),
            text("y")
        ]
    );
    let counts = [0, 0, 1, 0, 0, 1, 0, 0].map(|count| Some(Value::Unsigned(count)));
    assert_eq!(column("s", Function::Count, &Fill::Null), counts);
}

#[test]
fn a_series_without_a_value_stays_absent() {
    let world = world();
    let past = PointQuery {
        range: TimeRange::new(-75 * SECOND, 0),
        ..query(
            "n",
            Function::Sum,
            Some(Fill::Value(Value::Signed(0))),
            Direction::Ascending,
        )
    };
    assert!(world.run(&past).expect("answered").series.is_empty());
}

#[test]
fn what_makes_no_sense_is_refused() {
    let world = world();
    let text = || Fill::Value(Value::String("none".into()));
    for (field, function, fill, said) in [
        ("s", Function::Last, Fill::Linear, "last(s) has texts"),
        (
            "s",
            Function::First,
            Fill::Value(Value::Signed(0)),
            "first(s) has texts",
        ),
        ("n", Function::Mean, text(), "mean(n) has numbers"),
    ] {
        let error = world.run(&query(field, function, Some(fill), Direction::Ascending));
        let error = error.expect_err(said).to_string();
        assert!(error.contains(said), "{error}");
    }
    let mut whole = query("n", Function::Sum, Some(Fill::Null), Direction::Ascending);
    if let Shape::Aggregate(shape) = &mut whole.shape {
        shape.window = None;
    }
    assert!(
        world
            .run(&whole)
            .expect_err("no windows")
            .to_string()
            .contains("needs windows")
    );
    world
        .run(&query("s", Function::Last, Some(text()), Direction::Ascending))
        .expect("it suits");
}

/// Sink that drops its rows and records the most bytes that the engine's requests held.
struct PeakSink {
    engine: Arc<Engine>,
    peak: u64,
}

impl RowSink for PeakSink {
    fn begin(&mut self, _: &Header) -> Result<(), SinkClosed> {
        Ok(())
    }

    fn series(&mut self, _: &Series<'_>) -> Result<(), SinkClosed> {
        Ok(())
    }

    fn row(&mut self, _: i64, _: &[Option<ValueRef<'_>>]) -> Result<(), SinkClosed> {
        self.peak = self.peak.max(self.engine.memory().used_bytes());
        Ok(())
    }
}

#[test]
fn filled_windows_count_against_the_memory_account() {
    let world = World::with(&[("m,host=a", 5, vec![("n", Value::Signed(1))])]);
    let peak = |fill| {
        let mut query = query("n", Function::Sum, fill, Direction::Ascending);
        query.range = TimeRange::new(0, 200_000);
        if let Shape::Aggregate(shape) = &mut query.shape {
            shape.window = Some(WindowSpec::aligned(1).into());
        }
        let mut sink = PeakSink {
            engine: Arc::clone(&world.engine),
            peak: 0,
        };
        let summary = world
            .querier
            .points(&world.table, &query, &Cancel::new(), &mut sink);
        summary.expect("answered");
        sink.peak
    };
    let (plain, filled) = (peak(None), peak(Some(Fill::Null)));
    // Each of the 200,000 windows takes 24 bytes more.
    assert!(filled >= plain + 4_000_000, "{plain} {filled}");
}

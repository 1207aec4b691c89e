//! Computed fields and columns, compared with a naive evaluator of expressions.
//!
//! Random expressions are evaluated over the fields of each point and over the aggregates of each window.

use std::collections::BTreeMap;

use tideline_condition::{Condition, Subject};
use tideline_model::{TimeRange, Value};
use tideline_query::{Aggregate, Computation, Fill, Function, GroupBy, PointQuery, Rank, Shape, WindowSpec};

use crate::naive_values::between;
use crate::support::{Dice, World, rows_query};

const SECOND: i64 = 1_000_000_000;

/// Random expression, which can be written as text and evaluated.
#[derive(Debug, Clone)]
enum Tree {
    Number(f64),
    Name(usize),
    Negative(Box<Tree>),
    Binary(char, Box<Tree>, Box<Tree>),
    Call(&'static str, Vec<Tree>),
}

impl Tree {
    fn random(dice: &mut Dice, names: usize, depth: u64) -> Self {
        let one = |dice: &mut Dice| Box::new(Self::random(dice, names, depth - 1));
        match if depth == 0 { dice.below(3) } else { dice.below(10) } {
            0 => Self::Number(dice.below(9) as f64 / 2.0),
            1 | 2 => Self::Name(dice.below(names as u64) as usize),
            3 => Self::Negative(one(dice)),
            4 => {
                let name = ["abs", "sqrt", "floor", "ln"][dice.below(4) as usize];
                Self::Call(name, vec![*one(dice)])
            }
            5 => {
                let name = ["min", "max", "coalesce", "pow"][dice.below(4) as usize];
                Self::Call(name, vec![*one(dice), *one(dice)])
            }
            _ => {
                let operator = ['+', '-', '*', '/', '%'][dice.below(5) as usize];
                Self::Binary(operator, one(dice), one(dice))
            }
        }
    }

    fn names(&self) -> Vec<usize> {
        match self {
            Self::Number(_) => Vec::new(),
            Self::Name(at) => vec![*at],
            Self::Negative(inner) => inner.names(),
            Self::Binary(_, a, b) => [a.names(), b.names()].concat(),
            Self::Call(_, inner) => inner.iter().flat_map(Self::names).collect(),
        }
    }

    fn has_name(&self) -> bool {
        !self.names().is_empty()
    }

    fn text(&self, names: &[&str]) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Name(at) => names[*at].into(),
            Self::Negative(inner) => format!("-({})", inner.text(names)),
            Self::Binary(operator, a, b) => format!("({} {operator} {})", a.text(names), b.text(names)),
            Self::Call(name, inner) => {
                let inner: Vec<String> = inner.iter().map(|inner| inner.text(names)).collect();
                format!("{name}({})", inner.join(", "))
            }
        }
    }

    fn value(&self, values: &[Option<f64>]) -> Option<f64> {
        let result = match self {
            Self::Number(number) => *number,
            Self::Name(at) => values[*at]?,
            Self::Negative(inner) => -inner.value(values)?,
            Self::Binary(operator, a, b) => {
                let (a, b) = (a.value(values)?, b.value(values)?);
                match operator {
                    '+' => a + b,
                    '-' => a - b,
                    '*' => a * b,
                    '/' => a / b,
                    _ => a % b,
                }
            }
            Self::Call("coalesce", inner) => {
                return inner[0].value(values).or_else(|| inner[1].value(values));
            }
            Self::Call(name, inner) => {
                let numbers: Option<Vec<f64>> = inner.iter().map(|inner| inner.value(values)).collect();
                match (*name, numbers?[..].as_ref()) {
                    ("abs", [a]) => a.abs(),
                    ("sqrt", [a]) => a.sqrt(),
                    ("floor", [a]) => a.floor(),
                    ("ln", [a]) => a.ln(),
                    ("min", [a, b]) => a.min(*b),
                    ("max", [a, b]) => a.max(*b),
                    ("pow", [a, b]) => a.powf(*b),
                    other => panic!("{other:?}"),
                }
            }
        };
        result.is_finite().then_some(result)
    }
}

type Points = BTreeMap<i64, [Option<Value>; 3]>;

/// Writes random points with the fields `a` (any number), `b` (integers with zeros) and `c d` (floats with NaN); each
/// field is missing in some points.
fn fill(dice: &mut Dice, world: &World) -> Points {
    let mut points = Points::new();
    for at in 0..400 {
        let a = match dice.below(3) {
            0 => Value::Signed(dice.below(20) as i64 - 10),
            1 => Value::Unsigned(dice.below(10)),
            _ => Value::Float(dice.below(100) as f64 / 8.0),
        };
        let b = Value::Signed(dice.below(5) as i64 - 2);
        let c = if dice.one_in(20) {
            f64::NAN
        } else {
            dice.below(1_000) as f64 / 100.0 - 5.0
        };
        let values = [a, b, Value::Float(c)].map(|value| (!dice.one_in(5)).then_some(value));
        let named = ["a", "b", "c d"].into_iter().zip(values.clone());
        let fields: Vec<_> = named.filter_map(|(name, value)| Some((name, value?))).collect();
        if !fields.is_empty() {
            world.write(&[("m,host=x", at * SECOND, fields)]);
            points.insert(at * SECOND, values);
        }
        if dice.one_in(150) {
            world.seal();
        }
    }
    points
}

fn number(value: &Option<Value>) -> Option<f64> {
    value
        .as_ref()
        .and_then(Value::as_f64)
        .filter(|value| value.is_finite())
}

fn same(found: Option<&Value>, expected: Option<f64>) -> bool {
    match (found, expected) {
        (Some(Value::Float(found)), Some(expected)) => {
            (found - expected).abs() <= 1e-9 * expected.abs().max(1.0)
        }
        (found, expected) => found.is_none() && expected.is_none(),
    }
}

fn computation(expression: String) -> Vec<Computation> {
    let name = "r".into();
    vec![Computation { name, expression }]
}

#[test]
fn points_agree_with_the_naive_evaluator() {
    let mut dice = Dice::new(61);
    let world = World::new();
    let points = fill(&mut dice, &world);
    for _ in 0..150 {
        let tree = Tree::random(&mut dice, 3, 4);
        if !tree.has_name() {
            continue;
        }
        let text = tree.text(&["a", "b", "\"c d\""]);
        let expected: BTreeMap<i64, f64> = points
            .iter()
            .filter_map(|(time, values)| Some((*time, tree.value(&values.each_ref().map(number))?)))
            .collect();
        let query = PointQuery {
            fields: vec!["r".into()],
            compute: computation(text.clone()),
            ..rows_query()
        };
        let rows = world.run(&query).expect(&text).rows();
        let times: Vec<i64> = rows.iter().map(|(time, _)| *time).collect();
        assert_eq!(times, expected.keys().copied().collect::<Vec<_>>(), "{text}");
        for (time, values) in &rows {
            assert!(
                same(values[0].as_ref(), expected.get(time).copied()),
                "{text} {time} {values:?}"
            );
        }
        // A computed field can be aggregated, ranked and filtered like a stored field.
        let above: Vec<f64> = expected.values().copied().filter(|value| *value > 1.0).collect();
        let query = PointQuery {
            fields: vec!["r".into()],
            compute: computation(text.clone()),
            range: TimeRange::new(0, 1_000 * SECOND),
            values: Some(Condition::leaf(
                Subject::Field("r".to_owned()),
                between(
                    std::ops::Bound::Excluded(Value::Signed(1)),
                    std::ops::Bound::Unbounded,
                ),
            )),
            shape: Shape::Aggregate(Aggregate {
                functions: vec![Function::Count, Function::Max],
                rank: Some(Rank {
                    function: Function::Mean,
                    field: "r".into(),
                    order: tideline_query::RankOrder::Highest,
                    limit: Some(1),
                }),
                ..Aggregate::default()
            }),
            ..rows_query()
        };
        let rows = world.run(&query).expect(&text).rows();
        assert_eq!(rows.is_empty(), above.is_empty(), "{text}");
        if let Some((_, values)) = rows.first() {
            assert_eq!(values[0], Some(Value::Unsigned(above.len() as u64)), "{text}");
            let most = above.iter().copied().reduce(f64::max);
            assert!(same(values[1].as_ref(), most), "{text} {values:?} {most:?}");
        }
    }
}

#[test]
fn windows_agree_with_the_naive_evaluator() {
    let mut dice = Dice::new(62);
    let world = World::new();
    fill(&mut dice, &world);
    let names = ["sum(a)", "count(b)", "max(\"c d\")"];
    let requested = |functions: Vec<Function>, compute, fill| PointQuery {
        range: TimeRange::new(0, 400 * SECOND),
        shape: Shape::Aggregate(Aggregate {
            functions,
            compute,
            window: Some(WindowSpec::aligned(7 * SECOND).into()),
            fill,
            group_by: GroupBy::Nothing,
            ..Aggregate::default()
        }),
        ..rows_query()
    };
    for round in 0..150 {
        if round == 75 {
            world.seal();
        }
        let tree = Tree::random(&mut dice, 3, 4);
        if !tree.has_name() {
            continue;
        }
        let text = tree.text(&names);
        let fill = dice.one_in(2).then_some(Fill::Value(Value::Signed(3)));
        let plain = world.run(&requested(
            vec![Function::Sum, Function::Count, Function::Max],
            Vec::new(),
            fill.clone(),
        ));
        let plain = plain.expect("answered");
        let columns = &plain.header.columns;
        let position = |name: &str| columns.iter().position(|have| have == name).expect(name);
        let places = [position("sum(a)"), position("count(b)"), position("max(c d)")];
        let with = if dice.one_in(2) {
            vec![Function::Min]
        } else {
            Vec::new()
        };
        let shown = with.len() * 3;
        let result = world
            .run(&requested(with, computation(text.clone()), fill))
            .expect(&text);
        let found: BTreeMap<i64, Vec<Option<Value>>> = result.rows().into_iter().collect();
        for (start, values) in plain.rows() {
            let inputs = places.map(|position| number(&values[position]));
            let expected = tree.value(&inputs);
            let Some(row) = found.get(&start) else {
                // A window has no row if its inputs have no value; a count without values is 0 in `plain`.
                assert_eq!(shown, 0, "{text} {start}");
                let is_empty = |at: &usize| inputs[*at].is_none() || (*at == 1 && inputs[1] == Some(0.0));
                assert!(
                    expected.is_none() || tree.names().iter().all(is_empty),
                    "{text} {start}"
                );
                continue;
            };
            assert_eq!(row.len(), shown + 1);
            assert!(
                same(row[shown].as_ref(), expected),
                "{text} {start} {row:?} {expected:?}"
            );
        }
    }
}

#[test]
fn a_measurement_has_the_columns_that_it_has_fields_for() {
    let world = World::with(&[
        (
            "m,host=a",
            1,
            vec![("x", Value::Signed(4)), ("y", Value::Signed(2))],
        ),
        ("n,host=a", 1, vec![("x", Value::Signed(4))]),
        ("o,host=a", 1, vec![("z", Value::Signed(4))]),
    ]);
    let query = |compute: &str, cells: &str| PointQuery {
        compute: computation(compute.into()),
        shape: Shape::Aggregate(Aggregate {
            functions: vec![Function::Max],
            compute: vec![Computation {
                name: "cell".into(),
                expression: cells.into(),
            }],
            ..Aggregate::default()
        }),
        ..rows_query()
    };
    let result = world.run(&query("x / y", "max(x) + max(y)")).expect("answered");
    let columns: Vec<_> = result
        .series
        .iter()
        .map(|series| series.columns.join(" "))
        .collect();
    assert_eq!(columns, ["max(x) max(y) max(r) cell", "max(x) max(r)", "max(z)"]);
    let values = &result.series[0].rows[0].1;
    assert_eq!(values[2..], [Some(Value::Float(2.0)), Some(Value::Float(6.0))]);
    for (compute, cells, said) in [
        ("x +", "max(x)", "character 4"),
        ("nothing + 1", "max(x)", "\"nothing\" does not exist"),
        ("x + 1", "max(nothing)", "\"nothing\" does not exist"),
        ("x + 1", "mean(max(x))", "one field"),
    ] {
        let error = world.run(&query(compute, cells)).expect_err(said).to_string();
        assert!(error.contains(said), "{error}");
    }
    let mut taken = query("x + 1", "max(x)");
    taken.compute[0].name = "y".into();
    assert!(
        world
            .run(&taken)
            .expect_err("taken")
            .to_string()
            .contains("is a field of table")
    );
}

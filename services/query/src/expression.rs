//! Arithmetic: a small language of text, between the fields of a point or between the aggregates of a window.
//!
//! ```text
//! sum     = product { ("+" | "-") product }
//! product = factor { ("*" | "/" | "%") factor }
//! factor  = "-" factor | number | "(" sum ")" | call | name
//! call    = function "(" sum { "," sum } ")"
//! name    = field                            of a point
//!         | aggregate "(" field ")"          of a window: mean(usage), percentile_99.9("disk used")
//! field   = letters, digits, "_" and ".", not beginning with a digit; any text in double quotes, where \" and \\ stand
//!           for themselves
//! ```
//!
//! The functions are `abs`, `ceil`, `exp`, `floor`, `ln`, `log10`, `round`, `sqrt` of one value, `min`, `max` and `pow` of
//! two, and `coalesce` of two: the first, or where it has no value the second.
//!
//! All numbers are doubles: integers beyond 2⁵³ count as the nearest one, so nothing overflows silently. Where a value is
//! missing, or the result of a step is no finite number (a division by zero, the root of a negative number, what is beyond
//! the range of doubles, NaN), there is no value, and every step made of it but `coalesce` has none either. `%` takes the
//! sign of its left side.
//!
//! An expression is compiled to steps on a stack of columns, so that a run of points costs one pass for each step.

mod parse;

use crate::function::Function;

/// Longest text of an expression, in bytes.
pub const TEXT_BYTES_MAX: u64 = 4_096;
/// Most expressions inside one another.
pub const DEPTH_MAX: u64 = 64;

/// An expression that has been read.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Expression {
    /// What it is made of, each once.
    inputs: Vec<Input>,
    steps: Vec<Step>,
}

/// A name in an expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Input {
    Field(String),
    Aggregate(Function, String),
}

/// What names in an expression stand for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Fields of a point.
    Points,
    /// Aggregates of a window.
    Windows,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Step {
    Number(f64),
    /// By its place among the inputs.
    Input(usize),
    Unary(Unary),
    Binary(Binary),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unary {
    Negate,
    Abs,
    Ceil,
    Exp,
    Floor,
    Ln,
    Log10,
    Round,
    Sqrt,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Binary {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    Min,
    Max,
    Power,
    Coalesce,
}

/// Columns to use again.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stack {
    columns: Vec<Vec<f64>>,
    used: usize,
}

impl Expression {
    /// What it is made of.
    pub(crate) fn inputs(&self) -> &[Input] {
        &self.inputs
    }

    /// The results of all rows; NaN stands for no value, in the inputs too. `input` gives the column of an input.
    pub(crate) fn evaluate<'s, 'i>(
        &self,
        rows: usize,
        input: impl Fn(usize) -> &'i [f64],
        stack: &'s mut Stack,
    ) -> &'s [f64] {
        stack.used = 0;
        for step in &self.steps {
            match step {
                Step::Number(number) => stack.push(std::iter::repeat_n(*number, rows)),
                Step::Input(at) => stack.push(input(*at).iter().copied()),
                Step::Unary(unary) => {
                    let unary = unary.function();
                    let top = stack.top(0).iter_mut();
                    top.for_each(|value| *value = finite(unary(*value)));
                }
                Step::Binary(binary) => {
                    let binary = binary.function();
                    let (left, right) = stack.pop();
                    let rows = left.iter_mut().zip(right);
                    rows.for_each(|(left, right)| *left = finite(binary(*left, *right)));
                }
            }
        }
        stack.top(0)
    }
}

impl Stack {
    fn push(&mut self, values: impl Iterator<Item = f64>) {
        if self.used == self.columns.len() {
            self.columns.push(Vec::new());
        }
        let column = &mut self.columns[self.used];
        column.clear();
        column.extend(values.map(finite));
        self.used += 1;
    }

    /// The column so far below the top one.
    fn top(&mut self, below: usize) -> &mut Vec<f64> {
        // A parser that leaves more steps than columns is wrong in every test.
        let at = self.used - 1 - below;
        &mut self.columns[at]
    }

    /// Takes the top column away; gives the one below it, and what was taken.
    fn pop(&mut self) -> (&mut [f64], &[f64]) {
        self.used -= 1;
        let (left, right) = self.columns.split_at_mut(self.used);
        (&mut left[self.used - 1], &right[0])
    }
}

/// A finite number, or NaN.
fn finite(value: f64) -> f64 {
    if value.is_finite() { value } else { f64::NAN }
}

impl Unary {
    fn function(self) -> fn(f64) -> f64 {
        match self {
            Self::Negate => |a| -a,
            Self::Abs => f64::abs,
            Self::Ceil => f64::ceil,
            Self::Exp => f64::exp,
            Self::Floor => f64::floor,
            Self::Ln => f64::ln,
            Self::Log10 => f64::log10,
            Self::Round => f64::round,
            Self::Sqrt => f64::sqrt,
        }
    }
}

impl Binary {
    fn function(self) -> fn(f64, f64) -> f64 {
        /// NaN where one is: that stands for no value.
        fn either(a: f64, b: f64, chosen: f64) -> f64 {
            if a.is_nan() || b.is_nan() {
                f64::NAN
            } else {
                chosen
            }
        }
        match self {
            Self::Add => |a, b| a + b,
            Self::Subtract => |a, b| a - b,
            Self::Multiply => |a, b| a * b,
            Self::Divide => |a, b| a / b,
            Self::Remainder => |a, b| a % b,
            Self::Min => |a, b| either(a, b, a.min(b)),
            Self::Max => |a, b| either(a, b, a.max(b)),
            Self::Power => |a, b| either(a, b, a.powf(b)),
            Self::Coalesce => |a, b| if a.is_nan() { b } else { a },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str, inputs: &[(&str, f64)]) -> Option<f64> {
        // An expression names a field at least.
        let text = format!("({text}) + 0 * zero");
        let expression = Expression::parse(&text, Scope::Points).expect(&text);
        let columns: Vec<[f64; 1]> = expression
            .inputs()
            .iter()
            .map(|input| match input {
                Input::Field(name) if name == "zero" => 0.0,
                Input::Field(name) => inputs
                    .iter()
                    .find(|(have, _)| have == name)
                    .map_or(f64::NAN, |(_, v)| *v),
                Input::Aggregate(..) => panic!("{input:?}"),
            })
            .map(|value| [value])
            .collect();
        let mut stack = Stack::default();
        let value = expression.evaluate(1, |at| &columns[at], &mut stack)[0];
        (!value.is_nan()).then_some(value)
    }

    #[test]
    fn arithmetic_binds_as_in_school() {
        for (text, result) in [
            ("1 + 2 * 3", 7.0),
            ("(1 + 2) * 3", 9.0),
            ("2 - 3 - 4", -5.0),
            ("24 / 4 / 2", 3.0),
            ("-2 * -3", 6.0),
            ("--2", 2.0),
            ("7 % 4 * 2", 6.0),
            ("-7 % 4", -3.0),
            ("1.5e1 - .5", 14.5),
            ("abs(-2) + min(3, 4) * max(1, 2)", 8.0),
            ("pow(2, 10) + sqrt(9) + ln(exp(1)) + log10(100)", 1_030.0),
            ("floor(2.7) + ceil(2.2) + round(2.5)", 8.0),
            ("a * \"b c\" + a", 12.0),
            ("coalesce(missing, 4) + coalesce(a, 4)", 7.0),
            ("min + max", 11.0),
        ] {
            let inputs = [("a", 3.0), ("b c", 3.0), ("min", 5.0), ("max", 6.0)];
            let found = value(text, &inputs).expect(text);
            assert!((found - result).abs() < 1e-12, "{text}: {found}");
        }
    }

    #[test]
    fn what_is_no_finite_number_is_no_value_and_stays_none() {
        for text in [
            "1 / 0",
            "0 / 0",
            "5 % 0",
            "sqrt(-1)",
            "ln(0)",
            "1e308 * 10",
            "1 / (1e308 * 10)",
            "missing + 1",
            "min(missing, 1)",
            "max(1, 1 / 0)",
            "pow(missing, 0)",
            "pow(1, missing)",
            "nan",
            "infinite",
            "-infinite",
        ] {
            let inputs = [("nan", f64::NAN), ("infinite", f64::INFINITY)];
            assert_eq!(value(text, &inputs), None, "{text}");
        }
        assert_eq!(value("coalesce(1 / 0, 2)", &[]), Some(2.0));
    }
}

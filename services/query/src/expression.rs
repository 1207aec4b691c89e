//! Arithmetic expressions between the fields of a point or between the aggregates of a window.
//!
//! ```text
//! sum     = product { ("+" | "-") product }
//! product = factor { ("*" | "/" | "%") factor }
//! factor  = "-" factor | number | "(" sum ")" | call | name
//! call    = function "(" sum { "," sum } ")"
//! name    = field                            of a point
//!         | aggregate "(" field ")"          of a window: mean(usage), percentile_99.9("disk used")
//! field   = letters, digits, "_" and ".", starting with a letter or "_"; or any text in double quotes, with \" and \\
//!           as escapes
//! ```
//!
//! The functions of one value are `abs`, `ceil`, `exp`, `floor`, `ln`, `log10`, `round` and `sqrt`. The functions of
//! two values are `min`, `max`, `pow` and `coalesce`, which returns the first value, or the second if the first is
//! missing.
//!
//! All numbers are doubles. Integers beyond 2⁵³ are rounded to the nearest double, so nothing overflows silently. A
//! value can be missing in the input. A step has no value if its result is not finite: a division by zero, the root
//! of a negative number, a number beyond the range of doubles, or NaN. Every step that uses a missing value has no
//! value either, except `coalesce`. The result of `%` has the sign of its left operand.
//!
//! An expression is compiled to steps on a stack of columns, so that a run of points costs one pass per step.

mod parse;

use crate::function::Function;

/// Maximum length of an expression in bytes.
pub const TEXT_BYTES_MAX: u64 = 4_096;
/// Maximum nesting depth of an expression.
pub const DEPTH_MAX: u64 = 64;

/// Parsed expression.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Expression {
    /// Inputs, each once.
    inputs: Vec<Input>,
    steps: Vec<Step>,
}

/// Named input of an expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Input {
    Field(String),
    Aggregate(Function, String),
}

/// Kind of inputs that an expression may name.
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
    /// Index in the list of inputs.
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

/// Stack of reusable column buffers.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stack {
    columns: Vec<Vec<f64>>,
    used: usize,
}

impl Expression {
    /// Returns the inputs, each once.
    pub(crate) fn inputs(&self) -> &[Input] {
        &self.inputs
    }

    /// Evaluates the expression for all rows. NaN represents a missing value, also in the inputs. `input` returns
    /// the column of an input.
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

    /// Returns the column at this depth below the top.
    fn top(&mut self, below: usize) -> &mut Vec<f64> {
        // Stack underflow would be an error of the parser, which every test would detect.
        let at = self.used - 1 - below;
        &mut self.columns[at]
    }

    /// Removes the top column; returns the column below it and the removed one.
    fn pop(&mut self) -> (&mut [f64], &[f64]) {
        self.used -= 1;
        let (left, right) = self.columns.split_at_mut(self.used);
        (&mut left[self.used - 1], &right[0])
    }
}

/// Returns a finite number unchanged, and NaN for any other.
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
        /// Returns `chosen`, or NaN (a missing value) if an operand is NaN.
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
        // An expression must name at least one field.
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

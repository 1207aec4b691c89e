//! Canonical text of expressions, in Prometheus' format.
//!
//! The format normalizes spaces, quotes, the order of matchers, the position of `by`, durations and numbers.
//! Parsing the text yields an equivalent expression.

use std::fmt::{self, Display, Formatter, Result, Write};

use crate::ast::{
    Aggregate, AtModifier, Binary, BinaryOp, Bounds, Cardinality, DurationExpr, DurationValue, Expr,
    MatrixSelector, NumberLiteral, Shift, StringLiteral, Subquery, Unary, VectorMatching, VectorSelector,
};
use crate::labels::METRIC_NAME;
use crate::lex::{is_letter, is_letter_or_digit};
use crate::matcher::{MatchOp, Matcher};
use crate::number::{general, plain};
use crate::quote::{quote, quote_bytes};

/// Writes the expression on one line.
impl Display for Expr {
    fn fmt(&self, out: &mut Formatter<'_>) -> Result {
        match self {
            Self::Number(number) => number.fmt(out),
            Self::String(string) => string.fmt(out),
            Self::Vector(selector) => selector.fmt(out),
            Self::Matrix(matrix) => matrix.fmt(out),
            Self::Subquery(subquery) => write!(out, "{}{}", subquery.expr, Suffix(subquery)),
            Self::Paren(paren) => write!(out, "({})", paren.expr),
            Self::Unary(unary) => write!(out, "{}{}", sign(unary), unary.expr),
            Self::Binary(binary) => {
                // Infinity is written without its plus sign, which would apply to the whole power.
                match &binary.left {
                    Self::Number(number) if number.value == f64::INFINITY && binary.op == BinaryOp::Power => {
                        out.write_str("Inf")?;
                    }
                    left => left.fmt(out)?,
                }
                write!(out, " {} {}", Operator(binary), binary.right)
            }
            Self::Call(call) => {
                write!(out, "{}(", call.function.name)?;
                joined(out, &call.arguments, ", ")?;
                out.write_char(')')
            }
            Self::Aggregate(aggregate) => {
                write!(out, "{}(", Head(aggregate))?;
                if let Some(parameter) = &aggregate.parameter {
                    write!(out, "{parameter}, ")?;
                }
                write!(out, "{})", aggregate.expr)
            }
        }
    }
}

impl Display for NumberLiteral {
    fn fmt(&self, out: &mut Formatter<'_>) -> Result {
        if !self.is_duration {
            return out.write_str(&plain(self.value));
        }
        let sign = if self.value < 0.0 { "-" } else { "" };
        let milliseconds = (self.value.abs() * 1e9) as i64 / 1_000_000;
        write!(out, "{sign}{}", Duration(milliseconds))
    }
}

impl Display for StringLiteral {
    fn fmt(&self, out: &mut Formatter<'_>) -> Result {
        out.write_str(&match &self.invalid {
            Some(bytes) => quote_bytes(bytes),
            None => quote(&self.value),
        })
    }
}

impl Display for VectorSelector {
    fn fmt(&self, out: &mut Formatter<'_>) -> Result {
        Named(self).fmt(out)?;
        if goes_on(&self.shift) {
            shift(out, &self.shift)?;
            return bounds(out, self.bounds);
        }
        at_modifier(out, &self.shift)?;
        bounds(out, self.bounds)?;
        offset(out, &self.shift)
    }
}

impl Display for MatrixSelector {
    fn fmt(&self, out: &mut Formatter<'_>) -> Result {
        let selector = &self.selector;
        write!(out, "{}[{}]", Named(selector), self.range)?;
        if goes_on(&selector.shift) {
            shift(out, &selector.shift)?;
            return bounds(out, selector.bounds);
        }
        bounds(out, selector.bounds)?;
        shift(out, &selector.shift)
    }
}

impl Display for Matcher {
    fn fmt(&self, out: &mut Formatter<'_>) -> Result {
        write!(out, "{}{}{}", Label(&self.name), self.op, quote(&self.value))
    }
}

impl Display for DurationValue {
    fn fmt(&self, out: &mut Formatter<'_>) -> Result {
        match self {
            Self::Fixed(milliseconds) if *milliseconds < 0 => write!(out, "-{}", Duration(-milliseconds)),
            Self::Fixed(milliseconds) => Duration(*milliseconds).fmt(out),
            Self::Computed(expr) => expr.fmt(out),
        }
    }
}

impl Display for DurationExpr {
    fn fmt(&self, out: &mut Formatter<'_>) -> Result {
        match self {
            Self::Number(number) => number.fmt(out),
            Self::Step(_) => out.write_str("step()"),
            Self::Range(_) => out.write_str("range()"),
            Self::Min(left, right, _) => write!(out, "min_of({left}, {right})"),
            Self::Max(left, right, _) => write!(out, "max_of({left}, {right})"),
            Self::Sign(true, inner, _) => write!(out, "-{inner}"),
            Self::Sign(false, inner, _) if matches!(**inner, Self::Paren(..)) => write!(out, "+{inner}"),
            Self::Sign(false, inner, _) => inner.fmt(out),
            Self::Binary(op, left, right) => write!(out, "{left} {} {right}", op.name()),
            Self::Paren(inner, _) => write!(out, "({inner})"),
        }
    }
}

/// Duration in milliseconds, not negative; displayed as `1h30m`.
pub(crate) struct Duration(pub(crate) i64);

impl Display for Duration {
    fn fmt(&self, out: &mut Formatter<'_>) -> Result {
        /// Units with their milliseconds. Years and weeks are used only if they leave no remainder, because
        /// 90d is easier to read than 12w6d.
        const UNITS: [(&str, i64, bool); 7] = [
            ("y", 365 * 86_400_000, true),
            ("w", 7 * 86_400_000, true),
            ("d", 86_400_000, false),
            ("h", 3_600_000, false),
            ("m", 60_000, false),
            ("s", 1000, false),
            ("ms", 1, false),
        ];
        let mut rest = self.0;
        if rest == 0 {
            return out.write_str("0s");
        }
        for (unit, length, is_exact) in UNITS {
            let count = rest / length;
            if count > 0 && (!is_exact || rest % length == 0) {
                write!(out, "{count}{unit}")?;
                rest -= count * length;
            }
        }
        Ok(())
    }
}

/// Label name, quoted unless it is a word.
struct Label<'a>(&'a str);

impl Display for Label<'_> {
    fn fmt(&self, out: &mut Formatter<'_>) -> Result {
        let is_word = self.0.starts_with(is_letter) && self.0.chars().all(is_letter_or_digit);
        if is_word {
            out.write_str(self.0)
        } else {
            out.write_str(&quote(self.0))
        }
    }
}

/// Metric name and matchers of a selector.
struct Named<'a>(&'a VectorSelector);

impl Display for Named<'_> {
    fn fmt(&self, out: &mut Formatter<'_>) -> Result {
        let name = self.0.name.as_deref();
        let is_name = |matcher: &&Matcher| {
            matcher.name == METRIC_NAME
                && matcher.op == MatchOp::Equal
                && name == Some(matcher.value.as_str())
        };
        out.write_str(name.unwrap_or_default())?;
        let others = self.0.matchers.iter().filter(|matcher| !is_name(matcher));
        let mut texts: Vec<String> = others.map(Matcher::to_string).collect();
        texts.sort_unstable();
        if texts.is_empty() && name.is_some() {
            return Ok(());
        }
        write!(out, "{{{}}}", texts.join(","))
    }
}

/// Aggregation up to its opening parenthesis.
pub(crate) struct Head<'a>(pub(crate) &'a Aggregate);

impl Display for Head<'_> {
    fn fmt(&self, out: &mut Formatter<'_>) -> Result {
        let Aggregate {
            op,
            grouping,
            is_without,
            ..
        } = self.0;
        out.write_str(op.name())?;
        if *is_without || !grouping.is_empty() {
            let word = if *is_without { "without" } else { "by" };
            write!(out, " {word} {} ", List(grouping))?;
        }
        Ok(())
    }
}

/// Labels in parentheses.
struct List<'a>(&'a [String]);

impl Display for List<'_> {
    fn fmt(&self, out: &mut Formatter<'_>) -> Result {
        out.write_char('(')?;
        let labels: Vec<_> = self.0.iter().map(|label| Label(label)).collect();
        joined(out, &labels, ", ")?;
        out.write_char(')')
    }
}

/// Binary operator with its modifiers.
pub(crate) struct Operator<'a>(pub(crate) &'a Binary);

impl Display for Operator<'_> {
    fn fmt(&self, out: &mut Formatter<'_>) -> Result {
        out.write_str(self.0.op.name())?;
        if self.0.return_bool {
            out.write_str(" bool")?;
        }
        match &self.0.matching {
            Some(matching) => matching.fmt(out),
            None => Ok(()),
        }
    }
}

impl Display for VectorMatching {
    fn fmt(&self, out: &mut Formatter<'_>) -> Result {
        let group = match self.cardinality {
            Cardinality::ManyToOne => Some("group_left"),
            Cardinality::OneToMany => Some("group_right"),
            Cardinality::OneToOne | Cardinality::ManyToMany => None,
        };
        if self.is_on || !self.labels.is_empty() || group.is_some() {
            let word = if self.is_on { "on" } else { "ignoring" };
            write!(out, " {word} {}", List(&self.labels))?;
        }
        if let Some(group) = group {
            write!(out, " {group} {}", List(&self.include))?;
        }
        if let (Some(left), Some(right)) = (self.fill_left, self.fill_right)
            && left == right
        {
            return write!(out, " fill ({})", general(left));
        }
        for (word, value) in [("fill_left", self.fill_left), ("fill_right", self.fill_right)] {
            if let Some(value) = value {
                write!(out, " {word} ({})", general(value))?;
            }
        }
        Ok(())
    }
}

/// Suffix of a subquery: range, step and time shift.
pub(crate) struct Suffix<'a>(pub(crate) &'a Subquery);

impl Display for Suffix<'_> {
    fn fmt(&self, out: &mut Formatter<'_>) -> Result {
        write!(out, "[{}:", self.0.range)?;
        if let Some(step) = &self.0.step {
            step.fmt(out)?;
        }
        out.write_char(']')?;
        shift(out, &self.0.shift)
    }
}

pub(crate) fn sign(unary: &Unary) -> char {
    if unary.is_negative { '-' } else { '+' }
}

fn shift(out: &mut Formatter<'_>, shift: &Shift) -> Result {
    if goes_on(shift) {
        offset(out, shift)?;
        return at_modifier(out, shift);
    }
    at_modifier(out, shift)?;
    offset(out, shift)
}

/// Returns true if the offset begins with a parenthesis or two minus signs. Operators that follow such an offset
/// directly would become part of it. Therefore the other modifiers are printed after the offset and end it; Prometheus
/// prints them before the offset.
fn goes_on(shift: &Shift) -> bool {
    let offset = shift.offset.as_ref().map(DurationValue::to_string);
    offset.is_some_and(|offset| offset.starts_with('(') || offset.starts_with("--"))
}

fn at_modifier(out: &mut Formatter<'_>, shift: &Shift) -> Result {
    match shift.at {
        None => Ok(()),
        Some(AtModifier::Start) => out.write_str(" @ start()"),
        Some(AtModifier::End) => out.write_str(" @ end()"),
        Some(AtModifier::Instant(at)) => write!(out, " @ {:.3}", at as f64 / 1000.0),
    }
}

fn offset(out: &mut Formatter<'_>, shift: &Shift) -> Result {
    match &shift.offset {
        None => Ok(()),
        Some(offset) => write!(out, " offset {offset}"),
    }
}

fn bounds(out: &mut Formatter<'_>, bounds: Bounds) -> Result {
    out.write_str(match bounds {
        Bounds::Plain => "",
        Bounds::Anchored => " anchored",
        Bounds::Smoothed => " smoothed",
    })
}

fn joined<T: fmt::Display>(out: &mut Formatter<'_>, items: &[T], between: &str) -> Result {
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            out.write_str(between)?;
        }
        item.fmt(out)?;
    }
    Ok(())
}

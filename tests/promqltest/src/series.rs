//! Notation of a series with its values: `name{label="value"} 1 2+3x4 _ stale {{count:1}}`.
//!
//! `a+bxn` denotes the n + 1 values `a`, `a + b`, …; `axn` denotes n + 1 equal values; `_xn` omits n values.
//! Histograms are written in double braces and can be repeated, added and subtracted in the same way.

use std::sync::Arc;

use tideline_promql::histogram::{Histogram, STALE_NAN_BITS};
use tideline_promql::{Labels, LabelsBuilder, MatchOp, parse_selector};

/// Maximum number of values of one item. Scripts use up to a few hundred.
const REPEATED_MAX: usize = 1_000_000;

/// Value of a series.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// No value at this timestamp.
    Omitted,
    /// Float.
    Float(f64),
    /// Histogram.
    Histogram {
        /// Histogram.
        histogram: Arc<Histogram>,
        /// True if the script contains a reset hint. Only then are reset hints compared.
        has_hint: bool,
    },
}

/// Parses a series with its values.
pub(crate) fn parse(line: &str) -> Result<(Labels, Vec<Value>), String> {
    let (metric, rest) = line.split_at(metric_length(line)?);
    let labels = labels(metric)?;
    let mut values = Vec::new();
    let mut rest = rest.trim_start();
    while !rest.is_empty() {
        let (item, behind) = rest.split_at(item_length(rest)?);
        expand(item, &mut values).map_err(|why| format!("{item}: {why}"))?;
        rest = behind.trim_start();
    }
    Ok((labels, values))
}

/// Parses a number in the notation of scripts.
pub(crate) fn number(text: &str) -> Option<f64> {
    match take_number(text)? {
        (number, "") => Some(number),
        _ => None,
    }
}

/// Parses labels such as `name{label="value"}`.
pub(crate) fn labels(metric: &str) -> Result<Labels, String> {
    let matchers = parse_selector(metric).map_err(|error| format!("{metric}: {error}"))?;
    if matchers.iter().any(|matcher| matcher.op != MatchOp::Equal) {
        return Err(format!("{metric}: labels of a series must use ="));
    }
    let mut builder = LabelsBuilder::default();
    for matcher in &matchers {
        builder.set(&matcher.name, &matcher.value);
    }
    Ok(builder.build())
}

/// Returns the length of the metric: to the end of its braces; without braces, to the first space or tab.
fn metric_length(line: &str) -> Result<usize, String> {
    let brace = line.find(['{', ' ', '\t']);
    let Some(brace) = brace.filter(|at| line[*at..].starts_with('{')) else {
        return Ok(brace.unwrap_or(line.len()));
    };
    let mut quote = None;
    let mut is_escaped = false;
    for (at, char) in line.char_indices().skip_while(|(at, _)| *at <= brace) {
        match quote {
            Some(_) if is_escaped => is_escaped = false,
            Some('"' | '\'') if char == '\\' => is_escaped = true,
            Some(open) if char == open => quote = None,
            Some(_) => {}
            None if matches!(char, '"' | '\'' | '`') => quote = Some(char),
            None if char == '}' => return Ok(at + 1),
            None => {}
        }
    }
    Err("a brace is not closed".to_owned())
}

/// Returns the length of an item, which ends before the first space or tab outside a histogram.
fn item_length(text: &str) -> Result<usize, String> {
    let mut from = 0;
    loop {
        let space = text[from..].find([' ', '\t']).map_or(text.len(), |at| from + at);
        let Some(open) = text[from..space].find("{{") else {
            return Ok(space);
        };
        let close = text[from + open..]
            .find("}}")
            .ok_or("a histogram is not closed")?;
        from += open + close + 2;
    }
}

fn expand(item: &str, values: &mut Vec<Value>) -> Result<(), String> {
    if let Some(rest) = item.strip_prefix('_') {
        let count = if rest.is_empty() { 1 } else { repetition(rest)? };
        values.extend(std::iter::repeat_n(Value::Omitted, count));
        return Ok(());
    }
    if item == "stale" {
        values.push(Value::Float(f64::from_bits(STALE_NAN_BITS)));
        return Ok(());
    }
    if item.starts_with("{{") {
        return expand_histogram(item, values);
    }
    let (mut value, rest) = take_number(item).ok_or("not a number")?;
    let (step, count) = match rest.as_bytes().first() {
        None => (0.0, 0),
        Some(b'x') => (0.0, repetition(rest)?),
        Some(_) => {
            let (step, rest) = take_number(rest).ok_or("the step is not a number")?;
            (step, repetition(rest)?)
        }
    };
    for _ in 0..=count {
        values.push(Value::Float(value));
        value += step;
    }
    Ok(())
}

fn expand_histogram(item: &str, values: &mut Vec<Value>) -> Result<(), String> {
    let (histogram, has_hint, rest) = take_histogram(item)?;
    let mut push = |histogram: &Histogram, has_hint| {
        values.push(Value::Histogram {
            histogram: Arc::new(histogram.clone()),
            has_hint,
        });
    };
    if rest.is_empty() || rest.starts_with('x') {
        let count = if rest.is_empty() { 0 } else { repetition(rest)? };
        (0..=count).for_each(|_| push(&histogram, has_hint));
        return Ok(());
    }
    let is_sum = rest.starts_with('+');
    let (step, has_hint, rest) = take_histogram(&rest[1..])?;
    let mut sum = histogram;
    push(&sum, has_hint);
    for _ in 0..repetition(rest)? {
        let added = if is_sum { sum.add(&step) } else { sum.sub(&step) };
        added.map_err(|error| error.to_string())?;
        push(&sum, has_hint);
    }
    Ok(())
}

fn take_histogram(text: &str) -> Result<(Histogram, bool, &str), String> {
    let end = text.find("}}").ok_or("not a histogram")? + 2;
    let (notation, rest) = text.split_at(end);
    let histogram = Histogram::parse(notation).map_err(|error| error.to_string())?;
    Ok((histogram, notation.contains("counter_reset_hint"), rest))
}

/// Parses the count of a repetition such as `x5`.
fn repetition(text: &str) -> Result<usize, String> {
    let count = text.strip_prefix('x').and_then(|count| count.parse().ok());
    count
        .filter(|count| *count <= REPEATED_MAX)
        .ok_or_else(|| format!("{text} is not a repetition such as x5"))
}

/// Parses a signed number at the start of a text. Also returns the rest of the text.
fn take_number(text: &str) -> Option<(f64, &str)> {
    let unsigned = text.trim_start_matches(['+', '-']);
    let sign = text.len() - unsigned.len();
    if sign > 1 {
        return None;
    }
    for word in ["inf", "nan"] {
        if unsigned
            .get(..3)
            .is_some_and(|head| head.eq_ignore_ascii_case(word))
        {
            let (number, rest) = text.split_at(sign + 3);
            return Some((number.parse().ok()?, rest));
        }
    }
    let mut length = unsigned
        .find(|at: char| !at.is_ascii_digit() && at != '.')
        .unwrap_or(unsigned.len());
    if let Some(exponent) = unsigned[length..].strip_prefix(['e', 'E']) {
        let digits = exponent.trim_start_matches(['+', '-']);
        let count = digits
            .find(|at: char| !at.is_ascii_digit())
            .unwrap_or(digits.len());
        length += 1 + (exponent.len() - digits.len()) + count;
    }
    let (number, rest) = text.split_at(sign + length);
    Some((number.parse().ok()?, rest))
}

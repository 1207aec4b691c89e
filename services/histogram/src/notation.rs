//! Text notation of histograms: `{{schema:1 count:4 sum:5.5 z_bucket:1 z_bucket_w:0.001 offset:-2 buckets:[1 0 2]}}`.
//!
//! This is the notation of Prometheus' test scripts. Zero values are omitted. `n_buckets` and `n_offset`
//! describe the negative side, `custom_values` lists custom bounds, and `counter_reset_hint` is `unknown`,
//! `reset`, `not_reset` or `gauge`. An extension of Prometheus' notation is `0*5000` within the buckets: it means 5,000
//! empty buckets, so that distant buckets need little memory. A formatted histogram has at most about 40 bytes per
//! bucket plus 20 KB for empty buckets.

use std::fmt::Write;

use thiserror::Error;

use crate::buckets::side_slots;
use crate::codec::BUCKETS_MAX;
use crate::histogram::{Histogram, ResetHint, Span};
use crate::schema::{CUSTOM_BUCKETS_SCHEMA, SCHEMA_MAX, SCHEMA_MIN};
use crate::spans::{SpansBuilder, check_layout};
use crate::text::Shortest;

/// Maximum gap of empty buckets that is written out one by one, as Prometheus does; a longer gap becomes `0*N`.
const WRITTEN_OUT_MAX: i32 = 1000;

/// Maximum number of empty buckets written out per histogram. Without this limit, a histogram with many gaps would
/// produce a text hundreds of times longer than its nonempty buckets need.
const ALL_WRITTEN_OUT_MAX: i32 = 10_000;

/// Reason why a text is not a histogram.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("a histogram is written as {{{{schema:0 count:1 sum:2 buckets:[1]}}}}: {0}")]
pub struct NotationError(String);

impl Histogram {
    /// Formats the histogram in the notation. [`Self::parse`] restores the histogram, except that empty buckets
    /// may be added or removed, and that the bits of a NaN and the sign of a zero are lost.
    pub fn notation(&self) -> String {
        let mut parts = Vec::new();
        if self.schema != 0 {
            parts.push(format!("schema:{}", self.schema));
        }
        let numbers = [
            ("count", self.count),
            ("sum", self.sum),
            ("z_bucket", self.zero_count),
            ("z_bucket_w", self.zero_threshold),
        ];
        for (name, number) in numbers {
            // NaN is written as well, because it differs from zero.
            if number != 0.0 {
                parts.push(format!("{name}:{}", Shortest(number)));
            }
        }
        if self.uses_custom_buckets() {
            let values = self
                .custom_values
                .iter()
                .map(|value| Shortest(*value).to_string());
            parts.push(format!("custom_values:[{}]", Vec::from_iter(values).join(" ")));
        }
        match self.reset_hint {
            ResetHint::Unknown => {}
            ResetHint::Reset => parts.push("counter_reset_hint:reset".to_owned()),
            ResetHint::NotReset => parts.push("counter_reset_hint:not_reset".to_owned()),
            ResetHint::Gauge => parts.push("counter_reset_hint:gauge".to_owned()),
        }
        // The written buckets including the empty ones must not exceed the limit of `parse`.
        let buckets = self.positive_buckets.len().max(self.negative_buckets.len());
        let mut empty_left = ALL_WRITTEN_OUT_MAX.min(BUCKETS_MAX.saturating_sub(buckets) as i32);
        let positive = (self.positive_spans.as_slice(), self.positive_buckets.as_slice());
        push_side(&mut parts, ["offset", "buckets"], positive, &mut empty_left);
        let negative = (self.negative_spans.as_slice(), self.negative_buckets.as_slice());
        push_side(&mut parts, ["n_offset", "n_buckets"], negative, &mut empty_left);
        format!("{{{{{}}}}}", parts.join(" "))
    }

    /// Parses the notation. Spans and buckets of the result fit each other. Other rules of
    /// [`Self::validate`], such as nonnegative counts, are not checked.
    ///
    /// # Errors
    ///
    /// Returns an error if the braces are missing, a part is unknown or malformed, the schema is invalid, a bucket
    /// index is out of range, or there are more than [`BUCKETS_MAX`] buckets or bounds.
    ///
    /// # Examples
    ///
    /// ```
    /// use tideline_histogram::Histogram;
    ///
    /// let histogram = Histogram::parse("{{schema:1 count:4 sum:5.5 z_bucket:1 buckets:[1 0 2]}}")?;
    /// assert_eq!(histogram.zero_count, 1.0);
    /// assert_eq!(histogram.positive_buckets, [1.0, 0.0, 2.0]);
    /// histogram.validate()?;
    ///
    /// let error = Histogram::parse("{{count}}").expect_err("the count has no value");
    /// assert!(error.to_string().ends_with("missing : after count"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn parse(text: &str) -> Result<Self, NotationError> {
        let inner = text
            .trim()
            .strip_prefix("{{")
            .and_then(|rest| rest.strip_suffix("}}"));
        let mut rest = inner
            .ok_or_else(|| error("missing {{ and }} around the parts"))?
            .trim();
        let mut histogram = Self::default();
        let (mut positive, mut negative) = (SideText::default(), SideText::default());
        while !rest.is_empty() {
            let (name, value) = rest
                .split_once(':')
                .ok_or_else(|| error(format!("missing : after {rest}")))?;
            let (value, after) = split_value(value.trim_start())?;
            match name.to_ascii_lowercase().as_str() {
                "schema" => histogram.schema = schema(value)?,
                "sum" => histogram.sum = number(value)?,
                "count" => histogram.count = number(value)?,
                "z_bucket" => histogram.zero_count = number(value)?,
                "z_bucket_w" => histogram.zero_threshold = number(value)?,
                "custom_values" => histogram.custom_values = numbers(value)?,
                "buckets" => positive.buckets = value,
                "offset" => positive.offset = integer(value)?,
                "n_buckets" => negative.buckets = value,
                "n_offset" => negative.offset = integer(value)?,
                "counter_reset_hint" => histogram.reset_hint = reset_hint(value)?,
                other => return Err(error(format!("unknown part {other}"))),
            }
            rest = after.trim_start();
        }
        (histogram.positive_spans, histogram.positive_buckets) = positive.parse()?;
        (histogram.negative_spans, histogram.negative_buckets) = negative.parse()?;
        Ok(histogram)
    }
}

/// Writes one side. Writes out at most `empty_left` empty buckets and subtracts their number from `empty_left`.
fn push_side(
    parts: &mut Vec<String>,
    [offset, buckets]: [&str; 2],
    (spans, counts): (&[Span], &[f64]),
    empty_left: &mut i32,
) {
    let mut text = String::new();
    let mut before = None;
    for (index, count) in side_slots(spans, counts).filter(|(_, count)| *count != 0.0) {
        match before.map(|before| index - before - 1) {
            None if index != 0 => parts.push(format!("{offset}:{index}")),
            None => {}
            Some(gap) if gap > WRITTEN_OUT_MAX.min(*empty_left) => text.push_str(&format!(" 0*{gap} ")),
            Some(gap) => {
                *empty_left -= gap;
                text.push_str(&" 0".repeat(gap as usize));
                text.push(' ');
            }
        }
        let _ = write!(text, "{}", Shortest(count));
        before = Some(index);
    }
    if !text.is_empty() {
        parts.push(format!("{buckets}:[{text}]"));
    }
}

/// Source text of one side.
#[derive(Default)]
struct SideText<'a> {
    offset: i32,
    buckets: &'a str,
}

impl SideText<'_> {
    fn parse(&self) -> Result<(Vec<Span>, Vec<f64>), NotationError> {
        let (mut spans, mut buckets) = (SpansBuilder::default(), Vec::new());
        let mut index = i64::from(self.offset);
        for word in words(self.buckets)? {
            if let Some(gap) = word.strip_prefix("0*") {
                index = index.saturating_add(
                    gap.parse::<u32>()
                        .map_err(|_| error(format!("bad gap {word}")))?
                        .into(),
                );
                continue;
            }
            let at = i32::try_from(index).map_err(|_| error(format!("bucket {index} is out of range")))?;
            if at == i32::MAX || buckets.len() == BUCKETS_MAX {
                return Err(error(format!(
                    "more than {BUCKETS_MAX} buckets, or one out of range"
                )));
            }
            spans.push(at);
            buckets.push(number(word)?);
            index += 1;
        }
        let spans = spans.build();
        check_layout(&spans, buckets.len()).map_err(|layout| error(layout.to_string()))?;
        Ok((spans, buckets))
    }
}

/// Splits a text after its first value.
fn split_value(text: &str) -> Result<(&str, &str), NotationError> {
    if text.starts_with('[') {
        let end = text.find(']').ok_or_else(|| error("missing ] after ["))?;
        return Ok(text.split_at(end + 1));
    }
    Ok(text.split_at(text.find(char::is_whitespace).unwrap_or(text.len())))
}

fn words(list: &str) -> Result<impl Iterator<Item = &str>, NotationError> {
    let inner = match list {
        "" => "",
        list => list
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
            .ok_or_else(|| error(format!("{list} has no [ and ] around it")))?,
    };
    Ok(inner.split_ascii_whitespace())
}

fn numbers(list: &str) -> Result<Vec<f64>, NotationError> {
    let numbers = words(list)?.map(number).collect::<Result<Vec<_>, _>>()?;
    match numbers.len() <= BUCKETS_MAX {
        true => Ok(numbers),
        false => Err(error(format!("more than {BUCKETS_MAX} bounds"))),
    }
}

fn number(text: &str) -> Result<f64, NotationError> {
    let hexadecimal = text
        .strip_prefix("0x")
        .and_then(|digits| i64::from_str_radix(digits, 16).ok());
    match hexadecimal {
        Some(number) => Ok(number as f64),
        None => text.parse().map_err(|_| error(format!("{text} is not a number"))),
    }
}

fn integer(text: &str) -> Result<i32, NotationError> {
    text.parse()
        .map_err(|_| error(format!("{text} is not a whole number of 32 bits")))
}

fn schema(text: &str) -> Result<i32, NotationError> {
    match integer(text)? {
        schema @ (CUSTOM_BUCKETS_SCHEMA | SCHEMA_MIN..=SCHEMA_MAX) => Ok(schema),
        other => Err(error(format!(
            "schema {other} is neither from {SCHEMA_MIN} to {SCHEMA_MAX} nor {CUSTOM_BUCKETS_SCHEMA}"
        ))),
    }
}

fn reset_hint(text: &str) -> Result<ResetHint, NotationError> {
    Ok(match text.to_ascii_lowercase().as_str() {
        "unknown" => ResetHint::Unknown,
        "reset" => ResetHint::Reset,
        "not_reset" => ResetHint::NotReset,
        "gauge" => ResetHint::Gauge,
        _ => return Err(error(format!("{text} is not a reset hint"))),
    })
}

fn error(message: impl Into<String>) -> NotationError {
    NotationError(message.into())
}

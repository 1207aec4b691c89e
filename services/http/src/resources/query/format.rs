//! What the formats of an answer share: their choice, and how names, times and values are written.

use std::borrow::Cow;
use std::io::{self, Write};

use axum::http::{HeaderMap, header};
use tideline_columnar::Form;
use tideline_model::Tier;
use tideline_openapi::ErrorCode;
use tideline_openapi::query::{IntegerForm, TimeForm};
use tideline_query::{AnswerSink, QueryCost, SinkClosed, Summary, TierCost, ValueRef, histogram_text};

use super::columnar::ColumnarAnswer;
use super::csv::CsvAnswer;
use super::explain::to_plan;
use super::json::JsonAnswer;
use super::ndjson::NdjsonAnswer;
use crate::context::RequestId;
use crate::failure::{Failure, Result};
use crate::resources::timelines::suggested;

/// A format that answers are written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Json,
    Ndjson,
    Csv,
    /// In columns.
    Columnar(Form),
}

/// How an answer is written.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) format: Format,
    pub(crate) times: TimeForm,
    pub(crate) integers: IntegerForm,
    /// Whether the answer says how it was made.
    pub(crate) plan: bool,
    pub(crate) request_id: String,
    /// Whether the question says how many rows it wants at most.
    pub(crate) has_limit: bool,
}

/// A sink that writes a format.
pub(crate) trait FormatSink: AnswerSink {
    /// Writes what stands behind the last row.
    fn end(&mut self, summary: &Summary) -> io::Result<()>;
}

/// Integers beyond this are rounded by whoever reads numbers as doubles.
const EXACT_INTEGER_MAX: u64 = 1 << 53;
/// Names that every row has beside its tags and columns.
const RESERVED_NAMES: [&str; 3] = ["id", "measurement", "time"];

impl Format {
    /// The format that a client likes most of those that can be written; JSON where it does not say.
    pub(crate) fn accepted(headers: &HeaderMap) -> Result<Self> {
        let accept = headers.get_all(header::ACCEPT).iter();
        let texts: Vec<&str> = accept.filter_map(|value| value.to_str().ok()).collect();
        if texts.iter().all(|text| text.trim().is_empty()) {
            return Ok(Self::Json);
        }
        let mut best: Option<(Self, f32)> = None;
        for range in texts.iter().flat_map(|text| text.split(',')) {
            let mut parts = range.split(';').map(str::trim);
            let format = match parts.next().unwrap_or_default().to_ascii_lowercase().as_str() {
                "application/json" | "application/*" | "*/*" => Self::Json,
                "application/x-ndjson" | "application/ndjson" | "application/jsonl" => Self::Ndjson,
                "text/csv" | "application/csv" | "text/*" => Self::Csv,
                "application/vnd.apache.arrow.stream" => Self::Columnar(Form::ArrowStream),
                "application/vnd.apache.parquet" => Self::Columnar(Form::Parquet),
                _ => continue,
            };
            let quality = parts.find_map(|part| part.strip_prefix("q=")).map(str::parse);
            let quality = quality.and_then(|quality| quality.ok()).unwrap_or(1.0f32);
            if quality > best.map_or(0.0, |(_, quality)| quality) {
                best = Some((format, quality));
            }
        }
        best.map(|(format, _)| format).ok_or_else(|| {
            Failure::new(
                ErrorCode::NotAcceptable,
                "answers are written as application/json, application/x-ndjson, text/csv, \
                 application/vnd.apache.arrow.stream or application/vnd.apache.parquet",
            )
        })
    }

    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Ndjson => "application/x-ndjson",
            Self::Csv => "text/csv; charset=utf-8; header=present",
            Self::Columnar(Form::ArrowStream) => "application/vnd.apache.arrow.stream",
            Self::Columnar(Form::Parquet) => "application/vnd.apache.parquet",
        }
    }
}

impl Options {
    /// What the question and its headers ask for.
    pub(crate) fn new(
        headers: &HeaderMap,
        times: TimeForm,
        integers: IntegerForm,
        plan: bool,
        request_id: RequestId,
    ) -> Result<Self> {
        Ok(Self {
            format: Format::accepted(headers)?,
            times,
            integers,
            plan,
            request_id: request_id.into(),
            has_limit: false,
        })
    }

    /// The same for a question that says how many rows it wants at most, or does not.
    pub(crate) fn limited(self, has_limit: bool) -> Self {
        Self { has_limit, ..self }
    }

    /// Refuses an answer that is not whole where nobody asked for a part, and the format has no next page: it would pass
    /// for all there is.
    pub(crate) fn check_whole(&self, summary: &Summary) -> Result<()> {
        let has_pages = matches!(self.format, Format::Json | Format::Ndjson);
        if !summary.more || has_pages || self.has_limit {
            return Ok(());
        }
        Err(Failure::new(
            ErrorCode::OverBudget,
            format!(
                "there are more than {} rows, the most of an answer, and this format has no next page; ask for a shorter \
                 range or with a limit, or for JSON",
                summary.rows
            ),
        ))
    }

    /// The sink that writes it.
    pub(crate) fn sink<'w>(self, out: &'w mut (dyn Write + Send)) -> Box<dyn FormatSink + 'w> {
        match self.format {
            Format::Json => Box::new(JsonAnswer::new(out, self)),
            Format::Ndjson => Box::new(NdjsonAnswer::new(out, self)),
            Format::Csv => Box::new(CsvAnswer::new(out, self)),
            Format::Columnar(form) => Box::new(ColumnarAnswer::new(out, form, self)),
        }
    }
}

/// Hands a finished piece of text on and keeps its buffer.
pub(super) fn hand_on(
    out: &mut (dyn Write + Send),
    buffer: &mut Vec<u8>,
) -> std::result::Result<(), SinkClosed> {
    let written = out.write_all(buffer);
    buffer.clear();
    written.map_err(|_| SinkClosed)
}

/// The name of a column in a flat row, where tags and columns stand side by side.
pub(super) fn flat_column(name: &str) -> Cow<'_, str> {
    if RESERVED_NAMES.contains(&name) {
        return format!("field:{name}").into();
    }
    name.into()
}

/// The name of a tag in a flat row.
pub(super) fn flat_tag<'a>(key: &'a str, columns: &[String]) -> Cow<'a, str> {
    if RESERVED_NAMES.contains(&key) || columns.iter().any(|column| column == key) {
        return format!("tag:{key}").into();
    }
    key.into()
}

pub(crate) fn put_json_text(text: &str, out: &mut Vec<u8>) {
    // Writing a text to memory cannot fail.
    let _ = serde_json::to_writer(out, text);
}

pub(crate) fn put_json_value(value: ValueRef<'_>, integers: IntegerForm, out: &mut Vec<u8>) {
    let is_quoted = match value {
        ValueRef::Float(value) => !value.is_finite(),
        ValueRef::Signed(value) => {
            integers == IntegerForm::String && value.unsigned_abs() > EXACT_INTEGER_MAX
        }
        ValueRef::Unsigned(value) => integers == IntegerForm::String && value > EXACT_INTEGER_MAX,
        ValueRef::Boolean(_) => false,
        ValueRef::String(text) => return put_json_text(text, out),
        ValueRef::Histogram(stored) => return put_json_text(&histogram_text(stored), out),
    };
    if is_quoted {
        out.push(b'"');
        put_plain_value(value, out);
        out.push(b'"');
    } else {
        put_plain_value(value, out);
    }
}

/// A value as text without quotes. Floats have a point or an exponent, so that they read back as such.
pub(super) fn put_plain_value(value: ValueRef<'_>, out: &mut Vec<u8>) {
    match value {
        ValueRef::Float(value) if value.is_nan() => out.extend_from_slice(b"NaN"),
        ValueRef::Float(f64::INFINITY) => out.extend_from_slice(b"Inf"),
        ValueRef::Float(f64::NEG_INFINITY) => out.extend_from_slice(b"-Inf"),
        ValueRef::Float(value) => out.extend_from_slice(zmij::Buffer::new().format_finite(value).as_bytes()),
        ValueRef::Signed(value) => out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes()),
        ValueRef::Unsigned(value) => out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes()),
        ValueRef::Boolean(value) => out.extend_from_slice(if value { b"true" } else { b"false" }),
        ValueRef::String(text) => out.extend_from_slice(text.as_bytes()),
        ValueRef::Histogram(stored) => out.extend_from_slice(histogram_text(stored).as_bytes()),
    }
}

/// A time as a JSON value; `null` for the start of a range that has none.
pub(crate) fn put_json_time(nanos: i64, form: TimeForm, out: &mut Vec<u8>) {
    match form {
        _ if nanos == i64::MIN => out.extend_from_slice(b"null"),
        TimeForm::Nanos => out.extend_from_slice(itoa::Buffer::new().format(nanos).as_bytes()),
        TimeForm::Rfc3339 => {
            out.push(b'"');
            put_rfc3339(nanos, out);
            out.push(b'"');
        }
    }
}

/// A time as text without quotes; nothing for the start of a range that has none.
pub(super) fn put_plain_time(nanos: i64, form: TimeForm, out: &mut Vec<u8>) {
    match form {
        _ if nanos == i64::MIN => {}
        TimeForm::Nanos => out.extend_from_slice(itoa::Buffer::new().format(nanos).as_bytes()),
        TimeForm::Rfc3339 => put_rfc3339(nanos, out),
    }
}

/// Writes `"more":…,"next":…,"cost":{…}`, with `"estimated":[…]` and `"overflowed":[…]` before the cost where a column is, and
/// `"suggestions":[…]` where a name is unknown; the cost
/// with the plan where it is requested.
pub(super) fn put_summary(summary: &Summary, has_plan: bool, out: &mut Vec<u8>) {
    let QueryCost {
        timelines, elapsed, ..
    } = summary.cost;
    let TierCost {
        chunks,
        points,
        values,
        bytes,
        ..
    } = summary.cost.total();
    let more = summary.more;
    let micros = elapsed.as_micros() as f64;
    // Writing to memory cannot fail.
    let _ = write!(out, "\"more\":{more},\"next\":");
    match &summary.next {
        Some(next) => put_json_text(next, out),
        None => out.extend_from_slice(b"null"),
    }
    for (member, columns) in [
        ("estimated", &summary.estimated),
        ("overflowed", &summary.overflowed),
    ] {
        if !columns.is_empty() {
            let _ = write!(out, ",\"{member}\":");
            let _ = serde_json::to_writer(&mut *out, columns);
        }
    }
    if !summary.suggestions.is_empty() {
        let shown: Vec<_> = summary.suggestions.iter().cloned().map(suggested).collect();
        out.extend_from_slice(b",\"suggestions\":");
        let _ = serde_json::to_writer(&mut *out, &shown);
    }
    let _ = write!(
        out,
        ",\"cost\":{{\"timelines\":{timelines},\"chunks\":{chunks},\"points\":{points},\"values\":{values},\
         \"bytes\":{bytes},\"elapsed_ms\":{},\"tiers\":{{",
        micros / 1_000.0
    );
    for (at, tier) in Tier::ALL.into_iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        put_tier_cost(tier, summary.cost.of(tier), out);
    }
    out.push(b'}');
    if has_plan {
        out.extend_from_slice(b",\"plan\":");
        let _ = serde_json::to_writer(&mut *out, &to_plan(summary.plan.clone()));
    }
    out.push(b'}');
}

fn put_tier_cost(tier: Tier, cost: TierCost, out: &mut Vec<u8>) {
    let TierCost {
        segments,
        chunks,
        points,
        values,
        bytes,
        summaries,
        summarized_points,
    } = cost;
    // Writing to memory cannot fail.
    let _ = write!(
        out,
        "\"{tier}\":{{\"segments\":{segments},\"chunks\":{chunks},\"points\":{points},\"values\":{values},\
         \"bytes\":{bytes},\"summaries\":{summaries},\"summarized_points\":{summarized_points}}}"
    );
}

/// What `Timestamp::to_rfc3339` writes, at a tenth of its cost: a row has a time, and answers have millions of rows.
///
/// The date is Howard Hinnant's `civil_from_days`
/// (<https://howardhinnant.github.io/date_algorithms.html#civil_from_days>): years begin in March, so that the leap
/// day is the last one.
fn put_rfc3339(nanos: i64, out: &mut Vec<u8>) {
    let (seconds, fraction) = (nanos.div_euclid(1_000_000_000), nanos.rem_euclid(1_000_000_000));
    let (days, second_of_day) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    put_digits(year, 4, out);
    out.push(b'-');
    put_digits(month, 2, out);
    out.push(b'-');
    put_digits(day, 2, out);
    out.push(b'T');
    put_digits(second_of_day / 3_600, 2, out);
    out.push(b':');
    put_digits(second_of_day / 60 % 60, 2, out);
    out.push(b':');
    put_digits(second_of_day % 60, 2, out);
    let (digits, shown) = match fraction {
        0 => (0, 0),
        fraction if fraction % 1_000_000 == 0 => (3, fraction / 1_000_000),
        fraction if fraction % 1_000 == 0 => (6, fraction / 1_000),
        fraction => (9, fraction),
    };
    if digits > 0 {
        out.push(b'.');
        put_digits(shown, digits, out);
    }
    out.push(b'Z');
}

/// The last `count` decimal digits of a number that is not negative.
fn put_digits(number: i64, count: usize, out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + count, b'0');
    let mut rest = number;
    for digit in out[start..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;
    use tideline_model::Timestamp;

    use super::*;

    fn accepted(accept: &str) -> Result<Format> {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, HeaderValue::from_str(accept).expect("plain"));
        Format::accepted(&headers)
    }

    #[test]
    fn the_client_chooses_the_format() {
        for (accept, format) in [
            ("*/*", Format::Json),
            ("", Format::Json),
            ("text/csv", Format::Csv),
            ("text/html, application/x-ndjson;q=0.9, */*;q=0.1", Format::Ndjson),
            ("application/json;q=0.5, text/csv", Format::Csv),
            ("Application/JSON; charset=utf-8", Format::Json),
        ] {
            assert_eq!(accepted(accept).expect(accept), format, "{accept}");
        }
        assert_eq!(
            Format::accepted(&HeaderMap::new()).expect("none is any"),
            Format::Json
        );
        for wrong in ["image/png", "text/csv;q=0"] {
            assert_eq!(accepted(wrong).expect_err(wrong).code, ErrorCode::NotAcceptable);
        }
    }

    #[test]
    fn times_are_written_as_the_model_writes_them() {
        let mut nanos = Timestamp::MIN.nanos();
        let mut step = 1;
        while nanos < Timestamp::MAX.nanos() - step {
            for near in [
                nanos,
                nanos / 1_000 * 1_000,
                nanos / 1_000_000 * 1_000_000,
                nanos / 1_000_000_000 * 1_000_000_000,
            ] {
                let mut text = Vec::new();
                put_rfc3339(near, &mut text);
                let wanted = Timestamp::from_nanos_clamped(near).to_rfc3339();
                assert_eq!(String::from_utf8_lossy(&text), wanted, "{near}");
            }
            step = (step % 4_000_000_000_000_000).wrapping_mul(3) + 86_399_999_999_937;
            nanos += step;
        }
    }

    #[test]
    fn values_keep_their_type() {
        let shown = |value| {
            let mut out = Vec::new();
            put_json_value(value, IntegerForm::String, &mut out);
            String::from_utf8(out).expect("text")
        };
        assert_eq!(shown(ValueRef::Float(1.0)), "1.0");
        assert_eq!(shown(ValueRef::Float(f64::NEG_INFINITY)), "\"-Inf\"");
        assert_eq!(shown(ValueRef::Signed(-(1 << 53))), "-9007199254740992");
        assert_eq!(shown(ValueRef::Signed(i64::MIN)), "\"-9223372036854775808\"");
        assert_eq!(shown(ValueRef::Unsigned(u64::MAX)), "\"18446744073709551615\"");
        assert_eq!(shown(ValueRef::String("a\"\n")), r#""a\"\n""#);
    }
}

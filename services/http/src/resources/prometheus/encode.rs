//! Values of PromQL as Prometheus' API writes them in JSON.
//!
//! Times are seconds, with three digits behind the point where they are not whole. Numbers are texts, in the shortest
//! form that reads back the same, written as Go writes them.

use tideline_histogram::Histogram;
use tideline_promql::{Labels, Point, QueryValue, Sample, Series};

use tideline_results::put_json_text;

/// Numbers below this, zero apart, are written with an exponent, in vectors and matrices.
const PLAIN_MIN: f64 = 1e-6;
/// So are those from here.
const PLAIN_END: f64 = 1e21;
/// Whole numbers below this are exact integers.
const INTEGER_END: f64 = 1e15;

/// How small and large numbers are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// With an exponent, `1e-07`.
    Short,
    /// With all digits, `0.0000001`.
    Plain,
}

/// Bytes of text after which `hand_on` is called within a series.
const PIECE_BYTES: usize = 64 << 10;

/// `"resultType":…,"result":…`. `hand_on` is called behind each series, and within a long one, so that text does not pile up:
/// one series may have as many samples as an evaluation may hold.
pub(super) fn put_result<E>(
    value: &QueryValue,
    out: &mut Vec<u8>,
    hand_on: &mut dyn FnMut(&mut Vec<u8>) -> Result<(), E>,
) -> Result<(), E> {
    let kind: &[u8] = match value {
        QueryValue::Scalar { .. } => b"scalar",
        QueryValue::String { .. } => b"string",
        QueryValue::Vector(_) => b"vector",
        QueryValue::Matrix(_) => b"matrix",
    };
    out.extend_from_slice(b"\"resultType\":\"");
    out.extend_from_slice(kind);
    out.extend_from_slice(b"\",\"result\":[");
    match value {
        QueryValue::Scalar { time, value } => {
            put_time(*time, out);
            out.push(b',');
            put_number(*value, Form::Plain, out);
        }
        QueryValue::String { time, value } => {
            put_time(*time, out);
            out.push(b',');
            put_json_text(value, out);
        }
        QueryValue::Vector(samples) => {
            for (at, sample) in samples.iter().enumerate() {
                put_comma(at, out);
                put_sample(sample, out);
                hand_on(out)?;
            }
        }
        QueryValue::Matrix(all) => {
            for (at, series) in all.iter().enumerate() {
                put_comma(at, out);
                put_series(series, out, hand_on)?;
                hand_on(out)?;
            }
        }
    }
    out.push(b']');
    Ok(())
}

fn put_sample(sample: &Sample, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"metric\":");
    put_labels(&sample.labels, out);
    match &sample.value {
        Point::Float(value) => {
            out.extend_from_slice(b",\"value\":");
            put_point(sample.time, *value, out);
        }
        Point::Histogram(histogram) => {
            out.extend_from_slice(b",\"histogram\":");
            put_histogram_point(sample.time, histogram, out);
        }
    }
    out.push(b'}');
}

fn put_series<E>(
    series: &Series,
    out: &mut Vec<u8>,
    hand_on: &mut dyn FnMut(&mut Vec<u8>) -> Result<(), E>,
) -> Result<(), E> {
    let mut hand_on = |out: &mut Vec<u8>| match out.len() >= PIECE_BYTES {
        true => hand_on(out),
        false => Ok(()),
    };
    out.extend_from_slice(b"{\"metric\":");
    put_labels(&series.labels, out);
    if !series.floats.is_empty() {
        out.extend_from_slice(b",\"values\":[");
        for (at, (time, value)) in series.floats.iter().enumerate() {
            put_comma(at, out);
            put_point(*time, *value, out);
            hand_on(out)?;
        }
        out.push(b']');
    }
    if !series.histograms.is_empty() {
        out.extend_from_slice(b",\"histograms\":[");
        for (at, (time, histogram)) in series.histograms.iter().enumerate() {
            put_comma(at, out);
            put_histogram_point(*time, histogram, out);
            hand_on(out)?;
        }
        out.push(b']');
    }
    out.push(b'}');
    Ok(())
}

/// Labels as an object.
pub(super) fn put_labels(labels: &Labels, out: &mut Vec<u8>) {
    out.push(b'{');
    for (at, (name, value)) in labels.iter().enumerate() {
        put_comma(at, out);
        put_json_text(name, out);
        out.push(b':');
        put_json_text(value, out);
    }
    out.push(b'}');
}

fn put_point(time: i64, value: f64, out: &mut Vec<u8>) {
    out.push(b'[');
    put_time(time, out);
    out.push(b',');
    put_number(value, Form::Short, out);
    out.push(b']');
}

fn put_histogram_point(time: i64, histogram: &Histogram, out: &mut Vec<u8>) {
    out.push(b'[');
    put_time(time, out);
    out.push(b',');
    put_histogram(histogram, out);
    out.push(b']');
}

/// `{"count":…,"sum":…,"buckets":[[edges,lower,upper,count],…]}`, without empty buckets; edges say which bounds belong to
/// the bucket: 0 the upper, 1 the lower, 2 none, 3 both.
fn put_histogram(histogram: &Histogram, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"count\":");
    put_number(histogram.count, Form::Short, out);
    out.extend_from_slice(b",\"sum\":");
    put_number(histogram.sum, Form::Short, out);
    let mut buckets = 0;
    for (edges, lower, upper, count) in histogram.listed_buckets() {
        out.extend_from_slice(if buckets == 0 { b",\"buckets\":[[" } else { b",[" });
        buckets += 1;
        out.push(b'0' + edges);
        for number in [lower, upper, count] {
            out.push(b',');
            put_number(number, Form::Short, out);
        }
        out.push(b']');
    }
    if buckets > 0 {
        out.push(b']');
    }
    out.push(b'}');
}

pub(super) fn put_comma(at: usize, out: &mut Vec<u8>) {
    if at > 0 {
        out.push(b',');
    }
}

/// An instant in milliseconds as seconds.
pub(super) fn put_time(millis: i64, out: &mut Vec<u8>) {
    if millis < 0 {
        out.push(b'-');
    }
    let millis = millis.unsigned_abs();
    out.extend_from_slice(itoa::Buffer::new().format(millis / 1_000).as_bytes());
    let part = (millis % 1_000) as u16;
    if part > 0 {
        let digit = |unit: u16| b'0' + (part / unit % 10) as u8;
        out.extend_from_slice(&[b'.', digit(100), digit(10), digit(1)]);
    }
}

/// A number as a JSON text.
pub(super) fn put_number(value: f64, form: Form, out: &mut Vec<u8>) {
    out.push(b'"');
    put_plain_number(value, form, out);
    out.push(b'"');
}

/// A number without quotes.
pub(super) fn put_plain_number(value: f64, form: Form, out: &mut Vec<u8>) {
    if value.is_nan() {
        return out.extend_from_slice(b"NaN");
    }
    if value.is_infinite() {
        return out.extend_from_slice(if value > 0.0 { b"+Inf" } else { b"-Inf" });
    }
    let size = value.abs();
    if size < INTEGER_END && size.fract() == 0.0 && !(value == 0.0 && value.is_sign_negative()) {
        return out.extend_from_slice(itoa::Buffer::new().format(value as i64).as_bytes());
    }
    let mut buffer = zmij::Buffer::new();
    let text = buffer.format_finite(value);
    let has_exponent = form == Form::Short && size != 0.0 && !(PLAIN_MIN..PLAIN_END).contains(&size);
    if !has_exponent && !text.contains('e') {
        return out.extend_from_slice(text.strip_suffix(".0").unwrap_or(text).as_bytes());
    }
    let (digits, exponent) = Digits::of(text);
    if value < 0.0 {
        out.push(b'-');
    }
    match has_exponent {
        true => digits.put_short(exponent, out),
        false => digits.put_plain(exponent, out),
    }
}

/// The digits of a number that is not zero, without zeros at either end.
struct Digits {
    bytes: [u8; 24],
    count: usize,
}

impl Digits {
    /// Of a number's text: its digits, and the power of ten that the first one stands for.
    fn of(text: &str) -> (Self, i32) {
        let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
        let mantissa = mantissa.trim_start_matches('-');
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let mut digits = Self {
            bytes: [0; 24],
            count: 0,
        };
        let mut leading_zeros = 0;
        for digit in whole.bytes().chain(fraction.bytes()) {
            if digits.count == 0 && digit == b'0' {
                leading_zeros += 1;
            } else if digits.count < digits.bytes.len() {
                digits.bytes[digits.count] = digit;
                digits.count += 1;
            }
        }
        while digits.count > 1 && digits.bytes[digits.count - 1] == b'0' {
            digits.count -= 1;
        }
        let written: i32 = exponent.parse().unwrap_or(0);
        (digits, written + whole.len() as i32 - 1 - leading_zeros)
    }

    fn all(&self) -> &[u8] {
        &self.bytes[..self.count]
    }

    /// `d.ddde±xx`, with two digits of exponent at least.
    fn put_short(&self, exponent: i32, out: &mut Vec<u8>) {
        let (first, rest) = self.all().split_at(1);
        out.extend_from_slice(first);
        if !rest.is_empty() {
            out.push(b'.');
            out.extend_from_slice(rest);
        }
        out.extend_from_slice(if exponent < 0 { b"e-" } else { b"e+" });
        let size = exponent.unsigned_abs();
        if size < 10 {
            out.push(b'0');
        }
        out.extend_from_slice(itoa::Buffer::new().format(size).as_bytes());
    }

    /// All digits, with the zeros that are needed.
    fn put_plain(&self, exponent: i32, out: &mut Vec<u8>) {
        let digits = self.all();
        if exponent < 0 {
            out.extend_from_slice(b"0.");
            out.resize(out.len() + (-exponent - 1) as usize, b'0');
            return out.extend_from_slice(digits);
        }
        let whole = exponent as usize + 1;
        if digits.len() <= whole {
            out.extend_from_slice(digits);
            return out.resize(out.len() + whole - digits.len(), b'0');
        }
        out.extend_from_slice(&digits[..whole]);
        out.push(b'.');
        out.extend_from_slice(&digits[whole..]);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tideline_histogram::Span;

    use super::*;

    fn number(value: f64, form: Form) -> String {
        let mut out = Vec::new();
        put_plain_number(value, form, &mut out);
        String::from_utf8(out).expect("digits")
    }

    fn json(value: &QueryValue) -> String {
        let mut out = Vec::new();
        put_result::<()>(value, &mut out, &mut |_| Ok(())).expect("nobody fails");
        String::from_utf8(out).expect("JSON")
    }

    #[test]
    fn numbers_are_written_as_go_writes_them() {
        for (value, short, plain) in [
            (0.0, "0", "0"),
            (-0.0, "-0", "-0"),
            (2.0, "2", "2"),
            (-1.5, "-1.5", "-1.5"),
            (0.1, "0.1", "0.1"),
            (1e-6, "0.000001", "0.000001"),
            (1e-7, "1e-07", "0.0000001"),
            (-1.25e-7, "-1.25e-07", "-0.000000125"),
            (0.000_012_5, "0.0000125", "0.0000125"),
            (1e20, "100000000000000000000", "100000000000000000000"),
            (
                123_456_789_012_345_680_000.0,
                "123456789012345680000",
                "123456789012345680000",
            ),
            (1e21, "1e+21", "1000000000000000000000"),
            (1.5e300, "1.5e+300", &format!("15{}", "0".repeat(299))),
            (5e-324, "5e-324", &format!("0.{}5", "0".repeat(323))),
            (
                f64::MAX,
                "1.7976931348623157e+308",
                &format!("17976931348623157{}", "0".repeat(292)),
            ),
            (9_007_199_254_740_993.0, "9007199254740992", "9007199254740992"),
            (1e15, "1000000000000000", "1000000000000000"),
            (
                1_234_567_890_123_456.5,
                "1234567890123456.5",
                "1234567890123456.5",
            ),
            (f64::NAN, "NaN", "NaN"),
            (f64::INFINITY, "+Inf", "+Inf"),
            (f64::NEG_INFINITY, "-Inf", "-Inf"),
        ] {
            assert_eq!(number(value, Form::Short), short);
            assert_eq!(number(value, Form::Plain), plain);
        }
    }

    #[test]
    fn every_number_reads_back_the_same() {
        let mut bits = tideline_testkit::seed("every number");
        for _ in 0..20_000 {
            bits = bits
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let value = f64::from_bits(bits);
            if !value.is_finite() {
                continue;
            }
            for form in [Form::Short, Form::Plain] {
                let text = number(value, form);
                assert_eq!(text.parse::<f64>().map(f64::to_bits), Ok(bits), "{text}");
            }
        }
    }

    #[test]
    fn times_have_three_digits_of_milliseconds_or_none() {
        for (millis, text) in [
            (0, "0"),
            (4_000, "4"),
            (4_001, "4.001"),
            (1_435_781_451_780, "1435781451.780"),
            (-1, "-0.001"),
            (-1_500, "-1.500"),
            (i64::MIN, "-9223372036854775.808"),
        ] {
            let mut out = Vec::new();
            put_time(millis, &mut out);
            assert_eq!(String::from_utf8_lossy(&out), text);
        }
    }

    #[test]
    fn results_are_written_as_prometheus_writes_them() {
        let scalar = QueryValue::Scalar {
            time: 4_000,
            value: 2.0,
        };
        assert_eq!(json(&scalar), r#""resultType":"scalar","result":[4,"2"]"#);
        let text = QueryValue::String {
            time: 1,
            value: "a \"b\"\n".into(),
        };
        assert_eq!(
            json(&text),
            r#""resultType":"string","result":[0.001,"a \"b\"\n"]"#
        );
        assert_eq!(
            json(&QueryValue::Vector(Vec::new())),
            r#""resultType":"vector","result":[]"#
        );
        assert_eq!(
            json(&QueryValue::Matrix(Vec::new())),
            r#""resultType":"matrix","result":[]"#
        );
        let labels = Labels::from_sorted([("__name__", "up"), ("job", "a")]);
        let vector = QueryValue::Vector(vec![
            Sample {
                labels: labels.clone(),
                time: 1_435_781_451_781,
                value: Point::Float(1e-7),
            },
            Sample {
                labels: Labels::empty(),
                time: 0,
                value: Point::Float(f64::NAN),
            },
        ]);
        assert_eq!(
            json(&vector),
            "\"resultType\":\"vector\",\"result\":[{\"metric\":{\"__name__\":\"up\",\"job\":\"a\"},\
             \"value\":[1435781451.781,\"1e-07\"]},{\"metric\":{},\"value\":[0,\"NaN\"]}]"
        );
        let matrix = QueryValue::Matrix(vec![Series {
            labels,
            floats: vec![(1_000, 1.0), (2_500, f64::INFINITY)],
            histograms: vec![(3_000, Arc::new(histogram()))],
        }]);
        assert_eq!(
            json(&matrix),
            "\"resultType\":\"matrix\",\"result\":[{\"metric\":{\"__name__\":\"up\",\"job\":\"a\"},\
             \"values\":[[1,\"1\"],[2.500,\"+Inf\"]],\"histograms\":[[3,{\"count\":\"10\",\"sum\":\"20\",\"buckets\":[\
             [1,\"-1.414213562373095\",\"-1\",\"2\"],[3,\"-0.001\",\"0.001\",\"3\"],[0,\"0.7071067811865475\",\"1\",\"5\"]\
             ]}]]}]"
        );
    }

    fn histogram() -> Histogram {
        let span = |offset, length| vec![Span { offset, length }];
        Histogram {
            schema: 1,
            zero_threshold: 0.001,
            zero_count: 3.0,
            count: 10.0,
            sum: 20.0,
            positive_spans: span(0, 2),
            positive_buckets: vec![5.0, 0.0],
            negative_spans: span(1, 1),
            negative_buckets: vec![2.0],
            ..Histogram::default()
        }
    }
}

//! JSON responses of Prometheus' HTTP API: the envelope, lists, and the values of PromQL.
//!
//! Text is written in fragments, so that memory does not grow with the response.

use std::io::Write;

use tideline_histogram::Histogram;
use tideline_promql::{Labels, Point, QueryValue, Result, Sample, Series};

use crate::failure::client_left;
use crate::number::{NumberForm, put_number, put_time};

/// Warning for a response that `limit` has truncated.
pub(crate) const TRUNCATED: &str = "results truncated due to limit";

/// Start of every successful response, up to its data.
pub(crate) const SUCCESS: &[u8] = b"{\"status\":\"success\",\"data\":";

/// Buffer size in bytes at which the text of an incomplete series is written to the client.
const FLUSH_BYTES: usize = 64 << 10;

/// Writes a response whose data is an array; `put` appends one item.
pub(crate) fn write_list<T>(
    items: &[T],
    put: impl Fn(&T, &mut Vec<u8>),
    warnings: &[String],
    out: &mut dyn Write,
) -> Result<()> {
    let mut text = SUCCESS.to_vec();
    text.push(b'[');
    for (at, item) in items.iter().enumerate() {
        put_comma(at, &mut text);
        put(item, &mut text);
        pass(&mut text, out)?;
    }
    text.push(b']');
    put_notes(warnings, &[], &mut text);
    pass(&mut text, out)
}

/// Writes text to the client and empties its buffer.
pub(crate) fn pass(text: &mut Vec<u8>, out: &mut dyn Write) -> Result<()> {
    out.write_all(text).map_err(client_left)?;
    text.clear();
    Ok(())
}

/// Ends a response after its data: `,"warnings":[…],"infos":[…]}`. Empty arrays are omitted.
pub(crate) fn put_notes(warnings: &[String], infos: &[String], text: &mut Vec<u8>) {
    for (name, notes) in [("warnings", warnings), ("infos", infos)] {
        if notes.is_empty() {
            continue;
        }
        text.extend_from_slice(b",\"");
        text.extend_from_slice(name.as_bytes());
        text.extend_from_slice(b"\":[");
        for (at, note) in notes.iter().enumerate() {
            put_comma(at, text);
            put_json_text(note, text);
        }
        text.push(b']');
    }
    text.push(b'}');
}

/// Writes `"resultType":…,"result":…`. Text is written after each series and within a long one, since one series
/// can have as many samples as an evaluation may hold.
pub(crate) fn put_result(value: &QueryValue, text: &mut Vec<u8>, out: &mut dyn Write) -> Result<()> {
    let kind: &[u8] = match value {
        QueryValue::Scalar { .. } => b"scalar",
        QueryValue::String { .. } => b"string",
        QueryValue::Vector(_) => b"vector",
        QueryValue::Matrix(_) => b"matrix",
    };
    text.extend_from_slice(b"\"resultType\":\"");
    text.extend_from_slice(kind);
    text.extend_from_slice(b"\",\"result\":[");
    match value {
        QueryValue::Scalar { time, value } => {
            put_time(*time, text);
            text.push(b',');
            put_number(*value, NumberForm::Plain, text);
        }
        QueryValue::String { time, value } => {
            put_time(*time, text);
            text.push(b',');
            put_json_text(value, text);
        }
        QueryValue::Vector(samples) => {
            for (at, sample) in samples.iter().enumerate() {
                put_comma(at, text);
                put_sample(sample, text);
                pass(text, out)?;
            }
        }
        QueryValue::Matrix(all) => {
            for (at, series) in all.iter().enumerate() {
                put_comma(at, text);
                put_series(series, text, out)?;
                pass(text, out)?;
            }
        }
    }
    text.push(b']');
    Ok(())
}

fn put_sample(sample: &Sample, text: &mut Vec<u8>) {
    text.extend_from_slice(b"{\"metric\":");
    put_labels(&sample.labels, text);
    match &sample.value {
        Point::Float(value) => {
            text.extend_from_slice(b",\"value\":");
            put_point(sample.time, *value, text);
        }
        Point::Histogram(histogram) => {
            text.extend_from_slice(b",\"histogram\":");
            put_histogram_point(sample.time, histogram, text);
        }
    }
    text.push(b'}');
}

fn put_series(series: &Series, text: &mut Vec<u8>, out: &mut dyn Write) -> Result<()> {
    let mut pass_long = |text: &mut Vec<u8>| match text.len() >= FLUSH_BYTES {
        true => pass(text, out),
        false => Ok(()),
    };
    text.extend_from_slice(b"{\"metric\":");
    put_labels(&series.labels, text);
    if !series.floats.is_empty() {
        text.extend_from_slice(b",\"values\":[");
        for (at, (time, value)) in series.floats.iter().enumerate() {
            put_comma(at, text);
            put_point(*time, *value, text);
            pass_long(text)?;
        }
        text.push(b']');
    }
    if !series.histograms.is_empty() {
        text.extend_from_slice(b",\"histograms\":[");
        for (at, (time, histogram)) in series.histograms.iter().enumerate() {
            put_comma(at, text);
            put_histogram_point(*time, histogram, text);
            pass_long(text)?;
        }
        text.push(b']');
    }
    text.push(b'}');
    Ok(())
}

/// Writes labels as an object.
pub(crate) fn put_labels(labels: &Labels, text: &mut Vec<u8>) {
    text.push(b'{');
    for (at, (name, value)) in labels.iter().enumerate() {
        put_comma(at, text);
        put_json_text(name, text);
        text.push(b':');
        put_json_text(value, text);
    }
    text.push(b'}');
}

fn put_point(time: i64, value: f64, text: &mut Vec<u8>) {
    text.push(b'[');
    put_time(time, text);
    text.push(b',');
    put_number(value, NumberForm::Short, text);
    text.push(b']');
}

fn put_histogram_point(time: i64, histogram: &Histogram, text: &mut Vec<u8>) {
    text.push(b'[');
    put_time(time, text);
    text.push(b',');
    put_histogram(histogram, text);
    text.push(b']');
}

/// Writes `{"count":…,"sum":…,"buckets":[[edges,lower,upper,count],…]}` without empty buckets. `buckets` is omitted
/// if all are empty. `edges` encodes which bounds are inclusive: 0 = upper, 1 = lower, 2 = neither, 3 = both.
fn put_histogram(histogram: &Histogram, text: &mut Vec<u8>) {
    text.extend_from_slice(b"{\"count\":");
    put_number(histogram.count, NumberForm::Short, text);
    text.extend_from_slice(b",\"sum\":");
    put_number(histogram.sum, NumberForm::Short, text);
    let mut buckets = 0;
    for (edges, lower, upper, count) in histogram.listed_buckets() {
        text.extend_from_slice(if buckets == 0 { b",\"buckets\":[[" } else { b",[" });
        buckets += 1;
        text.push(b'0' + edges);
        for number in [lower, upper, count] {
            text.push(b',');
            put_number(number, NumberForm::Short, text);
        }
        text.push(b']');
    }
    if buckets > 0 {
        text.push(b']');
    }
    text.push(b'}');
}

pub(crate) fn put_comma(at: usize, text: &mut Vec<u8>) {
    if at > 0 {
        text.push(b',');
    }
}

/// Writes a JSON string.
pub(crate) fn put_json_text(value: &str, text: &mut Vec<u8>) {
    // Writing to memory cannot fail.
    let _ = serde_json::to_writer(text, value);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tideline_histogram::Span;

    use super::*;

    fn json(value: &QueryValue) -> String {
        let (mut text, mut out) = (Vec::new(), Vec::new());
        put_result(value, &mut text, &mut out).expect("memory takes all");
        out.append(&mut text);
        String::from_utf8(out).expect("JSON")
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

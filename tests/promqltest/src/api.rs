//! Parser of Prometheus' API responses, for targets over HTTP.
//!
//! The API lists the buckets of a histogram by their bounds, without schema, spans and reset hint. Such a
//! histogram is built by [`listed`], and compared in this form if
//! [`Options::has_listed_histograms`](crate::Options::has_listed_histograms) is set.

use std::sync::Arc;

use serde_json::Value;
use tideline_promql::histogram::Histogram;
use tideline_promql::{Labels, LabelsBuilder, Point, QueryValue, Sample, Series};

use crate::run::QueryResult;

/// Prefix of the API's parameter errors. Scripts compare the message without this prefix.
const PARAMETER: &str = "invalid parameter \"query\": ";

/// Parses the response body of `query` or `query_range`.
///
/// # Errors
///
/// Returns the error message of an error response, or a description if the body is not a valid response.
pub fn result(body: &[u8]) -> Result<QueryResult, String> {
    let json: Value = serde_json::from_slice(body).map_err(|error| format!("not JSON: {error}"))?;
    if json["status"] != "success" {
        let message = json["error"].as_str().ok_or("neither a result nor an error")?;
        return Err(message.strip_prefix(PARAMETER).unwrap_or(message).to_owned());
    }
    let data = &json["data"];
    let value = value(data).ok_or_else(|| format!("unsupported result: {data}"))?;
    Ok(QueryResult {
        value,
        warnings: texts(&json["warnings"]),
        infos: texts(&json["infos"]),
    })
}

/// Creates a histogram from count, sum and listed buckets. A bucket consists of boundary rule, lower bound, upper bound
/// and count. The result can only be compared; its other fields are meaningless.
pub fn listed(count: f64, sum: f64, buckets: impl IntoIterator<Item = (u8, f64, f64, f64)>) -> Histogram {
    let mut listed = Histogram {
        count,
        sum,
        ..Histogram::default()
    };
    for (rule, lower, upper, count) in buckets {
        listed.positive_buckets.push(count);
        listed.custom_values.extend([f64::from(rule), lower, upper]);
    }
    listed
}

fn texts(json: &Value) -> Vec<String> {
    let texts = json.as_array().into_iter().flatten();
    texts.filter_map(Value::as_str).map(str::to_owned).collect()
}

fn value(data: &Value) -> Option<QueryValue> {
    let result = &data["result"];
    Some(match data["resultType"].as_str()? {
        "scalar" => {
            let (time, value) = float(result)?;
            QueryValue::Scalar { time, value }
        }
        "string" => QueryValue::String {
            time: milliseconds(&result[0])?,
            value: result[1].as_str()?.to_owned(),
        },
        "vector" => QueryValue::Vector(result.as_array()?.iter().map(sample).collect::<Option<_>>()?),
        "matrix" => QueryValue::Matrix(result.as_array()?.iter().map(series).collect::<Option<_>>()?),
        _ => return None,
    })
}

fn sample(json: &Value) -> Option<Sample> {
    let (time, value) = match &json["histogram"] {
        Value::Null => {
            let (time, value) = float(&json["value"])?;
            (time, Point::Float(value))
        }
        histogram => {
            let (time, histogram) = point(histogram)?;
            (time, Point::Histogram(histogram))
        }
    };
    Some(Sample {
        labels: labels(&json["metric"])?,
        time,
        value,
    })
}

fn series(json: &Value) -> Option<Series> {
    let list = |name: &str| json[name].as_array().into_iter().flatten();
    Some(Series {
        labels: labels(&json["metric"])?,
        floats: list("values").map(float).collect::<Option<_>>()?,
        histograms: list("histograms").map(point).collect::<Option<_>>()?,
    })
}

fn labels(json: &Value) -> Option<Labels> {
    let mut builder = LabelsBuilder::default();
    for (name, value) in json.as_object()? {
        builder.set(name, value.as_str()?);
    }
    Some(builder.build())
}

/// Parses a timestamp with a float.
fn float(json: &Value) -> Option<(i64, f64)> {
    Some((milliseconds(&json[0])?, number(&json[1])?))
}

/// Parses a timestamp with a histogram.
fn point(json: &Value) -> Option<(i64, Arc<Histogram>)> {
    let histogram = &json[1];
    let buckets = histogram["buckets"].as_array().into_iter().flatten();
    let bucket = |bucket: &Value| {
        let rule = u8::try_from(bucket[0].as_u64()?).ok()?;
        Some((
            rule,
            number(&bucket[1])?,
            number(&bucket[2])?,
            number(&bucket[3])?,
        ))
    };
    let buckets: Vec<_> = buckets.map(bucket).collect::<Option<_>>()?;
    let listed = listed(number(&histogram["count"])?, number(&histogram["sum"])?, buckets);
    Some((milliseconds(&json[0])?, Arc::new(listed)))
}

/// Parses a timestamp, which the API writes in seconds.
fn milliseconds(json: &Value) -> Option<i64> {
    Some((json.as_f64()? * 1000.0).round() as i64)
}

/// Parses a number, which the API writes as a string.
fn number(json: &Value) -> Option<f64> {
    json.as_str()?.parse().ok()
}

//! Results of both sides, and their comparison.
//!
//! Errors are compared by status and class; series by labels, timestamps and values.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;
use tideline_tests::Client;
use tideline_tests::client::escaped;

use super::grammar::RandomQuery;

/// Tolerance of float sums, relative to the larger value but at least to 1: neither side guarantees an order of
/// additions.
const TOLERANCE: f64 = 1e-9;

/// Result in a comparable form.
pub(super) enum Outcome {
    /// Samples by series: timestamp and value.
    Series(BTreeMap<String, Vec<(i64, f64)>>),
    /// Error with its status and class.
    Refused {
        status: u16,
        class: String,
        message: String,
    },
}

impl Outcome {
    pub(super) fn run(client: &Client, query: &RandomQuery) -> Self {
        let seconds = |millis: i64| format!("{}.{:03}", millis / 1_000, millis % 1_000);
        let mut form = vec![("query", query.query.clone())];
        let path = match query.step {
            0 => {
                form.push(("time", seconds(query.start)));
                "/api/v1/query"
            }
            step => {
                form.push(("start", seconds(query.start)));
                form.push(("end", seconds(query.end)));
                form.push(("step", seconds(step)));
                "/api/v1/query_range"
            }
        };
        let body: Vec<String> = form
            .iter()
            .map(|(name, value)| format!("{name}={}", escaped(value)))
            .collect();
        let headers = [("Content-Type", "application/x-www-form-urlencoded")];
        let outcome = client
            .send("POST", path, &headers, body.join("&").as_bytes())
            .unwrap_or_else(|error| panic!("{query}: {error}"));
        let json = outcome.json();
        if outcome.status != 200 {
            let text = |name: &str| json[name].as_str().unwrap_or_default().to_owned();
            return Self::Refused {
                status: outcome.status,
                class: text("errorType"),
                message: text("error"),
            };
        }
        Self::Series(series(&json["data"]))
    }

    /// Returns true if the result has at least one series.
    pub(super) fn is_full(&self) -> bool {
        matches!(self, Self::Series(series) if !series.is_empty())
    }
}

fn series(data: &Value) -> BTreeMap<String, Vec<(i64, f64)>> {
    let mut all = BTreeMap::new();
    if data["resultType"] == "scalar" {
        all.insert("scalar".to_owned(), vec![sample(&data["result"])]);
        return all;
    }
    for one in data["result"].as_array().expect("a result is a list") {
        let samples = match one.get("values") {
            Some(values) => values
                .as_array()
                .expect("values are a list")
                .iter()
                .map(sample)
                .collect(),
            None => vec![sample(&one["value"])],
        };
        let twice = all.insert(one["metric"].to_string(), samples);
        assert!(twice.is_none(), "{} is returned twice", one["metric"]);
    }
    all
}

fn sample(pair: &Value) -> (i64, f64) {
    let millis = pair[0].as_f64().expect("a timestamp is a number") * 1_000.0;
    let value = pair[1].as_str().expect("a value is a text");
    let value = match value {
        "+Inf" => f64::INFINITY,
        "-Inf" => f64::NEG_INFINITY,
        value => value.parse().expect("a value is a number"),
    };
    (millis.round() as i64, value)
}

impl fmt::Display for Outcome {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Series(series) => write!(out, "{series:?}"),
            Self::Refused {
                status,
                class,
                message,
            } => write!(out, "{status} {class}: {message}"),
        }
    }
}

/// Describes the difference between two results; `None` if they are equal.
pub(super) fn difference(ours: &Outcome, theirs: &Outcome) -> Option<String> {
    match (ours, theirs) {
        (Outcome::Series(ours), Outcome::Series(theirs)) => series_difference(ours, theirs),
        (
            Outcome::Refused { status, class, .. },
            Outcome::Refused {
                status: their_status,
                class: their_class,
                ..
            },
        ) if (status, class) == (their_status, their_class) => None,
        (ours, theirs) => Some(format!("ours {ours}\n  theirs {theirs}")),
    }
}

type Samples = BTreeMap<String, Vec<(i64, f64)>>;

fn series_difference(ours: &Samples, theirs: &Samples) -> Option<String> {
    if let Some(only) = ours.keys().find(|series| !theirs.contains_key(*series)) {
        return Some(format!("only we have {only}: {:?}", ours[only].first()));
    }
    for (series, theirs) in theirs {
        let Some(ours) = ours.get(series) else {
            return Some(format!("only they have {series}: {:?}", theirs.first()));
        };
        let same_instants = ours.iter().map(|(at, _)| at).eq(theirs.iter().map(|(at, _)| at));
        if !same_instants {
            return Some(format!(
                "other timestamps of {series}: ours {ours:?}\n  theirs {theirs:?}"
            ));
        }
        let differing = ours
            .iter()
            .zip(theirs)
            .find(|((_, ours), (_, theirs))| !close(*ours, *theirs));
        if let Some((ours, theirs)) = differing {
            return Some(format!("{series}: ours {ours:?}, theirs {theirs:?}"));
        }
    }
    None
}

fn close(ours: f64, theirs: f64) -> bool {
    if ours.is_nan() || theirs.is_nan() {
        return ours.is_nan() && theirs.is_nan();
    }
    ours == theirs || (ours - theirs).abs() <= TOLERANCE * ours.abs().max(theirs.abs()).max(1.0)
}

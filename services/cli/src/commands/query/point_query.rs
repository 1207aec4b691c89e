//! Query arguments that `query` and `explain` share, and their conversion to the JSON of the API.
//!
//! Arguments are converted without validating names, functions or durations; the server reports errors in them.

use std::path::PathBuf;

use clap::{ArgGroup, Args};
use serde_json::{Map, Value, json};
use tideline_condition::Domain;

use crate::commands::selection::{self, RangeArguments, body};
use crate::condition::{self, WhereArguments, joined};
use crate::error::{CliError, Result};

/// Arguments that conflict with `--body`, which replaces them.
const QUERY_OPTIONS: [&str; 23] = [
    "conditions",
    "measurement",
    "last",
    "from",
    "to",
    "fields",
    "values",
    "compute",
    "sample",
    "highest",
    "lowest",
    "functions",
    "compute_windows",
    "window",
    "zone",
    "offset",
    "fill",
    "group_by",
    "each",
    "top",
    "bottom",
    "desc",
    "limit",
];

/// Arguments that select points and the computations on them.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("aggregates").args(["functions", "compute_windows"]).multiple(true))]
#[command(group = ArgGroup::new("ranked").args(["top", "bottom"]))]
pub(crate) struct PointQueryArguments {
    #[command(flatten)]
    timelines: WhereArguments,
    #[command(flatten)]
    range: RangeArguments,
    /// Field to read; may be repeated [default: all]
    #[arg(long = "field", short = 'f', value_name = "NAME")]
    fields: Vec<String>,
    /// Condition on the values of each point, such as usage>90, state=idle or a JSON tree; points must match
    /// all
    #[arg(long = "value", value_name = "CONDITION")]
    values: Vec<String>,
    /// Field computed from other fields of each point, such as busy=usage_user+usage_system
    #[arg(long, value_name = "NAME=EXPRESSION")]
    compute: Vec<String>,
    /// Return at most N points per series, chosen to preserve its shape
    #[arg(long, value_name = "N", conflicts_with = "aggregates")]
    sample: Option<u64>,
    /// Order rows by this field, the highest first
    #[arg(long, value_name = "FIELD", conflicts_with_all = ["aggregates", "sample", "lowest"])]
    highest: Option<String>,
    /// Order rows by this field, the lowest first
    #[arg(long, value_name = "FIELD", conflicts_with_all = ["aggregates", "sample"])]
    lowest: Option<String>,
    /// Functions computed per field: count, sum, mean, min, max, first, last, rate, increase, p95 or another
    /// percentile, …
    ///
    /// All functions: count, count_distinct, sum, mean, stddev, min, max, spread, mode, first, last, delta,
    /// rate, increase, integral, time_weighted_mean, and percentiles such as p50, p95 and p99.9.
    #[arg(
        help_heading = "Windows",
        long = "fn",
        value_name = "FUNCTIONS",
        value_delimiter = ','
    )]
    functions: Vec<String>,
    /// Column computed from aggregates of a window, such as 'range=max(usage)-min(usage)'
    #[arg(help_heading = "Windows", long, value_name = "NAME=EXPRESSION")]
    compute_windows: Vec<String>,
    /// Width of the windows, such as 1m or 1mo [default: the whole range]
    #[arg(
        help_heading = "Windows",
        long,
        value_name = "DURATION",
        requires = "aggregates"
    )]
    window: Option<String>,
    /// Time zone in which days, weeks, months and years begin, such as Europe/Berlin [default: UTC]
    #[arg(help_heading = "Windows", long, value_name = "NAME", requires = "window")]
    zone: Option<String>,
    /// Shift the start of the windows by this time
    #[arg(help_heading = "Windows", long, value_name = "DURATION", requires = "window")]
    offset: Option<String>,
    /// Fill for windows without a value: null, linear, previous:10m, or a value such as 0 [default: they are
    /// omitted]
    #[arg(help_heading = "Windows", long, value_name = "FILL", requires = "window")]
    fill: Option<String>,
    /// Group timelines by these tags [default: one group]
    #[arg(
        help_heading = "Windows",
        long,
        value_name = "TAGS",
        value_delimiter = ',',
        requires = "aggregates",
        conflicts_with = "each"
    )]
    group_by: Vec<String>,
    /// Compute for each timeline separately
    #[arg(help_heading = "Windows", long, requires = "aggregates")]
    each: bool,
    /// Return only the N series with the highest values of --by, the highest first
    #[arg(help_heading = "Windows", long, value_name = "N", requires = "aggregates")]
    top: Option<u64>,
    /// Return only the N series with the lowest values of --by, the lowest first
    #[arg(help_heading = "Windows", long, value_name = "N", requires = "aggregates")]
    bottom: Option<u64>,
    /// Ranking of series: a function, or a function of a field such as max(usage) [default: the first of --fn]
    #[arg(help_heading = "Windows", long, value_name = "FUNCTION", requires = "ranked")]
    by: Option<String>,
    /// Tier to read
    #[arg(long, value_name = "TIER", value_parser = ["all", "hot", "cold", "archive"], default_value = "all")]
    tier: String,
    /// Newest first
    #[arg(long)]
    desc: bool,
    /// Maximum number of rows [default: 1000 for tables, else all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// File with the query in JSON, as for the API, or `-` for standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = QUERY_OPTIONS)]
    body: Option<PathBuf>,
}

impl PointQueryArguments {
    /// Returns the query in JSON. `limit` is the maximum number of rows if `--limit` is not given. The query of
    /// `--body` is returned unchanged.
    pub(crate) fn json(&self, limit: Option<u64>) -> Result<String> {
        match &self.body {
            Some(path) => body(path),
            None => Ok(self.query(limit)?.to_string()),
        }
    }

    fn query(&self, limit: Option<u64>) -> Result<Value> {
        let mut query = selection::query(&self.timelines, &self.fields)?;
        query.insert("range".into(), self.range.range().into());
        query.insert("tier".into(), self.tier.as_str().into());
        let values: Result<Vec<Value>> = self
            .values
            .iter()
            .map(|text| condition::parse(Domain::Values, text))
            .collect();
        if let Some(tree) = joined(values?) {
            query.insert("where".into(), tree);
        }
        if !self.compute.is_empty() {
            query.insert("compute".into(), computations(&self.compute)?);
        }
        if !self.functions.is_empty() || !self.compute_windows.is_empty() {
            query.insert("aggregate".into(), self.aggregate()?.into());
        }
        for (field, first) in [(&self.highest, "highest"), (&self.lowest, "lowest")] {
            if let Some(field) = field {
                query.insert("sort".into(), json!({"field": field, "first": first}));
            }
        }
        if let Some(sample) = self.sample {
            query.insert("sample".into(), sample.into());
        }
        if self.desc {
            query.insert("order".into(), "desc".into());
        }
        if let Some(limit) = self.limit.or(limit) {
            query.insert("limit".into(), limit.into());
        }
        Ok(query.into())
    }

    fn aggregate(&self) -> Result<Map<String, Value>> {
        let mut aggregate = Map::new();
        let functions: Vec<Value> = self.functions.iter().map(|text| function(text)).collect();
        aggregate.insert("functions".into(), functions.into());
        if !self.compute_windows.is_empty() {
            aggregate.insert("compute".into(), computations(&self.compute_windows)?);
        }
        for (name, text) in [
            ("window", &self.window),
            ("zone", &self.zone),
            ("offset", &self.offset),
        ] {
            if let Some(text) = text {
                aggregate.insert(name.into(), text.as_str().into());
            }
        }
        if let Some(text) = &self.fill {
            aggregate.insert("fill".into(), fill(text));
        }
        let group_by = match self.each {
            true => json!("timeline"),
            false => json!(self.group_by),
        };
        aggregate.insert("group_by".into(), group_by);
        for (limit, first) in [(self.top, "highest"), (self.bottom, "lowest")] {
            if let Some(limit) = limit {
                let mut rank = self.ranked_by()?;
                rank.insert("first".into(), first.into());
                rank.insert("limit".into(), limit.into());
                aggregate.insert("rank".into(), rank.into());
            }
        }
        Ok(aggregate)
    }

    /// Returns the function, and the field if given, by which series are ranked: those of `--by`, otherwise the first
    /// function of `--fn`. Fails if neither option is given.
    fn ranked_by(&self) -> Result<Map<String, Value>> {
        let by = self.by.as_ref().or_else(|| self.functions.first());
        let by = by.ok_or_else(|| CliError::usage("missing ranking: use --by, such as --by 'max(usage)'"))?;
        let (name, field) = match by.strip_suffix(')').and_then(|by| by.split_once('(')) {
            Some((name, field)) => (name, Some(field)),
            None => (by.as_str(), None),
        };
        let mut rank = Map::from_iter([("by".to_owned(), function(name))]);
        if let Some(field) = field {
            rank.insert("field".into(), field.into());
        }
        Ok(rank)
    }
}

/// Converts a function name to the API: `p95` and `percentile_95` become percentiles, other names stay.
fn function(text: &str) -> Value {
    let share = text
        .strip_prefix("percentile_")
        .or_else(|| text.strip_prefix('p'));
    match share.and_then(|share| serde_json::from_str(share).ok()) {
        Some(share @ Value::Number(_)) => json!({"percentile": share}),
        _ => text.into(),
    }
}

/// Converts the value of `--fill` to the member `fill` of the API.
fn fill(text: &str) -> Value {
    if let Some(time) = text.strip_prefix("previous:") {
        return json!({"previous": time});
    }
    match serde_json::from_str(text) {
        Ok(value @ (Value::Number(_) | Value::Bool(_) | Value::String(_))) => json!({"value": value}),
        _ => text.into(),
    }
}

/// Converts `NAME=EXPRESSION` arguments to the API. Fails with a usage error if an argument does not have this form.
fn computations(texts: &[String]) -> Result<Value> {
    let computation = |text: &String| match text.split_once('=') {
        Some((name, expression)) if !name.trim().is_empty() => {
            Ok(json!({"name": name.trim(), "expression": expression.trim()}))
        }
        _ => Err(CliError::usage(format!(
            "{text:?} is not a computation; use NAME=EXPRESSION, such as busy=usage_user+usage_system"
        ))),
    };
    texts.iter().map(computation).collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use tideline_openapi::query::PointQuery;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        query: PointQueryArguments,
    }

    #[test]
    fn all_that_the_api_offers_can_be_said() {
        let line = [
            "-m",
            "cpu",
            "--value",
            "usage>90",
            "--compute",
            "busy = usage + 1",
            "--fn",
            "mean,p95,percentile_99.9",
            "--compute-windows",
            "d=max(usage)-min(usage)",
            "--window",
            "1mo",
            "--zone",
            "Europe/Berlin",
            "--offset",
            "1h",
            "--fill",
            "previous:10m",
            "--group-by",
            "host,dc",
            "--bottom",
            "3",
            "--by",
            "p95(usage)",
        ];
        let line = Line::try_parse_from(["x"].iter().chain(&line)).unwrap_or_else(|error| panic!("{error}"));
        let json = line.query.json(None).expect("a query");
        let read: PointQuery = serde_json::from_str(&json).expect(&json);
        let shown = serde_json::to_value(&read).expect("plain data");
        assert_eq!(shown["where"], json!({"field": "usage", "gt": 90}));
        assert_eq!(
            shown["compute"],
            json!([{"name": "busy", "expression": "usage + 1"}])
        );
        assert_eq!(
            shown["aggregate"],
            json!({
                "functions": ["mean", {"percentile": 95.0}, {"percentile": 99.9}],
                "compute": [{"name": "d", "expression": "max(usage)-min(usage)"}],
                "window": "1mo", "zone": "Europe/Berlin", "offset": "1h", "fill": {"previous": "10m"},
                "group_by": ["host", "dc"],
                "rank": {"by": {"percentile": 95.0}, "field": "usage", "first": "lowest", "limit": 3}
            })
        );
    }

    #[test]
    fn fills_are_words_durations_or_values() {
        for (text, expected) in [
            ("null", json!("null")),
            ("linear", json!("linear")),
            ("previous:10m", json!({"previous": "10m"})),
            ("0", json!({"value": 0})),
            ("-1.5", json!({"value": -1.5})),
            ("\"none\"", json!({"value": "none"})),
        ] {
            assert_eq!(fill(text), expected, "{text}");
        }
    }

    #[test]
    fn what_contradicts_is_refused() {
        for wrong in [
            &["--window", "1m"][..],
            &["--top", "3"],
            &["--fn", "max", "--by", "max"],
            &["--fn", "max", "--top", "1", "--bottom", "1"],
            &["--fn", "max", "--sample", "10"],
            &["--highest", "a", "--lowest", "a"],
            &["--body", "-", "--sample", "10"],
        ] {
            assert!(
                Line::try_parse_from(["x"].iter().chain(wrong)).is_err(),
                "{wrong:?}"
            );
        }
    }
}

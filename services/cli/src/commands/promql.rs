//! `tideline promql`: evaluates a PromQL query at one time or over a range.
//!
//! Results are converted to the shape of `tideline query`, so that both share tables and charts.

use clap::Args;
use serde_json::{Value, json};
use tideline_openapi::model::time::{NANOS_PER_SECOND, format_duration, parse_duration};
use tideline_openapi::model::{Clock, SystemClock, Timestamp};
use tideline_openapi::time::TimeInput;

use super::query::{charts, grid};
use super::selection::{RangeArguments, time};
use crate::client::TableArguments;
use crate::error::{CliError, Result};
use crate::output;

/// Number of steps into which a range is divided if `--step` is not given. The step is rounded down to whole seconds
/// and is at least 1 s, so the actual number of steps may differ.
const STEPS: i64 = 240;

/// Arguments of `promql`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tideline promql 'sum by (dc) (cpu_usage_user)'
  tideline promql 'rate(requests_total[5m])' --last 1h --step 1m --chart
  tideline promql 'up == 0' --at 2026-11-20T12:00:00Z --json

A field of a measurement is the metric MEASUREMENT_FIELD; a field named value is the metric
MEASUREMENT. Without a range the query is evaluated at one time.")]
pub(crate) struct PromqlArguments {
    #[command(flatten)]
    connection: TableArguments,
    /// The PromQL query
    #[arg(value_name = "QUERY")]
    query: String,
    #[command(flatten)]
    range: RangeArguments,
    /// Evaluate at this time [default: now]
    #[arg(help_heading = "Time", long, value_name = "TIME", value_parser = time, allow_hyphen_values = true)]
    #[arg(conflicts_with_all = ["last", "from", "to", "step"])]
    at: Option<String>,
    /// Evaluate a range at steps of this width [default: a 240th of the range, at least 1s]
    #[arg(help_heading = "Time", long, value_name = "DURATION", value_parser = step)]
    step: Option<i64>,
    /// Maximum number of series
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// Draw the values over time, all series on one axis
    #[arg(long, conflicts_with = "json")]
    chart: bool,
}

/// Evaluates the query and shows the result.
pub(crate) fn run(arguments: &PromqlArguments) -> Result<()> {
    let client = arguments.connection.client()?;
    let now = SystemClock.now();
    let range = arguments.range.range();
    let mut form = vec![("query", arguments.query.clone())];
    if let Some(limit) = arguments.limit {
        form.push(("limit", limit.to_string()));
    }
    let route = if arguments.range.is_open() {
        if arguments.step.is_some() {
            return Err(CliError::usage(
                "--step needs a range: --last, or --from and --to",
            ));
        }
        let at = resolved(arguments.at.as_deref().unwrap_or("now"), now)?;
        form.push(("time", at.to_rfc3339()));
        "query"
    } else {
        let end = |name: &str| range.get(name).and_then(Value::as_str);
        let start = end("start").ok_or_else(|| CliError::usage("a range needs --from or --last"))?;
        let (start, end) = (resolved(start, now)?, resolved(end("end").unwrap_or("now"), now)?);
        let span = end.nanos().saturating_sub(start.nanos());
        let whole_seconds = span / STEPS / NANOS_PER_SECOND * NANOS_PER_SECOND;
        let step = arguments.step.unwrap_or(whole_seconds.max(NANOS_PER_SECOND));
        form.push(("start", start.to_rfc3339()));
        form.push(("end", end.to_rfc3339()));
        form.push(("step", format_duration(step)));
        "query_range"
    };
    let form: Vec<(&str, &str)> = form.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let text = client.form(&client.of_table(&format!("/prometheus/api/v1/{route}")), &form)?;
    if arguments.connection.server.json {
        return output::print(&text);
    }
    let response = client.parse(&text)?;
    let series = json!({"series": series(&response["data"])});
    if arguments.chart {
        output::print(&charts(&series, output::columns()))?;
    } else {
        let (grid, rows) = grid(&series);
        output::print(&grid.render())?;
        let rows_name = if rows == 1 { "value" } else { "values" };
        output::print(&format!("\n{} {rows_name}", output::count(rows)))?;
    }
    for kind in ["warnings", "infos"] {
        for note in response[kind].as_array().into_iter().flatten() {
            eprintln!("{}: {}", kind.trim_end_matches('s'), output::cell(note));
        }
    }
    Ok(())
}

/// Resolves a time argument to a timestamp; `now` is the base of relative times.
fn resolved(text: &str, now: Timestamp) -> Result<Timestamp> {
    let time = TimeInput::parse(text).map_err(|error| CliError::usage(error.to_string()))?;
    Ok(time.resolve(now))
}

/// Converts a Prometheus result to the series of a query result.
fn series(data: &Value) -> Value {
    let result = &data["result"];
    if matches!(data["resultType"].as_str(), Some("scalar" | "string")) {
        return json!([{"measurement": "", "tags": {}, "columns": ["time", "value"], "points": [point(result)]}]);
    }
    let one = |series: &Value| {
        let mut tags = series["metric"].clone();
        let name = tags.as_object_mut().and_then(|tags| tags.remove("__name__"));
        let lists = [&series["values"], &series["histograms"]];
        let several = lists
            .into_iter()
            .flat_map(|list| list.as_array().into_iter().flatten());
        let single = [&series["value"], &series["histogram"]]
            .into_iter()
            .filter(|one| one.is_array());
        let points: Vec<Value> = several.chain(single).map(point).collect();
        json!({
            "measurement": name.unwrap_or_else(|| "".into()), "tags": tags,
            "columns": ["time", "value"], "points": points
        })
    };
    result.as_array().into_iter().flatten().map(one).collect()
}

/// Converts a sample to a row. The time, in seconds, becomes RFC 3339. The value is a text, which becomes a number if
/// possible. A histogram becomes its JSON text.
fn point(point: &Value) -> Value {
    let millis = (point[0].as_f64().unwrap_or_default() * 1_000.0).round() as i64;
    let time = Timestamp::from_nanos_clamped(millis.saturating_mul(1_000_000)).to_rfc3339();
    let value: Value = match point[1].as_str() {
        Some(text) => serde_json::from_str(text).unwrap_or_else(|_| text.into()),
        None => point[1].to_string().into(),
    };
    json!([time, value])
}

fn step(text: &str) -> std::result::Result<i64, String> {
    let nanos = parse_duration(text).filter(|nanos| *nanos > 0);
    nanos.ok_or_else(|| "expected a duration such as 15s, 1m or 1h".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_all_types_become_series() {
        let vector = json!({"resultType": "vector", "result": [
            {"metric": {"__name__": "up", "job": "a"}, "value": [1_700_000_000.5, "1"]},
            {"metric": {}, "value": [1_700_000_000, "NaN"]}
        ]});
        assert_eq!(
            series(&vector),
            json!([
                {"measurement": "up", "tags": {"job": "a"}, "columns": ["time", "value"],
                    "points": [["2023-11-14T22:13:20.500Z", 1]]},
                {"measurement": "", "tags": {}, "columns": ["time", "value"],
                    "points": [["2023-11-14T22:13:20Z", "NaN"]]}
            ])
        );
        let matrix = json!({"resultType": "matrix", "result": [
            {"metric": {"job": "a"}, "values": [[0, "1.5"], [15, "2"]]}
        ]});
        assert_eq!(
            series(&matrix)[0]["points"],
            json!([["1970-01-01T00:00:00Z", 1.5], ["1970-01-01T00:00:15Z", 2]])
        );
        let scalar = json!({"resultType": "scalar", "result": [0, "3"]});
        assert_eq!(series(&scalar)[0]["points"], json!([["1970-01-01T00:00:00Z", 3]]));
    }
}

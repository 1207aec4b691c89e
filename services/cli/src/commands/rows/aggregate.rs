//! `tideline rows aggregate`: functions of the values of rows, by groups and time windows.
//!
//! The rows come from a scan or a search. For a table, the whole response is read; other formats are streamed as the
//! server sends them.

use std::io::Write as _;
use std::path::PathBuf;

use clap::Args;
use serde_json::{Map, Value, json};

use super::facets::metric;
use super::read::show_explained;
use super::{RowSelection, has_terminal};
use crate::commands::query::{Output, stream};
use crate::commands::selection;
use crate::error::{CliError, Result};
use crate::output;
use crate::output::grid::Grid;

pub(super) const EXAMPLES: &str = "\
Examples:
  tideline rows aggregate orders customer=acme --metric total:count,sum,p95
  tideline rows aggregate orders --allow-scan --by state --by placed:1mo@Europe/Berlin --metric total:sum
  tideline rows aggregate orders --search -w 'title^=Red' --by state --metric items:mean,max --out states.csv";

/// Arguments of `rows aggregate`.
#[derive(Debug, Args)]
pub(crate) struct AggregateArguments {
    #[command(flatten)]
    rows: RowSelection,
    /// Read the rows that a search index finds by --where, instead of a range [default: the only index of the table]
    #[arg(long, value_name = "NAME", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    search: Option<String>,
    /// Key to group by: NAME, NAME:WIDTH for time windows such as placed:1d, NAME:WIDTH@ZONE for windows in a time
    /// zone, or JSON as in the API; up to 8
    #[arg(long, value_name = "KEY")]
    by: Vec<String>,
    /// Functions of a column, as NAME:FUNCTION,…: count, count_distinct, sum, mean, stddev, min, max, spread, mode,
    /// first, last, or p95 for a percentile; may be repeated
    #[arg(long = "metric", value_name = "METRICS")]
    metrics: Vec<String>,
    /// Output format [default: by the ending of --out (.csv, .ndjson, .json, .arrow, .parquet, .txt), else table on a
    /// terminal, ndjson in a pipe, or json with --json]
    #[arg(long, short, value_enum)]
    output: Option<Output>,
    /// Output file [default: standard output]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Show how the rows are found, without reading them
    #[arg(long, conflicts_with_all = ["output", "out"])]
    explain: bool,
}

/// Aggregates the rows and shows the groups.
pub(super) fn run(arguments: &AggregateArguments) -> Result<()> {
    let client = arguments.rows.table.client()?;
    let mut body = arguments.rows.body(&client)?;
    if let Some(name) = &arguments.search {
        body.insert(
            "search".into(),
            match name.is_empty() {
                true => json!({}),
                false => json!({"index": name}),
            },
        );
    }
    let keys = arguments.by.iter().map(|text| key(text));
    body.insert("by".into(), keys.collect::<Result<Vec<Value>>>()?.into());
    let metrics = arguments.metrics.iter().map(|text| metric(text));
    body.insert("metrics".into(), metrics.collect::<Result<Vec<Value>>>()?.into());
    let is_json = arguments.rows.table.connection.json;
    if arguments.explain {
        return show_explained(&client, "aggregate", &body, is_json);
    }
    let chosen = Output::chosen(arguments.output, is_json, arguments.out.as_deref())?;
    let is_default = arguments.output.is_none() && arguments.out.is_none();
    let path = client.of_table("/rows/aggregate");
    match chosen {
        Output::Table if !is_default || has_terminal() => {
            let found = client.parse(&client.post_text(&path, &body.to_string())?)?;
            let mut out = selection::output_to(arguments.out.as_ref())?;
            out.write_all(table(&body.members, &found).as_bytes())?;
            out.flush()?;
            eprintln!("{}", summary(&found));
            Ok(())
        }
        chosen => {
            let format = if chosen == Output::Table {
                Output::Ndjson
            } else {
                chosen
            };
            stream(&client, &path, format, &body.to_string(), arguments.out.as_ref())
        }
    }
}

/// Parses a key: a name, a name with the width of windows and a time zone, or a JSON object.
fn key(text: &str) -> Result<Value> {
    if text.starts_with('{') {
        return serde_json::from_str(text).map_err(|error| CliError::usage(format!("--by {text}: {error}")));
    }
    Ok(match text.rsplit_once(':') {
        None => json!({"column": text}),
        Some((name, window)) => match window.split_once('@') {
            None => json!({"column": name, "window": window}),
            Some((window, zone)) => json!({"column": name, "window": window, "zone": zone}),
        },
    })
}

/// Formats the groups as a table: a column for each key, the number of rows, and the functions.
fn table(request: &Map<String, Value>, found: &Value) -> String {
    let list = |name: &str| request[name].as_array().cloned().unwrap_or_default();
    let keys: Vec<String> = list("by")
        .iter()
        .map(|key| output::cell(&key["column"]))
        .collect();
    let mut functions: Vec<(String, String)> = Vec::new();
    for metric in list("metrics") {
        let column = output::cell(&metric["column"]);
        for function in metric["functions"].as_array().into_iter().flatten() {
            let name = match &function["percentile"] {
                Value::Null => output::cell(function),
                percent => format!("percentile_{}", percent.as_f64().unwrap_or_default()),
            };
            functions.push((column.clone(), name));
        }
    }
    let titles = functions
        .iter()
        .map(|(column, function)| format!("{function}({column})"));
    let titles: Vec<String> = keys
        .iter()
        .cloned()
        .chain(["rows".to_owned()])
        .chain(titles)
        .collect();
    let mut grid = Grid::new(titles.iter().map(String::as_str));
    for group in found["groups"].as_array().into_iter().flatten() {
        let mut line: Vec<String> = keys.iter().map(|key| output::cell(&group["key"][key])).collect();
        line.push(output::cell(&group["rows"]));
        let of = |(column, function): &(String, String)| output::cell(&group["metrics"][column][function]);
        line.extend(functions.iter().map(of));
        grid.row(line);
    }
    grid.render()
}

/// Describes the number of rows, the skipped values, the estimated functions, and the changes that are not included
/// yet.
fn summary(found: &Value) -> String {
    let count = |name: &str| output::count(found[name].as_u64().unwrap_or_default());
    let mut text = format!("{} rows", count("rows"));
    if found["other_types"] != 0 {
        text.push_str(&format!(
            "; {} values of another type are skipped",
            count("other_types")
        ));
    }
    let estimated: Vec<String> = found["estimated"]
        .as_array()
        .into_iter()
        .flatten()
        .map(output::cell)
        .collect();
    if !estimated.is_empty() {
        text.push_str(&format!("; estimated: {}", estimated.join(", ")));
    }
    if found["waiting"].as_u64().is_some_and(|waiting| waiting > 0) {
        text.push_str(&format!("; {} changes are not included yet", count("waiting")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_the_form_of_the_api() {
        for (text, expected) in [
            ("state", json!({"column": "state"})),
            ("placed:1d", json!({"column": "placed", "window": "1d"})),
            (
                "placed:1mo@Europe/Berlin",
                json!({"column": "placed", "window": "1mo", "zone": "Europe/Berlin"}),
            ),
            (
                r#"{"column": "placed", "window": "1h", "offset": "5m"}"#,
                json!({"column": "placed", "window": "1h", "offset": "5m"}),
            ),
        ] {
            assert_eq!(key(text).expect("valid"), expected);
        }
        assert_eq!(key("{").expect_err("no JSON").exit_status(), 2);
    }
}

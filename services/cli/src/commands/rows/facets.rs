//! `tideline rows facets`: counts matching rows by the values of columns, and computes metrics.
//!
//! A table has one line per innermost group. JSON is the response of the server, in which groups contain groups.

use clap::Args;
use serde_json::{Map, Value, json};

use super::body::Body;
use super::read::show_explained;
use super::{RowsTable, TierArgument, tree};
use crate::error::{CliError, Result};
use crate::output;
use crate::output::grid::Grid;

pub(super) const EXAMPLES: &str = "\
Examples:
  tideline rows facets orders --by state
  tideline rows facets orders 'total>5' --by state --by placed:1d --metric items:sum,max,p95
  tideline rows facets tracks --by '{\"column\": \"place\", \"grid\": 0.5}' --order value --limit 100

All columns must be in the search index, those of --metric as number or time.";

/// Arguments of `rows facets`.
#[derive(Debug, Args)]
pub(crate) struct FacetsArguments {
    #[command(flatten)]
    table: RowsTable,
    /// Condition on an indexed column, as in `rows search`; rows must match all
    #[arg(value_name = "CONDITION")]
    conditions: Vec<String>,
    /// Search index [default: the only one of the table]
    #[arg(long, value_name = "NAME")]
    index: Option<String>,
    #[command(flatten)]
    tier: TierArgument,
    /// Key to group by: NAME, NAME:WIDTH for intervals such as items:10 or placed:1d, or JSON as in the API; up to 4
    #[arg(long, value_name = "KEY")]
    by: Vec<String>,
    /// Metrics of a column, as NAME:FUNCTION,…: count, sum, mean, min, max, or p95 for a percentile; may be repeated
    #[arg(long = "metric", value_name = "METRICS")]
    metrics: Vec<String>,
    /// Maximum number of groups in each list
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
    /// Order of the groups: most rows first, or by value
    #[arg(long, default_value = "count", value_parser = ["count", "value"])]
    order: String,
    /// Wait until the count includes the write with this `position`, at most 10 seconds
    #[arg(long, value_name = "POSITION")]
    at_least: Option<String>,
    /// Show how the rows are found and counted, without counting them
    #[arg(long)]
    explain: bool,
}

/// Counts the rows and shows the groups.
pub(super) fn run(arguments: &FacetsArguments) -> Result<()> {
    let mut body = Body::default();
    if let Some(tree) = tree(&arguments.conditions)? {
        body.insert_text("where", tree);
    }
    let keys = arguments.by.iter().map(|text| key(text));
    body.insert("by".into(), keys.collect::<Result<Vec<Value>>>()?.into());
    let metrics = arguments.metrics.iter().map(|text| metric(text));
    body.insert("metrics".into(), metrics.collect::<Result<Vec<Value>>>()?.into());
    body.insert("limit".into(), arguments.limit.into());
    body.insert("order".into(), arguments.order.as_str().into());
    arguments.tier.add_to(&mut body.members);
    for (name, text) in [("index", &arguments.index), ("at_least", &arguments.at_least)] {
        if let Some(text) = text {
            body.insert(name.into(), text.as_str().into());
        }
    }
    let client = arguments.table.client()?;
    if arguments.explain {
        return show_explained(&client, "facets", &body, arguments.table.connection.json);
    }
    let text = client.post_text(&client.of_table("/rows/facets"), &body.to_string())?;
    if arguments.table.connection.json {
        return output::print(&text);
    }
    let counted = client.parse(&text)?;
    output::print(&table(&body.members, &counted))?;
    let count = |name: &str| output::count(counted[name].as_u64().unwrap_or_default());
    let mut end = format!(
        "{} rows, {} groups of the first key",
        count("rows"),
        count("distinct")
    );
    if counted["waiting"] != 0 {
        end.push_str(&format!("; {} changes are not included yet", count("waiting")));
    }
    eprintln!("{end}");
    Ok(())
}

/// Parses a key: a name, a name with the width of intervals, or a JSON object.
fn key(text: &str) -> Result<Value> {
    if text.starts_with('{') {
        return serde_json::from_str(text).map_err(|error| CliError::usage(format!("--by {text}: {error}")));
    }
    Ok(match text.rsplit_once(':') {
        None => json!({"column": text}),
        Some((name, width)) => match width.parse::<serde_json::Number>() {
            Ok(width) => json!({"column": name, "interval": width}),
            Err(_) => json!({"column": name, "interval": width}),
        },
    })
}

/// Parses the metrics of a column.
pub(super) fn metric(text: &str) -> Result<Value> {
    let wrong = || {
        CliError::usage(format!(
            "--metric {text}: expected NAME:FUNCTION,…, such as items:sum,max,p95"
        ))
    };
    let (name, functions) = text.rsplit_once(':').ok_or_else(wrong)?;
    let function = |text: &str| match text.strip_prefix('p').map(str::parse::<f64>) {
        Some(Ok(percentile)) => json!({"percentile": percentile}),
        _ => json!(text),
    };
    let functions: Vec<Value> = functions.split(',').map(|text| function(text.trim())).collect();
    Ok(json!({"column": name, "functions": functions}))
}

/// Formats the innermost groups as a table: a column for each key, the number of rows, and the metrics.
fn table(request: &Map<String, Value>, counted: &Value) -> String {
    let list = |name: &str| request[name].as_array().cloned().unwrap_or_default();
    let keys = list("by");
    let mut titles: Vec<String> = keys.iter().map(|key| output::cell(&key["column"])).collect();
    titles.push("rows".to_owned());
    let metrics: Vec<(String, String)> = counted["metrics"]
        .as_object()
        .into_iter()
        .flatten()
        .flat_map(|(column, functions)| {
            let functions = functions.as_object().into_iter().flatten();
            functions.map(|(function, _)| (column.clone(), function.clone()))
        })
        .collect();
    titles.extend(
        metrics
            .iter()
            .map(|(column, function)| format!("{function}({column})")),
    );
    let mut grid = Grid::new(titles.iter().map(String::as_str));
    add_groups(counted, keys.len(), &mut Vec::new(), &metrics, &mut grid);
    grid.render()
}

/// Adds a line for each innermost group of `group`.
fn add_groups(
    group: &Value,
    keys: usize,
    values: &mut Vec<String>,
    metrics: &[(String, String)],
    grid: &mut Grid,
) {
    let inner = group["groups"].as_array();
    match inner.filter(|inner| !inner.is_empty()) {
        Some(inner) => {
            for group in inner {
                values.push(output::cell(&group["value"]));
                add_groups(group, keys, values, metrics, grid);
                values.pop();
            }
        }
        None => {
            let mut line = values.clone();
            // If no row matches, the result has no groups. The cells of the keys are then empty.
            line.resize(keys, String::new());
            line.push(output::cell(&group["rows"]));
            let of =
                |(column, function): &(String, String)| output::cell(&group["metrics"][column][function]);
            line.extend(metrics.iter().map(of));
            grid.row(line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_metrics_have_the_form_of_the_api() {
        for (text, expected) in [
            ("state", json!({"column": "state"})),
            ("items:10", json!({"column": "items", "interval": 10})),
            ("placed:1d", json!({"column": "placed", "interval": "1d"})),
            (
                r#"{"column": "place", "grid": 0.5}"#,
                json!({"column": "place", "grid": 0.5}),
            ),
        ] {
            assert_eq!(key(text).expect("valid"), expected);
        }
        assert_eq!(
            metric("items:sum, p99.9").expect("valid"),
            json!({"column": "items", "functions": ["sum", {"percentile": 99.9}]})
        );
        assert_eq!(metric("items").expect_err("no function").exit_status(), 2);
        assert_eq!(key("{").expect_err("no JSON").exit_status(), 2);
    }
}

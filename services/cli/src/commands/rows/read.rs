//! Reads of rows: a table on a terminal, lines of JSON in a pipe, or the chosen format.
//!
//! For the output format `table`, one page is read completely; other formats are streamed as the server sends them.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};
use tideline_openapi::row::Members;
use tideline_openapi::row_search::RowHighlight;

use super::body::Body;
use super::shape::TableShape;
use super::{RowSelection, RowsTable, columns, has_terminal};
use crate::client::Client;
use crate::commands::query::{Output, stream};
use crate::commands::selection;
use crate::error::{CliError, Result};
use crate::output::grid::Grid;
use crate::output::{self, cell};

/// Form of the output.
#[derive(Debug, Args)]
struct OutputArguments {
    /// Columns to return: names, or prefixes that end with `*`, separated by commas [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    columns: Vec<String>,
    /// Output format [default: by the ending of --out (.csv, .ndjson, .json, .arrow, .parquet, .txt), else table on a
    /// terminal, ndjson in a pipe, or json with --json]
    #[arg(long, short, value_enum)]
    output: Option<Output>,
    /// Output file [default: standard output]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct GetArguments {
    #[command(flatten)]
    table: RowsTable,
    /// Values of all key columns as NAME=VALUE, where a repeated name lists several values; or whole keys as JSON
    /// objects
    #[arg(value_name = "KEY", required = true)]
    keys: Vec<String>,
    #[command(flatten)]
    output: OutputArguments,
}

#[derive(Debug, Args)]
pub(crate) struct ScanArguments {
    #[command(flatten)]
    rows: RowSelection,
    #[command(flatten)]
    output: OutputArguments,
    /// Read rows in reverse key order
    #[arg(long)]
    backward: bool,
    /// Maximum number of rows [default: 100 in tables and JSON, else all]
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Continue after the page that printed this token; all other arguments must be the same
    #[arg(long, value_name = "TOKEN")]
    page_token: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct CountArguments {
    #[command(flatten)]
    rows: RowSelection,
    /// Estimate counts of more than 200,000 rows from a sample, and show the confidence interval
    #[arg(long)]
    estimate: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ExplainArguments {
    #[command(flatten)]
    rows: RowSelection,
}

impl OutputArguments {
    fn chosen(&self, json: bool) -> Result<Output> {
        let chosen = Output::chosen(self.output, json, self.out.as_deref())?;
        let is_default = self.output.is_none() && self.out.is_none();
        Ok(match chosen {
            Output::Table if is_default && !has_terminal() => Output::Ndjson,
            chosen => chosen,
        })
    }

    /// Sends a read and shows its rows.
    fn show(&self, client: &Client, path: &str, mut body: Body, json: bool) -> Result<()> {
        if let Some(columns) = columns(&self.columns) {
            body.insert("columns".into(), columns);
        }
        let output = self.chosen(json)?;
        let path = client.of_table(path);
        if output != Output::Table {
            return stream(client, &path, output, &body.to_string(), self.out.as_ref());
        }
        let response = client.post_text(&path, &body.to_string())?;
        let response: RowsResponse =
            serde_json::from_str(&response).map_err(|error| client.strange(&error.to_string()))?;
        show_table(&response.rows, self.out.as_ref())?;
        if let Some(next) = response.next {
            eprintln!("more rows follow; use --limit, or --page-token {next}");
        }
        Ok(())
    }
}

/// Rows of a response. Missing rows are `None`.
#[derive(Deserialize)]
struct RowsResponse {
    rows: Vec<Option<ShownRow>>,
    next: Option<String>,
}

/// Row of a table.
#[derive(Deserialize)]
pub(super) struct ShownRow {
    key: Members,
    columns: Members,
    /// Distances in meters, one per sort key of a search by distance.
    #[serde(default)]
    distances: Vec<Option<f64>>,
    /// Texts that a search has matched.
    #[serde(default)]
    highlights: Vec<RowHighlight>,
}

/// Writes rows as a table to a file or to standard output.
pub(super) fn show_table(rows: &[Option<ShownRow>], file: Option<&PathBuf>) -> Result<()> {
    let width = output::columns().filter(|_| file.is_none());
    let mut out = selection::output_to(file)?;
    out.write_all(table(rows).render_within(width).as_bytes())?;
    Ok(out.flush()?)
}

/// Formats rows as a table: first the key columns in key order, then the other columns by name, then distances and
/// matched texts.
fn table(rows: &[Option<ShownRow>]) -> Grid {
    let rows = || rows.iter().flatten();
    let key = rows().next().into_iter().flat_map(|row| row.key.iter());
    let columns: BTreeSet<&str> = rows()
        .flat_map(|row| row.columns.iter().map(|(name, _)| name))
        .collect();
    let distances = rows().map(|row| row.distances.len()).max().unwrap_or_default();
    let has_matches = rows().any(|row| !row.highlights.is_empty());
    let mut head: Vec<&str> = key.map(|(name, _)| name).collect();
    head.extend(&columns);
    head.extend(std::iter::repeat_n("meters", distances));
    head.extend(has_matches.then_some("matches"));
    let mut grid = Grid::new(head);
    for row in rows() {
        let key = row.key.iter().map(|(_, value)| plain(value));
        let found = columns
            .iter()
            .map(|name| row.columns.get(name).map(plain).unwrap_or_default());
        let mut cells: Vec<String> = key.chain(found).collect();
        cells.extend((0..distances).map(|at| {
            let meters = row.distances.get(at).copied().flatten();
            meters.map(|meters| format!("{meters:.1}")).unwrap_or_default()
        }));
        let matches: Vec<String> = row.highlights.iter().map(marked).collect();
        cells.push(matches.join("; "));
        grid.row(cells);
    }
    grid
}

/// Formats a text with its matching parts in brackets, after the name of its column.
pub(in crate::commands) fn marked(highlight: &RowHighlight) -> String {
    let mut text = format!("{}: ", highlight.column);
    for (at, character) in highlight.text.chars().enumerate() {
        if highlight.spans.iter().any(|span| span.start == at) {
            text.push('[');
        }
        text.push(character);
        if highlight.spans.iter().any(|span| span.end == at + 1) {
            text.push(']');
        }
    }
    text
}

/// Formats a value, given as JSON. For an object with `type` and `value`, formats only `value`.
pub(in crate::commands) fn plain(json: &str) -> String {
    let value: Value = serde_json::from_str(json).unwrap_or_default();
    match value.get("value") {
        Some(inner) if value.get("type").is_some() => cell(inner),
        _ => cell(&value),
    }
}

pub(super) fn get(arguments: &GetArguments) -> Result<()> {
    let client = arguments.table.client()?;
    let (objects, pairs): (Vec<&String>, Vec<&String>) =
        arguments.keys.iter().partition(|text| text.starts_with('{'));
    let mut body = Body::default();
    if pairs.is_empty() {
        let keys = objects.iter().map(|text| {
            let key: Box<RawValue> = serde_json::from_str(text)
                .map_err(|error| CliError::usage(format!("{text} is not valid JSON: {error}")))?;
            Ok(key)
        });
        let keys = keys.collect::<Result<Vec<_>>>()?;
        let keys = to_raw_value(&keys).map_err(|error| CliError::usage(error.to_string()))?;
        body.insert_text("keys", keys);
    } else if objects.is_empty() {
        let shape = TableShape::read(&client)?;
        let mut lists: Map<String, Value> = Map::new();
        for text in pairs {
            let (name, value) = shape.pair(text)?;
            let value =
                serde_json::to_value(value).map_err(|error| CliError::usage(format!("{text}: {error}")))?;
            let list = lists
                .entry(name.to_owned())
                .or_insert_with(|| Value::Array(Vec::new()));
            list.as_array_mut()
                .into_iter()
                .for_each(|list| list.push(value.clone()));
        }
        body.insert("in".into(), lists.into());
    } else {
        return Err(CliError::usage("give keys as NAME=VALUE or as JSON, not both"));
    }
    arguments
        .output
        .show(&client, "/rows/get", body, arguments.table.connection.json)
}

pub(super) fn scan(arguments: &ScanArguments) -> Result<()> {
    let client = arguments.rows.table.client()?;
    let mut body = arguments.rows.body(&client)?;
    if arguments.backward {
        body.insert("direction".into(), "backward".into());
    }
    if let Some(limit) = arguments.limit {
        body.insert("limit".into(), limit.into());
    }
    if let Some(token) = &arguments.page_token {
        body.insert("page_token".into(), token.as_str().into());
    }
    let json = arguments.rows.table.connection.json;
    arguments.output.show(&client, "/rows/scan", body, json)
}

pub(super) fn count(arguments: &CountArguments) -> Result<()> {
    let client = arguments.rows.table.client()?;
    let mut body = arguments.rows.body(&client)?;
    if arguments.estimate {
        body.insert("estimate".into(), true.into());
    }
    let path = client.of_table("/rows/count");
    let (mut count, mut scanned) = (0, 0);
    let mut counted = loop {
        let counted = client.parse(&client.post_text(&path, &body.to_string())?)?;
        count += counted["count"].as_u64().unwrap_or_default();
        scanned += counted["scanned"].as_u64().unwrap_or_default();
        match counted["next"].as_str() {
            Some(next) => body.insert("page_token".into(), next.into()),
            None => break counted,
        };
    };
    if arguments.rows.table.connection.json {
        counted["count"] = count.into();
        counted["scanned"] = scanned.into();
        return output::print(&counted.to_string());
    }
    let interval = &counted["interval"];
    match (interval["low"].as_u64(), interval["high"].as_u64()) {
        (Some(low), Some(high)) => output::print(&format!(
            "about {} ({} to {})",
            output::count(count),
            output::count(low),
            output::count(high)
        )),
        _ => output::print(&count.to_string()),
    }
}

pub(super) fn explain(arguments: &ExplainArguments) -> Result<()> {
    let client = arguments.rows.table.client()?;
    let body = arguments.rows.body(&client)?;
    show_explained(&client, "scan", &body, arguments.rows.table.connection.json)
}

/// Requests the explanation of a read and shows it. `read` is the name of the read in the request, and `body` its body.
pub(super) fn show_explained(client: &Client, read: &str, body: &Body, is_json: bool) -> Result<()> {
    let path = client.of_table("/rows/explain");
    let text = client.post_text(&path, &format!("{{\"{read}\":{body}}}"))?;
    if is_json {
        return output::print(&text);
    }
    let explained = client.parse(&text)?;
    let list = |value: &Value| {
        let texts = value.as_array().into_iter().flatten().map(cell);
        texts.collect::<Vec<String>>().join(", ")
    };
    let key = explained["key"].as_array().into_iter().flatten().map(|column| {
        format!(
            "{} ({}, {})",
            cell(&column["name"]),
            cell(&column["stored"]),
            cell(&column["order"])
        )
    });
    let rows = match &explained["interval"] {
        Value::Null => cell(&explained["estimated_rows"]),
        interval => format!(
            "about {} ({} to {})",
            cell(&explained["estimated_rows"]),
            cell(&interval["low"]),
            cell(&interval["high"])
        ),
    };
    let search = &explained["search"];
    let index = match (explained["index"].as_str(), explained["is_covered"].as_bool()) {
        (None, _) => String::new(),
        (Some(index), _) if search.is_object() => {
            format!("{index}, with {} reads of rows", cell(&search["row_reads"]))
        }
        (Some(index), Some(true)) => format!("{index}, without reading rows"),
        (Some(index), _) => format!("{index}, with one read per row"),
    };
    let parts = match explained["parts"].as_object() {
        None => "all rows are in one part".to_owned(),
        Some(parts) => format!(
            "{} of {}, {} to {}",
            cell(&parts["read"]),
            cell(&parts["of"]),
            cell(&parts["first"]),
            cell(&parts["last"])
        ),
    };
    let mut grid = Grid::new(["property", "value"]).wrapping();
    for (name, value) in [
        ("access", cell(&explained["access"])),
        ("index", index),
        ("parts", parts),
        ("bounds", list(&explained["bounds"])),
        ("ranges", cell(&explained["ranges"])),
        ("filter columns", list(&explained["filter_columns"])),
        (
            "needs --allow-scan",
            cell(&(!explained["is_allowed"].as_bool().unwrap_or(true)).into()),
        ),
        ("in key order", cell(&explained["is_ordered"])),
        ("rows", rows),
        ("stored key", key.collect::<Vec<String>>().join(", ")),
        ("bytes per key", cell(&explained["key_bytes"])),
        ("bytes per row", cell(&explained["row_bytes"])),
    ] {
        grid.row(vec![name.into(), value]);
    }
    let mut text = grid.render();
    if search.is_object() {
        text.push_str(&searched(search));
    }
    for advice in explained["advice"].as_array().into_iter().flatten() {
        text.push_str(&format!("\nadvice: {}\n", cell(advice)));
    }
    output::print(&text)
}

/// Formats the use of a search index: its state, the tests, and the columns that are read for each row that matches.
fn searched(search: &Value) -> String {
    let mut text = format!(
        "\nsearch index: {} rows in {} segments; {} changes of the last {} ms are not included yet\n",
        cell(&search["documents"]),
        cell(&search["segments"]),
        cell(&search["waiting"]),
        cell(&search["lag_ms"]),
    );
    let list = |name: &str| search[name].as_array().into_iter().flatten();
    let mut grid = Grid::new(["test", "form", "access", "words", "terms", "entries", "rows"]).wrapping();
    for test in list("tests") {
        let words = test["words"].as_array().into_iter().flatten().map(cell);
        let words = words.collect::<Vec<String>>().join(" ");
        let [of, form, access, terms, entries, rows] =
            ["test", "form", "access", "terms", "entries", "rows"].map(|name| cell(&test[name]));
        grid.row(vec![of, form, access, words, terms, entries, rows]);
    }
    if list("tests").next().is_some() {
        text.push_str(&grid.render());
    }
    for column in list("columns") {
        let order = column["order"].as_str().map(|order| format!(", {order}"));
        text.push_str(&format!(
            "{}: {} ({}{})\n",
            cell(&column["purpose"]),
            cell(&column["column"]),
            cell(&column["form"]),
            order.unwrap_or_default()
        ));
    }
    text
}

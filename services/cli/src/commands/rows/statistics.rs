//! `tideline rows stats`, `load` and `growth`: sizes of the stored rows, busy key ranges, growth of the indexes.
//!
//! `stats --now` runs the job that collects the figures, and waits for it.

use clap::Args;
use serde_json::{Value, json};

use super::RowsTable;
use crate::error::Result;
use crate::output::grid::Grid;
use crate::output::{self, cell};

pub(super) const EXAMPLES: &str = "\
Examples:
  tideline rows stats orders
  tideline rows stats orders --now --ranges   # collect the figures first; list all key ranges";

/// Number of partitions and ranges that are listed without `--ranges`.
const LISTED: usize = 10;

/// Arguments of `rows stats`.
#[derive(Debug, Args)]
pub(crate) struct StatsArguments {
    #[command(flatten)]
    table: RowsTable,
    /// Collect the figures now, instead of showing those of the last survey
    #[arg(long)]
    now: bool,
    /// List all key ranges and partitions [default: those with the most delete markers, and the largest]
    #[arg(long)]
    ranges: bool,
}

/// Arguments of `rows load`.
#[derive(Debug, Args)]
pub(crate) struct LoadArguments {
    #[command(flatten)]
    table: RowsTable,
}

/// Shows the statistics of the stored rows.
pub(super) fn stats(arguments: &StatsArguments) -> Result<()> {
    let client = arguments.table.client()?;
    if arguments.now {
        let job = json!({"kind": "survey_rows", "table": client.table(), "wait": true});
        client.post("/v1/jobs", &job)?;
    }
    let text = client.get(&client.of_table("/rows/stats"))?;
    if arguments.table.connection.json {
        return output::print(&text);
    }
    let stats = client.parse(&text)?;
    let Some(surveyed) = stats["surveyed"].as_str() else {
        return output::print("no statistics since the start of the server; use --now");
    };
    let mut text = format!("surveyed {surveyed}\n");
    let indexes = stats["indexes"].as_array().into_iter().flatten();
    for rows in std::iter::once(&stats["rows"]).chain(indexes) {
        text.push_str(&format!("\n{}", of_rows(rows, arguments.ranges)));
    }
    output::print(&text)
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

fn count(value: &Value) -> String {
    output::count(number(value))
}

fn of_rows(rows: &Value, lists_all: bool) -> String {
    let of = rows["index"]
        .as_str()
        .map_or("rows".to_owned(), |index| format!("index {index}"));
    let mut grid = Grid::new([of.as_str(), "value"]);
    for (name, value) in [
        ("rows", count(&rows["rows"])),
        ("not packed", count(&rows["single_rows"])),
        ("in fragments", count(&rows["large_rows"])),
        ("delete markers", count(&rows["delete_markers"])),
        ("share of markers", cell(&rows["marker_ratio"])),
        ("bytes", output::bytes(number(&rows["bytes"]))),
        (
            "bytes after packing",
            output::bytes(number(&rows["stored_bytes"])),
        ),
        ("bytes per key", cell(&rows["key_bytes_mean"])),
        ("largest key", output::bytes(number(&rows["key_bytes_max"]))),
        ("columns, median", count(&rows["columns_median"])),
        ("columns, largest", count(&rows["columns_max"])),
        ("partitions", count(&rows["partition_count"])),
    ] {
        grid.row(vec![name.into(), value]);
    }
    let mut text = grid.render();
    let partitions = rows["partitions"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let listed = if lists_all { partitions.len() } else { LISTED };
    let mut grid = Grid::new(["largest partitions", "rows", "bytes", "warning"]).wrapping();
    for partition in partitions.iter().take(listed) {
        grid.row(vec![
            cell(&partition["partition"]),
            count(&partition["rows"]),
            output::bytes(number(&partition["bytes"])),
            cell(&partition["warning"]),
        ]);
    }
    if !partitions.is_empty() {
        text.push_str(&format!("\n{}", grid.render()));
    }
    let mut ranges: Vec<&Value> = rows["ranges"].as_array().into_iter().flatten().collect();
    if !lists_all {
        ranges.retain(|range| number(&range["delete_markers"]) > 0);
        ranges.sort_by_key(|range| std::cmp::Reverse(number(&range["delete_markers"])));
        ranges.truncate(LISTED);
    }
    let mut grid = Grid::new([
        "from",
        "part",
        "rows",
        "not packed",
        "delete markers",
        "share",
        "bytes",
    ]);
    for range in &ranges {
        grid.row(vec![
            cell(&range["from"]),
            cell(&range["part"]),
            count(&range["rows"]),
            count(&range["single_rows"]),
            count(&range["delete_markers"]),
            cell(&range["marker_ratio"]),
            output::bytes(number(&range["bytes"])),
        ]);
    }
    if !ranges.is_empty() {
        text.push_str(&format!("\n{}", grid.render()));
    }
    text
}

/// Shows the load of the last minute.
pub(super) fn load(arguments: &LoadArguments) -> Result<()> {
    let client = arguments.table.client()?;
    let text = client.get(&client.of_table("/rows/load"))?;
    if arguments.table.connection.json {
        return output::print(&text);
    }
    let load = client.parse(&text)?;
    let mut grid = Grid::new(["last minute", "requests per second", "rows"]);
    for (name, rate, rows) in [
        ("writes", "writes_per_second", "rows_written"),
        ("reads", "reads_per_second", "rows_read"),
    ] {
        grid.row(vec![name.into(), cell(&load[rate]), count(&load[rows])]);
    }
    let mut text = grid.render();
    let mut grid = Grid::new(["hot range", "to", "kind", "writes", "reads"]);
    let hot = load["hot_ranges"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    for range in hot {
        grid.row(vec![
            cell(&range["from"]),
            cell(&range["to"]),
            cell(&range["kind"]),
            cell(&range["share_of_writes"]),
            cell(&range["share_of_reads"]),
        ]);
    }
    match hot.is_empty() {
        true => text.push_str("\nno key range has far more than its share\n"),
        false => text.push_str(&format!("\n{}", grid.render())),
    }
    output::print(&text)
}

/// Arguments of `rows growth`.
#[derive(Debug, Args)]
pub(crate) struct GrowthArguments {
    #[command(flatten)]
    table: RowsTable,
    /// Number of rows or documents whose date is forecast [default: 20,000,000,000 for search indexes]
    #[arg(long, value_name = "N")]
    rows: Option<u64>,
    /// Bytes whose date is forecast
    #[arg(long, value_name = "N")]
    bytes: Option<u64>,
}

/// Shows the growth of the table and of its indexes.
pub(super) fn growth(arguments: &GrowthArguments) -> Result<()> {
    let client = arguments.table.client()?;
    let marks = [("rows", arguments.rows), ("bytes", arguments.bytes)];
    let marks = marks
        .iter()
        .filter_map(|(name, mark)| Some(format!("{name}={}", (*mark)?)));
    let marks: Vec<String> = marks.collect();
    let path = client.of_table("/rows/growth");
    let text = client.get(&match marks.is_empty() {
        true => path,
        false => format!("{path}?{}", marks.join("&")),
    })?;
    if arguments.table.connection.json {
        return output::print(&text);
    }
    let response = client.parse(&text)?;
    let mut grid = Grid::new([
        "kind",
        "name",
        "rows",
        "bytes",
        "rows per day",
        "bytes per day",
        "rows reached",
        "bytes reached",
    ]);
    for growth in response["growth"].as_array().into_iter().flatten() {
        let bytes = |value: &Value| {
            value
                .as_f64()
                .map(|bytes| output::bytes(bytes.max(0.0) as u64))
                .unwrap_or_default()
        };
        grid.row(vec![
            cell(&growth["kind"]),
            cell(&growth["name"]),
            growth["rows"].as_u64().map(output::count).unwrap_or_default(),
            bytes(&growth["bytes"]),
            cell(&growth["rows_per_day"]),
            bytes(&growth["bytes_per_day"]),
            cell(&growth["rows_mark_reached"]),
            cell(&growth["bytes_mark_reached"]),
        ]);
    }
    output::print(&grid.render())
}

//! `tideline rows index`: lists, creates and drops secondary indexes.
//!
//! A new index is built by a job; the command returns before the job has ended.

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::{RowsTable, TierArgument};
use crate::client::encoded;
use crate::error::{CliError, Result};
use crate::output;
use crate::output::grid::Grid;

/// Subcommands of `rows index`.
#[derive(Debug, Subcommand)]
pub(crate) enum IndexCommand {
    /// List the indexes of a table, with their state and use
    List(RowsTable),
    /// Create an index
    #[command(after_help = "\
Examples:
  tideline rows index create orders by_state state placed:desc --covers total
  tideline rows index create files by_hash '{\"name\": \"h\", \"hash_prefix\": {\"of\": [\"sha1\"], \"hex\": 4}}' sha1")]
    Create(CreateArguments),
    /// Drop an index
    Drop(DropArguments),
}

#[derive(Debug, Args)]
pub(crate) struct CreateArguments {
    #[command(flatten)]
    table: RowsTable,
    /// Name of the index
    #[arg(value_name = "INDEX")]
    name: String,
    /// Columns in the order of the index: NAME or NAME:desc, or a key column as a JSON object
    #[arg(value_name = "COLUMN", required = true)]
    columns: Vec<String>,
    /// Columns that the entries hold in addition, separated by commas; `*` for all columns
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    covers: Vec<String>,
    /// Order the rows of each partition separately
    #[arg(long)]
    local: bool,
    #[command(flatten)]
    tier: TierArgument,
    /// Accept a first column that rises with time, although all new entries then go to the end of the order
    #[arg(long)]
    allow_rising_key: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DropArguments {
    #[command(flatten)]
    table: RowsTable,
    /// Name of the index
    #[arg(value_name = "INDEX")]
    name: String,
}

/// Runs the subcommand.
pub(super) fn run(command: &IndexCommand) -> Result<()> {
    match command {
        IndexCommand::List(table) => list(table),
        IndexCommand::Create(arguments) => create(arguments),
        IndexCommand::Drop(DropArguments { table, name }) => {
            let client = table.client()?;
            client.delete(&client.of_table(&format!("/indexes/{}", encoded(name))))?;
            match table.connection.json {
                true => output::print(&json!({"dropped": name}).to_string()),
                false => output::print(&format!("dropped index {name}")),
            }
        }
    }
}

fn list(table: &RowsTable) -> Result<()> {
    let client = table.client()?;
    let text = client.get(&client.of_table("/indexes"))?;
    if table.connection.json {
        return output::print(&text);
    }
    let mut grid = Grid::new([
        "index",
        "columns",
        "covers",
        "scope",
        "tier",
        "status",
        "scans",
        "entries written",
    ]);
    for index in client.parse(&text)?["indexes"].as_array().into_iter().flatten() {
        let columns = index["key"].as_array().into_iter().flatten().map(column_text);
        let mut row = vec![
            output::member(index, "name"),
            columns.collect::<Vec<_>>().join(", "),
            match index["covers"].as_array() {
                Some(names) => names
                    .iter()
                    .filter_map(Value::as_str)
                    .collect::<Vec<_>>()
                    .join(", "),
                None => "*".to_owned(),
            },
        ];
        row.extend(
            ["scope", "tier", "status", "scans", "entries_written"].map(|name| output::member(index, name)),
        );
        grid.row(row);
    }
    output::print(&grid.render())
}

/// Returns a column of an index as `create` accepts it.
fn column_text(column: &Value) -> String {
    let name = output::member(column, "name");
    match (column["type"].is_string(), column["order"].as_str()) {
        (true, Some("desc")) => format!("{name}:desc"),
        (true, _) => name,
        (false, _) => column.to_string(),
    }
}

fn create(arguments: &CreateArguments) -> Result<()> {
    let mut key = Vec::with_capacity(arguments.columns.len());
    for text in &arguments.columns {
        key.push(column(text)?);
    }
    let mut body = Map::from_iter([
        ("name".to_owned(), json!(arguments.name)),
        ("key".to_owned(), key.into()),
    ]);
    if !arguments.covers.is_empty() {
        let covers = match arguments.covers.as_slice() {
            [all] if all == "*" => json!("all"),
            names => json!(names),
        };
        body.insert("covers".into(), covers);
    }
    arguments.tier.add_to(&mut body);
    if arguments.local {
        body.insert("scope".into(), "local".into());
    }
    if arguments.allow_rising_key {
        body.insert("allow_rising_key".into(), true.into());
    }
    let client = arguments.table.client()?;
    let text = client.post(&client.of_table("/indexes"), &Value::from(body))?;
    match arguments.table.connection.json {
        true => output::print(&text),
        false => output::print(&format!(
            "created index {}; the job build_index adds the rows of the table",
            arguments.name
        )),
    }
}

/// Parses a column: `NAME`, `NAME:asc`, `NAME:desc`, or a JSON object.
fn column(text: &str) -> Result<Value> {
    if text.starts_with('{') {
        return serde_json::from_str(text).map_err(|error| CliError::usage(format!("{text}: {error}")));
    }
    Ok(match ordered(text)? {
        (name, true) => json!({"name": name, "order": "desc"}),
        (name, false) => json!({"name": name}),
    })
}

/// Splits a column from its order: `NAME`, `NAME:asc` or `NAME:desc`. The second value is true for `:desc`.
pub(in crate::commands) fn ordered(text: &str) -> Result<(&str, bool)> {
    match text.rsplit_once(':') {
        None => Ok((text, false)),
        Some((name, "asc")) => Ok((name, false)),
        Some((name, "desc")) => Ok((name, true)),
        Some((_, order)) => Err(CliError::usage(format!(
            "{text}: the order {order:?} is not known; use :asc or :desc"
        ))),
    }
}

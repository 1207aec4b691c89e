//! `tideline archive status` and `archive restore`: the state of a running server's archives, and the restore
//! of archived points to the cold tier.

use clap::Args;
use serde_json::{Value, json};

use crate::client::{ConnectionArguments, TableArguments};
use crate::commands::jobs;
use crate::commands::selection::RangeArguments;
use crate::error::{CliError, Result};
use crate::output;
use crate::output::grid::Grid;

/// Arguments of `archive status`.
#[derive(Debug, Args)]
pub struct StatusArguments {
    #[command(flatten)]
    connection: ConnectionArguments,
}

/// Arguments of `archive restore`.
#[derive(Debug, Args)]
#[command(after_help = "\
Whole segments are restored. The archive policy leaves them in the cold tier for the requested time.

  tideline archive restore --table metrics --from 2026-01-01T00:00:00Z --to 2026-01-08T00:00:00Z
  tideline archive restore --table metrics --all-time --for 30d --wait
  tideline archive restore --table metrics --from 2026-01-01T00:00:00Z --to 2026-01-08T00:00:00Z --into january")]
pub struct RestoreArguments {
    #[command(flatten)]
    connection: TableArguments,
    #[command(flatten)]
    range: RangeArguments,
    /// Restore points of any age
    #[arg(long, conflicts_with_all = ["last", "from", "to"])]
    all_time: bool,
    /// Time that the points stay in the cold tier, such as 30d [default: 7d]
    #[arg(long = "for", value_name = "DURATION", conflicts_with = "into")]
    lasting: Option<String>,
    /// Copy the points of the range into this table instead, whatever their tier
    #[arg(long, value_name = "TABLE")]
    into: Option<String>,
    /// Show the progress until the job has ended
    #[arg(long)]
    wait: bool,
}

/// Shows archived, copied, waiting and late points per table, archived parts of wide tables, and errors per target.
pub(crate) fn status(arguments: &StatusArguments) -> Result<()> {
    let client = arguments.connection.client()?;
    let text = client.get("/v1/archive")?;
    match arguments.connection.json {
        true => output::print(&text),
        false => output::print(&standing(&client.parse(&text)?)),
    }
}

fn standing(response: &Value) -> String {
    let number = |value: &Value| value.as_u64().map(output::count).unwrap_or_default();
    let mut targets = Grid::new(["target", "address", "tables", "failures"]);
    let mut troubles = String::new();
    for target in response["targets"].as_array().into_iter().flatten() {
        let tables = target["tables"].as_array().into_iter().flatten();
        let tables: Vec<String> = tables.map(output::cell).collect();
        targets.row(vec![
            output::member(target, "name"),
            output::member(target, "address"),
            tables.join(" "),
            number(&target["failures"]),
        ]);
        if let Some(error) = target["error"].as_str() {
            troubles.push_str(&format!("\n{}: {error}\n", output::member(target, "name")));
        }
    }
    let mut tables = Grid::new([
        "table", "files", "bytes", "points", "oldest", "newest", "cold too", "waiting", "late", "behind",
    ]);
    for table in response["tables"].as_array().into_iter().flatten() {
        if let Some(stalled) = table["stalled"].as_str() {
            troubles.push_str(&format!("\n{}: {stalled}\n", output::member(table, "table")));
        }
        tables.row(vec![
            output::member(table, "table"),
            number(&table["files"]),
            table["file_bytes"]
                .as_u64()
                .map(output::bytes)
                .unwrap_or_default(),
            number(&table["archived"]["points"]),
            output::member(table, "oldest"),
            output::member(table, "newest"),
            number(&table["copied"]["points"]),
            number(&table["waiting"]["points"]),
            number(&table["late"]["points"]),
            output::member(table, "behind"),
        ]);
    }
    let wide = wide_tables(response, &mut troubles);
    format!("{}\n{}{wide}{troubles}", targets.render(), tables.render())
}

/// Formats the archives of wide tables, and appends the reasons of stalled archives to `troubles`. Returns an empty
/// text without wide tables.
fn wide_tables(response: &Value, troubles: &mut String) -> String {
    let tables = response["wide_tables"].as_array();
    let Some(tables) = tables.filter(|tables| !tables.is_empty()) else {
        return String::new();
    };
    let number = |value: &Value| value.as_u64().map(output::count).unwrap_or_default();
    let mut grid = Grid::new([
        "wide table",
        "parts",
        "rows",
        "files",
        "bytes",
        "oldest",
        "newest",
        "waiting",
        "behind",
        "failures",
    ]);
    for table in tables {
        if let Some(stalled) = table["stalled"].as_str() {
            troubles.push_str(&format!("\n{}: {stalled}\n", output::member(table, "table")));
        }
        grid.row(vec![
            output::member(table, "table"),
            number(&table["parts"]),
            number(&table["rows"]),
            number(&table["files"]),
            table["file_bytes"]
                .as_u64()
                .map(output::bytes)
                .unwrap_or_default(),
            output::member(table, "oldest"),
            output::member(table, "newest"),
            number(&table["waiting"]),
            output::member(table, "behind"),
            number(&table["failures"]),
        ]);
    }
    format!("\n{}", grid.render())
}

/// Starts the restore, and follows its job if requested.
pub(crate) fn restore(arguments: &RestoreArguments) -> Result<()> {
    if arguments.range.is_open() && !arguments.all_time {
        return Err(CliError::usage(
            "missing range: use --from, --to, --last or --all-time",
        ));
    }
    let client = arguments.connection.client()?;
    let mut body = json!({"range": arguments.range.range()});
    for (name, value) in [("for", &arguments.lasting), ("into", &arguments.into)] {
        if let Some(value) = value {
            body[name] = value.as_str().into();
        }
    }
    let text = client.post(&client.of_table("/archive/restore"), &body)?;
    let response = client.parse(&text)?;
    match response["job"]["id"].as_u64() {
        Some(job) if arguments.wait => jobs::watch(&client, &arguments.connection.server, job),
        _ if arguments.connection.server.json => output::print(&text),
        Some(_) => output::print(&jobs::table(&Value::Array(vec![response["job"].clone()]))),
        None => output::print("neither the archive nor the cold tier has points in that range"),
    }
}

//! `tideline tenant`: creates, changes, lists and removes tenants.
//!
//! A tenant is set as a whole: options that are not given are empty afterwards.

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use crate::client::{ConnectionArguments, encoded};
use crate::error::Result;
use crate::output;
use crate::output::grid::Grid;

/// Subcommands of `tenant`.
#[derive(Debug, Subcommand)]
pub(crate) enum TenantCommand {
    /// Create a tenant, or change tables and budgets of an existing one
    #[command(after_help = "\
Examples:
  tideline tenant set acme --table 'acme-*' --default-table acme-metrics
  tideline tenant set acme --table 'acme-*' --points-per-second 50000 --queries 8
  tideline token create --name acme-agents --role writer --tenant acme

Existing budgets that are not given again are removed. Tables are not created.")]
    Set(SetArguments),
    /// List tenants, with their budgets and use
    List(ConnectionArguments),
    /// Show a tenant
    Show(TenantArguments),
    /// Remove a tenant; its tables stay, and requests of its tokens are refused
    Remove(TenantArguments),
}

#[derive(Debug, Args)]
pub(crate) struct SetArguments {
    /// Name of the tenant
    name: String,
    /// Table of the tenant: a name, or a prefix followed by `*`; repeat it for several
    #[arg(long = "table", value_name = "TABLE", required = true)]
    tables: Vec<String>,
    /// Table of requests that name none [default: they are refused]
    #[arg(long, value_name = "TABLE")]
    default_table: Option<String>,
    /// Budget of points, rows and messages written per second [default: no limit]
    #[arg(long, value_name = "NUMBER")]
    points_per_second: Option<u64>,
    /// Budget of new timelines per minute [default: no limit]
    #[arg(long, value_name = "NUMBER")]
    new_timelines_per_minute: Option<u64>,
    /// Budget of requests that read at the same time [default: no limit]
    #[arg(long, value_name = "NUMBER")]
    queries: Option<u64>,
    #[command(flatten)]
    connection: ConnectionArguments,
}

#[derive(Debug, Args)]
pub(crate) struct TenantArguments {
    /// Name of the tenant
    name: String,
    #[command(flatten)]
    connection: ConnectionArguments,
}

pub(crate) fn run(command: &TenantCommand) -> Result<()> {
    match command {
        TenantCommand::Set(arguments) => set(arguments),
        TenantCommand::List(connection) => list(connection),
        TenantCommand::Show(TenantArguments { name, connection }) => show(connection, name),
        TenantCommand::Remove(TenantArguments { name, connection }) => {
            connection.client()?.delete(&path(name))?;
            match connection.json {
                true => output::print(&json!({"removed": name}).to_string()),
                false => output::print(&format!("removed tenant {name}")),
            }
        }
    }
}

fn path(name: &str) -> String {
    format!("/v1/tenants/{}", encoded(name))
}

fn set(arguments: &SetArguments) -> Result<()> {
    let mut budgets = Map::new();
    for (name, limit) in [
        ("points_per_second", arguments.points_per_second),
        ("new_timelines_per_minute", arguments.new_timelines_per_minute),
        ("queries", arguments.queries),
    ] {
        if let Some(limit) = limit {
            budgets.insert(name.to_owned(), json!(limit));
        }
    }
    let body = json!({
        "tables": arguments.tables,
        "default_table": arguments.default_table,
        "budgets": budgets,
    });
    let client = arguments.connection.client()?;
    let text = client.put(&path(&arguments.name), &body)?;
    match arguments.connection.json {
        true => output::print(&text),
        false => output::print(&described(&client.parse(&text)?)),
    }
}

fn list(connection: &ConnectionArguments) -> Result<()> {
    let client = connection.client()?;
    let text = client.get("/v1/tenants")?;
    if connection.json {
        return output::print(&text);
    }
    let mut grid = Grid::new([
        "tenant",
        "tables",
        "default table",
        "points per second",
        "new timelines per minute",
        "queries",
        "points written",
        "refused",
    ])
    .wrapping();
    for tenant in client.parse(&text)?["tenants"].as_array().into_iter().flatten() {
        let (budgets, used) = (&tenant["budgets"], &tenant["used"]);
        let refused = ["refused_points", "refused_timelines", "refused_queries"]
            .map(|name| used[name].as_u64().unwrap_or(0));
        grid.row(vec![
            output::member(tenant, "name"),
            tables(tenant),
            output::member(tenant, "default_table"),
            output::member(budgets, "points_per_second"),
            output::member(budgets, "new_timelines_per_minute"),
            output::member(budgets, "queries"),
            output::member(used, "points"),
            refused.iter().sum::<u64>().to_string(),
        ]);
    }
    output::print(&grid.render())
}

fn show(connection: &ConnectionArguments, name: &str) -> Result<()> {
    let client = connection.client()?;
    let text = client.get(&path(name))?;
    match connection.json {
        true => output::print(&text),
        false => output::print(&described(&client.parse(&text)?)),
    }
}

fn tables(tenant: &Value) -> String {
    let tables = tenant["tables"].as_array().into_iter().flatten();
    tables.map(output::cell).collect::<Vec<_>>().join(", ")
}

/// Describes a tenant, one property per line.
fn described(tenant: &Value) -> String {
    let mut grid = Grid::new(["", ""]).wrapping();
    let mut line = |name: &str, value: String| {
        if !value.is_empty() {
            grid.row(vec![name.to_owned(), value]);
        }
    };
    let (budgets, used) = (&tenant["budgets"], &tenant["used"]);
    line("tenant", output::member(tenant, "name"));
    line("tables", tables(tenant));
    line("default table", output::member(tenant, "default_table"));
    line("points per second", output::member(budgets, "points_per_second"));
    line(
        "new timelines per minute",
        output::member(budgets, "new_timelines_per_minute"),
    );
    line("queries", output::member(budgets, "queries"));
    line("points written", output::member(used, "points"));
    line("running queries", output::member(used, "queries"));
    line("refused writes", output::member(used, "refused_points"));
    line("refused new timelines", output::member(used, "refused_timelines"));
    line("refused queries", output::member(used, "refused_queries"));
    line("created", output::member(tenant, "created"));
    line("created by", output::member(tenant, "created_by"));
    grid.render()
}

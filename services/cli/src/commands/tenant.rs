//! `tideline tenant`: creates, changes, lists and removes tenants.
//!
//! The settings of a tenant are replaced as a whole: options that are not given are empty
//! afterwards.

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use crate::client::{ConnectionArguments, bytes, encoded};
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
    Set(Box<SetArguments>),
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
    /// Table of requests that name no table [default: such requests are refused]
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
    /// Budget of timelines in all tables [default: no limit]
    #[arg(long, value_name = "NUMBER")]
    timelines: Option<u64>,
    /// Budget of bytes in the hot tier, such as 10GiB [default: no limit]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    hot_bytes: Option<u64>,
    /// Budget of bytes in the cold tier, such as 100GiB [default: no limit]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    cold_bytes: Option<u64>,
    /// Budget of bytes in the archive, such as 1TiB [default: no limit]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    archive_bytes: Option<u64>,
    /// Budget of bytes of stored data read per second, such as 100MiB [default: no limit]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    bytes_read_per_second: Option<u64>,
    /// Budget of bytes of memory of all requests at the same time, such as 256MiB [default: no limit]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    memory_bytes: Option<u64>,
    /// Budget of the number of tables [default: a tenth of tables.count_max]
    #[arg(long, value_name = "NUMBER")]
    tables_max: Option<u64>,
    /// Budget of the number of change streams [default: 10]
    #[arg(long, value_name = "NUMBER")]
    change_streams: Option<u64>,
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
        ("timelines", arguments.timelines),
        ("hot_bytes", arguments.hot_bytes),
        ("cold_bytes", arguments.cold_bytes),
        ("archive_bytes", arguments.archive_bytes),
        ("bytes_read_per_second", arguments.bytes_read_per_second),
        ("memory_bytes", arguments.memory_bytes),
        ("tables", arguments.tables_max),
        ("change_streams", arguments.change_streams),
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
        "budgets",
        "points written",
        "timelines",
        "refused",
    ])
    .wrapping();
    for tenant in client.parse(&text)?["tenants"].as_array().into_iter().flatten() {
        let used = &tenant["used"];
        let refused = [
            "refused_points",
            "refused_timelines",
            "refused_queries",
            "refused_memory",
            "refused_objects",
        ]
        .map(|name| used[name].as_u64().unwrap_or(0));
        let budgets = budgets(tenant).map(|(name, limit)| format!("{name} {limit}"));
        grid.row(vec![
            output::member(tenant, "name"),
            tables(tenant),
            output::member(tenant, "default_table"),
            budgets.collect::<Vec<_>>().join(", "),
            output::member(used, "points"),
            output::member(used, "timelines"),
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

/// Returns the budgets of a tenant with their limits, named in words.
fn budgets(tenant: &Value) -> impl Iterator<Item = (String, u64)> + '_ {
    let budgets = tenant["budgets"].as_object().into_iter().flatten();
    budgets.filter_map(|(name, limit)| Some((name.replace('_', " "), limit.as_u64()?)))
}

/// Describes a tenant, one property per line.
fn described(tenant: &Value) -> String {
    let mut grid = Grid::new(["", ""]).wrapping();
    let mut line = |name: &str, value: String| {
        if !value.is_empty() {
            grid.row(vec![name.to_owned(), value]);
        }
    };
    line("tenant", output::member(tenant, "name"));
    line("tables", tables(tenant));
    line("default table", output::member(tenant, "default_table"));
    usage(tenant, &mut line);
    line("created", output::member(tenant, "created"));
    line("created by", output::member(tenant, "created_by"));
    grid.render()
}

/// Describes the members `budgets` and `used` of a tenant or of the access of a token, one property per line.
pub(super) fn usage(tenant: &Value, line: &mut dyn FnMut(&str, String)) {
    let used = &tenant["used"];
    for (name, limit) in budgets(tenant) {
        line(&format!("budget of {name}"), limit.to_string());
    }
    for (name, member) in [
        ("points written", "points"),
        ("bytes read", "bytes_read"),
        ("running queries", "queries"),
        ("bytes of memory", "memory_bytes"),
        ("timelines", "timelines"),
        ("bytes in the hot tier", "hot_bytes"),
        ("bytes in the cold tier", "cold_bytes"),
        ("bytes in the archive", "archive_bytes"),
        ("number of tables", "tables"),
        ("largest number of tables", "tables_max"),
        ("number of change streams", "change_streams"),
        ("largest number of change streams", "change_streams_max"),
        ("refused writes", "refused_points"),
        ("refused new timelines", "refused_timelines"),
        ("refused queries", "refused_queries"),
        ("refused memory", "refused_memory"),
        ("refused tables and change streams", "refused_objects"),
    ] {
        line(name, output::member(used, member));
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(subcommand)]
        command: TenantCommand,
    }

    #[test]
    fn budgets_of_bytes_are_sizes_with_units() {
        let line = [
            "tenant",
            "set",
            "acme",
            "--table",
            "a",
            "--hot-bytes",
            "10GiB",
            "--memory-bytes",
            "1048576",
        ];
        let TenantCommand::Set(arguments) = Line::parse_from(line).command else {
            panic!("budgets")
        };
        assert_eq!(
            (arguments.hot_bytes, arguments.memory_bytes, arguments.cold_bytes),
            (Some(10 << 30), Some(1 << 20), None)
        );
    }
}

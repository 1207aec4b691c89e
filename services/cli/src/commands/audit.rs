//! `tideline audit`: lists audit records, and sets for how long they are kept.
//!
//! A list is a statement of SQL on the audit table, so the server needs no route for it.

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::client::{Client, ConnectionArguments, duration};
use crate::commands::selection::confirm;
use crate::error::Result;
use crate::output;
use crate::output::grid::Grid;

/// Path of the retention time.
const RETENTION: &str = "/v1/audit/retention";

/// Columns of a list: heading, and column of the audit table.
const COLUMNS: [(&str, &str); 9] = [
    ("time", "time"),
    ("principal", "principal"),
    ("tenant", "tenant"),
    ("client", "client"),
    ("method", "method"),
    ("path", "path"),
    ("status", "status"),
    ("requests", "count"),
    ("detail", "detail"),
];

/// Subcommands of `audit`.
#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// List records, newest first
    #[command(after_help = "\
Examples:
  tideline audit list --limit 20
  tideline audit list --from 2026-11-01T00:00:00Z --principal 'configured token'
  tideline audit list --kind refusal

The records are rows of the table tideline-audit: `tideline sql` answers other questions.")]
    List(ListArguments),
    /// Show or set the time for which records are kept
    Retention(RetentionArguments),
}

#[derive(Debug, Args)]
pub(crate) struct ListArguments {
    /// Start of the range, RFC 3339 [default: the oldest record]
    #[arg(long, value_name = "TIME")]
    from: Option<String>,
    /// End of the range, exclusive, RFC 3339 [default: no limit]
    #[arg(long, value_name = "TIME")]
    to: Option<String>,
    /// Only records of this principal
    #[arg(long, value_name = "PRINCIPAL")]
    principal: Option<String>,
    /// Only records of this kind
    #[arg(long, value_parser = ["change", "refusal"])]
    kind: Option<String>,
    /// Maximum number of records
    #[arg(long, value_name = "NUMBER", default_value_t = 100)]
    limit: u64,
    #[command(flatten)]
    connection: ConnectionArguments,
}

#[derive(Debug, Args)]
pub(crate) struct RetentionArguments {
    /// New time, such as 90d; at least 1d [default: only show it]
    retention: Option<String>,
    /// Set a shorter time, which deletes older records, without confirmation
    #[arg(long, short, requires = "retention")]
    yes: bool,
    #[command(flatten)]
    connection: ConnectionArguments,
}

pub(crate) fn run(command: &AuditCommand) -> Result<()> {
    match command {
        AuditCommand::List(arguments) => list(arguments),
        AuditCommand::Retention(arguments) => retention(arguments),
    }
}

/// Returns the statement that lists the records, and its parameters.
fn statement(arguments: &ListArguments) -> (String, Vec<Value>) {
    let mut conditions = Vec::new();
    let mut parameters = Vec::new();
    let from = arguments.from.as_deref().unwrap_or("1970-01-01T00:00:00Z");
    for (condition, value) in [
        ("time >= ?", Some(from)),
        ("time < ?", arguments.to.as_deref()),
        ("principal = ?", arguments.principal.as_deref()),
        ("kind = ?", arguments.kind.as_deref()),
    ] {
        if let Some(value) = value {
            conditions.push(condition);
            parameters.push(json!(value));
        }
    }
    let statement = format!(
        "SELECT time, kind, principal, tenant, client, method, path, status, count, request_id, detail \
         FROM \"tideline-audit\" WHERE {} ORDER BY time DESC LIMIT {}",
        conditions.join(" AND "),
        arguments.limit
    );
    (statement, parameters)
}

fn list(arguments: &ListArguments) -> Result<()> {
    let (statement, parameters) = statement(arguments);
    let client = arguments.connection.client()?;
    let body = json!({"statement": statement, "params": parameters});
    let text = client.post("/v1/sql", &body)?;
    if arguments.connection.json {
        return output::print(&text);
    }
    let mut grid = Grid::new(COLUMNS.map(|(heading, _)| heading)).wrapping();
    for record in client.parse(&text)?["rows"].as_array().into_iter().flatten() {
        grid.row(COLUMNS.map(|(_, name)| output::member(record, name)).to_vec());
    }
    output::print(&grid.render())
}

fn retention(arguments: &RetentionArguments) -> Result<()> {
    let client = arguments.connection.client()?;
    let text = match &arguments.retention {
        Some(retention) => {
            if !arguments.yes {
                confirm_shorter(&client, retention)?;
            }
            client.put(RETENTION, &json!({"retention": retention}))?
        }
        None => client.get(RETENTION)?,
    };
    match arguments.connection.json {
        true => output::print(&text),
        false => output::print(&output::member(&client.parse(&text)?, "retention")),
    }
}

/// Requests a confirmation if the new time is shorter than the current one, because older records are then deleted.
fn confirm_shorter(client: &Client, retention: &str) -> Result<()> {
    let current = output::member(&client.parse(&client.get(RETENTION)?)?, "retention");
    // The server refuses a text that is not a duration.
    match (duration(retention), duration(&current)) {
        (Ok(new), Ok(old)) if new < old => confirm(&format!(
            "This deletes the audit records on {} that are older than {retention}; they are kept for {current} now.",
            client.base()
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(subcommand)]
        command: AuditCommand,
    }

    #[test]
    fn a_list_is_one_statement_with_parameters() {
        let line = Line::parse_from(["audit", "list", "--principal", "it's me", "--limit", "5"]);
        let AuditCommand::List(arguments) = line.command else {
            panic!("a list")
        };
        let (statement, parameters) = statement(&arguments);
        assert!(statement.contains(", detail FROM"), "{statement}");
        assert!(
            statement.ends_with("WHERE time >= ? AND principal = ? ORDER BY time DESC LIMIT 5"),
            "{statement}"
        );
        assert_eq!(parameters, ["1970-01-01T00:00:00Z", "it's me"]);
    }
}

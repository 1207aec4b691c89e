//! `tideline queries`: lists and cancels running queries.

use clap::{Args, Subcommand};

use crate::client::ConnectionArguments;
use crate::error::{CliError, Result};
use crate::output;
use crate::output::grid::Grid;

/// Subcommands of `queries`.
#[derive(Debug, Subcommand)]
pub(crate) enum QueriesCommand {
    /// List running queries, the oldest first
    #[command(after_help = "\
Example:
  tideline queries list --json")]
    List(ListArguments),
    /// Cancel a query; the exit status is 1 if no such query is running
    #[command(after_help = "\
Example:
  tideline queries cancel 17")]
    Cancel(CancelArguments),
}

#[derive(Debug, Args)]
pub(crate) struct ListArguments {
    #[command(flatten)]
    connection: ConnectionArguments,
}

#[derive(Debug, Args)]
pub(crate) struct CancelArguments {
    /// Query number, as shown by `queries list`
    id: u64,
    #[command(flatten)]
    connection: ConnectionArguments,
}

pub(crate) fn run(command: &QueriesCommand) -> Result<()> {
    match command {
        QueriesCommand::List(arguments) => list(arguments),
        QueriesCommand::Cancel(arguments) => cancel(arguments),
    }
}

fn list(ListArguments { connection }: &ListArguments) -> Result<()> {
    let client = connection.client()?;
    let text = client.get("/v1/queries")?;
    if connection.json {
        return output::print(&text);
    }
    let mut grid = Grid::new(["query", "table", "kind", "started", "points", "timelines", "text"]).wrapping();
    for query in client.parse(&text)?["queries"].as_array().into_iter().flatten() {
        let number = |name: &str| query[name].as_u64().map(output::count).unwrap_or_default();
        grid.row(vec![
            output::member(query, "id"),
            output::member(query, "table"),
            output::member(query, "resource"),
            output::member(query, "started"),
            number("points"),
            number("timelines"),
            output::member(query, "question"),
        ]);
    }
    output::print(&grid.render())
}

fn cancel(CancelArguments { id, connection }: &CancelArguments) -> Result<()> {
    let client = connection.client()?;
    let text = client.delete(&format!("/v1/queries/{id}"))?;
    let is_cancelled = client.parse(&text)?["cancelled"] == true;
    if connection.json {
        output::print(&text)?;
    }
    match is_cancelled {
        true if connection.json => Ok(()),
        true => output::print(&format!("cancelled query {id}")),
        false => Err(CliError::Incomplete(format!(
            "no query {id} is running; `tideline queries list` shows the running ones"
        ))),
    }
}

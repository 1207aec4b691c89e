//! `tideline rows rekey`: copies the rows of a table into a table with another key.
//!
//! The copy is a job of the server. With `--no-wait` the command returns before the job has ended.

use clap::Args;
use serde_json::json;

use super::RowsTable;
use crate::error::Result;
use crate::output;

#[derive(Debug, Args)]
pub(crate) struct RekeyArguments {
    #[command(flatten)]
    table: RowsTable,
    /// Name of the target, a table that exists
    #[arg(value_name = "INTO")]
    into: String,
    /// Accept a target whose key lacks columns of the source key, so that several rows become one
    #[arg(long)]
    merge: bool,
    /// Return when the job has started
    #[arg(long)]
    no_wait: bool,
}

/// Runs the command.
pub(super) fn run(arguments: &RekeyArguments) -> Result<()> {
    let client = arguments.table.client()?;
    let body = json!({"into": arguments.into, "merge": arguments.merge, "wait": !arguments.no_wait});
    let text = client.post(&client.of_table("/rows/rekey"), &body)?;
    if arguments.table.connection.json {
        return output::print(&text);
    }
    let job = client.parse(&text)?;
    let outcome = ["outcome", "error"].map(|member| output::member(&job, member));
    let outcome = outcome
        .into_iter()
        .find(|text| !text.is_empty())
        .unwrap_or_default();
    output::print(&format!(
        "job {} {}: {outcome}",
        output::member(&job, "id"),
        output::member(&job, "state")
    ))
}

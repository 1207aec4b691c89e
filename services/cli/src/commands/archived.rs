//! `tideline archive restore`: archived points of a running server come back into its cold tier.

use clap::Args;
use serde_json::{Value, json};

use super::jobs;
use super::selection::RangeArguments;
use crate::client::TableArguments;
use crate::error::{CliError, Result};
use crate::output;

/// What `archive restore` takes.
#[derive(Debug, Args)]
#[command(after_help = "\
Whole segments come back, and the archive's policy leaves them in the cold tier for as long as is asked for.

  tideline archive restore --table metrics --from 2026-01-01T00:00:00Z --to 2026-01-08T00:00:00Z
  tideline archive restore --table metrics --all-time --for 30d --wait")]
pub(crate) struct RestoreArguments {
    #[command(flatten)]
    connection: TableArguments,
    #[command(flatten)]
    range: RangeArguments,
    /// However old or young
    #[arg(long, conflicts_with_all = ["last", "from", "to"])]
    all_time: bool,
    /// For how long it stays in the cold tier, such as 7d
    #[arg(long = "for", value_name = "DURATION", default_value = "7d")]
    lasting: String,
    /// Show how far it is until it has ended
    #[arg(long)]
    wait: bool,
}

/// Begins it, and follows it where that is wanted.
pub(crate) fn restore(arguments: &RestoreArguments) -> Result<()> {
    if arguments.range.is_open() && !arguments.all_time {
        return Err(CliError::usage(
            "say in which range, by --from, --to or --last, or --all-time",
        ));
    }
    let client = arguments.connection.client()?;
    let body = json!({"range": arguments.range.range(), "for": arguments.lasting});
    let text = client.post(&client.of_table("/archive/restore"), &body)?;
    let answer = client.parse(&text)?;
    match answer["job"]["id"].as_u64() {
        Some(job) if arguments.wait => jobs::watch(&client, &arguments.connection.server, job),
        _ if arguments.connection.server.json => output::print(&text),
        Some(_) => output::print(&jobs::table(&Value::Array(vec![answer["job"].clone()]))),
        None => output::print("nothing of that range is in the archive or the cold tier"),
    }
}

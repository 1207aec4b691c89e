//! `tideline delete`: points of a selection in a range, after a look at what that is.

use clap::Args;
use serde_json::{Value, json};

use super::find;
use super::known;
use super::selection::{RangeArguments, confirm};
use crate::client::TableArguments;
use crate::condition::WhereArguments;
use crate::error::{CliError, Result};
use crate::output;

/// Timelines that are shown before the question.
const SHOWN: u64 = 5;

/// What `delete` takes.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tideline delete -m cpu -w host=web-9 --from 2026-11-01T00:00:00Z --to 2026-11-02T00:00:00Z
  tideline delete -w host=web-9 --all-time --yes
  tideline delete --all-timelines --to now-365d --dry-run

Timelines stay, also without points; a point that is written afterwards is visible.")]
pub(crate) struct DeleteArguments {
    #[command(flatten)]
    connection: TableArguments,
    #[command(flatten)]
    timelines: WhereArguments,
    /// Of every timeline of the table
    #[arg(long, conflicts_with_all = ["conditions", "measurement"])]
    all_timelines: bool,
    #[command(flatten)]
    range: RangeArguments,
    /// However old or young
    #[arg(long, conflicts_with_all = ["last", "from", "to"])]
    all_time: bool,
    /// Show what would be deleted, and end
    #[arg(long, conflicts_with = "yes")]
    dry_run: bool,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
}

/// Shows, asks, deletes.
pub(crate) fn run(arguments: &DeleteArguments) -> Result<()> {
    let tree = arguments.timelines.tree()?;
    if tree.is_none() && !arguments.all_timelines {
        return Err(CliError::usage(
            "say of which timelines, by --where or --measurement, or --all-timelines",
        ));
    }
    if arguments.range.is_open() && !arguments.all_time {
        return Err(CliError::usage(
            "say in which range, by --from, --to or --last, or --all-time",
        ));
    }
    let client = arguments.connection.client()?;
    let range = arguments.range.range();
    let end = |name: &str| range.get(name).cloned().unwrap_or(Value::Null);
    if let Some(tree) = &tree {
        known::check(&client, &json!({"timelines": {"where": tree}}))?;
    }
    let (total, first) = find::look(&client, tree.as_ref(), SHOWN)?;
    if !arguments.connection.server.json {
        eprint!("{}", find::table(&first));
        if total > first.len() as u64 {
            eprintln!("… {} more", output::count(total - first.len() as u64));
        }
    }
    let text = |value: Value, open: &str| value.as_str().map_or_else(|| open.to_owned(), str::to_owned);
    let what = format!(
        "points of {} timelines of table {} on {}, from {} to {}",
        output::count(total),
        client.table(),
        client.base(),
        text(end("start"), "the beginning"),
        text(end("end"), "the end")
    );
    if arguments.dry_run {
        return match arguments.connection.server.json {
            true => output::print(&json!({"timelines": total, "dry_run": true}).to_string()),
            false => output::print(&format!("would delete {what}")),
        };
    }
    if !arguments.yes {
        confirm(&format!("This deletes {what}."))?;
    }
    let body = json!({
        "timelines": {"where": tree.unwrap_or_else(|| json!({"and": []}))},
        "range": {"start": end("start"), "end": end("end")},
    });
    let answer = client.post(&client.of_table("/points/delete"), &body)?;
    if arguments.connection.server.json {
        return output::print(&answer);
    }
    let timelines = client.parse(&answer)?["timelines"].as_u64().unwrap_or_default();
    output::print(&format!(
        "deleted the points of {} timelines in that range",
        output::count(timelines)
    ))
}

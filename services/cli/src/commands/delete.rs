//! `tideline delete`: deletes points of a selection in a range, after a preview and a confirmation.
//!
//! A selection and a range are required, so that a missing argument never deletes more than intended.

use clap::Args;
use serde_json::{Value, json};

use super::find;
use super::known;
use super::selection::{RangeArguments, confirm};
use crate::client::TableArguments;
use crate::condition::WhereArguments;
use crate::error::{CliError, Result};
use crate::output;

/// Maximum number of timelines shown before the confirmation.
const SHOWN: u64 = 5;

/// Arguments of `delete`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tideline delete -m cpu -w host=web-9 --from 2026-11-01T00:00:00Z --to 2026-11-02T00:00:00Z
  tideline delete -w host=web-9 --all-time --yes
  tideline delete --all-timelines --to now-365d --dry-run

Timelines are kept, even without points. Points written after the delete are visible.")]
pub(crate) struct DeleteArguments {
    #[command(flatten)]
    connection: TableArguments,
    #[command(flatten)]
    timelines: WhereArguments,
    /// Delete from all timelines of the table
    #[arg(long, conflicts_with_all = ["conditions", "measurement"])]
    all_timelines: bool,
    #[command(flatten)]
    range: RangeArguments,
    /// Delete points of any age
    #[arg(long, conflicts_with_all = ["last", "from", "to"])]
    all_time: bool,
    /// Show the affected timelines and the range, without deleting
    #[arg(long, conflicts_with = "yes")]
    dry_run: bool,
    /// Delete without confirmation
    #[arg(long, short)]
    yes: bool,
}

/// Shows the selection and deletes its points after a confirmation. `--yes` skips the confirmation; `--dry-run` skips
/// the delete.
pub(crate) fn run(arguments: &DeleteArguments) -> Result<()> {
    let tree = arguments.timelines.tree()?;
    if tree.is_none() && !arguments.all_timelines {
        return Err(CliError::usage(
            "missing timelines: use --where, --measurement or --all-timelines",
        ));
    }
    if arguments.range.is_open() && !arguments.all_time {
        return Err(CliError::usage(
            "missing range: use --from, --to, --last or --all-time",
        ));
    }
    let client = arguments.connection.client()?;
    let range = arguments.range.range();
    let end = |name: &str| range.get(name).cloned().unwrap_or(Value::Null);
    if let Some(tree) = &tree {
        known::check(&client, &json!({"timelines": {"where": tree}}))?;
    }
    let (total, first) = find::search(&client, tree.as_ref(), SHOWN)?;
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
    let response = client.post(&client.of_table("/points/delete"), &body)?;
    if arguments.connection.server.json {
        return output::print(&response);
    }
    let timelines = client.parse(&response)?["timelines"].as_u64().unwrap_or_default();
    output::print(&format!(
        "deleted the points of {} timelines in that range",
        output::count(timelines)
    ))
}

//! `tideline jobs`: lists, watches and controls the background jobs of a server.
//!
//! Jobs are followed by polling; the exit status then reports the outcome of the job.

use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use tideline_openapi::model::JobKind;

use super::pause;
use crate::client::{Client, ConnectionArguments};
use crate::error::{CliError, Result};
use crate::output;
use crate::output::grid::Grid;

/// Interval between two polls of a job.
const WATCH_INTERVAL: Duration = Duration::from_millis(500);

/// Subcommands of `jobs`.
#[derive(Debug, Subcommand)]
pub(crate) enum JobsCommand {
    /// List jobs: running, waiting and past ones
    #[command(after_help = "\
Example:
  tideline jobs list --state failed --table default")]
    List(ListArguments),
    /// Show a job
    Show(JobArguments),
    /// Run a kind of job now, regardless of its schedule
    #[command(after_help = "\
Examples:
  tideline jobs run migrate --table default --wait
  tideline jobs run seal")]
    Run(RunArguments),
    /// Pause a job
    Pause(JobArguments),
    /// Resume a paused job
    Resume(JobArguments),
    /// Cancel a job; its completed work stays
    Cancel(JobArguments),
    /// Follow a job to its end; the exit status is 1 unless it succeeded
    Watch(JobArguments),
}

#[derive(Debug, Args)]
pub(crate) struct ListArguments {
    #[command(flatten)]
    connection: ConnectionArguments,
    /// Only jobs of this table
    #[arg(long, value_name = "NAME")]
    table: Option<String>,
    /// Only jobs in this state
    #[arg(long, value_parser = ["planned", "running", "paused", "done", "failed", "cancelled"])]
    state: Option<String>,
    /// Only jobs of this kind
    #[arg(long, value_parser = kinds(|_| true))]
    kind: Option<String>,
    /// Maximum number of jobs
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    limit: u64,
}

#[derive(Debug, Args)]
pub(crate) struct JobArguments {
    /// Job number
    id: u64,
    #[command(flatten)]
    connection: ConnectionArguments,
}

#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    /// Kind of job
    #[arg(value_parser = kinds(|kind| !kind.needs_parameters()))]
    kind: String,
    #[command(flatten)]
    connection: ConnectionArguments,
    /// Only for this table [default: all]
    #[arg(long, value_name = "NAME")]
    table: Option<String>,
    /// Follow the jobs to their end
    #[arg(long)]
    wait: bool,
}

/// Returns a parser that accepts the names of the selected job kinds.
fn kinds(is_accepted: impl Fn(JobKind) -> bool) -> PossibleValuesParser {
    let kinds = JobKind::ALL.into_iter().filter(|kind| is_accepted(*kind));
    PossibleValuesParser::new(kinds.map(JobKind::name))
}

pub(crate) fn run(command: &JobsCommand) -> Result<()> {
    match command {
        JobsCommand::List(arguments) => list(arguments),
        JobsCommand::Show(arguments) => {
            let client = arguments.connection.client()?;
            show(&client, arguments, &client.get(&path(arguments.id))?)
        }
        JobsCommand::Run(arguments) => start(arguments),
        JobsCommand::Pause(arguments) => steer(arguments, "pause"),
        JobsCommand::Resume(arguments) => steer(arguments, "resume"),
        JobsCommand::Cancel(arguments) => steer(arguments, "cancel"),
        JobsCommand::Watch(arguments) => watch(
            &arguments.connection.client()?,
            &arguments.connection,
            arguments.id,
        ),
    }
}

fn path(id: u64) -> String {
    format!("/v1/jobs/{id}")
}

fn list(arguments: &ListArguments) -> Result<()> {
    let client = arguments.connection.client()?;
    let mut path = format!("/v1/jobs?limit={}", arguments.limit);
    for (name, value) in [
        ("state", &arguments.state),
        ("kind", &arguments.kind),
        ("table", &arguments.table),
    ] {
        if let Some(value) = value {
            path.push_str(&format!("&{name}={}", crate::client::encoded(value)));
        }
    }
    let text = client.get(&path)?;
    if arguments.connection.json {
        return output::print(&text);
    }
    output::print(&table(&client.parse(&text)?["jobs"]))
}

/// Formats jobs as a table.
pub(crate) fn table(jobs: &Value) -> String {
    let mut grid = Grid::new([
        "job", "kind", "table", "state", "done", "left", "created", "reason",
    ])
    .wrapping();
    for job in jobs.as_array().into_iter().flatten() {
        let reason = job["error"].as_str().or_else(|| job["outcome"].as_str());
        grid.row(vec![
            output::member(job, "id"),
            output::member(job, "kind"),
            job["table"].as_str().unwrap_or("all").to_owned(),
            output::member(job, "state"),
            share(job),
            output::member(job, "time_left"),
            output::member(job, "created"),
            reason.map_or_else(|| output::member(job, "reason"), str::to_owned),
        ]);
    }
    grid.render()
}

/// Formats the completed share of a job in percent. Returns an empty text if the total is unknown.
fn share(job: &Value) -> String {
    if job["state"] == "done" {
        // Totals are planned amounts. Part of the data may have been removed since, and some jobs have no totals.
        return "100%".to_owned();
    }
    let of = |amount: &str| {
        let total = job["total"][amount].as_f64().filter(|total| *total > 0.0)?;
        Some(job["done"][amount].as_f64()? / total)
    };
    let share = of("bytes").or_else(|| of("timelines"));
    // 100 % is shown only when the job is done.
    share.map_or_else(String::new, |share| {
        format!("{:.0}%", (share * 100.0).floor().min(99.0))
    })
}

fn show(client: &Client, arguments: &JobArguments, text: &str) -> Result<()> {
    if arguments.connection.json {
        return output::print(text);
    }
    let mut grid = Grid::new(["job", &arguments.id.to_string()]).wrapping();
    for (key, value) in client.parse(text)?.as_object().into_iter().flatten() {
        let shown = match value {
            Value::Null => continue,
            Value::Object(_) => output::pairs(value),
            other => output::cell(other),
        };
        if !matches!(key.as_str(), "id" | "request_id") {
            grid.row(vec![key.clone(), shown]);
        }
    }
    output::print(&grid.render())
}

fn steer(arguments: &JobArguments, verb: &str) -> Result<()> {
    let client = arguments.connection.client()?;
    let text = client.post(&format!("{}/{verb}", path(arguments.id)), &json!({}))?;
    show(&client, arguments, &text)
}

fn start(arguments: &RunArguments) -> Result<()> {
    let client = arguments.connection.client()?;
    // A seal is short, so the request waits for its end.
    let mut body = json!({"kind": arguments.kind, "wait": arguments.kind == JobKind::Seal.name()});
    if let Some(table) = &arguments.table {
        body["table"] = table.as_str().into();
    }
    let text = client.post("/v1/jobs", &body)?;
    let response = client.parse(&text)?;
    let jobs: Vec<u64> = response["jobs"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|job| job["id"].as_u64())
        .collect();
    if arguments.wait {
        for id in &jobs {
            watch(&client, &arguments.connection, *id)?;
        }
        if !jobs.is_empty() {
            return Ok(());
        }
    }
    if arguments.connection.json {
        return output::print(&text);
    }
    if jobs.is_empty() {
        return output::print(&format!(
            "{}: {}",
            arguments.kind,
            output::member(&response, "state")
        ));
    }
    output::print(&table(&response["jobs"]))
}

/// Prints a job each time it changes, until it has ended. With `--json`, prints only the ended job. Fails unless the
/// state of the ended job is `done`.
pub(crate) fn watch(client: &Client, connection: &ConnectionArguments, id: u64) -> Result<()> {
    let mut shown = String::new();
    loop {
        let text = client.get(&path(id))?;
        let job = client.parse(&text)?;
        let state = output::member(&job, "state");
        let has_ended = matches!(&*state, "done" | "failed" | "cancelled");
        let left = job["time_left"].as_str().map(|left| format!(", {left} left"));
        let line = format!(
            "job {id}: {} of {}, {state} {}{}",
            output::member(&job, "kind"),
            job["table"].as_str().unwrap_or("all tables"),
            share(&job),
            left.unwrap_or_default()
        );
        if !connection.json && line != shown {
            output::print(line.trim_end())?;
            shown = line;
        }
        if has_ended {
            if connection.json {
                output::print(&text)?;
            }
            let why = job["error"]
                .as_str()
                .or_else(|| job["outcome"].as_str())
                .unwrap_or("no reason given");
            return match &*state {
                "done" => Ok(()),
                _ => Err(CliError::Incomplete(format!("job {id} {state}: {why}"))),
            };
        }
        pause(WATCH_INTERVAL);
    }
}

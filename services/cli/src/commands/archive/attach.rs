//! `tideline archive attach`: creates tables of a running server from files that another database has archived.
//!
//! The server attaches segment by segment and part by part, and streams its progress. The command shows the progress
//! until the end, unless `--no-wait` is given.

use std::io::{BufRead, BufReader, IsTerminal, Write};

use clap::Args;
use serde_json::{Value, json};

use crate::client::{Client, ConnectionArguments};
use crate::error::{CliError, Result};
use crate::output;

/// Arguments of `archive attach`.
#[derive(Debug, Args)]
#[command(after_help = "\
Points, timelines, tags and attributes are those of the time when the files were written; deletes
that were not yet applied to the files have no effect. Missing tables are created with their former
settings. The files stay where they are. Repeating the command continues with the rest. Parts of wide tables
are attached where the table has no rows of the same time; indexes of the table are built anew.

  tideline archive attach s3://bucket/prefix                   # all tables
  tideline archive attach default --table readings --part 2026-08 --part 2026-09
  tideline archive attach default --table metrics --as metrics_before
  tideline archive attach default --own                        # the database that wrote it no longer exists

A target is written as in policies: it is the server's archive.target, a location below it, or one that
archive.allowed_targets lists.

Exit status: 0 everything is attached, 1 something is not, 2 the request is invalid.")]
pub struct AttachArguments {
    #[command(flatten)]
    connection: ConnectionArguments,
    /// Archive target, as in policies: `default`, s3://bucket/prefix, gs://bucket/prefix, az://container/prefix
    #[arg(value_name = "TARGET")]
    target: String,
    /// Attach only this table, by its name in the archive [default: all]
    #[arg(long, value_name = "NAME")]
    table: Option<String>,
    /// Name of the table on this server
    #[arg(long = "as", value_name = "NAME", requires = "table")]
    rename: Option<String>,
    /// Attach only objects of the database with this origin; ORIGIN is the first part of their names
    #[arg(long, value_name = "ORIGIN")]
    origin: Option<String>,
    /// Attach only this part of a wide table, such as 2026-08; may be repeated [default: all]
    #[arg(long = "part", value_name = "PART", requires = "table")]
    parts: Vec<String>,
    /// Compare only the sizes of the files of parts, not their checksums: faster, and damage is found later
    #[arg(long)]
    no_verify: bool,
    /// Take ownership of the files: they are deleted with their points or rows. No other database may use them any more
    #[arg(long)]
    own: bool,
    /// Return immediately; `tideline jobs` lists the job
    #[arg(long)]
    no_wait: bool,
}

/// Starts the job. Shows its progress until the end, or with `--no-wait` only its number.
pub(crate) fn run(arguments: &AttachArguments) -> Result<()> {
    let client = arguments.connection.client()?;
    let mut request = json!({"target": arguments.target, "own": arguments.own});
    let names = [
        ("table", &arguments.table),
        ("as", &arguments.rename),
        ("origin", &arguments.origin),
    ];
    for (name, value) in names {
        if let Some(value) = value {
            request[name] = value.as_str().into();
        }
    }
    if !arguments.parts.is_empty() {
        request["parts"] = json!(arguments.parts);
    }
    if arguments.no_verify {
        request["verify"] = false.into();
    }
    if arguments.no_wait {
        request["wait"] = false.into();
        let text = client.post("/v1/archive/attach", &request)?;
        if arguments.connection.json {
            return output::print(&text);
        }
        let job = output::member(&client.parse(&text)?, "id");
        return output::print(&format!("started job {job}\n"));
    }
    let stream = client.stream("/v1/archive/attach", "application/x-ndjson", &request.to_string())?;
    let mut last = Value::Null;
    for line in BufReader::new(stream).lines() {
        let line = line.map_err(|error| client.strange(&format!("the response was cut off: {error}")))?;
        last = client.parse(&line)?;
        if arguments.connection.json {
            output::print(&format!("{line}\n"))?;
        } else {
            show(&short(&last));
        }
    }
    show("");
    end(&client, arguments, &last)
}

/// Writes a progress line over the previous one if standard error is a terminal.
fn show(line: &str) {
    let mut terminal = std::io::stderr();
    if terminal.is_terminal() {
        // A failing terminal is ignored, because the error could not be shown either.
        let _ = write!(terminal, "\r{line}\x1b[K").and_then(|()| terminal.flush());
    }
}

/// Formats the progress in one line.
fn short(progress: &Value) -> String {
    let count = |name: &str| output::count(progress[name].as_u64().unwrap_or(0));
    let mut text = format!(
        "{} of {} segments, {} new timelines, {} points",
        count("attached"),
        count("segments"),
        count("timelines"),
        count("points")
    );
    if progress["parts"].as_u64().is_some_and(|parts| parts > 0) {
        let (attached, parts, rows) = (count("parts_attached"), count("parts"), count("rows"));
        text.push_str(&format!(", {attached} of {parts} parts with {rows} rows"));
    }
    text
}

fn end(client: &Client, arguments: &AttachArguments, last: &Value) -> Result<()> {
    let count = |name: &str| last[name].as_u64().unwrap_or(0);
    if !arguments.connection.json {
        let problems = last["problems"].as_array().into_iter().flatten();
        let mut text: String = problems
            .filter_map(Value::as_str)
            .map(|problem| format!("not attached: {problem}\n"))
            .collect();
        let (known, superseded) = (count("known"), count("superseded"));
        let tables = match count("tables") {
            1 => "1 table".to_owned(),
            tables => format!("{} tables", output::count(tables)),
        };
        text.push_str(&format!(
            "{tables}: {}; {} segments or parts were known before, {} are superseded\n",
            short(last),
            output::count(known),
            output::count(superseded)
        ));
        output::print(&text)?;
    }
    if let Some(error) = last["error"].as_str() {
        return Err(CliError::Incomplete(format!(
            "{error}; what is attached stays, and the same command continues with the rest"
        )));
    }
    if last["done"] != true {
        return Err(client.strange("the response ended before the job"));
    }
    match count("problem_count") {
        0 => Ok(()),
        problems => Err(CliError::Incomplete(format!(
            "{problems} problems; the rest is attached"
        ))),
    }
}

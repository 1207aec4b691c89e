//! `tideline archive attach`: what another database has archived becomes tables of a running server.

use std::io::{BufRead, BufReader, IsTerminal, Write};

use clap::Args;
use serde_json::{Value, json};

use crate::client::{Client, ConnectionArguments};
use crate::error::{CliError, Result};
use crate::output;

/// Arguments of `archive attach`.
#[derive(Debug, Args)]
#[command(after_help = "\
Points, timelines, tags and attributes are as they were when the files were written; deletes that had not reached the files
are not known. Tables that are missing are made with the settings they had. The files stay where they are. Given again, it goes
on with what is left.

  tideline archive attach s3://bucket/prefix                   # all tables
  tideline archive attach default --table metrics --as metrics_before
  tideline archive attach default --own                        # the database that wrote it is gone for good

A target is named as in policies: it is the server's archive.target, lies below it, or archive.allowed_targets lists it.

Exit status: 0 all is attached, 1 some is not, 2 what was asked cannot be right.")]
pub struct AttachArguments {
    #[command(flatten)]
    connection: ConnectionArguments,
    /// The target, as in policies: `default`, s3://bucket/prefix, gs://bucket/prefix, az://container/prefix
    #[arg(value_name = "TARGET")]
    target: String,
    /// Attach one table, as it is called there [default: all]
    #[arg(long, value_name = "NAME")]
    table: Option<String>,
    /// Call it so here
    #[arg(long = "as", value_name = "NAME", requires = "table")]
    rename: Option<String>,
    /// Attach only what this database has written: the first part of the names of its objects
    #[arg(long, value_name = "ORIGIN")]
    origin: Option<String>,
    /// Take the files over: they are removed with their points, and swept. No other database may use them any more
    #[arg(long)]
    own: bool,
    /// Return at once; `tideline jobs` lists the job
    #[arg(long)]
    no_wait: bool,
}

/// Asks, and shows how far it comes.
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
    if arguments.no_wait {
        request["wait"] = false.into();
        let text = client.post("/v1/archive/attach", &request)?;
        if arguments.connection.json {
            return output::print(&text);
        }
        let job = output::member(&client.parse(&text)?, "id");
        return output::print(&format!("job {job} attaches it\n"));
    }
    let stream = client.stream("/v1/archive/attach", "application/x-ndjson", &request.to_string())?;
    let mut last = Value::Null;
    for line in BufReader::new(stream).lines() {
        let line = line.map_err(|error| client.strange(&format!("the answer broke off: {error}")))?;
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

/// Writes a line over the one before, where somebody looks.
fn show(line: &str) {
    let mut terminal = std::io::stderr();
    if terminal.is_terminal() {
        // Nobody is left to tell when this fails.
        let _ = write!(terminal, "\r{line}\x1b[K").and_then(|()| terminal.flush());
    }
}

/// One line about how far it has come.
fn short(progress: &Value) -> String {
    let count = |name: &str| output::count(progress[name].as_u64().unwrap_or(0));
    format!(
        "{} of {} segments, {} new timelines, {} points",
        count("attached"),
        count("segments"),
        count("timelines"),
        count("points")
    )
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
            "{tables}: {}; {} segments were known before, {} are superseded\n",
            short(last),
            output::count(known),
            output::count(superseded)
        ));
        output::print(&text)?;
    }
    if let Some(error) = last["error"].as_str() {
        return Err(CliError::Incomplete(format!(
            "{error}; what is attached stays, and the same command goes on with the rest"
        )));
    }
    if last["done"] != true {
        return Err(client.strange("the answer ended before its end"));
    }
    match count("problem_count") {
        0 => Ok(()),
        problems => Err(CliError::Incomplete(format!(
            "{problems} problems; the rest is attached"
        ))),
    }
}

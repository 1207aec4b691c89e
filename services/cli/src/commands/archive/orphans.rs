//! `tideline archive orphans`: lists and removes unused objects at an archive target through a running server.
//!
//! The server removes a limited number of objects per request. With `--remove` the command repeats its request
//! until no object is left, a request removes none, or the server reports an error.

use clap::Args;
use serde_json::{Value, json};

use crate::client::{Client, ConnectionArguments};
use crate::error::{CliError, Result};
use crate::output;

/// Arguments of `archive orphans`.
#[derive(Debug, Args)]
#[command(after_help = "\
Lists files and descriptions that failed or killed archive jobs have left at a target. Without
--remove nothing is changed. Objects that the server's database or a complete description of
another database refers to are never removed.

  tideline archive orphans default
  tideline archive orphans default --remove
  tideline archive orphans s3://bucket/prefix --origin 00f3a91c5be07d42   # a database that no longer exists

A target is written as in policies: it is the server's archive.target, a location below it, or one that
archive.allowed_targets lists.

Exit status: 0 no object is left over, or all were removed; 1 objects are left over, or the server refused.")]
pub struct OrphansArguments {
    #[command(flatten)]
    connection: ConnectionArguments,
    /// Archive target, as in policies: `default`, s3://bucket/prefix, gs://bucket/prefix, az://container/prefix
    #[arg(value_name = "TARGET")]
    target: String,
    /// Check only objects of this other database; ORIGIN is the first part of their names
    #[arg(long, value_name = "ORIGIN")]
    origin: Option<String>,
    /// Remove the unused objects
    #[arg(long)]
    remove: bool,
}

/// Lists unused objects, and removes them if requested.
pub(crate) fn run(arguments: &OrphansArguments) -> Result<()> {
    let client = arguments.connection.client()?;
    let mut found = search(&client, arguments)?;
    let count = |response: &Value, name: &str| response[name].as_u64().unwrap_or(0);
    let (mut removed, mut bytes, mut left) = (0, 0, 0);
    if arguments.remove {
        loop {
            removed += count(&found, "removed");
            bytes += count(&found, "removed_bytes");
            left = count(&found, "objects").saturating_sub(count(&found, "removed"));
            if left == 0 || !found["error"].is_null() || count(&found, "removed") == 0 {
                break;
            }
            found = search(&client, arguments)?;
        }
        found["removed"] = removed.into();
        found["removed_bytes"] = bytes.into();
    }
    match arguments.connection.json {
        true => output::print(&format!("{found}\n"))?,
        false => output::print(&text(&found, arguments.remove))?,
    }
    if let Some(error) = found["error"].as_str() {
        return Err(CliError::Incomplete(format!(
            "{error}; the same command continues with the rest"
        )));
    }
    let left = match arguments.remove {
        true => left,
        false => count(&found, "objects"),
    };
    match left {
        0 => Ok(()),
        _ if arguments.remove => Err(CliError::Incomplete(format!(
            "{} objects are left over; the same command continues with them",
            output::count(left)
        ))),
        objects => Err(CliError::Incomplete(format!(
            "{} objects are left over; --remove removes them",
            output::count(objects)
        ))),
    }
}

fn search(client: &Client, arguments: &OrphansArguments) -> Result<Value> {
    let mut request = json!({"target": arguments.target, "remove": arguments.remove});
    if let Some(origin) = &arguments.origin {
        request["origin"] = origin.as_str().into();
    }
    client.parse(&client.post("/v1/archive/orphans", &request)?)
}

fn text(found: &Value, removes: bool) -> String {
    let number = |name: &str| found[name].as_u64().unwrap_or(0);
    let mut text = String::new();
    let listed = found["listed"].as_array().map(Vec::as_slice).unwrap_or_default();
    for object in listed.iter().filter(|_| !removes) {
        text.push_str(&format!(
            "{}  {}  {}  {}\n",
            output::member(object, "modified"),
            object["bytes"].as_u64().map(output::bytes).unwrap_or_default(),
            output::member(object, "key"),
            output::member(object, "reason")
        ));
    }
    let more = number("objects").saturating_sub(listed.len() as u64);
    if !removes && more > 0 {
        text.push_str(&format!("and {} more\n", output::count(more)));
    }
    for reason in found["broken"].as_array().into_iter().flatten() {
        text.push_str(&format!("unreadable, kept: {}\n", output::cell(reason)));
    }
    if number("young") > 0 {
        text.push_str(&format!(
            "{} objects are less than a day old and were kept: their database may be archiving\n",
            output::count(number("young"))
        ));
    }
    for (origin, objects) in found["others"].as_object().into_iter().flatten() {
        let objects = output::count(objects.as_u64().unwrap_or(0));
        text.push_str(&format!(
            "{objects} objects of database {origin} were not checked\n"
        ));
    }
    let (count, bytes, what) = match removes {
        true => ("removed", "removed_bytes", "removed"),
        false => ("objects", "bytes", "left over"),
    };
    text.push_str(&format!(
        "{} objects {what}, {}; {} are in use\n",
        output::count(number(count)),
        output::bytes(number(bytes)),
        output::count(number("named"))
    ));
    text
}

//! `tideline archive orphans`: objects at a target that nothing names, listed and removed by a running server.

use clap::Args;
use serde_json::{Value, json};

use crate::client::{Client, ConnectionArguments};
use crate::error::{CliError, Result};
use crate::output;

/// Arguments of `archive orphans`.
#[derive(Debug, Args)]
#[command(after_help = "\
Files and descriptions that failed or killed archive jobs have left at a target. Without --remove nothing is changed. What the
server's database or a finished description of another database names is never removed.

  tideline archive orphans default
  tideline archive orphans default --remove
  tideline archive orphans s3://bucket/prefix --origin 00f3a91c5be07d42   # a database that is gone for good

A target is named as in policies: it is the server's archive.target, lies below it, or archive.allowed_targets lists it.

Exit status: 0 nothing is left over, or all of it was removed; 1 something is left over, or the server refused.")]
pub struct OrphansArguments {
    #[command(flatten)]
    connection: ConnectionArguments,
    /// The target, as in policies: `default`, s3://bucket/prefix, gs://bucket/prefix, az://container/prefix
    #[arg(value_name = "TARGET")]
    target: String,
    /// Look at what this other database has written: the first part of the names of its objects
    #[arg(long, value_name = "ORIGIN")]
    origin: Option<String>,
    /// Remove what is found
    #[arg(long)]
    remove: bool,
}

/// Lists what is left over, and removes it where that is wanted.
pub(crate) fn run(arguments: &OrphansArguments) -> Result<()> {
    let client = arguments.connection.client()?;
    let mut found = ask(&client, arguments)?;
    let count = |answer: &Value, name: &str| answer[name].as_u64().unwrap_or(0);
    let (mut removed, mut bytes, mut left) = (0, 0, 0);
    if arguments.remove {
        loop {
            removed += count(&found, "removed");
            bytes += count(&found, "removed_bytes");
            left = count(&found, "objects").saturating_sub(count(&found, "removed"));
            if left == 0 || !found["error"].is_null() || count(&found, "removed") == 0 {
                break;
            }
            found = ask(&client, arguments)?;
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
            "{error}; the same command goes on with the rest"
        )));
    }
    let left = match arguments.remove {
        true => left,
        false => count(&found, "objects"),
    };
    match left {
        0 => Ok(()),
        _ if arguments.remove => Err(CliError::Incomplete(format!(
            "{} objects are left over; the same command goes on with them",
            output::count(left)
        ))),
        objects => Err(CliError::Incomplete(format!(
            "{} objects are left over; --remove removes them",
            output::count(objects)
        ))),
    }
}

fn ask(client: &Client, arguments: &OrphansArguments) -> Result<Value> {
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
        text.push_str(&format!("cannot be read, and stays: {}\n", output::cell(reason)));
    }
    if number("young") > 0 {
        text.push_str(&format!(
            "{} objects are less than a day old and stay: their database may be archiving\n",
            output::count(number("young"))
        ));
    }
    for (origin, objects) in found["others"].as_object().into_iter().flatten() {
        let objects = output::count(objects.as_u64().unwrap_or(0));
        text.push_str(&format!(
            "{objects} objects of database {origin} were not looked at\n"
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

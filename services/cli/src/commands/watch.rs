//! `tideline watch`: follows new points, timelines and deletes as the server acknowledges them.
//!
//! Events are read from a stream of server-sent events and printed one by one.

use clap::Args;
use serde_json::{Value, json};

use super::known::{self, UnknownNames};
use super::selection;
use crate::client::{Client, TableArguments};
use crate::condition::WhereArguments;
use crate::error::Result;
use crate::events::{self, EVENTS, Event};
use crate::output;

/// Arguments of `watch`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tideline watch -m cpu -w 'host^=web-' --field usage_user      # until Ctrl-C
  tideline watch --timelines --json | jq .timelines[].id
  tideline watch --for 0s --from 1-2a7f-0-0 --json              # events since an earlier one")]
pub(crate) struct WatchArguments {
    #[command(flatten)]
    connection: TableArguments,
    #[command(flatten)]
    timelines: WhereArguments,
    /// Field to show; may be repeated [default: all]
    #[arg(long = "field", short = 'f', value_name = "NAME")]
    fields: Vec<String>,
    /// Report new and changed timelines instead of points
    #[arg(long = "timelines")]
    only_timelines: bool,
    /// Report deletes instead of points
    #[arg(long = "deletes")]
    only_deletes: bool,
    /// Continue after the event with this id [default: start now]
    #[arg(long, value_name = "ID")]
    from: Option<String>,
    /// End after this time; 0s prints the backlog and ends [default: until Ctrl-C]
    #[arg(long = "for", value_name = "DURATION")]
    time: Option<String>,
}

/// Starts the watch and prints each event. Fails at the end if no event except `ready` arrived and the result would
/// lack data of an unknown name.
pub(crate) fn run(arguments: &WatchArguments) -> Result<()> {
    let client = arguments.connection.client()?;
    let mut request = selection::query(&arguments.timelines, &arguments.fields)?;
    let kinds = match (arguments.only_timelines, arguments.only_deletes) {
        (false, false) => vec!["points"],
        (timelines, deletes) => [(timelines, "timelines"), (deletes, "deletes")]
            .into_iter()
            .filter_map(|(is_told, kind)| is_told.then_some(kind))
            .collect(),
    };
    let unknown = known::find(&client, &Value::from(request.clone())).or_else(UnknownNames::refused)?;
    // An unknown name may be written during the watch.
    unknown.warn();
    request.insert("tell".into(), json!(kinds));
    for (name, value) in [("from", &arguments.from), ("for", &arguments.time)] {
        if let Some(value) = value {
            request.insert(name.into(), value.as_str().into());
        }
    }
    let request = Value::from(request).to_string();
    let stream = client.stream(&client.of_table("/watch"), EVENTS, &request)?;
    let mut is_empty = true;
    events::each(&client, stream, "--from", |event| {
        is_empty &= event.name == "ready";
        show(&client, &event, arguments.connection.server.json)
    })?;
    match is_empty && unknown.is_fatal() {
        true => unknown.report(),
        false => Ok(()),
    }
}

/// Prints an event.
fn show(client: &Client, event: &Event, in_json: bool) -> Result<()> {
    let data = client.parse(&event.data)?;
    if in_json {
        let mut line = json!({"event": event.name, "id": event.id});
        if let (Some(line), Value::Object(data)) = (line.as_object_mut(), data) {
            line.extend(data);
        }
        return output::print(&format!("{line}\n"));
    }
    if event.name == "ready" {
        return Ok(());
    }
    let mut text = String::new();
    for series in data["series"].as_array().into_iter().flatten() {
        put_points(series, &mut text);
    }
    if event.name == "deleted" {
        put_deleted(&data, &mut text);
        return output::print(&text);
    }
    for timeline in data["timelines"].as_array().into_iter().flatten() {
        text.push_str(&who(timeline));
        text.push_str(&format!("  {}\n", output::pairs(&timeline["attributes"])));
    }
    output::print(&text)
}

/// Appends a line per timeline with the deleted range, or `removed`.
fn put_deleted(deleted: &Value, text: &mut String) {
    let what = match deleted["removed"].as_bool() {
        Some(true) => "removed".to_owned(),
        _ => {
            let end = |name: &str| deleted["range"][name].as_str().unwrap_or("…").to_owned();
            format!("deleted from {} to {}", end("start"), end("end"))
        }
    };
    for id in deleted["timelines"].as_array().into_iter().flatten() {
        text.push_str(&format!("{}  {what}\n", output::cell(id)));
    }
}

/// Appends a line per point: time, measurement with tags, values.
fn put_points(series: &Value, text: &mut String) {
    let who = who(series);
    let columns: Vec<&str> = series["columns"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    for row in series["points"].as_array().into_iter().flatten() {
        let cells: Vec<String> = row.as_array().into_iter().flatten().map(output::cell).collect();
        let Some((time, values)) = cells.split_first() else {
            continue;
        };
        let pairs = columns
            .iter()
            .skip(1)
            .zip(values)
            .map(|(name, value)| format!("{name}={value}"));
        text.push_str(&format!(
            "{time}  {who}  {}\n",
            pairs.collect::<Vec<_>>().join(" ")
        ));
    }
}

fn who(timeline: &Value) -> String {
    let tags = output::pairs(&timeline["tags"]);
    format!("{} {tags}", output::cell(&timeline["measurement"]))
}

//! `tideline attributes`: shows and changes attributes that users add to timelines.
//!
//! A change applies to timelines selected by conditions or ids, or to all. The command waits until the change
//! has ended.

use std::io::{BufRead, BufReader};

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use crate::client::{TableArguments, encoded};
use crate::condition::WhereArguments;
use crate::error::{CliError, Result};
use crate::output;
use crate::output::grid::Grid;

/// Subcommands of `attributes`.
#[derive(Debug, Subcommand)]
pub(crate) enum AttributesCommand {
    /// Show the attributes of a timeline, or the attribute keys of the table with their types
    #[command(after_help = "\
Examples:
  tideline attributes show
  tideline attributes show 3f2a9c017bde45a18c40f1e29d3b6a57")]
    Show(ShowArguments),
    /// Set attributes of timelines
    #[command(after_help = "\
A value is JSON; anything else is taken as text.

Examples:
  tideline attributes set owner=team-a rack=12 -w 'host^=web-'
  tideline attributes set 'site={\"lat\": 52.52, \"lon\": 13.405}' --id 3f2a9c017bde45a18c40f1e29d3b6a57
  tideline attributes set 'bought={\"time\": \"2026-01-31T00:00:00Z\"}' -m cpu")]
    Set(SetArguments),
    /// Remove attributes from timelines
    #[command(after_help = "\
Example:
  tideline attributes remove owner rack -w 'host^=web-'")]
    Remove(RemoveArguments),
}

#[derive(Debug, Args)]
pub(crate) struct ShowArguments {
    /// Timeline id
    #[arg(value_name = "ID")]
    id: Option<String>,
    #[command(flatten)]
    connection: TableArguments,
}

/// Options that select the timelines to change: conditions, ids, or all.
#[derive(Debug, Args)]
struct Selected {
    #[command(flatten)]
    timelines: WhereArguments,
    /// Timeline id; may be repeated
    #[arg(help_heading = "Timelines", long = "id", value_name = "ID", conflicts_with_all = ["conditions", "measurement"])]
    ids: Vec<String>,
    /// All timelines of the table
    #[arg(help_heading = "Timelines", long = "all-timelines", conflicts_with_all = ["conditions", "measurement", "ids"])]
    all: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SetArguments {
    /// Attributes to set
    #[arg(value_name = "KEY=VALUE", required = true)]
    set: Vec<String>,
    #[command(flatten)]
    connection: TableArguments,
    #[command(flatten)]
    selected: Selected,
}

#[derive(Debug, Args)]
pub(crate) struct RemoveArguments {
    /// Attribute keys to remove
    #[arg(value_name = "KEY", required = true)]
    keys: Vec<String>,
    #[command(flatten)]
    connection: TableArguments,
    #[command(flatten)]
    selected: Selected,
}

pub(crate) fn run(command: &AttributesCommand) -> Result<()> {
    match command {
        AttributesCommand::Show(arguments) => show(arguments),
        AttributesCommand::Set(arguments) => {
            let set = values(&arguments.set)?;
            change(&arguments.connection, &arguments.selected, json!({"set": set}))
        }
        AttributesCommand::Remove(arguments) => {
            let change_of = json!({"remove": arguments.keys});
            change(&arguments.connection, &arguments.selected, change_of)
        }
    }
}

/// Converts `KEY=VALUE` pairs to attributes. A value that is not valid JSON is taken as text.
pub(crate) fn values(pairs: &[String]) -> Result<Map<String, Value>> {
    let mut set = Map::new();
    for pair in pairs {
        let (key, value) = pair
            .split_once('=')
            .ok_or_else(|| CliError::usage(format!("{pair:?}: expected KEY=VALUE, such as owner=team-a")))?;
        let value = serde_json::from_str(value).unwrap_or_else(|_| value.into());
        if set.insert(key.to_owned(), value).is_some() {
            return Err(CliError::usage(format!("{key} is given twice")));
        }
    }
    Ok(set)
}

fn show(arguments: &ShowArguments) -> Result<()> {
    let client = arguments.connection.client()?;
    let path = match &arguments.id {
        Some(id) => client.of_table(&format!("/timelines/{}", encoded(id))),
        None => client.of_table("/attributes"),
    };
    let text = client.get(&path)?;
    if arguments.connection.server.json {
        return output::print(&text);
    }
    let response = client.parse(&text)?;
    if arguments.id.is_some() {
        let mut grid = Grid::new(["attribute", "value"]).wrapping();
        for (key, value) in response["attributes"].as_object().into_iter().flatten() {
            grid.row(vec![key.clone(), output::cell(value)]);
        }
        return output::print(&grid.render());
    }
    let mut grid = Grid::new(["attribute", "type", "timelines"]);
    for key in response["attributes"].as_array().into_iter().flatten() {
        for kind in key["types"].as_array().into_iter().flatten() {
            grid.row(vec![
                output::member(key, "key"),
                output::member(kind, "type"),
                kind["timelines"].as_u64().map(output::count).unwrap_or_default(),
            ]);
        }
    }
    output::print(&grid.render())
}

/// Changes attributes of the selected timelines and waits for the end of the change. Fails if no timelines are
/// selected, or if the server refused some of them.
fn change(connection: &TableArguments, selected: &Selected, mut body: Value) -> Result<()> {
    body["timelines"] = match (selected.timelines.tree()?, &selected.ids[..]) {
        (Some(tree), _) => json!({"where": tree}),
        (None, [_, ..]) => json!({"ids": selected.ids}),
        (None, []) if selected.all => json!({"where": {"and": []}}),
        (None, []) => {
            return Err(CliError::usage(
                "missing timelines: use --where, --measurement, --id or --all-timelines",
            ));
        }
    };
    let client = connection.client()?;
    let path = client.of_table("/timelines/attributes");
    let stream = client.stream(&path, "application/x-ndjson", &body.to_string())?;
    let mut last = Value::Null;
    for line in BufReader::new(stream).lines() {
        let line = line.map_err(|error| client.strange(&format!("the response was cut off: {error}")))?;
        last = client.parse(&line)?;
    }
    if last["done"] != true {
        return Err(client.strange("the response ended before the change"));
    }
    if connection.server.json {
        output::print(&last.to_string())?;
    }
    let number = |name: &str| last[name].as_u64().unwrap_or_default();
    let text = format!(
        "{} timelines changed, {} unchanged, of {}",
        output::count(number("changed")),
        output::count(number("unchanged")),
        output::count(number("selected"))
    );
    match (number("refused"), last["first_refusal"].as_str()) {
        (0, _) if connection.server.json => Ok(()),
        (0, _) => output::print(&text),
        (refused, reason) => Err(CliError::Incomplete(format!(
            "{text}; {refused} were refused, the first because: {}",
            reason.unwrap_or("no reason given")
        ))),
    }
}

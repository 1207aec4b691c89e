//! `tideline searches`: lists, saves, runs and deletes saved searches.
//!
//! A saved search is a condition that is stored on the server under a name.

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::find;
use crate::client::{Client, TableArguments, encoded};
use crate::condition::WhereArguments;
use crate::error::{CliError, Result};
use crate::output;
use crate::output::grid::Grid;

/// Subcommands of `searches`.
#[derive(Debug, Subcommand)]
pub(crate) enum SearchesCommand {
    /// List saved searches
    List(ListArguments),
    /// Save a condition under a name; replaces a search of the same name
    #[command(after_help = "\
Example:
  tideline searches save web -w 'host^=web-' -w 'last_seen>=now-1d' --description 'active web servers'")]
    Save(SaveArguments),
    /// Find the timelines of a saved search
    #[command(after_help = "\
Examples:
  tideline searches run web --limit 10
  tideline find '{\"and\": [{\"saved\": \"web\"}, {\"tag\": \"dc\", \"equals\": \"fra\"}]}'")]
    Run(RunArguments),
    /// Delete a saved search
    #[command(after_help = "\
Example:
  tideline searches delete web")]
    Delete(NamedArguments),
}

#[derive(Debug, Args)]
pub(crate) struct ListArguments {
    #[command(flatten)]
    connection: TableArguments,
}

#[derive(Debug, Args)]
pub(crate) struct NamedArguments {
    /// Name of the search
    name: String,
    #[command(flatten)]
    connection: TableArguments,
}

#[derive(Debug, Args)]
pub(crate) struct SaveArguments {
    /// Name of the search
    name: String,
    #[command(flatten)]
    connection: TableArguments,
    #[command(flatten)]
    timelines: WhereArguments,
    /// Human-readable description
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    /// Name of the search
    name: String,
    #[command(flatten)]
    connection: TableArguments,
    /// Maximum number of timelines
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    limit: u64,
}

pub(crate) fn run(command: &SearchesCommand) -> Result<()> {
    match command {
        SearchesCommand::List(arguments) => list(arguments),
        SearchesCommand::Save(arguments) => save(arguments),
        SearchesCommand::Run(arguments) => find_saved(arguments),
        SearchesCommand::Delete(NamedArguments { name, connection }) => {
            let client = connection.client()?;
            client.delete(&path(&client, name))?;
            match connection.server.json {
                true => output::print(&json!({"deleted": name}).to_string()),
                false => output::print(&format!("deleted search {name}")),
            }
        }
    }
}

fn path(client: &Client, name: &str) -> String {
    client.of_table(&format!("/searches/{}", encoded(name)))
}

fn list(ListArguments { connection }: &ListArguments) -> Result<()> {
    let client = connection.client()?;
    let text = client.get(&client.of_table("/searches"))?;
    if connection.server.json {
        return output::print(&text);
    }
    let mut grid = Grid::new(["search", "description", "condition"]).wrapping();
    for search in client.parse(&text)?["searches"].as_array().into_iter().flatten() {
        grid.row(
            ["name", "description", "where"]
                .map(|name| output::member(search, name))
                .into(),
        );
    }
    output::print(&grid.render())
}

fn save(arguments: &SaveArguments) -> Result<()> {
    let tree = arguments.timelines.tree()?;
    let tree = tree.ok_or_else(|| CliError::usage("missing condition: use --where or --measurement"))?;
    let mut search = Map::from_iter([("where".to_owned(), tree)]);
    if let Some(description) = &arguments.description {
        search.insert("description".into(), description.as_str().into());
    }
    let client = arguments.connection.client()?;
    let text = client.put(&path(&client, &arguments.name), &Value::from(search))?;
    match arguments.connection.server.json {
        true => output::print(&text),
        false => output::print(&format!("saved search {}", arguments.name)),
    }
}

fn find_saved(arguments: &RunArguments) -> Result<()> {
    let client = arguments.connection.client()?;
    // The server refuses an unknown name, so the name is not checked here.
    let search = json!({"where": {"saved": arguments.name}, "limit": arguments.limit});
    let text = client.post(&client.of_table("/timelines/search"), &search)?;
    if arguments.connection.server.json {
        return output::print(&text);
    }
    let response = client.parse(&text)?;
    let found = response["timelines"].as_array();
    let found = found.ok_or_else(|| client.strange("a search result without timelines"))?;
    output::print(&find::table(found))?;
    output::print(&format!(
        "\n{} of {}",
        output::count(found.len() as u64),
        output::count(response["total"].as_u64().unwrap_or_default())
    ))
}

//! `tideline find`: finds timelines by conditions.
//!
//! With `--ids --all` the pages of the server are requested one after the other until the last one.

use clap::Args;
use serde_json::{Map, Value, json};

use super::known::UnknownNames;
use tideline_condition::Domain;

use crate::client::{Client, TableArguments};
use crate::condition::{joined, parse};
use crate::error::{CliError, Result};
use crate::output;
use crate::output::grid::Grid;

const EXAMPLES: &str = "\
Conditions; a timeline must match all of them:
  host=web-1  host!=web-1     the tag equals, or does not equal; a missing tag equals the empty text
  host^=web-                  the tag begins with
  host=~web-[0-9]+            the whole tag matches the regular expression; with !~ it does not
  measurement=cpu  source=web-1  id=3f2a9c017bde45a18c40f1e29d3b6a57
  last_seen>=now-1h  first_seen<2026-01-01T00:00:00Z
  @owner=team-a               an attribute
  '{\"or\": [{\"tag\": \"dc\", \"equals\": \"fra\"}, {\"not\": {\"tag\": \"rack\", \"exists\": true}}]}'

Examples:
  tideline find measurement=cpu 'host^=web-' dc=fra
  tideline find 'last_seen<now-1d' --sort last_seen --desc --limit 20
  tideline find measurement=cpu --ids --all | wc -l";

/// Arguments of `find`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct FindArguments {
    #[command(flatten)]
    connection: TableArguments,
    /// Condition that timelines must match; see below
    #[arg(value_name = "CONDITION")]
    conditions: Vec<String>,
    /// Sort by a tag, an attribute as @key, or measurement, source, first_seen, last_seen
    #[arg(long, value_name = "KEY")]
    sort: Option<String>,
    /// Highest first
    #[arg(long, requires = "sort")]
    desc: bool,
    /// Maximum number of timelines
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    limit: u64,
    /// `next` of the previous page
    #[arg(long, value_name = "TOKEN")]
    page: Option<String>,
    /// Print only ids, one per line
    #[arg(long, conflicts_with = "json")]
    ids: bool,
    /// Print all ids, without a limit
    #[arg(long, requires = "ids", conflicts_with_all = ["limit", "page"])]
    all: bool,
}

/// Number of timelines per page for `--all`: the maximum of a search request.
const PAGE_MAX: u64 = 10_000;

/// Searches timelines and shows them.
pub(crate) fn run(arguments: &FindArguments) -> Result<()> {
    let client = arguments.connection.client()?;
    let mut search = Map::new();
    let conditions: Result<Vec<Value>> = arguments
        .conditions
        .iter()
        .map(|text| parse(Domain::Timelines, text))
        .collect();
    if let Some(tree) = joined(conditions?) {
        search.insert("where".into(), tree);
    }
    if let Some(key) = &arguments.sort {
        search.insert("sort".into(), json!([sort_key(key, arguments.desc)]));
    }
    search.insert("limit".into(), arguments.limit.into());
    if arguments.all {
        return all_ids(&client, search);
    }
    if let Some(page) = &arguments.page {
        search.insert("page".into(), page.as_str().into());
    }
    let text = client.post(&client.of_table("/timelines/search"), &search.clone().into())?;
    let response = client.parse(&text)?;
    unknown(&client, &response, &search).report()?;
    if arguments.connection.server.json {
        return output::print(&text);
    }
    let found = response["timelines"]
        .as_array()
        .ok_or_else(|| client.strange("a search result without timelines"))?;
    if arguments.ids {
        if let Some(next) = response["next"].as_str() {
            eprintln!("there are more; use --all for all, or --page {next} for the next page");
        }
        return print_ids(found);
    }
    output::print(&table(found))?;
    let total = response["total"].as_u64().unwrap_or_default();
    let more = match response["next"].as_str() {
        Some(next) => format!("; the next page: --page {next}"),
        None => String::new(),
    };
    output::print(&format!(
        "\n{} of {}{more}",
        output::count(found.len() as u64),
        output::count(total)
    ))
}

/// Returns the sort key of a search: a property, an attribute as `@key`, or a tag.
pub(crate) fn sort_key(key: &str, is_descending: bool) -> Value {
    let order = if is_descending { "descending" } else { "ascending" };
    let (kind, name) = match (key, key.strip_prefix('@')) {
        ("measurement" | "source" | "first_seen" | "last_seen", _) => ("property", key),
        (_, Some(name)) => ("attribute", name),
        _ => ("tag", key.strip_prefix("tag:").unwrap_or(key)),
    };
    json!({kind: name, "order": order})
}

/// Prints the ids of all matching timelines, page by page.
fn all_ids(client: &Client, mut search: Map<String, Value>) -> Result<()> {
    search.insert("limit".into(), PAGE_MAX.into());
    loop {
        let text = client.post(&client.of_table("/timelines/search"), &search.clone().into())?;
        let response = client.parse(&text)?;
        if !search.contains_key("page") {
            unknown(client, &response, &search).report()?;
        }
        let found = response["timelines"].as_array();
        print_ids(found.ok_or_else(|| client.strange("a search result without timelines"))?)?;
        match response["next"].as_str() {
            Some(next) => search.insert("page".into(), next.into()),
            None => return Ok(()),
        };
    }
}

/// Returns the unknown names of a search. An unknown sort key is an error; other names are errors only if no
/// timeline matches.
pub(crate) fn unknown(client: &Client, response: &Value, search: &Map<String, Value>) -> UnknownNames {
    let is_empty = response["total"] == 0;
    let sorts = search.get("sort").and_then(Value::as_array);
    let is_sorted_by = |kind: &str, name: &str| {
        let mut sorts = sorts.into_iter().flatten();
        sorts.any(|sort| sort[kind] == name)
    };
    UnknownNames::of(client, response, |kind, name| {
        is_empty || is_sorted_by(kind, name)
    })
}

fn print_ids(found: &[Value]) -> Result<()> {
    let ids: Vec<String> = found.iter().map(|one| output::member(one, "id") + "\n").collect();
    match ids.is_empty() {
        true => Ok(()),
        false => output::print(&ids.concat()),
    }
}

/// Formats timelines as a table.
pub(crate) fn table(found: &[Value]) -> String {
    let has_attributes = found.iter().any(|one| {
        one["attributes"]
            .as_object()
            .is_some_and(|attributes| !attributes.is_empty())
    });
    let mut head = vec!["measurement", "tags"];
    if has_attributes {
        head.push("attributes");
    }
    head.extend(["first seen", "last seen", "id"]);
    let mut grid = Grid::new(head);
    for one in found {
        let mut cells = vec![output::member(one, "measurement"), output::pairs(&one["tags"])];
        if has_attributes {
            cells.push(output::pairs(&one["attributes"]));
        }
        cells.extend(["first_seen", "last_seen", "id"].map(|name| output::member(one, name)));
        grid.row(cells);
    }
    grid.render()
}

/// Returns the number of timelines that match a condition, and the first `limit` of them.
pub(crate) fn search(client: &Client, tree: Option<&Value>, limit: u64) -> Result<(u64, Vec<Value>)> {
    let mut search = json!({"limit": limit});
    if let Some(tree) = tree {
        search["where"] = tree.clone();
    }
    let response = client.parse(&client.post(&client.of_table("/timelines/search"), &search)?)?;
    match (response["total"].as_u64(), response["timelines"].as_array()) {
        (Some(total), Some(found)) => Ok((total, found.clone())),
        _ => Err(CliError::Strange {
            server: client.base().to_owned(),
            reason: "a search result without a total".into(),
        }),
    }
}

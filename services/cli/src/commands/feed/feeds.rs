//! Feeds as a whole: lists, attributes, creation and deletion.
//!
//! Feeds are timelines, so their conditions and sort keys are those of `tideline find`.

use clap::Args;
use serde_json::{Map, Value, json};
use tideline_condition::Domain;
use tideline_ingest_protocols::series_key;

use super::read::count_all;
use super::{FeedArguments, FeedTable};
use crate::commands::attributes;
use crate::commands::find::{sort_key, unknown};
use crate::commands::selection::confirm;
use crate::condition::{joined, parse};
use crate::error::{CliError, Result};
use crate::output;
use crate::output::grid::Grid;

pub(super) const EXAMPLES: &str = "\
Conditions; a feed must match all of them:
  measurement=room            the type of the feed
  name=lobby  name^=lob       a tag
  @title=Lobby                an attribute
  '{\"attribute\": \"title\", \"text\": \"lobby\"}'

Examples:
  tideline feed list chat
  tideline feed find chat measurement=room @members_max=50 --sort name";

#[derive(Debug, Args)]
pub(crate) struct ListArguments {
    #[command(flatten)]
    table: FeedTable,
    /// Condition that feeds must match; see below
    #[arg(value_name = "CONDITION")]
    conditions: Vec<String>,
    /// Sort by a tag, an attribute as @key, or measurement
    #[arg(long, value_name = "KEY")]
    sort: Option<String>,
    /// Highest first
    #[arg(long, requires = "sort")]
    desc: bool,
    /// Maximum number of feeds
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    limit: u64,
    /// `next` of the previous page
    #[arg(long, value_name = "TOKEN")]
    page: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct PutArguments {
    #[command(flatten)]
    feed: FeedArguments,
    /// Attributes to set; a value is JSON, or else taken as text
    #[arg(value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Attribute to remove; may be repeated
    #[arg(long, value_name = "KEY")]
    remove: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct DropArguments {
    #[command(flatten)]
    feed: FeedArguments,
    /// Delete without confirmation
    #[arg(long, short)]
    yes: bool,
}

/// Lists the feeds that match all conditions.
pub(super) fn list(arguments: &ListArguments) -> Result<()> {
    let client = arguments.table.client()?;
    let mut search = Map::from_iter([("limit".to_owned(), arguments.limit.into())]);
    let conditions = arguments.conditions.iter();
    let conditions = conditions.map(|text| parse(Domain::Timelines, text));
    if let Some(tree) = joined(conditions.collect::<Result<Vec<Value>>>()?) {
        search.insert("where".into(), tree);
    }
    if let Some(key) = &arguments.sort {
        search.insert("sort".into(), json!([sort_key(key, arguments.desc)]));
    }
    if let Some(page) = &arguments.page {
        search.insert("page".into(), page.as_str().into());
    }
    let text = client.post(&client.of_table("/feeds/search"), &search.clone().into())?;
    let response = client.parse(&text)?;
    unknown(&client, &response, &search).report()?;
    if arguments.table.connection.json {
        return output::print(&text);
    }
    let found = response["timelines"]
        .as_array()
        .ok_or_else(|| client.strange("a search result without feeds"))?;
    let mut grid = Grid::new(["feed", "attributes", "id"]);
    for feed in found {
        grid.row(vec![
            name_of(&output::member(feed, "measurement"), &feed["tags"]).unwrap_or_default(),
            output::pairs(&feed["attributes"]),
            output::member(feed, "id"),
        ]);
    }
    output::print(&grid.render())?;
    let more = match response["next"].as_str() {
        Some(next) => format!("; the next page: --page {next}"),
        None => String::new(),
    };
    output::print(&format!(
        "\n{} of {}{more}",
        output::count(found.len() as u64),
        output::count(response["total"].as_u64().unwrap_or_default())
    ))
}

/// Returns the name of a feed, as commands accept it: its type and its tags, with escaped commas, spaces and equals signs.
/// `None` if the type or a tag cannot be written in this form; such a feed has only its id.
pub(in crate::commands) fn name_of(kind: &str, tags: &Value) -> Option<String> {
    let tags = tags.as_object().into_iter().flatten();
    let tags = tags.filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)));
    let mut name = Vec::new();
    series_key::write(kind, tags, &mut name).ok()?;
    String::from_utf8(name).ok()
}

/// Shows a feed.
pub(super) fn show(arguments: &FeedArguments) -> Result<()> {
    let client = arguments.table.client()?;
    let text = client.get(&arguments.path(&client, ""))?;
    match arguments.is_json() {
        true => output::print(&text),
        false => output::print(&described(&client.parse(&text)?)),
    }
}

/// Formats the properties and attributes of a feed.
fn described(feed: &Value) -> String {
    let mut grid = Grid::new(["property", "value"]).wrapping();
    grid.row(vec![
        "feed".into(),
        name_of(&output::member(feed, "type"), &feed["tags"]).unwrap_or_default(),
    ]);
    for name in ["id", "newest"] {
        grid.row(vec![name.into(), output::member(feed, name)]);
    }
    for (key, value) in feed["attributes"].as_object().into_iter().flatten() {
        grid.row(vec![format!("@{key}"), output::cell(value)]);
    }
    grid.render()
}

/// Creates a feed, or changes its attributes.
pub(super) fn put(arguments: &PutArguments) -> Result<()> {
    let mut changes = attributes::values(&arguments.set)?;
    for key in &arguments.remove {
        if changes.insert(key.clone(), Value::Null).is_some() {
            return Err(CliError::usage(format!("{key} is given twice")));
        }
    }
    let client = arguments.feed.table.client()?;
    let path = arguments.feed.path(&client, "");
    let text = client.put(&path, &json!({"attributes": changes}))?;
    match arguments.feed.is_json() {
        true => output::print(&text),
        false => output::print(&described(&client.parse(&text)?)),
    }
}

/// Deletes a feed after a confirmation.
pub(super) fn drop_feed(arguments: &DropArguments) -> Result<()> {
    let client = arguments.feed.table.client()?;
    let feed = &arguments.feed.feed;
    if !arguments.yes {
        let count = count_all(&client, &arguments.feed)?;
        confirm(&format!(
            "This deletes feed {feed} of table {} on {} with {} messages.",
            client.table(),
            client.base(),
            output::count(count)
        ))?;
    }
    client.delete(&arguments.feed.path(&client, ""))?;
    match arguments.feed.is_json() {
        true => output::print(&json!({"deleted": feed}).to_string()),
        false => output::print(&format!("deleted feed {feed}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_feeds_are_escaped() {
        let tags = json!({"name": "a, b", "x=y": "z"});
        let name = name_of("the room", &tags);
        assert_eq!(name.as_deref(), Some(r"the\ room,name=a\,\ b,x\=y=z"));
        assert_eq!(name_of("room", &json!({})).as_deref(), Some("room"));
        assert_eq!(name_of("room\\", &json!({})), None);
    }
}

//! `tideline tags` and `tideline fields`: list the tag keys, tag values and fields of a table.
//!
//! An unknown key or measurement is an error with suggestions, not an empty list.

use clap::Args;
use serde_json::Value;

use super::known::UnknownNames;
use crate::client::{TableArguments, encoded};
use crate::error::Result;
use crate::output;
use crate::output::grid::Grid;

/// Arguments of `tags`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tideline tags                      # the keys
  tideline tags host --prefix web-   # the values of one key")]
pub(crate) struct TagsArguments {
    #[command(flatten)]
    connection: TableArguments,
    /// Show the values of this key instead of the keys
    #[arg(value_name = "KEY")]
    key: Option<String>,
    /// Only names that begin with this
    #[arg(long, value_name = "TEXT", default_value = "")]
    prefix: String,
    /// Maximum number of names
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    limit: u64,
    /// `next` of the previous page
    #[arg(long, value_name = "TOKEN")]
    page: Option<String>,
}

/// Arguments of `fields`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tideline fields
  tideline fields cpu --json")]
pub(crate) struct FieldsArguments {
    #[command(flatten)]
    connection: TableArguments,
    /// Only fields of this measurement
    #[arg(value_name = "MEASUREMENT")]
    measurement: Option<String>,
}

/// Shows tag keys, or the values of one key.
pub(crate) fn tags(arguments: &TagsArguments) -> Result<()> {
    let client = arguments.connection.client()?;
    let of = match &arguments.key {
        None => "/tags".to_owned(),
        Some(key) => format!("/tags/{}/values", encoded(key)),
    };
    let page = arguments
        .page
        .as_ref()
        .map(|page| format!("&page={}", encoded(page)));
    let text = client.get(&client.of_table(&format!(
        "{of}?prefix={}&limit={}{}",
        encoded(&arguments.prefix),
        arguments.limit,
        page.unwrap_or_default()
    )))?;
    let response = client.parse(&text)?;
    UnknownNames::of(&client, &response, |_, _| true).report()?;
    if arguments.connection.server.json {
        return output::print(&text);
    }
    let mut grid = Grid::new([arguments.key.as_deref().unwrap_or("tag"), "timelines"]);
    for name in response["names"].as_array().into_iter().flatten() {
        let timelines = name["timelines"].as_u64().unwrap_or_default();
        grid.row(vec![output::member(name, "name"), output::count(timelines)]);
    }
    output::print(&grid.render())?;
    match response["next"].as_str() {
        Some(next) => output::print(&format!("\nthere are more; the next page: --page {next}")),
        None => Ok(()),
    }
}

/// Shows fields with their types.
pub(crate) fn fields(arguments: &FieldsArguments) -> Result<()> {
    let client = arguments.connection.client()?;
    let only = arguments.measurement.as_ref();
    let only = only.map(|name| format!("?measurement={}", encoded(name)));
    let text = client.get(&client.of_table(&format!("/fields{}", only.unwrap_or_default())))?;
    UnknownNames::of(&client, &client.parse(&text)?, |_, _| true).report()?;
    if arguments.connection.server.json {
        return output::print(&text);
    }
    let response = client.parse(&text)?;
    let mut grid = Grid::new(["measurement", "field", "types"]);
    for field in response["fields"].as_array().into_iter().flatten() {
        let types = field["types"].as_array().into_iter().flatten();
        let types: Vec<&str> = types.filter_map(Value::as_str).collect();
        grid.row(vec![
            output::member(field, "measurement"),
            output::member(field, "field"),
            types.join(", "),
        ]);
    }
    output::print(&grid.render())
}

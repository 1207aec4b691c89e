//! `tideline facets`: counts timelines by the values of tags, attributes, measurement or source.
//!
//! Counts are nested by up to four keys and computed by the server.

use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use super::known::UnknownNames;
use crate::client::TableArguments;
use crate::condition::WhereArguments;
use crate::error::Result;
use crate::output;
use crate::output::grid::Grid;

/// Arguments of `facets`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tideline facets dc
  tideline facets region host -m cpu --limit 5
  tideline facets @owner -w 'host^=web-' --order value")]
pub(crate) struct FacetsArguments {
    #[command(flatten)]
    connection: TableArguments,
    #[command(flatten)]
    timelines: WhereArguments,
    /// Count by these keys, 1 to 4, each nested in the one before: a tag, an attribute as @key, measurement or
    /// source
    #[arg(value_name = "KEY", required = true, num_args = 1..=4)]
    keys: Vec<String>,
    /// Maximum number of values per level
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    limit: u64,
    /// Order of the values
    #[arg(long, value_enum, default_value_t = Order::Count)]
    order: Order,
}

/// Order of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Order {
    /// Most timelines first
    Count,
    /// Lowest value first
    Value,
}

/// Counts timelines and shows the groups.
pub(crate) fn run(arguments: &FacetsArguments) -> Result<()> {
    let client = arguments.connection.client()?;
    let by = |key: &String| match (key.as_str(), key.strip_prefix('@')) {
        ("measurement" | "source", _) => json!({"property": key}),
        (_, Some(attribute)) => json!({"attribute": attribute}),
        _ => json!({"tag": key.strip_prefix("tag:").unwrap_or(key)}),
    };
    let order = match arguments.order {
        Order::Count => "count",
        Order::Value => "value",
    };
    let by: Vec<Value> = arguments.keys.iter().map(by).collect();
    let mut search = json!({"by": by, "limit": arguments.limit, "order": order});
    if let Some(tree) = arguments.timelines.tree()? {
        search["where"] = tree;
    }
    let text = client.post(&client.of_table("/timelines/facets"), &search)?;
    let response = client.parse(&text)?;
    // An unknown attribute is only a warning: it may not be set on any timeline yet, and all timelines then
    // count as "(none)".
    UnknownNames::of(&client, &response, |kind, name| {
        response["timelines"] == 0 || (kind == "tag" && by.iter().any(|by| by[kind] == name))
    })
    .report()?;
    if arguments.connection.server.json {
        return output::print(&text);
    }
    let heads = arguments.keys.iter().map(String::as_str).chain(["timelines"]);
    let mut grid = Grid::new(heads);
    put(&response["groups"], &mut Vec::new(), &mut grid);
    output::print(&grid.render())?;
    let number = |name: &str| response[name].as_u64().unwrap_or_default();
    let shown = response["groups"].as_array().map_or(0, Vec::len) as u64;
    let more = match number("distinct").checked_sub(shown) {
        Some(more @ 1..) => format!("; {} more are not shown: raise --limit", output::count(more)),
        _ => String::new(),
    };
    output::print(&format!(
        "\n{} timelines, {} values of {}{more}",
        output::count(number("timelines")),
        output::count(number("distinct")),
        arguments.keys[0]
    ))
}

/// Adds a row for each group of the last level, preceded by the values of the levels above.
fn put(groups: &Value, values: &mut Vec<String>, grid: &mut Grid) {
    for group in groups.as_array().into_iter().flatten() {
        let value = match &group["value"] {
            Value::Null => "(none)".to_owned(),
            value => output::cell(value),
        };
        values.push(value);
        match &group["groups"] {
            Value::Null => {
                let timelines = group["timelines"].as_u64().unwrap_or_default();
                let count = output::count(timelines);
                grid.row(values.iter().cloned().chain([count]).collect());
            }
            within => put(within, values, grid),
        }
        values.pop();
    }
}

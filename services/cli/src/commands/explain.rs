//! `tideline explain`: shows the plan and the estimated reads of a query.

use clap::Args;
use serde_json::Value;

use super::known;
use super::query::point_query::PointQueryArguments;
use crate::client::TableArguments;
use crate::error::Result;
use crate::output;
use crate::output::grid::Grid;

/// Arguments of `explain`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  tideline explain -m cpu --field usage_user --fn mean --window 1h --group-by host --last 90d")]
pub(crate) struct ExplainArguments {
    #[command(flatten)]
    connection: TableArguments,
    #[command(flatten)]
    query: PointQueryArguments,
}

/// Shows the plan and the estimated reads of a query, without reading points.
pub(crate) fn run(arguments: &ExplainArguments) -> Result<()> {
    let client = arguments.connection.client()?;
    let query = client.parse(&arguments.query.json(None)?)?;
    let text = client.post(&client.of_table("/explain"), &query)?;
    let response = client.parse(&text)?;
    known::of_plan(&client, &response, &query).report()?;
    if arguments.connection.server.json {
        return output::print(&text);
    }
    output::print(&explained(&response))
}

fn explained(response: &Value) -> String {
    let mut plan = Grid::new(["plan", ""]).wrapping();
    let columns = response["columns"]
        .as_array()
        .into_iter()
        .flatten()
        .map(output::cell);
    plan.row(vec!["columns".into(), columns.collect::<Vec<_>>().join(", ")]);
    for (name, value) in response["plan"].as_object().into_iter().flatten() {
        let shown = value.as_u64().map_or_else(|| output::cell(value), output::count);
        plan.row(vec![name.replace('_', " "), shown]);
    }
    let number = |value: &Value| value.as_u64().map(output::count).unwrap_or_default();
    let mut tiers = Grid::new(["would read", "segments", "chunks", "points", "bytes"]);
    for name in ["unsealed", "hot", "cold", "archive"] {
        let tier = &response["estimate"][name];
        tiers.row(vec![
            name.into(),
            number(&tier["segments"]),
            number(&tier["chunks"]),
            number(&tier["points"]),
            tier["bytes"].as_u64().map(output::bytes).unwrap_or_default(),
        ]);
    }
    format!("{}\n{}", plan.render(), tiers.render())
}

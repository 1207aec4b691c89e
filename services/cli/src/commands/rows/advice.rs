//! `tideline rows advice`: advice on a table, or on the access paths of a condition.
//!
//! With conditions, shows the access path that fits each of them, and the requests that create the missing indexes.

use clap::Args;
use serde_json::Value;

use super::RowsTable;
use crate::condition;
use crate::error::Result;
use crate::output::grid::Grid;
use crate::output::{self, cell, member};

pub(super) const EXAMPLES: &str = "\
Examples:
  tideline rows advice orders --all
  tideline rows advice orders --query 'state=paid' --query '{\"or\": [{\"column\": \"state\", \"equals\": \"open\"}, {\"column\": \"total\", \"gt\": 5}]}'";

/// Arguments of `rows advice`.
#[derive(Debug, Args)]
pub(crate) struct AdviceArguments {
    #[command(flatten)]
    table: RowsTable,
    /// Show the advice also if the table is small
    #[arg(long)]
    all: bool,
    /// Condition of a query whose access path is shown, such as state=paid, or a JSON tree; may be repeated
    #[arg(long = "query", value_name = "CONDITION", conflicts_with = "all")]
    queries: Vec<String>,
}

/// Shows the advice.
pub(super) fn run(arguments: &AdviceArguments) -> Result<()> {
    let client = arguments.table.client()?;
    let is_json = arguments.table.connection.json;
    if arguments.queries.is_empty() {
        let path = client.of_table("/advice");
        let text = client.get(&format!("{path}?all={}", arguments.all))?;
        if is_json {
            return output::print(&text);
        }
        return output::print(&of_table(&client.parse(&text)?));
    }
    let queries = arguments.queries.iter().map(|text| {
        let tree = condition::parse_rows(text)?;
        Ok(format!("{{\"where\":{tree}}}"))
    });
    let queries = queries.collect::<Result<Vec<String>>>()?;
    let body = format!("{{\"queries\":[{}]}}", queries.join(","));
    let text = client.post_text(&client.of_table("/advice"), &body)?;
    if is_json {
        return output::print(&text);
    }
    output::print(&of_queries(&client.parse(&text)?, &arguments.queries))
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn of_table(response: &Value) -> String {
    let mut text = String::new();
    for advice in list(&response["advice"]) {
        let subject = match advice["subject"].as_str() {
            Some(subject) => format!(" {subject}"),
            None => String::new(),
        };
        text.push_str(&format!(
            "{}{subject}: {}\n  {}\n",
            cell(&advice["code"]),
            cell(&advice["measured"]),
            cell(&advice["advice"])
        ));
    }
    let withheld = response["withheld"].as_u64().unwrap_or_default();
    if withheld > 0 {
        text.push_str(&format!(
            "the table is small, so its advice is withheld ({withheld}); use --all to see it\n"
        ));
    } else if text.is_empty() {
        text.push_str("no advice\n");
    }
    if response["surveyed"].is_null() {
        text.push_str(
            "sizes are unknown until the job survey_rows has run: tideline rows stats TABLE --now\n",
        );
    }
    text
}

fn of_queries(response: &Value, queries: &[String]) -> String {
    let mut grid = Grid::new(["query", "path", "index", "exists", "rows", "reason"]).wrapping();
    for (advice, query) in list(&response["queries"]).zip(queries) {
        grid.row(vec![
            query.clone(),
            cell(&advice["path"]),
            member(advice, "index"),
            cell(&advice["exists"]),
            cell(&advice["estimated_rows"]),
            cell(&advice["reason"]),
        ]);
    }
    let mut text = grid.render();
    for (name, path) in [
        ("create_indexes", "indexes"),
        ("create_search_indexes", "search-indexes"),
    ] {
        for body in list(&response[name]) {
            text.push_str(&format!("\nPOST /v1/tables/…/{path}\n{body}\n"));
        }
    }
    let undeclared: Vec<String> = list(&response["undeclared"]).map(cell).collect();
    if !undeclared.is_empty() {
        text.push_str(&format!("\ndeclare first: {}\n", undeclared.join(", ")));
    }
    text
}

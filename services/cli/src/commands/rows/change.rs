//! Writes of single rows, lines of writes from standard input, and deletes.
//!
//! Keys and columns are passed as JSON text, so that numbers keep their digits.

use std::io::{IsTerminal, Read};

use clap::Args;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::body::Body;
use super::shape::TableShape;
use super::{RowsTable, tree};
use crate::client::Client;
use crate::commands::selection::{self, confirm};
use crate::error::{CliError, Result};
use crate::output;

#[derive(Debug, Args)]
pub(crate) struct ChangeArguments {
    #[command(flatten)]
    table: RowsTable,
    /// Values of the key columns and of other columns as NAME=VALUE, or `-` for lines of writes in JSON
    #[arg(value_name = "NAME=VALUE", required = true)]
    values: Vec<String>,
    /// Column to remove; only for `update`; may be repeated
    #[arg(long, value_name = "NAME")]
    clear: Vec<String>,
    /// Number to add to an integer column, as NAME=NUMBER; only for `update`; may be repeated
    #[arg(long, value_name = "NAME=N", allow_hyphen_values = true)]
    increment: Vec<String>,
    #[command(flatten)]
    condition: ConditionArguments,
    /// Print the row before or after the write
    #[arg(long = "return", value_name = "ROW", value_parser = ["before", "after"])]
    image: Option<String>,
    /// Wait until searches find the write, at most 10 seconds
    #[arg(long)]
    refresh: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DeleteArguments {
    #[command(flatten)]
    table: RowsTable,
    /// Values of all key columns as NAME=VALUE; with --range, values of the first key columns and bounds of the next
    /// one
    #[arg(value_name = "KEY")]
    keys: Vec<String>,
    #[command(flatten)]
    condition: ConditionArguments,
    /// Delete all rows of the prefix and bounds
    #[arg(long, conflicts_with_all = ["if_exists", "if_absent", "conditions", "refresh"])]
    range: bool,
    /// Delete all rows of the table, with --range
    #[arg(long, requires = "range")]
    all: bool,
    /// Delete a range without confirmation
    #[arg(long, short)]
    yes: bool,
    /// Wait until searches reflect the delete, at most 10 seconds
    #[arg(long)]
    refresh: bool,
}

/// Condition of a write.
#[derive(Debug, Args)]
struct ConditionArguments {
    /// Only if the row exists
    #[arg(long, conflicts_with = "if_absent")]
    if_exists: bool,
    /// Only if the row does not exist
    #[arg(long)]
    if_absent: bool,
    /// Only if the columns of the row match, such as items<3; may be repeated
    #[arg(long = "if", value_name = "CONDITION")]
    conditions: Vec<String>,
}

impl ConditionArguments {
    fn json(&self) -> Result<Option<Box<RawValue>>> {
        let mut condition = Body::default();
        if self.if_exists || self.if_absent {
            condition.insert("exists".into(), self.if_exists.into());
        }
        if let Some(tree) = tree(&self.conditions)? {
            condition.insert_text("where", tree);
        }
        Ok((!condition.is_empty()).then(|| condition.to_text()))
    }
}

/// Writes one row, or sends the lines of writes from standard input.
pub(super) fn change(arguments: &ChangeArguments, operation: &str) -> Result<()> {
    let client = arguments.table.client()?;
    if arguments.values == ["-"] {
        if std::io::stdin().is_terminal() {
            return Err(CliError::usage("`-` reads lines of writes; pass them in a pipe"));
        }
        let mut lines = String::new();
        std::io::stdin().read_to_string(&mut lines)?;
        return send_lines(&client, &lines, arguments.refresh);
    }
    if operation == "put" && (!arguments.clear.is_empty() || !arguments.increment.is_empty()) {
        return Err(CliError::usage(
            "--clear and --increment are options of `rows update`",
        ));
    }
    let shape = TableShape::read(&client)?;
    let (mut key, mut columns): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    for text in &arguments.values {
        let (name, value) = shape.pair(text)?;
        if name.ends_with('+') && shape.type_of(name).is_none() {
            let column = name.trim_end_matches('+');
            return Err(CliError::usage(format!(
                "{text}: the undeclared column {name} is not written; to add to a number, use \
                 `rows update` with --increment {column}=NUMBER"
            )));
        }
        let member = format!("{}:{}", json!(name), value.get());
        if shape.is_key(name) {
            &mut key
        } else {
            &mut columns
        }
        .push(member);
    }
    let mut rest = Body::default();
    if !arguments.clear.is_empty() {
        rest.insert("clear".into(), json!(arguments.clear));
    }
    let mut increment = Map::new();
    for text in &arguments.increment {
        let number = text
            .split_once('=')
            .and_then(|(name, number)| Some((name, number.parse::<i64>().ok()?)));
        let (name, number) =
            number.ok_or_else(|| CliError::usage(format!("--increment {text}: expected NAME=NUMBER")))?;
        increment.insert(name.to_owned(), number.into());
    }
    if !increment.is_empty() {
        rest.insert("increment".into(), increment.into());
    }
    if let Some(condition) = arguments.condition.json()? {
        rest.insert_text("condition", condition);
    }
    if let Some(image) = &arguments.image {
        rest.insert("return".into(), image.as_str().into());
    }
    let write = one(operation, &key, &columns, rest);
    send(&arguments.table, &write, arguments.refresh)
}

/// Returns one write as JSON. Numbers keep their digits, because keys and columns are passed as JSON text.
fn one(operation: &str, key: &[String], columns: &[String], mut row: Body) -> String {
    let object =
        |members: &[String]| RawValue::from_string(format!("{{{}}}", members.join(","))).unwrap_or_default();
    row.insert("op".into(), operation.into());
    row.insert_text("key", object(key));
    if !columns.is_empty() {
        row.insert_text("columns", object(columns));
    }
    row.to_string()
}

/// Returns the path of writes. With `refresh`, the server waits for the search indexes.
fn writes(client: &Client, refresh: bool) -> String {
    client.of_table(if refresh { "/rows?refresh=wait" } else { "/rows" })
}

/// Prints a note if a write has waited for the search indexes and searches do not find it yet.
fn note(searchable: Option<bool>) {
    if searchable == Some(false) {
        eprintln!("written, but the search indexes have not reached the write yet");
    }
}

/// Sends one write and prints its outcome.
fn send(table: &RowsTable, row: &str, refresh: bool) -> Result<()> {
    let client = table.client()?;
    let text = client.post_text(&writes(&client, refresh), &format!("{{\"rows\":[{row}]}}"))?;
    if table.connection.json {
        return output::print(&text);
    }
    #[derive(serde::Deserialize)]
    struct Report {
        rows: Vec<Outcome>,
        searchable: Option<bool>,
    }
    #[derive(serde::Deserialize)]
    struct Outcome {
        key: Option<Box<RawValue>>,
        row: Option<Box<RawValue>>,
    }
    let report: Report = serde_json::from_str(&text).map_err(|error| client.strange(&error.to_string()))?;
    for outcome in report.rows {
        // A returned row contains the key.
        let shown = outcome.row.or(outcome.key);
        output::print(shown.as_deref().map_or("written", RawValue::get))?;
    }
    note(report.searchable);
    Ok(())
}

/// Sends lines of writes and prints their outcomes. Fails if a row was not written.
fn send_lines(client: &Client, lines: &str, refresh: bool) -> Result<()> {
    let response = client.post_lines(&writes(client, refresh), lines)?;
    output::print(&response)?;
    let end: Value = client.parse(response.trim_end().lines().last().unwrap_or_default())?;
    note(end["searchable"].as_bool());
    let count = |name: &str| end[name].as_u64().unwrap_or_default();
    match count("condition_failed") + count("not_applied") + count("refused") {
        0 => Ok(()),
        other => Err(CliError::Incomplete(format!(
            "{} of {} rows were not written",
            output::count(other),
            output::count(other + count("written"))
        ))),
    }
}

/// Deletes one row, or the rows of a range after a confirmation.
pub(super) fn delete(arguments: &DeleteArguments) -> Result<()> {
    let client = arguments.table.client()?;
    let shape = TableShape::read(&client)?;
    if !arguments.range {
        let mut key = Vec::new();
        for text in &arguments.keys {
            let (name, value) = shape.pair(text)?;
            key.push(format!("{}:{}", json!(name), value.get()));
        }
        if key.len() < shape.key.len() {
            let names: Vec<&str> = shape.key.iter().map(|(name, _)| name.as_str()).collect();
            return Err(CliError::usage(format!(
                "the key has the columns {}; give all of them, or --range to delete all rows of a prefix",
                names.join(", ")
            )));
        }
        let mut rest = Body::default();
        if let Some(condition) = arguments.condition.json()? {
            rest.insert_text("condition", condition);
        }
        let delete = one("delete", &key, &[], rest);
        return send(&arguments.table, &delete, arguments.refresh);
    }
    let mut body = shape.bounds(&arguments.keys)?;
    if body.is_empty() && !arguments.all {
        return Err(CliError::usage(
            "give values of the first key columns, or bounds, to delete the rows of a range; or --all to delete all rows of \
             the table",
        ));
    }
    if !arguments.yes {
        let mut count = body.clone();
        count.insert("allow_scan".into(), arguments.all.into());
        confirm(&format!(
            "This deletes {} of table {} on {}.",
            selection::counted_rows(&client, &client.of_table("/rows/count"), count)?,
            client.table(),
            client.base()
        ))?;
    }
    if arguments.all {
        body.insert("allow_all".into(), true.into());
    }
    let text = client.post(&client.of_table("/rows/delete"), &body.into())?;
    match arguments.table.connection.json {
        true => output::print(&text),
        false => output::print("deleted"),
    }
}

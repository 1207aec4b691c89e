//! `tideline rows why`: shows the stored data of a key, and the rules that hide data from reads.
//!
//! The key is entered as for `rows get`. The output lists the state of the row, the versions of all columns, the
//! layers, the indexes and the tests of a condition, each with the rule that hides it.

use clap::Args;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};

use super::body::Body;
use super::shape::TableShape;
use super::{RowsTable, columns, tree};
use crate::error::{CliError, Result};
use crate::output::grid::Grid;
use crate::output::{self, cell, member};

pub(super) const EXAMPLES: &str = "\
Examples:
  tideline rows why orders customer=acme placed=2026-11-20T12:00:00Z
  tideline rows why orders customer=acme placed=2026-11-20T12:00:00Z --where 'total>5'   # why a read does not return it";

/// Arguments of `rows why`.
#[derive(Debug, Args)]
pub(crate) struct WhyArguments {
    #[command(flatten)]
    table: RowsTable,
    /// Values of all key columns as NAME=VALUE, or the whole key as a JSON object
    #[arg(value_name = "KEY", required = true)]
    key: Vec<String>,
    /// Columns whose versions are listed: names, or prefixes that end with `*`, separated by commas [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    columns: Vec<String>,
    /// Condition of a read that does not return the row, such as total>5, or a JSON tree; each test is evaluated
    #[arg(long = "where", short = 'w', value_name = "CONDITION")]
    conditions: Vec<String>,
}

/// Explains the key.
pub(super) fn run(arguments: &WhyArguments) -> Result<()> {
    let client = arguments.table.client()?;
    let key: Box<RawValue> = match arguments.key.as_slice() {
        [text] if text.starts_with('{') => serde_json::from_str(text)
            .map_err(|error| CliError::usage(format!("{text} is not valid JSON: {error}")))?,
        pairs => {
            let shape = TableShape::read(&client)?;
            let mut key = Map::new();
            for text in pairs {
                let (name, value) = shape.pair(text)?;
                let value = serde_json::to_value(value)
                    .map_err(|error| CliError::usage(format!("{text}: {error}")))?;
                key.insert(name.to_owned(), value);
            }
            to_raw_value(&key).map_err(|error| CliError::usage(error.to_string()))?
        }
    };
    let mut body = Body::default();
    body.insert_text("key", key);
    if let Some(columns) = columns(&arguments.columns) {
        body.insert("columns".into(), columns);
    }
    if let Some(tree) = tree(&arguments.conditions)? {
        body.insert_text("where", tree);
    }
    let text = client.post_text(&client.of_table("/rows/why"), &body.to_string())?;
    if arguments.table.connection.json {
        return output::print(&text);
    }
    output::print(&explained(&client.parse(&text)?))
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Formats the code and the reason of a hiding rule. Returns an empty text if there is no rule.
fn reason(hidden: &Value) -> String {
    match hidden["code"].as_str() {
        Some(code) => format!("{code}: {}", cell(&hidden["reason"])),
        None => String::new(),
    }
}

fn explained(why: &Value) -> String {
    let mut text = match &why["hidden"] {
        Value::Null => format!("reads return the row, last written {}\n", cell(&why["written"])),
        hidden => format!("reads do not return the row: {}\n", reason(hidden)),
    };
    if let Some(expires) = why["expires"].as_str() {
        text.push_str(&format!("expires: {expires}\n"));
    }
    if let Some(name) = why["part"]["name"].as_str() {
        text.push_str(&format!("part: {name}, {}\n", cell(&why["part"]["state"])));
    }
    push_versions(&why["columns"], &mut text);
    push_layers(&why["layers"], &mut text);
    push_indexes(&why["indexes"], &mut text);
    push_condition(&why["where"], &mut text);
    let total = |name: &str| why[name].as_u64().unwrap_or_default();
    let listed = |value: &Value| list(value).count() as u64;
    let shown: u64 = list(&why["columns"])
        .map(|column| listed(&column["versions"]))
        .sum();
    if shown < total("versions_total") {
        text.push_str(&format!(
            "\n{} of {} versions are listed; name columns with --columns\n",
            output::count(shown),
            output::count(total("versions_total"))
        ));
    }
    text
}

/// Appends the versions of the columns, and the remarks on columns.
fn push_versions(columns: &Value, text: &mut String) {
    let mut versions = Grid::new(["column", "version", "type", "value", "layer", "hidden by"]).wrapping();
    let mut remarks = String::new();
    for column in list(columns) {
        for version in list(&column["versions"]) {
            versions.row(vec![
                cell(&column["name"]),
                cell(&version["version"]),
                cell(&version["type"]),
                cell(&version["value"]),
                cell(&version["layer"]),
                reason(&version["hidden"]),
            ]);
        }
        if column.get("remark").is_some() {
            remarks.push_str(&format!(
                "{}: {}\n",
                cell(&column["name"]),
                reason(&column["remark"])
            ));
        }
    }
    if list(columns).next().is_some() {
        text.push_str(&format!("\n{}", versions.render()));
    }
    text.push_str(&remarks);
}

/// Appends the changes of each layer.
fn push_layers(layers: &Value, text: &mut String) {
    let mut changes =
        Grid::new(["layer", "place", "write", "time", "columns", "bytes", "hidden by"]).wrapping();
    for (number, layer) in list(layers).enumerate() {
        let location = match layer["generation"].as_u64() {
            Some(generation) => format!("buffer {generation}"),
            None => cell(&layer["place"]),
        };
        if layer["deletes_range"] == true {
            changes.row(vec![
                number.to_string(),
                location.clone(),
                "delete of a range".into(),
            ]);
        }
        for change in list(&layer["changes"]) {
            changes.row(vec![
                number.to_string(),
                location.clone(),
                cell(&change["effect"]),
                cell(&change["time"]),
                cell(&change["columns"]),
                cell(&change["bytes"]),
                reason(&change["hidden"]),
            ]);
        }
    }
    if list(layers).next().is_some() {
        text.push_str(&format!("\n{}", changes.render()));
    }
}

/// Appends the state of each index.
fn push_indexes(indexes: &Value, text: &mut String) {
    for index in list(indexes) {
        let state = match index["holds_row"].as_bool() {
            Some(true) => "holds the row".to_owned(),
            _ => reason(&index["hidden"]),
        };
        let kind = member(index, "kind");
        text.push_str(&format!("\n{kind} index {}: {state}\n", cell(&index["name"])));
        for column in list(&index["columns"]) {
            text.push_str(&format!(
                "  {}: {}\n",
                cell(&column["name"]),
                reason(&column["hidden"])
            ));
        }
    }
}

/// Appends the result of a condition and of each of its tests. Appends nothing without a condition.
fn push_condition(condition: &Value, text: &mut String) {
    let Some(matches) = condition["matches"].as_bool() else {
        return;
    };
    let matches = if matches { "matches" } else { "does not match" };
    text.push_str(&format!("\nthe row {matches} the condition\n"));
    for test in list(&condition["tests"]) {
        let result = match test["passes"].as_bool() {
            Some(true) => "passes".to_owned(),
            _ => reason(&test["hidden"]),
        };
        text.push_str(&format!("  {}: {result}\n", cell(&test["test"])));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rules_are_listed_with_their_codes() {
        let why = json!({
            "visible": false, "written": "2026-11-20T12:00:00Z", "expires": "2026-12-20T12:00:00Z",
            "hidden": {"code": "expired", "reason": "the row expired"},
            "columns": [{"name": "total", "versions": [
                {"version": "2026-11-20T12:00:00Z", "type": "i64", "value": 5, "layer": 0, "hidden": null},
            ]}],
            "layers": [{"place": "buffer", "generation": 0, "deletes_range": true, "changes": []}],
            "indexes": [{"name": "by_total", "kind": "secondary", "holds_row": false,
                "hidden": {"code": "no_value", "reason": "the row has no value"}, "columns": []}],
            "where": {"matches": false, "tests": [{"test": "{}", "passes": false,
                "hidden": {"code": "no_match", "reason": "it does not pass"}}]},
            "versions_total": 3,
        });
        let text = explained(&why);
        for said in [
            "reads do not return the row: expired: the row expired",
            "expires: 2026-12-20T12:00:00Z",
            "delete of a range",
            "secondary index by_total: no_value: the row has no value",
            "the row does not match the condition",
            "1 of 3 versions",
        ] {
            assert!(text.contains(said), "{said}: {text}");
        }
    }
}

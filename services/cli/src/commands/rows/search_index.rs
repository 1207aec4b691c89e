//! `tideline rows search-index`: lists, creates and drops search indexes.
//!
//! The server builds a new index in the background. With `--wait`, the command returns when the index is built.

use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::{RowsTable, TierArgument};
use crate::client::{Client, encoded};
use crate::commands::pause;
use crate::error::{CliError, Result};
use crate::output;
use crate::output::grid::Grid;

/// Interval at which the state of an index is requested.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Subcommands of `rows search-index`.
#[derive(Debug, Subcommand)]
pub(crate) enum SearchIndexCommand {
    /// List the search indexes of a table, with their state
    List(RowsTable),
    /// Create a search index, or change the columns of one
    #[command(after_help = "\
Examples:
  tideline rows search-index create orders all title=text title=keyword state=keyword total=keyword placed=time --wait
  tideline rows search-index create orders all title=text state=keyword --replace
  tideline rows search-index create orders all customer=keyword title=text --shards 4 --routing customer

Forms: keyword (whole texts, decimals, bytes), text (words), number, time, bool, geo (areas and distances).")]
    Create(CreateArguments),
    /// Drop a search index
    Drop(DropArguments),
}

#[derive(Debug, Args)]
pub(crate) struct CreateArguments {
    #[command(flatten)]
    table: RowsTable,
    /// Name of the search index
    #[arg(value_name = "INDEX")]
    name: String,
    /// Column and the form in which its values are indexed: keyword, text, number, time, bool or geo; a column may be
    /// repeated with other forms. text can be followed by an analyzer: text:english (or another language), text:ngram3
    /// or text:cjk
    #[arg(value_name = "COLUMN=FORM", required = true)]
    columns: Vec<String>,
    #[command(flatten)]
    tier: TierArgument,
    /// Number of shards over which the rows are divided, 1 to 16
    #[arg(long, value_name = "N")]
    shards: Option<u16>,
    /// Column of the key whose values determine the shard of a row; may be repeated. Default with several shards: the
    /// columns of the partition
    #[arg(long, value_name = "COLUMN")]
    routing: Vec<String>,
    /// Replace the index of this name; it serves searches until the new one is built
    #[arg(long)]
    replace: bool,
    /// Wait until the index is built
    #[arg(long)]
    wait: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DropArguments {
    #[command(flatten)]
    table: RowsTable,
    /// Name of the search index
    #[arg(value_name = "INDEX")]
    name: String,
}

/// Runs the subcommand.
pub(super) fn run(command: &SearchIndexCommand) -> Result<()> {
    match command {
        SearchIndexCommand::List(table) => list(table),
        SearchIndexCommand::Create(arguments) => create(arguments),
        SearchIndexCommand::Drop(DropArguments { table, name }) => {
            let client = table.client()?;
            client.delete(&client.of_table(&format!("/search-indexes/{}", encoded(name))))?;
            match table.connection.json {
                true => output::print(&json!({"dropped": name}).to_string()),
                false => output::print(&format!("dropped search index {name}")),
            }
        }
    }
}

fn list(table: &RowsTable) -> Result<()> {
    let client = table.client()?;
    let text = client.get(&client.of_table("/search-indexes"))?;
    if table.connection.json {
        return output::print(&text);
    }
    let mut grid = Grid::new([
        "index",
        "columns",
        "tier",
        "shards",
        "status",
        "rows",
        "rows read",
        "waiting",
        "lag ms",
        "error",
    ]);
    let response = client.parse(&text)?;
    for index in response["search_indexes"].as_array().into_iter().flatten() {
        let columns = index["columns"].as_array().into_iter().flatten();
        let columns = columns.map(|column| {
            format!(
                "{}={}",
                output::member(column, "column"),
                output::member(column, "as")
            )
        });
        let columns = columns.collect::<Vec<_>>().join(" ");
        let mut row = vec![output::member(index, "name"), columns];
        let rest = [
            "tier",
            "shards",
            "status",
            "documents",
            "rows_read",
            "waiting",
            "lag_ms",
            "error",
        ];
        row.extend(rest.map(|name| output::member(index, name)));
        grid.row(row);
    }
    output::print(&grid.render())
}

fn create(arguments: &CreateArguments) -> Result<()> {
    let mut columns = Vec::with_capacity(arguments.columns.len());
    for text in &arguments.columns {
        columns.push(column(text)?);
    }
    let mut body = Map::from_iter([
        ("name".to_owned(), json!(arguments.name)),
        ("columns".to_owned(), columns.into()),
    ]);
    arguments.tier.add_to(&mut body);
    if let Some(shards) = arguments.shards {
        body.insert("shards".into(), shards.into());
    }
    if !arguments.routing.is_empty() {
        body.insert("routing".into(), json!(arguments.routing));
    }
    if arguments.replace {
        body.insert("replace".into(), true.into());
    }
    let client = arguments.table.client()?;
    let path = match arguments.wait {
        true => "/search-indexes?refresh=wait",
        false => "/search-indexes",
    };
    let mut text = client.post(&client.of_table(path), &body.into())?;
    if arguments.wait {
        text = built(&client, &arguments.name)?.to_string();
    }
    match arguments.table.connection.json {
        true => output::print(&text),
        false => output::print(&format!(
            "created search index {}; {}",
            arguments.name,
            match arguments.wait {
                true => "it is ready",
                false => "the rows of the table are added in the background",
            }
        )),
    }
}

/// Parses a column with its form, and the analyzer of texts: `COLUMN=FORM` or `COLUMN=text:ANALYZER`.
fn column(text: &str) -> Result<Value> {
    match text.rsplit_once('=') {
        Some((name, form)) if !name.is_empty() => {
            let Some((form, analyzer)) = form.split_once(':') else {
                return Ok(json!({"column": name, "as": form}));
            };
            let length = analyzer
                .strip_prefix("ngram")
                .and_then(|length| length.parse::<u8>().ok());
            let analyzer = match (analyzer, length) {
                (_, Some(length)) => json!({"ngram": length}),
                ("words" | "cjk", _) => json!(analyzer),
                (language, None) => json!({"language": language}),
            };
            Ok(json!({"column": name, "as": form, "analyzer": analyzer}))
        }
        _ => Err(CliError::usage(format!(
            "{text}: expected COLUMN=FORM, such as title=text"
        ))),
    }
}

/// Waits until an index is built and has replaced an earlier index of its name. Returns the index.
fn built(client: &Client, name: &str) -> Result<Value> {
    let path = client.of_table("/search-indexes");
    loop {
        let list = client.parse(&client.get(&path)?)?;
        let indexes = list["search_indexes"].as_array().into_iter().flatten();
        let of_name: Vec<&Value> = indexes.filter(|index| index["name"] == name).collect();
        match of_name.as_slice() {
            [] => {
                return Err(CliError::Incomplete(format!(
                    "search index {name} was dropped before it was built"
                )));
            }
            [index] if index["status"] != "building" => return Ok((*index).clone()),
            _ => pause(POLL_INTERVAL),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_have_a_form() {
        assert_eq!(
            column("a=b=text").expect("valid"),
            json!({"column": "a=b", "as": "text"})
        );
        for (text, analyzer) in [
            ("a=text:english", json!({"language": "english"})),
            ("a=text:ngram3", json!({"ngram": 3})),
            ("a=text:cjk", json!("cjk")),
        ] {
            let expected = json!({"column": "a", "as": "text", "analyzer": analyzer});
            assert_eq!(column(text).expect("valid"), expected);
        }
        for wrong in ["title", "=text", ""] {
            assert_eq!(column(wrong).expect_err(wrong).exit_status(), 2, "{wrong:?}");
        }
    }
}

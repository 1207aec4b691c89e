//! `tideline rows`: reads, writes, exports and imports rows of wide tables.
//!
//! | module | holds |
//! |---|---|
//! | `shape` | key columns and types of a table, values on the command line |
//! | `body` | body of a request, with all digits of its numbers |
//! | `read` | `get`, `scan`, `count`, `explain` |
//! | `aggregate` | `aggregate` |
//! | `change` | `put`, `update`, `delete` |
//! | `export` | `export`, resumable |
//! | `index` | `index list`, `index create`, `index drop` |
//! | `search` | `search` |
//! | `facets` | `facets` |
//! | `search_index` | `search-index list`, `search-index create`, `search-index drop` |
//! | `rekey` | `rekey` |
//! | `why` | `why` |
//! | `statistics` | `stats`, `load`, `growth` |
//! | `advice` | `advice` |
//! | `value` | `put-value`, `get-value` |
//!
//! `import` is part of `write`, with which it shares the splitting of files, the load control and the resume file.

mod advice;
mod aggregate;
pub(super) mod body;
mod change;
mod export;
mod facets;
pub(super) mod index;
pub(super) mod read;
mod rekey;
mod search;
mod search_index;
pub(crate) mod shape;
mod statistics;
mod value;
mod why;

use std::io::IsTerminal;

use clap::{Args, Subcommand};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use self::body::Body;
use self::shape::TableShape;
use crate::client::{Client, ConnectionArguments};
use crate::condition;
use crate::error::Result;
use crate::write::rows::{self as import, ImportArguments};

/// Subcommands of `rows`.
#[derive(Debug, Subcommand)]
pub(crate) enum RowsCommand {
    /// Read rows by their keys
    #[command(after_help = "\
Examples:
  tideline rows get orders customer=acme placed=2026-11-20T12:00:00Z
  tideline rows get orders customer=acme customer=beta placed=2026-11-20T12:00:00Z   # all combinations
  tideline rows get orders '{\"customer\": \"acme\", \"placed\": \"2026-11-20T12:00:00Z\"}' --columns total,seen_*")]
    Get(read::GetArguments),
    /// Write a row; replaces an existing row
    #[command(after_help = "\
Examples:
  tideline rows put orders customer=acme placed=2026-11-20T12:00:00Z total=5.32 color=red
  tideline rows put orders customer=acme placed=2026-11-20T12:00:00Z --if-absent
  tideline rows put orders customer=acme placed=2026-11-20T12:00:00Z total=5.32 --refresh   # for a search right after
  tideline rows put orders - < writes.ndjson

A value of an undeclared column is JSON if it can be read as such (5, true, \"5\"), otherwise a text. With `-`, writes are
read from standard input in the form of the API, one per line, with any operation; their outcomes are printed.")]
    Put(change::ChangeArguments),
    /// Change columns of a row; creates a missing row
    #[command(after_help = "\
Examples:
  tideline rows update orders customer=acme placed=2026-11-20T12:00:00Z note=paid --clear color
  tideline rows update orders customer=acme placed=2026-11-20T12:00:00Z --increment items=1 --if 'items<3' --return after")]
    Update(change::ChangeArguments),
    /// Delete a row, or all rows of a range
    #[command(after_help = "\
Examples:
  tideline rows delete orders customer=acme placed=2026-11-20T12:00:00Z
  tideline rows delete orders --range customer=acme 'placed<2026-01-01T00:00:00Z'")]
    Delete(change::DeleteArguments),
    /// Read rows in the order of their keys
    #[command(after_help = "\
Examples:
  tideline rows scan orders customer=acme 'placed>=2026-11-20T00:00:00Z' --backward --limit 10
  tideline rows scan orders --where 'total>5' --allow-scan --columns total --out large.parquet
  tideline rows scan orders --index by_state state=paid 'placed>=2026-11-20T00:00:00Z'")]
    Scan(read::ScanArguments),
    /// Find rows through a search index, in any order
    #[command(after_help = search::EXAMPLES)]
    Search(search::SearchArguments),
    /// Count rows through a search index, by the values of columns
    #[command(after_help = facets::EXAMPLES)]
    Facets(facets::FacetsArguments),
    /// Compute functions of the values of rows, by groups and time windows
    #[command(after_help = aggregate::EXAMPLES)]
    Aggregate(aggregate::AggregateArguments),
    /// Count rows, exactly or estimated
    Count(read::CountArguments),
    /// Show how a scan finds its rows, without running it; searches, facets and aggregates have --explain
    Explain(read::ExplainArguments),
    /// Show what is stored for a key, and why reads do not return it
    #[command(after_help = why::EXAMPLES)]
    Why(why::WhyArguments),
    /// Show sizes, widths, partitions and delete markers of the stored rows
    #[command(after_help = statistics::EXAMPLES)]
    Stats(statistics::StatsArguments),
    /// Show the load of the last minute and the key ranges that have most of it
    Load(statistics::LoadArguments),
    /// Forecast the growth of the table and its indexes
    Growth(statistics::GrowthArguments),
    /// Show advice on the design of a table, or the access paths of queries
    #[command(after_help = advice::EXAMPLES)]
    Advice(advice::AdviceArguments),
    /// Export rows to a file that `rows import` can read
    #[command(after_help = export::EXAMPLES)]
    Export(export::ExportArguments),
    /// Import rows from files
    #[command(after_help = import::EXAMPLES)]
    Import(ImportArguments),
    /// Copy rows into a table with another key
    #[command(after_help = "\
Example:
  tideline rows rekey orders orders_by_time

Columns are matched by name. A repeated copy changes nothing, and newer values in the target stay.")]
    Rekey(rekey::RekeyArguments),
    /// Write a value of any size from a file
    #[command(after_help = value::PUT_EXAMPLES)]
    PutValue(value::PutValueArguments),
    /// Read a value of any size to a file
    #[command(after_help = value::GET_EXAMPLES)]
    GetValue(value::GetValueArguments),
    /// List, create and drop secondary indexes
    #[command(subcommand)]
    Index(index::IndexCommand),
    /// List, create and drop search indexes
    #[command(subcommand)]
    SearchIndex(search_index::SearchIndexCommand),
}

/// Table of a command, and the server.
#[derive(Debug, Clone, Args)]
pub(crate) struct RowsTable {
    /// Name of the table
    #[arg(value_name = "TABLE")]
    table: String,
    #[command(flatten)]
    connection: ConnectionArguments,
}

impl RowsTable {
    fn client(&self) -> Result<Client> {
        self.connection.client_of_table(&self.table, 1)
    }
}

/// Tiers that a read reads, or that an index covers.
#[derive(Debug, Clone, Args)]
struct TierArgument {
    /// Tiers of the parts of the table: hot, or cold with the archive
    #[arg(long, value_name = "TIER", value_parser = ["all", "hot", "cold"])]
    tier: Option<String>,
}

impl TierArgument {
    /// Adds the member `tier` to a request.
    fn add_to(&self, body: &mut Map<String, Value>) {
        if let Some(tier) = &self.tier {
            body.insert("tier".into(), tier.as_str().into());
        }
    }
}

/// Arguments that select the rows of a scan.
#[derive(Debug, Clone, Args)]
struct RowSelection {
    #[command(flatten)]
    table: RowsTable,
    /// Values of the first key columns as NAME=VALUE, and bounds of the next one: NAME>=VALUE, NAME>VALUE, NAME<VALUE,
    /// NAME<=VALUE
    #[arg(value_name = "KEY")]
    keys: Vec<String>,
    /// Secondary index to scan instead of the primary key; it determines the columns of KEY and the order of the rows
    #[arg(long, value_name = "NAME")]
    index: Option<String>,
    /// Condition on a column, such as total>5, state!=open, note^=re or note=~r.*, or a JSON tree; rows must match all
    #[arg(long = "where", short = 'w', value_name = "CONDITION")]
    conditions: Vec<String>,
    #[command(flatten)]
    tier: TierArgument,
    /// Allow a scan of the whole table
    #[arg(long)]
    allow_scan: bool,
}

impl RowSelection {
    /// Returns the body of a request. Requests the columns of the table or of the index from the server.
    fn body(&self, client: &Client) -> Result<Body> {
        let shape = TableShape::read(client)?;
        let mut body = match &self.index {
            None => Body::from(shape.bounds(&self.keys)?),
            Some(index) => {
                let mut body = Body::from(shape.with_index(client, index)?.bounds(&self.keys)?);
                body.insert("index".into(), index.as_str().into());
                body
            }
        };
        if let Some(tree) = tree(&self.conditions)? {
            body.insert_text("where", tree);
        }
        self.tier.add_to(&mut body.members);
        if self.allow_scan {
            body.insert("allow_scan".into(), true.into());
        }
        Ok(body)
    }
}

/// Returns the tree of conditions on rows.
pub(super) fn tree(conditions: &[String]) -> Result<Option<Box<RawValue>>> {
    let trees = conditions.iter().map(|text| condition::parse_rows(text));
    Ok(condition::joined_text(trees.collect::<Result<_>>()?))
}

/// Returns the member `columns` of a request; `None` for all columns.
fn columns(names: &[String]) -> Option<Value> {
    (!names.is_empty()).then(|| json!(names))
}

/// Returns true if standard output is a terminal.
fn has_terminal() -> bool {
    std::io::stdout().is_terminal()
}

/// Runs the subcommand.
pub(crate) fn run(command: &RowsCommand) -> Result<()> {
    match command {
        RowsCommand::Get(arguments) => read::get(arguments),
        RowsCommand::Put(arguments) => change::change(arguments, "put"),
        RowsCommand::Update(arguments) => change::change(arguments, "update"),
        RowsCommand::Delete(arguments) => change::delete(arguments),
        RowsCommand::Scan(arguments) => read::scan(arguments),
        RowsCommand::Search(arguments) => search::run(arguments),
        RowsCommand::Facets(arguments) => facets::run(arguments),
        RowsCommand::Aggregate(arguments) => aggregate::run(arguments),
        RowsCommand::Count(arguments) => read::count(arguments),
        RowsCommand::Explain(arguments) => read::explain(arguments),
        RowsCommand::Why(arguments) => why::run(arguments),
        RowsCommand::Stats(arguments) => statistics::stats(arguments),
        RowsCommand::Load(arguments) => statistics::load(arguments),
        RowsCommand::Growth(arguments) => statistics::growth(arguments),
        RowsCommand::Advice(arguments) => advice::run(arguments),
        RowsCommand::Export(arguments) => export::run(arguments),
        RowsCommand::Import(arguments) => import::run(arguments),
        RowsCommand::Rekey(arguments) => rekey::run(arguments),
        RowsCommand::PutValue(arguments) => value::put(arguments),
        RowsCommand::GetValue(arguments) => value::get(arguments),
        RowsCommand::Index(command) => index::run(command),
        RowsCommand::SearchIndex(command) => search_index::run(command),
    }
}

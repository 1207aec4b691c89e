//! `tideline latest`: shows the newest value of each field.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;

use super::known;
use super::query::{self, Output};
use super::selection;
use crate::client::TableArguments;
use crate::condition::WhereArguments;
use crate::error::Result;
use crate::output;

/// Maximum number of timelines in a table without `--limit`.
const TABLE_TIMELINES: u64 = 100;

/// Arguments of `latest`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tideline latest -m cpu -w 'host^=web-'
  tideline latest --field temperature --output csv")]
pub(crate) struct LatestArguments {
    #[command(flatten)]
    connection: TableArguments,
    #[command(flatten)]
    timelines: WhereArguments,
    /// Field to show; may be repeated [default: all]
    #[arg(long = "field", short = 'f', value_name = "NAME")]
    fields: Vec<String>,
    /// Maximum number of timelines [default: 100 for tables, else all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// Output format [default: table, or json with --json]
    #[arg(long, short, value_enum)]
    output: Option<Output>,
    /// Output file [default: standard output]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Queries the newest values and shows them.
pub(crate) fn run(arguments: &LatestArguments) -> Result<()> {
    let client = arguments.connection.client()?;
    let output = Output::chosen(arguments.output, arguments.connection.server.json, None)?;
    let mut query = selection::query(&arguments.timelines, &arguments.fields)?;
    let default = (output == Output::Table).then_some(TABLE_TIMELINES);
    if let Some(limit) = arguments.limit.or(default) {
        query.insert("limit".into(), limit.into());
    }
    let query = serde_json::Value::from(query);
    known::check(&client, &query)?;
    let (path, query) = (client.of_table("/latest"), query.to_string());
    if output != Output::Table {
        return query::stream(&client, &path, output, &query, arguments.out.as_ref());
    }
    let width = output::columns().filter(|_| arguments.out.is_none());
    let text = query::table(&query::read(&client, &path, &query)?, width);
    let mut out = selection::output_to(arguments.out.as_ref())?;
    Ok(out.write_all(text.as_bytes()).and_then(|()| out.flush())?)
}

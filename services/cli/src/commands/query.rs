//! `tideline query`: runs a query and shows its result as a table, a chart, or in a format for programs.
//!
//! Tables and charts read the whole result; other formats are streamed as the server sends them.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde_json::Value;

pub(crate) mod point_query;
mod show;

use self::point_query::PointQueryArguments;
use super::known;
use super::selection::{self, by_ending};
use crate::client::{Client, TableArguments};
use crate::error::{CliError, Result};
use crate::output::{self, CopyError};

pub(crate) use show::{charts, grid, table};

/// Maximum number of rows of a table without `--limit`.
const TABLE_ROWS: u64 = 1_000;
/// Maximum number of rows that charts are drawn from without `--limit`.
const CHART_ROWS: u64 = 1_000_000;

const EXAMPLES: &str = "\
Examples:
  tideline query -m cpu -w host=web-1 --field usage_user --last 1h
  tideline query -m cpu -w 'host^=web-' --field usage_user --fn mean,max --window 5m --group-by host --last 6h
  tideline query -m cpu --field usage_user --fn mean,p95 --window 1m --last 1h --chart
  tideline query -m cpu --field usage_user --fn max --group-by host --top 5 --by 'mean(usage_user)' --last 1d
  tideline query -m cpu --field usage_user --fn mean --window 1d --zone Europe/Berlin --fill linear --last 30d
  tideline query -m cpu --value 'usage_user>90' --compute busy=usage_user+usage_system --field busy --last 1h
  tideline query -m cpu --field usage_user --sample 500 --last 7d --chart
  tideline query -m cpu --last 1d --output csv > cpu.csv
  tideline query -m cpu --last 30d --fn mean --window 1h --each --out cpu.parquet
  echo '{\"fields\": [\"usage_user\"], \"limit\": 5}' | tideline query --body -";

/// Arguments of `query`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct QueryArguments {
    #[command(flatten)]
    connection: TableArguments,
    #[command(flatten)]
    query: PointQueryArguments,
    /// Output format [default: by the ending of --out (.csv, .ndjson, .json, .arrow, .parquet, .txt), else
    /// table, or json with --json]
    #[arg(long, short, value_enum)]
    output: Option<Output>,
    /// Output file [default: standard output]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Draw each field over time, all series on one axis
    #[arg(long, conflicts_with_all = ["output", "json"])]
    chart: bool,
}

/// Output format of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// A table for terminals
    Table,
    /// A header line, then one line per row
    Csv,
    /// One object per line, the last one with the cost
    Ndjson,
    /// The response of the server
    Json,
    /// An Arrow stream with typed columns, times in nanoseconds
    Arrow,
    /// A Parquet file with the same columns
    Parquet,
}

/// File endings and their formats.
const ENDINGS: &[(&str, Output)] = &[
    ("csv", Output::Csv),
    ("ndjson", Output::Ndjson),
    ("jsonl", Output::Ndjson),
    ("json", Output::Json),
    ("arrow", Output::Arrow),
    ("parquet", Output::Parquet),
    ("txt", Output::Table),
];

impl Output {
    /// Returns the first that applies: the requested format, the format of `file`'s ending, JSON if `json` is
    /// true, a table.
    ///
    /// # Errors
    ///
    /// Returns a usage error if no format is requested and the ending of `file` is unknown.
    pub(crate) fn chosen(requested: Option<Self>, json: bool, file: Option<&Path>) -> Result<Self> {
        let by_ending = || file.map_or(Ok(None), |path| by_ending(path, ENDINGS, "--output"));
        let default = if json { Self::Json } else { Self::Table };
        match requested {
            Some(output) => Ok(output),
            None => Ok(by_ending()?.unwrap_or(default)),
        }
    }
}

/// Runs the query and shows the result.
pub(crate) fn run(arguments: &QueryArguments) -> Result<()> {
    let client = arguments.connection.client()?;
    let output = Output::chosen(
        arguments.output,
        arguments.connection.server.json,
        arguments.out.as_deref().filter(|_| !arguments.chart),
    )?;
    let limit = match output {
        Output::Table if arguments.chart => Some(CHART_ROWS),
        Output::Table => Some(TABLE_ROWS),
        _ => None,
    };
    let query = arguments.query.json(limit)?;
    known::check(&client, &client.parse(&query)?)?;
    let path = client.of_table("/query");
    if output == Output::Table {
        let response = read(&client, &path, &query)?;
        let width = output::columns().filter(|_| arguments.out.is_none());
        let text = match arguments.chart {
            true => show::charts(&response, width),
            false => show::table(&response, width),
        };
        let mut out = selection::output_to(arguments.out.as_ref())?;
        return Ok(out.write_all(text.as_bytes()).and_then(|()| out.flush())?);
    }
    stream(&client, &path, output, &query, arguments.out.as_ref())
}

/// Reads a whole result.
pub(crate) fn read(client: &Client, path: &str, query: &str) -> Result<Value> {
    let response = client.stream(path, "application/json", query)?;
    serde_json::from_reader(std::io::BufReader::new(response))
        .map_err(|error| client.strange(&error.to_string()))
}

/// Streams a result to a file or to standard output. Fails with a usage error if a binary result would be written to a
/// terminal.
pub(crate) fn stream(
    client: &Client,
    path: &str,
    output: Output,
    query: &str,
    file: Option<&PathBuf>,
) -> Result<()> {
    let (accept, is_binary) = match output {
        Output::Csv => ("text/csv", false),
        Output::Ndjson => ("application/x-ndjson", false),
        Output::Json | Output::Table => ("application/json", false),
        Output::Arrow => ("application/vnd.apache.arrow.stream", true),
        Output::Parquet => ("application/vnd.apache.parquet", true),
    };
    if is_binary && file.is_none() && std::io::stdout().is_terminal() {
        return Err(CliError::usage(
            "refusing to write binary data to a terminal; use --out FILE or a pipe",
        ));
    }
    // The request is sent before the file is created, so that a refused request leaves no empty file.
    let mut response = client.stream(path, accept, query)?;
    let mut out = selection::output_to(file)?;
    match output::copy(&mut response, &mut out) {
        Ok(()) if output == Output::Json => Ok(out.write_all(b"\n").and_then(|()| out.flush())?),
        Ok(()) => Ok(()),
        Err(CopyError::Write(error)) => Err(match file {
            Some(path) => CliError::file(path, error),
            None => CliError::Output(error),
        }),
        Err(CopyError::Read(error)) => Err(client.strange(&format!("the response was cut off: {error}"))),
    }
}

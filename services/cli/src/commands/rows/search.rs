//! `tideline rows search`: finds rows through a search index.
//!
//! A table or JSON shows one page. For lines of JSON, all pages are requested one after another, because the server
//! returns at most [`PAGE_MAX`] rows per request.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tideline_openapi::row_search::ShardsRead;

use super::body::Body;
use super::index::ordered;
use super::read::{ShownRow, show_explained, show_table};
use super::{RowsTable, TierArgument, columns, tree};
use crate::client::Client;
use crate::commands::query::{Output, stream};
use crate::commands::selection::{PageOutput, output_to};
use crate::error::{CliError, Result};
use crate::output;

/// Maximum number of rows that the server returns per request.
const PAGE_MAX: u64 = 1_000;

pub(super) const EXAMPLES: &str = "\
Examples:
  tideline rows search orders 'total>5' state=paid --sort placed:desc --limit 10
  tideline rows search orders '{\"column\": \"title\", \"text\": \"red wine\"}' --highlight
  tideline rows search tracks car=car-7 --near place,52.52,13.40 --columns place
  tideline rows search orders state=open --output ndjson > open.ndjson   # all rows
  tideline rows search orders state=open --sort placed:desc --explain

All tested columns must be in the search index. Create one by `tideline rows search-index create`.";

/// Arguments of `rows search`.
#[derive(Debug, Args)]
pub(crate) struct SearchArguments {
    #[command(flatten)]
    table: RowsTable,
    /// Condition on an indexed column, such as total>5, state!=open, note^=re or note=~r.*, or a JSON tree; rows must
    /// match all
    #[arg(value_name = "CONDITION")]
    conditions: Vec<String>,
    /// Search index [default: the only one of the table]
    #[arg(long, value_name = "NAME")]
    index: Option<String>,
    #[command(flatten)]
    tier: TierArgument,
    /// Sort by a column, lowest first, or highest first with NAME:desc; may be repeated [default: by key]
    #[arg(long, value_name = "NAME")]
    sort: Vec<String>,
    /// Sort by the distance from a geo point, nearest first, before the columns of --sort; may be repeated
    #[arg(long, value_name = "NAME,LAT,LON")]
    near: Vec<String>,
    /// Maximum number of rows; in tables and JSON at most 1,000 [default: 20 in tables and JSON, else all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// Columns to return: names, or prefixes that end with `*`, separated by commas [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    columns: Vec<String>,
    /// Return the texts that matched, with the positions of the matches
    #[arg(long)]
    highlight: bool,
    /// Wait until the search finds the write with this `position`, at most 10 seconds
    #[arg(long, value_name = "POSITION")]
    at_least: Option<String>,
    /// Continue after the page that printed this token; the conditions, the order and the columns must be the same
    #[arg(long, value_name = "TOKEN")]
    page_token: Option<String>,
    /// Output format [default: by the ending of --out (.ndjson, .json, .txt), else table on a terminal, ndjson in a
    /// pipe, or json with --json]
    #[arg(long, short, value_enum)]
    output: Option<PageOutput>,
    /// Output file [default: standard output]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Show how the search finds its rows, without running it
    #[arg(long, conflicts_with_all = ["output", "out"])]
    explain: bool,
}

impl SearchArguments {
    fn chosen(&self) -> Result<PageOutput> {
        PageOutput::chosen(self.output, self.out.as_deref(), self.table.connection.json)
    }

    /// Returns the body of a request, without its limit.
    fn body(&self) -> Result<Body> {
        let mut body = Body::default();
        if let Some(tree) = tree(&self.conditions)? {
            body.insert_text("where", tree);
        }
        let mut sort = Vec::with_capacity(self.near.len() + self.sort.len());
        for text in &self.near {
            sort.push(distance(text)?);
        }
        for text in &self.sort {
            sort.push(match ordered(text)? {
                (name, true) => json!({"column": name, "order": "descending"}),
                (name, false) => json!({"column": name}),
            });
        }
        if !sort.is_empty() {
            body.insert("sort".into(), sort.into());
        }
        if let Some(columns) = columns(&self.columns) {
            body.insert("columns".into(), columns);
        }
        if self.highlight {
            body.insert("highlight".into(), true.into());
        }
        self.tier.add_to(&mut body.members);
        for (name, text) in [
            ("index", &self.index),
            ("at_least", &self.at_least),
            ("page_token", &self.page_token),
        ] {
            if let Some(text) = text {
                body.insert(name.into(), text.as_str().into());
            }
        }
        Ok(body)
    }
}

/// Parses a sort key by distance: `NAME,LAT,LON`.
fn distance(text: &str) -> Result<Value> {
    let mut parts = text.rsplitn(3, ',');
    let mut degrees = || {
        parts
            .next()?
            .trim()
            .parse::<f64>()
            .ok()
            .filter(|degrees| degrees.is_finite())
    };
    let (lon, lat) = (degrees(), degrees());
    match (parts.next(), lat, lon) {
        (Some(name), Some(lat), Some(lon)) if !name.is_empty() => {
            Ok(json!({"column": name, "near": {"lat": lat, "lon": lon}}))
        }
        _ => Err(CliError::usage(format!(
            "--near {text}: expected NAME,LAT,LON, such as place,52.52,13.40"
        ))),
    }
}

/// Page of a search.
#[derive(Deserialize)]
struct Page<R> {
    rows: Vec<R>,
    total: u64,
    waiting: u64,
    lag_ms: u64,
    /// Tiers that the search covered; `None` = all tiers.
    tier: Option<String>,
    /// Shards of the index that the search read; `None` if the index has one shard.
    shards: Option<ShardsRead>,
    next: Option<String>,
}

/// Searches and shows the rows.
pub(super) fn run(arguments: &SearchArguments) -> Result<()> {
    let mut body = arguments.body()?;
    let output = arguments.chosen()?;
    let client = arguments.table.client()?;
    if arguments.explain {
        if let Some(limit) = arguments.limit {
            body.insert("limit".into(), limit.into());
        }
        return show_explained(&client, "search", &body, arguments.table.connection.json);
    }
    if output == PageOutput::Ndjson {
        return lines(&client, body, arguments.limit, arguments.out.as_ref());
    }
    if let Some(limit) = arguments.limit {
        body.insert("limit".into(), limit.into());
    }
    if output == PageOutput::Json {
        let path = client.of_table("/rows/search");
        return stream(
            &client,
            &path,
            Output::Json,
            &body.to_string(),
            arguments.out.as_ref(),
        );
    }
    let page: Page<Option<ShownRow>> = page(&client, &body)?;
    show_table(&page.rows, arguments.out.as_ref())?;
    let mut end = format!(
        "{} of {}",
        output::count(page.rows.len() as u64),
        output::count(page.total)
    );
    if let Some(tier) = page.tier {
        end.push_str(&format!("; only rows of the tier {tier}"));
    }
    if let Some(ShardsRead { read, total }) = page.shards {
        end.push_str(&format!("; {read} of {total} shards were read"));
    }
    if let Some(next) = page.next {
        end.push_str(&format!(
            "; more rows follow; use --limit, or --page-token {next}"
        ));
    }
    if page.waiting > 0 {
        end.push_str(&format!(
            "; {} changes of the last {} ms are not included yet",
            output::count(page.waiting),
            output::count(page.lag_ms)
        ));
    }
    eprintln!("{end}");
    Ok(())
}

fn page<R: DeserializeOwned>(client: &Client, body: &Body) -> Result<Page<R>> {
    let text = client.post_text(&client.of_table("/rows/search"), &body.to_string())?;
    serde_json::from_str(&text).map_err(|error| client.strange(&error.to_string()))
}

/// Writes up to `limit` rows as lines of JSON, then a line with the summary of the last page.
fn lines(client: &Client, mut body: Body, limit: Option<u64>, file: Option<&PathBuf>) -> Result<()> {
    let mut rest = limit.unwrap_or(u64::MAX);
    // The first request is sent before the file is created, so that a refused request leaves no empty file.
    let mut opened = None;
    loop {
        body.insert("limit".into(), rest.min(PAGE_MAX).into());
        let page: Page<Box<RawValue>> = page(client, &body)?;
        let out = match &mut opened {
            Some(out) => out,
            None => opened.insert(output_to(file)?),
        };
        for row in &page.rows {
            writeln!(out, "{}", row.get())?;
        }
        rest = rest.saturating_sub(page.rows.len() as u64);
        match &page.next {
            Some(next) if rest > 0 => {
                body.insert("page_token".into(), next.as_str().into());
                body.remove("at_least");
            }
            next => {
                let next = json!(next);
                let (total, waiting, lag) = (page.total, page.waiting, page.lag_ms);
                let tier = page.tier.map(|tier| format!("\"tier\":{},", json!(tier)));
                let tier = tier.unwrap_or_default();
                let shards = page.shards.map(|shards| format!("\"shards\":{},", json!(shards)));
                let shards = shards.unwrap_or_default();
                let end = format!(
                    "\"total\":{total},\"waiting\":{waiting},\"lag_ms\":{lag},{tier}{shards}\"next\":{next}"
                );
                writeln!(out, "{{{end}}}")?;
                return Ok(out.flush()?);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_sort_keys() {
        assert_eq!(
            distance("last,place,-52.5, 13").expect("valid"),
            json!({"column": "last,place", "near": {"lat": -52.5, "lon": 13.0}})
        );
        for wrong in ["place", "place,52", ",52,13", "place,north,13", "place,52,13,"] {
            assert_eq!(distance(wrong).expect_err(wrong).exit_status(), 2, "{wrong}");
        }
    }
}

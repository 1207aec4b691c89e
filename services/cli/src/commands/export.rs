//! `tideline export`: writes the points of a selection and range to a file that `tideline write` can read.
//!
//! Line protocol and ndjson are exported page by page, so that an export of any size needs constant memory and
//! stays within the server's budgets. Numbers are parsed from the JSON text, so that 64-bit integers stay
//! exact. The list of fields determines which integers are unsigned.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, json};
use tideline_ingest_protocols::line_protocol;
use tideline_openapi::model::{Timestamp, Value};

use super::known;
use super::query::{self, Output, stream};
use super::selection::{self, RangeArguments, by_ending, output_to};
use crate::client::{Client, RESPONSE_BYTES_MAX, TableArguments};
use crate::condition::WhereArguments;
use crate::error::{CliError, Result};
use crate::output;

/// Number of points of the first page. Later pages are sized to [`PAGE_BYTES`] by the average size of a point
/// in the page before.
const FIRST_POINTS: u64 = 1_000;
/// Maximum number of points per page. Larger pages are not faster.
const POINTS_MAX: u64 = 50_000;
/// Target size of a page, in bytes.
const PAGE_BYTES: u64 = 4 << 20;
/// Largest accepted page, in bytes. A larger page is requested again with fewer points; only a page of one point may be
/// larger.
const PAGE_BYTES_MAX: u64 = 32 << 20;

/// Name of the type of native histograms.
const HISTOGRAM: &str = "histogram";

/// Arguments of `export`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tideline export > all.lp
  tideline export -m cpu --from 2026-11-01T00:00:00Z --to 2026-12-01T00:00:00Z --out november.lp
  tideline export -m cpu --last 30d --out cpu.parquet
  tideline export -m room --format ndjson | tideline write - --format ndjson --server http://other:8490

Line protocol cannot represent NaN, infinities and some unusual names; ndjson can. Neither supports
native histograms. Omitted values are counted, and the exit status is then 1. Parquet marks its tag
columns, so `write` reads it without options. Native histograms are stored in Parquet as text, which
`write` skips; they count as omitted. CSV does not distinguish tags from fields, or integers from
unsigned integers; `write` needs the names of the tag columns.")]
pub(crate) struct ExportArguments {
    #[command(flatten)]
    connection: TableArguments,
    #[command(flatten)]
    timelines: WhereArguments,
    #[command(flatten)]
    range: RangeArguments,
    /// Field to export; may be repeated [default: all]
    #[arg(long = "field", short = 'f', value_name = "NAME")]
    fields: Vec<String>,
    /// Format [default: by the ending of --out (.lp, .ndjson, .csv, .parquet), else lp]
    #[arg(long, value_enum)]
    format: Option<ExportFormat>,
    /// Output file [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Export format of points.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ExportFormat {
    /// InfluxDB line protocol
    Lp,
    /// One JSON object per line
    Ndjson,
    /// A header line, then one line per row
    Csv,
    /// A Parquet file with tags and fields as typed columns
    Parquet,
}

/// File endings and their formats.
const ENDINGS: &[(&str, ExportFormat)] = &[
    ("lp", ExportFormat::Lp),
    ("ndjson", ExportFormat::Ndjson),
    ("jsonl", ExportFormat::Ndjson),
    ("csv", ExportFormat::Csv),
    ("parquet", ExportFormat::Parquet),
];

/// Page of points. Values borrow from the response text.
#[derive(Deserialize)]
struct Page<'a> {
    #[serde(borrow)]
    series: Vec<Series<'a>>,
    next: Option<String>,
}

#[derive(Deserialize)]
struct Series<'a> {
    measurement: String,
    tags: BTreeMap<String, String>,
    columns: Vec<String>,
    #[serde(borrow)]
    points: Vec<Vec<&'a RawValue>>,
}

/// All types that a field was written with, by measurement and field name.
type Types = HashMap<(String, String), Vec<String>>;

/// Number of exported points and omitted values.
#[derive(Default)]
struct Written {
    points: u64,
    left_out: u64,
}

/// Exports the points. Fails at the end if a value was omitted, or if a Parquet file contains native histograms.
pub(crate) fn run(arguments: &ExportArguments) -> Result<()> {
    let format = match (arguments.format, &arguments.out) {
        (Some(format), _) => format,
        (None, Some(path)) => by_ending(path, ENDINGS, "--format")?.unwrap_or(ExportFormat::Lp),
        (None, None) => ExportFormat::Lp,
    };
    let client = arguments.connection.client()?;
    let mut query = selection::query(&arguments.timelines, &arguments.fields)?;
    query.insert("range".into(), arguments.range.range().into());
    // Includes start timestamps and exemplars of Prometheus samples, because an export must be complete.
    query.insert("sample_details".into(), true.into());
    known::check(&client, &query.clone().into())?;
    let failed = |error: std::io::Error| match &arguments.out {
        Some(path) => CliError::file(path, error),
        None => CliError::Output(error),
    };
    let whole = match format {
        ExportFormat::Csv => Some(Output::Csv),
        ExportFormat::Parquet => Some(Output::Parquet),
        ExportFormat::Lp | ExportFormat::Ndjson => None,
    };
    if let Some(output) = whole {
        return in_one(&client, query, output, arguments);
    }
    let types = types(&client)?;
    let mut out = output_to(arguments.out.as_ref())?;
    query.insert("times".into(), "nanos".into());
    let written = pages(&client, query, &types, format, &mut *out, &failed)?;
    out.flush().map_err(&failed)?;
    report(arguments, format, &written)
}

/// Streams a single response to the output. For Parquet, first counts the native histograms, and fails at the end if
/// there are any: the file contains them as text, which `write` skips.
fn in_one(
    client: &Client,
    query: Map<String, serde_json::Value>,
    output: Output,
    arguments: &ExportArguments,
) -> Result<()> {
    let histograms = match output {
        Output::Parquet => histograms(client, &query, &arguments.fields)?,
        _ => 0,
    };
    let query = serde_json::Value::from(query).to_string();
    let path = client.of_table("/query");
    stream(client, &path, output, &query, arguments.out.as_ref())?;
    match histograms {
        0 => Ok(()),
        count => Err(CliError::Incomplete(format!(
            "{} values are histograms; the file contains them as text, which `tideline write` skips",
            output::count(count)
        ))),
    }
}

/// Counts the values of all selected fields to which a native histogram was ever written. Values of other types in
/// these fields are counted as well.
fn histograms(client: &Client, query: &Map<String, serde_json::Value>, wanted: &[String]) -> Result<u64> {
    #[derive(Deserialize)]
    struct Counts {
        series: Vec<Counted>,
    }
    #[derive(Deserialize)]
    struct Counted {
        points: Vec<Vec<serde_json::Value>>,
    }
    let is_wanted = |field: &str| wanted.is_empty() || wanted.iter().any(|one| one == field);
    let types = types(client)?.into_iter();
    let with_some = types.filter(|(_, types)| types.iter().any(|one| one == HISTOGRAM));
    let fields: BTreeSet<String> = with_some
        .map(|((_, field), _)| field)
        .filter(|field| is_wanted(field))
        .collect();
    if fields.is_empty() {
        return Ok(0);
    }
    let mut query = query.clone();
    query.insert("fields".into(), json!(fields));
    query.insert("aggregate".into(), json!({"functions": ["count"]}));
    let response = query::read(client, &client.of_table("/query"), &json!(query).to_string())?;
    let counts = Counts::deserialize(response).map_err(|error| client.strange(&error.to_string()))?;
    let rows = counts.series.iter().flat_map(|series| &series.points);
    let cells = rows.flat_map(|row| row.iter().skip(1));
    Ok(cells.filter_map(serde_json::Value::as_u64).sum())
}

/// Exports all pages. A page that is too large is requested again with fewer points.
fn pages(
    client: &Client,
    mut query: Map<String, serde_json::Value>,
    types: &Types,
    format: ExportFormat,
    out: &mut dyn Write,
    failed: &dyn Fn(std::io::Error) -> CliError,
) -> Result<Written> {
    let mut written = Written::default();
    let mut text = Vec::new();
    let mut points = FIRST_POINTS;
    loop {
        query.insert("limit".into(), points.into());
        let bytes_max = if points == 1 {
            RESPONSE_BYTES_MAX
        } else {
            PAGE_BYTES_MAX
        };
        let path = client.of_table("/query");
        let Some(response) = client.post_within(&path, &query.clone().into(), bytes_max)? else {
            if points == 1 {
                return Err(client.strange("one point is larger than 1 GiB"));
            }
            points = (points / 8).max(1);
            continue;
        };
        let page: Page<'_> =
            serde_json::from_str(&response).map_err(|error| client.strange(&error.to_string()))?;
        for series in &page.series {
            for row in &series.points {
                point(series, row, types, format, &mut text, &mut written)
                    .ok_or_else(|| client.strange("a point cannot be parsed"))?;
            }
            out.write_all(&text).map_err(failed)?;
            text.clear();
        }
        let met: u64 = page.series.iter().map(|series| series.points.len() as u64).sum();
        if met > 0 {
            let fitting = PAGE_BYTES.saturating_mul(met) / (response.len() as u64).max(1);
            points = fitting.clamp(1, POINTS_MAX.min(points * 4));
        }
        match page.next {
            Some(next) => query.insert("page".into(), next.into()),
            None => return Ok(written),
        };
    }
}

fn report(arguments: &ExportArguments, format: ExportFormat, written: &Written) -> Result<()> {
    if arguments.connection.server.json {
        eprintln!(
            "{}",
            json!({"points": written.points, "left_out": written.left_out})
        );
    } else if let Some(path) = &arguments.out {
        eprintln!(
            "{} points in {}",
            output::count(written.points),
            Path::display(path)
        );
    }
    match written.left_out {
        0 => Ok(()),
        left_out => Err(CliError::Incomplete(format!(
            "{} values were omitted, {}",
            output::count(left_out),
            match format {
                ExportFormat::Ndjson => "because they are histograms",
                _ => {
                    "because line protocol cannot represent them; use --format ndjson for all but histograms"
                }
            }
        ))),
    }
}

fn types(client: &Client) -> Result<Types> {
    #[derive(Deserialize)]
    struct List {
        fields: Vec<Field>,
    }
    #[derive(Deserialize)]
    struct Field {
        measurement: String,
        field: String,
        types: Vec<String>,
    }
    let text = client.get(&client.of_table("/fields?sample_details=true"))?;
    let list: List = serde_json::from_str(&text).map_err(|error| client.strange(&error.to_string()))?;
    let typed = |field: Field| ((field.measurement, field.field), field.types);
    Ok(list.fields.into_iter().map(typed).collect())
}

/// Appends one point. Returns `None` if the point cannot be parsed.
fn point(
    series: &Series<'_>,
    row: &[&RawValue],
    types: &Types,
    format: ExportFormat,
    out: &mut Vec<u8>,
    written: &mut Written,
) -> Option<()> {
    let (time, cells) = row.split_first()?;
    let time = Timestamp::from_nanos(time.get().parse().ok()?).ok()?;
    let mut fields: Vec<(&str, Value)> = Vec::with_capacity(cells.len());
    for (name, cell) in series.columns.iter().skip(1).zip(cells) {
        if cell.get() != "null" {
            let types = types.get(&(series.measurement.clone(), name.clone()));
            match value(cell.get(), types.map_or(&[], Vec::as_slice))? {
                Spelled::Value(value) => fields.push((name, value)),
                Spelled::Histogram => written.left_out += 1,
            }
        }
    }
    if fields.is_empty() {
        return Some(());
    }
    let all = fields.len() as u64;
    if format == ExportFormat::Ndjson {
        out.extend_from_slice(line_of_json(series, &fields, time).as_bytes());
        out.push(b'\n');
        written.points += 1;
        return Some(());
    }
    if line_of_protocol(series, &fields, time, out) {
        written.points += 1;
        return Some(());
    }
    let mut scratch = Vec::new();
    fields.retain(|field| line_of_protocol(series, std::slice::from_ref(field), time, &mut scratch));
    written.left_out += all - fields.len() as u64;
    written.points += u64::from(line_of_protocol(series, &fields, time, out));
    Some(())
}

/// Appends a point in line protocol. Returns false and appends nothing if line protocol cannot represent the point.
fn line_of_protocol(
    series: &Series<'_>,
    fields: &[(&str, Value)],
    time: Timestamp,
    out: &mut Vec<u8>,
) -> bool {
    let tags = series.tags.iter().map(|(key, value)| (&**key, &**value));
    let fields = fields.iter().map(|(name, value)| (*name, value));
    line_protocol::write(out, &series.measurement, tags, fields, time).is_ok()
}

/// Parsed value of a result.
enum Spelled {
    Value(Value),
    /// Native histogram, whose text is not parsed, because neither line protocol nor ndjson supports native histograms.
    Histogram,
}

/// Parses a value from its JSON text, using the types that its field was written with. Returns `None` for invalid text.
fn value(text: &str, types: &[String]) -> Option<Spelled> {
    let has = |name: &str| types.iter().any(|one| one == name);
    if text.starts_with('"') {
        let text: String = serde_json::from_str(text).ok()?;
        return Some(Spelled::Value(match text.as_str() {
            "NaN" if !has("string") => Value::Float(f64::NAN),
            "Inf" if !has("string") => Value::Float(f64::INFINITY),
            "-Inf" if !has("string") => Value::Float(f64::NEG_INFINITY),
            _ if has(HISTOGRAM) => return Some(Spelled::Histogram),
            _ => Value::String(text.into()),
        }));
    }
    Some(Spelled::Value(match text {
        "true" => Value::Boolean(true),
        "false" => Value::Boolean(false),
        _ if text.contains(['.', 'e', 'E']) => Value::Float(text.parse().ok()?),
        _ => match text.parse::<i64>() {
            Ok(number) if has("integer") || !has("unsigned") => Value::Signed(number),
            _ => Value::Unsigned(text.parse().ok()?),
        },
    }))
}

/// Formats a point as JSON for `write` and the API, with explicit types.
fn line_of_json(series: &Series<'_>, fields: &[(&str, Value)], time: Timestamp) -> String {
    let spelled = |value: &Value| {
        Some(match value {
            Value::Float(value) if value.is_nan() => json!({"float": "NaN"}),
            Value::Float(f64::INFINITY) => json!({"float": "Inf"}),
            Value::Float(f64::NEG_INFINITY) => json!({"float": "-Inf"}),
            Value::Float(value) => json!({"float": value}),
            Value::Signed(value) => json!(value),
            Value::Unsigned(value) => json!({"unsigned": value}),
            Value::Boolean(value) => json!(value),
            Value::String(text) => json!(&**text),
            Value::Histogram(_) => return None,
        })
    };
    let fields: Map<String, serde_json::Value> = fields
        .iter()
        .filter_map(|(name, value)| Some(((*name).to_owned(), spelled(value)?)))
        .collect();
    json!({
        "measurement": series.measurement,
        "tags": series.tags,
        "time": time.nanos(),
        "fields": fields,
    })
    .to_string()
}

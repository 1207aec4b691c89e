//! `tideline rows export`: writes all rows of a selection to a file that `rows import` can read.
//!
//! A file is exported page by page into `FILE.partial`. After each page, `FILE.export` records the request, the token
//! of the next page and the length of the partial file, so that a run with the same arguments continues where an
//! interrupted run ended. At the end, the partial file is renamed to `FILE`. The metadata of a Parquet file is at its
//! end; therefore the pages are collected as an Arrow stream, which is converted after the last page. Without a file,
//! one response is streamed to standard output.

use std::fs::{File, OpenOptions};
use std::io::{BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use arrow_ipc::reader::StreamReader;
use clap::{Args, ValueEnum};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::body::Body;
use super::{RowSelection, columns};
use crate::client::Client;
use crate::commands::query::{Output, stream};
use crate::commands::selection::by_ending;
use crate::error::{CliError, Result};
use crate::output;

pub(super) const EXAMPLES: &str = "\
Examples:
  tideline rows export orders --out orders.parquet
  tideline rows export orders customer=acme --format csv > acme.csv
  tideline rows export orders --where 'total>5' --columns total,note --out large.csv

Columns that are not declared are exported in the column `*` as JSON, or in the lines of ndjson with their
types. An interrupted run is continued by a run with the same arguments; its state is in FILE.export and
FILE.partial, which are deleted at the end. Only the newest value of each column is exported. Rows that are
written during the export may be in the file or not.";

/// Maximum number of rows of a page.
const PAGE_ROWS: u64 = 10_000;
/// Maximum number of rows of a Parquet row group.
const GROUP_ROWS: usize = 65_536;
/// Encoded bytes after which a Parquet row group ends early.
const GROUP_BYTES: usize = 32 << 20;
/// End of an Arrow stream.
const ARROW_END: [u8; 8] = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];

#[derive(Debug, Args)]
pub(crate) struct ExportArguments {
    #[command(flatten)]
    rows: RowSelection,
    /// Columns to export: names, or prefixes that end with `*`, separated by commas [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    columns: Vec<String>,
    /// Format [default: by the ending of --out (.csv, .ndjson, .arrow, .parquet), else ndjson]
    #[arg(long, value_enum)]
    format: Option<ExportFormat>,
    /// Output file [default: standard output]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Show no progress
    #[arg(long, short)]
    quiet: bool,
}

/// Format of exported rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ExportFormat {
    /// A header line, then one line per row
    Csv,
    /// One JSON object per line
    Ndjson,
    /// An Arrow stream
    Arrow,
    /// A Parquet file
    Parquet,
}

/// File endings and their formats.
const ENDINGS: &[(&str, ExportFormat)] = &[
    ("csv", ExportFormat::Csv),
    ("ndjson", ExportFormat::Ndjson),
    ("jsonl", ExportFormat::Ndjson),
    ("arrow", ExportFormat::Arrow),
    ("parquet", ExportFormat::Parquet),
];

/// State of an export, as stored in `FILE.export`.
#[derive(Debug, Serialize, Deserialize)]
struct State {
    tideline_rows_export: u32,
    server: String,
    table: String,
    format: String,
    /// The request, with its condition as text.
    request: Value,
    /// Token of the next page; `None` after the last one.
    next: Option<String>,
    /// Length of the partial file, in bytes.
    bytes: u64,
    rows: u64,
}

/// Version of the state file.
const VERSION: u32 = 1;

impl ExportFormat {
    const fn name(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::Ndjson => "ndjson",
            Self::Arrow => "arrow",
            Self::Parquet => "parquet",
        }
    }

    /// Returns the media type of pages.
    const fn accept(self) -> &'static str {
        match self {
            Self::Csv => "text/csv",
            Self::Ndjson => "application/x-ndjson",
            Self::Arrow | Self::Parquet => "application/vnd.apache.arrow.stream",
        }
    }
}

/// Exports the rows.
pub(super) fn run(arguments: &ExportArguments) -> Result<()> {
    let by_name = || {
        let path = arguments.out.as_deref();
        path.map_or(Ok(None), |path| by_ending(path, ENDINGS, "--format"))
    };
    let format = match arguments.format {
        Some(format) => format,
        None => by_name()?.unwrap_or(ExportFormat::Ndjson),
    };
    let client = arguments.rows.table.client()?;
    let mut request = arguments.rows.body(&client)?;
    // An export may scan the whole table.
    request.insert("allow_scan".into(), true.into());
    if let Some(columns) = columns(&arguments.columns) {
        request.insert("columns".into(), columns);
    }
    let Some(out) = &arguments.out else {
        let output = match format {
            ExportFormat::Csv => Output::Csv,
            ExportFormat::Ndjson => return lines_to_stdout(&client, &request),
            ExportFormat::Arrow => Output::Arrow,
            ExportFormat::Parquet => Output::Parquet,
        };
        let path = client.of_table("/rows/scan");
        return stream(&client, &path, output, &request.to_string(), None);
    };
    let export = Export {
        client: &client,
        format,
        out,
        partial: with_ending(out, "partial"),
        state: with_ending(out, "export"),
        is_quiet: arguments.quiet || arguments.rows.table.connection.json,
    };
    let rows = export.run(&request)?;
    match arguments.rows.table.connection.json {
        true => output::print(&json!({"rows": rows, "file": out}).to_string()),
        false if arguments.quiet => Ok(()),
        false => output::print(&format!("{} rows in {}", output::count(rows), out.display())),
    }
}

/// Streams lines without the last one, which describes the end of the scan.
fn lines_to_stdout(client: &Client, request: &Body) -> Result<()> {
    use std::io::BufRead;
    let response = client.stream(
        &client.of_table("/rows/scan"),
        "application/x-ndjson",
        &request.to_string(),
    )?;
    let mut lines = BufReader::new(response);
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let (mut line, mut is_ended) = (Vec::new(), false);
    loop {
        line.clear();
        let read = lines.read_until(b'\n', &mut line);
        if read.map_err(|error| client.strange(&format!("the response was cut off: {error}")))? == 0 {
            break;
        }
        is_ended = !line.starts_with(b"{\"key\"");
        if !is_ended {
            out.write_all(&line)?;
        }
    }
    out.flush()?;
    match is_ended {
        true => Ok(()),
        false => Err(client.strange("the response was cut off")),
    }
}

fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(ending);
    name.into()
}

/// Export to a file.
struct Export<'e> {
    client: &'e Client,
    format: ExportFormat,
    out: &'e Path,
    partial: PathBuf,
    state: PathBuf,
    is_quiet: bool,
}

impl Export<'_> {
    /// Exports all pages and returns the number of rows.
    fn run(&self, request: &Body) -> Result<u64> {
        let mut state = self.open(&request.to_comparable())?;
        let failed = |error| CliError::file(&self.partial, error);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&self.partial)
            .map_err(failed)?;
        if file.try_lock().is_err() {
            return Err(CliError::usage(format!(
                "{} is in use by another export; wait for its end",
                self.partial.display()
            )));
        }
        // A page whose state was not recorded is exported again.
        file.set_len(state.bytes).map_err(failed)?;
        let mut is_complete = state.next.is_none() && state.bytes > 0;
        while !is_complete {
            let mut body = request.clone();
            body.insert("limit".into(), PAGE_ROWS.into());
            if let Some(next) = &state.next {
                body.insert("page_token".into(), next.as_str().into());
            }
            let (bytes, rows, next) = self.page(&body.to_string(), &mut file, state.bytes)?;
            file.seek(SeekFrom::Start(state.bytes)).map_err(failed)?;
            file.write_all(&bytes)
                .and_then(|()| file.sync_data())
                .map_err(failed)?;
            state.bytes += bytes.len() as u64;
            state.rows += rows;
            is_complete = next.is_none();
            state.next = next;
            self.record(&state)?;
            if !self.is_quiet {
                eprint!(
                    "\r{} rows, {}",
                    output::count(state.rows),
                    output::bytes(state.bytes)
                );
            }
        }
        if !self.is_quiet {
            eprintln!();
        }
        self.finish(file)?;
        Ok(state.rows)
    }

    /// Reads the state of an interrupted run, or begins a new one.
    fn open(&self, request: &Value) -> Result<State> {
        let new = State {
            tideline_rows_export: VERSION,
            server: self.client.base().to_owned(),
            table: self.client.table().to_owned(),
            format: self.format.name().to_owned(),
            request: request.clone(),
            next: None,
            bytes: 0,
            rows: 0,
        };
        let text = match std::fs::read_to_string(&self.state) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(new),
            Err(error) => return Err(CliError::file(&self.state, error)),
        };
        let state: Option<State> = serde_json::from_str(&text).ok();
        let is_same = |state: &State| {
            state.tideline_rows_export == VERSION
                && (&state.server, &state.table, &state.format, &state.request)
                    == (&new.server, &new.table, &new.format, &new.request)
        };
        let length = std::fs::metadata(&self.partial).map_or(0, |file| file.len());
        match state {
            Some(state) if is_same(&state) && length >= state.bytes => Ok(state),
            Some(state) if is_same(&state) => Ok(new),
            _ => Err(CliError::usage(format!(
                "{} belongs to an export with other arguments; use the same ones, or delete it to start over",
                self.state.display()
            ))),
        }
    }

    fn record(&self, state: &State) -> Result<()> {
        let failed = |error| CliError::file(&self.state, error);
        let next = with_ending(&self.state, "new");
        let mut file = File::create(&next).map_err(failed)?;
        file.write_all(json!(state).to_string().as_bytes())
            .and_then(|()| file.sync_data())
            .map_err(failed)?;
        std::fs::rename(&next, &self.state).map_err(failed)
    }

    /// Requests a page. Returns the bytes to append to the previous pages, the number of rows, and the token of the
    /// next page.
    fn page(&self, body: &str, file: &mut File, written: u64) -> Result<(Vec<u8>, u64, Option<String>)> {
        let path = self.client.of_table("/rows/scan");
        let page = self.client.page(&path, self.format.accept(), body)?;
        let strange = |what: &str| self.client.strange(&format!("a page of rows {what}"));
        match self.format {
            ExportFormat::Ndjson => {
                let text = page.bytes.trim_ascii_end();
                let last = text
                    .iter()
                    .rposition(|byte| *byte == b'\n')
                    .map_or(0, |at| at + 1);
                let end: Value = serde_json::from_slice(&text[last..]).map_err(|_| strange("has no end"))?;
                let next = end["next"].as_str().map(str::to_owned);
                let rows = end["returned"].as_u64().ok_or_else(|| strange("has no end"))?;
                Ok((text[..last].to_vec(), rows, next))
            }
            ExportFormat::Csv => {
                let header = page
                    .bytes
                    .windows(2)
                    .position(|end| end == b"\r\n")
                    .map(|at| at + 2);
                let header = header.ok_or_else(|| strange("has no header line"))?;
                let skipped = if written > 0 { header } else { 0 };
                self.same_head(&page.bytes[..header], file, written)?;
                Ok((page.bytes[skipped..].to_vec(), page.rows, page.next))
            }
            ExportFormat::Arrow | ExportFormat::Parquet => {
                let body = page.bytes.strip_suffix(&ARROW_END);
                let body = body.ok_or_else(|| strange("has no end"))?;
                let length = body.get(4..8).and_then(|length| <[u8; 4]>::try_from(length).ok());
                let schema = length.map(|length| 8 + u32::from_le_bytes(length) as usize);
                let schema = schema.filter(|schema| *schema <= body.len());
                let schema = schema.ok_or_else(|| strange("has no schema"))?;
                let skipped = if written > 0 { schema } else { 0 };
                self.same_head(&body[..schema], file, written)?;
                Ok((body[skipped..].to_vec(), page.rows, page.next))
            }
        }
    }

    /// Checks that a page begins like the first one. The columns of a table can change during an export.
    fn same_head(&self, head: &[u8], file: &mut File, written: u64) -> Result<()> {
        if written == 0 {
            return Ok(());
        }
        let failed = |error| CliError::file(&self.partial, error);
        let mut first = vec![0; head.len()];
        file.seek(SeekFrom::Start(0)).map_err(failed)?;
        let is_same = file.read_exact(&mut first).is_ok() && first == head;
        match is_same {
            true => Ok(()),
            false => Err(CliError::Incomplete(format!(
                "the columns of the table changed during the export; delete {} to start over, or choose --columns",
                self.state.display()
            ))),
        }
    }

    /// Completes the file and renames it to its final name.
    fn finish(&self, mut file: File) -> Result<()> {
        let failed = |error| CliError::file(self.out, error);
        if matches!(self.format, ExportFormat::Arrow | ExportFormat::Parquet) {
            file.seek(SeekFrom::End(0)).map_err(failed)?;
            file.write_all(&ARROW_END)
                .and_then(|()| file.sync_all())
                .map_err(failed)?;
        }
        match self.format {
            ExportFormat::Parquet => {
                let unfinished = with_ending(self.out, "new");
                self.to_parquet(file, &unfinished)?;
                std::fs::rename(&unfinished, self.out).map_err(failed)?;
                std::fs::remove_file(&self.partial).map_err(failed)?;
            }
            _ => std::fs::rename(&self.partial, self.out).map_err(failed)?,
        }
        match std::fs::remove_file(&self.state) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(CliError::file(&self.state, error))
            }
            _ => Ok(()),
        }
    }

    /// Converts the collected Arrow stream to a Parquet file.
    fn to_parquet(&self, mut stream: File, out: &Path) -> Result<()> {
        let failed = |error| CliError::file(out, error);
        let other =
            |error: &dyn std::fmt::Display| CliError::file(out, std::io::Error::other(error.to_string()));
        stream.seek(SeekFrom::Start(0)).map_err(failed)?;
        let reader = StreamReader::try_new(BufReader::new(stream), None).map_err(|error| other(&error))?;
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_max_row_group_row_count(Some(GROUP_ROWS))
            .set_created_by("tideline".into())
            .build();
        let file = File::create(out).map_err(failed)?;
        let mut writer =
            ArrowWriter::try_new(file, reader.schema(), Some(properties)).map_err(|error| other(&error))?;
        for batch in reader {
            let batch = batch.map_err(|error| other(&error))?;
            writer.write(&batch).map_err(|error| other(&error))?;
            if writer.in_progress_size() >= GROUP_BYTES {
                writer.flush().map_err(|error| other(&error))?;
            }
        }
        let file = writer.into_inner().map_err(|error| other(&error))?;
        file.sync_all().map_err(failed)
    }
}

//! `tideline write`: sends files, folders and standard input to a running server.
//!
//! 1. `input` finds the inputs. `feed` reads several files alternately and cuts them into batches at record
//!    boundaries (`cutter`, `record`), so that memory is bounded whatever their size.
//! 2. `sender`, one thread per connection, sends batches and retries them if the server is busy or unreachable
//!    (`concurrency`).
//! 3. Acknowledged ranges are recorded in the resume file (`resume`), rejected lines in the rejects file
//!    (`rejects`).
//!
//! `rows` imports rows of wide tables with the same parts, but without converting records. `messages` sends lines of
//! messages to a feed.

use std::path::PathBuf;
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::thread;

use clap::{Args, ValueEnum};
use serde_json::{Map, Value, json};
use tideline_openapi::model::{Clock, SystemClock};

mod body;
mod concurrency;
mod csv;
mod cutter;
mod early;
mod feed;
mod input;
pub(crate) mod messages;
mod outcome;
mod parquet;
mod progress;
mod record;
mod rejects;
mod resume;
pub(crate) mod rows;
mod sender;

use crate::client::{Client, TableArguments, bytes, duration};
use crate::error::{CliError, Result};
use crate::output;
use concurrency::ConcurrencyLimit;
use csv::CsvArguments;
use feed::{Batch, Feed};
use input::FormatName;
use progress::Progress;
use rejects::Rejects;
use resume::ResumeLog;
use sender::Sender;

const EXAMPLES: &str = "\
Examples:
  tideline write metrics.lp.gz logs/                   # a file and a folder
  telegraf --test | tideline write -                   # standard input
  tideline write --resume night.resume --rejects bad.lp /backup/*.lp.zst
  tideline write rooms.csv --measurement room --tag host --field temperature:float --time ts
  tideline write logs/ --measurement cpu --tag-from-file 'host=metrics-*.csv' --tag dc=fra
  tideline write trips.parquet --measurement trip --tag city --time started

If the same point occurs twice with different values, either may be stored; --parallel 1 keeps the
order of files and lines. Lines without a time get the time at which they were read.

Each column of CSV has one type that fits all its cells: integers, else floats, booleans or texts.
A text among numbers is an error unless --field sets the type. Files are scanned first to determine
the types; for a stream the first batch is used. Native histograms in files of an archive or an
export are skipped and counted; use remote write or `tideline archive attach` to import them.

Exit status: 0 all stored, 1 something was rejected or not sent, 2 invalid usage.";

/// Arguments of `write`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct WriteArguments {
    #[command(flatten)]
    connection: TableArguments,
    /// Files, folders (their .lp, .txt, .csv, .ndjson, .jsonl files, also as .gz and .zst, and .parquet), or
    /// `-` for standard input
    #[arg(value_name = "PATH", default_value = "-")]
    paths: Vec<PathBuf>,
    /// Format of inputs whose file name does not determine it [default for standard input: lp]
    #[arg(long, value_enum)]
    format: Option<FormatName>,
    /// Unit of integer times [default: ns; for CSV the unit suggested by their magnitude]
    #[arg(long, value_name = "UNIT", value_enum)]
    precision: Option<Unit>,
    #[command(flatten)]
    csv: CsvArguments,
    /// Number of parallel connections
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
    parallel: u16,
    /// Maximum size of a batch, such as 512KiB; from 1KiB to 16MiB
    #[arg(long, value_name = "BYTES", default_value = "4MiB", value_parser = batch_bytes)]
    batch_bytes: usize,
    /// Maximum number of rows per batch
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    batch_rows: u32,
    /// Record acknowledged data in this file; a run with the same file continues where the last one ended
    #[arg(long, value_name = "FILE")]
    resume: Option<PathBuf>,
    /// Write rejected lines to this file, each after a comment with its position and the reason
    #[arg(long, value_name = "FILE")]
    rejects: Option<PathBuf>,
    /// Time for which a batch is retried while the server is busy or unreachable
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration)]
    patience: std::time::Duration,
    /// Show no progress
    #[arg(long, short)]
    quiet: bool,
}

/// Unit of integer times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Unit {
    Ns,
    Us,
    Ms,
    S,
    M,
    H,
}

impl Unit {
    /// Returns the name of the unit in the API.
    const fn name(self) -> &'static str {
        match self {
            Self::Ns => "ns",
            Self::Us => "us",
            Self::Ms => "ms",
            Self::S => "s",
            Self::M => "m",
            Self::H => "h",
        }
    }
}

impl WriteArguments {
    fn unit(&self) -> Unit {
        self.precision.unwrap_or(Unit::Ns)
    }

    /// Returns the unit of integer times: that of `--time-format`, else that of `--precision`, else
    /// nanoseconds.
    fn precision(&self) -> &'static str {
        self.csv.precision().unwrap_or(self.unit().name())
    }
}

/// Sends all inputs. Fails if not everything was stored.
pub(crate) fn run(arguments: &WriteArguments) -> Result<()> {
    let inputs = input::find(&arguments.paths, arguments.format, &arguments.csv)?;
    keep_inputs(&inputs, [&arguments.rejects, &arguments.resume])?;
    let client = arguments.connection.client_of(usize::from(arguments.parallel))?;
    let (resume, acknowledged) = match &arguments.resume {
        Some(path) => {
            let (log, acknowledged) = ResumeLog::open(path, &client, reading(arguments)?, new_run())?;
            (Some(log), acknowledged)
        }
        None => (None, resume::Acknowledged::default()),
    };
    let run = resume.as_ref().map_or_else(new_run, |log| log.run().to_owned());
    let rejects = Rejects::open(arguments.rejects.as_deref(), !acknowledged.is_empty())?;
    let progress = Progress::new(&inputs);
    let connections = usize::from(arguments.parallel);
    let (spares, spare_buffers) = mpsc::sync_channel(connections);
    let sender = Sender {
        client: &client,
        run: &run,
        patience: arguments.patience,
        concurrency: ConcurrencyLimit::new(connections),
        resume: resume.as_ref(),
        rejects: &rejects,
        progress: &progress,
        spares,
    };
    let stopped = sender.concurrency.stopped();
    let feed = Feed::new(inputs, acknowledged, arguments, &run, spare_buffers, stopped);
    let is_shown = !arguments.quiet && !arguments.connection.server.json;
    let outcome = transfer(feed, &sender, connections, is_shown);
    let shown = summary(arguments, &client, &progress, &rejects);
    outcome?;
    let figures = progress.figures();
    match (figures.rejected, figures.rejected_before) {
        (0, 0) if figures.histograms > 0 => Err(CliError::Incomplete(format!(
            "{} native histograms were not stored",
            output::count(figures.histograms)
        ))),
        (0, 0) => shown,
        (0, before) => Err(CliError::Incomplete(format!(
            "{} rows were not stored by earlier runs",
            output::count(before)
        ))),
        (rejected, _) => Err(CliError::Incomplete(format!(
            "{} of {} rows were not stored",
            output::count(rejected),
            output::count(rejected + figures.points)
        ))),
    }
}

/// Returns the options that determine how bytes become points, by option name.
fn reading(arguments: &WriteArguments) -> Result<Map<String, Value>> {
    let mapping = serde_json::to_value(&arguments.csv).map_err(|error| CliError::usage(error.to_string()))?;
    let mut reading = match mapping {
        Value::Object(reading) => reading,
        _ => Map::new(),
    };
    reading.insert("precision".into(), arguments.unit().name().into());
    reading.insert("format".into(), json!(arguments.format));
    // Options that are not given are omitted, so that options added by later versions do not invalidate a
    // resume file.
    reading.retain(|_, value| !value.is_null() && value != &json!([]));
    Ok(reading)
}

/// Refuses output files that are also inputs.
fn keep_inputs(inputs: &[input::Input], outputs: [&Option<PathBuf>; 2]) -> Result<()> {
    for output in outputs.into_iter().flatten() {
        let Ok(output_path) = output.canonicalize() else {
            continue;
        };
        let is_output =
            |input: &&input::Input| input.path.canonicalize().is_ok_and(|path| path == output_path);
        if inputs.iter().any(|input| is_output(&input)) {
            return Err(CliError::Usage(format!(
                "{} is one of the files to send; use another file for rejects or resume, or move it first",
                output.display()
            )));
        }
    }
    Ok(())
}

/// Reads inputs in this thread and sends batches in others, until all are sent or the run has failed.
fn transfer(mut feed: Feed<'_>, sender: &Sender<'_>, connections: usize, is_shown: bool) -> Result<()> {
    let (batches, receiver) = mpsc::sync_channel::<Batch>(connections);
    let receiver = Arc::new(Mutex::new(receiver));
    let (stop_showing, shown_until) = mpsc::channel::<()>();
    thread::scope(|scope| {
        if is_shown {
            scope.spawn(move || sender.progress.show(&shown_until));
        }
        let workers: Vec<_> = (0..connections)
            .map(|_| {
                let receiver = Arc::clone(&receiver);
                scope.spawn(move || sender.work(&receiver))
            })
            .collect();
        drop(receiver);
        let fed = feed.run(&batches, sender.progress);
        drop(batches);
        sender.concurrency.join(workers);
        drop(stop_showing);
        match sender.concurrency.failure() {
            Some(failure) => Err(failure),
            None => fed,
        }
    })
}

fn summary(
    arguments: &WriteArguments,
    client: &Client,
    progress: &Progress,
    rejects: &Rejects,
) -> Result<()> {
    let figures = progress.figures();
    if arguments.connection.server.json {
        return output::print(
            &json!({
                "server": client.base(),
                "table": client.table(),
                "files": figures.files,
                "bytes": figures.bytes,
                "batches": figures.batches,
                "points": figures.points,
                "values": figures.values,
                "rejected": figures.rejected,
                "replaced": figures.replaced,
                "rejected_before": figures.rejected_before,
                "histograms_passed_over": figures.histograms,
                "acknowledged_before_bytes": figures.skipped_bytes,
                "retries": figures.retries,
                "seconds": figures.seconds,
                "notes": progress.notes(),
                "warnings": progress.warnings(),
            })
            .to_string(),
        );
    }
    if arguments.quiet {
        return Ok(());
    }
    output::print(&figures.to_string())?;
    for line in progress.notes().iter().chain(&rejects.first()) {
        eprintln!("{line}");
    }
    if let (Some(path), true) = (&arguments.rejects, figures.rejected > 0) {
        eprintln!("rejected lines are in {}", path.display());
    }
    Ok(())
}

/// Returns a unique name for the run, which is part of the idempotency keys of its batches.
fn new_run() -> String {
    format!("{:x}-{:x}", SystemClock.now().nanos(), std::process::id())
}

fn batch_bytes(text: &str) -> std::result::Result<usize, String> {
    let bytes = bytes(text).ok().and_then(|bytes| usize::try_from(bytes).ok());
    bytes
        .filter(|bytes| (1 << 10..=16 << 20).contains(bytes))
        .ok_or_else(|| "expected a size from 1KiB to 16MiB, such as 512KiB".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        assert_eq!(batch_bytes("2048"), Ok(2048));
        assert_eq!(batch_bytes("512KiB"), Ok(512 << 10));
        assert_eq!(batch_bytes("16MiB"), Ok(16 << 20));
        for wrong in ["", "1", "17MiB", "1GiB", "x", "99999999999999999999MiB"] {
            assert!(batch_bytes(wrong).is_err(), "{wrong}");
        }
    }
}

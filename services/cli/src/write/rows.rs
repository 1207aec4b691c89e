//! `tideline rows import`: sends files to the import route for rows of a running server.
//!
//! 1. `source` cuts each file into batches: CSV with its header line, lines of JSON, or, for an Arrow or Parquet file,
//!    its rows as Arrow streams. Values are not parsed; the server converts them by the types of the table.
//! 2. Some batches are read ahead and sent in random order, because consecutive batches of a sorted file would all be
//!    written to one key range of the table.
//!    The first batch of a file is checked by `times`: integers that are probably seconds get a warning.
//! 3. Connections send them in parallel under idempotency keys, and retry after random waits.
//! 4. Acknowledged batches are recorded in the resume file, rows that were not written in the rejects file.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use serde::Serialize;
use serde_json::{Map, Value, json};

mod sender;
mod source;
mod times;

use self::sender::RowSender;
pub(super) use self::sender::jitter;
pub(super) use self::source::text_of;
use self::source::{RowBatch, Source};
use super::concurrency::ConcurrencyLimit;
use super::cutter::BatchLimits;
use super::rejects::Rejects;
use super::resume::{Acknowledged, ResumeLog};
use super::{batch_bytes, new_run};
use crate::client::{Client, ConnectionArguments, duration, encoded};
use crate::error::{CliError, Result};
use crate::output;

pub(crate) const EXAMPLES: &str = "\
Examples:
  tideline rows import orders orders.parquet
  tideline rows import orders orders.csv.gz --map 'Customer No=customer' --map internal=
  tideline rows import orders night/*.ndjson --parallel 8 --resume night.resume --rejects bad.txt
  tideline rows export old | tideline rows import new - --format ndjson

A column of a file is stored in the column of the same name, or in the one that --map names. If a key
occurs twice in the files, either row may be stored; --parallel 1 keeps the order of files and records.
Batches are sent in random order within a window, so that the load of a sorted file is not concentrated on
one key range. A run with the same --resume file continues where the last one ended; with the same files and
options nothing is written twice.

Exit status: 0 all written, 1 something was rejected or not sent, 2 invalid usage.";

/// Number of batches per connection that are read ahead. The next batch is drawn from them at random.
const WINDOW: usize = 4;
/// Interval of the progress line.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// Arguments of `rows import`.
#[derive(Debug, Args)]
pub(crate) struct ImportArguments {
    /// Name of the table
    #[arg(value_name = "TABLE")]
    table: String,
    #[command(flatten)]
    connection: ConnectionArguments,
    /// Files: .csv, .ndjson or .jsonl, plain, .gz or .zst; .arrow; .parquet; or `-` for standard input
    #[arg(value_name = "FILE", required = true)]
    paths: Vec<PathBuf>,
    /// Format of inputs whose file name does not determine it
    #[arg(long, value_enum)]
    format: Option<RowFormat>,
    /// Write column FROM of the files to column TO of the table; FROM= ignores the column; may be repeated
    #[arg(long = "map", value_name = "FROM=TO")]
    map: Vec<String>,
    /// Change the columns that a record has, instead of replacing rows
    #[arg(long)]
    update: bool,
    /// Number of parallel connections
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    parallel: u16,
    /// Maximum size of a batch, such as 512KiB; from 1KiB to 16MiB
    #[arg(long, value_name = "BYTES", default_value = "1MiB", value_parser = batch_bytes)]
    batch_bytes: usize,
    /// Maximum number of rows per batch
    #[arg(long, value_name = "N", default_value_t = 5_000)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000))]
    batch_rows: u32,
    /// Record acknowledged batches in this file; a run with the same file continues where the last one ended
    #[arg(long, value_name = "FILE")]
    resume: Option<PathBuf>,
    /// Write rows that were rejected to this file, each after a comment with its position and the reason
    #[arg(long, value_name = "FILE")]
    rejects: Option<PathBuf>,
    /// Time for which a batch is retried while the server is busy or unreachable
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration)]
    patience: Duration,
    /// Show no progress
    #[arg(long, short)]
    quiet: bool,
}

/// Format of a file with rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum RowFormat {
    /// CSV with a header line
    Csv,
    /// One JSON object per line
    Ndjson,
    /// An Arrow stream
    Arrow,
    /// A Parquet file
    Parquet,
}

/// Counters of a run.
#[derive(Default)]
pub(super) struct Counters {
    pub(super) written: AtomicU64,
    pub(super) rejected: AtomicU64,
    pub(super) batches: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) retries: AtomicU64,
    /// Batches that an earlier run had sent.
    pub(super) skipped: AtomicU64,
    /// Rows of these batches that were not written.
    pub(super) rejected_before: AtomicU64,
}

impl Counters {
    pub(super) fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Ordering::Relaxed);
    }
}

/// Imports all files. Fails if a row was not written.
pub(crate) fn run(arguments: &ImportArguments) -> Result<()> {
    let connections = usize::from(arguments.parallel);
    let client = arguments
        .connection
        .client_of_table(&arguments.table, connections)?;
    let mapping = mapping(&arguments.map)?;
    let limits = BatchLimits {
        bytes: arguments.batch_bytes,
        rows: arguments.batch_rows as usize,
    };
    let (resume, acknowledged) = match &arguments.resume {
        Some(path) => {
            let (log, acknowledged) =
                ResumeLog::open(path, &client, reading(arguments, &mapping), new_run())?;
            (Some(log), acknowledged)
        }
        None => (None, Acknowledged::default()),
    };
    let run = resume.as_ref().map_or_else(new_run, |log| log.run().to_owned());
    let rejects = Rejects::open(arguments.rejects.as_deref(), !acknowledged.is_empty())?;
    let counters = Counters::default();
    let sender = RowSender {
        path: import_path(&client, &mapping, arguments.update),
        client: &client,
        run: &run,
        patience: arguments.patience,
        concurrency: ConcurrencyLimit::new(connections),
        resume: resume.as_ref(),
        rejects: &rejects,
        counters: &counters,
    };
    let begun = Instant::now();
    let is_shown = !arguments.quiet && !arguments.connection.json;
    let outcome = transfer(arguments, &mapping, limits, acknowledged, &sender, is_shown);
    summary(arguments, &client, &counters, begun.elapsed(), &rejects)?;
    outcome?;
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let (rejected, before) = (count(&counters.rejected), count(&counters.rejected_before));
    match rejected + before {
        0 => Ok(()),
        _ if rejected == 0 => Err(CliError::Incomplete(format!(
            "{} rows were not written by earlier runs",
            output::count(before)
        ))),
        _ => Err(CliError::Incomplete(format!(
            "{} of {} rows were not written",
            output::count(rejected),
            output::count(rejected + count(&counters.written))
        ))),
    }
}

/// Parses the options `--map`. Fails with a usage error if one is invalid or given twice.
fn mapping(options: &[String]) -> Result<Map<String, Value>> {
    let mut map = Map::new();
    for option in options {
        let (from, to) = option
            .split_once('=')
            .filter(|(from, _)| !from.is_empty())
            .ok_or_else(|| {
                CliError::usage(format!(
                    "--map {option}: expected FROM=TO, or FROM= to ignore a column"
                ))
            })?;
        let to = if to.is_empty() { Value::Null } else { to.into() };
        if map.insert(from.to_owned(), to).is_some() {
            return Err(CliError::usage(format!("--map {from} is given twice")));
        }
    }
    Ok(map)
}

/// Returns the options that determine how files become rows, by option name.
fn reading(arguments: &ImportArguments, mapping: &Map<String, Value>) -> Map<String, Value> {
    let mut reading = Map::new();
    reading.insert("rows".into(), "import".into());
    if !mapping.is_empty() {
        reading.insert("map".into(), mapping.clone().into());
    }
    if arguments.update {
        reading.insert("update".into(), true.into());
    }
    if let Some(format) = arguments.format {
        reading.insert("format".into(), json!(format));
    }
    // These options determine the boundaries of batches.
    reading.insert("batch-rows".into(), arguments.batch_rows.into());
    reading.insert("batch-bytes".into(), arguments.batch_bytes.into());
    reading
}

fn import_path(client: &Client, mapping: &Map<String, Value>, is_update: bool) -> String {
    let mut query = Vec::new();
    if !mapping.is_empty() {
        query.push(format!("map={}", encoded(&json!(mapping).to_string())));
    }
    if is_update {
        query.push("op=update".to_owned());
    }
    let query = if query.is_empty() {
        String::new()
    } else {
        format!("?{}", query.join("&"))
    };
    client.of_table(&format!("/rows/import{query}"))
}

/// Reads in this thread and sends in others, until all is sent or the run has failed.
fn transfer(
    arguments: &ImportArguments,
    mapping: &Map<String, Value>,
    limits: BatchLimits,
    mut acknowledged: Acknowledged,
    sender: &RowSender<'_>,
    is_shown: bool,
) -> Result<()> {
    let connections = usize::from(arguments.parallel);
    let (batches, receiver) = mpsc::sync_channel::<RowBatch>(connections);
    let receiver = Arc::new(Mutex::new(receiver));
    let (ended, shown_until) = mpsc::channel::<()>();
    thread::scope(|scope| {
        if is_shown {
            scope.spawn(move || show(sender.counters, &shown_until));
        }
        let workers: Vec<_> = (0..connections)
            .map(|_| {
                let receiver = Arc::clone(&receiver);
                scope.spawn(move || sender.work(&receiver))
            })
            .collect();
        drop(receiver);
        let window = if connections == 1 { 1 } else { WINDOW * connections };
        let mut shuffle = Shuffle::new(window, batches, sender.run);
        let mut fed = Ok(());
        for path in &arguments.paths {
            let ranges = acknowledged.take(&path.to_string_lossy());
            let mut is_first = true;
            let mut add = |batch| {
                if std::mem::take(&mut is_first) {
                    times::warn(sender.client, &batch, mapping);
                }
                shuffle.add(batch)
            };
            let read = Source::open(path, arguments.format, limits)
                .and_then(|source| source.feed(ranges, sender.counters, &mut add));
            match read {
                Ok(true) => {}
                Ok(false) => break,
                Err(failure) => {
                    fed = Err(failure);
                    break;
                }
            }
        }
        shuffle.end();
        sender.concurrency.join(workers);
        drop(ended);
        match sender.concurrency.failure() {
            Some(failure) => Err(failure),
            None => fed,
        }
    })
}

/// Window of batches, which are passed to the connections in random order.
struct Shuffle {
    window: Vec<RowBatch>,
    size: usize,
    batches: SyncSender<RowBatch>,
    random: u64,
}

impl Shuffle {
    fn new(size: usize, batches: SyncSender<RowBatch>, run: &str) -> Self {
        Self {
            window: Vec::with_capacity(size),
            size,
            batches,
            random: xxhash_rust::xxh3::xxh3_64(run.as_bytes()) | 1,
        }
    }

    /// Adds a batch. If the window is full, passes a random batch to the connections. Returns false if the run has
    /// failed.
    fn add(&mut self, batch: RowBatch) -> bool {
        self.window.push(batch);
        self.window.len() < self.size || self.pass()
    }

    fn pass(&mut self) -> bool {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let at = usize::try_from(self.random % self.window.len() as u64).unwrap_or(0);
        self.batches.send(self.window.swap_remove(at)).is_ok()
    }

    /// Passes the remaining batches to the connections.
    fn end(mut self) {
        while !self.window.is_empty() && self.pass() {}
    }
}

/// Prints the progress to standard error until `ended` is closed.
fn show(counters: &Counters, ended: &Receiver<()>) {
    while ended.recv_timeout(PROGRESS_INTERVAL) == Err(RecvTimeoutError::Timeout) {
        let count = |counter: &AtomicU64| output::count(counter.load(Ordering::Relaxed));
        eprintln!(
            "{} rows, {}, {} rejected, {} retried",
            count(&counters.written),
            output::bytes(counters.bytes.load(Ordering::Relaxed)),
            count(&counters.rejected),
            count(&counters.retries)
        );
    }
}

fn summary(
    arguments: &ImportArguments,
    client: &Client,
    counters: &Counters,
    took: Duration,
    rejects: &Rejects,
) -> Result<()> {
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    if arguments.connection.json {
        let summary = json!({
            "server": client.base(),
            "table": client.table(),
            "written": count(&counters.written),
            "rejected": count(&counters.rejected),
            "rejected_before": count(&counters.rejected_before),
            "batches": count(&counters.batches),
            "batches_before": count(&counters.skipped),
            "bytes": count(&counters.bytes),
            "retries": count(&counters.retries),
            "seconds": took.as_secs_f64(),
        });
        return output::print(&summary.to_string());
    }
    if arguments.quiet {
        return Ok(());
    }
    let mut line = format!(
        "{} rows in {} batches, {} in {:.1} s",
        output::count(count(&counters.written)),
        output::count(count(&counters.batches)),
        output::bytes(count(&counters.bytes)),
        took.as_secs_f64()
    );
    for (counter, what) in [
        (&counters.skipped, "batches were acknowledged before"),
        (&counters.retries, "retried"),
        (&counters.rejected, "rejected"),
    ] {
        if count(counter) > 0 {
            line.push_str(&format!("; {} {what}", output::count(count(counter))));
        }
    }
    output::print(&line)?;
    for line in rejects.first() {
        eprintln!("{line}");
    }
    Ok(())
}

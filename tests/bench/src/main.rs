//! Benchmark program: compares measured figures with their goals.
//!
//! The program starts the real `tideline serve`, with default settings unless a group sets others, in a separate
//! process. Most groups load line protocol over HTTP; the data sets S, M and C have the shape of the `cpu-only` rows of
//! the Time Series Benchmark Suite. Every batch is acknowledged after its sync. Then typical queries run. Every result
//! is checked against the generated data: a wrong result fails the run, a slow result does not.
//!
//! ```sh
//! cargo build --release -p tideline-server -p tideline-bench && target/release/tideline-bench
//! ```
//!
//! - CPU time is the user and system time of all server threads. For a load, it is measured from before the first byte
//!   until everything is sealed and the server is idle, unless the name of the figure states another end.
//! - Disk usage is then measured over the whole data folder, as `du` counts it.
//! - Bytes written are counted by Linux for the process, minus the size of its journal files.
//! - Interference is measured in alternating time slices: the measured work runs alone, then together with the
//!   work that slows it down.
//! - Latencies of queries are measured by one client with one keep-alive connection on the same machine, with all files
//!   in the page cache; the first response after a start is reported separately.
//!
//! | module | holds |
//! |---|---|
//! | [`group`] | groups of figures |
//! | [`mod@benchmark`] | sequence of a run; figures of the group `spine` |
//! | [`tiers`], [`beside`] | moves from hot to cold, and their interference with other work |
//! | [`archive`] | moves from cold into archive files |
//! | [`backfill`], [`million`], [`find`] | five years in random order; a million timelines; search among them |
//! | [`command`] | 500 MB written by `tideline write` and by a plain loader |
//! | [`prometheus`] | samples by remote write |
//! | [`otlp`] | the same samples as OTLP metrics |
//! | [`rows`], [`deletes`], [`search`] | rows of wide tables; reads after most rows were deleted; search over rows |
//! | [`feeds`] | messages of feeds, and their watches |
//! | [`changes`] | change streams |
//! | [`promql`] | PromQL queries |
//! | [`peer`] | the same samples and queries for another server |
//! | [`wanted`] | goals |
//! | [`set`], [`plain`], [`load`] | data sets, and ingest |
//! | [`queries`], [`selections`], [`truth`], [`latency`] | queries, expected results, latencies |
//! | [`server`], [`interrupt`] | the process under test, which is also killed on errors and signals |
//! | [`control`] | administrative requests |
//! | [`http`] | HTTP client |
//! | [`process`], [`folder`], [`journal`], [`machine`] | resource usage and machine data from the operating system |
//! | [`wait`] | waits for another process |
//! | [`report`], [`error`] | figures as a table and as JSON; errors that end a run |

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use serde_json::json;

mod archive;
mod backfill;
mod benchmark;
mod beside;
mod changes;
mod command;
mod control;
mod deletes;
mod error;
mod feeds;
mod find;
mod folder;
mod group;
mod http;
mod interrupt;
mod journal;
mod latency;
mod load;
mod machine;
mod million;
mod otlp;
mod peer;
mod plain;
mod process;
mod prometheus;
mod promql;
mod queries;
mod report;
mod rows;
mod search;
mod selections;
mod server;
mod set;
mod tiers;
mod truth;
mod wait;
mod wanted;

use benchmark::Benchmark;
use error::{BenchError, Result};
use feeds::Part;
use group::Group;
use machine::Machine;
use peer::Peer;
use report::Report;
use set::{Kind, Scale};

/// Measures a Tideline server and compares the figures with their goals.
///
/// Exits with 0 even if goals are missed, and with 1 if a result is wrong or the run fails.
#[derive(Debug, Parser)]
struct Arguments {
    /// Use small sets and few rounds, to check in about a minute that everything works.
    #[arg(long)]
    quick: bool,
    /// Groups to measure: spine, tiers, archive, backfill, million, write, find, prometheus, otlp, rows, deletes,
    /// search, feeds, changes. The groups backfill, million and find take many minutes.
    #[arg(long, value_delimiter = ',', default_value = "spine,tiers")]
    groups: Vec<Group>,
    /// Data sets of the group spine: S, M, C.
    #[arg(long, value_delimiter = ',', default_value = "S,M,C")]
    sets: Vec<Kind>,
    /// Parts of the group feeds: single, batches, group, author, job, search, watches.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "single,batches,group,author,job,search,watches"
    )]
    feeds: Vec<Part>,
    /// Duration of the searchable messages of the group feeds, in seconds.
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..))]
    searchable_seconds: u64,
    /// Folder for the data folders. Do not use a RAM disk, where a sync costs nothing. Default: next to this
    /// program.
    #[arg(long)]
    data_dir: Option<PathBuf>,
    /// Path of the server binary. Default: `tideline` next to this program.
    #[arg(long)]
    server: Option<PathBuf>,
    /// Number of connections that write concurrently.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    connections: u16,
    /// Address of another server, such as VictoriaMetrics or Prometheus, which you start empty. The group `prometheus`
    /// sends it the same samples and queries. Prometheus needs `--web.enable-remote-write-receiver` and an
    /// out-of-order time window.
    #[arg(long, value_name = "ADDRESS:PORT")]
    peer: Option<SocketAddr>,
    /// Process id of the server at the address `--peer`, if it runs on this machine. Its CPU time is then reported too.
    #[arg(long, value_name = "PID", requires = "peer")]
    peer_process: Option<u32>,
    /// Also write the report as JSON to this file.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Keep the data folders.
    #[arg(long)]
    keep: bool,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("the benchmark failed: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    let begun = Instant::now();
    interrupt::watch().map_err(|source| BenchError::Connection {
        what: "watching for Ctrl-C",
        source,
    })?;
    let benchmark = benchmark(arguments)?;
    let machine = Machine::here();
    let commit = machine::commit();
    let load_before = machine::load_average();
    let mut report = Report::default();
    let outcome = benchmark.run(&mut report);
    let command: Vec<String> = std::env::args().skip(1).collect();
    let seconds = begun.elapsed().as_secs();
    println!(
        "\n{}, {} cores, {:.0} GiB, Linux {}; commit {commit}; load average {load_before} before, {} after\n\
         `tideline-bench {}`, {seconds} s{}\n\n{report}",
        machine.model,
        machine.cores,
        machine.memory_bytes as f64 / 1_073_741_824.0,
        machine.kernel,
        machine::load_average(),
        command.join(" "),
        match benchmark.scale {
            Scale::Full => "",
            Scale::Quick => "; reduced sets: the goals apply to full sets only",
        },
    );
    if let Some(path) = &arguments.json {
        let json = json!({
            "machine": machine.to_json(),
            "commit": commit,
            "command": command,
            "quick": arguments.quick,
            "duration_seconds": seconds,
            "load_average_before": load_before,
            "report": report.to_json(),
        });
        fs::write(path, format!("{json:#}\n")).map_err(|source| BenchError::File {
            path: path.clone(),
            source,
        })?;
    }
    outcome
}

fn benchmark(arguments: &Arguments) -> Result<Benchmark> {
    let own = std::env::current_exe().map_err(|source| BenchError::File {
        path: "this program".into(),
        source,
    })?;
    let beside = |name: &str| own.with_file_name(name);
    let folder = match &arguments.data_dir {
        Some(folder) => folder.clone(),
        None => beside(&format!("bench-data-{}", std::process::id())),
    };
    fs::create_dir_all(&folder).map_err(|source| BenchError::File {
        path: folder.clone(),
        source,
    })?;
    Ok(Benchmark {
        server: arguments.server.clone().unwrap_or_else(|| beside("tideline")),
        folder,
        scale: if arguments.quick {
            Scale::Quick
        } else {
            Scale::Full
        },
        groups: arguments.groups.clone(),
        kinds: arguments.sets.clone(),
        feeds: arguments.feeds.clone(),
        searchable_seconds: arguments.searchable_seconds,
        connections: usize::from(arguments.connections),
        keep: arguments.keep,
        peer: arguments.peer.map(|address| Peer {
            address,
            process: arguments.peer_process,
        }),
    })
}

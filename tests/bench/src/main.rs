//! The benchmark that prints reached beside wanted.
//!
//! It starts the real `tideline serve` with its default settings as a process of its own, loads data sets in the shape
//! of the Time Series Benchmark Suite's `cpu-only` rows through line protocol over HTTP, every batch acknowledged
//! after its sync, and asks what people ask. Every answer is compared with what the generator wrote: a wrong answer
//! fails the run, a slow one does not.
//!
//! ```sh
//! cargo build --release -p tideline-server -p tideline-bench && target/release/tideline-bench
//! ```
//!
//! - CPU is that of all threads of the server, user and system, from before the first byte until everything is sealed
//!   and the server has fallen quiet.
//! - Disk is the whole data folder after that, as `du` counts it.
//! - Bytes written are those that Linux counts for the process, less those that its journal files grew to.
//! - What one kind of work costs another is measured in slices of time with and without it, in turn.
//! - Latencies are those of one client with one kept-alive connection on the same machine, files in the page cache;
//!   the first answer after a start is shown beside them.
//!
//! | module | holds |
//! |---|---|
//! | [`group`] | what is measured together |
//! | [`benchmark`] | the sequence of a run; figures of the spine |
//! | [`tiers`], [`beside`] | a day's way from hot to cold, and what it costs others |
//! | [`archive`] | the same day moved on into files |
//! | [`backfill`], [`million`], [`find`] | five years in random order; a million timelines; finding them |
//! | [`command`] | 500 MB written by `tideline write`, and by the plain loader |
//! | [`prometheus`] | samples by remote write |
//! | [`promql`] | questions in PromQL |
//! | [`peer`] | the same samples and questions to another server |
//! | [`wanted`] | the goals |
//! | [`set`], [`plain`], [`load`] | what is written, and writing it |
//! | [`question`], [`truth`], [`latency`] | what is asked, what is right, how long it took |
//! | [`server`], [`interrupt`] | the process under test, never left behind |
//! | [`control`] | what an operator asks of it |
//! | [`http`] | the client |
//! | [`process`], [`folder`], [`journal`], [`machine`], [`wait`] | what the operating system says |
//! | [`report`] | figures, as a table and as JSON |

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
mod command;
mod control;
mod error;
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
mod peer;
mod plain;
mod process;
mod prometheus;
mod promql;
mod question;
mod report;
mod selections;
mod server;
mod set;
mod tiers;
mod truth;
mod wait;
mod wanted;

use benchmark::Benchmark;
use error::{BenchError, Result};
use group::Group;
use machine::Machine;
use peer::Peer;
use report::Report;
use set::{Kind, Scale};

/// Measures a Tideline server and prints reached beside wanted.
///
/// Exits with 0 whatever was reached, and with 1 where an answer was wrong or the run broke.
#[derive(Debug, Parser)]
struct Arguments {
    /// Small sets and few rounds: tells in about a minute whether everything works.
    #[arg(long)]
    quick: bool,
    /// What is measured, of spine, tiers, archive, backfill, million, write, find and prometheus. Backfill, million and find take many minutes.
    #[arg(long, value_delimiter = ',', default_value = "spine,tiers")]
    groups: Vec<Group>,
    /// The data sets of the spine, of S, M and C.
    #[arg(long, value_delimiter = ',', default_value = "S,M,C")]
    sets: Vec<Kind>,
    /// Where data folders are made; not a RAM disk, where a sync costs nothing. Default: beside this program.
    #[arg(long)]
    data_dir: Option<PathBuf>,
    /// The server's binary. Default: `tideline` beside this program.
    #[arg(long)]
    server: Option<PathBuf>,
    /// Connections that write at the same time.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    connections: u16,
    /// Another server, such as VictoriaMetrics or Prometheus, started by you and empty: the group `prometheus` sends it the
    /// same samples and questions. Prometheus needs `--web.enable-remote-write-receiver` and an out-of-order time window.
    #[arg(long, value_name = "ADDRESS:PORT")]
    peer: Option<SocketAddr>,
    /// The number of its process, where it runs on this machine: its CPU time is told too.
    #[arg(long, value_name = "PID", requires = "peer")]
    peer_process: Option<u32>,
    /// Writes everything as JSON to this file too.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Leaves the data folders behind.
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
            Scale::Quick => "; cut sets: the wanted figures are meant for full ones",
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
        connections: usize::from(arguments.connections),
        keep: arguments.keep,
        peer: arguments.peer.map(|address| Peer {
            address,
            process: arguments.peer_process,
        }),
    })
}

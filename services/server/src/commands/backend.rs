//! `tideline backend`: creates the tables of a cluster, checks it, shows its owner, and copies data into and out of it.
//!
//! The commands connect to the cluster themselves; no server needs to run.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use serde_json::json;
use tideline_backend_cassandra::check::{self, Outcome};
use tideline_backend_cassandra::{CassandraBackend, CassandraOptions, Replication, schema};
use tideline_cli::{CliError, output};
use tideline_engine::backend::{Acknowledged, BackendError, Shard};
use tideline_engine::copy::CopyProgress;
use tideline_server::{ServerError, Stop, StorageEngine, cluster, copy};

use crate::arguments::ClusterArguments;
use crate::failure::Result;

/// Interval between two progress lines of a copy.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// Commands of a cluster.
#[derive(Debug, Subcommand)]
pub(crate) enum BackendCommand {
    /// Check step by step whether a cluster meets the requirements.
    #[command(after_help = "\
Checks connection, version of the tables, releases, data center, replication, commitlog_sync, clocks, the
largest requests, conditional requests, and writes of every table. Writes rows that no server uses, and
deletes them.

Exit status: 0 usable, 1 a check failed.

Example: tideline backend check --contact cassandra1,cassandra2 --keyspace tideline")]
    Check(CheckArguments),
    /// Create the keyspace and its tables, unless they exist.
    #[command(after_help = "\
Run it once, before the first server starts. Tables of another version, and a keyspace with another
replication, are refused and not changed.

Example: tideline backend schema --contact cassandra1 --keyspace tideline --replication dc1:3")]
    Schema(SchemaArguments),
    /// Show which server owns the data.
    #[command(after_help = "\
Example: tideline backend owner --contact cassandra1 --keyspace tideline")]
    Owner(CheckArguments),
    /// Copy all data from a data folder into a cluster, or back.
    #[command(after_help = "\
Stop the servers of both sides first: a folder or cluster in use is refused. The target must be empty:
a keyspace with fresh tables (tideline backend schema), or a folder without a store. Each piece is read
back and compared. Run the command again after an interruption: it continues. The source is not changed.
Do not start servers on both sides afterwards. Archived files stay where they are; servers of the target
need the same settings of the archive.

Exit status: 0 copied and compared, 1 failed or interrupted.

Examples:
  tideline backend copy --to cassandra --data-dir ./tideline-data --contact cassandra1 --keyspace tideline
  tideline backend copy --to fjall --data-dir ./copy --contact cassandra1 --keyspace tideline")]
    Copy(CopyArguments),
}

/// Arguments of `backend copy`.
#[derive(Debug, Args)]
pub(crate) struct CopyArguments {
    /// Engine to copy into: cassandra (from the data folder) or fjall (into the data folder).
    #[arg(long, value_name = "ENGINE", value_parser = clap::value_parser!(StorageEngine))]
    to: StorageEngine,
    /// Data folder [default: ./tideline-data].
    #[arg(long, value_name = "DIR")]
    data_dir: Option<String>,
    #[command(flatten)]
    cluster: CheckArguments,
}

/// Arguments of `backend check` and `backend owner`.
#[derive(Debug, Args)]
pub(crate) struct CheckArguments {
    /// Configuration file, in TOML.
    #[arg(long, value_name = "FILE", env = "TIDELINE_CONFIG")]
    config: Option<PathBuf>,
    #[command(flatten)]
    cluster: ClusterArguments,
    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
}

/// Arguments of `backend schema`.
#[derive(Debug, Args)]
pub(crate) struct SchemaArguments {
    /// Configuration file, in TOML.
    #[arg(long, value_name = "FILE", env = "TIDELINE_CONFIG")]
    config: Option<PathBuf>,
    #[command(flatten)]
    cluster: ClusterArguments,
    /// Number of copies, such as 3, or one per data center, such as dc1:3,dc2:3
    #[arg(long, value_name = "COPIES", value_parser = clap::value_parser!(Replication))]
    replication: Replication,
}

/// Runs a command.
pub(crate) fn run(command: &BackendCommand) -> Result<()> {
    match command {
        BackendCommand::Check(arguments) => run_check(arguments),
        BackendCommand::Schema(arguments) => create(arguments),
        BackendCommand::Owner(arguments) => show_owner(arguments),
        BackendCommand::Copy(arguments) => run_copy(arguments),
    }
}

fn run_check(arguments: &CheckArguments) -> Result<()> {
    let options = options(&arguments.cluster, arguments.config.as_ref())?;
    let checks = check::run(&options);
    let text = match arguments.json {
        true => {
            let checks = checks.iter().map(|check| {
                let outcome = check.outcome.name();
                json!({"name": check.name, "outcome": outcome, "detail": check.detail})
            });
            json!({"checks": checks.collect::<Vec<_>>()}).to_string()
        }
        false => checks.iter().map(|check| format!("{check}\n")).collect(),
    };
    output::print(&text)?;
    let failed = checks
        .iter()
        .filter(|check| check.outcome == Outcome::Failed)
        .count();
    match failed {
        0 => Ok(()),
        1 => Err(CliError::Incomplete("1 check failed".into()).into()),
        _ => Err(CliError::Incomplete(format!("{failed} checks failed")).into()),
    }
}

fn create(arguments: &SchemaArguments) -> Result<()> {
    let options = options(&arguments.cluster, arguments.config.as_ref())?;
    let version =
        schema::create(&options, &arguments.replication).map_err(|source| failed(&options, source))?;
    Ok(output::print(&format!(
        "keyspace {} has tables of version {version}",
        options.keyspace
    ))?)
}

fn show_owner(arguments: &CheckArguments) -> Result<()> {
    let mut options = options(&arguments.cluster, arguments.config.as_ref())?;
    // The command writes nothing, so it accepts any durability of the cluster.
    options.acknowledged = Acknowledged::Replicated;
    let backend = CassandraBackend::open(options.clone()).map_err(|source| failed(&options, source))?;
    let owner = backend
        .owner(Shard(0))
        .map_err(|source| failed(&options, source))?;
    let text = match (owner, arguments.json) {
        (owner, true) => {
            let owner = owner.map(
                |owner| json!({"address": owner.address, "epoch": owner.epoch.0, "is_dead": owner.is_dead}),
            );
            json!({ "owner": owner }).to_string()
        }
        (None, false) => "no server has owned the data yet".to_owned(),
        (Some(owner), false) => {
            let state = if owner.is_dead {
                "gave up the data"
            } else {
                "owns the data"
            };
            format!("{} {state}, epoch {}", owner.address, owner.epoch.0)
        }
    };
    Ok(output::print(&text)?)
}

fn run_copy(arguments: &CopyArguments) -> Result<()> {
    let CheckArguments {
        config,
        cluster,
        json,
    } = &arguments.cluster;
    let resolved = cluster.resolve_with(config.as_deref(), arguments.data_dir.clone())?;
    let stop = Stop::on_signals()?;
    let begun = Instant::now();
    let mut first: Option<CopyProgress> = None;
    let mut printed = begun;
    let on_wait = Arc::new(|error: &BackendError, patience: Duration| {
        let seconds = patience.as_secs();
        eprintln!("the data cannot be taken yet, trying for up to {seconds} s: {error}");
    });
    let copied = copy::run(&resolved.config, arguments.to, on_wait, &mut |progress| {
        let first = *first.get_or_insert(*progress);
        if printed.elapsed() >= PROGRESS_INTERVAL {
            printed = Instant::now();
            let rate = (progress.bytes - first.bytes) as f64 / begun.elapsed().as_secs_f64();
            eprintln!("{}, {}/s", describe(progress), output::bytes(rate as u64));
        }
        match stop.is_requested() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    })?;
    let text = match json {
        true => json!({
            "partitions": copied.partitions,
            "rows": copied.rows,
            "bytes": copied.bytes,
            "entries": copied.entries,
            "seconds": begun.elapsed().as_secs_f64(),
        })
        .to_string(),
        false => format!(
            "copied and compared: {}, {} journal entries, in {:.1} s",
            describe(&copied),
            copied.entries,
            begun.elapsed().as_secs_f64()
        ),
    };
    Ok(output::print(&text)?)
}

fn describe(progress: &CopyProgress) -> String {
    format!(
        "{} of {} partitions, {} rows, {}",
        progress.partitions,
        progress.partitions_total,
        progress.rows,
        output::bytes(progress.bytes)
    )
}

fn options(cluster: &ClusterArguments, config: Option<&PathBuf>) -> Result<CassandraOptions> {
    let resolved = cluster.resolve(config.map(PathBuf::as_path))?;
    Ok(cluster::options(&resolved.config)?)
}

fn failed(options: &CassandraOptions, source: BackendError) -> ServerError {
    ServerError::Cluster {
        keyspace: options.keyspace.clone(),
        source,
    }
}

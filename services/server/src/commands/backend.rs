//! `tideline backend`: creates the tables of a cluster, checks it, and shows its owner.
//!
//! The commands connect to the cluster themselves; no server needs to run.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::json;
use tideline_backend_cassandra::check::{self, Outcome};
use tideline_backend_cassandra::{CassandraBackend, CassandraOptions, Replication, schema};
use tideline_cli::{CliError, output};
use tideline_engine::backend::{Acknowledged, Shard};
use tideline_server::{ServerError, cluster};

use crate::arguments::ClusterArguments;
use crate::failure::Result;

/// Commands of a cluster.
#[derive(Debug, Subcommand)]
pub(crate) enum BackendCommand {
    /// Check step by step whether a cluster is as needed.
    #[command(after_help = "\
Checks connection, version of the tables, releases, replication, commitlog_sync, clocks, the largest
requests and conditional requests. Writes a few rows that no table uses, and deletes them.

Exit status: 0 usable, 1 a check failed.

Example: tideline backend check --contact cassandra1,cassandra2 --keyspace tideline")]
    Check(CheckArguments),
    /// Create the keyspace and its tables, unless they exist.
    #[command(after_help = "\
Run it once, before the first server starts. Tables of another version are refused and not changed.

Example: tideline backend schema --contact cassandra1 --keyspace tideline --replication dc1:3")]
    Schema(SchemaArguments),
    /// Show which server owns the data.
    #[command(after_help = "\
Example: tideline backend owner --contact cassandra1 --keyspace tideline")]
    Owner(CheckArguments),
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
    /// Number of copies, such as 3, or one per data centre, such as dc1:3,dc2:3
    #[arg(long, value_name = "COPIES", value_parser = clap::value_parser!(Replication))]
    replication: Replication,
}

/// Runs a command.
pub(crate) fn run(command: &BackendCommand) -> Result<()> {
    match command {
        BackendCommand::Check(arguments) => run_check(arguments),
        BackendCommand::Schema(arguments) => create(arguments),
        BackendCommand::Owner(arguments) => show_owner(arguments),
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
    // Nothing is written.
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

fn options(cluster: &ClusterArguments, config: Option<&PathBuf>) -> Result<CassandraOptions> {
    let resolved = cluster.resolve(config.map(PathBuf::as_path))?;
    Ok(cluster::options(&resolved.config)?)
}

fn failed(options: &CassandraOptions, source: tideline_engine::backend::BackendError) -> ServerError {
    ServerError::Cluster {
        keyspace: options.keyspace.clone(),
        source,
    }
}

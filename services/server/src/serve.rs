//! `tideline serve`: runs the server.

#[cfg(feature = "cassandra")]
use std::os::unix::process::CommandExt;
#[cfg(feature = "cassandra")]
use std::process::Command;
use std::sync::Arc;

use tideline_engine::model::SystemClock;
use tideline_server::{Config, Server, logging};
#[cfg(feature = "cassandra")]
use tideline_server::{ServerError, StorageEngine, cluster};

use crate::arguments::{ServeArguments, version};
use crate::failure::{Failure, Result};

/// Runs the server until it is stopped.
pub(crate) fn run(arguments: &ServeArguments) -> Result<()> {
    let resolved = arguments.server.resolve()?;
    resolved.check_server()?;
    let mut config = resolved.config;
    config.engine.is_copy = arguments.new_origin;
    config.check_files()?;
    logging::start(&config)?;
    tracing::info!(version = version(), data_dir = %config.data_dir.display(), "tideline starts");
    for warning in config.warnings() {
        tracing::warn!("{warning}");
    }
    #[cfg(feature = "cassandra")]
    if config.engine_kind == StorageEngine::Cassandra {
        return run_in_cluster(&config);
    }
    let server = Server::start(&config, Arc::new(SystemClock))?;
    let address = server.address();
    let scheme = config.scheme();
    println!("listening on {scheme}://{address}, documentation at {scheme}://{address}/docs");
    server.wait()?;
    tracing::info!("stopped; everything acknowledged is on disk");
    Ok(())
}

/// Stands by and serves until the server is stopped. A process that loses the data replaces itself by a new one with the
/// same arguments, so that nothing remains of its state.
#[cfg(feature = "cassandra")]
fn run_in_cluster(config: &Config) -> Result<()> {
    let scheme = config.scheme();
    let listening = |address| {
        println!("listening on {scheme}://{address}, documentation at {scheme}://{address}/docs");
    };
    let outcome = match cluster::start(config, Arc::new(SystemClock), listening) {
        Ok(cluster::Started::Stopped) => Ok(()),
        Ok(cluster::Started::Owner(owner)) => {
            tracing::info!("this process owns the data");
            owner.wait()
        }
        Err(error) => Err(error),
    };
    if let Err(ServerError::OwnershipLost) = outcome {
        tracing::warn!("this process does not own the data any more; it begins again as a standby");
        let program = std::env::current_exe().map_err(Failure::Thread)?;
        let error = Command::new(program).args(std::env::args_os().skip(1)).exec();
        return Err(Failure::Thread(error));
    }
    outcome?;
    tracing::info!("stopped; everything acknowledged is in the cluster");
    Ok(())
}

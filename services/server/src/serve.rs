//! `tideline serve`: runs the server.

use std::sync::Arc;

use tideline_engine::model::SystemClock;
use tideline_server::{Server, logging};

use crate::arguments::{ServeArguments, version};
use crate::failure::Result;

/// Runs the server until it is stopped.
pub(crate) fn run(arguments: &ServeArguments) -> Result<()> {
    let mut config = arguments.server.resolve()?.config;
    config.engine.is_copy = arguments.new_origin;
    logging::start(&config)?;
    tracing::info!(version = version(), data_dir = %config.data_dir.display(), "tideline starts");
    if let Some(warning) = config.warning() {
        tracing::warn!("{warning}");
    }
    let server = Server::start(&config, Arc::new(SystemClock))?;
    let address = server.address();
    println!("listening on http://{address}, documentation at http://{address}/docs");
    server.wait()?;
    tracing::info!("stopped; everything acknowledged is on disk");
    Ok(())
}

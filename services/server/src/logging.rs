//! Logging to standard error.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;

use crate::config::{Config, LogFormat};
use crate::error::{Result, ServerError};

/// Starts logging for the whole process with the format and filter of `config`.
///
/// # Errors
///
/// Returns [`ServerError::Logging`] if the filter is invalid or logging was started before.
pub fn start(config: &Config) -> Result<()> {
    let failed = |reason: &dyn ToString| ServerError::Logging {
        reason: reason.to_string(),
    };
    let filter = EnvFilter::builder()
        .parse(&config.log_filter)
        .map_err(|error| failed(&error))?;
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        // A line that cannot be written would be reported with `eprintln!`, which panics if standard error is on a full
        // disk or a closed pipe. The panic would end the committer.
        .log_internal_errors(false)
        .with_ansi(io::stderr().is_terminal());
    let started = match config.log_format {
        LogFormat::Text => lines.try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
    started.map_err(|error| failed(&error))
}

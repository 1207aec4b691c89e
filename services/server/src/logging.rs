//! Logging to standard error.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;

use crate::config::{Config, LogFormat};
use crate::error::{Result, ServerError};

/// Directives for the driver of a cluster. While the cluster cannot be reached, it logs two lines per second and node.
/// The server logs each new reason once, and reports it in `/ready`.
const QUIET_DRIVER: &str = "scylla::cluster::metadata=off,scylla::policies::load_balancing=off";

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
        .parse(with_quiet_driver(&config.log_filter))
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

/// Adds [`QUIET_DRIVER`] to a filter, unless the filter names the driver.
fn with_quiet_driver(filter: &str) -> String {
    match filter.trim().is_empty() || filter.contains("scylla") {
        true => filter.to_owned(),
        false => format!("{filter},{QUIET_DRIVER}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_driver_is_quiet_unless_the_filter_names_it() {
        let quiet = with_quiet_driver("info");
        assert_eq!(quiet, format!("info,{QUIET_DRIVER}"));
        EnvFilter::builder().parse(&quiet).expect("a valid filter");
        for own in ["", "info,scylla=warn"] {
            assert_eq!(with_quiet_driver(own), own);
        }
    }
}

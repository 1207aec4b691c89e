//! Error of a command of the binary, its exit status and its JSON form.

use std::io;

use serde_json::Value;
use tideline_cli::CliError;
use tideline_cli::error::json;
use tideline_server::ServerError;

pub(crate) type Result<T> = std::result::Result<T, Failure>;

/// Error of a command.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// Error of a command of `tideline-cli`, or of one that reads a folder or a target.
    #[error(transparent)]
    Cli(#[from] CliError),
    /// The server did not start or did not end cleanly.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// A thread could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(#[source] io::Error),
    /// The system does not report the metrics of this machine.
    #[error("cannot read the figures of this machine: {0}")]
    Sampler(String),
    /// A request of the demo failed.
    #[error("{method} {url}: {reason}")]
    Request {
        method: &'static str,
        url: String,
        reason: String,
    },
    /// The result of an example query lacks an expected text.
    #[error("the result of `{about}` lacks {missing:?}: {result}")]
    MissingText {
        about: &'static str,
        missing: &'static str,
        result: String,
    },
    /// The data of the demo did not arrive in time.
    #[error("the demo is not ready after {seconds} s: {reason}")]
    NotReady { seconds: u64, reason: String },
}

impl Failure {
    /// Returns the exit status of the process: 2 for usage and configuration errors, 1 for all others.
    pub(crate) const fn exit_status(&self) -> u8 {
        match self {
            Self::Cli(error) => error.exit_status(),
            Self::Server(error) if error.is_config() => 2,
            _ => 1,
        }
    }

    /// Returns the error as JSON for programs. The code is that of [`CliError::to_json`], or `config` or `failed`.
    pub(crate) fn to_json(&self) -> Value {
        let code = match self {
            Self::Cli(error) => return error.to_json(),
            Self::Server(error) if error.is_config() => "config",
            _ => "failed",
        };
        json(code, &self.to_string(), false)
    }

    /// Returns true if the reader of standard output has closed it, as `head` does. This is not reported as an error.
    pub(crate) fn is_closed_output(&self) -> bool {
        matches!(self, Self::Cli(error) if error.is_closed_output())
    }
}

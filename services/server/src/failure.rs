//! Why a command fails, its exit status, and the error in JSON.

use std::io;

use serde_json::Value;
use tideline_cli::CliError;
use tideline_cli::error::json;
use tideline_server::ServerError;

pub(crate) type Result<T> = std::result::Result<T, Failure>;

/// A command that failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// A command of `tideline-cli`, or one that reads a folder or a target.
    #[error(transparent)]
    Cli(#[from] CliError),
    /// The server did not start or did not end well.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// A thread could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(#[source] io::Error),
    /// The system does not report the figures of this machine.
    #[error("cannot read the figures of this machine: {0}")]
    Sampler(String),
    /// A request of the demo failed.
    #[error("{method} {url}: {reason}")]
    Request {
        method: &'static str,
        url: String,
        reason: String,
    },
    /// The result of a query of the demo lacks a text that it must have.
    #[error("`{about}` was answered without {missing:?}: {answer}")]
    Answer {
        about: &'static str,
        missing: &'static str,
        answer: String,
    },
    /// The data of the demo did not arrive in time.
    #[error("the demo is not ready after {seconds} s: {reason}")]
    NotReady { seconds: u64, reason: String },
}

impl Failure {
    /// Exit status of the process.
    pub(crate) const fn exit_status(&self) -> u8 {
        match self {
            Self::Cli(error) => error.exit_status(),
            Self::Server(error) if error.is_config() => 2,
            _ => 1,
        }
    }

    /// The error as JSON for programs. Its code is that of [`CliError::to_json`], or `config` or `failed`.
    pub(crate) fn to_json(&self) -> Value {
        let code = match self {
            Self::Cli(error) => return error.to_json(),
            Self::Server(error) if error.is_config() => "config",
            _ => "failed",
        };
        json(code, &self.to_string(), false)
    }

    /// True if the reader of the output has closed it, as `head` does. That is not reported as an error.
    pub(crate) fn is_closed_output(&self) -> bool {
        matches!(self, Self::Cli(error) if error.is_closed_output())
    }
}

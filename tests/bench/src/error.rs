//! Errors that end a run. A missed goal is not an error.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Error of a run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BenchError {
    /// A file or folder could not be read, written or removed.
    #[error("{}: {source}", path.display())]
    File {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// A file under `/proc` does not have the format that Linux documents.
    #[error("{path} does not have the expected format")]
    Proc { path: String },
    /// The server binary could not be started.
    #[error("starting {} failed: {source}; build it with `cargo build --release -p tideline-server`", path.display())]
    Start {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The server or the command exited unexpectedly; `log` holds the end of its output.
    #[error("the process ended with {status}; end of its output:\n{log}")]
    Ended { status: String, log: String },
    /// A condition was not reached in time.
    #[error("{what} did not happen within {limit:?}")]
    Late { what: String, limit: Duration },
    /// An operation of the operating system failed, most often on a connection, or a response was not valid HTTP/1.1.
    #[error("{what}: {source}")]
    Connection {
        what: &'static str,
        #[source]
        source: io::Error,
    },
    /// The server refused a request that it should accept.
    #[error("{method} {path} returned status {status}: {body}")]
    Refused {
        method: &'static str,
        path: String,
        status: u16,
        body: String,
    },
    /// A response differs from the data that the generator wrote.
    #[error("wrong response for {query}: {difference}")]
    Wrong { query: String, difference: String },
    /// A background job failed or was cancelled.
    #[error("a job failed or was cancelled: {job}")]
    Job { job: String },
    /// The command line is invalid, or a data folder already exists.
    #[error("{0}")]
    Usage(String),
}

/// Result of a step of the benchmark.
pub(crate) type Result<T> = std::result::Result<T, BenchError>;

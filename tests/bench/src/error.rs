//! What can end a run: the benchmark fails on these, never on a figure that was missed.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BenchError {
    /// A file or folder could not be read or made.
    #[error("{}: {source}", path.display())]
    File {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// A file under `/proc` does not look as Linux writes it.
    #[error("{path} does not hold what Linux writes there")]
    Proc { path: String },
    /// The server's binary could not be started.
    #[error("starting {} failed: {source}; build it with `cargo build --release -p tideline-server`", path.display())]
    Start {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The server ended although nobody asked it to. Its log says why.
    #[error("the server ended with {status}; its last words:\n{log}")]
    Ended { status: String, log: String },
    /// Something did not come about in time.
    #[error("{what} did not happen within {limit:?}")]
    Late { what: String, limit: Duration },
    /// The connection broke or said something that is not HTTP/1.1.
    #[error("{what}: {source}")]
    Connection {
        what: &'static str,
        #[source]
        source: io::Error,
    },
    /// The server refused what it should have taken.
    #[error("{method} {path} was answered {status}: {body}")]
    Refused {
        method: &'static str,
        path: String,
        status: u16,
        body: String,
    },
    /// The server's answer differs from what the generator wrote.
    #[error("wrong answer to {question}: {difference}")]
    Wrong { question: String, difference: String },
    /// Work in the background did not end well.
    #[error("a job did not end well: {job}")]
    Job { job: String },
    /// The command line asks for something that cannot be.
    #[error("{0}")]
    Usage(String),
}

/// The result of a step of the benchmark.
pub(crate) type Result<T> = std::result::Result<T, BenchError>;

//! Why a server does not start, or ends otherwise than asked.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use tideline_engine::EngineError;
use tideline_engine::backend::BackendError;
use tideline_engine::runtime::ThreadFailure;

use crate::config::Problem;

/// The result of starting and running a server.
pub type Result<T> = std::result::Result<T, ServerError>;

/// A server that does not start, or does not end well.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The configuration is wrong; nothing has been touched.
    #[error("{}", lines(problems))]
    Config {
        /// All that is wrong, at least one.
        problems: Vec<Problem>,
    },
    /// Logging could not be set up.
    #[error("cannot set up logging: {reason}")]
    Logging {
        /// Why.
        reason: String,
    },
    /// The threads of the server could not be started.
    #[error("cannot start threads: {0}")]
    Threads(#[source] io::Error),
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The data folder cannot be made.
    #[error("cannot make the data folder {}: {source}", data_dir.display())]
    DataDir {
        /// The folder.
        data_dir: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The data folder cannot be used.
    #[error("cannot open the data folder {}: {source}", data_dir.display())]
    Backend {
        /// The folder.
        data_dir: PathBuf,
        /// Why.
        source: BackendError,
    },
    /// The archive of the configuration cannot be used.
    #[error(transparent)]
    Archive(tideline_engine::archive::ArchiveError),
    /// What the data folder holds cannot be used.
    #[error("cannot open the database in {}: {source}", data_dir.display())]
    Engine {
        /// The folder.
        data_dir: PathBuf,
        /// Why.
        source: EngineError,
    },
    /// The server stopped listening without having been asked.
    #[error("the server stopped: {reason}")]
    Serve {
        /// Why.
        reason: String,
    },
    /// A thread that the database depends upon has panicked. What was acknowledged as synced is safe.
    #[error("{0}; what was acknowledged is recovered by the next start")]
    Thread(ThreadFailure),
    /// The database did not close cleanly. What was acknowledged as synced is safe.
    #[error("cannot close the database: {0}")]
    Close(#[source] EngineError),
    /// The same, and it took too long.
    #[error("the database did not close within {0:?}; what was acknowledged as synced is safe")]
    CloseTimeout(Duration),
}

impl ServerError {
    /// Whether a change of the configuration is what helps.
    pub const fn is_config(&self) -> bool {
        matches!(self, Self::Config { .. })
    }
}

fn lines(problems: &[Problem]) -> String {
    let lines: Vec<String> = problems.iter().map(Problem::to_string).collect();
    lines.join("\n")
}

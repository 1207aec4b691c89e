//! Errors of starting and running a server.
//!
//! Each error has a message for the person who starts the server: what failed, where, and what to do.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use tideline_engine::EngineError;
use tideline_engine::backend::BackendError;
use tideline_engine::copy::CopyError;
use tideline_engine::runtime::ThreadFailure;

use crate::config::Problem;

/// Result of starting and running a server.
pub type Result<T> = std::result::Result<T, ServerError>;

/// Error of starting or running a server.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The configuration is invalid; nothing has been changed on disk.
    #[error("{}", lines(problems))]
    Config {
        /// All problems, at least one.
        problems: Vec<Problem>,
    },
    /// A file of the configuration cannot be used; nothing has been changed on disk.
    #[error("{0}")]
    Files(String),
    /// Logging could not be set up.
    #[error("cannot set up logging: {reason}")]
    Logging {
        /// Reason of the failure.
        reason: String,
    },
    /// The settings of webhooks are invalid.
    #[error("cannot set up webhooks: {reason}")]
    Webhooks {
        /// Reason of the failure.
        reason: String,
    },
    /// The threads of the server could not be started.
    #[error("cannot start threads: {0}")]
    Threads(#[source] io::Error),
    /// The server cannot listen on its address.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Listen address.
        address: SocketAddr,
        /// Reason of the failure.
        source: io::Error,
    },
    /// The server cannot listen on its Unix socket.
    #[error("cannot listen on the Unix socket {}: {source}", path.display())]
    ListenUnix {
        /// Path of the socket.
        path: PathBuf,
        /// Reason of the failure.
        source: io::Error,
    },
    /// The data folder cannot be created, or belongs to another server.
    #[error("cannot use the data folder {}: {source}", data_dir.display())]
    DataDir {
        /// Path of the data folder.
        data_dir: PathBuf,
        /// Reason of the failure.
        source: io::Error,
    },
    /// The store in the data folder cannot be opened.
    #[error("cannot open the data folder {}: {source}", data_dir.display())]
    Backend {
        /// Path of the data folder.
        data_dir: PathBuf,
        /// Reason of the failure.
        source: BackendError,
    },
    /// The configured archive cannot be used.
    #[error(transparent)]
    Archive(tideline_engine::archive::ArchiveError),
    /// The database in the data folder cannot be opened.
    #[error("cannot open the database in {}: {source}", data_dir.display())]
    Engine {
        /// Path of the data folder.
        data_dir: PathBuf,
        /// Reason of the failure.
        source: EngineError,
    },
    /// The cluster cannot be used.
    #[error("cannot use keyspace {keyspace} of the cluster: {source}")]
    Cluster {
        /// Name of the keyspace.
        keyspace: String,
        /// Reason of the failure.
        source: BackendError,
    },
    /// The data could not be copied between a folder and a cluster.
    #[error("cannot copy: {0}")]
    Copy(#[source] CopyError),
    /// The file with the password for the cluster cannot be read.
    #[error("cannot read the password file {}: {source}", file.display())]
    PasswordFile {
        /// Path of the file.
        file: PathBuf,
        /// Reason of the failure.
        source: io::Error,
    },
    /// This process does not own the data of the cluster, because another process took it, or because the cluster did
    /// not answer.
    #[error("this process does not own the data any more; it must start again")]
    OwnershipLost,
    /// The server stopped listening without a stop request.
    #[error("the server stopped: {reason}")]
    Serve {
        /// Reason of the failure.
        reason: String,
    },
    /// A thread that the database depends on has panicked. Data acknowledged as synced is safe.
    #[error("{0}; the next start recovers all acknowledged data")]
    Thread(ThreadFailure),
    /// The database did not close cleanly. Data acknowledged as synced is safe.
    #[error("cannot close the database: {0}")]
    Close(#[source] EngineError),
    /// The database did not close within the timeout. Data acknowledged as synced is safe.
    #[error("the database did not close within {0:?}; data acknowledged as synced is safe")]
    CloseTimeout(Duration),
}

impl ServerError {
    /// Returns true if the configuration is invalid and has to be changed.
    pub const fn is_config(&self) -> bool {
        matches!(self, Self::Config { .. } | Self::Files(_))
    }
}

fn lines(problems: &[Problem]) -> String {
    let lines: Vec<String> = problems.iter().map(Problem::to_string).collect();
    lines.join("\n")
}

//! What ends a command before its time.

use tideline_server::ServerError;

pub(crate) type Result<T> = std::result::Result<T, CliError>;

/// A command that failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    /// The server did not start or did not end well.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// A thread could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(#[source] std::io::Error),
    /// This machine does not tell about itself.
    #[error("cannot read the figures of this machine: {0}")]
    Sampler(String),
    /// A request of the demo was not answered.
    #[error("{method} {url}: {reason}")]
    Request {
        method: &'static str,
        url: String,
        reason: String,
    },
    /// A question of the demo was answered, but not as it should be.
    #[error("`{about}` was answered without {missing:?}: {answer}")]
    Answer {
        about: &'static str,
        missing: &'static str,
        answer: String,
    },
    /// The demo's data did not arrive.
    #[error("the demo is not ready after {seconds} s: {reason}")]
    NotReady { seconds: u64, reason: String },
}

impl CliError {
    /// The exit status that scripts see.
    pub(crate) const fn exit_status(&self) -> u8 {
        match self {
            Self::Server(error) if error.is_config() => 2,
            _ => 1,
        }
    }
}

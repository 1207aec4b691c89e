//! What ends a command before its time.

use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
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
    Thread(#[source] io::Error),
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
    /// What was asked for on the command line or in the profiles cannot be right.
    #[error("{0}")]
    Usage(String),
    /// The server answered that it will not.
    #[error("{0}")]
    Refused(Box<Refusal>),
    /// No answer, or a broken one.
    #[error("cannot reach {server}: {reason}")]
    Unreachable { server: String, reason: String },
    /// The server shows no certificate that is trusted, or does not speak TLS.
    #[error("no TLS connection to {server}: {reason}")]
    Tls { server: String, reason: String },
    /// The server answered something that this version does not understand.
    #[error("{server} answered something else than expected: {reason}")]
    Strange { server: String, reason: String },
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    /// What was to be shown could not be written.
    #[error("cannot write the output: {0}")]
    Output(#[from] io::Error),
    /// A question has names that the table does not have.
    #[error("{0}")]
    UnknownName(String),
    /// The command did what it could, and that was not all.
    #[error("{0}")]
    Incomplete(String),
}

/// An error answer, as the server words it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    pub(crate) code: String,
    pub(crate) message: String,
    /// Whether sending the same again can help.
    pub(crate) retryable: bool,
    /// The part of the request that is wrong, where the server names it.
    pub(crate) field: Option<String>,
    pub(crate) request_id: Option<String>,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.message)?;
        if let Some(field) = &self.field {
            write!(f, "\n  field    {field}")?;
        }
        write!(f, "\n  answer   {} {}", self.status, self.code)?;
        match &self.request_id {
            Some(id) => write!(f, "\n  request  {id}"),
            None => Ok(()),
        }
    }
}

impl CliError {
    /// The exit status that scripts see.
    pub(crate) const fn exit_status(&self) -> u8 {
        match self {
            Self::Server(error) if error.is_config() => 2,
            Self::Usage(_) => 2,
            _ => 1,
        }
    }

    /// The error as JSON for programs: `{"error": {code, message, retryable, …}}`, where `code` is the server's, or for what
    /// the server did not answer one of `usage`, `config`, `unreachable`, `tls`, `unexpected_answer`, `file`, `output`,
    /// `unknown_name`, `incomplete` and `failed`.
    pub(crate) fn to_json(&self) -> Value {
        let (code, retryable) = match self {
            Self::Refused(refusal) => {
                let mut error = json!({
                    "code": refusal.code, "message": refusal.message, "retryable": refusal.retryable,
                    "status": refusal.status
                });
                for (name, text) in [("field", &refusal.field), ("request_id", &refusal.request_id)] {
                    if let Some(text) = text {
                        error[name] = text.as_str().into();
                    }
                }
                return json!({"error": error});
            }
            Self::Usage(_) => ("usage", false),
            Self::Server(error) if error.is_config() => ("config", false),
            Self::Unreachable { .. } => ("unreachable", true),
            Self::Tls { .. } => ("tls", false),
            Self::Strange { .. } => ("unexpected_answer", false),
            Self::File { .. } => ("file", false),
            Self::Output(_) => ("output", false),
            Self::UnknownName(_) => ("unknown_name", false),
            Self::Incomplete(_) => ("incomplete", false),
            _ => ("failed", false),
        };
        json!({"error": {"code": code, "message": self.to_string(), "retryable": retryable}})
    }

    /// Whether nobody reads the output any more, as when `head` has seen enough: no failure of ours.
    pub(crate) fn is_closed_output(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }

    /// A usage error.
    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self::Usage(text.into())
    }

    /// What went wrong with a file.
    pub(crate) fn file(path: &Path, source: io::Error) -> Self {
        Self::File {
            path: path.to_owned(),
            source,
        }
    }
}

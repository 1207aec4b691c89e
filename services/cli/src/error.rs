//! Why a command fails, its exit status, and the error in JSON.

use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

/// The result of a command.
pub type Result<T> = std::result::Result<T, CliError>;

/// A command that failed.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The command line or the file of profiles is wrong.
    #[error("{0}")]
    Usage(String),
    /// The server refused the request.
    #[error("{0}")]
    Refused(Box<Refusal>),
    /// No response, or an incomplete one.
    #[error("cannot reach {server}: {reason}")]
    Unreachable {
        /// Its address.
        server: String,
        /// Why.
        reason: String,
    },
    /// The server shows no certificate that is trusted, or does not speak TLS.
    #[error("no TLS connection to {server}: {reason}")]
    Tls {
        /// Its address.
        server: String,
        /// Why.
        reason: String,
    },
    /// This version cannot read the response of the server.
    #[error("{server} answered something else than expected: {reason}")]
    Strange {
        /// Its address.
        server: String,
        /// The unexpected part.
        reason: String,
    },
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The output could not be written.
    #[error("cannot write the output: {0}")]
    Output(#[from] io::Error),
    /// A query names fields, tags or measurements that the table does not have.
    #[error("{0}")]
    UnknownName(String),
    /// The command did only a part of its work, or found damage.
    #[error("{0}")]
    Incomplete(String),
}

/// An error response of the server.
#[derive(Debug, Clone, Default)]
pub struct Refusal {
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
    /// Exit status of the process.
    pub const fn exit_status(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            _ => 1,
        }
    }

    /// Returns the error as JSON for programs: `{"error": {code, message, retryable, …}}`. The code is that of the server, or,
    /// for an error that is not its response, one of `usage`, `unreachable`, `tls`, `unexpected_answer`, `file`, `output`,
    /// `unknown_name` and `incomplete`.
    pub fn to_json(&self) -> Value {
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
            Self::Unreachable { .. } => ("unreachable", true),
            Self::Tls { .. } => ("tls", false),
            Self::Strange { .. } => ("unexpected_answer", false),
            Self::File { .. } => ("file", false),
            Self::Output(_) => ("output", false),
            Self::UnknownName(_) => ("unknown_name", false),
            Self::Incomplete(_) => ("incomplete", false),
        };
        json(code, &self.to_string(), retryable)
    }

    /// True if the reader of the output has closed it, as `head` does. That is not reported as an error.
    pub fn is_closed_output(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }

    /// Returns a usage error.
    pub fn usage(text: impl Into<String>) -> Self {
        Self::Usage(text.into())
    }

    /// Returns an error of a file.
    pub fn file(path: &Path, source: io::Error) -> Self {
        Self::File {
            path: path.to_owned(),
            source,
        }
    }
}

/// Returns an error as JSON for programs, with the members that every error has.
pub fn json(code: &str, message: &str, retryable: bool) -> Value {
    json!({"error": {"code": code, "message": message, "retryable": retryable}})
}

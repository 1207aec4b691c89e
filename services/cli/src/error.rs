//! Error of a command, its exit status and its JSON form.
//!
//! A refusal keeps the code and the message of the server, so that programs handle the API and the command line alike.

use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

/// Result of a command.
pub type Result<T> = std::result::Result<T, CliError>;

/// Error of a command.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The command line, or a profile, token, certificate or query file, is invalid.
    #[error("{0}")]
    Usage(String),
    /// The server refused the request.
    #[error("{0}")]
    Refused(Box<Refusal>),
    /// There was no response, or an incomplete one.
    #[error("cannot reach {server}: {reason}")]
    Unreachable {
        /// URL of the server.
        server: String,
        /// Reason of the failure.
        reason: String,
    },
    /// The TLS connection failed, for example because the server's certificate is not trusted.
    #[error("no TLS connection to {server}: {reason}")]
    Tls {
        /// URL of the server.
        server: String,
        /// Reason of the failure.
        reason: String,
    },
    /// The response of the server is invalid or of an unknown form, or was cut off while it was streamed.
    #[error("unexpected response from {server}: {reason}")]
    Strange {
        /// URL of the server.
        server: String,
        /// Unexpected part of the response.
        reason: String,
    },
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Reason of the failure.
        source: io::Error,
    },
    /// The output could not be written.
    #[error("cannot write the output: {0}")]
    Output(#[from] io::Error),
    /// A query refers to a measurement, tag, attribute or field that the table does not have.
    #[error("{0}")]
    UnknownName(String),
    /// The command did only a part of its work or none, or found damage.
    #[error("{0}")]
    Incomplete(String),
}

/// Phrases of messages about members of requests for rows, and the options of the commands for rows that set these
/// members.
const OPTIONS: [(&str, &str); 6] = [
    (
        " in `prefix` or `range`, or set ",
        " by NAME=VALUE or bounds, or set ",
    ),
    ("set `allow_scan` to true", "use --allow-scan"),
    ("set `allow_all` to true", "use --all"),
    (" by `index`, with ", " by --index, with "),
    (" in `prefix` (the index", " as NAME=VALUE (the index"),
    (" in `range` (the index", " in bounds (the index"),
];

/// Error response of the server.
#[derive(Debug, Clone, Default)]
pub struct Refusal {
    pub(crate) status: u16,
    pub(crate) code: String,
    pub(crate) message: String,
    /// True if repeating the request may succeed.
    pub(crate) retryable: bool,
    /// Invalid part of the request, if the response contains it.
    pub(crate) field: Option<String>,
    pub(crate) request_id: Option<String>,
    /// True if the request was sent by a command for rows. The text of the error then names its options.
    pub(crate) is_of_rows: bool,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut message = self.message.clone();
        if self.is_of_rows {
            for (member, option) in OPTIONS {
                message = message.replace(member, option);
            }
        }
        write!(f, "{message}")?;
        if let Some(field) = &self.field {
            write!(f, "\n  field    {field}")?;
        }
        write!(f, "\n  status   {} {}", self.status, self.code)?;
        match &self.request_id {
            Some(id) => write!(f, "\n  request  {id}"),
            None => Ok(()),
        }
    }
}

impl CliError {
    /// Returns the error of a command for rows, whose text names the options of the command instead of the members of
    /// the request.
    pub(crate) fn of_rows(mut self) -> Self {
        if let Self::Refused(refusal) = &mut self {
            refusal.is_of_rows = true;
        }
        self
    }

    /// Returns the exit status of the process: 2 for usage errors, 1 for all others.
    pub const fn exit_status(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            _ => 1,
        }
    }

    /// Returns the error as JSON for programs: `{"error": {code, message, retryable, …}}`.
    ///
    /// A refusal has the code that the server returned. Other errors have one of the codes `usage`, `unreachable`,
    /// `tls`, `unexpected_answer`, `file`, `output`, `unknown_name` and `incomplete`.
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

    /// Returns true if the reader of standard output has closed it, as `head` does. This is not reported as an
    /// error.
    pub fn is_closed_output(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }

    /// Creates a usage error.
    pub fn usage(text: impl Into<String>) -> Self {
        Self::Usage(text.into())
    }

    /// Creates an error of a file.
    pub fn file(path: &Path, source: io::Error) -> Self {
        Self::File {
            path: path.to_owned(),
            source,
        }
    }
}

/// Returns an error as JSON for programs, with the members that all errors have.
pub fn json(code: &str, message: &str, retryable: bool) -> Value {
    json!({"error": {"code": code, "message": message, "retryable": retryable}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_errors_of_commands_for_rows_name_their_options() {
        let message = "give \"id\" in `prefix` or `range`, or set `allow_scan` to true";
        let error = CliError::Refused(Box::new(Refusal {
            status: 400,
            code: "invalid".to_owned(),
            message: message.to_owned(),
            ..Refusal::default()
        }));
        assert!(error.to_string().starts_with(message), "{error}");
        let error = error.of_rows();
        let text = "give \"id\" by NAME=VALUE or bounds, or use --allow-scan\n";
        assert!(error.to_string().starts_with(text), "{error}");
        // Programs get the message of the server.
        assert_eq!(error.to_json()["error"]["message"], message);
    }
}

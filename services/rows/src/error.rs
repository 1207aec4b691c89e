//! Errors of requests for rows.

use std::io;

use tideline_engine::EngineError;
use tideline_engine::key_codec::layout::LayoutError;

/// Result type of this crate.
pub type Result<T> = std::result::Result<T, RowsError>;

/// Failure of a request for rows.
#[derive(Debug, thiserror::Error)]
pub enum RowsError {
    /// The engine failed or refused the request.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The request is invalid.
    #[error("{0}")]
    Invalid(String),
    /// The request exceeds a limit.
    #[error("{message}")]
    OverLimit {
        /// Message with the limited quantity, the limit and the actual value.
        message: String,
        /// The limit.
        limit: u64,
        /// The actual value.
        actual: u64,
    },
    /// A row or range of a transaction has changed; holds its index in the list of rows and ranges that must be
    /// unchanged. Nothing was written.
    #[error("unchanged/{0} has changed since it was read, so nothing was written; read it again")]
    Changed(usize),
    /// A condition of the request is not met. Nothing was written.
    #[error("{0}")]
    ConditionFailed(String),
    /// A stored row is damaged.
    #[error("table {table}: {reason}")]
    Damaged {
        /// Name of the table.
        table: String,
        /// Description of the damage.
        reason: String,
    },
    /// The request was cancelled, its client has disconnected, or its token was revoked.
    #[error("the request was cancelled by another one, or because its token was revoked")]
    Cancelled,
    /// The stream of a value cannot be read: the client sends too slowly, or the stream is not valid in its encoding.
    #[error("the value cannot be read: {0}")]
    Input(#[source] io::Error),
    /// The output could not be written.
    #[error(transparent)]
    Output(#[from] io::Error),
}

impl RowsError {
    /// Creates the error of an exceeded limit.
    pub fn over(what: &str, limit: u64, actual: u64) -> Self {
        Self::OverLimit {
            message: format!("{what} of {actual} is over the limit of {limit}"),
            limit,
            actual,
        }
    }
}

impl From<LayoutError> for RowsError {
    fn from(error: LayoutError) -> Self {
        let message = error.to_string();
        match error {
            LayoutError::ProductTooLarge { actual, limit, .. } => Self::OverLimit {
                message,
                limit,
                actual: actual.unwrap_or(u64::MAX),
            },
            _ => Self::Invalid(message),
        }
    }
}

//! Errors of requests for rows.

use std::io;

use tideline_engine::EngineError;
use tideline_engine::key_codec::layout::LayoutError;
use tideline_engine::rows::{OUTCOME_SIZE, WRITE_SIZE};

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
    /// The stream of a value or of an import cannot be read: the client sends too slowly, or the stream is not valid in its
    /// encoding.
    #[error("the body cannot be read: {0}")]
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

    /// Replaces the idempotency key of an entry or of a round in an error by `key`, the key of the client.
    #[must_use]
    pub fn with_key(self, key: Option<&str>) -> Self {
        match (self, key) {
            (Self::Engine(EngineError::KeyReused(_)), Some(key)) => {
                EngineError::KeyReused(key.to_owned()).into()
            }
            (error, _) => error,
        }
    }

    /// Returns true if a write was too large for one journal entry. Some of its rows may fit.
    pub(crate) fn is_large_write(&self) -> bool {
        matches!(self, Self::Engine(EngineError::OverLimit { what, .. }) if *what == WRITE_SIZE || *what == OUTCOME_SIZE)
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

//! Errors of change streams.

use tideline_engine::EngineError;
use tideline_rows::RowsError;

/// Result of a call of this crate.
pub type Result<T> = std::result::Result<T, ChangesError>;

/// Error of a call of this crate.
#[derive(Debug, thiserror::Error)]
pub enum ChangesError {
    /// Error of the engine.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A row cannot be encoded.
    #[error(transparent)]
    Rows(#[from] RowsError),
    /// The request is invalid.
    #[error("{0}")]
    Invalid(String),
    /// A limit is exceeded.
    #[error("{what} of {actual} is over the limit of {limit}")]
    OverLimit {
        /// Limited quantity.
        what: &'static str,
        /// Maximum of the quantity.
        limit: u64,
        /// Actual value.
        actual: u64,
    },
    /// The owner of a stream has as many streams as it may have.
    #[error("{message}")]
    TooMany {
        /// Description of the limit.
        message: String,
        /// Maximum number of streams of the owner.
        limit: u64,
        /// Number of streams with the new one.
        actual: u64,
    },
    /// The stream, group or webhook does not exist.
    #[error("{what} {name:?} does not exist")]
    NotFound {
        /// Kind of the object.
        what: &'static str,
        /// Name in the request.
        name: String,
    },
    /// The request conflicts with the stored state.
    #[error("{0}")]
    Conflict(String),
    /// Stored state cannot be read, or the error is a bug.
    #[error("{0}")]
    Internal(String),
    /// The operator has switched webhooks off, or does not allow the address of a webhook.
    #[error("{0}")]
    Forbidden(String),
}

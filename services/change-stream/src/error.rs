//! Errors of change streams, classified like those of the engine.

use tideline_engine::{EngineError, ErrorKind};
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
        /// The limit.
        limit: u64,
        /// Actual value.
        actual: u64,
    },
    /// The stream, group or webhook does not exist.
    #[error("{what} {name:?} does not exist")]
    NotFound {
        /// Kind of the object.
        what: &'static str,
        /// Its name.
        name: String,
    },
    /// The request conflicts with the stored state.
    #[error("{0}")]
    Conflict(String),
    /// The operator has switched the feature off.
    #[error("{0}")]
    Forbidden(String),
}

impl ChangesError {
    /// Returns the class of the error; `None` for an error of rows, which has its own classes.
    pub fn kind(&self) -> Option<ErrorKind> {
        Some(match self {
            Self::Engine(error) => error.kind(),
            Self::Rows(_) => return None,
            Self::Invalid(_) => ErrorKind::Invalid,
            Self::OverLimit { .. } => ErrorKind::OverLimit,
            Self::NotFound { .. } => ErrorKind::NotFound,
            Self::Conflict(_) => ErrorKind::Conflict,
            Self::Forbidden(_) => ErrorKind::Forbidden,
        })
    }
}

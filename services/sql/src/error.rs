//! Errors of statements.
//!
//! An error that applies to a single position in the statement includes its line and column.

use std::fmt;

use sqlparser::tokenizer::{Location, Span};
use tideline_engine::EngineError;
use tideline_engine::key_codec::layout::LayoutError;
use tideline_rows::RowsError;

/// Result type of this crate.
pub type Result<T> = std::result::Result<T, SqlError>;

/// Position in a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Position {
    /// Line, starting at 1; 0 if the position is unknown.
    pub line: u64,
    /// Column in characters, starting at 1; 0 if the position is unknown.
    pub column: u64,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => Ok(()),
            line => write!(f, "line {line}, column {}: ", self.column),
        }
    }
}

impl From<Location> for Position {
    fn from(location: Location) -> Self {
        Self {
            line: location.line,
            column: location.column,
        }
    }
}

impl From<Span> for Position {
    fn from(span: Span) -> Self {
        span.start.into()
    }
}

/// Failure of a statement.
#[derive(Debug, thiserror::Error)]
pub enum SqlError {
    /// The statement is not valid.
    #[error("{at}{message}")]
    Invalid {
        /// Position in the statement.
        at: Position,
        /// Description of the error and of its remedy.
        message: String,
    },
    /// The statement is valid SQL, but no supported plan can execute it.
    #[error("{at}{message}")]
    Refused {
        /// Position in the statement.
        at: Position,
        /// Reason and remedy.
        message: String,
    },
    /// The statement exceeds a limit.
    #[error("{message}")]
    OverLimit {
        /// Message with the limited quantity, the limit and the actual value.
        message: String,
        /// The limit.
        limit: u64,
        /// The actual value.
        actual: u64,
    },
    /// The rows crate or the engine failed, or refused the request.
    #[error(transparent)]
    Rows(#[from] RowsError),
}

impl SqlError {
    /// Creates the error of a statement that is not valid.
    pub(crate) fn invalid(at: impl Into<Position>, message: impl Into<String>) -> Self {
        Self::Invalid {
            at: at.into(),
            message: message.into(),
        }
    }

    /// Creates the error of a statement without a plan.
    pub(crate) fn refused(at: impl Into<Position>, message: impl Into<String>) -> Self {
        Self::Refused {
            at: at.into(),
            message: message.into(),
        }
    }

    /// Creates the error of an exceeded limit.
    pub(crate) fn over(what: &str, limit: u64, actual: u64) -> Self {
        Self::OverLimit {
            message: format!("{what} of {actual} is over the limit of {limit}"),
            limit,
            actual,
        }
    }
}

impl From<EngineError> for SqlError {
    fn from(error: EngineError) -> Self {
        Self::Rows(error.into())
    }
}

impl From<LayoutError> for SqlError {
    fn from(error: LayoutError) -> Self {
        Self::Rows(error.into())
    }
}

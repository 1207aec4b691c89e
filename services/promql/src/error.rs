//! Errors, in the classes of Prometheus' API.

use std::fmt;

use crate::ast::TextRange;

/// Result of parsing or evaluating PromQL.
pub type Result<T> = std::result::Result<T, PromqlError>;

/// Reason why a query has no result. The messages use Prometheus' wording where Prometheus has the same error.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PromqlError {
    /// Invalid PromQL text: `bad_data`, 400.
    #[error("{0}")]
    Parse(#[from] ParseError),
    /// Query parameters that do not fit the expression: `bad_data`, 400.
    #[error("{0}")]
    Invalid(String),
    /// Expression that cannot be evaluated on the selected series: `execution`, 422.
    #[error("{0}")]
    Execution(String),
    /// Exceeded time limit: `timeout`, 503.
    #[error("query timed out in {0}")]
    Timeout(&'static str),
    /// Cancelled query, for example because its client has disconnected: `canceled`, 499.
    #[error("query was canceled in {0}")]
    Canceled(&'static str),
    /// Exceeded limit, for example on samples, steps, memory or patterns: `execution`, 422. The message
    /// describes the limit.
    #[error("{0}")]
    TooMany(String),
    /// Storage failure: `internal`, 500. If `is_overloaded`: `unavailable`, 503.
    #[error("{message}")]
    Storage {
        /// Description of the failure.
        message: String,
        /// True if a later retry may succeed.
        is_overloaded: bool,
    },
}

/// Syntax or type error of a query. Displayed as `line:column: parse error: message`; for an empty
/// text, `unknown position` replaces `line:column`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseError {
    /// Position in bytes.
    pub at: TextRange,
    /// Line, from 1; 0 for an empty text.
    pub line: usize,
    /// Column in bytes, from 1; 0 for an empty text.
    pub column: usize,
    /// Description of the error.
    pub message: String,
}

impl ParseError {
    /// Creates an error at a position of a text; computes line and column.
    pub fn new(text: &str, at: TextRange, message: impl Into<String>) -> Self {
        let before = &text.as_bytes()[..at.start.min(text.len())];
        let line_start = before
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |end| end + 1);
        let (line, column) = match text {
            "" => (0, 0),
            _ => {
                let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
                (line, before.len() - line_start + 1)
            }
        };
        Self {
            at,
            line,
            column,
            message: message.into(),
        }
    }
}

impl std::error::Error for ParseError {}

impl fmt::Display for ParseError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => out.write_str("unknown position")?,
            line => write!(out, "{line}:{}", self.column)?,
        }
        write!(out, ": parse error: {}", self.message)
    }
}

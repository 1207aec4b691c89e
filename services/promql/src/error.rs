//! What can go wrong, in the classes that Prometheus' API tells apart.

use std::fmt;

use crate::ast::TextRange;

/// The result of anything here.
pub type Result<T> = std::result::Result<T, PromqlError>;

/// Why a question has no answer. Displayed in Prometheus' words.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PromqlError {
    /// The text is not PromQL: `bad_data`, 400.
    #[error("{0}")]
    Parse(#[from] ParseError),
    /// The question makes no sense: `bad_data`, 400.
    #[error("{0}")]
    Invalid(String),
    /// It cannot be evaluated on these series: `execution`, 422.
    #[error("{0}")]
    Execution(String),
    /// It took too long: `timeout`, 503.
    #[error("query timed out in {0}")]
    Timeout(&'static str),
    /// Its client has left: `canceled`, 499.
    #[error("query was canceled in {0}")]
    Canceled(&'static str),
    /// It would hold more than it may: `execution`, 422. Says what and how many.
    #[error("{0}")]
    TooMany(String),
    /// The storage failed: `internal`, 500; `is_overloaded`: 503, to be asked again later.
    #[error("{message}")]
    Storage {
        /// What happened.
        message: String,
        /// Whether asking again later may help.
        is_overloaded: bool,
    },
}

/// Why a text is not PromQL. Displayed as `line:column: parse error: message`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseError {
    /// Where, in bytes.
    pub at: TextRange,
    /// The line, from 1; 0 where there is no text.
    pub line: usize,
    /// The column in bytes, from 1; 0 where there is no text.
    pub column: usize,
    /// What is wrong.
    pub message: String,
}

impl ParseError {
    /// Something wrong with a place of a text.
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

//! Request errors that are detected before any data is read.

use tideline_engine::condition::PatternError;

/// Result of parsing a request.
pub type Result<T> = std::result::Result<T, RequestError>;

/// Reason for the refusal of a request. If Prometheus defines a message for the reason, the message is the same.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// A parameter or message is not valid.
    #[error("{0}")]
    Invalid(String),
    /// A regular expression is not valid, or too large.
    #[error(transparent)]
    Pattern(#[from] PatternError),
    /// A limit is exceeded.
    #[error("{what} of {actual} is over the limit of {limit}")]
    OverLimit {
        /// Quantity that exceeds its limit.
        what: &'static str,
        /// Maximum of the quantity.
        limit: u64,
        /// Actual value.
        actual: u64,
    },
}

impl RequestError {
    #[expect(clippy::needless_pass_by_value, reason = "errors are passed by `map_err`")]
    pub(crate) fn invalid(problem: impl ToString) -> Self {
        Self::Invalid(problem.to_string())
    }
}

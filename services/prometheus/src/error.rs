//! Errors of requests before anything is read.

use tideline_engine::condition::PatternError;

/// The result of reading a request.
pub type Result<T> = std::result::Result<T, RequestError>;

/// Why a request is refused. Displayed in the words of Prometheus where it has any.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// A parameter or message is not valid.
    #[error("{0}")]
    Invalid(String),
    /// A regular expression is not valid, or too large.
    #[error(transparent)]
    Pattern(#[from] PatternError),
    /// There is too much of something.
    #[error("{what} of {actual} is over the limit of {limit}")]
    OverLimit {
        /// What there is too much of.
        what: &'static str,
        /// The limit.
        limit: u64,
        /// The actual value.
        actual: u64,
    },
}

impl RequestError {
    #[expect(clippy::needless_pass_by_value, reason = "errors are passed by `map_err`")]
    pub(crate) fn invalid(problem: impl ToString) -> Self {
        Self::Invalid(problem.to_string())
    }
}

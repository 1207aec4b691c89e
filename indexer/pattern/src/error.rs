//! Reasons for rejecting a regular expression.

/// Maximum number of characters of an expression that an error message shows.
const SHOWN_CHARS: usize = 80;

/// Reason for rejecting a regular expression, or all expressions of a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// Invalid expression. The text is the multi-line message of the `regex` crate.
    #[error("regular expression: {0}")]
    Invalid(String),
    /// The expression is too long.
    #[error(
        "regular expression {pattern:?} has {actual} bytes, at most {limit} are allowed; list values with `in`, or use \
         several requests"
    )]
    TooLong {
        /// Beginning of the expression.
        pattern: String,
        /// Limit in bytes.
        limit: u64,
        /// Length of the expression in bytes.
        actual: u64,
    },
    /// The compiled expression would be too large.
    #[error(
        "the compiled regular expression {pattern:?} takes up to {actual} bytes, at most {limit} are allowed; repeat classes \
         of Unicode such as \\w and \\pL fewer times, or use classes of ASCII such as [a-z]"
    )]
    TooLarge {
        /// Beginning of the expression.
        pattern: String,
        /// Limit in bytes.
        limit: u64,
        /// Upper bound of the compiled size in bytes.
        actual: u64,
    },
    /// The expressions of a request would be too large together.
    #[error(
        "the patterns of this request take up to {actual} bytes together, at most {limit} are allowed; the one that passed \
         the limit begins with {pattern:?}; use fewer or simpler patterns, or several requests"
    )]
    TooMany {
        /// Beginning of the expression that exceeded the limit.
        pattern: String,
        /// Limit in bytes.
        limit: u64,
        /// Sum in bytes, including this expression.
        actual: u64,
    },
}

impl PatternError {
    /// Returns the exceeded limit and the actual size; `None` for an invalid expression.
    pub fn limit(&self) -> Option<(u64, u64)> {
        match self {
            Self::Invalid(_) => None,
            Self::TooLong { limit, actual, .. }
            | Self::TooLarge { limit, actual, .. }
            | Self::TooMany { limit, actual, .. } => Some((*limit, *actual)),
        }
    }
}

/// Returns the beginning of an expression for an error message.
pub(crate) fn shown(pattern: &str) -> String {
    let mut shown: String = pattern.chars().take(SHOWN_CHARS).collect();
    if shown.len() < pattern.len() {
        shown.push('…');
    }
    shown
}

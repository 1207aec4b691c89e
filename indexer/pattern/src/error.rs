//! Reasons to refuse a regular expression.

/// Characters of an expression that an error shows.
const SHOWN_CHARS: usize = 80;

/// Why a regular expression, or all of a request together, are refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// Not a regular expression. The text is that of the `regex` crate, in several lines.
    #[error("regular expression: {0}")]
    Invalid(String),
    /// The text is too long.
    #[error(
        "regular expression {pattern:?} has {actual} bytes, at most {limit} are allowed; list values with `in`, or ask in \
         several requests"
    )]
    TooLong {
        /// Its beginning.
        pattern: String,
        /// The limit in bytes.
        limit: u64,
        /// Its length in bytes.
        actual: u64,
    },
    /// It is too large once it is compiled.
    #[error(
        "the compiled regular expression {pattern:?} takes up to {actual} bytes, at most {limit} are allowed; repeat classes \
         of Unicode such as \\w and \\pL fewer times, or use classes of ASCII such as [a-z]"
    )]
    TooLarge {
        /// Its beginning.
        pattern: String,
        /// The limit in bytes.
        limit: u64,
        /// An upper bound of its compiled size in bytes.
        actual: u64,
    },
    /// The expressions of a request are too large together.
    #[error(
        "the patterns of this request take up to {actual} bytes together, at most {limit} are allowed; the one that passed \
         the limit begins with {pattern:?}; ask with fewer or simpler patterns, or in several requests"
    )]
    TooMany {
        /// The beginning of the expression that passed the limit.
        pattern: String,
        /// The limit in bytes.
        limit: u64,
        /// The sum so far, in bytes.
        actual: u64,
    },
}

impl PatternError {
    /// The limit that was passed, and by what.
    pub fn limit(&self) -> Option<(u64, u64)> {
        match self {
            Self::Invalid(_) => None,
            Self::TooLong { limit, actual, .. }
            | Self::TooLarge { limit, actual, .. }
            | Self::TooMany { limit, actual, .. } => Some((*limit, *actual)),
        }
    }
}

/// The beginning of an expression, as errors show it.
pub(crate) fn shown(pattern: &str) -> String {
    let mut shown: String = pattern.chars().take(SHOWN_CHARS).collect();
    if shown.len() < pattern.len() {
        shown.push('…');
    }
    shown
}

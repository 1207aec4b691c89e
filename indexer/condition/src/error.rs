//! Reasons for rejecting a condition.

/// A condition that cannot be compiled.
#[derive(Debug, thiserror::Error)]
pub enum ConditionError {
    /// A condition exceeds a limit.
    #[error("{what} of {actual} is over the limit of {limit}")]
    OverLimit {
        /// Name of the limited quantity.
        what: &'static str,
        /// The limit.
        limit: usize,
        /// Actual size.
        actual: usize,
    },
    /// The subject does not support the test.
    #[error("{test} cannot be applied to {subject}")]
    Unsupported {
        /// Name of the test.
        test: &'static str,
        /// Description of the subject.
        subject: String,
    },
    /// A test of a field or column does not support the given values.
    #[error("{subject}: {reason}")]
    Values {
        /// Description of the subject.
        subject: String,
        /// Reason, for humans.
        reason: &'static str,
    },
    /// A text that is not a timeline id.
    #[error("{0:?} is not a valid timeline id: use 32 hexadecimal digits")]
    InvalidId(String),
    /// An invalid, too long or too large regular expression, or expressions that are too large together.
    #[error(transparent)]
    Pattern(#[from] tideline_pattern::PatternError),
    /// No memory is left for the patterns of a condition.
    #[error(transparent)]
    Memory(#[from] tideline_runtime::MemoryFull),
    /// The caller stopped the search.
    #[error("the search was stopped: the client disconnected or the time limit was exceeded")]
    Stopped,
    /// A text search without a letter or digit.
    #[error("a text search needs at least one word: letters or digits")]
    NoWords,
    /// A list was given where a single value is compared.
    #[error(
        "a list is not compared as a whole: test for one of its values with equals, or for any of several with in"
    )]
    List,
    /// An invalid geo point, circle, box or polygon.
    #[error("{0}")]
    InvalidArea(String),
    /// A saved search that was not expanded.
    #[error("saved search {0:?} cannot be used here")]
    Saved(String),
    /// An unresolved time relative to now.
    #[error("a time relative to now cannot be used here")]
    RelativeTime,
}

/// Returns an error if `actual` exceeds `limit`.
pub(crate) fn limit(what: &'static str, limit: usize, actual: usize) -> crate::Result<()> {
    if actual > limit {
        return Err(ConditionError::OverLimit { what, limit, actual });
    }
    Ok(())
}

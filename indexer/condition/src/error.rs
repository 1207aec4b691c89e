//! Why a condition is refused.

/// A condition that cannot be compiled.
#[derive(Debug, thiserror::Error)]
pub enum ConditionError {
    /// A limit of conditions.
    #[error("{what} of {actual} is over the limit of {limit}")]
    OverLimit {
        /// Name of the quantity that is too large.
        what: &'static str,
        /// The limit.
        limit: usize,
        /// Its size.
        actual: usize,
    },
    /// A test that its subject does not have.
    #[error("{test} cannot be asked of {subject}")]
    Unsupported {
        /// The test.
        test: &'static str,
        /// The subject.
        subject: String,
    },
    /// Values that a test of a field does not take.
    #[error("field {field:?}: {reason}")]
    Values {
        /// The field.
        field: String,
        /// The reason.
        reason: &'static str,
    },
    /// A text that is not a timeline id.
    #[error("{0:?} is no timeline id: 32 hexadecimal digits")]
    InvalidId(String),
    /// An invalid or too large regular expression, or too many of them.
    #[error(transparent)]
    Pattern(#[from] tideline_pattern::PatternError),
    /// No memory for the patterns of a condition.
    #[error(transparent)]
    Memory(#[from] tideline_runtime::MemoryFull),
    /// The caller has ended the search.
    #[error("the search was stopped: its client left, or it took longer than it may")]
    Stopped,
    /// A text search without a letter or digit.
    #[error("a text search needs at least one word: letters or digits")]
    NoWords,
    /// A list where one value is compared.
    #[error(
        "a list is not compared as a whole: ask for one of its values with equals, or for any of several with in"
    )]
    List,
    /// An invalid geo point, circle, box or polygon.
    #[error("{0}")]
    InvalidArea(String),
    /// A saved search that was not expanded.
    #[error("saved search {0:?} cannot be used here")]
    Saved(String),
    /// A time relative to now that was not resolved.
    #[error("a time relative to now cannot be used here")]
    RelativeTime,
}

/// Refuses what is over its limit.
pub(crate) fn limit(what: &'static str, limit: usize, actual: usize) -> crate::Result<()> {
    if actual > limit {
        return Err(ConditionError::OverLimit { what, limit, actual });
    }
    Ok(())
}

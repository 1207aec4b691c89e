//! What can go wrong in a search. Trouble of the index itself is no error: the answer then takes longer.

use tideline_condition::ConditionError;

/// A failed search call.
#[derive(Debug, thiserror::Error)]
pub enum SearchError {
    /// A limit of requests.
    #[error("{what} of {actual} is over the limit of {limit}")]
    OverLimit {
        /// What is too large.
        what: &'static str,
        /// The limit.
        limit: usize,
        /// Its size.
        actual: usize,
    },
    /// A condition that cannot be compiled.
    #[error(transparent)]
    Condition(ConditionError),
    /// A facet by a subject that has no values to count.
    #[error("a count of values cannot be asked of {0}")]
    Uncounted(String),
    /// No memory for the patterns of a condition.
    #[error(transparent)]
    Memory(#[from] tideline_runtime::MemoryFull),
    /// The caller has ended the search.
    #[error("the search was stopped: its client left, or it took longer than it may")]
    Stopped,
    /// A page token that this service did not write.
    #[error("the page token is damaged")]
    DamagedToken,
    /// A page token of a search for something else.
    #[error("the page token belongs to another search")]
    ForeignToken,
    /// A page of no timelines.
    #[error("a page holds at least one timeline")]
    EmptyPage,
    /// A facet without a key or of no groups.
    #[error("a facet has at least one key and one group")]
    EmptyFacet,
    /// The folder of the index cannot be made.
    #[error("index folder {path}: {source}")]
    Folder {
        /// Which.
        path: std::path::PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The indexer thread could not be started.
    #[error("indexer thread: {0}")]
    Thread(std::io::Error),
    /// The index could not commit; it tries again by itself.
    #[error("index commit: {0}")]
    Commit(String),
    /// The index has been closed.
    #[error("the search index is closed")]
    Closed,
}

impl From<ConditionError> for SearchError {
    fn from(error: ConditionError) -> Self {
        match error {
            ConditionError::Memory(full) => Self::Memory(full),
            ConditionError::Stopped => Self::Stopped,
            error => Self::Condition(error),
        }
    }
}

/// Refuses what is over its limit.
pub(crate) fn limit(what: &'static str, limit: usize, actual: usize) -> crate::Result<()> {
    if actual > limit {
        return Err(SearchError::OverLimit { what, limit, actual });
    }
    Ok(())
}

//! Errors of a search. A damaged index is not an error: searches then take longer until it is rebuilt.

use tideline_condition::ConditionError;

/// A failed search call.
#[derive(Debug, thiserror::Error)]
pub enum SearchError {
    /// A request exceeds a limit.
    #[error("{what} of {actual} is over the limit of {limit}")]
    OverLimit {
        /// Name of the limited quantity.
        what: &'static str,
        /// Maximum.
        limit: usize,
        /// Actual size.
        actual: usize,
    },
    /// The condition cannot be compiled.
    #[error(transparent)]
    Condition(ConditionError),
    /// The values of the facet's subject cannot be counted.
    #[error("the values of {0} cannot be counted")]
    Uncounted(String),
    /// No memory is left for the patterns of a condition.
    #[error(transparent)]
    Memory(#[from] tideline_runtime::MemoryFull),
    /// The caller stopped the search.
    #[error("the search was stopped: the client disconnected or the time limit was exceeded")]
    Stopped,
    /// The page token is incomplete or altered, or was not created by this service.
    #[error("the page token is damaged")]
    DamagedToken,
    /// The page token was issued for a different search.
    #[error("the page token belongs to another search")]
    ForeignToken,
    /// The limit of a page is zero.
    #[error("the limit of a page must be at least 1")]
    EmptyPage,
    /// A facet request has no key, or its limit is zero.
    #[error("a facet needs at least one key and a limit of at least 1")]
    EmptyFacet,
    /// The folder of the index cannot be created.
    #[error("index folder {path}: {source}")]
    Folder {
        /// Path of the folder.
        path: std::path::PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// The indexer thread could not be started.
    #[error("indexer thread: {0}")]
    Thread(std::io::Error),
    /// A commit of the index failed; the indexer retries automatically.
    #[error("index commit: {0}")]
    Commit(String),
    /// An index over rows failed, and must be built again.
    #[error(transparent)]
    Rows(#[from] crate::rows::RowIndexError),
    /// The index is closed.
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

/// Returns an error if `actual` exceeds `limit`.
pub(crate) fn limit(what: &'static str, limit: usize, actual: usize) -> crate::Result<()> {
    if actual > limit {
        return Err(SearchError::OverLimit { what, limit, actual });
    }
    Ok(())
}

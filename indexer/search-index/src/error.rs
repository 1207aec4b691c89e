//! What can go wrong in a search. Trouble of the index itself is no error: the answer then takes longer.

/// A failed search call.
#[derive(Debug, thiserror::Error)]
pub enum SearchError {
    /// A limit of conditions or requests.
    #[error("{what} of {actual} is over the limit of {limit}")]
    OverLimit {
        /// What is too large.
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
    /// A text that is no timeline id.
    #[error("{0:?} is no timeline id: 32 hexadecimal digits")]
    InvalidId(String),
    /// A regular expression that is not one or too large, or too many of them.
    #[error(transparent)]
    Pattern(#[from] tideline_pattern::PatternError),
    /// There is no memory for the patterns of a condition.
    #[error(transparent)]
    Memory(#[from] tideline_model::MemoryFull),
    /// The caller has ended the search.
    #[error("the search was stopped: its client left, or it took longer than it may")]
    Stopped,
    /// A text search without a letter or digit.
    #[error("a text search needs at least one word: letters or digits")]
    NoWords,
    /// A list where a value is compared.
    #[error(
        "a list is not compared as a whole: ask for one of its values with equals, or for any of several with in"
    )]
    List,
    /// A circle, box or polygon that is none.
    #[error("{0}")]
    InvalidArea(String),
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

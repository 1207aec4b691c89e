//! Errors of the engine, classified by the action that they require of the caller.
//!
//! Each protocol maps [`ErrorKind`] to its status codes in one table.

use std::time::Duration;

use tideline_access::{Denied, OverBudget, TooManyObjects};
use tideline_backend::BackendError;
use tideline_condition::ConditionError;
use tideline_model::{RejectReason, TableModel, TableName};
use tideline_runtime::MemoryFull;
use tideline_search_index::SearchError;
use tideline_series_store::{LogError, RecentError, Refusal, StoreError};
use tideline_timeline_catalog::CatalogError;
use tideline_wide_table::WideError;

/// Pause before retrying a request that waits for the clock, which an operator or a time server has to correct.
pub const CLOCK_WAIT: Duration = Duration::from_secs(30);

/// Result of an engine call.
pub type Result<T> = std::result::Result<T, EngineError>;

/// Class of an error, by the action that it requires of the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The request is invalid: correct it.
    Invalid,
    /// The settings of the operator or the token forbid the request: change the request, the setting or the token.
    Forbidden,
    /// A limit is exceeded: make the request smaller.
    OverLimit,
    /// The named object does not exist.
    NotFound,
    /// The requested data existed, but is not kept any more.
    Gone,
    /// The table has the wrong model: use a table of another model, or a server that serves the model.
    WrongModel,
    /// The request conflicts with the current state, for example with a name in use, a fixed setting or the same
    /// request still running.
    Conflict,
    /// The idempotency key belongs to another request: choose a new one.
    KeyReused,
    /// Too much load. Nothing was done; retry later.
    Overloaded,
    /// The rate that a table allows is used up. Nothing was done; retry later.
    RateLimited,
    /// The disk is full or nearly full. Nothing was done; retry later.
    DiskFull,
    /// The service is temporarily unavailable. The outcome of a write may be unknown. Repeating the write is safe if
    /// its points have timestamps or the request has an idempotency key.
    Unavailable,
    /// Stored data is damaged, or the error is a bug. Report it.
    Internal,
}

/// Error of an engine call.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// Error of the store of points and tables, for example a table that does not exist.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Error of a catalog, for example an attribute that is not valid.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// Error of a search or of a search index, for example a condition that is not valid.
    #[error(transparent)]
    Search(SearchError),
    /// Rows of a wide table could not be written or read.
    #[error(transparent)]
    Rows(WideError),
    /// The request is invalid.
    #[error("{0}")]
    Invalid(String),
    /// The settings of the operator forbid the request.
    #[error("{0}")]
    Forbidden(String),
    /// A limit of a request is exceeded.
    #[error("{what} of {actual} is over the limit of {limit}")]
    OverLimit {
        /// Limited quantity.
        what: &'static str,
        /// The limit.
        limit: u64,
        /// Actual value.
        actual: u64,
    },
    /// The limit of the number of tables is reached.
    #[error(
        "there are {count} tables, and tables.count_max allows {limit}; drop a table or raise the limit. \
         Data that differs only by a tag fits into one table"
    )]
    TooManyTables {
        /// The limit.
        limit: usize,
        /// Number of existing tables.
        count: usize,
    },
    /// The tenant of the request has as many tables as its budget allows.
    #[error(transparent)]
    TooManyObjects(#[from] TooManyObjects),
    /// The tenant of the request has used up a budget.
    #[error(transparent)]
    OverBudget(#[from] OverBudget),
    /// The saved searches of all tables would have too many bytes.
    #[error(
        "the saved searches of {owner} would have {actual} bytes, and the limit is {limit}; delete saved searches, or save \
         shorter ones"
    )]
    SearchesFull {
        /// Owner of the searches: the server or a tenant.
        owner: String,
        /// The limit.
        limit: u64,
        /// Bytes of all searches with the new one. For a tenant over the limit of the server, the limit and the new bytes.
        actual: u64,
    },
    /// The principal of the request may not do this.
    #[error(transparent)]
    Denied(#[from] Denied),
    /// The table does not exist, or has a model that is not in the scope of the principal. Both cases have this error, so
    /// that it does not reveal which of them it is.
    #[error("table {0:?} does not exist, or its model is not in the scope of the token")]
    NoUsableTable(String),
    /// The table has another model than the request requires.
    #[error("table {table} has the model {model}; this request is for tables of the model {needed}")]
    OtherModel {
        /// Name of the table.
        table: TableName,
        /// Model of the table.
        model: TableModel,
        /// Model that the request requires.
        needed: TableModel,
    },
    /// The request changes the model of a table, which is fixed at its creation.
    #[error("table {table} has the model {model}, which cannot be changed to {wanted}; create another table")]
    ModelFixed {
        /// Name of the table.
        table: TableName,
        /// Model of the table.
        model: TableModel,
        /// Requested model.
        wanted: TableModel,
    },
    /// The writes after the cursor of a watcher are not available.
    #[error("{0}; query the points since the last event by their time, then watch without a cursor")]
    WatchLost(RecentError),
    /// The table has no such feed.
    #[error(
        "table {table} has no feed {feed:?}; the first message of a feed creates it, if the feed is named by type and tags"
    )]
    NoSuchFeed {
        /// Name of the table.
        table: TableName,
        /// Feed of the request.
        feed: String,
    },
    /// The feed has no message with this sequence number, or the number is that of an event.
    #[error("table {table}: the feed has no message with the sequence number {sequence}")]
    NoSuchMessage {
        /// Name of the table.
        table: TableName,
        /// Requested sequence number.
        sequence: i64,
    },
    /// The rows of the table are the users of a feed table.
    #[error(
        "table {table} holds the users of the feed table {owner}, which changes it; use the routes of feeds"
    )]
    UsersTable {
        /// Name of the table.
        table: TableName,
        /// Name of the feed table.
        owner: TableName,
    },
    /// The table holds state of the server.
    #[error("table {0} holds state of the server; requests cannot read or change it")]
    SystemTable(TableName),
    /// The feed table has no inboxes.
    #[error("table {0} has no members and inboxes; set `feed.inboxes` when a table is created")]
    NoInboxes(TableName),
    /// The user is not a member of the feed.
    #[error("user {user:?} is not a member of feed {feed}")]
    NoSuchMember {
        /// Name of the user.
        user: String,
        /// Id of the feed.
        feed: String,
    },
    /// A new feed exceeds a limit of the table.
    #[error("the feed was not created: {0}")]
    FeedRefused(RejectReason),
    /// The feed is being deleted.
    #[error("feed {0} is being deleted; send the request again when the deletion has ended")]
    FeedDeleting(String),
    /// A message with this id is being written.
    #[error(
        "a message with the id {0:?} is being written; send the request again to get its sequence number"
    )]
    MessageRunning(String),
    /// The table has no index of this name.
    #[error("table {table} has no index {index:?}; it has {}", index_names(.known))]
    NoSuchIndex {
        /// Name of the table.
        table: TableName,
        /// Requested name.
        index: String,
        /// Names of the indexes that exist.
        known: Vec<String>,
    },
    /// The table has another index of this name.
    #[error("table {table} has an index {index:?} already; drop it, or choose another name")]
    IndexExists {
        /// Name of the table.
        table: TableName,
        /// Name of the index.
        index: String,
    },
    /// The index is still being built.
    #[error("index {index:?} of table {table} is being built; read it when the job build_index has ended")]
    IndexNotReady {
        /// Name of the table.
        table: TableName,
        /// Name of the index.
        index: String,
    },
    /// The search index is still being built.
    #[error("search index {index:?} of table {table} is being built; search again when it is ready")]
    SearchNotReady {
        /// Name of the table.
        table: TableName,
        /// Name of the index.
        index: String,
    },
    /// The search index has not reached the requested position in time.
    #[error(
        "the search index of table {table} has not reached the position in at_least yet; search again later"
    )]
    SearchBehind {
        /// Name of the table.
        table: TableName,
    },
    /// No timeline of the table has this id.
    #[error("timeline {0} does not exist")]
    NoSuchTimeline(String),
    /// A request with this idempotency key is still running.
    #[error("a request with the same idempotency key is still running")]
    RequestRunning,
    /// The request requires the current time, but the clock is in doubt.
    #[error(
        "the clock of the server is in doubt; nothing was done: {}",
        tideline_model::reject::CLOCK_REMEDY
    )]
    ClockInDoubt,
    /// The memory account of the process has too little room for the request.
    #[error(transparent)]
    Memory(#[from] MemoryFull),
    /// The idempotency key was used before by another request.
    #[error(
        "idempotency key {0:?} was used before with another body; nothing of this request was stored. \
         Send it with a new key"
    )]
    KeyReused(String),
    /// Another request is attaching an archive.
    #[error("another request is attaching an archive; send this one again when it has ended")]
    AttachRunning,
    /// The archive to attach does not exist.
    #[error("{0}")]
    NoArchive(String),
    /// Files to attach belong to another table.
    #[error("{0}")]
    Attached(String),
    /// The rate of reads or writes that a table allows is used up.
    #[error(
        "table {table}: the limit of {rate} {what} per second of {of} is used up; repeat the request after {} s, or change \
         wide.limits",
        retry_after.as_secs() + 1
    )]
    RateLimited {
        /// The table.
        table: TableName,
        /// Kind of access: `reads` or `writes`.
        what: &'static str,
        /// Rows that the limit applies to.
        of: String,
        /// Accesses per second.
        rate: u64,
        /// Time after which the access is allowed if no other request uses the rate.
        retry_after: Duration,
    },
    /// Free space is below the watermark.
    #[error(
        "disk is nearly full: {free_bytes} bytes are free, {watermark_bytes} must be; writes resume \
         automatically when space returns"
    )]
    DiskFull {
        /// Free bytes.
        free_bytes: u64,
        /// Required free bytes.
        watermark_bytes: u64,
    },
}

impl EngineError {
    /// Returns the class of the error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Store(error) => store_kind(error),
            Self::Catalog(error) => catalog_kind(error),
            Self::Search(error) => search_kind(error),
            Self::Rows(WideError::Contended { .. }) => ErrorKind::Overloaded,
            Self::Rows(WideError::PartClosed { .. } | WideError::PartArchived(_)) => ErrorKind::Invalid,
            Self::Rows(WideError::TierNotCovered { .. }) => ErrorKind::Invalid,
            Self::Rows(WideError::NoArchive) => ErrorKind::Unavailable,
            Self::Rows(WideError::NotIndexable { .. } | WideError::NotText) => ErrorKind::Invalid,
            Self::Rows(WideError::LargeGone(_) | WideError::LargeNotArchived(_)) => ErrorKind::Gone,
            Self::Rows(_) => ErrorKind::Internal,
            Self::Invalid(_) => ErrorKind::Invalid,
            Self::Forbidden(_) | Self::SystemTable(_) | Self::Denied(_) => ErrorKind::Forbidden,
            Self::OverLimit { .. }
            | Self::TooManyTables { .. }
            | Self::TooManyObjects(_)
            | Self::SearchesFull { .. } => ErrorKind::OverLimit,
            Self::Memory(full) => match full.is_retryable() {
                true => ErrorKind::Overloaded,
                false => ErrorKind::OverLimit,
            },
            Self::OtherModel { .. } | Self::UsersTable { .. } | Self::NoInboxes(_) => ErrorKind::WrongModel,
            Self::NoUsableTable(_)
            | Self::NoSuchTimeline(_)
            | Self::NoSuchIndex { .. }
            | Self::NoSuchFeed { .. }
            | Self::NoSuchMessage { .. }
            | Self::NoSuchMember { .. } => ErrorKind::NotFound,
            Self::FeedRefused(reason) => match reason.is_retryable() {
                true => ErrorKind::Overloaded,
                false => ErrorKind::Invalid,
            },
            Self::FeedDeleting(_) | Self::MessageRunning(_) => ErrorKind::Conflict,
            Self::IndexExists { .. } => ErrorKind::Conflict,
            Self::IndexNotReady { .. } | Self::SearchNotReady { .. } | Self::SearchBehind { .. } => {
                ErrorKind::Unavailable
            }
            Self::WatchLost(_) => ErrorKind::Gone,
            Self::NoArchive(_) => ErrorKind::NotFound,
            Self::RequestRunning | Self::AttachRunning | Self::Attached(_) | Self::ModelFixed { .. } => {
                ErrorKind::Conflict
            }
            Self::KeyReused(_) => ErrorKind::KeyReused,
            Self::ClockInDoubt => ErrorKind::Unavailable,
            Self::DiskFull { .. } => ErrorKind::DiskFull,
            Self::RateLimited { .. } | Self::OverBudget(_) => ErrorKind::RateLimited,
        }
    }

    /// Returns true if repeating the same request can help.
    pub fn is_retryable(&self) -> bool {
        let kind = self.kind();
        matches!(
            kind,
            ErrorKind::Overloaded | ErrorKind::RateLimited | ErrorKind::DiskFull | ErrorKind::Unavailable
        ) || matches!(
            self,
            Self::RequestRunning | Self::AttachRunning | Self::FeedDeleting(_) | Self::MessageRunning(_)
        )
    }

    /// Returns the pause before a retry; `None` if a retry cannot help or the backend specifies no pause.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Store(StoreError::Log(LogError::Append { retry_after, .. })) => *retry_after,
            Self::Store(StoreError::Log(LogError::OpenEdit { retry_after, .. })) => Some(*retry_after),
            Self::Store(StoreError::Backend(BackendError::Unavailable { retry_after, .. })) => {
                Some(*retry_after)
            }
            Self::DiskFull { .. } => Some(Duration::from_secs(5)),
            Self::RateLimited { retry_after, .. } => Some(Duration::from_secs(retry_after.as_secs() + 1)),
            Self::OverBudget(refused) => Some(refused.retry_after),
            Self::ClockInDoubt => Some(CLOCK_WAIT),
            _ => self.is_retryable().then_some(Duration::from_secs(1)),
        }
    }

    /// Returns the limit and the actual value; `None` if the error does not contain them.
    pub fn limit(&self) -> Option<(u64, u64)> {
        match self {
            Self::OverLimit { limit, actual, .. } | Self::SearchesFull { limit, actual, .. } => {
                Some((*limit, *actual))
            }
            Self::TooManyObjects(over) => Some((over.limit, over.actual)),
            Self::Memory(full) => Some((full.limit_bytes, full.held_bytes)),
            Self::TooManyTables { limit, count } => Some((*limit as u64, *count as u64 + 1)),
            Self::Store(StoreError::Log(LogError::Overloaded { limit, actual }))
            | Self::Catalog(CatalogError::OverLimit { limit, actual, .. })
            | Self::Search(
                SearchError::OverLimit { limit, actual, .. }
                | SearchError::Condition(ConditionError::OverLimit { limit, actual, .. }),
            ) => Some((*limit as u64, *actual as u64)),
            Self::Search(SearchError::Condition(ConditionError::Pattern(error))) => error.limit(),
            _ => None,
        }
    }
}

/// Returns the names of indexes for a message.
fn index_names(names: &[String]) -> String {
    match names {
        [] => "none".to_owned(),
        names => names.join(", "),
    }
}

impl From<SearchError> for EngineError {
    fn from(error: SearchError) -> Self {
        match error {
            SearchError::Memory(full) => Self::Memory(full),
            error => Self::Search(error),
        }
    }
}

impl From<ConditionError> for EngineError {
    fn from(error: ConditionError) -> Self {
        SearchError::from(error).into()
    }
}

impl From<BackendError> for EngineError {
    fn from(error: BackendError) -> Self {
        Self::Store(StoreError::Backend(error))
    }
}

fn store_kind(error: &StoreError) -> ErrorKind {
    match error {
        StoreError::Backend(error) => backend_kind(error.kind()),
        StoreError::Log(error) => log_kind(error),
        StoreError::TimelinesRemoved => ErrorKind::Overloaded,
        StoreError::NoSuchTable(_) | StoreError::TableDropped(_) => ErrorKind::NotFound,
        StoreError::TableExists(_)
        | StoreError::SourceTagsFixed(_)
        | StoreError::DefaultTable(_)
        | StoreError::Interleaved { .. }
        | StoreError::Clash { .. }
        | StoreError::NoCommonWindow
        | StoreError::Cut { .. }
        | StoreError::SegmentGone(_)
        | StoreError::NoCopy(_)
        | StoreError::Cancelled => ErrorKind::Conflict,
        StoreError::Archive(error) if error.is_retryable() => ErrorKind::Unavailable,
        StoreError::NoArchive(_) | StoreError::OtherObjects(_) => ErrorKind::Unavailable,
        StoreError::NoTarget(_) => ErrorKind::Conflict,
        StoreError::TypeConflict(_) | StoreError::BadDelta(_) => ErrorKind::Invalid,
        StoreError::DeltaTooLarge { .. } => ErrorKind::OverLimit,
        StoreError::TableInDoubt(_) => ErrorKind::Unavailable,
        StoreError::Archive(_)
        | StoreError::Chunk { .. }
        | StoreError::Delta { .. }
        | StoreError::StoredRow { .. }
        | StoreError::Directory(_)
        | StoreError::RowsLost { .. } => ErrorKind::Internal,
    }
}

fn log_kind(error: &LogError) -> ErrorKind {
    match error {
        LogError::Backend(error) => backend_kind(error.kind()),
        LogError::Append { kind, .. } => backend_kind(*kind),
        LogError::Overloaded { .. } | LogError::Refused(Refusal::Outdated) => ErrorKind::Overloaded,
        LogError::Refused(Refusal::TableDropped(_)) => ErrorKind::NotFound,
        LogError::Recent(_) => ErrorKind::Gone,
        LogError::Refused(Refusal::TableInDoubt(_))
        | LogError::OpenEdit { .. }
        | LogError::Failed(_)
        | LogError::LeaseLost { .. }
        | LogError::LeaseExpired
        | LogError::Closed => ErrorKind::Unavailable,
        LogError::Model(_)
        | LogError::UnknownModel { .. }
        | LogError::StoredRow { .. }
        | LogError::UnfinishedCopy => ErrorKind::Internal,
    }
}

fn backend_kind(kind: tideline_backend::ErrorKind) -> ErrorKind {
    use tideline_backend::ErrorKind as Backend;
    match kind {
        Backend::Refused | Backend::Unknown | Backend::Unavailable | Backend::Timeout => {
            ErrorKind::Unavailable
        }
        Backend::TooLarge => ErrorKind::OverLimit,
        Backend::TooManyDead | Backend::Corrupt | Backend::Misconfigured => ErrorKind::Internal,
    }
}

fn catalog_kind(error: &CatalogError) -> ErrorKind {
    match error {
        CatalogError::Backend(error) => backend_kind(error.kind()),
        CatalogError::NotCommitted(error) => error.downcast_ref().map_or(ErrorKind::Internal, log_kind),
        CatalogError::UnknownTimeline(_) => ErrorKind::NotFound,
        CatalogError::OverLimit { .. } => ErrorKind::OverLimit,
        CatalogError::InvalidAttribute { .. }
        | CatalogError::MixedAttribute { .. }
        | CatalogError::InvalidSearchName(_) => ErrorKind::Invalid,
        CatalogError::SourceTagsFixed => ErrorKind::Conflict,
        _ => ErrorKind::Internal,
    }
}

fn search_kind(error: &SearchError) -> ErrorKind {
    match error {
        SearchError::OverLimit { .. } => ErrorKind::OverLimit,
        SearchError::Memory(_) => ErrorKind::Overloaded,
        SearchError::Stopped => ErrorKind::Conflict,
        SearchError::Condition(error) => condition_kind(error),
        SearchError::Uncounted(_)
        | SearchError::DamagedToken
        | SearchError::ForeignToken
        | SearchError::EmptyFacet
        | SearchError::EmptyPage => ErrorKind::Invalid,
        SearchError::Closed => ErrorKind::Unavailable,
        SearchError::Folder { .. }
        | SearchError::Thread(_)
        | SearchError::Rows(_)
        | SearchError::Commit(_) => ErrorKind::Internal,
    }
}

fn condition_kind(error: &ConditionError) -> ErrorKind {
    match error {
        ConditionError::OverLimit { .. } => ErrorKind::OverLimit,
        ConditionError::Pattern(error) if error.limit().is_some() => ErrorKind::OverLimit,
        ConditionError::Memory(_) => ErrorKind::Overloaded,
        ConditionError::Stopped => ErrorKind::Conflict,
        ConditionError::Pattern(_)
        | ConditionError::Unsupported { .. }
        | ConditionError::Values { .. }
        | ConditionError::InvalidId(_)
        | ConditionError::NoWords
        | ConditionError::List
        | ConditionError::InvalidArea(_)
        | ConditionError::Saved(_)
        | ConditionError::RelativeTime => ErrorKind::Invalid,
    }
}

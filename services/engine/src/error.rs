//! What can go wrong, sorted by what a caller does next. Each protocol has one table from kind to status.

use std::time::Duration;

use tideline_backend::BackendError;
use tideline_condition::ConditionError;
use tideline_model::{TableModel, TableName};
use tideline_runtime::MemoryFull;
use tideline_search_index::SearchError;
use tideline_series_store::{LogError, Refusal, StoreError, TailError};
use tideline_timeline_catalog::CatalogError;

/// Pause before a request that waits for the clock is sent again: the clock is mended by hand or by its time server.
pub const CLOCK_WAIT: Duration = Duration::from_secs(30);

/// The result of an engine call.
pub type Result<T> = std::result::Result<T, EngineError>;

/// What a caller does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The request cannot be right: mend it.
    Invalid,
    /// The operator does not allow it: ask for another one, or have the setting changed.
    Forbidden,
    /// A stated limit was passed: make it smaller.
    OverLimit,
    /// What is named does not exist.
    NotFound,
    /// It was there, and is not kept any more.
    Gone,
    /// The model of a table does not fit: use a table of the other model, or a server that serves it.
    WrongModel,
    /// It contradicts what is there: a taken name, a fixed setting, the same request still running.
    Conflict,
    /// The idempotency key belongs to another request: choose a new one.
    KeyReused,
    /// Too much at once. Nothing was done; send it again later.
    Overloaded,
    /// The disk is (nearly) full. Nothing was done; send it again later.
    DiskFull,
    /// Promises cannot be kept just now. The outcome of a write is unknown; sending it again is safe.
    Unavailable,
    /// Stored data is damaged, or a bug. Report it.
    Internal,
}

/// A failed engine call.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The catalog failed.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// The index failed.
    #[error(transparent)]
    Search(SearchError),
    /// The request cannot be right.
    #[error("{0}")]
    Invalid(String),
    /// The operator does not allow it.
    #[error("{0}")]
    Forbidden(String),
    /// A limit of a request.
    #[error("{what} of {actual} is over the limit of {limit}")]
    OverLimit {
        /// What is too large.
        what: &'static str,
        /// The limit.
        limit: u64,
        /// Its size.
        actual: u64,
    },
    /// There are as many tables as may be.
    #[error(
        "there are {count} tables, and tables.count_max allows {limit}; drop a table or raise the limit: what differs by a tag \
         fits into one table"
    )]
    TooManyTables {
        /// The limit.
        limit: usize,
        /// Tables that there are.
        count: usize,
    },
    /// This build has no store for tables of a model.
    #[error("table {table}: this server does not serve the model {model}; it serves: {}", names(.served))]
    ModelNotServed {
        /// Name of the table.
        table: TableName,
        /// Its model.
        model: TableModel,
        /// Models that are served.
        served: &'static [TableModel],
    },
    /// A request for tables of one model names a table of another.
    #[error("table {table} has the model {model}; this request is for tables of the model {needed}")]
    OtherModel {
        /// Name of the table.
        table: TableName,
        /// Its model.
        model: TableModel,
        /// Model that the request is for.
        needed: TableModel,
    },
    /// The model of a table is fixed when it is created.
    #[error("table {table} has the model {model}, which cannot be changed to {wanted}; create another table")]
    ModelFixed {
        /// Name of the table.
        table: TableName,
        /// Its model.
        model: TableModel,
        /// Model that was asked for.
        wanted: TableModel,
    },
    /// What followed a watcher's cursor cannot be told.
    #[error("{0}: query what you need from the time of the last event on, and watch without a cursor")]
    WatchLost(TailError),
    /// No timeline of the table has this id.
    #[error("timeline {0} does not exist")]
    NoSuchTimeline(String),
    /// A request with this idempotency key is still running.
    #[error("a request with the same idempotency key is still running")]
    RequestRunning,
    /// The request needs to know what time it is.
    #[error(
        "the clock of the server is in doubt; nothing was done: {}",
        tideline_model::reject::CLOCK_REMEDY
    )]
    ClockInDoubt,
    /// The memory account of the process has no room for what the request needs.
    #[error(transparent)]
    Memory(#[from] MemoryFull),
    /// An idempotency key was used before, for another request.
    #[error(
        "idempotency key {0:?} was used before with another body; nothing of this one is stored: send it with a key of its own"
    )]
    KeyReused(String),
    /// Another request attaches an archive.
    #[error("an archive is being attached by another request; send this one again when that has ended")]
    AttachRunning,
    /// What is to be attached is not there.
    #[error("{0}")]
    NoArchive(String),
    /// Files that are to be attached are another table's.
    #[error("{0}")]
    Attached(String),
    /// Free space is below the watermark.
    #[error(
        "disk is nearly full: {free_bytes} bytes are free, {watermark_bytes} must be; writes resume by themselves when space returns"
    )]
    DiskFull {
        /// Bytes free.
        free_bytes: u64,
        /// Bytes that must be free.
        watermark_bytes: u64,
    },
}

impl EngineError {
    /// What the caller does next.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Store(error) => store_kind(error),
            Self::Catalog(error) => catalog_kind(error),
            Self::Search(error) => search_kind(error),
            Self::Invalid(_) => ErrorKind::Invalid,
            Self::Forbidden(_) => ErrorKind::Forbidden,
            Self::OverLimit { .. } | Self::TooManyTables { .. } => ErrorKind::OverLimit,
            Self::Memory(full) => match full.is_retryable() {
                true => ErrorKind::Overloaded,
                false => ErrorKind::OverLimit,
            },
            Self::ModelNotServed { .. } | Self::OtherModel { .. } => ErrorKind::WrongModel,
            Self::NoSuchTimeline(_) => ErrorKind::NotFound,
            Self::WatchLost(_) => ErrorKind::Gone,
            Self::NoArchive(_) => ErrorKind::NotFound,
            Self::RequestRunning | Self::AttachRunning | Self::Attached(_) | Self::ModelFixed { .. } => {
                ErrorKind::Conflict
            }
            Self::KeyReused(_) => ErrorKind::KeyReused,
            Self::ClockInDoubt => ErrorKind::Unavailable,
            Self::DiskFull { .. } => ErrorKind::DiskFull,
        }
    }

    /// Whether sending the same again can help.
    pub fn is_retryable(&self) -> bool {
        let kind = self.kind();
        matches!(
            kind,
            ErrorKind::Overloaded | ErrorKind::DiskFull | ErrorKind::Unavailable
        ) || matches!(self, Self::RequestRunning | Self::AttachRunning)
    }

    /// When to send it again, where that is known.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Store(StoreError::Log(LogError::Append { retry_after, .. })) => *retry_after,
            Self::Store(StoreError::Log(LogError::OpenEdit { retry_after, .. })) => Some(*retry_after),
            Self::Store(StoreError::Backend(BackendError::Unavailable { retry_after, .. })) => {
                Some(*retry_after)
            }
            Self::DiskFull { .. } => Some(Duration::from_secs(5)),
            Self::ClockInDoubt => Some(CLOCK_WAIT),
            _ => self.is_retryable().then_some(Duration::from_secs(1)),
        }
    }

    /// The limit that was passed, and by what.
    pub fn limit(&self) -> Option<(u64, u64)> {
        match self {
            Self::OverLimit { limit, actual, .. } => Some((*limit, *actual)),
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

/// Names of models, separated by commas.
fn names(models: &[TableModel]) -> String {
    let names: Vec<&str> = models.iter().map(|model| model.name()).collect();
    names.join(", ")
}

impl From<SearchError> for EngineError {
    fn from(error: SearchError) -> Self {
        match error {
            SearchError::Memory(full) => Self::Memory(full),
            error => Self::Search(error),
        }
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
        StoreError::NoArchive(_) => ErrorKind::Unavailable,
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
        LogError::Refused(Refusal::TableInDoubt(_))
        | LogError::OpenEdit { .. }
        | LogError::Failed(_)
        | LogError::LeaseLost { .. }
        | LogError::LeaseExpired
        | LogError::Closed => ErrorKind::Unavailable,
        LogError::Model(_) | LogError::UnknownModel { .. } | LogError::StoredRow { .. } => {
            ErrorKind::Internal
        }
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
        CatalogError::Log(error) => log_kind(error),
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
        SearchError::Folder { .. } | SearchError::Thread(_) | SearchError::Commit(_) => ErrorKind::Internal,
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

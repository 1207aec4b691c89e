//! Errors of the log.
//!
//! Callers use [`LogError::is_retryable`] and [`LogError::is_not_written`] to decide whether to repeat a write.

use std::time::Duration;

use tideline_backend::{BackendError, ErrorKind};
use tideline_model::ModelTag;
use tideline_runtime::ThreadFailure;

use crate::entry::{ModelError, Refusal};
use crate::recent_entries::RecentError;

/// Result type of this crate.
pub type Result<T> = std::result::Result<T, LogError>;

/// Failure of a call of the log.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The backend failed. Its [`ErrorKind`] determines the reaction of the caller.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// The append of the entry's group, or the manifest edit before the append, failed. Also returned if a flush failed
    /// while the caller waited for it.
    #[error("write not acknowledged: {reason}")]
    Append {
        /// Kind of the failure, which determines the reaction of the caller.
        kind: ErrorKind,
        /// Message of the failure.
        reason: String,
        /// Delay before a retry, if the backend reports one.
        retry_after: Option<Duration>,
    },
    /// The waiting entries exceed the budget. Nothing was written.
    #[error("overloaded: {actual} bytes wait to be written, over the limit of {limit}")]
    Overloaded {
        /// Budget in bytes.
        limit: usize,
        /// Bytes of the waiting entries, including the refused one.
        actual: usize,
    },
    /// The entry was refused and not written.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The entry is in the journal, but its model could not apply all of it. Also returned if a model fails in another
    /// call of the log.
    #[error("{0}")]
    Model(ModelError),
    /// A journal entry has the tag of a model that this build does not support.
    #[error(
        "journal entry {sequence} belongs to model {model}, which this build does not support: start the build that wrote it"
    )]
    UnknownModel {
        /// Sequence of the entry.
        sequence: u64,
        /// Model of the entry.
        model: ModelTag,
    },
    /// An earlier edit of the manifest, such as one that creates or drops a table, has an unknown outcome.
    #[error(
        "it is not known yet whether an earlier change of tables was made ({reason}), and the manifest cannot be read: {cause}"
    )]
    OpenEdit {
        /// Error of that edit.
        reason: String,
        /// Error of the read that should have resolved the outcome.
        cause: String,
        /// Delay before a retry.
        retry_after: Duration,
    },
    /// A stored row or journal entry cannot be read.
    #[error("stored {what} cannot be read: {reason}")]
    StoredRow {
        /// Kind of the row.
        what: &'static str,
        /// Description of the damage.
        reason: String,
    },
    /// The shard has a newer owner. This process no longer serves reads or writes of the shard.
    #[error("this process does not serve the data any more: {reason}")]
    LeaseLost {
        /// Evidence of the newer owner, such as the message of the backend.
        reason: String,
    },
    /// The lease has expired and is not renewed yet: another process may own the shard.
    #[error("the lease of the data has expired; reads and writes resume when it is renewed")]
    LeaseExpired,
    /// A thread of the database has panicked. The outcome of a write is unknown; the write may be repeated after a
    /// restart.
    #[error("{0}; the process has to be restarted, and recovers everything acknowledged")]
    Failed(ThreadFailure),
    /// The entries of a position in the journal do not exist.
    #[error(transparent)]
    Recent(RecentError),
    /// The database is the target of a copy that has not ended.
    #[error(
        "the database is an unfinished copy: run `tideline backend copy` again to finish it, or empty the target"
    )]
    UnfinishedCopy,
    /// The log is closed.
    #[error("the store is closed")]
    Closed,
}

impl LogError {
    /// Returns true if the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Backend(error) => error.kind().is_retryable(),
            Self::Append { kind, .. } => kind.is_retryable(),
            Self::Overloaded { .. }
            | Self::Failed(_)
            | Self::LeaseExpired
            | Self::OpenEdit { .. }
            | Self::Refused(Refusal::TableInDoubt(_) | Refusal::Outdated) => true,
            _ => false,
        }
    }

    /// Returns true if it is certain that the entry is not in the journal and never will be.
    pub fn is_not_written(&self) -> bool {
        matches!(
            self,
            Self::Overloaded { .. } | Self::Refused(_) | Self::Backend(BackendError::TooLarge { .. })
        )
    }

    /// Returns the error for each writer of a group whose append failed.
    pub(crate) fn for_writer(&self) -> Self {
        match self {
            Self::Backend(error) => Self::of_append(error),
            Self::OpenEdit { retry_after, .. } => Self::Append {
                kind: ErrorKind::Unavailable,
                reason: self.to_string(),
                retry_after: Some(*retry_after),
            },
            Self::LeaseExpired => Self::LeaseExpired,
            Self::LeaseLost { reason } => Self::LeaseLost {
                reason: reason.clone(),
            },
            _ => Self::Closed,
        }
    }

    /// Converts the error of a failed append.
    pub(crate) fn of_append(error: &BackendError) -> Self {
        let retry_after = match error {
            BackendError::Unavailable { retry_after, .. } => Some(*retry_after),
            _ => None,
        };
        Self::Append {
            kind: error.kind(),
            reason: error.to_string(),
            retry_after,
        }
    }

    /// Builds the error of a caller that waits for a failed flush.
    pub(crate) fn of_flush(reason: &str) -> Self {
        Self::Append {
            kind: ErrorKind::Unavailable,
            reason: format!("seal failed: {reason}"),
            retry_after: None,
        }
    }
}

//! The errors of the log.

use std::time::Duration;

use tideline_backend::{BackendError, ErrorKind};
use tideline_runtime::ThreadFailure;

use crate::entry::{ModelError, ModelTag, Refusal};

/// The result of a call of the log.
pub type Result<T> = std::result::Result<T, LogError>;

/// A failed call of the log.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The backend failed; its kind says what to do.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// An entry was appended with others and the backend failed.
    #[error("write not acknowledged: {reason}")]
    Append {
        /// What the caller does next.
        kind: ErrorKind,
        /// The backend's words.
        reason: String,
        /// When to try again, where the backend says.
        retry_after: Option<Duration>,
    },
    /// More is waiting than the budget holds. Nothing was written.
    #[error("overloaded: {actual} bytes wait to be written, over the limit of {limit}")]
    Overloaded {
        /// The budget.
        limit: usize,
        /// Bytes that wait.
        actual: usize,
    },
    /// The entry was not written.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The entry is in the journal and its model could not apply all of it; or a model failed in work that the log does.
    #[error("{0}")]
    Model(ModelError),
    /// An entry of the journal belongs to a model that this build does not have.
    #[error(
        "journal entry {sequence} is of the model {model}, which this build does not know: start the build that wrote it"
    )]
    UnknownModel {
        /// Its place.
        sequence: u64,
        /// Its model.
        model: ModelTag,
    },
    /// It is not known whether an earlier edit of the manifest was made, such as one that makes or drops a table.
    #[error(
        "it is not known yet whether an earlier change of tables was made ({reason}), and the manifest cannot be read: {cause}"
    )]
    OpenEdit {
        /// Why the backend could not say.
        reason: String,
        /// Why it cannot be found out now.
        cause: String,
        /// When to try again.
        retry_after: Duration,
    },
    /// A stored row cannot be read.
    #[error("stored {what} cannot be read: {reason}")]
    StoredRow {
        /// Its kind.
        what: &'static str,
        /// Why.
        reason: String,
    },
    /// The shard has a newer owner. This process answers neither reads nor writes of it any more.
    #[error("this process does not serve the data any more: {reason}")]
    LeaseLost {
        /// What the backend said.
        reason: String,
    },
    /// The lease has run out and is not renewed yet: another process may own the shard.
    #[error("the lease of the data has run out; reads and writes go on when it is renewed")]
    LeaseExpired,
    /// A thread of the log has panicked. The outcome of a write is unknown; it may be sent again after the restart.
    #[error("{0}; the process has to be restarted, and recovers everything acknowledged")]
    Failed(ThreadFailure),
    /// The log is closed, or another process owns its shard.
    #[error("the store is closed")]
    Closed,
}

impl LogError {
    /// Whether sending the same again can help.
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

    /// Whether it is certain that the entry is not in the journal and never will be.
    pub fn is_not_written(&self) -> bool {
        matches!(self, Self::Overloaded { .. } | Self::Refused(_))
    }

    /// The same failure for each writer of a group: nothing of it is known to be appended.
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

    /// A failed append.
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

    /// Waiting for a flush that fails.
    pub(crate) fn of_flush(reason: &str) -> Self {
        Self::Append {
            kind: ErrorKind::Unavailable,
            reason: format!("seal failed: {reason}"),
            retry_after: None,
        }
    }
}

//! Errors of a backend, classified by the reaction of the caller.
//!
//! Each kind determines whether a call may be repeated, and how. Errors with the same reaction share a kind.

use std::time::Duration;

/// Result of a backend call.
pub type Result<T> = std::result::Result<T, BackendError>;

/// Classification of errors by the reaction of the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// A fence or condition was violated. Final for this owner.
    Refused,
    /// The effect may or may not happen, now or later: read the state, or repeat with the same stamp.
    Unknown,
    /// Nothing was done, or repeating the write is safe: retry after a pause.
    Unavailable,
    /// A plain write or a read took too long: repeat it.
    Timeout,
    /// A size limit was exceeded. Final.
    TooLarge,
    /// The read encountered too many deleted rows. Final; raise an alarm.
    TooManyDead,
    /// Stored bytes differ from those written. Final; raise an alarm.
    Corrupt,
    /// Wrong settings, permissions or version. Final until an operator intervenes.
    Misconfigured,
}

impl ErrorKind {
    /// Returns true if repeating the call can succeed.
    pub const fn is_retryable(self) -> bool {
        matches!(self, Self::Unknown | Self::Unavailable | Self::Timeout)
    }
}

/// Error of a backend call.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// See [`ErrorKind::Refused`].
    #[error("refused: {reason}")]
    Refused {
        /// Violated fence or condition.
        reason: String,
    },
    /// See [`ErrorKind::Unknown`].
    #[error("outcome unknown: {reason}")]
    Unknown {
        /// Cause of the unknown outcome.
        reason: String,
    },
    /// See [`ErrorKind::Unavailable`].
    #[error("unavailable: {reason}")]
    Unavailable {
        /// Cause, such as a full disk.
        reason: String,
        /// Time to wait before a retry.
        retry_after: Duration,
    },
    /// See [`ErrorKind::Timeout`].
    #[error("timed out after {after:?}")]
    Timeout {
        /// Duration of the wait.
        after: Duration,
    },
    /// See [`ErrorKind::TooLarge`].
    #[error("{what} of {actual} is over the limit of {limit}")]
    TooLarge {
        /// Name of the limited size.
        what: &'static str,
        /// Maximum of this size.
        limit: usize,
        /// Actual size.
        actual: usize,
    },
    /// See [`ErrorKind::TooManyDead`].
    #[error("too many deleted rows in the way: {reason}")]
    TooManyDead {
        /// Location of the deleted rows.
        reason: String,
    },
    /// See [`ErrorKind::Corrupt`].
    #[error("stored data is damaged: {reason}")]
    Corrupt {
        /// Damaged file or key, and kind of damage.
        reason: String,
    },
    /// See [`ErrorKind::Misconfigured`].
    #[error("misconfigured: {reason}")]
    Misconfigured {
        /// Problem, and the required change if it is known.
        reason: String,
    },
}

impl BackendError {
    /// Returns the classification of this error.
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Refused { .. } => ErrorKind::Refused,
            Self::Unknown { .. } => ErrorKind::Unknown,
            Self::Unavailable { .. } => ErrorKind::Unavailable,
            Self::Timeout { .. } => ErrorKind::Timeout,
            Self::TooLarge { .. } => ErrorKind::TooLarge,
            Self::TooManyDead { .. } => ErrorKind::TooManyDead,
            Self::Corrupt { .. } => ErrorKind::Corrupt,
            Self::Misconfigured { .. } => ErrorKind::Misconfigured,
        }
    }

    /// Creates an error for damaged stored data.
    pub fn corrupt(reason: impl Into<String>) -> Self {
        Self::Corrupt {
            reason: reason.into(),
        }
    }
}

//! What can go wrong in a backend, sorted by what the caller does next.

use std::time::Duration;

/// The result of a backend call.
pub type Result<T> = std::result::Result<T, BackendError>;

/// What the caller does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// A fence or condition said no. Final for this owner.
    Refused,
    /// It may have happened or not, now or later: find out, or repeat with the same stamp.
    Unknown,
    /// Nothing was done, or the same write may be repeated, after a pause.
    Unavailable,
    /// A plain write or a read took too long: repeat the same.
    Timeout,
    /// A size limit. Final.
    TooLarge,
    /// The read passed too many deleted rows. Final, and an alarm.
    TooManyDead,
    /// Stored bytes are not what was written. Final, and an alarm.
    Corrupt,
    /// Wrong settings, rights or version. Final until an operator acts.
    Misconfigured,
}

impl ErrorKind {
    /// Whether sending the same again can help.
    pub const fn is_retryable(self) -> bool {
        matches!(self, Self::Unknown | Self::Unavailable | Self::Timeout)
    }
}

/// A failed backend call.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// See [`ErrorKind::Refused`].
    #[error("refused: {reason}")]
    Refused {
        /// Which fence or condition.
        reason: String,
    },
    /// See [`ErrorKind::Unknown`].
    #[error("outcome unknown: {reason}")]
    Unknown {
        /// What happened.
        reason: String,
    },
    /// See [`ErrorKind::Unavailable`].
    #[error("unavailable: {reason}")]
    Unavailable {
        /// Why, such as a full disk.
        reason: String,
        /// When to try again.
        retry_after: Duration,
    },
    /// See [`ErrorKind::Timeout`].
    #[error("timed out after {after:?}")]
    Timeout {
        /// How long was waited.
        after: Duration,
    },
    /// See [`ErrorKind::TooLarge`].
    #[error("{what} of {actual} is over the limit of {limit}")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// The limit.
        limit: usize,
        /// Its size.
        actual: usize,
    },
    /// See [`ErrorKind::TooManyDead`].
    #[error("too many deleted rows in the way: {reason}")]
    TooManyDead {
        /// Where.
        reason: String,
    },
    /// See [`ErrorKind::Corrupt`].
    #[error("stored data is damaged: {reason}")]
    Corrupt {
        /// Which file or key, and how.
        reason: String,
    },
    /// See [`ErrorKind::Misconfigured`].
    #[error("misconfigured: {reason}")]
    Misconfigured {
        /// What to change.
        reason: String,
    },
}

impl BackendError {
    /// What the caller does next.
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

    /// A damaged stored form.
    pub fn corrupt(reason: impl Into<String>) -> Self {
        Self::Corrupt {
            reason: reason.into(),
        }
    }
}

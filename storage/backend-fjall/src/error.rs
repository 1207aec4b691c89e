//! Turns the errors of fjall and of the file system into the kinds that the caller acts on.

use std::io;
use std::path::Path;
use std::time::Duration;

use tideline_backend::BackendError;

/// When to try again after a failure that heals by itself.
pub(crate) const RETRY_AFTER: Duration = Duration::from_secs(1);

/// What was being done when an error came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum During {
    /// Nothing has changed.
    Read,
    /// The change may have happened.
    Write,
}

/// The kind of a fjall error.
pub(crate) fn from_fjall(error: fjall::Error, during: During) -> BackendError {
    match error {
        fjall::Error::Io(error) | fjall::Error::Storage(fjall::LsmError::Io(error)) => {
            from_io(&error, "the store", during)
        }
        fjall::Error::Poisoned => unavailable("the store is poisoned and about to be reopened"),
        fjall::Error::Locked => BackendError::Misconfigured {
            reason: "the store is locked by another process".to_owned(),
        },
        fjall::Error::InvalidVersion(version) => BackendError::Misconfigured {
            reason: format!("the store has format {version:?}, which this build cannot read"),
        },
        fjall::Error::KeyspaceDeleted => BackendError::Refused {
            reason: "the group has been dropped".to_owned(),
        },
        other if during == During::Write => BackendError::Unknown {
            reason: other.to_string(),
        },
        other => BackendError::corrupt(other.to_string()),
    }
}

/// The kind of a file system error.
pub(crate) fn from_io(error: &io::Error, what: &str, during: During) -> BackendError {
    let reason = format!("{what}: {error}");
    match (during, error.kind()) {
        (During::Write, _) => BackendError::Unknown { reason },
        // fjall seeks by numbers that it reads: in a file that is too short they are invalid arguments.
        (
            During::Read,
            io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput,
        ) => BackendError::corrupt(reason),
        (
            During::Read,
            io::ErrorKind::PermissionDenied
            | io::ErrorKind::NotFound
            | io::ErrorKind::NotADirectory
            | io::ErrorKind::ReadOnlyFilesystem,
        ) => BackendError::Misconfigured { reason },
        (During::Read, _) => unavailable(reason),
    }
}

/// The kind of a file system error at a path, where nothing has changed.
pub(crate) fn at(path: &Path) -> impl Fn(io::Error) -> BackendError + '_ {
    move |error| from_io(&error, &path.display().to_string(), During::Read)
}

/// A failure that heals by itself.
pub(crate) fn unavailable(reason: impl Into<String>) -> BackendError {
    BackendError::Unavailable {
        reason: reason.into(),
        retry_after: RETRY_AFTER,
    }
}

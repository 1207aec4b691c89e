//! Conversion of errors of fjall and of the file system to the error kinds that callers react to.

use std::io;
use std::path::Path;
use std::time::Duration;

use tideline_backend::BackendError;

/// Delay before a retry after a failure that is repaired automatically.
pub(crate) const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Operation during which an error occurred.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum During {
    /// A read. After a failure, the data is unchanged.
    Read,
    /// A write. After a failure, the data may have changed.
    Write,
}

/// Converts a fjall error.
pub(crate) fn from_fjall(error: fjall::Error, during: During) -> BackendError {
    match error {
        fjall::Error::Io(error) | fjall::Error::Storage(fjall::LsmError::Io(error)) => {
            from_io(&error, "the store", during)
        }
        fjall::Error::Poisoned => unavailable("the store failed and will be reopened"),
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

/// Converts a file system error. `what` names the object in the message.
pub(crate) fn from_io(error: &io::Error, what: &str, during: During) -> BackendError {
    let reason = format!("{what}: {error}");
    match (during, error.kind()) {
        (During::Write, _) => BackendError::Unknown { reason },
        // fjall seeks to offsets that it reads from files. In a file that is too short, such offsets are invalid
        // arguments.
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

/// Returns a converter for file system errors at a path. The errors are converted as errors of reads: a failed
/// operation has changed nothing.
pub(crate) fn at(path: &Path) -> impl Fn(io::Error) -> BackendError + '_ {
    move |error| from_io(&error, &path.display().to_string(), During::Read)
}

/// Returns the error of a failure that is repaired automatically.
pub(crate) fn unavailable(reason: impl Into<String>) -> BackendError {
    BackendError::Unavailable {
        reason: reason.into(),
        retry_after: RETRY_AFTER,
    }
}

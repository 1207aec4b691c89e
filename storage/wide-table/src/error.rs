//! Errors of wide tables, with one variant for each way in which a caller can react.
//!
//! Reasons why a single row is refused are not errors: they are part of the outcome of a write.

use tideline_archive::ArchiveError;
use tideline_backend::BackendError;
use tideline_log::LogError;
use tideline_model::{TableId, Timestamp};

/// Reason why stored bytes cannot be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Damage(pub &'static str);

/// Result type of this crate.
pub type Result<T> = std::result::Result<T, WideError>;

/// Failure of an operation on a wide table.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WideError {
    /// The table does not exist, or was dropped during the operation.
    #[error("table {0} does not exist")]
    NoTable(TableId),
    /// A request exceeds a limit.
    #[error("{what} exceeds the limit: {actual} of at most {limit}")]
    TooLarge {
        /// Limited quantity.
        what: &'static str,
        /// The limit.
        limit: u64,
        /// The value in the request.
        actual: u64,
    },
    /// The rows were changed by other writes during every attempt.
    #[error("the rows were changed by other writes during {attempts} attempts; send the write again")]
    Contended {
        /// Number of attempts.
        attempts: u32,
    },
    /// The clock has reached the latest timestamp, so the server can assign no further version.
    #[error(
        "the clock of the server is at the end of the supported time, so no row can be written; correct the clock"
    )]
    NoVersions,
    /// A row cannot have an entry in an index that is being built.
    #[error("{reason}; change the row, or drop the index")]
    NotIndexable {
        /// Table of the row.
        table: TableId,
        /// Reason, with the name of the index.
        reason: String,
    },
    /// A delete of a range reaches a part that is too old for writes.
    #[error(
        "the delete reaches into parts before {before}, which are closed for writes; limit its range to later times"
    )]
    PartClosed {
        /// The table.
        table: TableId,
        /// Start of the first part whose rows can be written.
        before: Timestamp,
    },
    /// A delete of a range reaches a part that is in the archive or is being archived.
    #[error("the delete reaches into parts in the archive; restore them first, or limit its range")]
    PartArchived(TableId),
    /// A read of an index concerns parts in a tier that the index does not cover.
    #[error(
        "index {index:?} covers only the tier {covered}, and the read reaches into parts of the tier {missing}; give \
         `tier` {covered:?}, limit the time to parts of this tier, or use another index"
    )]
    TierNotCovered {
        /// Name of the index.
        index: String,
        /// Tier that the index covers.
        covered: &'static str,
        /// Tier of the parts that have no entries in the index.
        missing: &'static str,
    },
    /// The archive is switched off.
    #[error("the archive is switched off, so rows in it can be neither read nor written")]
    NoArchive,
    /// An archive file could not be read or written.
    #[error(transparent)]
    Archive(Box<ArchiveError>),
    /// A text value is not UTF-8.
    #[error("the value is not UTF-8 text; send text, or use a column of the type binary")]
    NotText,
    /// The table, or the part with the pieces of a large value, was dropped.
    #[error("the table or the part of the row was dropped meanwhile")]
    LargeGone(TableId),
    /// The row was attached from an archive, which does not contain streamed large values.
    #[error(
        "the value was not in the archive from which its row was attached: this archive does not contain streamed values; \
         read it from the database that archived the row, or write it again"
    )]
    LargeNotArchived(TableId),
    /// A row references a large value whose pieces do not exist.
    #[error("the pieces of a large value of table {0} are missing; run `tideline check`")]
    LargeMissing(TableId),
    /// The caller ended the operation before it was complete.
    #[error("the operation was ended before it was complete")]
    Stopped,
    /// Stored bytes are damaged.
    #[error("a stored row of table {table} is damaged: {reason}")]
    Damaged {
        /// Table of the row.
        table: TableId,
        /// Reason why the row cannot be decoded.
        reason: Damage,
    },
    /// The stored settings of the table are damaged.
    #[error("the settings of table {table} are damaged: {reason}")]
    Settings {
        /// The table.
        table: TableId,
        /// Reason why they cannot be used.
        reason: String,
    },
    /// The log failed or refused the operation.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The backend failed.
    #[error(transparent)]
    Backend(#[from] BackendError),
}

impl From<ArchiveError> for WideError {
    fn from(error: ArchiveError) -> Self {
        Self::Archive(Box::new(error))
    }
}

//! What can go wrong in the series store.

use tideline_archive::ArchiveError;
use tideline_backend::BackendError;
use tideline_chunk::{ChunkError, DeltaError};
use tideline_log::{LogError, Refusal};
use tideline_model::{SegmentId, TableId, TableName, TimeRange, TimelineId, Timestamp, TypeConflict};

/// The result of a store call.
pub type Result<T> = std::result::Result<T, StoreError>;

/// A failed store call.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The backend failed; its kind says what to do.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// The log failed: it was not written, or its outcome is unknown.
    #[error(transparent)]
    Log(LogError),
    /// The archive failed; its kind says whether it may work later.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// There are archived points, and no archive to read them from.
    #[error("the archive is switched off, and segment {0} is in it")]
    NoArchive(SegmentId),
    /// A table's policy does not say where its archive is.
    #[error("the policy of table {0} names no archive target")]
    NoTarget(TableName),
    /// No such table.
    #[error("table {0} does not exist")]
    NoSuchTable(String),
    /// The table was dropped while the call ran.
    #[error("table {0} was dropped")]
    TableDropped(TableId),
    /// A table may have been dropped. Nothing was written.
    #[error("it is not known yet whether table {0} was dropped; the write was not done")]
    TableInDoubt(TableName),
    /// The name is taken.
    #[error("table {0} exists")]
    TableExists(TableName),
    /// Source tags are part of every timeline id.
    #[error("source_tags of table {0} are fixed since its first write")]
    SourceTagsFixed(TableName),
    /// The default table is always there.
    #[error("table {0} cannot be dropped")]
    DefaultTable(TableName),
    /// Numbers, text and booleans do not mix in one field.
    #[error(transparent)]
    TypeConflict(#[from] TypeConflict),
    /// A stored chunk is damaged.
    #[error("chunk of timeline {timeline} is damaged: {cause}")]
    Chunk {
        /// Whose chunk.
        timeline: String,
        /// How.
        cause: ChunkError,
    },
    /// A journal entry is damaged.
    #[error("journal entry {sequence} is damaged: {cause}")]
    Delta {
        /// Which entry.
        sequence: u64,
        /// How.
        cause: DeltaError,
    },
    /// A delta breaks the rules or limits of its format.
    #[error("write refused: {0}")]
    BadDelta(DeltaError),
    /// A stored manifest or schema row cannot be read.
    #[error("stored {what} cannot be read: {reason}")]
    StoredRow {
        /// What it describes.
        what: &'static str,
        /// Why.
        reason: String,
    },
    /// Segments need rows of the catalog or the schema that are not there.
    #[error(
        "table {table} has {found} of at least {expected} {what} that its segments were written with: rows of its {place} are          lost. Restore a backup of the data folder, or start once with storage.accept_loss = true to go on without them"
    )]
    RowsLost {
        /// The table.
        table: TableName,
        /// The counted rows.
        what: &'static str,
        /// Where the rows should be.
        place: &'static str,
        /// How many there are.
        found: u64,
        /// How many there were.
        expected: u64,
    },
    /// The directory of timelines refused what a replayed delta says.
    #[error("timelines of a replayed journal entry were refused: {0}")]
    Directory(String),
    /// Only one cold segment without deleted points is written into files and stays.
    #[error("segment {0} has changed, and cannot stay beside its files as it is")]
    NoCopy(SegmentId),
    /// Another segment between the oldest and the newest of a rewrite would change places with it.
    #[error("segment {segment} was written between those that are to be rewritten")]
    Interleaved {
        /// The one between.
        segment: SegmentId,
    },
    /// A cut does not fall on a bound of days inside the window of its segments.
    #[error("segments of {} to {} cannot be cut at {}: it is not the start of a day window among them",
        Timestamp::from_nanos_clamped(.around.start), Timestamp::from_nanos_clamped(.around.end),
        Timestamp::from_nanos_clamped(*.at))]
    Cut {
        /// The instant, nanoseconds since the epoch.
        at: i64,
        /// The window that holds the segments.
        around: TimeRange,
    },
    /// What is to be attached would change places with what the table has.
    #[error(
        "table {table} has points of the same times that others wrote or that were written here before (segment {segment}): \
         attach it as a table of its own"
    )]
    Clash {
        /// The table.
        table: TableName,
        /// What it has.
        segment: SegmentId,
    },
    /// Points before and after the epoch are never in one segment.
    #[error("the segments have no window in common")]
    NoCommonWindow,
    /// Somebody else has moved or dropped it, or is about to.
    #[error("segment {0} is gone or being moved")]
    SegmentGone(SegmentId),
    /// The caller of a rewrite has given it up.
    #[error("cancelled")]
    Cancelled,
    /// A timeline that a write takes for known was removed meanwhile. Nothing was written; name its timelines anew.
    #[error("timelines were removed while the write was on its way")]
    TimelinesRemoved,
    /// A write takes more than an entry of the journal holds. Nothing was written; commit its parts one after another.
    #[error("the write of {bytes} bytes is too large for one entry of the journal (limit {limit} bytes)",
        limit = tideline_backend::VALUE_BYTES_MAX)]
    DeltaTooLarge {
        /// Its encoded size.
        bytes: usize,
    },
}

impl StoreError {
    /// Damage of a timeline's chunk.
    pub(crate) fn chunk(timeline: TimelineId, cause: ChunkError) -> Self {
        Self::Chunk {
            timeline: timeline.to_string(),
            cause,
        }
    }

    /// Whether sending the same again can help.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Backend(error) => error.kind().is_retryable(),
            Self::Log(error) => error.is_retryable(),
            Self::Archive(error) => error.is_retryable(),
            Self::TimelinesRemoved | Self::TableInDoubt(_) => true,
            _ => false,
        }
    }
}

impl From<LogError> for StoreError {
    fn from(error: LogError) -> Self {
        match error {
            LogError::Backend(error) => Self::Backend(error),
            LogError::Refused(Refusal::TableDropped(table)) => Self::TableDropped(table),
            LogError::Refused(Refusal::TableInDoubt(table)) => Self::TableInDoubt(table),
            LogError::StoredRow { what, reason } => Self::StoredRow { what, reason },
            // A failure of this model comes back as it was.
            LogError::Model(error) => match error.downcast::<Self>() {
                Ok(error) => *error,
                Err(error) => Self::Log(LogError::Model(error)),
            },
            error => Self::Log(error),
        }
    }
}

impl From<Refusal> for StoreError {
    fn from(refusal: Refusal) -> Self {
        LogError::from(refusal).into()
    }
}

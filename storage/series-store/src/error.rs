//! Errors of the series store.
//!
//! Errors of the backend, the log and the archive are wrapped. [`StoreError::is_retryable`] classifies all errors.

use tideline_archive::ArchiveError;
use tideline_backend::BackendError;
use tideline_chunk::{ChunkError, DeltaError};
use tideline_log::{LogError, Refusal};
use tideline_model::{SegmentId, TableId, TableName, TimeRange, TimelineId, Timestamp, TypeConflict};

/// Result of a store call.
pub type Result<T> = std::result::Result<T, StoreError>;

/// Failed store call.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The backend failed. The kind of the error determines the reaction of the caller.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// The log failed, for example during a seal or a write. The outcome of a failed write may be unknown.
    #[error(transparent)]
    Log(LogError),
    /// The archive failed. The kind of the error determines whether a retry may succeed.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// An operation on this segment needs the archive, but no archive is configured.
    #[error("segment {0} needs the archive, which is switched off")]
    NoArchive(SegmentId),
    /// The objects that other models use at targets are not known, so no object is removed.
    #[error("the archived rows of wide tables cannot be listed: {0}")]
    OtherObjects(String),
    /// The policy of the table has no archive target.
    #[error("the policy of table {0} has no archive target")]
    NoTarget(TableName),
    /// The table does not exist.
    #[error("table {0} does not exist")]
    NoSuchTable(String),
    /// The table was dropped during the call.
    #[error("the table was dropped")]
    TableDropped(TableId),
    /// The table may have been dropped. Nothing was written.
    #[error("it is not known yet whether table {0} was dropped; the write was not done")]
    TableInDoubt(TableName),
    /// The name is in use.
    #[error("table {0} already exists")]
    TableExists(TableName),
    /// Source tags cannot change while the table has points, because every timeline id depends on the source tags.
    #[error("source_tags of table {0} are fixed since its first write")]
    SourceTagsFixed(TableName),
    /// The default table cannot be dropped.
    #[error("table {0} cannot be dropped")]
    DefaultTable(TableName),
    /// The value and the field are of different kinds: numbers, text, booleans and histograms cannot be mixed in one
    /// field.
    #[error(transparent)]
    TypeConflict(#[from] TypeConflict),
    /// A stored chunk is damaged.
    #[error("chunk of timeline {timeline} is damaged: {cause}")]
    Chunk {
        /// Timeline of the chunk.
        timeline: String,
        /// Kind of damage.
        cause: ChunkError,
    },
    /// A journal entry is damaged.
    #[error("journal entry {sequence} is damaged: {cause}")]
    Delta {
        /// Sequence of the entry.
        sequence: u64,
        /// Kind of damage.
        cause: DeltaError,
    },
    /// A delta violates the rules or limits of its format.
    #[error("write refused: {0}")]
    BadDelta(DeltaError),
    /// A stored row of the manifest, a schema, a segment, a list or a delete cannot be read.
    #[error("stored {what} cannot be read: {reason}")]
    StoredRow {
        /// Kind of the row.
        what: &'static str,
        /// Reason.
        reason: String,
    },
    /// Rows of the catalog or the schema that segments need are missing.
    #[error(
        "table {table} has {found} of at least {expected} {what} that its segments need: rows of its {component} are lost. \
         Restore a backup of the data folder, or start once with storage.accept_loss = true to continue without them"
    )]
    RowsLost {
        /// Table of the segments.
        table: TableName,
        /// Counted items: timelines or field numbers.
        what: &'static str,
        /// Component that stores the rows.
        component: &'static str,
        /// Number found.
        found: u64,
        /// Minimum number expected.
        expected: u64,
    },
    /// The directory of timelines rejected a replayed delta.
    #[error("timelines of a replayed journal entry were refused: {0}")]
    Directory(String),
    /// A segment cannot be copied into files: only a single cold segment without deleted points can. Also returned if
    /// the counts of the copy differ from those of the segment.
    #[error("segment {0} cannot be copied into files: only a single cold segment without deleted points can")]
    NoCopy(SegmentId),
    /// A segment that overlaps the inputs of a rewrite in time was written between the oldest and the newest input. The
    /// rewrite would change which write wins.
    #[error("segment {segment} overlaps the segments to be rewritten and was written between them")]
    Interleaved {
        /// Segment that was written in between.
        segment: SegmentId,
    },
    /// The time of a cut is not the boundary of a cold window inside the window of the segments.
    #[error("segments from {} to {} cannot be cut at {}: it is not the start of a day window in between",
        Timestamp::from_nanos_clamped(.around.start), Timestamp::from_nanos_clamped(.around.end),
        Timestamp::from_nanos_clamped(*.at))]
    Cut {
        /// Time of the cut in nanoseconds since the epoch.
        at: i64,
        /// Window that contains the segments.
        around: TimeRange,
    },
    /// Attaching a segment would change which write wins, because of existing points of the table.
    #[error(
        "table {table} already has points of the same time range that cannot be ordered with these \
         (segment {segment}): attach the archive as a separate table"
    )]
    Clash {
        /// Table with the points.
        table: TableName,
        /// Existing segment of the table.
        segment: SegmentId,
    },
    /// The segments have no common window: points before and after the epoch are never in one segment.
    #[error("the segments have no common window: some points are before the epoch and others after it")]
    NoCommonWindow,
    /// The segment does not exist any more, or another rewrite, drop or eviction is using it.
    #[error("segment {0} no longer exists or is being moved")]
    SegmentGone(SegmentId),
    /// The caller of a rewrite has cancelled it.
    #[error("cancelled")]
    Cancelled,
    /// A timeline that the write assumes to exist was removed concurrently. Nothing was written; resolve the
    /// timelines again.
    #[error("timelines of the write were removed concurrently; nothing was written")]
    TimelinesRemoved,
    /// The write exceeds the maximum size of a journal entry. Nothing was written; commit its parts separately.
    #[error("the write of {bytes} bytes is too large for one entry of the journal (limit {limit} bytes)",
        limit = tideline_backend::VALUE_BYTES_MAX)]
    DeltaTooLarge {
        /// Encoded size in bytes.
        bytes: usize,
    },
}

impl StoreError {
    /// Returns the error for a damaged chunk of a timeline.
    pub(crate) fn chunk(timeline: TimelineId, cause: ChunkError) -> Self {
        Self::Chunk {
            timeline: timeline.to_string(),
            cause,
        }
    }

    /// Returns true if the same call may succeed later.
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
            // Restores an error that this model returned through the log.
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

//! The delta: a micro-batch of points of many timelines, stored as one journal entry.
//!
//! A delta is self-contained: it needs no catalog for replay. It is always decoded completely.

mod reader;
mod size;
mod split;
mod writer;

use tideline_model::{ColumnData, Measurements, Ordinal, TableId, TimeRange, TimelineId};

use crate::column::UnknownType;
use crate::wire::Damaged;

/// Maximum of rows × (columns + 2), summed over the groups of one delta; timelines and timestamps count as columns.
/// Limits the memory that a damaged delta can make a reader allocate. Writers split larger deltas.
pub const DELTA_VALUES_MAX: usize = 1 << 25;

/// Maximum number of timelines in one [`DeleteRecord`] (one mebibyte of ids). Limits the memory that one journal
/// entry occupies in every reader. Writers split larger deletes.
pub const DELETE_TIMELINES_MAX: usize = 65_536;

/// Magic bytes at the start of every delta.
const MAGIC: [u8; 2] = *b"TD";

/// Current version, and the only one so far.
const VERSION: u8 = 1;

/// Offset of the content covered by the checksum, after magic, version and checksum.
const CONTENT_AT: usize = 7;

/// Kinds of sections. They are stored in this order, except that mixed groups are stored among the groups.
mod section {
    /// Idempotency record; at most one.
    pub(super) const REQUEST: u8 = 1;
    /// Timelines that the delta introduces; at most one.
    pub(super) const NEW_TIMELINES: u8 = 2;
    /// Dictionary of the timelines of the rows; at most one.
    pub(super) const TIMELINES: u8 = 3;
    /// Rows of one shape and one measurement; any number of sections.
    pub(super) const GROUP: u8 = 4;
    /// Delete; at most one.
    pub(super) const DELETE: u8 = 5;
    /// Rows of one shape and several measurements; any number of sections, mixed with sections of kind [`GROUP`].
    pub(super) const MIXED_GROUP: u8 = 6;
    /// Identities of the timelines that the delete removes; at most one.
    pub(super) const REMOVED: u8 = 7;
}

/// Columnar micro-batch of points in the order in which they were received. Self-contained: replay needs no catalog.
///
/// The order of groups and rows is preserved. If two rows hold the same point, the later row wins.
///
/// # Examples
///
/// ```
/// use tideline_chunk::{Delta, DeltaGroup};
/// use tideline_model::{ColumnData, TableId, TimelineId};
///
/// let delta = Delta {
///     table: TableId(1),
///     timelines: vec![TimelineId([1; 16]), TimelineId([2; 16])],
///     groups: vec![DeltaGroup {
///         measurements: "cpu".into(),
///         fields: vec!["usage".into()],
///         columns: vec![ColumnData::Float(vec![0.5, 0.25])],
///         // One point of each timeline.
///         timelines: vec![0, 1],
///         timestamps: vec![1_000, 1_000],
///     }],
///     ..Delta::default()
/// };
/// let mut entry = Vec::new();
/// delta.encode(&mut entry)?;
/// assert_eq!(Delta::decode(&entry)?, delta);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Delta {
    /// Table of all points.
    pub table: TableId,
    /// Recorded outcome of the request, if the request had an idempotency key.
    pub request: Option<RequestRecord>,
    /// Timelines that the delta introduces to the catalog.
    pub new_timelines: Vec<NewTimeline>,
    /// Distinct timelines of the rows.
    pub timelines: Vec<TimelineId>,
    /// Rows, grouped by shape.
    pub groups: Vec<DeltaGroup>,
    /// Delete of points in earlier deltas. A delta with a delete may have no rows.
    pub delete: Option<DeleteRecord>,
    /// Encoded identities of the timelines that the delete removes, in the same order. Empty if they are not recorded.
    pub removed: Vec<Vec<u8>>,
}

/// Record of a request, so that the request can be repeated safely.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestRecord {
    /// Hash of the idempotency key.
    pub key: [u8; 16],
    /// Encoded response; not interpreted here.
    pub outcome: Vec<u8>,
}

/// Timeline that the delta introduces, because it is used for the first time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewTimeline {
    /// Id of the timeline.
    pub id: TimelineId,
    /// Number assigned by the catalog.
    pub ordinal: Ordinal,
    /// Encoded identity.
    pub identity: Vec<u8>,
}

/// Delete of points that were written before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeleteRecord {
    /// Timelines whose points are deleted: strictly increasing, at most [`DELETE_TIMELINES_MAX`].
    pub timelines: Vec<TimelineId>,
    /// Time range of the deleted points.
    pub range: TimeRange,
    /// True if the timelines are also removed from the catalog.
    pub removes_timelines: bool,
}

/// Rows of one shape, that is, with the same fields and value types. All row vectors have the same length, and every
/// row has every field.
#[derive(Debug, Clone, PartialEq)]
pub struct DeltaGroup {
    /// Measurement of each row.
    pub measurements: Measurements,
    /// Field name of each column.
    pub fields: Vec<Box<str>>,
    /// One column per field.
    pub columns: Vec<ColumnData>,
    /// Timeline of each row, as an index into [`Delta::timelines`].
    pub timelines: Vec<u32>,
    /// Timestamp of each row in nanoseconds since the epoch.
    pub timestamps: Vec<i64>,
}

impl DeltaGroup {
    /// Returns the number of rows in this group.
    pub fn rows(&self) -> usize {
        self.timestamps.len()
    }
}

impl Delta {
    /// Returns the number of rows in all groups.
    pub fn rows(&self) -> usize {
        self.groups.iter().map(DeltaGroup::rows).sum()
    }

    /// Returns the number of field values in all groups.
    pub fn values(&self) -> usize {
        self.groups
            .iter()
            .map(|group| group.rows() * group.columns.len())
            .sum()
    }
}

/// Error of encoding or decoding a delta.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeltaError {
    /// The delta has more values than [`DELTA_VALUES_MAX`]; split it.
    #[error("a delta of {0} values is too large")]
    TooLarge(usize),
    /// The delta deletes from more timelines than [`DELETE_TIMELINES_MAX`]; split it.
    #[error("a delete from {0} timelines is too large for one delta")]
    DeleteTooLarge(usize),
    /// The delta violates an invariant of its type.
    #[error("the delta is malformed: {0}")]
    Malformed(&'static str),
    /// The bytes do not start with the magic of a delta, or end before its version.
    #[error("not a delta")]
    NotADelta,
    /// The delta has a version that this build does not support.
    #[error("delta version {0} is not supported by this build")]
    UnknownVersion(u8),
    /// The content does not match the checksum.
    #[error("delta checksum does not match")]
    Checksum,
    /// The delta has a section of a kind that this version does not support.
    #[error("delta section {0} requires a newer version")]
    UnknownSection(u8),
    /// A column has a value type that this version does not support.
    #[error(transparent)]
    UnknownType(#[from] UnknownType),
    /// The checksum matches, but the content violates a rule of the format.
    #[error("delta is damaged: {0}")]
    Damaged(#[from] Damaged),
}

/// Returns the checksum of `content`: the low half of xxh3-64.
fn checksum(content: &[u8]) -> [u8; 4] {
    (xxhash_rust::xxh3::xxh3_64(content) as u32).to_le_bytes()
}

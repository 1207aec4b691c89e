//! The delta: a micro-batch of points of many timelines, one entry of the journal.

mod reader;
mod size;
mod split;
mod writer;

use tideline_model::{ColumnData, Measurements, Ordinal, TableId, TimeRange, TimelineId};

use crate::column::UnknownType;
use crate::wire::Damaged;

/// Most rows × (columns + 2) in one delta, timelines and timestamps counted as columns: bounds what a damaged
/// delta may make a reader allocate. Writers split what is larger.
pub const DELTA_VALUES_MAX: usize = 1 << 25;

/// Most timelines in one [`DeleteRecord`], a megabyte of ids: bounds what one entry of the journal makes every
/// reader remember. Writers split what is larger.
pub const DELETE_TIMELINES_MAX: usize = 65_536;

/// The first bytes of every delta.
const MAGIC: [u8; 2] = *b"TD";

/// The version that is written, and the only one there is.
const VERSION: u8 = 1;

/// Where the content that the checksum covers begins: behind magic, version and checksum.
const CONTENT_AT: usize = 7;

/// Kinds of sections, in the order in which they stand.
mod section {
    /// At most one: the idempotency record.
    pub(super) const REQUEST: u8 = 1;
    /// At most one: timelines that no earlier delta has named.
    pub(super) const NEW_TIMELINES: u8 = 2;
    /// At most one: the dictionary of the rows' timelines.
    pub(super) const TIMELINES: u8 = 3;
    /// Any number: rows of one shape and measurement.
    pub(super) const GROUP: u8 = 4;
    /// At most one: what is deleted.
    pub(super) const DELETE: u8 = 5;
    /// Any number, among those of kind [`GROUP`]: rows of one shape and several measurements.
    pub(super) const MIXED_GROUP: u8 = 6;
}

/// A columnar micro-batch of points as it was received. Self-contained: it needs no catalog to be replayed.
///
/// The order of groups and rows is kept; where two rows meet on a point the later one wins.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Delta {
    /// The table of all its points.
    pub table: TableId,
    /// What a repeated request is answered with, when this one carried a key.
    pub request: Option<RequestRecord>,
    /// Timelines that no earlier delta has named.
    pub new_timelines: Vec<NewTimeline>,
    /// The distinct timelines of the rows.
    pub timelines: Vec<TimelineId>,
    /// The rows, by shape.
    pub groups: Vec<DeltaGroup>,
    /// What is deleted of the points that earlier deltas hold. Such a delta may have no rows at all.
    pub delete: Option<DeleteRecord>,
}

/// Remembers a request, so that sending it again is safe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestRecord {
    /// The hash of the idempotency key.
    pub key: [u8; 16],
    /// The answer, opaque here.
    pub outcome: Vec<u8>,
}

/// A timeline on its first use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewTimeline {
    /// Its id.
    pub id: TimelineId,
    /// The number that the catalog gave it.
    pub ordinal: Ordinal,
    /// Its identity in stored form.
    pub identity: Vec<u8>,
}

/// Takes back points that were written before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeleteRecord {
    /// Whose points: rising, each once, at most [`DELETE_TIMELINES_MAX`].
    pub timelines: Vec<TimelineId>,
    /// Which of their instants.
    pub range: TimeRange,
    /// Whether the timelines themselves leave the catalog too.
    pub removes_timelines: bool,
}

/// Rows of one shape. All vectors over rows have one length; every row has every field.
#[derive(Debug, Clone, PartialEq)]
pub struct DeltaGroup {
    /// The measurement of each row.
    pub measurements: Measurements,
    /// Field names, one for each column.
    pub fields: Vec<Box<str>>,
    /// One column a field.
    pub columns: Vec<ColumnData>,
    /// The timeline of each row: an index into [`Delta::timelines`].
    pub timelines: Vec<u32>,
    /// Nanoseconds since the epoch of each row.
    pub timestamps: Vec<i64>,
}

impl DeltaGroup {
    /// Rows in this group.
    pub fn rows(&self) -> usize {
        self.timestamps.len()
    }
}

impl Delta {
    /// Rows in all groups.
    pub fn rows(&self) -> usize {
        self.groups.iter().map(DeltaGroup::rows).sum()
    }

    /// Field values in all groups.
    pub fn values(&self) -> usize {
        self.groups
            .iter()
            .map(|group| group.rows() * group.columns.len())
            .sum()
    }
}

/// A delta that cannot be encoded, or bytes that are not a whole delta of this version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeltaError {
    /// It holds more values than [`DELTA_VALUES_MAX`]; split it.
    #[error("a delta of {0} values is too large")]
    TooLarge(usize),
    /// It deletes from more timelines than [`DELETE_TIMELINES_MAX`]; split it.
    #[error("a delete from {0} timelines is too large for one delta")]
    DeleteTooLarge(usize),
    /// It breaks a rule that its type states.
    #[error("the delta is malformed: {0}")]
    Malformed(&'static str),
    /// The bytes do not begin as a delta does.
    #[error("not a delta")]
    NotADelta,
    /// It was written by a later version.
    #[error("delta version {0} is not known here")]
    UnknownVersion(u8),
    /// The bytes are not those that were written.
    #[error("delta checksum does not match")]
    Checksum,
    /// It has a section of a kind that only a later version knows.
    #[error("delta section {0} needs a newer version")]
    UnknownSection(u8),
    /// A column holds values of a type set aside for later.
    #[error(transparent)]
    UnknownType(#[from] UnknownType),
    /// The checksum matches, but the content breaks a rule of the format.
    #[error("delta is damaged: {0}")]
    Damaged(#[from] Damaged),
}

/// The checksum over everything behind it: the low half of xxh3-64.
fn checksum(content: &[u8]) -> [u8; 4] {
    (xxhash_rust::xxh3::xxh3_64(content) as u32).to_le_bytes()
}

//! Names of the places at which a backend keeps rows: segments, parts, key spaces, their buckets, and ranges of keys.

use crate::id::{GroupId, PartId, SegmentId, TableId};
use crate::table::Tier;

/// Longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 8 << 10;
/// Names a key space of rows that are changed in place; the numbers are given out by `key-codec`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Space(pub u16);

/// A segment and the group that it is stored and dropped with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentRef {
    /// Id of the rows of one load.
    pub segment: SegmentId,
    /// Segments of one group may share files; a group without segments costs nothing.
    pub group: GroupId,
    /// The tier that stores it: each tier may have its own caches, threads and disk. All segments of a group are of
    /// one tier, and that is one of [`Tier::KEPT`].
    pub tier: Tier,
}

/// A part: rows of one table that are changed in place, published by a row of the manifest and dropped as a whole.
///
/// A part has buckets of its own; their number is recorded in its manifest row and means nothing to a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartRef {
    /// The part.
    pub part: PartId,
    /// The table that its rows belong to.
    pub table: TableId,
    /// The tier that stores it, one of [`Tier::KEPT`]. Fixed for the life of the part.
    pub tier: Tier,
}

/// The thing that a partition is a bucket of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unit {
    /// Rows loaded once and never changed.
    Segment(SegmentRef),
    /// Rows changed in place until the part is dropped.
    Part(PartRef),
    /// Rows changed in place.
    Space(Space),
}

impl Unit {
    /// The tier that stores it.
    pub const fn tier(self) -> Tier {
        match self {
            Self::Segment(segment) => segment.tier,
            Self::Part(part) => part.tier,
            Self::Space(_) => Tier::Hot,
        }
    }
}

/// The unit of atomic writes and of scans.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Partition {
    /// The segment, part or key space.
    pub unit: Unit,
    /// Which part of it.
    pub bucket: u16,
}

impl Partition {
    /// A bucket of a segment.
    pub const fn segment(segment: SegmentRef, bucket: u16) -> Self {
        Self {
            unit: Unit::Segment(segment),
            bucket,
        }
    }

    /// A bucket of a part.
    pub const fn part(part: PartRef, bucket: u16) -> Self {
        Self {
            unit: Unit::Part(part),
            bucket,
        }
    }

    /// A bucket of a key space.
    pub const fn space(space: Space, bucket: u16) -> Self {
        Self {
            unit: Unit::Space(space),
            bucket,
        }
    }
}

/// A half-open range of keys.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KeyRange {
    /// First key inside; empty = from the first.
    pub start: Vec<u8>,
    /// First key after; `None` = to the last.
    pub end: Option<Vec<u8>>,
}

impl KeyRange {
    /// Every key.
    pub const ALL: Self = Self {
        start: Vec::new(),
        end: None,
    };

    /// From `start` up to, not including, `end`.
    pub fn new(start: impl Into<Vec<u8>>, end: impl Into<Vec<u8>>) -> Self {
        Self {
            start: start.into(),
            end: Some(end.into()),
        }
    }

    /// Every key that begins with `prefix`.
    pub fn prefix(prefix: &[u8]) -> Self {
        let mut end = prefix.to_vec();
        while let Some(last) = end.pop() {
            if last < u8::MAX {
                end.push(last + 1);
                return Self {
                    start: prefix.to_vec(),
                    end: Some(end),
                };
            }
        }
        Self {
            start: prefix.to_vec(),
            end: None,
        }
    }

    /// Whether `key` lies inside.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.start.as_slice() <= key && self.end.as_deref().is_none_or(|end| key < end)
    }
}

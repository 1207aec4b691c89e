//! Addresses of rows in a backend: segments, parts, key spaces, their buckets, and key ranges.
//!
//! A row is identified by a [`Partition`] and a key. A backend interprets tiers, groups, and the shard in the id of a
//! segment or part.

use crate::id::{GroupId, PartId, SegmentId, TableId};
use crate::table::Tier;

/// Maximum length of a key, in bytes.
pub const KEY_BYTES_MAX: usize = 8 << 10;
/// Key space of rows that are changed in place. `key-codec` assigns the numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Space(pub u16);

/// Segment, with the group and the tier in which a backend stores it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentRef {
    /// Id of the segment.
    pub segment: SegmentId,
    /// Group of the segment. Segments of one group may share files. A backend may offer emptied groups for reuse.
    pub group: GroupId,
    /// Tier that stores the segment; one of [`Tier::KEPT`] and the same for all segments of a group. Each tier may have
    /// its own caches, threads and disk.
    pub tier: Tier,
}

/// Part: rows of one table that are changed in place. A manifest row publishes the part, which is dropped as a whole.
///
/// A part has its own buckets. The manifest row records the number of buckets, which backends ignore.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartRef {
    /// Id of the part.
    pub part: PartId,
    /// Table that the rows belong to.
    pub table: TableId,
    /// Tier that stores the part; one of [`Tier::KEPT`]. Fixed for the life of the part.
    pub tier: Tier,
}

/// Container of buckets: a segment, a part or a key space.
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
    /// Returns the tier that stores the unit.
    pub const fn tier(self) -> Tier {
        match self {
            Self::Segment(segment) => segment.tier,
            Self::Part(part) => part.tier,
            Self::Space(_) => Tier::Hot,
        }
    }
}

/// Unit of atomic writes and of scans: one bucket of a segment, part or key space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Partition {
    /// Segment, part or key space.
    pub unit: Unit,
    /// Number of the bucket.
    pub bucket: u16,
}

impl Partition {
    /// Returns a bucket of a segment.
    pub const fn segment(segment: SegmentRef, bucket: u16) -> Self {
        Self {
            unit: Unit::Segment(segment),
            bucket,
        }
    }

    /// Returns a bucket of a part.
    pub const fn part(part: PartRef, bucket: u16) -> Self {
        Self {
            unit: Unit::Part(part),
            bucket,
        }
    }

    /// Returns a bucket of a key space.
    pub const fn space(space: Space, bucket: u16) -> Self {
        Self {
            unit: Unit::Space(space),
            bucket,
        }
    }
}

/// Half-open range of keys.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KeyRange {
    /// First key of the range; empty = unbounded.
    pub start: Vec<u8>,
    /// First key after the range; `None` = unbounded.
    pub end: Option<Vec<u8>>,
}

impl KeyRange {
    /// Range of all keys.
    pub const ALL: Self = Self {
        start: Vec::new(),
        end: None,
    };

    /// Returns the range from `start` (inclusive) to `end` (exclusive).
    pub fn new(start: impl Into<Vec<u8>>, end: impl Into<Vec<u8>>) -> Self {
        Self {
            start: start.into(),
            end: Some(end.into()),
        }
    }

    /// Returns the range of all keys that begin with `prefix`.
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

    /// Returns true if no key is in the range.
    pub fn is_empty(&self) -> bool {
        self.end
            .as_deref()
            .is_some_and(|end| end <= self.start.as_slice())
    }

    /// Returns the subrange above `key`; `None` if it is empty.
    #[must_use]
    pub fn above(&self, key: &[u8]) -> Option<Self> {
        let rest = Self {
            start: [key, &[0]].concat().max(self.start.clone()),
            end: self.end.clone(),
        };
        (!rest.is_empty()).then_some(rest)
    }

    /// Returns the subrange below `key`; `None` if it is empty.
    #[must_use]
    pub fn below(&self, key: &[u8]) -> Option<Self> {
        let end = self.end.as_deref().map_or(key, |end| end.min(key));
        let rest = Self {
            start: self.start.clone(),
            end: Some(end.to_vec()),
        };
        (!rest.is_empty()).then_some(rest)
    }

    /// Returns true if `key` is in the range.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.start.as_slice() <= key && self.end.as_deref().is_none_or(|end| key < end)
    }
}

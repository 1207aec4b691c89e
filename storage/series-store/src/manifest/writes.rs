//! Order of segments among the writes of a table.

use serde::{Deserialize, Serialize};

/// Position of a write among all writes of a table. The write with the higher rank wins.
///
/// Seals are ordered by sequence. Segments of format 1 have sequence 0 and are ordered by their ids. A rewrite keeps
/// the ranks of its inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct WriteRank {
    /// Highest sequence of the sealed head.
    pub sequence: u64,
    /// Id of the segment that the seal wrote.
    pub seal: u64,
}

/// Oldest and newest seal whose points are in a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct WriteSpan {
    /// Oldest seal.
    pub oldest: WriteRank,
    /// Newest seal.
    pub newest: WriteRank,
}

impl WriteSpan {
    /// Returns the span of one seal.
    pub fn of(rank: WriteRank) -> Self {
        Self {
            oldest: rank,
            newest: rank,
        }
    }

    /// Returns the smallest span that contains both spans.
    pub fn union(self, other: Self) -> Self {
        Self {
            oldest: self.oldest.min(other.oldest),
            newest: self.newest.max(other.newest),
        }
    }

    /// Returns true if the spans overlap. Then neither span is newer than the other.
    pub fn interleaves(&self, other: &Self) -> bool {
        self.oldest <= other.newest && other.oldest <= self.newest
    }
}

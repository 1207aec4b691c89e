//! Where segments stand among the writes of a table.

use serde::{Deserialize, Serialize};

/// The place of a write among all writes of a table: the higher one wins.
///
/// Sequences order seals. Segments of format 1 have sequence 0 and are ordered by their ids, which stay with what
/// they are rewritten into.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct WriteRank {
    /// Highest sequence that the head held.
    pub sequence: u64,
    /// The id of the segment that the seal wrote.
    pub seal: u64,
}

/// The oldest and the newest seal that a segment's points come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct WriteSpan {
    /// The oldest.
    pub oldest: WriteRank,
    /// The newest.
    pub newest: WriteRank,
}

impl WriteSpan {
    /// One seal.
    pub fn of(rank: WriteRank) -> Self {
        Self {
            oldest: rank,
            newest: rank,
        }
    }

    /// Both together.
    pub fn union(self, other: Self) -> Self {
        Self {
            oldest: self.oldest.min(other.oldest),
            newest: self.newest.max(other.newest),
        }
    }

    /// Whether one begins before the other ends, so that neither is the newer one.
    pub fn interleaves(&self, other: &Self) -> bool {
        self.oldest <= other.newest && other.oldest <= self.newest
    }
}

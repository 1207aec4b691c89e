//! Cost of a read, by tier.

use tideline_chunk::Run;
use tideline_model::Tier;

use super::fragment::Fragment;

/// Cost of a read so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReadCost {
    /// Timelines read.
    pub timelines: u64,
    /// Cost of each tier. Unsealed points are hot.
    tiers: [TierCost; 3],
}

/// Cost of a read in one tier or in all tiers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TierCost {
    /// Fragments used: chunks, blocks of heads, sets of open rows, and rows of archive files.
    pub chunks: u64,
    /// Points decoded.
    pub points: u64,
    /// Field values decoded.
    pub values: u64,
    /// Encoded bytes of these fragments; 0 for open rows.
    pub bytes: u64,
    /// Time buckets whose summaries replaced rows in at least one field.
    pub summaries: u64,
    /// Points in these buckets.
    pub summarized_points: u64,
}

impl ReadCost {
    /// Adds the cost of another part of the same read.
    pub fn add(&mut self, other: &Self) {
        self.timelines += other.timelines;
        for (mine, theirs) in self.tiers.iter_mut().zip(&other.tiers) {
            mine.add(theirs);
        }
    }

    /// Returns the cost of one tier.
    pub fn of(&self, tier: Tier) -> TierCost {
        self.tiers[tier as usize]
    }

    /// Returns the cost of all tiers.
    pub fn total(&self) -> TierCost {
        let mut total = TierCost::default();
        self.tiers.iter().for_each(|tier| total.add(tier));
        total
    }

    /// Counts a fragment that is used.
    pub(super) fn count_fragment(&mut self, fragment: &Fragment) {
        let tier = &mut self.tiers[fragment.tier as usize];
        tier.chunks += 1;
        tier.bytes += fragment.bytes();
    }

    /// Counts decoded rows.
    pub(super) fn count_rows(&mut self, tier: Tier, run: &Run) {
        let tier = &mut self.tiers[tier as usize];
        tier.points += run.rows() as u64;
        tier.values += run.values() as u64;
    }

    /// Counts a bucket whose summary replaces rows.
    pub(super) fn count_summary(&mut self, tier: Tier, points: usize) {
        let tier = &mut self.tiers[tier as usize];
        tier.summaries += 1;
        tier.summarized_points += points as u64;
    }
}

impl TierCost {
    fn add(&mut self, other: &Self) {
        self.chunks += other.chunks;
        self.points += other.points;
        self.values += other.values;
        self.bytes += other.bytes;
        self.summaries += other.summaries;
        self.summarized_points += other.summarized_points;
    }
}

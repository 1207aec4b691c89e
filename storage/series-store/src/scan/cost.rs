//! What a read has cost, tier by tier.

use tideline_chunk::Run;
use tideline_model::Tier;

use super::piece::Piece;

/// What a read has cost so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReadCost {
    /// Timelines looked at.
    pub timelines: u64,
    /// What each tier has given; unsealed points are hot.
    tiers: [TierCost; 3],
}

/// What one tier, or all of them, have given to a read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TierCost {
    /// Chunks, blocks of the head and open rows that something was taken from.
    pub chunks: u64,
    /// Points decoded.
    pub points: u64,
    /// Field values decoded.
    pub values: u64,
    /// Encoded bytes of those chunks.
    pub bytes: u64,
    /// Stretches of time that summaries stood for, in all fields or in some.
    pub summaries: u64,
    /// Points in those stretches.
    pub summarized_points: u64,
}

impl ReadCost {
    /// Adds another part of the same read.
    pub fn add(&mut self, other: &Self) {
        self.timelines += other.timelines;
        for (mine, theirs) in self.tiers.iter_mut().zip(&other.tiers) {
            mine.add(theirs);
        }
    }

    /// What one tier has given.
    pub fn of(&self, tier: Tier) -> TierCost {
        self.tiers[tier as usize]
    }

    /// What all tiers have given.
    pub fn total(&self) -> TierCost {
        let mut total = TierCost::default();
        self.tiers.iter().for_each(|tier| total.add(tier));
        total
    }

    /// Counts a piece that something is taken from.
    pub(super) fn count_piece(&mut self, piece: &Piece) {
        let tier = &mut self.tiers[piece.tier as usize];
        tier.chunks += 1;
        tier.bytes += piece.bytes();
    }

    /// Counts rows decoded.
    pub(super) fn count_rows(&mut self, tier: Tier, run: &Run) {
        let tier = &mut self.tiers[tier as usize];
        tier.points += run.rows() as u64;
        tier.values += run.values() as u64;
    }

    /// Counts a stretch that a summary stands for.
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

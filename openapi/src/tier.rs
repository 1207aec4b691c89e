//! Tiers: parts of a table by the age of its points. A query can be limited to one tier, and its cost is listed per
//! tier.

use serde::{Deserialize, Serialize};
use tideline_model::{Tier as ModelTier, TierScope};
use utoipa::ToSchema;

/// Part of a table, by the age of its points.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// Recent points, including unsealed ones.
    Hot,
    /// Older points.
    Cold,
    /// Oldest points, in files on an object store.
    Archive,
}

impl From<ModelTier> for Tier {
    fn from(tier: ModelTier) -> Self {
        match tier {
            ModelTier::Hot => Self::Hot,
            ModelTier::Cold => Self::Cold,
            ModelTier::Archive => Self::Archive,
        }
    }
}

/// Tiers that a query reads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum TierChoice {
    /// All tiers.
    #[default]
    All,
    /// Only the hot tier, including unsealed points.
    Hot,
    /// Only the cold tier.
    Cold,
    /// Only points in archive files.
    Archive,
}

impl From<TierChoice> for Option<ModelTier> {
    fn from(choice: TierChoice) -> Self {
        match choice {
            TierChoice::All => None,
            TierChoice::Hot => Some(ModelTier::Hot),
            TierChoice::Cold => Some(ModelTier::Cold),
            TierChoice::Archive => Some(ModelTier::Archive),
        }
    }
}

/// Tiers of the parts of a wide table that an index covers, or that a read reads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum RowTiers {
    /// All tiers.
    #[default]
    All,
    /// Only parts in the hot tier, including rows that are not flushed yet.
    Hot,
    /// Only parts in the cold tier and in the archive.
    Cold,
}

impl RowTiers {
    /// Returns true for all tiers.
    pub const fn is_all(&self) -> bool {
        matches!(self, Self::All)
    }
}

impl From<RowTiers> for TierScope {
    fn from(tiers: RowTiers) -> Self {
        match tiers {
            RowTiers::All => Self::All,
            RowTiers::Hot => Self::Hot,
            RowTiers::Cold => Self::Cold,
        }
    }
}

impl From<TierScope> for RowTiers {
    fn from(scope: TierScope) -> Self {
        match scope {
            TierScope::All => Self::All,
            TierScope::Hot => Self::Hot,
            TierScope::Cold => Self::Cold,
        }
    }
}

/// Cost of a query per tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TierCosts {
    /// Hot tier, including unsealed points.
    pub hot: TierCost,
    /// Cold tier.
    pub cold: TierCost,
    /// Archive files. `bytes` is the approximate share of the files.
    pub archive: TierCost,
}

/// Cost of a query in one tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TierCost {
    /// Segments whose time range overlaps the queried range, whatever their timelines.
    pub segments: u64,
    /// Chunks, blocks and unsealed rows that were read at least in part.
    pub chunks: u64,
    /// Points decoded.
    pub points: u64,
    /// Field values decoded.
    pub values: u64,
    /// Encoded bytes of the chunks that were read.
    pub bytes: u64,
    /// Time spans for which stored summaries replaced the points of at least one field.
    pub summaries: u64,
    /// Points in the spans that summaries replaced.
    pub summarized_points: u64,
}

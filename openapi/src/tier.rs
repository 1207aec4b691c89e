//! Tiers: the parts of a table by the age of its points, as questions choose them and answers tell them apart.

use serde::{Deserialize, Serialize};
use tideline_model::Tier as ModelTier;
use utoipa::ToSchema;

/// A part of a table, by the age of its points.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// Young points, unsealed ones included.
    Hot,
    /// Old points.
    Cold,
    /// The oldest points, in files on an object store.
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

/// Which tiers a question reads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum TierChoice {
    /// All, as if they were one.
    #[default]
    All,
    /// Young points only, unsealed ones included.
    Hot,
    /// Old points only.
    Cold,
    /// The oldest points only, those in files.
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

/// What each tier has given to an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TierCosts {
    /// Young points, unsealed ones included.
    pub hot: TierCost,
    /// Old points.
    pub cold: TierCost,
    /// The oldest points, in files; `bytes` are about their share of those.
    pub archive: TierCost,
}

/// What a tier has given to an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TierCost {
    /// Segments with points in the range, of whichever timelines.
    pub segments: u64,
    /// Chunks and blocks that something was taken from.
    pub chunks: u64,
    /// Points decoded.
    pub points: u64,
    /// Field values decoded.
    pub values: u64,
    /// Encoded bytes of those chunks.
    pub bytes: u64,
    /// Stretches of time for which a stored summary took the place of the points.
    pub summaries: u64,
    /// Points in those stretches.
    pub summarized_points: u64,
}

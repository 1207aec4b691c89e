//! What a query would do, and what it has done.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::statistics::Span;
use crate::tier::Tier;
use crate::timeline::Suggestion;

/// What a query would do, told before it reads a point.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "request_id": "01jd3k5w8v-000002a1",
    "columns": ["mean(usage_user)"],
    "plan": {
        "timelines": 1000, "measurements": 1, "fields": 1, "groups": 1000, "windows": 12, "cells": 12000,
        "lane": "hot", "summaries": true
    },
    "estimate": {
        "hot": {"segments": 4, "chunks": 4000, "points": 4320000, "bytes": 24000000},
        "cold": {"segments": 0, "chunks": 0, "points": 0, "bytes": 0},
        "archive": {"segments": 0, "chunks": 0, "points": 0, "bytes": 0},
        "unsealed": {
            "heads": 1, "points": 90000, "bytes": 410000,
            "span": {"start": "2026-11-20T11:45:00Z", "end": "2026-11-20T12:00:00.000000001Z"}
        }
    }
}))]
pub struct Explanation {
    /// Names the request in the log.
    pub request_id: String,
    /// The columns of the answer.
    pub columns: Vec<String>,
    /// Names in the question that the table does not have, with similar ones; missing where all are known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub suggestions: Vec<Suggestion>,
    /// How it would be answered.
    pub plan: QueryPlan,
    /// What each tier would be asked for.
    pub estimate: TierEstimates,
}

/// How a query is answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct QueryPlan {
    /// Timelines that are read.
    pub timelines: u64,
    /// Their measurements.
    pub measurements: u64,
    /// Stored fields that are read, of whichever measurement.
    pub fields: u64,
    /// Groups of an aggregate; where they are ranked, before the query all of them, and after it those that stayed.
    pub groups: u64,
    /// Windows of an aggregate.
    pub windows: u64,
    /// Windows × groups × columns, empty ones included.
    pub cells: u64,
    /// `cold` where it reaches into cold segments or files, and so runs among the queries that do.
    pub lane: Tier,
    /// Whether stored summaries stand for points wherever they are exact.
    pub summaries: bool,
    /// Why they do not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_summaries: Option<String>,
}

/// Estimates of each tier.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TierEstimates {
    /// Young points that are sealed.
    pub hot: TierEstimate,
    /// Old points.
    pub cold: TierEstimate,
    /// The oldest points, in files; `bytes` are about their share of those.
    pub archive: TierEstimate,
    /// Points in memory that are not sealed yet, which count as hot.
    pub unsealed: UnsealedEstimate,
}

/// Unsealed points that would be read; exact for at most 1,000 timelines, of more a sample is looked at.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct UnsealedEstimate {
    /// Parts of the memory with points in the range, of whichever timelines: one grows, others wait to be sealed.
    pub heads: u64,
    /// Points in the range.
    pub points: u64,
    /// Bytes of memory that they take.
    pub bytes: u64,
    /// The time that they span; `null` without unsealed points.
    pub span: Option<Span>,
}

/// What a tier would be asked for: as if the points of a segment were spread evenly over its time and timelines, and no
/// summaries were used.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TierEstimate {
    /// Segments with points in the range, of whichever timelines; exact.
    pub segments: u64,
    /// Chunks in the range.
    pub chunks: u64,
    /// Points in the range.
    pub points: u64,
    /// Bytes of those chunks.
    pub bytes: u64,
}

//! Query plans and cost estimates.
//!
//! The response to `/explain` contains the [`QueryPlan`] of a query that was not run. The cost of a query that has
//! run can contain its plan too.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::statistics::Span;
use crate::tier::Tier;
use crate::timeline::Suggestion;

/// Plan and estimated cost of a query, without reading points.
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
    /// Id of the request, as in the server log.
    pub request_id: String,
    /// Columns of the result.
    pub columns: Vec<String>,
    /// Unknown names in the query, with similar names. Omitted if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub suggestions: Vec<Suggestion>,
    /// Query plan.
    pub plan: QueryPlan,
    /// Estimated reads per tier.
    pub estimate: TierEstimates,
}

/// Plan of a query.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct QueryPlan {
    /// Timelines to read.
    pub timelines: u64,
    /// Measurements of the timelines to read.
    pub measurements: u64,
    /// Stored fields to read, of all measurements.
    pub fields: u64,
    /// Groups of an aggregate. With `rank`, `/explain` counts all groups, and the plan in a result counts the
    /// kept groups.
    pub groups: u64,
    /// Windows of an aggregate.
    pub windows: u64,
    /// Windows × groups × columns, including empty ones.
    pub cells: u64,
    /// Pool of threads that runs the query: `cold` if it reads cold segments or files.
    pub lane: Tier,
    /// True if stored summaries replace points wherever the result stays exact.
    pub summaries: bool,
    /// Reason why summaries cannot be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_summaries: Option<String>,
}

/// Estimated reads per tier.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TierEstimates {
    /// Sealed points of the hot tier.
    pub hot: TierEstimate,
    /// Points of the cold tier.
    pub cold: TierEstimate,
    /// Points in archive files. `bytes` is the approximate share of the files.
    pub archive: TierEstimate,
    /// Unsealed points in memory. They count as hot.
    pub unsealed: UnsealedEstimate,
}

/// Unsealed points to read. Exact for up to 1,000 timelines, estimated from a sample for more.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct UnsealedEstimate {
    /// Memory tables in which the points of this table overlap the queried time range. One memory table receives
    /// writes; the others wait to be sealed or are being sealed.
    pub heads: u64,
    /// Points in the range.
    pub points: u64,
    /// Bytes of memory of the points in the range.
    pub bytes: u64,
    /// Time range of the points in the range; `null` without unsealed points.
    pub span: Option<Span>,
}

/// Estimated reads of a tier. The estimate assumes that the points of a segment are evenly distributed over its time
/// range and timelines, and that summaries are not used.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TierEstimate {
    /// Segments whose time range overlaps the queried range, whatever their timelines. Exact.
    pub segments: u64,
    /// Chunks in the range.
    pub chunks: u64,
    /// Points in the range.
    pub points: u64,
    /// Bytes of the chunks in the range.
    pub bytes: u64,
}

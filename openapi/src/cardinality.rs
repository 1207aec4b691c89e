//! How many different names a table has, and how it came to its timelines.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::name::CountedName;
use crate::time::DurationText;

/// What is counted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct CardinalityQuery {
    /// How many of the largest measurements, tag keys and tags are named, 1 to 1,000. Default 10.
    #[serde(default)]
    #[param(example = 5)]
    pub top: Option<usize>,
    /// Width of the windows of growth. Default `1d`.
    #[serde(default)]
    #[param(value_type = Option<String>, example = "1d")]
    pub window: Option<DurationText>,
    /// How many windows of growth, up to the one that holds the present, 1 to 1,000. Default 30.
    #[serde(default)]
    #[param(example = 7)]
    pub windows: Option<usize>,
}

/// How many different names a table has, and how it came to its timelines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "timelines": 48,
    "measurements": {"distinct": 2, "top": [{"name": "cpu", "timelines": 36}]},
    "tag_keys": {"distinct": 2, "top": [{"key": "host", "values": 12, "timelines": 48}]},
    "tag_values": {"distinct": 14, "top": [{"key": "region", "value": "eu-west", "timelines": 32}]},
    "growth": {
        "by": "first_seen", "windows": [{"start": "2026-11-20T00:00:00Z", "timelines": 48}],
        "earlier": 0, "later": 0, "never": 0
    },
    "request_id": "01jd3k5w8v-000002a1"
}))]
pub struct CardinalityReport {
    /// Timelines of the table.
    pub timelines: u64,
    /// Measurements.
    pub measurements: MeasurementCardinality,
    /// Tag keys.
    pub tag_keys: TagKeyCardinality,
    /// Tags: pairs of key and value.
    pub tag_values: TagValueCardinality,
    /// How timelines came.
    pub growth: GrowthReport,
    /// Names the request in the log.
    pub request_id: String,
}

/// Measurements.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MeasurementCardinality {
    /// How many there are.
    pub distinct: u64,
    /// Those with the most timelines, the largest first.
    pub top: Vec<CountedName>,
}

/// Tag keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TagKeyCardinality {
    /// How many there are.
    pub distinct: u64,
    /// Those with the most values, the largest first.
    pub top: Vec<CountedKey>,
}

/// A tag key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CountedKey {
    /// The key.
    pub key: String,
    /// How many values it has.
    pub values: u64,
    /// Timelines that have it.
    pub timelines: u32,
}

/// Tags.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TagValueCardinality {
    /// How many pairs of key and value there are.
    pub distinct: u64,
    /// Those with the most timelines, the largest first.
    pub top: Vec<CountedTag>,
}

/// A tag.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CountedTag {
    /// Its key.
    pub key: String,
    /// Its value.
    pub value: String,
    /// Timelines that bear it.
    pub timelines: u32,
}

/// When timelines were first seen. That is the time of their oldest point: it moves when older points come, expire or are
/// deleted. The time of registration is not kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GrowthReport {
    /// What time counts: `first_seen`.
    pub by: String,
    /// The windows, the oldest first; they are aligned to the epoch, and the last holds the present.
    pub windows: Vec<GrowthWindow>,
    /// Timelines first seen before the first window.
    pub earlier: u64,
    /// Timelines first seen after the last window.
    pub later: u64,
    /// Timelines without a point.
    pub never: u64,
}

/// A window of growth.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GrowthWindow {
    /// Its first instant, RFC 3339.
    pub start: String,
    /// Timelines first seen in it.
    pub timelines: u64,
}

//! Cardinality of a table: distinct names, and the growth of its timelines.
//!
//! Counts are read from the catalog, growth from the time spans of the timelines. Usually a request reads no points.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::name::CountedName;
use crate::time::DurationText;

/// Parameters of the cardinality report.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct CardinalityQuery {
    /// Maximum number of entries in each list `top`, 1 to 1,000. Default 10.
    #[serde(default)]
    #[param(example = 5)]
    pub top: Option<usize>,
    /// Width of the growth windows. Default `1d`.
    #[serde(default)]
    #[param(value_type = Option<String>, example = "1d")]
    pub window: Option<DurationText>,
    /// Number of growth windows, including the current one, 1 to 1,000. Default 30.
    #[serde(default)]
    #[param(example = 7)]
    pub windows: Option<usize>,
}

/// Cardinality of a table.
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
    /// Number of timelines of the table.
    pub timelines: u64,
    /// Measurements.
    pub measurements: MeasurementCardinality,
    /// Tag keys.
    pub tag_keys: TagKeyCardinality,
    /// Tags: pairs of key and value.
    pub tag_values: TagValueCardinality,
    /// Growth of the number of timelines.
    pub growth: GrowthReport,
    /// Id of the request, as in the server log.
    pub request_id: String,
}

/// Cardinality of measurements.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MeasurementCardinality {
    /// Number of measurements.
    pub distinct: u64,
    /// Measurements with the most timelines, largest first.
    pub top: Vec<CountedName>,
}

/// Cardinality of tag keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TagKeyCardinality {
    /// Number of tag keys.
    pub distinct: u64,
    /// Tag keys with the most values, largest first.
    pub top: Vec<CountedKey>,
}

/// Tag key with its counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CountedKey {
    /// Tag key.
    pub key: String,
    /// Number of distinct values of the key.
    pub values: u64,
    /// Number of timelines with this key.
    pub timelines: u32,
}

/// Cardinality of tags.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TagValueCardinality {
    /// Number of pairs of key and value.
    pub distinct: u64,
    /// Tags with the most timelines, largest first.
    pub top: Vec<CountedTag>,
}

/// Tag with its count.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CountedTag {
    /// Tag key.
    pub key: String,
    /// Tag value.
    pub value: String,
    /// Number of timelines with this tag.
    pub timelines: u32,
}

/// Timelines by the time when they were first seen, which is the timestamp of their oldest point. The time of a
/// timeline changes when an older point arrives, or when its oldest point expires or is deleted. The time when a
/// timeline was registered is not stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GrowthReport {
    /// Time by which timelines are counted: `first_seen`.
    pub by: String,
    /// Windows, oldest first, aligned to the epoch. The last one contains the current time.
    pub windows: Vec<GrowthWindow>,
    /// Number of timelines first seen before the first window.
    pub earlier: u64,
    /// Number of timelines first seen after the last window, because their points are in the future.
    pub later: u64,
    /// Number of timelines without points.
    pub never: u64,
}

/// Growth window.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GrowthWindow {
    /// Start of the window, RFC 3339.
    pub start: String,
    /// Number of timelines first seen in the window.
    pub timelines: u64,
}

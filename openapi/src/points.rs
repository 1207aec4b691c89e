//! Bodies of writes in JSON, and the report of a write.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Result of a write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "points": 2,
    "values": 3,
    "rejected": 1,
    "rejects": [{
        "line": 3,
        "reason": "invalid number",
        "excerpt": "cpu,host=web-1 usage=abc"
    }],
    "retryable": 0,
    "repeated": false,
    "request_id": "01jd3k5w8v-000002a1"
}))]
pub struct WriteReport {
    /// Points stored.
    pub points: u64,
    /// Field values stored.
    pub values: u64,
    /// Number of lines or elements that were not stored.
    pub rejected: u64,
    /// Rejected lines in order, with the reasons; at most the first 1,000.
    pub rejects: Vec<Reject>,
    /// Number of rejected lines that can succeed when they are sent again later. Examples are lines over the
    /// table's limit of new timelines per minute.
    pub retryable: u64,
    /// True if this is the report of an earlier request with the same `Idempotency-Key`; this request then stored
    /// nothing.
    pub repeated: bool,
    /// Id of the request, as in the server log.
    pub request_id: String,
}

/// Line or element that was not stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Reject {
    /// Line of the body, or index of the JSON element, from 1.
    pub line: u32,
    /// Reason.
    pub reason: String,
    /// Beginning of the line, or measurement of the element.
    pub excerpt: String,
    /// True if the line can succeed when it is sent again later. Omitted otherwise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retryable: bool,
}

/// Points in JSON. A bare list `[point, …]` is also accepted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "precision": "ms",
    "points": [
        {"measurement": "cpu", "tags": {"host": "web-1"}, "time": 1_795_176_000_000_i64,
         "fields": {"usage_user": 12.5, "processes": 210}},
        {"measurement": "cpu", "tags": {"host": "web-2"}, "fields": {"usage_user": 3.25}}
    ]
}))]
pub struct PointsBody {
    /// Unit of integer times: `ns` (default), `us`, `ms`, `s`, `m`, `h`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub precision: Option<String>,
    /// Points.
    pub points: Vec<Point>,
}

/// Point in JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Point {
    /// Measurement.
    pub measurement: String,
    /// Tags. Together with the measurement they identify the timeline.
    #[serde(default)]
    #[schema(value_type = std::collections::HashMap<String, String>)]
    pub tags: serde_json::Map<String, serde_json::Value>,
    /// Timestamp: RFC 3339 text, or an integer in units of the precision. Default: time of arrival.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<crate::TimeInput>)]
    pub time: Option<serde_json::Value>,
    /// Fields, at least one. A whole number is an integer; a number with a fraction or an exponent is a float.
    /// `{"unsigned": 1}`, `{"signed": 1}` and `{"float": 1}` select the type; their value may also be text:
    /// `{"float": "NaN"}`.
    #[schema(value_type = std::collections::HashMap<String, serde_json::Value>)]
    pub fields: serde_json::Map<String, serde_json::Value>,
}

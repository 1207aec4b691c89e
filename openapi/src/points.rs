//! The answer to a write.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What became of the points of one request.
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
    /// Lines or elements that were not stored, in all.
    pub rejected: u64,
    /// What was wrong with them, in their order; at most the first thousand.
    pub rejects: Vec<Reject>,
    /// How many of them may be stored when they are sent again later: their table takes only so many new timelines a
    /// minute.
    pub retryable: u64,
    /// Whether an earlier request with the same `Idempotency-Key` had this outcome, and this one stored nothing.
    pub repeated: bool,
    /// Names the request in the log.
    pub request_id: String,
}

/// A line or element that was not stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Reject {
    /// The line of the body, or the index of the JSON element; the first is 1.
    pub line: u32,
    /// Why.
    pub reason: String,
    /// How it begins, or its measurement.
    pub excerpt: String,
    /// Whether it may be stored when it is sent again later; left out where not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retryable: bool,
}

/// A JSON body of points. `[point, …]` without the outer object is read too.
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
    /// The unit of integer times: `ns` (default), `us`, `ms`, `s`, `m`, `h`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub precision: Option<String>,
    /// The points.
    pub points: Vec<Point>,
}

/// One point in JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Point {
    /// What is measured.
    pub measurement: String,
    /// Tags, which name the timeline together with the measurement.
    #[serde(default)]
    #[schema(value_type = std::collections::HashMap<String, String>)]
    pub tags: serde_json::Map<String, serde_json::Value>,
    /// RFC 3339 text or an integer in units of the precision; without it the point gets the time of its arrival.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<crate::TimeInput>)]
    pub time: Option<serde_json::Value>,
    /// At least one field. A whole number is an integer, one with fraction or exponent a float; `{"unsigned": 1}`,
    /// `{"signed": 1}` and `{"float": 1}` say it outright, also as text: `{"float": "NaN"}`.
    #[schema(value_type = std::collections::HashMap<String, serde_json::Value>)]
    pub fields: serde_json::Map<String, serde_json::Value>,
}

//! Deletes of points and of timelines.
//!
//! A request must contain a selection of timelines. A delete of points must also contain both ends of the time range.
//! An omitted member therefore cannot delete everything.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::condition::TimeSpan;
use crate::query::TimelineSelector;
use crate::time::TimeInput;
use crate::timeline::Suggestion;

/// Points to delete. To delete all points, use `{"and": []}` as the condition and a range with `null` at both ends.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "timelines": {"where": {"and": [
        {"property": "measurement", "equals": "cpu"},
        {"tag": "host", "equals": "web-9"}
    ]}},
    "range": {"start": "2026-11-01T00:00:00Z", "end": "2026-11-02T00:00:00Z"}
}))]
pub struct DeletePoints {
    /// Timelines whose points are deleted.
    pub timelines: TimelineSelector,
    /// Time range of the points.
    pub range: DeleteRange,
}

/// Time range from `start` (inclusive) to `end` (exclusive). Both members are required; `null` = open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"start": "now-1d", "end": null}))]
pub struct DeleteRange {
    /// Start, inclusive; `null` = no lower bound.
    #[serde(deserialize_with = "Option::deserialize")]
    #[schema(required = true)]
    pub start: Option<TimeInput>,
    /// End, exclusive; `null` = no upper bound.
    #[serde(deserialize_with = "Option::deserialize")]
    #[schema(required = true)]
    pub end: Option<TimeInput>,
}

impl From<DeleteRange> for TimeSpan {
    fn from(DeleteRange { start, end }: DeleteRange) -> Self {
        Self { start, end }
    }
}

/// Timelines to delete with all their points.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"timelines": {"where": {"tag": "host", "equals": "web-9"}}}))]
pub struct DeleteTimelines {
    /// Timelines to delete.
    pub timelines: TimelineSelector,
}

/// Result of a delete.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({"timelines": 12, "request_id": "01jd3k5w8v-000002a1"}))]
pub struct DeleteReport {
    /// Number of selected timelines, with or without points in the range.
    pub timelines: u64,
    /// Names in the condition that the table does not have, with similar names. Omitted if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub suggestions: Vec<Suggestion>,
    /// Id of the request, as in the server log.
    pub request_id: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selection_and_both_ends_are_said() {
        let everything = r#"{"timelines":{"where":{"and":[]}},"range":{"start":null,"end":null}}"#;
        let read: DeletePoints = serde_json::from_str(everything).expect("both are said");
        assert_eq!(TimeSpan::from(read.range), TimeSpan::default());
        for (json, said) in [
            (r#"{"timelines":{"where":{"and":[]}}}"#, "missing field `range`"),
            (
                r#"{"range":{"start":null,"end":null}}"#,
                "missing field `timelines`",
            ),
            (
                r#"{"timelines":{"where":{"and":[]}},"range":{}}"#,
                "missing field `start`",
            ),
            (
                r#"{"timelines":{"where":{"and":[]}},"range":{"start":0}}"#,
                "missing field `end`",
            ),
            (
                r#"{"timelines":{},"range":{"start":0,"end":1},"all":true}"#,
                "unknown field `all`",
            ),
        ] {
            let error = serde_json::from_str::<DeletePoints>(json)
                .expect_err(json)
                .to_string();
            assert!(error.contains(said), "{json}: {error}");
        }
    }
}

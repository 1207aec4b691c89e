//! Deletes of points and of timelines.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::condition::TimeSpan;
use crate::query::TimelineSelector;
use crate::time::TimeInput;
use crate::timeline::Suggestion;

/// Points to delete. Whoever means everything says so: a condition that always holds, `{"and": []}`, and a range that is
/// open at both ends.
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
    /// Of which timelines.
    pub timelines: TimelineSelector,
    /// In which range.
    pub range: DeleteRange,
}

/// A range whose ends are both said: `start` belongs to it, `end` does not; `null` = open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"start": "now-1d", "end": null}))]
pub struct DeleteRange {
    /// The first instant inside; `null` = however old.
    #[serde(deserialize_with = "Option::deserialize")]
    #[schema(required = true)]
    pub start: Option<TimeInput>,
    /// The first instant after; `null` = however young.
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
    /// Which.
    pub timelines: TimelineSelector,
}

/// What a delete was about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({"timelines": 12, "request_id": "01jd3k5w8v-000002a1"}))]
pub struct DeleteReport {
    /// Timelines that were selected, whether or not they had points in the range.
    pub timelines: u64,
    /// Names in the condition that the table does not have, with similar ones; missing where all are known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub suggestions: Vec<Suggestion>,
    /// Names the request in the log.
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

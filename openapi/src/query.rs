//! Questions about points: what is asked in common, of rows, of aggregates and of newest values.

mod aggregate;
mod answer;
mod batch;
mod compute;
mod explain;
mod running;
mod window;

use serde::{Deserialize, Serialize};
use tideline_model::TimeExpression;
use utoipa::ToSchema;

use crate::condition::{Condition, TimeSpan, ValueCondition};
use crate::tier::TierChoice;
use crate::time::TimeInput;

pub use self::aggregate::{Aggregate, Fill, Function, GroupBy, GroupWord, Rank, RankEnd};
pub use self::answer::{PointAnswer, QueryCost, Series};
pub use self::batch::{BatchAnswer, BatchPart, BatchQuery};
pub use self::compute::Computation;
pub use self::explain::{Explanation, QueryPlan, TierEstimate, TierEstimates, UnsealedEstimate};
pub use self::running::{CancelledQuery, QueryBudget, RunningQueries, RunningQuery};
pub use self::window::{CalendarUnit, WindowWidth};

/// Points as they are, or values computed from them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "timelines": {"where": {"and": [
        {"property": "measurement", "equals": "cpu"},
        {"tag": "host", "prefix": "sim-"}
    ]}},
    "fields": ["usage_user"],
    "range": {"start": "now-1h", "end": "now"},
    "aggregate": {"functions": ["mean", "max", {"percentile": 95}], "window": "1m", "group_by": ["host"]}
}))]
pub struct PointQuery {
    /// Which timelines; without it all of the table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timelines: Option<TimelineSelector>,
    /// Which fields; empty or missing = all, computed ones included. A field that the table has never seen is an error.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<String>,
    /// Whether all fields include those that accompany samples of Prometheus: start timestamps (`_start`) and exemplars
    /// (`_exemplar`). Named in `fields` they are there either way.
    #[serde(default, skip_serializing_if = "is_false")]
    pub sample_details: bool,
    /// Which instants; what is left away is open. Windows and rates need a `start`; their `end` is now where it is
    /// left away.
    #[serde(default)]
    pub range: TimeSpan,
    /// Which points count, by their values; without it all. Aggregates see only these.
    #[serde(default, rename = "where", skip_serializing_if = "Option::is_none")]
    pub values: Option<ValueCondition>,
    /// Fields that are computed of each point, and then wanted, tested, ranked and aggregated by their names like others. A
    /// measurement has those of which it has some field.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub compute: Vec<Computation>,
    /// Which tiers to read.
    #[serde(default)]
    pub tier: TierChoice,
    /// What to compute; without it the points themselves are the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aggregate: Option<Aggregate>,
    /// Of each field of each timeline only so many points, from 3 to 100,000: those that show its shape best in a chart
    /// (largest triangle three buckets; the first and the last stay). For fields of numbers, without pages and `aggregate`;
    /// a row has the fields that chose its instant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample: Option<u64>,
    /// Rows in the order of a value, over all timelines, instead of that of time: the first `limit` of them, 1,000 without one
    /// and 100,000 at most. A series begins wherever the timeline changes. Without pages, `sample` and `aggregate`, whose
    /// groups have a `rank`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sort: Option<RowOrder>,
    /// The most that the query may take.
    #[serde(default, skip_serializing_if = "QueryBudget::is_empty")]
    pub budget: QueryBudget,
    /// The order of time in each series. Series come by measurement and group, or by timeline id.
    #[serde(default)]
    pub order: TimeOrder,
    /// Most rows of the answer, at least 1; without it all that the query's budget allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// `next` of the page before, with the same question otherwise; a relative `range` stays that of the first page.
    /// Not for aggregates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page: Option<String>,
    /// Adds to the cost of the answer how it was answered; in JSON and NDJSON.
    #[serde(default, skip_serializing_if = "is_false")]
    pub plan: bool,
    /// How times are written.
    #[serde(default)]
    pub times: TimeForm,
    /// How integers beyond 2⁵³ are written in JSON.
    #[serde(default)]
    pub int64: IntegerForm,
}

/// Orders rows by the value of a field: numbers by their exact values, then booleans, then texts, then NaN. Rows of equal values
/// keep the order of timelines and time; those without a value are left out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"field": "usage_user", "first": "highest"}))]
pub struct RowOrder {
    /// The field, stored or computed; it need not be one of `fields`.
    pub field: String,
    /// Which end comes first.
    #[serde(default)]
    pub first: RankEnd,
}

/// Whether nothing is asked for; what is skipped then.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "it is what serde hands over")]
pub(crate) fn is_false(value: &bool) -> bool {
    !value
}

/// The newest value of each field, of any set of timelines.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "timelines": {"where": {"tag": "host", "in": ["sim-001", "sim-002"]}},
    "limit": 100
}))]
pub struct LatestQuery {
    /// Which timelines; without it all of the table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timelines: Option<TimelineSelector>,
    /// Which fields; empty or missing = all. A field that the table has never seen is an error.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<String>,
    /// Whether all fields include those that accompany samples of Prometheus: start timestamps (`_start`) and exemplars
    /// (`_exemplar`). Named in `fields` they are there either way.
    #[serde(default, skip_serializing_if = "is_false")]
    pub sample_details: bool,
    /// Which tiers to read: with one of them, the newest values that it holds.
    #[serde(default)]
    pub tier: TierChoice,
    /// The most that the query may take.
    #[serde(default, skip_serializing_if = "QueryBudget::is_empty")]
    pub budget: QueryBudget,
    /// Most timelines of the page, at least 1; without it all that the query's budget allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// `next` of the page before, with the same question otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page: Option<String>,
    /// How times are written.
    #[serde(default)]
    pub times: TimeForm,
    /// How integers beyond 2⁵³ are written in JSON.
    #[serde(default)]
    pub int64: IntegerForm,
}

/// Names timelines: exactly one of `where` and `ids`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"where": {"property": "measurement", "equals": "cpu"}}))]
pub struct TimelineSelector {
    /// Those that meet a condition.
    #[serde(default, rename = "where", skip_serializing_if = "Option::is_none")]
    pub condition: Option<Condition>,
    /// Those with these ids, 32 hexadecimal digits each; an unknown one is an error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ids: Option<Vec<String>>,
}

/// The order of time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum TimeOrder {
    /// Oldest first.
    #[default]
    #[serde(alias = "ascending")]
    Asc,
    /// Newest first.
    #[serde(alias = "descending")]
    Desc,
}

/// How times of an answer are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum TimeForm {
    /// RFC 3339 text in UTC, with 0, 3, 6 or 9 digits of a second.
    #[default]
    Rfc3339,
    /// Integer nanoseconds since the epoch; JavaScript rounds them.
    Nanos,
}

/// How integers beyond ±2⁵³, which JavaScript rounds, are written in JSON.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum IntegerForm {
    /// As numbers, exactly.
    #[default]
    Number,
    /// As text.
    String,
}

impl PointQuery {
    /// Whether the range moves with time.
    pub fn is_relative(&self) -> bool {
        let is_relative = |time: &TimeInput| matches!(time.0, TimeExpression::FromNow(_));
        [self.range.start, self.range.end]
            .iter()
            .flatten()
            .any(is_relative)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_read_in_all_their_forms() {
        for json in [
            "{}",
            r#"{"timelines":{"ids":["3f2a9c017bde45a18c40f1e29d3b6a57"]},"range":{"start":0},"limit":5,"order":"desc"}"#,
            r#"{"timelines":{"where":{"tag":"host","equals":"a"}},"fields":["f"],"times":"nanos","int64":"string"}"#,
            r#"{"aggregate":{"functions":["count","rate"],"window":"1h","offset":"30m","group_by":"timeline"}}"#,
            r#"{"where":{"and":[{"field":"f","gte":1.5},{"not":{"field":"s","exists":true}}]}}"#,
            r#"{"aggregate":{"functions":["max"],"window":"1m","fill":"linear"}}"#,
            r#"{"aggregate":{"functions":["max"],"window":"1m","fill":{"previous":"10m"}}}"#,
            r#"{"aggregate":{"functions":["max"],"window":"1m","fill":{"value":-1.5}}}"#,
            r#"{"aggregate":{"functions":["last"],"group_by":["host","dc"]},"range":{"start":"now-1h","end":"now"}}"#,
            r#"{"aggregate":{"functions":["max"],"window":"1mo","zone":"Europe/Berlin","rank":{"by":"max","limit":3}}}"#,
            r#"{"compute":[{"name":"c","expression":"a + b"}],"aggregate":{"compute":[{"name":"d","expression":"max(c)"}]}}"#,
            r#"{"aggregate":{"functions":["count_distinct","stddev",{"percentile":99.9},"time_weighted_mean"]}}"#,
        ] {
            let read: PointQuery = serde_json::from_str(json).expect(json);
            let shown = serde_json::to_string(&read).expect("plain data");
            assert_eq!(serde_json::from_str::<PointQuery>(&shown).expect(&shown), read);
        }
    }

    #[test]
    fn what_is_unknown_is_refused() {
        for (json, said) in [
            (r#"{"bogus":1}"#, "unknown field `bogus`"),
            (r#"{"timelines":{"all":true}}"#, "unknown field `all`"),
            (
                r#"{"aggregate":{"functions":["median"]}}"#,
                "unknown variant `median`",
            ),
            (
                r#"{"aggregate":{"functions":[{"percentile":"x"}]}}"#,
                "expected f64",
            ),
            (r#"{"aggregate":{"window":"1month"}}"#, "3mo"),
            (
                r#"{"aggregate":{"functions":["sum"],"group_by":"host"}}"#,
                "expected a list of tags",
            ),
            (r#"{"range":{"start":"yesterday"}}"#, "RFC 3339"),
            (r#"{"limit":-1}"#, "invalid value"),
        ] {
            let error = serde_json::from_str::<PointQuery>(json)
                .expect_err(json)
                .to_string();
            assert!(error.contains(said), "{json}: {error}");
        }
    }
}

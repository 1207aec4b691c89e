//! Queries of points: rows, aggregates and latest values.
//!
//! This module holds the common parts: [`PointQuery`], [`LatestQuery`] and their options. The submodules hold
//! aggregates, windows, arithmetic, batches, explanations, running queries and results.

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

/// Query of points, or of values computed from them.
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
    /// Timelines to read. Default: all timelines of the table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timelines: Option<TimelineSelector>,
    /// Fields to return; empty or missing = all, including computed ones. A field that no measurement of the table
    /// has is an error.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<String>,
    /// True if "all fields" includes the fields that accompany Prometheus samples: start timestamps (`_start`) and
    /// exemplars (`_exemplar`). Fields named in `fields` are always returned.
    #[serde(default, skip_serializing_if = "is_false")]
    pub sample_details: bool,
    /// Time range; a missing bound is open. Windows and rates need a `start`; their default `end` is now.
    #[serde(default)]
    pub range: TimeSpan,
    /// Condition on the values of points. Default: all points. The condition applies before aggregation.
    #[serde(default, rename = "where", skip_serializing_if = "Option::is_none")]
    pub values: Option<ValueCondition>,
    /// Fields computed from each point. They can be returned, tested, ranked and aggregated by name like stored
    /// fields. A measurement has a computed field if it has at least one of the fields that the expression
    /// uses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub compute: Vec<Computation>,
    /// Tiers to read.
    #[serde(default)]
    pub tier: TierChoice,
    /// Aggregation. Default: the points themselves are returned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aggregate: Option<Aggregate>,
    /// Maximum number of points per field and timeline, 3 to 100,000, chosen to keep the shape of a chart (largest
    /// triangle three buckets; the first and last points stay). Only for numeric fields, and not with pages, `sort`
    /// or `aggregate`. A row contains only the fields whose sample includes the timestamp of the row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample: Option<u64>,
    /// Order of rows by a value, over all timelines, instead of by time. Returns the first `limit` rows: default
    /// 1,000, maximum 100,000. A new series starts wherever the timeline changes. Not with pages, `sample` or
    /// `aggregate`; groups of an aggregate are ordered by its `rank`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sort: Option<RowOrder>,
    /// Limits of this query.
    #[serde(default, skip_serializing_if = "QueryBudget::is_empty")]
    pub budget: QueryBudget,
    /// Order by time inside each series. Series are ordered by timeline id, or by measurement and group.
    #[serde(default)]
    pub order: TimeOrder,
    /// Maximum number of rows, at least 1. Default: as many as the budget of the query allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// `next` of the previous page. All other members must be the same; a relative `range` is resolved once,
    /// for the first page. Not for aggregates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page: Option<String>,
    /// True to add the query plan to the cost of the result. CSV and Arrow omit the cost.
    #[serde(default, skip_serializing_if = "is_false")]
    pub plan: bool,
    /// Format of timestamps.
    #[serde(default)]
    pub times: TimeForm,
    /// Format of integers beyond ±2⁵³ in JSON.
    #[serde(default)]
    pub int64: IntegerForm,
}

/// Order of rows by the value of a field: numbers by their exact values, then booleans, texts, histograms and NaN.
/// Rows with equal values are ordered by timeline and time. Rows without a value are omitted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"field": "usage_user", "first": "highest"}))]
pub struct RowOrder {
    /// Field, stored or computed. It does not have to be one of `fields`.
    pub field: String,
    /// Direction of the order.
    #[serde(default)]
    pub first: RankEnd,
}

/// Returns true if the flag is false, which is the default. Serialization then omits the flag.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
pub(crate) fn is_false(value: &bool) -> bool {
    !value
}

/// Query of the newest value of each field.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "timelines": {"where": {"tag": "host", "in": ["sim-001", "sim-002"]}},
    "limit": 100
}))]
pub struct LatestQuery {
    /// Timelines to read. Default: all timelines of the table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timelines: Option<TimelineSelector>,
    /// Fields to return; empty or missing = all. A field that no measurement of the table has is an error.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<String>,
    /// True if "all fields" includes the fields that accompany Prometheus samples: start timestamps (`_start`) and
    /// exemplars (`_exemplar`). Fields named in `fields` are always returned.
    #[serde(default, skip_serializing_if = "is_false")]
    pub sample_details: bool,
    /// Tiers to read. With a single tier: the newest values in that tier.
    #[serde(default)]
    pub tier: TierChoice,
    /// Limits of this query.
    #[serde(default, skip_serializing_if = "QueryBudget::is_empty")]
    pub budget: QueryBudget,
    /// Maximum number of timelines per page, at least 1. Default: as many as the budget of the query allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// `next` of the previous page. All other members must be the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page: Option<String>,
    /// Format of timestamps.
    #[serde(default)]
    pub times: TimeForm,
    /// Format of integers beyond ±2⁵³ in JSON.
    #[serde(default)]
    pub int64: IntegerForm,
}

/// Selection of timelines: exactly one of `where` and `ids`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"where": {"property": "measurement", "equals": "cpu"}}))]
pub struct TimelineSelector {
    /// Condition on timelines.
    #[serde(default, rename = "where", skip_serializing_if = "Option::is_none")]
    pub condition: Option<Condition>,
    /// Timeline ids, 32 hexadecimal digits each. An unknown id is an error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ids: Option<Vec<String>>,
}

/// Order by time.
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

/// Format of timestamps in a response.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum TimeForm {
    /// RFC 3339 text in UTC, with 0, 3, 6 or 9 decimals.
    #[default]
    Rfc3339,
    /// Integer nanoseconds since the epoch. JavaScript rounds them.
    Nanos,
}

/// Format of integers beyond ±2⁵³ in JSON. JavaScript rounds such numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum IntegerForm {
    /// Exact numbers.
    #[default]
    Number,
    /// Strings.
    String,
}

impl PointQuery {
    /// Returns true if a bound of the range is relative to now.
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

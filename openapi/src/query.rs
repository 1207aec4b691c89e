//! Questions about points, and their answers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::condition::{Condition, Scalar, TimeSpan};
use crate::tier::{TierChoice, TierCosts};
use crate::time::{DurationText, TimeInput};
use crate::value_condition::ValueCondition;

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
    /// Which fields; empty or missing = all. A field that the table has never seen is an error.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<String>,
    /// Which instants; what is left away is open. Windows and rates need a `start`; their `end` is now where it is
    /// left away.
    #[serde(default)]
    pub range: TimeSpan,
    /// Which points count, by their values; without it all. Aggregates see only these.
    #[serde(default, rename = "where", skip_serializing_if = "Option::is_none")]
    pub values: Option<ValueCondition>,
    /// Which tiers to read.
    #[serde(default)]
    pub tier: TierChoice,
    /// What to compute; without it the points themselves are the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aggregate: Option<Aggregate>,
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
    /// How times are written.
    #[serde(default)]
    pub times: TimeForm,
    /// How integers beyond 2⁵³ are written in JSON.
    #[serde(default)]
    pub int64: IntegerForm,
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
    /// Which tiers to read: with one of them, the newest values that it holds.
    #[serde(default)]
    pub tier: TierChoice,
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

/// What is computed of each field, in each window of each group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"functions": ["mean", "max", {"percentile": 95}], "window": "1m", "group_by": ["host"]}))]
pub struct Aggregate {
    /// At least one, none twice. Each is applied to every field; where the query names no fields, to those that it suits. Its
    /// column is called `mean(usage_user)`.
    pub functions: Vec<Function>,
    /// The width of windows `[n·window, (n+1)·window)`; a row bears the start of its window, empty windows are absent
    /// unless `fill` says otherwise.
    /// Without it the whole range is one window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<DurationText>,
    /// Moves the windows: one of them begins at this instant after the epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<DurationText>,
    /// What stands in windows without a value.
    #[serde(default, skip_serializing_if = "Fill::is_none")]
    pub fill: Fill,
    /// Which timelines are put together; measurements never are.
    #[serde(default)]
    pub group_by: GroupBy,
}

/// What stands in the windows of a series that have no value of a column: a word, `{"previous": "10m"}` or
/// `{"value": 0}`. With any but `none`, every window of the range has a row, also those before the first value and after
/// the last; a series without any value stays absent. `count` and `count_distinct` are 0 there, whatever the fill.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Fill {
    /// A window without any value has no row.
    #[default]
    None,
    /// A row with `null`.
    Null,
    /// The straight line between the values before and after, by the starts of their windows; `null` before the first and
    /// after the last. For columns of numbers.
    Linear,
    /// The newest value before, where its window began at most this long before the filled one; else `null`.
    Previous(DurationText),
    /// This value, for columns of its kind.
    Value(Scalar),
}

impl Fill {
    /// Whether nothing is filled.
    pub fn is_none(&self) -> bool {
        *self == Self::None
    }
}

/// A function over the values of a field: a word, or `{"percentile": 95}`. NaN counts as a value, but `min`, `max`, `spread`,
/// `percentile`, `rate`, `increase`, `integral` and `time_weighted_mean` pass over it. The column of a percentile is called
/// `percentile_95(usage_user)`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Function {
    /// How many values, of any type.
    Count,
    /// How many different values, of any type; numbers of equal value are one, whatever their type. Exact.
    CountDistinct,
    /// The sum: exact for integers (beyond 64 bits it is an error), compensated for floats.
    Sum,
    /// The arithmetic mean.
    Mean,
    /// The standard deviation of the population.
    Stddev,
    /// The lowest number or boolean.
    Min,
    /// The highest number or boolean.
    Max,
    /// The highest number less the lowest; exact between integers.
    Spread,
    /// The value that occurs most often, of any type; of several the lowest.
    Mode,
    /// The value of the earliest point, of any type.
    First,
    /// The value of the latest point, of any type.
    Last,
    /// The last number of each timeline less its first, added over timelines; exact between integers. A drop is no
    /// restart.
    Delta,
    /// `increase` over the seconds of the window that lie in the range.
    Rate,
    /// The growth of counters: steps from point to point of each timeline, each in the window of its later point, a
    /// drop being a restart from zero. Nothing is extrapolated.
    Increase,
    /// The area under straight lines from point to point of each timeline, cut at the windows, in value × seconds, added
    /// over timelines. A window between two points has one without a point of its own.
    Integral,
    /// That area over the seconds that it is drawn for; in a window without a line the mean of its points.
    TimeWeightedMean,
    /// The value at a share of the sorted values, from 0 to 100 percent: with n values, the one at (n − 1)·p/100 counted
    /// from 0, interpolated between neighbours. Exact up to 4096 values a window and group; beyond, each neighbour is
    /// known within 1/512 of itself, and the answer names the column in `estimated`.
    #[schema(example = 95)]
    Percentile(f64),
}

/// Tags whose equal values put timelines together, or `"timeline"` for each by itself. An empty list puts all together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
#[schema(example = json!(["host"]))]
pub enum GroupBy {
    /// `"timeline"`.
    Each(GroupWord),
    /// By these tags; a missing one equals the empty text.
    Tags(Vec<String>),
}

/// The word for groups of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum GroupWord {
    /// Each timeline is a group.
    Timeline,
}

impl Default for GroupBy {
    fn default() -> Self {
        Self::Tags(Vec::new())
    }
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

/// The answer to a question about points, as JSON. It is streamed: a failure after its beginning cuts it off.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "request_id": "01jd3k5w8v-000002a1",
    "series": [{
        "measurement": "cpu",
        "tags": {"host": "sim-001"},
        "columns": ["time", "mean(usage_user)", "max(usage_user)"],
        "points": [["2026-11-20T12:00:00Z", 41.5, 58], ["2026-11-20T12:01:00Z", 43.25, 61]]
    }],
    "more": false,
    "next": null,
    "cost": {
        "timelines": 1, "chunks": 1, "points": 12, "values": 12, "bytes": 75, "elapsed_ms": 0.21,
        "tiers": {
            "hot": {
                "segments": 1, "chunks": 1, "points": 12, "values": 12, "bytes": 75, "summaries": 0,
                "summarized_points": 0
            },
            "cold": {
                "segments": 0, "chunks": 0, "points": 0, "values": 0, "bytes": 0, "summaries": 0, "summarized_points": 0
            }
        }
    }
}))]
pub struct PointAnswer {
    /// Names the request in the log.
    pub request_id: String,
    /// Timelines by id, or groups by measurement and tags; those without a row are left out.
    pub series: Vec<Series>,
    /// Whether `limit` left rows out.
    pub more: bool,
    /// Pass it as `page` to get what follows; `null` after the last page, and for aggregates.
    pub next: Option<String>,
    /// Columns in which some value is an estimate; missing where none is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub estimated: Vec<String>,
    /// What was read.
    pub cost: QueryCost,
}

/// The rows of one timeline or group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Series {
    /// The timeline, where the series is one; missing for groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The measurement.
    pub measurement: String,
    /// The tags of the timeline, or those that the group was made by.
    pub tags: BTreeMap<String, String>,
    /// `time`, then the fields or functions.
    pub columns: Vec<String>,
    /// One array a row with one value a column, `null` where there is none. Floats have a point or an exponent;
    /// those that are no numbers are the texts `NaN`, `Inf` and `-Inf`.
    #[schema(value_type = Vec<Vec<serde_json::Value>>)]
    pub points: Vec<Vec<serde_json::Value>>,
}

/// What a query has read.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct QueryCost {
    /// Timelines looked at.
    pub timelines: u64,
    /// Chunks and blocks decoded.
    pub chunks: u64,
    /// Points decoded.
    pub points: u64,
    /// Field values decoded.
    pub values: u64,
    /// Encoded bytes of those chunks.
    pub bytes: u64,
    /// Milliseconds from the start of planning to the last row.
    pub elapsed_ms: f64,
    /// The same of each tier.
    pub tiers: TierCosts,
}

impl PointQuery {
    /// Whether the range moves with time.
    pub fn is_relative(&self) -> bool {
        let is_relative = |time: &TimeInput| matches!(time, TimeInput::FromNow(_));
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
            (r#"{"aggregate":{}}"#, "missing field `functions`"),
            (
                r#"{"aggregate":{"functions":["sum"],"group_by":"host"}}"#,
                "GroupBy",
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

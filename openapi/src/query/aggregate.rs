//! Aggregation of points: functions, windows, groups, fill and rank.
//!
//! `tideline-query` has its own types for evaluation; the HTTP service converts between the two.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::compute::Computation;
use super::window::WindowWidth;
use crate::condition::Scalar;
use crate::time::DurationText;

/// Aggregation of each field, per window and group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"functions": ["mean", "max", {"percentile": 95}], "window": "1m", "group_by": ["host"]}))]
pub struct Aggregate {
    /// Functions, each at most once; at least one unless `compute` is set. Each function applies to every field
    /// of the query. If the query lists no fields, each function applies to all fields of a suitable type. A
    /// column has a name such as `mean(usage_user)`.
    #[serde(default)]
    pub functions: Vec<Function>,
    /// Further columns, computed from aggregates of the same window and group. The aggregates do not have to be
    /// listed in `functions`. Measurements that lack a field of the expression do not have the column. In filled
    /// windows the filled values are used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub compute: Vec<Computation>,
    /// Width of windows. Each row has the start of its window as its time. Empty windows are omitted unless `fill` is
    /// set. Default: the whole range is one window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<WindowWidth>,
    /// Time zone of calendar windows (days, weeks, months, years): an IANA name such as `Europe/Berlin`.
    /// Default UTC. If a clock change skips the local start of a window, the window starts right after the gap.
    /// If the local start occurs twice, the window starts at the first occurrence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// Shift of the windows: one window starts at this time after the epoch. Calendar windows start this much later
    /// in local time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<DurationText>,
    /// Values for windows without a value.
    #[serde(default, skip_serializing_if = "Fill::is_none")]
    pub fill: Fill,
    /// Grouping of timelines. Timelines of different measurements are never in one group.
    #[serde(default)]
    pub group_by: GroupBy,
    /// Order of series by a value, and the number of series to keep. Default: all series, ordered by
    /// measurement and group. Windows are computed only for the kept series.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<Rank>,
}

/// Order of series by an aggregate of a field over the whole range. In both directions, numbers come first,
/// then booleans, texts, histograms, NaN and finally series without a value. Equal values are ordered by
/// measurement and group, or by timeline id.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"by": "mean", "field": "usage_user", "first": "highest", "limit": 10}))]
pub struct Rank {
    /// Function.
    pub by: Function,
    /// Field, stored or computed. Optional if the query lists exactly one field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// Direction of the order.
    #[serde(default)]
    pub first: RankEnd,
    /// Maximum number of series, at least 1. Default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
}

/// Direction of an order by value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum RankEnd {
    /// Highest values first.
    #[default]
    Highest,
    /// Lowest values first.
    Lowest,
}

/// Values for the windows of a series in which a column has no value: a word, `{"previous": "10m"}` or
/// `{"value": 0}`. With any fill except `none`, every window of the range has a row, including those before the first
/// and after the last value. A series without any value stays absent. `count` and `count_distinct` are 0 in empty
/// windows, whatever the fill.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Fill {
    /// A window without any value has no row.
    #[default]
    None,
    /// `null`.
    Null,
    /// Linear interpolation between the values before and after, by the starts of their windows; `null` before the
    /// first and after the last value. Only for numeric columns.
    Linear,
    /// Newest earlier value, if its window starts at most this long before the filled window; otherwise `null`.
    Previous(DurationText),
    /// Constant, for columns of its type.
    Value(Scalar),
}

impl Fill {
    /// Returns true if windows are not filled.
    pub fn is_none(&self) -> bool {
        *self == Self::None
    }
}

/// Aggregate function of a field: a word, or `{"percentile": 95}`. NaN counts as a value, except for `percentile`,
/// `rate`, `increase`, `integral` and `time_weighted_mean`, which ignore it, and for `min`, `max` and `spread`, which
/// ignore it unless all values are NaN. The column of a percentile has a name such as `percentile_95(usage_user)`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Function {
    /// Number of values, of any type.
    Count,
    /// Number of distinct values, of any type except histograms. Equal numbers of different types count once. Exact.
    CountDistinct,
    /// Sum: exact for integers (`null` beyond 64 bits, see `overflowed` of the result), compensated for floats.
    Sum,
    /// Arithmetic mean.
    Mean,
    /// Standard deviation of the population.
    Stddev,
    /// Lowest number or boolean.
    Min,
    /// Highest number or boolean.
    Max,
    /// Highest minus lowest number; exact between integers.
    Spread,
    /// Most frequent value, of any type except histograms. If several values are equally frequent, the lowest of them.
    Mode,
    /// Value of the earliest point, of any type.
    First,
    /// Value of the latest point, of any type.
    Last,
    /// Last minus first number of each timeline, summed over timelines; exact between integers (`null` beyond 64 bits).
    /// A drop is not treated as a counter reset.
    Delta,
    /// `increase` divided by the seconds of the window that are inside the range.
    Rate,
    /// Increase of counters: the differences between successive points of each timeline, each in the window of the
    /// later point. A drop is a counter reset to zero. Nothing is extrapolated.
    Increase,
    /// Area under the straight lines between successive points of each timeline, split at window boundaries, in value ×
    /// seconds, summed over timelines. A window that contains no point but lies between two points also has an
    /// integral.
    Integral,
    /// `integral` divided by the seconds that its lines cover. In a window without a line: the mean of its points.
    TimeWeightedMean,
    /// Percentile, 0 to 100: of n sorted values, the value at index (n − 1)·p/100, counted from 0, interpolated
    /// between neighbors. Exact up to 4096 values per window and group. Beyond that each neighbor has a
    /// relative error of at most 1/512, and the result lists the column in `estimated`.
    #[schema(example = 95)]
    Percentile(f64),
}

/// Tags to group by, or `"timeline"` for one group per timeline. An empty list selects one group per measurement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged, expecting = "expected a list of tags, or \"timeline\"")]
#[schema(example = json!(["host"]))]
pub enum GroupBy {
    /// `"timeline"`.
    Each(GroupWord),
    /// Tags to group by. A missing tag is equal to the empty text.
    Tags(Vec<String>),
}

/// Word for groups of single timelines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum GroupWord {
    /// One group per timeline.
    Timeline,
}

impl Default for GroupBy {
    fn default() -> Self {
        Self::Tags(Vec::new())
    }
}

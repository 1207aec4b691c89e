//! What a question computes of points.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::compute::Computation;
use super::window::WindowWidth;
use crate::condition::Scalar;
use crate::time::DurationText;

/// What is computed of each field, in each window of each group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"functions": ["mean", "max", {"percentile": 95}], "window": "1m", "group_by": ["host"]}))]
pub struct Aggregate {
    /// At least one unless something is computed, none twice. Each is applied to every field; where the query names no fields, to those that it suits. Its
    /// column is called `mean(usage_user)`.
    #[serde(default)]
    pub functions: Vec<Function>,
    /// Further columns, computed from aggregates of the same window, whether `functions` has them or not. Measurements that
    /// lack a field have no such column. Filled windows are computed from what fills them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub compute: Vec<Computation>,
    /// The width of windows; a row bears the start of its window, empty windows are absent unless `fill` says otherwise.
    /// Without it the whole range is one window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<WindowWidth>,
    /// Whose clock decides where days, weeks, months and years begin: an IANA name such as `Europe/Berlin`; without it UTC.
    /// Where the clock skips the start of a window, it begins with the next instant there is; where it shows it twice, with
    /// the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// Moves the windows: one of them begins at this instant after the epoch; days, weeks, months and years begin so much
    /// later on the wall clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<DurationText>,
    /// What stands in windows without a value.
    #[serde(default, skip_serializing_if = "Fill::is_none")]
    pub fill: Fill,
    /// Which timelines are put together; measurements never are.
    #[serde(default)]
    pub group_by: GroupBy,
    /// Which series come first, and how many; without it all, by measurement and group. Only those that stay are read by
    /// window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<Rank>,
}

/// Orders series by the value of a function of a field over the whole range. Booleans come behind numbers, then texts, then
/// NaN, at last series without a value, whichever end is first; equal values by measurement and group, or timeline id.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"by": "mean", "field": "usage_user", "first": "highest", "limit": 10}))]
pub struct Rank {
    /// The function.
    pub by: Function,
    /// The field, stored or computed; not needed where the question names one field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// Which end comes first.
    #[serde(default)]
    pub first: RankEnd,
    /// Most series, at least 1; without it all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
}

/// Which values come first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum RankEnd {
    /// The highest.
    #[default]
    Highest,
    /// The lowest.
    Lowest,
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
#[serde(untagged, expecting = "expected a list of tags, or \"timeline\"")]
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

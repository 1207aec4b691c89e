//! Query types: selection of points, and the shape of the result.
//!
//! All types are plain data; a [`Querier`](crate::Querier) validates them when it runs the query.

use tideline_engine::condition::Condition;
use tideline_engine::model::{Tier, TimeRange, TimelineId};
use tideline_engine::{Suggestion, Table};

use crate::budget::Budget;
use crate::calendar::CalendarWindow;
use crate::compute::Computation;
use crate::fill::Fill;
use crate::function::Function;
use crate::token::PageToken;

/// Query of the points of one table.
#[derive(Debug, Clone)]
pub struct PointQuery {
    /// Selected timelines.
    pub timelines: Selector,
    /// Names of the wanted fields; empty = all, with computed fields after the stored ones. A name that the table
    /// has never had is an error.
    pub fields: Vec<String>,
    /// True if an empty `fields` also selects the fields that accompany samples: start timestamps and
    /// exemplars.
    pub details: bool,
    /// Time range, half-open; must not be empty.
    pub range: TimeRange,
    /// Condition on the values of a point; `None` = all points. The condition may use fields that are not wanted.
    pub values: Option<Condition>,
    /// Fields computed for each point. They are selected, filtered, ranked and aggregated by name like stored
    /// fields. A measurement has a computed field if the measurement has at least one input of the field.
    pub compute: Vec<Computation>,
    /// Tier to read; `None` = all. Unsealed points are hot.
    pub tier: Option<Tier>,
    /// Shape of the result.
    pub shape: Shape,
    /// Limits of the query.
    pub budget: Budget,
}

/// Selection of timelines.
#[derive(Debug, Clone, PartialEq)]
pub enum Selector {
    /// All timelines that match a condition.
    Condition(Condition),
    /// Timelines with these ids. An unknown id is an error; a repeated id counts once.
    Ids(Vec<TimelineId>),
}

impl PointQuery {
    /// Returns the names in the query that the table does not have.
    pub(crate) fn unknown_names(&self, table: &Table) -> Vec<Suggestion> {
        let tags = match &self.shape {
            Shape::Aggregate(Aggregate {
                group_by: GroupBy::Tags(tags),
                ..
            }) => tags.as_slice(),
            _ => &[],
        };
        self.timelines.unknown_names(table, tags, &self.fields)
    }
}

impl Selector {
    /// Returns the names in the condition, in `tags` and in `fields` that the table does not have.
    pub(crate) fn unknown_names(&self, table: &Table, tags: &[String], fields: &[String]) -> Vec<Suggestion> {
        let condition = match self {
            Self::Condition(condition) => condition,
            Self::Ids(_) => &Condition::All,
        };
        table.unknown_names(condition, tags, fields)
    }
}

/// Shape of a result.
#[derive(Debug, Clone)]
pub enum Shape {
    /// The points themselves.
    Rows(Rows),
    /// Values computed from the points.
    Aggregate(Aggregate),
}

/// Time order of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Direction {
    /// Oldest first.
    #[default]
    Ascending,
    /// Newest first.
    Descending,
}

/// Raw rows: timelines in order of id, and the points of each in time order.
#[derive(Debug, Clone, Default)]
pub struct Rows {
    /// Order of the points of one timeline. Timelines are in ascending order of id in both cases.
    pub order: Direction,
    /// Maximum number of rows of this page; `None` = as many as the budget allows.
    pub limit: Option<u64>,
    /// Token that ended the previous page.
    pub after: Option<PageToken>,
    /// Maximum number of points per field and timeline, chosen to preserve the shape of the curve. Supported only for
    /// fields of numbers, and without pages. A row has the fields for which its timestamp was chosen. See
    /// [`sample`](crate::sample).
    pub sample: Option<u64>,
    /// Order of rows by a value instead of by time; without pages and samples. See [`sorted`](crate::sorted).
    pub sort: Option<RowOrder>,
}

/// Order of rows by the value of a field: numbers by their exact values, then booleans, strings, histograms
/// (all equal) and NaN. Rows of equal values keep the order of timelines and time. Rows without a value are
/// omitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowOrder {
    /// Field, stored or computed; it need not be wanted.
    pub field: String,
    /// Direction of the order: highest or lowest values first.
    pub order: RankOrder,
}

/// Aggregate: values for each window of each group.
///
/// The columns of the result are every function of every field, field by field. If the query names no fields,
/// each function is applied to the fields that it supports. A named field that a function does not support is
/// an error.
#[derive(Debug, Clone, Default)]
pub struct Aggregate {
    /// Functions; at least one, unless `compute` has a column.
    pub functions: Vec<Function>,
    /// Additional columns, computed from aggregates of the same window, which need not be requested themselves.
    /// With a fill, the filled values are used. A measurement has a computed column if the measurement has all
    /// inputs of the column.
    pub compute: Vec<Computation>,
    /// Windows; `None` = the whole range is one window.
    pub window: Option<Window>,
    /// Fill of windows without a value; `None` = a window without any value has no row. Requires windows.
    pub fill: Option<Fill>,
    /// Grouping of the timelines. Timelines of different measurements are never in one group.
    pub group_by: GroupBy,
    /// Order of the windows of one group. Groups are in ascending order of measurement and key, or in rank order.
    pub order: Direction,
    /// Order and number of the groups; `None` = all groups by measurement and key.
    pub rank: Option<Rank>,
    /// Maximum number of rows of the result; `None` = as many as the budget allows. The summary reports whether rows
    /// were omitted.
    pub limit: Option<u64>,
}

/// Order of groups by the value of a function of a field over the whole range, even if the result has windows.
///
/// Numbers are compared by their exact values. Booleans follow, then strings, histograms (all equal), NaN, and
/// finally groups without a value, in both orders. Groups of equal values keep their order by measurement and
/// key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rank {
    /// Function that computes the rank value of a group.
    pub function: Function,
    /// Field to which the function is applied.
    pub field: String,
    /// Direction of the order: highest or lowest values first.
    pub order: RankOrder,
    /// Maximum number of groups of the result, at least 1; `None` = all.
    pub limit: Option<u64>,
}

/// Direction of an order by value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RankOrder {
    /// Highest values first.
    #[default]
    Highest,
    /// Lowest values first.
    Lowest,
}

/// Windows of an aggregate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Window {
    /// Windows of one width.
    Fixed(WindowSpec),
    /// Calendar windows of a time zone.
    Calendar(CalendarWindow),
}

/// Windows `[offset + n·width, offset + (n+1)·width)` for every integer n, in nanoseconds since the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowSpec {
    /// Width in nanoseconds, above zero.
    pub width: i64,
    /// Start of one of the windows; only its remainder modulo the width matters.
    pub offset: i64,
}

/// Grouping of the timelines of one measurement.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum GroupBy {
    /// Each timeline is a group.
    Timeline,
    /// Timelines with equal values of these tags are a group; a missing tag equals the empty string.
    Tags(Vec<String>),
    /// All timelines are one group.
    #[default]
    Nothing,
}

impl From<WindowSpec> for Window {
    fn from(spec: WindowSpec) -> Self {
        Self::Fixed(spec)
    }
}

impl WindowSpec {
    /// Returns windows of a width that are aligned to the epoch.
    pub fn aligned(width: i64) -> Self {
        Self { width, offset: 0 }
    }
}

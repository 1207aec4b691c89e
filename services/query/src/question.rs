//! What can be asked of points.

use tideline_engine::condition::Condition;
use tideline_engine::model::{Tier, TimeRange, TimelineId};
use tideline_engine::{Suggestion, Table};

use crate::budget::Budget;
use crate::calendar::CalendarWindow;
use crate::compute::Computation;
use crate::fill::Fill;
use crate::function::Function;
use crate::token::PageToken;

/// A question about the points of one table.
#[derive(Debug, Clone)]
pub struct PointQuery {
    /// Which timelines.
    pub timelines: Selector,
    /// Names of the wanted fields; empty = all, the computed ones behind the stored ones. A name that the table has never
    /// seen is an error.
    pub fields: Vec<String>,
    /// Whether all fields include those that accompany samples: start timestamps and exemplars.
    pub details: bool,
    /// Which instants, half-open; must not be empty.
    pub range: TimeRange,
    /// Which points count: those whose values meet it; `None` = all. The fields that it names need not be wanted.
    pub values: Option<Condition>,
    /// Fields that are computed of each point: wanted, tested, ranked and aggregated by their names like stored ones. A
    /// measurement has those of which it has some input.
    pub compute: Vec<Computation>,
    /// The tier to read; `None` = all. Points that are not sealed yet are hot.
    pub tier: Option<Tier>,
    /// What to make of the points.
    pub shape: Shape,
    /// What the query may cost.
    pub budget: Budget,
}

/// Names timelines.
#[derive(Debug, Clone, PartialEq)]
pub enum Selector {
    /// All that meet a condition.
    Condition(Condition),
    /// These; an unknown one is an error, one named twice counts once.
    Ids(Vec<TimelineId>),
}

impl PointQuery {
    /// Returns the names that the table does not have.
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
    /// Returns the names of a condition, of tags and of fields that the table does not have.
    pub(crate) fn unknown_names(&self, table: &Table, tags: &[String], fields: &[String]) -> Vec<Suggestion> {
        let condition = match self {
            Self::Condition(condition) => condition,
            Self::Ids(_) => &Condition::All,
        };
        table.unknown_names(condition, tags, fields)
    }
}

/// What a query makes of points.
#[derive(Debug, Clone)]
pub enum Shape {
    /// The points themselves.
    Rows(Rows),
    /// Values computed from them.
    Aggregate(Aggregate),
}

/// Which order time takes in an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Direction {
    /// Oldest first.
    #[default]
    Ascending,
    /// Newest first.
    Descending,
}

/// Raw rows: timelines in the order of their ids, and inside each one its points by time.
#[derive(Debug, Clone, Default)]
pub struct Rows {
    /// The order of the points of one timeline; timelines rise by id either way.
    pub order: Direction,
    /// Most rows of this page; `None` = as many as the budget allows.
    pub limit: Option<u64>,
    /// The token that ended the page before.
    pub after: Option<PageToken>,
    /// Of each field of each timeline only so many points, those that show its shape best; for fields of numbers, without
    /// pages. A row has the fields that chose its instant. See [`sample`](crate::sample).
    pub sample: Option<u64>,
    /// Rows in the order of a value and not of time; without pages and samples. See [`sorted`](crate::sorted).
    pub sort: Option<RowOrder>,
}

/// Orders rows by the value of a field: numbers by their exact values, then booleans, then texts, then NaN. Rows of equal values
/// keep the order of timelines and time; those without a value are left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowOrder {
    /// The field, stored or computed; it need not be wanted.
    pub field: String,
    /// Which end is first.
    pub order: RankOrder,
}

/// Values of each window of each group.
///
/// The columns of the answer are every function of every field, field by field. Where the query names no
/// fields, a function is applied to those that it suits; a named field that it does not suit is an error.
#[derive(Debug, Clone, Default)]
pub struct Aggregate {
    /// At least one, unless something is computed.
    pub functions: Vec<Function>,
    /// Further columns, computed from aggregates of the same window, asked for or not; from filled ones where there is a
    /// fill. A measurement has those of which it has all inputs.
    pub compute: Vec<Computation>,
    /// The windows; `None` = the whole range is one.
    pub window: Option<Window>,
    /// What stands in windows without a value; `None` = a window without any value has no row. Needs windows.
    pub fill: Option<Fill>,
    /// Which timelines are put together. Measurements are never mixed.
    pub group_by: GroupBy,
    /// The order of the windows of one group; groups rise by measurement and key either way, or stand as ranked.
    pub order: Direction,
    /// Which groups come first, and how many; `None` = all by measurement and key.
    pub rank: Option<Rank>,
    /// Most result rows of the whole answer; the summary says whether more were left out.
    pub limit: Option<u64>,
}

/// Orders groups by the value of a function of a field over the whole range, windows or not.
///
/// Numbers are compared by their exact values; then come booleans, then texts, then NaN, and at last groups without a
/// value, whichever end is first. Groups of equal values keep their order by measurement and key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rank {
    /// What is computed.
    pub function: Function,
    /// Of which field.
    pub field: String,
    /// Which end is first.
    pub order: RankOrder,
    /// Most groups of the answer, at least 1; `None` = all.
    pub limit: Option<u64>,
}

/// Which values come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RankOrder {
    /// The highest.
    #[default]
    Highest,
    /// The lowest.
    Lowest,
}

/// The windows of an aggregate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Window {
    /// Of one width.
    Fixed(WindowSpec),
    /// Of the calendar of a time zone.
    Calendar(CalendarWindow),
}

/// Windows `[offset + n·width, offset + (n+1)·width)` for every integer n, in nanoseconds since the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowSpec {
    /// Width, above zero.
    pub width: i64,
    /// Where one of them begins; only its remainder by the width matters.
    pub offset: i64,
}

/// Which timelines of one measurement share a result.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum GroupBy {
    /// None: each timeline by itself.
    Timeline,
    /// Those with equal values of these tags; a missing tag equals the empty text.
    Tags(Vec<String>),
    /// All.
    #[default]
    Nothing,
}

impl From<WindowSpec> for Window {
    fn from(spec: WindowSpec) -> Self {
        Self::Fixed(spec)
    }
}

impl WindowSpec {
    /// Windows of a width that are aligned to the epoch.
    pub fn aligned(width: i64) -> Self {
        Self { width, offset: 0 }
    }
}

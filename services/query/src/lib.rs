//! Query engine over points: plans a query, reads the points, and streams the result.
//!
//! [`Querier`] runs two kinds of query: [`PointQuery`] (raw rows, or aggregates by window and group) and
//! [`LatestQuery`] (the newest value of each field). Both kinds select timelines by a condition or by ids and are
//! bounded by a [`Budget`]. A query stops when its client disconnects. The result ends with a [`Summary`], which
//! reports the read cost.
//!
//! # Path of a query
//!
//! 1. [`plan`]: selects the timelines in order of id, the fields with their types, and the [`groups`]. All errors that
//!    can be detected early are returned here, before a point is read and before the sink receives anything.
//!    [Computed](compute) fields, each defined by an [`expression`], and conditions on values, compiled to a
//!    [`filter`], are applied to every run of points. An aggregate with a condition on values or with a column of a
//!    computed field cannot use summaries.
//! 2. [`rows`]: passes the points to the sink timeline by timeline and run by run, with one run in memory. A [`sample`]
//!    holds one timeline at a time; [`sorted`] holds at most twice as many rows as the limit. [`aggregate`]: splits the
//!    ids into at most one share per worker thread. One reader scans each share; each run is cut at the [`window`]
//!    boundaries, fixed or of the [`calendar`], and added to the [`accumulate`]ors as slices. Shares are merged in
//!    order of id, so a result is the same each time. Then empty windows are [filled](fill), and computed columns are
//!    evaluated. If groups are ranked, all groups are first scanned in one window. Then only the winners are scanned
//!    in the windows of the result, unless the first scan already has the result. If all functions support summaries,
//!    stored summaries of cold and archived points replace these points.
//! 3. [`result`]: a [`RowSink`] receives columns, series and rows; each output format implements it.
//!
//! Other evaluators, such as PromQL, read points through a [`scan`], which runs on the same threads and within the
//! same budgets.
//!
//! Queries that read cold segments run in a separate thread pool (see [`pool`]).
//!
//! # Out of scope
//!
//! Output formats and HTTP: sinks are implemented by the protocol crates.

pub mod accumulate;
pub mod aggregate;
pub mod budget;
pub mod calendar;
mod column_types;
pub mod compute;
mod cutter;
pub mod error;
pub mod explain;
pub mod expression;
pub mod fill;
pub mod filter;
pub mod function;
mod groups;
pub mod latest;
mod plan;
pub mod point_query;
pub mod pool;
pub mod querier;
pub mod result;
pub mod rows;
pub mod sample;
pub mod scan;
mod small;
pub mod sorted;
mod terms;
mod timelines;
pub mod token;
mod value_order;
pub mod window;

pub use budget::{Budget, Cancel, Progress, Watch};
pub use calendar::{CalendarUnit, CalendarWindow};
pub use compute::Computation;
pub use error::{QueryError, Result};
pub use explain::{Estimate, Explanation, Plan};
pub use fill::Fill;
pub use function::{Function, Percentile};
pub use latest::LatestQuery;
pub use point_query::{
    Aggregate, Direction, GroupBy, PointQuery, Rank, RankOrder, RowOrder, Rows, Selector, Shape, Window,
    WindowSpec,
};
pub use pool::{ColdRows, QuerySettings, QueryStats, while_waiting};
pub use querier::Querier;
pub use result::{
    Header, QueryCost, RowSink, Series, SinkClosed, Summary, TierCost, ValueRef, histogram_text,
};
pub use scan::{PointReader, Scan};
pub use token::PageToken;

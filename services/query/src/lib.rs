//! From a question about points to streamed answers.
//!
//! [`Querier`] answers two questions: [`PointQuery`] (raw rows, or aggregates in windows and groups) and
//! [`LatestQuery`] (the newest value of each field). Both name timelines by a condition or by ids, are bounded
//! by a [`Budget`], stop when their client has left, and end in a [`Summary`] that says what was read.
//!
//! # The path of a query
//!
//! 1. [`plan`]: which timelines, in the order of their ids; which fields of which types; which [`groups`]. Whatever
//!    can be refused is refused here, before a point is read and before the sink hears anything.
//!    Fields that are [computed](compute) by an [`expression`], and conditions on values, which become a [`filter`], are
//!    what every run is put through; then summaries are not used.
//! 2. [`rows`]: timeline after timeline, run after run, to the sink; memory stays at one run. A [`sample`] holds one
//!    timeline at a time, [`sorted`] rows those that are shown.
//!    [`aggregate`]: the ids are cut into one share a worker thread; each share is swept by one reader, and
//!    every run is cut at the [`window`]s, fixed or of the [`calendar`], and handed to the [`accumulate`]rs as slices.
//!    Shares are put together in the order of their ids, so that an answer is the same each time. Empty windows are
//!    [filled](fill) and columns computed last. Where groups are ranked, all are swept in one window first, and only the
//!    winners in theirs, unless the first sweep had the answer as well. Where all functions allow it, summaries of cold
//!    chunks take the place of their rows.
//! 3. [`answer`]: an [`AnswerSink`] receives columns, series and rows; formats implement it.
//!
//! What asks nothing of these and still reads many points has a [`sweep`] of its own: lanes, budget and threads are theirs.
//!
//! Queries that reach into cold segments run in a [`lane`] of their own, beside the others.
//!
//! # What is absent
//!
//! No format and no HTTP: sinks live with the protocols.

pub mod accumulate;
pub mod aggregate;
pub mod answer;
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
pub mod lane;
pub mod latest;
mod plan;
pub mod querier;
pub mod question;
pub mod rows;
pub mod sample;
mod small;
pub mod sorted;
pub mod sweep;
mod terms;
mod timelines;
pub mod token;
mod value_order;
pub mod window;

pub use answer::{
    AnswerSink, Header, QueryCost, Series, SinkClosed, Summary, TierCost, ValueRef, histogram_text,
};
pub use budget::{Budget, Cancel, Progress, Watch};
pub use calendar::{CalendarUnit, CalendarWindow};
pub use compute::Computation;
pub use error::{QueryError, Result};
pub use explain::{Estimate, Explanation, Plan};
pub use fill::Fill;
pub use function::{Function, Percentile};
pub use lane::{QuerySettings, QueryStats, while_waiting};
pub use latest::LatestQuery;
pub use querier::Querier;
pub use question::{
    Aggregate, Direction, GroupBy, PointQuery, Rank, RankOrder, RowOrder, Rows, Selector, Shape, Window,
    WindowSpec,
};
pub use sweep::{PointReader, Sweep};
pub use token::PageToken;

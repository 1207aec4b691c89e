//! Small queries: running them takes about as long as waking another thread.
//!
//! A query is small if few timelines have to be examined and few segments, all hot, have to be read. A query for rows
//! must also have a low limit, no sort and no sampling. The real cost is known only after a query has run, so the small
//! form of a query has a tight budget. If the small form exceeds its budget, the caller runs the original query in the
//! usual way.
//!
//! No query is small if the backend sends requests over a network: small queries run on threads that read HTTP
//! requests, and these must not wait for the network.

use std::time::Duration;

use tideline_engine::Table;
use tideline_engine::catalog::CatalogReader;
use tideline_engine::condition::operators::Equals;
use tideline_engine::condition::{Condition, Literal, Subject, Test};

use crate::budget::Budget;
use crate::point_query::{PointQuery, Rows, Selector, Shape};
use crate::querier::{Querier, segments};

/// Maximum number of timelines of a small query.
const TIMELINES_MAX: u64 = 4;
/// Maximum number of timelines with the rarest tag of the condition, or with its measurement if that is rarer. The
/// search examines all these timelines.
const CANDIDATES_MAX: u64 = 64;
/// Maximum number of hot segments whose time range overlaps the range of a small query; each may
/// cost a read.
const SEGMENTS_MAX: u64 = 8;

/// Maximum number of rows that a small query requests.
const ROWS_MAX: u64 = 500;

/// Budget of a small query.
const BUDGET: Budget = Budget {
    timelines_max: TIMELINES_MAX,
    points_max: 20_000,
    values_max: 100_000,
    cells_max: 5_000,
    held_bytes_max: 1 << 20,
    // The limit of a small query for rows is at most `ROWS_MAX`.
    rows_max: u64::MAX,
    time_max: Duration::from_millis(5),
};

impl Querier {
    /// Returns the small form of a query; `None` if the query is not small. Costs some lookups and reads no
    /// points.
    pub fn as_small(&self, table: &Table, query: &PointQuery) -> Option<PointQuery> {
        if self.engine().store().backend().capabilities().requests_in_flight > 1 {
            return None;
        }
        // The first look-up of a restricted handle may test many timelines.
        if table.condition().is_some() {
            return None;
        }
        let is_streamed = match &query.shape {
            Shape::Rows(Rows {
                sort, sample, limit, ..
            }) => sort.is_none() && sample.is_none() && limit.is_some_and(|limit| limit <= ROWS_MAX),
            Shape::Aggregate(_) => true,
        };
        if !is_streamed || !is_narrow(&query.timelines, table) {
            return None;
        }
        let segments = segments(table, query.range, query.tier, &self.engine().store().snapshot());
        (!segments.are_old() && segments.hot() <= SEGMENTS_MAX).then(|| PointQuery {
            budget: query.budget.at_most(&BUDGET),
            ..query.clone()
        })
    }
}

/// Returns true if few timelines have to be examined.
fn is_narrow(selector: &Selector, table: &Table) -> bool {
    match selector {
        Selector::Ids(ids) => ids.len() as u64 <= TIMELINES_MAX,
        Selector::Condition(condition) => {
            let candidates = candidates(condition, &table.reader());
            candidates.is_some_and(|candidates| candidates <= CANDIDATES_MAX)
        }
    }
}

/// Returns an upper bound of the number of timelines that match a condition. The condition must compare only tags and
/// the measurement, each with one nonempty text; `None` for other conditions.
fn candidates(condition: &Condition, reader: &CatalogReader<'_>) -> Option<u64> {
    match condition {
        Condition::And(all) => {
            let each = all.iter().map(|condition| candidates(condition, reader));
            each.collect::<Option<Vec<u64>>>()?.into_iter().min()
        }
        Condition::Leaf {
            subject,
            test: Test::Equals(Equals(Literal::Text(value))),
        } if !value.is_empty() => match subject {
            Subject::Tag(key) => Some(reader.timelines_with_tag(key, value)),
            Subject::Measurement => Some(reader.timelines_of_measurement(value)),
            _ => None,
        },
        _ => None,
    }
}

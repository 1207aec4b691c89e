//! Small questions: to answer them takes about as long as to wake another thread.
//!
//! A question is small by its form where it names few timelines exactly and reaches into few hot segments. What it really costs is
//! known only when it is answered, so the small form of a question has a tight budget: a caller that runs out of it asks
//! again in the usual way.
//!
//! No question is small where the backend's requests travel over a network: a thread that reads requests must not wait for them.

use std::time::Duration;

use tideline_engine::Table;
use tideline_engine::catalog::CatalogReader;
use tideline_engine::condition::operators::Equals;
use tideline_engine::condition::{Condition, Literal, Subject, Test};

use crate::budget::Budget;
use crate::querier::{Querier, segments};
use crate::question::{PointQuery, Rows, Selector, Shape};

/// Timelines of a small question.
const TIMELINES_MAX: u64 = 4;
/// Timelines that bear the rarest tag of its condition: what a search looks at.
const CANDIDATES_MAX: u64 = 64;
/// Hot segments that its range reaches into: each may cost a read.
const SEGMENTS_MAX: u64 = 8;

/// Rows that a small question asks for.
const ROWS_MAX: u64 = 500;

/// Budget of a small question.
const BUDGET: Budget = Budget {
    timelines_max: TIMELINES_MAX,
    points_max: 20_000,
    values_max: 100_000,
    cells_max: 5_000,
    held_bytes_max: 1 << 20,
    // A question for rows says how many it wants.
    rows_max: u64::MAX,
    time_max: Duration::from_millis(5),
};

impl Querier {
    /// Returns the small form of a question; `None` if it is not small. Costs some look-ups, and reads nothing.
    pub fn as_small(&self, table: &Table, query: &PointQuery) -> Option<PointQuery> {
        if self.engine().store().backend().capabilities().requests_in_flight > 1 {
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

/// Whether few timelines have to be looked at.
fn is_narrow(selector: &Selector, table: &Table) -> bool {
    match selector {
        Selector::Ids(ids) => ids.len() as u64 <= TIMELINES_MAX,
        Selector::Condition(condition) => {
            let candidates = candidates(condition, &table.catalog().reader());
            candidates.is_some_and(|candidates| candidates <= CANDIDATES_MAX)
        }
    }
}

/// The most timelines that can meet a condition which asks for nothing but tags and the measurement, each with one value;
/// `None` for others.
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

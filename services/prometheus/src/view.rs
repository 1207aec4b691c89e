//! Prometheus view of a table, for one request.

use tideline_engine::model::TimeRange;
use tideline_engine::{Engine, Table};
use tideline_promql::{PromqlError, Result};
use tideline_query::{Budget, Cancel, Querier, Watch};

use crate::failure;
use crate::time::NANOS_PER_MILLI;

/// Prometheus view of a table, for one request. It is bounded by a budget of time and sizes, which starts when the
/// view is created, and is cancelled when the client disconnects.
///
/// Calls block.
#[derive(Debug)]
pub struct SeriesView<'a> {
    pub(crate) querier: &'a Querier,
    pub(crate) table: &'a Table,
    pub(crate) watch: Watch,
}

impl<'a> SeriesView<'a> {
    /// Creates a view of a table and starts its budget.
    pub fn new(querier: &'a Querier, table: &'a Table, budget: Budget, cancel: &Cancel) -> Self {
        Self {
            querier,
            table,
            watch: querier.watch(budget, cancel),
        }
    }

    /// Checks the time limit and the cancellation flag.
    ///
    /// # Errors
    ///
    /// [`PromqlError::Canceled`] if the client has disconnected, [`PromqlError::Timeout`] if the time is over.
    pub fn check(&self) -> Result<()> {
        self.watch.check().map_err(|error| failure::of_query(&error))
    }

    pub(crate) fn engine(&self) -> &'a Engine {
        self.querier.engine()
    }

    /// Returns an error if more timelines are selected than the budget allows.
    pub(crate) fn check_timelines(&self, count: usize) -> Result<()> {
        let limit = self.watch.budget().timelines_max;
        if count as u64 > limit {
            return Err(PromqlError::TooMany(format!(
                "timelines selected: {count} is over the limit of {limit}; narrow the query"
            )));
        }
        Ok(())
    }
}

/// Returns true if points of a time range (milliseconds, both ends included) may be in cold or archived
/// segments.
pub fn reaches_cold(querier: &Querier, table: &Table, (start, end): (i64, i64)) -> bool {
    let start = start.saturating_mul(NANOS_PER_MILLI);
    let end = end.saturating_add(1).saturating_mul(NANOS_PER_MILLI);
    querier.reaches_cold(table, TimeRange::new(start, end.max(start)), None)
}

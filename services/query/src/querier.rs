//! Where queries are asked.

use std::sync::Arc;

use rayon::ThreadPool;
use tideline_engine::{Engine, Table};
use tideline_model::TimeRange;
use tideline_series_store::Snapshot;

use crate::answer::{AnswerSink, Summary};
use crate::budget::{Budget, Cancel, Watch};
use crate::error::{QueryError, Result};
use crate::latest::LatestQuery;
use crate::question::{PointQuery, Shape};
use crate::{aggregate, latest, rows};

/// Answers queries over one engine.
///
/// Calls block, for as long as the budget allows; large ones share a pool of worker threads, of which there is
/// one however many queries run. How many may run at once is the caller's to bound.
#[derive(Debug)]
pub struct Querier {
    engine: Arc<Engine>,
    pool: ThreadPool,
}

/// What the parts of one query have in common.
pub(crate) struct Context<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) table: &'a Table,
    pub(crate) snapshot: Snapshot,
    pub(crate) pool: &'a ThreadPool,
    pub(crate) watch: Watch,
}

impl Querier {
    /// A querier with a number of worker threads; `None` = one for each core.
    pub fn new(engine: Arc<Engine>, threads: Option<usize>) -> Result<Self> {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads.unwrap_or(0))
            .thread_name(|number| format!("query-{number}"))
            .build()
            .map_err(|error| QueryError::Invalid(format!("worker threads of queries: {error}")))?;
        Ok(Self { engine, pool })
    }

    /// The engine that it reads.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Streams the answer of a query to `sink`.
    ///
    /// An error that could be foreseen comes before the sink hears anything; after that only budgets of reading,
    /// sums that overflow, storage and a closed sink can fail, and what the sink has got is then incomplete.
    pub fn points(
        &self,
        table: &Table,
        query: &PointQuery,
        cancel: &Cancel,
        sink: &mut dyn AnswerSink,
    ) -> Result<Summary> {
        check_range(query.range)?;
        let context = self.context(table, query.budget, cancel);
        match &query.shape {
            Shape::Rows(shape) => rows::run(&context, query, shape, sink),
            Shape::Aggregate(shape) => aggregate::run(&context, query, shape, sink),
        }
    }

    /// Hands the newest value of each field of timelines to `sink`: one series a timeline, one row for each
    /// instant at which one of its fields was last written, newest first.
    pub fn latest(
        &self,
        table: &Table,
        query: &LatestQuery,
        cancel: &Cancel,
        sink: &mut dyn AnswerSink,
    ) -> Result<Summary> {
        latest::run(&self.context(table, query.budget, cancel), query, sink)
    }

    fn context<'a>(&'a self, table: &'a Table, budget: Budget, cancel: &Cancel) -> Context<'a> {
        Context {
            engine: &self.engine,
            table,
            snapshot: self.engine.store().snapshot(),
            pool: &self.pool,
            watch: Watch::new(budget, cancel.clone()),
        }
    }
}

fn check_range(range: TimeRange) -> Result<()> {
    if range.is_empty() {
        return Err(QueryError::Invalid(format!(
            "the range is empty: its start ({}) is not before its end ({})",
            range.start, range.end
        )));
    }
    Ok(())
}

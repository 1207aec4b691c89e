//! Where queries are asked.

use std::sync::Arc;

use rayon::ThreadPool;
use tideline_engine::model::{Tier, TimeRange, TimelineId};
use tideline_engine::points::{ReadCost, Snapshot};
use tideline_engine::{Engine, Table};

use crate::answer::{AnswerSink, Segments, Summary};
use crate::budget::{Budget, Cancel, Watch};
use crate::error::{QueryError, Result};
use crate::explain::Explanation;
use crate::lane::{self, ColdLane, HotLane, QuerySettings, QueryStats, ReadMeter};
use crate::latest::LatestQuery;
use crate::question::{PointQuery, Shape};
use crate::sweep::Sweep;
use crate::{aggregate, explain, latest, rows, sample, sorted};

/// Answers queries over one engine.
///
/// Calls block, for as long as the budget allows; large ones share pools of worker threads, of which there are two
/// however many queries run: see [`lane`]. How many queries of hot points may run at once is the caller's to bound.
#[derive(Debug)]
pub struct Querier {
    engine: Arc<Engine>,
    hot: HotLane,
    cold: ColdLane,
}

/// What the parts of one query have in common.
pub(crate) struct Context<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) table: &'a Table,
    pub(crate) snapshot: Snapshot,
    /// The segments that the snapshot has of what is asked for.
    pub(crate) segments: Segments,
    pub(crate) pool: &'a ThreadPool,
    pub(crate) watch: &'a Watch,
    meter: &'a ReadMeter,
}

impl Querier {
    /// A querier with its own threads.
    pub fn new(engine: Arc<Engine>, settings: &QuerySettings) -> Result<Self> {
        let clock = Arc::clone(engine.clock());
        Ok(Self {
            engine,
            hot: HotLane::new(settings)?,
            cold: ColdLane::new(settings, clock)?,
        })
    }

    /// The engine that it reads.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// The watch over a query that begins now, whose memory counts in the account of the engine.
    pub fn watch(&self, budget: Budget, cancel: &Cancel) -> Watch {
        Watch::new(budget, cancel.clone(), self.engine.memory())
    }

    /// What queries do now.
    pub fn stats(&self) -> QueryStats {
        lane::stats(&self.hot, &self.cold)
    }

    /// Whether a question about points of a range and tier (`None` = all) reaches into cold segments now: then it runs in
    /// the lane of those that do, where it may have to wait.
    pub fn reaches_cold(&self, table: &Table, range: TimeRange, tier: Option<Tier>) -> bool {
        let segments = segments(table, range, tier, &self.engine.store().snapshot());
        segments.are_old()
    }

    /// Streams the answer of a query to `sink`.
    ///
    /// An error that could be foreseen comes before the sink hears anything; after that only budgets of reading,
    /// sums that overflow, storage and a closed sink can fail, and what the sink has got is then incomplete. Where
    /// the range reaches into cold segments, the query waits for its turn among those that do.
    pub fn points(
        &self,
        table: &Table,
        query: &PointQuery,
        cancel: &Cancel,
        sink: &mut dyn AnswerSink,
    ) -> Result<Summary> {
        check_range(query.range)?;
        let asked = Asked {
            table,
            range: query.range,
            tier: query.tier,
            budget: query.budget,
        };
        let mut summary = self.run(&asked, cancel, |context| match &query.shape {
            Shape::Rows(shape) => match (&shape.sort, shape.sample) {
                (Some(order), _) => sorted::run(context, query, shape, order, sink),
                (None, Some(points)) => sample::run(context, query, shape, points, sink),
                (None, None) => rows::run(context, query, shape, sink),
            },
            Shape::Aggregate(shape) => aggregate::run(context, query, shape, sink),
        })?;
        summary.suggestions = query.unknown_names(table);
        Ok(summary)
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
        let asked = Asked {
            table,
            // Newest values of all tiers are at hand in memory: no segment is read for them.
            range: query.tier.map_or(TimeRange::new(0, 0), |_| TimeRange::ALL),
            tier: query.tier,
            budget: query.budget,
        };
        let mut summary = self.run(&asked, cancel, |context| latest::run(context, query, sink))?;
        summary.suggestions = query.timelines.unknown_names(table, &[], &query.fields);
        Ok(summary)
    }

    /// Reads points of a range for whoever makes something of them that no question here asks for: `work` gets a [`Sweep`],
    /// in the lane of the range and under a watch that may be over several of them.
    pub fn sweep<T: Send>(
        &self,
        table: &Table,
        range: TimeRange,
        watch: &Watch,
        work: impl FnOnce(&Sweep<'_>) -> Result<T> + Send,
    ) -> Result<T> {
        let asked = Asked {
            table,
            range,
            tier: None,
            budget: *watch.budget(),
        };
        self.run_watched(&asked, watch, |context| work(&Sweep::new(context, range)))
    }

    /// Says what a query would do, and refuses what it would refuse. Reads no point, so it waits for no turn.
    pub fn explain(&self, table: &Table, query: &PointQuery, cancel: &Cancel) -> Result<Explanation> {
        check_range(query.range)?;
        let watch = self.watch(query.budget, cancel);
        let snapshot = self.engine.store().snapshot();
        let segments = segments(table, query.range, query.tier, &snapshot);
        let mut explanation = explain::run(
            &Context {
                engine: &self.engine,
                table,
                snapshot,
                segments,
                pool: &self.hot.pool,
                watch: &watch,
                meter: &self.cold.meter,
            },
            query,
        )?;
        explanation.suggestions = query.unknown_names(table);
        Ok(explanation)
    }

    /// Runs a query in its lane.
    fn run(
        &self,
        asked: &Asked<'_>,
        cancel: &Cancel,
        work: impl FnOnce(&Context<'_>) -> Result<Summary> + Send,
    ) -> Result<Summary> {
        let watch = self.watch(asked.budget, cancel);
        self.run_watched(asked, &watch, work)
    }

    /// Runs a query that is watched already in its lane.
    fn run_watched<T: Send>(
        &self,
        asked: &Asked<'_>,
        watch: &Watch,
        work: impl FnOnce(&Context<'_>) -> Result<T> + Send,
    ) -> Result<T> {
        let snapshot = self.engine.store().snapshot();
        let segments = asked.segments(&snapshot);
        let is_cold = segments.are_old();
        let context = |snapshot, segments, pool| Context {
            engine: &self.engine,
            table: asked.table,
            snapshot,
            segments,
            pool,
            watch,
            meter: &self.cold.meter,
        };
        if !is_cold {
            return self
                .hot
                .run(|| work(&context(snapshot, segments, &self.hot.pool)));
        }
        // While it waits, a query must not keep heads in memory and dropped segments on disk.
        drop(snapshot);
        self.cold.run(watch, || {
            let snapshot = self.engine.store().snapshot();
            let segments = asked.segments(&snapshot);
            work(&context(snapshot, segments, &self.cold.pool))
        })
    }
}

impl Context<'_> {
    /// Whether the query reaches into cold segments.
    pub(crate) fn is_cold(&self) -> bool {
        self.segments.are_old()
    }

    /// Tells the engine which timelines are read.
    pub(crate) fn note_read(&self, ids: &[TimelineId]) {
        self.engine.note_read(self.table, ids);
    }

    /// Takes in what a reader has read since it was last seen; may wait where the rate of cold reads is limited.
    pub(crate) fn meter(&self, seen: &mut u64, cost: &ReadCost) -> Result<()> {
        let bytes = cost.of(Tier::Cold).bytes + cost.of(Tier::Archive).bytes;
        self.meter
            .take(bytes - std::mem::replace(seen, bytes), self.watch)
    }
}

/// What decides about the lane of a query.
struct Asked<'a> {
    table: &'a Table,
    range: TimeRange,
    tier: Option<Tier>,
    budget: Budget,
}

impl Asked<'_> {
    fn segments(&self, snapshot: &Snapshot) -> Segments {
        segments(self.table, self.range, self.tier, snapshot)
    }
}

/// The segments of a tier that have points in the part of a range that has not expired.
pub(crate) fn segments(table: &Table, range: TimeRange, tier: Option<Tier>, snapshot: &Snapshot) -> Segments {
    let table = table.points().id();
    let range = snapshot.visible(table, range);
    let mut segments = Segments::default();
    for segment in snapshot.manifest().of_table(table) {
        if segment.range().overlaps(&range) && tier.is_none_or(|tier| tier == segment.tier) {
            segments.count(segment.tier);
        }
    }
    segments
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

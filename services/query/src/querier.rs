//! Entry point for queries.
//!
//! A query runs against one snapshot of the store, in the hot or the cold thread pool, under a watch that enforces
//! its budget.

use std::sync::Arc;
use std::time::Duration;

use rayon::ThreadPool;
use tideline_engine::model::{Tier, TimeRange, TimelineId};
use tideline_engine::points::{ReadCost, Snapshot};
use tideline_engine::{Engine, Table};

use crate::budget::{Budget, Cancel, Watch};
use crate::error::{QueryError, Result};
use crate::explain::Explanation;
use crate::latest::LatestQuery;
use crate::point_query::{PointQuery, Shape};
use crate::pool::{self, ColdPool, ColdRows, HotPool, QuerySettings, QueryStats, ReadMeter};
use crate::result::{RowSink, Segments, Summary};
use crate::scan::Scan;
use crate::{aggregate, explain, latest, rows, sample, sorted};

/// Maximum time that a request for cold or archived rows waits for a permit.
const PERMIT_TIME_MAX: Duration = Duration::from_secs(10);

/// Runs queries over one engine.
///
/// Calls block until the query ends, at most for the time limit of the budget. All queries share two pools of worker
/// threads: see [`pool`]. The caller must bound the number of concurrent queries of hot points.
///
/// # Examples
///
/// Maximum of a field per host:
///
/// ```
/// # use std::sync::Arc;
/// # use tideline_engine::backend::memory::{Character, MemoryBackend, MemoryDisk};
/// # use tideline_engine::model::{PointBatch, PointGroup, ColumnData, SeriesResolver};
/// # use tideline_engine::{Engine, Settings, WriteOptions};
/// use tideline_engine::condition::Condition;
/// use tideline_engine::model::{SystemClock, TimeRange};
/// use tideline_query::{
///     Aggregate, Budget, Cancel, Function, GroupBy, PointQuery, Querier, QuerySettings, RowSink, Selector, Shape,
///     SinkClosed, ValueRef,
/// };
/// # use tideline_query::{Header, Series};
///
/// /// Sink that collects all floats.
/// #[derive(Default)]
/// struct Numbers(Vec<f64>);
///
/// impl RowSink for Numbers {
///     # fn begin(&mut self, _: &Header) -> Result<(), SinkClosed> { Ok(()) }
///     # fn series(&mut self, _: &Series<'_>) -> Result<(), SinkClosed> { Ok(()) }
///     fn row(&mut self, _time: i64, values: &[Option<ValueRef<'_>>]) -> Result<(), SinkClosed> {
///         self.0.extend(values.iter().flatten().filter_map(|value| match value {
///             ValueRef::Float(number) => Some(*number),
///             _ => None,
///         }));
///         Ok(())
///     }
///     // …
/// }
/// # let folder = tempfile::tempdir()?;
/// # let backend = Arc::new(MemoryBackend::open(&MemoryDisk::new(Character::Embedded)));
/// # let settings = Settings::new(folder.path().join("index"));
/// # let engine = Arc::new(Engine::open(backend, Arc::new(SystemClock), settings)?);
/// # let table = engine.default_table()?;
/// # let timelines = [b"cpu,host=web-1", b"cpu,host=web-1", b"cpu,host=web-2"];
/// # let timelines = timelines.map(|key| engine.resolver(&table).resolve(key)).into_iter().collect::<Result<_, _>>()
/// #     .map_err(|reason| reason.to_string())?;
/// # let group = PointGroup {
/// #     measurements: "cpu".into(),
/// #     fields: vec!["usage".into()],
/// #     columns: vec![ColumnData::Float(vec![0.5, 0.75, 0.25])],
/// #     timelines,
/// #     timestamps: vec![1_000, 2_000, 1_000],
/// #     lines: vec![1, 2, 3],
/// # };
/// # let batch = PointBatch { groups: vec![group], rejects: Vec::new() };
/// # engine.write(&table, batch, &WriteOptions::default())?;
///
/// // The table has the usages 0.5 and 0.75 of host web-1, and 0.25 of host web-2.
/// let query = PointQuery {
///     timelines: Selector::Condition(Condition::All),
///     fields: vec!["usage".to_owned()],
///     range: TimeRange::new(0, 10_000),
///     shape: Shape::Aggregate(Aggregate {
///         functions: vec![Function::Max],
///         group_by: GroupBy::Tags(vec!["host".to_owned()]),
///         ..Aggregate::default()
///     }),
///     # details: false,
///     # values: None,
///     # compute: Vec::new(),
///     # tier: None,
///     # budget: Budget::default(),
///     // …
/// };
/// let querier = Querier::new(engine, &QuerySettings::default())?;
/// let mut numbers = Numbers::default();
/// let summary = querier.points(&table, &query, &Cancel::new(), &mut numbers)?;
/// assert_eq!(numbers.0, [0.75, 0.25]);
/// assert_eq!(summary.rows, 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Querier {
    engine: Arc<Engine>,
    pools: Arc<Pools>,
}

#[derive(Debug)]
struct Pools {
    hot: HotPool,
    cold: ColdPool,
}

/// Bytes of a reader that have already been counted.
#[derive(Debug, Default)]
pub(crate) struct Metered {
    /// Bytes of cold and archived chunks.
    cold: u64,
    /// Bytes of all chunks.
    all: u64,
}

/// State shared by the parts of one query.
pub(crate) struct Context<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) table: &'a Table,
    pub(crate) snapshot: Snapshot,
    /// Number of segments to read in each tier: those whose time range overlaps the requested range.
    pub(crate) segments: Segments,
    pub(crate) pool: &'a ThreadPool,
    pub(crate) watch: &'a Watch,
    meter: &'a ReadMeter,
}

impl Querier {
    /// Creates a querier with its own threads.
    ///
    /// # Errors
    ///
    /// [`QueryError::Invalid`] if the worker threads cannot be started.
    pub fn new(engine: Arc<Engine>, settings: &QuerySettings) -> Result<Self> {
        let clock = Arc::clone(engine.clock());
        Ok(Self {
            engine,
            pools: Arc::new(Pools {
                hot: HotPool::new(settings)?,
                cold: ColdPool::new(settings, clock)?,
            }),
        })
    }

    /// Returns a querier with the same threads for another handle of the engine. Memory and bytes read are charged to
    /// the tenant of that handle.
    #[must_use]
    pub fn with_engine(&self, engine: Arc<Engine>) -> Self {
        Self {
            engine,
            pools: Arc::clone(&self.pools),
        }
    }

    /// Returns the engine that the queries read.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Starts the watch of a query that begins now. The memory of the query is charged to the memory account of the
    /// engine.
    pub fn watch(&self, budget: Budget, cancel: &Cancel) -> Watch {
        Watch::new(budget, cancel.clone(), &self.engine)
    }

    /// Returns the current number of queries and their totals.
    pub fn stats(&self) -> QueryStats {
        pool::stats(&self.pools.hot, &self.pools.cold)
    }

    /// Returns true if a query for the points of a range and tier (`None` = all) would currently read cold or
    /// archived segments. Such a query runs in the cold pool, where it may have to wait.
    pub fn reaches_cold(&self, table: &Table, range: TimeRange, tier: Option<Tier>) -> bool {
        let segments = segments(table, range, tier, &self.engine.store().snapshot());
        segments.are_old()
    }

    /// Runs a request for rows of wide tables in the cold tier or in the archive. The request shares the permits of
    /// queries of cold points, runs on a separate thread with background priority, and must report the bytes that it
    /// reads to its [`ColdRows`]. The request has no time limit.
    ///
    /// # Errors
    ///
    /// [`QueryError::Overloaded`] if too many requests wait, or if the request gets no permit within ten seconds, and
    /// [`QueryError::Cancelled`] if it is cancelled while it waits for a permit.
    pub fn read_cold_rows<T: Send>(
        &self,
        cancel: &Cancel,
        work: impl FnOnce(&ColdRows<'_>) -> T + Send,
    ) -> Result<T> {
        let within = |time_max| {
            let budget = Budget {
                time_max,
                ..Budget::default()
            };
            self.watch(budget, cancel)
        };
        let (permit, watch) = (within(PERMIT_TIME_MAX), within(Duration::MAX));
        let meter = &self.pools.cold.meter;
        let reading = ColdRows { meter, watch };
        let ended = self
            .pools
            .cold
            .run_within(&permit, &reading.watch, || Ok(work(&reading)));
        match ended {
            Err(QueryError::TimedOut { .. }) => Err(self.pools.cold.overloaded()),
            ended => ended,
        }
    }

    /// Runs a query and streams its result to `sink`. A query that reads cold segments first waits for a permit of
    /// the cold pool.
    ///
    /// # Errors
    ///
    /// Before the sink receives anything: errors of invalid queries, [`QueryError::OverBudget`] for excesses that can
    /// be computed in advance, [`QueryError::Overloaded`] if too many queries of cold points wait. At any time: errors
    /// of storage, [`QueryError::OverBudget`], [`QueryError::Memory`], [`QueryError::TimedOut`] and
    /// [`QueryError::Cancelled`]; rows that the sink has received are then incomplete.
    pub fn points(
        &self,
        table: &Table,
        query: &PointQuery,
        cancel: &Cancel,
        sink: &mut dyn RowSink,
    ) -> Result<Summary> {
        check_range(query.range)?;
        let scope = ReadScope {
            table,
            range: query.range,
            tier: query.tier,
            budget: query.budget,
        };
        let mut summary = self.run(&scope, cancel, |context| match &query.shape {
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

    /// Streams the newest value of each field of timelines to `sink`: one series per timeline, one row for each
    /// timestamp at which one of its fields was last written, newest first.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`points`](Self::points).
    pub fn latest(
        &self,
        table: &Table,
        query: &LatestQuery,
        cancel: &Cancel,
        sink: &mut dyn RowSink,
    ) -> Result<Summary> {
        let scope = ReadScope {
            table,
            // If no tier is requested, the newest values are usually in memory, so the query runs in the hot pool.
            range: query.tier.map_or(TimeRange::new(0, 0), |_| TimeRange::ALL),
            tier: query.tier,
            budget: query.budget,
        };
        let mut summary = self.run(&scope, cancel, |context| latest::run(context, query, sink))?;
        summary.suggestions = query.timelines.unknown_names(table, &[], &query.fields);
        Ok(summary)
    }

    /// Runs `work` with a [`Scan`], which reads the points of a range for other evaluators, such as PromQL. `work` runs
    /// in the cold pool if the range reaches cold or archived segments, otherwise in the hot pool. Several scans may
    /// share the watch.
    ///
    /// # Errors
    ///
    /// Errors of `work`, [`QueryError::Overloaded`] if too many queries of cold points wait, and the errors of
    /// [`Watch::check`] while waiting.
    pub fn scan<T: Send>(
        &self,
        table: &Table,
        range: TimeRange,
        watch: &Watch,
        work: impl FnOnce(&Scan<'_>) -> Result<T> + Send,
    ) -> Result<T> {
        let scope = ReadScope {
            table,
            range,
            tier: None,
            budget: *watch.budget(),
        };
        self.run_watched(&scope, watch, |context| work(&Scan::new(context, range)))
    }

    /// Explains a query without running it. Reads no point and waits for no permit.
    ///
    /// # Errors
    ///
    /// The errors that [`points`](Self::points) returns before the sink receives anything, except
    /// [`QueryError::Overloaded`].
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
                pool: &self.pools.hot.thread_pool,
                watch: &watch,
                meter: &self.pools.cold.meter,
            },
            query,
        )?;
        explanation.suggestions = query.unknown_names(table);
        Ok(explanation)
    }

    /// Runs a query in its pool.
    fn run(
        &self,
        scope: &ReadScope<'_>,
        cancel: &Cancel,
        work: impl FnOnce(&Context<'_>) -> Result<Summary> + Send,
    ) -> Result<Summary> {
        let watch = self.watch(scope.budget, cancel);
        self.run_watched(scope, &watch, work)
    }

    /// Runs a query in its pool, under an existing watch.
    fn run_watched<T: Send>(
        &self,
        scope: &ReadScope<'_>,
        watch: &Watch,
        work: impl FnOnce(&Context<'_>) -> Result<T> + Send,
    ) -> Result<T> {
        let snapshot = self.engine.store().snapshot();
        let segments = scope.segments(&snapshot);
        let is_cold = segments.are_old();
        let context = |snapshot, segments, pool| Context {
            engine: &self.engine,
            table: scope.table,
            snapshot,
            segments,
            pool,
            watch,
            meter: &self.pools.cold.meter,
        };
        if !is_cold {
            return self
                .pools
                .hot
                .run(|| work(&context(snapshot, segments, &self.pools.hot.thread_pool)));
        }
        // A waiting query must not keep unsealed points in memory and dropped segments on disk.
        drop(snapshot);
        self.pools.cold.run(watch, || {
            let snapshot = self.engine.store().snapshot();
            let segments = scope.segments(&snapshot);
            work(&context(snapshot, segments, &self.pools.cold.thread_pool))
        })
    }
}

impl Context<'_> {
    /// Returns true if the query reads cold or archived segments.
    pub(crate) fn is_cold(&self) -> bool {
        self.segments.are_old()
    }

    /// Reports to the engine which timelines are read.
    pub(crate) fn note_read(&self, ids: &[TimelineId]) {
        self.engine.note_read(self.table, ids);
    }

    /// Counts the bytes that a reader has read since the last call, and charges them to the tenant of the query. Waits
    /// if the rate of cold and archived bytes is limited and exceeded.
    pub(crate) fn meter(&self, seen: &mut Metered, cost: &ReadCost) -> Result<()> {
        let all = cost.total().bytes;
        self.engine
            .charge_tenant_read(all - std::mem::replace(&mut seen.all, all));
        let cold = cost.of(Tier::Cold).bytes + cost.of(Tier::Archive).bytes;
        self.meter
            .take(cold - std::mem::replace(&mut seen.cold, cold), self.watch)
    }
}

/// Budget of a query, and the properties that determine its pool.
struct ReadScope<'a> {
    table: &'a Table,
    range: TimeRange,
    tier: Option<Tier>,
    budget: Budget,
}

impl ReadScope<'_> {
    fn segments(&self, snapshot: &Snapshot) -> Segments {
        segments(self.table, self.range, self.tier, snapshot)
    }
}

/// Counts the segments of a tier (`None` = all) whose time range overlaps the unexpired part of a
/// range.
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

//! What every handler shares: the engine, the budgets, the metrics.

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tideline_connections::{BodyReader, Share, Shares, Turns};
use tideline_engine::find::Stop;
use tideline_engine::model::Timestamp;
use tideline_engine::{Engine, Table};
use tideline_openapi::ErrorCode;
use tideline_query::{Budget, Cancel, Querier, Watch};
use tideline_scheduler::Scheduler;
use tokio::sync::Semaphore;

use crate::audit::Refusals;
use crate::context::{RequestIds, current_client};
use crate::failure::{Failure, Result};
use crate::metrics::Metrics;
use crate::running::RunningQueries;
use crate::settings::HttpSettings;
use crate::watching::Watching;

/// Changes of tables and attributes, and jobs, that run at once: rare, and each may take long.
const CHANGES_IN_FLIGHT_MAX: usize = 8;
/// Requested jobs that run at once: each may take minutes, and they wait for each other's writes anyway.
const REQUESTED_JOBS_IN_FLIGHT_MAX: usize = 4;

/// Exports in the form of Prometheus' world that run at once. Each holds some megabytes.
const EXPORTS_IN_FLIGHT_MAX: usize = 8;
/// Remote reads that run at once.
const READS_IN_FLIGHT_MAX: usize = 16;

/// Requests whose answers wait for slow readers at once, each on a thread, besides those that have a turn. The runtime has 512
/// threads for all that blocks.
const SLOW_ANSWERS_MAX: usize = 128;
/// Requests that wait for the end of jobs at once, each on a thread.
const WAITS_IN_FLIGHT_MAX: usize = 32;
/// Queries of cold points that the querier lets run at most; see [`HttpSettings::query`].
const COLD_QUERIES_MAX: usize = 64;

/// The state behind all routes. A handle: clones share it.
#[derive(Debug, Clone)]
pub(crate) struct App(Arc<Shared>);

pub(crate) struct Shared {
    pub(crate) engine: Arc<Engine>,
    pub(crate) scheduler: Arc<Scheduler>,
    pub(crate) querier: Querier,
    pub(crate) settings: HttpSettings,
    pub(crate) metrics: Metrics,
    pub(crate) request_ids: RequestIds,
    pub(crate) refusals: Refusals,
    pub(crate) started: Timestamp,
    /// Monotonic time of the start.
    pub(crate) began: Duration,
    /// Bytes that request bodies may hold.
    pub(crate) body_bytes: Shares,
    /// Reads request bodies within that budget.
    pub(crate) bodies: BodyReader,
    /// Connections on which a request is being answered.
    pub(crate) answering: Shares,
    /// Turns of writes.
    pub(crate) writes: Turns,
    /// Turns of queries, searches and everything else that asks the engine, but for queries of cold points.
    pub(crate) queries: Turns,
    /// The queries that run now.
    pub(crate) running: RunningQueries,
    /// Turns of exports in the form of Prometheus' world: they take as long as their readers do.
    pub(crate) exports: Turns,
    /// Turns of remote reads.
    pub(crate) reads: Turns,
    /// Turns of queries of cold points. The querier bounds them more closely; here they only stay apart from the others.
    pub(crate) cold_queries: Turns,
    /// Places of requests that have left their turn to others, since their readers are slow.
    pub(crate) slow_answers: Arc<Semaphore>,
    /// Turns of requests that wait for jobs.
    pub(crate) waits: Turns,
    /// Turns of watches, for as long as they are open.
    pub(crate) watches: Turns,
    /// State that all watches share.
    pub(crate) watching: Watching,
    /// Turns of changes of tables and attributes, and of jobs.
    pub(crate) changes: Turns,
    /// Turns of requested jobs, apart from the changes that steer them.
    pub(crate) requested_jobs: Turns,
    /// Held while a table is altered: the changes of a request begin from the table as it is.
    pub(crate) altering: Mutex<()>,
    draining: AtomicBool,
}

impl std::ops::Deref for App {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

impl App {
    pub(crate) fn new(engine: Arc<Engine>, scheduler: Arc<Scheduler>, settings: HttpSettings) -> Self {
        let (started, began) = (engine.clock().now(), engine.clock().monotonic());
        let turns = |what, count| Turns::new(what, count, settings.turn_timeout);
        let querier = Querier::new(Arc::clone(&engine), &settings.query);
        let watching = Watching::new(engine.memory().clone(), settings.watch_bytes_per_second_max);
        engine.store().on_tail_change(watching.waker());
        let body_bytes = Shares::new(settings.bodies_in_flight_bytes_max);
        let cold_queries_max = COLD_QUERIES_MAX + settings.query.cold_waiting_max;
        Self(Arc::new(Shared {
            querier: querier.expect("the system has threads left at start"),
            metrics: Metrics::new(),
            request_ids: RequestIds::new(started),
            refusals: Refusals::default(),
            started,
            began,
            bodies: BodyReader::new(
                body_bytes.clone(),
                settings.body_timeout,
                settings.body_bytes_per_second_min,
            ),
            body_bytes,
            answering: Shares::new(settings.connections_max),
            writes: turns("writes", settings.writes_in_flight_max),
            queries: turns("queries", settings.queries_in_flight_max),
            cold_queries: turns("queries of cold points", cold_queries_max),
            exports: turns("exports", EXPORTS_IN_FLIGHT_MAX),
            reads: turns("remote reads", READS_IN_FLIGHT_MAX),
            slow_answers: Arc::new(Semaphore::new(SLOW_ANSWERS_MAX)),
            waits: turns("requests that wait for jobs", WAITS_IN_FLIGHT_MAX),
            watches: turns("watches", settings.watches_max),
            watching,
            changes: turns("changes", CHANGES_IN_FLIGHT_MAX),
            requested_jobs: turns("changes of many timelines", REQUESTED_JOBS_IN_FLIGHT_MAX),
            altering: Mutex::default(),
            running: RunningQueries::default(),
            draining: AtomicBool::new(false),
            engine,
            scheduler,
            settings,
        }))
    }

    /// A turn among queries, if one is free now.
    pub(crate) fn free_query_turn(&self) -> Option<Share> {
        self.queries.take_if_free(current_client())
    }

    /// Runs a read of the engine on a blocking thread, when its turn comes.
    pub(crate) async fn read<T, F>(&self, call: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Engine) -> Result<T> + Send + 'static,
    {
        self.in_turn(&self.queries, call).await
    }

    /// Runs a change of the engine that is not a write of points on a blocking thread, when its turn comes.
    pub(crate) async fn change<T, F>(&self, call: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Engine) -> Result<T> + Send + 'static,
    {
        self.in_turn(&self.changes, call).await
    }

    async fn in_turn<T, F>(&self, turns: &Turns, call: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Engine) -> Result<T> + Send + 'static,
    {
        let turn = turns.take(current_client()).await?;
        let engine = Arc::clone(&self.engine);
        blocking(move || {
            let _turn = turn;
            call(&engine)
        })
        .await
    }

    /// Runs a search, or what begins with one, on a blocking thread, when its turn comes. It is stopped when its client leaves
    /// or its time is over.
    pub(crate) async fn search<T, F>(&self, turns: &Turns, table: String, call: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Engine, &Table, Stop<'_>) -> Result<T> + Send + 'static,
    {
        let turn = turns.take(current_client()).await?;
        let cancel = Cancel::new();
        let _waiting = Waiting(Some(cancel.clone()));
        let watch = self.querier.watch(Budget::default(), &cancel);
        let engine = Arc::clone(&self.engine);
        blocking(move || {
            let _turn = turn;
            stoppable(&watch, |stop| call(&engine, &engine.table(&table)?, stop))
        })
        .await
    }

    /// The same for a read of one table.
    pub(crate) async fn read_table<T, F>(&self, name: String, call: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Engine, &Table) -> Result<T> + Send + 'static,
    {
        self.read(move |engine| call(engine, &engine.table(&name)?)).await
    }

    /// A handle that does not keep the service alive.
    pub(crate) fn downgrade(&self) -> Weak<Shared> {
        Arc::downgrade(&self.0)
    }

    /// Whether the service is shutting down.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// From now on readiness is red.
    pub(crate) fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
        self.watching.tick_now();
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

/// Runs a search until its client has left or its time is over; then the error is that of the watch.
pub(crate) fn stoppable<T>(watch: &Watch, search: impl FnOnce(Stop<'_>) -> Result<T>) -> Result<T> {
    let ended = Cell::new(None);
    let found = search(&|| {
        if let Err(error) = watch.check() {
            ended.set(Some(error));
            return true;
        }
        false
    });
    match (found, ended.into_inner()) {
        (Err(_), Some(error)) => Err(error.into()),
        (found, _) => found,
    }
}

/// Runs a call that may block on a thread that may be blocked.
pub(crate) async fn blocking<T, F>(call: F) -> Result<T>
where
    T: Send + 'static,
    F: FnOnce() -> Result<T> + Send + 'static,
{
    match tokio::task::spawn_blocking(call).await {
        Ok(result) => result,
        Err(panicked) => {
            tracing::error!(%panicked, "a request panicked");
            Err(Failure::new(ErrorCode::Internal, "internal error"))
        }
    }
}

/// Cancels a search when it is dropped: its client has left before the answer. Empty once the search has ended.
pub(crate) struct Waiting(pub(crate) Option<Cancel>);

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(cancel) = &self.0 {
            cancel.cancel();
        }
    }
}

//! Thread pools of queries: one for queries of hot points only, and one for queries that also read cold points. In this
//! module, cold includes archived.
//!
//! A query that takes a minute over years of data must not slow down a query that takes a millisecond over the last
//! hour. Queries that read cold segments therefore run separately: each on its own thread and on a smaller pool of
//! workers, all with background priority. Only a few of these queries run at once; further ones wait in order of
//! arrival. The read rate of these queries can be limited. Requests for old rows, which are cold or archived rows of
//! wide tables, use the same permits and the same rate: see [`ColdRows`].

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use rayon::{ThreadPool, ThreadPoolBuilder};
use tideline_engine::model::Clock;
use tideline_engine::runtime::background;

use crate::budget::{Deadline, Watch};
use crate::error::{QueryError, Result};

/// Interval at which a waiting query checks its time limit and its cancellation flag.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);
/// Time by which reads may run ahead of the configured rate.
const BURST: Duration = Duration::from_secs(1);

/// Threads and limits of queries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuerySettings {
    /// Worker threads of queries of hot points. `None`, the default, = one per core.
    pub threads: Option<usize>,
    /// Worker threads of queries that read cold segments. `None`, the default, = half the number of cores, at
    /// least 1.
    pub cold_threads: Option<usize>,
    /// Maximum number of concurrent queries of cold points, at least 1. `None`, the default, = twice their worker
    /// threads.
    pub cold_queries_max: Option<usize>,
    /// Maximum number of waiting queries of cold points; further ones are refused. Default 64.
    pub cold_waiting_max: usize,
    /// Encoded bytes of cold chunks, and bytes of rows in cold and archived parts, that all queries together may read
    /// per second. `None`, the default, = no limit.
    pub cold_read_bytes_per_second: Option<u64>,
}

impl Default for QuerySettings {
    fn default() -> Self {
        Self {
            threads: None,
            cold_threads: None,
            cold_queries_max: None,
            cold_waiting_max: 64,
            cold_read_bytes_per_second: None,
        }
    }
}

/// Current number of queries, and totals since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueryStats {
    /// Running queries of hot points.
    pub hot_running: usize,
    /// Running queries of cold points, and requests for old rows.
    pub cold_running: usize,
    /// Waiting queries of cold points, and requests for old rows.
    pub cold_waiting: usize,
    /// Queries of cold points, and requests for old rows, refused because too many were waiting.
    pub cold_refused: u64,
    /// Encoded bytes of cold chunks, and bytes of rows in cold and archived parts, that were read.
    pub cold_read_bytes: u64,
}

/// Pool for queries of hot points. The queries run on the thread of the caller and on workers.
#[derive(Debug)]
pub(crate) struct HotPool {
    pub(crate) thread_pool: ThreadPool,
    running: AtomicUsize,
}

/// Pool for queries of cold points.
#[derive(Debug)]
pub(crate) struct ColdPool {
    pub(crate) thread_pool: ThreadPool,
    gate: Arc<Gate>,
    pub(crate) meter: ReadMeter,
}

impl HotPool {
    pub(crate) fn new(settings: &QuerySettings) -> Result<Self> {
        Ok(Self {
            thread_pool: thread_pool("query", settings.threads.unwrap_or(0), || {})?,
            running: AtomicUsize::new(0),
        })
    }

    pub(crate) fn run<T>(&self, work: impl FnOnce() -> T) -> T {
        let _running = Running::begin(&self.running);
        work()
    }
}

impl ColdPool {
    pub(crate) fn new(settings: &QuerySettings, clock: Arc<dyn Clock>) -> Result<Self> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = settings.cold_threads.unwrap_or(cores / 2).max(1);
        Ok(Self {
            thread_pool: thread_pool("query-cold", threads, background::enter)?,
            gate: Arc::new(Gate {
                running_max: settings.cold_queries_max.unwrap_or(2 * threads).max(1),
                waiting_max: settings.cold_waiting_max,
                state: Mutex::default(),
                changed: Condvar::new(),
            }),
            meter: ReadMeter {
                clock,
                rate: settings.cold_read_bytes_per_second,
                state: Mutex::default(),
                read: AtomicU64::new(0),
            },
        })
    }

    /// Runs a query when it gets a permit. Returns an error if too many queries wait, the time of `watch` is over,
    /// the query is cancelled, or its thread cannot be started. The waiting time counts against the time limit of the
    /// query.
    pub(crate) fn run<T: Send>(&self, watch: &Watch, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        self.run_within(watch, watch, work)
    }

    /// Runs a query like [`run`](Self::run). The time limit of `permit` applies to the wait for a permit, the time
    /// limit of `watch` to the query.
    pub(crate) fn run_within<T: Send>(
        &self,
        permit: &Watch,
        watch: &Watch,
        work: impl FnOnce() -> Result<T> + Send,
    ) -> Result<T> {
        let deadline = watch.deadline();
        let _permit = self.gate.acquire(permit.deadline())?;
        let ended = std::thread::scope(|scope| {
            // A thread cannot raise its priority again, so the query runs on a new thread and the caller waits.
            let builder = std::thread::Builder::new().name("query-cold".into());
            let running = builder.spawn_scoped(scope, || {
                background::enter();
                ADMITTED.set(Some(Admitted {
                    gate: Arc::clone(&self.gate),
                    deadline: deadline.clone(),
                }));
                work()
            });
            running.map(|running| running.join())
        });
        match ended {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(panic)) => std::panic::resume_unwind(panic),
            Err(_) => Err(self.overloaded()),
        }
    }

    /// Returns the error of a query that gets no permit.
    pub(crate) fn overloaded(&self) -> QueryError {
        self.gate.state.lock().overloaded()
    }
}

thread_local! {
    /// Query of cold points that runs on this thread; `None` on all other threads.
    static ADMITTED: RefCell<Option<Admitted>> = const { RefCell::new(None) };
}

/// Query that has passed the gate.
#[derive(Clone)]
struct Admitted {
    gate: Arc<Gate>,
    deadline: Deadline,
}

/// Runs `wait`, during which a query waits for a slow client. A query of cold points releases its permit
/// meanwhile, so that another query can run. When `wait` has returned, the query enters the queue in first
/// position to get a permit again. If the query is cancelled or its time is over, it leaves the queue and ends at its
/// next check.
///
/// Called by sinks, on the thread that passes rows to them.
pub fn while_waiting<T>(wait: impl FnOnce() -> T) -> T {
    let admitted = ADMITTED.with_borrow(Option::clone);
    let Some(admitted) = admitted else { return wait() };
    admitted.gate.release();
    // A permit is acquired again even if `wait` panics, because the `Permit` of the query will release one when it is
    // dropped.
    let _reacquire = Reacquire(&admitted);
    wait()
}

/// Guard that acquires a permit again when dropped.
struct Reacquire<'a>(&'a Admitted);

impl Drop for Reacquire<'_> {
    fn drop(&mut self) {
        let Self(Admitted { gate, deadline }) = self;
        gate.reacquire(deadline);
    }
}

/// Returns the counts of both pools.
pub(crate) fn stats(hot: &HotPool, cold: &ColdPool) -> QueryStats {
    let gate = cold.gate.state.lock();
    QueryStats {
        hot_running: hot.running.load(Ordering::Relaxed),
        cold_running: gate.running,
        cold_waiting: gate.waiting.len(),
        cold_refused: gate.refused,
        cold_read_bytes: cold.meter.read.load(Ordering::Relaxed),
    }
}

fn thread_pool(name: &'static str, threads: usize, begin: fn()) -> Result<ThreadPool> {
    ThreadPoolBuilder::new()
        .num_threads(threads)
        .thread_name(move |number| format!("{name}-{number}"))
        .start_handler(move |_| begin())
        .build()
        .map_err(|error| QueryError::Invalid(format!("cannot start the worker threads of queries: {error}")))
}

/// Guard that counts a running query.
struct Running<'a>(&'a AtomicUsize);

impl<'a> Running<'a> {
    fn begin(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// First-in, first-out semaphore for queries of cold points.
#[derive(Debug)]
struct Gate {
    running_max: usize,
    waiting_max: usize,
    state: Mutex<GateState>,
    /// Signalled when a query has acquired or released a permit, or has given up waiting.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct GateState {
    running: usize,
    /// Tickets of the waiting queries, in the order in which they get permits.
    waiting: VecDeque<u64>,
    /// Newest ticket.
    last_ticket: u64,
    refused: u64,
}

/// Permit to run; released when dropped.
#[derive(Debug)]
struct Permit<'a>(&'a Gate);

impl Gate {
    fn acquire(&self, deadline: &Deadline) -> Result<Permit<'_>> {
        let mut state = self.state.lock();
        if state.waiting.is_empty() && state.running < self.running_max {
            state.running += 1;
            return Ok(Permit(self));
        }
        if state.waiting.len() >= self.waiting_max {
            state.refused += 1;
            return Err(state.overloaded());
        }
        let ticket = state.ticket();
        state.waiting.push_back(ticket);
        self.wait_for_permit(&mut state, ticket, deadline)?;
        Ok(Permit(self))
    }

    fn release(&self) {
        self.state.lock().running -= 1;
        self.changed.notify_all();
    }

    /// Waits for a permit ahead of all queries that are waiting now. If the query is cancelled or its time is over, it
    /// runs without waiting, above the limit, until its next check.
    fn reacquire(&self, deadline: &Deadline) {
        let mut state = self.state.lock();
        let ticket = state.ticket();
        state.waiting.push_front(ticket);
        if self.wait_for_permit(&mut state, ticket, deadline).is_err() {
            // The query counts as running, because its `Permit` will be released.
            state.running += 1;
        }
    }

    /// Waits until the ticket is the first one in the queue and there is a permit. On error, the query is neither in
    /// the queue nor running.
    fn wait_for_permit(
        &self,
        state: &mut MutexGuard<'_, GateState>,
        ticket: u64,
        deadline: &Deadline,
    ) -> Result<()> {
        loop {
            if state.waiting.front() == Some(&ticket) && state.running < self.running_max {
                state.waiting.pop_front();
                state.running += 1;
                // There may be a permit for the next query too.
                self.changed.notify_all();
                return Ok(());
            }
            if let Err(error) = deadline.check() {
                state.waiting.retain(|waiting| *waiting != ticket);
                self.changed.notify_all();
                return Err(error);
            }
            self.changed.wait_for(state, CHECK_INTERVAL);
        }
    }
}

impl GateState {
    /// Returns a new ticket.
    fn ticket(&mut self) -> u64 {
        self.last_ticket += 1;
        self.last_ticket
    }

    fn overloaded(&self) -> QueryError {
        QueryError::Overloaded {
            running: self.running,
            waiting: self.waiting.len(),
        }
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.0.release();
    }
}

/// Running request for rows of wide tables in the cold tier or in the archive.
#[derive(Debug)]
pub struct ColdRows<'q> {
    pub(crate) meter: &'q ReadMeter,
    pub(crate) watch: Watch,
}

impl ColdRows<'_> {
    /// Counts bytes that were read, and waits until the rate of cold reads allows more. Returns false if the request
    /// was cancelled.
    pub fn pass(&self, bytes: u64) -> bool {
        self.meter.take(bytes, &self.watch).is_ok()
    }
}

/// Counts cold bytes and throttles queries that read more than the configured rate.
#[derive(Debug)]
pub(crate) struct ReadMeter {
    clock: Arc<dyn Clock>,
    /// Bytes per second; `None` = no limit.
    rate: Option<u64>,
    /// Monotonic time until which queries must wait, so that all reads so far are within the configured rate.
    state: Mutex<Duration>,
    read: AtomicU64,
}

impl ReadMeter {
    /// Counts bytes that were read; waits until the rate allows more. Returns an error if the query is cancelled or
    /// its time is over.
    pub(crate) fn take(&self, bytes: u64, watch: &Watch) -> Result<()> {
        self.read.fetch_add(bytes, Ordering::Relaxed);
        let Some(rate) = self.rate.filter(|_| bytes > 0) else {
            return Ok(());
        };
        let mut caught_up = self.state.lock();
        let now = self.clock.monotonic();
        let cost = Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64);
        *caught_up = (*caught_up).max(now.saturating_sub(BURST)) + cost;
        let until = *caught_up;
        drop(caught_up);
        let (never, silence) = (Condvar::new(), Mutex::new(()));
        loop {
            let left = until.saturating_sub(self.clock.monotonic());
            if left.is_zero() {
                return Ok(());
            }
            watch.check()?;
            never.wait_for(&mut silence.lock(), left.min(CHECK_INTERVAL));
        }
    }
}

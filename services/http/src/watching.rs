//! Shared state of all watches: background threads, ticks, and updates shared by watches with the same request.
//!
//! 1. A commit wakes a single task, regardless of the number of watches. The task collects changes for 10 ms to
//!    1 s, depending on the number of open watches, and then signals the watches (a tick). On a tick, each watch
//!    advances to the same position in the journal.
//! 2. The updates (steps) are read and encoded on threads of low priority, so that watches do not take processor time
//!    from writers.
//! 3. Watches of one table with the same condition, fields and format form a [`WatchGroup`]. They advance to
//!    the same positions, so the first watch that reaches a step encodes the step for the whole group.
//! 4. The total send rate is limited by [`HttpSettings::watch_bytes_per_second_max`](crate::HttpSettings), because
//!    system calls that send run on the threads of all connections.
//!
//! [`crate::live`] sends the steps.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use rayon::{ThreadPool, ThreadPoolBuilder};
use tideline_access::TimelineCondition;
use tideline_engine::Engine;
use tideline_engine::model::{SequenceNumber, TableId};
use tideline_engine::runtime::{MemoryAccount, background};
use tideline_engine::watch::{WatchCursor, WatchRequest, Watcher};
use tideline_openapi::ErrorCode;
use tokio::sync::{Notify, oneshot, watch};

use crate::app::{App, WeakApp};
use crate::failure::{Failure, Result};
use crate::live::{SharedSteps, Step, StepCounters};
use crate::resources::watch::EventText;
use tideline_connections::Throttle;

/// Shortest time in which changes are collected, so that many small writes become one step.
const GATHER_MIN: Duration = Duration::from_millis(10);
/// Collection time per open watch: a thousand watches are served four times per second.
const GATHER_PER_WATCH: Duration = Duration::from_micros(250);
/// Longest collection time.
const GATHER_MAX: Duration = Duration::from_secs(1);
/// Reserved bytes per byte of encoded text: one for the text, one for its source.
pub(crate) const BYTES_PER_BYTE: u64 = 2;
/// Use of the reserved memory, as in errors.
pub(crate) const WHAT: &str = "events of watches";
/// A watcher is `None` only while a background thread has it.
const RETURNED: &str = "each step returns the watcher";

/// Shared state of all watches.
pub(crate) struct Watching {
    pool: ThreadPool,
    groups: Mutex<Vec<Weak<WatchGroup>>>,
    /// Wakes the task that ticks.
    news: Arc<Notify>,
    is_ticking: AtomicBool,
    ticks: watch::Sender<SequenceNumber>,
    memory: MemoryAccount,
    /// Throttle of the bytes that all watches send.
    pub(crate) throttle: Throttle,
    /// Steps of watches of tables.
    pub(crate) steps: StepCounters,
}

/// Watches with the same table, request and format.
#[derive(Debug)]
pub(crate) struct WatchGroup {
    table: TableId,
    /// Request without a cursor.
    request: WatchRequest,
    /// Condition to which the tokens of the watches are restricted.
    restriction: Option<TimelineCondition>,
    text: EventText,
    steps: Arc<SharedSteps<WatchCursor>>,
}

impl Watching {
    pub(crate) fn new(memory: MemoryAccount, bytes_per_second_max: u64) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let pool = ThreadPoolBuilder::new()
            .num_threads((cores / 2).max(1))
            .thread_name(|at| format!("watch-{at}"))
            .start_handler(|_| background::enter())
            .build();
        Self {
            pool: pool.expect("the system can start threads"),
            groups: Mutex::default(),
            news: Arc::default(),
            is_ticking: AtomicBool::new(false),
            ticks: watch::Sender::new(SequenceNumber(0)),
            memory,
            throttle: Throttle::new(bytes_per_second_max),
            steps: StepCounters::default(),
        }
    }

    /// Returns a function that wakes the task that ticks. It never blocks.
    pub(crate) fn waker(&self) -> impl Fn() + Send + Sync + 'static {
        let news = Arc::clone(&self.news);
        move || news.notify_one()
    }

    /// Ticks immediately, so that watches detect the shutdown.
    pub(crate) fn tick_now(&self) {
        self.ticks.send_modify(|_| {});
    }

    /// Subscribes to ticks; the first call starts the task that ticks. A tick holds the journal position up
    /// to which watches advance.
    pub(crate) fn subscribe(&self, app: &App) -> watch::Receiver<SequenceNumber> {
        if !self.is_ticking.swap(true, Ordering::Relaxed) {
            tokio::spawn(tick(app.downgrade(), Arc::clone(&self.news)));
        }
        self.ticks.subscribe()
    }

    /// Returns the group of watches with the events of this watcher in this format; creates the group if no open
    /// watch uses it.
    pub(crate) fn join(&self, watcher: &Watcher, text: EventText) -> Arc<WatchGroup> {
        let table = watcher.table();
        let request = WatchRequest {
            from: None,
            ..watcher.request().clone()
        };
        let restriction = watcher.restriction().cloned();
        let mut groups = self.groups.lock();
        groups.retain(|group| group.strong_count() > 0);
        let same = |group: &Arc<WatchGroup>| {
            group.table == table
                && group.text == text
                && group.request == request
                && group.restriction == restriction
        };
        if let Some(group) = groups.iter().filter_map(Weak::upgrade).find(same) {
            return group;
        }
        let group = Arc::new(WatchGroup {
            table,
            request,
            restriction,
            text,
            steps: Arc::default(),
        });
        groups.push(Arc::downgrade(&group));
        group
    }

    /// Advances a watch up to `until` and returns the step. Fails if the next writes are no longer available. Reuses
    /// the step if another watch of the group has encoded it from the same position.
    pub(crate) async fn step(
        &self,
        engine: &Arc<Engine>,
        group: &Arc<WatchGroup>,
        watcher: &mut Option<Watcher>,
        until: SequenceNumber,
    ) -> Result<Arc<Step<WatchCursor>>> {
        let from = watcher.as_ref().expect(RETURNED).cursor();
        let read = async {
            let mut moved = watcher.take().expect(RETURNED);
            let (engine, text, memory) = (Arc::clone(engine), group.text, self.memory.clone());
            let (moved, step) = self
                .in_background(move || {
                    let step = encoded(&engine, &mut moved, until, text, &memory);
                    (moved, step)
                })
                .await?;
            *watcher = Some(moved);
            step
        };
        let is_shared = Arc::strong_count(group) > 1;
        let step = group
            .steps
            .step((from, None), is_shared, &self.steps, read)
            .await?;
        if let Some(watcher) = watcher
            && watcher.cursor() == from
            && step.end != from
        {
            // Another watch has read the step.
            watcher.jump(step.end);
        }
        Ok(step)
    }

    /// Runs work of watches on a thread of low priority. The work is not cancelled if the caller is.
    pub(crate) async fn in_background<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        let (sender, receiver) = oneshot::channel();
        self.pool.spawn(move || {
            // The result is dropped if the client has disconnected.
            let _gone = sender.send(work());
        });
        receiver
            .await
            .map_err(|_| Failure::new(ErrorCode::Internal, "internal error"))
    }
}

fn encoded(
    engine: &Engine,
    watcher: &mut Watcher,
    until: SequenceNumber,
    text: EventText,
    memory: &MemoryAccount,
) -> Result<Step<WatchCursor>> {
    let from = watcher.cursor();
    let mut held = memory.reserve(WHAT, 0)?;
    let mut parts = Vec::new();
    for part in watcher.step_until(engine, until)? {
        background::yield_core();
        let encoded = text.part(&part);
        held.grow(BYTES_PER_BYTE * encoded.len() as u64)?;
        parts.push((part.cursor, Bytes::from(encoded)));
    }
    let end = watcher.cursor();
    Ok(Step {
        from,
        end,
        parts,
        version: None,
        has_more: end.sequence() < until,
        _memory: held,
    })
}

/// Ticks after changes until the service is dropped.
async fn tick(app: WeakApp, news: Arc<Notify>) {
    loop {
        news.notified().await;
        let open = match app.upgrade() {
            Some(app) => u32::try_from(app.watches.running()).unwrap_or(u32::MAX),
            None => return,
        };
        let gather = GATHER_PER_WATCH
            .saturating_mul(open)
            .clamp(GATHER_MIN, GATHER_MAX);
        tokio::time::sleep(gather).await;
        let Some(app) = app.upgrade() else { return };
        app.watching
            .ticks
            .send_replace(app.service_engine().store().recent_end());
    }
}

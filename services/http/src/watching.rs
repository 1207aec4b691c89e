//! State that all watches share: background threads, ticks, and the steps of watches with the same request.
//!
//! 1. A commit wakes one task, whatever the number of watches. It gathers news for some milliseconds, longer the more
//!    watches are open, and then ticks: each watch takes a step to the same place in the journal.
//! 2. Steps are taken and encoded on threads of low priority, so that watches never take a core from a writer.
//! 3. Watches of one table with the same condition, fields and form are a [`WatchGroup`]. Since they step to the same
//!    places, the first one to take a step encodes it for all.
//! 4. All together send at most [`HttpSettings::watch_bytes_per_second_max`](crate::HttpSettings): the system's calls that
//!    send run on the threads of all connections.
//!
//! Encoded steps are reserved from the memory account while any watch holds them. A watch whose client takes nothing for a
//! moment gives its step back, and takes it again later from its cursor.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use rayon::{ThreadPool, ThreadPoolBuilder};
use tideline_engine::Engine;
use tideline_engine::model::{SequenceNumber, TableId};
use tideline_engine::runtime::{MemoryAccount, Reservation, background};
use tideline_engine::watch::{WatchCursor, WatchRequest, Watcher};
use tideline_openapi::ErrorCode;
use tokio::sync::{Notify, oneshot, watch};

use crate::app::{App, Shared};
use crate::failure::{Failure, Result};
use crate::resources::watch::EventText;
use tideline_connections::Pace;

/// News are gathered for so long at least: many small writes make one step.
const GATHER_MIN: Duration = Duration::from_millis(10);
/// For each open watch they are gathered for so much longer: a thousand are served four times a second.
const GATHER_PER_WATCH: Duration = Duration::from_micros(250);
/// The longest gathering.
const GATHER_MAX: Duration = Duration::from_secs(1);
/// Steps of a group that are kept for those that follow.
const STEPS_KEPT: usize = 4;
/// Memory of a part for each byte of its text: the text and its source.
const BYTES_PER_BYTE: u64 = 2;

/// State that all watches share.
pub(crate) struct Watching {
    pool: ThreadPool,
    groups: Mutex<Vec<Weak<WatchGroup>>>,
    /// Wakes the task that ticks.
    news: Arc<Notify>,
    is_ticking: AtomicBool,
    ticks: watch::Sender<SequenceNumber>,
    memory: MemoryAccount,
    /// The rate at which all of them send.
    pub(crate) pace: Pace,
    /// Steps that were taken, and those that followed one in the same group.
    taken: AtomicU64,
    shared: AtomicU64,
}

/// Watches with the same request and cursor.
#[derive(Debug)]
pub(crate) struct WatchGroup {
    table: TableId,
    /// Without a cursor.
    request: WatchRequest,
    text: EventText,
    steps: Mutex<VecDeque<Arc<WatchStep>>>,
    /// Held while one of them takes a step.
    stepping: tokio::sync::Mutex<()>,
}

/// A step, encoded.
#[derive(Debug)]
pub(crate) struct WatchStep {
    from: WatchCursor,
    /// Cursor of the watch after it.
    end: WatchCursor,
    /// Each with the cursor behind it.
    pub(crate) parts: Vec<(WatchCursor, Bytes)>,
    _memory: Reservation,
}

impl WatchStep {
    /// Cursor of the watch before it.
    pub(crate) fn from(&self) -> WatchCursor {
        self.from
    }
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
            pool: pool.expect("the system has threads left at start"),
            groups: Mutex::default(),
            news: Arc::default(),
            is_ticking: AtomicBool::new(false),
            ticks: watch::Sender::new(SequenceNumber(0)),
            memory,
            pace: Pace::new(bytes_per_second_max),
            taken: AtomicU64::new(0),
            shared: AtomicU64::new(0),
        }
    }

    /// Wakes the task that ticks; never blocks.
    pub(crate) fn waker(&self) -> impl Fn() + Send + Sync + 'static {
        let news = Arc::clone(&self.news);
        move || news.notify_one()
    }

    /// Steps that were taken since the start, and those that were found already taken.
    pub(crate) fn steps(&self) -> (u64, u64) {
        (
            self.taken.load(Ordering::Relaxed),
            self.shared.load(Ordering::Relaxed),
        )
    }

    /// Ticks at once, so that watches see that the service ends.
    pub(crate) fn tick_now(&self) {
        self.ticks.send_modify(|_| {});
    }

    /// Receives ticks: the sequence of the journal up to which steps are taken.
    pub(crate) fn subscribe(&self, app: &App) -> watch::Receiver<SequenceNumber> {
        if !self.is_ticking.swap(true, Ordering::Relaxed) {
            tokio::spawn(tick(app.downgrade(), Arc::clone(&self.news)));
        }
        self.ticks.subscribe()
    }

    /// The group of a watch; a new one where it is the first.
    pub(crate) fn join(&self, table: TableId, request: WatchRequest, text: EventText) -> Arc<WatchGroup> {
        let request = WatchRequest {
            from: None,
            ..request
        };
        let mut groups = self.groups.lock();
        groups.retain(|group| group.strong_count() > 0);
        let same =
            |group: &Arc<WatchGroup>| group.table == table && group.text == text && group.request == request;
        if let Some(group) = groups.iter().filter_map(Weak::upgrade).find(same) {
            return group;
        }
        let group = Arc::new(WatchGroup {
            table,
            request,
            text,
            steps: Mutex::default(),
            stepping: tokio::sync::Mutex::new(()),
        });
        groups.push(Arc::downgrade(&group));
        group
    }

    /// Takes a step of a watch up to `until`, or the one that another watch of the group has taken from the same place.
    pub(crate) async fn step(
        &self,
        engine: &Arc<Engine>,
        group: &Arc<WatchGroup>,
        watcher: &mut Option<Watcher>,
        until: SequenceNumber,
    ) -> Result<Arc<WatchStep>> {
        let from = watcher.as_ref().map(Watcher::cursor);
        if let Some(step) = self.follow(group, watcher, from) {
            return Ok(step);
        }
        let _stepping = group.stepping.lock().await;
        if let Some(step) = self.follow(group, watcher, from) {
            return Ok(step);
        }
        let mut moved = watcher.take().expect("it comes back from each step");
        let (engine, text, memory) = (Arc::clone(engine), group.text, self.memory.clone());
        let (tell, told) = oneshot::channel();
        self.pool.spawn(move || {
            let step = encoded(&engine, &mut moved, until, text, &memory);
            // A client that has left meanwhile gets nothing.
            let _gone = tell.send((moved, step));
        });
        let panicked = |_| Failure::new(ErrorCode::Internal, "internal error");
        let (moved, step) = told.await.map_err(panicked)?;
        *watcher = Some(moved);
        let step = Arc::new(step?);
        self.taken.fetch_add(1, Ordering::Relaxed);
        if Arc::strong_count(group) > 1 && step.end != step.from {
            let mut steps = group.steps.lock();
            steps.push_back(Arc::clone(&step));
            if steps.len() > STEPS_KEPT {
                steps.pop_front();
            }
        }
        Ok(step)
    }

    /// The step that another watch has taken from where this one stands; it stands behind it then.
    fn follow(
        &self,
        group: &WatchGroup,
        watcher: &mut Option<Watcher>,
        from: Option<WatchCursor>,
    ) -> Option<Arc<WatchStep>> {
        let steps = group.steps.lock();
        let step = steps.iter().find(|step| Some(step.from) == from)?;
        watcher.as_mut()?.jump(step.end);
        self.shared.fetch_add(1, Ordering::Relaxed);
        Some(Arc::clone(step))
    }
}

fn encoded(
    engine: &Engine,
    watcher: &mut Watcher,
    until: SequenceNumber,
    text: EventText,
    memory: &MemoryAccount,
) -> Result<WatchStep> {
    let from = watcher.cursor();
    let mut held = memory.reserve("events of watches", 0)?;
    let mut parts = Vec::new();
    for part in watcher.step_until(engine, until)? {
        background::give_way();
        let encoded = text.part(&part);
        held.grow(BYTES_PER_BYTE * encoded.len() as u64)?;
        parts.push((part.cursor, Bytes::from(encoded)));
    }
    Ok(WatchStep {
        from,
        end: watcher.cursor(),
        parts,
        _memory: held,
    })
}

/// Ticks after news, until the service is gone.
async fn tick(app: Weak<Shared>, news: Arc<Notify>) {
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
        app.watching.ticks.send_replace(app.engine.store().tail_end());
    }
}

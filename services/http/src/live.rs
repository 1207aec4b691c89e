//! Server-sent events: each watch is a task that reads its events step by step and sends them to its client.
//!
//! A [`Source`] reads the steps and waits for changes. Watches with the same request share the steps that one of them has
//! read and encoded ([`SharedSteps`]). A slow client delays only its own watch: after a second, the watch drops the events
//! that are not sent yet, and reads them again when the client continues. So a watch holds little memory. The
//! memory of a step is reserved in the memory account while a watch holds the step or the step is kept for other
//! watches.
//!
//! If the client does not continue in time, the watch ends before the connection is cut. Its last event tells the client
//! to resume from its cursor. A slot of the queue is reserved for the last event, so the event needs no further memory,
//! and the client gets it if it reads again before the connection is cut.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::http::HeaderMap;
use axum::response::Response;
use bytes::Bytes;
use parking_lot::Mutex;
use serde::Serialize;
use tideline_connections::Permit;
use tideline_engine::runtime::Reservation;
use tideline_openapi::DurationText;
use tideline_openapi::watch::{ResumeReason, WatchResume};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::context::RequestContext;
use crate::failure::{Failure, Result};
use crate::grant::Grant;
use crate::stream;

const CONTENT_TYPE: &str = "text/event-stream";
/// Maximum number of queued parts between a watch and its connection, without the last event.
const QUEUE_PARTS: usize = 4;
/// Silence after which a comment is sent, so that both ends detect a lost connection.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// Comment that is sent after a silence. Clients ignore it.
const COMMENT: &[u8] = b": nothing new\n\n";
/// Time after which a client that reads nothing counts as slow: its watch drops the encoded events.
const SLOW: Duration = Duration::from_secs(1);
/// Longest duration of a watch that a request can set.
const TIME_MAX: Duration = Duration::from_secs(7 * 24 * 3_600);
/// Number of steps that are kept for other watches.
const STEPS_KEPT: usize = 4;
/// Time for which a step is kept. A watch that is slower reads the step again.
const KEPT_FOR: Duration = Duration::from_secs(1);

/// Events between two cursors, encoded.
#[derive(Debug)]
pub(crate) struct Step<C> {
    pub(crate) from: C,
    /// Cursor after the step.
    pub(crate) end: C,
    /// Encoded parts, each with the cursor after it.
    pub(crate) parts: Vec<(C, Bytes)>,
    /// Version of the data that the step was read from; see [`SharedSteps::step`]. `None` if it has no versions.
    pub(crate) version: Option<u64>,
    /// True if more events followed when the step was read.
    pub(crate) has_more: bool,
    /// Memory of the parts.
    pub(crate) _memory: Reservation,
}

impl<C> Step<C> {
    /// Returns true if the step was read from this version or a later one.
    pub(crate) fn is_of(&self, version: Option<u64>) -> bool {
        version.is_some() && self.version >= version
    }
}

/// Steps of watches with the same request.
#[derive(Debug)]
pub(crate) struct SharedSteps<C> {
    kept: Mutex<VecDeque<Arc<Step<C>>>>,
    /// Held while one of the watches reads a step.
    reading: tokio::sync::Mutex<()>,
}

/// Numbers of steps since the start.
#[derive(Debug, Default)]
pub(crate) struct StepCounters {
    read: AtomicU64,
    shared: AtomicU64,
}

impl StepCounters {
    /// Returns the number of steps that were read, and of those that another watch had read.
    pub(crate) fn numbers(&self) -> (u64, u64) {
        (
            self.read.load(Ordering::Relaxed),
            self.shared.load(Ordering::Relaxed),
        )
    }
}

impl<C> Default for SharedSteps<C> {
    fn default() -> Self {
        Self {
            kept: Mutex::default(),
            reading: tokio::sync::Mutex::default(),
        }
    }
}

impl<C: PartialEq + Send + Sync + 'static> SharedSteps<C> {
    /// Returns the step after a cursor. Uses the step that another watch has read; otherwise reads it with `read`.
    /// `version` is the newest version that was signalled to the caller. A step without progress is only used if it was
    /// read from this version or a later one, and never if the data has no versions. The steps are kept if `is_shared` is
    /// true.
    pub(crate) async fn step(
        self: &Arc<Self>,
        (from, version): (C, Option<u64>),
        is_shared: bool,
        counters: &StepCounters,
        read: impl Future<Output = Result<Step<C>>> + Send,
    ) -> Result<Arc<Step<C>>> {
        if let Some(step) = self.find(&from, version, counters) {
            return Ok(step);
        }
        let _reading = self.reading.lock().await;
        if let Some(step) = self.find(&from, version, counters) {
            return Ok(step);
        }
        let step = Arc::new(read.await?);
        counters.read.fetch_add(1, Ordering::Relaxed);
        if is_shared {
            self.keep(&step);
        }
        Ok(step)
    }

    /// Keeps a step for other watches, and drops it after [`KEPT_FOR`], so that idle watches hold no memory.
    fn keep(self: &Arc<Self>, step: &Arc<Step<C>>) {
        {
            let mut kept = self.kept.lock();
            kept.retain(|kept| kept.from != step.from);
            kept.push_back(Arc::clone(step));
            if kept.len() > STEPS_KEPT {
                kept.pop_front();
            }
        }
        let (steps, step) = (Arc::downgrade(self), Arc::downgrade(step));
        tokio::spawn(async move {
            sleep(KEPT_FOR).await;
            if let Some(steps) = steps.upgrade() {
                steps
                    .kept
                    .lock()
                    .retain(|kept| Arc::as_ptr(kept) != step.as_ptr());
            }
        });
    }

    fn find(&self, from: &C, version: Option<u64>, counters: &StepCounters) -> Option<Arc<Step<C>>> {
        let kept = self.kept.lock();
        let step = kept
            .iter()
            .find(|step| step.from == *from && (step.end != *from || step.is_of(version)))?;
        counters.shared.fetch_add(1, Ordering::Relaxed);
        Some(Arc::clone(step))
    }
}

/// Events of one watch.
pub(crate) trait Source: Send + Sync + 'static {
    /// Position in the events.
    type Cursor: Copy + fmt::Display + Send + Sync + 'static;

    /// Reads the next step and moves the cursor to its end.
    fn step(&mut self) -> impl Future<Output = Result<Arc<Step<Self::Cursor>>>> + Send;

    /// Moves to the cursor after a part of the last step.
    fn jump(&mut self, cursor: Self::Cursor);

    /// Returns true if there is nothing to read before the next change.
    fn is_caught_up(&self) -> bool;

    /// Returns true if a watch whose time is over can end: the events that a watch of no duration sends were read.
    fn can_end(&self) -> bool;

    /// Waits for a change. Returns false if no further change is possible.
    fn changed(&mut self) -> impl Future<Output = bool> + Send;
}

/// Open watch.
struct Live<S: Source> {
    app: Grant,
    context: RequestContext,
    source: S,
    /// Cursor after the last part that was queued.
    sent: S::Cursor,
    /// Time at which the watch ends; `None` if it has no time limit.
    end: Option<Instant>,
    events: mpsc::Sender<io::Result<Bytes>>,
    /// Slot of the queue for the last event.
    ///
    /// The watch and its permit end when the event is queued, before the client has read the response. The response then
    /// holds at most the queued parts and this event, and ends when the client has read them, or when its connection is
    /// cut after [`answer_timeout`](crate::HttpSettings::answer_timeout). The number of such responses is bounded by the
    /// number of connections.
    last: mpsc::OwnedPermit<io::Result<Bytes>>,
    /// Permit of the watch, which limits the number of open watches.
    _permit: Permit,
}

/// Next action of a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Step,
    End,
    /// The client has read nothing for too long. The watch ends, and the client must resume from its cursor.
    Resume,
}

/// Returns the cursor from which a watch continues: the header `Last-Event-ID` if it is not empty, or else the
/// parameter. Returns `None` for a watch without a cursor, which begins with the next event.
pub(crate) fn cursor_of<'a>(headers: &'a HeaderMap, parameter: Option<&'a str>) -> Option<&'a str> {
    let last_event = headers.get("last-event-id").and_then(|id| id.to_str().ok());
    // A browser without a last event, and a client that has received none, send an empty header.
    let is_given = |cursor: &&str| !cursor.is_empty();
    last_event.filter(is_given).or(parameter).filter(is_given)
}

/// Returns the time at which a watch of this duration ends.
pub(crate) fn end_of(duration: Option<DurationText>) -> Result<Option<Instant>> {
    let end = |duration: DurationText| {
        let duration = u64::try_from(duration.0).map(Duration::from_nanos).ok();
        let duration = duration.filter(|duration| *duration <= TIME_MAX).ok_or_else(|| {
            Failure::invalid("for must be from 0s to 7d; omit it to watch until the client disconnects")
        });
        Ok(Instant::now() + duration?)
    };
    duration.map(end).transpose()
}

/// Returns true for the duration of a watch that sends the existing events and ends.
pub(crate) fn is_of_existing(duration: Option<DurationText>) -> bool {
    duration == Some(DurationText(0))
}

/// Returns a response that begins with `ready` and continues with the events of `source`. It ends when the client
/// disconnects or reads nothing for too long, the time is over, a step fails or the service shuts down. The caller has
/// already read the first step, so a watch that cannot start has an error status.
pub(crate) fn respond<S: Source>(
    app: Grant,
    (source, permit): (S, Permit),
    end: Option<Instant>,
    (ready, first): (Vec<u8>, Arc<Step<S::Cursor>>),
) -> Response {
    let (events, receiver) = mpsc::channel(QUEUE_PARTS + 1);
    let last = events.clone().try_reserve_owned();
    let context = RequestContext::current();
    let of_task = context.clone();
    let live = Live {
        app,
        context,
        source,
        sent: first.from,
        end,
        events,
        last: last.expect("the queue is empty"),
        _permit: permit,
    };
    tokio::spawn(of_task.scope(live.run(ready, first)));
    stream::live(CONTENT_TYPE, receiver)
}

impl<S: Source> Live<S> {
    async fn run(mut self, ready: Vec<u8>, first: Arc<Step<S::Cursor>>) {
        if !self.send(ready).await {
            return;
        }
        let mut step: Result<_> = Ok(first);
        let mut text = Vec::new();
        loop {
            let mut next = match step {
                Ok(step) => self.send_step(step).await,
                Err(failure) => {
                    // The event has no id, so that a client that reconnects continues after the previous event.
                    put_head(None, "failed", &mut text);
                    put_data(&failure.into_body(self.context.id.clone()), &mut text);
                    break;
                }
            };
            if next == Next::Step && (self.must_end() || self.is_late() && self.source.can_end()) {
                return;
            }
            if next == Next::Step && self.source.is_caught_up() {
                next = self.wait().await;
            }
            match next {
                Next::Step => step = self.source.step().await,
                Next::End => return,
                Next::Resume => {
                    let resume = WatchResume {
                        cursor: self.sent.to_string(),
                        reason: ResumeReason::Slow,
                    };
                    put_head(Some(&self.sent), "resume", &mut text);
                    put_data(&resume, &mut text);
                    break;
                }
            }
        }
        self.last.send(Ok(text.into()));
    }

    /// Sends the parts of a step. If the client is slow, drops the parts not yet sent and waits until the client reads
    /// again. The next step starts at the cursor of the last sent part.
    async fn send_step(&mut self, step: Arc<Step<S::Cursor>>) -> Next {
        self.sent = step.from;
        let (end, patience) = (step.end, self.patience());
        let mut is_slow = false;
        for (cursor, text) in &step.parts {
            match timeout(SLOW.min(patience), self.events.reserve()).await {
                Ok(Ok(permit)) => {
                    self.app.watching.throttle.take(text.len()).await;
                    permit.send(Ok(text.clone()));
                }
                Ok(Err(_)) => return Next::End,
                Err(_) => {
                    is_slow = true;
                    break;
                }
            }
            self.sent = *cursor;
        }
        drop(step);
        if !is_slow {
            self.sent = end;
            return Next::Step;
        }
        self.source.jump(self.sent);
        match timeout(patience.saturating_sub(SLOW), self.events.reserve()).await {
            Ok(Ok(_)) => Next::Step,
            Ok(Err(_)) => Next::End,
            Err(_) => Next::Resume,
        }
    }

    /// Returns the longest time for which the client may read nothing: half of the time after which its connection is
    /// cut, so that it can still get the last event.
    fn patience(&self) -> Duration {
        self.app.settings.answer_timeout / 2
    }

    /// Sends a text; returns false if the client has disconnected.
    async fn send(&self, text: impl Into<Bytes>) -> bool {
        self.events.send(Ok(text.into())).await.is_ok()
    }

    /// Returns true if the watch must end whatever it has sent.
    fn must_end(&self) -> bool {
        self.app.is_draining() || !self.app.is_valid()
    }

    /// Returns true if the time of the watch is over.
    fn is_late(&self) -> bool {
        self.end.is_some_and(|end| Instant::now() >= end)
    }

    fn is_over(&self) -> bool {
        self.must_end() || self.is_late()
    }

    /// Waits for a change and sends heartbeats meanwhile. Returns `End` if the watch must end or the client has
    /// disconnected, and `Resume` if a heartbeat cannot be queued.
    async fn wait(&mut self) -> Next {
        loop {
            if self.is_over() {
                return Next::End;
            }
            let heartbeat = Instant::now() + HEARTBEAT;
            let timer = self.end.map_or(heartbeat, |end| end.min(heartbeat));
            tokio::select! {
                goes_on = self.source.changed() => {
                    return if goes_on && !self.is_over() { Next::Step } else { Next::End };
                }
                () = self.events.closed() => return Next::End,
                () = sleep_until(timer) => {}
            }
            match timeout(self.patience(), self.send(COMMENT)).await {
                Ok(true) => {}
                Ok(false) => return Next::End,
                Err(_) => return Next::Resume,
            }
        }
    }
}

/// Encodes the lines before the data of an event. `id` is the cursor after the event.
pub(crate) fn put_head(id: Option<&dyn fmt::Display>, event: &str, out: &mut Vec<u8>) {
    if let Some(id) = id {
        let _ = writeln!(out, "id: {id}");
    }
    let _ = write!(out, "event: {event}\ndata: ");
}

/// Encodes the data of an event as JSON. JSON text has no line breaks here, so it is a single `data` line.
pub(crate) fn put_data(data: &impl Serialize, out: &mut Vec<u8>) {
    let _ = serde_json::to_writer(&mut *out, data);
    out.extend_from_slice(b"\n\n");
}

/// Encodes the first event, and the delay of 2 s before a client reconnects.
pub(crate) fn ready(id: &dyn fmt::Display, data: &impl Serialize) -> Vec<u8> {
    let mut out = b"retry: 2000\n".to_vec();
    put_head(Some(id), "ready", &mut out);
    put_data(data, &mut out);
    out
}

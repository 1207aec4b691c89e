//! Client connection with timeouts that hyper lacks.
//!
//! hyper's header timeout also runs while a connection is idle, so it serves as the idle timeout. This module
//! adds:
//!
//! - A shorter timeout for a request head, counted from its first byte, and for the first byte of a new
//!   connection, counted from the accept.
//! - A minimum rate at which the client must read the response. A client that stalls or reads more slowly is
//!   disconnected; otherwise its request would hold resources forever.
//!
//! [`Connections`] lists the open connections, so that idle ones can be closed in favour of new ones.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::response::Response;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::client::Client;
use crate::guarded_body::with_guard;
use crate::shares::Share;
use crate::tls::Transport;

/// Connection that fails if the client stalls.
#[derive(Debug)]
pub(crate) struct GuardedStream {
    stream: Transport,
    busy: Busy,
    header_timeout: Duration,
    read_rate: ReadRate,
    /// Number of complete request heads at the last read.
    heads: u64,
    /// True once the client has sent anything.
    has_begun: bool,
    /// Deadline of the first byte, and afterwards of the request head that is being read; `None` between request
    /// heads.
    head_deadline: Option<Instant>,
    /// Timer that wakes the reader at `head_deadline`.
    head_timer: Option<Pin<Box<Sleep>>>,
}

/// Minimum speed at which a client must read its responses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MinimumReadRate {
    /// Longest time without progress, and the time over which the rate is averaged.
    pub(crate) timeout: Duration,
    pub(crate) bytes_per_second_min: u64,
}

/// Rate at which a client reads its responses, measured while bytes wait to be sent.
#[derive(Debug)]
struct ReadRate {
    minimum: MinimumReadRate,
    /// Start of the current stall, in which the client accepts no bytes; `None` without a stall.
    stalled: Option<Instant>,
    /// Timer that wakes the writer when a stall has lasted too long.
    timer: Option<Pin<Box<Sleep>>>,
    /// Time in which bytes waited to be sent, since the last check of the rate. `taken` counts the bytes accepted since
    /// that check.
    waited: Duration,
    taken: u64,
}

/// Shared state of a connection. The connection is busy from a complete request head until the response is sent.
/// Bytes read while it is busy do not start the timeout of a request head.
#[derive(Debug, Clone)]
pub(crate) struct Busy(Arc<Progress>);

/// Progress of a connection.
#[derive(Debug)]
struct Progress {
    is_answering: AtomicBool,
    /// Number of complete request heads.
    heads: AtomicU64,
    /// End of the last response, in milliseconds since `opened`.
    idle_from_ms: AtomicU64,
    opened: Instant,
    /// Signalled to close the connection in favour of a new one.
    evicted: Notify,
}

/// List of the open connections. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Connections(Arc<Mutex<HashMap<u64, Open>>>);

/// Entry of an open connection.
#[derive(Debug)]
struct Open {
    busy: Busy,
    client: Client,
    kind: ConnectionKind,
}

/// Limit that a connection counts against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionKind {
    /// Counts against `connections_max`; accepts every request.
    Ordinary,
    /// Beyond that limit; accepts only health checks and metrics.
    Reserved,
}

/// Registration in the list of open connections; removed when dropped.
#[derive(Debug)]
pub(crate) struct Listed {
    list: Connections,
    number: u64,
}

/// Divisor of the number of open connections. The quotient, at least 1, is the maximum number of connections that are
/// closed when a new one needs room. One scan of the list then makes room for several connections.
const EVICTED_SHARE: usize = 100;

impl Connections {
    /// Adds a connection under a number that no other open connection has.
    pub(crate) fn add(&self, number: u64, client: Client, kind: ConnectionKind, busy: Busy) -> Listed {
        self.0.lock().insert(number, Open { busy, client, kind });
        Listed {
            list: self.clone(),
            number,
        }
    }

    /// Signals idle connections of a kind to close, to make room for a connection of `newcomer`. Returns the number of
    /// signalled connections; 0 if no idle connection may be closed.
    ///
    /// Signals one connection per [`EVICTED_SHARE`] open connections, at least one if any may be closed. Connections of
    /// the clients with the most connections are signalled first; among clients with equal numbers, the connections
    /// that have been idle longest. Connections of clients that have fewer connections than `newcomer` are not
    /// signalled; if `newcomer` is `None`, no client is protected. A connection stays open if its next request starts
    /// before the connection handles the signal.
    pub(crate) fn evict_idle(&self, newcomer: Option<Client>, kind: ConnectionKind) -> usize {
        let list = self.0.lock();
        let mut counts: HashMap<Client, usize> = HashMap::new();
        for open in list.values() {
            *counts.entry(open.client).or_default() += 1;
        }
        let count_of = |client| counts.get(&client).copied().unwrap_or(0);
        let count_min = newcomer.map_or(0, count_of);
        let idle = list.values().filter(|open| open.kind == kind && !open.busy.is());
        let idle = idle.map(|open| (Reverse(count_of(open.client)), open.busy.idle_from(), &open.busy));
        let mut idle: Vec<_> = idle.filter(|(Reverse(count), ..)| *count >= count_min).collect();
        idle.sort_unstable_by_key(|(count, idle_from, _)| (*count, *idle_from));
        let evicted = (list.len() / EVICTED_SHARE).max(1).min(idle.len());
        for (_, _, busy) in &idle[..evicted] {
            busy.0.evicted.notify_one();
        }
        evicted
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.list.0.lock().remove(&self.number);
    }
}

impl Busy {
    /// Creates the state of a newly accepted connection.
    pub(crate) fn new() -> Self {
        Self(Arc::new(Progress {
            is_answering: AtomicBool::new(false),
            heads: AtomicU64::new(0),
            idle_from_ms: AtomicU64::new(0),
            opened: Instant::now(),
            evicted: Notify::new(),
        }))
    }

    /// Waits until the connection is signalled to close while it is not busy.
    pub(crate) async fn evicted(&self) {
        loop {
            self.0.evicted.notified().await;
            if !self.is() {
                return;
            }
        }
    }

    /// Marks a request head as complete: the connection is busy from now on.
    pub(crate) fn begin(&self) {
        self.0.heads.fetch_add(1, Ordering::Relaxed);
        self.0.is_answering.store(true, Ordering::Relaxed);
    }

    /// Wraps the response so that, once it is sent or dropped, the connection becomes idle and `share` is
    /// released.
    pub(crate) fn until_sent(&self, response: Response, share: Option<Share>) -> Response {
        let guard = ResponseGuard(self.clone());
        response.map(|body| with_guard(body, (guard, share)))
    }

    fn end(&self) {
        let idle_from_ms = self.0.opened.elapsed().as_millis();
        let idle_from_ms = u64::try_from(idle_from_ms).unwrap_or(u64::MAX);
        self.0.idle_from_ms.store(idle_from_ms, Ordering::Relaxed);
        self.0.is_answering.store(false, Ordering::Relaxed);
    }

    /// Returns the end of the last response, or the time of the accept.
    fn idle_from(&self) -> Instant {
        self.0.opened + Duration::from_millis(self.0.idle_from_ms.load(Ordering::Relaxed))
    }

    fn is(&self) -> bool {
        self.0.is_answering.load(Ordering::Relaxed)
    }

    fn heads(&self) -> u64 {
        self.0.heads.load(Ordering::Relaxed)
    }
}

impl GuardedStream {
    pub(crate) fn new(
        stream: Transport,
        busy: Busy,
        header_timeout: Duration,
        read_rate: MinimumReadRate,
    ) -> Self {
        let head_deadline = Some(busy.0.opened + header_timeout);
        Self {
            stream,
            busy,
            header_timeout,
            read_rate: ReadRate {
                minimum: read_rate,
                stalled: None,
                timer: None,
                waited: Duration::ZERO,
                taken: 0,
            },
            heads: 0,
            has_begun: false,
            head_deadline,
            head_timer: None,
        }
    }

    fn poll_head_timer(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(deadline) = self.head_deadline else {
            return Poll::Pending;
        };
        let timer = self
            .head_timer
            .get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if timer.deadline() != deadline {
            timer.as_mut().reset(deadline);
        }
        let elapsed = timer.as_mut().poll(cx);
        elapsed.map(|()| {
            Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "request head not received in time",
            ))
        })
    }
}

impl ReadRate {
    /// Returns the result of a write unchanged, or an error if the client has accepted no bytes for too long or has
    /// accepted bytes too slowly.
    fn guard(&mut self, written: Poll<io::Result<usize>>, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let Poll::Ready(result) = written else {
            let deadline = *self.stalled.get_or_insert_with(Instant::now) + self.minimum.timeout;
            let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
            if timer.deadline() != deadline {
                timer.as_mut().reset(deadline);
            }
            let elapsed = timer.as_mut().poll(cx);
            return elapsed.map(|()| Err(io::Error::new(io::ErrorKind::TimedOut, "response read stalled")));
        };
        let Ok(bytes) = result else {
            return Poll::Ready(result);
        };
        self.taken += bytes as u64;
        // While the response is produced more slowly than it is read, bytes are accepted immediately, and no
        // waiting time is counted.
        if let Some(stalled) = self.stalled.take() {
            self.waited += stalled.elapsed();
        }
        if self.waited >= self.minimum.timeout {
            let seconds = self.waited.as_secs_f64();
            if (self.taken as f64) < self.minimum.bytes_per_second_min as f64 * seconds {
                return Poll::Ready(Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "response read too slowly",
                )));
            }
            (self.waited, self.taken) = (Duration::ZERO, 0);
        }
        Poll::Ready(Ok(bytes))
    }
}

impl AsyncRead for GuardedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, into);
        let heads = self.busy.heads();
        if self.heads != heads {
            self.heads = heads;
            self.head_deadline = None;
        }
        if self.busy.is() {
            return read;
        }
        match read {
            Poll::Ready(result) => {
                if into.filled().len() > before && (self.head_deadline.is_none() || !self.has_begun) {
                    self.has_begun = true;
                    self.head_deadline = Some(Instant::now() + self.header_timeout);
                }
                Poll::Ready(result)
            }
            Poll::Pending => self.poll_head_timer(cx),
        }
    }
}

impl AsyncWrite for GuardedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.read_rate.guard(written, cx)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // An encrypted stream accepts bytes before it sends them.
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.read_rate.guard(flushed.map_ok(|()| 0), cx).map_ok(drop)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let closed = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.read_rate.guard(closed.map_ok(|()| 0), cx).map_ok(drop)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, parts);
        self.read_rate.guard(written, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// Guard of a response; the connection becomes idle when the guard is dropped.
struct ResponseGuard(Busy);

impl Drop for ResponseGuard {
    fn drop(&mut self) {
        self.0.end();
    }
}

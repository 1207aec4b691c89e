//! A client's connection with the timeouts that hyper does not have.
//!
//! hyper's own header timeout also runs while a connection is idle, so it serves as the idle timeout. Here the head of a
//! request gets its shorter time, counted from its first byte; so does the first byte of a new connection, counted from the
//! accept. A client that takes nothing of its answer, or less than a rate, is cut off, since what it asked for would wait for
//! it forever. [`Connections`]
//! lists the open ones, so that the one that has been idle longest can make room for a new one.

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
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::client::Client;
use crate::holding::holding;
use crate::shares::Share;

/// A TCP connection that gives up on clients that stall.
#[derive(Debug)]
pub(crate) struct GuardedStream {
    stream: TcpStream,
    busy: Busy,
    header_timeout: Duration,
    pace: Pace,
    /// Heads that were complete at the last read.
    heads: u64,
    /// Whether the client has sent anything.
    has_begun: bool,
    /// When the first byte must be there, and afterwards when the head that is being read must be complete.
    head_deadline: Option<Instant>,
    /// Wakes the reader at `head_deadline`.
    head_timer: Option<Pin<Box<Sleep>>>,
}

/// The least that a client must take of its answers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadPace {
    /// Longest time without progress, and the time over which the rate is averaged.
    pub(crate) timeout: Duration,
    pub(crate) bytes_per_second_min: u64,
}

/// Rate at which a client takes its answers, measured while bytes wait for it.
#[derive(Debug)]
struct Pace {
    least: ReadPace,
    /// Since when bytes have waited without one being taken.
    stalled: Option<Instant>,
    /// Wakes the writer when a stall has lasted too long.
    timer: Option<Pin<Box<Sleep>>>,
    /// Time in which bytes waited, and the bytes taken meanwhile.
    waited: Duration,
    taken: u64,
}

/// Whether a request of the connection is being answered: what is read then is not a head.
#[derive(Debug, Clone)]
pub(crate) struct Busy(Arc<Progress>);

/// How far a connection is.
#[derive(Debug)]
struct Progress {
    answering: AtomicBool,
    /// Heads that came in whole.
    heads: AtomicU64,
    /// Milliseconds from `opened` to the end of its last answer.
    idle_from_ms: AtomicU64,
    opened: Instant,
    /// Signalled to close the connection in favour of a new one.
    evicted: Notify,
}

/// The open connections.
#[derive(Debug, Clone, Default)]
pub(crate) struct Connections(Arc<Mutex<HashMap<u64, Open>>>);

/// An open connection and the client at its other end.
#[derive(Debug)]
struct Open {
    busy: Busy,
    client: Client,
    kind: ConnectionKind,
}

/// Which limit a connection counts against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionKind {
    /// One of `connections_max`; carries every request.
    Ordinary,
    /// Beyond that limit; carries health checks and metrics only.
    Reserved,
}

/// An entry in the list of open connections; removes itself when dropped.
#[derive(Debug)]
pub(crate) struct Listed {
    list: Connections,
    number: u64,
}

/// One in this many connections is closed where a new one needs room: the list is read once for all of them.
const EVICTED_SHARE: usize = 100;

impl Connections {
    /// Lists a connection under a number that no other open connection has.
    pub(crate) fn add(&self, number: u64, client: Client, kind: ConnectionKind, busy: Busy) -> Listed {
        self.0.lock().insert(number, Open { busy, client, kind });
        Listed {
            list: self.clone(),
            number,
        }
    }

    /// Closes idle connections of a kind so that `newcomer` gets one: of the clients that have most of them, those that have
    /// been idle longest; one in [`EVICTED_SHARE`], at least one. A client with fewer connections than the newcomer keeps its
    /// own. Returns how many; 0 where all of these are answering requests. A connection that begins to answer a request before
    /// it has noticed stays open.
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
    /// The state of a connection that was accepted now.
    pub(crate) fn new() -> Self {
        Self(Arc::new(Progress {
            answering: AtomicBool::new(false),
            heads: AtomicU64::new(0),
            idle_from_ms: AtomicU64::new(0),
            opened: Instant::now(),
            evicted: Notify::new(),
        }))
    }

    /// Resolves when the connection must make room and is not answering a request.
    pub(crate) async fn evicted(&self) {
        loop {
            self.0.evicted.notified().await;
            if !self.is() {
                return;
            }
        }
    }

    /// A head is complete.
    pub(crate) fn begin(&self) {
        self.0.heads.fetch_add(1, Ordering::Relaxed);
        self.0.answering.store(true, Ordering::Relaxed);
    }

    /// The same answer, which ends being busy, and gives its share of the connections back, when all of it is sent or given up.
    pub(crate) fn until_sent(&self, answer: Response, share: Option<Share>) -> Response {
        let answering = Answering(self.clone());
        answer.map(|body| holding(body, (answering, share)))
    }

    fn end(&self) {
        let idle_from_ms = self.0.opened.elapsed().as_millis();
        let idle_from_ms = u64::try_from(idle_from_ms).unwrap_or(u64::MAX);
        self.0.idle_from_ms.store(idle_from_ms, Ordering::Relaxed);
        self.0.answering.store(false, Ordering::Relaxed);
    }

    /// When the connection last had nothing left to answer.
    fn idle_from(&self) -> Instant {
        self.0.opened + Duration::from_millis(self.0.idle_from_ms.load(Ordering::Relaxed))
    }

    fn is(&self) -> bool {
        self.0.answering.load(Ordering::Relaxed)
    }

    fn heads(&self) -> u64 {
        self.0.heads.load(Ordering::Relaxed)
    }
}

impl GuardedStream {
    pub(crate) fn new(stream: TcpStream, busy: Busy, header_timeout: Duration, pace: ReadPace) -> Self {
        Self {
            stream,
            busy,
            header_timeout,
            pace: Pace {
                least: pace,
                stalled: None,
                timer: None,
                waited: Duration::ZERO,
                taken: 0,
            },
            heads: 0,
            has_begun: false,
            head_deadline: Some(Instant::now() + header_timeout),
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
                "the request or its head is late",
            ))
        })
    }
}

impl Pace {
    /// Passes on how many bytes the client took, if it took any; fails when it has taken none for too long, or too few.
    fn guard(&mut self, written: Poll<io::Result<usize>>, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let Poll::Ready(result) = written else {
            let deadline = *self.stalled.get_or_insert_with(Instant::now) + self.least.timeout;
            let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
            if timer.deadline() != deadline {
                timer.as_mut().reset(deadline);
            }
            let elapsed = timer.as_mut().poll(cx);
            return elapsed.map(|()| Err(io::Error::new(io::ErrorKind::TimedOut, "answer not taken")));
        };
        let Ok(bytes) = result else {
            return Poll::Ready(result);
        };
        self.taken += bytes as u64;
        // Bytes that were taken at once, as long as the answer is made slower than it is read, take no time.
        if let Some(stalled) = self.stalled.take() {
            self.waited += stalled.elapsed();
        }
        if self.waited >= self.least.timeout {
            let seconds = self.waited.as_secs_f64();
            if (self.taken as f64) < self.least.bytes_per_second_min as f64 * seconds {
                return Poll::Ready(Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "answer read too slowly",
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
        self.pace.guard(written, cx)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, parts);
        self.pace.guard(written, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// An answer that a connection is busy with until this is dropped.
struct Answering(Busy);

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.end();
    }
}

//! A client's connection with the timeouts that hyper does not have.
//!
//! hyper's own header timeout also runs while a connection lies idle, so it serves as the idle timeout. Here the head
//! of a request gets its shorter time, counted from its first byte, and a client that takes nothing of its answer is
//! cut off, lest it hold a query's turn for ever.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::response::Response;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until};

/// A TCP connection that gives up on clients that stall.
#[derive(Debug)]
pub(crate) struct GuardedStream {
    stream: TcpStream,
    busy: Busy,
    header_timeout: Duration,
    answer_timeout: Duration,
    /// Heads that were complete when the reader last looked.
    heads: u64,
    /// When the head that is being read must be complete.
    head_deadline: Option<Instant>,
    /// Wakes the reader at `head_deadline`.
    head_timer: Option<Pin<Box<Sleep>>>,
    /// Runs while the client takes nothing.
    write_timer: Option<Pin<Box<Sleep>>>,
}

/// Whether a request of the connection is being answered: what is read then is not a head.
#[derive(Debug, Clone, Default)]
pub(crate) struct Busy(Arc<Progress>);

/// How far a connection is.
#[derive(Debug, Default)]
struct Progress {
    answering: AtomicBool,
    /// Heads that came in whole.
    heads: AtomicU64,
}

impl Busy {
    /// A head is complete.
    pub(crate) fn begin(&self) {
        self.0.heads.fetch_add(1, Ordering::Relaxed);
        self.0.answering.store(true, Ordering::Relaxed);
    }

    /// The same answer, which ends being busy when all of it is sent or given up.
    pub(crate) fn until_sent(&self, answer: Response) -> Response {
        let busy = self.clone();
        answer.map(|body| Body::new(BusyBody { body, busy }))
    }

    fn end(&self) {
        self.0.answering.store(false, Ordering::Relaxed);
    }

    fn is(&self) -> bool {
        self.0.answering.load(Ordering::Relaxed)
    }

    fn heads(&self) -> u64 {
        self.0.heads.load(Ordering::Relaxed)
    }
}

impl GuardedStream {
    pub(crate) fn new(
        stream: TcpStream,
        busy: Busy,
        header_timeout: Duration,
        answer_timeout: Duration,
    ) -> Self {
        Self {
            stream,
            busy,
            header_timeout,
            answer_timeout,
            heads: 0,
            head_deadline: None,
            head_timer: None,
            write_timer: None,
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
        elapsed.map(|()| Err(io::Error::new(io::ErrorKind::TimedOut, "request head too slow")))
    }

    /// Passes `written` on; fails when it has been pending for too long.
    fn guard_write<T>(&mut self, written: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.write_timer = None;
            return written;
        }
        let deadline = || Box::pin(sleep_until(Instant::now() + self.answer_timeout));
        let timer = self.write_timer.get_or_insert_with(deadline);
        let elapsed = timer.as_mut().poll(cx);
        elapsed.map(|()| Err(io::Error::new(io::ErrorKind::TimedOut, "answer not taken")))
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
                if into.filled().len() > before && self.head_deadline.is_none() {
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
        self.guard_write(written, cx)
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
        self.guard_write(written, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// The body of an answer; ends being busy when it is dropped.
struct BusyBody {
    body: Body,
    busy: Busy,
}

impl Drop for BusyBody {
    fn drop(&mut self) {
        self.busy.end();
    }
}

impl HttpBody for BusyBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

//! Responses that are sent while they are produced, with bounded memory for any size.
//!
//! The writer runs on a blocking thread and fills chunks. A [`ChunkQueue`] keeps the chunks until the connection
//! takes them. A request with a response of ordinary size therefore ends, and releases its permit, before its
//! client has read anything. If the queue is full, the writer waits for its client and releases the permit
//! meanwhile; see [`ResponseWriter::wait`].
//!
//! An error or panic before the first chunk becomes a normal error response. A later one aborts the chunked encoding,
//! which every client detects.

use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::{Body, HttpBody};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use hyper::body::Frame;
use tideline_openapi::ErrorCode;
use tideline_query::{Cancel, while_waiting};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::app::App;
use crate::failure::{Failure, Result};
use tideline_connections::{ChunkQueue, Permit, Pushed};

/// Maximum size of a chunk, in bytes.
const CHUNK_BYTES: usize = 64 << 10;
/// Initial capacity of a writer, in bytes. Most responses for dashboards fit, so they are not copied by growing.
const FIRST_BYTES: usize = 4 << 10;

/// Resources of a request while it writes its response.
#[derive(Debug, Default)]
pub(crate) struct WriteContext {
    /// Permit of the request, held until the last write to the queue. It is released while the writer waits for its
    /// client or for work of the server.
    pub(crate) permit: Option<Permit>,
    /// Signal that is set when the client disconnects.
    pub(crate) cancel: Cancel,
}

/// Destination of a streamed response. Writes fail with `BrokenPipe` after the client has disconnected.
#[derive(Debug)]
pub(crate) struct ResponseWriter {
    chunk: Vec<u8>,
    queue: Arc<ChunkQueue>,
    permit: Option<Permit>,
    slow_clients: Arc<Semaphore>,
    /// True if a chunk has been sent. Until then, the response can still get a `Content-Length`.
    has_sent: bool,
}

impl Write for ResponseWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let (now, _) = bytes.split_at(bytes.len().min(CHUNK_BYTES - self.chunk.len()));
        self.chunk.extend_from_slice(now);
        if self.chunk.len() >= CHUNK_BYTES {
            self.flush()?;
        }
        Ok(now.len())
    }

    /// Fast path: encoders write a few bytes at a time, which nearly always fit into the chunk.
    #[inline]
    fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while bytes.len() >= CHUNK_BYTES - self.chunk.len() {
            let written = self.write(bytes)?;
            bytes = &bytes[written..];
        }
        self.chunk.extend_from_slice(bytes);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.chunk.is_empty() {
            return Ok(());
        }
        let mut chunk = std::mem::replace(&mut self.chunk, Vec::with_capacity(CHUNK_BYTES));
        self.has_sent = true;
        // The queue counts chunks by their length, so unused capacity is released.
        chunk.shrink_to_fit();
        let mut chunk = Bytes::from(chunk);
        loop {
            chunk = match self.queue.push(chunk) {
                Pushed::Kept => return Ok(()),
                Pushed::ClientLeft => {
                    return Err(io::Error::new(
                        io::ErrorKind::BrokenPipe,
                        "the client has disconnected",
                    ));
                }
                Pushed::Full(chunk) => chunk,
            };
            self.wait()?;
        }
    }
}

impl ResponseWriter {
    /// Releases the permit and waits until the client has taken half of the queue. The thread and the memory of
    /// the request remain in use, so the number of waiting responses is limited. Over the limit, the response
    /// is aborted. Responses without a permit wait without this limit.
    fn wait(&mut self) -> io::Result<()> {
        let Some(permit) = &mut self.permit else {
            self.queue.wait_for_room();
            return Ok(());
        };
        let slot: std::result::Result<OwnedSemaphorePermit, _> =
            Arc::clone(&self.slow_clients).try_acquire_owned();
        let _slot = slot.map_err(|_| {
            tracing::warn!("a response was aborted: too many responses wait for slow clients");
            io::Error::other("too many responses wait for slow clients")
        })?;
        permit.pause();
        while_waiting(|| self.queue.wait_for_room());
        permit.resume();
        Ok(())
    }

    /// Runs `wait`, in which the request waits for work of the server, and releases the permit meanwhile. If the
    /// maximum number of requests already wait without a permit, the permit is kept.
    pub(crate) fn while_waiting(&mut self, wait: &mut dyn FnMut()) {
        let slot = Arc::clone(&self.slow_clients).try_acquire_owned();
        match (&mut self.permit, slot) {
            (Some(permit), Ok(_slot)) => {
                permit.pause();
                wait();
                permit.resume();
            }
            _ => wait(),
        }
    }

    /// Ends the response. If a chunk has been sent, sends the last one and returns `None`; otherwise returns the whole
    /// response.
    fn finish(mut self) -> io::Result<Option<Bytes>> {
        if self.has_sent {
            return self.flush().map(|()| None);
        }
        Ok(Some(std::mem::take(&mut self.chunk).into()))
    }
}

/// Returns a response of `content_type` that `write` produces on a blocking thread. A response that fits into
/// one chunk and was never flushed has a `Content-Length`; other responses are streamed. The permit of
/// `context` is released after the last write.
pub(crate) async fn respond<F>(
    app: &App,
    content_type: &'static str,
    context: WriteContext,
    write: F,
) -> Result<Response>
where
    F: FnOnce(&mut ResponseWriter) -> Result<()> + Send + 'static,
{
    let queue = ChunkQueue::new(&app.memory());
    streamed(queue, &app.slow_clients, content_type, context, write).await
}

async fn streamed<F>(
    queue: ChunkQueue,
    slow_clients: &Arc<Semaphore>,
    content_type: &'static str,
    context: WriteContext,
    write: F,
) -> Result<Response>
where
    F: FnOnce(&mut ResponseWriter) -> Result<()> + Send + 'static,
{
    let WriteContext { permit, cancel } = context;
    let queue = Arc::new(queue);
    let client = Client {
        queue: Arc::clone(&queue),
        cancel,
    };
    let mut writer = ResponseWriter {
        chunk: Vec::with_capacity(FIRST_BYTES),
        queue: Arc::clone(&queue),
        permit,
        slow_clients: Arc::clone(slow_clients),
        has_sent: false,
    };
    let writing = tokio::task::spawn_blocking(move || {
        // A panic must be passed to the queue as an error; otherwise the response would look complete.
        let written = catch_unwind(AssertUnwindSafe(|| write(&mut writer)));
        let finished = written
            .unwrap_or_else(|_| Err(panicked()))
            .and_then(|()| writer.finish().map_err(client_left));
        // After the first chunk the status is sent already, so the response can only be aborted.
        let end = finished.as_ref().map(|_| ());
        if !queue.end(end.map_err(|failure| io::Error::other(failure.message.clone()))) {
            tracing::debug!("a client disconnected before its response was complete");
        }
        finished
    });
    let first = match std::future::poll_fn(|cx| client.queue.poll_chunk(cx)).await {
        Some(Ok(first)) => first,
        Some(Err(_)) | None => match writing.await {
            Ok(Ok(whole)) => {
                let body = Body::from(whole.unwrap_or_default());
                return Ok(([(header::CONTENT_TYPE, content_type)], body).into_response());
            }
            Ok(Err(failure)) => return Err(failure),
            Err(_) => return Err(panicked()),
        },
    };
    let body = Body::new(StreamedBody {
        first: Some(first),
        client,
    });
    Ok(([(header::CONTENT_TYPE, content_type)], body).into_response())
}

/// Returns a response whose body is followed by `last`. The server waits for `last` without a thread and without a
/// permit. If the client disconnects, the future is dropped.
pub(crate) fn followed_by(
    response: Response,
    last: impl Future<Output = io::Result<Bytes>> + Send + 'static,
) -> Response {
    response.map(|body| {
        Body::new(FollowedBody {
            body: Some(body),
            last: Some(Box::pin(last)),
        })
    })
}

/// Body of a response that ends with the result of a future.
struct FollowedBody {
    /// `None` after its end.
    body: Option<Body>,
    /// `None` after it was sent.
    last: Option<Pin<Box<dyn Future<Output = io::Result<Bytes>> + Send>>>,
}

impl HttpBody for FollowedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        if let Some(body) = &mut this.body {
            if let Some(frame) = ready!(Pin::new(body).poll_frame(cx)) {
                return Poll::Ready(Some(frame));
            }
            this.body = None;
        }
        let Some(last) = &mut this.last else {
            return Poll::Ready(None);
        };
        let last = ready!(last.as_mut().poll(cx));
        this.last = None;
        Poll::Ready(Some(last.map(Frame::data).map_err(axum::Error::new)))
    }
}

/// Client that receives the response. When it disconnects, this value is dropped, which stops the request.
struct Client {
    queue: Arc<ChunkQueue>,
    cancel: Cancel,
}

impl Drop for Client {
    fn drop(&mut self) {
        self.cancel.cancel();
        self.queue.leave();
    }
}

/// Body of a streamed response.
struct StreamedBody {
    first: Option<Bytes>,
    client: Client,
}

impl HttpBody for StreamedBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        let chunk = self.client.queue.poll_chunk(cx);
        chunk.map(|chunk| chunk.map(|chunk| chunk.map(Frame::data)))
    }
}

/// Writes a line of an NDJSON response and sends it immediately.
pub(crate) fn write_line(writer: &mut ResponseWriter, line: &impl serde::Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *writer, line)?;
    writer.write_all(b"\n")?;
    writer.flush()
}

/// Creates the error of a writer that panicked. The panic itself is already in the log.
pub(crate) fn panicked() -> Failure {
    tracing::error!("a request panicked while it wrote its response");
    Failure::new(ErrorCode::Internal, "internal error")
}

/// Creates the error of a writer whose client has disconnected. It is never sent.
#[expect(clippy::needless_pass_by_value, reason = "the signature is fixed by map_err")]
pub(crate) fn client_left(error: io::Error) -> Failure {
    Failure::new(ErrorCode::Internal, error.to_string())
}

/// Returns a response of `content_type` whose parts are received through `parts` until that channel is closed.
pub(crate) fn live(content_type: &'static str, parts: mpsc::Receiver<io::Result<Bytes>>) -> Response {
    ([(header::CONTENT_TYPE, content_type)], Body::new(LiveBody(parts))).into_response()
}

struct LiveBody(mpsc::Receiver<io::Result<Bytes>>);

impl HttpBody for LiveBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let part = self.0.poll_recv(cx);
        part.map(|part| part.map(|part| part.map(Frame::data)))
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use tideline_engine::runtime::MemoryAccount;

    use super::*;

    async fn begin(write: fn(&mut ResponseWriter) -> Result<()>) -> Result<Response> {
        let queue = ChunkQueue::new(&MemoryAccount::unlimited());
        let slow_clients = Arc::new(Semaphore::new(1));
        streamed(queue, &slow_clients, "text/plain", WriteContext::default(), write).await
    }

    /// Reads a response; returns the number of bytes, and true if it is complete.
    async fn read(write: fn(&mut ResponseWriter) -> Result<()>) -> (usize, bool) {
        let response = begin(write).await.expect("it starts without an error");
        let mut body = response.into_body();
        let mut bytes = 0;
        loop {
            match body.frame().await {
                Some(Ok(frame)) => bytes += frame.data_ref().map_or(0, Bytes::len),
                Some(Err(_)) => return (bytes, false),
                None => return (bytes, true),
            }
        }
    }

    fn put(writer: &mut ResponseWriter) {
        for _ in 0..3 {
            writer
                .write_all(&[b'x'; CHUNK_BYTES])
                .expect("the client keeps reading");
        }
    }

    #[tokio::test]
    async fn a_failed_response_is_incomplete() {
        let whole = read(|writer| {
            put(writer);
            Ok(())
        });
        assert_eq!(whole.await, (3 * CHUNK_BYTES, true));
        let failed = read(|writer| {
            put(writer);
            Err(Failure::invalid("too late"))
        });
        assert_eq!(failed.await, (3 * CHUNK_BYTES, false));
        let panicked = read(|writer| {
            put(writer);
            panic!("in the middle");
        });
        assert_eq!(panicked.await, (3 * CHUNK_BYTES, false));
    }

    #[tokio::test]
    async fn what_fails_before_the_first_part_has_a_status() {
        let write = |writer: &mut ResponseWriter| {
            writer.write_all(b"little").expect("there is room");
            panic!("at once");
        };
        let failure = begin(write).await.expect_err("nothing was sent");
        assert_eq!(failure.code, ErrorCode::Internal);
    }
}

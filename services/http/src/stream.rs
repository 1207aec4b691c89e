//! Responses that are sent while they are produced, with bounded memory for any size.
//!
//! The writer runs on a blocking thread and fills chunks. A [`ChunkQueue`] keeps the chunks until the connection
//! takes them. A request with a response of ordinary size therefore ends, and releases its permit, before its
//! client has read anything. If the spool is full, the writer waits for its client and releases the permit
//! meanwhile; see [`AnswerWriter::wait`].
//!
//! An error before the first chunk becomes a normal error response. A later error or panic aborts the chunked encoding,
//! which every client detects.

use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

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
/// Initial capacity of a writer in bytes. Most responses for dashboards fit, so they are not copied while they grow.
const FIRST_BYTES: usize = 4 << 10;

/// Resources of a request while it writes its response.
#[derive(Debug, Default)]
pub(crate) struct Work {
    /// Permit of the request, held until the last write to the spool. It is released while the writer waits
    /// for its client.
    pub(crate) permit: Option<Permit>,
    /// Signal that is set when the client disconnects.
    pub(crate) cancel: Cancel,
}

/// Destination of a streamed response. Writes fail with `BrokenPipe` after the client has disconnected.
#[derive(Debug)]
pub(crate) struct AnswerWriter {
    chunk: Vec<u8>,
    spool: Arc<ChunkQueue>,
    permit: Option<Permit>,
    slow_answers: Arc<Semaphore>,
    /// True if a chunk has been sent. Before that, the length of the response can still be announced.
    has_sent: bool,
}

impl Write for AnswerWriter {
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
        // The spool counts chunks by their length, so unused capacity is released.
        chunk.shrink_to_fit();
        let mut chunk = Bytes::from(chunk);
        loop {
            chunk = match self.spool.push(chunk) {
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

impl AnswerWriter {
    /// Waits until the client has taken a part of the spool, without the permit. The thread and the memory of
    /// the request remain in use, so the number of waiting responses is limited. Over the limit, the response
    /// is aborted. Responses without a permit wait without this limit.
    fn wait(&mut self) -> io::Result<()> {
        let Some(permit) = &mut self.permit else {
            self.spool.wait_for_room();
            return Ok(());
        };
        let place: std::result::Result<OwnedSemaphorePermit, _> =
            Arc::clone(&self.slow_answers).try_acquire_owned();
        let _place = place.map_err(|_| {
            tracing::warn!("a response was aborted: too many responses wait for slow clients");
            io::Error::other("too many responses wait for slow clients")
        })?;
        permit.pause();
        while_waiting(|| self.spool.wait_for_room());
        permit.resume();
        Ok(())
    }

    /// Ends the response: sends the last chunk, or returns the whole response if nothing has been sent.
    fn finish(mut self) -> io::Result<Option<Bytes>> {
        if self.has_sent {
            return self.flush().map(|()| None);
        }
        Ok(Some(std::mem::take(&mut self.chunk).into()))
    }
}

/// Returns a response of `content_type` that `write` produces on a blocking thread. A response that fits into
/// one chunk and was never flushed has a `Content-Length`; longer ones are streamed. The permit of `work` is
/// released after the last write.
pub(crate) async fn answer<F>(app: &App, content_type: &'static str, work: Work, write: F) -> Result<Response>
where
    F: FnOnce(&mut AnswerWriter) -> Result<()> + Send + 'static,
{
    let spool = ChunkQueue::new(app.engine.memory());
    spooled(spool, &app.slow_answers, content_type, work, write).await
}

async fn spooled<F>(
    spool: ChunkQueue,
    slow_answers: &Arc<Semaphore>,
    content_type: &'static str,
    work: Work,
    write: F,
) -> Result<Response>
where
    F: FnOnce(&mut AnswerWriter) -> Result<()> + Send + 'static,
{
    let Work { permit, cancel } = work;
    let spool = Arc::new(spool);
    let client = Client {
        spool: Arc::clone(&spool),
        cancel,
    };
    let mut writer = AnswerWriter {
        chunk: Vec::with_capacity(FIRST_BYTES),
        spool: Arc::clone(&spool),
        permit,
        slow_answers: Arc::clone(slow_answers),
        has_sent: false,
    };
    let writing = tokio::task::spawn_blocking(move || {
        // A panic must be passed to the spool as an error; otherwise the response would look complete.
        let written = catch_unwind(AssertUnwindSafe(|| write(&mut writer)));
        let finished = written
            .unwrap_or_else(|_| Err(panicked()))
            .and_then(|()| writer.finish().map_err(client_left));
        // After the first chunk the status is sent already, so the response can only be aborted.
        let end = finished.as_ref().map(|_| ());
        if !spool.end(end.map_err(|failure| io::Error::other(failure.message.clone()))) {
            tracing::debug!("a client disconnected before its response was complete");
        }
        finished
    });
    let first = match std::future::poll_fn(|cx| client.spool.poll_chunk(cx)).await {
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
    let body = Body::new(SpooledAnswer {
        first: Some(first),
        client,
    });
    Ok(([(header::CONTENT_TYPE, content_type)], body).into_response())
}

/// Client that receives the response. When it disconnects, this value is dropped, which stops the request.
struct Client {
    spool: Arc<ChunkQueue>,
    cancel: Cancel,
}

impl Drop for Client {
    fn drop(&mut self) {
        self.cancel.cancel();
        self.spool.leave();
    }
}

/// Body of a streamed response.
struct SpooledAnswer {
    first: Option<Bytes>,
    client: Client,
}

impl HttpBody for SpooledAnswer {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        let chunk = self.client.spool.poll_chunk(cx);
        chunk.map(|chunk| chunk.map(|chunk| chunk.map(Frame::data)))
    }
}

/// Writes a line of an NDJSON response and sends it immediately.
pub(crate) fn tell(writer: &mut AnswerWriter, line: &impl serde::Serialize) -> io::Result<()> {
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
    (
        [(header::CONTENT_TYPE, content_type)],
        Body::new(LiveAnswer(parts)),
    )
        .into_response()
}

struct LiveAnswer(mpsc::Receiver<io::Result<Bytes>>);

impl HttpBody for LiveAnswer {
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

    async fn begin(write: fn(&mut AnswerWriter) -> Result<()>) -> Result<Response> {
        let spool = ChunkQueue::new(&MemoryAccount::unlimited());
        let slow_answers = Arc::new(Semaphore::new(1));
        spooled(spool, &slow_answers, "text/plain", Work::default(), write).await
    }

    /// Reads a response; returns the number of bytes, and true if it is complete.
    async fn read(write: fn(&mut AnswerWriter) -> Result<()>) -> (usize, bool) {
        let answer = begin(write).await.expect("it starts without an error");
        let mut body = answer.into_body();
        let mut bytes = 0;
        loop {
            match body.frame().await {
                Some(Ok(frame)) => bytes += frame.data_ref().map_or(0, Bytes::len),
                Some(Err(_)) => return (bytes, false),
                None => return (bytes, true),
            }
        }
    }

    fn put(writer: &mut AnswerWriter) {
        for _ in 0..3 {
            writer
                .write_all(&[b'x'; CHUNK_BYTES])
                .expect("the client keeps reading");
        }
    }

    #[tokio::test]
    async fn what_ends_badly_is_no_complete_answer() {
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
        let write = |writer: &mut AnswerWriter| {
            writer.write_all(b"little").expect("there is room");
            panic!("at once");
        };
        let failure = begin(write).await.expect_err("nothing was sent");
        assert_eq!(failure.code, ErrorCode::Internal);
    }
}

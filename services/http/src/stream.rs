//! Answers that are written while they are read: flat memory whatever their size.
//!
//! The writer runs on a blocking thread and fills chunks; a short queue lies between it and the connection, so a slow
//! client slows the writer down. What fails before the first chunk is an ordinary failure with its status; what fails
//! later, a panic included, cuts the answer off in the middle of its chunked encoding, which every client notices.

use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use hyper::body::Frame;
use tideline_openapi::ErrorCode;
use tokio::sync::mpsc;

use crate::failure::{Failure, Result};

/// Bytes of a chunk.
const CHUNK_BYTES: usize = 64 << 10;
/// Chunks between writer and connection.
const QUEUE_CHUNKS: usize = 4;

/// Destination of a streamed answer. Writes fail with `BrokenPipe` when the client has left.
#[derive(Debug)]
pub(crate) struct AnswerWriter {
    chunk: Vec<u8>,
    queue: mpsc::Sender<io::Result<Bytes>>,
    /// Whether a chunk has been sent; until then the length of the answer can still be announced.
    has_sent: bool,
}

impl Write for AnswerWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.chunk.extend_from_slice(bytes);
        if self.chunk.len() >= CHUNK_BYTES {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.chunk.is_empty() {
            return Ok(());
        }
        let chunk = std::mem::replace(
            &mut self.chunk,
            Vec::with_capacity(CHUNK_BYTES + (CHUNK_BYTES >> 3)),
        );
        self.has_sent = true;
        let sent = self.queue.blocking_send(Ok(chunk.into()));
        sent.map_err(|_| io::Error::new(io::ErrorKind::BrokenPipe, "the client has left"))
    }
}

impl AnswerWriter {
    /// Ends the answer: sends the rest, or returns all of it where nothing has been sent.
    fn finish(mut self) -> io::Result<Option<Bytes>> {
        if self.has_sent {
            return self.flush().map(|()| None);
        }
        Ok(Some(std::mem::take(&mut self.chunk).into()))
    }
}

/// Returns an answer of `content_type` that `write` produces on a blocking thread. An answer that fits into one chunk and was
/// never flushed has a `Content-Length`; longer ones are streamed. What `write` should hold until it is done, such as its
/// permit, it takes along.
pub(crate) async fn answer<F>(content_type: &'static str, write: F) -> Result<Response>
where
    F: FnOnce(&mut AnswerWriter) -> Result<()> + Send + 'static,
{
    let (queue, mut chunks) = mpsc::channel(QUEUE_CHUNKS);
    let writing = tokio::task::spawn_blocking(move || {
        let mut writer = AnswerWriter {
            chunk: Vec::new(),
            queue,
            has_sent: false,
        };
        // A panic must reach the queue as an error: a queue that only ends is a complete answer.
        let written = catch_unwind(AssertUnwindSafe(|| write(&mut writer)));
        let queue = writer.queue.clone();
        let finished = written
            .unwrap_or_else(|_| Err(panicked()))
            .and_then(|()| writer.finish().map_err(client_left));
        let failure = match finished {
            Ok(whole) => return Ok(whole),
            Err(failure) => failure,
        };
        // Once a chunk is out its status is too: the answer can only be cut off.
        let cut_off = io::Error::other(failure.message.clone());
        if queue.blocking_send(Err(cut_off)).is_err() {
            tracing::debug!("a client left before its answer was complete");
        }
        Err(failure)
    });
    let first = match chunks.recv().await {
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
    let body = Body::new(ChunkedAnswer {
        first: Some(first),
        rest: chunks,
    });
    Ok(([(header::CONTENT_TYPE, content_type)], body).into_response())
}

/// Writes a line of an NDJSON answer, and sends it at once.
pub(crate) fn tell(writer: &mut AnswerWriter, line: &impl serde::Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *writer, line)?;
    writer.write_all(b"\n")?;
    writer.flush()
}

/// The failure of a writer that panicked; the panic itself is in the log already.
fn panicked() -> Failure {
    tracing::error!("a request panicked while it wrote its answer");
    Failure::new(ErrorCode::Internal, "internal error")
}

/// The failure of a writer whose client is gone; nobody reads it.
#[expect(clippy::needless_pass_by_value, reason = "it is what map_err hands over")]
pub(crate) fn client_left(error: io::Error) -> Failure {
    Failure::new(ErrorCode::Internal, error.to_string())
}

/// An answer of `content_type` whose parts come through `parts`, for as long as they come.
pub(crate) fn live(content_type: &'static str, parts: mpsc::Receiver<io::Result<Bytes>>) -> Response {
    let body = Body::new(ChunkedAnswer {
        first: None,
        rest: parts,
    });
    ([(header::CONTENT_TYPE, content_type)], body).into_response()
}

struct ChunkedAnswer {
    first: Option<Bytes>,
    rest: mpsc::Receiver<io::Result<Bytes>>,
}

impl HttpBody for ChunkedAnswer {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        self.rest
            .poll_recv(cx)
            .map(|chunk| chunk.map(|chunk| chunk.map(Frame::data)))
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    /// What a client reads of an answer: its bytes, and whether it is complete.
    async fn read(write: fn(&mut AnswerWriter) -> Result<()>) -> (usize, bool) {
        let answer = answer("text/plain", write).await.expect("it begins well");
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
                .expect("the client reads on");
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
        let failure = answer("text/plain", write).await.expect_err("nothing is out");
        assert_eq!(failure.code, ErrorCode::Internal);
    }
}

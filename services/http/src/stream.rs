//! Answers that are written while they are read: flat memory whatever their size.
//!
//! The writer runs on a blocking thread and fills chunks; a short queue lies between it and the connection, so a slow
//! client slows the writer down. What fails before the first chunk is an ordinary failure with its status; what fails
//! later cuts the answer off in the middle of its chunked encoding, which every client notices.

use std::io::{self, Write};
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use hyper::body::Frame;
use tokio::sync::mpsc;

use crate::failure::{Failure, Result};

/// Bytes of a chunk.
const CHUNK_BYTES: usize = 64 << 10;
/// Chunks between writer and connection.
const QUEUE_CHUNKS: usize = 4;

/// Where a streamed answer is written to. Fails with `BrokenPipe` when the client has left.
#[derive(Debug)]
pub(crate) struct AnswerWriter {
    chunk: Vec<u8>,
    queue: mpsc::Sender<io::Result<Bytes>>,
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
        let sent = self.queue.blocking_send(Ok(chunk.into()));
        sent.map_err(|_| io::Error::new(io::ErrorKind::BrokenPipe, "the client has left"))
    }
}

/// An answer of `content_type` that `write` produces on a blocking thread. What `write` should hold until it is done,
/// such as its turn, it takes along.
pub(crate) async fn answer<F>(content_type: &'static str, write: F) -> Result<Response>
where
    F: FnOnce(&mut AnswerWriter) -> Result<()> + Send + 'static,
{
    let (queue, mut chunks) = mpsc::channel(QUEUE_CHUNKS);
    let writing = tokio::task::spawn_blocking(move || {
        let mut writer = AnswerWriter {
            chunk: Vec::new(),
            queue,
        };
        let written = write(&mut writer).and_then(|()| writer.flush().map_err(client_left));
        let Err(failure) = written else {
            return Ok(());
        };
        // Once a chunk is out its status is too: the answer can only be cut off.
        let cut_off = io::Error::other(failure.message.clone());
        writer.chunk.clear();
        if writer.queue.blocking_send(Err(cut_off)).is_err() {
            tracing::debug!("a client left before its answer was complete");
        }
        Err(failure)
    });
    let first = match chunks.recv().await {
        Some(Ok(first)) => first,
        Some(Err(_)) | None => match writing.await {
            Ok(Ok(())) => Bytes::new(),
            Ok(Err(failure)) => return Err(failure),
            Err(panicked) => {
                tracing::error!(%panicked, "a request panicked");
                return Err(Failure::new(
                    tideline_openapi::ErrorCode::Internal,
                    "internal error",
                ));
            }
        },
    };
    let body = Body::new(ChunkedAnswer {
        first: Some(first),
        rest: chunks,
    });
    Ok(([(header::CONTENT_TYPE, content_type)], body).into_response())
}

/// The failure of a writer whose client is gone; nobody reads it.
#[expect(clippy::needless_pass_by_value, reason = "it is what map_err hands over")]
pub(crate) fn client_left(error: io::Error) -> Failure {
    Failure::new(tideline_openapi::ErrorCode::Internal, error.to_string())
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

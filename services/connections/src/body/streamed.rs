//! Request bodies of any size, read while they arrive.
//!
//! A task takes the frames of the connection and passes them through a short queue to a blocking reader, so memory is
//! A task takes the frames of the connection and passes them through a short queue to a blocking reader, so memory
//! is bounded by the queue. The minimum rate at which the client must send is the same as for other bodies. Time in
//! which the reader takes no frames does not count.

use std::io::{self, BufReader, Read};

use axum::body::Body;
use axum::extract::Request;
use bytes::{Buf, Bytes};
use tokio::sync::mpsc;

use super::{BodyReader, Encoding, MinimumRate, Result, ZSTD_WINDOW_LOG_MAX, discard_rest};

/// Maximum number of frames queued between the connection and the reader. A frame has at most a few hundred KiB.
const FRAMES_WAITING: usize = 4;
/// Capacity of the buffer in front of a decompressor, in bytes.
const BUFFER_BYTES: usize = 64 << 10;

/// Frames of a body, as a blocking reader.
struct Frames {
    receiver: mpsc::Receiver<Result<Bytes>>,
    current: Bytes,
}

impl BodyReader {
    /// Begins to read a body of any size, compressed by gzip, deflate or zstd as its `Content-Encoding` header states.
    /// The returned reader blocks: use it on a blocking thread, and drop it there. Reading fails if the connection
    /// fails, if the client is too slow, or if the body is not valid in its encoding. If the reader is dropped early,
    /// the rest of the body is read and discarded, up to 64 MiB; if the client has declared a larger rest, nothing is
    /// read.
    ///
    /// # Errors
    ///
    /// Returns [`BodyError::UnknownEncoding`](super::BodyError::UnknownEncoding).
    pub async fn stream(&self, request: Request) -> Result<Box<dyn Read + Send>> {
        let encoding = match Encoding::of(request.headers()) {
            Ok(encoding) => encoding,
            Err(error) => {
                self.discard(request).await;
                return Err(error);
            }
        };
        let (sender, receiver) = mpsc::channel(FRAMES_WAITING);
        tokio::spawn(pass_frames(request.into_body(), MinimumRate::new(self), sender));
        let frames = Frames {
            receiver,
            current: Bytes::new(),
        };
        Ok(Box::new(Decoder::Waiting(encoding, Some(frames))))
    }
}

/// Decoder of a body, created on the first read. Creating a decoder reads the header of the stream, which blocks.
enum Decoder {
    Waiting(Encoding, Option<Frames>),
    Running(Box<dyn Read + Send>),
}

/// Creates the decoder of a stream.
fn decoder_of(encoding: Encoding, frames: Frames) -> io::Result<Box<dyn Read + Send>> {
    let buffered = |frames| BufReader::with_capacity(BUFFER_BYTES, frames);
    Ok(match encoding {
        Encoding::Identity | Encoding::Snappy => Box::new(frames),
        Encoding::Gzip => Box::new(flate2::read::MultiGzDecoder::new(buffered(frames))),
        Encoding::Deflate => Box::new(flate2::read::ZlibDecoder::new(buffered(frames))),
        Encoding::Zstd => {
            let mut decoder = zstd::stream::read::Decoder::new(frames)?;
            decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
            Box::new(decoder)
        }
    })
}

impl Read for Decoder {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if let Self::Waiting(encoding, frames) = self {
            let frames = frames.take().ok_or(io::ErrorKind::BrokenPipe)?;
            *self = Self::Running(decoder_of(*encoding, frames)?);
        }
        match self {
            Self::Running(decoder) => decoder.read(bytes),
            Self::Waiting(..) => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }
}

impl Read for Frames {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        while self.current.is_empty() {
            match self.receiver.blocking_recv() {
                None => return Ok(0),
                Some(Ok(frame)) => self.current = frame,
                Some(Err(error)) => return Err(io::Error::other(error)),
            }
        }
        let read = self.current.len().min(bytes.len());
        self.current.copy_to_slice(&mut bytes[..read]);
        Ok(read)
    }
}

/// Passes the frames of a body to the queue, until the body ends, an error occurs, or the reader is dropped.
async fn pass_frames(mut body: Body, mut rate: MinimumRate, sender: mpsc::Sender<Result<Bytes>>) {
    loop {
        let frame = match rate.frame(&mut body).await {
            Ok(None) => return,
            Ok(Some(frame)) => Ok(frame),
            Err(error) => Err(error),
        };
        let is_last = frame.is_err();
        let waiting = tokio::time::Instant::now();
        if sender.send(frame).await.is_err() {
            discard_rest(body, &mut rate).await;
            return;
        }
        if is_last {
            return;
        }
        rate.started += waiting.elapsed();
    }
}

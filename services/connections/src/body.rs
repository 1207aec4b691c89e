//! Reading of request bodies, with limits on the sent size, the decompressed size and all bodies in flight.
//!
//! 1. [`BodyReader`] reads the bytes that the client sends. It limits their number and the bytes of all bodies in
//!    flight, and requires a minimum rate.
//! 2. [`ReceivedBody::decode`], on a blocking thread, decompresses the body. It limits the decoded size and the
//!    compression ratio.
//!
//! A size declared by the client is compared with the limit and reserved in the budget before memory is
//! allocated.

mod buffer;
mod streamed;

use std::io::{self, Read};
use std::ops::ControlFlow;
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::extract::Request;
use axum::http::{HeaderMap, header};
use http_body_util::BodyExt;
use tokio::time::{Instant, timeout_at};

use self::buffer::{Budget, Buffer};
use crate::client::Client;
use crate::shares::Shares;

/// Decoded bytes up to which every compression ratio is accepted. Batches of equal parts, such as idle histograms in
/// JSON, reach a ratio of 200.
const RATIO_FREE_BYTES: usize = 16 << 20;
/// Largest compression ratio of a larger body: decoded bytes per byte sent. Line protocol reaches a ratio of 30.
const RATIO_MAX: usize = 100;
/// Decoded bytes up to which a body is decompressed in one pass. A larger body is decompressed three times: the first
/// pass stops at this number of bytes, the second checks the limits and determines the size without storing bytes, and
/// the third fills a buffer of exactly that size.
const MEASURED_BYTES: usize = 16 << 20;
/// The same number for a body whose ratio exceeds [`RATIO_MAX`]. A decompression bomb is thus refused before more
/// than these bytes are stored.
const DENSE_MEASURED_BYTES: usize = 1 << 20;
/// Maximum number of bytes of a refused body that are read and discarded. Some clients read the response only
/// after they have sent the whole body.
const DISCARD_BYTES_MAX: u64 = 64 << 20;
/// First capacity of a body of unknown size, and bytes decompressed per step.
const STEP_BYTES: usize = 64 << 10;
/// Upper bound of the compression ratio of a snappy block: its longest copy element has three bytes and
/// produces 64.
const SNAPPY_RATIO_MAX: usize = 22;
/// Largest accepted window of a zstd frame, as a power of two: 16 MiB.
const ZSTD_WINDOW_LOG_MAX: u32 = 24;

/// Error of reading or decompressing a body.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// The content encoding is not supported.
    #[error("content encoding {given:?} is not supported; use {known}")]
    UnknownEncoding {
        /// Value of the `Content-Encoding` header.
        given: String,
        /// Supported encodings, as text for the message.
        known: &'static str,
    },
    /// The body exceeds a limit.
    #[error("{what} of {actual} bytes is over the limit of {limit}")]
    TooLarge {
        /// Limited size as text for the message, for example "decompressed body".
        what: &'static str,
        /// Limit, in bytes.
        limit: u64,
        /// Size of the body, as far as it is known, in bytes.
        actual: u64,
    },
    /// The client sends too slowly.
    #[error("body too slow: {received} bytes received, then too little progress for {timeout:?}")]
    TooSlow {
        /// Bytes received so far.
        received: u64,
        /// Longest allowed time without enough progress.
        timeout: Duration,
    },
    /// The budget of all bodies in flight has no room for this client. The request may be retried.
    #[error(
        "too many bytes of requests in flight: {all} of {count} bytes are in use, {own} by this client \
         ({client}), and this request needs {more} more"
    )]
    Overloaded {
        /// Bytes reserved by all bodies.
        all: usize,
        /// Budget of all bodies, in bytes.
        count: usize,
        /// Bytes reserved by bodies of this client.
        own: usize,
        /// Client that sent the body.
        client: Client,
        /// Additional bytes that could not be reserved.
        more: usize,
    },
    /// The body is cut off or is not valid in its encoding.
    #[error("{0}")]
    Invalid(String),
}

type Result<T> = std::result::Result<T, BodyError>;

/// Size limits of one body.
#[derive(Debug, Clone, Copy)]
pub struct BodyLimits {
    /// Maximum size as sent, in bytes.
    pub wire_bytes: usize,
    /// Maximum size after decompression, in bytes.
    pub decoded_bytes: usize,
}

/// Reader of request bodies. Clones share the budget.
#[derive(Debug, Clone)]
pub struct BodyReader {
    budget: Shares,
    /// Longest allowed time without progress.
    timeout: Duration,
    bytes_per_second_min: u64,
}

/// Body as sent, not yet decompressed.
#[derive(Debug)]
pub struct ReceivedBody {
    sent: Buffer,
    encoding: Encoding,
    limits: BodyLimits,
    budget: Budget,
}

impl BodyReader {
    /// Creates a reader whose bodies together reserve at most `budget` bytes.
    ///
    /// At most `timeout` may pass without progress. Once n bytes have arrived, the next data must arrive no later than
    /// `timeout` plus n / `bytes_per_second_min` seconds after the start.
    pub fn new(budget: Shares, timeout: Duration, bytes_per_second_min: u64) -> Self {
        Self {
            budget,
            timeout,
            bytes_per_second_min: bytes_per_second_min.max(1),
        }
    }

    /// Reads the body of a remote write request, compressed by snappy or zstd. A missing `Content-Encoding`
    /// means snappy, as in Prometheus, because senders of version 1.0 may omit it.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`receive`](Self::receive).
    pub async fn receive_remote_write(
        &self,
        request: Request,
        client: Client,
        limits: BodyLimits,
    ) -> Result<ReceivedBody> {
        let encoding = Encoding::of_remote_write(request.headers());
        self.receive_if(encoding, request, client, limits).await
    }

    /// Reads the body of a remote read request. It is always a snappy block; `Content-Encoding` is ignored.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`receive`](Self::receive), except for an unknown encoding.
    pub async fn receive_snappy(
        &self,
        request: Request,
        client: Client,
        limits: BodyLimits,
    ) -> Result<ReceivedBody> {
        self.receive_if(Ok(Encoding::Snappy), request, client, limits)
            .await
    }

    /// Reads a body that is compressed as its `Content-Encoding` header states.
    ///
    /// # Errors
    ///
    /// Returns a [`BodyError`] if the encoding is unknown, the body is too large, too slow or cut off, or the
    /// budget of all bodies has no room.
    pub async fn receive(
        &self,
        request: Request,
        client: Client,
        limits: BodyLimits,
    ) -> Result<ReceivedBody> {
        let encoding = Encoding::of(request.headers());
        self.receive_if(encoding, request, client, limits).await
    }

    async fn receive_if(
        &self,
        encoding: Result<Encoding>,
        request: Request,
        client: Client,
        limits: BodyLimits,
    ) -> Result<ReceivedBody> {
        let encoding = match encoding {
            Ok(encoding) => encoding,
            Err(error) => {
                self.discard(request).await;
                return Err(error);
            }
        };
        let declared = request.body().size_hint().exact();
        if let Some(declared) = declared.filter(|bytes| *bytes > limits.wire_bytes as u64) {
            self.discard(request).await;
            return Err(too_large("body", limits.wire_bytes as u64, declared));
        }
        let budget = Budget {
            bytes: self.budget.clone(),
            client,
        };
        let mut sent = Buffer::new(&budget, limits.wire_bytes);
        let first = declared.map_or(STEP_BYTES, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        if let Err(error) = sent.reserve(first) {
            self.discard(request).await;
            return Err(error);
        }
        read_into(&mut sent, request.into_body(), MinimumRate::new(self), limits).await?;
        Ok(ReceivedBody {
            sent,
            encoding,
            limits,
            budget,
        })
    }

    /// Reads and discards a body, up to 64 MiB. Some clients read the response only after they have sent the
    /// whole body. Reads nothing if the client expects `100 Continue` or declares a larger body.
    pub async fn discard(&self, request: Request) {
        if request.headers().contains_key(header::EXPECT) {
            return;
        }
        discard_rest(request.into_body(), &mut MinimumRate::new(self)).await;
    }
}

async fn read_into(
    sent: &mut Buffer,
    mut body: Body,
    mut rate: MinimumRate,
    limits: BodyLimits,
) -> Result<()> {
    while let Some(frame) = rate.frame(&mut body).await? {
        let received = sent.bytes.len() + frame.len();
        if received > limits.wire_bytes {
            discard_rest(body, &mut rate).await;
            return Err(too_large("body", limits.wire_bytes as u64, received as u64));
        }
        if let Err(failure) = sent.extend(&frame) {
            discard_rest(body, &mut rate).await;
            return Err(failure);
        }
    }
    Ok(())
}

async fn discard_rest(mut body: Body, rate: &mut MinimumRate) {
    let declared = body.size_hint().exact();
    if declared.is_some_and(|bytes| bytes > DISCARD_BYTES_MAX) {
        return;
    }
    let end = rate.received.saturating_add(DISCARD_BYTES_MAX);
    while let Ok(Some(_)) = rate.frame(&mut body).await {
        if rate.received > end {
            return;
        }
    }
}

/// Required speed of a body: some progress within each timeout, and a minimum average rate.
struct MinimumRate {
    started: Instant,
    received: u64,
    progress: Duration,
    bytes_per_second_min: u64,
}

impl MinimumRate {
    fn new(reader: &BodyReader) -> Self {
        Self {
            started: Instant::now(),
            received: 0,
            progress: reader.timeout,
            bytes_per_second_min: reader.bytes_per_second_min,
        }
    }

    /// Returns the next data of the body, or `None` at its end.
    async fn frame(&mut self, body: &mut Body) -> Result<Option<bytes::Bytes>> {
        loop {
            let earned = Duration::from_secs(self.received / self.bytes_per_second_min);
            let deadline = (self.started + self.progress + earned).min(Instant::now() + self.progress);
            let frame = match timeout_at(deadline, body.frame()).await {
                Ok(None) => return Ok(None),
                Ok(Some(Ok(frame))) => frame,
                Ok(Some(Err(error))) => return Err(invalid(format!("body cut off: {error}"))),
                Err(_) => {
                    return Err(BodyError::TooSlow {
                        received: self.received,
                        timeout: self.progress,
                    });
                }
            };
            if let Ok(data) = frame.into_data() {
                self.received += data.len() as u64;
                return Ok(Some(data));
            }
        }
    }
}

/// Decompressed body. Dropping it releases its bytes from the budget.
#[derive(Debug)]
pub struct BodyBytes(Buffer);

impl std::ops::Deref for BodyBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0.bytes
    }
}

impl ReceivedBody {
    /// Returns true if the body is compressed. Decompressing takes CPU time and must run on a blocking thread.
    pub fn is_compressed(&self) -> bool {
        self.encoding != Encoding::Identity
    }

    /// Returns the number of bytes that the client has sent.
    pub fn sent_bytes(&self) -> usize {
        self.sent.bytes.len()
    }

    /// Decompresses the body if it is compressed. Takes CPU time: call it on a blocking thread.
    ///
    /// # Errors
    ///
    /// Returns a [`BodyError`] if the body is not valid in its encoding, is too large, or the budget of all
    /// bodies has no room.
    pub fn decode(self) -> Result<BodyBytes> {
        let is_empty = self.sent.bytes.is_empty();
        match self.encoding {
            Encoding::Identity => return Ok(BodyBytes(self.sent)),
            // Agents without data send an empty body but still set `Content-Encoding`.
            Encoding::Gzip | Encoding::Deflate if is_empty => return Ok(BodyBytes(self.sent)),
            // An empty body is rejected, so that a write whose body was lost in transit is not acknowledged.
            Encoding::Snappy | Encoding::Zstd if is_empty => {
                return Err(invalid("compressed body: it is empty"));
            }
            Encoding::Snappy => return self.unsnap(),
            Encoding::Gzip | Encoding::Deflate | Encoding::Zstd => {}
        }
        let dense_from = self.sent.bytes.len().saturating_mul(RATIO_MAX);
        let mut decoded = Buffer::new(&self.budget, MEASURED_BYTES);
        let is_small = self.unpack(&mut |step| {
            let bytes = decoded.bytes.len() + step.len();
            if bytes > MEASURED_BYTES || (bytes > DENSE_MEASURED_BYTES && bytes > dense_from) {
                return Ok(ControlFlow::Break(()));
            }
            decoded.extend(step).map(ControlFlow::Continue)
        })?;
        if is_small.is_continue() {
            return Ok(BodyBytes(decoded));
        }
        drop(decoded);
        let mut bytes = 0;
        let _ = self.unpack(&mut |step| {
            bytes += step.len();
            Ok(ControlFlow::Continue(()))
        })?;
        let mut decoded = Buffer::new(&self.budget, self.limits.decoded_bytes);
        decoded.reserve(bytes)?;
        let _ = self.unpack(&mut |step| decoded.extend(step).map(ControlFlow::Continue))?;
        Ok(BodyBytes(decoded))
    }

    /// Decompresses a snappy block. The block starts with its decompressed size, which is checked against the
    /// largest size that a block of this length can have.
    fn unsnap(self) -> Result<BodyBytes> {
        let sent = self.sent.bytes.as_slice();
        let bytes = snap::raw::decompress_len(sent).map_err(bad_snappy)?;
        if bytes > self.limits.decoded_bytes {
            let limit = self.limits.decoded_bytes as u64;
            return Err(too_large("decompressed body", limit, bytes as u64));
        }
        if bytes > sent.len().saturating_mul(SNAPPY_RATIO_MAX) {
            return Err(invalid(format!(
                "compressed body: {} bytes of snappy cannot hold {bytes}",
                sent.len()
            )));
        }
        let mut decoded = Buffer::new(&self.budget, self.limits.decoded_bytes);
        decoded.reserve(bytes)?;
        decoded.bytes.resize(bytes, 0);
        let written = snap::raw::Decoder::new()
            .decompress(sent, &mut decoded.bytes)
            .map_err(bad_snappy)?;
        decoded.bytes.truncate(written);
        Ok(BodyBytes(decoded))
    }

    /// Passes the decompressed body to `take` step by step, within the limits.
    fn unpack(&self, take: &mut Take<'_>) -> Result<ControlFlow<()>> {
        let sent = self.sent.bytes.as_slice();
        match self.encoding {
            Encoding::Identity | Encoding::Snappy => take(sent),
            Encoding::Gzip => {
                let mut reader = flate2::bufread::MultiGzDecoder::new(sent);
                inflate(&mut reader, sent.len(), self.limits, take)
            }
            Encoding::Deflate => {
                let mut reader = flate2::bufread::ZlibDecoder::new(sent);
                let taken = inflate(&mut reader, sent.len(), self.limits, take)?;
                if taken.is_continue() && !reader.into_inner().is_empty() {
                    return Err(invalid("compressed body: bytes follow its end"));
                }
                Ok(taken)
            }
            Encoding::Zstd => {
                let mut reader = zstd::stream::read::Decoder::with_buffer(sent).map_err(bad_compression)?;
                reader
                    .window_log_max(ZSTD_WINDOW_LOG_MAX)
                    .map_err(bad_compression)?;
                inflate(&mut reader, sent.len(), self.limits, take)
            }
        }
    }
}

/// Receiver of decompressed bytes, called per step. Returns `Break` to stop.
type Take<'a> = dyn FnMut(&[u8]) -> Result<ControlFlow<()>> + 'a;

fn inflate(
    reader: &mut impl Read,
    sent: usize,
    limits: BodyLimits,
    take: &mut Take<'_>,
) -> Result<ControlFlow<()>> {
    let mut step = vec![0; STEP_BYTES];
    let mut bytes = 0;
    loop {
        let read = match reader.read(&mut step) {
            Ok(0) => return Ok(ControlFlow::Continue(())),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(bad_compression(error)),
        };
        bytes += read;
        if bytes > limits.decoded_bytes {
            let limit = limits.decoded_bytes as u64;
            return Err(too_large("decompressed body", limit, bytes as u64));
        }
        let allowed = sent.saturating_mul(RATIO_MAX).max(RATIO_FREE_BYTES);
        if bytes > allowed {
            let what = "decompressed body (above 16 MiB at most 100 times the bytes sent)";
            return Err(too_large(what, allowed as u64, bytes as u64));
        }
        if take(&step[..read])?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is what map_err hands over")]
fn bad_compression(error: io::Error) -> BodyError {
    invalid(format!("compressed body: {error}"))
}

#[expect(clippy::needless_pass_by_value, reason = "it is what map_err hands over")]
fn bad_snappy(error: snap::Error) -> BodyError {
    invalid(format!("compressed body: {error}"))
}

fn too_large(what: &'static str, limit: u64, actual: u64) -> BodyError {
    BodyError::TooLarge { what, limit, actual }
}

fn invalid(message: impl Into<String>) -> BodyError {
    BodyError::Invalid(message.into())
}

/// Content encoding of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encoding {
    Identity,
    Gzip,
    /// The zlib format, as defined by HTTP.
    Deflate,
    Zstd,
    /// One block without frame format; remote write and remote read only.
    Snappy,
}

impl Encoding {
    fn of_remote_write(headers: &HeaderMap) -> Result<Self> {
        let name = encoding_name(headers);
        match name.as_deref() {
            Some("" | "snappy") => Ok(Self::Snappy),
            Some("zstd") => Ok(Self::Zstd),
            _ => Err(BodyError::UnknownEncoding {
                given: name.unwrap_or_default(),
                known: "snappy or zstd",
            }),
        }
    }

    fn of(headers: &HeaderMap) -> Result<Self> {
        let name = encoding_name(headers);
        match name.as_deref() {
            Some("" | "identity") => Ok(Self::Identity),
            Some("gzip" | "x-gzip") => Ok(Self::Gzip),
            // The OpenTelemetry Collector calls the same format `zlib` or `deflate`, depending on its settings.
            Some("deflate" | "zlib") => Ok(Self::Deflate),
            Some("zstd") => Ok(Self::Zstd),
            _ => Err(BodyError::UnknownEncoding {
                given: name.unwrap_or_default(),
                known: "gzip, deflate, zlib, zstd or identity",
            }),
        }
    }
}

/// Returns the encoding named by the header, in lower case. Returns an empty text without a header, and `None` for
/// several headers or a value that is not text.
fn encoding_name(headers: &HeaderMap) -> Option<String> {
    let mut sent = headers.get_all(header::CONTENT_ENCODING).iter();
    let (name, more) = (sent.next(), sent.next().is_some());
    let name = name.map_or(Ok(""), |name| name.to_str()).ok()?;
    (!more).then(|| name.trim().to_ascii_lowercase())
}

#[cfg(test)]
mod tests;

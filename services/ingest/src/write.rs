//! Write pipeline: decodes a body, stores its points and returns the outcome.
//!
//! 1. Find the table.
//! 2. Check the idempotency key. A repeated request returns its first outcome; its body is not decoded.
//! 3. Decode the body. Bad lines become rejects.
//! 4. Store the metadata of metrics. Write the rows; the table may reject more of them.
//! 5. Count the stored samples.

use std::ops::Deref;

use tideline_engine::catalog::{MetricKind, MetricMetadata};
use tideline_engine::model::{Durability, Timestamp};
use tideline_engine::{Engine, IdempotentRequest, RequestStart, WriteOptions, WriteOutcome};
use tideline_ingest_protocols::prometheus::{self, DecodedSamples, SampleCounts};
use tideline_ingest_protocols::{DecodeOptions, Limits};

use crate::database::DatabaseTag;
use crate::decoder::Decoder;
use crate::error::WriteError;
use crate::target::{Destination, Target};

/// Parameters of a write, without the body.
#[derive(Debug, Clone, PartialEq)]
pub struct WriteRequest {
    /// Destination of the points.
    pub target: Target,
    /// Format of the body.
    pub decoder: Decoder,
    /// Size limits for the parts of the body.
    pub limits: Limits,
    /// Timestamp of points without one. If `None`, such points get the time of decoding, or are rejected while the
    /// clock is in doubt.
    pub default_time: Option<Timestamp>,
    /// Durability of the acknowledgement; `None` uses the setting of the table.
    pub durability: Option<Durability>,
    /// Idempotency key of the client. A repeated request must have the same body, format, unit of timestamps and
    /// database tag. Import options may differ.
    pub key: Option<String>,
}

impl WriteRequest {
    /// Creates a request with default limits and without a key. Points without a timestamp get the time of decoding,
    /// and the durability is the setting of the table.
    pub fn new(target: Target, decoder: Decoder) -> Self {
        Self {
            target,
            decoder,
            limits: Limits::default(),
            default_time: None,
            durability: None,
            key: None,
        }
    }
}

/// Outcome of a write.
#[derive(Debug)]
pub struct Outcome {
    /// Number of stored points, and the rejects with their reasons.
    pub written: WriteOutcome,
    /// Number of stored samples by kind; zero for formats without samples and for repeated requests.
    pub samples: SampleCounts,
    /// Numbers of data points of an OTLP body; zero for other formats and for repeated requests.
    pub data_points: DataPoints,
}

/// Numbers of received and of rejected data points of an OTLP body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DataPoints {
    /// Number of data points in the body, including rejected ones.
    pub sent: u64,
    /// Number of data points that were not read, or that have a rejected sample or histogram. A rejected exemplar does
    /// not count.
    pub rejected: u64,
}

/// Decodes a body and stores its valid points. Blocks until the group commit.
///
/// The body is dropped after decoding: the rows hold a copy of its data, and keeping both would double the memory.
///
/// # Errors
///
/// - [`WriteError::Engine`] if the table does not exist, the key was used for another request, or the engine fails.
/// - [`WriteError::Body`] if the body as a whole is not valid in its format. A bad line is a reject, not an error.
/// - [`WriteError::DatabaseName`] if the database name cannot be a tag value.
///
/// # Examples
///
/// ```
/// # use std::sync::Arc;
/// # use tideline_engine::backend::memory::{Character, MemoryBackend, MemoryDisk};
/// # use tideline_engine::{Engine, Settings};
/// use tideline_engine::model::{Precision, SystemClock};
/// use tideline_ingest::{Decoder, Target, WriteRequest, write};
///
/// # let folder = tempfile::tempdir()?;
/// # let backend = Arc::new(MemoryBackend::open(&MemoryDisk::new(Character::Embedded)));
/// # let engine = Engine::open(backend, Arc::new(SystemClock), Settings::new(folder.path().join("index")))?;
/// let target = Target::Table("default".to_owned());
/// let mut request = WriteRequest::new(target, Decoder::LineProtocol(Precision::Second));
/// request.key = Some("batch-17".to_owned());
///
/// let body = b"cpu,host=web-1 usage=0.5 1700000000\ncpu usage=";
/// let outcome = write(&engine, &request, &body[..])?;
/// assert_eq!(outcome.written.points, 1);
/// assert_eq!(outcome.written.rejects[0].line, 2);
///
/// // With an idempotency key, a repeated request stores nothing and has the first outcome.
/// let repeated = write(&engine, &request, &body[..])?;
/// assert_eq!(repeated.written.points, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn write<B>(engine: &Engine, request: &WriteRequest, body: B) -> Result<Outcome, WriteError>
where
    B: Deref<Target = [u8]>,
{
    let to = request.target.find(engine, &request.decoder)?;
    let running = match request.identified(&body, to.tag.as_ref()) {
        None => None,
        Some(identified) => match engine.begin_request(&to.table, &identified)? {
            RequestStart::Repeated(written) => {
                return Ok(Outcome {
                    written,
                    samples: SampleCounts::default(),
                    data_points: DataPoints::default(),
                });
            }
            RequestStart::New(running) => Some(running),
        },
    };
    let options = DecodeOptions {
        precision: request.decoder.precision(),
        limits: request.limits,
        ..DecodeOptions::new(request.default_time.or_else(|| engine.arrival_time()))
    };
    let decoded = request.decoder.decode(&body, options, engine, &to)?;
    drop(body);
    let options = WriteOptions {
        durability: request.durability,
        request: running,
    };
    store(engine, &to, decoded, &options)
}

/// Stores the decoded metadata and rows.
fn store(
    engine: &Engine,
    to: &Destination,
    mut decoded: DecodedSamples,
    options: &WriteOptions<'_>,
) -> Result<Outcome, WriteError> {
    let metadata = std::mem::take(&mut decoded.metadata).into_iter();
    let metadata: Vec<MetricMetadata> = metadata.map(to_engine).collect();
    let mut omitted = 0;
    // The metadata is stored first: once the rows are stored, a repeated request stores nothing.
    if !metadata.is_empty() {
        engine.check_writable()?;
        omitted = engine.put_metadata(&to.table, &metadata)?;
    }
    let batch = std::mem::take(&mut decoded.batch);
    let written = engine.write(&to.table, batch, options)?;
    // A restricted handle stores metadata only for metrics that have series. The rows may have created these series.
    if omitted > 0 && to.table.condition().is_some() {
        engine.put_metadata(&to.table, &metadata)?;
    }
    let refused = written.rejects.iter().filter(|reject| reject.reason.is_of_row());
    let samples = decoded.stored(refused.map(|reject| reject.line));
    let data_points = DataPoints {
        sent: decoded.points,
        rejected: decoded.rejected_points(written.rejects.iter().map(|reject| reject.line)),
    };
    Ok(Outcome {
        written,
        samples,
        data_points,
    })
}

fn to_engine(metadata: prometheus::MetricMetadata) -> MetricMetadata {
    MetricMetadata {
        name: metadata.name,
        kind: MetricKind::parse(metadata.kind).unwrap_or_default(),
        help: metadata.help,
        unit: metadata.unit,
    }
}

impl WriteRequest {
    /// Returns the idempotency key with the digest of the data that it covers; `None` without a key.
    fn identified(&self, body: &[u8], tag: Option<&DatabaseTag>) -> Option<IdempotentRequest> {
        let key = self.key.clone()?;
        let unit = self.decoder.precision().nanos().to_le_bytes();
        let tag = tag.map_or(&[][..], DatabaseTag::as_bytes);
        let terms = [self.decoder.name().as_bytes(), &unit, tag];
        Some(IdempotentRequest::new(key, body, &terms))
    }
}

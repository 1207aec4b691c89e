//! A write, from its body to its outcome.
//!
//! 1. Find the table.
//! 2. Look the idempotency key up, once: a repeated request is answered without decoding its body.
//! 3. Decode the body. Bad lines become rejects.
//! 4. Write the rows; the table may reject more of them. Keep the metadata of metrics.
//! 5. Count what was stored.

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

/// A write, without its body.
#[derive(Debug, Clone, PartialEq)]
pub struct WriteRequest {
    /// The place that points go to.
    pub target: Target,
    /// The format of the body.
    pub decoder: Decoder,
    /// How large the parts of the body may be.
    pub limits: Limits,
    /// The time of points that have none; `None` = the time of the decoding.
    pub default_time: Option<Timestamp>,
    /// Durability of the acknowledgement; `None` = the table's setting.
    pub durability: Option<Durability>,
    /// The client's idempotency key. It covers body, format, unit of times and tag of the database; options of imports
    /// are not part of it.
    pub key: Option<String>,
}

impl WriteRequest {
    /// A write with the default limits, at the time of its decoding, as durable as the table asks for, without a key.
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

/// The outcome of a write.
#[derive(Debug)]
pub struct Outcome {
    /// Points stored, and every reject with its reason.
    pub written: WriteOutcome,
    /// Samples stored, by kind; all zero for formats without samples.
    pub samples: SampleCounts,
}

/// Decodes a body and stores its good points. Blocks for a group commit.
///
/// The body is dropped once it is decoded: the rows hold all of it, and together they would take twice the memory.
///
/// # Errors
///
/// Where the table does not exist, the body as a whole is not of its format, the key belongs to another request, or the
/// engine fails. A bad line is not an error.
pub fn write<B>(engine: &Engine, request: &WriteRequest, body: B) -> Result<Outcome, WriteError>
where
    B: Deref<Target = [u8]>,
{
    let to = request.target.find(engine, &request.decoder)?;
    let running = match request.identified(&body, to.tag.as_ref()) {
        None => None,
        Some(identified) => match engine.begin_request(&to.table, &identified)? {
            RequestStart::Repeated(written) => {
                let samples = SampleCounts::default();
                return Ok(Outcome { written, samples });
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

/// Writes what was decoded.
fn store(
    engine: &Engine,
    to: &Destination,
    mut decoded: DecodedSamples,
    options: &WriteOptions<'_>,
) -> Result<Outcome, WriteError> {
    let batch = std::mem::take(&mut decoded.batch);
    let written = engine.write(&to.table, batch, options)?;
    let refused = written.rejects.iter().filter(|reject| reject.reason.is_of_row());
    let samples = decoded.stored(refused.map(|reject| reject.line));
    if !decoded.metadata.is_empty() {
        let metadata: Vec<MetricMetadata> = decoded.metadata.into_iter().map(to_engine).collect();
        engine.put_metadata(&to.table, &metadata)?;
    }
    Ok(Outcome { written, samples })
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
    /// The request as its key identifies it; `None` without a key.
    fn identified(&self, body: &[u8], tag: Option<&DatabaseTag>) -> Option<IdempotentRequest> {
        let key = self.key.clone()?;
        let unit = self.decoder.precision().nanos().to_le_bytes();
        let tag = tag.map_or(&[][..], DatabaseTag::as_bytes);
        let terms = [self.decoder.name().as_bytes(), &unit, tag];
        Some(IdempotentRequest::new(key, body, &terms))
    }
}

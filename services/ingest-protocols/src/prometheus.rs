//! Decoders of the formats of Prometheus and compatible agents.
//!
//! A series is a timeline: the label `__name__` is its measurement, and its other labels are its tags. A float sample
//! is stored in the field [`VALUE_FIELD`] bit for bit, so stale markers and other NaN payloads are preserved. A native
//! histogram is stored in the field [`HISTOGRAM_FIELD`].
//!
//! | module | holds |
//! |---|---|
//! | `write_v1`, `write_v2` | remote write, both versions, decompressed |
//! | `exposition`, `sample_line` | text exposition format and OpenMetrics |
//! | `metric_family` | `MetricFamily` messages, as client libraries push them |
//! | `json_lines` | VictoriaMetrics JSON lines |
//! | `otlp` | OTLP metrics, as Protocol Buffers or JSON |
//! | `import` | options that apply to all samples of text, metric families and JSON lines |
//! | `read` | remote read requests, decompressed |
//! | `wire` | in-place reader of Protocol Buffers |
//! | `labels` | encoding of the labels of a series as the raw key of its timeline |
//! | `samples`, `group` | collection of samples into groups of rows |
//! | `decoded` | result of decoding a body |
//! | `histogram` | native histograms |
//! | `exemplar`, `metadata` | exemplars, and metadata of metrics |

mod decoded;
mod exemplar;
mod exposition;
mod group;
mod histogram;
mod import;
mod json_lines;
pub(crate) mod labels;
mod metadata;
mod metric_family;
mod otlp;
mod read;
mod sample_line;
mod samples;
mod wire;
mod write_v1;
mod write_v2;

pub use decoded::{DecodedSamples, SampleCounts, SampleKind};
pub use exposition::{TextFormat, decode_text};
pub use group::{EXEMPLAR_FIELD, HISTOGRAM_FIELD, START_FIELD, VALUE_FIELD, is_sample_detail};
pub use import::ImportOptions;
pub use json_lines::decode_json_lines;
pub use metadata::{KnownMetadata, MetricMetadata};
pub use metric_family::decode_metric_families;
pub use otlp::{DeltaTemporality, OtlpEncoding, OtlpSettings, TranslationStrategy, decode_otlp};
pub use read::{ReadMatcher, ReadMatcherKind, ReadQuery, ReadRequest, ReadResponseType, decode_read};
pub use tideline_histogram::STALE_NAN_BITS;
pub use write_v1::decode_write;
pub use write_v2::decode_write_v2;

use wire::{Fields, Payload, Read};

/// Counts the messages in the repeated field `field` of a message. Also checks that this message is complete, so that
/// no part of a truncated body is decoded.
fn count_messages(body: &[u8], field: u32) -> Read<usize> {
    let mut count = 0;
    let mut fields = Fields::new(body);
    while let Some((number, payload)) = fields.next()? {
        count += usize::from(number == field && matches!(payload, Payload::Bytes(_)));
    }
    Ok(count)
}

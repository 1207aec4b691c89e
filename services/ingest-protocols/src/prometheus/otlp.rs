//! Decoder of OTLP metrics: `ExportMetricsServiceRequest` as Protocol Buffers or JSON.
//!
//! ```text
//! Request         { 1: ResourceMetrics* }
//! ResourceMetrics { 1: Resource { 1: KeyValue* }, 2: ScopeMetrics* }
//! ScopeMetrics    { 1: InstrumentationScope { 1: name, 2: version, 3: KeyValue* }, 2: Metric*, 3: schema URL }
//! Metric          { 1: name, 2: description, 3: unit, 5: Gauge, 7: Sum, 9: Histogram, 10: ExponentialHistogram,
//!                   11: Summary }
//! ```
//!
//! Data points become samples as the OTLP receiver of Prometheus 3 translates them. The module is therefore part of the
//! Prometheus formats: series names, labels and fields are the same as if the metrics had been sent by remote write.
//!
//! - A number point is one float sample. A histogram is stored as its classic series, or as a native histogram with
//!   custom buckets. An exponential histogram is a native histogram. A summary has `_sum`, `_count` and one series per
//!   quantile.
//! - A JSON body is first converted to Protocol Buffers, so that both encodings have one decoder.
//! - A data point without a time, without a value, with buckets that do not fit its bounds, or with bucket counts that
//!   sum to more than its count is rejected; the other points of its metric are stored. Prometheus stores such a point
//!   as it is, or with a made-up value.
//!
//! | module | holds |
//! |---|---|
//! | `request` | resources, scopes and metrics of a body; `target_info` |
//! | `points` | data points of each type, and their rows |
//! | `attributes` | attributes of a data point as the labels of its series |
//! | `any_value` | text of an attribute value |
//! | `metric_name`, `label_name` | translation of names and units |
//! | `buckets` | exponential and explicit buckets as native histograms |
//! | `json` | conversion of JSON to Protocol Buffers |
//! | `settings` | settings of the translation |

mod any_value;
mod attributes;
mod buckets;
mod json;
mod label_name;
mod metric_name;
mod points;
mod request;
mod settings;

use tideline_model::SeriesResolver;

use super::decoded::DecodedSamples;
use super::metadata::KnownMetadata;
use super::wire::Malformed;
use crate::error::IngestError;
use crate::options::DecodeOptions;
pub use settings::{DeltaTemporality, OtlpSettings, TranslationStrategy};

/// Encoding of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OtlpEncoding {
    /// Protocol Buffers.
    Protobuf,
    /// JSON in the dialect of OTLP: names in lowerCamelCase, enums as integers, trace ids as hexadecimal text.
    Json,
}

/// Decodes a decompressed request.
///
/// An invalid data point is rejected alone; an invalid metric, scope or resource is rejected with all its points. All
/// samples and histograms of a data point share one line; each exemplar has a separate line. Metadata for which
/// `is_known` returns true is skipped.
///
/// # Errors
///
/// Returns [`IngestError::Protobuf`] or [`IngestError::Json`] if the body is not a valid message. No sample is returned
/// then.
pub fn decode_otlp(
    body: &[u8],
    encoding: OtlpEncoding,
    settings: &OtlpSettings,
    options: &DecodeOptions,
    resolver: &mut impl SeriesResolver,
    is_known: &KnownMetadata<'_>,
) -> Result<DecodedSamples, IngestError> {
    let converted;
    let message = match encoding {
        OtlpEncoding::Protobuf => body,
        OtlpEncoding::Json => {
            converted = json::to_protobuf(body)?;
            &converted
        }
    };
    let read = request::read(message, settings, options, resolver, is_known);
    read.map_err(|Malformed(reason)| IngestError::Protobuf {
        message: "opentelemetry.proto.collector.metrics.v1.ExportMetricsServiceRequest",
        reason,
    })
}

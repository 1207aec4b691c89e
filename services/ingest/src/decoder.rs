//! Body formats and their decoders.
//!
//! A service chooses a [`Decoder`] for the path and content type of a request. The variant carries the options that
//! apply to all points of the body.

use std::sync::Arc;

use tideline_engine::Engine;
use tideline_engine::catalog::MetricKind;
use tideline_engine::model::{PointBatch, Precision, SeriesResolver};
use tideline_ingest_protocols::prometheus::{
    self, DecodedSamples, ImportOptions, OtlpEncoding, OtlpSettings, TextFormat, decode_json_lines,
    decode_metric_families, decode_otlp, decode_text,
};
use tideline_ingest_protocols::{DecodeOptions, IngestError, json, line_protocol, ndjson};

use crate::database::TaggingResolver;
use crate::target::Destination;

/// Format of a body, with the options that apply to all of its points.
#[derive(Debug, Clone, PartialEq)]
pub enum Decoder {
    /// InfluxDB line protocol; integer timestamps are in this unit.
    LineProtocol(Precision),
    /// Native JSON; integer timestamps are in this unit unless the body sets another one.
    Json(Precision),
    /// Native JSON with one point per line; integer timestamps are in this unit.
    Ndjson(Precision),
    /// Prometheus remote write 1.0: `prometheus.WriteRequest`.
    RemoteWriteV1,
    /// Prometheus remote write 2.0: `io.prometheus.write.v2.Request`.
    RemoteWriteV2,
    /// Metrics in a Prometheus text format.
    Exposition(TextFormat, ImportOptions),
    /// Length-delimited Prometheus `MetricFamily` messages.
    MetricFamilies(ImportOptions),
    /// VictoriaMetrics JSON lines.
    JsonLines(ImportOptions),
    /// OTLP metrics: `ExportMetricsServiceRequest`.
    Otlp(OtlpEncoding, Arc<OtlpSettings>),
}

impl Decoder {
    /// Returns the name of the format in the digest of an idempotent request. It must not change between builds.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::LineProtocol(_) => "lines",
            Self::Json(_) => "json",
            Self::Ndjson(_) => "ndjson",
            Self::RemoteWriteV1 => "remote_write_1",
            Self::RemoteWriteV2 => "remote_write_2",
            Self::Exposition(..) => "exposition",
            Self::MetricFamilies(_) => "metric_families",
            Self::JsonLines(_) => "json_lines",
            Self::Otlp(OtlpEncoding::Protobuf, _) => "otlp",
            Self::Otlp(OtlpEncoding::Json, _) => "otlp_json",
        }
    }

    /// Returns the unit of integer timestamps. Prometheus formats and OTLP have fixed units: for them this is the
    /// default unit, which their decoders ignore.
    pub(crate) fn precision(&self) -> Precision {
        match self {
            Self::LineProtocol(precision) | Self::Json(precision) | Self::Ndjson(precision) => *precision,
            _ => Precision::default(),
        }
    }

    /// Returns true if the series keys of the format consist of measurement and tags, so that a tag can be appended.
    pub(crate) fn takes_tags(&self) -> bool {
        matches!(self, Self::LineProtocol(_) | Self::Json(_) | Self::Ndjson(_))
    }

    /// Decodes a body. The resolver holds the lock of the catalog and is dropped on return.
    pub(crate) fn decode(
        &self,
        body: &[u8],
        options: DecodeOptions,
        engine: &Engine,
        to: &Destination,
    ) -> Result<DecodedSamples, IngestError> {
        let mut resolver = engine.resolver(&to.table);
        match self {
            Self::LineProtocol(_) | Self::Json(_) | Self::Ndjson(_) => {
                let batch = match &to.tag {
                    None => self.decode_points(body, options, resolver),
                    Some(tag) => self.decode_points(body, options, TaggingResolver::new(tag, resolver)),
                };
                batch.map(DecodedSamples::from)
            }
            Self::RemoteWriteV1 => prometheus::decode_write(body, &options, &mut resolver),
            Self::RemoteWriteV2 => {
                let is_known = known_metadata(to);
                prometheus::decode_write_v2(body, &options, &mut resolver, &is_known)
            }
            Self::Otlp(encoding, settings) => {
                let is_known = known_metadata(to);
                decode_otlp(body, *encoding, settings, &options, &mut resolver, &is_known)
            }
            Self::Exposition(format, import) => {
                Ok(decode_text(body, *format, import, &options, &mut resolver))
            }
            Self::MetricFamilies(import) => decode_metric_families(body, import, &options, &mut resolver),
            Self::JsonLines(import) => Ok(decode_json_lines(body, import, &options, &mut resolver)),
        }
    }

    fn decode_points(
        &self,
        body: &[u8],
        options: DecodeOptions,
        mut resolver: impl SeriesResolver,
    ) -> Result<PointBatch, IngestError> {
        match self {
            Self::Json(_) => json::decode(body, options, &mut resolver),
            Self::Ndjson(_) => Ok(ndjson::decode(body, options, &mut resolver)),
            _ => Ok(line_protocol::decode(body, options, &mut resolver)),
        }
    }
}

/// Returns a callback that returns true if the table already stores the same type, help and unit of a metric.
fn known_metadata(to: &Destination) -> impl Fn(&str, &str, &str, &str) -> bool {
    |name, kind, help, unit| {
        MetricKind::parse(kind).is_some_and(|kind| to.table.knows_metadata(name, kind, help, unit))
    }
}

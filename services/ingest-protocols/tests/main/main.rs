//! Tests of the decoders: the published corpus, the rules of InfluxDB 1, the Prometheus formats, and arbitrary input.

mod corpus;
mod exposition;
mod line_properties;
mod line_rules;
mod metric_family;
mod native_histograms;
mod otlp;
mod remote_write;
mod support;

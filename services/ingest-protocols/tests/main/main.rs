//! The decoders against the published corpus, the quirks of InfluxDB 1, and properties of all inputs.

mod corpus;
mod exposition;
mod line_properties;
mod line_rules;
mod metric_family;
mod native_histograms;
mod remote_write;
mod support;

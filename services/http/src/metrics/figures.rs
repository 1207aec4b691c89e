//! Encoder of metrics whose values are read at scrape time.
//!
//! The encoder writes values directly, without metric objects that would have to be kept up to date.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// Label name, and the value of the metric for each label value.
type Labelled<'a> = (&'a str, &'a [(&'a str, f64)]);

/// Encoder of metric families, one after another.
pub(super) struct Figures<'e>(DescriptorEncoder<'e>);

impl<'e> Figures<'e> {
    pub(super) fn new(encoder: DescriptorEncoder<'e>) -> Self {
        Self(encoder)
    }

    pub(super) fn gauge(&mut self, name: &str, help: &str, value: f64) -> fmt::Result {
        let encoder = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        ConstGauge::new(value).encode(encoder)
    }

    /// Writes a gauge that is 1 if `holds` is true, otherwise 0.
    pub(super) fn switch(&mut self, name: &str, help: &str, holds: bool) -> fmt::Result {
        self.gauge(name, help, f64::from(u8::from(holds)))
    }

    pub(super) fn counter(&mut self, name: &str, help: &str, value: f64) -> fmt::Result {
        let encoder = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        ConstCounter::new(value).encode(encoder)
    }

    /// Writes a family of gauges with one label.
    pub(super) fn gauges(&mut self, name: &str, help: &str, (label, values): Labelled<'_>) -> fmt::Result {
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (of, value) in values {
            ConstGauge::new(*value).encode(family.encode_family(&[(label, *of)])?)?;
        }
        Ok(())
    }

    /// Writes a family of counters with one label.
    pub(super) fn counters(&mut self, name: &str, help: &str, (label, values): Labelled<'_>) -> fmt::Result {
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (of, value) in values {
            ConstCounter::new(*value).encode(family.encode_family(&[(label, *of)])?)?;
        }
        Ok(())
    }

    /// Writes a family of counters of secondary indexes, with the labels `table` and `index`.
    pub(super) fn index_counters(
        &mut self,
        name: &str,
        help: &str,
        values: &[(String, String, f64)],
    ) -> fmt::Result {
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (table, index, value) in values {
            let labels = [("table", table.as_str()), ("index", index.as_str())];
            ConstCounter::new(*value).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }

    /// Writes gauges with the labels `table` and `index`.
    pub(super) fn index_gauges(
        &mut self,
        name: &str,
        help: &str,
        values: &[(String, String, f64)],
    ) -> fmt::Result {
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (table, index, value) in values {
            let labels = [("table", table.as_str()), ("index", index.as_str())];
            ConstGauge::new(*value).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

//! Writes figures that are read where they are.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// The label of figures that are told apart, and for each of its values the figure.
type Labelled<'a> = (&'a str, &'a [(&'a str, f64)]);

/// Writes figures, one family after another.
pub(super) struct Figures<'e>(DescriptorEncoder<'e>);

impl<'e> Figures<'e> {
    pub(super) fn new(encoder: DescriptorEncoder<'e>) -> Self {
        Self(encoder)
    }

    /// What rises and falls.
    pub(super) fn gauge(&mut self, name: &str, help: &str, value: f64) -> fmt::Result {
        let encoder = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        ConstGauge::new(value).encode(encoder)
    }

    /// One while something holds, else zero.
    pub(super) fn switch(&mut self, name: &str, help: &str, holds: bool) -> fmt::Result {
        self.gauge(name, help, f64::from(u8::from(holds)))
    }

    /// What only rises.
    pub(super) fn counter(&mut self, name: &str, help: &str, value: f64) -> fmt::Result {
        let encoder = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        ConstCounter::new(value).encode(encoder)
    }

    /// Gauges of one family.
    pub(super) fn gauges(&mut self, name: &str, help: &str, (label, values): Labelled<'_>) -> fmt::Result {
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (of, value) in values {
            ConstGauge::new(*value).encode(family.encode_family(&[(label, *of)])?)?;
        }
        Ok(())
    }

    /// Counters of one family.
    pub(super) fn counters(&mut self, name: &str, help: &str, (label, values): Labelled<'_>) -> fmt::Result {
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (of, value) in values {
            ConstCounter::new(*value).encode(family.encode_family(&[(label, *of)])?)?;
        }
        Ok(())
    }
}

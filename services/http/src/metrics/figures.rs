//! Encoder of metrics whose values are read at scrape time.
//!
//! The encoder writes values directly, without metric objects that would have to be kept up to date.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// Label name, and the value of the metric for each label value.
type Labelled<'a> = (&'a str, &'a [(&'a str, f64)]);

/// Histogram of a label value.
#[derive(Debug)]
pub(super) struct LabelledHistogram<'a> {
    /// Label value.
    pub(super) of: &'a str,
    /// Sum of all observed values.
    pub(super) sum: f64,
    /// Upper bound and number of values of each bucket. The last bound is infinite.
    pub(super) buckets: Vec<(f64, u64)>,
}

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

    /// Writes a family of histograms with one label.
    pub(super) fn histograms(
        &mut self,
        name: &str,
        help: &str,
        (label, values): (&str, &[LabelledHistogram<'_>]),
    ) -> fmt::Result {
        let mut family = self
            .0
            .encode_descriptor(name, help, None, MetricType::Histogram)?;
        for LabelledHistogram { of, sum, buckets } in values {
            let count = buckets.iter().map(|(_, count)| count).sum();
            let labels = [(label, *of)];
            let mut encoder = family.encode_family(&labels)?;
            encoder.encode_histogram::<NoLabelSet>(*sum, count, buckets, None)?;
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

#[cfg(test)]
mod tests {
    use prometheus_client::collector::Collector;
    use prometheus_client::registry::Registry;

    use super::*;

    #[derive(Debug)]
    struct Times;

    impl Collector for Times {
        fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
            let reads = LabelledHistogram {
                of: "read",
                sum: 2.5,
                buckets: vec![(0.5, 2), (1.0, 1), (f64::INFINITY, 1)],
            };
            Figures::new(encoder).histograms("times", "Times", ("kind", &[reads]))
        }
    }

    #[test]
    fn buckets_of_histograms_are_cumulative() {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Times));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).expect("it is encoded");
        for line in [
            "# TYPE times histogram",
            "times_sum{kind=\"read\"} 2.5",
            "times_count{kind=\"read\"} 4",
            "times_bucket{le=\"0.5\",kind=\"read\"} 2",
            "times_bucket{le=\"1.0\",kind=\"read\"} 3",
            "times_bucket{le=\"+Inf\",kind=\"read\"} 4",
        ] {
            assert!(text.lines().any(|written| written == line), "{line}: {text}");
        }
    }
}

//! Metrics of the service in the Prometheus format. Label values are a bounded set: apart from the names of existing
//! tables, indexes, tenants and consumer groups, no input of clients becomes a label value, and only the first
//! [`LABELS_MAX`] tables, tenants and groups have separate values.
//!
//! Requests update their counters as they run. Sizes and counts of the engine are read at each scrape.

mod figures;
mod jobs;
mod rows;
mod standby;
mod state;
mod tables;
mod tenants;
mod tiers;

use std::fmt;

use axum::http::{HeaderMap, header};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use tideline_engine::{Engine, Table, WriteOutcome};

pub(crate) use self::standby::{ForwardOutcome, StandbyMetrics};
use self::state::StateCollector;
use crate::app::App;

/// Maximum number of tables, of tenants, and of consumer groups with separate metrics.
const LABELS_MAX: usize = 200;
/// Label of all further tables, tenants or consumer groups together. No name of them can have this form.
const OTHERS: &str = "*";

/// Metrics updated by requests.
#[derive(Debug)]
pub(crate) struct Metrics {
    requests: Family<RequestLabels, Counter>,
    request_seconds: Family<RouteLabels, Histogram, fn() -> Histogram>,
    points: Family<ProtocolLabels, Counter>,
    values: Family<ProtocolLabels, Counter>,
    rejects: Family<ProtocolLabels, Counter>,
    write_seconds: Histogram,
    /// Bytes of request bodies as sent.
    pub(crate) body_bytes: Counter,
    /// Open connections.
    pub(crate) connections: RunningGauge,
    /// Running requests.
    pub(crate) requests_running: RunningGauge,
}

/// Labels of a finished request.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct RequestLabels {
    pub(crate) method: &'static str,
    /// Route template, such as `/v1/tables/{table}`.
    pub(crate) route: String,
    pub(crate) status: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabels {
    route: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ProtocolLabels {
    protocol: &'static str,
}

/// Creates a histogram with buckets from 0.25 ms to 8.192 s.
fn latency_buckets() -> Histogram {
    Histogram::new(exponential_buckets(0.000_25, 2.0, 16))
}

impl Metrics {
    pub(crate) fn new() -> Self {
        Self {
            requests: Family::default(),
            request_seconds: Family::new_with_constructor(latency_buckets),
            points: Family::default(),
            values: Family::default(),
            rejects: Family::default(),
            write_seconds: latency_buckets(),
            body_bytes: Counter::default(),
            connections: RunningGauge::default(),
            requests_running: RunningGauge::default(),
        }
    }

    /// Counts a finished request.
    pub(crate) fn answered(&self, labels: RequestLabels, seconds: f64) {
        self.requests.get_or_create(&labels).inc();
        let route = RouteLabels { route: labels.route };
        self.request_seconds.get_or_create(&route).observe(seconds);
    }

    /// Counts the outcome of a write. A repeated write counts only in the duration.
    pub(crate) fn written(&self, protocol: &'static str, outcome: &WriteOutcome, seconds: f64) {
        let labels = ProtocolLabels { protocol };
        self.write_seconds.observe(seconds);
        if outcome.repeated {
            return;
        }
        self.points.get_or_create(&labels).inc_by(outcome.points);
        self.values.get_or_create(&labels).inc_by(outcome.values);
        self.rejects.get_or_create(&labels).inc_by(outcome.rejected);
    }

    fn register(&self, registry: &mut Registry) {
        registry.register("http_requests", "Finished requests", self.requests.clone());
        registry.register_with_unit(
            "http_request_duration",
            "Time to the response head",
            Unit::Seconds,
            self.request_seconds.clone(),
        );
        registry.register("ingest_points", "Stored points", self.points.clone());
        registry.register("ingest_values", "Stored field values", self.values.clone());
        registry.register(
            "ingest_rejects",
            "Rejected lines and elements",
            self.rejects.clone(),
        );
        registry.register_with_unit(
            "write_duration",
            "Time to decode and commit a write",
            Unit::Seconds,
            self.write_seconds.clone(),
        );
        registry.register_with_unit(
            "http_request_body",
            "Bytes of request bodies as sent",
            Unit::Bytes,
            self.body_bytes.clone(),
        );
        registry.register("http_connections", "Open connections", self.connections.0.clone());
        registry.register(
            "http_requests_running",
            "Running requests",
            self.requests_running.0.clone(),
        );
        register_build(registry);
    }
}

fn register_build(registry: &mut Registry) {
    let build = [("version", env!("CARGO_PKG_VERSION"))];
    registry.register("build", "Version of the running build", Info::new(build.to_vec()));
}

/// Returns the content type of metrics for a client with these headers. The text is valid for both types.
pub(crate) fn content_type(headers: &HeaderMap) -> &'static str {
    let accepted = headers
        .get(header::ACCEPT)
        .and_then(|accept| accept.to_str().ok());
    match accepted.is_some_and(|accept| accept.contains("application/openmetrics-text")) {
        true => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        false => "text/plain; version=0.0.4; charset=utf-8",
    }
}

/// Returns the first [`LABELS_MAX`] values, for counters. The sum of the other values is omitted, because it would
/// decrease when a table is dropped.
fn first<'v>(values: impl Iterator<Item = (&'v str, f64)>) -> Vec<(&'v str, f64)> {
    values.take(LABELS_MAX).collect()
}

/// Returns the first [`LABELS_MAX`] values, and the sum of the other values, for gauges.
fn bounded<'v>(mut values: impl Iterator<Item = (&'v str, f64)>) -> Vec<(&'v str, f64)> {
    let mut own: Vec<_> = values.by_ref().take(LABELS_MAX).collect();
    if let Some(others) = values.map(|(_, value)| value).reduce(|sum, value| sum + value) {
        own.push((OTHERS, others));
    }
    own
}

/// Returns the tables with separate metrics, in the order of their creation.
fn labelled_tables(engine: &Engine) -> Vec<Table> {
    let mut tables = engine.tables();
    tables.sort_by_key(|table| table.points().id());
    tables.truncate(LABELS_MAX);
    tables
}

/// Gauge of running operations.
#[derive(Debug, Default)]
pub(crate) struct RunningGauge(Gauge);

/// Guard that counts one running operation until it is dropped.
#[derive(Debug)]
pub(crate) struct Counted(Gauge);

impl RunningGauge {
    pub(crate) fn count(&self) -> Counted {
        self.0.inc();
        Counted(self.0.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Encodes all metrics in the Prometheus text format. Blocks on the engine; call it on a blocking thread.
pub(crate) fn render(app: &App) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("tideline");
    app.metrics.register(&mut registry);
    registry.register_collector(Box::new(StateCollector(app.clone())));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_beyond_the_bound_are_added_up() {
        let names: Vec<String> = (0..LABELS_MAX + 3).map(|n| format!("t{n}")).collect();
        let values = |count: usize| bounded(names[..count].iter().map(|name| (name.as_str(), 1.0)));
        assert_eq!(values(LABELS_MAX).last(), Some(&("t199", 1.0)));
        let bounded = values(LABELS_MAX + 3);
        assert_eq!(
            (bounded.len(), bounded.last()),
            (LABELS_MAX + 1, Some(&(OTHERS, 3.0)))
        );
        assert!(values(0).is_empty());
        let own = first(names.iter().map(|name| (name.as_str(), 1.0)));
        assert_eq!(own.len(), LABELS_MAX);
    }
}

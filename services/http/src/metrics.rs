//! The service's own figures, for Prometheus. Label sets are fixed: nothing that a client sends becomes a label.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use tideline_engine::WriteOutcome;

use crate::app::App;

/// Counters that requests move.
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
    /// Requests that are being answered.
    pub(crate) requests_running: RunningGauge,
}

/// What a request was and became.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct RequestLabels {
    pub(crate) method: &'static str,
    /// The template, such as `/v1/tables/{table}`.
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

/// From 0.25 ms to 8 s.
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

    /// Counts an answered request.
    pub(crate) fn answered(&self, labels: RequestLabels, seconds: f64) {
        self.requests.get_or_create(&labels).inc();
        let route = RouteLabels { route: labels.route };
        self.request_seconds.get_or_create(&route).observe(seconds);
    }

    /// Counts what became of a write.
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
        registry.register("http_requests", "Requests answered", self.requests.clone());
        registry.register_with_unit(
            "http_request_duration",
            "Time to the head of the answer",
            Unit::Seconds,
            self.request_seconds.clone(),
        );
        registry.register("ingest_points", "Points stored", self.points.clone());
        registry.register("ingest_values", "Field values stored", self.values.clone());
        registry.register(
            "ingest_rejects",
            "Lines and elements rejected",
            self.rejects.clone(),
        );
        registry.register_with_unit(
            "write_duration",
            "Time to decode and commit one write",
            Unit::Seconds,
            self.write_seconds.clone(),
        );
        registry.register_with_unit(
            "http_request_body",
            "Request bodies as sent",
            Unit::Bytes,
            self.body_bytes.clone(),
        );
        registry.register("http_connections", "Open connections", self.connections.0.clone());
        registry.register(
            "http_requests_running",
            "Requests being answered",
            self.requests_running.0.clone(),
        );
        let build = [("version", env!("CARGO_PKG_VERSION"))];
        registry.register("build", "What is running", Info::new(build.to_vec()));
    }
}

/// Counts things that begin and end.
#[derive(Debug, Default)]
pub(crate) struct RunningGauge(Gauge);

/// One of them; counted until it is dropped.
#[derive(Debug)]
pub(crate) struct Running(Gauge);

impl RunningGauge {
    pub(crate) fn count(&self) -> Running {
        self.0.inc();
        Running(self.0.clone())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Everything in the Prometheus text format. Looks at the engine: call it on a blocking thread.
pub(crate) fn render(app: &App) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("tideline");
    app.metrics.register(&mut registry);
    registry.register_collector(Box::new(Arc::new(StateCollector(app.clone()))));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry)?;
    Ok(text)
}

/// Reads sizes and counts where they are, at each scrape.
#[derive(Debug)]
struct StateCollector(App);

impl Collector for StateCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let app = &self.0;
        let stats = app.engine.stats();
        let readiness = app.engine.readiness();
        let bool_gauge = |value: bool| f64::from(u8::from(value));
        let gauges = [
            (
                "writes_running",
                "Writes being decoded and committed",
                app.writes.running() as f64,
            ),
            (
                "queries_running",
                "Queries and searches being answered",
                app.queries.running() as f64,
            ),
            (
                "request_bodies_free_bytes",
                "Bytes that further request bodies may take",
                app.body_bytes.available_permits() as f64,
            ),
            (
                "head_bytes",
                "Unsealed points in memory",
                stats.store.head_bytes as f64,
            ),
            ("head_points", "Unsealed points", stats.store.head_points as f64),
            (
                "frozen_heads",
                "Heads waiting to be sealed or being sealed",
                stats.store.frozen_heads as f64,
            ),
            ("segments", "Published segments", stats.store.segments as f64),
            (
                "segment_points",
                "Points in segments",
                stats.store.segment_points as f64,
            ),
            (
                "segment_values",
                "Field values in segments",
                stats.store.segment_values as f64,
            ),
            (
                "segment_bytes",
                "Chunks and keys in segments",
                stats.store.segment_bytes as f64,
            ),
            (
                "data_bytes",
                "Segments and rows on disk",
                stats.store.usage.data_bytes as f64,
            ),
            (
                "journal_bytes",
                "Journal on disk",
                stats.store.usage.journal_bytes as f64,
            ),
            (
                "disk_free_bytes",
                "Free bytes of the data disk",
                stats.store.usage.free_bytes as f64,
            ),
            (
                "seal_failing",
                "1 while sealing fails",
                bool_gauge(stats.store.seal_error.is_some()),
            ),
            ("timelines", "Timelines of all tables", stats.timelines as f64),
            ("tables", "Tables", stats.tables as f64),
            (
                "catalog_bytes",
                "Timeline catalogs in memory",
                stats.catalog_bytes as f64,
            ),
            (
                "index_documents",
                "Timelines found through the search index",
                stats.index.documents as f64,
            ),
            (
                "index_pending",
                "Timelines that the search index has yet to take in",
                stats.index.pending as f64,
            ),
            (
                "index_rebuilding",
                "1 while the search index is rebuilt",
                bool_gauge(stats.index.rebuilding),
            ),
            (
                "ready_reads",
                "1 while reads are answered",
                bool_gauge(readiness.reads),
            ),
            (
                "ready_writes",
                "1 while writes are taken",
                bool_gauge(readiness.writes && !app.is_draining()),
            ),
        ];
        for (name, help, value) in gauges {
            gauge(&mut encoder, name, help, value)?;
        }
        if let Some(bytes) = resident_bytes() {
            gauge(
                &mut encoder,
                "process_resident_memory_bytes",
                "Resident memory",
                bytes as f64,
            )?;
        }
        let counters = [
            ("commits", "Writes committed", stats.store.commits as f64),
            (
                "journal_appends",
                "Groups of writes appended and synced",
                stats.store.appends as f64,
            ),
            ("seals", "Seals done", stats.store.seals as f64),
            (
                "process_cpu_seconds",
                "Processor time of all threads",
                cpu_seconds(),
            ),
        ];
        for (name, help, value) in counters {
            let metric = ConstCounter::new(value);
            metric.encode(encoder.encode_descriptor(name, help, None, metric_type(&metric))?)?;
        }
        Ok(())
    }
}

fn gauge(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: f64) -> Result<(), fmt::Error> {
    let metric = ConstGauge::new(value);
    metric.encode(encoder.encode_descriptor(name, help, None, metric_type(&metric))?)
}

fn metric_type(metric: &impl EncodeMetric) -> prometheus_client::metrics::MetricType {
    metric.metric_type()
}

/// Memory that the process holds, where the system tells.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1_024)
}

fn cpu_seconds() -> f64 {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    spent.tv_sec as f64 + spent.tv_nsec as f64 / 1e9
}

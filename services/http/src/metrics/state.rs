//! Metrics of sizes and counts, read from the engine at each scrape.
//!
//! One function per area: requests, followed files, memory, fair shares, memtables, disk, catalog, process. Tiers, rows
//! and jobs have separate modules.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use tideline_change_stream::ChangeSummary;
use tideline_engine::EngineStats;
use tideline_engine::backend::{REQUEST_BUCKETS, RequestCounts};
use tideline_engine::runtime::MemoryAccount;

use super::figures::{Figures, LabelledHistogram};
use super::{LABELS_MAX, OTHERS, jobs, rows, tables, tenants, tiers};
use crate::app::App;
use crate::followed_file::FileKind;

/// Collector of sizes and counts at scrape time.
#[derive(Debug)]
pub(super) struct StateCollector(pub(super) App);

impl Collector for StateCollector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let app = &self.0;
        let stats = app.service_engine().stats();
        let mut figures = Figures::new(encoder);
        requests(&mut figures, app)?;
        files(&mut figures, app)?;
        memory(&mut figures, app.service_engine().memory())?;
        head(&mut figures, &stats)?;
        rows::put(&mut figures, app.service_engine(), &stats.rows)?;
        let all_tables = app.service_engine().all_table_stats();
        tiers::put(&mut figures, &all_tables, &stats)?;
        jobs::put(&mut figures, app)?;
        tables::put(&mut figures, app.service_engine().stored_data_of(&all_tables))?;
        tenants::put(&mut figures, app)?;
        disk(&mut figures, &stats)?;
        cluster(&mut figures, app)?;
        catalog(&mut figures, &stats)?;
        process(&mut figures)
    }
}

/// Writes the metrics of running requests and readiness.
fn requests(figures: &mut Figures<'_>, app: &App) -> fmt::Result {
    let readiness = app.service_engine().readiness();
    figures.gauge("writes_running", "Running writes", app.writes.running() as f64)?;
    figures.gauge(
        "queries_running",
        "Running queries and searches, without queries of cold points",
        app.queries.running() as f64,
    )?;
    figures.counter(
        "audit_records_lost",
        "Audit records that are only in the log, because they could not be written to their table",
        app.audit.lost() as f64,
    )?;
    let queries = app.querier.stats();
    figures.gauge(
        "cold_queries_running",
        "Running queries of cold points, and running requests for rows in cold or archived parts",
        queries.cold_running as f64,
    )?;
    figures.gauge(
        "cold_queries_waiting",
        "Queries of cold points, and requests for rows in cold or archived parts, that wait for a permit",
        queries.cold_waiting as f64,
    )?;
    figures.counter(
        "cold_queries_refused",
        "Queries of cold points, and requests for rows in cold or archived parts, refused because too many waited",
        queries.cold_refused as f64,
    )?;
    figures.counter(
        "cold_read_bytes",
        "Encoded bytes of cold chunks, and bytes of rows in cold and archived parts, that requests have read",
        queries.cold_read_bytes as f64,
    )?;
    figures.gauge("watches", "Open watches", app.watches.running() as f64)?;
    let (read, shared) = app.watching.steps.numbers();
    figures.counter(
        "watch_steps",
        "Watch updates that were read from the journal and encoded",
        read as f64,
    )?;
    figures.counter(
        "watch_steps_shared",
        "Watch updates reused from other watches with the same request",
        shared as f64,
    )?;
    figures.gauge(
        "feed_watches",
        "Open watches of feeds and inboxes, and requests that wait for messages",
        app.feed_watches.running() as f64,
    )?;
    let (read, shared) = app.feed_watching.steps.numbers();
    figures.counter(
        "feed_watch_steps",
        "Pages of messages that were read for watches of feeds",
        read as f64,
    )?;
    figures.counter(
        "feed_watch_steps_shared",
        "Pages of messages reused from other watches of the same feed",
        shared as f64,
    )?;
    changes(figures, &app.change_streams.summary())?;
    group_lags(figures, &app.change_streams.group_lags())?;
    figures.gauge(
        "request_bodies_free_bytes",
        "Remaining bytes for request bodies",
        app.body_bytes.count().saturating_sub(app.body_bytes.used()) as f64,
    )?;
    shares(figures, app)?;
    figures.switch("ready_reads", "1 while reads are accepted", readiness.reads)?;
    figures.switch(
        "ready_writes",
        "1 while writes are accepted",
        readiness.writes && !app.is_draining(),
    )
}

/// Writes the metrics of followed files and of the certificate.
fn files(figures: &mut Figures<'_>, app: &App) -> fmt::Result {
    let behind = app.files_behind();
    let is_behind = |kind: FileKind| f64::from(u8::from(behind.contains(&kind)));
    let values = FileKind::WITH_METRIC.map(|kind| (kind.label(), is_behind(kind)));
    figures.gauges(
        "file_refused",
        "1 while the newest version of a file is not in use, because it is refused or cannot be read; 0 also without such a file",
        ("file", &values),
    )?;
    match app.tls.as_ref().and_then(|files| files.ends()) {
        Some(ends) => figures.gauge(
            "tls_certificate_not_after_timestamp_seconds",
            "End of the certificate of the listener, in seconds since the epoch; of several certificates, the first end",
            ends as f64,
        ),
        None => Ok(()),
    }
}

/// Writes the metrics of change streams.
fn changes(figures: &mut Figures<'_>, summary: &ChangeSummary) -> fmt::Result {
    figures.gauge("change_streams", "Change streams", summary.streams as f64)?;
    figures.gauge(
        "change_groups",
        "Consumer groups of all change streams",
        summary.groups as f64,
    )?;
    figures.gauge(
        "change_lag_max",
        "Largest number of journal entries between the checkpoint of a consumer group, or the position up to which a \
         webhook has read, and the newest change",
        summary.lag_max as f64,
    )?;
    figures.gauge(
        "change_kept_bytes",
        "Bytes of the journal that are kept only for change streams",
        summary.kept_bytes as f64,
    )?;
    figures.counter(
        "change_records",
        "Records of change streams that were read",
        summary.records as f64,
    )?;
    figures.counter(
        "change_gaps",
        "Gaps that readers of change streams got because changes were freed or damaged",
        summary.gaps as f64,
    )?;
    figures.counter(
        "change_overruns",
        "Times that changes were freed although a consumer group had not confirmed them",
        summary.overruns as f64,
    )?;
    figures.gauge(
        "webhooks",
        "Webhooks of all change streams",
        summary.webhooks as f64,
    )?;
    figures.gauge(
        "webhooks_paused",
        "Webhooks that deliver nothing because their receivers have answered with 410 Gone",
        summary.webhooks_paused as f64,
    )?;
    figures.gauge(
        "webhooks_stopped",
        "Webhooks that deliver nothing because their lists of failed deliveries are full",
        summary.webhooks_stopped as f64,
    )?;
    figures.counter(
        "webhook_requests",
        "Requests of webhooks that were accepted",
        summary.deliveries as f64,
    )?;
    figures.counter(
        "webhook_errors",
        "Requests of webhooks that failed, including those that are repeated",
        summary.delivery_errors as f64,
    )?;
    figures.counter(
        "webhook_failed",
        "Deliveries of webhooks that were given up",
        summary.deliveries_failed as f64,
    )
}

/// Writes the lag of each consumer group; only the first groups have separate values. The others have one value, the
/// largest lag.
fn group_lags(figures: &mut Figures<'_>, lags: &[(String, u64)]) -> fmt::Result {
    let (own, others) = lags.split_at(lags.len().min(LABELS_MAX));
    let mut values: Vec<(&str, f64)> = own.iter().map(|(name, lag)| (&**name, *lag as f64)).collect();
    let largest = others.iter().map(|(_, lag)| *lag).max();
    values.extend(largest.map(|lag| (OTHERS, lag as f64)));
    figures.gauges(
        "change_group_lag",
        "Journal entries between the checkpoint of a consumer group and the newest change; the group is stream/group",
        ("group", &values),
    )
}

/// Writes the metrics of the memory account.
fn memory(figures: &mut Figures<'_>, account: &MemoryAccount) -> fmt::Result {
    figures.gauge(
        "memory_max_bytes",
        "Memory limit of all budgets and requests together",
        account.whole_bytes() as f64,
    )?;
    figures.gauge(
        "memory_requests_max_bytes",
        "Memory limit of all requests together: memory_max_bytes minus the budgets",
        account.limit_bytes() as f64,
    )?;
    figures.gauge(
        "memory_requests_bytes",
        "Memory held by running requests",
        account.used_bytes() as f64,
    )?;
    let refusals = account.refusals();
    let refusals: Vec<(&str, f64)> = refusals.iter().map(|(of, count)| (*of, *count as f64)).collect();
    figures.counters(
        "memory_refusals",
        "Requests refused by the memory limit, by the purpose of the memory",
        ("holder", &refusals),
    )
}

/// Writes the numbers of requests refused because their client exceeded its fair share.
fn shares(figures: &mut Figures<'_>, app: &App) -> fmt::Result {
    let refused = [
        ("writes", app.writes.refused()),
        ("queries", app.queries.refused()),
        ("cold_queries", app.cold_queries.refused()),
        ("exports", app.exports.refused()),
        ("remote_reads", app.reads.refused()),
        ("watches", app.watches.refused()),
        ("feed_watches", app.feed_watches.refused()),
        ("body_bytes", app.body_bytes.refused()),
        ("connections", app.concurrent_requests.refused()),
    ];
    figures.counters(
        "share_refusals",
        "Requests refused because their client exceeded its fair share of a nearly exhausted resource",
        (
            "resource",
            &refused.map(|(resource, count)| (resource, count as f64)),
        ),
    )
}

/// Writes the metrics of unsealed points (memtables) and of commits.
fn head(figures: &mut Figures<'_>, stats: &EngineStats) -> fmt::Result {
    let store = &stats.store;
    figures.gauge(
        "head_bytes",
        "Bytes of unsealed points in memory",
        store.head_bytes as f64,
    )?;
    figures.gauge(
        "head_budget_bytes",
        "Bytes of unsealed points at which they are sealed, for the current number of timelines",
        store.head_budget_bytes as f64,
    )?;
    figures.gauge("head_points", "Unsealed points", store.head_points as f64)?;
    figures.gauge(
        "frozen_heads",
        "Heads that wait to be sealed or are being sealed",
        store.frozen_heads as f64,
    )?;
    figures.switch(
        "seal_failing",
        "1 while sealing fails",
        store.seal_error.is_some(),
    )?;
    figures.counter("commits", "Committed writes", store.commits as f64)?;
    figures.counter(
        "journal_appends",
        "Groups of writes appended to the journal and synced",
        store.appends as f64,
    )?;
    figures.counter("seals", "Completed seals", store.seals as f64)
}

/// Writes the disk usage.
fn disk(figures: &mut Figures<'_>, stats: &EngineStats) -> fmt::Result {
    let usage = &stats.store.usage;
    figures.gauge(
        "data_bytes",
        "Bytes of segments and rows on disk",
        usage.data_bytes as f64,
    )?;
    figures.gauge(
        "journal_bytes",
        "Bytes of the journal on disk",
        usage.journal_bytes as f64,
    )?;
    figures.gauge(
        "disk_free_bytes",
        "Free bytes of the data disk",
        usage.free_bytes as f64,
    )?;
    figures.gauge(
        "disk_free_min_bytes",
        "Free bytes of the data disk below which writes are refused",
        usage.free_bytes_min as f64,
    )?;
    figures.gauge(
        "cold_disk_free_bytes",
        "Free bytes of the disk of the cold tier",
        usage.cold_free_bytes as f64,
    )
}

/// Writes the counts of requests to a cluster, if there is one.
fn cluster(figures: &mut Figures<'_>, app: &App) -> fmt::Result {
    let log = app.service_engine().store().log();
    let requests = log.backend().requests();
    if requests.is_empty() {
        return Ok(());
    }
    owns_data(figures, true)?;
    figures.gauge(
        "cluster_epoch",
        "Number of the ownership of the data by this server",
        log.epoch().0 as f64,
    )?;
    let of_kind = |value: fn(&RequestCounts) -> f64| -> Vec<(&str, f64)> {
        requests
            .iter()
            .map(|counts| (counts.kind, value(counts)))
            .collect()
    };
    figures.counters(
        "cluster_requests",
        "Answered requests to the cluster",
        ("kind", &of_kind(|counts| counts.done as f64)),
    )?;
    figures.counters(
        "cluster_request_failures",
        "Requests to the cluster that failed after all repetitions",
        ("kind", &of_kind(|counts| counts.failed as f64)),
    )?;
    figures.counters(
        "cluster_request_repeats",
        "Repetitions of requests to the cluster",
        ("kind", &of_kind(|counts| counts.repeated as f64)),
    )?;
    let speculative = requests.iter().map(|counts| counts.speculative as f64);
    figures.counter(
        "cluster_speculative_reads",
        "Reads that were sent to a second node because the first one did not answer in the usual time",
        speculative.sum(),
    )?;
    let times = requests.iter().map(|counts| LabelledHistogram {
        of: counts.kind,
        sum: counts.time.as_secs_f64(),
        buckets: (0..REQUEST_BUCKETS)
            .map(|bucket| {
                let end = RequestCounts::bucket_end(bucket);
                (
                    end.map_or(f64::INFINITY, |end| end.as_secs_f64()),
                    counts.times[bucket],
                )
            })
            .collect(),
    });
    figures.histograms(
        "cluster_request_seconds",
        "Time of the answered requests to the cluster",
        ("kind", &times.collect::<Vec<_>>()),
    )
}

/// Writes whether this process owns the data of the cluster.
pub(super) fn owns_data(figures: &mut Figures<'_>, is_owner: bool) -> fmt::Result {
    figures.switch(
        "cluster_owner",
        "1 on the process that owns the data of the cluster, 0 on a standby",
        is_owner,
    )
}

/// Writes the metrics of the catalog and the search index.
fn catalog(figures: &mut Figures<'_>, stats: &EngineStats) -> fmt::Result {
    figures.gauge("timelines", "Timelines of all tables", stats.timelines as f64)?;
    figures.counter(
        "timelines_refused",
        "New timelines refused by the limit of new timelines per minute of their table",
        stats.timelines_refused as f64,
    )?;
    figures.counter(
        "timelines_oversized",
        "New timelines refused by the memory limit for names and tags of their table",
        stats.timelines_oversized as f64,
    )?;
    figures.gauge("tables", "Tables", stats.tables as f64)?;
    figures.gauge(
        "catalog_bytes",
        "Bytes of timeline catalogs in memory",
        stats.catalog_bytes as f64,
    )?;
    figures.gauge(
        "index_documents",
        "Timelines in the search index",
        stats.index.documents as f64,
    )?;
    figures.gauge(
        "index_pending",
        "Timelines that are not in the search index yet",
        stats.index.pending as f64,
    )?;
    figures.switch(
        "index_rebuilding",
        "1 while the search index is rebuilt",
        stats.index.rebuilding,
    )
}

/// Writes the metrics of the process.
pub(super) fn process(figures: &mut Figures<'_>) -> fmt::Result {
    if let Some(bytes) = resident_bytes() {
        figures.gauge("process_resident_memory_bytes", "Resident memory", bytes as f64)?;
    }
    figures.counter(
        "process_cpu_seconds",
        "Processor time of all threads",
        cpu_seconds(),
    )
}

/// Returns the resident memory of the process; `None` if the system does not report it.
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

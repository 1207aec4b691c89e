//! Sizes and counts, read where they are at each scrape.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use tideline_engine::EngineStats;
use tideline_engine::runtime::MemoryAccount;

use super::figures::Figures;
use super::{jobs, tiers};
use crate::app::App;

/// Reads sizes and counts where they are.
#[derive(Debug)]
pub(super) struct StateCollector(pub(super) App);

impl Collector for StateCollector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let app = &self.0;
        let stats = app.engine.stats();
        let mut figures = Figures::new(encoder);
        requests(&mut figures, app)?;
        memory(&mut figures, app.engine.memory())?;
        head(&mut figures, &stats)?;
        tiers::put(&mut figures, &app.engine, &stats)?;
        jobs::put(&mut figures, app)?;
        disk(&mut figures, &stats)?;
        catalog(&mut figures, &stats)?;
        process(&mut figures)
    }
}

/// What is being answered, and whether more is taken.
fn requests(figures: &mut Figures<'_>, app: &App) -> fmt::Result {
    let readiness = app.engine.readiness();
    figures.gauge(
        "writes_running",
        "Writes being decoded and committed",
        app.writes.running() as f64,
    )?;
    figures.gauge(
        "queries_running",
        "Queries and searches being answered, but for queries of cold points",
        app.queries.running() as f64,
    )?;
    let queries = app.querier.stats();
    figures.gauge(
        "cold_queries_running",
        "Queries of cold points that run",
        queries.cold_running as f64,
    )?;
    figures.gauge(
        "cold_queries_waiting",
        "Queries of cold points that wait for their turn",
        queries.cold_waiting as f64,
    )?;
    figures.counter(
        "cold_queries_refused",
        "Queries of cold points refused because too many waited",
        queries.cold_refused as f64,
    )?;
    figures.counter(
        "cold_read_bytes",
        "Encoded bytes of cold chunks that queries have read",
        queries.cold_read_bytes as f64,
    )?;
    figures.gauge("watches", "Watches that are open", app.watches.running() as f64)?;
    let (taken, shared) = app.watching.steps();
    figures.counter(
        "watch_steps",
        "Steps of watches that were read from the journal and encoded",
        taken as f64,
    )?;
    figures.counter(
        "watch_steps_shared",
        "Steps that watches took over from others with the same request",
        shared as f64,
    )?;
    figures.gauge(
        "request_bodies_free_bytes",
        "Bytes that further request bodies may take",
        app.body_bytes.count().saturating_sub(app.body_bytes.used()) as f64,
    )?;
    shares(figures, app)?;
    figures.switch("ready_reads", "1 while reads are answered", readiness.reads)?;
    figures.switch(
        "ready_writes",
        "1 while writes are taken",
        readiness.writes && !app.is_draining(),
    )
}

/// The memory account of the process.
fn memory(figures: &mut Figures<'_>, account: &MemoryAccount) -> fmt::Result {
    figures.gauge(
        "memory_max_bytes",
        "Memory that budgets and requests may take together",
        account.whole_bytes() as f64,
    )?;
    figures.gauge(
        "memory_requests_max_bytes",
        "Memory that requests may hold together: what the budgets leave of memory_max_bytes",
        account.limit_bytes() as f64,
    )?;
    figures.gauge(
        "memory_requests_bytes",
        "Memory that requests hold now",
        account.used_bytes() as f64,
    )?;
    let refusals = account.refusals();
    let refusals: Vec<(&str, f64)> = refusals.iter().map(|(of, count)| (*of, *count as f64)).collect();
    figures.counters(
        "memory_refusals",
        "Requests that found no room in the memory account, by what the memory was for",
        ("holder", &refusals),
    )
}

/// Refusals of fair shares.
fn shares(figures: &mut Figures<'_>, app: &App) -> fmt::Result {
    let refused = [
        ("writes", app.writes.refused()),
        ("queries", app.queries.refused()),
        ("cold_queries", app.cold_queries.refused()),
        ("exports", app.exports.refused()),
        ("remote_reads", app.reads.refused()),
        ("watches", app.watches.refused()),
        ("body_bytes", app.body_bytes.refused()),
        ("connections", app.answering.refused()),
    ];
    figures.counters(
        "share_refusals",
        "Requests refused because their client held more than its share while the resource was nearly used up",
        (
            "resource",
            &refused.map(|(resource, count)| (resource, count as f64)),
        ),
    )
}

/// Unsealed points, and how they came.
fn head(figures: &mut Figures<'_>, stats: &EngineStats) -> fmt::Result {
    let store = &stats.store;
    figures.gauge("head_bytes", "Unsealed points in memory", store.head_bytes as f64)?;
    figures.gauge(
        "head_budget_bytes",
        "Unsealed points in memory at which they are sealed, for as many timelines as they have now",
        store.head_budget_bytes as f64,
    )?;
    figures.gauge("head_points", "Unsealed points", store.head_points as f64)?;
    figures.gauge(
        "frozen_heads",
        "Heads waiting to be sealed or being sealed",
        store.frozen_heads as f64,
    )?;
    figures.switch(
        "seal_failing",
        "1 while sealing fails",
        store.seal_error.is_some(),
    )?;
    figures.counter("commits", "Writes committed", store.commits as f64)?;
    figures.counter(
        "journal_appends",
        "Groups of writes appended and synced",
        store.appends as f64,
    )?;
    figures.counter("seals", "Seals done", store.seals as f64)
}

/// What lies on the disks.
fn disk(figures: &mut Figures<'_>, stats: &EngineStats) -> fmt::Result {
    let usage = &stats.store.usage;
    figures.gauge("data_bytes", "Segments and rows on disk", usage.data_bytes as f64)?;
    figures.gauge("journal_bytes", "Journal on disk", usage.journal_bytes as f64)?;
    figures.gauge(
        "disk_free_bytes",
        "Free bytes of the data disk",
        usage.free_bytes as f64,
    )?;
    figures.gauge(
        "cold_disk_free_bytes",
        "Free bytes of the disk of the cold tier",
        usage.cold_free_bytes as f64,
    )
}

/// Who is known, and how far the index is.
fn catalog(figures: &mut Figures<'_>, stats: &EngineStats) -> fmt::Result {
    figures.gauge("timelines", "Timelines of all tables", stats.timelines as f64)?;
    figures.counter(
        "timelines_refused",
        "New timelines refused because their table takes only so many a minute",
        stats.timelines_refused as f64,
    )?;
    figures.counter(
        "timelines_oversized",
        "New timelines refused because the names and tags of their table take all the memory that they may",
        stats.timelines_oversized as f64,
    )?;
    figures.gauge("tables", "Tables", stats.tables as f64)?;
    figures.gauge(
        "catalog_bytes",
        "Timeline catalogs in memory",
        stats.catalog_bytes as f64,
    )?;
    figures.gauge(
        "index_documents",
        "Timelines found through the search index",
        stats.index.documents as f64,
    )?;
    figures.gauge(
        "index_pending",
        "Timelines that the search index has yet to take in",
        stats.index.pending as f64,
    )?;
    figures.switch(
        "index_rebuilding",
        "1 while the search index is rebuilt",
        stats.index.rebuilding,
    )
}

/// What the process takes.
fn process(figures: &mut Figures<'_>) -> fmt::Result {
    if let Some(bytes) = resident_bytes() {
        figures.gauge("process_resident_memory_bytes", "Resident memory", bytes as f64)?;
    }
    figures.counter(
        "process_cpu_seconds",
        "Processor time of all threads",
        cpu_seconds(),
    )
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

//! Metrics of tiers: stored data, bytes written, data to be deleted, and block caches.
//!
//! Values of a tier are sums over all tables, except the oldest and the newest timestamp.

use std::fmt;

use tideline_engine::backend::CacheUsage;
use tideline_engine::model::Tier;
use tideline_engine::model::time::NANOS_PER_SECOND;
use tideline_engine::{EngineStats, Table, TableStats, TierStats};

use super::figures::Figures;

const LABEL: &str = "tier";

pub(super) fn put(
    figures: &mut Figures<'_>,
    tables: &[(Table, TableStats)],
    stats: &EngineStats,
) -> fmt::Result {
    let tables = tables.iter().map(|(_, stats)| *stats);
    let tables: Vec<TableStats> = tables.collect();
    all(figures, stats)?;
    held(figures, &tables)?;
    loaded(figures, stats)?;
    waiting(figures, &tables)?;
    caches(figures, stats)
}

/// Writes the totals of all segments.
fn all(figures: &mut Figures<'_>, stats: &EngineStats) -> fmt::Result {
    let store = &stats.store;
    figures.gauge("segments", "Published segments", store.segments as f64)?;
    figures.gauge(
        "segment_points",
        "Points in segments",
        store.segment_points as f64,
    )?;
    figures.gauge(
        "segment_values",
        "Field values in segments",
        store.segment_values as f64,
    )?;
    figures.gauge(
        "segment_bytes",
        "Bytes of chunks and keys in segments",
        store.segment_bytes as f64,
    )
}

/// Writes the totals of each tier.
fn held(figures: &mut Figures<'_>, tables: &[TableStats]) -> fmt::Result {
    let of = |tier: Tier| {
        let tables = tables.iter().map(move |table| match tier {
            Tier::Hot => table.hot,
            Tier::Cold => table.cold,
            Tier::Archive => table.archive,
        });
        tables.fold(TierStats::default(), |mut sum, table| {
            sum.segments += table.segments;
            sum.windows += table.windows;
            sum.points += table.points;
            sum.bytes += table.bytes;
            sum.span = match (sum.span, table.span) {
                (Some(one), Some(other)) => Some((one.0.min(other.0), one.1.max(other.1))),
                (one, other) => one.or(other),
            };
            sum
        })
    };
    let tiers = Tier::ALL.map(|tier| (tier.name(), of(tier)));
    let mut each = |name, help, figure: fn(&TierStats) -> f64| {
        let values = tiers.each_ref().map(|(tier, stats)| (*tier, figure(stats)));
        figures.gauges(name, help, (LABEL, &values))
    };
    each("tier_segments", "Published segments", |stats| {
        stats.segments as f64
    })?;
    each(
        "tier_windows",
        "Windows with segments, over all tables",
        |stats| stats.windows as f64,
    )?;
    each("tier_points", "Points in segments", |stats| stats.points as f64)?;
    each("tier_bytes", "Bytes of chunks and keys in segments", |stats| {
        stats.bytes as f64
    })?;
    let seconds = |at: fn(&(i64, i64)) -> i64| {
        let spans = tiers
            .iter()
            .filter_map(|(tier, stats)| Some((*tier, stats.span.as_ref().map(at)?)));
        spans
            .map(|(tier, nanos)| (tier, nanos as f64 / NANOS_PER_SECOND as f64))
            .collect::<Vec<_>>()
    };
    let (oldest, newest) = (seconds(|span| span.0), seconds(|span| span.1));
    figures.gauges(
        "tier_oldest_timestamp_seconds",
        "Timestamp of the oldest sealed point",
        (LABEL, &oldest),
    )?;
    figures.gauges(
        "tier_newest_timestamp_seconds",
        "Timestamp of the newest sealed point",
        (LABEL, &newest),
    )
}

/// Writes the bytes of the segments written to each tier. Divided by the stored bytes, this is the write amplification.
fn loaded(figures: &mut Figures<'_>, stats: &EngineStats) -> fmt::Result {
    let of_tiers = |bytes: [u64; 3]| Tier::ALL.map(|tier| (tier.name(), bytes[tier as usize] as f64));
    figures.counters(
        "seal_loaded_bytes",
        "Bytes loaded by seals",
        (LABEL, &of_tiers(stats.store.sealed_bytes)),
    )?;
    figures.counters(
        "rewrite_loaded_bytes",
        "Bytes loaded by folds, migrations, archiving and purges",
        (LABEL, &of_tiers(stats.store.rewritten_bytes)),
    )
}

/// Writes the metrics of data that is already invisible but not deleted yet.
fn waiting(figures: &mut Figures<'_>, tables: &[TableStats]) -> fmt::Result {
    let sum = |figure: fn(&TableStats) -> u64| tables.iter().map(figure).sum::<u64>() as f64;
    figures.gauge(
        "deletes_waiting",
        "Deletes whose points are still stored in a segment",
        sum(|table| table.deletes_waiting),
    )?;
    figures.gauge(
        "bytes_with_deletes",
        "Bytes of segments in which a delete may hide points",
        sum(|table| table.bytes_with_deletes),
    )?;
    figures.gauge(
        "expired_bytes",
        "Bytes of segments whose points have all expired",
        sum(|table| table.expired_bytes),
    )
}

/// Writes the metrics of the block caches.
fn caches(figures: &mut Figures<'_>, stats: &EngineStats) -> fmt::Result {
    let usage = &stats.store.usage;
    let caches = [
        (Tier::Hot.name(), usage.hot_cache),
        (Tier::Cold.name(), usage.cold_cache),
    ];
    let of = |figure: fn(&CacheUsage) -> u64| caches.map(|(tier, cache)| (tier, figure(&cache) as f64));
    figures.gauges(
        "cache_capacity_bytes",
        "Capacity of the block cache",
        (LABEL, &of(|cache| cache.capacity_bytes)),
    )?;
    figures.gauges(
        "cache_bytes",
        "Bytes in the block cache",
        (LABEL, &of(|cache| cache.used_bytes)),
    )?;
    figures.counters(
        "cache_misses",
        "Blocks that were not in the cache",
        (LABEL, &of(|cache| cache.misses)),
    )
}

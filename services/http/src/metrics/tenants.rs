//! Metrics of tenants: points of their writes, bytes of their reads, running queries, stored data, tables and change
//! streams, refusals.
//!
//! The first 200 tenants, in the order of their creation, have separate values.

use std::fmt;
use std::sync::Arc;

use tideline_access::{Tenant, TenantFigures};
use tideline_engine::model::Tier;

use super::figures::Figures;
use super::{bounded, first};
use crate::app::App;
use crate::tenants::OwnedObjects;

const LABEL: &str = "tenant";

/// Figures of the tenants, each with its name.
type Named<'t> = [(&'t str, TenantFigures)];

pub(super) fn put(figures: &mut Figures<'_>, app: &App) -> fmt::Result {
    let mut tenants = app.tenants.all();
    tenants.sort_by_key(|tenant| tenant.record().created);
    let named: Vec<(&str, TenantFigures)> = tenants
        .iter()
        .map(|tenant| (tenant.record().name.as_str(), tenant.figures()))
        .collect();
    let objects = OwnedObjects::read(app);
    let owned = |count: fn(&OwnedObjects, &Tenant) -> u64| {
        let of_tenant = |tenant: &Arc<Tenant>| count(&objects, tenant) as f64;
        bounded(
            tenants
                .iter()
                .map(|tenant| (tenant.record().name.as_str(), of_tenant(tenant))),
        )
    };
    put_data(figures, &named)?;
    figures.gauges(
        "tenant_tables",
        "Tables of the tenant",
        (LABEL, &owned(OwnedObjects::tables)),
    )?;
    figures.gauges(
        "tenant_change_streams",
        "Change streams that contain only tables of the tenant",
        (LABEL, &owned(OwnedObjects::change_streams)),
    )?;
    put_requests(figures, &named)
}

/// Writes the points, the bytes that were read, and the memory and the stored data of each tenant.
fn put_data(figures: &mut Figures<'_>, named: &Named<'_>) -> fmt::Result {
    figures.counters(
        "tenant_points",
        "Points, rows and messages of the writes for the tenant, also those that were rejected",
        (LABEL, &counts(named, |figures| figures.points)),
    )?;
    figures.counters(
        "tenant_read_bytes",
        "Bytes of stored points, rows and values that were read for the tenant",
        (LABEL, &counts(named, |figures| figures.bytes_read)),
    )?;
    figures.gauges(
        "tenant_memory_bytes",
        "Bytes of memory of running requests of the tenant, if it has a budget of memory",
        (LABEL, &values(named, |figures| figures.memory_bytes)),
    )?;
    figures.gauges(
        "tenant_timelines",
        "Timelines of the tenant",
        (LABEL, &values(named, |figures| figures.stored.timelines)),
    )?;
    figures.gauges(
        "tenant_hot_bytes",
        "Bytes of the tenant in the hot tier",
        (
            LABEL,
            &values(named, |figures| figures.stored.tier_bytes[Tier::Hot as usize]),
        ),
    )?;
    figures.gauges(
        "tenant_cold_bytes",
        "Bytes of the tenant in the cold tier",
        (
            LABEL,
            &values(named, |figures| figures.stored.tier_bytes[Tier::Cold as usize]),
        ),
    )?;
    figures.gauges(
        "tenant_archive_bytes",
        "Bytes of the tenant in the archive",
        (
            LABEL,
            &values(named, |figures| figures.stored.tier_bytes[Tier::Archive as usize]),
        ),
    )
}

/// Writes the running and the refused requests of each tenant.
fn put_requests(figures: &mut Figures<'_>, named: &Named<'_>) -> fmt::Result {
    figures.gauges(
        "tenant_queries_running",
        "Running requests that read for the tenant, without watches",
        (LABEL, &values(named, |figures| figures.queries)),
    )?;
    figures.counters(
        "tenant_refused_writes",
        "Writes refused because the tenant writes more points per second, or stores more bytes, than its budget",
        (LABEL, &counts(named, |figures| figures.refused_writes)),
    )?;
    figures.counters(
        "tenant_refused_timelines",
        "Points refused because the tenant has more timelines, or new ones per minute, than its budget",
        (LABEL, &counts(named, |figures| figures.refused_timelines)),
    )?;
    figures.counters(
        "tenant_refused_queries",
        "Requests refused because the tenant runs as many queries, or reads as many bytes, as its budget allows",
        (LABEL, &counts(named, |figures| figures.refused_queries)),
    )?;
    figures.counters(
        "tenant_refused_memory",
        "Reservations of memory refused because requests of the tenant hold as much as its budget allows",
        (LABEL, &counts(named, |figures| figures.refused_memory)),
    )?;
    figures.counters(
        "tenant_refused_objects",
        "New tables and change streams refused because the tenant has as many as its budget allows",
        (LABEL, &counts(named, |figures| figures.refused_objects)),
    )
}

/// Returns the values of a counter.
fn counts<'n>(named: &'n Named<'_>, value: fn(&TenantFigures) -> u64) -> Vec<(&'n str, f64)> {
    first(each(named, value))
}

/// Returns the values of a gauge.
fn values<'n>(named: &'n Named<'_>, value: fn(&TenantFigures) -> u64) -> Vec<(&'n str, f64)> {
    bounded(each(named, value))
}

fn each<'n>(named: &'n Named<'_>, value: fn(&TenantFigures) -> u64) -> impl Iterator<Item = (&'n str, f64)> {
    named
        .iter()
        .map(move |(name, figures)| (*name, value(figures) as f64))
}

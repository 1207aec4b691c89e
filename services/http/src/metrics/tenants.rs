//! Metrics of tenants: points of their writes, running queries, refusals.
//!
//! The number of tenants is limited, so the number of values is too.

use std::fmt;

use tideline_access::TenantFigures;

use super::figures::Figures;
use crate::app::App;

const LABEL: &str = "tenant";

pub(super) fn put(figures: &mut Figures<'_>, app: &App) -> fmt::Result {
    let tenants = app.tenants.all();
    let named: Vec<(&str, TenantFigures)> = tenants
        .iter()
        .map(|tenant| (tenant.record().name.as_str(), tenant.figures()))
        .collect();
    let values = |value: fn(&TenantFigures) -> u64| -> Vec<(&str, f64)> {
        named
            .iter()
            .map(|(name, figures)| (*name, value(figures) as f64))
            .collect()
    };
    figures.counters(
        "tenant_points",
        "Points, rows and messages of the writes for the tenant, also those that were rejected",
        (LABEL, &values(|figures| figures.points)),
    )?;
    figures.gauges(
        "tenant_queries_running",
        "Running requests that read for the tenant, without watches",
        (LABEL, &values(|figures| figures.queries)),
    )?;
    figures.counters(
        "tenant_refused_writes",
        "Writes refused because the tenant writes more points per second than its budget",
        (LABEL, &values(|figures| figures.refused_points)),
    )?;
    figures.counters(
        "tenant_refused_timelines",
        "Points refused because the tenant has more new timelines per minute than its budget",
        (LABEL, &values(|figures| figures.refused_timelines)),
    )?;
    figures.counters(
        "tenant_refused_queries",
        "Requests refused because as many queries of the tenant run as its budget allows",
        (LABEL, &values(|figures| figures.refused_queries)),
    )
}

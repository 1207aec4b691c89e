//! Routes of the Prometheus API for scraping, rules, alerts and notifications.
//!
//! Tideline has none of these features. The responses are valid and empty, so that clients do not fail.

use axum::response::Response;
use serde_json::json;
use tideline_openapi::prometheus::{
    AlertDiscovery, AlertmanagerDiscovery, Answer, Anything, RuleDiscovery, ScrapePoolDiscovery,
    TargetDiscovery,
};
use tideline_prometheus::Parameters;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::KnownTable;
use super::response::{PrometheusFailures, success};
use crate::app::App;
use crate::failure::Result;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(targets))
        .routes(routes!(target_metadata))
        .routes(routes!(scrape_pools))
        .routes(routes!(rules))
        .routes(routes!(alerts))
        .routes(routes!(alertmanagers))
        .routes(routes!(notifications))
}

/// List scrape targets
///
/// The lists are always empty, because Tideline does not scrape; clients write to it.
#[utoipa::path(
    security(("token" = ["read", "timelines"])),
    get, path = "/api/v1/targets", tag = "prometheus",
    responses((status = 200, description = "No targets", body = Answer<TargetDiscovery>), PrometheusFailures)
)]
async fn targets(_: KnownTable) -> Response {
    success(TargetDiscovery::default())
}

/// Read metadata of scrape targets
///
/// The list is always empty; `/api/v1/metadata` returns the metadata of metrics.
#[utoipa::path(
    security(("token" = ["read", "timelines"])),
    get, path = "/api/v1/targets/metadata", tag = "prometheus",
    responses((status = 200, description = "No targets", body = Answer<Vec<Anything>>), PrometheusFailures)
)]
async fn target_metadata(_: KnownTable, parameters: Parameters) -> Result<Response> {
    parameters.check_target_metadata()?;
    Ok(success(json!([])))
}

/// List scrape pools (always empty)
#[utoipa::path(
    security(("token" = ["read", "timelines"])),
    get, path = "/api/v1/scrape_pools", tag = "prometheus",
    responses((status = 200, description = "No pools", body = Answer<ScrapePoolDiscovery>), PrometheusFailures)
)]
async fn scrape_pools(_: KnownTable) -> Response {
    success(ScrapePoolDiscovery::default())
}

/// List rules
///
/// The list is always empty, because clients such as Grafana or vmalert evaluate the rules.
#[utoipa::path(
    security(("token" = ["read", "timelines"])),
    get, path = "/api/v1/rules", tag = "prometheus",
    responses((status = 200, description = "No rules", body = Answer<RuleDiscovery>), PrometheusFailures)
)]
async fn rules(_: KnownTable, parameters: Parameters) -> Result<Response> {
    parameters.check_rules()?;
    Ok(success(RuleDiscovery::default()))
}

/// List alerts (always empty)
#[utoipa::path(
    security(("token" = ["read", "timelines"])),
    get, path = "/api/v1/alerts", tag = "prometheus",
    responses((status = 200, description = "No alerts", body = Answer<AlertDiscovery>), PrometheusFailures)
)]
async fn alerts(_: KnownTable) -> Response {
    success(AlertDiscovery::default())
}

/// List Alertmanagers (always empty)
#[utoipa::path(
    security(("token" = ["read", "timelines"])),
    get, path = "/api/v1/alertmanagers", tag = "prometheus",
    responses(
        (status = 200, description = "No Alertmanagers", body = Answer<AlertmanagerDiscovery>), PrometheusFailures
    )
)]
async fn alertmanagers(_: KnownTable) -> Response {
    success(AlertmanagerDiscovery::default())
}

/// List notifications of the Prometheus web UI (always empty)
#[utoipa::path(
    security(("token" = ["read", "timelines"])),
    get, path = "/api/v1/notifications", tag = "prometheus",
    responses(
        (status = 200, description = "No notifications", body = Answer<Vec<Anything>>), PrometheusFailures
    )
)]
async fn notifications(_: KnownTable) -> Response {
    success(json!([]))
}

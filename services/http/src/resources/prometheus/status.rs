//! `/api/v1/status/…`, `/-/healthy`, `/-/ready`: version, status and health routes of the Prometheus API.
//!
//! Clients such as Grafana request these routes first to detect the features of a server.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use tideline_openapi::DurationText;
use tideline_openapi::prometheus::{Answer, BuildInfo, ConfigText, RuntimeInfo, WalReplay};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::response::{PrometheusFailures, success};
use super::{KnownTable, PrometheusTable};
use crate::app::{App, blocking};
use crate::failure::Result;
use crate::grant::Grant;

/// Version of Prometheus whose language and API are implemented. Grafana selects its requests by this version.
const VERSION: &str = "3.14.0";
/// Text of the configuration in the response: an empty configuration, and a comment with the command that
/// prints the actual settings.
const CONFIG: &str = "# Tideline has no Prometheus configuration file; `tideline config show` prints its settings.\nglobal: {}\n";

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(config))
        .routes(routes!(flags))
        .routes(routes!(runtime_info))
        .routes(routes!(build_info))
        .routes(routes!(wal_replay))
        .routes(routes!(healthy))
        .routes(routes!(ready))
}

/// Read the configuration of Prometheus
///
/// Always returns an empty configuration.
#[utoipa::path(
    security(("token" = ["read", "timelines"])),
    get, path = "/api/v1/status/config", tag = "prometheus",
    responses((status = 200, description = "The YAML text", body = Answer<ConfigText>), PrometheusFailures)
)]
async fn config(_: KnownTable) -> Response {
    success(ConfigText { yaml: CONFIG.into() })
}

/// Read the flags of Prometheus
///
/// Returns the flags that apply to Tideline, with their current values.
#[utoipa::path(
    security(("token" = ["read", "timelines"])),
    get, path = "/api/v1/status/flags", tag = "prometheus",
    responses(
        (status = 200, description = "Flags by name", body = Answer<BTreeMap<String, String>>), PrometheusFailures
    )
)]
async fn flags(_: KnownTable, app: Grant) -> Response {
    let settings = &app.settings;
    success(settings.prometheus.flags(settings.queries_in_flight_max))
}

/// Read the state of the process
#[utoipa::path(
    security(("token" = ["read", "timelines"])),
    get, path = "/api/v1/status/runtimeinfo", tag = "prometheus",
    responses((status = 200, description = "Process state", body = Answer<RuntimeInfo>), PrometheusFailures)
)]
async fn runtime_info(app: Grant, PrometheusTable(table): PrometheusTable) -> Result<Response> {
    let started = app.started.to_rfc3339();
    let server_time = app.engine.clock().now().to_rfc3339();
    let retention = app.engine.table(&table)?.spec().policy.retention;
    // A tenant has no use for the names of the machine.
    let shows_machine = app.access.principal().scope().is_everything();
    let shown = move |text: String| if shows_machine { text } else { String::new() };
    let info = blocking(move || {
        let threads = std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count);
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Ok(RuntimeInfo {
            start_time: started.clone(),
            cwd: std::env::current_dir()
                .map_or_else(|_| String::new(), |cwd| shown(cwd.display().to_string())),
            hostname: shown(rustix::system::uname().nodename().to_string_lossy().into_owned()),
            server_time,
            reload_config_success: true,
            last_config_time: started,
            corruption_count: 0,
            goroutine_count: threads as u64,
            gomaxprocs: processors as u64,
            gomemlimit: i64::MAX,
            gogc: String::new(),
            godebug: String::new(),
            storage_retention: retention.map_or_else(String::new, |age| String::from(DurationText(age))),
        })
    });
    Ok(success(info.await?))
}

/// Read the version
///
/// `version` is the version of Prometheus whose language and API are implemented; `revision` is the version of
/// Tideline. The response has no member `features`, because with this member Grafana would request the ruler API of
/// Mimir.
#[utoipa::path(
    security(("token" = ["read", "timelines"])),
    get, path = "/api/v1/status/buildinfo", tag = "prometheus",
    responses((status = 200, description = "The version", body = Answer<BuildInfo>), PrometheusFailures)
)]
async fn build_info(_: KnownTable) -> Response {
    success(BuildInfo {
        version: VERSION.into(),
        revision: concat!("tideline-", env!("CARGO_PKG_VERSION")).into(),
        branch: "tideline".into(),
        build_user: "tideline".into(),
        build_date: String::new(),
        go_version: String::new(),
    })
}

/// Read the progress of the journal replay
///
/// The replay is always complete, because the service accepts requests only after the replay.
#[utoipa::path(
    security(("token" = ["read", "timelines"])),
    get, path = "/api/v1/status/walreplay", tag = "prometheus",
    responses((status = 200, description = "Replay complete", body = Answer<WalReplay>), PrometheusFailures)
)]
async fn wal_replay(_: KnownTable) -> Response {
    success(WalReplay::default())
}

/// Check that the process is running (Prometheus)
///
/// Requires no token at the root. Below a table it requires the token, and the table must exist.
#[utoipa::path(
    security(()),
    get, path = "/-/healthy", tag = "prometheus", operation_id = "prometheus_healthy",
    responses((
        status = 200, description = "The process is running", body = String, content_type = "text/plain", example = "Tideline is Healthy.\n"
    ))
)]
async fn healthy(_: KnownTable) -> &'static str {
    "Tideline is Healthy.\n"
}

/// Check that the service is ready (Prometheus)
///
/// Requires no token at the root. Below a table it requires the token, and the table must exist. `/ready` returns the
/// reasons.
#[utoipa::path(
    security(()),
    get, path = "/-/ready", tag = "prometheus", operation_id = "prometheus_ready",
    responses(
        (
            status = 200, description = "Ready", body = String, content_type = "text/plain",
            example = "Tideline is Ready.\n"
        ),
        (
            status = 503, description = "Not ready", body = String, content_type = "text/plain",
            example = "Tideline is not ready.\n"
        )
    )
)]
async fn ready(_: KnownTable, State(app): State<App>) -> Result<(StatusCode, &'static str)> {
    let service = app.clone();
    let readiness = blocking(move || Ok(service.service_engine().readiness())).await?;
    if readiness.reads && readiness.writes && !app.is_draining() {
        return Ok((StatusCode::OK, "Tideline is Ready.\n"));
    }
    Ok((StatusCode::SERVICE_UNAVAILABLE, "Tideline is not ready.\n"))
}

//! `/health`, `/ready`, `/metrics`, `/v1/backend`: routes for operators, load balancers and monitoring.
//!
//! `/health` reports on the process only. `/ready` reports whether reads and writes are accepted.

use std::io::Write as _;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use tideline_engine::FailedTier;
use tideline_engine::backend::Medium;
use tideline_openapi::ErrorCode;
use tideline_openapi::operation::{BackendRequests, BackendState, Health, Readiness, ReopeningTier};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::{App, blocking};
use crate::auth;
use crate::context::RequestId;
use crate::failure::{Failure, Result};
use crate::grant::Grant;
use crate::metrics;
use crate::resources::{Failures, whole_seconds};
use crate::stream::{self, ResponseWriter, WriteContext};

pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(health))
        .routes(routes!(ready))
        .routes(routes!(metrics_text))
        .routes(routes!(backend))
}

/// Check that the process is running
///
/// Requires no token. Also used by InfluxDB clients. `/ready` reports whether the service accepts reads and writes.
#[utoipa::path(
    security(()),
    get, path = "/health", tag = "operation",
    responses((status = 200, description = "The process is running", body = Health))
)]
async fn health() -> Json<Health> {
    Json(alive("ready for queries and writes"))
}

/// Returns the health of a process that responds.
pub(crate) fn alive(message: &str) -> Health {
    Health {
        name: "tideline".into(),
        message: message.into(),
        status: "pass".into(),
        checks: Vec::new(),
        version: env!("CARGO_PKG_VERSION").into(),
    }
}

/// Check that the service is ready
///
/// Requires no token. Returns 503 while writes are refused (the disk is nearly full, the engine failed, a node of the
/// cluster no longer syncs its commit log), while
/// reads of a tier are refused (its store cannot be reopened), and while the service shuts down; `reasons` lists
/// the causes. A failed store is reopened automatically; `reopening` contains the time until the next attempt.
///
/// A standby of a cluster returns 503 while no process owns the data, and while the owner cannot be reached or is not
/// ready.
///
/// `reasons` also lists warnings, with status 200:
///
/// * an archive that makes no progress: the points or rows stay in their tier
/// * messages that the job `fan_out` has not written to inboxes for an hour: inboxes read them from their feeds
/// * a search index that is being opened or built, or that has failed
/// * change streams that keep most of the bytes that are allowed for them
/// * webhooks that have stopped or are paused
/// * a clock in doubt, and a failed seal, which is retried
/// * warnings about the configuration, such as connections in clear text beyond this machine
/// * a certificate of the server that ends soon (within 14 days, or in the last quarter of a shorter lifetime), or has ended
/// * a file of the certificate, of its key, of token hashes or of a JWKS whose newest version is refused or cannot be read
/// * acknowledged writes that are replicated, and not yet on a disk of the cluster
/// * stored tokens that restrict nothing, because the server requires none
///
/// Warnings that name tables or change streams are listed only for requests that may read `/metrics`. For other
/// requests they are only counted.
#[utoipa::path(
    security(()),
    get, path = "/ready", tag = "operation",
    responses(
        (status = 200, description = "Ready", body = Readiness),
        (status = 503, description = "Not ready", body = Readiness)
    )
)]
async fn ready(
    State(app): State<App>,
    id: RequestId,
    request: Request,
) -> Result<(StatusCode, Json<Readiness>)> {
    let sees_names = auth::observes_everything(&request, &app.tokens);
    let engine = app.clone();
    let mut readiness = blocking(move || {
        let mut readiness = engine.service_engine().readiness();
        // The data stays in its tier, so the service stays ready.
        let archives = engine.scheduler.archives().into_iter();
        let archives = archives.map(|archive| (archive.table, archive.moves));
        let rows = engine.scheduler.row_archives().into_iter();
        let rows = rows.map(|state| (state.table(), state.moves));
        let stalled = archives.chain(rows).filter_map(|(table, moves)| {
            let reason = moves.stalled?;
            Some(format!("archive of table {}: {reason}", table.name))
        });
        readiness.table_warnings.extend(stalled);
        readiness.table_warnings.extend(engine.change_streams.warning());
        readiness
            .table_warnings
            .extend(engine.change_streams.webhook_warnings());
        readiness.reasons.extend_from_slice(&engine.settings.warnings);
        readiness.reasons.extend(engine.file_warnings());
        readiness.reasons.extend(engine.tokens.warning());
        Ok(readiness)
    })
    .await?;
    match (sees_names, readiness.table_warnings.len()) {
        (true, _) => readiness.reasons.append(&mut readiness.table_warnings),
        (false, 0) => {}
        (false, warnings) => readiness.reasons.push(format!(
            "warnings about tables or change streams: {warnings}; use a token that may read /metrics to list them"
        )),
    }
    if app.is_draining() {
        readiness.writes = false;
        readiness.reasons.push("shutting down".into());
    }
    let is_ready = readiness.reads && readiness.writes;
    let up = app.service_engine().clock().monotonic().saturating_sub(app.began);
    let body = Readiness {
        status: if is_ready { "ready" } else { "not ready" }.into(),
        role: "owner".into(),
        owner: None,
        reads: readiness.reads,
        writes: readiness.writes,
        reasons: readiness.reasons,
        reopening: readiness.reopening.into_iter().map(to_reopening).collect(),
        started: app.started.to_rfc3339(),
        up: String::from(whole_seconds(up)),
        request_id: id.into(),
    };
    let status = if is_ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    Ok((status, Json(body)))
}

fn to_reopening(failed: FailedTier) -> ReopeningTier {
    let FailedTier {
        tier,
        reason,
        reopening,
    } = failed;
    ReopeningTier {
        tier: tier.name().into(),
        reason,
        reads: reopening.reads,
        is_running: reopening.is_running,
        attempts: reopening.attempts,
        last_error: reopening.last_error,
        next_in: whole_seconds(reopening.next_in).into(),
    }
}

/// Read the metrics of the service
///
/// Returns the Prometheus text format, or OpenMetrics if the client accepts it. A standby of a cluster returns only the
/// metrics of its own process, and requires no token for them. With `of=owner`, it returns the metrics of the owner.
#[utoipa::path(
    security(("token" = ["observe"])),
    get, path = "/metrics", tag = "operation",
    params(("of" = Option<String>, Query, description = "`owner`: a standby of a cluster forwards the request to the owner of the data. Other servers ignore the parameter.")),
    responses((
        status = 200, description = "Prometheus text", body = String, content_type = "text/plain",
        example = "# TYPE tideline_timelines gauge\ntideline_timelines 36.0\n# EOF\n"
    ), Failures)
)]
async fn metrics_text(app: Grant, headers: HeaderMap) -> Result<Response> {
    // The metrics include figures of all tables.
    app.access.check_all()?;
    let content_type = metrics::content_type(&headers);
    let running = app.clone();
    let write = move |writer: &mut ResponseWriter| {
        let text = metrics::render(&running);
        let text = text.map_err(|_| Failure::new(ErrorCode::Internal, "metrics could not be encoded"))?;
        writer.write_all(text.as_bytes()).map_err(stream::client_left)
    };
    stream::respond(&app, content_type, WriteContext::default(), write).await
}

/// Read the guarantees of the storage engine
///
/// `acknowledged` changes when a node of the cluster restarts with another `commitlog_sync`, if the setting
/// `cassandra.acknowledged` accepts `replicated`; otherwise writes are then refused. The other guarantees do not change
/// while the server runs. If `acknowledged` is `replicated`, every response also has the header
/// `Tideline-Acknowledged: replicated`.
#[utoipa::path(
    security(("token" = ["observe"])),
    get, path = "/v1/backend", tag = "operation",
    responses((status = 200, description = "Engine and its guarantees", body = BackendState), Failures)
)]
async fn backend(app: Grant) -> Json<BackendState> {
    let log = app.engine.store().log();
    let backend = log.backend();
    let capabilities = backend.capabilities();
    let requests = backend.requests().into_iter().map(|counts| BackendRequests {
        kind: counts.kind.into(),
        done: counts.done,
        failed: counts.failed,
        repeated: counts.repeated,
        seconds: counts.time.as_secs_f64(),
    });
    Json(BackendState {
        engine: capabilities.engine.into(),
        acknowledged: capabilities.acknowledged.name().into(),
        is_shared: capabilities.is_shared,
        medium: capabilities.medium.name().into(),
        backup: match capabilities.medium {
            Medium::Folder => "folder_copy",
            Medium::Cluster => "cluster_snapshot",
        }
        .into(),
        buffers_writes: capabilities.buffers_writes,
        limits_free_space: capabilities.limits_free_space,
        frees_at_once: capabilities.frees_at_once,
        has_offline_check: capabilities.has_offline_check,
        epoch: log.epoch().0,
        requests_in_flight: capabilities.requests_in_flight as u64,
        page_rows: capabilities.page_advice.rows_max as u64,
        page_bytes: capabilities.page_advice.bytes_max as u64,
        requests: requests.collect(),
    })
}

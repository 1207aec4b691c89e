//! Routes of Pushgateway clients: `/metrics/job/{job}{/label/value…}`.
//!
//! A Pushgateway exposes the last push of a group to every scrape indefinitely. Tideline is not scraped: a push is
//! stored once, with the time of its arrival, and ages like any other sample. Replacing a group (PUT) and adding to
//! it (POST) are therefore the same. DELETE marks the group as ended: its series get a stale marker and are no longer
//! returned by queries at the current time. Earlier samples stay.

use axum::extract::Request;
use axum::http::StatusCode;
use axum::routing::put;
use serde::Deserialize;
use tideline_ingest::group::{self, PUSH_TIME};
use tideline_prometheus::ImportOptions;
use tideline_prometheus::import::read_group;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::samples::ImportFailures;
use super::{PrometheusTable, import};
use crate::app::App;
use crate::failure::{Failure, Result};
use crate::grant::Grant;

pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(replace_group, add_to_group, end_group))
        .route(
            "/metrics/{*group}",
            put(replace_group).post(add_to_group).delete(end_group),
        )
}

/// Path parameter of a group, for the OpenAPI document; see [`read_group`].
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "used only for the OpenAPI document")]
struct JobPath {
    /// Value of the label `job`
    #[param(example = "nightly")]
    job: String,
}

/// Push the metrics of a group (Pushgateway)
///
/// The path identifies the group: `/metrics/job/nightly/instance/db-1` adds the labels `job` and `instance` to every
/// series and replaces labels of the same names. A value with a slash is written in base64: `/metrics/job@base64/YS9i`.
///
/// The samples are stored with the time of their arrival, together with `push_time_seconds`. PUT and POST are the same,
/// because a push is not exposed again later. The formats are those of `/api/v1/import/prometheus`.
#[utoipa::path(
    security(("token" = ["write", "timelines"])),
    put, path = "/metrics/job/{job}", tag = "prometheus",
    params(JobPath),
    request_body(
        content = String, content_type = "text/plain", description = "Metrics; also gzip, deflate or zstd",
        example = "# TYPE backup_bytes gauge\nbackup_bytes 1234567\n"
    ),
    responses(
        (status = 200, description = "All samples were stored"),
        ImportFailures
    )
)]
async fn replace_group(
    app: Grant,
    PrometheusTable(table): PrometheusTable,
    request: Request,
) -> Result<StatusCode> {
    push(&app, table, request).await
}

/// Push more metrics of a group (Pushgateway)
///
/// Same as PUT.
#[utoipa::path(
    security(("token" = ["write", "timelines"])),
    post, path = "/metrics/job/{job}", tag = "prometheus",
    params(JobPath),
    request_body(
        content = String, content_type = "text/plain", description = "Metrics; also gzip, deflate or zstd",
        example = "# TYPE backup_bytes gauge\nbackup_bytes 1234567\n"
    ),
    responses(
        (status = 200, description = "All samples were stored"),
        ImportFailures
    )
)]
async fn add_to_group(
    app: Grant,
    PrometheusTable(table): PrometheusTable,
    request: Request,
) -> Result<StatusCode> {
    push(&app, table, request).await
}

/// End a group (Pushgateway)
///
/// Writes a stale marker for each series of the group, so that queries at the current time no longer return them.
/// Earlier samples stay; use `/v1/tables/{table}/points/delete` to delete them. Ending a group that was never pushed
/// has no effect.
#[utoipa::path(
    security(("token" = ["write", "timelines"])),
    delete, path = "/metrics/job/{job}", tag = "prometheus",
    params(JobPath),
    responses(
        (status = 202, description = "The group has ended"),
        (status = 400, description = "The group in the path is not valid", body = String, content_type = "text/plain", example = json!("label \"instance\" has no value\n")),
        (status = 503, description = "Retry after `Retry-After`", body = String, content_type = "text/plain", example = json!("8 changes are running, which is the limit, and none ended in time\n"))
    )
)]
async fn end_group(
    app: Grant,
    PrometheusTable(table): PrometheusTable,
    request: Request,
) -> Result<StatusCode> {
    let group = read_group(request.uri().path())?;
    app.change(move |engine| {
        let table = engine.table(&table)?;
        Ok(group::end(engine, &table, &group)?)
    })
    .await?;
    Ok(StatusCode::ACCEPTED)
}

async fn push(app: &Grant, table: String, request: Request) -> Result<StatusCode> {
    // An empty body writes nothing, so a missing table must be detected here.
    let known = app.engine.table(&table).map_err(Failure::from);
    let group = match known.and_then(|_| Ok(read_group(request.uri().path())?)) {
        Ok(group) => group,
        Err(failure) => {
            app.bodies.discard(request).await;
            return Err(failure);
        }
    };
    let now = match app.engine.need_arrival_time() {
        Ok(now) => now,
        Err(error) => {
            app.bodies.discard(request).await;
            return Err(error.into());
        }
    };
    let seconds = now.nanos() as f64 / 1e9;
    let import = ImportOptions {
        millis: None,
        extra_labels: group.into_iter().collect(),
        extra_samples: vec![(PUSH_TIME.to_owned(), seconds)],
    };
    import::store_text(app, "pushgateway", table, import, request).await?;
    Ok(StatusCode::OK)
}

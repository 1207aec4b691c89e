//! What clients of a Pushgateway send: `/metrics/job/{job}{/label/value…}`.
//!
//! A Pushgateway shows the last push of a group to every scrape, for ever. Here nothing is scraped: a push is stored
//! once, at its arrival, and is then as old as it is. So replacing (PUT) and adding (POST) come to the same, and DELETE
//! says that the group has ended: its series get a stale marker, and are gone from every question about now. What was
//! pushed before stays.

use axum::extract::{Request, State};
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

pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(replace_group, add_to_group, end_group))
        .route(
            "/metrics/{*group}",
            put(replace_group).post(add_to_group).delete(end_group),
        )
}

/// The path of a group, for the document; see [`read_group`].
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "the document is made of it")]
struct JobPath {
    /// Value of the label `job`
    #[param(example = "nightly")]
    job: String,
}

/// Push the metrics of a group (Pushgateway)
///
/// The path names the group: `/metrics/job/nightly/instance/db-1` gives every series the labels `job` and `instance`,
/// in place of its own. A value that holds a slash is written in base64: `/metrics/job@base64/YS9i`.
///
/// The samples are stored at their arrival, with `push_time_seconds` beside them. Nothing is shown again later, so PUT
/// and POST are the same here. The formats of `/api/v1/import/prometheus` are read.
#[utoipa::path(
    put, path = "/metrics/job/{job}", tag = "prometheus",
    params(JobPath),
    request_body(
        content = String, content_type = "text/plain", description = "A page, also gzip, deflate or zstd",
        example = "# TYPE backup_bytes gauge\nbackup_bytes 1234567\n"
    ),
    responses(
        (status = 200, description = "All stored"),
        ImportFailures
    )
)]
async fn replace_group(
    State(app): State<App>,
    PrometheusTable(table): PrometheusTable,
    request: Request,
) -> Result<StatusCode> {
    push(&app, table, request).await
}

/// Push more metrics of a group (Pushgateway)
///
/// The same as PUT.
#[utoipa::path(
    post, path = "/metrics/job/{job}", tag = "prometheus",
    params(JobPath),
    request_body(
        content = String, content_type = "text/plain", description = "A page, also gzip, deflate or zstd",
        example = "# TYPE backup_bytes gauge\nbackup_bytes 1234567\n"
    ),
    responses(
        (status = 200, description = "All stored"),
        ImportFailures
    )
)]
async fn add_to_group(
    State(app): State<App>,
    PrometheusTable(table): PrometheusTable,
    request: Request,
) -> Result<StatusCode> {
    push(&app, table, request).await
}

/// End a group (Pushgateway)
///
/// Its series get a stale marker, so that questions about now do not find them. What was pushed stays: use
/// `/v1/tables/{table}/points/delete` to delete it. A group that was never pushed is ended already.
#[utoipa::path(
    delete, path = "/metrics/job/{job}", tag = "prometheus",
    params(JobPath),
    responses(
        (status = 202, description = "It has ended"),
        (status = 400, description = "The group is wrong", body = String, content_type = "text/plain", example = json!("label \"instance\" has no value\n")),
        (status = 503, description = "Send it again after `Retry-After`", body = String, content_type = "text/plain", example = json!("100 writes are running\n"))
    )
)]
async fn end_group(
    State(app): State<App>,
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

async fn push(app: &App, table: String, request: Request) -> Result<StatusCode> {
    // An empty page writes nothing and would not notice that its table is missing.
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

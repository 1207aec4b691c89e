//! What InfluxDB 2 agents speak: `/api/v2/write`, `/api/v2/buckets`.

use axum::Json;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use serde::Deserialize;
use tideline_openapi::influx::{Bucket, BucketList, InfluxV2Error};
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::extract::Query;
use crate::failure::Result;
use crate::resources::influx;

pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(write))
        .routes(routes!(buckets))
}

/// Parameters of a write. Unknown ones (`org`, `orgID`, …) are ignored.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct WriteQuery {
    /// A table, or any other name: then points go to the default table with the tag `db`. What follows a slash (a
    /// retention policy) is ignored. Without it: the default table.
    #[serde(default)]
    #[param(example = "telegraf")]
    bucket: String,
    /// The unit of times: `ns` (default), `us`, `ms`, `s`.
    #[param(example = "ns")]
    precision: Option<String>,
}

/// Write line protocol (InfluxDB 2)
///
/// Good lines of a batch are stored also when the answer is 400. The token is sent as `Authorization: Token …`.
#[utoipa::path(
    post, path = "/api/v2/write", tag = "influx", operation_id = "influx_v2_write",
    params(WriteQuery),
    request_body(
        content = String, content_type = "text/plain", description = "Line protocol, also gzip",
        example = "cpu,host=web-1 usage_user=12.5 1795176000000000000\n"
    ),
    responses(
        (status = 204, description = "All stored"),
        (status = 400, description = "Some or all lines were bad", body = InfluxV2Error),
        (status = 401, description = "The token is missing or wrong", body = InfluxV2Error),
        (status = 413, description = "The body is too large", body = InfluxV2Error),
        (status = 415, description = "The encoding is not read here", body = InfluxV2Error),
        (status = 422, description = "The `Idempotency-Key` was used before with another body, or `bucket` is a table of another model than series", body = InfluxV2Error),
        (status = 429, description = "The table takes no more new timelines just now: send it again after `Retry-After`", body = InfluxV2Error),
        (status = 503, description = "Too much at once, or the disk is nearly full: send it again after `Retry-After`", body = InfluxV2Error)
    )
)]
async fn write(
    State(app): State<App>,
    Query(query): Query<WriteQuery>,
    request: Request,
) -> Result<StatusCode> {
    let bucket = query.bucket.split('/').next().unwrap_or_default();
    influx::write(&app, request, "influx_v2", bucket.to_owned(), query.precision).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Which buckets.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct BucketQuery {
    /// The bucket of this name; it always exists, because every name can be written to.
    #[param(example = "telegraf")]
    name: Option<String>,
}

/// List buckets (InfluxDB 2)
///
/// Buckets are the tables. A client that asks for one by name finds it.
#[utoipa::path(
    get, path = "/api/v2/buckets", tag = "influx",
    params(BucketQuery),
    responses(
        (status = 200, description = "Buckets", body = BucketList),
        (status = 401, description = "The token is missing or wrong", body = InfluxV2Error)
    )
)]
async fn buckets(State(app): State<App>, Query(query): Query<BucketQuery>) -> Result<Json<BucketList>> {
    let names = match query.name {
        Some(name) => vec![name],
        None => {
            let names = app.read(|engine| {
                Ok(engine
                    .series_tables()
                    .iter()
                    .map(|table| table.name().to_string())
                    .collect())
            });
            names.await?
        }
    };
    let bucket = |name: String| Bucket {
        id: name.clone(),
        org_id: "tideline".into(),
        kind: "user".into(),
        name,
        retention_rules: Vec::new(),
    };
    Ok(Json(BucketList {
        buckets: names.into_iter().map(bucket).collect(),
    }))
}

//! Routes of InfluxDB 2 agents: `/api/v2/write`, `/api/v2/buckets`.
//!
//! Writes share the code of InfluxDB 1 in [`super::influx`]; organizations are ignored.

use axum::Json;
use axum::extract::Request;
use axum::http::StatusCode;
use serde::Deserialize;
use tideline_openapi::influx::{Bucket, BucketList, InfluxV2Error};
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::extract::Query;
use crate::failure::Result;
use crate::grant::{Grant, Requester};
use crate::resources::influx;

pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(write))
        .routes(routes!(buckets))
}

/// Parameters of a write. Unknown parameters (`org`, `orgID`, …) are ignored.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct WriteQuery {
    /// Name of a table. Points for any other name are written to the default table with the tag `db`. The part after a
    /// slash (a retention policy) is ignored. Without `bucket`, points are written to the default table.
    #[serde(default)]
    #[param(example = "telegraf")]
    bucket: String,
    /// Unit of timestamps: `ns` (default), `us`, `ms`, `s`.
    #[param(example = "ns")]
    precision: Option<String>,
}

/// Write line protocol (InfluxDB 2)
///
/// Valid lines of a batch are stored even if the response is 400. Send the token as `Authorization: Token …`.
#[utoipa::path(
    security(("token" = ["write", "timelines"])),
    post, path = "/api/v2/write", tag = "influx", operation_id = "influx_v2_write",
    params(WriteQuery),
    request_body(
        content = String, content_type = "text/plain", description = "Line protocol, optionally gzip-compressed",
        example = "cpu,host=web-1 usage_user=12.5 1795176000000000000\n"
    ),
    responses(
        (status = 204, description = "All points were stored"),
        (status = 400, description = "Some or all lines were rejected", body = InfluxV2Error),
        (status = 401, description = "The token is missing, wrong or has expired", body = InfluxV2Error),
        (status = 413, description = "The body is too large", body = InfluxV2Error),
        (status = 415, description = "The content encoding is not supported", body = InfluxV2Error),
        (status = 422, description = "The `Idempotency-Key` was used before with another body, or `bucket` is a table without the model series", body = InfluxV2Error),
        (status = 429, description = "The table has reached its limit of new timelines; retry after `Retry-After`", body = InfluxV2Error),
        (status = 503, description = "Too many concurrent requests, or the disk is nearly full; retry after `Retry-After`", body = InfluxV2Error)
    )
)]
async fn write(app: Grant, Query(query): Query<WriteQuery>, request: Request) -> Result<StatusCode> {
    let bucket = query.bucket.split('/').next().unwrap_or_default();
    influx::write(&app, request, "influx_v2", bucket.to_owned(), query.precision).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Filter of buckets.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct BucketQuery {
    /// Name of the bucket to return. Every name is a bucket, because points can be written to every name.
    #[param(example = "telegraf")]
    name: Option<String>,
}

/// List buckets (InfluxDB 2)
///
/// Buckets are the tables whose model is `series`. A request for a name always returns a bucket, even if no table has
/// this name.
#[utoipa::path(
    security(("token" = [])),
    get, path = "/api/v2/buckets", tag = "influx",
    params(BucketQuery),
    responses(
        (status = 200, description = "Buckets", body = BucketList),
        (status = 401, description = "The token is missing, wrong or has expired", body = InfluxV2Error)
    )
)]
async fn buckets(requester: Requester, Query(query): Query<BucketQuery>) -> Result<Json<BucketList>> {
    let app = requester.strongest_grant()?;
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

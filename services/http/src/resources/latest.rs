//! `/v1/tables/{table}/latest`: newest value of each field.

use axum::http::HeaderMap;
use axum::response::Response;
use tideline_engine::model::TimeRange;
use tideline_openapi::query::{LatestQuery, PointAnswer};
use tideline_query::PageToken;
use tideline_results::ResultOptions;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::context::RequestId;
use crate::extract::{Json, Path};
use crate::failure::Result;
use crate::grant::Grant;
use crate::resources::query;
use crate::resources::{QueryFailures, TablePath};
use crate::saved_search;

pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(latest))
}

/// Read latest values
///
/// Returns the newest value of each field of the selected timelines, in the formats of a query, ordered by timeline id.
/// Fields may have been written at different times. A series therefore has one row per timestamp at which one of its
/// fields was last written, newest first, and each field is in exactly one row.
#[utoipa::path(
    security(("token" = ["read", "timelines"])),
    post, path = "/v1/tables/{table}/latest", tag = "points",
    params(TablePath),
    request_body = LatestQuery,
    responses(
        (status = 200, description = "The latest values", content(
            (PointAnswer = "application/json"),
            (String = "application/x-ndjson", example = ndjson_example),
            (String = "text/csv", example = csv_example)
        )),
        QueryFailures
    )
)]
async fn latest(
    app: Grant,
    request_id: RequestId,
    Path(TablePath { table }): Path<TablePath>,
    headers: HeaderMap,
    Json(query): Json<LatestQuery>,
) -> Result<Response> {
    let options = ResultOptions {
        format: query::accepted_format(&headers)?,
        times: query.times,
        integers: query.int64,
        plan: false,
        request_id: request_id.clone().into(),
        has_limit: query.limit.is_some(),
    };
    let description = query::describe(request_id, &table, "latest", &query);
    let timelines = saved_search::expand_optional(&app, &table, query.timelines)?;
    let query = tideline_query::LatestQuery {
        details: query.sample_details,
        timelines: query::to_selector(timelines, app.engine.now())?,
        fields: query.fields,
        tier: query.tier.into(),
        limit: query.limit,
        after: query.page.as_deref().map(PageToken::parse).transpose()?,
        budget: query::to_budget(&query.budget)?,
    };
    // Without `tier`, the newest values normally come from memory. Segments are read only for timelines whose values
    // are not in memory, for example soon after a start. A request without `tier` therefore never needs a permit for
    // queries of cold points.
    let read_range = query.tier.map(|tier| (TimeRange::ALL, Some(tier)));
    query::respond(
        &app,
        description,
        read_range,
        options,
        move |querier, table, cancel, sink| querier.latest(table, &query, cancel, sink),
    )
    .await
}

fn ndjson_example() -> &'static str {
    "{\"id\":\"3f2a9c017bde45a18c40f1e29d3b6a57\",\"measurement\":\"cpu\",\"host\":\"sim-001\",\"time\":\"2026-11-20T12:00:00Z\",\"usage_user\":41.5}\n{\"more\":false,\"next\":null,\"cost\":{\"timelines\":1,\"chunks\":0,\"points\":0,\"values\":1,\"bytes\":0,\"elapsed_ms\":0.05,\"tiers\":{\"hot\":{\"segments\":0,\"chunks\":0,\"points\":0,\"values\":1,\"bytes\":0,\"summaries\":0,\"summarized_points\":0},\"cold\":{\"segments\":0,\"chunks\":0,\"points\":0,\"values\":0,\"bytes\":0,\"summaries\":0,\"summarized_points\":0}}}}\n"
}

fn csv_example() -> &'static str {
    "id,measurement,host,time,usage_user\r\n3f2a9c017bde45a18c40f1e29d3b6a57,cpu,sim-001,2026-11-20T12:00:00Z,41.5\r\n"
}

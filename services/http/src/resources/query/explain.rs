//! `/v1/tables/{table}/explain`: execution plan and estimated cost of a query.

use tideline_engine::model::Tier;
use tideline_openapi::query::{Explanation, PointQuery, TierEstimate, TierEstimates, UnsealedEstimate};
use tideline_query::Cancel;
use tideline_results::{plan_view, suggestion_view};

use super::point_query;
use crate::context::RequestId;
use crate::extract::{Json, Path};
use crate::failure::Result;
use crate::grant::Grant;
use crate::resources::{QueryFailures, TablePath, span};
use crate::saved_search;

/// Explain a query
///
/// Returns the plan of a query for `/query` without running it: timelines, groups, windows and cells, the use
/// of stored summaries instead of points, and an estimate of the reads from each tier. The request reads no
/// points. It returns the same errors as the query for invalid requests and exceeded limits. To get the
/// actual plan of a query, set `"plan": true` in the query; the plan is then in the member `cost` of the response.
#[utoipa::path(
    security(("token" = ["read", "timelines"])),
    post, path = "/v1/tables/{table}/explain", tag = "points",
    params(TablePath),
    request_body = PointQuery,
    responses((status = 200, description = "The plan", body = Explanation), QueryFailures)
)]
pub(super) async fn explain(
    app: Grant,
    request_id: RequestId,
    Path(TablePath { table }): Path<TablePath>,
    Json(mut query): Json<PointQuery>,
) -> Result<axum::Json<Explanation>> {
    query.timelines = saved_search::expand_optional(&app, &table, query.timelines)?;
    let query = point_query::to_point_query(query, app.engine.now())?;
    let querier = app.clone();
    let explained = app.read_table(table, move |_, table| {
        Ok(querier.querier.explain(table, &query, &Cancel::new())?)
    });
    let explained = explained.await?;
    let estimate = |tier| {
        let estimate = explained.of(tier);
        TierEstimate {
            segments: estimate.segments,
            chunks: estimate.chunks,
            points: estimate.points,
            bytes: estimate.bytes,
        }
    };
    let estimate = TierEstimates {
        hot: estimate(Tier::Hot),
        cold: estimate(Tier::Cold),
        archive: estimate(Tier::Archive),
        unsealed: UnsealedEstimate {
            heads: explained.unsealed.heads,
            points: explained.unsealed.points,
            bytes: explained.unsealed.bytes,
            span: explained
                .unsealed
                .span
                .map(|(first, last)| span((first, last.saturating_add(1)))),
        },
    };
    Ok(axum::Json(Explanation {
        request_id: request_id.into(),
        columns: explained.columns,
        suggestions: explained.suggestions.into_iter().map(suggestion_view).collect(),
        plan: plan_view(explained.plan),
        estimate,
    }))
}

//! `/v1/tables/{table}/timelines/facets`: counts of timelines by values.

use axum::Json;
use tideline_engine::FacetCounts;
use tideline_engine::condition::{Condition, Subject};
use tideline_engine::search;
use tideline_openapi::facet::{FacetGroup, FacetKey, FacetList, FacetOrder, FacetSearch};
use tideline_results::attribute_view;
use tideline_results::suggestion_view;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::condition::one_subject;
use crate::context::RequestId;
use crate::extract::{Json as JsonBody, Path};
use crate::failure::{Failure, Result};
use crate::grant::Grant;
use crate::resources::{Failures, TablePath};
use crate::saved_search::expand;

/// Default of the maximum number of groups in each list.
const GROUPS_DEFAULT: usize = 10;

pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(facets))
}

/// Count timelines by values
///
/// Counts the timelines that match a condition, grouped by the values of a tag, an attribute, the measurement or the
/// source. Each group can be divided further by the values of the next key.
#[utoipa::path(
    security(("token" = ["read", "timelines"])),
    post, path = "/v1/tables/{table}/timelines/facets", tag = "timelines",
    params(TablePath),
    request_body = FacetSearch,
    responses((status = 200, description = "The counts", body = FacetList), Failures)
)]
async fn facets(
    app: Grant,
    id: RequestId,
    Path(TablePath { table }): Path<TablePath>,
    JsonBody(search): JsonBody<FacetSearch>,
) -> Result<Json<FacetList>> {
    let now = app.engine.now();
    let condition = search
        .condition
        .map(|condition| Ok::<_, Failure>(expand(&app, &table, condition.0)?.resolve(now)));
    let request = search::FacetRequest {
        condition: condition.transpose()?.unwrap_or(Condition::All),
        by: search.by.into_iter().map(to_subject).collect::<Result<_>>()?,
        limit: search.limit.unwrap_or(GROUPS_DEFAULT),
        order: match search.order {
            FacetOrder::Count => search::FacetOrder::Count,
            FacetOrder::Value => search::FacetOrder::Value,
        },
    };
    let depth = request.by.len();
    let facets = app.search(&app.queries, table, move |engine, table, stop| {
        Ok(engine.facets(table, &request, stop)?)
    });
    let FacetCounts { facets, suggestions } = facets.await?;
    Ok(Json(FacetList {
        timelines: facets.timelines,
        distinct: facets.distinct,
        groups: shown(facets.groups, depth - 1),
        suggestions: suggestions.into_iter().map(suggestion_view).collect(),
        request_id: id.into(),
    }))
}

fn to_subject(key: FacetKey) -> Result<Subject> {
    one_subject(key.tag, key.attribute, key.property)
        .ok_or_else(|| Failure::invalid("a facet key needs exactly one of tag, attribute and property"))
}

/// Converts groups for the response; `levels` is the number of nested levels below them.
fn shown(groups: Vec<search::FacetGroup>, levels: usize) -> Vec<FacetGroup> {
    let groups = groups.into_iter().map(|group| FacetGroup {
        value: group.value.map(attribute_view),
        timelines: group.within.timelines,
        distinct: (levels > 0).then_some(group.within.distinct),
        groups: (levels > 0).then(|| shown(group.within.groups, levels.saturating_sub(1))),
    });
    groups.collect()
}

//! `/v1/tables/{table}/timelines`: lists, searches, describes and deletes timelines, and changes their attributes.
//!
//! Conditions are expanded and resolved here; the search index and the catalog evaluate them.

use std::collections::BTreeMap;

use axum::Json;
use axum::http::StatusCode;
use tideline_engine::condition::operators::Equals;
use tideline_engine::condition::{Condition as Tree, Literal, Subject};
use tideline_engine::model::{TableModel, TimelineId, Timestamp};
use tideline_engine::search::{self, FindRequest};
use tideline_engine::{Deleted, Timeline, TimelinePage, TimelineSelector};
use tideline_openapi::condition::Property;
use tideline_openapi::delete::{DeleteReport, DeleteTimelines};
use tideline_openapi::timeline::{
    AttributeChanges, FoundTimeline, Highlight, TextSpan, TimelineChanged, TimelineDetail, TimelineList,
    TimelineQuery, TimelineSearch, TimelineWritten,
};
use tideline_openapi::{AttributeValue, Condition};
use tideline_results::{attribute_view, suggestion_view, timeline_view};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::audit_detail;
use crate::condition::{resolve_surely, to_attribute, to_selector, to_sort};
use crate::context::RequestId;
use crate::extract::{Json as JsonBody, Path, Query};
use crate::failure::{Failure, Result};
use crate::grant::Grant;
use crate::resources::{Failures, TablePath, TimelinePath};
use crate::saved_search::{expand, expand_selector};

/// Default number of timelines per page.
const PAGE_DEFAULT: usize = 100;

pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(search))
        .routes(routes!(delete))
        .routes(routes!(read, delete_one))
        .routes(routes!(set_attributes))
}

/// List timelines
///
/// A short form of the search: a timeline must match all given parameters. The timelines are ordered by id.
#[utoipa::path(
    security(("token" = ["read", "timelines"])),
    get, path = "/v1/tables/{table}/timelines", tag = "timelines", operation_id = "list_timelines",
    params(TablePath, TimelineQuery),
    responses((status = 200, description = "A page of timelines", body = TimelineList), Failures)
)]
async fn list(
    app: Grant,
    id: RequestId,
    Path(TablePath { table }): Path<TablePath>,
    Query(query): Query<TimelineQuery>,
) -> Result<Json<TimelineList>> {
    let equals = |subject, value| Tree::leaf(subject, Equals(Literal::Text(value)));
    let measurement = query.measurement.map(|value| equals(Subject::Measurement, value));
    let source = query.source.map(|value| equals(Subject::Source, value));
    let search = TimelineSearch {
        condition: Some(Condition(Tree::And(
            measurement.into_iter().chain(source).collect(),
        ))),
        limit: query.limit,
        page: query.page,
        ..TimelineSearch::default()
    };
    find(&app, table, search, id).await
}

/// Search timelines
///
/// Finds timelines by a tree of conditions on measurement, source, tags, attributes, first and last seen. A new
/// timeline can be found as soon as its first write is acknowledged.
#[utoipa::path(
    security(("token" = ["read", "timelines"])),
    post, path = "/v1/tables/{table}/timelines/search", tag = "timelines",
    params(TablePath),
    request_body = TimelineSearch,
    responses((status = 200, description = "A page of timelines", body = TimelineList), Failures)
)]
async fn search(
    app: Grant,
    id: RequestId,
    Path(TablePath { table }): Path<TablePath>,
    JsonBody(search): JsonBody<TimelineSearch>,
) -> Result<Json<TimelineList>> {
    find(&app, table, search, id).await
}

/// Delete timelines
///
/// Deletes the timelines that the selector selects at the time of the request, with all their points and attributes.
/// After the response, no query and no search returns them. A timeline that is written again later is created again
/// with the same id. Repeating a delete is safe.
#[utoipa::path(
    security(("token" = ["write", "timelines"])),
    post, path = "/v1/tables/{table}/timelines/delete", tag = "timelines", operation_id = "delete_timelines",
    params(TablePath),
    request_body = DeleteTimelines,
    responses((status = 200, description = "The timelines are deleted", body = DeleteReport), Failures)
)]
async fn delete(
    app: Grant,
    id: RequestId,
    Path(TablePath { table }): Path<TablePath>,
    JsonBody(DeleteTimelines { timelines }): JsonBody<DeleteTimelines>,
) -> Result<Json<DeleteReport>> {
    let timelines = expand_selector(&app, &table, timelines)?;
    app.note_detail(format!("timelines: {}", audit_detail::json(&timelines)));
    let selector = resolve_surely(&app.engine, |now| to_selector(timelines.clone(), now))?;
    let (deleted, unknown) = delete_selected(&app, table, selector).await?;
    // Suggestions are names of the table, which a token that only writes must not see.
    let reads = app.engine.check_reads().is_ok();
    Ok(Json(DeleteReport {
        timelines: deleted.timelines,
        suggestions: match reads {
            true => unknown.into_iter().map(suggestion_view).collect(),
            false => Vec::new(),
        },
        request_id: id.into(),
    }))
}

/// Delete a timeline
///
/// Deletes the timeline with all its points and attributes. If it is written again later, it is created again with the
/// same id.
#[utoipa::path(
    security(("token" = ["write", "timelines"])),
    delete, path = "/v1/tables/{table}/timelines/{id}", tag = "timelines",
    params(TimelinePath),
    responses((status = 204, description = "The timeline is deleted"), Failures)
)]
async fn delete_one(app: Grant, Path(TimelinePath { table, id }): Path<TimelinePath>) -> Result<StatusCode> {
    let selector = TimelineSelector::Ids(vec![parse_id(&id)?]);
    delete_selected(&app, table, selector).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Deletes the selected timelines. Also returns names in the condition that the table does not have, with
/// similar names.
async fn delete_selected(
    app: &Grant,
    table: String,
    selector: TimelineSelector,
) -> Result<(Deleted, Vec<tideline_engine::Suggestion>)> {
    let deleted = app.search(&app.changes, table, move |engine, table, stop| {
        let unknown = selector.unknown_names(table);
        Ok((engine.delete_timelines(table, &selector, stop)?, unknown))
    });
    deleted.await
}

/// Describe a timeline
#[utoipa::path(
    security(("token" = ["read", "timelines"])),
    get, path = "/v1/tables/{table}/timelines/{id}", tag = "timelines", operation_id = "read_timeline",
    params(TimelinePath),
    responses((status = 200, description = "The timeline", body = TimelineDetail), Failures)
)]
async fn read(
    app: Grant,
    request_id: RequestId,
    Path(TimelinePath { table, id }): Path<TimelinePath>,
) -> Result<Json<TimelineDetail>> {
    let id = parse_id(&id)?;
    let timeline = app
        .read_table(table, move |engine, table| Ok(engine.timeline(table, id)?))
        .await?;
    Ok(detail(timeline, request_id))
}

/// Set and remove attributes of a timeline
///
/// A value sets an attribute, `null` removes it, and attributes that are not named stay. The change is durable and
/// searchable when the response is sent. A token without a role that reads gets only the id of the timeline and the
/// attributes that the request has set.
#[utoipa::path(
    security(("token" = ["write", "timelines"])),
    patch, path = "/v1/tables/{table}/timelines/{id}/attributes", tag = "timelines",
    params(TimelinePath),
    request_body = AttributeChanges,
    responses((status = 200, description = "The timeline after the change", body = TimelineWritten), Failures)
)]
async fn set_attributes(
    app: Grant,
    request_id: RequestId,
    Path(TimelinePath { table, id }): Path<TimelinePath>,
    JsonBody(AttributeChanges(changes)): JsonBody<AttributeChanges>,
) -> Result<Json<TimelineWritten>> {
    let id = parse_id(&id)?;
    let changes = to_changes(changes, app.engine.now())?;
    let written = app.change(move |engine| {
        let table = engine.table(&table)?;
        let timeline = engine.set_attributes(&table, id, &changes)?;
        Ok(match engine.check_reads() {
            Ok(()) => TimelineWritten::Timeline(TimelineDetail {
                timeline: timeline_view(timeline),
                request_id: request_id.into(),
            }),
            Err(_) => TimelineWritten::Changed(TimelineChanged {
                id: id.to_string(),
                attributes: attributes_set(changes),
                request_id: request_id.into(),
            }),
        })
    });
    Ok(Json(written.await?))
}

/// Returns the attributes that a request sets, for the response to a token that may not read the others.
pub(crate) fn attributes_set(
    changes: BTreeMap<String, Option<tideline_engine::catalog::AttributeValue>>,
) -> BTreeMap<String, AttributeValue> {
    let set = changes.into_iter();
    set.filter_map(|(key, value)| Some((key, attribute_view(value?))))
        .collect()
}

/// Converts the attributes to set and to remove. Relative times are resolved against `now`.
pub(crate) fn to_changes(
    changes: BTreeMap<String, Option<AttributeValue>>,
    now: Timestamp,
) -> Result<BTreeMap<String, Option<tideline_engine::catalog::AttributeValue>>> {
    let change = |(key, value): (String, Option<AttributeValue>)| {
        let value = value.map(|value| to_attribute(value, now)).transpose()?;
        Ok((key, value))
    };
    changes.into_iter().map(change).collect()
}

async fn find(
    app: &Grant,
    table: String,
    search: TimelineSearch,
    id: RequestId,
) -> Result<Json<TimelineList>> {
    find_in(app, (TableModel::Series, table), search, id).await
}

/// Finds the timelines of a table with this model.
pub(crate) async fn find_in(
    app: &Grant,
    (model, table): (TableModel, String),
    search: TimelineSearch,
    id: RequestId,
) -> Result<Json<TimelineList>> {
    let now = app.engine.now();
    let condition = search
        .condition
        .map(|condition| Ok::<_, Failure>(expand(app, &table, condition.0)?.resolve(now)));
    let condition = condition.transpose()?.unwrap_or_default();
    let request = FindRequest {
        condition,
        sort: search.sort.into_iter().map(to_sort).collect::<Result<_>>()?,
        after: search.page,
        limit: search.limit.unwrap_or(PAGE_DEFAULT),
        collapse: search.collapse.map(|key| key.tag),
        highlight: search.highlight,
    };
    let is_collapsed = request.collapse.is_some();
    let page = app.search_in(&app.queries, (model, table), move |engine, table, stop| {
        Ok(engine.find(table, &request, stop)?)
    });
    let TimelinePage {
        found,
        total,
        hits_total,
        suggestions,
        next,
    } = page.await?;
    let timelines = found.into_iter().map(|found| FoundTimeline {
        timeline: timeline_view(found.timeline),
        collapsed: is_collapsed.then_some(found.timelines),
        highlights: found.highlights.into_iter().map(shown).collect(),
    });
    Ok(Json(TimelineList {
        timelines: timelines.collect(),
        total,
        hits: is_collapsed.then_some(hits_total),
        suggestions: suggestions.into_iter().map(suggestion_view).collect(),
        next,
        request_id: id.into(),
    }))
}

fn shown(highlight: search::Highlight) -> Highlight {
    let spans = highlight.spans.into_iter().map(|span| TextSpan {
        start: span.start,
        end: span.end,
    });
    let mut shown = Highlight {
        tag: None,
        attribute: None,
        property: None,
        text: highlight.text,
        spans: spans.collect(),
    };
    match highlight.subject {
        Subject::Tag(key) => shown.tag = Some(key),
        Subject::Attribute(key) => shown.attribute = Some(key),
        Subject::Source => shown.property = Some(Property::Source),
        _ => shown.property = Some(Property::Measurement),
    }
    shown
}

fn parse_id(id: &str) -> Result<TimelineId> {
    id.parse().map_err(Failure::invalid)
}

fn detail(timeline: Timeline, request_id: RequestId) -> Json<TimelineDetail> {
    Json(TimelineDetail {
        timeline: timeline_view(timeline),
        request_id: request_id.into(),
    })
}

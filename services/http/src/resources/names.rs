//! `/v1/tables/{table}/measurements`, `/tags`, `/tags/{key}/values`, `/fields`, `/attributes`: names in a table.
//!
//! Lists of names are paged by name; lists of fields and attribute keys are returned as a whole.

use axum::Json;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use tideline_engine::catalog::{AttributeType, NameSelection};
use tideline_engine::condition::operators::Equals;
use tideline_engine::condition::{Condition, Literal, Subject};
use tideline_engine::{Engine, Table, is_sample_detail};
use tideline_openapi::name::{
    AttributeKey, AttributeKeyList, CountedName, CountedType, Field, FieldList, FieldQuery, NameList,
    NameQuery,
};
use tideline_results::suggestion_view;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::context::RequestId;
use crate::extract::{Path, Query};
use crate::failure::{Failure, Result};
use crate::grant::Grant;
use crate::resources::{Failures, TablePath, page_limit};

/// Default number of names per page.
const PAGE_DEFAULT: usize = 1_000;
/// Maximum number of names per page.
const PAGE_MAX: usize = 10_000;

pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(measurements))
        .routes(routes!(tag_keys))
        .routes(routes!(tag_values))
        .routes(routes!(attribute_keys))
        .routes(routes!(fields))
}

/// List measurements
#[utoipa::path(
    security(("token" = ["read", "timelines"])),
    get, path = "/v1/tables/{table}/measurements", tag = "timelines",
    params(TablePath, NameQuery),
    responses((status = 200, description = "A page of measurements", body = NameList), Failures)
)]
async fn measurements(
    app: Grant,
    id: RequestId,
    Path(TablePath { table }): Path<TablePath>,
    Query(query): Query<NameQuery>,
) -> Result<Json<NameList>> {
    list(&app, table, query, id, |engine, table, selection| {
        engine.measurements(table, selection)
    })
    .await
}

/// List tag keys
#[utoipa::path(
    security(("token" = ["read", "timelines"])),
    get, path = "/v1/tables/{table}/tags", tag = "timelines",
    params(TablePath, NameQuery),
    responses((status = 200, description = "A page of tag keys", body = NameList), Failures)
)]
async fn tag_keys(
    app: Grant,
    id: RequestId,
    Path(TablePath { table }): Path<TablePath>,
    Query(query): Query<NameQuery>,
) -> Result<Json<NameList>> {
    list(&app, table, query, id, |engine, table, selection| {
        engine.tag_keys(table, selection)
    })
    .await
}

/// Path parameters of the route for a tag.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct TagPath {
    /// Name of the table
    #[param(example = "default")]
    table: String,
    /// Key of the tag
    #[param(example = "host")]
    key: String,
}

/// List values of a tag
///
/// If the list is empty because no timeline has the key, `suggestions` contains similar keys.
#[utoipa::path(
    security(("token" = ["read", "timelines"])),
    get, path = "/v1/tables/{table}/tags/{key}/values", tag = "timelines",
    params(TagPath, NameQuery),
    responses((status = 200, description = "A page of tag values", body = NameList), Failures)
)]
async fn tag_values(
    app: Grant,
    id: RequestId,
    Path(TagPath { table, key }): Path<TagPath>,
    Query(query): Query<NameQuery>,
) -> Result<Json<NameList>> {
    let tag = key.clone();
    let values = move |engine: &Engine, table: &Table, selection: &NameSelection<'_>| {
        engine.tag_values(table, &key, selection)
    };
    let mut response = list(&app, table.clone(), query, id, values).await?;
    if response.names.is_empty() {
        response.suggestions = app
            .read_table(table, move |_, table| {
                Ok(table.unknown_names(&Condition::All, &[tag], &[]))
            })
            .await?
            .into_iter()
            .map(suggestion_view)
            .collect();
    }
    Ok(response)
}

/// List attribute keys with their types
///
/// Returns the keys that timelines currently have. A key that no timeline has any more is not returned; it may be used
/// again with another type.
#[utoipa::path(
    security(("token" = ["read", "timelines"])),
    get, path = "/v1/tables/{table}/attributes", tag = "timelines",
    params(TablePath),
    responses((status = 200, description = "Every attribute key", body = AttributeKeyList), Failures)
)]
async fn attribute_keys(
    app: Grant,
    id: RequestId,
    Path(TablePath { table }): Path<TablePath>,
) -> Result<Json<AttributeKeyList>> {
    let keys = app.read_table(table, |engine, table| Ok(engine.attribute_keys(table)));
    let counted = |(kind, timelines): (AttributeType, u32)| CountedType {
        kind: kind.name().to_owned(),
        timelines,
    };
    let attributes = keys.await?.into_iter().map(|key| AttributeKey {
        key: key.key,
        types: key.types.into_iter().map(counted).collect(),
    });
    Ok(Json(AttributeKeyList {
        attributes: attributes.collect(),
        request_id: id.into(),
    }))
}

/// List fields with their types
///
/// Fields that accompany Prometheus samples (start timestamps, exemplars) are omitted unless `sample_details` is set.
#[utoipa::path(
    security(("token" = ["read", "timelines"])),
    get, path = "/v1/tables/{table}/fields", tag = "timelines",
    params(TablePath, FieldQuery),
    responses((status = 200, description = "Every field", body = FieldList), Failures)
)]
async fn fields(
    app: Grant,
    id: RequestId,
    Path(TablePath { table }): Path<TablePath>,
    Query(query): Query<FieldQuery>,
) -> Result<Json<FieldList>> {
    let condition = match &query.measurement {
        Some(name) => Condition::leaf(Subject::Measurement, Equals(Literal::Text(name.clone()))),
        None => Condition::All,
    };
    let (found, unknown) = app
        .read_table(table, move |engine, table| {
            Ok((engine.fields(table), table.unknown_names(&condition, &[], &[])))
        })
        .await?;
    let of_measurement = |measurement: &str| {
        query
            .measurement
            .as_deref()
            .is_none_or(|requested| requested == measurement)
    };
    let mut fields: Vec<Field> = found
        .into_iter()
        .filter(|field| of_measurement(&field.measurement))
        .filter(|field| {
            let kind = field.types.first().map(|of| of.kind());
            query.sample_details || !kind.is_some_and(|kind| is_sample_detail(&field.field, kind))
        })
        .map(|field| Field {
            types: field.types.iter().map(|kind| kind.name().to_owned()).collect(),
            measurement: field.measurement,
            field: field.field,
        })
        .collect();
    fields.sort_by(|a, b| (&a.measurement, &a.field).cmp(&(&b.measurement, &b.field)));
    Ok(Json(FieldList {
        fields,
        suggestions: unknown.into_iter().map(suggestion_view).collect(),
        request_id: id.into(),
    }))
}

/// Returns a page of names; `names` returns the names of a selection.
async fn list<F>(
    app: &Grant,
    table: String,
    query: NameQuery,
    id: RequestId,
    names: F,
) -> Result<Json<NameList>>
where
    F: FnOnce(&Engine, &Table, &NameSelection<'_>) -> Vec<tideline_engine::catalog::CountedName>
        + Send
        + 'static,
{
    let limit = page_limit(query.limit, PAGE_DEFAULT, PAGE_MAX)?;
    let after = query.page.as_deref().map(decode_token).transpose()?;
    let mut found = app
        .read_table(table, move |engine, table| {
            let selection = NameSelection {
                prefix: &query.prefix,
                after: after.as_deref(),
                limit: limit + 1,
            };
            Ok(names(engine, table, &selection))
        })
        .await?;
    let more = found.len() > limit;
    found.truncate(limit);
    let next = found
        .last()
        .filter(|_| more)
        .map(|last| URL_SAFE_NO_PAD.encode(&last.name));
    let counted = |name: tideline_engine::catalog::CountedName| CountedName {
        name: name.name,
        timelines: name.timelines,
    };
    Ok(Json(NameList {
        names: found.into_iter().map(counted).collect(),
        next,
        suggestions: Vec::new(),
        request_id: id.into(),
    }))
}

fn decode_token(token: &str) -> Result<String> {
    let name = URL_SAFE_NO_PAD
        .decode(token)
        .ok()
        .and_then(|name| String::from_utf8(name).ok());
    name.ok_or_else(|| Failure::invalid("the page token is not valid"))
}

//! `/v1/tenants`: creates, changes, lists and removes tenants.
//!
//! The store of tenants is `tenants` of this crate.

use std::sync::Arc;

use axum::Json;
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use tideline_access::{Budgets, ScopeError, TablePattern, Tenant, TenantRecord};
use tideline_change_stream::STREAMS_MAX;
use tideline_engine::model::TableName;
use tideline_openapi::ErrorBody;
use tideline_openapi::tenant::{PutTenant, TenantBudgets, TenantDetail, TenantList, TenantUse, TenantView};
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::{App, blocking};
use crate::audit_detail;
use crate::context::RequestId;
use crate::extract::{Json as JsonBody, Path};
use crate::failure::{Failure, Result};
use crate::grant::Grant;
use crate::resources::{Failures, instant};
use crate::tenants::OwnedObjects;

pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(read, put, remove))
}

/// Path parameter of routes for a tenant.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct TenantPath {
    /// Name of the tenant, 1 to 64 letters, digits, dots, dashes and underscores, but not `.` or `..`
    #[param(example = "acme")]
    tenant: String,
}

/// List tenants
///
/// Returns all tenants with their budgets, and their usage since the server started.
#[utoipa::path(
    security(("token" = ["administer"])),
    get, path = "/v1/tenants", tag = "access", operation_id = "list_tenants",
    responses((status = 200, description = "All tenants, sorted by name", body = TenantList), Failures)
)]
async fn list(app: Grant, id: RequestId) -> Result<Json<TenantList>> {
    let tenants = blocking(move || {
        let objects = OwnedObjects::read(&app);
        let all = app.tenants.all();
        Ok(all.iter().map(|tenant| view(tenant, &objects)).collect())
    });
    Ok(Json(TenantList {
        tenants: tenants.await?,
        request_id: id.into(),
    }))
}

/// Read a tenant
#[utoipa::path(
    security(("token" = ["administer"])),
    get, path = "/v1/tenants/{tenant}", tag = "access", operation_id = "read_tenant",
    params(TenantPath),
    responses((status = 200, description = "The tenant", body = TenantDetail), Failures)
)]
async fn read(
    app: Grant,
    id: RequestId,
    Path(TenantPath { tenant }): Path<TenantPath>,
) -> Result<Json<TenantDetail>> {
    let found = app.tenants.get(&tenant)?;
    detail(app, found, id).await.map(Json)
}

/// Create or change a tenant
///
/// Replaces tables and budgets of an existing tenant; its usage stays. If the tenant loses tables, its open watches
/// and running queries end. Tables are not created: a token of the tenant with the role `operator` can create them.
#[utoipa::path(
    security(("token" = ["administer"])),
    put, path = "/v1/tenants/{tenant}", tag = "access", operation_id = "put_tenant",
    params(TenantPath),
    request_body = PutTenant,
    responses(
        (status = 200, description = "The tenant was changed", body = TenantDetail),
        (status = 201, description = "The tenant was created", body = TenantDetail),
        (status = 409, description = "A table could belong to two tenants", body = ErrorBody),
        Failures
    )
)]
async fn put(
    app: Grant,
    id: RequestId,
    Path(TenantPath { tenant }): Path<TenantPath>,
    JsonBody(body): JsonBody<PutTenant>,
) -> Result<(StatusCode, Json<TenantDetail>)> {
    let tables = body.tables.into_iter().map(TablePattern::try_from);
    let default_table = body.default_table.as_deref().map(TableName::new).transpose();
    let record = TenantRecord {
        name: tenant,
        tables: tables
            .collect::<std::result::Result<_, ScopeError>>()
            .map_err(Failure::invalid)?,
        default_table: default_table.map_err(|error| Failure::invalid(format!("default_table: {error}")))?,
        budgets: Budgets {
            points_per_second: body.budgets.points_per_second,
            new_timelines_per_minute: body.budgets.new_timelines_per_minute,
            queries: body.budgets.queries,
            timelines: body.budgets.timelines,
            hot_bytes: body.budgets.hot_bytes,
            cold_bytes: body.budgets.cold_bytes,
            archive_bytes: body.budgets.archive_bytes,
            bytes_read_per_second: body.budgets.bytes_read_per_second,
            memory_bytes: body.budgets.memory_bytes,
            tables: body.budgets.tables,
            change_streams: body.budgets.change_streams,
        },
        created: app.engine.clock().now().nanos(),
        created_by: app.access.principal().to_string(),
    };
    let after = audited(&record);
    app.note_detail(match app.tenants.get(&record.name) {
        Ok(before) => audit_detail::changes(&audited(before.record()), &after),
        Err(_) => audit_detail::members(&after),
    });
    let store = app.clone();
    let (tenant, is_new) = app.change(move |_| store.tenants.put(record)).await?;
    app.end_watches();
    let status = match is_new {
        true => StatusCode::CREATED,
        false => StatusCode::OK,
    };
    Ok((status, Json(detail(app, tenant, id).await?)))
}

/// Remove a tenant
///
/// The tables of the tenant stay. After the response, requests of tokens that act for the tenant are refused. The
/// open watches and running queries of the tenant end.
#[utoipa::path(
    security(("token" = ["administer"])),
    delete, path = "/v1/tenants/{tenant}", tag = "access", operation_id = "remove_tenant",
    params(TenantPath),
    responses((status = 204, description = "The tenant was removed"), Failures)
)]
async fn remove(app: Grant, Path(TenantPath { tenant }): Path<TenantPath>) -> Result<StatusCode> {
    if let Ok(removed) = app.tenants.get(&tenant) {
        app.note_detail(audit_detail::members(&audited(removed.record())));
    }
    let store = app.clone();
    app.change(move |_| store.tenants.remove(&tenant)).await?;
    app.end_watches();
    Ok(StatusCode::NO_CONTENT)
}

/// Returns the settings of a tenant for its audit record.
fn audited(record: &TenantRecord) -> Value {
    json!({"tables": record.tables, "default_table": record.default_table, "budgets": record.budgets})
}

/// Returns a tenant with its use. The number of its objects is read on a thread for blocking calls.
async fn detail(app: Grant, tenant: Arc<Tenant>, id: RequestId) -> Result<TenantDetail> {
    let detail = blocking(move || {
        Ok(TenantDetail {
            view: view(&tenant, &OwnedObjects::read(&app)),
            request_id: id.into(),
        })
    });
    detail.await
}

fn view(tenant: &Tenant, objects: &OwnedObjects) -> TenantView {
    let record = tenant.record();
    TenantView {
        name: record.name.clone(),
        tables: record.tables.iter().map(ToString::to_string).collect(),
        default_table: record.default_table.as_ref().map(ToString::to_string),
        budgets: budgets(tenant),
        used: used(tenant, objects),
        created: instant(record.created),
        created_by: record.created_by.clone(),
    }
}

/// Returns the budgets of a tenant.
pub(crate) fn budgets(tenant: &Tenant) -> TenantBudgets {
    let budgets = &tenant.record().budgets;
    TenantBudgets {
        points_per_second: budgets.points_per_second,
        new_timelines_per_minute: budgets.new_timelines_per_minute,
        queries: budgets.queries,
        timelines: budgets.timelines,
        hot_bytes: budgets.hot_bytes,
        cold_bytes: budgets.cold_bytes,
        archive_bytes: budgets.archive_bytes,
        bytes_read_per_second: budgets.bytes_read_per_second,
        memory_bytes: budgets.memory_bytes,
        tables: budgets.tables,
        change_streams: budgets.change_streams,
    }
}

/// Returns the usage of a tenant. `objects` holds the tables and change streams of the server.
pub(crate) fn used(tenant: &Tenant, objects: &OwnedObjects) -> TenantUse {
    let (budgets, figures) = (&tenant.record().budgets, tenant.figures());
    let [hot_bytes, cold_bytes, archive_bytes] = figures.stored.tier_bytes;
    TenantUse {
        points: figures.points,
        bytes_read: figures.bytes_read,
        queries: figures.queries,
        memory_bytes: figures.memory_bytes,
        timelines: figures.stored.timelines,
        hot_bytes,
        cold_bytes,
        archive_bytes,
        refused_points: figures.refused_writes,
        refused_timelines: figures.refused_timelines,
        refused_queries: figures.refused_queries,
        refused_memory: figures.refused_memory,
        tables: objects.tables(tenant),
        tables_max: budgets.tables_max(objects.tables_max),
        change_streams: objects.change_streams(tenant),
        change_streams_max: budgets.change_streams_max(STREAMS_MAX as u64),
        refused_objects: figures.refused_objects,
    }
}

//! `/v1/audit/retention`: time for which audit records are kept. The records are rows of a table that admins read.

use axum::Json;
use serde_json::json;
use tideline_openapi::DurationText;
use tideline_openapi::audit::{AuditRetention, PutAuditRetention};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::audit_detail;
use crate::context::RequestId;
use crate::extract::Json as JsonBody;
use crate::failure::Result;
use crate::grant::Grant;
use crate::resources::Failures;

pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(read, put))
}

/// Read the retention time of audit records
///
/// Audit records are rows of the table `tideline-audit`, which admins read like any wide table, for example with
/// `/v1/sql`.
#[utoipa::path(
    security(("token" = ["administer"])),
    get, path = "/v1/audit/retention", tag = "access", operation_id = "read_audit_retention",
    responses((status = 200, description = "The retention time", body = AuditRetention), Failures)
)]
async fn read(app: Grant, id: RequestId) -> Result<Json<AuditRetention>> {
    let retention = app.read(|engine| Ok(engine.audit_retention()?)).await?;
    Ok(Json(view(retention, id)))
}

/// Set the retention time of audit records
///
/// Records that are older expire immediately. The change is recorded like any other.
#[utoipa::path(
    security(("token" = ["administer"])),
    put, path = "/v1/audit/retention", tag = "access", operation_id = "put_audit_retention",
    request_body = PutAuditRetention,
    responses((status = 200, description = "The new retention time", body = AuditRetention), Failures)
)]
async fn put(
    app: Grant,
    id: RequestId,
    JsonBody(body): JsonBody<PutAuditRetention>,
) -> Result<Json<AuditRetention>> {
    let PutAuditRetention {
        retention: DurationText(nanos),
    } = body;
    let noted = app.clone();
    app.change(move |engine| {
        let retention = |nanos| json!({"retention": DurationText(nanos)});
        let before = engine.audit_retention()?;
        noted.note_detail(audit_detail::changes(&retention(before), &retention(nanos)));
        Ok(engine.set_audit_retention(nanos)?)
    })
    .await?;
    Ok(Json(view(nanos, id)))
}

fn view(nanos: i64, id: RequestId) -> AuditRetention {
    AuditRetention {
        retention: DurationText(nanos),
        request_id: id.into(),
    }
}

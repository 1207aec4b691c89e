//! `/v1/tokens` and `/v1/access`: creates, lists, rotates and revokes tokens; describes the token of the request.
//!
//! A response with a secret must not be stored by caches. The store of tokens is `tokens` of this crate.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use serde::Deserialize;
use tideline_access::{Scope, TimelineCondition, TokenRecord, TokenText};
use tideline_engine::model::{TableModel, Timestamp};
use tideline_openapi::condition::Condition;
use tideline_openapi::token::{
    AccessView, CreateToken, NewToken, RotateToken, TokenDetail, TokenList, TokenView,
};
use tideline_openapi::{DurationText, ErrorBody};
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::{App, blocking};
use crate::audit_detail;
use crate::context::RequestId;
use crate::extract::{Json as JsonBody, Path};
use crate::failure::{Failure, Result};
use crate::grant::{Grant, Requester};
use crate::resources::tenants::{budgets, used};
use crate::resources::{Failures, instant};
use crate::tenants::OwnedObjects;

/// Time for which the previous secret stays valid after a rotation, if the request sets no `overlap`.
const OVERLAP_DEFAULT: Duration = Duration::from_secs(24 * 3_600);
/// Longest time for which the previous secret may stay valid.
const OVERLAP_MAX: Duration = Duration::from_secs(30 * 24 * 3_600);

/// Headers of responses that contain a secret.
const NOT_STORED: [(HeaderName, HeaderValue); 1] =
    [(header::CACHE_CONTROL, HeaderValue::from_static("no-store"))];

/// Response with a secret.
type Secret = (StatusCode, [(HeaderName, HeaderValue); 1], Json<NewToken>);

pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list, create))
        .routes(routes!(read, revoke))
        .routes(routes!(rotate))
        .routes(routes!(access))
}

/// Path parameter of routes for a token.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct TokenPath {
    /// Id of the token
    #[param(example = "5f0c1e9a7b34")]
    token: String,
}

/// List tokens
///
/// Returns the stored tokens and the tokens of the file of hashes, without their secrets. The token of the
/// configuration is not included.
#[utoipa::path(
    security(("token" = ["administer"])),
    get, path = "/v1/tokens", tag = "access", operation_id = "list_tokens",
    responses((status = 200, description = "All tokens, sorted by id", body = TokenList), Failures)
)]
async fn list(app: Grant, id: RequestId) -> Json<TokenList> {
    let now = app.engine.clock().now();
    let tokens = app.tokens.all();
    Json(TokenList {
        tokens: tokens.into_iter().map(|token| view(token, now)).collect(),
        request_id: id.into(),
    })
}

/// Create a token
///
/// The response contains the token. It is shown only once, and only its hash is stored. Send it as
/// `Authorization: Bearer …`, as the password of `Basic`, or as the InfluxDB parameter `p`.
///
/// The server must require tokens: its configuration contains a token with the role `admin`, a file of token
/// hashes, or an identity provider.
#[utoipa::path(
    security(("token" = ["administer"])),
    post, path = "/v1/tokens", tag = "access", operation_id = "create_token",
    request_body = CreateToken,
    responses(
        (status = 201, description = "The new token", body = NewToken),
        (status = 409, description = "The server requires no token", body = ErrorBody),
        Failures
    )
)]
async fn create(app: Grant, id: RequestId, JsonBody(body): JsonBody<CreateToken>) -> Result<Secret> {
    let now = app.engine.clock().now();
    let draft = TokenRecord {
        id: String::new(),
        name: body.name,
        roles: body.roles,
        scope: scope(body.tables, body.models, body.timelines, body.tenants)?,
        created: 0,
        created_by: app.access.principal().to_string(),
        expires: body.expires.map(|time| time.resolve(now).nanos()),
        secrets: Vec::new(),
    };
    app.note_detail(audit_detail::token(&draft));
    let store = app.clone();
    let (text, record) = app.change(move |_| store.tokens.create(draft)).await?;
    app.note_change(format!("/v1/tokens/{}", record.id));
    Ok(secret(StatusCode::CREATED, &text, record, now, id))
}

/// Read a token
#[utoipa::path(
    security(("token" = ["administer"])),
    get, path = "/v1/tokens/{token}", tag = "access", operation_id = "read_token",
    params(TokenPath),
    responses((status = 200, description = "The token, without its secret", body = TokenDetail), Failures)
)]
async fn read(
    app: Grant,
    id: RequestId,
    Path(TokenPath { token }): Path<TokenPath>,
) -> Result<Json<TokenDetail>> {
    let found = app.tokens.get(&token)?;
    Ok(Json(TokenDetail {
        view: view(found, app.engine.clock().now()),
        request_id: id.into(),
    }))
}

/// Revoke a token
///
/// After the response, requests with the token are refused. Watches that use the token end without another event.
/// Running queries end at the next block of points or the next row, with an error or an aborted response.
#[utoipa::path(
    security(("token" = ["administer"])),
    delete, path = "/v1/tokens/{token}", tag = "access", operation_id = "revoke_token",
    params(TokenPath),
    responses(
        (status = 204, description = "The token was revoked"),
        (status = 409, description = "The token is in the file of hashes", body = ErrorBody),
        Failures
    )
)]
async fn revoke(app: Grant, Path(TokenPath { token }): Path<TokenPath>) -> Result<StatusCode> {
    if let Ok((record, _)) = app.tokens.get(&token) {
        app.note_detail(audit_detail::token(&record));
    }
    let store = app.clone();
    app.change(move |_| store.tokens.revoke(&token)).await?;
    app.end_watches();
    Ok(StatusCode::NO_CONTENT)
}

/// Rotate a token
///
/// Gives the token a new secret. The previous secret stays valid for `overlap`, so that clients can be changed one
/// after another. Then it is refused, and its watches and running queries end. Id, roles and scope stay. A token has at
/// most four valid secrets, so further rotations are refused until the oldest one ends, unless `overlap` is `0s`.
#[utoipa::path(
    security(("token" = ["administer"])),
    post, path = "/v1/tokens/{token}/rotate", tag = "access", operation_id = "rotate_token",
    params(TokenPath),
    request_body = RotateToken,
    responses(
        (status = 200, description = "The token with its new secret", body = NewToken),
        (status = 409, description = "The token has expired, has four valid secrets, or is in the file of hashes", body = ErrorBody),
        Failures
    )
)]
async fn rotate(
    app: Grant,
    id: RequestId,
    Path(TokenPath { token }): Path<TokenPath>,
    JsonBody(RotateToken { overlap }): JsonBody<RotateToken>,
) -> Result<Secret> {
    let overlap = match overlap {
        None => OVERLAP_DEFAULT,
        Some(DurationText(nanos)) => u64::try_from(nanos)
            .map(Duration::from_nanos)
            .ok()
            .filter(|overlap| *overlap <= OVERLAP_MAX)
            .ok_or_else(|| Failure::invalid("overlap must be from 0s to 30d"))?,
    };
    if let Ok((record, _)) = app.tokens.get(&token) {
        let nanos = i64::try_from(overlap.as_nanos()).unwrap_or(i64::MAX);
        let overlap = String::from(DurationText(nanos));
        app.note_detail(format!("overlap: {overlap}; {}", audit_detail::token(&record)));
    }
    let store = app.clone();
    let (text, record) = app.change(move |_| store.tokens.rotate(&token, overlap)).await?;
    app.end_watches();
    Ok(secret(
        StatusCode::OK,
        &text,
        record,
        app.engine.clock().now(),
        id,
    ))
}

/// Describe the token of the request
///
/// Every valid token may use this route. If the request acts for a tenant, the response contains the budgets of the
/// tenant and, if the token has no other restrictions, their use.
#[utoipa::path(
    security(("token" = [])),
    get, path = "/v1/access", tag = "access", operation_id = "describe_access",
    responses((status = 200, description = "Name, roles, scope and tenant", body = AccessView), Failures)
)]
async fn access(app: Requester, id: RequestId) -> Result<Json<AccessView>> {
    let principal = Arc::clone(&app.principal);
    let scope = principal.scope();
    let tenant = principal.tenant();
    // The use depends on all tables and timelines of the tenant.
    let is_whole = scope.tables().is_empty() && scope.models().is_empty() && scope.condition().is_none();
    let tenant_use = match tenant.filter(|_| is_whole).cloned() {
        Some(tenant) => Some(blocking(move || Ok(used(&tenant, &OwnedObjects::read(&app)))).await?),
        None => None,
    };
    Ok(Json(AccessView {
        name: principal.name().to_owned(),
        id: principal.id().map(str::to_owned),
        roles: principal.roles().to_vec(),
        tables: scope.tables().iter().map(ToString::to_string).collect(),
        models: scope.models().to_vec(),
        timelines: timelines(scope),
        tenants: tenants(scope),
        tenant: tenant.map(|tenant| tenant.record().name.clone()),
        budgets: tenant.map(|tenant| budgets(tenant)),
        used: tenant_use,
        expires: principal.expires().map(|time| time.to_rfc3339()),
        request_id: id.into(),
    }))
}

fn scope(
    tables: Vec<String>,
    models: Vec<TableModel>,
    timelines: Option<Condition>,
    tenants: Vec<String>,
) -> Result<Scope> {
    let condition = timelines.map(|Condition(condition)| TimelineCondition::new(condition));
    let condition = condition.transpose().map_err(Failure::invalid)?;
    let scope = Scope::new(tables, models)
        .and_then(|scope| scope.with_condition(condition))
        .and_then(|scope| scope.with_tenants(tenants));
    scope.map_err(Failure::invalid)
}

fn tenants(scope: &Scope) -> Vec<String> {
    scope.tenants().iter().map(ToString::to_string).collect()
}

fn timelines(scope: &Scope) -> Option<Condition> {
    scope
        .condition()
        .map(|condition| Condition(condition.condition().clone()))
}

fn secret(
    status: StatusCode,
    text: &TokenText,
    record: TokenRecord,
    now: Timestamp,
    id: RequestId,
) -> Secret {
    let body = NewToken {
        token: text.expose().to_owned(),
        view: view((record, None), now),
        request_id: id.into(),
    };
    (status, NOT_STORED, Json(body))
}

fn view((record, used): (TokenRecord, Option<Timestamp>), now: Timestamp) -> TokenView {
    let is_past = |end: i64| end <= now.nanos();
    let previous = record.secrets.iter().filter_map(|secret| secret.expires);
    let previous = previous.filter(|end| !is_past(*end)).max();
    TokenView {
        id: record.id,
        name: record.name,
        roles: record.roles,
        tables: record.scope.tables().iter().map(ToString::to_string).collect(),
        models: record.scope.models().to_vec(),
        timelines: timelines(&record.scope),
        tenants: tenants(&record.scope),
        created: instant(record.created),
        created_by: record.created_by,
        expires: record.expires.map(instant),
        is_expired: record.expires.is_some_and(is_past),
        previous_secret_until: previous.map(instant),
        last_used: used.map(|time| time.to_rfc3339()),
    }
}

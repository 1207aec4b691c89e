//! `/v1/tables/{table}/users/{user}/blocks`: senders whose messages the inbox of a user does not show.
//!
//! A block can be set and ended any number of times. Both requests are safe to repeat.

use axum::Json as JsonResponse;
use axum::http::StatusCode;
use serde::Deserialize;
use tideline_message_feed::blocks;
use tideline_openapi::feed::{BlockDetail, BlockList, UserQuery};
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::PrincipalQuery;
use super::members::UserPath;
use super::pages::{check_own, check_user};
use crate::app::App;
use crate::context::RequestId;
use crate::extract::{Path, Query};
use crate::failure::Result;
use crate::grant::Grant;
use crate::resources::Failures;

pub(super) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(block, unblock))
}

/// Path parameters of routes for a blocked sender.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct BlockPath {
    /// Name of the table, which has the model `feed` and inboxes
    #[param(example = "chat")]
    table: String,
    /// User, 1 to 255 bytes
    #[param(example = "ann")]
    user: String,
    /// Sender of messages, 1 to 255 bytes
    #[param(example = "bea")]
    sender: String,
}

/// List the senders that a user has blocked
#[utoipa::path(
    security(("token" = ["read"])),
    get, path = "/v1/tables/{table}/users/{user}/blocks", tag = "feeds", operation_id = "list_blocks",
    params(UserPath, UserQuery),
    responses((status = 200, description = "The senders", body = BlockList), Failures)
)]
async fn list(
    app: Grant,
    id: RequestId,
    Path(UserPath { table, user }): Path<UserPath>,
    Query(query): Query<UserQuery>,
) -> Result<JsonResponse<BlockList>> {
    check_user(&user, query.principal.as_deref())?;
    let senders = app.read(move |engine| {
        let table = engine.feed_table(&table)?;
        Ok(blocks::blocked(engine, &table, &user)?)
    });
    Ok(JsonResponse(BlockList {
        senders: senders.await?.into_iter().collect(),
        request_id: id.into(),
    }))
}

/// Block a sender
///
/// From then on, the inbox of the user shows no messages of the sender, not even earlier ones, and unread counts
/// omit them. A read of a feed omits them only if it is made on behalf of the user. Repeating the request is
/// safe.
#[utoipa::path(
    security(("token" = ["write"])),
    put, path = "/v1/tables/{table}/users/{user}/blocks/{sender}", tag = "feeds", operation_id = "block_sender",
    params(BlockPath, PrincipalQuery),
    responses((status = 200, description = "The sender is blocked", body = BlockDetail), Failures)
)]
async fn block(
    app: Grant,
    id: RequestId,
    Path(BlockPath { table, user, sender }): Path<BlockPath>,
    Query(query): Query<PrincipalQuery>,
) -> Result<JsonResponse<BlockDetail>> {
    check_own(&user, query.principal.as_deref())?;
    let sender = app.change(move |engine| {
        let table = engine.feed_table(&table)?;
        blocks::block(engine, &table, &user, &sender)?;
        Ok(sender)
    });
    Ok(JsonResponse(BlockDetail {
        sender: sender.await?,
        request_id: id.into(),
    }))
}

/// End the block of a sender
///
/// The inbox of the user shows the messages of the sender again. Repeating the request is safe.
#[utoipa::path(
    security(("token" = ["write"])),
    delete, path = "/v1/tables/{table}/users/{user}/blocks/{sender}", tag = "feeds", operation_id = "unblock_sender",
    params(BlockPath, PrincipalQuery),
    responses((status = 204, description = "The sender is not blocked"), Failures)
)]
async fn unblock(
    app: Grant,
    Path(BlockPath { table, user, sender }): Path<BlockPath>,
    Query(query): Query<PrincipalQuery>,
) -> Result<StatusCode> {
    check_own(&user, query.principal.as_deref())?;
    app.change(move |engine| {
        let table = engine.feed_table(&table)?;
        Ok(blocks::unblock(engine, &table, &user, &sender)?)
    })
    .await?;
    Ok(StatusCode::NO_CONTENT)
}

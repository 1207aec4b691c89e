//! `/v1/tables/{table}/feeds/{feed}/members` and `/v1/tables/{table}/users/{user}`: members of feeds, inboxes, cursors and
//! conversations of users.

use axum::Json as JsonResponse;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use tideline_engine::feeds::FeedName;
use tideline_engine::model::Timestamp;
use tideline_engine::{Engine, WideTable};
use tideline_message_feed::inbox::{self, CONVERSATION_BYTES, CONVERSATIONS, CONVERSATIONS_MAX};
use tideline_message_feed::members::{self, MemberChange, Membership};
use tideline_openapi::ErrorCode;
use tideline_openapi::feed::{
    ChangeMember, ConversationList, ConversationQuery, CursorList, CursorSet, History, JoinFeed, Member,
    MemberChanged, MemberDetail, MemberList, MemberQuery, MemberWritten, MessagePage, MessageQuery, Sequence,
    SetCursor, UserQuery,
};
use tideline_rows::RowsError;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::pages::{self, Messages, check_own, check_user};
use super::{FeedPath, PrincipalQuery, check_model, feed_to_read, with_items};
use crate::app::{App, Waiting};
use crate::context::RequestId;
use crate::extract::{Json, Path, Query};
use crate::failure::{Failure, Result};
use crate::grant::Grant;
use crate::resources::query::describe;
use crate::resources::rows::{RowTier, answer};
use crate::resources::{Failures, QueryFailures, page_limit};

/// Default number of members of a page.
const PAGE_MEMBERS: usize = 100;
/// Maximum number of members of a page.
const PAGE_MEMBERS_MAX: usize = 10_000;

pub(super) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(join, leave, change))
        .routes(routes!(read_inbox))
        .routes(routes!(conversations))
        .routes(routes!(set_cursor, read_cursors))
}

/// Path parameters of routes for a member of a feed.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct MemberPath {
    /// Name of the table, which has the model `feed` and inboxes
    #[param(example = "chat")]
    table: String,
    /// Feed: its id of 32 hexadecimal digits, or its type and tags
    #[param(example = "room,name=lobby")]
    feed: String,
    /// User, 1 to 255 bytes
    #[param(example = "ann")]
    user: String,
}

/// Path parameters of routes for a user.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(super) struct UserPath {
    /// Name of the table, which has the model `feed` and inboxes
    #[param(example = "chat")]
    pub(super) table: String,
    /// User, 1 to 255 bytes
    #[param(example = "ann")]
    pub(super) user: String,
}

/// List the members of a feed
#[utoipa::path(
    security(("token" = ["read"])),
    get, path = "/v1/tables/{table}/feeds/{feed}/members", tag = "feeds", operation_id = "list_members",
    params(FeedPath, MemberQuery),
    responses((status = 200, description = "A page of members", body = MemberList), Failures)
)]
async fn list(
    app: Grant,
    id: RequestId,
    Path(path): Path<FeedPath>,
    Query(query): Query<MemberQuery>,
) -> Result<JsonResponse<MemberList>> {
    let limit = page_limit(query.limit, PAGE_MEMBERS, PAGE_MEMBERS_MAX)?;
    let after = query.page.as_deref().map(position_of).transpose()?;
    let page = app.read(move |engine| {
        let (table, feed) = feed_to_read(engine, &path, query.principal.as_deref())?;
        Ok(members::members(engine, &table, feed, after.as_ref(), limit)?)
    });
    let page = page.await?;
    Ok(JsonResponse(MemberList {
        members: page.members.into_iter().map(view).collect(),
        next: page.next.map(|(joined, user)| format!("{joined}.{user}")),
        request_id: id.into(),
    }))
}

/// Add a member to a feed
///
/// From then on, the inbox of the user shows the messages of the feed, and the feed is one of the conversations
/// of the user. Repeating the request is safe, and completes a request that was interrupted, for example because the
/// client has disconnected. An inbox has no members. A token without a role that reads gets only the feed and the user.
#[utoipa::path(
    security(("token" = ["write"])),
    put, path = "/v1/tables/{table}/feeds/{feed}/members/{user}", tag = "feeds", operation_id = "join_feed",
    params(MemberPath, PrincipalQuery),
    request_body = JoinFeed,
    responses((status = 200, description = "The member", body = MemberWritten), Failures)
)]
async fn join(
    app: Grant,
    id: RequestId,
    Path(MemberPath { table, feed, user }): Path<MemberPath>,
    Query(PrincipalQuery { .. }): Query<PrincipalQuery>,
    Json(JoinFeed { history }): Json<JoinFeed>,
) -> Result<JsonResponse<MemberWritten>> {
    let visible_from = match history.unwrap_or(History::None) {
        History::None => None,
        History::All => Some(i64::MIN),
        History::Since(time) => Some(time.resolve(app.engine.now()).nanos()),
    };
    // The inbox of an interrupted request is complete, because its readers read the history from the feed.
    let cancel = tideline_query::Cancel::new();
    let _waiting = Waiting(Some(cancel.clone()));
    let service = app.clone();
    let member = app.change(move |engine| {
        let table = engine.feed_table(&table)?;
        let feed = FeedName::parse(&feed);
        let is_stopped = || service.is_draining() || cancel.is_cancelled();
        let joined = members::join(engine, &table, &feed, &user, visible_from, &is_stopped);
        joined.map_err(|error| match error {
            RowsError::Cancelled if service.is_draining() => Failure::new(
                ErrorCode::Unavailable,
                "the server is shutting down; send the request again to complete it",
            ),
            error => error.into(),
        })
    });
    let members::Joined { member, skipped } = member.await?;
    Ok(written(&app, (member, skipped), None, id))
}

/// Remove a member from a feed
///
/// Removes the messages of the feed from the inbox of the user, and the cursors of the user in the feed. Repeating the
/// request is safe.
#[utoipa::path(
    security(("token" = ["write"])),
    delete, path = "/v1/tables/{table}/feeds/{feed}/members/{user}", tag = "feeds", operation_id = "leave_feed",
    params(MemberPath, PrincipalQuery),
    responses((status = 204, description = "The user is not a member"), Failures)
)]
async fn leave(
    app: Grant,
    Path(MemberPath { table, feed, user }): Path<MemberPath>,
    Query(PrincipalQuery { .. }): Query<PrincipalQuery>,
) -> Result<StatusCode> {
    let cancel = tideline_query::Cancel::new();
    let _waiting = Waiting(Some(cancel.clone()));
    app.change(move |engine| {
        let table = engine.feed_table(&table)?;
        let feed = engine.feed(&table, &FeedName::parse(&feed))?;
        members::leave(engine, &table, feed, &user, &|| cancel.is_cancelled())?;
        Ok(())
    })
    .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Mute or unmute a conversation
///
/// A token without a role that reads gets only the feed, the user and the value that the request has set.
#[utoipa::path(
    security(("token" = ["write"])),
    patch, path = "/v1/tables/{table}/feeds/{feed}/members/{user}", tag = "feeds", operation_id = "change_member",
    params(MemberPath, PrincipalQuery),
    request_body = ChangeMember,
    responses((status = 200, description = "The member", body = MemberWritten), Failures)
)]
async fn change(
    app: Grant,
    id: RequestId,
    Path(MemberPath { table, feed, user }): Path<MemberPath>,
    Query(query): Query<PrincipalQuery>,
    Json(ChangeMember { muted }): Json<ChangeMember>,
) -> Result<JsonResponse<MemberWritten>> {
    check_own(&user, query.principal.as_deref())?;
    let member = app.change(move |engine| {
        let table = engine.feed_table(&table)?;
        let feed = engine.feed(&table, &FeedName::parse(&feed))?;
        members::change_member(engine, &table, feed, &user, MemberChange::Muted(muted))?;
        known_member(engine, &table, feed, &user)
    });
    Ok(written(&app, (member.await?, 0), Some(muted), id))
}

/// Read the inbox of a user
///
/// The inbox shows the messages and events of all feeds of which the user is a member, by their sequence numbers.
/// `next` is a cursor as for one feed: a device that sends it as `after` gets every message exactly once.
#[utoipa::path(
    security(("token" = ["read"])),
    get, path = "/v1/tables/{table}/users/{user}/inbox", tag = "feeds", operation_id = "read_inbox",
    params(UserPath, MessageQuery),
    responses((status = 200, description = "A page of messages, each with its feed", body = MessagePage), QueryFailures)
)]
async fn read_inbox(
    app: Grant,
    id: RequestId,
    Path(UserPath { table, user }): Path<UserPath>,
    Query(query): Query<MessageQuery>,
) -> Result<Response> {
    pages::respond(app, id, table, Messages::Inbox(user), query).await
}

/// List the conversations of a user
///
/// Returns the feeds of which the user is a member, those with the newest message first. Each feed has its last
/// message and the number of its unread messages. The response also has the total number of unread messages. A message that
/// arrives between two pages moves its conversation to the first page; no other conversation is missed or returned twice.
#[utoipa::path(
    security(("token" = ["read"])),
    get, path = "/v1/tables/{table}/users/{user}/conversations", tag = "feeds", operation_id = "list_conversations",
    params(UserPath, ConversationQuery),
    responses((status = 200, description = "The conversations", body = ConversationList), QueryFailures)
)]
async fn conversations(
    app: Grant,
    id: RequestId,
    Path(UserPath { table, user }): Path<UserPath>,
    Query(query): Query<ConversationQuery>,
) -> Result<Response> {
    check_model(&app, &table)?;
    check_user(&user, query.principal.as_deref())?;
    let limit = page_limit(query.limit, CONVERSATIONS, CONVERSATIONS_MAX)?;
    let description = describe(id.clone(), &table, "conversations", &query);
    let found = answer(
        &app,
        description,
        RowTier::Hot,
        move |engine, table, is_stopped| {
            let page = (limit, query.page.as_deref());
            Ok(inbox::conversations(engine, table, &user, page, is_stopped)?)
        },
    );
    let found = found.await?;
    let rest = ConversationList {
        conversations: Vec::new(),
        next: found.next.clone(),
        total: found.total as u64,
        unread: found.unread,
        request_id: id.into(),
    };
    let bytes = found.conversations.len() * CONVERSATION_BYTES;
    let write = |json: &mut Vec<u8>| found.write_conversations(json);
    with_items("{\"conversations\":[", bytes, write, &rest)
}

/// Set a cursor of a user in a feed
///
/// Without `device`, the messages up to the sequence number count as read. With `device`, the cursor is kept for the
/// device. With `rewind`, the cursor can be set back, so that later messages are unread again.
#[utoipa::path(
    security(("token" = ["write"])),
    put, path = "/v1/tables/{table}/users/{user}/cursors/{feed}", tag = "feeds", operation_id = "set_cursor",
    params(MemberPath, PrincipalQuery),
    request_body = SetCursor,
    responses((status = 200, description = "The cursor", body = CursorSet), Failures)
)]
async fn set_cursor(
    app: Grant,
    id: RequestId,
    Path(MemberPath { table, feed, user }): Path<MemberPath>,
    Query(query): Query<PrincipalQuery>,
    Json(request): Json<SetCursor>,
) -> Result<JsonResponse<CursorSet>> {
    check_own(&user, query.principal.as_deref())?;
    let requested = request.sequence.0;
    // The present cursor is stored data, which a token that only writes must not see.
    let reads = app.engine.check_reads().is_ok();
    let cursor = app.change(move |engine| {
        let table = engine.feed_table(&table)?;
        let feed = engine.feed(&table, &FeedName::parse(&feed))?;
        let (device, sequence) = (request.device.as_deref(), request.sequence.0);
        let change = match request.rewind {
            false => MemberChange::Cursor { device, sequence },
            true => MemberChange::Rewind { device, sequence },
        };
        Ok(members::change_member(engine, &table, feed, &user, change)?)
    });
    Ok(JsonResponse(CursorSet {
        cursor: cursor
            .await?
            .filter(|cursor| reads || *cursor == requested)
            .map(Sequence),
        request_id: id.into(),
    }))
}

/// Read the cursors of a user in a feed
#[utoipa::path(
    security(("token" = ["read"])),
    get, path = "/v1/tables/{table}/users/{user}/cursors/{feed}", tag = "feeds", operation_id = "read_cursors",
    params(MemberPath, UserQuery),
    responses((status = 200, description = "The cursors", body = CursorList), Failures)
)]
async fn read_cursors(
    app: Grant,
    id: RequestId,
    Path(MemberPath { table, feed, user }): Path<MemberPath>,
    Query(query): Query<UserQuery>,
) -> Result<JsonResponse<CursorList>> {
    check_user(&user, query.principal.as_deref())?;
    let cursors = app.read(move |engine| {
        let table = engine.feed_table(&table)?;
        let feed = engine.feed(&table, &FeedName::parse(&feed))?;
        let member = known_member(engine, &table, feed, &user)?;
        Ok((member, members::device_cursors(engine, &table, feed, &user)?))
    });
    let (member, devices) = cursors.await?;
    Ok(JsonResponse(CursorList {
        cursor: member.cursor.map(Sequence),
        devices: devices
            .into_iter()
            .map(|(device, cursor)| (device, Sequence(cursor)))
            .collect(),
        request_id: id.into(),
    }))
}

/// Returns a member.
fn known_member(
    engine: &Engine,
    table: &WideTable,
    feed: tideline_engine::model::TimelineId,
    user: &str,
) -> Result<Membership> {
    let member = members::member(engine, table, feed, user)?;
    let missing = || tideline_engine::EngineError::NoSuchMember {
        user: user.to_owned(),
        feed: feed.to_string(),
    };
    Ok(member.ok_or_else(missing)?)
}

/// Returns the response to a change of a member. `muted` is the value that the request has set.
fn written(
    app: &Grant,
    (member, skipped): (Membership, u64),
    muted: Option<bool>,
    id: RequestId,
) -> JsonResponse<MemberWritten> {
    let feed = member.feed.to_string();
    JsonResponse(match app.engine.check_reads() {
        Ok(()) => MemberWritten::Member(MemberDetail {
            feed,
            member: view(member),
            skipped,
            request_id: id.into(),
        }),
        Err(_) => MemberWritten::Changed(MemberChanged {
            feed,
            user: member.user,
            muted,
            skipped,
            request_id: id.into(),
        }),
    })
}

fn view(member: Membership) -> Member {
    Member {
        user: member.user,
        joined: Timestamp::from_nanos_clamped(member.joined).to_rfc3339(),
        cursor: member.cursor.map(Sequence),
        muted: member.is_muted,
    }
}

/// Parses the token of a page of members: the time of the last member, and its name.
fn position_of(token: &str) -> Result<(i64, String)> {
    let position = token.split_once('.');
    let position = position.and_then(|(joined, user)| Some((joined.parse().ok()?, user.to_owned())));
    position.ok_or_else(|| Failure::invalid("parameter page is damaged; send the `next` of a response"))
}

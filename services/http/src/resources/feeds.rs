//! `/v1/tables/{table}/feeds`: creates, describes, finds and deletes feeds, and reads several feeds at once.
//!
//! The messages of one feed are in [`messages`] and [`pages`], members and users in [`members`] and [`blocks`],
//! live messages in [`watch`]. `tideline_message_feed` defines messages. Feeds are timelines, so a search for
//! feeds is a search for timelines.

mod blocks;
mod members;
mod messages;
mod pages;
mod watch;

use std::sync::Arc;

use axum::Json as JsonResponse;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;
use tideline_engine::feeds::FeedName;
use tideline_engine::model::feed::INBOX;
use tideline_engine::model::{TableModel, TimelineId};
use tideline_engine::{Engine, ErrorKind, WideTable};
use tideline_message_feed::inbox;
use tideline_message_feed::members::delete_feed as delete_with_members;
use tideline_message_feed::read::{
    self as reading, FEEDS_MAX, PAGE_MESSAGES, PAGE_MESSAGES_MAX, Page, ReadTerms, Room,
};
use tideline_message_feed::search::search as search_messages;
use tideline_message_feed::viewer::{check_writable, named_inbox_user, readable_feed};
use tideline_message_feed::{MessageEncoder, MessageList};
use tideline_openapi::ErrorCode;
use tideline_openapi::condition::Condition;
use tideline_openapi::feed::{
    FeedChanged, FeedDetail, FeedError, FeedPage, FeedPages, FeedWritten, MergeFeeds, MergedPage,
    MessagesFound, PutFeed, ReadFeeds, SearchMessages, Sequence,
};
use tideline_openapi::timeline::{TimelineList, TimelineSearch};
use tideline_results::attribute_view;
use tideline_rows::RowsError;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::context::RequestId;
use crate::extract::{Json, Path, Query};
use crate::failure::{Failure, Result};
use crate::grant::Grant;
use crate::resources::query::describe;
use crate::resources::rows::{RowTier, answer, tier_of};
use crate::resources::timelines::{attributes_set, find_in, to_changes};
use crate::resources::{Failures, QueryFailures, page_limit};

pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(put, describe_feed, delete_feed))
        .routes(routes!(search))
        .routes(routes!(read))
        .routes(routes!(merge))
        .routes(routes!(find_messages))
        .merge(messages::router())
        .merge(members::router())
        .merge(watch::router())
        .merge(blocks::router())
}

/// Path parameter of routes for a feed table.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct FeedTablePath {
    /// Name of the table, which has the model `feed`
    #[param(example = "chat")]
    table: String,
}

/// Path parameters of routes for a feed.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct FeedPath {
    /// Name of the table, which has the model `feed`
    #[param(example = "chat")]
    table: String,
    /// Feed: its id of 32 hexadecimal digits, or its type and tags
    #[param(example = "room,name=lobby")]
    feed: String,
}

/// Returns the table and the id of a feed that a request reads on behalf of `user`. The inbox of another user is refused.
fn feed_to_read(
    engine: &Engine,
    path: &FeedPath,
    user: Option<&str>,
) -> Result<(Arc<WideTable>, TimelineId)> {
    let table = engine.feed_table(&path.table)?;
    let feed = readable_feed(engine, &table, &FeedName::parse(&path.feed), user)?;
    Ok((table, feed))
}

/// Principal of a write that concerns a feed or a user.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct PrincipalQuery {
    /// Principal on whose behalf the request acts. Requests for the cursors, blocks and muted conversations of a user
    /// act only on behalf of this user, and no other user changes an inbox.
    #[serde(rename = "as", default)]
    principal: Option<String>,
}

/// Principal of a read of feeds.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct FeedQuery {
    /// Principal on whose behalf the request reads. The inboxes of other users are refused, and a search does not find
    /// them.
    #[serde(rename = "as", default)]
    principal: Option<String>,
}

/// Principal of a read whose body can have the principal too.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ViewerQuery {
    /// Principal on whose behalf the request reads, like the member `as` of the body. If both differ, the request is
    /// refused.
    #[serde(rename = "as", default)]
    principal: Option<String>,
}

impl ViewerQuery {
    /// Sets the principal of a body that has none.
    fn join(self, of_body: &mut Option<String>) -> Result<()> {
        let Some(of_query) = self.principal else {
            return Ok(());
        };
        if let Some(other) = of_body.as_deref().filter(|other| *other != of_query) {
            return Err(Failure::invalid(format!(
                "as: the query has {of_query:?}, and the body has {other:?}; name one principal"
            )));
        }
        *of_body = Some(of_query);
        Ok(())
    }
}

/// Create a feed, or set its attributes
///
/// The first message of a feed creates it too. A feed is named by a type and tags, such as `room,name=lobby`; commas,
/// spaces and equals signs within names are escaped with a backslash. A token without a role that reads gets only the id
/// of the feed and the attributes that the request has set.
#[utoipa::path(
    security(("token" = ["write"])),
    put, path = "/v1/tables/{table}/feeds/{feed}", tag = "feeds", operation_id = "put_feed",
    params(FeedPath, PrincipalQuery),
    request_body = PutFeed,
    responses((status = 200, description = "The feed", body = FeedWritten), Failures)
)]
async fn put(
    app: Grant,
    id: RequestId,
    Path(FeedPath { table, feed }): Path<FeedPath>,
    Query(query): Query<PrincipalQuery>,
    Json(PutFeed { attributes }): Json<PutFeed>,
) -> Result<JsonResponse<FeedWritten>> {
    let changes = to_changes(attributes, app.engine.now())?;
    let written = app.change(move |engine| {
        let table = engine.feed_table(&table)?;
        let feed = FeedName::parse(&feed);
        check_writable(engine, &table, &feed, query.principal.as_deref())?;
        let feed = engine.feed_or_new(&table, &feed)?;
        if !changes.is_empty() {
            engine.set_attributes(table.table(), feed, &changes)?;
        }
        Ok(match engine.check_reads() {
            Ok(()) => FeedWritten::Feed(detail_of(engine, &table, feed, id)?),
            Err(_) => FeedWritten::Changed(FeedChanged {
                id: feed.to_string(),
                attributes: attributes_set(changes),
                request_id: id.into(),
            }),
        })
    });
    Ok(JsonResponse(written.await?))
}

/// Describe a feed
#[utoipa::path(
    security(("token" = ["read"])),
    get, path = "/v1/tables/{table}/feeds/{feed}", tag = "feeds", operation_id = "read_feed",
    params(FeedPath, FeedQuery),
    responses((status = 200, description = "The feed", body = FeedDetail), Failures)
)]
async fn describe_feed(
    app: Grant,
    id: RequestId,
    Path(path): Path<FeedPath>,
    Query(query): Query<FeedQuery>,
) -> Result<JsonResponse<FeedDetail>> {
    let detail = app.read(move |engine| {
        let (table, feed) = feed_to_read(engine, &path, query.principal.as_deref())?;
        detail_of(engine, &table, feed, id)
    });
    Ok(JsonResponse(detail.await?))
}

/// Delete a feed
///
/// Deletes the feed with its messages and attributes. The next message or read creates the inbox of a member again,
/// without the earlier entries; unread counts do not change. A feed that gets a message later is created again with the same
/// id. Repeating the request is safe; after an error, some of the messages can be deleted.
#[utoipa::path(
    security(("token" = ["write"])),
    delete, path = "/v1/tables/{table}/feeds/{feed}", tag = "feeds", operation_id = "delete_feed",
    params(FeedPath, PrincipalQuery),
    responses((status = 204, description = "The feed is deleted"), Failures)
)]
async fn delete_feed(
    app: Grant,
    Path(FeedPath { table, feed }): Path<FeedPath>,
    Query(query): Query<PrincipalQuery>,
) -> Result<StatusCode> {
    let cancel = tideline_query::Cancel::new();
    let _waiting = crate::app::Waiting(Some(cancel.clone()));
    app.change(move |engine| {
        let table = engine.feed_table(&table)?;
        let feed = FeedName::parse(&feed);
        check_writable(engine, &table, &feed, query.principal.as_deref())?;
        let feed = engine.feed(&table, &feed)?;
        Ok(delete_with_members(engine, &table, feed, &|| {
            cancel.is_cancelled()
        })?)
    })
    .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Search feeds
///
/// Finds feeds by a tree of conditions on type (`measurement`), tags and attributes. A new feed can be found as soon as
/// the request that created it is acknowledged.
#[utoipa::path(
    security(("token" = ["read"])),
    post, path = "/v1/tables/{table}/feeds/search", tag = "feeds", operation_id = "search_feeds",
    params(FeedTablePath, FeedQuery),
    request_body = TimelineSearch,
    responses((status = 200, description = "A page of feeds", body = TimelineList), Failures)
)]
async fn search(
    app: Grant,
    id: RequestId,
    Path(FeedTablePath { table }): Path<FeedTablePath>,
    Query(query): Query<FeedQuery>,
    Json(mut search): Json<TimelineSearch>,
) -> Result<JsonResponse<TimelineList>> {
    if let Some(user) = query.principal
        && app.engine.feed_table(&table)?.feed().inboxes.is_some()
    {
        search.condition = Some(without_other_inboxes(&user, search.condition)?);
    }
    find_in(&app, (TableModel::Feed, table), search, id).await
}

/// Read messages of several feeds
///
/// Reads a page of each feed after its own cursor, for example of all conversations of a device that was offline. The
/// page of a feed that does not exist has an `error` and no messages.
#[utoipa::path(
    security(("token" = ["read"])),
    post, path = "/v1/tables/{table}/feeds/read", tag = "feeds", operation_id = "read_feeds",
    params(FeedTablePath, ViewerQuery),
    request_body = ReadFeeds,
    responses((status = 200, description = "A page of each feed", body = FeedPages), QueryFailures)
)]
async fn read(
    app: Grant,
    id: RequestId,
    Path(FeedTablePath { table }): Path<FeedTablePath>,
    Query(query): Query<ViewerQuery>,
    Json(mut request): Json<ReadFeeds>,
) -> Result<JsonResponse<FeedPages>> {
    query.join(&mut request.principal)?;
    check_model(&app, &table)?;
    check_feeds(request.feeds.len())?;
    let limit = page_limit(request.limit, PAGE_MESSAGES, PAGE_MESSAGES_MAX)?;
    let description = describe(id.clone(), &table, "feeds", &request);
    let is_cold = |engine: &Engine, table: &WideTable, request: &ReadFeeds| {
        any_cold(request.feeds.iter(), |cursor| {
            match engine.feed(table, &FeedName::parse(&cursor.feed)) {
                Ok(feed) => terms_of(request, cursor).reaches_cold(engine, table, feed),
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
                Err(error) => Err(error.into()),
            }
        })
    };
    let (tier, request) = tier_of(&app, &table, request, is_cold).await?;
    let pages = answer(&app, description, tier, move |engine, table, is_stopped| {
        let encoder = MessageEncoder {
            columns: request.columns.clone(),
            has_feed: false,
            ..MessageEncoder::default()
        };
        let mut room = Room::default();
        let seen = ReadTerms::default().seen_by(engine, table, request.principal.as_deref())?;
        let pages = request.feeds.iter().map(|cursor| {
            let name = FeedName::parse(&cursor.feed);
            let feed = match readable_feed(engine, table, &name, request.principal.as_deref()) {
                Ok(feed) => feed,
                Err(RowsError::Engine(error)) if error.kind() == ErrorKind::NotFound => {
                    return Ok(FeedPage {
                        feed: cursor.feed.clone(),
                        messages: raw("[]".to_owned())?,
                        next: cursor.after,
                        more: false,
                        error: Some(FeedError {
                            code: ErrorCode::NotFound,
                            message: error.to_string(),
                        }),
                    });
                }
                Err(error) => return Err(error.into()),
            };
            let terms = ReadTerms {
                viewer: seen.viewer.clone(),
                ..terms_of(&request, cursor)
            };
            let reads = (&terms, &encoder, limit);
            let page = page_of(engine, table, (feed, &name), reads, &mut room, is_stopped)?;
            Ok(FeedPage {
                feed: cursor.feed.clone(),
                messages: raw(page.messages.to_json())?,
                next: page.next.map(Sequence),
                more: page.has_more,
                error: None,
            })
        });
        pages.collect::<Result<Vec<_>>>()
    });
    Ok(JsonResponse(FeedPages {
        feeds: pages.await?,
        request_id: id.into(),
    }))
}

/// Read messages of several feeds in one order
///
/// Returns the messages of the feeds, for example of all authors whom a user follows, in the order of time, feed and
/// sequence number. Messages of different feeds with equal times and sequence numbers are all returned. Of an inbox,
/// only the messages that were sent to it directly are returned.
#[utoipa::path(
    security(("token" = ["read"])),
    post, path = "/v1/tables/{table}/feeds/merge", tag = "feeds", operation_id = "merge_feeds",
    params(FeedTablePath, ViewerQuery),
    request_body = MergeFeeds,
    responses((status = 200, description = "A page of messages", body = MergedPage), QueryFailures)
)]
async fn merge(
    app: Grant,
    id: RequestId,
    Path(FeedTablePath { table }): Path<FeedTablePath>,
    Query(query): Query<ViewerQuery>,
    Json(mut request): Json<MergeFeeds>,
) -> Result<JsonResponse<MergedPage>> {
    query.join(&mut request.principal)?;
    check_model(&app, &table)?;
    check_feeds(request.feeds.len())?;
    let limit = page_limit(request.limit, PAGE_MESSAGES, PAGE_MESSAGES_MAX)?;
    let description = describe(id.clone(), &table, "feeds", &request);
    let now = app.engine.now();
    let terms = ReadTerms {
        from: request.from.map(|from| from.resolve(now)),
        to: request.to.map(|to| to.resolve(now)),
        order: request.order,
        has_events: request.events,
        ..ReadTerms::default()
    };
    let bounds = terms.clone();
    let is_cold = move |engine: &Engine, table: &WideTable, request: &MergeFeeds| {
        any_cold(request.feeds.iter(), |name| {
            let feed = engine.feed(table, &FeedName::parse(name))?;
            bounds.reaches_cold(engine, table, feed)
        })
    };
    let (tier, request) = tier_of(&app, &table, request, is_cold).await?;
    let merged = answer(&app, description, tier, move |engine, table, is_stopped| {
        let feeds = request.feeds.iter();
        let user = request.principal.as_deref();
        let feeds = feeds.map(|name| Ok(readable_feed(engine, table, &FeedName::parse(name), user)?));
        let feeds = feeds.collect::<Result<Vec<TimelineId>>>()?;
        let encoder = MessageEncoder {
            columns: request.columns.clone(),
            has_feed: true,
            ..MessageEncoder::default()
        };
        let terms = terms.seen_by(engine, table, user)?;
        let page = (limit, request.page.as_deref());
        Ok(reading::merge(
            engine, table, &feeds, &terms, &encoder, page, is_stopped,
        )?)
    });
    let merged = merged.await?;
    Ok(JsonResponse(MergedPage {
        messages: raw(merged.messages.to_json())?,
        next: merged.next,
        request_id: id.into(),
    }))
}

/// Search messages
///
/// Finds messages by any combination of conditions through a search index of the table, in one feed, in several, or in
/// all. Events are found like messages; exclude them with a condition on the column `event`.
#[utoipa::path(
    security(("token" = ["read"])),
    post, path = "/v1/tables/{table}/feeds/messages/search", tag = "feeds", operation_id = "search_messages",
    params(FeedTablePath, ViewerQuery),
    request_body = SearchMessages,
    responses((status = 200, description = "A page of messages", body = MessagesFound), QueryFailures)
)]
async fn find_messages(
    app: Grant,
    id: RequestId,
    Path(FeedTablePath { table }): Path<FeedTablePath>,
    Query(query): Query<ViewerQuery>,
    Json(mut request): Json<SearchMessages>,
) -> Result<JsonResponse<MessagesFound>> {
    query.join(&mut request.principal)?;
    check_model(&app, &table)?;
    let description = describe(id.clone(), &table, "messages", &request);
    let found = answer(
        &app,
        description,
        RowTier::Hot,
        move |engine, table, is_stopped| {
            let mut messages = MessageList::default();
            let mut take = |json: &[u8]| {
                messages.push_encoded(json);
                Ok(())
            };
            let end = search_messages(engine, table, request, is_stopped, &mut take)?;
            Ok((messages, end))
        },
    );
    let (messages, (end, total)) = found.await?;
    Ok(JsonResponse(MessagesFound {
        messages: raw(messages.to_json())?,
        total,
        waiting: end.waiting,
        next: end.next,
        request_id: id.into(),
    }))
}

/// Reads a page of one of several feeds. The page of an inbox has the messages that the inbox shows, each with its feed.
fn page_of(
    engine: &Engine,
    table: &Arc<WideTable>,
    (feed, name): (TimelineId, &FeedName),
    (terms, encoder, limit): (&ReadTerms, &MessageEncoder, usize),
    room: &mut Room,
    is_stopped: &dyn Fn() -> bool,
) -> Result<Page> {
    // Only the type of a feed with an id is read from storage.
    let Some(user) = named_inbox_user(engine, table, name)? else {
        let limits = (limit, room);
        return Ok(reading::page(
            engine,
            table,
            (feed, terms),
            encoder,
            limits,
            is_stopped,
        )?);
    };
    let encoder = MessageEncoder {
        has_feed: true,
        ..encoder.clone()
    };
    let limit = match room.bytes {
        0 => 0,
        _ => limit.min(room.messages),
    };
    let page = inbox::page(engine, table, (&user, terms), &encoder, limit, is_stopped)?;
    room.messages -= page.messages.len();
    room.bytes = room.bytes.saturating_sub(page.messages.items().len());
    Ok(page)
}

/// Extends the condition of a search for feeds, so that it finds no inbox of another user.
fn without_other_inboxes(user: &str, condition: Option<Condition>) -> Result<Condition> {
    let other = json!({"not": {"and": [
        {"property": "measurement", "equals": INBOX}, {"not": {"tag": "user", "equals": user}}]}});
    let other = serde_json::from_value::<Condition>(other);
    let Condition(other) = other.map_err(|error| Failure::new(ErrorCode::Internal, error.to_string()))?;
    Ok(Condition(match condition {
        None => other,
        Some(Condition(condition)) => tideline_engine::condition::Condition::And(vec![other, condition]),
    }))
}

/// Describes a feed.
fn detail_of(engine: &Engine, table: &Arc<WideTable>, feed: TimelineId, id: RequestId) -> Result<FeedDetail> {
    let timeline = engine.described_feed(table, feed)?;
    Ok(FeedDetail {
        id: feed.to_string(),
        kind: timeline.measurement,
        tags: timeline.tags.into_iter().collect(),
        attributes: timeline
            .attributes
            .into_iter()
            .map(|(key, value)| (key, attribute_view(value)))
            .collect(),
        newest: reading::newest_sequence(engine, table, feed)?.map(Sequence),
        request_id: id.into(),
    })
}

/// Returns the read terms of one feed of the request.
fn terms_of(request: &ReadFeeds, cursor: &tideline_openapi::feed::FeedCursor) -> ReadTerms {
    ReadTerms {
        after: cursor.after.map(|Sequence(after)| after),
        before: cursor.before.map(|Sequence(before)| before),
        order: request.order,
        has_events: request.events.unwrap_or(true),
        ..ReadTerms::default()
    }
}

/// Returns true if the read of at least one feed reaches old rows.
fn any_cold<T>(
    mut feeds: impl Iterator<Item = T>,
    mut is_cold: impl FnMut(T) -> std::result::Result<bool, RowsError>,
) -> std::result::Result<bool, RowsError> {
    feeds.try_fold(false, |is_any, feed| Ok(is_any || is_cold(feed)?))
}

fn check_feeds(count: usize) -> Result<()> {
    match count {
        0 => Err(Failure::invalid("feeds is empty; name at least one feed")),
        count if count > FEEDS_MAX => Err(Failure::over(
            ErrorCode::OverLimit,
            "number of feeds",
            FEEDS_MAX as u64,
            count as u64,
        )),
        _ => Ok(()),
    }
}

/// Returns an error if the table is not a table of feeds. The functions that read messages accept every wide table.
fn check_model(app: &Grant, table: &str) -> Result<()> {
    app.engine.feed_table(table)?;
    Ok(())
}

/// Converts JSON to a part of a response.
pub(crate) fn raw(json: String) -> Result<Box<RawValue>> {
    RawValue::from_string(json).map_err(|error| Failure::new(ErrorCode::Internal, error.to_string()))
}

/// Returns a response with a list of items that `write_items` appends as JSON, with an expected size of `bytes`. `rest`
/// is the response without items, and `begin` is its JSON up to the first item. A serializer would parse items again
/// that are JSON already. Other items are written by crates that, unlike this one, are compiled for speed.
fn with_items(
    begin: &str,
    bytes: usize,
    write_items: impl FnOnce(&mut Vec<u8>),
    rest: &impl Serialize,
) -> Result<Response> {
    let rest = serde_json::to_vec(rest);
    let rest = rest.map_err(|error| Failure::new(ErrorCode::Internal, error.to_string()))?;
    let rest = rest
        .strip_prefix(begin.as_bytes())
        .expect("the list follows the first members");
    let mut json = Vec::with_capacity(begin.len() + bytes + rest.len());
    json.extend_from_slice(begin.as_bytes());
    write_items(&mut json);
    json.extend_from_slice(rest);
    Ok(([(CONTENT_TYPE, "application/json")], json).into_response())
}

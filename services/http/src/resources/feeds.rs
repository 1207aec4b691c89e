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
use serde::Deserialize;
use serde_json::value::RawValue;
use tideline_engine::feeds::FeedName;
use tideline_engine::model::{TableModel, TimelineId};
use tideline_engine::{Engine, ErrorKind, WideTable};
use tideline_message_feed::members::delete_feed as delete_with_members;
use tideline_message_feed::read::{
    self as reading, FEEDS_MAX, PAGE_MESSAGES, PAGE_MESSAGES_MAX, ReadTerms, Room,
};
use tideline_message_feed::search::search as search_messages;
use tideline_message_feed::viewer::{check_writable, readable_feed};
use tideline_message_feed::{MessageEncoder, MessageList};
use tideline_openapi::ErrorCode;
use tideline_openapi::feed::{
    FeedDetail, FeedError, FeedPage, FeedPages, MergeFeeds, MergedPage, MessagesFound, PutFeed, ReadFeeds,
    SearchMessages, Sequence,
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
use crate::resources::timelines::{find_in, to_changes};
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

/// Create a feed, or set its attributes
///
/// The first message of a feed creates it too. A feed is named by a type and tags, such as `room,name=lobby`; commas,
/// spaces and equals signs within names are escaped with a backslash.
#[utoipa::path(
    security(("token" = ["write"])),
    put, path = "/v1/tables/{table}/feeds/{feed}", tag = "feeds", operation_id = "put_feed",
    params(FeedPath, PrincipalQuery),
    request_body = PutFeed,
    responses((status = 200, description = "The feed", body = FeedDetail), Failures)
)]
async fn put(
    app: Grant,
    id: RequestId,
    Path(FeedPath { table, feed }): Path<FeedPath>,
    Query(query): Query<PrincipalQuery>,
    Json(PutFeed { attributes }): Json<PutFeed>,
) -> Result<JsonResponse<FeedDetail>> {
    let changes = to_changes(attributes, app.engine.now())?;
    let detail = app.change(move |engine| {
        let table = engine.feed_table(&table)?;
        let feed = FeedName::parse(&feed);
        check_writable(engine, &table, &feed, query.principal.as_deref())?;
        let feed = engine.feed_or_new(&table, &feed)?;
        if !changes.is_empty() {
            engine.set_attributes(table.table(), feed, &changes)?;
        }
        detail_of(engine, &table, feed, id)
    });
    Ok(JsonResponse(detail.await?))
}

/// Describe a feed
#[utoipa::path(
    security(("token" = ["read"])),
    get, path = "/v1/tables/{table}/feeds/{feed}", tag = "feeds", operation_id = "read_feed",
    params(FeedPath),
    responses((status = 200, description = "The feed", body = FeedDetail), Failures)
)]
async fn describe_feed(
    app: Grant,
    id: RequestId,
    Path(FeedPath { table, feed }): Path<FeedPath>,
) -> Result<JsonResponse<FeedDetail>> {
    let detail = app.read(move |engine| {
        let table = engine.feed_table(&table)?;
        let feed = engine.feed(&table, &FeedName::parse(&feed))?;
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
    params(FeedTablePath),
    request_body = TimelineSearch,
    responses((status = 200, description = "A page of feeds", body = TimelineList), Failures)
)]
async fn search(
    app: Grant,
    id: RequestId,
    Path(FeedTablePath { table }): Path<FeedTablePath>,
    Json(search): Json<TimelineSearch>,
) -> Result<JsonResponse<TimelineList>> {
    find_in(&app, (TableModel::Feed, table), search, id).await
}

/// Read messages of several feeds
///
/// Reads a page of each feed after its own cursor, for example of all conversations of a device that was offline. The
/// page of a feed that does not exist has an `error` and no messages.
#[utoipa::path(
    security(("token" = ["read"])),
    post, path = "/v1/tables/{table}/feeds/read", tag = "feeds", operation_id = "read_feeds",
    params(FeedTablePath),
    request_body = ReadFeeds,
    responses((status = 200, description = "A page of each feed", body = FeedPages), QueryFailures)
)]
async fn read(
    app: Grant,
    id: RequestId,
    Path(FeedTablePath { table }): Path<FeedTablePath>,
    Json(request): Json<ReadFeeds>,
) -> Result<JsonResponse<FeedPages>> {
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
            let page = reading::page(
                engine,
                table,
                (feed, &terms),
                &encoder,
                (limit, &mut room),
                is_stopped,
            )?;
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
/// sequence number. Messages of different feeds with equal times and sequence numbers are all returned.
#[utoipa::path(
    security(("token" = ["read"])),
    post, path = "/v1/tables/{table}/feeds/merge", tag = "feeds", operation_id = "merge_feeds",
    params(FeedTablePath),
    request_body = MergeFeeds,
    responses((status = 200, description = "A page of messages", body = MergedPage), QueryFailures)
)]
async fn merge(
    app: Grant,
    id: RequestId,
    Path(FeedTablePath { table }): Path<FeedTablePath>,
    Json(request): Json<MergeFeeds>,
) -> Result<JsonResponse<MergedPage>> {
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
    params(FeedTablePath),
    request_body = SearchMessages,
    responses((status = 200, description = "A page of messages", body = MessagesFound), QueryFailures)
)]
async fn find_messages(
    app: Grant,
    id: RequestId,
    Path(FeedTablePath { table }): Path<FeedTablePath>,
    Json(request): Json<SearchMessages>,
) -> Result<JsonResponse<MessagesFound>> {
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

//! `/v1/tables/{table}/feeds/{feed}/watch` and `/v1/tables/{table}/users/{user}/inbox/watch`: new messages as server-sent
//! events.
//!
//! The messages are read from their feed after a cursor, so a watch can begin anywhere, and a slow client misses nothing.
//! [`crate::feed_watching`] signals new messages, and [`crate::live`] sends the events.

use std::sync::Arc;

use axum::http::HeaderMap;
use axum::response::Response;
use bytes::Bytes;
use tideline_engine::feeds::FeedName;
use tideline_engine::{Engine, WideTable};
use tideline_message_feed::MessageEncoder;
use tideline_message_feed::read::{Page, ReadTerms, cursor_now};
use tideline_openapi::feed::{MessageWatchQuery, Sequence, WatchedMessages};
use tideline_openapi::watch::WatchReady;
use tideline_query::Cancel;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::members::UserPath;
use super::pages::{MessageReader, Messages, PageRequest, columns_of, parse_sequence};
use super::{FeedPath, raw};
use crate::app::{App, Waiting};
use crate::context::{RequestId, current_client};
use crate::extract::{Path, Query};
use crate::failure::Result;
use crate::feed_watching::{FeedPages, PageForm};
use crate::grant::Grant;
use crate::live::{self, Source, Step, put_data, put_head};
use crate::resources::QueryFailures;
use crate::resources::query::describe;
use crate::resources::rows::{RowTier, answer, tier_of};
use crate::watching::{BYTES_PER_BYTE, WHAT};

/// Maximum number of messages of an event.
const EVENT_MESSAGES: usize = 100;

pub(super) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(watch_feed))
        .routes(routes!(watch_inbox))
}

/// Watch a feed
///
/// Sends messages, and events of edits, recalls and deletions, as server-sent events when they are acknowledged. Events:
///
/// * `ready`: the first event, with the start of the watch (`WatchReady`).
/// * `messages`: messages in the order of their sequence numbers (`WatchedMessages`).
/// * `failed`: the last event (`ErrorBody`). The watch cannot continue, for example because the feed was deleted.
/// * `resume`: the last event (`WatchResume`). The client has read nothing for half of `http.answer_timeout`. Start the
///   watch again after the `id` of the event.
///
/// The `id` of an event is the sequence number of its last message. To continue after that message, send the `id`
/// as `after` or in the header `Last-Event-ID`, which browsers send when they reconnect. No message is missed or
/// sent twice, also after a restart of the service and after any time, as long as the messages are stored.
///
/// In a table with manual sequence numbers, a message with a lower number than a message that was already sent is
/// not sent.
#[utoipa::path(
    security(("token" = ["read"])),
    get, path = "/v1/tables/{table}/feeds/{feed}/watch", tag = "feeds", operation_id = "watch_feed",
    params(FeedPath, MessageWatchQuery),
    responses(
        (status = 200, description = "Events until the client disconnects", content((String = "text/event-stream", example = events_example))),
        QueryFailures
    )
)]
async fn watch_feed(
    app: Grant,
    id: RequestId,
    Path(FeedPath { table, feed }): Path<FeedPath>,
    headers: HeaderMap,
    Query(query): Query<MessageWatchQuery>,
) -> Result<Response> {
    let messages = Messages::Feed(FeedName::parse(&feed));
    watch(app, (id, table, messages), &headers, query).await
}

/// Watch the inbox of a user
///
/// Sends the messages of all feeds of which the user is a member, as the watch of a feed does.
#[utoipa::path(
    security(("token" = ["read"])),
    get, path = "/v1/tables/{table}/users/{user}/inbox/watch", tag = "feeds", operation_id = "watch_inbox",
    params(UserPath, MessageWatchQuery),
    responses(
        (status = 200, description = "Events until the client disconnects", content((String = "text/event-stream", example = events_example))),
        QueryFailures
    )
)]
async fn watch_inbox(
    app: Grant,
    id: RequestId,
    Path(UserPath { table, user }): Path<UserPath>,
    headers: HeaderMap,
    Query(query): Query<MessageWatchQuery>,
) -> Result<Response> {
    watch(app, (id, table, Messages::Inbox(user)), &headers, query).await
}

fn events_example() -> &'static str {
    "retry: 2000\nid: 1795700000000000000\nevent: ready\ndata: {\"cursor\":\"1795700000000000000\"}\n\nid: 1795700000000000001\nevent: messages\ndata: {\"messages\":[{\"sequence\":\"1795700000000000001\",\"time\":\"2026-11-26T10:13:20.000000001Z\",\"sender\":\"ann\",\"columns\":{\"text\":\"hello\"}}]}\n\n"
}

async fn watch(
    app: Grant,
    (id, table, messages): (RequestId, String, Messages),
    headers: &HeaderMap,
    query: MessageWatchQuery,
) -> Result<Response> {
    let end = live::end_of(query.time)?;
    let after = live::cursor_of(headers, query.after.as_deref());
    let after = after.map(|after| parse_sequence(after, "after")).transpose()?;
    let messages = messages.resolved(&app, &table).await?;
    messages.check_principal(query.principal.as_deref())?;
    let permit = app.feed_watches.take(current_client()).await?;
    let reader = MessageReader::begin(&app, &table, &messages).await?;
    let is_of_existing = live::is_of_existing(query.time);
    let current = match after {
        Some(_) if !is_of_existing => None,
        _ => Some(now(&app, &reader).await?),
    };
    let cursor = after.or(current).unwrap_or(i64::MIN);
    let request = PageRequest {
        principal: query.principal.clone(),
        messages,
        terms: ReadTerms {
            has_events: query.events.unwrap_or(true),
            ..ReadTerms::default()
        },
        encoder: MessageEncoder {
            columns: columns_of(query.columns.as_deref()),
            has_feed: reader.feed.is_none(),
            ..MessageEncoder::default()
        },
        limit: EVENT_MESSAGES,
    };
    let form = PageForm {
        encoder: request.encoder.clone(),
        has_events: request.terms.has_events,
    };
    // A watch on behalf of a principal does not share pages, because other watches may see other messages.
    let shared = reader.feed.filter(|_| query.principal.is_none());
    let pages = shared.map(|feed| reader.reader.pages(feed, &form));
    let mut source = MessageEvents {
        app: app.clone(),
        id,
        query,
        request,
        reader,
        pages,
        cursor,
        existing: current.filter(|_| is_of_existing),
        is_caught_up: false,
    };
    let first = source.step().await?;
    let begin = Sequence(cursor);
    let ready = WatchReady {
        cursor: begin.to_string(),
    };
    let ready = live::ready(&begin, &ready);
    Ok(live::respond(app, (source, permit), end, (ready, first)))
}

/// Returns a cursor after all messages that were sent so far.
async fn now(app: &Grant, reader: &MessageReader) -> Result<i64> {
    let (table, feed) = (Arc::clone(&reader.table), reader.feed);
    let cancel = Cancel::new();
    let _waiting = Waiting(Some(cancel.clone()));
    let cursor = app.read(move |engine| Ok(cursor_now(engine, &table, feed, &|| cancel.is_cancelled())?));
    cursor.await
}

/// Events of a feed or an inbox.
struct MessageEvents {
    app: Grant,
    id: RequestId,
    query: MessageWatchQuery,
    /// Page to read, without its cursor.
    request: PageRequest,
    reader: MessageReader,
    /// Pages that the watches of a feed share; `None` for an inbox, and for a watch on behalf of a principal.
    pages: Option<FeedPages>,
    cursor: i64,
    /// Cursor up to which the watch sends messages although its time is over; `None` = it ends at once.
    existing: Option<i64>,
    is_caught_up: bool,
}

impl Source for MessageEvents {
    type Cursor = i64;

    async fn step(&mut self) -> Result<Arc<Step<i64>>> {
        self.reader.begin_read().await?;
        let mut request = self.request.clone();
        request.terms.after = Some(self.cursor);
        let is_cold =
            |engine: &Engine, table: &WideTable, request: &PageRequest| request.reaches_cold(engine, table);
        let table = self.reader.table.table().name().as_str();
        let (tier, request) = tier_of(&self.app, table, request, is_cold).await?;
        let version = self.pages.as_ref().map(FeedPages::version);
        let read = self.read(request, tier, version);
        let step = match (&self.pages, tier) {
            (Some(pages), RowTier::Hot) => {
                let counters = &self.app.feed_watching.steps;
                let step = pages
                    .steps
                    .step((self.cursor, version), pages.are_shared(), counters, read);
                step.await?
            }
            // A page of old messages can take seconds, and must not delay other watches of the feed.
            _ => Arc::new(read.await?),
        };
        self.cursor = step.end;
        self.is_caught_up = !step.has_more && (version.is_none() || step.is_of(version));
        Ok(step)
    }

    fn jump(&mut self, cursor: i64) {
        self.cursor = cursor;
        self.is_caught_up = false;
    }

    fn is_caught_up(&self) -> bool {
        self.is_caught_up
    }

    fn can_end(&self) -> bool {
        self.is_caught_up || self.existing.is_none_or(|existing| self.cursor >= existing)
    }

    async fn changed(&mut self) -> bool {
        self.reader.reader.changed().await;
        true
    }
}

impl MessageEvents {
    /// Reads and encodes a page after the cursor.
    async fn read(&self, request: PageRequest, tier: RowTier, version: Option<u64>) -> Result<Step<i64>> {
        let from = self.cursor;
        let page = self.page(request, tier).await?;
        let end = page.next.unwrap_or(from);
        let mut memory = self.app.engine.memory().reserve(WHAT, 0)?;
        let mut parts = Vec::new();
        if !page.messages.is_empty() {
            let mut text = Vec::new();
            put_head(Some(&end), "messages", &mut text);
            // The data is one line; JSON of users may have line breaks between its values.
            let mut lines = page.messages.to_json();
            if lines.contains(['\n', '\r']) {
                lines = lines.replace(['\n', '\r'], " ");
            }
            let messages = raw(lines)?;
            put_data(&WatchedMessages { messages }, &mut text);
            memory.grow(BYTES_PER_BYTE * text.len() as u64)?;
            parts.push((end, Bytes::from(text)));
        }
        Ok(Step {
            from,
            end,
            parts,
            version,
            has_more: page.has_more,
            _memory: memory,
        })
    }

    /// Reads a page. Reads new messages on a thread of low priority, and old ones with the permits of requests
    /// for old rows.
    async fn page(&self, request: PageRequest, tier: RowTier) -> Result<Page> {
        let watched = &self.reader.table;
        // Another table may have this name by now.
        self.app.engine.check_exists(watched.table())?;
        let name = watched.table().name().as_str();
        if tier == RowTier::Cold {
            let description = describe(self.id.clone(), name, "messages", &self.query);
            let page = answer(&self.app, description, tier, move |engine, table, is_stopped| {
                Ok(request.read(engine, table, is_stopped)?)
            });
            return page.await;
        }
        let cancel = Cancel::new();
        let _waiting = Waiting(Some(cancel.clone()));
        let engine = self.app.engine.clone();
        let table = engine.feed_table(name)?;
        let read = move || request.read(&engine, &table, &|| cancel.is_cancelled());
        Ok(self.app.watching.in_background(read).await??)
    }
}

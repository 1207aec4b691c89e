//! `/v1/tables/{table}/feeds/{feed}/messages`: sends, reads, counts, edits, recalls and deletes the messages of a feed.
//!
//! Every write takes a write permit. A small request with new messages runs on the async thread that has read it, and
//! releases the permit before it waits for its commit. Other writes run on blocking threads. Reads of cold or archived parts
//! share the limit of cold queries.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Json as JsonResponse;
use axum::extract::{FromRequestParts, Request};
use axum::http::request::Parts;
use axum::response::Response;
use serde::Deserialize;
use tideline_connections::ReceivedBody;
use tideline_engine::feeds::FeedName;
use tideline_engine::model::SequenceNumber;
use tideline_engine::{Engine, WideTable};
use tideline_message_feed::MessageEncoder;
use tideline_message_feed::change::{self, Target};
use tideline_message_feed::inbox;
use tideline_message_feed::read::{self as reading, ReadTerms};
use tideline_message_feed::send::{self, SENT_BYTES, SendCommit, Sent, WriteTerms};
use tideline_message_feed::viewer::{check_writable, inbox_user, readable_feed};
use tideline_openapi::ErrorBody;
use tideline_openapi::feed::{
    CountMessage, EditMessage, MessageChanged, MessageCounters, MessageDetail, MessageEventQuery,
    MessagePage, MessageQuery, MessageReadQuery, MessagesCounted, MessagesSent, NewMessage, SendMessages,
    Sequence,
};
use tideline_openapi::table::Durability;
use tideline_rows::RowsError;
use tokio::runtime::Handle;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::pages::{self, Messages, parse_sequence, terms_of};
use super::{FeedPath, check_model, raw, with_items};
use crate::app::{App, Waiting, blocking};
use crate::body;
use crate::context::RequestId;
use crate::extract::{Json, Path, Query, unreadable};
use crate::failure::{Failure, Result};
use crate::grant::Grant;
use crate::resources::query::describe;
use crate::resources::rows::{answer, tier_of, wait_for_searches};
use crate::resources::{Failures, QueryFailures};

/// Maximum size of an uncompressed body with new messages, in bytes, that is parsed without switching to a blocking
/// thread: 100 messages of 200 bytes with the names of their members. Parsing it takes some tens of microseconds.
const SMALL_SEND_BYTES: usize = 32 << 10;

pub(super) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(send, list))
        .routes(routes!(count))
        .routes(routes!(read, edit, delete))
        .routes(routes!(recall))
        .routes(routes!(add))
}

/// Path parameters of routes for a message.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct MessagePath {
    /// Name of the table, which has the model `feed`
    #[param(example = "chat")]
    table: String,
    /// Feed: its id of 32 hexadecimal digits, or its type and tags
    #[param(example = "room,name=lobby")]
    feed: String,
    /// Sequence number of the message
    #[param(example = "1795700000000000000")]
    sequence: String,
}

/// Options of a write of messages.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct WriteQuery {
    /// Principal on whose behalf the request acts: the sender of messages without a sender, and of events.
    #[serde(rename = "as", default)]
    principal: Option<String>,
    /// Durability of the acknowledgement. Default: the setting of the table.
    #[serde(default)]
    durability: Option<Durability>,
}

impl WriteQuery {
    fn terms(&self) -> WriteTerms<'_> {
        WriteTerms {
            principal: self.principal.as_deref(),
            durability: self.durability.map(Into::into),
        }
    }
}

/// Absence of the header `Idempotency-Key`. Writes of messages do not have it, and a client that sends it would expect
/// that a repeated request changes nothing.
struct NoIdempotencyKey;

impl<S: Send + Sync> FromRequestParts<S> for NoIdempotencyKey {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self> {
        match parts.headers.contains_key("idempotency-key") {
            false => Ok(Self),
            true => Err(Failure::invalid(
                "header Idempotency-Key: writes of messages do not have it; omit it, and give new messages an `id`",
            )),
        }
    }
}

/// Send messages
///
/// Writes messages to a feed, and creates the feed if it does not exist. All messages of a request are written, or
/// none. Each message gets a higher sequence number than all earlier messages of the feed: after a reader has seen
/// a number, no message with a lower number appears. The response is sent after the sync.
///
/// A message with an `id` can be sent again safely: if the feed has a message with this id, the response contains
/// the sequence number of that message, and nothing is written. An id is also recognized after its message was
/// recalled or deleted, until the message and its events expire.
#[utoipa::path(
    security(("token" = ["write"])),
    post, path = "/v1/tables/{table}/feeds/{feed}/messages", tag = "feeds", operation_id = "send_messages",
    params(FeedPath, WriteQuery),
    request_body = SendMessages,
    responses(
        (status = 200, description = "The sequence numbers", body = MessagesSent),
        (status = 409, description = "The feed has a message with the given sequence number, or a request with the same message id is running", body = ErrorBody),
        (status = 413, description = "The body is too large", body = ErrorBody),
        (status = 507, description = "The disk is nearly full", body = ErrorBody),
        Failures
    )
)]
async fn send(
    app: Grant,
    id: RequestId,
    _: NoIdempotencyKey,
    Path(FeedPath { table, feed }): Path<FeedPath>,
    Query(query): Query<WriteQuery>,
    request: Request,
) -> Result<Response> {
    let received = body::receive(request, &app, body::write_limits(&app.settings)).await?;
    wait_for_searches(&app.engine, &table).await;
    let permit = app.permit(&app.writes).await?;
    let engine = app.engine.clone();
    let is_small = !received.is_compressed() && received.sent_bytes() <= SMALL_SEND_BYTES;
    let read = move || Sending::read(engine, &table, &feed, query, received);
    let sent = match is_small {
        true => {
            let sending = read()?;
            let begun = match sending.reads_nothing() {
                true => sending.begin()?,
                false => blocking(move || sending.begin()).await?,
            };
            // The committer limits the bytes of the writes that wait for it.
            drop(permit);
            begun.sent().await?
        }
        false => blocking(move || read()?.begin()).await?.sent().await?,
    };
    let feed = sent.feed.to_string();
    let begin = format!("{{\"feed\":\"{feed}\",\"messages\":[");
    let rest = MessagesSent {
        feed,
        messages: Vec::new(),
        position: sent.position.map(|position| position.0.to_string()),
        request_id: id.into(),
    };
    let bytes = sent.messages.len() * SENT_BYTES;
    with_items(&begin, bytes, |json| sent.write_messages(json), &rest)
}

/// Request that sends messages.
struct Sending {
    engine: Arc<Engine>,
    table: Arc<WideTable>,
    feed: FeedName,
    messages: Vec<NewMessage>,
    query: WriteQuery,
}

/// Messages whose write has begun.
struct BegunSending {
    sending: Sending,
    sent: Sent,
    commit: Option<Committing>,
}

impl Sending {
    /// Decodes and parses a request.
    fn read(
        engine: Arc<Engine>,
        table: &str,
        feed: &str,
        query: WriteQuery,
        body: ReceivedBody,
    ) -> Result<Self> {
        let body = body.decode()?;
        let SendMessages { messages } = send::read_body(&body).map_err(unreadable)?;
        Ok(Self {
            table: engine.feed_table(table)?,
            engine,
            feed: FeedName::parse(feed),
            messages,
            query,
        })
    }

    fn reads_nothing(&self) -> bool {
        // The type of a feed with an id is read from storage, to determine whether the feed is an inbox.
        let has_check = matches!(self.feed, FeedName::Id(_))
            && self.query.principal.is_some()
            && self.table.feed().inboxes.is_some();
        !has_check && send::reads_nothing(&self.engine, &self.table, &self.feed, &self.messages)
    }

    fn begin(self) -> Result<BegunSending> {
        let terms = self.query.terms();
        check_writable(&self.engine, &self.table, &self.feed, terms.principal)?;
        let begun = send::begin(&self.engine, &self.table, &self.feed, &self.messages, &terms)?;
        Ok(BegunSending {
            sending: self,
            sent: begun.sent,
            commit: begun.commit.map(|commit| Committing(Some(commit))),
        })
    }
}

impl BegunSending {
    /// Waits for the commit without occupying a thread: switching threads would be most of the cost of a small
    /// write.
    async fn sent(self) -> Result<Sent> {
        let Self {
            sending,
            sent,
            commit,
        } = self;
        let Some(commit) = commit else {
            return Ok(sent);
        };
        match commit.await? {
            Some(position) => Ok(sent.at(position)),
            // The state of the table has changed meanwhile, so nothing was written.
            None => {
                let again = move || {
                    let Sending {
                        engine,
                        table,
                        feed,
                        messages,
                        query,
                    } = sending;
                    Ok(send::send(&engine, &table, &feed, &messages, &query.terms())?)
                };
                blocking(again).await
            }
        }
    }
}

/// Commit of messages. If the client disconnects before the commit has ended, a separate task waits for its end:
/// the message ids must stay claimed until the index of message ids contains them.
struct Committing(Option<SendCommit>);

impl Future for Committing {
    type Output = Result<Option<SequenceNumber>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let commit = self.0.as_mut().expect("not polled after its end");
        let committed = std::task::ready!(Pin::new(commit).poll(context));
        self.0 = None;
        Poll::Ready(Ok(committed?))
    }
}

impl Drop for Committing {
    fn drop(&mut self) {
        if let Some(commit) = self.0.take()
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(commit);
        }
    }
}

/// Read messages
///
/// Reads forward after a cursor, backward from the newest message, or by ranges of sequence numbers or times. A
/// reader that sends `next` of a page as `after` of the next request gets every message exactly once, also while
/// messages arrive.
#[utoipa::path(
    security(("token" = ["read"])),
    get, path = "/v1/tables/{table}/feeds/{feed}/messages", tag = "feeds", operation_id = "read_messages",
    params(FeedPath, MessageQuery),
    responses((status = 200, description = "A page of messages", body = MessagePage), QueryFailures)
)]
async fn list(
    app: Grant,
    id: RequestId,
    Path(FeedPath { table, feed }): Path<FeedPath>,
    Query(query): Query<MessageQuery>,
) -> Result<Response> {
    let messages = Messages::Feed(FeedName::parse(&feed));
    pages::respond(app, id, table, messages, query).await
}

/// Count messages
///
/// Counts the messages of a range, without events: for example the unread ones after a cursor.
#[utoipa::path(
    security(("token" = ["read"])),
    get, path = "/v1/tables/{table}/feeds/{feed}/messages/count", tag = "feeds", operation_id = "count_messages",
    params(FeedPath, MessageQuery),
    responses((status = 200, description = "The number of messages", body = MessagesCounted), QueryFailures)
)]
async fn count(
    app: Grant,
    id: RequestId,
    Path(FeedPath { table, feed }): Path<FeedPath>,
    Query(query): Query<MessageQuery>,
) -> Result<JsonResponse<MessagesCounted>> {
    for (name, is_given) in [
        ("order", query.order.is_some()),
        ("limit", query.limit.is_some()),
        ("columns", query.columns.is_some()),
        ("events", query.events.is_some()),
        ("wait", query.wait.is_some()),
    ] {
        if is_given {
            return Err(Failure::invalid(format!(
                "parameter {name}: a count does not have it; omit it"
            )));
        }
    }
    check_model(&app, &table)?;
    let terms = terms_of(&query, app.engine.now())?;
    let description = describe(id.clone(), &table, "messages", &query);
    let (tier, feed) = tier_of(&app, &table, feed, is_cold(terms.clone())).await?;
    let counted = answer(&app, description, tier, move |engine, table, is_stopped| {
        let user = query.principal.as_deref();
        let feed = readable_feed(engine, table, &FeedName::parse(&feed), user)?;
        // The entries of an inbox count as the messages that the inbox shows.
        if let Some(of) = inbox_user(engine, table, feed)? {
            return Ok(inbox::count(engine, table, (&of, &terms), is_stopped)?);
        }
        let terms = terms.seen_by(engine, table, user)?;
        Ok(reading::count(engine, table, feed, &terms, is_stopped)?)
    });
    let counted = counted.await?;
    Ok(JsonResponse(MessagesCounted {
        count: counted.messages,
        next: counted.next.map(Sequence),
        request_id: id.into(),
    }))
}

/// Read a message
#[utoipa::path(
    security(("token" = ["read"])),
    get, path = "/v1/tables/{table}/feeds/{feed}/messages/{sequence}", tag = "feeds", operation_id = "read_message",
    params(MessagePath, MessageReadQuery),
    responses((status = 200, description = "The message", body = MessageDetail), Failures)
)]
async fn read(
    app: Grant,
    id: RequestId,
    Path(MessagePath {
        table,
        feed,
        sequence,
    }): Path<MessagePath>,
    Query(query): Query<MessageReadQuery>,
) -> Result<JsonResponse<MessageDetail>> {
    let sequence = parse_sequence(&sequence, "sequence")?;
    let cancel = tideline_query::Cancel::new();
    let _waiting = Waiting(Some(cancel.clone()));
    let message = app.read(move |engine| {
        let table = engine.feed_table(&table)?;
        let user = query.principal.as_deref();
        let feed = readable_feed(engine, &table, &FeedName::parse(&feed), user)?;
        if let Some(of) = inbox_user(engine, &table, feed)? {
            let encoder = MessageEncoder {
                has_feed: true,
                ..MessageEncoder::default()
            };
            let is_stopped = || cancel.is_cancelled();
            return Ok(inbox::message(
                engine,
                &table,
                (&of, sequence),
                &encoder,
                &is_stopped,
            )?);
        }
        Ok(reading::message(
            engine,
            &table,
            (feed, sequence),
            user,
            &MessageEncoder::default(),
        )?)
    });
    let message = raw(message.await?)?;
    Ok(JsonResponse(MessageDetail {
        message,
        request_id: id.into(),
    }))
}

/// Edit a message
///
/// Sets and removes columns. The change is also an event of the feed, which is returned to readers that continue
/// after a cursor.
#[utoipa::path(
    security(("token" = ["write"])),
    patch, path = "/v1/tables/{table}/feeds/{feed}/messages/{sequence}", tag = "feeds", operation_id = "edit_message",
    params(MessagePath, WriteQuery),
    request_body = EditMessage,
    responses(
        (status = 200, description = "The message is changed", body = MessageChanged),
        (status = 409, description = "The message was recalled", body = ErrorBody),
        Failures
    )
)]
async fn edit(
    app: Grant,
    id: RequestId,
    _: NoIdempotencyKey,
    Path(path): Path<MessagePath>,
    Query(query): Query<WriteQuery>,
    Json(request): Json<EditMessage>,
) -> Result<JsonResponse<MessageChanged>> {
    let event = request.sequence.map(|Sequence(event)| event);
    let principal = query.principal.clone();
    changed(app, id, path, (event, principal), move |engine, table, target| {
        change::edit(engine, table, target, &request, &query.terms()).map(Some)
    })
    .await
}

/// Recall a message
///
/// Removes the columns of the message and marks it as recalled. The recall is also an event of the feed. Repeating the
/// request is safe.
#[utoipa::path(
    security(("token" = ["write"])),
    post, path = "/v1/tables/{table}/feeds/{feed}/messages/{sequence}/recall", tag = "feeds",
    operation_id = "recall_message",
    params(MessagePath, MessageEventQuery),
    responses((status = 200, description = "The message is recalled", body = MessageChanged), Failures)
)]
async fn recall(
    app: Grant,
    id: RequestId,
    _: NoIdempotencyKey,
    Path(path): Path<MessagePath>,
    Query(query): Query<MessageEventQuery>,
) -> Result<JsonResponse<MessageChanged>> {
    let event = event_of(&query)?;
    let principal = query.principal.clone();
    changed(app, id, path, (event, principal), move |engine, table, target| {
        change::recall(engine, table, target, &terms_of_event(&query))
    })
    .await
}

/// Delete a message
///
/// Removes the message. The deletion is also an event of the feed.
#[utoipa::path(
    security(("token" = ["write"])),
    delete, path = "/v1/tables/{table}/feeds/{feed}/messages/{sequence}", tag = "feeds",
    operation_id = "delete_message",
    params(MessagePath, MessageEventQuery),
    responses((status = 200, description = "The message is deleted", body = MessageChanged), Failures)
)]
async fn delete(
    app: Grant,
    id: RequestId,
    _: NoIdempotencyKey,
    Path(path): Path<MessagePath>,
    Query(query): Query<MessageEventQuery>,
) -> Result<JsonResponse<MessageChanged>> {
    let event = event_of(&query)?;
    let principal = query.principal.clone();
    changed(app, id, path, (event, principal), move |engine, table, target| {
        change::delete(engine, table, target, &terms_of_event(&query)).map(Some)
    })
    .await
}

/// Add to counters of a message
///
/// Counters hold reactions and receipts. They change without an event. A token without a role that reads gets no
/// counters.
#[utoipa::path(
    security(("token" = ["write"])),
    post, path = "/v1/tables/{table}/feeds/{feed}/messages/{sequence}/counters", tag = "feeds",
    operation_id = "count_message",
    params(MessagePath, WriteQuery),
    request_body = CountMessage,
    responses(
        (status = 200, description = "All counters of the message", body = MessageCounters),
        (status = 409, description = "The message was recalled", body = ErrorBody),
        Failures
    )
)]
async fn add(
    app: Grant,
    id: RequestId,
    _: NoIdempotencyKey,
    Path(MessagePath {
        table,
        feed,
        sequence,
    }): Path<MessagePath>,
    Query(query): Query<WriteQuery>,
    Json(CountMessage { add }): Json<CountMessage>,
) -> Result<JsonResponse<MessageCounters>> {
    let sequence = parse_sequence(&sequence, "sequence")?;
    wait_for_searches(&app.engine, &table).await;
    let permit = app.permit(&app.writes).await?;
    let engine = app.engine.clone();
    // The counters are stored data, which a token that only writes must not see.
    let reads = app.engine.check_reads().is_ok();
    let counters = blocking(move || {
        let _permit = permit;
        let table = engine.feed_table(&table)?;
        let feed = FeedName::parse(&feed);
        check_writable(&engine, &table, &feed, query.principal.as_deref())?;
        let target = Target {
            feed: &feed,
            sequence,
            event: None,
        };
        Ok(change::count(&engine, &table, target, &add, &query.terms())?)
    });
    Ok(JsonResponse(MessageCounters {
        counters: match reads {
            true => counters.await?,
            false => counters.await.map(|_| BTreeMap::new())?,
        },
        request_id: id.into(),
    }))
}

/// Runs a change of a message on a blocking thread. `event` is the given sequence number of its event, and `principal` is
/// the principal of the request.
async fn changed(
    app: Grant,
    id: RequestId,
    MessagePath {
        table,
        feed,
        sequence,
    }: MessagePath,
    (event, principal): (Option<i64>, Option<String>),
    change: impl FnOnce(&Engine, &Arc<WideTable>, Target<'_>) -> std::result::Result<Option<i64>, RowsError>
    + Send
    + 'static,
) -> Result<JsonResponse<MessageChanged>> {
    let sequence = parse_sequence(&sequence, "sequence")?;
    wait_for_searches(&app.engine, &table).await;
    let permit = app.permit(&app.writes).await?;
    let engine = app.engine.clone();
    let event = blocking(move || {
        let _permit = permit;
        let table = engine.feed_table(&table)?;
        let feed = FeedName::parse(&feed);
        check_writable(&engine, &table, &feed, principal.as_deref())?;
        let target = Target {
            feed: &feed,
            sequence,
            event,
        };
        Ok(change(&engine, &table, target)?)
    });
    Ok(JsonResponse(MessageChanged {
        event: event.await?.map(Sequence),
        request_id: id.into(),
    }))
}

fn terms_of_event(query: &MessageEventQuery) -> WriteTerms<'_> {
    WriteTerms {
        principal: query.principal.as_deref(),
        durability: None,
    }
}

fn event_of(query: &MessageEventQuery) -> Result<Option<i64>> {
    let sequence = query.sequence.as_deref();
    sequence.map(|text| parse_sequence(text, "sequence")).transpose()
}

/// Returns the function that determines whether a read of a feed reaches old rows.
fn is_cold(
    terms: ReadTerms,
) -> impl FnOnce(&Engine, &WideTable, &String) -> std::result::Result<bool, RowsError> + Send + 'static {
    move |engine, table, feed| {
        let feed = engine.feed(table, &FeedName::parse(feed))?;
        terms.reaches_cold(engine, table, feed)
    }
}

//! Pages of the messages of a feed or of an inbox, and requests that wait for messages.
//!
//! The routes of feeds and of inboxes have the same parameters. A read of old messages uses the permits of requests
//! for old rows. A request that waits for messages holds a permit for watches of feeds, and holds a query permit
//! only during its reads.

use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use tideline_engine::feeds::FeedName;
use tideline_engine::model::{SequenceSource, TimelineId, Timestamp};
use tideline_engine::{Engine, WideTable};
use tideline_message_feed::MessageEncoder;
use tideline_message_feed::inbox;
use tideline_message_feed::read::{self as reading, PAGE_MESSAGES, PAGE_MESSAGES_MAX, Page, ReadTerms, Room};
use tideline_message_feed::viewer::{
    may_name_inbox, named_inbox_user, not_changeable, not_readable, readable_feed,
};
use tideline_openapi::feed::{MessageOrder, MessagePage, MessageQuery, Sequence};
use tideline_openapi::time::TimeInput;
use tideline_openapi::{DurationText, ErrorCode};
use tideline_rows::RowsError;
use tokio::time::{Instant, timeout_at};

use super::{check_model, raw, with_items};
use crate::context::{RequestId, current_client};
use crate::failure::{Failure, Result};
use crate::feed_watching::FeedReader;
use crate::grant::Grant;
use crate::inline_reads::InlineReads;
use crate::resources::page_limit;
use crate::resources::query::describe;
use crate::resources::rows::{answer_inline, tier_of};

/// Longest time that a request waits for a message.
const WAIT_MAX: Duration = Duration::from_secs(300);
/// Maximum number of messages that a request reads on a thread of the runtime. It takes about 100 microseconds, and a
/// switch to a blocking thread and back takes a similar time under load.
const INLINE_MESSAGES_MAX: usize = 100;

/// Messages that a request reads.
#[derive(Debug, Clone)]
pub(super) enum Messages {
    /// Messages of a feed.
    Feed(FeedName),
    /// Messages of the inbox of a user.
    Inbox(String),
}

impl Messages {
    /// Returns the inbox of a user for a feed that is one, so that its entries are returned as their messages.
    pub(super) async fn resolved(self, app: &Grant, table: &str) -> Result<Self> {
        let name = match self {
            Self::Feed(name) => name,
            inbox @ Self::Inbox(_) => return Ok(inbox),
        };
        let table = app.engine.feed_table(table)?;
        let may_be_inbox = match &name {
            FeedName::Id(_) => true,
            FeedName::Key(key) => may_name_inbox(key),
        };
        if !may_be_inbox || table.feed().inboxes.is_none() {
            return Ok(Self::Feed(name));
        }
        let is_cached = app.engine.cached_feed(&table, &name).is_some();
        let find = move |engine: &Engine| -> Result<Self> {
            engine.feed(&table, &name)?;
            Ok(match named_inbox_user(engine, &table, &name)? {
                Some(user) => Self::Inbox(user),
                None => Self::Feed(name),
            })
        };
        match is_cached {
            // The look-up reads only memory, and takes less time than a switch to a blocking thread.
            true => find(&app.engine),
            false => app.read(find).await,
        }
    }

    /// Checks the principal of a read of an inbox. For a feed, the read itself checks whether the feed is an inbox.
    pub(super) fn check_principal(&self, principal: Option<&str>) -> Result<()> {
        match self {
            Self::Feed(_) => Ok(()),
            Self::Inbox(user) => check_user(user, principal),
        }
    }
}

/// Checks that the principal of a read is the user whose data is read.
pub(super) fn check_user(user: &str, principal: Option<&str>) -> Result<()> {
    match principal.filter(|principal| *principal != user) {
        None => Ok(()),
        Some(principal) => Err(Failure::new(ErrorCode::Forbidden, not_readable(principal, user))),
    }
}

/// Checks that the principal of a change is the user whose data is changed.
pub(super) fn check_own(user: &str, principal: Option<&str>) -> Result<()> {
    match principal.filter(|principal| *principal != user) {
        None => Ok(()),
        Some(principal) => Err(Failure::new(
            ErrorCode::Forbidden,
            not_changeable(principal, user),
        )),
    }
}

/// Page of messages to read.
#[derive(Debug, Clone)]
pub(super) struct PageRequest {
    pub(super) messages: Messages,
    /// Principal on whose behalf a feed is read.
    pub(super) principal: Option<String>,
    pub(super) terms: ReadTerms,
    pub(super) encoder: MessageEncoder,
    pub(super) limit: usize,
}

impl PageRequest {
    /// Reads the page.
    pub(super) fn read(
        &self,
        engine: &Engine,
        table: &Arc<WideTable>,
        is_stopped: &dyn Fn() -> bool,
    ) -> std::result::Result<Page, RowsError> {
        let Self {
            messages,
            principal,
            terms,
            encoder,
            limit,
        } = self;
        match messages {
            Messages::Feed(feed) => {
                let feed = readable_feed(engine, table, feed, principal.as_deref())?;
                let terms = terms.seen_by(engine, table, principal.as_deref())?;
                let mut room = Room::default();
                reading::page(
                    engine,
                    table,
                    (feed, &terms),
                    encoder,
                    (*limit, &mut room),
                    is_stopped,
                )
            }
            Messages::Inbox(user) => {
                engine.users_table(table)?;
                inbox::page(engine, table, (user, terms), encoder, *limit, is_stopped)
            }
        }
    }

    /// Returns true if the page reaches parts in the cold tier or in the archive.
    pub(super) fn reaches_cold(
        &self,
        engine: &Engine,
        table: &WideTable,
    ) -> std::result::Result<bool, RowsError> {
        match &self.messages {
            Messages::Feed(feed) => self.terms.reaches_cold(engine, table, engine.feed(table, feed)?),
            Messages::Inbox(user) => inbox::reaches_cold(engine, table, user, &self.terms),
        }
    }
}

/// Returns a page of messages. If there are no messages and the request sets a time to wait, waits for the first
/// one.
pub(super) async fn respond(
    app: Grant,
    id: RequestId,
    table: String,
    messages: Messages,
    query: MessageQuery,
) -> Result<Response> {
    check_model(&app, &table)?;
    let messages = messages.resolved(&app, &table).await?;
    messages.check_principal(query.principal.as_deref())?;
    let mut request = PageRequest {
        principal: query.principal.clone(),
        terms: terms_of(&query, app.engine.now())?,
        encoder: MessageEncoder {
            columns: columns_of(query.columns.as_deref()),
            has_feed: matches!(messages, Messages::Inbox(_)),
            ..MessageEncoder::default()
        },
        limit: page_limit(query.limit, PAGE_MESSAGES, PAGE_MESSAGES_MAX)?,
        messages,
    };
    let until = query
        .wait
        .map(|wait| end_of_wait(wait, &request.terms))
        .transpose()?;
    let mut waiting = match until {
        Some(until) => {
            let permit = app.feed_watches.take(current_client()).await?;
            let reader = MessageReader::begin(&app, &table, &request.messages).await?;
            Some((reader, until, permit))
        }
        None => None,
    };
    loop {
        if let Some((reader, ..)) = &mut waiting {
            reader.begin_read().await?;
        }
        let description = describe(id.clone(), &table, "messages", &query);
        let is_cold =
            |engine: &Engine, table: &WideTable, request: &PageRequest| request.reaches_cold(engine, table);
        let (tier, reads) = tier_of(&app, &table, request.clone(), is_cold).await?;
        let may_be_inline = waiting.is_none();
        let inline = || match may_be_inline {
            true => inline_of(&app, &table, &request),
            false => None,
        };
        let page = answer_inline(
            &app,
            description,
            tier,
            inline,
            move |engine, table, is_stopped| Ok(reads.read(engine, table, is_stopped)?),
        );
        let page = page.await?;
        let is_found = !page.messages.is_empty() || page.has_more;
        if let Some((reader, until, _)) = &waiting
            && !is_found
            && reader.changed_before(*until).await
        {
            request.terms.after = page.next;
            continue;
        }
        return answered(&page, id);
    }
}

/// Returns the state of short reads and the table if a request is a short read: it returns all rows that it reads, so
/// that it reads only a few, and it neither waits for limits of the table nor reads old rows. Returns `None` otherwise.
fn inline_of<'a>(
    app: &'a Grant,
    table: &str,
    request: &PageRequest,
) -> Option<(&'a InlineReads, Arc<WideTable>)> {
    let reads = app.inline_pages.as_ref()?;
    let Messages::Feed(feed) = &request.messages else {
        return None;
    };
    let table = app.engine.table_of_rows(table).ok()?;
    let terms = &request.terms;
    // Generated sequence numbers are times, so the range of keys bounds the time.
    let selects_by_key =
        table.feed().sequence == SequenceSource::Generated || (terms.from.is_none() && terms.to.is_none());
    // Expired messages are read but not returned, until a job has removed them.
    let may_have_expired = table.settings().ttl.is_some_and(|ttl| {
        let kept_from = app.engine.now().nanos().saturating_sub(ttl.after);
        let begin = terms.after.max(terms.from.map(Timestamp::nanos));
        table.feed().sequence == SequenceSource::Manual || begin.is_none_or(|begin| begin < kept_from)
    });
    let is_short = request.limit <= INLINE_MESSAGES_MAX
        && selects_by_key
        && !may_have_expired
        && terms.has_events
        && request.principal.is_none()
        && table.settings().limits.is_empty()
        && !app.engine.has_cold_parts(&table)
        && app.engine.cached_feed(&table, feed).is_some();
    is_short.then_some((reads, table))
}

/// Returns the response with a page.
fn answered(page: &Page, id: RequestId) -> Result<Response> {
    let rest = MessagePage {
        messages: raw("[]".to_owned())?,
        next: page.next.map(Sequence),
        more: page.has_more,
        request_id: id.into(),
    };
    let items = page.messages.items();
    let write = |json: &mut Vec<u8>| json.extend_from_slice(items);
    with_items("{\"messages\":[", items.len(), write, &rest)
}

/// Returns the time until which a request waits for messages.
fn end_of_wait(wait: DurationText, terms: &ReadTerms) -> Result<Instant> {
    if terms.order == MessageOrder::Descending || terms.before.is_some() || terms.to.is_some() {
        return Err(Failure::invalid(
            "parameter wait: new messages follow the others; omit `order`, `before` and `to`, or `wait`",
        ));
    }
    let wait = u64::try_from(wait.0).map(Duration::from_nanos).ok();
    let wait = wait.filter(|wait| *wait <= WAIT_MAX);
    wait.map(|wait| Instant::now() + wait)
        .ok_or_else(|| Failure::invalid("parameter wait: it must be from 0s to 5m"))
}

/// Reader that waits for messages.
pub(super) struct MessageReader {
    app: Grant,
    pub(super) table: Arc<WideTable>,
    messages: Messages,
    /// The feed; `None` for an inbox.
    pub(super) feed: Option<TimelineId>,
    pub(super) reader: FeedReader,
}

impl MessageReader {
    /// Registers a reader, which misses no message from now on.
    pub(super) async fn begin(app: &Grant, table: &str, messages: &Messages) -> Result<Self> {
        let table = app.engine.feed_table(table)?;
        let (feed, reader) = match messages {
            Messages::Feed(feed) => {
                let (name, of_feed) = (feed.clone(), Arc::clone(&table));
                let feed = app.read(move |engine| Ok(engine.feed(&of_feed, &name)?)).await?;
                (Some(feed), app.feed_watching.read_feed(app, &table, feed))
            }
            Messages::Inbox(user) => {
                app.engine.users_table(&table)?;
                (None, app.feed_watching.read_inbox(app, &table, user))
            }
        };
        let mut waiting = Self {
            app: app.clone(),
            table,
            messages: messages.clone(),
            feed,
            reader,
        };
        waiting.follow().await?;
        Ok(waiting)
    }

    /// Called before each read, so that a message that the read does not find wakes the reader again.
    pub(super) async fn begin_read(&mut self) -> Result<()> {
        match self.reader.begin_read() {
            true => self.follow().await,
            false => Ok(()),
        }
    }

    /// Waits for a message until `end`. Returns false if there was no signal, the token of the request is not valid
    /// any more, or the service shuts down.
    async fn changed_before(&self, end: Instant) -> bool {
        timeout_at(end, self.reader.changed()).await.is_ok() && !self.app.is_draining() && self.app.is_valid()
    }

    /// Subscribes to the feeds whose messages the inbox shows now.
    async fn follow(&mut self) -> Result<()> {
        let Messages::Inbox(user) = &self.messages else {
            return Ok(());
        };
        let (engine, table, user) = (self.app.engine.clone(), Arc::clone(&self.table), user.clone());
        let sources = move || inbox::sources_now(&engine, &table, &user);
        let sources: Vec<TimelineId> = self.app.watching.in_background(sources).await??;
        self.reader.follow(sources);
        Ok(())
    }
}

/// Returns the columns that a read returns; `None` for all.
pub(super) fn columns_of(columns: Option<&str>) -> Option<Vec<String>> {
    columns.map(|columns| columns.split(',').map(str::to_owned).collect())
}

/// Parses the range and order of a read. Relative times are resolved against `now`.
pub(super) fn terms_of(query: &MessageQuery, now: Timestamp) -> Result<ReadTerms> {
    let sequence = |text: &Option<String>, name| {
        let number = text.as_deref().map(|text| parse_sequence(text, name));
        number.transpose()
    };
    let time = |text: &Option<String>, name: &str| {
        let parsed = text.as_deref().map(|text| {
            let time = TimeInput::parse(text);
            time.map_err(|error| Failure::invalid(format!("parameter {name}: {error}")))
        });
        Ok::<_, Failure>(parsed.transpose()?.map(|time| time.resolve(now)))
    };
    Ok(ReadTerms {
        after: sequence(&query.after, "after")?,
        before: sequence(&query.before, "before")?,
        from: time(&query.from, "from")?,
        to: time(&query.to, "to")?,
        order: query.order.unwrap_or_default(),
        has_events: query.events.unwrap_or(true),
        viewer: None,
    })
}

/// Parses a sequence number.
pub(super) fn parse_sequence(text: &str, name: &str) -> Result<i64> {
    let parsed = text.parse::<Sequence>();
    let Sequence(number) = parsed.map_err(|error| Failure::invalid(format!("parameter {name}: {error}")))?;
    Ok(number)
}

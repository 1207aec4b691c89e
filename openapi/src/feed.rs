//! Feeds: settings of feed tables, messages, and members.
//!
//! Sequence numbers are text in responses, because many JSON parsers would round them. Requests accept text and numbers.
//! This module holds sequence numbers, messages, searches and feeds; the submodules hold the settings of tables and the
//! members of feeds.

mod members;
mod settings;

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::de::{Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use utoipa::openapi::schema::{SchemaType, Type};
use utoipa::openapi::{ObjectBuilder, RefOr, Schema};
use utoipa::{IntoParams, PartialSchema, ToSchema};

use crate::ErrorCode;
use crate::attribute::AttributeValue;
use crate::condition::RowFilter;
use crate::row::Members;
use crate::row_search::RowSortKey;
use crate::time::{DurationText, TimeInput};
use crate::unique;

pub use self::members::{
    BlockDetail, BlockList, ChangeMember, Conversation, ConversationList, ConversationQuery, CursorList,
    CursorSet, History, JoinFeed, Member, MemberChanged, MemberDetail, MemberList, MemberQuery,
    MemberWritten, SetCursor, UserQuery,
};
pub use self::settings::{
    FeedParts, FeedSettings, FeedView, InboxEntriesSchema, InboxSettings, SequenceSourceSchema,
};

/// Sequence number of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sequence(pub i64);

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl FromStr for Sequence {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.parse().map(Self);
        number.map_err(|_| format!("expected an integer of up to 64 bits, found {text:?}"))
    }
}

impl Serialize for Sequence {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Sequence {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrNumber;

        impl Visitor<'_> for TextOrNumber {
            type Value = Sequence;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the sequence number of a message, as text or number")
            }

            fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Sequence, E> {
                Ok(Sequence(number))
            }

            fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Sequence, E> {
                let number = i64::try_from(number);
                number
                    .map(Sequence)
                    .map_err(|_| E::invalid_value(Unexpected::Other("a number above 2^63 - 1"), &self))
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Sequence, E> {
                text.parse().map_err(E::custom)
            }
        }

        deserializer.deserialize_any(TextOrNumber)
    }
}

impl PartialSchema for Sequence {
    fn schema() -> RefOr<Schema> {
        let text = ObjectBuilder::new()
            .schema_type(SchemaType::Type(Type::String))
            .description(Some("Sequence number of a message: a 64-bit integer as text"))
            .examples(["1795700000000000000"])
            .build();
        text.into()
    }
}

impl ToSchema for Sequence {}

/// Messages to send to one feed: all of them are written, or none.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"messages": [{"id": "4f1c-17", "sender": "ann", "columns": {"text": "Lunch at noon?"}}]}))]
pub struct SendMessages {
    /// Messages in their order, 1 to 1,000.
    pub messages: Vec<NewMessage>,
}

/// New message.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewMessage {
    /// Id that the sender chooses, unique within the feed, 1 to 255 bytes. If the feed already has a message with
    /// this id, nothing is written, and the response contains the sequence number of the earlier message. A
    /// repeated request is therefore safe.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Sender, 1 to 255 bytes. Default: the principal of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender: Option<String>,
    /// Sequence number. Required in tables with manual sequence numbers, refused in other tables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence: Option<Sequence>,
    /// Members whose inboxes show the message, at most 1,000. The sender is added. Default: all members.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<Vec<String>>,
    /// Members whose inboxes do not show the message, at most 1,000.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub except: Vec<String>,
    /// Users whom the message mentions, at most 1,000. Unread messages that mention a user are counted separately.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mentions: Vec<String>,
    /// Columns, as in a write of rows. Names that the server uses (`feed`, `sequence`, `sender`, `id`, `time`, `event`,
    /// `target`, `cleared`, `edited`, `recalled`, `source`, `to`, `except`, `mentions` and `counter.*`) are refused.
    #[serde(default, skip_serializing_if = "Members::is_empty")]
    #[schema(value_type = BTreeMap<String, serde_json::Value>)]
    pub columns: Members,
}

/// Sequence numbers of sent messages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "feed": "7d5f6f5bdc4ab1a1b86df3a1a2f9cc10",
    "messages": [{"sequence": "1795700000000000000", "time": "2026-11-26T12:13:20Z"}],
    "position": "4711",
    "request_id": "01jd3k5w8v-000002a1"
}))]
pub struct MessagesSent {
    /// Id of the feed.
    pub feed: String,
    /// Messages in the order of the request.
    pub messages: Vec<MessageSent>,
    /// Position of the write. A search with this value as `at_least` finds the messages. Omitted if nothing was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<String>,
    /// Id of the request, as in the server log.
    pub request_id: String,
}

/// Sent message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MessageSent {
    /// Sequence number.
    pub sequence: Sequence,
    /// Time of the message; omitted for a repeated message with a manual sequence number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    /// True if an earlier message has this id, so that nothing was written. Omitted otherwise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub repeated: bool,
}

/// Message of a feed, or event that changes an earlier message.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(example = json!({
    "sequence": "1795700000000000000", "time": "2026-11-26T12:13:20Z", "sender": "ann", "id": "4f1c-17",
    "columns": {"text": "Lunch at noon?"}, "counters": {"like": 2}
}))]
pub struct Message {
    /// Feed. Omitted where the request names only one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub feed: Option<String>,
    /// Sequence number.
    pub sequence: Sequence,
    /// Time of the write.
    pub time: String,
    /// Sender; for an event, the principal who made the change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sender: Option<String>,
    /// Id that the sender chose.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Kind of an event: `edit`, `recall` or `delete`. Omitted for messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event: Option<String>,
    /// Sequence number of the message that an event has changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<Sequence>,
    /// Users whom the message mentions. Omitted without mentions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mentions: Option<Vec<String>>,
    /// Columns; for an edit, the changed columns, with `null` for removed ones. After a recall or deletion of the message,
    /// all of them are `null`.
    #[schema(value_type = BTreeMap<String, serde_json::Value>)]
    pub columns: Members,
    /// Counters, such as reactions. Omitted without counters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counters: Option<BTreeMap<String, i64>>,
    /// Time of the last edit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub edited: Option<String>,
    /// Time of the recall. A recalled message has no columns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recalled: Option<String>,
}

/// Parameters of a read of messages. A page is stable: messages that arrive later do not change it.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct MessageQuery {
    /// Cursor: only messages after this sequence number. `next` of an ascending page.
    #[serde(default)]
    pub after: Option<String>,
    /// Only messages before this sequence number. `next` of a descending page.
    #[serde(default)]
    pub before: Option<String>,
    /// Only messages of this time or later.
    #[serde(default)]
    pub from: Option<String>,
    /// Only messages before this time.
    #[serde(default)]
    pub to: Option<String>,
    /// Order by sequence number: `ascending`, the default, or `descending`, newest first.
    #[serde(default)]
    pub order: Option<MessageOrder>,
    /// Maximum number of messages, 1 to 1,000. Default 100.
    #[serde(default)]
    pub limit: Option<usize>,
    /// Columns to return, separated by commas: names, or prefixes that end with `*`. Default: all.
    #[serde(default)]
    pub columns: Option<String>,
    /// False to omit the events of edits, recalls and deletions. Default true.
    #[serde(default)]
    pub events: Option<bool>,
    /// Maximum time to wait for a message if no message can be returned immediately, at most `5m`. Requires ascending
    /// order, and neither `before` nor `to`. Default: the response is sent immediately.
    #[serde(default)]
    #[param(value_type = Option<String>)]
    pub wait: Option<DurationText>,
    /// Principal on whose behalf the request reads. A read of a feed omits messages whose `to` or `except`
    /// excludes the principal, and messages of senders whom the principal has blocked. An inbox can be read only
    /// by its user. Default: all messages.
    #[serde(rename = "as", default)]
    pub principal: Option<String>,
}

/// Watch of the messages of a feed or an inbox.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct MessageWatchQuery {
    /// Cursor: only messages after this sequence number. The header `Last-Event-ID` takes precedence. Default: messages
    /// from now on.
    #[serde(default)]
    pub after: Option<String>,
    /// Columns to return, separated by commas: names, or prefixes that end with `*`. Default: all.
    #[serde(default)]
    pub columns: Option<String>,
    /// False to omit the events of edits, recalls and deletions. Default true.
    #[serde(default)]
    pub events: Option<bool>,
    /// Duration after which the watch ends, at most `7d`. `0s`: send the existing messages and end. Default: until
    /// the client disconnects.
    #[serde(default, rename = "for")]
    #[param(example = "0s", value_type = Option<String>)]
    pub time: Option<DurationText>,
    /// Principal on whose behalf the request reads. A watch of a feed omits messages whose `to` or `except`
    /// excludes the principal, and messages of senders whom the principal has blocked. An inbox can be read only
    /// by its user. Default: all messages.
    #[serde(rename = "as", default)]
    pub principal: Option<String>,
}

/// Data of the event `messages` of a watch. The id of the event is the cursor after its messages.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct WatchedMessages {
    /// Messages and events, oldest first.
    #[schema(value_type = Vec<Message>)]
    pub messages: Box<RawValue>,
}

/// Order of messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum MessageOrder {
    /// Oldest first.
    #[default]
    Ascending,
    /// Newest first.
    Descending,
}

/// Page of messages.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct MessagePage {
    /// Messages in the requested order.
    #[schema(value_type = Vec<Message>)]
    pub messages: Box<RawValue>,
    /// Cursor after the page: `after` or `before` of the next request. `null` if the page is empty and the request
    /// had no cursor.
    pub next: Option<Sequence>,
    /// True if more messages follow now.
    pub more: bool,
    /// Id of the request, as in the server log.
    pub request_id: String,
}

/// Message.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct MessageDetail {
    /// The message.
    #[schema(value_type = Message)]
    pub message: Box<RawValue>,
    /// Id of the request, as in the server log.
    pub request_id: String,
}

/// Parameters of a read of one message.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct MessageReadQuery {
    /// Principal on whose behalf the request reads. A message that the principal must not see is reported as not
    /// found. Default: all messages can be read.
    #[serde(rename = "as", default)]
    pub principal: Option<String>,
}

/// Number of messages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({"count": 17, "next": null, "request_id": "01jd3k5w8v-000002a1"}))]
pub struct MessagesCounted {
    /// Number of messages, without events.
    pub count: u64,
    /// Sequence number up to which the messages were counted, if there are more than 1,000,000: `after` of the next
    /// request. `null` if all were counted.
    pub next: Option<Sequence>,
    /// Id of the request, as in the server log.
    pub request_id: String,
}

/// Messages of several feeds to read, each after its own cursor.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"feeds": [{"feed": "room,name=lobby", "after": "1795700000000000000"}, {"feed": "room,name=garden"}]}))]
pub struct ReadFeeds {
    /// Feeds, 1 to 1,000.
    pub feeds: Vec<FeedCursor>,
    /// Order within each feed. Default `ascending`.
    #[serde(default)]
    pub order: MessageOrder,
    /// Maximum number of messages of each feed, 1 to 1,000. Default 100. A response has at most 10,000 messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// Columns to return: names, or prefixes that end with `*`. Default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub columns: Option<Vec<String>>,
    /// False to omit the events of edits, recalls and deletions. Default true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<bool>,
    /// Principal on whose behalf the request reads. Messages whose `to` or `except` excludes the principal are
    /// omitted, and so are messages of senders whom the principal has blocked. Default: all messages.
    #[serde(rename = "as", default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
}

/// Feed and cursor of a read.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FeedCursor {
    /// Feed: its id, or its type and tags.
    pub feed: String,
    /// Only messages after this sequence number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Sequence>,
    /// Only messages before this sequence number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Sequence>,
}

/// Messages of several feeds.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct FeedPages {
    /// A page for each feed, in the order of the request.
    pub feeds: Vec<FeedPage>,
    /// Id of the request, as in the server log.
    pub request_id: String,
}

/// Messages of one of several feeds.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct FeedPage {
    /// Feed, as in the request.
    pub feed: String,
    /// Messages in the requested order.
    #[schema(value_type = Vec<Message>)]
    pub messages: Box<RawValue>,
    /// Cursor after the page.
    pub next: Option<Sequence>,
    /// True if more messages follow now, or if the response is full.
    pub more: bool,
    /// Error of the feed, if it does not exist. Omitted otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<FeedError>,
}

/// Error of one of several feeds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct FeedError {
    /// Error code.
    pub code: ErrorCode,
    /// Human-readable description.
    pub message: String,
}

/// Messages of several feeds to read in one order, by time, feed and sequence number.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"feeds": ["outbox,author=ann", "outbox,author=bea"], "order": "descending", "limit": 20}))]
pub struct MergeFeeds {
    /// Feeds, 1 to 1,000: ids, or types and tags.
    pub feeds: Vec<String>,
    /// Order. Default `ascending`.
    #[serde(default)]
    pub order: MessageOrder,
    /// Maximum number of messages, 1 to 1,000. Default 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// Only messages of this time or later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<TimeInput>,
    /// Only messages before this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<TimeInput>,
    /// Columns to return: names, or prefixes that end with `*`. Default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub columns: Option<Vec<String>>,
    /// True to return the events of edits, recalls and deletions. Default false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub events: bool,
    /// `next` of the previous page, with the same feeds and order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page: Option<String>,
    /// Principal on whose behalf the request reads. Messages whose `to` or `except` excludes the principal are
    /// omitted, and so are messages of senders whom the principal has blocked. Default: all messages.
    #[serde(rename = "as", default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
}

/// Messages of several feeds in one order. Each has its feed.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct MergedPage {
    /// Messages.
    #[schema(value_type = Vec<Message>)]
    pub messages: Box<RawValue>,
    /// Token of the next page, sent as `page`; `null` on the last page. A merge cannot be continued after its last page:
    /// read later messages with `from`, or with a cursor per feed.
    pub next: Option<String>,
    /// Id of the request, as in the server log.
    pub request_id: String,
}

/// Changes of a message.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"columns": {"text": "Lunch at one?"}}))]
pub struct EditMessage {
    /// Columns to set.
    #[serde(default, skip_serializing_if = "Members::is_empty")]
    #[schema(value_type = BTreeMap<String, serde_json::Value>)]
    pub columns: Members,
    /// Columns to remove.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clear: Vec<String>,
    /// Sequence number of the event. Required in tables with manual sequence numbers, refused in other tables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence: Option<Sequence>,
}

/// Parameters of a recall or deletion of a message.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct MessageEventQuery {
    /// Principal on whose behalf the request acts: the sender of the event.
    #[serde(rename = "as", default)]
    pub principal: Option<String>,
    /// Sequence number of the event. Required in tables with manual sequence numbers, refused in other tables.
    #[serde(default)]
    pub sequence: Option<String>,
}

/// Event that a change of a message has added to its feed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({"event": "1795700000000000001", "request_id": "01jd3k5w8v-000002a1"}))]
pub struct MessageChanged {
    /// Sequence number of the event. `null` if the message was recalled before, so that nothing was written.
    pub event: Option<Sequence>,
    /// Id of the request, as in the server log.
    pub request_id: String,
}

/// Changes of counters of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"add": {"like": 1, "seen": 1}}))]
pub struct CountMessage {
    /// Numbers to add, by the name of the counter, 1 to 100. A missing counter counts as 0.
    #[serde(deserialize_with = "unique::map")]
    pub add: BTreeMap<String, i64>,
}

/// Counters of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({"counters": {"like": 3}, "request_id": "01jd3k5w8v-000002a1"}))]
pub struct MessageCounters {
    /// All counters of the message. Empty for a token without a role that reads.
    pub counters: BTreeMap<String, i64>,
    /// Id of the request, as in the server log.
    pub request_id: String,
}

/// Search over the messages of one feed, of several feeds, or of the table.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"feeds": ["room,name=lobby"], "where": {"column": "text", "text": "lunch"}, "highlight": true}))]
pub struct SearchMessages {
    /// Feeds, at most 1,000: ids, or types and tags. Default: all feeds. The column `feed` must be in the index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feeds: Option<Vec<String>>,
    /// Condition on columns, `sender`, `id`, `sequence` and the other columns of messages. All tested columns must be in
    /// the index.
    #[serde(rename = "where", default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<RowFilter>,
    /// Name of the search index. May be omitted if the table has only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<String>,
    /// Order of the messages, at most 8 keys. Default: by feed and sequence number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sort: Vec<RowSortKey>,
    /// Maximum number of messages, 1 to 1,000. Default 20.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// Columns to return: names, or prefixes that end with `*`. Default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub columns: Option<Vec<String>>,
    /// True to return the texts that matched, with the positions of the matches. Default false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub highlight: bool,
    /// True to also find inbox entries, which refer to messages of other feeds. Default false: a search in all feeds omits
    /// them if the index has the column `source` and the condition tests neither `source` nor `feed`. With `as`, they are
    /// always omitted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub inbox_entries: bool,
    /// `position` of a write. The search waits up to 10 seconds until it finds this write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_least: Option<String>,
    /// `next` of the previous page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page_token: Option<String>,
    /// Principal on whose behalf the request searches. The messages and `total` do not include messages whose
    /// `to` or `except` excludes the principal, messages of senders whom the principal has blocked, and inboxes
    /// of other users. Default: all messages.
    #[serde(rename = "as", default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
}

/// Messages that a search found.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct MessagesFound {
    /// Messages in the requested order, each with its feed, and with `highlights` as in a search over rows.
    #[schema(value_type = Vec<Message>)]
    pub messages: Box<RawValue>,
    /// Number of matching messages and events on all pages, as of the last commit of the index. With `as`, only
    /// those that the principal can see are counted; `null` if more than 100,000 match.
    pub total: Option<u64>,
    /// Number of changes that the index does not contain yet.
    pub waiting: u64,
    /// Token of the next page; `null` on the last page.
    pub next: Option<String>,
    /// Id of the request, as in the server log.
    pub request_id: String,
}

/// Feed to create or to change.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"attributes": {"title": "Lobby", "members_max": 50}}))]
pub struct PutFeed {
    /// Attributes to set, and to remove with `null`. Others stay.
    #[serde(default, deserialize_with = "unique::map")]
    #[schema(value_type = BTreeMap<String, serde_json::Value>)]
    pub attributes: BTreeMap<String, Option<AttributeValue>>,
}

/// Feed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "id": "7d5f6f5bdc4ab1a1b86df3a1a2f9cc10", "type": "room", "tags": {"name": "lobby"},
    "attributes": {"title": "Lobby"}, "newest": "1795700000000000000", "request_id": "01jd3k5w8v-000002a1"
}))]
pub struct FeedDetail {
    /// Id.
    pub id: String,
    /// Type: the first part of the name.
    #[serde(rename = "type")]
    pub kind: String,
    /// Tags.
    pub tags: BTreeMap<String, String>,
    /// Attributes.
    pub attributes: BTreeMap<String, AttributeValue>,
    /// Sequence number of the newest message or event; `null` without messages.
    pub newest: Option<Sequence>,
    /// Id of the request, as in the server log.
    pub request_id: String,
}

/// Response to a change of a feed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
#[schema(example = json!({
    "id": "7d5f6f5bdc4ab1a1b86df3a1a2f9cc10", "type": "room", "tags": {"name": "lobby"},
    "attributes": {"title": "Lobby"}, "newest": "1795700000000000000", "request_id": "01jd3k5w8v-000002a1"
}))]
pub enum FeedWritten {
    /// The feed.
    Feed(FeedDetail),
    /// The change, for a token without a role that reads.
    Changed(FeedChanged),
}

/// Changed feed, without stored data that the request did not contain.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FeedChanged {
    /// Id.
    pub id: String,
    /// Attributes that the request has set.
    pub attributes: BTreeMap<String, AttributeValue>,
    /// Id of the request, as in the server log.
    pub request_id: String,
}

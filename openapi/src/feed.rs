//! Feeds: settings of feed tables, and messages.
//!
//! Sequence numbers are text in responses, because many JSON parsers would round them. Requests accept text and numbers.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::de::{Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use tideline_model::feed::{MessageSettings, SEQUENCE, rows_of};
use tideline_model::{FeedSpec, InboxEntries, InboxSpec, PartPeriod, SequenceSource, WideSpec};
use utoipa::openapi::schema::{SchemaType, Type};
use utoipa::openapi::{ObjectBuilder, RefOr, Schema};
use utoipa::{IntoParams, PartialSchema, ToSchema};

use crate::ErrorCode;
use crate::attribute::AttributeValue;
use crate::condition::RowFilter;
use crate::row::Members;
use crate::row_search::RowSortKey;
use crate::time::{DurationText, TimeInput};
use crate::wide::{PartPeriodSchema, PartsArchive, RowColumn, WideSettings};

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

/// Settings of the messages of a new feed table.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"columns": [{"name": "text", "type": "string"}], "parts": {"every": "month"}}))]
pub struct FeedSettings {
    /// Origin of the sequence numbers: `generated` by the server in the order of the writes, or `manual`, given with each
    /// message. Cannot be changed. Default `generated`.
    #[serde(default)]
    #[schema(value_type = SequenceSourceSchema)]
    pub sequence: SequenceSource,
    /// Declared columns of the messages. Other columns can be written too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<RowColumn>,
    /// Time after the last change of a message at which the message expires: it is hidden immediately, and its
    /// bytes are freed later. Default: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<DurationText>,
    /// Members and inboxes. Requires generated sequence numbers, and cannot be changed. Default: feeds have no members.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inboxes: Option<InboxSettings>,
    /// Division of the messages into parts by their time. Requires generated sequence numbers. Default: no division.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parts: Option<FeedParts>,
}

/// Delivery of messages to the inboxes of the members of a feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"push_max": 500}))]
pub struct InboxSettings {
    /// Maximum number of members to whose inboxes each message is written, 0 to 1,000. The members of a larger feed read
    /// its messages from the feed, until it has half as many members. Default 500.
    #[serde(default = "default_push_max")]
    pub push_max: u32,
    /// Maximum number of members of a feed whose messages a job writes to the inboxes after the response: more
    /// than `push_max`, at most 100,000; 0 = no job. Until the job has written them, and in feeds with more
    /// members, members read the messages from the feed. Default 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub fan_out_max: u32,
    /// Content of an inbox entry that is written together with its message. `reference`: the name of the message; a
    /// read of the inbox reads the message too. `copy`: the columns of the message, without counters. Default
    /// `reference`.
    #[serde(default, skip_serializing_if = "InboxEntries::is_reference")]
    #[schema(value_type = InboxEntriesSchema)]
    pub entries: InboxEntries,
}

const fn default_push_max() -> u32 {
    500
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "called by serde")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Content of the entries of inboxes: the name of the message, or a copy of it.
#[derive(Debug, Clone, Copy, ToSchema)]
#[schema(as = InboxEntries, rename_all = "lowercase")]
pub enum InboxEntriesSchema {
    /// The entry names the message.
    Reference,
    /// The entry has the columns of the message.
    Copy,
}

impl From<InboxSpec> for InboxSettings {
    fn from(spec: InboxSpec) -> Self {
        Self {
            push_max: spec.push_max,
            fan_out_max: spec.fan_out_max,
            entries: spec.entries,
        }
    }
}

impl From<InboxSettings> for InboxSpec {
    fn from(settings: InboxSettings) -> Self {
        Self {
            push_max: settings.push_max,
            fan_out_max: settings.fan_out_max,
            entries: settings.entries,
        }
    }
}

/// Division of the messages of a table into parts by their time. A part is moved, archived and dropped as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"every": "month", "hot": "30d", "keep": "365d"}))]
pub struct FeedParts {
    /// Length of a part in UTC: `day`, `week` (from Monday) or `month`. Cannot be changed.
    #[schema(value_type = PartPeriodSchema)]
    pub every: PartPeriod,
    /// Minimum time for which a part is kept after its end. Older parts are hidden immediately and dropped
    /// later. Default: parts are kept until they are dropped on request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep: Option<DurationText>,
    /// Minimum time for which a part stays in the hot tier after its end. Default: parts stay in the hot tier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hot: Option<DurationText>,
    /// Minimum time for which messages of a part can be changed after its end. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writable: Option<DurationText>,
    /// Archive that old parts move into. Default: parts stay in their tier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archive: Option<PartsArchive>,
}

/// Origin of the sequence numbers of messages: assigned by the server, or given with each message.
#[derive(Debug, Clone, Copy, ToSchema)]
#[schema(as = SequenceSource, rename_all = "lowercase")]
pub enum SequenceSourceSchema {
    /// Assigned by the server.
    Generated,
    /// Given with each message.
    Manual,
}

/// Settings of a feed table that do not apply to its rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FeedView {
    /// Origin of the sequence numbers.
    #[schema(value_type = SequenceSourceSchema)]
    pub sequence: SequenceSource,
    /// Delivery to inboxes. Omitted if feeds have no members.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inboxes: Option<InboxSettings>,
}

impl From<FeedSpec> for FeedView {
    fn from(spec: FeedSpec) -> Self {
        Self {
            sequence: spec.sequence,
            inboxes: spec.inboxes.map(InboxSettings::from),
        }
    }
}

impl FeedSettings {
    /// Converts the settings to those of a table.
    ///
    /// # Errors
    ///
    /// Returns a message for parts of a table with manual sequence numbers.
    pub fn into_spec(self) -> Result<(FeedSpec, WideSpec), String> {
        if self.parts.is_some() && self.sequence == SequenceSource::Manual {
            return Err("feed.parts: parts follow from generated sequence numbers; omit `parts`, or set `sequence` to \
                 `generated`"
                .to_owned());
        }
        let feed = FeedSpec {
            sequence: self.sequence,
            inboxes: self.inboxes.map(InboxSpec::from),
        };
        // Durations and archives are converted as for wide tables.
        let rows = WideSettings {
            key: Vec::new(),
            columns: self.columns,
            max_versions: 1,
            version_guard: None,
            allow_rising_key: false,
            ttl: self.ttl,
            ttl_of: crate::wide::TtlOf::default(),
            parts: self.parts.map(|parts| crate::wide::PartsSettings {
                by: SEQUENCE.to_owned(),
                every: parts.every,
                keep: parts.keep,
                hot: parts.hot,
                writable: parts.writable,
                archive: parts.archive,
                migrate: None,
                expire: None,
                move_bytes_per_second: None,
            }),
            groups: Vec::new(),
            limits: Vec::new(),
        };
        let rows = rows.into_spec()?;
        let messages = MessageSettings {
            columns: rows.columns,
            ttl: rows.ttl,
            parts: rows.parts,
        };
        Ok((feed, rows_of(feed, messages)))
    }
}

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
    /// Token of the next page, sent as `page`; `null` on the last page.
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
    pub add: BTreeMap<String, i64>,
}

/// Counters of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({"counters": {"like": 3}, "request_id": "01jd3k5w8v-000002a1"}))]
pub struct MessageCounters {
    /// All counters of the message.
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
    #[serde(default)]
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

/// Start of a membership.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"history": "all"}))]
pub struct JoinFeed {
    /// Earlier messages that the inbox shows: `none`, the default, `all`, or those since a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history: Option<History>,
}

/// Earlier messages that the inbox of a new member shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum History {
    /// Only later messages.
    None,
    /// All messages of the feed.
    All,
    /// Messages of this time or later.
    Since(TimeInput),
}

/// Member of a feed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({"user": "ann", "joined": "2026-11-26T12:13:20Z", "cursor": "1795700000000000000", "muted": false}))]
pub struct Member {
    /// User.
    pub user: String,
    /// Time at which the membership began.
    pub joined: String,
    /// Sequence number up to which the user has read the feed; `null` = nothing.
    pub cursor: Option<Sequence>,
    /// True if unread messages of the feed do not count for the user.
    pub muted: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "called by serde")]
const fn is_zero_count(count: &u64) -> bool {
    *count == 0
}

/// New or known member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MemberDetail {
    /// Id of the feed.
    pub feed: String,
    /// The member.
    #[serde(flatten)]
    pub member: Member,
    /// Number of earlier messages and events of `history` without an entry in the inbox, because their parts are
    /// closed for writes. A read of the feed returns them. Omitted if 0.
    #[serde(default, skip_serializing_if = "is_zero_count")]
    pub skipped: u64,
    /// Id of the request, as in the server log.
    pub request_id: String,
}

/// Sender that a user has blocked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({"sender": "bea", "request_id": "01jd3k5w8v-000002a1"}))]
pub struct BlockDetail {
    /// The sender.
    pub sender: String,
    /// Id of the request, as in the server log.
    pub request_id: String,
}

/// Senders that a user has blocked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({"senders": ["bea"], "request_id": "01jd3k5w8v-000002a1"}))]
pub struct BlockList {
    /// The senders, at most 1,000, in the order of their names.
    pub senders: Vec<String>,
    /// Id of the request, as in the server log.
    pub request_id: String,
}

/// Parameters of a list of members.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct MemberQuery {
    /// Maximum number of members, 1 to 10,000. Default 100.
    #[serde(default)]
    pub limit: Option<usize>,
    /// `next` of the previous page.
    #[serde(default)]
    pub page: Option<String>,
}

/// Members of a feed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MemberList {
    /// Members, in the order in which they joined.
    pub members: Vec<Member>,
    /// Token of the next page; `null` on the last page.
    pub next: Option<String>,
    /// Id of the request, as in the server log.
    pub request_id: String,
}

/// Position up to which messages were read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"sequence": "1795700000000000000"}))]
pub struct SetCursor {
    /// Sequence number of a message, at most the highest so far. Without `rewind`, a number below the present cursor
    /// changes nothing.
    pub sequence: Sequence,
    /// True to set the cursor back too, so that later messages are unread again. Default false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rewind: bool,
    /// Device that has read the messages. Default: the cursor of the user, from which unread messages are
    /// counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
}

/// Cursor after a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CursorSet {
    /// The cursor: the higher of the present and the requested sequence number; with `rewind`, the requested one.
    pub cursor: Option<Sequence>,
    /// Id of the request, as in the server log.
    pub request_id: String,
}

/// Cursors of the devices of a user in a feed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({"cursor": "1795700000000000000", "devices": {"phone": "1795700000000000000"}, "request_id": "01jd3k5w8v-000002a1"}))]
pub struct CursorList {
    /// Sequence number up to which the user has read the feed; `null` = nothing.
    pub cursor: Option<Sequence>,
    /// Cursors by device.
    pub devices: BTreeMap<String, Sequence>,
    /// Id of the request, as in the server log.
    pub request_id: String,
}

/// Change of a membership.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"muted": true}))]
pub struct ChangeMember {
    /// True if unread messages of the feed do not count in the total of the user.
    pub muted: bool,
}

/// Parameters of a list of conversations.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ConversationQuery {
    /// Maximum number of conversations, 1 to 1,000. Default 50.
    #[serde(default)]
    pub limit: Option<usize>,
    /// `next` of the previous page.
    #[serde(default)]
    pub page: Option<String>,
    /// Principal on whose behalf the request reads: the user.
    #[serde(rename = "as", default)]
    pub principal: Option<String>,
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

/// Parameters of a read of the cursors or blocks of a user.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct UserQuery {
    /// Principal on whose behalf the request reads: the user.
    #[serde(rename = "as", default)]
    pub principal: Option<String>,
}

/// Conversation of a user: a feed of which the user is a member.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Conversation {
    /// Id of the feed.
    pub feed: String,
    /// Type of the feed.
    #[serde(rename = "type")]
    pub kind: String,
    /// Tags of the feed.
    pub tags: BTreeMap<String, String>,
    /// Newest message; `null` without messages.
    #[schema(value_type = Option<Message>)]
    pub last: Option<Box<RawValue>>,
    /// Number of unread messages of other senders, without recalled ones.
    pub unread: u64,
    /// Number of unread messages that mention the user.
    pub mentions: u64,
    /// Sequence number up to which the user has read the feed; `null` = nothing.
    pub cursor: Option<Sequence>,
    /// True if unread messages do not count in the total.
    pub muted: bool,
}

/// Conversations of a user, by their last activity.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ConversationList {
    /// Conversations, those with the newest message first.
    pub conversations: Vec<Conversation>,
    /// Token of the next page; `null` on the last page.
    pub next: Option<String>,
    /// Number of all conversations.
    pub total: u64,
    /// Number of unread messages in all conversations that are not muted.
    pub unread: u64,
    /// Id of the request, as in the server log.
    pub request_id: String,
}

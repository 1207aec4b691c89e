//! Change streams: settings, consumer groups, checkpoints and pages of records.
//!
//! Records are JSON objects whose members depend on their kind. The server writes them directly, so the types below only
//! describe them.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};

use crate::time::DurationText;

/// Kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// Points of a timeline were written.
    Points,
    /// Points of a timeline were deleted, or the timeline was removed.
    PointsDeleted,
    /// A timeline or a feed was introduced, or its attributes were changed.
    Timeline,
    /// A row of a wide table was written or deleted.
    Row,
    /// All rows of a range of keys were deleted.
    RowsDeleted,
    /// A message was sent, changed or deleted, or an event was added.
    Message,
    /// A saved search was changed or deleted.
    Search,
    /// The metadata of a metric was changed.
    Metric,
    /// A table was dropped. Every stream of the table contains this kind, even if its `kinds` do not.
    Table,
}

/// Settings of a change stream.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"tables": ["orders"], "kinds": ["row"], "retention": "3d"}))]
pub struct StreamSettings {
    /// Tables whose changes the stream contains: names, or prefixes that end with `*`. The users of a feed table are
    /// included only together with the feed table. Default: all tables, including later ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tables: Vec<String>,
    /// Kinds of changes that the stream contains, besides `table` and gaps. Default: all kinds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<ChangeKind>,
    /// Minimum time for which changes are kept, as long as `changes.bytes_max` suffices. Default: `changes.retention`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention: Option<DurationText>,
}

/// A change stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "name": "orders", "tables": ["orders"], "kinds": ["row"], "retention": "3d",
    "created": "2026-11-27T08:00:00Z", "oldest": "0-1a2b-0", "end": "0-1a40-0", "groups": ["billing"]
}))]
pub struct Stream {
    /// Name of the stream
    pub name: String,
    /// Tables whose changes the stream contains; empty = all
    pub tables: Vec<String>,
    /// Kinds of changes that the stream contains; empty = all
    pub kinds: Vec<ChangeKind>,
    /// Minimum time for which changes are kept, if the stream sets one
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention: Option<DurationText>,
    /// Time when the stream was created
    pub created: String,
    /// Cursor of the oldest change that can be read
    pub oldest: String,
    /// Cursor after the newest change
    pub end: String,
    /// Names of the consumer groups of the stream; empty for a token that is restricted to models or timelines
    pub groups: Vec<String>,
}

/// A change stream in a response.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StreamDetail {
    /// The stream
    #[serde(flatten)]
    pub stream: Stream,
    /// Id of the request
    pub request_id: String,
}

/// All change streams.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StreamList {
    /// Streams by name
    pub streams: Vec<Stream>,
    /// Bytes of the journal that are kept only for change streams, for all tables together; `null` for a token with a
    /// scope
    pub kept_bytes: Option<u64>,
    /// Largest value of `kept_bytes`; beyond it the oldest changes are freed, and their readers get a gap; `null` for a
    /// token with a scope
    pub kept_bytes_max: Option<u64>,
    /// Id of the request
    pub request_id: String,
}

/// Position at which a consumer group begins.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum GroupStart {
    /// At the first change after the creation of the group.
    #[default]
    End,
    /// At the oldest change of the stream that can still be read.
    Oldest,
    /// At a cursor of the stream.
    Cursor(String),
}

impl From<String> for GroupStart {
    fn from(text: String) -> Self {
        match text.as_str() {
            "end" => Self::End,
            "oldest" => Self::Oldest,
            _ => Self::Cursor(text),
        }
    }
}

impl From<GroupStart> for String {
    fn from(start: GroupStart) -> Self {
        match start {
            GroupStart::End => "end".to_owned(),
            GroupStart::Oldest => "oldest".to_owned(),
            GroupStart::Cursor(cursor) => cursor,
        }
    }
}

/// Settings of a consumer group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"partitions": 4, "hold": true, "from": "oldest"}))]
pub struct GroupSettings {
    /// Number of partitions, 1 to 256. All changes of a key are in one partition, in order, so partitions can be
    /// read in parallel. Cannot be changed. Default 1.
    #[serde(default = "one")]
    pub partitions: u16,
    /// True if changes that the group has not confirmed are kept beyond the retention of the stream, as long as
    /// `changes.bytes_max` suffices. Default false.
    #[serde(default)]
    pub hold: bool,
    /// Position at which a new group begins: `end`, `oldest` or a cursor. Default `end`.
    #[serde(default)]
    #[schema(value_type = String)]
    pub from: GroupStart,
}

const fn one() -> u16 {
    1
}

impl Default for GroupSettings {
    fn default() -> Self {
        Self {
            partitions: 1,
            hold: false,
            from: GroupStart::default(),
        }
    }
}

/// Checkpoint of a partition: all changes before its cursor are confirmed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "partition": 0, "cursor": "0-1a2b-0", "time": "2026-11-27T08:00:00Z", "behind": true, "lag": 21
}))]
pub struct Checkpoint {
    /// Number of the partition, from 0
    pub partition: u16,
    /// Cursor from which the next changes are read
    pub cursor: String,
    /// Time of the checkpoint
    pub time: String,
    /// True if the stream has changes after the checkpoint
    pub behind: bool,
    /// Number of journal entries between the checkpoint and the newest change, of all tables
    #[serde(default)]
    pub lag: u64,
}

/// A consumer group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Group {
    /// Name of the group
    pub name: String,
    /// True if changes that the group has not confirmed are kept beyond the retention of the stream
    pub hold: bool,
    /// Checkpoints of all partitions
    pub checkpoints: Vec<Checkpoint>,
}

/// A consumer group in a response.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GroupDetail {
    /// The group
    #[serde(flatten)]
    pub group: Group,
    /// Id of the request
    pub request_id: String,
}

/// All consumer groups of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GroupList {
    /// Groups by name
    pub groups: Vec<Group>,
    /// Id of the request
    pub request_id: String,
}

/// Confirmation of the changes of a partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"partition": 0, "cursor": "0-0-0", "rewind": true}))]
pub struct ConfirmChanges {
    /// Number of the partition. Default 0.
    #[serde(default)]
    pub partition: u16,
    /// Cursor after the last change that was processed: `next` of a page, or the `cursor` of a record
    pub cursor: String,
    /// True if the checkpoint may move back, so that changes are read again. Default false: a cursor before the checkpoint
    /// is a conflict, because another reader of the partition is ahead.
    #[serde(default)]
    pub rewind: bool,
}

/// Parameters of a read of the changes of a consumer group.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct ReadGroupChanges {
    /// Cursor from which changes are read: `next` of the previous page. Default: the checkpoint of the partition.
    #[param(example = "0-0-0")]
    pub cursor: Option<String>,
    /// Number of the partition that is read. Default 0.
    #[param(example = 0)]
    pub partition: Option<u16>,
    /// Maximum number of records, 1 to 10,000. Default 1,000.
    #[param(example = 1000)]
    pub limit: Option<usize>,
    /// Maximum time to wait for a first record, at most 5 min. Default: the response is sent immediately.
    #[param(value_type = String, example = "10ms")]
    pub wait: Option<DurationText>,
}

/// Parameters of a read of the changes of a stream.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct ReadChanges {
    /// Cursor from which changes are read: `next` of the previous page. Default: the oldest change of the stream.
    #[param(example = "0-0-0")]
    pub cursor: Option<String>,
    /// Number of the partition that is read. Default 0.
    #[param(example = 0)]
    pub partition: Option<u16>,
    /// Number of partitions, 1 to 256. Default 1.
    #[param(example = 4)]
    pub partitions: Option<u16>,
    /// Maximum number of records, 1 to 10,000. Default 1,000.
    #[param(example = 1000)]
    pub limit: Option<usize>,
    /// Maximum time to wait for a first record, at most 5 min. Default: the response is sent immediately.
    #[param(value_type = String, example = "10ms")]
    pub wait: Option<DurationText>,
}

/// Page of changes.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "records": [{
        "cursor": "0-1a2b-1", "position": "6699", "table": "orders", "kind": "row", "op": "put",
        "key": {"id": "o-1"}, "columns": {"state": "paid"}, "time": "2026-11-27T08:00:00Z"
    }],
    "next": "0-1a2b-1", "has_more": false, "request_id": "018f-1"
}))]
pub struct ChangePage {
    /// Changes, in the order of the journal. Each record has its `kind`, the `cursor` after it and, except for a
    /// `gap`, its `table` and its `position`: a number that is higher in later writes, also in other partitions. A
    /// large value that is not stored any more is omitted, and `missing` has the name of its column. A record of the
    /// kind `gap` replaces changes that are not available. Its `reason` is `freed` (the changes are not kept any more),
    /// `damaged` (they cannot be read) or `before_stream` (the cursor is older than the stream). Their content is not
    /// known.
    /// A record of the kind `table` with the `op` `drop` reports that the table was dropped. Later records of its name
    /// belong to another table. Earlier changes of the dropped table that were not read yet are omitted.
    #[schema(value_type = Vec<Object>)]
    pub records: Vec<Box<RawValue>>,
    /// Cursor to continue from
    pub next: String,
    /// True if more of the journal can be read immediately
    pub has_more: bool,
    /// Id of the request
    pub request_id: String,
}

/// Settings of a webhook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "url": "https://localhost/orders", "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "from": "end"
}))]
pub struct WebhookSettings {
    /// Address to which the changes are sent: `https`, on a host of `webhooks.hosts`
    pub url: String,
    /// Secret that signs each request: `whsec_` and 16 to 256 bytes in base64, or a text of 16 to 256 bytes. Never
    /// returned. Required for a new webhook. Default for an existing webhook: the secret stays unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// Maximum number of records of a request, 1 to 1,000. Default 100.
    #[serde(default = "default_batch")]
    pub batch: usize,
    /// True if changes that were not delivered are kept beyond the retention of the stream, as long as `changes.bytes_max`
    /// suffices. Default false.
    #[serde(default)]
    pub hold: bool,
    /// Position at which a new webhook begins: `end`, `oldest` or a cursor. Default `end`.
    #[serde(default)]
    #[schema(value_type = String)]
    pub from: GroupStart,
}

const fn default_batch() -> usize {
    100
}

/// State of the deliveries of a webhook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WebhookState {
    /// Changes are delivered as they happen. `error` can report that the last delivery was given up.
    Active,
    /// The last request failed, and the same delivery is sent again.
    Retrying,
    /// Nothing is delivered, because the list of failed deliveries is full. To continue, replay or discard failed
    /// deliveries.
    Stopped,
    /// Nothing is delivered, because the receiver has responded with 410 Gone. A request to `resume`, or a new
    /// address, ends the pause.
    Paused,
    /// Nothing is delivered, because the operator does not allow the address any more, or has switched off
    /// webhooks.
    Refused,
}

/// A webhook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "name": "orders", "url": "https://hooks.example.com", "batch": 100, "hold": false, "state": "active",
    "cursor": "0-1a2b-0", "time": "2026-11-27T08:00:00Z", "failed": 0
}))]
pub struct Webhook {
    /// Name of the webhook
    pub name: String,
    /// Scheme, host and port of the address; its path can hold a secret and is not returned
    pub url: String,
    /// Maximum number of records of a request
    pub batch: usize,
    /// True if changes that were not delivered are kept beyond the retention of the stream
    pub hold: bool,
    /// State of the deliveries
    pub state: WebhookState,
    /// Cursor of the next change that is delivered
    pub cursor: String,
    /// Time when the cursor was last changed
    pub time: String,
    /// Number of failed deliveries that are kept for a replay
    pub failed: usize,
    /// Error of the last request. Omitted if the last request succeeded, or if the list of failed deliveries has been
    /// replayed or discarded completely since
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Pause of the deliveries. Omitted if the webhook is not paused
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause: Option<WebhookPause>,
}

/// Pause of a webhook, which lasts until a request ends it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "reason": "hooks.example.com responded with status 410: the receiver accepts no more deliveries",
    "time": "2026-11-27T08:00:00Z"
}))]
pub struct WebhookPause {
    /// Reason of the pause
    pub reason: String,
    /// Time when the pause began
    pub time: String,
}

/// A webhook in a response.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WebhookDetail {
    /// The webhook
    #[serde(flatten)]
    pub webhook: Webhook,
    /// Id of the request
    pub request_id: String,
}

/// All webhooks of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WebhookList {
    /// Webhooks by name
    pub webhooks: Vec<Webhook>,
    /// Id of the request
    pub request_id: String,
}

/// Failed delivery that is no longer repeated automatically.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "id": "0-1a2b-0_0-1a2c-0", "records": 2, "attempts": 9, "error": "the receiver answered with status 400",
    "time": "2026-11-27T08:00:00Z"
}))]
pub struct FailedDelivery {
    /// Id of the delivery, as in the header `webhook-id`
    pub id: String,
    /// Number of records in the delivery
    pub records: usize,
    /// Number of attempts
    pub attempts: u32,
    /// Error of the last attempt
    pub error: String,
    /// Time of the last attempt
    pub time: String,
}

/// Failed deliveries of a webhook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FailedDeliveries {
    /// Deliveries, oldest first
    pub failed: Vec<FailedDelivery>,
    /// Id of the request
    pub request_id: String,
}

/// Request to repeat failed deliveries, or to deliver changes again.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({}))]
pub struct ReplayWebhook {
    /// Ids of the failed deliveries to send again, once each. Default: all, unless `cursor` is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ids: Option<Vec<String>>,
    /// Cursor from which all changes are delivered again. Default: no changes are delivered again
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// Result of a replay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReplayReport {
    /// Number of deliveries that were accepted and removed from the list
    pub delivered: usize,
    /// Deliveries that failed again
    pub failed: Vec<FailedDelivery>,
    /// Id of the request
    pub request_id: String,
}

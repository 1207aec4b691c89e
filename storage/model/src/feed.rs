//! Settings of feed tables.
//!
//! The messages of a feed table are rows, with the key and the columns that [`rows_of`] declares. The members of its
//! feeds are rows of a second table, which belongs to the feed table; [`users_rows`] declares that table.

use serde::{Deserialize, Serialize};

use crate::parts::{PartsSpec, TierScope};
use crate::wide::{
    ColumnCompression, ColumnSpec, ColumnType, Generated, IndexCover, IndexScope, IndexSpec, IndexState,
    KeyColumnSpec, KeyOrder, KeySource, RowTtl, TtlScope, WideSpec,
};

/// Key column with the id of the feed in hexadecimal.
pub const FEED: &str = "feed";
/// Key column with the sequence number of a message.
pub const SEQUENCE: &str = "sequence";
/// Column with the sender of a message.
pub const SENDER: &str = "sender";
/// Column with the message id, which the sender chooses.
pub const MESSAGE_ID: &str = "id";
/// Column with the time of a message. Exists only if senders assign the sequence numbers.
pub const TIME: &str = "time";
/// Column with the kind of an event: `edit`, `recall` or `delete`. Messages do not have it.
pub const EVENT: &str = "event";
/// Kind of the event of an edit.
pub const EDIT: &str = "edit";
/// Kind of the event of a deletion.
pub const DELETE: &str = "delete";
/// Column with the sequence number of the message that an event changes.
pub const TARGET: &str = "target";
/// Column with the sender of the message that an event changes, or an empty text if the message has no sender. Only events
/// of tables with inboxes have it: users block the sender of a message, also if another principal changes the message.
/// Events that earlier builds have written do not have it.
pub const TARGET_SENDER: &str = "target_sender";
/// Column with the names of the columns that an edit has removed, as a JSON list. Only events have it.
pub const CLEARED: &str = "cleared";
/// Column with the time of the last edit of a message.
pub const EDITED: &str = "edited";
/// Column with the time at which a message was recalled.
pub const RECALLED: &str = "recalled";
/// Column with the id of the feed whose message an entry of an inbox refers to. The message has the sequence number of
/// the entry. Only entries of inboxes have the column.
pub const SOURCE: &str = "source";
/// Column with the users whose inboxes show a message, as a JSON list; missing = all members.
pub const TO: &str = "to";
/// Column with the users whose inboxes do not show a message, as a JSON list.
pub const EXCEPT: &str = "except";
/// Column with the users that a message mentions, as a JSON list.
pub const MENTIONS: &str = "mentions";
/// Column with a copy of the message to which an entry of an inbox refers, in the form of stored rows. Only tables with
/// [`InboxEntries::Copy`] have it.
pub const COPY: &str = "copy";
/// Type of the feeds that are inboxes, in tables with inboxes. The tag `user` names their user.
pub const INBOX: &str = "inbox";
/// Beginning of the names of columns that hold the counters of a message.
pub const COUNTER_PREFIX: &str = "counter.";
/// Name of the secondary index by message id.
pub const ID_INDEX: &str = "by_message_id";

/// Columns of messages that users cannot write, in every feed table. See [`FeedSpec::is_reserved`] for those of tables with
/// inboxes.
pub const RESERVED: [&str; 14] = [
    FEED, SEQUENCE, SENDER, MESSAGE_ID, TIME, EVENT, TARGET, CLEARED, EDITED, RECALLED, SOURCE, TO, EXCEPT,
    MENTIONS,
];

/// Settings of a feed table beyond those of its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FeedSpec {
    /// Origin of the sequence numbers. Fixed when the table is created.
    #[serde(default)]
    pub sequence: SequenceSource,
    /// Members and inboxes; `None` = feeds have no members. Fixed when the table is created. Requires generated
    /// sequence numbers, because an entry of an inbox has the sequence number of its message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inboxes: Option<InboxSpec>,
}

impl FeedSpec {
    /// Returns [`InboxSpec::fan_out_max`]; 0 without inboxes.
    pub fn fan_out_max(&self) -> u32 {
        self.inboxes.map_or(0, |inboxes| inboxes.fan_out_max)
    }

    /// Returns true for the name of a column of messages that users cannot write. The names of counters are not included.
    pub fn is_reserved(&self, name: &str) -> bool {
        RESERVED.contains(&name)
            || (self.has_copies() && name == COPY)
            || (self.inboxes.is_some() && name == TARGET_SENDER)
    }

    /// Returns true if entries of inboxes have copies of their messages.
    pub fn has_copies(&self) -> bool {
        self.inboxes
            .is_some_and(|inboxes| inboxes.entries == InboxEntries::Copy)
    }
}

/// Delivery of messages to the inboxes of the members of a feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InboxSpec {
    /// Maximum number of members of a feed whose messages are written to the inboxes of the members, 0 to [`PUSH_MAX`].
    /// The members of a larger feed read its messages from the feed.
    pub push_max: u32,
    /// Maximum number of members of a larger feed for which a job writes the messages to the inboxes later. 0 = no job;
    /// otherwise more than `push_max`, at most [`FAN_OUT_MAX`].
    #[serde(default, skip_serializing_if = "is_zero")]
    pub fan_out_max: u32,
    /// Content of the entries that are written together with their message.
    #[serde(default, skip_serializing_if = "InboxEntries::is_reference")]
    pub entries: InboxEntries,
}

/// Largest [`InboxSpec::push_max`]. The limit exists because the inbox entries of a message are in one journal entry.
pub const PUSH_MAX: u32 = 1_000;
/// Largest [`InboxSpec::fan_out_max`]. The limit exists because the job reads all members once per 100 messages, and a
/// request that removes a member counts the remaining members.
pub const FAN_OUT_MAX: u32 = 100_000;

#[expect(clippy::trivially_copy_pass_by_ref, reason = "called by serde")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Content of the entries of inboxes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InboxEntries {
    /// An entry names the feed of its message. A reader of the inbox reads the message.
    #[default]
    Reference,
    /// An entry also has the columns of its message, without the counters.
    Copy,
}

impl InboxEntries {
    /// Returns true for entries without columns of their message.
    pub const fn is_reference(&self) -> bool {
        matches!(self, Self::Reference)
    }
}

/// Key column of the table of users: the user, or an empty text for the state of a feed.
pub const USER: &str = "user";
/// Key column of the table of users: the device, or an empty text for the membership.
pub const DEVICE: &str = "device";
/// Column of a membership: its time, in nanoseconds since 1970-01-01T00:00:00Z.
pub const JOINED: &str = "joined";
/// Column of a membership: lowest sequence number that the member sees in the inbox.
pub const VISIBLE_FROM: &str = "visible_from";
/// Column of a membership or of a device: sequence number up to which messages were read.
pub const CURSOR: &str = "cursor";
/// Column of a membership: true if its unread messages do not count for the user.
pub const MUTED: &str = "muted";
/// Column of a membership: true while the inbox does not have the entries of all earlier messages yet that the member
/// sees. Readers of the inbox read the messages from the feed until then.
pub const FILLING: &str = "filling";
/// Column of a membership with [`FILLING`]: sequence number below which the job has completed the entries of the inbox.
pub const FILLED: &str = "filled";
/// Column of the state of a feed: ranges of sequence numbers that members read from the feed, as a JSON list. The row
/// [`FAN_OUT`] stores the progress of the fan-out in the same column.
pub const PULLED: &str = "pulled";
/// Value of the last key column in the row ("", feed, [`FAN_OUT`]) of the table of users. The row holds the progress of
/// the job that writes the messages of a feed to inboxes.
pub const FAN_OUT: &str = "fan_out";
/// Name of the index of memberships by feed.
pub const MEMBER_INDEX: &str = "by_feed";

/// Returns the settings of the rows of the table of users. All rows of a user are one partition. Memberships are found
/// by feed, in the order in which they began.
pub fn users_rows() -> WideSpec {
    let column = |name: &str, column_type| ColumnSpec {
        name: name.to_owned(),
        column_type,
        number: 0,
        compression: ColumnCompression::Auto,
    };
    let key_column = |name: &str, column_type| KeyColumnSpec {
        name: name.to_owned(),
        source: KeySource::Type(column_type),
        order: KeyOrder::Ascending,
    };
    WideSpec {
        key: [USER, FEED, DEVICE]
            .map(|name| key_column(name, ColumnType::String))
            .to_vec(),
        columns: vec![
            column(JOINED, ColumnType::I64),
            column(VISIBLE_FROM, ColumnType::I64),
            column(CURSOR, ColumnType::I64),
            column(MUTED, ColumnType::Bool),
            column(PULLED, ColumnType::Json),
        ],
        next_column: 1,
        max_versions: 1,
        version_guard: None,
        allow_rising_key: false,
        indexes: vec![IndexSpec {
            id: 0,
            name: MEMBER_INDEX.to_owned(),
            key: vec![
                key_column(FEED, ColumnType::String),
                key_column(JOINED, ColumnType::I64),
            ],
            covers: IndexCover::default(),
            scope: IndexScope::Global,
            allow_rising_key: false,
            tier: TierScope::default(),
            state: IndexState::Ready,
        }],
        ttl: None,
        parts: None,
        search_indexes: Vec::new(),
        large_values: None,
        cut_values: false,
        codecs: false,
        ttl_of: TtlScope::default(),
        limits: Vec::new(),
        groups: Vec::new(),
    }
}

/// Origin of the sequence numbers of the messages of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SequenceSource {
    /// The server assigns strictly increasing numbers in the order of the journal: times in nanoseconds since
    /// 1970-01-01T00:00:00Z.
    #[default]
    Generated,
    /// The sender assigns a number to each message. A message never replaces another message.
    Manual,
}

/// Settings of the messages that the creator of a feed table chooses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MessageSettings {
    /// Declared columns, without the reserved ones.
    pub columns: Vec<ColumnSpec>,
    /// Time after which messages expire; `None` = never.
    pub ttl: Option<RowTtl>,
    /// Division into parts by the sequence number; `None` = all messages are in one part.
    pub parts: Option<PartsSpec>,
}

/// Returns the settings of the rows of a feed table. A message has the key (feed, sequence number), so the messages of
/// a feed are one ordered range. Feeds spread evenly because their ids are hashes.
pub fn rows_of(feed: FeedSpec, messages: MessageSettings) -> WideSpec {
    let key_column = |name: &str, source| KeyColumnSpec {
        name: name.to_owned(),
        source,
        order: KeyOrder::Ascending,
    };
    let sequence = match feed.sequence {
        SequenceSource::Generated => KeySource::Generated(Generated {}),
        SequenceSource::Manual => KeySource::Type(ColumnType::I64),
    };
    let reserved = [
        (SENDER, ColumnType::String),
        (MESSAGE_ID, ColumnType::String),
        (TIME, ColumnType::Timestamp),
        (EVENT, ColumnType::String),
        (TARGET, ColumnType::I64),
        (CLEARED, ColumnType::Json),
        (EDITED, ColumnType::Timestamp),
        (RECALLED, ColumnType::Timestamp),
        (SOURCE, ColumnType::String),
        (TO, ColumnType::Json),
        (EXCEPT, ColumnType::Json),
        (MENTIONS, ColumnType::Json),
    ];
    let copy = feed.has_copies().then_some((COPY, ColumnType::Binary));
    let target_sender = feed.inboxes.map(|_| (TARGET_SENDER, ColumnType::String));
    let reserved = reserved
        .into_iter()
        .chain(target_sender)
        .chain(copy)
        .map(|(name, column_type)| ColumnSpec {
            name: name.to_owned(),
            column_type,
            number: 0,
            compression: ColumnCompression::Auto,
        });
    WideSpec {
        key: vec![
            key_column(FEED, KeySource::Type(ColumnType::String)),
            key_column(SEQUENCE, sequence),
        ],
        columns: reserved.chain(messages.columns).collect(),
        next_column: 1,
        max_versions: 1,
        version_guard: None,
        allow_rising_key: false,
        indexes: vec![IndexSpec {
            id: 0,
            name: ID_INDEX.to_owned(),
            key: vec![key_column(MESSAGE_ID, KeySource::Type(ColumnType::String))],
            covers: IndexCover::Columns(vec![TARGET.to_owned()]),
            scope: IndexScope::Local,
            allow_rising_key: false,
            tier: TierScope::default(),
            state: IndexState::Ready,
        }],
        ttl: messages.ttl,
        parts: messages.parts,
        search_indexes: Vec::new(),
        large_values: None,
        cut_values: false,
        codecs: false,
        ttl_of: TtlScope::default(),
        limits: Vec::new(),
        groups: Vec::new(),
    }
}

//! Settings of feed tables. The messages of a feed table are rows, with the key and the columns that [`rows_of`] declares.

use serde::{Deserialize, Serialize};

use crate::parts::PartsSpec;
use crate::wide::{
    ColumnSpec, ColumnType, Generated, IndexCover, IndexScope, IndexSpec, IndexState, KeyColumnSpec,
    KeyOrder, KeySource, RowTtl, WideSpec,
};

/// Key column with the id of the feed in hexadecimal.
pub const FEED: &str = "feed";
/// Key column with the sequence number of a message.
pub const SEQUENCE: &str = "sequence";
/// Column with the sender of a message.
pub const SENDER: &str = "sender";
/// Column with the message id, which the sender chooses.
pub const MESSAGE_ID: &str = "id";
/// Column with the time of a message; only if senders give the sequence numbers.
pub const TIME: &str = "time";
/// Column with the kind of an event: `edit`, `recall` or `delete`. Messages do not have it.
pub const EVENT: &str = "event";
/// Column with the sequence number of the message that an event changes.
pub const TARGET: &str = "target";
/// Column with the names of the columns that an edit has removed, as a JSON list. Only events have it.
pub const CLEARED: &str = "cleared";
/// Column with the time of the last edit of a message.
pub const EDITED: &str = "edited";
/// Column with the time at which a message was recalled.
pub const RECALLED: &str = "recalled";
/// Beginning of the names of columns that hold the counters of a message.
pub const COUNTER_PREFIX: &str = "counter.";
/// Name of the secondary index by message id.
pub const ID_INDEX: &str = "by_message_id";

/// Columns of messages that users cannot write.
pub const RESERVED: [&str; 10] = [
    FEED, SEQUENCE, SENDER, MESSAGE_ID, TIME, EVENT, TARGET, CLEARED, EDITED, RECALLED,
];

/// Settings of a feed table beyond those of its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FeedSpec {
    /// Origin of the sequence numbers. Fixed when the table is created.
    #[serde(default)]
    pub sequence: SequenceSource,
}

/// Origin of the sequence numbers of the messages of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SequenceSource {
    /// The server assigns strictly increasing numbers in the order of the journal: times in nanoseconds since
    /// 1970-01-01T00:00:00Z.
    #[default]
    Generated,
    /// The sender gives each message a number. A message never replaces another one.
    Manual,
}

/// Settings of the messages of a new feed table that its users choose.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MessageSettings {
    /// Declared columns, without the reserved ones.
    pub columns: Vec<ColumnSpec>,
    /// Time after which messages expire; `None` = never.
    pub ttl: Option<RowTtl>,
    /// Division into parts by the sequence number; `None` = all messages are in one part.
    pub parts: Option<PartsSpec>,
}

/// Returns the settings of the rows of a feed table. A message has the key (feed, sequence number), so the messages of a
/// feed are one ordered range, and feeds spread evenly because their ids are hashes.
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
    ];
    let reserved = reserved.map(|(name, column_type)| ColumnSpec {
        name: name.to_owned(),
        column_type,
        number: 0,
    });
    WideSpec {
        key: vec![
            key_column(FEED, KeySource::Type(ColumnType::String)),
            key_column(SEQUENCE, sequence),
        ],
        columns: reserved.into_iter().chain(messages.columns).collect(),
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
            tier: crate::parts::TierScope::default(),
            state: IndexState::Ready,
        }],
        ttl: messages.ttl,
        parts: messages.parts,
        search_indexes: Vec::new(),
        large_values: None,
        groups: Vec::new(),
    }
}

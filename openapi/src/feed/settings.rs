//! Settings of feed tables: sequence numbers, columns and expiry of messages, inboxes, and parts.
//!
//! The settings are converted to those of the rows that the messages of the table are, so a feed table has the limits
//! and defaults of a wide table.

use serde::{Deserialize, Serialize};
use tideline_model::feed::{MessageSettings, SEQUENCE, rows_of};
use tideline_model::{FeedSpec, InboxEntries, InboxSpec, PartPeriod, SequenceSource, WideSpec};
use utoipa::ToSchema;

use crate::time::DurationText;
use crate::wide::{PartPeriodSchema, PartsArchive, RowColumn, WideSettings};

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

//! Members of feeds and their users: memberships, cursors, blocked senders, and conversations.
//!
//! Only tables with inboxes have members. A token without a role that reads gets responses without stored data.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};

use super::{Message, Sequence};
use crate::time::TimeInput;

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
    /// Messages of this time or later. The time must not be in the future.
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

/// Response to a change of a member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
#[schema(example = json!({
    "feed": "7d5f6f5bdc4ab1a1b86df3a1a2f9cc10", "user": "ann", "joined": "2026-11-26T12:13:20Z",
    "cursor": "1795700000000000000", "muted": false, "request_id": "01jd3k5w8v-000002a1"
}))]
pub enum MemberWritten {
    /// The member.
    Member(MemberDetail),
    /// The change, for a token without a role that reads.
    Changed(MemberChanged),
}

/// Changed member, without stored data that the request did not contain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MemberChanged {
    /// Id of the feed.
    pub feed: String,
    /// User.
    pub user: String,
    /// Value that the request has set. Omitted if the request has set no value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub muted: Option<bool>,
    /// Number of earlier messages and events of `history` without an entry in the inbox, because their parts are
    /// closed for writes. Omitted if 0.
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
    /// Principal on whose behalf the request reads. The inbox of another user is refused.
    #[serde(rename = "as", default)]
    pub principal: Option<String>,
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
    /// The cursor: the higher of the present and the requested sequence number; with `rewind`, the requested one. `null`
    /// for a token without a role that reads if it is not the requested one.
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

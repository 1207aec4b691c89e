//! Feeds: message timelines as a service.
//!
//! A feed table is a table of rows with the key (feed, sequence number). The engine keeps feeds in a catalog, like the
//! timelines of series tables. This crate defines messages: their columns, their events, and the requests that write
//! and read them. It does not depend on HTTP.
//!
//! A change of a message is also an *event*: a row of the feed with a separate sequence number. A reader that follows a
//! feed by its cursor therefore sees every change, even of messages that it has read before. The change of the message
//! and its event are one atomic write.
//!
//! | module | holds |
//! |---|---|
//! | [`message`] | columns of messages; messages as JSON |
//! | [`send`](mod@send) | new messages, and message ids that were sent before |
//! | [`change`] | edits, recalls, deletions and counters |
//! | [`blocks`] | senders whose messages a user does not see |
//! | `delivery` | delivery of messages to inboxes: pushed, or read from the feed |
//! | [`fan_out`](mod@fan_out) | job that writes the messages of feeds with many members to inboxes |
//! | [`inbox`] | inboxes and conversations of users |
//! | [`members`] | members of feeds, cursors of users |
//! | [`read`] | pages of one feed, of several feeds, and of several merged feeds; counts |
//! | `message_list` | messages of a response as JSON |
//! | `state` | state of the delivery of a feed |
//! | [`search`] | searches over messages |
//! | [`viewer`] | messages as one user sees them |

pub mod blocks;
pub mod change;
mod delivery;
pub mod fan_out;
pub mod inbox;
pub mod members;
pub mod message;
mod message_list;
pub mod read;
pub mod search;
pub mod send;
mod state;
pub mod viewer;

pub use message::MessageEncoder;
pub use message_list::MessageList;

//! `tideline feed`: sends, reads, changes and searches messages of feed tables, and manages feeds.
//!
//! | module | holds |
//! |---|---|
//! | `send` | `send` |
//! | `read` | `read`, `merge`, `count` |
//! | `watch` | `watch` |
//! | `change` | `edit`, `recall`, `delete`, `react` |
//! | `search` | `search` |
//! | `feeds` | `list`, `show`, `put`, `drop` |
//! | `members` | `members`, `join`, `leave`, `mute`, `block`, `inbox`, `conversations`, `cursor` |
//! | `shown` | messages as tables and as lines of JSON |
//!
//! Lines of messages are sent by `write::messages`, which shares the splitting of files and the waits with `write`.

mod change;
mod feeds;
mod members;
mod read;
mod search;
mod send;
mod shown;
mod watch;

use clap::{Args, Subcommand};
use tideline_openapi::feed::Sequence;

pub(super) use self::feeds::name_of;
use super::rows::shape::TableShape;
use crate::client::{Client, ConnectionArguments, encoded};
use crate::error::{CliError, Result};

/// Subcommands of `feed`.
#[derive(Debug, Subcommand)]
pub(crate) enum FeedCommand {
    /// Send a message, or lines of messages from a file
    #[command(after_help = send::EXAMPLES)]
    Send(send::SendArguments),
    /// Read messages of a feed: after a cursor, backward, or in a range
    #[command(after_help = "\
Examples:
  tideline feed read chat room,name=lobby --descending --limit 20   # the newest messages
  tideline feed read chat room,name=lobby --after 1795700000000000000
  tideline feed read chat room,name=lobby --from now-1d --columns text --output ndjson > day.ndjson

In lines of JSON, the last line has `next`, the cursor after the last message.")]
    Read(read::ReadArguments),
    /// Follow the new messages of a feed, or of the inbox of a user
    #[command(after_help = "\
Examples:
  tideline feed watch chat room,name=lobby                     # until Ctrl-C
  tideline feed watch chat room,name=lobby --after 0 --for 0s  # all messages that exist
  tideline feed watch chat --user ann --json                   # the inbox of a user, as lines of JSON")]
    Watch(watch::WatchArguments),
    /// Read messages of several feeds in one order, by time
    #[command(after_help = "\
Example:
  tideline feed merge posts outbox,author=ann outbox,author=bea --descending --limit 20")]
    Merge(read::MergeArguments),
    /// Count messages of a feed, such as the unread ones after a cursor
    Count(read::CountArguments),
    /// Change columns of a message
    #[command(after_help = "\
Example:
  tideline feed edit chat room,name=lobby 1795700000000000000 text='Lunch at one?' --as ann")]
    Edit(change::EditArguments),
    /// Remove the columns of a message, and mark it as recalled
    Recall(change::EventArguments),
    /// Delete a message
    Delete(change::EventArguments),
    /// Add to counters of a message, such as reactions
    #[command(after_help = "\
Examples:
  tideline feed react chat room,name=lobby 1795700000000000000 like
  tideline feed react chat room,name=lobby 1795700000000000000 like=-1 seen=3")]
    React(change::ReactArguments),
    /// Find messages through a search index
    #[command(after_help = search::EXAMPLES)]
    Search(search::SearchArguments),
    /// List feeds, or find them by conditions
    #[command(visible_alias = "find", after_help = feeds::EXAMPLES)]
    List(feeds::ListArguments),
    /// Show a feed: its attributes and its newest sequence number
    Show(FeedArguments),
    /// Create a feed, or set and remove its attributes
    #[command(after_help = "\
Example:
  tideline feed put chat room,name=lobby title='The lobby' members_max=50")]
    Put(feeds::PutArguments),
    /// Delete a feed with its messages
    ///
    /// Shows the number of messages and asks for confirmation.
    Drop(feeds::DropArguments),
    /// List the members of a feed
    Members(members::MembersArguments),
    /// Add a member to a feed
    #[command(after_help = "\
Examples:
  tideline feed join chat room,name=lobby ann
  tideline feed join chat room,name=lobby bea --history all
  tideline feed join chat room,name=lobby cem --history now-7d")]
    Join(members::JoinArguments),
    /// Remove a member from a feed, and the messages of the feed from the inbox of the member
    Leave(members::MemberArguments),
    /// Exclude the unread messages of a feed from the total of a user
    Mute(members::MuteArguments),
    /// Block a sender for a user: the inbox shows no message of the sender; without a sender, list the blocked senders
    #[command(after_help = "\
Examples:
  tideline feed block chat ann bea
  tideline feed block chat ann bea --off
  tideline feed block chat ann           # the senders that ann has blocked")]
    Block(members::BlockArguments),
    /// Read the inbox of a user: the messages of all feeds of which the user is a member
    #[command(after_help = "\
Examples:
  tideline feed inbox chat ann --descending --limit 20
  tideline feed inbox chat ann --after 1795700000000000000
  tideline feed inbox chat ann --output ndjson > inbox.ndjson")]
    Inbox(members::InboxArguments),
    /// List the conversations of a user, with the number of unread messages of each
    Conversations(members::ConversationsArguments),
    /// Set the cursor of a user in a feed: the messages up to it count as read
    #[command(after_help = "\
Example:
  tideline feed cursor chat ann room,name=lobby 1795700000000000000 --device phone")]
    Cursor(members::CursorArguments),
}

/// Table of a command, and the server.
#[derive(Debug, Clone, Args)]
pub(crate) struct FeedTable {
    /// Name of the table
    #[arg(value_name = "TABLE")]
    table: String,
    #[command(flatten)]
    connection: ConnectionArguments,
}

impl FeedTable {
    fn client(&self) -> Result<Client> {
        self.connection.client_of_table(&self.table, 1)
    }
}

/// Feed of a command.
#[derive(Debug, Clone, Args)]
pub(crate) struct FeedArguments {
    #[command(flatten)]
    table: FeedTable,
    /// Feed: its id, or its type and tags, such as room,name=lobby
    #[arg(value_name = "FEED")]
    feed: String,
}

impl FeedArguments {
    /// Returns the path of a resource of the feed. `rest` is the part after the feed.
    fn path(&self, client: &Client, rest: &str) -> String {
        client.of_table(&format!("/feeds/{}{rest}", encoded(&self.feed)))
    }

    const fn is_json(&self) -> bool {
        self.table.connection.json
    }
}

/// Message of a command.
#[derive(Debug, Clone, Args)]
struct MessageArguments {
    #[command(flatten)]
    feed: FeedArguments,
    /// Sequence number of the message
    #[arg(value_name = "SEQUENCE", allow_hyphen_values = true)]
    sequence: Sequence,
}

impl MessageArguments {
    /// Returns the path of a resource of the message. `rest` is the part after the sequence number.
    fn path(&self, client: &Client, rest: &str) -> String {
        self.feed
            .path(client, &format!("/messages/{}{rest}", self.sequence))
    }
}

/// Principal of a command.
#[derive(Debug, Clone, Args)]
struct PrincipalArgument {
    /// Principal on whose behalf the command acts: the sender of messages and of events
    #[arg(long = "as", value_name = "NAME")]
    principal: Option<String>,
}

/// Principal of a command that reads feeds.
#[derive(Debug, Clone, Args)]
struct ViewerArgument {
    /// Read on behalf of this principal: omit messages that are not for the principal or whose senders the principal
    /// has blocked
    #[arg(long = "as", value_name = "NAME")]
    principal: Option<String>,
}

/// Returns the columns of the table. Fails for a table that is not a feed table.
fn shape(client: &Client) -> Result<TableShape> {
    let table = client.parse(&client.get(&client.of_table(""))?)?;
    match table["feed"].is_object() {
        true => Ok(TableShape::new(&table)),
        false => Err(CliError::usage(format!(
            "table {} has the model {}; commands of `feed` apply to tables of the model feed",
            client.table(),
            crate::output::member(&table, "model")
        ))),
    }
}

/// Adds parameters to a path. Parameters without a value are omitted.
fn with_query(path: &str, parameters: &[(&str, Option<String>)]) -> String {
    let given = parameters
        .iter()
        .filter_map(|(name, value)| Some(format!("{name}={}", encoded(value.as_ref()?))));
    match given.collect::<Vec<String>>().join("&") {
        none if none.is_empty() => path.to_owned(),
        query => format!("{path}?{query}"),
    }
}

/// Runs the subcommand.
pub(crate) fn run(command: &FeedCommand) -> Result<()> {
    match command {
        FeedCommand::Send(arguments) => send::run(arguments),
        FeedCommand::Read(arguments) => read::read(arguments),
        FeedCommand::Watch(arguments) => watch::run(arguments),
        FeedCommand::Merge(arguments) => read::merge(arguments),
        FeedCommand::Count(arguments) => read::count(arguments),
        FeedCommand::Edit(arguments) => change::edit(arguments),
        FeedCommand::Recall(arguments) => change::recall(arguments),
        FeedCommand::Delete(arguments) => change::delete(arguments),
        FeedCommand::React(arguments) => change::react(arguments),
        FeedCommand::Search(arguments) => search::run(arguments),
        FeedCommand::List(arguments) => feeds::list(arguments),
        FeedCommand::Show(arguments) => feeds::show(arguments),
        FeedCommand::Put(arguments) => feeds::put(arguments),
        FeedCommand::Drop(arguments) => feeds::drop_feed(arguments),
        FeedCommand::Members(arguments) => members::list(arguments),
        FeedCommand::Join(arguments) => members::join(arguments),
        FeedCommand::Leave(arguments) => members::leave(arguments),
        FeedCommand::Mute(arguments) => members::mute(arguments),
        FeedCommand::Block(arguments) => members::block(arguments),
        FeedCommand::Inbox(arguments) => members::inbox(arguments),
        FeedCommand::Conversations(arguments) => members::conversations(arguments),
        FeedCommand::Cursor(arguments) => members::cursor(arguments),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_escaped() {
        assert_eq!(with_query("/a", &[("b", None)]), "/a");
        assert_eq!(
            with_query(
                "/a",
                &[("b", Some("c&d".into())), ("e", None), ("f", Some("1".into()))]
            ),
            "/a?b=c%26d&f=1"
        );
    }
}

//! Members of feeds, and the inboxes, conversations and cursors of users.
//!
//! A user is a text that the application chooses; the server keeps no list of users.

use clap::Args;
use serde_json::{Value, json};
use tideline_openapi::feed::Sequence;

use super::feeds::name_of;
use super::read::ReadOptions;
use super::{FeedArguments, FeedTable, with_query};
use crate::client::encoded;
use crate::commands::selection::time;
use crate::error::Result;
use crate::output;
use crate::output::grid::Grid;

#[derive(Debug, Args)]
pub(crate) struct MembersArguments {
    #[command(flatten)]
    feed: FeedArguments,
    /// Maximum number of members, 1 to 10,000
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: u64,
    /// Continue after the page that printed this token
    #[arg(long, value_name = "TOKEN")]
    page: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct MemberArguments {
    #[command(flatten)]
    feed: FeedArguments,
    /// User
    #[arg(value_name = "USER")]
    user: String,
}

#[derive(Debug, Args)]
pub(crate) struct JoinArguments {
    #[command(flatten)]
    member: MemberArguments,
    /// Earlier messages that the inbox shows: none, all, or a time since which they are shown
    #[arg(long, value_name = "HISTORY", default_value = "none", value_parser = history)]
    history: Value,
}

#[derive(Debug, Args)]
pub(crate) struct MuteArguments {
    #[command(flatten)]
    member: MemberArguments,
    /// Count the unread messages again
    #[arg(long)]
    off: bool,
}

#[derive(Debug, Args)]
pub(crate) struct BlockArguments {
    #[command(flatten)]
    user: UserArguments,
    /// Sender of messages
    #[arg(value_name = "SENDER")]
    sender: Option<String>,
    /// Show the messages of the sender again
    #[arg(long, requires = "sender")]
    off: bool,
}

#[derive(Debug, Args)]
pub(crate) struct InboxArguments {
    #[command(flatten)]
    user: UserArguments,
    #[command(flatten)]
    options: ReadOptions,
}

#[derive(Debug, Args)]
pub(crate) struct ConversationsArguments {
    #[command(flatten)]
    user: UserArguments,
    /// Maximum number of conversations, 1 to 1,000
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: u64,
    /// Continue after the page that printed this token
    #[arg(long, value_name = "TOKEN")]
    page: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct CursorArguments {
    #[command(flatten)]
    user: UserArguments,
    /// Feed: its id, or its type and tags, such as room,name=lobby
    #[arg(value_name = "FEED")]
    feed: String,
    /// Sequence number up to which messages were read
    #[arg(value_name = "SEQUENCE", allow_hyphen_values = true)]
    sequence: Sequence,
    /// Device that has read them [default: the user]
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
}

/// User of a command.
#[derive(Debug, Args)]
struct UserArguments {
    #[command(flatten)]
    table: FeedTable,
    /// User
    #[arg(value_name = "USER")]
    user: String,
}

/// Parses the earlier messages of a new member.
fn history(text: &str) -> std::result::Result<Value, String> {
    match text {
        "none" | "all" => Ok(json!(text)),
        since => Ok(json!({"since": time(since)?})),
    }
}

/// Lists the members of a feed.
pub(super) fn list(arguments: &MembersArguments) -> Result<()> {
    let client = arguments.feed.table.client()?;
    let path = arguments.feed.path(&client, "/members");
    let parameters = [
        ("limit", Some(arguments.limit.to_string())),
        ("page", arguments.page.clone()),
    ];
    let text = client.get(&with_query(&path, &parameters))?;
    if arguments.feed.is_json() {
        return output::print(&text);
    }
    let response = client.parse(&text)?;
    let mut grid = Grid::new(["user", "joined", "read up to", "muted"]);
    for member in response["members"].as_array().into_iter().flatten() {
        let names = ["user", "joined", "cursor", "muted"];
        grid.row(names.map(|name| output::member(member, name)).to_vec());
    }
    output::print(&grid.render())?;
    match response["next"].as_str() {
        Some(next) => output::print(&format!("\nthe next page: --page {next}")),
        None => Ok(()),
    }
}

/// Adds a member.
pub(super) fn join(arguments: &JoinArguments) -> Result<()> {
    let MemberArguments { feed, user } = &arguments.member;
    let client = feed.table.client()?;
    let path = feed.path(&client, &format!("/members/{}", encoded(user)));
    let text = client.put(&path, &json!({"history": arguments.history}))?;
    match feed.is_json() {
        true => output::print(&text),
        false => output::print(&format!("{user} is a member of {}", feed.feed)),
    }
}

/// Removes a member.
pub(super) fn leave(arguments: &MemberArguments) -> Result<()> {
    let MemberArguments { feed, user } = arguments;
    let client = feed.table.client()?;
    client.delete(&feed.path(&client, &format!("/members/{}", encoded(user))))?;
    match feed.is_json() {
        true => output::print(&json!({"left": user}).to_string()),
        false => output::print(&format!("{user} is not a member of {}", feed.feed)),
    }
}

/// Mutes a conversation, or unmutes it.
pub(super) fn mute(arguments: &MuteArguments) -> Result<()> {
    let MemberArguments { feed, user } = &arguments.member;
    let client = feed.table.client()?;
    let path = feed.path(&client, &format!("/members/{}", encoded(user)));
    let text = client.patch(&path, &json!({"muted": !arguments.off}))?;
    match (feed.is_json(), arguments.off) {
        (true, _) => output::print(&text),
        (false, false) => output::print(&format!(
            "unread messages of {} do not count for {user}",
            feed.feed
        )),
        (false, true) => output::print(&format!("unread messages of {} count for {user}", feed.feed)),
    }
}

/// Blocks a sender, ends a block, or lists the blocked senders.
pub(super) fn block(arguments: &BlockArguments) -> Result<()> {
    let UserArguments { table, user } = &arguments.user;
    let client = table.client()?;
    let path = client.of_table(&format!("/users/{}/blocks", encoded(user)));
    let Some(sender) = &arguments.sender else {
        let text = client.get(&path)?;
        if table.connection.json {
            return output::print(&text);
        }
        let list = client.parse(&text)?;
        let senders = list["senders"].as_array().into_iter().flatten();
        return output::print(
            &senders
                .map(|sender| format!("{}\n", output::cell(sender)))
                .collect::<String>(),
        );
    };
    let path = format!("{path}/{}", encoded(sender));
    if arguments.off {
        client.delete(&path)?;
        return output::print(&format!("{user} gets the messages of {sender}"));
    }
    let text = client.put(&path, &json!({}))?;
    match table.connection.json {
        true => output::print(&text),
        false => output::print(&format!("{user} does not get the messages of {sender}")),
    }
}

/// Reads an inbox.
pub(super) fn inbox(arguments: &InboxArguments) -> Result<()> {
    let client = arguments.user.table.client()?;
    let path = client.of_table(&format!("/users/{}/inbox", encoded(&arguments.user.user)));
    let is_json = arguments.user.table.connection.json;
    arguments.options.read(&client, (path, None), is_json)
}

/// Lists the conversations of a user.
pub(super) fn conversations(arguments: &ConversationsArguments) -> Result<()> {
    let client = arguments.user.table.client()?;
    let user = encoded(&arguments.user.user);
    let path = client.of_table(&format!("/users/{user}/conversations"));
    let parameters = [
        ("limit", Some(arguments.limit.to_string())),
        ("page", arguments.page.clone()),
    ];
    let text = client.get(&with_query(&path, &parameters))?;
    if arguments.user.table.connection.json {
        return output::print(&text);
    }
    let response = client.parse(&text)?;
    let mut grid = Grid::new(["feed", "unread", "mentions", "muted", "last", "sender"]);
    for conversation in response["conversations"].as_array().into_iter().flatten() {
        let kind = output::member(conversation, "type");
        let name = name_of(&kind, &conversation["tags"]);
        let last = &conversation["last"];
        grid.row(vec![
            name.unwrap_or_else(|| output::member(conversation, "feed")),
            output::member(conversation, "unread"),
            output::member(conversation, "mentions"),
            output::member(conversation, "muted"),
            output::member(last, "time"),
            output::member(last, "sender"),
        ]);
    }
    output::print(&grid.render())?;
    output::print(&format!(
        "\n{} unread in {} conversations",
        output::member(&response, "unread"),
        output::member(&response, "total")
    ))?;
    match response["next"].as_str() {
        Some(next) => output::print(&format!("\nthe next page: --page {next}")),
        None => Ok(()),
    }
}

/// Sets a cursor.
pub(super) fn cursor(arguments: &CursorArguments) -> Result<()> {
    let client = arguments.user.table.client()?;
    let (user, feed) = (encoded(&arguments.user.user), encoded(&arguments.feed));
    let path = client.of_table(&format!("/users/{user}/cursors/{feed}"));
    let body = json!({"sequence": arguments.sequence, "device": arguments.device});
    let text = client.put(&path, &body)?;
    match arguments.user.table.connection.json {
        true => output::print(&text),
        false => output::print(&output::member(&client.parse(&text)?, "cursor")),
    }
}

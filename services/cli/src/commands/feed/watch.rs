//! `tideline feed watch`: follows the messages of a feed or an inbox as the server acknowledges them.

use clap::Args;
use serde::Deserialize;
use serde_json::value::RawValue;
use tideline_openapi::feed::Sequence;

use super::shown::ShownMessage;
use super::{FeedTable, ViewerArgument, encoded, with_query};
use crate::error::Result;
use crate::events::{self, EVENTS};
use crate::output;

/// Arguments of `feed watch`.
#[derive(Debug, Args)]
pub(crate) struct WatchArguments {
    #[command(flatten)]
    table: FeedTable,
    /// Feed: its id, or its type and tags, such as room,name=lobby
    #[arg(value_name = "FEED", required_unless_present = "user")]
    feed: Option<String>,
    /// Follow the inbox of this user instead of a feed
    #[arg(long, value_name = "NAME", conflicts_with = "feed")]
    user: Option<String>,
    #[command(flatten)]
    viewer: ViewerArgument,
    /// Continue after this sequence number [default: new messages]
    #[arg(long, value_name = "SEQUENCE", allow_hyphen_values = true)]
    after: Option<Sequence>,
    /// Omit the events of edits, recalls and deletions
    #[arg(long)]
    no_events: bool,
    /// Columns to return: names, or prefixes that end with `*`, separated by commas [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    columns: Vec<String>,
    /// End after this time; 0s prints the messages that exist and ends [default: until Ctrl-C]
    #[arg(long = "for", value_name = "DURATION")]
    time: Option<String>,
}

/// Starts the watch and prints each message: as a line of text, or of JSON.
pub(super) fn run(arguments: &WatchArguments) -> Result<()> {
    #[derive(Deserialize)]
    struct Messages {
        messages: Vec<Box<RawValue>>,
    }

    let client = arguments.table.client()?;
    let path = match (&arguments.feed, &arguments.user) {
        (_, Some(user)) => client.of_table(&format!("/users/{}/inbox/watch", encoded(user))),
        (feed, None) => {
            let feed = feed.as_deref().unwrap_or_default();
            client.of_table(&format!("/feeds/{}/watch", encoded(feed)))
        }
    };
    let columns = &arguments.columns;
    let parameters = [
        ("after", arguments.after.map(|after| after.to_string())),
        ("events", arguments.no_events.then(|| "false".to_owned())),
        ("columns", (!columns.is_empty()).then(|| columns.join(","))),
        ("for", arguments.time.clone()),
        ("as", arguments.viewer.principal.clone()),
    ];
    let stream = client.get_stream(&with_query(&path, &parameters), EVENTS)?;
    events::each(&client, stream, "--after", |event| {
        if event.name == "messages" {
            let page: Messages =
                serde_json::from_str(&event.data).map_err(|error| client.strange(&error.to_string()))?;
            let lines = page
                .messages
                .iter()
                .map(|message| match arguments.table.connection.json {
                    true => format!("{}\n", message.get()),
                    false => format!("{}\n", ShownMessage::new(message).line()),
                });
            output::print(&lines.collect::<String>())?;
        }
        Ok(())
    })
}

//! Reads of messages: pages of one feed, of several feeds in one order, and counts.
//!
//! The server limits each response, so reads and counts continue with the cursor or token of the response before.

use clap::Args;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tideline_openapi::feed::{MessagesCounted, Sequence};

use super::shown::{MessagePage, OutputArguments, PagedRequest};
use super::{FeedArguments, FeedTable, ViewerArgument, with_query};
use crate::client::Client;
use crate::commands::selection::time;
use crate::error::Result;
use crate::output;

/// Range of times of messages.
#[derive(Debug, Clone, Args)]
struct TimeArguments {
    /// Only messages of this time or later: RFC 3339, a date, now-1h, or an integer with a unit such as 1795392000s
    #[arg(help_heading = "Range", long, value_name = "TIME", value_parser = time, allow_hyphen_values = true)]
    from: Option<String>,
    /// Only messages before this time
    #[arg(help_heading = "Range", long, value_name = "TIME", value_parser = time, allow_hyphen_values = true)]
    to: Option<String>,
}

/// Range of messages of a feed.
#[derive(Debug, Clone, Args)]
struct RangeArguments {
    /// Cursor: only messages after this sequence number
    #[arg(
        help_heading = "Range",
        long,
        value_name = "SEQUENCE",
        allow_hyphen_values = true
    )]
    after: Option<Sequence>,
    /// Only messages before this sequence number
    #[arg(
        help_heading = "Range",
        long,
        value_name = "SEQUENCE",
        allow_hyphen_values = true
    )]
    before: Option<Sequence>,
    #[command(flatten)]
    times: TimeArguments,
}

#[derive(Debug, Args)]
pub(crate) struct ReadArguments {
    #[command(flatten)]
    feed: FeedArguments,
    #[command(flatten)]
    viewer: ViewerArgument,
    #[command(flatten)]
    options: ReadOptions,
}

/// Range, order and form of a read.
#[derive(Debug, Args)]
pub(super) struct ReadOptions {
    #[command(flatten)]
    range: RangeArguments,
    /// Newest first
    #[arg(long)]
    descending: bool,
    /// Omit the events of edits, recalls and deletions
    #[arg(long)]
    no_events: bool,
    #[command(flatten)]
    output: OutputArguments,
}

#[derive(Debug, Args)]
pub(crate) struct MergeArguments {
    #[command(flatten)]
    table: FeedTable,
    /// Feeds: ids, or types and tags such as outbox,author=ann
    #[arg(value_name = "FEED", required = true)]
    feeds: Vec<String>,
    #[command(flatten)]
    times: TimeArguments,
    /// Newest first
    #[arg(long)]
    descending: bool,
    /// Return the events of edits, recalls and deletions too
    #[arg(long)]
    events: bool,
    #[command(flatten)]
    viewer: ViewerArgument,
    /// Continue after the page that printed this token; the feeds and the order must be the same
    #[arg(long, value_name = "TOKEN")]
    page: Option<String>,
    #[command(flatten)]
    output: OutputArguments,
}

#[derive(Debug, Args)]
pub(crate) struct CountArguments {
    #[command(flatten)]
    feed: FeedArguments,
    #[command(flatten)]
    viewer: ViewerArgument,
    #[command(flatten)]
    range: RangeArguments,
}

impl RangeArguments {
    /// Returns the parameters of the range.
    fn parameters(&self) -> Vec<(&'static str, Option<String>)> {
        vec![
            ("after", self.after.map(|sequence| sequence.to_string())),
            ("before", self.before.map(|sequence| sequence.to_string())),
            ("from", self.times.from.clone()),
            ("to", self.times.to.clone()),
        ]
    }
}

/// Read of one feed or inbox. The cursor of a page replaces `after` or `before` of the range.
struct FeedRead<'a> {
    client: &'a Client,
    path: String,
    principal: Option<String>,
    options: &'a ReadOptions,
    range: RangeArguments,
}

impl PagedRequest for FeedRead<'_> {
    fn send(&self, limit: Option<u64>) -> Result<String> {
        let columns = &self.options.output.columns;
        let mut parameters = self.range.parameters();
        parameters.extend([
            ("order", self.options.descending.then(|| "descending".to_owned())),
            ("limit", limit.map(|limit| limit.to_string())),
            ("columns", (!columns.is_empty()).then(|| columns.join(","))),
            ("events", self.options.no_events.then(|| "false".to_owned())),
            ("as", self.principal.clone()),
        ]);
        self.client.get(&with_query(&self.path, &parameters))
    }

    fn take(&mut self, response: &str) -> Result<MessagePage> {
        #[derive(Deserialize)]
        struct Response {
            messages: Vec<Box<RawValue>>,
            next: Option<Sequence>,
            more: bool,
        }
        let page: Response =
            serde_json::from_str(response).map_err(|error| self.client.strange(&error.to_string()))?;
        let (name, cursor) = match self.options.descending {
            false => ("--after", &mut self.range.after),
            true => ("--before", &mut self.range.before),
        };
        *cursor = page.next;
        let continuation = page.next.filter(|_| page.more);
        Ok(MessagePage {
            messages: page.messages,
            end: json!({"next": page.next, "more": page.more}),
            continuation: continuation.map(|next| format!("{name} {next}")),
            note: String::new(),
        })
    }
}

/// Reads messages of a feed.
pub(super) fn read(arguments: &ReadArguments) -> Result<()> {
    let client = arguments.feed.table.client()?;
    let path = arguments.feed.path(&client, "/messages");
    let principal = arguments.viewer.principal.clone();
    let options = &arguments.options;
    options.read(&client, (path, principal), arguments.feed.is_json())
}

impl ReadOptions {
    /// Reads the messages below a path, on behalf of a principal if there is one, and shows them.
    ///
    /// # Errors
    ///
    /// Fails if the server refuses the request or is not reachable.
    pub(super) fn read(
        &self,
        client: &Client,
        (path, principal): (String, Option<String>),
        is_json: bool,
    ) -> Result<()> {
        let mut request = FeedRead {
            client,
            path,
            principal,
            options: self,
            range: self.range.clone(),
        };
        self.output.show(&mut request, is_json)
    }
}

/// Read of several feeds in one order.
struct Merge<'a> {
    client: &'a Client,
    body: Map<String, Value>,
}

impl PagedRequest for Merge<'_> {
    fn send(&self, limit: Option<u64>) -> Result<String> {
        let mut body = self.body.clone();
        if let Some(limit) = limit {
            body.insert("limit".into(), limit.into());
        }
        self.client
            .post(&self.client.of_table("/feeds/merge"), &body.into())
    }

    fn take(&mut self, response: &str) -> Result<MessagePage> {
        #[derive(Deserialize)]
        struct Response {
            messages: Vec<Box<RawValue>>,
            next: Option<String>,
        }
        let page: Response =
            serde_json::from_str(response).map_err(|error| self.client.strange(&error.to_string()))?;
        if let Some(next) = &page.next {
            self.body.insert("page".into(), next.as_str().into());
        }
        Ok(MessagePage {
            messages: page.messages,
            end: json!({"next": page.next}),
            continuation: page.next.map(|next| format!("--page {next}")),
            note: String::new(),
        })
    }
}

/// Reads messages of several feeds in one order.
pub(super) fn merge(arguments: &MergeArguments) -> Result<()> {
    let client = arguments.table.client()?;
    let mut body = Map::from_iter([("feeds".to_owned(), json!(arguments.feeds))]);
    if arguments.descending {
        body.insert("order".into(), "descending".into());
    }
    if arguments.events {
        body.insert("events".into(), true.into());
    }
    if !arguments.output.columns.is_empty() {
        body.insert("columns".into(), json!(arguments.output.columns));
    }
    for (name, text) in [
        ("from", &arguments.times.from),
        ("to", &arguments.times.to),
        ("page", &arguments.page),
        ("as", &arguments.viewer.principal),
    ] {
        if let Some(text) = text {
            body.insert(name.into(), text.as_str().into());
        }
    }
    let mut request = Merge {
        client: &client,
        body,
    };
    arguments
        .output
        .show(&mut request, arguments.table.connection.json)
}

/// Counts messages of a feed and prints their number.
pub(super) fn count(arguments: &CountArguments) -> Result<()> {
    let client = arguments.feed.table.client()?;
    let principal = arguments.viewer.principal.as_deref();
    let counted = counted(&client, &arguments.feed, arguments.range.clone(), principal)?;
    if arguments.feed.is_json() {
        let json = serde_json::to_string(&counted).map_err(|error| client.strange(&error.to_string()))?;
        return output::print(&json);
    }
    output::print(&counted.count.to_string())
}

/// Counts all messages of a feed.
///
/// # Errors
///
/// Fails if the server refuses the request or is not reachable.
pub(super) fn count_all(client: &Client, feed: &FeedArguments) -> Result<u64> {
    let range = RangeArguments {
        after: None,
        before: None,
        times: TimeArguments { from: None, to: None },
    };
    Ok(counted(client, feed, range, None)?.count)
}

/// Counts the messages of a range. The server counts a limited number per request.
fn counted(
    client: &Client,
    feed: &FeedArguments,
    mut range: RangeArguments,
    principal: Option<&str>,
) -> Result<MessagesCounted> {
    let path = feed.path(client, "/messages/count");
    let mut count = 0;
    loop {
        let mut parameters = range.parameters();
        parameters.push(("as", principal.map(str::to_owned)));
        let text = client.get(&with_query(&path, &parameters))?;
        let mut counted: MessagesCounted =
            serde_json::from_str(&text).map_err(|error| client.strange(&error.to_string()))?;
        count += counted.count;
        match counted.next {
            Some(next) => range.after = Some(next),
            None => {
                counted.count = count;
                return Ok(counted);
            }
        }
    }
}

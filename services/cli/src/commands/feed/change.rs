//! Changes of messages: edits, recalls, deletions and counters.
//!
//! The values of columns are passed as JSON text, so that numbers keep their digits.

use std::collections::BTreeMap;

use clap::Args;
use serde::Serialize;
use tideline_openapi::feed::{CountMessage, EditMessage, MessageChanged, MessageCounters, Sequence};

use super::send::columns_of;
use super::{MessageArguments, PrincipalArgument, shape, with_query};
use crate::client::Client;
use crate::error::{CliError, Result};
use crate::output;

/// Sequence number of the event of a change.
#[derive(Debug, Args)]
struct EventArgument {
    /// Sequence number of the event of the change, in a table with manual sequence numbers
    #[arg(long, value_name = "SEQUENCE", allow_hyphen_values = true)]
    event: Option<Sequence>,
}

#[derive(Debug, Args)]
pub(crate) struct EditArguments {
    #[command(flatten)]
    message: MessageArguments,
    /// Columns to set
    #[arg(value_name = "NAME=VALUE", required_unless_present = "clear")]
    values: Vec<String>,
    /// Column to remove; may be repeated
    #[arg(long, value_name = "NAME")]
    clear: Vec<String>,
    #[command(flatten)]
    principal: PrincipalArgument,
    #[command(flatten)]
    event: EventArgument,
}

#[derive(Debug, Args)]
pub(crate) struct EventArguments {
    #[command(flatten)]
    message: MessageArguments,
    #[command(flatten)]
    principal: PrincipalArgument,
    #[command(flatten)]
    event: EventArgument,
}

#[derive(Debug, Args)]
pub(crate) struct ReactArguments {
    #[command(flatten)]
    message: MessageArguments,
    /// Counter, and the number to add [default number: 1]
    #[arg(value_name = "NAME[=N]", required = true)]
    counters: Vec<String>,
    #[command(flatten)]
    principal: PrincipalArgument,
}

/// Changes columns of a message.
pub(super) fn edit(arguments: &EditArguments) -> Result<()> {
    let client = arguments.message.feed.table.client()?;
    let edit = EditMessage {
        columns: columns_of(&shape(&client)?, &arguments.values)?,
        clear: arguments.clear.clone(),
        sequence: arguments.event.event,
    };
    let path = arguments.message.path(&client, "");
    let path = with_query(&path, &[("as", arguments.principal.principal.clone())]);
    let text = client.patch_text(&path, &json_of(&client, &edit)?)?;
    changed(&client, &arguments.message, &text, "edited")
}

/// Recalls a message.
pub(super) fn recall(arguments: &EventArguments) -> Result<()> {
    let client = arguments.message.feed.table.client()?;
    let path = arguments.path(&client, "/recall");
    let text = client.post_text(&path, "")?;
    changed(&client, &arguments.message, &text, "recalled")
}

/// Deletes a message.
pub(super) fn delete(arguments: &EventArguments) -> Result<()> {
    let client = arguments.message.feed.table.client()?;
    let text = client.delete(&arguments.path(&client, ""))?;
    changed(&client, &arguments.message, &text, "deleted")
}

impl EventArguments {
    fn path(&self, client: &Client, rest: &str) -> String {
        let event = self.event.event.map(|sequence| sequence.to_string());
        let parameters = [("as", self.principal.principal.clone()), ("sequence", event)];
        with_query(&self.message.path(client, rest), &parameters)
    }
}

/// Prints the result of a change.
fn changed(client: &Client, message: &MessageArguments, text: &str, what: &str) -> Result<()> {
    if message.feed.is_json() {
        return output::print(text);
    }
    let changed: MessageChanged =
        serde_json::from_str(text).map_err(|error| client.strange(&error.to_string()))?;
    match changed.event {
        Some(event) => output::print(&format!("{what}; the event is {event}")),
        None => output::print(&format!("was {what} before")),
    }
}

/// Adds to counters of a message and prints its counters.
pub(super) fn react(arguments: &ReactArguments) -> Result<()> {
    let client = arguments.message.feed.table.client()?;
    let body = CountMessage {
        add: increments(&arguments.counters)?,
    };
    let path = arguments.message.path(&client, "/counters");
    let path = with_query(&path, &[("as", arguments.principal.principal.clone())]);
    let text = client.post_text(&path, &json_of(&client, &body)?)?;
    if arguments.message.feed.is_json() {
        return output::print(&text);
    }
    let counted: MessageCounters =
        serde_json::from_str(&text).map_err(|error| client.strange(&error.to_string()))?;
    let counters = counted
        .counters
        .iter()
        .map(|(name, count)| format!("{name}={count}"));
    output::print(&counters.collect::<Vec<String>>().join(" "))
}

/// Parses counters with the numbers to add: `NAME`, or `NAME=NUMBER`.
fn increments(texts: &[String]) -> Result<BTreeMap<String, i64>> {
    let mut add = BTreeMap::new();
    for text in texts {
        let (name, number) = match text.rsplit_once('=') {
            None => (text.as_str(), Some(1)),
            Some((name, number)) => (name, number.parse().ok()),
        };
        let number =
            number.ok_or_else(|| CliError::usage(format!("{text}: expected NAME or NAME=NUMBER")))?;
        if add.insert(name.to_owned(), number).is_some() {
            return Err(CliError::usage(format!("{name} is given twice")));
        }
    }
    Ok(add)
}

/// Returns the JSON of a request.
fn json_of(client: &Client, request: &impl Serialize) -> Result<String> {
    serde_json::to_string(request).map_err(|error| client.strange(&error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_have_a_number_or_count_one() {
        let texts = ["like", "seen=-2", "a=b=3"].map(str::to_owned);
        let expected = [("a=b", 3), ("like", 1), ("seen", -2)];
        let expected = expected.map(|(name, number)| (name.to_owned(), number));
        assert_eq!(increments(&texts).expect("valid"), BTreeMap::from(expected));
        for wrong in [&["like="][..], &["like=x"], &["like", "like=2"]] {
            let wrong: Vec<String> = wrong.iter().map(|text| (*text).to_owned()).collect();
            assert_eq!(increments(&wrong).expect_err("wrong").exit_status(), 2);
        }
    }
}

//! `tideline feed send`: sends one message, or lines of messages.
//!
//! The values of columns are passed as JSON text, so that numbers keep their digits.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use tideline_openapi::feed::{MessagesSent, NewMessage, SendMessages, Sequence};
use tideline_openapi::row::Members;

use super::{FeedArguments, PrincipalArgument, shape, with_query};
use crate::client::duration;
use crate::commands::rows::shape::TableShape;
use crate::error::{CliError, Result};
use crate::output;
use crate::write::messages::{self, MessageFile};

pub(super) const EXAMPLES: &str = "\
Examples:
  tideline feed send chat room,name=lobby text='Lunch at noon?' --as ann --id 4f1c-17
  tideline feed send chat room,name=lobby --file history.ndjson --ids history
  tideline feed send notes log,host=web-1 text=restarted --sequence 17

A line of a file is a message as in the API: {\"id\": \"4f1c-17\", \"sender\": \"ann\", \"columns\": {\"text\": \"Hello\"}}.
Messages with an id can be sent again: a repeated run writes only the missing ones.

A value of an undeclared column is JSON if it can be read as such (5, true, \"5\"), otherwise a text. Prints the sequence
number of the message.";

/// Arguments of `feed send`.
#[derive(Debug, Args)]
pub(crate) struct SendArguments {
    #[command(flatten)]
    feed: FeedArguments,
    /// Columns of the message
    #[arg(value_name = "NAME=VALUE", required_unless_present = "file")]
    values: Vec<String>,
    /// Id of the message, unique within the feed; a message with the id of an earlier one is not written
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// Sender of the message [default: the principal of --as]
    #[arg(long, value_name = "NAME")]
    sender: Option<String>,
    /// Sequence number, in a table with manual sequence numbers
    #[arg(long, value_name = "SEQUENCE", allow_hyphen_values = true)]
    sequence: Option<Sequence>,
    /// Members whose inboxes show the message, separated by commas [default: all members]
    #[arg(long, value_name = "USERS", value_delimiter = ',')]
    to: Option<Vec<String>>,
    /// Members whose inboxes do not show the message, separated by commas
    #[arg(long, value_name = "USERS", value_delimiter = ',')]
    except: Vec<String>,
    /// Users whom the message mentions, separated by commas
    #[arg(long, value_name = "USERS", value_delimiter = ',')]
    mentions: Vec<String>,
    #[command(flatten)]
    principal: PrincipalArgument,
    /// File with one message per line in JSON, also as .gz and .zst, or `-` for standard input
    #[arg(help_heading = "Lines", long, value_name = "FILE")]
    #[arg(conflicts_with_all = ["values", "id", "sender", "sequence", "to", "except", "mentions"])]
    file: Option<PathBuf>,
    /// Start of the ids of messages without an id; their line number follows, as in history-17
    #[arg(help_heading = "Lines", long, value_name = "TEXT", requires = "file")]
    ids: Option<String>,
    /// Time for which a request is retried while the server is busy or unreachable
    #[arg(help_heading = "Lines", long, value_name = "DURATION", default_value = "5m", value_parser = duration)]
    patience: Duration,
}

/// Sends the messages.
pub(super) fn run(arguments: &SendArguments) -> Result<()> {
    let client = arguments.feed.table.client()?;
    let path = arguments.feed.path(&client, "/messages");
    let path = with_query(&path, &[("as", arguments.principal.principal.clone())]);
    if let Some(file) = &arguments.file {
        let file = MessageFile {
            path: file,
            ids: arguments.ids.as_deref(),
            patience: arguments.patience,
            is_json: arguments.feed.is_json(),
        };
        return messages::send(&client, &path, &file);
    }
    let message = NewMessage {
        id: arguments.id.clone(),
        sender: arguments.sender.clone(),
        sequence: arguments.sequence,
        to: arguments.to.clone(),
        except: arguments.except.clone(),
        mentions: arguments.mentions.clone(),
        columns: columns_of(&shape(&client)?, &arguments.values)?,
    };
    let body = SendMessages {
        messages: vec![message],
    };
    let body = serde_json::to_string(&body).map_err(|error| client.strange(&error.to_string()))?;
    let text = client.post_text(&path, &body)?;
    if arguments.feed.is_json() {
        return output::print(&text);
    }
    let sent: MessagesSent =
        serde_json::from_str(&text).map_err(|error| client.strange(&error.to_string()))?;
    for message in sent.messages {
        output::print(&message.sequence.to_string())?;
        if message.repeated {
            eprintln!("the feed has a message with this id, so nothing was written");
        }
    }
    Ok(())
}

/// Parses columns as `name=value`. The values become JSON by the types of the columns.
///
/// # Errors
///
/// Returns a usage error for a text without a name, and for a name that is given twice.
pub(super) fn columns_of(shape: &TableShape, values: &[String]) -> Result<Members> {
    let mut columns: Members = Members::default();
    for text in values {
        let (name, value) = shape.pair(text)?;
        if columns.get(name).is_some() {
            return Err(CliError::usage(format!("{name} is given twice")));
        }
        columns.push(name, &value);
    }
    Ok(columns)
}

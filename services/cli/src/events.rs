//! Server-sent events of watches.

use std::io::{BufRead as _, BufReader, Read};

use crate::client::Client;
use crate::error::{CliError, Result};

/// Media type of server-sent events.
pub(crate) const EVENTS: &str = "text/event-stream";

/// Codes of errors after which a watch cannot continue: its events are not kept any more, or its feed was deleted.
const CODES_AT_END: [&str; 2] = ["gone", "not_found"];

/// Server-sent event.
#[derive(Default)]
pub(crate) struct Event {
    /// Position after the event; `None` for an event that does not change it.
    pub(crate) id: Option<String>,
    pub(crate) name: String,
    /// JSON.
    pub(crate) data: String,
}

/// Passes each event of a watch to `take`, until the server ends the watch. `option` is the option of the command that
/// continues a watch.
///
/// # Errors
///
/// Fails if the server ends the watch with the event `failed` or `resume`; the error contains the reason, and the option
/// with the cursor if a watch can continue from there. Also fails if the connection is lost, or if `take` fails.
pub(crate) fn each(
    client: &Client,
    stream: impl Read,
    option: &str,
    mut take: impl FnMut(Event) -> Result<()>,
) -> Result<()> {
    let mut event = Event::default();
    let mut cursor = None;
    for line in BufReader::new(stream).lines() {
        let line = line.map_err(|error| client.strange(&format!("the watch was cut off: {error}")))?;
        match line.split_once(": ") {
            Some(("id", id)) => event.id = Some(id.to_owned()),
            Some(("event", name)) => name.clone_into(&mut event.name),
            Some(("data", data)) => data.clone_into(&mut event.data),
            _ if line.is_empty() && !event.name.is_empty() => {
                let event = std::mem::take(&mut event);
                cursor = event.id.clone().or(cursor);
                match event.name.as_str() {
                    "failed" => {
                        let data = client.parse(&event.data)?;
                        let reason = data["message"].as_str().unwrap_or("no reason given");
                        let cursor =
                            cursor.filter(|_| !CODES_AT_END.contains(&data["code"].as_str().unwrap_or("")));
                        return Err(ended(reason, option, cursor.as_deref()));
                    }
                    "resume" => {
                        let reason = "its events were not read for too long";
                        return Err(ended(reason, option, cursor.as_deref()));
                    }
                    _ => take(event)?,
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// Returns the error of a watch that the server has ended.
fn ended(reason: &str, option: &str, cursor: Option<&str>) -> CliError {
    let next = cursor.map(|cursor| format!("; continue with {option} {cursor}"));
    CliError::Incomplete(format!(
        "the watch has ended: {reason}{}",
        next.unwrap_or_default()
    ))
}

//! Server-sent events of watches.

use std::io::{BufRead as _, BufReader, Read};

use serde_json::Value;

use crate::client::Client;
use crate::error::{CliError, Result};

/// Media type of server-sent events.
pub(crate) const EVENTS: &str = "text/event-stream";

/// Server-sent event.
#[derive(Default)]
pub(crate) struct Event {
    /// Position after the event; `None` for an event that does not change it.
    pub(crate) id: Option<String>,
    pub(crate) name: String,
    /// JSON.
    pub(crate) data: String,
}

/// Passes each event of a watch to `take`, until the server ends the watch.
///
/// # Errors
///
/// Fails if the server ends the watch with the event `failed`; the error contains the reason in the event. Also fails
/// if the connection is lost, or if `take` fails.
pub(crate) fn each(
    client: &Client,
    stream: impl Read,
    mut take: impl FnMut(Event) -> Result<()>,
) -> Result<()> {
    let mut event = Event::default();
    for line in BufReader::new(stream).lines() {
        let line = line.map_err(|error| client.strange(&format!("the watch was cut off: {error}")))?;
        match line.split_once(": ") {
            Some(("id", id)) => event.id = Some(id.to_owned()),
            Some(("event", name)) => name.clone_into(&mut event.name),
            Some(("data", data)) => data.clone_into(&mut event.data),
            _ if line.is_empty() && !event.name.is_empty() => {
                let event = std::mem::take(&mut event);
                if event.name == "failed" {
                    let data: Value = client.parse(&event.data)?;
                    let message = data["message"].as_str().unwrap_or("no reason given");
                    return Err(CliError::Incomplete(format!("the watch has ended: {message}")));
                }
                take(event)?;
            }
            _ => {}
        }
    }
    Ok(())
}

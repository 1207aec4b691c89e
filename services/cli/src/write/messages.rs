//! Sends lines of messages to a feed: `tideline feed send --file`.
//!
//! Requests are sent one after the other, because messages of a feed have the order of their writes. A request has at most
//! [`REQUEST_MESSAGES_MAX`] messages. The server writes either all of them or none. If the server refuses a request as too
//! large, such as one with too many entries of inboxes, this request and all later ones have half as many messages.
//!
//! A message with an id can be sent again. After a failure that may have stored messages, a request is therefore
//! retried only if all of its messages have an id; a request refused with 429 is always retried. A repeated run over
//! the same file writes only the messages that the feed does not have yet.

use std::io::Read;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tideline_openapi::feed::MessagesSent;
use tideline_openapi::plain;
use tideline_openapi::row::Members;

use super::cutter::{BatchLimits, Cutter, RecordBlock};
use super::record::Framing;
use super::rows::{jitter, text_of};
use crate::client::Client;
use crate::commands::pause;
use crate::error::{CliError, Refusal, Result};
use crate::output;

/// Maximum number of messages of a request.
const REQUEST_MESSAGES_MAX: usize = 1_000;
/// Maximum size of a request in bytes, unless its only message is larger.
const REQUEST_BYTES_MAX: usize = 1 << 20;
/// Interval of the progress line.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// File with messages, and how to send it.
pub(crate) struct MessageFile<'a> {
    /// Path of the file, `-` for standard input.
    pub(crate) path: &'a Path,
    /// Beginning of the ids of messages that have none; `None` = they get no id.
    pub(crate) ids: Option<&'a str>,
    /// Time for which a request is retried.
    pub(crate) patience: Duration,
    /// True if the summary is JSON, without a progress line.
    pub(crate) is_json: bool,
}

/// Counters of a run.
#[derive(Debug, Default)]
struct Counters {
    written: u64,
    /// Messages with the id of an earlier message, which were not written.
    repeated: u64,
    requests: u64,
    retries: u64,
}

/// Message of a line.
#[derive(Debug)]
struct Line {
    /// Number of the line in the file.
    number: u64,
    message: Members,
    has_id: bool,
}

/// Request with the messages of some lines.
#[derive(Debug, PartialEq, Eq)]
struct SendRequest {
    body: String,
    /// True if all messages have an id, so that the request can be sent again.
    is_repeatable: bool,
}

/// Sends the messages of a file to the path of a feed, and prints a summary.
///
/// # Errors
///
/// Fails for a file that cannot be read, for a line that is not a JSON object, and if the server refuses a request or is
/// not reachable. The messages before the failed request are sent; their number is printed.
pub(crate) fn send(client: &Client, path: &str, file: &MessageFile<'_>) -> Result<()> {
    let begun = Instant::now();
    let mut counters = Counters::default();
    let outcome = send_all(client, path, file, &mut counters);
    let seconds = begun.elapsed().as_secs_f64();
    if file.is_json {
        let summary = json!({
            "server": client.base(), "table": client.table(),
            "written": counters.written, "repeated": counters.repeated,
            "requests": counters.requests, "retries": counters.retries, "seconds": seconds
        });
        output::print(&summary.to_string())?;
    } else {
        let mut line = format!(
            "{} messages in {} requests in {seconds:.1} s",
            output::count(counters.written),
            output::count(counters.requests)
        );
        for (count, what) in [
            (counters.repeated, "were sent before"),
            (counters.retries, "retried"),
        ] {
            if count > 0 {
                line.push_str(&format!("; {} {what}", output::count(count)));
            }
        }
        output::print(&line)?;
    }
    outcome
}

fn send_all(client: &Client, path: &str, file: &MessageFile<'_>, counters: &mut Counters) -> Result<()> {
    let failed = |error| CliError::file(file.path, error);
    let limits = BatchLimits {
        bytes: REQUEST_BYTES_MAX,
        rows: REQUEST_MESSAGES_MAX,
    };
    let mut cutter: Cutter<Box<dyn Read>> =
        Cutter::new(text_of(file.path).map_err(failed)?, Framing::Ndjson, limits);
    let mut shown = Instant::now();
    let mut messages_max = REQUEST_MESSAGES_MAX;
    while let Some(block) = cutter.next(None).map_err(failed)? {
        let lines = lines_of(&block, file)?;
        let mut rest = lines.as_slice();
        while let Some(first) = rest.first() {
            let (batch, after) = rest.split_at(rest.len().min(messages_max));
            let sent = match deliver(client, path, &request_of(batch)?, file.patience, counters) {
                Ok(sent) => sent,
                // The limits depend on the table and on the members of the feed, so the right number is not known.
                Err(CliError::Refused(refusal)) if is_too_large(&refusal) && batch.len() > 1 => {
                    messages_max = batch.len() / 2;
                    continue;
                }
                Err(failure) => {
                    eprintln!(
                        "{}: the {} messages from line {} on failed; those before are sent",
                        file.path.display(),
                        output::count(batch.len() as u64),
                        output::count(first.number)
                    );
                    return Err(failure);
                }
            };
            rest = after;
            let repeated = sent.messages.iter().filter(|message| message.repeated).count() as u64;
            counters.requests += 1;
            counters.repeated += repeated;
            counters.written += sent.messages.len() as u64 - repeated;
            if !file.is_json && shown.elapsed() >= PROGRESS_INTERVAL {
                eprintln!("{} messages", output::count(counters.written + counters.repeated));
                shown = Instant::now();
            }
        }
    }
    Ok(())
}

/// Returns true if the server can accept the messages of a refused request in smaller requests.
fn is_too_large(refusal: &Refusal) -> bool {
    matches!(refusal.code.as_str(), "over_limit" | "body_too_large")
}

/// Returns the messages of a block. Messages without an id get one if the file has a beginning for ids.
fn lines_of(block: &RecordBlock, file: &MessageFile<'_>) -> Result<Vec<Line>> {
    let mut messages = Vec::new();
    let lines = block.bytes.split(|byte| *byte == b'\n');
    for (number, line) in (block.first_line..).zip(lines) {
        let line = line.trim_ascii();
        if line.is_empty() {
            continue;
        }
        let mut message: Members = serde_json::from_slice(line).map_err(|error| {
            CliError::Incomplete(format!(
                "{}:{number}: not a message in JSON: {}; the messages before it may be sent",
                file.path.display(),
                plain::syntax(line, &error)
            ))
        })?;
        let mut has_id = message.get("id").is_some();
        if let (false, Some(beginning)) = (has_id, file.ids) {
            let id = json!(format!("{beginning}-{number}")).to_string();
            let id = serde_json::value::RawValue::from_string(id)
                .map_err(|error| CliError::Incomplete(error.to_string()))?;
            message.push("id", &id);
            has_id = true;
        }
        messages.push(Line {
            number,
            message,
            has_id,
        });
    }
    Ok(messages)
}

/// Returns the request with the messages of lines.
fn request_of(lines: &[Line]) -> Result<SendRequest> {
    let messages: Vec<&Members> = lines.iter().map(|line| &line.message).collect();
    let body = serde_json::to_string(&messages).map_err(|error| CliError::Incomplete(error.to_string()))?;
    Ok(SendRequest {
        body: format!("{{\"messages\":{body}}}"),
        is_repeatable: lines.iter().all(|line| line.has_id),
    })
}

/// Sends a request until it is acknowledged, refused for good, or `patience` has passed.
fn deliver(
    client: &Client,
    path: &str,
    request: &SendRequest,
    patience: Duration,
    counters: &mut Counters,
) -> Result<MessagesSent> {
    let (mut tries, begun) = (0, Instant::now());
    loop {
        let (failure, retry_after, is_retryable) = match client.post_once(path, &request.body) {
            Ok(response) if response.status == 200 => {
                return serde_json::from_str(&response.text)
                    .map_err(|error| client.strange(&error.to_string()));
            }
            Ok(response) => {
                let body: Value = serde_json::from_str(&response.text).unwrap_or_default();
                let is_retryable = match response.status {
                    // The server has not read the request.
                    429 => true,
                    408 | 502..=504 | 507 => request.is_repeatable,
                    _ => request.is_repeatable && body["retryable"] == true,
                };
                (client.refusal(&response), response.retry_after, is_retryable)
            }
            Err(failure) => {
                let is_retryable = request.is_repeatable && !matches!(failure, CliError::Tls { .. });
                (failure, None, is_retryable)
            }
        };
        if !is_retryable || begun.elapsed() >= patience {
            return Err(failure);
        }
        pause(retry_after.unwrap_or_default() + jitter(tries, path));
        tries += 1;
        counters.retries += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(text: &str) -> RecordBlock {
        RecordBlock {
            start: 0,
            end: text.len() as u64,
            first_line: 8,
            bytes: text.as_bytes().to_vec(),
        }
    }

    fn file(ids: Option<&str>) -> MessageFile<'_> {
        MessageFile {
            path: Path::new("in.ndjson"),
            ids,
            patience: Duration::ZERO,
            is_json: false,
        }
    }

    #[test]
    fn messages_keep_their_digits_and_get_ids() {
        let text = block("{\"columns\":{\"n\":1.50}}\n\n{\"id\":\"a\",\"columns\":{}}\n");
        let lines = lines_of(&text, &file(Some("x"))).expect("messages");
        assert_eq!(lines.iter().map(|line| line.number).collect::<Vec<_>>(), [8, 10]);
        let request = request_of(&lines).expect("a request");
        assert_eq!(
            request,
            SendRequest {
                body:
                    "{\"messages\":[{\"columns\":{\"n\":1.50},\"id\":\"x-8\"},{\"id\":\"a\",\"columns\":{}}]}"
                        .to_owned(),
                is_repeatable: true,
            }
        );
        let lines = lines_of(&text, &file(None)).expect("messages");
        assert!(!request_of(&lines).expect("a request").is_repeatable);
        assert!(request_of(&lines[1..]).expect("a request").is_repeatable);
        let failure = lines_of(&block("{}\nx\n"), &file(None)).expect_err("not JSON");
        assert!(failure.to_string().starts_with("in.ndjson:9: "), "{failure}");
    }
}

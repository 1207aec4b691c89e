//! Messages as tables, as lines of JSON and as JSON.
//!
//! A response has at most [`PAGE_MAX`] messages. Tables and lines of JSON request page after page until they have the
//! wanted number of messages; JSON is one response of the server, unchanged.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tideline_openapi::feed::Sequence;
use tideline_openapi::row::Members;
use tideline_openapi::row_search::RowHighlight;

use crate::commands::rows::read::{marked, plain};
use crate::commands::selection::{PageOutput, output_to};
use crate::error::Result;
use crate::output;
use crate::output::grid::Grid;

/// Maximum number of messages that the server returns per request.
const PAGE_MAX: u64 = 1_000;

/// Form of the output.
#[derive(Debug, Args)]
pub(super) struct OutputArguments {
    /// Maximum number of messages; in JSON at most 1,000 [default: one page in tables and JSON, else all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// Columns to return: names, or prefixes that end with `*`, separated by commas [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(super) columns: Vec<String>,
    /// Output format [default: by the ending of --out (.ndjson, .json, .txt), else table on a terminal, ndjson in a
    /// pipe, or json with --json]
    #[arg(long, short, value_enum)]
    output: Option<PageOutput>,
    /// Output file [default: standard output]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Request for messages that continues page by page.
pub(super) trait PagedRequest {
    /// Requests the next page with at most `limit` messages; `None` = the default of the server.
    ///
    /// # Errors
    ///
    /// Fails if the server refuses the request or is not reachable.
    fn send(&self, limit: Option<u64>) -> Result<String>;

    /// Parses a response. The next request continues after it.
    ///
    /// # Errors
    ///
    /// Fails if the response is not valid.
    fn take(&mut self, response: &str) -> Result<MessagePage>;
}

/// Page of messages.
pub(super) struct MessagePage {
    pub(super) messages: Vec<Box<RawValue>>,
    /// Summary, the last line of JSON.
    pub(super) end: Value,
    /// Option that continues after the page; `None` if no more messages follow.
    pub(super) continuation: Option<String>,
    /// Note after a table; empty without one.
    pub(super) note: String,
}

impl OutputArguments {
    /// Sends the requests and shows their messages.
    pub(super) fn show(&self, request: &mut dyn PagedRequest, json: bool) -> Result<()> {
        let output = PageOutput::chosen(self.output, self.out.as_deref(), json)?;
        // The first request is sent before the file is created, so that a refused request leaves no empty file.
        let limit = match output {
            PageOutput::Json => self.limit,
            PageOutput::Table => self.limit.map(|limit| limit.min(PAGE_MAX)),
            PageOutput::Ndjson => Some(self.limit.unwrap_or(PAGE_MAX).min(PAGE_MAX)),
        };
        let mut response = request.send(limit)?;
        let mut out = output_to(self.out.as_ref())?;
        if output == PageOutput::Json {
            writeln!(out, "{}", response.trim_end())?;
            return Ok(out.flush()?);
        }
        let mut rest = match (output, self.limit) {
            (_, Some(limit)) => limit,
            (PageOutput::Table, None) => 0,
            (_, None) => u64::MAX,
        };
        let mut shown = Vec::new();
        let page = loop {
            let page = request.take(&response)?;
            rest = rest.saturating_sub(page.messages.len() as u64);
            match output {
                PageOutput::Table => {
                    shown.extend(page.messages.iter().map(|message| ShownMessage::new(message)));
                }
                _ => {
                    for message in &page.messages {
                        writeln!(out, "{}", message.get())?;
                    }
                }
            }
            if rest == 0 || page.continuation.is_none() {
                break page;
            }
            response = request.send(Some(rest.min(PAGE_MAX)))?;
        };
        if output == PageOutput::Ndjson {
            writeln!(out, "{}", page.end)?;
            return Ok(out.flush()?);
        }
        let width = output::columns().filter(|_| self.out.is_none());
        out.write_all(table(&shown).render_within(width).as_bytes())?;
        out.flush()?;
        let more = page
            .continuation
            .map(|option| format!("more messages follow; use --limit, or {option}"));
        let notes = [Some(page.note).filter(|note| !note.is_empty()), more];
        let notes: Vec<String> = notes.into_iter().flatten().collect();
        if !notes.is_empty() {
            eprintln!("{}", notes.join("; "));
        }
        Ok(())
    }
}

/// Message as a row of a table or as a line of text.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ShownMessage {
    feed: Option<String>,
    sequence: Option<Sequence>,
    time: String,
    sender: Option<String>,
    id: Option<String>,
    event: Option<String>,
    target: Option<Sequence>,
    columns: Members,
    counters: BTreeMap<String, i64>,
    edited: Option<String>,
    recalled: Option<String>,
    highlights: Vec<RowHighlight>,
}

impl ShownMessage {
    /// Parses a message. Members of an unknown form are not shown.
    pub(super) fn new(message: &RawValue) -> Self {
        serde_json::from_str(message.get()).unwrap_or_default()
    }

    /// Returns the message as a line of text: its time, its feed, sender and state if it has them, and its columns.
    pub(super) fn line(&self) -> String {
        let sender = self.sender.as_ref().map(|sender| format!("{sender}:"));
        let mut parts = vec![self.time.clone()];
        parts.extend(
            [self.feed.clone(), sender, Some(self.state())]
                .into_iter()
                .flatten(),
        );
        let columns = self.columns.iter();
        parts.extend(columns.map(|(name, value)| format!("{name}={}", plain(value))));
        parts.retain(|part| !part.is_empty());
        parts.join("  ")
    }

    /// Returns the state of the message. For an event: its kind and the message that it has changed. For another
    /// message: `recalled` or `edited`, or an empty text.
    fn state(&self) -> String {
        match (&self.event, self.target) {
            (Some(event), Some(target)) => format!("{event} of {target}"),
            (Some(event), None) => event.clone(),
            (None, _) if self.recalled.is_some() => "recalled".to_owned(),
            (None, _) if self.edited.is_some() => "edited".to_owned(),
            (None, _) => String::new(),
        }
    }

    fn counters(&self) -> String {
        let counters = self
            .counters
            .iter()
            .map(|(name, count)| format!("{name}={count}"));
        counters.collect::<Vec<String>>().join(" ")
    }

    fn matches(&self) -> String {
        self.highlights
            .iter()
            .map(marked)
            .collect::<Vec<String>>()
            .join("; ")
    }
}

/// Formats messages as a table. Columns without a value in any message are omitted.
fn table(messages: &[ShownMessage]) -> Grid {
    type Cell = fn(&ShownMessage) -> String;
    let before: [(&str, Cell); 5] = [
        ("feed", |message| message.feed.clone().unwrap_or_default()),
        ("sequence", |message| {
            message
                .sequence
                .map(|sequence| sequence.to_string())
                .unwrap_or_default()
        }),
        ("time", |message| message.time.clone()),
        ("sender", |message| message.sender.clone().unwrap_or_default()),
        ("state", ShownMessage::state),
    ];
    let after: [(&str, Cell); 3] = [
        ("counters", ShownMessage::counters),
        ("id", |message| message.id.clone().unwrap_or_default()),
        ("matches", ShownMessage::matches),
    ];
    let is_used = |(name, cell): &(&str, Cell)| {
        *name == "sequence" || messages.iter().any(|message| !cell(message).is_empty())
    };
    let before: Vec<(&str, Cell)> = before.into_iter().filter(is_used).collect();
    let after: Vec<(&str, Cell)> = after.into_iter().filter(is_used).collect();
    let columns: BTreeSet<&str> = messages
        .iter()
        .flat_map(|message| message.columns.iter().map(|(name, _)| name))
        .collect();
    let head = before.iter().map(|(name, _)| *name);
    let head = head.chain(columns.iter().copied());
    let mut grid = Grid::new(head.chain(after.iter().map(|(name, _)| *name)));
    for message in messages {
        let values = columns
            .iter()
            .map(|name| message.columns.get(name).map(plain).unwrap_or_default());
        let first = before.iter().map(|(_, cell)| cell(message));
        let last = after.iter().map(|(_, cell)| cell(message));
        grid.row(first.chain(values).chain(last).collect());
    }
    grid
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_have_the_columns_that_the_messages_have() {
        let messages = [
            r#"{"sequence":"5","time":"2026-11-26T12:00:00Z","sender":"ann","columns":{"text":"hi"},"counters":{"like":2},"edited":"2026-11-26T12:01:00Z"}"#,
            r#"{"sequence":"6","time":"2026-11-26T12:01:00Z","sender":"ann","event":"edit","target":"5","columns":{"text":"hi","n":null}}"#,
        ];
        let messages = messages.map(|json| {
            let message: Box<RawValue> = serde_json::from_str(json).expect("JSON");
            ShownMessage::new(&message)
        });
        let text = table(&messages).render_within(None);
        let lines: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(
            lines[0],
            ["sequence", "time", "sender", "state", "n", "text", "counters"]
        );
        assert_eq!(
            lines[2],
            ["5", "2026-11-26T12:00:00Z", "ann", "edited", "hi", "like=2"]
        );
        assert_eq!(
            lines[3],
            ["6", "2026-11-26T12:01:00Z", "ann", "edit", "of", "5", "hi"]
        );
    }
}

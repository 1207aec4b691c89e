//! Sends batches until each is acknowledged: stored, or rejected line by line.
//!
//! What the server may do later (429, 503, no answer) is sent again under the same key, so that an outcome that was
//! lost stores nothing twice. Only a batch of which some lines may be stored later goes again under a new one.

use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use xxhash_rust::xxh3::xxh3_64;

use super::csv::Converted;
use super::feed::Batch;
use super::pace::Pace;
use super::progress::Progress;
use super::record::Framing;
use super::rejects::{RejectedRow, Rejects};
use super::resume::ResumeLog;
use crate::client::{Answer, Client};
use crate::error::{CliError, Result};

/// The wait before lines are sent again whose timelines the table did not take in this minute.
const TIMELINES_WAIT: Duration = Duration::from_secs(5);

/// What all connections share.
pub(super) struct Sender<'a> {
    pub(super) client: &'a Client,
    pub(super) run: &'a str,
    pub(super) precision: &'a str,
    pub(super) patience: Duration,
    pub(super) pace: Pace,
    pub(super) resume: Option<&'a ResumeLog>,
    pub(super) rejects: &'a Rejects,
    pub(super) progress: &'a Progress,
}

/// How a batch ended.
#[derive(Default)]
struct Outcome {
    points: u64,
    values: u64,
    rejected: u64,
    /// Numbers of lines of the body, and what was wrong with them.
    rejects: Vec<(usize, String)>,
}

/// A batch as it is sent.
struct Body<'b> {
    bytes: &'b [u8],
    content_type: &'static str,
}

/// What an answer to a batch means.
enum Reading {
    Ended(Outcome),
    /// Send it again, at once or after so long.
    Later(Option<Duration>),
    /// As before, but some of it was stored: its key is used up.
    PartLater(Duration),
    Failed(CliError),
}

impl Sender<'_> {
    /// Sends what comes until nothing more does, or the run has failed.
    pub(super) fn work(&self, batches: &Arc<Mutex<Receiver<Batch>>>) {
        loop {
            let next = batches.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(batch) = next else { return };
            match self.transfer(&batch) {
                Ok(true) => {}
                Ok(false) => return,
                Err(failure) => return self.pace.fail(failure),
            }
        }
    }

    /// Brings one batch to its end; false when the run has failed elsewhere.
    fn transfer(&self, batch: &Batch) -> Result<bool> {
        let converted = batch.csv.as_ref().map(|plan| plan.convert(&batch.piece.bytes));
        let body = match &converted {
            Some(converted) => Body {
                bytes: &converted.body,
                content_type: "application/x-ndjson",
            },
            None if batch.framing == Framing::Lines => Body {
                bytes: &batch.piece.bytes,
                content_type: "text/plain",
            },
            None => Body {
                bytes: &batch.piece.bytes,
                content_type: "application/x-ndjson",
            },
        };
        let outcome = if body.bytes.is_empty() {
            Outcome::default()
        } else {
            match self.send(batch, &body)? {
                Some(outcome) => outcome,
                None => return Ok(false),
            }
        };
        self.end(batch, converted.as_ref(), outcome)?;
        Ok(true)
    }

    /// Sends a body until it has an outcome; `None` when the run has failed elsewhere.
    fn send(&self, batch: &Batch, body: &Body<'_>) -> Result<Option<Outcome>> {
        let path = self
            .client
            .of_table(&format!("/points?precision={}", self.precision));
        let (mut tries, mut keys_used) = (0, 0);
        let mut first_failure: Option<Instant> = None;
        loop {
            let Some(turn) = self.pace.turn() else {
                return Ok(None);
            };
            let (start, path_hash) = (batch.piece.start, xxh3_64(batch.path.as_bytes()));
            let key = format!(
                "{}-{path_hash:x}-{start:x}-{:x}-{keys_used}",
                self.run, batch.hash
            );
            let (last, wait) = match self.client.write(&path, body.content_type, &key, body.bytes) {
                Ok(answer) => match self.read(&answer)? {
                    Reading::Ended(outcome) => {
                        self.pace.stored(&turn);
                        return Ok(Some(outcome));
                    }
                    Reading::Later(wait) => (Err(answer), wait),
                    Reading::PartLater(wait) => {
                        keys_used += 1;
                        (Err(answer), Some(wait))
                    }
                    Reading::Failed(failure) => {
                        self.pace.leave(&turn);
                        return Err(failure);
                    }
                },
                Err(failure) => (Ok(failure), None),
            };
            self.pace.busy(&turn, tries, wait);
            let failing_for = first_failure.get_or_insert_with(Instant::now).elapsed();
            if failing_for >= self.patience {
                return match last {
                    Ok(failure) => Err(failure),
                    // Lines that a table would take in another minute are rejected ones in the end.
                    Err(answer) => match outcome_of(&self.client.parse(&answer.text).unwrap_or_default()) {
                        Some(outcome) => Ok(Some(outcome)),
                        None => Err(self.client.refusal(&answer)),
                    },
                };
            }
            tries += 1;
            self.progress.retried();
        }
    }

    fn read(&self, answer: &Answer) -> Result<Reading> {
        let body: Value = serde_json::from_str(&answer.text).unwrap_or_default();
        let is_retryable = body.get("retryable").and_then(Value::as_bool).unwrap_or(false);
        Ok(match answer.status {
            200 => {
                let outcome =
                    outcome_of(&body).ok_or_else(|| self.client.strange("a write without a report"))?;
                match body["retryable"].as_u64() {
                    Some(1..) => Reading::PartLater(answer.retry_after.unwrap_or(TIMELINES_WAIT)),
                    _ => Reading::Ended(outcome),
                }
            }
            422 if body["code"] == "all_rejected" => {
                let rejects = rejects_of(&body);
                // The server names how many in its words; the lines it names are all there are up to its limit.
                let rejected = body["message"]
                    .as_str()
                    .and_then(count_in)
                    .unwrap_or(rejects.len() as u64);
                Reading::Ended(Outcome {
                    rejected,
                    rejects,
                    ..Outcome::default()
                })
            }
            408 | 429 | 502..=504 | 507 => Reading::Later(answer.retry_after),
            _ if is_retryable => Reading::Later(answer.retry_after),
            _ => Reading::Failed(self.client.refusal(answer)),
        })
    }

    /// Notes rejects and the acknowledgement, in this order: a crash between them repeats, but loses nothing.
    fn end(&self, batch: &Batch, converted: Option<&Converted>, outcome: Outcome) -> Result<()> {
        let bytes = &batch.piece.bytes;
        let starts = match converted {
            Some(converted) => converted.starts.clone(),
            None if outcome.rejects.is_empty() => Vec::new(),
            None => line_starts(bytes),
        };
        let unnamed = outcome.rejected.saturating_sub(outcome.rejects.len() as u64);
        let by_server = outcome.rejects.into_iter().map(|(line, reason)| {
            let start = starts.get(line.saturating_sub(1)).copied();
            (start.unwrap_or(bytes.len()), reason)
        });
        let here = converted
            .map(|converted| converted.refused.clone())
            .unwrap_or_default();
        let here_count = here.len() as u64;
        let mut all: Vec<(usize, String)> = by_server.chain(here).collect();
        all.sort();
        let (mut counted, mut line) = (0, batch.piece.first_line);
        let mut rows: Vec<RejectedRow<'_>> = Vec::with_capacity(all.len());
        for (start, reason) in &all {
            line += memchr::memchr_iter(b'\n', &bytes[counted..*start]).count() as u64;
            counted = *start;
            rows.push(RejectedRow {
                line,
                reason: reason.clone(),
                row: row_at(batch.framing, bytes, *start),
            });
        }
        if !rows.is_empty() || unnamed > 0 {
            let last = all.last().map_or(0, |(start, _)| *start);
            let named = rows.last().map_or(0, |reject| reject.row.len());
            let behind = &bytes[bytes.len().min(last + named)..];
            self.rejects.add(&batch.path, &rows, unnamed, behind)?;
        }
        // What was rejected and is noted nowhere is to be sent again by the next run.
        let is_noted = unnamed == 0 || self.rejects.has_file();
        if let Some(resume) = self.resume.filter(|_| is_noted) {
            let start = batch.piece.start;
            resume.acknowledge(&batch.path, start, start + bytes.len() as u64, batch.hash)?;
        }
        self.progress.acknowledged(
            bytes.len() as u64,
            batch.source_bytes,
            outcome.points,
            outcome.values,
            outcome.rejected + here_count,
        );
        Ok(())
    }
}

/// The outcome that a report states.
fn outcome_of(report: &Value) -> Option<Outcome> {
    Some(Outcome {
        points: report.get("points")?.as_u64()?,
        values: report.get("values")?.as_u64()?,
        rejected: report.get("rejected")?.as_u64()?,
        rejects: rejects_of(report),
    })
}

fn rejects_of(report: &Value) -> Vec<(usize, String)> {
    let rejects = report.get("rejects").and_then(Value::as_array);
    let read = |reject: &Value| {
        let line = usize::try_from(reject.get("line")?.as_u64()?).ok()?;
        Some((line, reject.get("reason")?.as_str()?.to_owned()))
    };
    rejects.into_iter().flatten().filter_map(read).collect()
}

/// The first number of a text.
fn count_in(message: &str) -> Option<u64> {
    message
        .split(|c: char| !c.is_ascii_digit())
        .find_map(|digits| digits.parse().ok())
}

/// Where lines begin, as the server counts them.
fn line_starts(bytes: &[u8]) -> Vec<usize> {
    std::iter::once(0)
        .chain(memchr::memchr_iter(b'\n', bytes).map(|end| end + 1))
        .collect()
}

/// The record that begins at `start`; its first line where it has no end.
fn row_at(framing: Framing, bytes: &[u8], start: usize) -> &[u8] {
    if start >= bytes.len() {
        return &[];
    }
    let end = framing
        .end(bytes, start)
        .unwrap_or_else(|| memchr::memchr(b'\n', &bytes[start..]).map_or(bytes.len(), |found| start + found));
    &bytes[start..end]
}

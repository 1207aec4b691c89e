//! Sends batches until each is acknowledged: stored, or rejected line by line.
//!
//! Requests that the server may accept later (429, 503, no response, …) are repeated under the same idempotency
//! key, so that a lost response does not store points twice. If only some lines of a batch may be stored later,
//! these lines are sent under a new key. Every request contains the time for lines without a time, so that storing
//! such a line twice results in one point.

use std::sync::mpsc::{Receiver, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use xxhash_rust::xxh3::xxh3_64;

use super::body::{Body, record_at};
use super::concurrency::ConcurrencyLimit;
use super::csv::Converted;
use super::feed::Batch;
use super::outcome::{Outcome, Report};
use super::progress::Progress;
use super::rejects::{RejectedRow, Rejects};
use super::resume::ResumeLog;
use crate::client::{BufferedResponse, Client};
use crate::error::{CliError, Result};

/// Wait before lines that were rejected temporarily are sent again, such as those over the table's limit of new
/// timelines per minute. Used if the server requests no time.
const TIMELINES_WAIT: Duration = Duration::from_secs(5);

/// State shared by all connections.
pub(super) struct Sender<'a> {
    pub(super) client: &'a Client,
    pub(super) run: &'a str,
    pub(super) patience: Duration,
    pub(super) concurrency: ConcurrencyLimit,
    pub(super) resume: Option<&'a ResumeLog>,
    pub(super) rejects: &'a Rejects,
    pub(super) progress: &'a Progress,
    /// Channel that returns buffers of completed batches to the feed.
    pub(super) spares: SyncSender<Vec<u8>>,
}

/// Interpretation of a response to a batch.
enum Reading {
    Report(Report),
    /// Nothing was stored. The request is sent again, after this time if given.
    Later(Option<Duration>),
    Failed(CliError),
}

impl Sender<'_> {
    /// Sends batches from the channel until it is closed or the run has failed.
    pub(super) fn work(&self, batches: &Arc<Mutex<Receiver<Batch>>>) {
        loop {
            let next = batches.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(batch) = next else { return };
            match self.transfer(&batch) {
                // If the channel of spare buffers is full, the buffer is dropped.
                Ok(true) => drop(self.spares.try_send(batch.block.bytes)),
                Ok(false) => return,
                Err(failure) => return self.concurrency.fail(failure),
            }
        }
    }

    /// Sends one batch until it is complete. Returns false if the run has failed in another thread.
    fn transfer(&self, batch: &Batch) -> Result<bool> {
        let converted = batch.csv.as_ref().map(|plan| plan.convert(&batch.block.bytes));
        let body = Body::of(batch, converted.as_ref());
        let outcome = if body.bytes().is_empty() {
            Outcome::default()
        } else {
            match self.send(batch, body)? {
                Some(outcome) => outcome,
                None => return Ok(false),
            }
        };
        self.end(batch, converted.as_ref(), outcome)?;
        Ok(true)
    }

    /// Sends a body until it has an outcome. Returns `None` if the run has failed in another thread.
    fn send(&self, batch: &Batch, mut body: Body<'_>) -> Result<Option<Outcome>> {
        let path = format!("/points?precision={}&time={}", batch.precision, batch.time);
        let path = self.client.of_table(&path);
        let (start, path_hash) = (batch.block.start, xxh3_64(batch.path.as_bytes()));
        let hash = batch.hash.unwrap_or_default();
        let key = format!("{}-{path_hash:x}-{start:x}-{hash:x}", self.run);
        let mut outcome = Outcome::default();
        let (mut tries, mut keys_used) = (0, 0);
        let mut first_failure: Option<Instant> = None;
        loop {
            let Some(permit) = self.concurrency.acquire() else {
                return Ok(None);
            };
            // The key of a partial body contains its hash, because after an interruption another run may have
            // other records left.
            let key = match keys_used {
                0 => format!("{key}-0"),
                _ => format!("{key}-{keys_used}-{:x}", xxh3_64(body.bytes())),
            };
            let response = self.client.write(&path, body.content_type(), &key, body.bytes());
            let is_last = first_failure.is_some_and(|first| first.elapsed() >= self.patience);
            let wait = match response {
                Ok(response) => match self.read(&response)? {
                    Reading::Report(report) => match outcome.add(&body, report, is_last) {
                        None => {
                            self.concurrency.stored(&permit);
                            return Ok(Some(outcome));
                        }
                        Some(rest) if rest.bytes().is_empty() => {
                            self.concurrency.release(&permit);
                            return Err(self.client.strange("it rejected lines that were not sent"));
                        }
                        Some(rest) => {
                            body = rest;
                            keys_used += 1;
                            Some(response.retry_after.unwrap_or(TIMELINES_WAIT))
                        }
                    },
                    Reading::Later(_) if is_last => {
                        self.concurrency.release(&permit);
                        let refusal = self.client.refusal(&response);
                        let report =
                            Report::of_refusal(&self.client.parse(&response.text).unwrap_or_default());
                        if !report.names_rejects() {
                            return Err(refusal);
                        }
                        // Lines that are still rejected temporarily now count as rejected.
                        outcome.add(&body, report, is_last);
                        return Ok(Some(outcome));
                    }
                    Reading::Later(wait) => wait,
                    Reading::Failed(failure) => {
                        self.concurrency.release(&permit);
                        return Err(failure);
                    }
                },
                Err(failure) if is_last || matches!(failure, CliError::Tls { .. }) => {
                    self.concurrency.release(&permit);
                    return Err(failure);
                }
                Err(_) => None,
            };
            first_failure.get_or_insert_with(Instant::now);
            self.concurrency.busy(&permit, tries, wait);
            tries += 1;
            self.progress.retried();
        }
    }

    fn read(&self, response: &BufferedResponse) -> Result<Reading> {
        let body: Value = serde_json::from_str(&response.text).unwrap_or_default();
        let is_retryable = body.get("retryable").and_then(Value::as_bool).unwrap_or(false);
        Ok(match response.status {
            200 => {
                let report = Report::of_success(&body);
                Reading::Report(report.ok_or_else(|| self.client.strange("the response has no report"))?)
            }
            422 if body["code"] == "all_rejected" => Reading::Report(Report::of_refusal(&body)),
            408 | 429 | 502..=504 | 507 => Reading::Later(response.retry_after),
            _ if is_retryable => Reading::Later(response.retry_after),
            _ => Reading::Failed(self.client.refusal(response)),
        })
    }

    /// Records rejects, then the acknowledgement. After a crash in between, the next run sends the batch again;
    /// nothing is lost.
    fn end(&self, batch: &Batch, converted: Option<&Converted>, outcome: Outcome) -> Result<()> {
        let bytes = &batch.block.bytes;
        let here = converted.map_or(&[][..], |converted| &converted.refused);
        let rejected = outcome.rejected + here.len() as u64;
        let unnamed = outcome.unnamed;
        let by_server = outcome.rejects.into_iter();
        let by_server = by_server.map(|(start, reason)| (start.min(bytes.len()), reason));
        let mut all: Vec<(usize, String)> = by_server.chain(here.iter().cloned()).collect();
        all.sort();
        let (mut counted, mut line) = (0, batch.block.first_line);
        let mut rows: Vec<RejectedRow<'_>> = Vec::with_capacity(all.len());
        for (start, reason) in &all {
            line += memchr::memchr_iter(b'\n', &bytes[counted..*start]).count() as u64;
            counted = *start;
            rows.push(RejectedRow {
                line,
                reason: reason.clone(),
                row: record_at(batch.framing, bytes, *start),
            });
        }
        if !rows.is_empty() || unnamed > 0 {
            let named = outcome.last_named;
            let rest_start = named.map_or(0, |start| start + record_at(batch.framing, bytes, start).len());
            self.rejects
                .add(&batch.path, &rows, unnamed, &bytes[bytes.len().min(rest_start)..])?;
        }
        // The next run must send rejected rows again if they are recorded nowhere, so their batch is not acknowledged.
        let is_noted = unnamed == 0 || self.rejects.has_file();
        if let Some((resume, hash)) = self.resume.filter(|_| is_noted).zip(batch.hash) {
            resume.acknowledge(&batch.path, &batch.block, hash, rejected)?;
        }
        if let Some(converted) = converted {
            self.progress.compared(&batch.path, converted.compared);
        }
        self.progress.acknowledged(
            bytes.len() as u64,
            batch.source_bytes,
            outcome.points,
            outcome.values,
            rejected,
        );
        Ok(())
    }
}

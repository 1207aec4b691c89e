//! Sends batches of rows until each is acknowledged, and records their outcomes.
//!
//! Requests that the server may accept later are repeated under the same idempotency key. Waits are random, between
//! zero and a limit that doubles with each retry, so that several clients do not retry at the same time. The time in
//! `Retry-After` is added to the random wait; the sum is limited to 30 s (`concurrency`).

use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use tideline_openapi::model::{Clock, SystemClock};
use xxhash_rust::xxh3::xxh3_64;

use super::Counters;
use super::source::RowBatch;
use crate::client::{BufferedResponse, Client};
use crate::error::{CliError, Result};
use crate::write::concurrency::ConcurrencyLimit;
use crate::write::rejects::{RejectedRow, Rejects};
use crate::write::resume::ResumeLog;

/// Limit of the first wait; it doubles with each retry.
const FIRST_WAIT: Duration = Duration::from_millis(200);
/// Largest limit of a wait.
const WAIT_MAX: Duration = Duration::from_secs(20);

/// State shared by all connections.
pub(super) struct RowSender<'a> {
    /// Path of the import with its options.
    pub(super) path: String,
    pub(super) client: &'a Client,
    pub(super) run: &'a str,
    pub(super) patience: Duration,
    pub(super) concurrency: ConcurrencyLimit,
    pub(super) resume: Option<&'a ResumeLog>,
    pub(super) rejects: &'a Rejects,
    pub(super) counters: &'a Counters,
}

/// Outcome of a batch.
struct Report {
    written: u64,
    /// Index in the batch, reason and key of each row that was not written. The key is empty if the server did not
    /// return it.
    rejected: Vec<(usize, String, String)>,
    /// Number of rows that were not written and are not in `rejected`, because the server limits its list. These rows
    /// follow the last row of `rejected` in the batch.
    omitted: u64,
}

impl RowSender<'_> {
    /// Sends batches from the channel until it is closed or the run has failed.
    pub(super) fn work(&self, batches: &Arc<Mutex<Receiver<RowBatch>>>) {
        loop {
            let next = batches.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(batch) = next else { return };
            let sent = self.send(&batch).and_then(|report| match report {
                Some(report) => self.record(&batch, &report).map(|()| true),
                None => Ok(false),
            });
            match sent {
                Ok(true) => {}
                Ok(false) => return,
                Err(failure) => return self.concurrency.fail(failure),
            }
        }
    }

    /// Sends a batch until it has an outcome. Returns `None` if the run has failed in another thread.
    fn send(&self, batch: &RowBatch) -> Result<Option<Report>> {
        let with_header;
        let body = match batch.header.is_empty() {
            true => &batch.block.bytes,
            false => {
                with_header = [&batch.header, &batch.block.bytes[..]].concat();
                &with_header
            }
        };
        let path_hash = xxh3_64(batch.path.as_bytes());
        let key = format!(
            "{}-{path_hash:x}-{:x}-{:x}",
            self.run, batch.block.start, batch.hash
        );
        let (mut tries, mut first_failure) = (0, None::<Instant>);
        loop {
            let Some(permit) = self.concurrency.acquire() else {
                return Ok(None);
            };
            let response = self.client.write(&self.path, batch.content_type, &key, body);
            let is_last = first_failure.is_some_and(|first| first.elapsed() >= self.patience);
            let retry_after = match response {
                Ok(response) => match self.read(&response) {
                    Ok(Some(report)) => {
                        self.concurrency.stored(&permit);
                        return Ok(Some(report));
                    }
                    Ok(None) if is_last => {
                        self.concurrency.release(&permit);
                        return Err(self.client.refusal(&response));
                    }
                    Ok(None) => response.retry_after,
                    Err(failure) => {
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
            let wait = retry_after.unwrap_or_default() + jitter(tries, &key);
            self.concurrency.busy(&permit, tries, Some(wait));
            tries += 1;
            Counters::add(&self.counters.retries, 1);
        }
    }

    /// Returns the outcome of a response; `None` if the request is to be repeated. Fails if the server refused the
    /// request or stopped the import for good.
    fn read(&self, response: &BufferedResponse) -> Result<Option<Report>> {
        if response.status != 200 {
            let body: Value = serde_json::from_str(&response.text).unwrap_or_default();
            let is_retryable = body["retryable"].as_bool().unwrap_or(false);
            return match response.status {
                408 | 429 | 502..=504 | 507 => Ok(None),
                _ if is_retryable => Ok(None),
                _ => Err(self.client.refusal(response)),
            };
        }
        let (mut rejected, mut end) = (Vec::new(), Value::Null);
        for line in response.text.lines() {
            let line: Value = self.client.parse(line)?;
            match line["index"].as_u64() {
                None => end = line,
                Some(index) => rejected.push((
                    usize::try_from(index).unwrap_or(usize::MAX),
                    line["reason"].as_str().unwrap_or("not written").to_owned(),
                    line.get("key").map(Value::to_string).unwrap_or_default(),
                )),
            }
        }
        if let Some(reason) = end["stopped"].as_str() {
            return match end["retryable"] == true {
                // Entries that were written are not written again, because the retry has the same idempotency key.
                true => Ok(None),
                false => Err(CliError::Incomplete(format!(
                    "the server stopped the import: {reason}"
                ))),
            };
        }
        let written = end["written"].as_u64();
        let written = written.ok_or_else(|| self.client.strange("the response has no counts"))?;
        Ok(Some(Report {
            written,
            rejected,
            omitted: end["omitted"].as_u64().unwrap_or_default(),
        }))
    }

    /// Records rejects, then the acknowledgement. After a crash in between, the next run sends the batch again; nothing
    /// is lost.
    fn record(&self, batch: &RowBatch, report: &Report) -> Result<()> {
        let bytes = &batch.block.bytes;
        let starts = match batch.framing {
            Some(framing) if !report.rejected.is_empty() => starts(framing, bytes),
            _ => Vec::new(),
        };
        let mut rows = Vec::with_capacity(report.rejected.len());
        for (index, reason, key) in &report.rejected {
            let record = starts.get(*index).copied();
            let (line, row) = match record {
                Some((start, end)) => {
                    let before = memchr::memchr_iter(b'\n', &bytes[..start]).count() as u64;
                    (batch.block.first_line + before, &bytes[start..end])
                }
                None => (batch.block.first_line + *index as u64, key.as_bytes()),
            };
            rows.push(RejectedRow {
                line,
                reason: reason.clone(),
                row,
            });
        }
        let last = report.rejected.last().and_then(|(index, ..)| starts.get(*index));
        let rest = last.map_or(&[][..], |(_, end)| &bytes[*end..]);
        if !rows.is_empty() || report.omitted > 0 {
            self.rejects.add(&batch.path, &rows, report.omitted, rest)?;
        }
        let rejected = report.rejected.len() as u64 + report.omitted;
        // The next run must send rejected rows again if they are recorded nowhere, so their batch is not acknowledged.
        // Rows of columnar files cannot be cut out of a batch for the rejects file.
        let is_noted = report.omitted == 0 || batch.framing.is_some() && self.rejects.has_file();
        if let Some(resume) = self.resume.filter(|_| is_noted) {
            resume.acknowledge(&batch.path, &batch.block, batch.hash, rejected)?;
        }
        Counters::add(&self.counters.written, report.written);
        Counters::add(&self.counters.rejected, rejected);
        Counters::add(&self.counters.batches, 1);
        Counters::add(&self.counters.bytes, bytes.len() as u64);
        Ok(())
    }
}

/// Returns the start and end of each record. Empty lines are omitted, because the server does not count them.
fn starts(framing: crate::write::record::Framing, bytes: &[u8]) -> Vec<(usize, usize)> {
    let (mut starts, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let end = framing.end(bytes, at).unwrap_or(bytes.len());
        if !bytes[at..end].trim_ascii().is_empty() {
            starts.push((at, end));
        }
        at = end;
    }
    starts
}

/// Returns a random wait between zero and a limit that doubles with each try.
pub(in crate::write) fn jitter(tries: u32, key: &str) -> Duration {
    let limit = FIRST_WAIT.saturating_mul(1 << tries.min(16)).min(WAIT_MAX);
    let drawn = xxh3_64(format!("{key}{}{tries}", SystemClock.now().nanos()).as_bytes());
    limit.mul_f64(drawn as f64 / u64::MAX as f64)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn waits_are_spread_below_a_limit_that_doubles() {
        for tries in [0, 1, 5, 30] {
            let limit = FIRST_WAIT.saturating_mul(1 << tries.min(16)).min(WAIT_MAX);
            let waits: Vec<Duration> = (0..100).map(|n| jitter(tries, &n.to_string())).collect();
            assert!(waits.iter().all(|wait| *wait <= limit));
            assert!(waits.iter().any(|wait| *wait < limit / 2));
            assert!(waits.iter().any(|wait| *wait > limit / 2));
        }
    }

    #[test]
    fn clients_that_are_refused_together_do_not_return_together() {
        // Number of clients, number of requests that the server accepts per step, and length of a step in milliseconds.
        const CLIENTS: usize = 1_000;
        const ACCEPTED: usize = 20;
        const STEP_MS: u128 = 50;
        // Client and number of its attempts, by the step in which it sends its request again.
        let first: Vec<(usize, u32)> = (0..CLIENTS).map(|client| (client, 0)).collect();
        let mut waiting = BTreeMap::from([(0_u128, first)]);
        let (mut largest, mut last) = (0, 0);
        while let Some((step, arrived)) = waiting.pop_first() {
            if step > 0 {
                largest = largest.max(arrived.len());
            }
            last = step;
            for (client, tries) in arrived.into_iter().skip(ACCEPTED) {
                let wait = jitter(tries, &client.to_string()).as_millis() / STEP_MS;
                waiting
                    .entry(step + 1 + wait)
                    .or_default()
                    .push((client, tries + 1));
            }
        }
        assert!(largest < CLIENTS / 2, "{largest} requests at once");
        assert!(last * STEP_MS < 60_000, "the last client waited for {last} steps");
    }
}

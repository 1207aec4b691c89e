//! Audit records of the service. The record of a change is written to the audit table before the response is
//! sent. Refusals are counted and recorded once a minute.
//!
//! A task writes the waiting records in batches. If the store fails, the task keeps a bounded number of records
//! and repeats the write each second; responses do not wait for the repetitions. A record that the store refuses
//! permanently is dropped. Every record is also a line of the log. Records that are only in the log are counted.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use tideline_engine::audit_table::{AuditKind, AuditRecord};
use tideline_engine::model::Timestamp;
use tideline_engine::{Engine, EngineError, ErrorKind};
use tideline_openapi::ErrorCode;
use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::audit;

/// Maximum number of messages that wait in the queue of the task, and of records that the task keeps after a
/// failed write.
const WAITING_MAX: usize = 1_000;
/// Maximum number of records of one write.
const BATCH_MAX: usize = 200;
/// Longest time that a response waits for its record.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// Time between two attempts to write records after a failure.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Longest text of a record, in bytes. Longer texts are truncated.
pub(crate) const TEXT_BYTES_MAX: usize = 1_024;
/// Maximum number of different refusals of known principals that are counted separately within a minute.
const REFUSALS_MAX: usize = 500;
/// Maximum number of different refusals of unknown principals that are counted separately within a minute. Without
/// the limit, clients without a token could create any number of entries.
const UNKNOWN_REFUSALS_MAX: usize = 50;

/// Audit records of a service.
#[derive(Debug)]
pub(crate) struct AuditLog {
    queue: mpsc::Sender<Message>,
    refusals: Mutex<HashMap<Refusal, Counted>>,
    /// Number of the next record.
    number: AtomicI64,
    lost: Arc<AtomicU64>,
}

/// Task that writes the records.
#[derive(Debug)]
pub(crate) struct AuditWriter {
    queue: mpsc::Receiver<Message>,
    lost: Arc<AtomicU64>,
}

#[derive(Debug)]
struct Message {
    records: Vec<AuditRecord>,
    /// Dropped when the records of the message and all earlier ones are written, or when the write has failed.
    done: Option<oneshot::Sender<()>>,
}

/// Refusals that are counted together.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Refusal {
    pub(crate) principal: Option<String>,
    pub(crate) tenant: Option<String>,
    pub(crate) client: Option<String>,
    pub(crate) proxy: Option<String>,
    pub(crate) method: &'static str,
    pub(crate) route: String,
    pub(crate) status: u16,
    pub(crate) code: ErrorCode,
}

#[derive(Debug)]
struct Counted {
    since: Timestamp,
    count: u64,
}

impl AuditLog {
    /// Creates a log. Records are numbered from `now` on, so that their numbers differ from those of earlier
    /// processes.
    pub(crate) fn new(now: Timestamp) -> (Self, AuditWriter) {
        let (sender, queue) = mpsc::channel(WAITING_MAX);
        let lost: Arc<AtomicU64> = Arc::default();
        let log = Self {
            queue: sender,
            refusals: Mutex::default(),
            number: AtomicI64::new(now.nanos()),
            lost: Arc::clone(&lost),
        };
        (log, AuditWriter { queue, lost })
    }

    /// Returns the number of records that could not be written to the table since the start.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Writes a record, and waits until it is on stable storage, but at most [`WAIT_MAX`]. After that, the
    /// record is still written.
    pub(crate) async fn write(&self, record: AuditRecord) {
        let written = self.send(vec![record]);
        wait(written).await;
    }

    /// Queues a record without waiting until it is written. For callers that cannot wait.
    pub(crate) fn note(&self, record: AuditRecord) {
        drop(self.send(vec![record]));
    }

    /// Counts a refused request.
    pub(crate) fn count(&self, refusal: Refusal, now: Timestamp) {
        let mut refusals = self.refusals.lock();
        let max = match refusal.principal {
            Some(_) => REFUSALS_MAX,
            None => UNKNOWN_REFUSALS_MAX,
        };
        let of_kind = |other: &&Refusal| other.principal.is_some() == refusal.principal.is_some();
        let has_room = || refusals.len() < max || refusals.keys().filter(of_kind).count() < max;
        let refusal = match refusals.contains_key(&refusal) || has_room() {
            true => refusal,
            false => Refusal {
                principal: None,
                tenant: None,
                client: None,
                proxy: None,
                method: "",
                route: "others".to_owned(),
                status: refusal.status,
                code: refusal.code,
            },
        };
        let counted = refusals
            .entry(refusal)
            .or_insert(Counted { since: now, count: 0 });
        counted.count += 1;
    }

    /// Records the refusals that were counted since the last call.
    pub(crate) fn flush_refusals(&self) {
        drop(self.send(self.counted_refusals()));
    }

    fn counted_refusals(&self) -> Vec<AuditRecord> {
        let counted = std::mem::take(&mut *self.refusals.lock());
        let record = |(refusal, Counted { since, count }): (Refusal, Counted)| {
            let Refusal {
                principal,
                tenant,
                client,
                proxy,
                method,
                route,
                status,
                code,
            } = refusal;
            let code = code_name(code);
            tracing::info!(target: audit::TARGET, principal, tenant, client, proxy, method, route, status, code, count, "refusals");
            AuditRecord {
                at: since,
                number: 0,
                kind: AuditKind::Refusal,
                principal,
                tenant,
                client,
                proxy,
                method: method.to_owned(),
                path: route,
                status: Some(status),
                code: Some(code),
                count,
                request_id: None,
                detail: None,
            }
        };
        counted.into_iter().map(record).collect()
    }

    /// Records the refusals that were counted since the last call, and waits until all records are written.
    pub(crate) async fn close(&self) {
        let written = self.send(self.counted_refusals());
        wait(written).await;
    }

    /// Sends records to the task. The returned receiver completes when the records are written or cannot be
    /// written now. Returns `None` if too many messages wait; the records are then only in the log.
    fn send(&self, mut records: Vec<AuditRecord>) -> Option<oneshot::Receiver<()>> {
        for record in &mut records {
            record.number = self.number.fetch_add(1, Ordering::Relaxed);
            cut(&mut record.path);
            record.principal.as_mut().map(cut);
        }
        let count = records.len();
        let (done, written) = oneshot::channel();
        let message = Message {
            records,
            done: Some(done),
        };
        match self.queue.try_send(message) {
            Ok(()) => Some(written),
            Err(_) => {
                lose(&self.lost, count, &"too many records wait");
                None
            }
        }
    }
}

async fn wait(written: Option<oneshot::Receiver<()>>) {
    let Some(written) = written else { return };
    if timeout(WAIT_MAX, written).await.is_err() {
        tracing::warn!(target: audit::TARGET, "the store takes long to write audit records");
    }
}

/// Truncates a text that is too long.
pub(crate) fn cut(text: &mut String) {
    if text.len() > TEXT_BYTES_MAX {
        text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
        text.push('…');
    }
}

/// Counts records that are only in the log.
fn lose(lost: &AtomicU64, count: usize, reason: &dyn fmt::Display) {
    if count > 0 {
        lost.fetch_add(count as u64, Ordering::Relaxed);
        tracing::warn!(target: audit::TARGET, count, %reason, "audit records are only in the log");
    }
}

/// Returns the name of an error code, as in responses.
pub(crate) fn code_name(code: ErrorCode) -> String {
    let name = serde_json::to_value(code).expect("a code has a JSON form");
    name.as_str().unwrap_or_default().to_owned()
}

impl AuditWriter {
    /// Writes records until the service ends.
    pub(crate) async fn run(mut self, engine: Arc<Engine>) {
        let mut records: VecDeque<AuditRecord> = VecDeque::new();
        loop {
            let mut messages = Vec::new();
            let received = self.queue.recv_many(&mut messages, BATCH_MAX);
            let count = match records.is_empty() {
                true => received.await,
                false => timeout(RETRY_INTERVAL, received).await.unwrap_or(usize::MAX),
            };
            if count == 0 {
                lose(&self.lost, records.len(), &"the service has ended");
                return;
            }
            let done: Vec<_> = messages
                .iter_mut()
                .filter_map(|message| message.done.take())
                .collect();
            records.extend(messages.into_iter().flat_map(|message| message.records));
            self.write_all(&engine, &mut records).await;
            drop(done);
        }
    }

    /// Writes all records. After a temporary failure, keeps the records that are not written. If the store
    /// permanently refuses a batch, smaller batches are tried, so that only records that are refused
    /// individually are lost.
    async fn write_all(&self, engine: &Arc<Engine>, records: &mut VecDeque<AuditRecord>) {
        let mut batch_max = BATCH_MAX;
        while !records.is_empty() {
            let batch: Vec<AuditRecord> = records.iter().take(batch_max).cloned().collect();
            let (count, engine) = (batch.len(), Arc::clone(engine));
            let written = spawn_blocking(move || engine.put_audit(&batch)).await;
            let refused = match written {
                Ok(Ok(())) => {
                    drop(records.drain(..count));
                    continue;
                }
                Ok(Err(error)) if is_passing(&error) => {
                    tracing::warn!(target: audit::TARGET, %error, waiting = records.len(), "audit records could not be written; the write is repeated");
                    let over = records.len().saturating_sub(WAITING_MAX);
                    drop(records.drain(..over));
                    lose(&self.lost, over, &"the store has not accepted them for long");
                    return;
                }
                Ok(Err(error)) => error.to_string(),
                Err(panicked) => panicked.to_string(),
            };
            match count {
                1 => {
                    records.pop_front();
                    lose(&self.lost, 1, &refused);
                }
                _ => batch_max = count / 2,
            }
        }
    }
}

/// Returns true if the same write can succeed later.
fn is_passing(error: &EngineError) -> bool {
    error.is_retryable() || error.kind() == ErrorKind::Internal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_counted_with_a_bound() {
        let (log, writer) = AuditLog::new(Timestamp::from_nanos_clamped(1));
        let at = |second: i64| Timestamp::from_nanos_clamped(second);
        for n in 0..1_500_i64 {
            for _ in 0..3 {
                let refusal = Refusal {
                    principal: None,
                    tenant: None,
                    client: Some(format!("10.0.{}.{}", n / 250, n % 250)),
                    proxy: None,
                    method: "GET",
                    route: "/query".to_owned(),
                    status: 401,
                    code: ErrorCode::Unauthenticated,
                };
                log.count(refusal, at(n));
            }
        }
        for n in 0..600 {
            let refusal = Refusal {
                principal: Some(format!("token {n}")),
                tenant: None,
                client: None,
                proxy: None,
                method: "DELETE",
                route: "/v1/tables/{table}".to_owned(),
                status: 403,
                code: ErrorCode::Forbidden,
            };
            log.count(refusal, at(1));
        }
        let records = log.counted_refusals();
        let of = |status: u16| {
            let counts = records.iter().filter(|record| record.status == Some(status));
            let counts: Vec<u64> = counts.map(|record| record.count).collect();
            (counts.len(), counts.iter().sum::<u64>(), counts.into_iter().max())
        };
        assert_eq!(of(401), (UNKNOWN_REFUSALS_MAX + 1, 4_500, Some(4_350)));
        assert_eq!(of(403), (REFUSALS_MAX + 1, 600, Some(100)));
        assert!(log.refusals.lock().is_empty());
        // The records of one minute are one message. When too many messages wait, further ones are lost.
        for _ in 0..WAITING_MAX {
            assert!(log.send(records[..1].to_vec()).is_some());
        }
        assert!(log.send(records[..3].to_vec()).is_none());
        assert_eq!((writer.queue.len(), log.lost()), (WAITING_MAX, 3));
    }

    #[test]
    fn long_texts_are_cut_and_numbers_differ() {
        let (log, mut writer) = AuditLog::new(Timestamp::from_nanos_clamped(70));
        let at = Timestamp::from_nanos_clamped(1);
        let record = AuditRecord::of_change(at, "PUT", "é".repeat(TEXT_BYTES_MAX));
        log.note(record.clone());
        log.note(record);
        for number in [70, 71] {
            let message = writer.queue.try_recv().expect("a message");
            assert_eq!(message.records[0].number, number);
            assert_eq!(message.records[0].path.len(), TEXT_BYTES_MAX + '…'.len_utf8());
        }
    }
}

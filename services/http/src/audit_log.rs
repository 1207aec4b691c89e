//! Audit records of the service: written to their table before a change is answered, and counts of refusals once a minute.
//!
//! A task writes the records that wait, in one batch after another. If the store fails, it keeps a bounded number of them
//! and repeats the write each second; requests do not wait for that, and every record is in the log in any case.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use tideline_engine::Engine;
use tideline_engine::audit_table::{AuditKind, AuditRecord};
use tideline_engine::model::Timestamp;
use tideline_openapi::ErrorCode;
use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::audit;

/// Maximum number of records that wait to be written.
const WAITING_MAX: usize = 1_000;
/// Maximum number of records of one write.
const BATCH_MAX: usize = 200;
/// Longest time that a response waits for its record.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// Time between two attempts to write records after a failure.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of different refusals that are counted separately within a minute.
const REFUSALS_MAX: usize = 1_000;

/// Audit records of a service.
#[derive(Debug)]
pub(crate) struct AuditLog {
    queue: mpsc::Sender<Message>,
    refusals: Mutex<HashMap<Refusal, Counted>>,
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
    record: Option<AuditRecord>,
    /// Dropped when the record, and all before it, are written, or when the write has failed.
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
    pub(crate) fn new() -> (Self, AuditWriter) {
        let (sender, queue) = mpsc::channel(WAITING_MAX);
        let lost: Arc<AtomicU64> = Arc::default();
        let log = Self {
            queue: sender,
            refusals: Mutex::default(),
            lost: Arc::clone(&lost),
        };
        (log, AuditWriter { queue, lost })
    }

    /// Returns the number of records that could not be written to the table since the start.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Writes a record, and waits until it is on stable storage. Gives up waiting, but not writing, if that takes long.
    pub(crate) async fn write(&self, record: AuditRecord) {
        self.send(Some(record)).await;
    }

    /// Writes a record some time later. For callers that cannot wait.
    pub(crate) fn note(&self, record: AuditRecord) {
        let message = Message {
            record: Some(record),
            done: None,
        };
        if self.queue.try_send(message).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(target: audit::TARGET, "too many audit records wait; one is only in the log");
        }
    }

    /// Counts a refused request.
    pub(crate) fn count(&self, refusal: Refusal, now: Timestamp) {
        let mut refusals = self.refusals.lock();
        let is_known = refusals.contains_key(&refusal);
        let refusal = match is_known || refusals.len() < REFUSALS_MAX {
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
        let counted = std::mem::take(&mut *self.refusals.lock());
        for (refusal, Counted { since, count }) in counted {
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
            self.note(AuditRecord {
                at: since,
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
            });
        }
    }

    /// Records what was counted, and waits until all records are written.
    pub(crate) async fn close(&self) {
        self.flush_refusals();
        self.send(None).await;
    }

    async fn send(&self, record: Option<AuditRecord>) {
        let (done, written) = oneshot::channel();
        let message = Message {
            record,
            done: Some(done),
        };
        let sent = async {
            if self.queue.send(message).await.is_ok() {
                let _dropped = written.await;
            }
        };
        if timeout(WAIT_MAX, sent).await.is_err() {
            tracing::warn!(target: audit::TARGET, "the store takes long to write audit records");
        }
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
                return;
            }
            let done: Vec<_> = messages
                .iter_mut()
                .filter_map(|message| message.done.take())
                .collect();
            records.extend(messages.into_iter().filter_map(|message| message.record));
            self.write_all(&engine, &mut records).await;
            drop(done);
        }
    }

    /// Writes all records. After a failure, keeps those that are not written.
    async fn write_all(&self, engine: &Arc<Engine>, records: &mut VecDeque<AuditRecord>) {
        while !records.is_empty() {
            let batch: Vec<AuditRecord> = records.iter().take(BATCH_MAX).cloned().collect();
            let (count, engine) = (batch.len(), Arc::clone(engine));
            let written = spawn_blocking(move || engine.put_audit(&batch)).await;
            match written {
                Ok(Ok(())) => drop(records.drain(..count)),
                Ok(Err(error)) => {
                    tracing::warn!(target: audit::TARGET, %error, waiting = records.len(), "audit records could not be written; it is repeated");
                    let over = records.len().saturating_sub(WAITING_MAX);
                    drop(records.drain(..over));
                    self.lost.fetch_add(over as u64, Ordering::Relaxed);
                    return;
                }
                Err(panicked) => {
                    tracing::error!(%panicked, "a write of audit records panicked");
                    self.lost.fetch_add(count as u64, Ordering::Relaxed);
                    drop(records.drain(..count));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_counted_with_a_bound() {
        let (log, writer) = AuditLog::new();
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
        let counts: Vec<u64> = log
            .refusals
            .lock()
            .values()
            .map(|counted| counted.count)
            .collect();
        assert_eq!(counts.len(), REFUSALS_MAX + 1);
        assert_eq!(counts.iter().sum::<u64>(), 4_500);
        assert_eq!(counts.iter().max(), Some(&1_500));
        // More records than fit into the queue are only in the log.
        log.flush_refusals();
        assert!(log.refusals.lock().is_empty());
        assert_eq!((writer.queue.len(), log.lost()), (WAITING_MAX, 1));
    }
}

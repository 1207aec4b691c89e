//! The queries that run now: who they are, how far they are, and how they are stopped.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tideline_engine::Engine;
use tideline_engine::model::Timestamp;
use tideline_query::{Cancel, Progress};

use crate::context::RequestId;

/// Bytes of a question that are kept to show it.
const QUESTION_BYTES_MAX: usize = 2_048;

/// The queries of a service that run now. A handle: clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct RunningQueries(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Ids are counted from 1.
    last: AtomicU64,
    running: Mutex<BTreeMap<u64, RunningQuery>>,
}

/// A query while it runs.
#[derive(Debug, Clone)]
pub(crate) struct RunningQuery {
    pub(crate) request_id: RequestId,
    pub(crate) table: String,
    /// The last part of the path that was asked.
    pub(crate) resource: &'static str,
    /// As JSON, cut off where it is long.
    pub(crate) question: String,
    pub(crate) started: Timestamp,
    /// Monotonic time of the start.
    began: Duration,
    cancel: Cancel,
}

/// Lists a query while it lives.
#[derive(Debug)]
pub(crate) struct Listed {
    queries: RunningQueries,
    id: u64,
}

impl RunningQueries {
    /// Lists a query that begins now, until what this gives is dropped.
    pub(crate) fn list(&self, engine: &Engine, query: Description, cancel: Cancel) -> Listed {
        let id = self.0.last.fetch_add(1, Ordering::Relaxed) + 1;
        let Description {
            request_id,
            table,
            resource,
            mut question,
        } = query;
        if question.len() > QUESTION_BYTES_MAX {
            question.truncate(question.floor_char_boundary(QUESTION_BYTES_MAX));
            question.push('…');
        }
        let running = RunningQuery {
            request_id,
            table,
            resource,
            question,
            started: engine.clock().now(),
            began: engine.clock().monotonic(),
            cancel,
        };
        self.lock().insert(id, running);
        let queries = self.clone();
        Listed { queries, id }
    }

    /// All that run, oldest first.
    pub(crate) fn all(&self) -> Vec<(u64, RunningQuery)> {
        let running = self.lock();
        running.iter().map(|(id, query)| (*id, query.clone())).collect()
    }

    /// Stops one; whether it ran.
    pub(crate) fn cancel(&self, id: u64) -> bool {
        let running = self.lock();
        let found = running.get(&id);
        found.inspect(|query| query.cancel.cancel()).is_some()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, RunningQuery>> {
        // Whoever panicked with the lock has left a whole map.
        self.0.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a query is listed as.
#[derive(Debug, Clone)]
pub(crate) struct Description {
    pub(crate) request_id: RequestId,
    pub(crate) table: String,
    pub(crate) resource: &'static str,
    pub(crate) question: String,
}

impl RunningQuery {
    /// How far it is.
    pub(crate) fn progress(&self) -> Progress {
        self.cancel.progress()
    }

    /// How long it has run.
    pub(crate) fn elapsed(&self, engine: &Engine) -> Duration {
        engine.clock().monotonic().saturating_sub(self.began)
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.queries.lock().remove(&self.id);
    }
}

//! Registry of the running queries: their identity, their progress and their cancellation.
//!
//! Queries of all protocols are listed, so that an operator can find and stop expensive queries.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tideline_engine::Engine;
use tideline_engine::model::Timestamp;
use tideline_query::{Cancel, Progress};

use crate::context::RequestId;

/// Maximum size of the query text that is kept for display, in bytes.
const QUERY_BYTES_MAX: usize = 2_048;

/// Registry of the running queries of a service. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct RunningQueries(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Id of the last query; ids start at 1.
    last: AtomicU64,
    running: Mutex<BTreeMap<u64, RunningQuery>>,
}

#[derive(Debug, Clone)]
pub(crate) struct RunningQuery {
    pub(crate) request_id: RequestId,
    pub(crate) table: String,
    /// Name of the requested resource, such as `query` or `prometheus_query_range`.
    pub(crate) resource: &'static str,
    /// Text of the query: JSON, PromQL or SQL, truncated if it is long.
    pub(crate) text: String,
    pub(crate) started: Timestamp,
    /// Monotonic time at the start of the query.
    began: Duration,
    cancel: Cancel,
}

/// Guard of a listed query; removes it from the registry on drop.
#[derive(Debug)]
pub(crate) struct Listed {
    queries: RunningQueries,
    id: u64,
}

impl RunningQueries {
    /// Adds a query that starts now. It is listed until the returned guard is dropped.
    pub(crate) fn list(&self, engine: &Engine, description: Description, cancel: Cancel) -> Listed {
        let id = self.0.last.fetch_add(1, Ordering::Relaxed) + 1;
        let Description {
            request_id,
            table,
            resource,
            mut text,
        } = description;
        if text.len() > QUERY_BYTES_MAX {
            text.truncate(text.floor_char_boundary(QUERY_BYTES_MAX));
            text.push('…');
        }
        let running = RunningQuery {
            request_id,
            table,
            resource,
            text,
            started: engine.clock().now(),
            began: engine.clock().monotonic(),
            cancel,
        };
        self.lock().insert(id, running);
        let queries = self.clone();
        Listed { queries, id }
    }

    /// Returns all running queries, oldest first.
    pub(crate) fn all(&self) -> Vec<(u64, RunningQuery)> {
        let running = self.lock();
        running.iter().map(|(id, query)| (*id, query.clone())).collect()
    }

    /// Cancels a query that `is_seen` accepts; returns false if no such query is running.
    pub(crate) fn cancel(&self, id: u64, is_seen: impl Fn(&RunningQuery) -> bool) -> bool {
        let running = self.lock();
        let found = running.get(&id).filter(|query| is_seen(query));
        found.inspect(|query| query.cancel.cancel()).is_some()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, RunningQuery>> {
        // No code panics while it modifies the map, so the map is consistent even if the lock is poisoned.
        self.0.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Description of a query for the registry.
#[derive(Debug, Clone)]
pub(crate) struct Description {
    pub(crate) request_id: RequestId,
    pub(crate) table: String,
    pub(crate) resource: &'static str,
    pub(crate) text: String,
}

impl RunningQuery {
    pub(crate) fn progress(&self) -> Progress {
        self.cancel.progress()
    }

    /// Returns the running time of the query.
    pub(crate) fn elapsed(&self, engine: &Engine) -> Duration {
        engine.clock().monotonic().saturating_sub(self.began)
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.queries.lock().remove(&self.id);
    }
}

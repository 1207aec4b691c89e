//! Outcomes of requests with an idempotency key: a repeated request gets the stored outcome and is not executed again.
//!
//! The outcome is part of the entry of its request. Before a journal generation is deleted, the outcomes in it are
//! written as rows of the `REQUESTS` space. Outcomes are evicted by age, number and total size, in the order of their
//! commits. Outcomes that were loaded at the start are in this order only within a table.

use std::collections::VecDeque;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hashbrown::HashMap;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tideline_backend::{Backend, Direction, PageLimit, RowChange};
use tideline_key_codec::{named_key, parse_named_key, space, table_rows};
use tideline_model::{Durability, TableId, Timestamp};

use crate::error::{LogError, Result};
use crate::groups::Groups;
use crate::settings::LogSettings;
use crate::stamps::Stamps;

/// Maximum size of a remembered outcome, in bytes. Its stored form, a third larger, must fit into one write of the
/// backend.
pub const OUTCOME_BYTES_MAX: usize = 2 << 20;
/// Maximum size of all remembered outcomes, in bytes. All outcomes are in memory, and the outcome of a large write
/// holds a result for each row, so a limit on the number of outcomes alone does not bound the memory.
const OUTCOMES_BYTES_MAX: usize = 128 << 20;

/// Request key: 128-bit hash of the idempotency key that the client sent.
pub type RequestKey = [u8; 16];

/// Outcome of a request, as stored in the entry of the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestRecord {
    /// Hashed idempotency key of the client.
    pub key: RequestKey,
    /// Outcome, encoded by the service that replies to requests; at most [`OUTCOME_BYTES_MAX`] bytes.
    pub outcome: Bytes,
}

/// Remembered outcomes of all tables.
#[derive(Debug, Default)]
pub struct Requests {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    outcomes: HashMap<(TableId, RequestKey), Outcome>,
    /// Keys of `outcomes`. New keys are appended in the order of their commits; loaded keys precede them, sorted by
    /// time per table.
    order: VecDeque<(TableId, RequestKey)>,
    /// Bytes of all outcomes.
    bytes: usize,
    /// Evicted keys whose rows are not deleted yet.
    expired: Vec<(TableId, RequestKey)>,
    /// Number of outcomes remembered so far, which is also the version of the newest one.
    remembered: u64,
}

#[derive(Debug)]
struct Outcome {
    at: i64,
    bytes: Bytes,
    /// Version of the outcome, which changes if the key is used again; 0 for loaded outcomes.
    version: u64,
    /// True if the row of this outcome is durable.
    saved: bool,
    /// True if there may be a row with this key, written for this outcome or for an earlier outcome. The row is deleted
    /// after the eviction of the outcome.
    has_row: bool,
}

/// Stored form of one outcome.
#[derive(Debug, Serialize, Deserialize)]
struct StoredOutcome {
    format: u8,
    at: i64,
    /// Bytes of the outcome in format 1, as a list of numbers. Empty in format 2. The member must exist, because a
    /// build that supports only format 1 reads the whole row before it checks the format number and refuses the row.
    outcome: Vec<u8>,
    /// Bytes of the outcome in format 2, in base64.
    #[serde(default)]
    base64: String,
}

/// Rows that were written and may not be durable yet.
#[derive(Debug)]
pub(crate) struct WrittenRequests {
    /// Key and version of each written outcome.
    saved: Vec<((TableId, RequestKey), u64)>,
    /// Number of handled entries at the front of `State::expired`.
    deleted: usize,
}

/// Format number of the stored form that this build writes. It also reads [`OUTCOME_FORMAT_NUMBERS`].
const OUTCOME_FORMAT: u8 = 2;
/// Format number of the stored form with a list of numbers, several times as large as the outcome.
const OUTCOME_FORMAT_NUMBERS: u8 = 1;

impl StoredOutcome {
    fn new(at: i64, outcome: &[u8]) -> Self {
        Self {
            format: OUTCOME_FORMAT,
            at,
            outcome: Vec::new(),
            base64: STANDARD.encode(outcome),
        }
    }

    /// Returns the bytes of the outcome, or the reason why they cannot be read.
    fn into_bytes(self) -> std::result::Result<Bytes, String> {
        match self.format {
            OUTCOME_FORMAT_NUMBERS => Ok(self.outcome.into()),
            OUTCOME_FORMAT => {
                let decoded = STANDARD.decode(&self.base64);
                decoded.map(Bytes::from).map_err(|error| error.to_string())
            }
            format => Err(format!("format {format} is not supported by this build")),
        }
    }
}

impl Requests {
    /// Loads the stored outcomes of a table.
    ///
    /// # Errors
    ///
    /// The errors of the backend, or [`LogError::StoredRow`] if a row cannot be read.
    pub fn load(&self, backend: &dyn Backend, table: TableId) -> Result<()> {
        let (partition, mut range) = table_rows(space::REQUESTS, table);
        let mut found = Vec::new();
        loop {
            let limit = PageLimit {
                rows_max: 1_000,
                bytes_max: 4 << 20,
            };
            let page = backend.scan(partition, &range, Direction::Ascending, limit)?;
            for row in page.rows {
                let damaged = |reason: String| LogError::StoredRow {
                    what: "request row",
                    reason,
                };
                let key = parse_named_key(&row.key).and_then(|(_, name)| RequestKey::try_from(name).ok());
                let key = key.ok_or_else(|| damaged("key of a wrong length".into()))?;
                let stored: StoredOutcome =
                    serde_json::from_slice(&row.value).map_err(|error| damaged(error.to_string()))?;
                found.push((
                    key,
                    Outcome {
                        at: stored.at,
                        bytes: stored.into_bytes().map_err(damaged)?,
                        version: 0,
                        saved: true,
                        has_row: true,
                    },
                ));
            }
            match page.next {
                Some(next) => range = next,
                None => break,
            }
        }
        found.sort_by_key(|(_, outcome)| outcome.at);
        let mut state = self.state.lock();
        for (key, outcome) in found {
            state.order.push_back((table, key));
            state.bytes += outcome.bytes.len();
            state.outcomes.insert((table, key), outcome);
        }
        Ok(())
    }

    /// Returns the outcome of an earlier request with this key; `None` if it is not remembered.
    pub(crate) fn outcome(&self, table: TableId, key: RequestKey) -> Option<Bytes> {
        self.state
            .lock()
            .outcomes
            .get(&(table, key))
            .map(|outcome| outcome.bytes.clone())
    }

    /// Stores the outcome of a committed request in memory and evicts outcomes over the limits. An outcome above
    /// [`OUTCOME_BYTES_MAX`], such as one in the journal of an earlier build, is not stored: its row would fail every
    /// flush.
    pub(crate) fn remember(
        &self,
        table: TableId,
        request: RequestRecord,
        now: Timestamp,
        settings: &LogSettings,
    ) {
        let RequestRecord { key, outcome } = request;
        let bytes = outcome.len();
        if bytes > OUTCOME_BYTES_MAX {
            tracing::warn!(
                table = table.0,
                bytes,
                limit = OUTCOME_BYTES_MAX,
                "the outcome of a request is too large and is not remembered; a repeated request is executed again"
            );
            return;
        }
        let mut state = self.state.lock();
        let key = (table, key);
        let earlier = state.outcomes.get(&key);
        let (is_new, has_row) = (earlier.is_none(), earlier.is_some_and(|outcome| outcome.has_row));
        state.remembered += 1;
        let outcome = Outcome {
            at: now.nanos(),
            // A copy: after a replay the outcome is a slice of its entry, which would stay in memory as a whole.
            bytes: Bytes::copy_from_slice(&outcome),
            version: state.remembered,
            saved: false,
            has_row,
        };
        state.bytes += bytes;
        let replaced = state.outcomes.insert(key, outcome);
        state.bytes -= replaced.map_or(0, |outcome| outcome.bytes.len());
        if is_new {
            state.order.push_back(key);
        }
        let ttl = i64::try_from(settings.request_ttl.as_nanos()).unwrap_or(i64::MAX);
        let oldest_kept = now.nanos().saturating_sub(ttl);
        while let Some(oldest) = state.order.front().copied() {
            let too_old = state
                .outcomes
                .get(&oldest)
                .is_none_or(|outcome| outcome.at < oldest_kept);
            let is_over = state.order.len() > settings.requests_max || state.bytes > OUTCOMES_BYTES_MAX;
            if !too_old && !is_over {
                break;
            }
            state.order.pop_front();
            let evicted = state.outcomes.remove(&oldest);
            state.bytes -= evicted.as_ref().map_or(0, |outcome| outcome.bytes.len());
            if evicted.is_some_and(|outcome| outcome.has_row) {
                state.expired.push(oldest);
            }
        }
    }

    /// Writes the outcomes that have no durable row yet and deletes the rows of evicted outcomes. The changes are not
    /// durable yet; pass the result to [`synced`](Self::synced) once they are.
    pub(crate) fn write_rows(&self, backend: &dyn Backend, stamps: &Stamps) -> Result<WrittenRequests> {
        let (unsaved, expired, deleted) = {
            let mut state = self.state.lock();
            let unsaved: Vec<_> = state
                .outcomes
                .iter_mut()
                .filter(|(_, outcome)| !outcome.saved)
                .map(|(key, outcome)| {
                    // Set before the write: the outcome may be evicted before its row is durable, and a write that
                    // fails may have written the row.
                    outcome.has_row = true;
                    ((*key, outcome.version), outcome.at, outcome.bytes.clone())
                })
                .collect();
            // A key that was used again after its eviction keeps its row.
            let expired = state
                .expired
                .iter()
                .filter(|key| !state.outcomes.contains_key(*key));
            (unsaved, expired.copied().collect::<Vec<_>>(), state.expired.len())
        };
        let puts = unsaved.iter().map(|(((table, key), _), at, bytes)| {
            let stored = StoredOutcome::new(*at, bytes);
            let value = serde_json::to_vec(&stored).expect("plain structures always serialise");
            RowChange {
                key: named_key(*table, key).into(),
                value: Some(value.into()),
            }
        });
        let deletes = expired.iter().map(|(table, key)| RowChange {
            key: named_key(*table, key).into(),
            value: None,
        });
        let mut groups = Groups::default();
        puts.chain(deletes).for_each(|change| groups.push(change));
        let (partition, _) = table_rows(space::REQUESTS, TableId(0));
        for changes in groups.take() {
            backend.write(partition, &changes, stamps.next()?, Durability::Buffered)?;
        }
        Ok(WrittenRequests {
            saved: unsaved.into_iter().map(|(written, ..)| written).collect(),
            deleted,
        })
    }

    /// Marks written rows as durable. A key that was used again since the write keeps its new outcome unsaved, because
    /// the row has the old one.
    pub(crate) fn synced(&self, written: &WrittenRequests) {
        let mut state = self.state.lock();
        for (key, version) in &written.saved {
            let outcome = state.outcomes.get_mut(key);
            if let Some(outcome) = outcome.filter(|outcome| outcome.version == *version) {
                outcome.saved = true;
            }
        }
        state.expired.drain(..written.deleted);
    }
}

#[cfg(test)]
mod tests;

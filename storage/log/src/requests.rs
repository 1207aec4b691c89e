//! Outcomes of requests that carried an idempotency key, so that a repeated request is answered, not done.
//!
//! The outcome travels inside the entry of its request; before a journal generation is forgotten the outcomes
//! in it become rows of the `REQUESTS` space. Old ones leave by age and by number.

use std::collections::VecDeque;

use bytes::Bytes;
use hashbrown::HashMap;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tideline_backend::{Backend, Direction, PageLimit, RowChange, WRITE_ROWS_MAX};
use tideline_key_codec::{named_key, parse_named_key, space, table_rows};
use tideline_model::{Durability, TableId, Timestamp};

use crate::error::{LogError, Result};
use crate::settings::LogSettings;
use crate::stamps::Stamps;

/// A request key: the first 16 bytes of a hash of what the client sent.
pub type RequestKey = [u8; 16];

/// The outcome of a request, as the entry of the request carries it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestRecord {
    /// What the client sent as its key, hashed.
    pub key: RequestKey,
    /// The outcome, in the encoding of whoever answers requests.
    pub outcome: Bytes,
}

/// The remembered outcomes of all tables.
#[derive(Debug, Default)]
pub struct Requests {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    outcomes: HashMap<(TableId, RequestKey), Outcome>,
    /// Keys in the order of their commits.
    order: VecDeque<(TableId, RequestKey)>,
    /// Keys whose rows are to be deleted.
    expired: Vec<(TableId, RequestKey)>,
}

#[derive(Debug)]
struct Outcome {
    at: i64,
    bytes: Bytes,
    saved: bool,
}

/// The stored form of one outcome.
#[derive(Debug, Serialize, Deserialize)]
struct StoredOutcome {
    format: u8,
    at: i64,
    outcome: Vec<u8>,
}

/// Rows that were written and may not be durable yet.
#[derive(Debug)]
pub(crate) struct WrittenRequests {
    saved: Vec<(TableId, RequestKey)>,
    /// How many of those that had expired first.
    deleted: usize,
}

/// The stored form that this build writes.
const OUTCOME_FORMAT: u8 = 1;

impl Requests {
    /// Reads the rows of a table.
    ///
    /// # Errors
    ///
    /// The backend fails, or a row cannot be read.
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
                if stored.format != OUTCOME_FORMAT {
                    return Err(damaged(format!(
                        "format {} is not known to this build",
                        stored.format
                    )));
                }
                found.push((
                    key,
                    Outcome {
                        at: stored.at,
                        bytes: stored.outcome.into(),
                        saved: true,
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
            state.outcomes.insert((table, key), outcome);
        }
        Ok(())
    }

    /// The outcome of an earlier request with this key.
    pub(crate) fn outcome(&self, table: TableId, key: RequestKey) -> Option<Bytes> {
        self.state
            .lock()
            .outcomes
            .get(&(table, key))
            .map(|outcome| outcome.bytes.clone())
    }

    /// Remembers the outcome of a committed request.
    pub(crate) fn remember(
        &self,
        table: TableId,
        request: RequestRecord,
        now: Timestamp,
        settings: &LogSettings,
    ) {
        let mut state = self.state.lock();
        let outcome = Outcome {
            at: now.nanos(),
            bytes: request.outcome,
            saved: false,
        };
        if state.outcomes.insert((table, request.key), outcome).is_none() {
            state.order.push_back((table, request.key));
        }
        let ttl = i64::try_from(settings.request_ttl.as_nanos()).unwrap_or(i64::MAX);
        let oldest_kept = now.nanos().saturating_sub(ttl);
        while let Some(oldest) = state.order.front().copied() {
            let too_old = state
                .outcomes
                .get(&oldest)
                .is_none_or(|outcome| outcome.at < oldest_kept);
            if !too_old && state.order.len() <= settings.requests_max {
                break;
            }
            state.order.pop_front();
            if state
                .outcomes
                .remove(&oldest)
                .is_some_and(|outcome| outcome.saved)
            {
                state.expired.push(oldest);
            }
        }
    }

    /// Writes what is not yet stored and deletes what has expired, buffered; the keys of all of it.
    pub(crate) fn write_rows(&self, backend: &dyn Backend, stamps: &Stamps) -> Result<WrittenRequests> {
        let (unsaved, expired, deleted) = {
            let state = self.state.lock();
            let unsaved: Vec<_> = state
                .outcomes
                .iter()
                .filter(|(_, outcome)| !outcome.saved)
                .map(|(key, outcome)| (*key, outcome.at, outcome.bytes.clone()))
                .collect();
            // One that came again has a row again.
            let expired = state
                .expired
                .iter()
                .filter(|key| !state.outcomes.contains_key(*key));
            (unsaved, expired.copied().collect::<Vec<_>>(), state.expired.len())
        };
        let puts = unsaved.iter().map(|((table, key), at, bytes)| {
            let stored = StoredOutcome {
                format: OUTCOME_FORMAT,
                at: *at,
                outcome: bytes.to_vec(),
            };
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
        let changes: Vec<RowChange> = puts.chain(deletes).collect();
        let (partition, _) = table_rows(space::REQUESTS, TableId(0));
        for changes in changes.chunks(WRITE_ROWS_MAX) {
            backend.write(partition, changes, stamps.next()?, Durability::Buffered)?;
        }
        Ok(WrittenRequests {
            saved: unsaved.into_iter().map(|(key, ..)| key).collect(),
            deleted,
        })
    }

    /// Takes note that written rows are durable.
    pub(crate) fn synced(&self, written: &WrittenRequests) {
        let mut state = self.state.lock();
        for key in &written.saved {
            if let Some(outcome) = state.outcomes.get_mut(key) {
                outcome.saved = true;
            }
        }
        state.expired.drain(..written.deleted);
    }
}

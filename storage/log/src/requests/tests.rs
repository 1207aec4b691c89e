//! Tests of outcomes that change while a flush writes their rows.

use std::sync::Arc;
use std::time::Duration;

use tideline_backend::memory::{Character, MemoryBackend, MemoryDisk};
use tideline_model::SystemClock;

use super::*;
use crate::lease::Ownership;
use crate::log::SHARD;

const TABLE: TableId = TableId(1);

/// Outcomes of at most one request, and the backend that stores their rows.
struct Remembering {
    requests: Requests,
    backend: MemoryBackend,
    stamps: Stamps,
}

impl Remembering {
    fn new() -> Self {
        let backend = MemoryBackend::open(&MemoryDisk::new(Character::Embedded));
        let lease = backend.take(SHARD).expect("the shard is free");
        let ownership = Ownership::new(&lease, Duration::ZERO, Arc::new(SystemClock));
        Self {
            requests: Requests::default(),
            backend,
            stamps: Stamps::new(Arc::new(SystemClock), Arc::new(ownership)),
        }
    }

    /// Remembers an outcome, and evicts the outcome of another key.
    fn remember(&self, key: u8, outcome: &'static str) {
        let request = RequestRecord {
            key: [key; 16],
            outcome: Bytes::from_static(outcome.as_bytes()),
        };
        let settings = LogSettings {
            requests_max: 1,
            ..LogSettings::default()
        };
        let now = Timestamp::from_nanos_clamped(0);
        self.requests.remember(TABLE, request, now, &settings);
    }

    /// Flushes the outcomes; calls `meanwhile` after the rows are written, before they are durable.
    fn flush(&self, meanwhile: impl FnOnce()) {
        let written = self.requests.write_rows(&self.backend, &self.stamps);
        meanwhile();
        self.requests.synced(&written.expect("rows are written"));
    }

    /// Returns the keys and outcomes that a restart loads.
    fn stored(&self) -> Vec<(u8, String)> {
        let loaded = Requests::default();
        loaded.load(&self.backend, TABLE).expect("rows are read");
        let state = loaded.state.lock();
        let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
        let stored = state.outcomes.iter();
        stored
            .map(|((_, key), outcome)| (key[0], text(&outcome.bytes)))
            .collect()
    }
}

#[test]
fn a_key_that_is_used_again_during_a_flush_is_saved_with_its_new_outcome() {
    let remembering = Remembering::new();
    remembering.remember(1, "old");
    remembering.flush(|| {
        remembering.remember(2, "other");
        remembering.remember(1, "new");
    });
    remembering.flush(|| {});
    assert_eq!(remembering.stored(), [(1, "new".to_owned())]);
}

#[test]
fn the_row_of_an_outcome_that_is_evicted_during_a_flush_is_deleted() {
    let remembering = Remembering::new();
    remembering.remember(1, "old");
    remembering.flush(|| remembering.remember(2, "new"));
    remembering.flush(|| {});
    assert_eq!(remembering.stored(), [(2, "new".to_owned())]);
}

#[test]
fn the_row_of_an_outcome_that_was_replaced_before_its_eviction_is_deleted() {
    let remembering = Remembering::new();
    remembering.remember(1, "old");
    remembering.flush(|| {});
    remembering.remember(1, "replaced");
    remembering.remember(2, "new");
    remembering.flush(|| {});
    assert_eq!(remembering.stored(), [(2, "new".to_owned())]);
}

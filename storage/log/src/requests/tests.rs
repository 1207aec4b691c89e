//! Tests of outcomes that change while a flush writes their rows, and of their stored form.
//!
//! The limits of one outcome, of one write and of all outcomes together are tested with sizes near them.

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

    /// Remembers an outcome of a size.
    fn remember_bytes(&self, key: u8, bytes: usize) {
        let request = RequestRecord {
            key: [key; 16],
            outcome: vec![key; bytes].into(),
        };
        let now = Timestamp::from_nanos_clamped(0);
        self.requests
            .remember(TABLE, request, now, &LogSettings::default());
    }

    /// Stores a row as it is.
    fn write_row(&self, key: u8, row: &'static [u8]) {
        let change = RowChange {
            key: named_key(TABLE, &[key; 16]).into(),
            value: Some(Bytes::from_static(row)),
        };
        let (partition, _) = table_rows(space::REQUESTS, TABLE);
        let stamp = self.stamps.next().expect("a stamp");
        let written = self
            .backend
            .write(partition, &[change], stamp, Durability::Buffered);
        written.expect("the row is written");
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

#[test]
fn outcomes_above_the_bytes_of_a_write_are_stored() {
    for sizes in [&[100_000; 60][..], &[1_500_000; 4], &[OUTCOME_BYTES_MAX]] {
        let remembering = Remembering::new();
        for (key, bytes) in (0..).zip(sizes) {
            remembering.remember_bytes(key, *bytes);
        }
        remembering.flush(|| {});
        let mut stored: Vec<_> = remembering
            .stored()
            .into_iter()
            .map(|(key, outcome)| (key, outcome.len()))
            .collect();
        stored.sort_unstable();
        let expected: Vec<_> = (0..).zip(sizes.iter().copied()).collect();
        assert_eq!(stored, expected);
    }
}

#[test]
fn an_outcome_above_the_limit_is_not_remembered() {
    let remembering = Remembering::new();
    remembering.remember_bytes(1, OUTCOME_BYTES_MAX + 1);
    remembering.remember_bytes(2, 3);
    remembering.flush(|| {});
    assert_eq!(remembering.stored(), [(2, "\u{2}\u{2}\u{2}".to_owned())]);
}

#[test]
fn the_oldest_outcomes_are_evicted_if_all_together_are_too_large() {
    let remembering = Remembering::new();
    let is_kept = |key: u8| remembering.requests.outcome(TABLE, [key; 16]).is_some();
    let fit = u8::try_from(OUTCOMES_BYTES_MAX / OUTCOME_BYTES_MAX).expect("a small number");
    for key in 0..fit + 2 {
        remembering.remember_bytes(key, OUTCOME_BYTES_MAX);
    }
    let evicted: Vec<u8> = (0..fit + 2).filter(|key| !is_kept(*key)).collect();
    assert_eq!(evicted, [0, 1]);
    // The bytes of an outcome that is replaced are free again.
    remembering.remember_bytes(fit + 1, 1);
    remembering.remember_bytes(fit + 2, OUTCOME_BYTES_MAX - 1);
    assert!((2..fit + 3).all(is_kept));
}

#[test]
fn outcomes_of_earlier_builds_are_read_and_later_formats_are_refused() {
    let remembering = Remembering::new();
    remembering.write_row(1, br#"{"format":1,"at":5,"outcome":[111,108,100]}"#);
    assert_eq!(remembering.stored(), [(1, "old".to_owned())]);
    remembering.write_row(2, br#"{"format":3,"at":5,"outcome":[]}"#);
    let refused = Requests::default().load(&remembering.backend, TABLE);
    let reason = refused.expect_err("a later format").to_string();
    assert!(reason.contains("format 3 is not supported"), "{reason}");
}

#[test]
fn a_row_has_the_members_that_earlier_builds_need_to_refuse_it() {
    let row = serde_json::to_string(&StoredOutcome::new(5, b"new")).expect("a row");
    assert_eq!(row, r#"{"format":2,"at":5,"outcome":[],"base64":"bmV3"}"#);
}

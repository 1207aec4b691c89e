//! Rules of journals: replay after a restart, fencing of old epochs, closed epochs, freed entries, isolation of shards,
//! limits.
//!
//! Every backend must replay each acknowledged entry until `forget` frees it or `close_epoch` excludes it.

use tideline_model::Durability;

use super::*;
use crate::error::{BackendError, ErrorKind};

pub(super) const RULES: &[Rule] = &[
    (
        "appended entries are replayed, also after a restart",
        entries_are_replayed,
    ),
    (
        "replay starts anywhere and stops at an error",
        replay_starts_and_stops,
    ),
    ("a lower epoch can append nothing", stale_epochs_are_fenced),
    (
        "a closed epoch ends where it was closed, for ever",
        closed_epochs_never_change,
    ),
    (
        "forget frees from the front; cut changes no result",
        forget_frees_from_the_front,
    ),
    (
        "kept entries are read after they were forgotten, until they are freed",
        history_keeps_forgotten_entries,
    ),
    ("shards are isolated", shards_are_apart),
    ("sequences rise and entries have a limit", entries_are_checked),
];

fn append(backend: &dyn Backend, epoch: Epoch, sequences: std::ops::Range<u64>) {
    let entries: Vec<_> = sequences.map(|n| entry(n, &value(n))).collect();
    backend
        .append(SHARD, epoch, &entries, Durability::Synced)
        .expect("append");
}

fn value(sequence: u64) -> Vec<u8> {
    vec![sequence as u8; (sequence % 1_000) as usize]
}

fn replay(backend: &dyn Backend, epoch: Epoch, from: u64) -> Vec<u64> {
    let mut seen = Vec::new();
    backend
        .replay(SHARD, epoch, SequenceNumber(from), &mut |sequence, bytes| {
            assert_eq!(bytes, value(sequence.0), "the value of entry {sequence}");
            seen.push(sequence.0);
            Ok(())
        })
        .expect("replay");
    seen
}

fn held(backend: &dyn Backend) -> Vec<(u64, Option<u64>)> {
    let epochs = backend.epochs(SHARD).expect("epochs");
    epochs
        .into_iter()
        .map(|held| (held.epoch.0, held.end.map(|end| end.0)))
        .collect()
}

fn entries_are_replayed(fixture: &dyn Fixture) {
    let backend = fixture.open();
    let first = backend.take(SHARD).expect("take").epoch;
    assert_eq!(held(&*backend), []);
    assert_eq!(replay(&*backend, first, 0), []);
    append(&*backend, first, 1..4);
    append(&*backend, first, 10..12);
    backend
        .append(SHARD, first, &[], Durability::Synced)
        .expect("an empty append");
    backend
        .append(SHARD, first, &[entry(20, &value(20))], Durability::Buffered)
        .expect("a buffered append");
    backend.sync_journal(SHARD, first).expect("sync");
    assert_eq!(replay(&*backend, first, 0), [1, 2, 3, 10, 11, 20]);

    let backend = reopen(fixture, backend);
    assert_eq!(replay(&*backend, first, 0), [1, 2, 3, 10, 11, 20]);
    let second = backend.take(SHARD).expect("take").epoch;
    assert!(second > first, "an epoch rises across restarts");
    append(&*backend, second, 12..14);
    assert_eq!(held(&*backend), [(first.0, None), (second.0, None)]);

    let backend = reopen(fixture, backend);
    assert_eq!(replay(&*backend, first, 0), [1, 2, 3, 10, 11, 20]);
    assert_eq!(replay(&*backend, second, 0), [12, 13]);
}

fn replay_starts_and_stops(fixture: &dyn Fixture) {
    let backend = fixture.open();
    let epoch = backend.take(SHARD).expect("take").epoch;
    append(&*backend, epoch, 5..10);
    append(&*backend, epoch, 20..22);
    assert_eq!(replay(&*backend, epoch, 8), [8, 9, 20, 21]);
    assert_eq!(replay(&*backend, epoch, 10), [20, 21]);
    assert_eq!(replay(&*backend, epoch, 22), []);
    let mut seen = 0;
    let answer = backend.replay(SHARD, epoch, SequenceNumber(0), &mut |sequence, _| {
        seen += 1;
        if sequence.0 == 7 {
            return Err(BackendError::corrupt("the visitor stops"));
        }
        Ok(())
    });
    assert_eq!(
        answer.expect_err("the visitor's error").kind(),
        ErrorKind::Corrupt
    );
    assert_eq!(seen, 3);
}

fn stale_epochs_are_fenced(fixture: &dyn Fixture) {
    let backend = fixture.open();
    let stale = backend.take(SHARD).expect("take").epoch;
    append(&*backend, stale, 1..3);
    let lease = backend.renew(SHARD, stale).expect("the owner renews");
    assert_eq!(lease.epoch, stale, "a renewal keeps the epoch");
    assert!(lease.stamp_min <= lease.stamp_max, "it covers stamps");
    let later = backend.renew(SHARD, stale).expect("the owner renews");
    assert_eq!(later.stamp_min, lease.stamp_min);
    assert!(
        later.stamp_max >= lease.stamp_max,
        "a renewal never removes stamps"
    );
    let owner = backend.take(SHARD).expect("take").epoch;
    assert!(owner > stale);
    let appended = backend.append(SHARD, stale, &[entry(3, b"")], Durability::Synced);
    assert_eq!(appended.expect_err("fenced").kind(), ErrorKind::Refused);
    let renewed = backend.renew(SHARD, stale);
    assert_eq!(renewed.expect_err("fenced").kind(), ErrorKind::Refused);
    let future = backend.append(SHARD, Epoch(owner.0 + 1), &[entry(3, b"")], Durability::Synced);
    assert_eq!(future.expect_err("never taken").kind(), ErrorKind::Refused);
    assert_eq!(replay(&*backend, stale, 0), [1, 2]);
    append(&*backend, owner, 3..4);
    backend.renew(SHARD, owner).expect("the owner renews");
}

fn closed_epochs_never_change(fixture: &dyn Fixture) {
    let backend = fixture.open();
    let old = backend.take(SHARD).expect("take").epoch;
    append(&*backend, old, 1..6);
    let early = backend.close_epoch(SHARD, old, SequenceNumber(6));
    assert_eq!(
        early.expect_err("still owned").kind(),
        ErrorKind::Refused,
        "the owner's own epoch cannot be closed"
    );
    let owner = backend.take(SHARD).expect("take").epoch;
    for _ in 0..2 {
        backend
            .close_epoch(SHARD, old, SequenceNumber(4))
            .expect("close the epoch");
    }
    let moved = backend.close_epoch(SHARD, old, SequenceNumber(5));
    assert_eq!(moved.expect_err("closed already").kind(), ErrorKind::Refused);
    append(&*backend, owner, 4..6);
    let check = |backend: &dyn Backend| {
        assert_eq!(held(backend), [(old.0, Some(4)), (owner.0, None)]);
        assert_eq!(replay(backend, old, 0), [1, 2, 3]);
        assert_eq!(replay(backend, owner, 0), [4, 5]);
    };
    check(&*backend);
    check(&*reopen(fixture, backend));
}

fn forget_frees_from_the_front(fixture: &dyn Fixture) {
    let backend = fixture.open();
    let old = backend.take(SHARD).expect("take").epoch;
    append(&*backend, old, 1..300);
    let owner = backend.take(SHARD).expect("take").epoch;
    for start in [300, 600, 900] {
        backend.cut(SHARD, owner, SequenceNumber(start)).expect("cut");
        append(&*backend, owner, start..start + 300);
    }
    assert_eq!(replay(&*backend, owner, 0), (300..1_200).collect::<Vec<_>>());

    backend.forget(SHARD, owner, SequenceNumber(600)).expect("forget");
    let check = |backend: &dyn Backend| {
        let left = replay(backend, owner, 0);
        assert!(left.ends_with(&(600..1_200).collect::<Vec<_>>()));
        assert_eq!(replay(backend, owner, 600), (600..1_200).collect::<Vec<_>>());
    };
    check(&*backend);
    let backend = reopen(fixture, backend);
    check(&*backend);

    let next = backend.take(SHARD).expect("take").epoch;
    backend
        .close_epoch(SHARD, owner, SequenceNumber(1_200))
        .expect("close the epoch");
    backend
        .forget(SHARD, next, SequenceNumber(2_048))
        .expect("forget");
    assert_eq!(held(&*backend), [], "nothing is left");
    let backend = reopen(fixture, backend);
    assert_eq!(held(&*backend), []);
    assert_eq!(replay(&*backend, old, 0), []);
    let last = backend.take(SHARD).expect("take").epoch;
    append(&*backend, last, 2_048..2_050);
    assert_eq!(replay(&*backend, last, 0), [2_048, 2_049]);
}

/// Reads the whole history in pages of a few entries. Returns the first complete position, and the sequences.
fn history(backend: &dyn Backend, from: u64) -> (u64, Vec<u64>) {
    let first = backend
        .read_history(SHARD, SequenceNumber(from), 1)
        .expect("read")
        .from;
    let mut seen = Vec::new();
    let mut next = first;
    loop {
        let page = backend.read_history(SHARD, next, 4_000).expect("read");
        assert_eq!((page.from, page.is_damaged), (next, false));
        for entry in &page.entries {
            assert!(entry.sequence >= next, "sequences increase");
            assert_eq!(entry.value, value(entry.sequence.0), "entry {}", entry.sequence);
            next = SequenceNumber(entry.sequence.0 + 1);
            seen.push(entry.sequence.0);
        }
        assert_eq!(page.next, next);
        if page.entries.is_empty() {
            return (first.0, seen);
        }
    }
}

fn history_keeps_forgotten_entries(fixture: &dyn Fixture) {
    let backend = fixture.open();
    let old = backend.take(SHARD).expect("take").epoch;
    append(&*backend, old, 0..256);
    let keep = |backend: &dyn Backend, epoch, from: Option<u64>| {
        backend
            .keep_history(SHARD, epoch, from.map(SequenceNumber))
            .expect("keep");
    };
    assert_eq!(backend.history(SHARD).expect("history"), History::default());
    keep(&*backend, old, Some(256));
    for start in [256, 512, 768] {
        backend.cut(SHARD, old, SequenceNumber(start)).expect("cut");
        append(&*backend, old, start..start + 256);
    }
    let all: Vec<u64> = (256..1_024).collect();
    assert_eq!(history(&*backend, 0), (256, all.clone()));
    backend.forget(SHARD, old, SequenceNumber(768)).expect("forget");
    assert!(replay(&*backend, old, 0).starts_with(&[768]), "replays are short");
    assert_eq!(history(&*backend, 256), (256, all.clone()));

    // The setting survives a restart, and entries of several epochs are one sequence.
    let backend = reopen(fixture, backend);
    let owner = backend.take(SHARD).expect("take").epoch;
    backend
        .close_epoch(SHARD, old, SequenceNumber(1_024))
        .expect("close the epoch");
    let stale = backend.keep_history(SHARD, old, None).expect_err("another owner");
    assert_eq!(stale.kind(), ErrorKind::Refused);
    append(&*backend, owner, 2_048..2_304);
    backend.cut(SHARD, owner, SequenceNumber(2_304)).expect("cut");
    append(&*backend, owner, 2_304..2_310);
    backend
        .forget(SHARD, owner, SequenceNumber(2_304))
        .expect("forget");
    let all: Vec<u64> = (256..1_024).chain(2_048..2_310).collect();
    assert_eq!(history(&*backend, 300).1, all[44..]);
    let kept = backend.history(SHARD).expect("history");
    assert_eq!(kept.from, Some(SequenceNumber(256)));
    assert_eq!(kept.units.last().map(|unit| unit.last.0), Some(2_303));

    // Freed entries are reported as missing.
    keep(&*backend, owner, Some(768));
    assert_eq!(history(&*backend, 300), (768, all[512..].to_vec()));
    keep(&*backend, owner, Some(100));
    assert_eq!(history(&*backend, 300).0, 768, "nothing comes back");
    let backend = reopen(fixture, backend);
    assert_eq!(history(&*backend, 300), (768, all[512..].to_vec()));
    let owner = backend.take(SHARD).expect("take").epoch;
    keep(&*backend, owner, None);
    assert_eq!(backend.history(SHARD).expect("history"), History::default());
}

fn shards_are_apart(fixture: &dyn Fixture) {
    let backend = fixture.open();
    let shards = [Shard(0), Shard(1), Shard(u16::MAX)];
    let epochs = shards.map(|shard| {
        let epoch = backend.take(shard).expect("take").epoch;
        let entries = [entry(u64::from(shard.0) + 1, b"")];
        backend
            .append(shard, epoch, &entries, Durability::Synced)
            .expect("append");
        epoch
    });
    for (shard, epoch) in shards.into_iter().zip(epochs) {
        let mut seen = Vec::new();
        backend
            .replay(shard, epoch, SequenceNumber(0), &mut |sequence, _| {
                seen.push(sequence.0);
                Ok(())
            })
            .expect("replay");
        assert_eq!(seen, [u64::from(shard.0) + 1]);
    }
}

fn entries_are_checked(fixture: &dyn Fixture) {
    let backend = fixture.open();
    let epoch = backend.take(SHARD).expect("take").epoch;
    append(&*backend, epoch, 1..3);
    let refuse = |entries: &[JournalEntry]| {
        let answer = backend.append(SHARD, epoch, entries, Durability::Synced);
        answer.expect_err("wrong entries").kind()
    };
    assert_eq!(refuse(&[entry(2, b"")]), ErrorKind::Refused);
    assert_eq!(refuse(&[entry(5, b""), entry(5, b"")]), ErrorKind::Refused);
    let large = vec![0; VALUE_BYTES_MAX + 1];
    assert_eq!(refuse(&[entry(5, &large)]), ErrorKind::TooLarge);
    assert_eq!(replay(&*backend, epoch, 0), [1, 2]);
    append(&*backend, epoch, 3..4);
}

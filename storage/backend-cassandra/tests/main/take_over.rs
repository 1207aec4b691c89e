//! Leases: which process owns the shard, and what a process that has lost the shard can still change.
//!
//! Rows that a former owner sends late are written with the driver, under the keys that it would use.

use std::time::{Duration, Instant};

use tideline_backend::{Backend, EditOutcome, Epoch, ErrorKind, ManifestChange, ManifestKind, ManifestRow};
use tideline_model::{Durability, SequenceNumber};
use tideline_testkit::cassandra::shared_node;
use tideline_testkit::wait;

use crate::keyspace::{Keyspace, SHARD, append, entries, entry, history, recover, replayed, take_when_free};

pub(crate) fn change(name: &str) -> [ManifestChange; 1] {
    [ManifestChange::Put(ManifestRow {
        kind: ManifestKind::Job,
        name: name.to_owned().into(),
        detail: "detail".into(),
    })]
}

#[test]
fn an_owner_keeps_the_shard_until_it_is_silent() {
    let Some(contact) = shared_node() else { return };
    let keyspace = Keyspace::new(contact);
    let lease = keyspace.0.options.lease;
    let (old, new) = (keyspace.open(), keyspace.open());
    let mut held = old.take(SHARD).expect("the shard is free");

    // The owner renews its lease, so another process cannot take the shard.
    let begun = Instant::now();
    let mut renewed = begun;
    while begun.elapsed() < 3 * lease {
        renewed = Instant::now();
        held = old.renew(SHARD, held.epoch).expect("the owner renews");
        let refused = new.take(SHARD).expect_err("the owner is alive");
        assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
        wait::pause(lease / 8);
    }
    let owner = new.owner(SHARD).expect("a read").expect("an owner");
    assert_eq!((owner.epoch, owner.is_dead), (held.epoch, false));

    // The owner stops renewing: the other process takes the shard, but not before the lease has expired.
    let next = take_when_free(&new);
    let silent_for = renewed.elapsed();
    assert!(silent_for >= lease + lease / 4, "taken after {silent_for:?}");
    assert!(next.epoch > held.epoch);
    assert!(
        next.stamp_min > held.stamp_max,
        "stamps of owners do not overlap: {next:?} after {held:?}"
    );

    // The former owner can no longer change anything.
    let edited = old
        .edit(SHARD, held.epoch, 0, &change("stale"))
        .expect("an outcome");
    let expected = EditOutcome::Refused {
        epoch: next.epoch,
        version: 0,
    };
    assert_eq!(edited, expected);
    let renewed = old.renew(SHARD, held.epoch).expect_err("it was declared dead");
    assert_eq!(renewed.kind(), ErrorKind::Refused, "{renewed}");
    let appended = old.append(SHARD, held.epoch, &[entry(1, "stale")], Durability::Synced);
    let appended = appended.expect_err("the renewal was refused");
    assert_eq!(appended.kind(), ErrorKind::Refused, "{appended}");
    let edited = new
        .edit(SHARD, next.epoch, 0, &change("own"))
        .expect("an outcome");
    assert_eq!(edited, EditOutcome::Applied { version: 1 });
    assert_eq!(new.manifest(SHARD).expect("a manifest").rows.len(), 1);
}

/// Serial reads count as conditional requests, because they contend with those of the owner.
#[test]
fn a_process_that_waits_sends_no_conditional_requests() {
    let Some(contact) = shared_node() else { return };
    let mut keyspace = Keyspace::new(contact);
    keyspace.0.options.lease = Duration::from_secs(3_600);
    let (old, new) = (keyspace.open(), keyspace.open());
    let epoch = old.take(SHARD).expect("the shard is free").epoch;
    let conditional = || {
        let all = new.requests();
        let counts = all.iter().find(|counts| counts.kind == "conditional");
        counts.map(|counts| counts.done)
    };
    for _ in 0..3 {
        let owner = new.owner(SHARD).expect("a read").expect("an owner");
        assert_eq!((owner.epoch, owner.is_dead), (epoch, false));
        let refused = new.take(SHARD).expect_err("the owner is alive");
        assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
    }
    assert_eq!(conditional(), Some(0));
    old.close().expect("it closes");
    assert!(new.owner(SHARD).expect("a read").expect("an owner").is_dead);
    new.take(SHARD).expect("the former owner has closed");
    assert!(conditional() > Some(0));
}

#[test]
fn a_closed_owner_is_followed_at_once() {
    let Some(contact) = shared_node() else { return };
    let mut keyspace = Keyspace::new(contact);
    // A test that waited for the lease would not end.
    keyspace.0.options.lease = Duration::from_secs(3_600);
    let mut last: Option<(Epoch, u64)> = None;
    for is_dropped in [false, true, false] {
        let backend = keyspace.open();
        let lease = backend.take(SHARD).expect("the former owner has closed");
        let taken = (lease.epoch, lease.stamp_min.0);
        assert!(
            last.is_none_or(|last| last.0 < taken.0 && last.1 < taken.1),
            "{taken:?} after {last:?}"
        );
        last = Some((lease.epoch, lease.stamp_max.0));
        if !is_dropped {
            backend.close().expect("it closes");
            let closed = backend.renew(SHARD, lease.epoch).expect_err("closed");
            assert_eq!(closed.kind(), ErrorKind::Refused);
        }
    }
}

#[test]
fn a_shard_that_was_taken_ahead_is_opened_once_in_the_same_epoch() {
    let Some(contact) = shared_node() else { return };
    let mut keyspace = Keyspace::new(contact);
    keyspace.0.options.lease = Duration::from_secs(3_600);
    let backend = keyspace.open();
    let first = backend.take_ahead(SHARD).expect("the shard is free");
    let opened = backend.take(SHARD).expect("this process owns the shard");
    assert_eq!(opened.epoch, first);

    // As after an open that has failed.
    let again = backend.take(SHARD).expect("this process owns the shard");
    assert!(again.epoch > first);
    assert!(again.stamp_min > opened.stamp_max, "{again:?} after {opened:?}");

    let written = backend.take_ahead(SHARD).expect("this process owns the shard");
    assert!(written > again.epoch);
    append(&backend, written, 1..=2, "own");
    let next = backend.take(SHARD).expect("this process owns the shard").epoch;
    assert!(next > written, "a replay skips the entries of its own epoch");
}

#[test]
fn a_shard_that_was_taken_ahead_and_lost_is_not_opened() {
    let Some(contact) = shared_node() else { return };
    let keyspace = Keyspace::new(contact);
    let (old, new) = (keyspace.open(), keyspace.open());
    let first = old.take_ahead(SHARD).expect("the shard is free");
    let next = take_when_free(&new);
    assert!(next.epoch > first);
    let refused = old.take(SHARD).expect_err("another process owns the shard");
    assert_eq!(refused.kind(), ErrorKind::Refused, "{refused}");
    new.renew(SHARD, next.epoch).expect("it is the owner");
    let refused = old.take(SHARD).expect_err("the owner is alive");
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
}

#[test]
fn late_entries_are_ignored_by_every_replay() {
    let Some(contact) = shared_node() else { return };
    for from in [0, 9] {
        let keyspace = Keyspace::new(contact);
        let (old, new) = (keyspace.open(), keyspace.open());
        let first = old.take(SHARD).expect("the shard is free").epoch;
        old.keep_history(SHARD, first, Some(SequenceNumber(0)))
            .expect("a history");
        append(&old, first, 1..=5, "first");
        append(&old, first, 8..=10, "first");
        let second = take_when_free(&new).epoch;
        let all = [entries(1..=5, "first"), entries(8..=10, "first")].concat();
        let expected: Vec<_> = all.iter().filter(|entry| entry.0 >= from).cloned().collect();
        assert_eq!(replayed(&new, first, from), expected);
        new.close_epoch(SHARD, first, SequenceNumber(11))
            .expect("it closes");

        // Requests of the former owner arrive late: in a hole, after the end, and in a new slot.
        append(&old, first, 11..=12, "late");
        old.cut(SHARD, first, SequenceNumber(13)).expect("a cut");
        append(&old, first, 13..=14, "late");
        for sequence in [6, 7] {
            keyspace.run(&format!(
                "INSERT INTO journal (shard, epoch, slot, sequence, value) \
                 VALUES (0, {}, 1, {sequence}, textAsBlob('late')) USING TIMESTAMP 1",
                first.0
            ));
        }
        append(&new, second, 11..=13, "second");
        let complete = [all.clone(), entries(11..=13, "second")].concat();
        assert_eq!(replayed(&new, first, 0), all, "by the new owner, from {from}");
        assert_eq!(history(&new), complete, "by the new owner, from {from}");
        assert_eq!(replayed(&keyspace.open(), first, 0), all, "by a reader");
        assert_eq!(history(&keyspace.open()), complete, "by a reader");

        new.close().expect("it closes");
        let last = keyspace.open();
        let third = last.take(SHARD).expect("the owner has closed").epoch;
        assert_eq!(recover(&last, third).expect("a recovery"), complete);
        assert_eq!(history(&last), complete);
        last.forget(SHARD, third, SequenceNumber(14)).expect("forget");
        assert_eq!(last.epochs(SHARD).expect("epochs"), []);
        assert_eq!(history(&last), complete, "kept entries");
    }
}

#[test]
fn an_epoch_without_entries_gets_none_later() {
    let Some(contact) = shared_node() else { return };
    let keyspace = Keyspace::new(contact);
    let (old, new) = (keyspace.open(), keyspace.open());
    let first = old.take(SHARD).expect("the shard is free").epoch;
    let second = take_when_free(&new).epoch;
    assert_eq!(recover(&new, second).expect("a recovery"), []);
    append(&old, first, 1..=3, "late");
    append(&new, second, 1..=2, "second");
    new.close().expect("it closes");

    let last = keyspace.open();
    let third = last.take(SHARD).expect("the owner has closed").epoch;
    assert_eq!(
        recover(&last, third).expect("a recovery"),
        entries(1..=2, "second")
    );
    assert_eq!(replayed(&last, first, 0), []);
    assert_eq!(history(&last), entries(1..=2, "second"));
}

#[test]
fn rows_of_ended_processes_are_removed() {
    let Some(contact) = shared_node() else { return };
    let keyspace = Keyspace::new(contact);
    let members = || {
        let rows = keyspace.run("SELECT node FROM member WHERE cluster = 0");
        rows.expect("rows").rows_num()
    };
    for _ in 0..4 {
        let backend = keyspace.open();
        backend.take(SHARD).expect("the former owner has closed");
        assert_eq!(members(), 1, "the owner is the only member");
    }
    // The row of the last owner stays until another process owns the shard: it holds the reserved stamps.
    assert_eq!(members(), 1);
}

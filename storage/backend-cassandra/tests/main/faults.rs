//! A node that is paused or killed: calls end in time, unknown outcomes are resolved, and no acknowledged write is
//! lost.
//!
//! These tests share a separate node, because the other tests of the binary need a node that keeps running.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tideline_backend::{
    Acknowledged, Backend, EditOutcome, ErrorKind, Health, Lease, Partition, Result, RowChange, Space, Stamp,
};
use tideline_backend_cassandra::CassandraBackend;
use tideline_model::{Durability, SequenceNumber};
use tideline_testkit::cassandra::{CassandraNode, CommitLog, NodeSettings};
use tideline_testkit::{Random, seed, wait};

use crate::keyspace::{Keyspace, PATIENCE, SHARD, append, entries, entry, recover, replayed, until_ok};
use crate::take_over::change;

const ROWS: Partition = Partition::space(Space(2), 0);
/// Longest time of one request, and of a call.
const REQUEST_TIMEOUT: Duration = Duration::from_millis(1_500);
const CALL_TIMEOUT: Duration = Duration::from_secs(4);
/// Time by which a call may exceed its limit on busy cores.
const TOLERANCE: Duration = Duration::from_secs(3);

/// Returns the node that the tests of this file stop. Only one test at a time uses the node.
fn node() -> Option<MutexGuard<'static, CassandraNode>> {
    static NODE: OnceLock<Option<Mutex<CassandraNode>>> = OnceLock::new();
    // With the default, a kill loses the acknowledged writes of the last 0.1 s.
    let settings = NodeSettings {
        commit_log: CommitLog::Group,
        ..NodeSettings::default()
    };
    let node = NODE.get_or_init(|| CassandraNode::start(&settings).map(Mutex::new));
    let mut node = node.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner);
    // An earlier test may have failed while the node was stopped.
    if !node.answers() {
        node.restart();
    }
    Some(node)
}

/// Creates a keyspace with short timeouts, and with a lease that does not end during a test.
fn keyspace(node: &CassandraNode) -> Keyspace {
    let mut keyspace = Keyspace::new(node.address());
    keyspace.0.options.lease = Duration::from_secs(3_600);
    keyspace.0.options.request_timeout = REQUEST_TIMEOUT;
    keyspace.0.options.call_timeout = CALL_TIMEOUT;
    keyspace
}

fn write(backend: &CassandraBackend, key: &'static str, stamp: Stamp) -> Result<()> {
    let change = RowChange {
        key: Bytes::from_static(key.as_bytes()),
        value: Some(Bytes::from_static(b"value")),
    };
    backend.write(ROWS, &[change], stamp, Durability::Synced)
}

/// Checks that a call fails with a retryable kind, and in time.
fn fails_in_time<T: std::fmt::Debug>(what: &str, call: impl FnOnce() -> Result<T>) {
    let begun = Instant::now();
    let error = call().expect_err(what);
    assert!(error.kind().is_retryable(), "{what}: {error}");
    let took = begun.elapsed();
    assert!(took < CALL_TIMEOUT + TOLERANCE, "{what} took {took:?}: {error}");
}

/// Checks all calls while the node does not answer.
fn all_calls_fail_in_time(backend: &CassandraBackend, lease: &Lease, sequence: u64) {
    let (epoch, stamp) = (lease.epoch, lease.stamp_min);
    fails_in_time("a write", || write(backend, "stopped", stamp));
    assert!(
        matches!(backend.health(), Health::Unreachable { .. }),
        "{:?}",
        backend.health()
    );
    fails_in_time("a read", || backend.get(ROWS, b"acknowledged"));
    fails_in_time("an append", || {
        backend.append(SHARD, epoch, &[entry(sequence, "stopped")], Durability::Synced)
    });
    fails_in_time("a renewal", || backend.renew(SHARD, epoch));
    fails_in_time("a manifest", || backend.manifest(SHARD));
}

#[test]
fn a_stopped_node_delays_and_loses_nothing() {
    let Some(mut node) = node() else { return };
    let keyspace = keyspace(&node);
    let backend = keyspace.open();
    let lease = backend.take(SHARD).expect("the shard is free");
    write(&backend, "acknowledged", lease.stamp_min).expect("a write");
    append(&backend, lease.epoch, 1..=3, "acknowledged");
    let edited = backend.edit(SHARD, lease.epoch, 0, &change("acknowledged"));
    assert_eq!(edited.expect("an edit"), EditOutcome::Applied { version: 1 });
    assert_eq!(backend.health(), Health::Ready);

    let mut all = entries(1..=3, "acknowledged");
    for (is_killed, sequence) in [(false, 4), (true, 5)] {
        match is_killed {
            true => node.kill(),
            false => node.pause(),
        }
        all_calls_fail_in_time(&backend, &lease, sequence);
        match is_killed {
            true => node.restart(),
            false => node.resume(),
        }
        let found = until_ok("a read", || backend.get(ROWS, b"acknowledged"));
        assert_eq!(found.as_deref(), Some(&b"value"[..]));
        assert_eq!(backend.health(), Health::Ready);
        until_ok("a renewal", || backend.renew(SHARD, lease.epoch));
        // The entry of unknown outcome is sent again, as the log does.
        until_ok("an append", || {
            backend.append(
                SHARD,
                lease.epoch,
                &[entry(sequence, "stopped")],
                Durability::Synced,
            )
        });
        all.push((sequence, "stopped".to_owned()));
        until_ok("a write", || write(&backend, "later", lease.stamp_min));
        assert_eq!(replayed(&backend, lease.epoch, 0), all);
        let manifest = until_ok("a manifest", || backend.manifest(SHARD));
        assert_eq!((manifest.version, manifest.rows.len()), (1, 1));
    }
    backend.close().expect("it closes");
    let next = keyspace.open();
    let epoch = next.take(SHARD).expect("the owner has closed").epoch;
    assert_eq!(recover(&next, epoch).expect("a recovery"), all);
}

#[test]
fn the_outcome_of_an_edit_is_found_out() {
    let Some(mut node) = node() else { return };
    let mut random = Random::new(seed("the_outcome_of_an_edit_is_found_out"));
    let keyspace = keyspace(&node);
    let backend = keyspace.open();
    let epoch = backend.take(SHARD).expect("the shard is free").epoch;
    let (mut version, mut unknown, mut made) = (0, 0, 0);
    for round in 0..6 {
        let name = format!("edit {round}");
        let delay = Duration::from_micros(random.below(30_000));
        let outcome = std::thread::scope(|scope| {
            let edit = scope.spawn(|| backend.edit(SHARD, epoch, version, &change(&name)));
            if round % 2 == 1 {
                wait::pause(delay);
            }
            node.pause();
            edit.join().expect("the thread ends")
        });
        node.resume();
        // The first answer is final.
        let manifest = until_ok("a manifest", || backend.manifest(SHARD));
        let is_made = manifest.rows.iter().any(|row| row.name == name.as_bytes());
        match outcome {
            Ok(EditOutcome::Applied { version: after }) => {
                assert_eq!((after, is_made), (version + 1, true), "round {round}");
            }
            Ok(refused) => panic!("round {round}: {refused:?}"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unknown, "round {round}: {error}");
                unknown += 1;
            }
        }
        made += u64::from(is_made);
        assert_eq!(manifest.version, version + u64::from(is_made), "round {round}");
        version = manifest.version;
    }
    eprintln!("{unknown} edits had no known outcome, {made} edits were made");
    assert!(unknown > 0, "no edit met the pause");
    // The node has had time to apply the requests that it had held back.
    wait::pause(Duration::from_secs(3));
    let manifest = keyspace.open().manifest(SHARD).expect("a manifest");
    assert_eq!((manifest.version, manifest.rows.len() as u64), (version, made));
    let edited = backend.edit(SHARD, epoch, version, &change("last"));
    assert_eq!(
        edited.expect("an edit"),
        EditOutcome::Applied { version: version + 1 }
    );
}

#[test]
fn an_edit_that_arrives_late_is_not_applied() {
    let Some(mut node) = node() else { return };
    let keyspace = keyspace(&node);
    let backend = keyspace.open();
    let epoch = backend.take(SHARD).expect("the shard is free").epoch;
    node.pause();
    let outcome = backend.edit(SHARD, epoch, 0, &change("late"));
    assert_eq!(outcome.expect_err("no answer").kind(), ErrorKind::Unknown);
    node.resume();
    let manifest = until_ok("a manifest", || backend.manifest(SHARD));
    // The statements of the edit arrive once more.
    keyspace.run(&format!(
        "BEGIN BATCH \
         UPDATE shard SET version = {} WHERE shard = 0 IF epoch = {} AND version = {} AND fence = 0; \
         INSERT INTO shard (shard, kind, name, detail) VALUES (0, 5, textAsBlob('late'), textAsBlob('late')); \
         APPLY BATCH",
        manifest.version + 1,
        epoch.0,
        manifest.version
    ));
    assert_eq!(backend.manifest(SHARD).expect("a manifest"), manifest);
}

#[test]
fn the_outcome_of_a_take_is_found_out() {
    let Some(mut node) = node() else { return };
    let mut random = Random::new(seed("the_outcome_of_a_take_is_found_out"));
    let keyspace = keyspace(&node);
    let backend = keyspace.open();
    let mut last = 0;
    for round in 0..4 {
        let delay = Duration::from_micros(random.below(60_000));
        let outcome = std::thread::scope(|scope| {
            let take = scope.spawn(|| backend.take(SHARD));
            if round > 0 {
                wait::pause(delay);
            }
            node.pause();
            take.join().expect("the thread ends")
        });
        node.resume();
        if let Err(error) = &outcome {
            assert!(error.kind().is_retryable(), "round {round}: {error}");
        }
        let lease = match outcome {
            Ok(lease) => lease,
            Err(_) => until_ok("a take", || backend.take(SHARD)),
        };
        assert!(
            lease.epoch.0 > last,
            "round {round}: epoch {} after {last}",
            lease.epoch.0
        );
        last = lease.epoch.0;
        until_ok("a renewal", || backend.renew(SHARD, lease.epoch));
        let manifest = until_ok("a manifest", || backend.manifest(SHARD));
        assert_eq!(manifest.epoch, lease.epoch, "round {round}");
        let append = || backend.append(SHARD, lease.epoch, &[entry(last, "own")], Durability::Synced);
        until_ok("an append", append);
    }
    let end = SequenceNumber(last + 1);
    assert!(
        backend
            .close_epoch(SHARD, tideline_backend::Epoch(last), end)
            .is_err()
    );
}

#[test]
fn a_node_that_no_longer_syncs_is_noticed() {
    let Some(mut node) = node() else { return };
    let mut keyspace = keyspace(&node);
    let lenient = keyspace.open();
    keyspace.0.options.acknowledged = Acknowledged::Synced;
    let strict = keyspace.open();
    let lease = strict.take(SHARD).expect("the shard is free");
    write(&strict, "synced", lease.stamp_min).expect("a write");
    let acknowledged = || [&lenient, &strict].map(|backend| backend.capabilities().acknowledged);
    assert_eq!(acknowledged(), [Acknowledged::Synced; 2]);

    node.restart_with(CommitLog::Periodic);
    let refused = wait::until(PATIENCE, || {
        // A request ends the state in which the node is unreachable.
        strict.get(ROWS, b"synced").ok()?;
        match strict.health() {
            Health::WritesRefused { reason } => Some(reason),
            _ => None,
        }
    });
    let reason = refused.expect("the setting is read again");
    assert!(
        reason.contains("periodic") && reason.contains("cassandra.acknowledged"),
        "{reason}"
    );
    let stamp = lease.stamp_min;
    fails_in_time("a write", || write(&strict, "unsynced", stamp));
    fails_in_time("an append", || {
        strict.append(SHARD, lease.epoch, &[entry(1, "unsynced")], Durability::Synced)
    });
    fails_in_time("an edit", || {
        strict.edit(SHARD, lease.epoch, 0, &change("unsynced"))
    });
    fails_in_time("a take", || strict.take(SHARD));
    until_ok("a renewal", || strict.renew(SHARD, lease.epoch));
    let lowered = wait::until(PATIENCE, || {
        let [lenient, _] = acknowledged();
        (lenient == Acknowledged::Replicated).then_some(())
    });
    lowered.expect("the accepted durability is reported");

    node.restart_with(CommitLog::Group);
    until_ok("a write", || write(&strict, "synced again", stamp));
    let raised = wait::until(PATIENCE, || {
        (acknowledged() == [Acknowledged::Synced; 2]).then_some(())
    });
    raised.expect("the durability is reported");
}

//! Tests of a panic in a thread that the database depends on: readiness fails, and calls fail instead of waiting. Also
//! the order in which the threads end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use tideline_backend::Shard;
use tideline_engine::{ErrorKind, WriteOptions};
use tideline_runtime::Supervisor;

use crate::support::{Fixture, decode, write};

/// Time limit, many times the longest wait of a thread for its next round.
const PATIENCE: Duration = Duration::from_secs(30);

#[test]
fn a_dead_thread_turns_readiness_red_and_blocks_no_request() {
    for thread in ["committer", "sealer", "indexer"] {
        let fixture = Fixture::new();
        let supervisor = Supervisor::default();
        let is_armed = Arc::new(AtomicBool::new(false));
        let armed = Arc::clone(&is_armed);
        supervisor.on_round(move |name| {
            assert!(
                name != thread || !armed.load(Ordering::SeqCst),
                "requested by the test"
            );
        });
        let (sender, failed) = mpsc::channel();
        supervisor.on_failure(move |failure| sender.send(failure.thread).expect("the test listens"));
        let engine = fixture.open_with(|settings| settings.store.log.supervisor = supervisor);
        let table = engine.default_table().expect("the default table");
        let line = |number: i64| format!("cpu,host=h{number} v=1 {}", fixture.now() + number);
        write(&engine, &table, &line(1));
        assert!(engine.readiness().writes, "{:?}", engine.readiness());

        is_armed.store(true, Ordering::SeqCst);
        let batch = decode(&engine, &table, &line(2));
        let _either = engine.write(&table, batch, &WriteOptions::default());
        // Starts a further round of each thread: the indexer may have processed the timeline in a round that began
        // before `is_armed` was set.
        let _either = engine.seal();
        assert_eq!(failed.recv_timeout(PATIENCE), Ok(thread));
        let readiness = engine.readiness();
        assert!(!readiness.writes, "{thread}: {readiness:?}");
        let reason = format!("the {thread} thread panicked: ");
        assert!(
            readiness.reasons.iter().any(|text| text.starts_with(&reason)),
            "{readiness:?}"
        );
        let batch = decode(&engine, &table, &line(3));
        let refused = engine.write(&table, batch, &WriteOptions::default());
        let refused = refused.expect_err("nothing is committed any more");
        assert_eq!(refused.kind(), ErrorKind::Unavailable, "{thread}: {refused}");
        assert!(refused.is_retryable(), "{thread}: {refused}");
        assert!(engine.seal().is_err(), "{thread}");
        engine.close().expect("closing does not wait for it");
    }
}

#[test]
fn an_embedded_engine_closes_its_store_only_after_the_index_has_ended() {
    let fixture = Fixture::new();
    let supervisor = Supervisor::default();
    let (reached, indexing) = mpsc::channel();
    let (go_on, paused) = mpsc::channel::<()>();
    let paused = Mutex::new(paused);
    supervisor.on_round(move |name| {
        if name == "indexer" {
            // Fails when the test has ended.
            let _unheard = reached.send(());
            // Ends when the sender is dropped.
            let _dropped = paused.lock().expect("no panic").recv_timeout(PATIENCE);
        }
    });
    let engine = fixture.open_with(|settings| settings.store.log.supervisor = supervisor);
    indexing.recv_timeout(PATIENCE).expect("the indexer begins");
    thread::scope(|scope| {
        let closing = scope.spawn(|| engine.close());
        // The flush of the index waits until the index is being closed.
        engine.seal().expect_err("the index is closed");
        let manifest = engine.store().backend().manifest(Shard(0));
        assert!(manifest.is_ok(), "{manifest:?}");
        drop(go_on);
        let closed = closing.join().expect("no panic");
        closed.expect("a clean close");
    });
}

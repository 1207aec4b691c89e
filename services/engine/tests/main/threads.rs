//! Tests of a panic in a thread that the database depends on: readiness fails, and calls fail instead of waiting.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

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

//! SIGTERM under load: accepted requests are completed, the process exits within five seconds with status 0,
//! and no acknowledged point is lost.

use std::collections::BTreeSet;
use std::time::Duration;

use tideline_fleet::Random;
use tideline_tests::ledger::{Fate, MEASUREMENT, PointKey};
use tideline_tests::load::Load;
use tideline_tests::raw::RawConnection;
use tideline_tests::server::{DRAIN_LIMIT, DataFolder};
use tideline_tests::{Launch, reading, rounds, seed, wait};

#[test]
fn a_stop_under_load_loses_nothing_and_is_quick() {
    let seed = seed("drain");
    let rounds = rounds("TIDELINE_DRAINS", 3, 100);
    let mut random = Random::new(seed);
    let folder = DataFolder::new();
    let load = Load::new(seed);
    for round in 1..=rounds {
        let server = folder.start(&Launch::default());
        let writers = load.start(&server.client(), 4);
        wait::pause(Duration::from_millis(100 + random.index(400) as u64));
        let ended = server.terminate();
        let written = writers.join();
        println!("round {round}: ended in {:?}, {written:?}", ended.took);
        assert!(written.acknowledged > 0, "round {round}: there was load");
        assert!(
            ended.status.success(),
            "round {round}: {:?}\n{}",
            ended.status,
            ended.log
        );
        assert!(
            ended.took < DRAIN_LIMIT,
            "round {round}: it took {:?}",
            ended.took
        );
    }
    let server = folder.start(&Launch::default());
    let rows = reading::all(&server.client(), "default", MEASUREMENT);
    let contradictions = load.ledger().contradictions(&rows, false);
    assert!(contradictions.is_empty(), "{}", contradictions.join("\n"));
    // A request without a response must not have stored anything.
    let stored: BTreeSet<PointKey> = rows
        .iter()
        .map(|row| (row.tags.get("host").cloned().unwrap_or_default(), row.time))
        .collect();
    let silent = load.ledger().keys(Fate::Unknown);
    let swallowed: Vec<&PointKey> = silent
        .iter()
        .filter(|key| stored.contains(*key))
        .take(5)
        .collect();
    assert!(swallowed.is_empty(), "stored without a response: {swallowed:?}");
}

#[test]
fn a_request_that_has_begun_is_answered() {
    let folder = DataFolder::new();
    let server = folder.start(&Launch::default());
    let address = server.client().address();
    let mut connection = RawConnection::open(address, DRAIN_LIMIT).expect("it listens");
    let (first, second) = (
        "drain,host=a v=1 1700000000000000000\n",
        "drain,host=a v=2 1700000001000000000\n",
    );
    let head = format!(
        "POST /write HTTP/1.1\r\nhost: {address}\r\ncontent-length: {}\r\n\r\n",
        first.len() + second.len()
    );
    connection.send(head.as_bytes()).expect("it listens");
    connection.send(first.as_bytes()).expect("it listens");
    wait::pause(Duration::from_millis(50));
    let (status, ended) = std::thread::scope(|scope| {
        let ending = scope.spawn(|| server.terminate());
        wait::pause(Duration::from_millis(200));
        connection
            .send(second.as_bytes())
            .expect("a request that has begun is read");
        (connection.first_status(), ending.join().expect("it ends"))
    });
    assert_eq!(status, Some(204), "{}", ended.log);
    assert!(ended.status.success() && ended.took < DRAIN_LIMIT, "{ended:?}");
    let server = folder.start(&Launch::default());
    assert_eq!(reading::all(&server.client(), "default", "drain").len(), 2);
}

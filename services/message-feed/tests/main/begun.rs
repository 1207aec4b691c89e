//! Messages whose write has begun: their ids and their feed stay claimed until a thread has waited for the commit, even
//! if another thread has begun the write.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;
use tideline_engine::backend::memory::Character;
use tideline_engine::model::SequenceNumber;
use tideline_engine::{EngineError, ErrorKind};
use tideline_message_feed::send::{BegunSend, SendCommit, WriteTerms, begin, reads_nothing, send};
use tideline_openapi::feed::NewMessage;
use tideline_rows::{Result, RowsError};

use crate::database::{Database, fjall, key, memory, parse};

const FEED: &str = "room,name=lobby";
const SENDERS: usize = 8;
const MESSAGES: usize = 100;

fn message(id: Option<&str>) -> Vec<NewMessage> {
    match id {
        Some(id) => parse(&json!([{"id": id, "columns": {"text": "hello"}}])),
        None => parse(&json!([{"columns": {"text": "hello"}}])),
    }
}

/// Polls a commit to its end.
fn wait(mut commit: SendCommit) -> Result<Option<SequenceNumber>> {
    loop {
        match Pin::new(&mut commit).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(committed) => return committed,
            Poll::Pending => thread::yield_now(),
        }
    }
}

/// Returns databases on each backend. The folder of the second one must outlive it.
fn databases() -> (tempfile::TempDir, [Database; 2]) {
    let folder = tempfile::tempdir().expect("a folder");
    let settings = json!({"columns": [{"name": "text", "type": "string"}]});
    let opened = [memory(Character::Distributed), fjall(folder.path())];
    (folder, opened.map(|open| Database::new(open, &settings, None)))
}

#[test]
fn a_begun_message_claims_its_id_until_its_commit_ends() {
    let (_folder, databases) = databases();
    for mut database in databases {
        let (engine, table) = (database.engine(), &database.table());
        let (terms, one) = (WriteTerms::default(), message(Some("one")));
        let BegunSend { sent, commit } = begin(engine, table, &key(FEED), &one, &terms).expect("begun");
        let again = send(engine, table, &key(FEED), &one, &terms);
        assert!(
            matches!(&again, Err(RowsError::Engine(EngineError::MessageRunning(id))) if id == "one"),
            "{again:?}"
        );
        // The commit ends on another thread.
        let commit = commit.expect("it is written");
        let position = thread::spawn(move || wait(commit)).join().expect("no panic");
        assert!(position.expect("it is committed").is_some());

        let again = begin(engine, table, &key(FEED), &one, &terms).expect("begun");
        assert!(again.commit.is_none(), "nothing is written");
        assert_eq!(again.sent.messages[0].sequence, sent.messages[0].sequence);
        assert!(again.sent.messages[0].is_repeated);
        assert_eq!(database.all(FEED).len(), 1);
        database.close();
    }
}

#[test]
fn a_refused_message_releases_its_id() {
    let (_folder, databases) = databases();
    for mut database in databases {
        let (engine, table) = (database.engine(), &database.table());
        let terms = WriteTerms::default();
        let wrong: Vec<NewMessage> =
            parse(&json!([{"id": "one", "columns": {"text": "hello"}}, {"id": "one", "columns": {}}]));
        let refused = begin(engine, table, &key(FEED), &wrong, &terms).expect_err("two equal ids");
        assert!(matches!(&refused, RowsError::Engine(error) if error.kind() == ErrorKind::Invalid));
        let sent = send(engine, table, &key(FEED), &message(Some("one")), &terms).expect("it is sent");
        assert!(!sent.messages[0].is_repeated);
        database.close();
    }
}

#[test]
fn the_deletion_of_a_feed_waits_for_begun_messages() {
    let (_folder, databases) = databases();
    for mut database in databases {
        let (engine, table) = (database.engine(), &database.table());
        let (terms, name) = (WriteTerms::default(), key(FEED));
        let begun = begin(engine, table, &name, &message(None), &terms).expect("begun");
        let feed = engine.feed(table, &name).expect("it exists");
        thread::scope(|scope| {
            let deletion = scope.spawn(move || engine.delete_feed(table, feed, &|| false));
            // New messages are refused from the mark of the deletion on.
            let refused = loop {
                match send(engine, table, &name, &message(None), &terms) {
                    Ok(_) => thread::yield_now(),
                    Err(error) => break error,
                }
            };
            assert!(
                matches!(refused, RowsError::Engine(EngineError::FeedDeleting(_))),
                "{refused}"
            );
            let marked = Instant::now();
            while marked.elapsed() < Duration::from_millis(50) {
                assert!(!deletion.is_finished(), "it waits for the begun message");
                thread::yield_now();
            }
            wait(begun.commit.expect("it is written")).expect("it is committed");
            deletion.join().expect("no panic").expect("it is deleted");
        });
        let missing = engine.feed(table, &name).expect_err("it is deleted");
        assert_eq!(missing.kind(), ErrorKind::NotFound);
        database.close();
        database.check_stored();
    }
}

#[test]
fn only_messages_that_need_no_stored_state_read_nothing() {
    let (_folder, databases) = databases();
    for mut database in databases {
        let (engine, table) = (database.engine(), &database.table());
        let name = key(FEED);
        assert!(
            !reads_nothing(engine, table, &name, &message(None)),
            "the feed must be created"
        );
        let sent = send(engine, table, &name, &message(None), &WriteTerms::default()).expect("it is sent");
        assert!(reads_nothing(engine, table, &name, &message(None)));
        let by_id = key(&sent.feed.to_string());
        assert!(reads_nothing(engine, table, &by_id, &message(None)));
        assert!(!reads_nothing(engine, table, &name, &message(Some("one"))));
        database.close();
    }
}

/// Many messages are begun at the same time, and their commits end in any order. The numbers rise in the order of the
/// journal: the positions of the commits.
#[test]
fn numbers_of_begun_messages_rise_in_the_order_of_the_journal() {
    let (_folder, databases) = databases();
    for mut database in databases {
        let (engine, table) = (database.engine(), &database.table());
        engine.feed_or_new(table, &key(FEED)).expect("it is created");
        let written: Mutex<BTreeSet<(SequenceNumber, i64)>> = Mutex::default();
        thread::scope(|scope| {
            for _ in 0..SENDERS {
                scope.spawn(|| {
                    let terms = WriteTerms::default();
                    let begun: Vec<BegunSend> = (0..MESSAGES)
                        .map(|_| begin(engine, table, &key(FEED), &message(None), &terms).expect("begun"))
                        .collect();
                    for BegunSend { sent, commit } in begun.into_iter().rev() {
                        let position = wait(commit.expect("it is written")).expect("it is committed");
                        let position = position.expect("nothing is outdated");
                        let mut written = written.lock().expect("no panic");
                        written.insert((position, sent.messages[0].sequence));
                    }
                });
            }
        });
        let written = written.into_inner().expect("no panic");
        assert_eq!(written.len(), SENDERS * MESSAGES);
        let numbers: Vec<i64> = written.into_iter().map(|(_, number)| number).collect();
        assert!(numbers.is_sorted_by(|one, other| one < other));
        database.close();
    }
}

//! Feeds under concurrent requests: readers that follow a feed, equal message ids, changes of one message, and
//! deletions of the feed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use serde_json::{Value, json};
use tideline_engine::backend::memory::Character;
use tideline_engine::{Engine, EngineError, ErrorKind, WideTable};
use tideline_message_feed::MessageEncoder;
use tideline_message_feed::change::{self, Target};
use tideline_message_feed::read::{ReadTerms, Room, page};
use tideline_message_feed::send::{SentMessage, WriteTerms, send};
use tideline_openapi::feed::{EditMessage, NewMessage};
use tideline_rows::RowsError;
use tideline_testkit::{Random, rounds, seed};

use crate::database::{Database, fjall, key, memory, on_behalf_of, parse, values};

const FEED: &str = "room,name=lobby";
const WRITERS: u64 = 6;
const READERS: usize = 3;

/// Reduces the number of running threads when it is dropped, even by a panic, so that no other thread waits forever.
pub(crate) struct Ended<'a>(pub(crate) &'a AtomicUsize);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Returns databases on each backend. The folder of the second one must outlive it.
fn databases() -> (tempfile::TempDir, [Database; 2]) {
    let folder = tempfile::tempdir().expect("a folder");
    let settings = json!({"columns": [{"name": "text", "type": "string"}]});
    let opened = [memory(Character::Distributed), fjall(folder.path())];
    (folder, opened.map(|open| Database::new(open, &settings, None)))
}

/// Sends messages, and repeats the request while another one writes one of the message ids.
fn send_until_taken(
    engine: &Engine,
    table: &std::sync::Arc<WideTable>,
    messages: &Value,
) -> Vec<SentMessage> {
    let messages: Vec<NewMessage> = parse(messages);
    loop {
        match send(engine, table, &key(FEED), &messages, &WriteTerms::default()) {
            Ok(sent) => return sent.messages,
            Err(RowsError::Engine(EngineError::MessageRunning(_))) => thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    }
}

/// Reads a feed by its cursor until `is_written` returns true and the feed has no more messages.
fn follow(
    engine: &Engine,
    table: &std::sync::Arc<WideTable>,
    limit: usize,
    is_written: &dyn Fn() -> bool,
) -> Vec<Value> {
    let feed = engine.feed(table, &key(FEED)).expect("it exists");
    let mut terms = ReadTerms {
        has_events: true,
        ..ReadTerms::default()
    };
    let mut found = Vec::new();
    loop {
        let is_last = is_written();
        let read = page(
            engine,
            table,
            (feed, &terms),
            &MessageEncoder::default(),
            (limit, &mut Room::default()),
            &|| false,
        );
        let read = read.expect("a page");
        terms.after = read.next;
        let is_empty = read.messages.is_empty();
        found.extend(values(&read.messages));
        match (is_empty, is_last) {
            (true, true) => return found,
            (true, false) => thread::yield_now(),
            (false, _) => {}
        }
    }
}

fn sequence_of(message: &Value) -> i64 {
    let sequence = message["sequence"].as_str().expect("a text");
    sequence.parse().expect("a number")
}

#[test]
fn followers_see_every_message_once_in_order_and_equal_ids_give_one_message() {
    let seed = seed("followers_see_every_message_once_in_order_and_equal_ids_give_one_message");
    let requests = rounds("TIDELINE_FEED_REQUESTS", 120, 1_000);
    let (_folder, databases) = databases();
    for mut database in databases {
        let (engine, table) = (database.engine(), &database.table());
        engine.feed_or_new(table, &key(FEED)).expect("it is created");
        let sent: Mutex<BTreeMap<i64, Option<String>>> = Mutex::default();
        let ids: Mutex<BTreeMap<String, i64>> = Mutex::default();
        let repeated = AtomicUsize::new(0);
        let running = AtomicUsize::new(WRITERS as usize);
        let write = |number: u64| {
            let _ended = Ended(&running);
            let mut random = Random::new(seed.wrapping_add(number));
            for request in 0..requests {
                let mut used = BTreeSet::new();
                let messages: Vec<Value> = (0..1 + random.below(4))
                    .map(|part| {
                        // All writers choose ids of a small range that moves slowly, so equal ids meet.
                        let id = format!("id-{}", request / 2 + random.below(4) as usize);
                        let mut message = json!({"columns": {"text": format!("{number} {request} {part}")}});
                        if random.is(60) && used.insert(id.clone()) {
                            message["id"] = json!(id);
                        }
                        message
                    })
                    .collect();
                let outcomes = send_until_taken(engine, table, &json!(messages));
                let numbers: Vec<i64> = outcomes
                    .iter()
                    .filter(|outcome| !outcome.is_repeated)
                    .map(|outcome| outcome.sequence)
                    .collect();
                assert!(numbers.is_sorted_by(|one, other| one < other), "{numbers:?}");
                for (message, outcome) in messages.iter().zip(outcomes) {
                    let id = message["id"].as_str().map(str::to_owned);
                    if let Some(id) = id.clone() {
                        let first = *ids
                            .lock()
                            .expect("no panic")
                            .entry(id)
                            .or_insert(outcome.sequence);
                        assert_eq!(first, outcome.sequence, "equal ids give one message");
                    }
                    match outcome.is_repeated {
                        true => drop(repeated.fetch_add(1, Ordering::Relaxed)),
                        false => {
                            let other = sent.lock().expect("no panic").insert(outcome.sequence, id);
                            assert_eq!(other, None, "each message has a number of its own");
                        }
                    }
                }
            }
        };
        let is_written = || running.load(Ordering::SeqCst) == 0;
        let followed = thread::scope(|scope| {
            let readers: Vec<_> = [1, 7, 1_000][..READERS]
                .iter()
                .map(|limit| scope.spawn(move || follow(engine, table, *limit, &is_written)))
                .collect();
            for number in 0..WRITERS {
                let write = &write;
                scope.spawn(move || write(number));
            }
            // Flushes while messages are written and read.
            while !is_written() {
                engine.seal().expect("it is flushed");
            }
            let followed = readers.into_iter().map(|reader| reader.join().expect("no panic"));
            followed.collect::<Vec<_>>()
        });
        let sent = sent.into_inner().expect("no panic");
        assert!(repeated.into_inner() > 0, "seed {seed}: no id was repeated");
        for messages in followed {
            let found: Vec<(i64, Option<String>)> = messages
                .iter()
                .map(|message| (sequence_of(message), message["id"].as_str().map(str::to_owned)))
                .collect();
            // The numbers of the map rise strictly.
            assert_eq!(found, sent.clone().into_iter().collect::<Vec<_>>(), "seed {seed}");
        }
        database.reopen();
        assert_eq!(
            follow(database.engine(), &database.table(), 1_000, &|| true).len(),
            sent.len()
        );
        database.close();
    }
}

#[test]
fn concurrent_changes_of_a_message_lose_nothing() {
    let rounds = rounds("TIDELINE_FEED_REQUESTS", 40, 400) as i64;
    let (_folder, databases) = databases();
    for mut database in databases {
        let sequence = database.send_one(
            FEED,
            &json!({"id": "one", "sender": "ann", "columns": {"text": "0"}}),
        );
        let (engine, table) = (database.engine(), &database.table());
        let feed = key(FEED);
        let target = Target {
            feed: &feed,
            sequence,
            event: None,
        };
        let edits: Mutex<BTreeMap<i64, String>> = Mutex::default();
        thread::scope(|scope| {
            for number in 0..4 {
                let edits = &edits;
                scope.spawn(move || {
                    for round in 0..rounds {
                        let text = format!("{number} {round}");
                        let edit: EditMessage = parse(&json!({"columns": {"text": text}}));
                        let edited = change::edit(engine, table, target, &edit, &on_behalf_of(None));
                        let event = edited.expect("it is edited");
                        edits.lock().expect("no panic").insert(event, text);
                        let add = BTreeMap::from([("like".to_owned(), 1), (format!("by {number}"), 2)]);
                        let counted = change::count(engine, table, target, &add, &on_behalf_of(None));
                        assert!(counted.expect("it is counted")["like"] > round);
                    }
                });
            }
        });
        let edits = edits.into_inner().expect("no panic");
        let all = database.all(FEED);
        let (message, events) = all.split_first().expect("the message");
        // Each edit has its event, and the message has the text of the last one.
        let found: Vec<(i64, String)> = events
            .iter()
            .map(|event| {
                assert_eq!(
                    (&event["event"], &event["target"]),
                    (&json!("edit"), &json!(sequence.to_string()))
                );
                (
                    sequence_of(event),
                    event["columns"]["text"].as_str().expect("a text").to_owned(),
                )
            })
            .collect();
        assert_eq!(found, edits.clone().into_iter().collect::<Vec<_>>());
        assert_eq!(
            message["columns"]["text"].as_str(),
            edits.values().next_back().map(String::as_str)
        );
        let mut counters = json!({"like": 4 * rounds});
        for number in 0..4 {
            counters[format!("by {number}")] = json!(2 * rounds);
        }
        assert_eq!(message["counters"], counters);

        // Of several recalls and deletions of one message, one of each kind has an event.
        let recalled: Vec<Option<i64>> = thread::scope(|scope| {
            let recalls: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| change::recall(engine, table, target, &on_behalf_of(None))))
                .collect();
            let ended = recalls.into_iter().map(|recall| recall.join().expect("no panic"));
            ended.map(|recall| recall.expect("it is recalled")).collect()
        });
        assert_eq!(recalled.iter().flatten().count(), 1, "{recalled:?}");
        let deleted: Vec<bool> = thread::scope(|scope| {
            let deletes: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| change::delete(engine, table, target, &on_behalf_of(None))))
                .collect();
            let ended = deletes.into_iter().map(|delete| delete.join().expect("no panic"));
            ended
                .map(|delete| match delete {
                    Ok(_) => true,
                    Err(RowsError::Engine(EngineError::NoSuchMessage { .. })) => false,
                    Err(error) => panic!("{error}"),
                })
                .collect()
        });
        assert_eq!(deleted.iter().filter(|is_done| **is_done).count(), 1);
        let events = database.all(FEED);
        let kinds = events
            .iter()
            .map(|event| event["event"].as_str().unwrap_or_default());
        let kinds: Vec<&str> = kinds.filter(|kind| *kind != "edit").collect();
        assert_eq!(kinds, ["recall", "delete"]);
        database.close();
    }
}

#[test]
fn a_deletion_of_a_feed_removes_all_earlier_messages_and_no_later_one() {
    let deletions = rounds("TIDELINE_FEED_DELETIONS", 12, 100);
    let (_folder, databases) = databases();
    for mut database in databases {
        let (engine, table) = (database.engine(), &database.table());
        engine.feed_or_new(table, &key(FEED)).expect("it is created");
        // Acknowledged messages, with the number of deletions that had ended before the request.
        let sent: Mutex<Vec<(i64, usize)>> = Mutex::default();
        let (ended, running) = (AtomicUsize::new(0), AtomicUsize::new(1));
        let mut removed = BTreeSet::new();
        thread::scope(|scope| {
            for number in 0..4 {
                let (sent, ended, running) = (&sent, &ended, &running);
                scope.spawn(move || {
                    let mut request = 0;
                    while running.load(Ordering::SeqCst) == 1 {
                        let before = ended.load(Ordering::SeqCst);
                        request += 1;
                        let id = format!("{number}-{request}");
                        let messages: Vec<NewMessage> = parse(&json!([{"id": id, "columns": {"text": id}}]));
                        match send(engine, table, &key(FEED), &messages, &WriteTerms::default()) {
                            Ok(outcome) => {
                                let mut sent = sent.lock().expect("no panic");
                                sent.push((outcome.messages[0].sequence, before));
                            }
                            Err(RowsError::Engine(EngineError::FeedDeleting(_))) => thread::yield_now(),
                            Err(error) => panic!("{error}"),
                        }
                    }
                });
            }
            let last = Ended(&running);
            for _ in 0..deletions {
                // Waits until messages follow the last deletion.
                let count = || sent.lock().expect("no panic").len();
                let (begun, last) = (std::time::Instant::now(), count());
                while count() < last + 4 {
                    assert!(begun.elapsed().as_secs() < 60, "messages are sent in time");
                    thread::yield_now();
                }
                removed = sent
                    .lock()
                    .expect("no panic")
                    .iter()
                    .map(|(number, _)| *number)
                    .collect();
                let feed = engine.feed(table, &key(FEED)).expect("it exists");
                engine.delete_feed(table, feed, &|| false).expect("it is deleted");
                ended.fetch_add(1, Ordering::SeqCst);
            }
            let begun = std::time::Instant::now();
            while !sent
                .lock()
                .expect("no panic")
                .iter()
                .any(|(_, before)| *before == deletions)
            {
                assert!(begun.elapsed().as_secs() < 60, "messages are sent in time");
                thread::yield_now();
            }
            drop(last);
        });
        let found: BTreeSet<i64> = follow(engine, table, 1_000, &|| true)
            .iter()
            .map(sequence_of)
            .collect();
        assert!(
            found.is_disjoint(&removed),
            "messages before the last deletion are gone"
        );
        let sent = sent.into_inner().expect("no panic");
        let later = sent.iter().filter(|(_, before)| *before == deletions);
        for (sequence, _) in later {
            assert!(
                found.contains(sequence),
                "message {sequence} was sent after the last deletion"
            );
        }
        let acknowledged: BTreeSet<i64> = sent.iter().map(|(number, _)| *number).collect();
        assert!(found.is_subset(&acknowledged));
        // Deletes the feed again, by its id: it does not exist afterwards.
        let feed = engine.feed(table, &key(FEED)).expect("it exists");
        engine.delete_feed(table, feed, &|| false).expect("it is deleted");
        let missing = engine.feed(table, &key(FEED)).expect_err("it is deleted");
        assert_eq!(missing.kind(), ErrorKind::NotFound);
        database.close();
        database.check_stored();
    }
}

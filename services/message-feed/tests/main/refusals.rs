//! Refused requests.
//! Each refusal names the part of the request and the limit, and writes nothing.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tideline_engine::backend::memory::Character;
use tideline_engine::feeds::FeedName;
use tideline_engine::model::TimelineId;
use tideline_engine::model::feed::RESERVED;
use tideline_engine::{EngineError, ErrorKind};
use tideline_message_feed::MessageEncoder;
use tideline_message_feed::change::{self, COUNTER_BYTES_MAX, COUNTERS_MAX, Target};
use tideline_message_feed::members::join;
use tideline_message_feed::message::NAME_BYTES_MAX;
use tideline_message_feed::read::{ReadTerms, merge, message};
use tideline_message_feed::send::{MESSAGES_MAX, send};
use tideline_openapi::feed::{EditMessage, FeedSettings, MessageOrder, NewMessage};
use tideline_rows::{Result, RowsError};

use crate::database::{Database, SECOND, key, memory, on_behalf_of, parse};

const FEED: &str = "room,name=lobby";

fn database(settings: &Value) -> Database {
    let mut settings = settings.clone();
    settings["columns"] = json!([{"name": "text", "type": "string"}, {"name": "size", "type": "i64"}]);
    Database::new(memory(Character::Embedded), &settings, None)
}

/// Returns the message of an error of an invalid request.
fn invalid<T: std::fmt::Debug>(result: Result<T>) -> String {
    match result.expect_err("it is refused") {
        RowsError::Invalid(message) => message,
        RowsError::Engine(error) if error.kind() == ErrorKind::Invalid => error.to_string(),
        error => panic!("{error:?}"),
    }
}

/// Returns the message of an error of a condition that is not met.
fn failed<T: std::fmt::Debug>(result: Result<T>) -> String {
    match result.expect_err("it is refused") {
        RowsError::ConditionFailed(message) => message,
        error => panic!("{error:?}"),
    }
}

/// Returns the limit and the actual value of an exceeded limit.
fn over<T: std::fmt::Debug>(result: Result<T>) -> (u64, u64) {
    match result.expect_err("it is refused") {
        RowsError::OverLimit { limit, actual, .. } => (limit, actual),
        error => panic!("{error:?}"),
    }
}

fn is_missing_message<T: std::fmt::Debug>(result: Result<T>) -> bool {
    let error = result.expect_err("it is refused");
    matches!(error, RowsError::Engine(EngineError::NoSuchMessage { .. }))
}

fn is_missing_feed<T: std::fmt::Debug>(result: Result<T>) -> bool {
    let error = result.expect_err("it is refused");
    matches!(error, RowsError::Engine(EngineError::NoSuchFeed { .. }))
}

impl Database {
    fn edit(&self, (sequence, event): (i64, Option<i64>), changes: &Value) -> Result<i64> {
        let changes: EditMessage = parse(changes);
        let feed = key(FEED);
        let target = Target {
            feed: &feed,
            sequence,
            event,
        };
        change::edit(
            self.engine(),
            &self.table(),
            target,
            &changes,
            &on_behalf_of(None),
        )
    }

    fn recall(&self, sequence: i64, event: Option<i64>) -> Result<Option<i64>> {
        let feed = key(FEED);
        let target = Target {
            feed: &feed,
            sequence,
            event,
        };
        change::recall(self.engine(), &self.table(), target, &on_behalf_of(None))
    }

    fn delete(&self, sequence: i64, event: Option<i64>) -> Result<i64> {
        let feed = key(FEED);
        let target = Target {
            feed: &feed,
            sequence,
            event,
        };
        change::delete(self.engine(), &self.table(), target, &on_behalf_of(None))
    }

    fn count(&self, sequence: i64, add: &[(&str, i64)]) -> Result<BTreeMap<String, i64>> {
        let add = add.iter().map(|(name, by)| ((*name).to_owned(), *by)).collect();
        let feed = key(FEED);
        let target = Target {
            feed: &feed,
            sequence,
            event: None,
        };
        change::count(self.engine(), &self.table(), target, &add, &on_behalf_of(None))
    }
}

#[test]
fn names_of_the_server_are_refused_in_messages_and_edits() {
    let mut database = database(&json!({}));
    let sequence = database.send_one(FEED, &json!({"columns": {"text": "one"}}));
    let before = database.all(FEED);
    let mut names: Vec<String> = RESERVED.map(str::to_owned).to_vec();
    names.extend(["counter.like".to_owned(), "counter.".to_owned()]);
    for name in names {
        let said = format!("column {name:?} is set by the server; use another name");
        let messages = json!([{"columns": {"text": "two"}}, {"columns": {&name: "x"}}]);
        assert_eq!(
            invalid(database.send(FEED, &messages)),
            format!("messages/1: {said}")
        );
        let edit = json!({"columns": {"text": "two", &name: "x"}});
        assert_eq!(
            invalid(database.edit((sequence, None), &edit)),
            format!("columns: {said}")
        );
        let clear = json!({"columns": {"text": "two"}, "clear": [name]});
        assert_eq!(
            invalid(database.edit((sequence, None), &clear)),
            format!("clear: {said}")
        );
    }
    for (name, bytes) in [(String::new(), 0), ("x".repeat(256), 256)] {
        let said = format!("a column name has {bytes} bytes; 1 to 255 are allowed");
        let messages = json!([{"columns": {&name: "x"}}]);
        assert_eq!(
            invalid(database.send(FEED, &messages)),
            format!("messages/0: {said}")
        );
        let clear = json!({"clear": [name]});
        assert_eq!(
            invalid(database.edit((sequence, None), &clear)),
            format!("clear: {said}")
        );
    }
    assert_eq!(database.all(FEED), before);
    database.send_one(
        FEED,
        &json!({"columns": {"x".repeat(255): "x", "counter": 1, "Feed": 2}}),
    );
    database.close();
}

#[test]
fn values_that_do_not_fit_and_versions_are_refused() {
    let mut database = database(&json!({}));
    let sequence = database.send_one(FEED, &json!({"columns": {"text": "one"}}));
    let before = database.all(FEED);
    let version = "2027-01-01T00:00:00Z";
    for (columns, said) in [
        (
            json!({"size": "many"}),
            "column \"size\" has the type i64; found the text \"many\"",
        ),
        (
            json!({"text": 5}),
            "column \"text\" has the type string; found the number 5",
        ),
        (
            json!({"text": {"value": "a", "version": version}}),
            "messages have no versions",
        ),
        (
            json!({"note": [{"value": "a", "version": version}, {"value": "b", "version": "2027-01-02T00:00:00Z"}]}),
            "messages have no versions",
        ),
        (json!({"text": []}), "found an empty list"),
        (json!({"text": null}), "found null"),
    ] {
        let refused = invalid(database.send(FEED, &json!([{}, {"columns": columns}])));
        assert!(refused.starts_with("messages/1: column "), "{refused}");
        assert!(refused.contains(said), "{refused}");
        let refused = invalid(database.edit((sequence, None), &json!({"columns": columns})));
        assert!(refused.contains(said), "{refused}");
    }
    assert_eq!(database.all(FEED), before);
    // The type of a value can be given.
    let typed = database.send_one(FEED, &json!({"columns": {"note": {"type": "u64", "value": 7}}}));
    let found = message(
        database.engine(),
        &database.table(),
        (database.id(FEED), typed),
        None,
        &MessageEncoder::default(),
    );
    assert!(
        found
            .expect("it is found")
            .contains("\"note\":{\"type\":\"u64\",\"value\":7}")
    );
    database.close();
}

#[test]
fn a_request_has_a_bounded_number_of_messages_and_lengths() {
    let mut database = database(&json!({}));
    assert_eq!(
        invalid(database.send(FEED, &json!([]))),
        "messages is empty; send at least one"
    );
    let many = vec![json!({}); MESSAGES_MAX + 1];
    assert_eq!(
        over(database.send(FEED, &json!(many))),
        (MESSAGES_MAX as u64, MESSAGES_MAX as u64 + 1)
    );
    for (length, is_accepted) in [
        (0, false),
        (1, true),
        (NAME_BYTES_MAX, true),
        (NAME_BYTES_MAX + 1, false),
    ] {
        let name = "x".repeat(length);
        let said = format!("has {length} bytes; 1 to {NAME_BYTES_MAX} are allowed");
        for (member, what) in [("id", "the id"), ("sender", "the sender")] {
            let sent = database.send(FEED, &json!([{}, {member: name}]));
            match is_accepted {
                true => drop(sent.expect("it is sent")),
                false => assert_eq!(invalid(sent), format!("messages/1: {what} {said}")),
            }
        }
        let messages: Vec<NewMessage> = parse(&json!([{}]));
        let terms = on_behalf_of(Some(&name));
        let (engine, table) = (database.engine(), database.table());
        let sent = send(engine, &table, &key(FEED), &messages, &terms);
        assert_eq!(sent.is_ok(), is_accepted);
    }
    // Refused requests wrote nothing.
    assert_eq!(database.all(FEED).len(), 10);
    database
        .send("room,name=full", &json!(vec![json!({}); MESSAGES_MAX]))
        .expect("they are sent");
    assert_eq!(database.all("room,name=full").len(), MESSAGES_MAX);
    let refused = database.send(FEED, &json!([{"id": "a"}, {"id": "b"}, {"id": "a"}]));
    assert_eq!(invalid(refused), "two messages of the request have the id \"a\"");
    assert_eq!(database.all(FEED).len(), 10);
    database.close();
}

#[test]
fn a_sequence_number_is_given_only_in_tables_with_manual_numbers() {
    let mut generated = database(&json!({}));
    let sequence = generated.send_one(FEED, &json!({}));
    let said = "sequence is given, and the server assigns the sequence numbers of table chat; omit it";
    let sent = generated.send(FEED, &json!([{}, {"sequence": "7"}]));
    assert_eq!(invalid(sent), format!("messages/1: {said}"));
    let edit = json!({"columns": {"text": "two"}});
    let said = format!("the event: {said}");
    assert_eq!(invalid(generated.edit((sequence, Some(7)), &edit)), said);
    assert_eq!(invalid(generated.recall(sequence, Some(7))), said);
    assert_eq!(invalid(generated.delete(sequence, Some(7))), said);
    assert_eq!(generated.all(FEED).len(), 1);
    generated.close();

    let mut manual = database(&json!({"sequence": "manual"}));
    manual.send_one(FEED, &json!({"sequence": -5}));
    let said = "table chat has manual sequence numbers; give a sequence";
    let sent = manual.send(FEED, &json!([{"sequence": 1}, {}]));
    assert_eq!(invalid(sent), format!("messages/1: {said}"));
    let said = format!("the event: {said}");
    assert_eq!(invalid(manual.edit((-5, None), &edit)), said);
    assert_eq!(invalid(manual.recall(-5, None)), said);
    assert_eq!(invalid(manual.delete(-5, None)), said);
    assert_eq!(manual.all(FEED).len(), 1);
    manual.close();
}

#[test]
fn the_sender_of_the_target_is_a_name_of_the_server_in_tables_with_inboxes() {
    let message = json!([{"columns": {"target_sender": "x"}}]);
    let mut plain = database(&json!({}));
    plain.send(FEED, &message).expect("it is sent");
    plain.close();
    let mut with_inboxes = database(&json!({"inboxes": {}}));
    assert_eq!(
        invalid(with_inboxes.send(FEED, &message)),
        "messages/0: column \"target_sender\" is set by the server; use another name"
    );
    with_inboxes.close();
}

#[test]
fn a_manual_number_that_exists_refuses_the_whole_batch() {
    let mut database = database(&json!({"sequence": "manual"}));
    database.send_one(FEED, &json!({"sequence": 5, "columns": {"text": "five"}}));
    let before = database.all(FEED);
    let said = |number: usize| {
        format!("messages/{number}: the feed has a message with this sequence number; nothing was written")
    };
    let refused = database.send(FEED, &json!([{"sequence": 4}, {"sequence": 5}, {"sequence": 6}]));
    assert_eq!(failed(refused), said(1));
    let refused = database.send(FEED, &json!([{"sequence": 7}, {"sequence": 7}]));
    assert_eq!(failed(refused), said(1));
    let text = json!({"columns": {"text": "other"}});
    let event = "the event: the feed has a message with this sequence number; nothing was written";
    database.send_one(FEED, &json!({"sequence": 9}));
    assert_eq!(failed(database.edit((5, Some(9)), &text)), event);
    assert_eq!(failed(database.recall(5, Some(9))), event);
    assert_eq!(failed(database.delete(5, Some(9))), event);
    // The number of the message itself is not free for its event, even if the message is deleted.
    let own = "the event: its sequence number 5 is that of the message; give another one";
    assert_eq!(failed(database.edit((5, Some(5)), &text)), own);
    assert_eq!(failed(database.recall(5, Some(5))), own);
    assert_eq!(failed(database.delete(5, Some(5))), own);
    let after = database.all(FEED);
    assert_eq!(after[..1], before);
    assert_eq!(after.len(), 2);
    // The same numbers are free in other feeds, but not after a deletion: a reader from the start would apply the event of
    // the deletion to the new message.
    database.send_one("room,name=garden", &json!({"sequence": 5}));
    assert_eq!(database.delete(5, Some(10)).expect("it is deleted"), 10);
    let refused = failed(database.send(FEED, &json!([{"sequence": 5}])));
    assert!(
        refused.contains("messages/0: the feed had a message"),
        "{refused}"
    );
    let refused = failed(database.edit((9, Some(5)), &text));
    assert!(refused.contains("the event: the feed had a message"), "{refused}");
    // The event of a deletion that precedes its message removes nothing later.
    database.send_one(FEED, &json!({"sequence": 20}));
    assert_eq!(database.delete(20, Some(13)).expect("it is deleted"), 13);
    database.send_one(FEED, &json!({"sequence": 20}));
    // A repeated message needs no free number.
    database.send_one(FEED, &json!({"sequence": 11, "id": "a"}));
    let repeated = database.send(FEED, &json!([{"sequence": 11, "id": "a"}, {"sequence": 12}]));
    let repeated = repeated.expect("it is sent").messages;
    assert!(repeated[0].is_repeated && !repeated[1].is_repeated);
    database.close();
}

/// The events of these edits need several writes, because they have the names of the removed columns.
#[test]
fn a_recall_with_a_number_that_exists_changes_no_earlier_edit() {
    let mut database = database(&json!({"sequence": "manual"}));
    for sequence in [1, 2] {
        database.send_one(FEED, &json!({"sequence": sequence, "columns": {"text": "sent"}}));
    }
    let names: Vec<String> = (0..900).map(|number| format!("{number:0>200}")).collect();
    for event in [3, 4] {
        let edit = json!({"columns": {"text": "edited"}, "clear": names});
        database.edit((1, Some(event)), &edit).expect("edited");
    }
    let refused = failed(database.recall(1, Some(2)));
    assert!(refused.contains("the feed has a message"), "{refused}");
    let texts = |database: &Database| {
        let all = database.all(FEED);
        let texts = all
            .iter()
            .filter(|message| message["columns"]["text"].is_string());
        texts.count()
    };
    assert_eq!(texts(&database), 4);
    database.recall(1, Some(5)).expect("recalled");
    assert_eq!(texts(&database), 1);
    database.close();
}

#[test]
fn unknown_feeds_and_messages_are_not_found() {
    let mut database = database(&json!({}));
    let edit = json!({"columns": {"text": "two"}});
    assert!(is_missing_feed(database.edit((1, None), &edit)));
    assert!(is_missing_feed(database.recall(1, None)));
    assert!(is_missing_feed(database.delete(1, None)));
    assert!(is_missing_feed(database.count(1, &[("like", 1)])));
    // A feed is not created by its id.
    let id = FeedName::parse("0123456789abcdef0123456789abcdef");
    let messages: Vec<NewMessage> = parse(&json!([{}]));
    let (engine, table) = (database.engine(), database.table());
    assert!(is_missing_feed(send(
        engine,
        &table,
        &id,
        &messages,
        &on_behalf_of(None)
    )));
    for name in ["", "room,", "room,name", ",name=a", "room,name=lobby extra"] {
        let refused = invalid(database.send(name, &json!([{}])));
        assert!(refused.contains("name a feed by its id"), "{name:?}: {refused}");
    }

    let sequence = database.send_one(FEED, &json!({}));
    let other = database.send_one("room,name=garden", &json!({}));
    let event = database.edit((sequence, None), &edit).expect("it is edited");
    for missing in [sequence - 1, other, event, i64::MAX, i64::MIN] {
        assert!(is_missing_message(database.edit((missing, None), &edit)));
        assert!(is_missing_message(database.recall(missing, None)));
        assert!(is_missing_message(database.delete(missing, None)));
        assert!(is_missing_message(database.count(missing, &[("like", 1)])));
    }
    assert_eq!(database.all(FEED).len(), 2);
    database.close();
}

#[test]
fn a_recalled_message_is_not_changed() {
    let mut database = database(&json!({}));
    let sequence = database.send_one(
        FEED,
        &json!({"id": "a", "sender": "ann", "columns": {"text": "one"}}),
    );
    database.count(sequence, &[("like", 2)]).expect("it is counted");
    let event = database.recall(sequence, None).expect("it is recalled");
    assert!(event.is_some_and(|event| event > sequence));
    let said = format!("message {sequence} was recalled, so it cannot be changed");
    let edit = json!({"columns": {"text": "two"}});
    assert_eq!(failed(database.edit((sequence, None), &edit)), said);
    assert_eq!(failed(database.count(sequence, &[("like", 1)])), said);
    assert_eq!(database.recall(sequence, None).expect("repeating is safe"), None);
    let all = database.all(FEED);
    assert_eq!(all.len(), 2);
    assert_eq!(
        (
            &all[0]["columns"],
            &all[0]["counters"],
            &all[0]["sender"],
            &all[0]["id"]
        ),
        (&json!({}), &json!({"like": 2}), &json!("ann"), &json!("a"))
    );
    // The message can be deleted, and its id stays known.
    database.delete(sequence, None).expect("it is deleted");
    let sent = database.send(FEED, &json!([{"id": "a"}])).expect("it is sent");
    assert_eq!(
        (sent.messages[0].sequence, sent.messages[0].is_repeated),
        (sequence, true)
    );
    database.close();
}

#[test]
fn an_edit_changes_each_column_once() {
    let mut database = database(&json!({}));
    let sequence = database.send_one(FEED, &json!({"columns": {"text": "one"}}));
    assert_eq!(
        invalid(database.edit((sequence, None), &json!({}))),
        "the edit changes nothing; give columns or clear"
    );
    for twice in [
        json!({"columns": {"text": "two"}, "clear": ["text"]}),
        json!({"clear": ["text", "text"]}),
    ] {
        assert_eq!(
            invalid(database.edit((sequence, None), &twice)),
            "column \"text\" is changed twice; name it once in columns or clear"
        );
    }
    assert_eq!(database.all(FEED).len(), 1);
    database.close();
}

#[test]
fn counters_have_limits() {
    let mut database = database(&json!({}));
    let sequence = database.send_one(FEED, &json!({}));
    assert_eq!(
        invalid(database.count(sequence, &[])),
        "add is empty; name at least one counter"
    );
    for length in [0, COUNTER_BYTES_MAX + 1] {
        assert_eq!(
            invalid(database.count(sequence, &[(&"x".repeat(length), 1)])),
            format!("the name of a counter has {length} bytes; 1 to {COUNTER_BYTES_MAX} are allowed")
        );
    }
    let long = "x".repeat(COUNTER_BYTES_MAX);
    database
        .count(sequence, &[(&long, i64::MAX)])
        .expect("it is counted");
    let refused = invalid(database.count(sequence, &[("new", 1), (&long, 1)]));
    assert!(refused.contains("counter.x"), "{refused}");

    let names: Vec<String> = (0..COUNTERS_MAX).map(|number| format!("c{number}")).collect();
    let add =
        |count: usize| -> Vec<(&str, i64)> { names[..count].iter().map(|name| (name.as_str(), 1)).collect() };
    let limit = COUNTERS_MAX as u64;
    // There is one counter already.
    assert_eq!(
        over(database.count(sequence, &add(COUNTERS_MAX))),
        (limit, limit + 1)
    );
    let counted = database.count(sequence, &add(COUNTERS_MAX - 1));
    assert_eq!(counted.expect("it is counted").len(), COUNTERS_MAX);
    assert_eq!(
        over(database.count(sequence, &[("one more", 1)])),
        (limit, limit + 1)
    );
    // The limit applies to the number of counters after the request, and known counters are not new.
    assert_eq!(
        over(database.count(sequence, &add(COUNTERS_MAX))),
        (limit, limit + 1)
    );
    let counted = database.count(sequence, &[("c1", -3), (&long, -1)]);
    let counted = counted.expect("known counters can be changed");
    assert_eq!((counted["c1"], counted[&long]), (-2, i64::MAX - 1));
    assert_eq!(database.all(FEED)[0]["counters"]["c2"], json!(1));
    database.close();
}

#[test]
fn requests_for_messages_that_do_not_exist_open_no_parts() {
    let mut database = database(&json!({"parts": {"every": "day"}}));
    database.send_one(FEED, &json!({}));
    // A table has at most 1,000 parts.
    for day in 0..1_100 {
        assert!(is_missing_message(
            database.count(day * 86_400 * SECOND, &[("like", 1)])
        ));
    }
    database.clock.advance(86_400 * SECOND);
    database.send_one(FEED, &json!({}));
    assert_eq!(database.all(FEED).len(), 2);
    database.close();
}

#[test]
fn parts_follow_only_from_generated_numbers() {
    let settings: FeedSettings = parse(&json!({"sequence": "manual", "parts": {"every": "day"}}));
    assert_eq!(
        settings.into_spec().map(drop),
        Err(
            "feed.parts: parts follow from generated sequence numbers; omit `parts`, or set `sequence` to \
             `generated`"
                .to_owned()
        )
    );
}

#[test]
fn a_refused_edit_of_a_closed_part_adds_no_inbox_entry() {
    let settings = json!({"parts": {"every": "day", "writable": "20d"}, "inboxes": {}});
    let mut database = database(&settings);
    let (engine, table) = (database.engine(), database.table());
    join(engine, &table, &key(FEED), "ann", None, &|| false).expect("a member");
    let old = database.send_one(FEED, &json!({}));
    database.clock.advance(25 * 86_400 * SECOND);
    let open = database.send_one(FEED, &json!({}));
    let text = json!({"columns": {"text": "new"}});
    invalid(database.edit((old, None), &text));
    let inbox = database.id("inbox,user=ann");
    assert_eq!(database.page(inbox, &ReadTerms::default(), 10).messages.len(), 2);
    database.edit((open, None), &text).expect("an open part");
    let terms = ReadTerms {
        has_events: true,
        ..ReadTerms::default()
    };
    assert_eq!(database.page(inbox, &terms, 10).messages.len(), 3);
    database.close();
}

#[test]
fn a_page_of_a_merge_continues_only_the_same_merge() {
    let mut database = database(&json!({}));
    for feed in [FEED, FEED, "room,name=two"] {
        database.send_one(feed, &json!({}));
    }
    let (engine, table) = (database.engine(), database.table());
    let both = [database.id(FEED), database.id("room,name=two")];
    let read = |feeds: &[TimelineId], order: MessageOrder, token: Option<&str>| {
        let terms = ReadTerms {
            order,
            ..ReadTerms::default()
        };
        let encoder = MessageEncoder::default();
        let page = (2, token);
        merge(engine, &table, feeds, &terms, &encoder, page, &|| false)
    };
    let first = read(&both, MessageOrder::Ascending, None).expect("a page");
    let token = first.next.as_deref();
    for (feeds, order) in [
        (&both[..1], MessageOrder::Ascending),
        (&both[..], MessageOrder::Descending),
    ] {
        let refused = invalid(read(feeds, order, token));
        assert!(refused.contains("belongs to another request"), "{refused}");
    }
    let second = read(&both, MessageOrder::Ascending, token).expect("a page");
    assert_eq!((second.messages.len(), second.next), (1, None));
    database.close();
}

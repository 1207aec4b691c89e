//! The job that writes messages to inboxes: which entries exist before, while and after it runs. Also the copies of
//! messages that inbox entries have, the reads that use them, and the entries of a member who leaves and joins again.

use std::cell::{Cell, RefCell};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use serde_json::{Value, json};
use tideline_engine::backend::memory::Character;
use tideline_engine::feeds::FeedName;
use tideline_engine::key_codec::tuple::KeyValue;
use tideline_engine::model::TimelineId;
use tideline_engine::model::feed::{JOINED, PULLED};
use tideline_engine::rows::{Action, CellValue, Column, Image, RowWrite, RowWriteOptions};
use tideline_message_feed::MessageEncoder;
use tideline_message_feed::change::{self, Target};
use tideline_message_feed::fan_out::{FanOutProgress, fan_out};
use tideline_message_feed::inbox::{page, sources_now};
use tideline_message_feed::members::{join, leave, member};
use tideline_message_feed::read::ReadTerms;
use tideline_message_feed::send::WriteTerms;
use tideline_openapi::feed::EditMessage;
use tideline_rows::RowsError;
use tideline_testkit::rounds;

use crate::database::{Database, SECOND, fjall, key, memory, parse, values};
use crate::threads::Ended;

const FEED: &str = "room,name=lobby";
const DAY: i64 = 86_400 * SECOND;

fn database(inboxes: &Value) -> Database {
    Database::new(memory(Character::Embedded), &json!({"inboxes": inboxes}), None)
}

fn enter(database: &Database, users: std::ops::Range<usize>, history: Option<i64>) {
    for user in users {
        let (engine, table, user) = (database.engine(), database.table(), format!("u{user}"));
        join(engine, &table, &key(FEED), &user, history, &|| false).expect("a member");
    }
}

fn exit(database: &Database, user: usize) {
    let user = format!("u{user}");
    let (engine, table) = (database.engine(), database.table());
    leave(engine, &table, database.id(FEED), &user, &|| false).expect("it leaves");
}

fn run(database: &Database) -> FanOutProgress {
    let mut step = |_: &FanOutProgress| ControlFlow::Continue(());
    fan_out(database.engine(), &database.table(), &mut step).expect("a fan-out")
}

fn sequences(messages: &[Value]) -> Vec<i64> {
    let sequence = |message: &Value| message["sequence"].as_str()?.parse().ok();
    messages
        .iter()
        .map(|message| sequence(message).expect("a number"))
        .collect()
}

/// Returns the entries that the inbox of a user has as a feed.
fn entries(database: &Database, user: usize) -> Vec<i64> {
    sequences(&database.all(&format!("inbox,user=u{user}")))
}

/// Returns the messages that the inbox of a user shows.
fn shown(database: &Database, user: usize) -> Vec<i64> {
    let terms = ReadTerms {
        has_events: true,
        ..ReadTerms::default()
    };
    let (engine, table, user) = (database.engine(), database.table(), format!("u{user}"));
    let encoder = MessageEncoder::default();
    let read = page(engine, &table, (&user, &terms), &encoder, 1_000, &|| false).expect("a page");
    assert!(!read.has_more);
    sequences(&values(&read.messages))
}

/// Returns true if the job has messages to write.
fn waits(database: &Database) -> bool {
    !database.engine().waiting_feeds(&database.table()).is_empty()
}

fn send(database: &Database, count: usize) -> Vec<i64> {
    let sent = database.send(FEED, &json!(vec![json!({}); count])).expect("sent");
    sent.messages.iter().map(|message| message.sequence).collect()
}

#[test]
fn a_large_feed_is_read_at_once_and_written_to_inboxes_later() {
    let mut database = database(&json!({"push_max": 3, "fan_out_max": 50}));
    enter(&database, 0..40, None);
    let sent = send(&database, 130);
    let some = database.send_one(FEED, &json!({"to": ["u1", "u2"], "except": ["u2"]}));
    assert!(waits(&database));
    assert_eq!(
        (entries(&database, 0), shown(&database, 0)),
        (vec![], sent.clone())
    );
    let written = run(&database);
    assert_eq!(
        (written.feeds, written.messages, written.entries, written.total),
        (1, 131, 40 * 130 + 1, 40 * 131)
    );
    assert!(!waits(&database));
    for user in 0..40 {
        let mut expected = sent.clone();
        expected.extend((user == 1).then_some(some));
        assert_eq!(entries(&database, user), expected, "user {user}");
        assert_eq!(shown(&database, user), expected, "user {user}");
    }
    // The same members see later messages in the feed again, even after a restart, which forgets the waiting messages.
    let later = send(&database, 2);
    database.reopen();
    assert!(!waits(&database));
    assert_eq!(shown(&database, 3)[130..], later);
    assert_eq!(entries(&database, 3), sent);
    assert_eq!(run(&database).entries, 80);
    assert_eq!(entries(&database, 3)[130..], later);
    // A repeated run finds nothing.
    assert_eq!(run(&database), FanOutProgress::default());
    database.close();
}

/// Sends 2,500 messages, and interrupts the join of the first user after 1,000 of them are in the inbox.
fn interrupted_join(database: &Database) -> Vec<i64> {
    let sent = [1_000, 1_000, 500].map(|count| send(database, count)).concat();
    let read = Cell::new(0);
    let is_stopped = || read.replace(read.get() + 1) >= 1_500;
    let (engine, table) = (database.engine(), database.table());
    let joined = join(engine, &table, &key(FEED), "u0", Some(i64::MIN), &is_stopped);
    assert!(matches!(joined, Err(RowsError::Cancelled)), "{joined:?}");
    assert_eq!(stored(database), sent[..1_000]);
    sent
}

/// Returns all entries that the inbox of the first user has as a feed.
fn stored(database: &Database) -> Vec<i64> {
    let mut terms = ReadTerms {
        has_events: true,
        ..ReadTerms::default()
    };
    let (inbox, mut entries) = (database.id("inbox,user=u0"), Vec::new());
    loop {
        let page = database.page(inbox, &terms, 1_000);
        entries.extend(sequences(&values(&page.messages)));
        if !page.has_more {
            return entries;
        }
        terms.after = page.next;
    }
}

/// Returns all messages that the inbox of the first user shows.
fn all_shown(database: &Database) -> Vec<i64> {
    let (engine, table) = (database.engine(), database.table());
    let (mut terms, encoder, mut shown) = (ReadTerms::default(), MessageEncoder::default(), Vec::new());
    loop {
        let read = page(engine, &table, ("u0", &terms), &encoder, 1_000, &|| false).expect("a page");
        shown.extend(sequences(&values(&read.messages)));
        if !read.has_more {
            return shown;
        }
        terms.after = read.next;
    }
}

fn interrupted_joins(database: &Database) -> usize {
    database.engine().fan_outs().iter().map(|table| table.joins).sum()
}

#[test]
fn an_interrupted_join_is_completed_by_the_job_which_continues_after_a_restart() {
    for inboxes in [
        json!({"push_max": 5}),
        json!({"push_max": 5, "entries": "copy"}),
        json!({"push_max": 0, "fan_out_max": 50}),
    ] {
        let mut database = database(&inboxes);
        let mut sent = interrupted_join(&database);
        sent.extend(send(&database, 1));
        assert_eq!(interrupted_joins(&database), 1, "{inboxes}");
        // The job is cancelled after it has written the next entries.
        let mut left = 2;
        let mut step = |_: &FanOutProgress| match left {
            0 => ControlFlow::Break(()),
            _ => {
                left -= 1;
                ControlFlow::Continue(())
            }
        };
        let cancelled = fan_out(database.engine(), &database.table(), &mut step);
        assert!(matches!(cancelled, Err(RowsError::Cancelled)), "{cancelled:?}");
        assert_eq!(all_shown(&database), sent, "{inboxes}");
        database.reopen();
        assert_eq!(all_shown(&database), sent, "{inboxes}");
        let membership = |database: &Database| {
            let (engine, table) = (database.engine(), database.table());
            let found = member(engine, &table, database.id(FEED), "u0");
            found.expect("a read").expect("a member")
        };
        assert_eq!(membership(&database).filled, Some(sent[999] + 1), "{inboxes}");
        let written = run(&database);
        assert_eq!((written.joins, written.entries), (1, 1_501), "{inboxes}");
        let completed = membership(&database);
        assert_eq!(
            (completed.is_filling, completed.filled),
            (false, None),
            "{inboxes}"
        );
        assert_eq!(
            (stored(&database), all_shown(&database)),
            (sent.clone(), sent),
            "{inboxes}"
        );
        assert_eq!(
            (interrupted_joins(&database), database.engine().ended_joins()),
            (0, 1)
        );
        assert_eq!(run(&database), FanOutProgress::default(), "{inboxes}");
        database.close();
    }
}

#[test]
fn an_interrupted_join_ends_when_its_member_leaves() {
    for leaves_before in [true, false] {
        let mut database = database(&json!({"push_max": 5}));
        interrupted_join(&database);
        let mut number = 0;
        let mut step = |_: &FanOutProgress| {
            number += 1;
            // The first step is before the join, the second one after 1,000 further entries were read.
            if number == usize::from(!leaves_before) + 1 {
                exit(&database, 0);
            }
            ControlFlow::Continue(())
        };
        let ended = fan_out(database.engine(), &database.table(), &mut step).expect("a fan-out");
        assert_eq!((ended.joins, interrupted_joins(&database)), (0, 0));
        assert!(number > usize::from(!leaves_before), "{number} steps");
        assert_eq!((stored(&database), all_shown(&database)), (vec![], vec![]));
        database.close();
    }
}

/// Adds the first user with all earlier messages, and interrupts the join before an entry is written.
fn interrupt_at_once(database: &Database) {
    let (engine, table) = (database.engine(), database.table());
    let joined = join(engine, &table, &key(FEED), "u0", Some(i64::MIN), &|| true);
    assert!(matches!(joined, Err(RowsError::Cancelled)), "{joined:?}");
}

#[test]
fn a_join_that_is_interrupted_while_the_job_completes_an_earlier_one_is_completed_later() {
    let mut database = database(&json!({"push_max": 5}));
    let sent = interrupted_join(&database);
    let mut number = 0;
    let mut step = |_: &FanOutProgress| {
        number += 1;
        // The job has read the earlier membership.
        if number == 2 {
            exit(&database, 0);
            interrupt_at_once(&database);
        }
        ControlFlow::Continue(())
    };
    let ended = fan_out(database.engine(), &database.table(), &mut step).expect("a fan-out");
    assert!(number >= 2, "{number} steps");
    assert_eq!((ended.joins, interrupted_joins(&database)), (0, 1));
    assert_eq!(run(&database).joins, 1);
    assert_eq!((stored(&database), interrupted_joins(&database)), (sent, 0));
    database.close();
}

#[test]
fn entries_of_interrupted_joins_in_closed_parts_are_counted() {
    let settings = json!({"inboxes": {"push_max": 5}, "parts": {"every": "day", "writable": "1d"}});
    let mut database = Database::new(memory(Character::Embedded), &settings, None);
    let old = send(&database, 3);
    for _ in 0..10 * 24 {
        database.clock.advance(DAY / 24);
        database.engine().store().trusted_now();
    }
    let new = send(&database, 2);
    interrupt_at_once(&database);
    let written = run(&database);
    assert_eq!(
        (written.joins, written.entries, written.skipped),
        (1, 2, old.len() as u64)
    );
    assert_eq!(stored(&database), new);
    database.close();
}

#[test]
fn a_damaged_row_does_not_prevent_the_job() {
    let mut database = database(&json!({"push_max": 5}));
    let sent = send(&database, 2);
    interrupt_at_once(&database);
    // The key has no feed id.
    store_row(&database, ["ann", "room", ""], (JOINED, &CellValue::I64(1)));
    let written = run(&database);
    assert_eq!((written.joins, written.entries), (1, 2));
    assert_eq!(stored(&database), sent);
    database.close();
}

#[test]
fn joins_are_not_all_known_while_their_list_is_full() {
    let mut database = database(&json!({"push_max": 5}));
    let (engine, table) = (database.engine(), database.table());
    let feed = TimelineId([7; 16]);
    let mut number = 0;
    while engine.add_interrupted_join(&table, feed, &format!("u{number}")) {
        number += 1;
    }
    let is_complete = || {
        engine.complete_fan_outs(table.table().points().id());
        engine.fan_outs()[0].is_complete
    };
    assert!(!is_complete(), "{number} joins");
    engine.end_interrupted_join(&table, feed, "u0");
    assert!(is_complete());
    database.close();
}

#[test]
fn members_who_come_and_go_between_steps_have_exactly_their_entries() {
    let mut database = database(&json!({"push_max": 1, "fan_out_max": 5_000}));
    enter(&database, 0..30, None);
    let mut sent = send(&database, 150);
    // Batches of 100 messages are written for ten members each.
    let mut number = 0;
    let mut step = |_: &FanOutProgress| {
        match number {
            // The members of the first batch are written already, and the others are not.
            2 => {
                exit(&database, 2);
                exit(&database, 29);
                enter(&database, 100..101, Some(i64::MIN));
            }
            3 => enter(&database, 101..102, None),
            4 => sent.extend(send(&database, 1)),
            _ => {}
        }
        number += 1;
        ControlFlow::Continue(())
    };
    fan_out(database.engine(), &database.table(), &mut step).expect("a fan-out");
    assert!(number > 5, "{number} steps");
    for user in [2, 29] {
        assert_eq!(
            (entries(&database, user), shown(&database, user)),
            (vec![], vec![])
        );
    }
    for user in [0, 15, 28, 100] {
        assert_eq!(shown(&database, user), sent, "user {user}");
        assert_eq!(entries(&database, user), sent[..150], "user {user}");
    }
    assert_eq!(shown(&database, 101), sent[150..]);
    assert!(waits(&database), "the last message");
    run(&database);
    assert_eq!(entries(&database, 101), sent[150..]);
    assert_eq!(entries(&database, 100), sent);
    database.close();
}

#[test]
fn a_cancelled_run_continues_after_its_last_step_also_after_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let settings = json!({"inboxes": {"push_max": 1, "fan_out_max": 5_000}});
    let mut database = Database::new(fjall(folder.path()), &settings, None);
    enter(&database, 0..30, None);
    let sent = send(&database, 150);
    for last in 0..20 {
        let mut left = last;
        let mut step = |_: &FanOutProgress| match left {
            0 => ControlFlow::Break(()),
            _ => {
                left -= 1;
                ControlFlow::Continue(())
            }
        };
        let ended = fan_out(database.engine(), &database.table(), &mut step);
        if let Err(error) = &ended {
            assert!(matches!(error, RowsError::Cancelled), "{error}");
            assert!(waits(&database) || last == 0);
        }
        if last % 3 == 0 {
            database.reopen();
        }
        for user in [0, 9, 29] {
            assert_eq!(shown(&database, user), sent, "step {last}, user {user}");
        }
        if ended.is_ok() {
            assert_eq!(entries(&database, 29), sent);
            assert!(last > 5);
            database.close();
            return;
        }
    }
    panic!("the run does not end");
}

#[test]
fn growth_and_shrinking_change_the_delivery_of_later_messages() {
    let mut database = database(&json!({"push_max": 2, "fan_out_max": 6}));
    enter(&database, 0..7, None);
    let (engine, table) = (database.engine(), database.table());
    let pulled = send(&database, 2);
    assert_eq!(run(&database).entries, 0, "more members than fan_out_max");
    assert!(!waits(&database));
    assert_eq!(shown(&database, 0), pulled);
    for user in 4..7 {
        exit(&database, user);
    }
    // Four members are still more than half of the limit.
    let also_pulled = send(&database, 1);
    assert!(!waits(&database));
    exit(&database, 3);
    let written = send(&database, 1);
    assert!(waits(&database));
    assert_eq!(run(&database).entries, 3);
    assert_eq!(entries(&database, 0), written);
    exit(&database, 2);
    exit(&database, 1);
    let pushed = send(&database, 1);
    assert_eq!(entries(&database, 0), [&written[..], &pushed[..]].concat());
    assert_eq!(sources_now(engine, &table, "u0").expect("sources").len(), 1);
    let all = [&pulled[..], &also_pulled, &written, &pushed].concat();
    assert_eq!(shown(&database, 0), all);
    enter(&database, 20..21, Some(i64::MIN));
    assert_eq!(shown(&database, 20), all);
    database.close();
}

#[test]
fn messages_of_a_deleted_feed_do_not_wait() {
    let mut database = database(&json!({"push_max": 0, "fan_out_max": 5}));
    enter(&database, 0..3, None);
    send(&database, 2);
    let (engine, table, feed) = (database.engine(), database.table(), database.id(FEED));
    tideline_message_feed::members::delete_feed(engine, &table, feed, &|| false).expect("it is deleted");
    assert!(engine.feed(&table, &FeedName::Id(feed)).is_err());
    assert_eq!(run(&database).entries, 0);
    assert!(!waits(&database));
    assert!(shown(&database, 0).is_empty());
    database.close();
}

#[test]
fn messages_of_closed_parts_stay_with_their_feeds() {
    let settings =
        json!({"inboxes": {"push_max": 1, "fan_out_max": 50}, "parts": {"every": "day", "writable": "1d"}});
    let mut database = Database::new(memory(Character::Embedded), &settings, None);
    enter(&database, 0..5, None);
    let old = send(&database, 120);
    for _ in 0..10 * 24 {
        database.clock.advance(DAY / 24);
        database.engine().store().trusted_now();
    }
    let new = send(&database, 2);
    let all = [&old[..], &new[..]].concat();
    run(&database);
    assert!(!waits(&database));
    assert_eq!(entries(&database, 0), new);
    assert_eq!(shown(&database, 0), all);
    database.reopen();
    assert_eq!(shown(&database, 4), all);
    // The first run after a start reads the memberships, but finds no interrupted join.
    let ended = FanOutProgress {
        bytes_read: 0,
        ..run(&database)
    };
    assert_eq!(ended, FanOutProgress::default());
    database.close();
}

/// Sends one message with a text, and returns its sequence number.
fn send_text(database: &Database, text: &str) -> i64 {
    database.send_one(
        FEED,
        &json!({"sender": "ann", "id": text, "columns": {"text": text}}),
    )
}

/// Returns true if the inbox entry of a user for a message has a copy of the message.
fn has_copy(database: &Database, user: usize, sequence: i64) -> bool {
    let (engine, table) = (database.engine(), database.table());
    let inbox = database.id(&format!("inbox,user=u{user}"));
    let bounds = std::ops::Bound::Included(sequence);
    let ranges = engine
        .messages_of(&table, inbox, (bounds, bounds))
        .expect("a range");
    let path = tideline_engine::rows::RowPath::Primary;
    let direction = tideline_engine::backend::Direction::Ascending;
    let mut scan = engine.scan_rows(table.clone(), path, ranges, direction, None, 1);
    let found = scan.next_row().expect("a row").expect("an entry");
    let columns = found.row.columns().expect("columns");
    columns.column(&table.column("copy").0).is_some()
}

/// Stores a row with one column in the table of users.
fn store_row(database: &Database, key: [&str; 3], (column, value): (&str, &CellValue<'static>)) {
    let (engine, table) = (database.engine(), database.table());
    let users = engine.users_table(&table).expect("a table of users");
    let key = key.map(|text| KeyValue::String(text.into()));
    let (key, partition) = users.encode_key(&key).expect("a key");
    let make = |next_id: &mut dyn FnMut() -> i64| {
        let time = next_id();
        Ok(vec![RowWrite {
            key: key.clone(),
            partition,
            time,
            action: Action::Put(vec![Column::with(users.column(column).0, time, value.clone())]),
            condition: None,
            image: Image::None,
        }])
    };
    let written = engine.write_rows(&users, &make, &RowWriteOptions::default());
    written.expect("it is stored");
}

/// Stores the pulled range of the feed, like a request that switches the delivery.
fn store_range(database: &Database, range: &Value) {
    let feed = database.id(FEED);
    let ranges = json!([range]).to_string();
    let value = CellValue::Json(ranges.into());
    store_row(database, ["", &feed.to_string(), ""], (PULLED, &value));
    database.engine().audience_changed(&database.table(), feed);
}

/// A switch to pushed messages chooses the end of the pulled range, and stores it later. In between, a message is sent
/// and recalled.
#[test]
fn a_copy_of_a_message_that_is_recalled_during_a_switch_is_changed() {
    let mut database = database(&json!({"push_max": 3, "entries": "copy"}));
    enter(&database, 0..2, None);
    let (engine, table, feed) = (database.engine(), database.table(), key(FEED));
    let from = engine.next_version();
    store_range(
        &database,
        &json!({"from": from, "to": null, "is_pushed_too": true}),
    );
    let to = engine.next_version();
    let sent = send_text(&database, "one");
    assert!(has_copy(&database, 1, sent));
    let target = Target {
        feed: &feed,
        sequence: sent,
        event: None,
    };
    change::recall(engine, &table, target, &WriteTerms::default()).expect("it is recalled");
    store_range(&database, &json!({"from": from, "to": to}));
    let (terms, encoder) = (ReadTerms::default(), MessageEncoder::default());
    let read = page(engine, &table, ("u1", &terms), &encoder, 100, &|| false).expect("a page");
    let found = values(&read.messages);
    assert_eq!(sequences(&found), [sent]);
    assert!(found[0]["recalled"].is_string(), "{}", found[0]);
    database.close();
}

#[test]
fn copies_have_the_message_and_follow_its_changes() {
    let mut database = database(&json!({"push_max": 3, "entries": "copy"}));
    enter(&database, 0..3, None);
    let (engine, table, feed) = (database.engine(), database.table(), key(FEED));
    let first = send_text(&database, "one");
    let second = send_text(&database, "two");
    let large = send_text(&database, &"x".repeat(200));
    let huge = database.send_one(FEED, &json!({"columns": {"text": "y".repeat(70 << 10)}}));
    assert_eq!(
        [first, second, large, huge].map(|of| has_copy(&database, 1, of)),
        [true, true, true, false]
    );
    let target = |sequence| Target {
        feed: &feed,
        sequence,
        event: None,
    };
    let terms = WriteTerms::default();
    let add = std::collections::BTreeMap::from([("like".to_owned(), 1)]);
    change::count(engine, &table, target(first), &add, &terms).expect("it is counted");
    let edit: EditMessage = parse(&json!({"columns": {"text": "uno"}}));
    change::edit(engine, &table, target(first), &edit, &terms).expect("it is edited");
    change::delete(engine, &table, target(second), &terms).expect("it is deleted");
    let edit: EditMessage = parse(&json!({"columns": {"text": "z".repeat(80 << 10)}}));
    change::edit(engine, &table, target(large), &edit, &terms).expect("it is edited");
    change::recall(engine, &table, target(huge), &terms).expect("it is recalled");
    assert_eq!(
        [first, large, huge].map(|of| has_copy(&database, 1, of)),
        [true, false, true]
    );
    // A member without history has no entry of the earlier messages, nor of their events.
    exit(&database, 2);
    enter(&database, 7..8, None);
    let edit: EditMessage = parse(&json!({"columns": {"text": "eins"}}));
    change::edit(engine, &table, target(first), &edit, &terms).expect("it is edited");
    assert!(shown(&database, 7).is_empty());
    let terms = ReadTerms::default();
    let encoder = MessageEncoder::default();
    let read = page(engine, &table, ("u1", &terms), &encoder, 100, &|| false).expect("a page");
    let found = values(&read.messages);
    assert_eq!(sequences(&found), [first, large, huge]);
    assert_eq!(found[0]["columns"], json!({"text": "eins"}));
    assert_eq!(
        (&found[0]["id"], &found[0]["sender"]),
        (&json!("one"), &json!("ann"))
    );
    assert!(
        found[0]["edited"].is_string() && found[0]["counters"].is_null(),
        "{}",
        found[0]
    );
    assert!(found[2]["recalled"].is_string());
    // The id belongs to the feed of the message only.
    let again = database
        .send("inbox,user=u1", &json!([{"id": "one"}]))
        .expect("sent");
    assert!(!again.messages[0].is_repeated);
    let refused = database
        .send(FEED, &json!([{"columns": {"copy": "x"}}]))
        .expect_err("reserved");
    assert!(refused.to_string().contains("set by the server"), "{refused}");
    database.close();
}

#[test]
fn copies_of_a_feed_that_was_pulled_meanwhile_are_not_used() {
    let mut database = database(&json!({"push_max": 2, "entries": "copy"}));
    enter(&database, 0..2, None);
    let (engine, table, feed) = (database.engine(), database.table(), key(FEED));
    let sequence = send_text(&database, "old");
    let text = || {
        let terms = ReadTerms::default();
        let encoder = MessageEncoder::default();
        let read = page(engine, &table, ("u0", &terms), &encoder, 100, &|| false).expect("a page");
        values(&read.messages)[0]["columns"]["text"].clone()
    };
    assert_eq!(text(), "old");
    enter(&database, 2..3, None);
    let target = Target {
        feed: &feed,
        sequence,
        event: None,
    };
    let edit: EditMessage = parse(&json!({"columns": {"text": "new"}}));
    change::edit(engine, &table, target, &edit, &WriteTerms::default()).expect("it is edited");
    assert_eq!(text(), "new", "the feed is pulled");
    exit(&database, 2);
    exit(&database, 1);
    assert_eq!(text(), "new", "the feed is pushed again");
    let later = send_text(&database, "later");
    assert!(has_copy(&database, 0, later) && has_copy(&database, 0, sequence));
    database.close();
}

/// Calls `change` while the job runs again and again.
fn while_the_job_runs(database: &Database, change: impl FnOnce()) {
    let running = AtomicUsize::new(1);
    let (engine, table, running) = (database.engine(), &database.table(), &running);
    thread::scope(|scope| {
        let job = scope.spawn(move || {
            let mut count = 0;
            while running.load(Ordering::SeqCst) > 0 {
                let mut step = |_: &FanOutProgress| ControlFlow::Continue(());
                count += fan_out(engine, table, &mut step).expect("a fan-out").entries;
            }
            count
        });
        let ended = Ended(running);
        change();
        drop(ended);
        assert!(job.join().expect("no panic") > 0);
    });
}

/// Members leave while the job runs. The job reads members under a claim, and the request to leave waits for this
/// claim.
#[test]
fn no_entry_is_written_after_a_member_has_left() {
    let rounds = rounds("TIDELINE_FAN_OUT_ROUNDS", 150, 1_500);
    let mut database = database(&json!({"push_max": 0, "fan_out_max": 5_000}));
    enter(&database, 0..3, None);
    while_the_job_runs(&database, || {
        for round in 0..rounds {
            let user = 10 + round % 4;
            enter(&database, user..user + 1, None);
            send(&database, 3);
            exit(&database, user);
            assert!(entries(&database, user).is_empty(), "round {round}, at once");
        }
    });
    for user in 10..14 {
        assert!(entries(&database, user).is_empty(), "user {user}, at the end");
    }
    database.close();
}

/// Members join with all earlier messages while the job writes some of them. The job may have read the members before.
#[test]
fn members_who_join_during_the_job_have_the_earlier_messages() {
    // A page has up to 1,000 messages.
    let rounds = rounds("TIDELINE_FAN_OUT_ROUNDS", 150, 1_500).min(450);
    let mut database = database(&json!({"push_max": 0, "fan_out_max": 5_000}));
    enter(&database, 0..3, None);
    let mut sent = Vec::new();
    while_the_job_runs(&database, || {
        for round in 0..rounds {
            sent.extend(send(&database, 2));
            enter(&database, 10 + round..11 + round, Some(i64::MIN));
        }
    });
    run(&database);
    for user in 10..10 + rounds {
        assert_eq!(entries(&database, user), sent, "user {user}");
        assert_eq!(shown(&database, user), sent, "user {user}");
    }
    database.close();
}

/// The user joins again after the membership was deleted, and before its entries are removed.
#[test]
fn a_user_who_joins_again_during_a_leave_has_the_later_messages() {
    let database = database(&json!({}));
    enter(&database, 0..2, None);
    send(&database, 3);
    let later = RefCell::new(Vec::new());
    let joins_again = || {
        if later.borrow().is_empty() {
            enter(&database, 1..2, None);
            later.replace(send(&database, 2));
        }
        false
    };
    let (engine, table) = (database.engine(), database.table());
    leave(engine, &table, database.id(FEED), "u1", &joins_again).expect("it leaves");
    let later = later.take();
    assert_eq!(later.len(), 2);
    assert_eq!(entries(&database, 1), later);
    assert_eq!(shown(&database, 1), later);
}

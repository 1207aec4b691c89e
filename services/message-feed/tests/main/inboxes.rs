//! Members, inboxes and unread counts against a naive model, and inboxes that are read while members and messages
//! change.
//!
//! The limit of pushed messages is low, so that the delivery of each feed switches often. The job that writes messages
//! to inboxes runs at random moments; between its steps other requests run, and it is cancelled at random steps.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use serde_json::{Value, json};
use tideline_engine::backend::memory::{Character, EditFault, MemoryBackend, MemoryDisk};
use tideline_engine::feeds::FeedName;
use tideline_engine::model::{Tier, TimelineId};
use tideline_engine::rows::{MoveEnd, MoveProgress};
use tideline_engine::{Engine, EngineError};
use tideline_message_feed::blocks::{block, blocked, unblock};
use tideline_message_feed::change::{self, Target};
use tideline_message_feed::fan_out::{FanOutProgress, fan_out};
use tideline_message_feed::inbox::{conversations, page, reaches_cold};
use tideline_message_feed::members::{self, Joined as Join, MemberChange, change_member, join, leave};
use tideline_message_feed::read::{self as reading, ReadTerms, Room};
use tideline_message_feed::send::{WriteTerms, send};
use tideline_message_feed::{MessageEncoder, MessageList};
use tideline_openapi::feed::{EditMessage, MessageOrder};
use tideline_rows::RowsError;
use tideline_testkit::{Random, rounds, seed, seeds};

use crate::database::{
    Database, OpenBackend, SECOND, TABLE, fjall, key, memory, on_behalf_of, parse, values,
};

const FEEDS: [&str; 3] = ["room,name=one", "room,name=two", "room,name=three"];
const USERS: [&str; 6] = ["ann", "bea", "cid", "d, e=f", "eva", "ülo"];

/// Settings of inboxes that the tests use.
const SETTINGS: [&str; 4] = [
    r#"{"push_max": 3}"#,
    r#"{"push_max": 3, "fan_out_max": 5}"#,
    r#"{"push_max": 3, "entries": "copy"}"#,
    r#"{"push_max": 2, "fan_out_max": 4, "entries": "copy"}"#,
];

/// Returns settings of a table with these settings of inboxes.
fn settings(inboxes: &str) -> Value {
    let inboxes: Value = serde_json::from_str(inboxes).expect("JSON");
    json!({"columns": [{"name": "text", "type": "string"}], "inboxes": inboxes})
}

/// Message or event of the model.
#[derive(Debug, Clone)]
struct Entry {
    feed: usize,
    sender: &'static str,
    to: Option<Vec<&'static str>>,
    except: Vec<&'static str>,
    mentions: Vec<&'static str>,
    is_event: bool,
    /// Message that an event has changed.
    target: Option<i64>,
    is_recalled: bool,
    text: Option<String>,
}

impl Entry {
    fn is_for(&self, user: &str) -> bool {
        self.to.as_ref().is_none_or(|to| to.contains(&user)) && !self.except.contains(&user)
    }
}

/// Membership of the model.
#[derive(Debug, Clone, Copy)]
struct Joined {
    visible_from: i64,
    cursor: Option<i64>,
    is_muted: bool,
}

/// Naive model of a database.
#[derive(Default)]
struct Model {
    /// Number of edits.
    edits: usize,
    /// Messages and events that exist, by their sequence numbers.
    entries: BTreeMap<i64, Entry>,
    members: BTreeMap<(usize, &'static str), Joined>,
    /// Users, with the senders that they have blocked.
    blocks: BTreeSet<(&'static str, &'static str)>,
}

/// Message that an inbox shows: sequence number, text, and true if it was recalled.
type Shown = (i64, Option<String>, bool);

impl Model {
    /// Executes a random request.
    fn step(&mut self, database: &Database, random: &mut Random) {
        match random.below(12) {
            0..=4 => self.send(database, random),
            5 | 6 => self.join(database, random),
            7 => self.leave(database, random),
            8 | 9 => self.change(database, random),
            10 => self.change_member(database, random),
            _ => self.block(database, random),
        }
    }

    /// Runs the job that writes messages to inboxes, with other requests between its steps.
    fn fan_out(&mut self, database: &Database, random: &mut Random) {
        let mut steps = 0;
        let last = match random.is(30) {
            true => random.below(6),
            false => 60,
        };
        let mut step = |_: &FanOutProgress| {
            if steps == last {
                return ControlFlow::Break(());
            }
            steps += 1;
            if random.is(40) {
                self.step(database, random);
            }
            ControlFlow::Continue(())
        };
        match fan_out(database.engine(), &database.table(), &mut step) {
            Ok(_) => {}
            Err(RowsError::Cancelled) => assert_eq!(steps, last),
            Err(error) => panic!("{error}"),
        }
    }

    fn send(&mut self, database: &Database, random: &mut Random) {
        let some = |random: &mut Random| -> Vec<&'static str> {
            USERS.into_iter().filter(|_| random.is(40)).collect()
        };
        let mut entry = Entry {
            feed: random.below(FEEDS.len() as u64) as usize,
            sender: random.of(&USERS),
            to: random.is(20).then(|| some(random)),
            except: match random.is(20) {
                true => some(random),
                false => Vec::new(),
            },
            mentions: some(random),
            is_event: false,
            target: None,
            is_recalled: false,
            text: Some("hello".to_owned()),
        };
        let count = 1 + random.below(3) as usize;
        let message = json!({
            "sender": entry.sender, "to": entry.to, "except": entry.except, "mentions": entry.mentions,
            "columns": {"text": "hello"}
        });
        let sender = entry.sender;
        if let Some(to) = entry.to.as_mut().filter(|to| !to.contains(&sender)) {
            to.push(sender);
        }
        let sent = database.send(FEEDS[entry.feed], &json!(vec![message; count]));
        for message in sent.expect("sent").messages {
            self.entries.insert(message.sequence, entry.clone());
        }
    }

    fn join(&mut self, database: &Database, random: &mut Random) {
        let (feed, user) = (random.below(FEEDS.len() as u64) as usize, random.of(&USERS));
        let history = match random.below(3) {
            0 => None,
            1 => Some(i64::MIN),
            _ => self.entries.keys().nth(self.entries.len() / 2).copied(),
        };
        let (engine, table) = (database.engine(), database.table());
        let joined = join(engine, &table, &key(FEEDS[feed]), user, history, &|| false);
        let joined = joined.expect("a member");
        self.members.entry((feed, user)).or_insert(Joined {
            visible_from: joined.member.visible_from,
            cursor: None,
            is_muted: false,
        });
    }

    fn leave(&mut self, database: &Database, random: &mut Random) {
        let (feed, user) = (random.below(FEEDS.len() as u64) as usize, random.of(&USERS));
        let (engine, table) = (database.engine(), database.table());
        let Ok(id) = engine.feed(&table, &key(FEEDS[feed])) else {
            return;
        };
        let was_member = leave(engine, &table, id, user, &|| false).expect("it leaves");
        assert_eq!(was_member, self.members.remove(&(feed, user)).is_some());
    }

    /// Blocks a sender, or ends the block.
    fn block(&mut self, database: &Database, random: &mut Random) {
        let (user, sender) = (random.of(&USERS), random.of(&USERS));
        let (engine, table) = (database.engine(), database.table());
        match random.is(50) {
            true => {
                block(engine, &table, user, sender).expect("blocked");
                self.blocks.insert((user, sender));
            }
            false => {
                unblock(engine, &table, user, sender).expect("not blocked");
                self.blocks.remove(&(user, sender));
            }
        }
        let found = blocked(engine, &table, user).expect("senders");
        let expected = self.blocks.iter().filter(|(of, _)| *of == user);
        assert!(
            found
                .iter()
                .map(String::as_str)
                .eq(expected.map(|(_, sender)| *sender))
        );
    }

    /// Returns true if a user sees an entry of a feed.
    fn sees(&self, user: &'static str, entry: &Entry) -> bool {
        entry.is_for(user) && !self.blocks.contains(&(user, entry.sender))
    }

    /// Sets a cursor, or mutes a conversation.
    fn change_member(&mut self, database: &Database, random: &mut Random) {
        let (feed, user) = (random.below(FEEDS.len() as u64) as usize, random.of(&USERS));
        let (engine, table) = (database.engine(), database.table());
        let Ok(id) = engine.feed(&table, &key(FEEDS[feed])) else {
            return;
        };
        let sequences: Vec<i64> = self.entries.keys().copied().collect();
        let sequence = match sequences.is_empty() {
            true => 0,
            false => random.of(&sequences),
        };
        let device = None;
        let change = match random.below(10) {
            0..=5 => MemberChange::Cursor { device, sequence },
            6 => MemberChange::Rewind { device, sequence },
            _ => MemberChange::Muted(random.is(50)),
        };
        let changed = change_member(engine, &table, id, user, change);
        let Some(member) = self.members.get_mut(&(feed, user)) else {
            changed.expect_err("no member");
            return;
        };
        match change {
            MemberChange::Cursor { sequence, .. } => member.cursor = member.cursor.max(Some(sequence)),
            MemberChange::Rewind { sequence, .. } => member.cursor = Some(sequence),
            MemberChange::Muted(is_muted) => member.is_muted = is_muted,
        }
        assert_eq!(changed.expect("a change"), member.cursor);
    }

    /// Edits, recalls or deletes a message.
    fn change(&mut self, database: &Database, random: &mut Random) {
        let messages = self.entries.iter().filter(|(_, entry)| !entry.is_event);
        let messages: Vec<i64> = messages.map(|(sequence, _)| *sequence).collect();
        if messages.is_empty() {
            return;
        }
        let sequence = random.of(&messages);
        let entry = self.entries[&sequence].clone();
        let feed = key(FEEDS[entry.feed]);
        let target = Target {
            feed: &feed,
            sequence,
            event: None,
        };
        let terms = on_behalf_of(Some(entry.sender));
        let (engine, table) = (database.engine(), database.table());
        let mut event_text = None;
        let event = match random.below(3) {
            0 => {
                self.edits += 1;
                let text = format!("edit {}", self.edits);
                let edit: EditMessage = parse(&json!({"columns": {"text": text}}));
                let edited = change::edit(engine, &table, target, &edit, &terms);
                assert_eq!(edited.is_err(), entry.is_recalled);
                if edited.is_ok() {
                    self.entries.get_mut(&sequence).expect("it exists").text = Some(text.clone());
                    event_text = Some(text);
                }
                edited.ok()
            }
            1 => {
                let recalled = change::recall(engine, &table, target, &terms).expect("recalled");
                assert_eq!(recalled.is_none(), entry.is_recalled);
                let message = self.entries.get_mut(&sequence).expect("it exists");
                (message.is_recalled, message.text) = (true, None);
                self.remove_edits(sequence);
                recalled
            }
            _ => {
                self.entries.remove(&sequence);
                self.remove_edits(sequence);
                Some(change::delete(engine, &table, target, &terms).expect("deleted"))
            }
        };
        if let Some(event) = event {
            let event_entry = Entry {
                is_event: true,
                target: Some(sequence),
                is_recalled: false,
                mentions: Vec::new(),
                text: event_text,
                ..entry
            };
            self.entries.insert(event, event_entry);
        }
    }

    /// Removes the texts of the edits of a message.
    fn remove_edits(&mut self, sequence: i64) {
        let events = self.entries.values_mut();
        for event in events.filter(|event| event.target == Some(sequence)) {
            event.text = None;
        }
    }

    /// Returns the sequence numbers and texts that the inbox of a user shows.
    fn expected(&self, user: &'static str) -> Vec<Shown> {
        let is_shown = |(sequence, entry): &(&i64, &Entry)| {
            let member = self.members.get(&(entry.feed, user));
            member.is_some_and(|member| **sequence >= member.visible_from) && self.sees(user, entry)
        };
        let shown = self.entries.iter().filter(is_shown);
        shown
            .map(|(sequence, entry)| (*sequence, entry.text.clone(), entry.is_recalled))
            .collect()
    }

    fn check(&self, database: &Database, random: &mut Random) {
        for user in USERS {
            let expected = self.expected(user);
            let limit = 1 + random.below(5) as usize;
            let found = read(database, user, MessageOrder::Ascending, limit);
            assert_eq!(found, expected, "{user}");
            let mut newest_first = expected;
            newest_first.reverse();
            let found = read(database, user, MessageOrder::Descending, limit);
            assert_eq!(found, newest_first, "{user}");
            self.check_conversations(database, user);
            self.check_feed(database, user, random);
        }
    }

    /// Checks the pages, the count and a message of a feed that is read on behalf of a user, who need not be a member.
    fn check_feed(&self, database: &Database, user: &'static str, random: &mut Random) {
        let feed = random.below(FEEDS.len() as u64) as usize;
        let (engine, table) = (database.engine(), database.table());
        let Ok(id) = engine.feed(&table, &key(FEEDS[feed])) else {
            return;
        };
        let is_seen = |(_, entry): &(&i64, &Entry)| entry.feed == feed && self.sees(user, entry);
        let expected: Vec<i64> = self
            .entries
            .iter()
            .filter(is_seen)
            .map(|(sequence, _)| *sequence)
            .collect();
        let limit = 1 + random.below(5) as usize;
        let mut terms = ReadTerms {
            has_events: true,
            ..ReadTerms::default()
        };
        let mut found = Vec::new();
        loop {
            let seen = terms.seen_by(engine, &table, Some(user)).expect("a viewer");
            let encoder = MessageEncoder::default();
            let limits = (limit, &mut Room::default());
            let read =
                reading::page(engine, &table, (id, &seen), &encoder, limits, &|| false).expect("a page");
            found.extend(sequences(&read.messages));
            terms.after = read.next;
            if !read.has_more {
                break;
            }
        }
        assert_eq!(found, expected, "{user} in {feed}");
        let seen = ReadTerms::default()
            .seen_by(engine, &table, Some(user))
            .expect("a viewer");
        let counted = reading::count(engine, &table, id, &seen, &|| false).expect("a count");
        let messages = expected
            .iter()
            .filter(|sequence| !self.entries[sequence].is_event);
        assert_eq!(counted.messages, messages.count() as u64, "{user} in {feed}");
        let Some((sequence, entry)) = self.entries.iter().find(|(_, entry)| entry.feed == feed) else {
            return;
        };
        let encoder = MessageEncoder::default();
        let message = reading::message(engine, &table, (id, *sequence), Some(user), &encoder);
        assert_eq!(message.is_ok(), self.sees(user, entry), "{user} in {feed}");
    }

    fn check_conversations(&self, database: &Database, user: &'static str) {
        let (engine, table) = (database.engine(), database.table());
        let found = conversations(engine, &table, user, (10, None), &|| false).expect("conversations");
        let (mut total, mut last) = (0, None);
        for conversation in &found.conversations {
            let feed = FEEDS.iter().position(|name| {
                let id = engine.feed(&table, &key(name));
                id.is_ok_and(|id| id == conversation.member.feed)
            });
            let feed = feed.expect("a feed of the test");
            let member = self.members[&(feed, user)];
            let seen = |entry: &Entry| entry.feed == feed && !entry.is_event && self.sees(user, entry);
            let messages = self.entries.range(member.visible_from..);
            let messages: Vec<(&i64, &Entry)> = messages.filter(|(_, entry)| seen(entry)).collect();
            let newest = messages.last().map(|(sequence, _)| sequence.to_string());
            let shown = conversation.last.as_ref().map(|json| {
                let message: Value = serde_json::from_str(json).expect("JSON");
                message["sequence"].as_str().expect("text").to_owned()
            });
            assert_eq!(shown, newest, "{user} in {feed}");
            let is_unread = |(sequence, entry): &&(&i64, &Entry)| {
                member.cursor.is_none_or(|cursor| **sequence > cursor)
                    && entry.sender != user
                    && !entry.is_recalled
            };
            let unread: Vec<&(&i64, &Entry)> = messages.iter().filter(is_unread).collect();
            let mentions = unread.iter().filter(|(_, entry)| entry.mentions.contains(&user));
            assert_eq!(
                (conversation.unread, conversation.mentions),
                (unread.len() as u64, mentions.count() as u64),
                "{user} in {feed}"
            );
            total += u64::from(!member.is_muted) * unread.len() as u64;
            let newest = messages.last().map(|(sequence, _)| **sequence);
            let active = newest.unwrap_or(conversation.member.joined);
            assert!(last.is_none_or(|last| active < last), "by last activity");
            last = Some(active);
        }
        let joined = self.members.keys().filter(|(_, member)| *member == user).count();
        assert_eq!((found.total, found.conversations.len()), (joined, joined));
        assert_eq!(found.unread, total, "{user}");
    }
}

/// Returns the sequence numbers of messages in JSON.
fn sequences(messages: &MessageList) -> Vec<i64> {
    let sequence = |message: &Value| message["sequence"].as_str()?.parse().ok();
    let found = values(messages);
    found
        .iter()
        .map(|message| sequence(message).expect("a number"))
        .collect()
}

/// Returns the messages in JSON.
fn shown(messages: &MessageList) -> Vec<Shown> {
    let texts = values(messages).into_iter().map(|message| {
        let text = message["columns"]["text"].as_str().map(str::to_owned);
        (text, message["recalled"].is_string())
    });
    let found = sequences(messages).into_iter().zip(texts);
    found
        .map(|(sequence, (text, is_recalled))| (sequence, text, is_recalled))
        .collect()
}

/// Reads an inbox page by page.
fn read(database: &Database, user: &str, order: MessageOrder, limit: usize) -> Vec<Shown> {
    let mut terms = ReadTerms {
        order,
        has_events: true,
        ..ReadTerms::default()
    };
    let mut found = Vec::new();
    loop {
        let encoder = MessageEncoder::default();
        let (engine, table) = (database.engine(), database.table());
        let read = page(engine, &table, (user, &terms), &encoder, limit, &|| false).expect("a page");
        found.extend(shown(&read.messages));
        if !read.has_more {
            return found;
        }
        match order {
            MessageOrder::Ascending => terms.after = read.next,
            MessageOrder::Descending => terms.before = read.next,
        }
    }
}

fn run(seed: u64, inboxes: &str, open_backend: OpenBackend) {
    println!("seed {seed}: {inboxes}");
    let mut random = Random::new(seed);
    let mut database = Database::new(open_backend, &settings(inboxes), None);
    let mut model = Model::default();
    for step in 0..rounds("TIDELINE_INBOX_STEPS", 120, 600) {
        match random.below(14) {
            0 if random.is(30) => database.reopen(),
            0 => database.clock.advance(SECOND),
            1 | 2 if inboxes.contains("fan_out_max") => model.fan_out(&database, &mut random),
            _ => model.step(&database, &mut random),
        }
        if step % 6 == 0 {
            model.check(&database, &mut random);
        }
    }
    model.check(&database, &mut random);
    database.reopen();
    model.check(&database, &mut random);
}

#[test]
fn random_members_and_messages_equal_a_naive_model_in_memory() {
    for seed in seeds("inboxes-memory", 4) {
        for inboxes in SETTINGS {
            run(seed, inboxes, memory(Character::Embedded));
            run(seed, inboxes, memory(Character::Distributed));
        }
    }
}

#[test]
fn random_members_and_messages_equal_a_naive_model_on_fjall() {
    for seed in seeds("inboxes-fjall", 1) {
        for inboxes in SETTINGS {
            let folder = tempfile::tempdir().expect("a folder");
            run(seed, inboxes, fjall(folder.path()));
        }
    }
}

/// A follower keeps its cursor while other members come and go, so that the delivery of each feed changes often.
#[test]
fn a_reader_misses_and_repeats_nothing_while_the_delivery_switches() {
    for inboxes in [SETTINGS[0], SETTINGS[3]] {
        follow_while_the_delivery_switches(inboxes);
    }
}

fn follow_while_the_delivery_switches(inboxes: &str) {
    const SENDERS: usize = 3;
    let count = rounds("TIDELINE_INBOX_MESSAGES", 60, 600);
    let database = Database::new(memory(Character::Embedded), &settings(inboxes), None);
    let (engine, table) = (database.engine(), database.table());
    for feed in FEEDS {
        for user in ["ann", "bea", "cid"] {
            join(engine, &table, &key(feed), user, None, &|| false).expect("a member");
        }
    }
    let running = AtomicUsize::new(SENDERS);
    let is_ended = AtomicBool::new(false);
    let seed = seed("inboxes-threads");
    let (sent, found) = thread::scope(|scope| {
        let senders: Vec<_> = (0..SENDERS)
            .map(|number| {
                let (running, table) = (&running, &table);
                scope.spawn(move || {
                    let mut random = Random::new(seed + number as u64);
                    let mut sent = Vec::new();
                    for _ in 0..count {
                        let messages = parse::<Vec<_>>(&json!([{"columns": {"text": "x"}}]));
                        let feed = key(random.of(&FEEDS));
                        let written = send(engine, table, &feed, &messages, &WriteTerms::default());
                        sent.push(written.expect("sent").messages[0].sequence);
                    }
                    running.fetch_sub(1, Ordering::SeqCst);
                    sent
                })
            })
            .collect();
        let switcher = scope.spawn(|| {
            let mut switches = 0;
            while running.load(Ordering::SeqCst) > 0 {
                for feed in FEEDS {
                    join(engine, &table, &key(feed), "eva", None, &|| false).expect("a member");
                }
                for feed in FEEDS {
                    let id = engine.feed(&table, &key(feed)).expect("it exists");
                    for user in ["eva", "bea", "cid"] {
                        leave(engine, &table, id, user, &|| false).expect("it leaves");
                    }
                    for user in ["bea", "cid"] {
                        join(engine, &table, &key(feed), user, None, &|| false).expect("a member");
                    }
                }
                if inboxes.contains("fan_out_max") {
                    fan_out(engine, &table, &mut |_| ControlFlow::Continue(())).expect("a fan-out");
                }
                switches += 1;
            }
            is_ended.store(true, Ordering::SeqCst);
            switches
        });
        let reader = scope.spawn(|| {
            let mut terms = ReadTerms {
                has_events: true,
                ..ReadTerms::default()
            };
            let mut found: Vec<i64> = Vec::new();
            loop {
                let is_last = is_ended.load(Ordering::SeqCst);
                let encoder = MessageEncoder::default();
                let read = page(engine, &table, ("ann", &terms), &encoder, 7, &|| false).expect("a page");
                terms.after = read.next;
                found.extend(sequences(&read.messages));
                if is_last && !read.has_more {
                    return found;
                }
            }
        });
        let sent: BTreeSet<i64> = senders
            .into_iter()
            .flat_map(|sender| sender.join().expect("it ends"))
            .collect();
        assert!(switcher.join().expect("it ends") > 0);
        (sent, reader.join().expect("it ends"))
    });
    assert!(
        found.windows(2).all(|pair| pair[0] < pair[1]),
        "each once, in order"
    );
    assert_eq!(found, sent.into_iter().collect::<Vec<i64>>(), "seed {seed}");
    let id = database.id(FEEDS[0]);
    let page = members::members(engine, &table, id, None, 2).expect("members");
    assert_eq!((page.members.len(), page.next.is_some()), (2, true));
    let rest = members::members(engine, &table, id, page.next.as_ref(), 2).expect("members");
    assert_eq!((rest.members.len(), rest.next), (1, None));
}

#[test]
fn a_read_of_an_inbox_reaches_cold_parts_by_its_bounds() {
    const DAYS: i64 = 86_400 * SECOND;
    let mut settings = settings(SETTINGS[0]);
    settings["parts"] = json!({"every": "day"});
    let mut database = Database::new(memory(Character::Embedded), &settings, None);
    let (engine, table) = (database.engine(), database.table());
    join(engine, &table, &key(FEEDS[0]), "ann", None, &|| false).expect("a member");
    let old = database.send_one(FEEDS[0], &json!({}));
    database.clock.advance(2 * DAYS);
    let new = database.send_one(FEEDS[0], &json!({}));
    let reaches_cold = |user: &str, after: Option<i64>| {
        let terms = ReadTerms {
            after,
            ..ReadTerms::default()
        };
        reaches_cold(engine, &table, user, &terms).expect("known parts")
    };
    assert!(!reaches_cold("ann", None));
    engine.seal().expect("it is flushed");
    let parts = table.settings().parts.clone().expect("parts");
    let mut step = |_: &MoveProgress| ControlFlow::Continue(());
    let rows = table.table().points().id();
    let number = parts.every.number_of(old);
    let moved = engine.move_table_part(rows, number, Tier::Cold, &mut step);
    assert_ne!(moved.expect("it is moved"), MoveEnd::Stopped);
    assert!(reaches_cold("ann", None));
    assert!(!reaches_cold("ann", Some(new - 1)));
    assert!(!reaches_cold("bea", None), "a user without an inbox");
    let found = read(&database, "ann", MessageOrder::Ascending, 10);
    let found: Vec<i64> = found.into_iter().map(|(sequence, ..)| sequence).collect();
    assert_eq!(found, [old, new]);
    database.close();
}

/// A feed table and its table of users are dropped by two edits. The drop ends after the first one.
#[test]
fn a_table_created_again_after_an_interrupted_drop_has_no_members() {
    for is_known in [true, false] {
        let disk = MemoryDisk::new(Character::Distributed);
        let opened = Arc::clone(&disk);
        let open: OpenBackend = Box::new(move || Arc::new(MemoryBackend::open(&opened)));
        let settings = settings(SETTINGS[0]);
        let mut database = Database::new(open, &settings, None);
        let (engine, table) = (database.engine(), database.table());
        join(engine, &table, &key(FEEDS[0]), "ann", None, &|| false).expect("a member");
        disk.fail_edit(EditFault::Applied);
        match is_known {
            // The manifest shows at once that the first edit was applied, and that the second one was not.
            true => disk.fail_edit(EditFault::Lost),
            // The first edit has an unknown outcome until the table is created again.
            false => disk.hide_manifest(true),
        }
        let interrupted = engine.drop_table(TABLE).expect_err("the drop is interrupted");
        assert!(interrupted.is_retryable(), "{interrupted}");
        disk.hide_manifest(false);

        database.create_table(&settings);
        let table = database.table();
        let joined = join(engine, &table, &key(FEEDS[0]), "bea", None, &|| false).expect("a member");
        let found = members::members(engine, &table, joined.member.feed, None, 10).expect("members");
        let users: Vec<&str> = found.members.iter().map(|member| member.user.as_str()).collect();
        assert_eq!(users, ["bea"]);
        database.close();
    }
}

#[test]
fn a_deleted_inbox_shows_later_messages() {
    let mut database = Database::new(memory(Character::Embedded), &settings(SETTINGS[0]), None);
    let (engine, table) = (database.engine(), database.table());
    join(engine, &table, &key(FEEDS[0]), "ann", None, &|| false).expect("a member");
    // The first message caches the audience with the inbox.
    database.send_one(FEEDS[0], &json!({}));
    let inbox = database.id("inbox,user=ann");
    members::delete_feed(engine, &table, inbox, &|| false).expect("it is deleted");
    let later = database.send_one(FEEDS[0], &json!({}));
    let found = read(&database, "ann", MessageOrder::Ascending, 10);
    let found: Vec<i64> = found.into_iter().map(|(sequence, ..)| sequence).collect();
    assert_eq!(found, [later]);
    database.close();
}

/// Returns the target of a change of a message.
fn target_of(feed: &FeedName, sequence: i64) -> Target<'_> {
    Target {
        feed,
        sequence,
        event: None,
    }
}

#[test]
fn a_removed_text_remains_in_no_earlier_edit() {
    for inboxes in SETTINGS {
        let mut database = Database::new(memory(Character::Embedded), &settings(inboxes), None);
        let (engine, table, feed) = (database.engine(), database.table(), key(FEEDS[0]));
        for user in ["ann", "bea"] {
            join(engine, &table, &feed, user, None, &|| false).expect("a member");
        }
        let sent = [(); 3].map(|()| database.send_one(FEEDS[0], &json!({"columns": {"text": "sent"}})));
        for sequence in sent {
            for text in ["secret one", "secret two"] {
                let edit: EditMessage = parse(&json!({"columns": {"text": text}}));
                let target = target_of(&feed, sequence);
                change::edit(engine, &table, target, &edit, &on_behalf_of(None)).expect("edited");
            }
        }
        let [recalled, deleted, kept] = sent;
        change::recall(engine, &table, target_of(&feed, recalled), &on_behalf_of(None)).expect("recalled");
        change::delete(engine, &table, target_of(&feed, deleted), &on_behalf_of(None)).expect("deleted");
        let with_text = |messages: &[Value]| {
            let texts = messages
                .iter()
                .filter(|message| message["columns"]["text"].is_string());
            texts.count()
        };
        for is_reopened in [false, true] {
            if is_reopened {
                database.reopen();
            }
            let all = database.all(FEEDS[0]);
            // Two messages, six edits, a recall and a deletion.
            assert_eq!(all.len(), 10);
            let edits = all.iter().filter(|message| message["event"] == "edit");
            assert_eq!(edits.count(), 6);
            // The message that is kept, and its two edits.
            assert_eq!(with_text(&all), 3);
            for user in ["ann", "bea"] {
                let shown = read(&database, user, MessageOrder::Ascending, 100);
                assert_eq!(shown.len(), 10, "{inboxes}");
                let texts = shown.iter().filter(|(_, text, _)| text.is_some());
                assert_eq!(texts.count(), 3, "{inboxes}");
            }
        }
        let last = read(&database, "ann", MessageOrder::Ascending, 100)
            .into_iter()
            .find(|(sequence, ..)| *sequence == kept);
        assert_eq!(last, Some((kept, Some("secret two".to_owned()), false)));
        database.close();
    }
}

/// Each event repeats the list of the message, so all events together exceed the size of a write.
#[test]
fn a_message_with_a_long_list_and_many_edits_is_recalled() {
    let mut database = Database::new(memory(Character::Embedded), &settings(SETTINGS[0]), None);
    let (engine, table, feed) = (database.engine(), database.table(), key(FEEDS[0]));
    let to: Vec<String> = (0..1_000).map(|number| format!("{number:020}")).collect();
    let message = json!({"columns": {"text": "sent"}, "to": to});
    let sequence = database.send_one(FEEDS[0], &message);
    for number in 0..300 {
        let edit: EditMessage = parse(&json!({"columns": {"text": format!("secret {number}")}}));
        let target = target_of(&feed, sequence);
        change::edit(engine, &table, target, &edit, &on_behalf_of(None)).expect("edited");
    }
    let recalled = change::recall(engine, &table, target_of(&feed, sequence), &on_behalf_of(None));
    assert!(recalled.expect("recalled").is_some());
    let mut terms = ReadTerms {
        has_events: true,
        ..ReadTerms::default()
    };
    let mut edits = 0;
    loop {
        let page = database.page(database.id(FEEDS[0]), &terms, 1_000);
        for message in values(&page.messages) {
            edits += usize::from(message["event"] == "edit");
            assert!(!message["columns"]["text"].is_string(), "{}", message["sequence"]);
        }
        if !page.has_more {
            break;
        }
        terms.after = page.next;
    }
    assert_eq!(edits, 300);
    database.close();
}

#[test]
fn a_changed_message_stays_in_inboxes_until_it_expires() {
    for inboxes in SETTINGS {
        let mut settings = settings(inboxes);
        settings["ttl"] = json!("100s");
        let mut database = Database::new(memory(Character::Embedded), &settings, None);
        let feed = key(FEEDS[0]);
        for user in ["ann", "bea"] {
            let (engine, table) = (database.engine(), database.table());
            join(engine, &table, &feed, user, None, &|| false).expect("a member");
        }
        let edited = database.send_one(FEEDS[0], &json!({"columns": {"text": "one"}}));
        let counted = database.send_one(FEEDS[0], &json!({"columns": {"text": "two"}}));
        let unchanged = database.send_one(FEEDS[0], &json!({"columns": {"text": "three"}}));
        database.clock.advance(60 * SECOND);
        let (engine, table) = (database.engine(), database.table());
        let edit: EditMessage = parse(&json!({"columns": {"text": "new"}}));
        let terms = on_behalf_of(None);
        let event = change::edit(engine, &table, target_of(&feed, edited), &edit, &terms).expect("edited");
        let add = [("like".to_owned(), 1)].into();
        change::count(engine, &table, target_of(&feed, counted), &add, &terms).expect("counted");
        let sequences = |database: &Database| -> Vec<i64> {
            let shown = read(database, "bea", MessageOrder::Ascending, 10);
            shown.into_iter().map(|(sequence, ..)| sequence).collect()
        };
        assert_eq!(
            sequences(&database),
            [edited, counted, unchanged, event],
            "{inboxes}"
        );
        database.clock.advance(60 * SECOND);
        assert_eq!(sequences(&database), [edited, counted, event], "{inboxes}");
        database.clock.advance(60 * SECOND);
        assert!(sequences(&database).is_empty(), "{inboxes}");
        database.close();
    }
}

#[test]
fn an_inbox_is_complete_after_an_interrupted_join() {
    for inboxes in SETTINGS {
        let mut database = Database::new(memory(Character::Embedded), &settings(inboxes), None);
        let feed = key(FEEDS[0]);
        let mut sent = vec![
            database.send_one(FEEDS[0], &json!({})),
            database.send_one(FEEDS[0], &json!({})),
        ];
        let (engine, table) = (database.engine(), database.table());
        let interrupted = join(engine, &table, &feed, "ann", Some(i64::MIN), &|| true);
        assert!(
            matches!(interrupted, Err(RowsError::Cancelled)),
            "{interrupted:?}"
        );
        sent.push(database.send_one(FEEDS[0], &json!({})));
        let sequences = |database: &Database| -> Vec<i64> {
            let shown = read(database, "ann", MessageOrder::Ascending, 2);
            shown.into_iter().map(|(sequence, ..)| sequence).collect()
        };
        database.reopen();
        assert_eq!(sequences(&database), sent, "{inboxes}");
        let is_filling = |database: &Database| {
            let (engine, table) = (database.engine(), database.table());
            let member = members::member(engine, &table, database.id(FEEDS[0]), "ann");
            member.expect("a read").expect("a member").is_filling
        };
        assert!(is_filling(&database));
        // Repeating the request writes the entries.
        let (engine, table) = (database.engine(), database.table());
        join(engine, &table, &feed, "ann", Some(i64::MIN), &|| false).expect("a member");
        assert!(!is_filling(&database));
        assert_eq!(sequences(&database), sent, "{inboxes}");
        database.close();
    }
}

#[test]
fn an_inbox_has_no_members_and_its_entries_are_no_messages() {
    let mut database = Database::new(memory(Character::Embedded), &settings(SETTINGS[0]), None);
    let (engine, table) = (database.engine(), database.table());
    join(engine, &table, &key(FEEDS[0]), "ann", None, &|| false).expect("a member");
    let sequence = database.send_one(FEEDS[0], &json!({"columns": {"text": "sent"}}));
    let inbox = FeedName::Id(database.id("inbox,user=ann"));
    for name in [inbox.clone(), key("inbox,user=ann"), key("inbox,user=absent")] {
        let joined = join(engine, &table, &name, "bea", None, &|| false).expect_err("it is refused");
        assert!(joined.to_string().contains("which has no members"), "{joined}");
    }
    engine
        .feed(&table, &key("inbox,user=absent"))
        .expect_err("it is not created");
    let terms = on_behalf_of(None);
    let target = target_of(&inbox, sequence);
    let edit: EditMessage = parse(&json!({"columns": {"text": "new"}}));
    let add = [("like".to_owned(), 1)].into();
    for refused in [
        change::edit(engine, &table, target, &edit, &terms).err(),
        change::recall(engine, &table, target, &terms).err(),
        change::delete(engine, &table, target, &terms).err(),
        change::count(engine, &table, target, &add, &terms).err(),
    ] {
        let error = refused.expect("it is refused");
        assert!(
            matches!(error, RowsError::Engine(EngineError::NoSuchMessage { .. })),
            "{error}"
        );
    }
    let shown = read(&database, "ann", MessageOrder::Ascending, 10);
    assert_eq!(shown, [(sequence, Some("sent".to_owned()), false)]);
    database.close();
}

#[test]
fn a_cursor_is_bounded_and_can_be_set_back() {
    let mut database = Database::new(memory(Character::Embedded), &settings(SETTINGS[0]), None);
    let (engine, table) = (database.engine(), database.table());
    join(engine, &table, &key(FEEDS[0]), "ann", None, &|| false).expect("a member");
    let first = database.send_one(FEEDS[0], &json!({}));
    let second = database.send_one(FEEDS[0], &json!({}));
    let feed = database.id(FEEDS[0]);
    let unread = || {
        let found = conversations(engine, &table, "ann", (10, None), &|| false);
        found.expect("conversations").unread
    };
    for device in [None, Some("phone")] {
        let set = |sequence| {
            let change = MemberChange::Cursor { device, sequence };
            change_member(engine, &table, feed, "ann", change)
        };
        let refused = set(i64::MAX).expect_err("later messages would count as read");
        assert!(
            refused.to_string().contains("sequence number so far"),
            "{refused}"
        );
        assert_eq!(set(second).expect("a cursor"), Some(second));
        assert_eq!(set(first).expect("a cursor"), Some(second));
        let sequence = first;
        let back = MemberChange::Rewind { device, sequence };
        let back = change_member(engine, &table, feed, "ann", back);
        assert_eq!(back.expect("a cursor"), Some(first));
    }
    assert_eq!(unread(), 1);
    database.close();
}

/// While the row of a new member is committed, messages are still sent to the members before it. Their numbers can be
/// above the time of the join.
#[test]
fn a_join_misses_no_message_that_is_sent_meanwhile() {
    for inboxes in [
        r#"{"push_max": 1000}"#,
        r#"{"push_max": 1000, "entries": "copy"}"#,
    ] {
        join_while_messages_are_sent(inboxes);
    }
}

fn join_while_messages_are_sent(inboxes: &str) {
    const SENDERS: usize = 3;
    const MEMBERS: usize = 20;
    const JOINS: usize = 20;
    let mut database = Database::new(memory(Character::Embedded), &settings(inboxes), None);
    let (engine, table) = (database.engine(), database.table());
    let join_as = |user: String, history| join(engine, &table, &key(FEEDS[0]), &user, history, &|| false);
    for number in 0..MEMBERS {
        join_as(format!("member {number}"), None).expect("a member");
    }
    let is_ended = AtomicBool::new(false);
    let joined: Vec<Result<Join, RowsError>> = thread::scope(|scope| {
        for _ in 0..SENDERS {
            scope.spawn(|| {
                let messages = parse::<Vec<_>>(&json!([{"columns": {"text": "x"}}]));
                while !is_ended.load(Ordering::SeqCst) {
                    let sent = send(engine, &table, &key(FEEDS[0]), &messages, &WriteTerms::default());
                    sent.expect("sent");
                }
            });
        }
        let history = |number: usize| number.is_multiple_of(2).then_some(i64::MIN);
        let joined = (0..JOINS).map(|number| join_as(format!("new {number}"), history(number)));
        let joined = joined.collect();
        is_ended.store(true, Ordering::SeqCst);
        joined
    });
    let all = read(&database, "member 0", MessageOrder::Ascending, 500);
    for joined in joined {
        let Join { member, .. } = joined.expect("a member");
        let visible = all
            .iter()
            .filter(|(sequence, ..)| *sequence >= member.visible_from);
        let expected: Vec<i64> = visible.map(|(sequence, ..)| *sequence).collect();
        let found = read(&database, &member.user, MessageOrder::Ascending, 500);
        let found: Vec<i64> = found.into_iter().map(|(sequence, ..)| sequence).collect();
        assert_eq!(found, expected, "{} with {inboxes}", member.user);
    }
    database.close();
}

/// A leave that ends early keeps entries of the inbox. Changes of their messages do not reach them any more.
#[test]
fn a_message_that_is_deleted_after_an_interrupted_leave_stays_deleted() {
    for inboxes in SETTINGS {
        let mut database = Database::new(memory(Character::Embedded), &settings(inboxes), None);
        let (engine, table) = (database.engine(), database.table());
        let feed = key(FEEDS[0]);
        for user in ["ann", "bea"] {
            join(engine, &table, &feed, user, None, &|| false).expect("a member");
        }
        let deleted = database.send_one(FEEDS[0], &json!({"columns": {"text": "deleted"}}));
        let kept = database.send_one(FEEDS[0], &json!({"columns": {"text": "kept"}}));
        let interrupted = leave(engine, &table, database.id(FEEDS[0]), "ann", &|| true);
        assert!(
            matches!(interrupted, Err(RowsError::Cancelled)),
            "{interrupted:?}"
        );
        let target = Target {
            feed: &feed,
            sequence: deleted,
            event: None,
        };
        let event = change::delete(engine, &table, target, &on_behalf_of(None)).expect("deleted");
        join(engine, &table, &feed, "ann", Some(i64::MIN), &|| false).expect("a member");
        let found = read(&database, "ann", MessageOrder::Ascending, 10);
        let found: Vec<i64> = found.into_iter().map(|(sequence, ..)| sequence).collect();
        assert_eq!(found, [kept, event], "{inboxes}");
        database.close();
    }
}

/// A request holds a page of each feed, and the newest message of each conversation.
#[test]
fn reads_of_several_feeds_reserve_the_memory_of_their_messages() {
    let mut database = Database::new(memory(Character::Embedded), &settings(SETTINGS[0]), None);
    let (engine, table) = (database.engine(), database.table());
    let text = "x".repeat(8 << 10);
    for feed in FEEDS {
        join(engine, &table, &key(feed), "ann", None, &|| false).expect("a member");
        database.send_one(feed, &json!({"columns": {"text": text}}));
    }
    let feeds = FEEDS.map(|feed| database.id(feed));
    let merged = |engine: &Engine| {
        let (terms, encoder) = (ReadTerms::default(), MessageEncoder::default());
        let merged = reading::merge(engine, &table, &feeds, &terms, &encoder, (1, None), &|| false);
        merged.map(|merged| merged.messages.len())
    };
    let listed = |engine: &Engine| {
        let found = conversations(engine, &table, "ann", (1, None), &|| false);
        found.map(|found| found.total)
    };
    assert_eq!(merged(engine).expect("a page"), 1);
    assert_eq!(listed(engine).expect("conversations"), FEEDS.len());
    let account = engine.memory();
    let whole = account.whole_bytes();
    let set_aside = whole - account.limit_bytes();
    // Two messages fit, and three do not.
    account.set_limit(set_aside + account.used_bytes() + (20 << 10));
    for (found, holder) in [
        (merged(engine), "rows of scans"),
        (listed(engine), "conversations"),
    ] {
        match found.expect_err("the memory is full") {
            RowsError::Engine(EngineError::Memory(full)) => assert_eq!(full.holder, holder),
            error => panic!("{error}"),
        }
    }
    account.set_limit(whole);
    assert_eq!(merged(engine).expect("a page"), 1);
    database.close();
}

#[test]
fn pages_of_conversations_miss_none_that_does_not_change() {
    let mut database = Database::new(memory(Character::Embedded), &settings(SETTINGS[0]), None);
    let (engine, table) = (database.engine(), database.table());
    let name = |room: usize| format!("room,number={room}");
    for room in 0..12 {
        join(engine, &table, &key(&name(room)), "ann", None, &|| false).expect("a member");
    }
    // The first room has no messages.
    for room in 1..12 {
        database.send_one(&name(room), &json!({}));
    }
    let list = |user: &str, page: Option<&str>| conversations(engine, &table, user, (3, page), &|| false);
    let room_of = |feed: TimelineId| (0..12).find(|room| database.id(&name(*room)) == feed);
    let mut pages = Vec::new();
    let mut next: Option<String> = None;
    loop {
        let read = list("ann", next.as_deref()).expect("conversations");
        let rooms = read.conversations.iter();
        pages.push(
            rooms
                .map(|one| room_of(one.member.feed).expect("a room"))
                .collect::<Vec<_>>(),
        );
        assert_eq!((read.total, read.unread), (12, 10 + pages.len() as u64));
        let Some(token) = read.next else { break };
        let foreign = list("bea", Some(&token)).expect_err("the token is that of another user");
        assert!(
            foreign.to_string().contains("belongs to another list"),
            "{foreign}"
        );
        // A room of the first page, and two of later pages, get a message.
        let changed = [10, 2, 4];
        if let Some(room) = changed.get(pages.len() - 1) {
            database.send_one(&name(*room), &json!({}));
        }
        next = Some(token);
    }
    assert_eq!(pages, [vec![11, 10, 9], vec![8, 7, 6], vec![5, 4, 3], vec![1, 0]]);
    let first = list("ann", None).expect("conversations").conversations;
    let first: Vec<_> = first.iter().map(|one| room_of(one.member.feed)).collect();
    assert_eq!(first, [Some(4), Some(2), Some(10)]);
    database.close();
}

//! Members, inboxes and unread counts against a naive model, and inboxes that are read while members and messages
//! change.
//!
//! The limit of pushed messages is low, so that the delivery of each feed switches often. The job that writes messages
//! to inboxes runs at random moments; between its steps other requests run, and it is cancelled at random steps.

mod cases;

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
    /// Sender of the message, also for an event of the message.
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
        // The principal of a change does not affect which users see it.
        let principal = random.is(80).then(|| random.of(&USERS));
        let terms = on_behalf_of(principal);
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
            let message = entry.target.unwrap_or(**sequence);
            member.is_some_and(|member| message >= member.visible_from) && self.sees(user, entry)
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

/// Returns the sequence numbers of the messages and events of an inbox, read in pages of `limit`.
fn read_sequences(database: &Database, user: &str, limit: usize) -> Vec<i64> {
    let shown = read(database, user, MessageOrder::Ascending, limit);
    shown.into_iter().map(|(sequence, ..)| sequence).collect()
}

/// Opens a database in memory whose feed table has these settings of inboxes.
fn open(inboxes: &str) -> Database {
    Database::new(memory(Character::Embedded), &settings(inboxes), None)
}

/// Makes a user a member of a feed. The inbox shows only later messages.
fn add_member(database: &Database, feed: &str, user: &str) {
    let (engine, table) = (database.engine(), database.table());
    join(engine, &table, &key(feed), user, None, &|| false).expect("a member");
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
    let database = open(inboxes);
    let (engine, table) = (database.engine(), database.table());
    for feed in FEEDS {
        for user in ["ann", "bea", "cid"] {
            add_member(&database, feed, user);
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

//! Copies of a feed table with inboxes: an empty server gets the same members, inboxes, cursors, blocks and
//! conversations from a base (an export of the rows) and from the stream after a position before the base.
//!
//! The copy assigns separate sequence numbers, so the test maps each number of the source to its number in the
//! copy. It repeats messages, events and memberships in the order of their numbers. The base can already have
//! changes that the stream repeats: a message is skipped if the base has its number, and a change of a
//! membership if the base has a membership that began later.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use tideline_model::Timestamp;
use tideline_testkit::{Random, rounds, seed};

use crate::changes_copies::{is_done, json_of, text, without_times};
use crate::client::Server;

const TABLE: &str = "/v1/tables/chat";
const FEEDS: &str = "/v1/tables/chat/feeds";
const USERS: [&str; 5] = ["ann", "bea", "cem", "dan", "eva"];
/// Number of random writes: before the position, between it and the base, and after the base.
const STEPS: [usize; 3] = [150, 60, 150];

fn start(inboxes: &Value) -> Server {
    let server = Server::start();
    let columns = json!([{"name": "text", "type": "string"}]);
    let chat = json!({"name": "chat", "model": "feed", "feed": {"columns": columns, "inboxes": inboxes}});
    json_of(&server, "POST", "/v1/tables", &chat).expect(201);
    server
}

fn number(value: &Value) -> i64 {
    let number = value.as_i64().or_else(|| value.as_str()?.parse().ok());
    number.unwrap_or_else(|| panic!("not a number: {value}"))
}

/// Returns all elements of a list, read in pages; `next` of a page is the cursor of the following page.
fn pages(server: &Server, path: &str) -> Vec<Value> {
    let (mut found, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = server.get(&format!("{path}?limit=7{cursor}")).expect(200);
        found.extend(page["messages"].as_array().expect("a list").iter().cloned());
        if page["more"] == false {
            return found;
        }
        cursor = format!("&after={}", text(&page, "next"));
    }
}

fn rows(server: &Server, table: &str) -> Vec<Value> {
    let path = format!("/v1/tables/{table}/rows/scan");
    let mut request = json!({"allow_scan": true, "limit": 1_000});
    let mut found = Vec::new();
    loop {
        let page = json_of(server, "POST", &path, &request).expect(200);
        found.extend(page["rows"].as_array().expect("a list").iter().cloned());
        match page["next"].as_str() {
            Some(next) => request["page_token"] = json!(next),
            None => return found,
        }
    }
}

/// Database that changes at random.
struct Source {
    server: Server,
    random: Random,
    /// Messages that exist: the feed and the sequence number.
    messages: Vec<(String, String)>,
    sent: u64,
    /// True while feeds may be deleted.
    deletes_feeds: bool,
    has_job: bool,
}

impl Source {
    fn steps(&mut self, count: usize) {
        for _ in 0..count {
            self.step();
        }
    }

    fn step(&mut self) {
        match self.random.below(20) {
            0..=6 => self.send(),
            7..=10 => self.change_message(),
            11..=13 => self.join(),
            14 => self.leave(),
            15 | 16 => self.set_cursor(),
            17 => self.mute(),
            18 => self.block(),
            _ => self.change_feed(),
        }
        if self.random.is(5) {
            self.server.engine.seal().expect("flushed");
        }
        if self.has_job && self.random.is(5) {
            fan_out(&self.server);
        }
        let nanos = 1_000_000 * (1 + self.random.below(2_000));
        self.server.clock.advance(i64::try_from(nanos).expect("small"));
    }

    fn feed(&mut self) -> String {
        format!("room,name=r{}", self.random.below(3))
    }

    fn user(&mut self) -> &'static str {
        self.random.of(&USERS)
    }

    fn names(&mut self) -> Vec<&'static str> {
        let count = self.random.below(3);
        let names: BTreeSet<&str> = (0..=count).map(|_| self.user()).collect();
        names.into_iter().collect()
    }

    fn send(&mut self) {
        let feed = self.feed();
        let messages: Vec<Value> = (0..1 + self.random.below(3))
            .map(|_| {
                self.sent += 1;
                let text = format!("text {}", self.sent);
                let mut message = json!({"sender": self.user(), "columns": {"text": text, "n": self.sent}});
                if self.random.is(40) {
                    message["id"] = json!(format!("m{}", self.sent));
                }
                for list in ["to", "except", "mentions"] {
                    if self.random.is(25) {
                        message[list] = json!(self.names());
                    }
                }
                message
            })
            .collect();
        let path = format!("{FEEDS}/{feed}/messages");
        let sent = json_of(&self.server, "POST", &path, &json!({"messages": messages})).expect(200);
        for message in sent["messages"].as_array().expect("a list") {
            self.messages
                .push((feed.clone(), text(message, "sequence").to_owned()));
        }
    }

    fn message(&mut self) -> Option<(usize, String, String)> {
        let at = self.random.below(self.messages.len().max(1) as u64) as usize;
        let (feed, sequence) = self.messages.get(at)?.clone();
        Some((at, feed, sequence))
    }

    fn change_message(&mut self) {
        let Some((at, feed, sequence)) = self.message() else {
            return;
        };
        let path = format!("{FEEDS}/{feed}/messages/{sequence}");
        let user = self.user();
        let changed = match self.random.below(5) {
            0 => {
                self.messages.swap_remove(at);
                self.server.json("DELETE", &format!("{path}?as={user}"), "")
            }
            1 => self.server.json("POST", &format!("{path}/recall"), ""),
            2 => {
                let edit =
                    json!({"columns": {"text": format!("edit {}", self.random.below(100))}, "clear": ["n"]});
                json_of(&self.server, "PATCH", &format!("{path}?as={user}"), &edit)
            }
            _ => {
                let add = json!({"add": {"like": 1, "seen": self.random.below(5)}});
                json_of(&self.server, "POST", &format!("{path}/counters"), &add)
            }
        };
        // A recalled message cannot be changed.
        assert!([200, 409].contains(&changed.status), "{}", changed.text());
    }

    fn join(&mut self) {
        let (feed, user) = (self.feed(), self.user());
        let since = self.message().map(|(_, _, sequence)| sequence);
        let history = match (self.random.below(3), since) {
            (0, Some(since)) => json!({"history": {"since": since.parse::<i64>().expect("a number")}}),
            (1, _) => json!({"history": "all"}),
            _ => json!({}),
        };
        json_of(
            &self.server,
            "PUT",
            &format!("{FEEDS}/{feed}/members/{user}"),
            &history,
        )
        .expect(200);
    }

    fn leave(&mut self) {
        let (feed, user) = (self.feed(), self.user());
        is_done(
            &self
                .server
                .json("DELETE", &format!("{FEEDS}/{feed}/members/{user}"), ""),
        );
    }

    fn set_cursor(&mut self) {
        let Some((_, feed, sequence)) = self.message() else {
            return;
        };
        let user = self.user();
        let mut cursor = json!({"sequence": sequence});
        if self.random.is(30) {
            cursor["device"] = json!(self.random.of(&["phone", "laptop"]));
        }
        let path = format!("{TABLE}/users/{user}/cursors/{feed}");
        is_done(&json_of(&self.server, "PUT", &path, &cursor));
    }

    fn mute(&mut self) {
        let (feed, user) = (self.feed(), self.user());
        let muted = json!({"muted": self.random.is(60)});
        let path = format!("{FEEDS}/{feed}/members/{user}");
        is_done(&json_of(&self.server, "PATCH", &path, &muted));
    }

    fn block(&mut self) {
        let (user, sender) = (self.user(), self.user());
        let method = self.random.of(&["PUT", "DELETE"]);
        is_done(
            &self
                .server
                .json(method, &format!("{TABLE}/users/{user}/blocks/{sender}"), ""),
        );
    }

    fn change_feed(&mut self) {
        let feed = self.feed();
        if self.deletes_feeds && self.random.is(30) {
            is_done(&self.server.json("DELETE", &format!("{FEEDS}/{feed}"), ""));
            self.messages.retain(|(of, _)| *of != feed);
            return;
        }
        json_of(&self.server, "PUT", &format!("{FEEDS}/{feed}"), &json!({})).expect(200);
    }
}

/// Runs the job that writes the messages of large feeds to inboxes.
fn fan_out(server: &Server) {
    let run = json!({"kind": "fan_out", "table": "chat", "wait": true});
    let done = json_of(server, "POST", "/v1/jobs", &run).expect(200);
    assert_eq!(done["state"], "done", "{done}");
}

/// Entry of the base, in the order of the numbers.
enum Entry {
    Message(Value),
    Event(Value),
    Member(Value),
}

/// Database that follows the source.
struct Copy {
    server: Server,
    /// Sequence numbers of the source, with those of the copy.
    numbers: BTreeMap<i64, i64>,
    /// Sequence number of the last message or event of each feed in the base.
    cursors: BTreeMap<String, i64>,
    /// Time at which the memberships of the base began, by user and feed.
    joined: BTreeMap<(String, String), i64>,
}

impl Copy {
    /// Copies the rows of the source.
    fn begin(&mut self, source: &Server) {
        let mut entries: BTreeMap<i64, Entry> = BTreeMap::new();
        for mut row in rows(source, "chat") {
            let columns = row["columns"].clone();
            if columns.get("source").is_some() {
                // The copy writes the entries of inboxes itself.
                continue;
            }
            let (feed, sequence) = (
                text(&row["key"], "feed").to_owned(),
                number(&row["key"]["sequence"]),
            );
            let last = self.cursors.entry(feed).or_insert(sequence);
            *last = sequence.max(*last);
            if columns.get("event").is_none() {
                entries.insert(sequence, Entry::Message(row));
                continue;
            }
            if columns["event"] == "delete" {
                // The event of the deletion contains the data that is needed to repeat the message: its sender, its
                // id and its lists.
                let mut deleted = row.clone();
                let target = number(&columns["target"]);
                deleted["key"]["sequence"] = json!(target);
                for name in ["event", "target", "sender"] {
                    deleted["columns"].as_object_mut().expect("columns").remove(name);
                }
                if let Some(sender) = columns["target_sender"]
                    .as_str()
                    .filter(|sender| !sender.is_empty())
                {
                    deleted["columns"]["sender"] = json!(sender);
                }
                entries.insert(target, Entry::Message(deleted));
            }
            row["sequence"] = json!(sequence);
            entries.insert(sequence, Entry::Event(row));
        }
        // A feed without messages and members has no rows.
        let rooms = json!({"where": {"property": "measurement", "equals": "room"}});
        let rooms = json_of(source, "POST", &format!("{FEEDS}/search"), &rooms).expect(200);
        for room in rooms["timelines"].as_array().expect("a list") {
            self.put_feed(room);
        }
        let users = rows(source, "chat-users");
        for row in &users {
            if let Some(joined) = row["columns"]["joined"].as_i64() {
                entries.insert(joined, Entry::Member(row.clone()));
            }
        }
        for entry in entries.into_values() {
            match entry {
                Entry::Message(row) => self.send(&message_of(&row)),
                Entry::Event(row) => self.repeat(&message_of(&row)),
                Entry::Member(row) => {
                    let key = (text(&row["key"], "user"), text(&row["key"], "feed"));
                    let key = (key.0.to_owned(), key.1.to_owned());
                    self.joined.insert(key, number(&row["columns"]["joined"]));
                    self.join(&row["key"], &row["columns"]);
                }
            }
        }
        for row in &users {
            self.change_user(&row["key"], &row["columns"]);
        }
    }

    /// Returns the number in the copy of the first message of the source from a number on.
    fn first_from(&self, from: i64) -> Option<i64> {
        self.numbers.range(from..).next().map(|(_, copy)| *copy)
    }

    /// Returns the number in the copy of the last message of the source up to a cursor.
    fn cursor(&self, cursor: i64) -> Option<i64> {
        self.numbers.range(..=cursor).next_back().map(|(_, copy)| *copy)
    }

    fn put_feed(&self, room: &Value) {
        let path = format!("{FEEDS}/room,name={}", text(&room["tags"], "name"));
        json_of(&self.server, "PUT", &path, &json!({})).expect(200);
    }

    fn send(&mut self, message: &Value) {
        let kept = ["sender", "id", "mentions", "to", "except", "columns"];
        let mut sent = message.as_object().expect("an object").clone();
        sent.retain(|name, _| kept.contains(&name.as_str()));
        let path = format!("{FEEDS}/{}/messages", text(message, "feed"));
        let response = json_of(&self.server, "POST", &path, &json!({"messages": [sent]}));
        if is_done(&response) {
            let copy = number(&response.value()["messages"][0]["sequence"]);
            self.numbers.insert(number(&message["sequence"]), copy);
            self.count(message);
        }
    }

    /// Gives a message its counters.
    fn count(&self, message: &Value) {
        let (Some(counters), Some(sequence)) = (
            message.get("counters").and_then(Value::as_object),
            self.numbers.get(&number(&message["sequence"])),
        ) else {
            return;
        };
        let path = format!("{FEEDS}/{}/messages/{sequence}", text(message, "feed"));
        let found = self.server.get(&path);
        if !is_done(&found) {
            return;
        }
        let found = &found.value()["message"];
        let add = |(name, count): (&String, &Value)| {
            let known = found["counters"][name].as_i64().unwrap_or(0);
            (name.clone(), json!(number(count) - known))
        };
        let add: serde_json::Map<String, Value> = counters.iter().map(add).collect();
        let counted = json_of(
            &self.server,
            "POST",
            &format!("{path}/counters"),
            &json!({"add": add}),
        );
        // The base has a recalled message with its counters.
        assert!([200, 409].contains(&counted.status), "{}", counted.text());
    }

    /// Repeats the change that an event reports.
    fn repeat(&mut self, event: &Value) {
        let Some(target) = self.numbers.get(&number(&event["target"])) else {
            return;
        };
        let path = format!("{FEEDS}/{}/messages/{target}", text(event, "feed"));
        let principal = event["sender"]
            .as_str()
            .map(|sender| format!("?as={sender}"))
            .unwrap_or_default();
        let changed = match text(event, "event") {
            "delete" => self.server.json("DELETE", &format!("{path}{principal}"), ""),
            "recall" => self.server.json("POST", &format!("{path}/recall{principal}"), ""),
            _ => {
                let columns = event["columns"].as_object().expect("columns").clone();
                let (cleared, set): (Vec<_>, Vec<_>) =
                    columns.into_iter().partition(|(_, value)| value.is_null());
                let cleared: Vec<String> = cleared.into_iter().map(|(name, _)| name).collect();
                let set: serde_json::Map<String, Value> = set.into_iter().collect();
                let edit = json!({"columns": set, "clear": cleared});
                json_of(&self.server, "PATCH", &format!("{path}{principal}"), &edit)
            }
        };
        if is_done(&changed) {
            let copy = number(&changed.value()["event"]);
            self.numbers.insert(number(&event["sequence"]), copy);
        }
    }

    fn join(&self, key: &Value, columns: &Value) {
        let history = match number(&columns["visible_from"]) {
            i64::MIN => json!("all"),
            from => match self.first_from(from) {
                Some(since) => json!({"since": since}),
                None => json!("none"),
            },
        };
        let path = format!("{FEEDS}/{}/members/{}", text(key, "feed"), text(key, "user"));
        is_done(&json_of(&self.server, "PUT", &path, &json!({"history": history})));
    }

    /// Applies a row of the table of users: a block, or the cursor and the mute of a user.
    fn change_user(&self, key: &Value, columns: &Value) {
        let (user, feed, device) = (text(key, "user"), text(key, "feed"), text(key, "device"));
        if user.is_empty() {
            // The row describes the delivery of a feed, which the copy determines itself.
            return;
        }
        if feed.is_empty() {
            let path = format!("{TABLE}/users/{user}/blocks/{device}");
            self.server.json("PUT", &path, "").expect(200);
            return;
        }
        let cursor = columns["cursor"].as_i64();
        if let Some(cursor) = cursor.and_then(|cursor| self.cursor(cursor)) {
            let mut set = json!({"sequence": cursor});
            if !device.is_empty() {
                set["device"] = json!(device);
            }
            let path = format!("{TABLE}/users/{user}/cursors/{feed}");
            is_done(&json_of(&self.server, "PUT", &path, &set));
        }
        if let Some(muted) = columns["muted"].as_bool() {
            let path = format!("{FEEDS}/{feed}/members/{user}");
            is_done(&json_of(&self.server, "PATCH", &path, &json!({"muted": muted})));
        }
    }

    fn apply(&mut self, record: &Value) {
        match (text(record, "table"), text(record, "kind")) {
            ("chat", "timeline") => {
                // Inboxes are created by their first entry.
                if record["timeline"]["measurement"] == "room" {
                    self.put_feed(&record["timeline"]);
                }
            }
            ("chat", "points_deleted") => {
                let feed = text(record, "timeline");
                is_done(&self.server.json("DELETE", &format!("{FEEDS}/{feed}"), ""));
                self.cursors.remove(feed);
            }
            // The removal of the feed follows.
            ("chat", "rows_deleted") => {}
            ("chat", "message") => self.apply_message(record),
            ("chat-users", "row") => self.apply_user(record),
            _ => panic!("unexpected: {record}"),
        }
    }

    fn apply_message(&mut self, record: &Value) {
        let message = &record["message"];
        if record.get("source").is_some() {
            return;
        }
        let sequence = number(&message["sequence"]);
        let cursor = self.cursors.get(text(message, "feed"));
        let is_in_base = cursor.is_some_and(|cursor| sequence <= *cursor);
        let is_put = record["op"] == "put";
        if message.get("event").is_some() {
            // A recall or deletion removes the values from earlier events, which the copy has repeated already.
            if !is_in_base && !self.numbers.contains_key(&sequence) {
                self.repeat(message);
            }
        } else if is_put && message.get("recalled").is_none() {
            if !is_in_base {
                self.send(message);
            }
        } else if record["op"] == "update" && message.get("edited").is_none() {
            self.count(message);
        }
        // All other records accompany an event, which the copy repeats.
    }

    fn apply_user(&self, record: &Value) {
        let key = &record["key"];
        let (user, feed, device) = (text(key, "user"), text(key, "feed"), text(key, "device"));
        let time = Timestamp::parse_rfc3339(text(record, "time")).expect("a time");
        let joined = self.joined.get(&(user.to_owned(), feed.to_owned()));
        if joined.is_some_and(|joined| time.nanos() <= *joined) {
            return;
        }
        match (text(record, "op"), feed.is_empty(), device.is_empty()) {
            _ if user.is_empty() => {}
            ("delete", true, _) => {
                let path = format!("{TABLE}/users/{user}/blocks/{device}");
                is_done(&self.server.json("DELETE", &path, ""));
            }
            ("delete", false, true) => {
                is_done(
                    &self
                        .server
                        .json("DELETE", &format!("{FEEDS}/{feed}/members/{user}"), ""),
                );
            }
            // The deletion of the membership also removes this row.
            ("delete", false, false) => {}
            (_, false, true) if record["columns"].get("joined").is_some() => {
                self.join(key, &record["columns"]);
            }
            _ => self.change_user(key, &record["columns"]),
        }
    }

    /// Returns a message or event of the source with the numbers of the copy.
    fn numbered(&self, mut message: Value) -> Value {
        for name in ["sequence", "target"] {
            if message.get(name).is_some() {
                let copy = self.numbers.get(&number(&message[name]));
                message[name] = json!(copy.map(ToString::to_string));
            }
        }
        message
    }

    /// Converts a cursor of the source to the number in the copy.
    fn numbered_cursor(&self, cursor: &Value) -> Value {
        match cursor.is_null() {
            true => Value::Null,
            false => json!(self.cursor(number(cursor)).map(|copy| copy.to_string())),
        }
    }
}

/// Returns a row of the base in the form of a message.
fn message_of(row: &Value) -> Value {
    let mut message = json!({"feed": row["key"]["feed"], "sequence": row["key"]["sequence"]});
    let (mut columns, mut counters) = (json!({}), json!({}));
    for (name, value) in row["columns"].as_object().expect("columns") {
        match name.as_str() {
            "sender" | "id" | "event" | "target" | "mentions" | "to" | "except" | "recalled" | "edited" => {
                message[name] = value.clone();
            }
            "target_sender" => {}
            "cleared" => {
                for name in value.as_array().expect("names") {
                    columns[name.as_str().expect("a name")] = Value::Null;
                }
            }
            _ => match name.strip_prefix("counter.") {
                Some(counter) => counters[counter] = value.clone(),
                None => columns[name] = value.clone(),
            },
        }
    }
    message["columns"] = columns;
    if counters.as_object().is_some_and(|counters| !counters.is_empty()) {
        message["counters"] = counters;
    }
    message
}

/// Checks that the copy has the messages, members and conversations of the source.
fn check_equal(source: &Server, copy: &Copy, has_copies: bool) {
    let shown = |mut message: Value| {
        if has_copies {
            // A copy of a message has no counters, and a reference has them.
            message.as_object_mut().expect("an object").remove("counters");
        }
        without_times(message)
    };
    for feed in (0..3).map(|feed| format!("room,name=r{feed}")) {
        let path = format!("{FEEDS}/{feed}");
        if !is_done(&source.get(&path)) {
            assert!(!is_done(&copy.server.get(&path)), "{feed} was deleted");
            continue;
        }
        let path = format!("{FEEDS}/{feed}/messages");
        let wanted = pages(source, &path).into_iter();
        let wanted: Vec<Value> = wanted
            .map(|message| without_times(copy.numbered(message)))
            .collect();
        let found: Vec<Value> = pages(&copy.server, &path)
            .into_iter()
            .map(without_times)
            .collect();
        assert_eq!(found, wanted, "messages of {feed}");
        let members = |server: &Server| {
            let list = server.get(&format!("{FEEDS}/{feed}/members")).expect(200);
            list["members"].as_array().expect("a list").clone()
        };
        let member = |member: Value, cursor: Value| json!({"user": member["user"], "muted": member["muted"], "cursor": cursor});
        let wanted = members(source).into_iter().map(|one| {
            let cursor = copy.numbered_cursor(&one["cursor"]);
            member(one, cursor)
        });
        let found = members(&copy.server).into_iter().map(|one| {
            let cursor = one["cursor"].clone();
            member(one, cursor)
        });
        assert!(found.eq(wanted), "members of {feed}");
    }
    for user in USERS {
        let path = format!("{TABLE}/users/{user}/inbox");
        let wanted = pages(source, &path).into_iter();
        let wanted: Vec<Value> = wanted.map(|message| shown(copy.numbered(message))).collect();
        let found: Vec<Value> = pages(&copy.server, &path).into_iter().map(shown).collect();
        assert_eq!(found, wanted, "inbox of {user}");
        let path = format!("{TABLE}/users/{user}/blocks");
        let senders = |server: &Server| server.get(&path).expect(200)["senders"].clone();
        assert_eq!(senders(&copy.server), senders(source), "blocks of {user}");
        check_conversations(source, copy, user);
    }
}

/// Checks that a user has the same conversations, with the same last messages, unread counts and cursors.
fn check_conversations(source: &Server, copy: &Copy, user: &str) {
    let list = |server: &Server| {
        let list = server.get(&format!("{TABLE}/users/{user}/conversations"));
        list.expect(200)
    };
    let (mut wanted, mut found) = (list(source), list(&copy.server));
    for one in wanted["conversations"].as_array_mut().expect("a list") {
        one["cursor"] = copy.numbered_cursor(&one["cursor"]);
        if one["last"].is_object() {
            one["last"] = without_times(copy.numbered(one["last"].take()));
        }
    }
    for one in found["conversations"].as_array_mut().expect("a list") {
        if one["last"].is_object() {
            one["last"] = without_times(one["last"].take());
        }
        let path = format!("{TABLE}/users/{user}/cursors/{}", text(one, "feed"));
        let devices = |server: &Server| server.get(&path).expect(200)["devices"].clone();
        let known = devices(source);
        let known = known.as_object().expect("devices").iter();
        let known: BTreeMap<&String, Value> = known
            .map(|(device, cursor)| (device, copy.numbered_cursor(cursor)))
            .collect();
        assert_eq!(devices(&copy.server), json!(known), "devices of {user}");
    }
    for name in ["conversations", "total", "unread"] {
        assert_eq!(found[name], wanted[name], "{name} of {user}");
    }
}

#[test]
fn a_base_and_the_stream_after_its_position_rebuild_inboxes_members_and_cursors() {
    let seed = seed("a_base_and_the_stream_after_its_position_rebuild_inboxes_members_and_cursors");
    let size = rounds("TIDELINE_COPY_SIZE", 1, 10);
    for (number, inboxes) in [
        json!({}),
        json!({"push_max": 2, "fan_out_max": 4}),
        json!({"push_max": 3, "entries": "copy"}),
    ]
    .into_iter()
    .enumerate()
    {
        rebuild(seed + number as u64, size, &inboxes);
    }
}

fn rebuild(seed: u64, size: usize, inboxes: &Value) {
    let has_copies = inboxes.get("entries").is_some();
    let mut source = Source {
        server: start(inboxes),
        random: Random::new(seed),
        messages: Vec::new(),
        sent: 0,
        deletes_feeds: true,
        has_job: inboxes.get("fan_out_max").is_some(),
    };
    let stream = json!({"tables": ["chat", "chat-users"]});
    json_of(&source.server, "PUT", "/v1/changes/all", &stream).expect(200);
    source.steps(size * STEPS[0]);
    let described = source.server.get("/v1/changes/all").expect(200);
    let mut cursor = text(&described, "end").to_owned();
    // If a feed were deleted and created again before the base is read, the copy would get its messages in
    // another order.
    source.deletes_feeds = false;
    source.steps(size * STEPS[1]);
    let mut copy = Copy {
        server: start(inboxes),
        numbers: BTreeMap::new(),
        cursors: BTreeMap::new(),
        joined: BTreeMap::new(),
    };
    copy.begin(&source.server);
    check_equal(&source.server, &copy, has_copies);
    source.deletes_feeds = true;
    source.steps(size * STEPS[2]);
    loop {
        let page = source
            .server
            .get(&format!("/v1/changes/all/records?limit=7&cursor={cursor}"));
        let page = page.expect(200);
        for record in page["records"].as_array().expect("a list") {
            copy.apply(record);
        }
        text(&page, "next").clone_into(&mut cursor);
        if page["has_more"] == false {
            break;
        }
        // Adds changes while earlier ones are still being read.
        source.steps(usize::from(source.sent.is_multiple_of(16)));
    }
    if source.has_job {
        fan_out(&copy.server);
    }
    check_equal(&source.server, &copy, has_copies);
}

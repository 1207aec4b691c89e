//! Instant messaging over kills of the server, compared with a model: users with three devices each, and rooms with
//! random messages, edits, recalls, deletions, members and cursors.
//!
//! Each room has one driver, which makes all changes of the room, so that their order is known. A request without a
//! response is sent again until it has one. Devices follow the inboxes of their users by cursors, are offline at times,
//! and are replaced by new ones that begin without a cursor. In the end each device has exactly the messages of the
//! model, in their order, and each unread count and each number of mentions is exact.
//!
//! With `TIDELINE_SUITE_BACKEND=cassandra`, the data is in a cluster.
//!
//! Users join without earlier messages. Such messages have numbers below the cursors of the devices, so a device would
//! have to read them from the room.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use tideline_testkit::{Random, rounds, seed};
use tideline_tests::program::free_address;
use tideline_tests::server::DataFolder;
use tideline_tests::{Client, Launch, wait};

use crate::feeds::{Done, apply, send_over_restarts, sequence_of, wait_acknowledged};
use crate::row_archive::check_of;

const USERS: [&str; 6] = ["ann", "bea", "cid", "dan", "eva", "fay"];
const DEVICES: usize = 3;
const ROOMS: usize = 4;
/// Number of members above which the messages of a room are pulled. It is small, so that rooms switch between push and
/// pull.
const PUSH_MAX: u64 = 3;
const TABLE: &str = "/v1/tables/im";

/// Message of the model.
struct Message {
    sender: &'static str,
    columns: Value,
    mentions: Vec<&'static str>,
    is_recalled: bool,
}

/// Membership of the model.
struct Member {
    /// Messages above this sequence number are shown.
    after: i64,
    cursor: i64,
}

/// Room with its model. Only its driver changes it.
struct Room {
    name: String,
    client: Client,
    random: Random,
    messages: BTreeMap<i64, Message>,
    /// Sequence numbers of deleted messages.
    deleted: BTreeSet<i64>,
    members: BTreeMap<&'static str, Member>,
    newest: i64,
    sent: u64,
}

impl Room {
    fn path(&self) -> String {
        format!("{TABLE}/feeds/room,name={}", self.name)
    }

    fn run(&mut self, steps: usize, acknowledged: &Sender<()>) {
        for _ in 0..steps {
            match self.random.below(20) {
                0..=7 => self.send(),
                8..=10 => self.edit(),
                11 => self.recall(),
                12 => self.delete(),
                13..=15 => self.join(),
                16 => self.leave(),
                _ => self.read_up_to(),
            }
            // After the last kill, no thread receives these signals.
            let _ = acknowledged.send(());
        }
    }

    fn send(&mut self) {
        let (sender, count) = (self.random.of(&USERS), 1 + self.random.below(3));
        let mut sent = Vec::new();
        for _ in 0..count {
            self.sent += 1;
            let mentions: Vec<&'static str> = USERS.into_iter().filter(|_| self.random.is(15)).collect();
            sent.push((format!("{}-{}", self.name, self.sent), mentions));
        }
        let messages: Vec<Value> = sent
            .iter()
            .map(|(id, mentions)| json!({"id": id, "mentions": mentions, "columns": {"text": id}}))
            .collect();
        let path = format!("{}/messages?as={sender}", self.path());
        let response = send_over_restarts(&self.client, "POST", &path, &json!({"messages": messages}));
        let response = response.expect_status(200).json();
        for ((id, mentions), outcome) in sent
            .into_iter()
            .zip(response["messages"].as_array().expect("a list"))
        {
            let sequence = sequence_of(outcome);
            assert!(sequence > self.newest, "{id} has a number below {}", self.newest);
            self.newest = sequence;
            let message = Message {
                sender,
                columns: json!({"text": id}),
                mentions,
                is_recalled: false,
            };
            self.messages.insert(sequence, message);
        }
    }

    /// Returns the sequence number of a random message.
    fn message(&mut self) -> Option<i64> {
        let count = self.messages.len() as u64;
        let at = (count > 0).then(|| self.random.below(count))?;
        self.messages.keys().nth(at as usize).copied()
    }

    fn edit(&mut self) {
        let Some(sequence) = self.message() else { return };
        let columns = json!({"text": format!("edit {}", self.random.below(1_000))});
        let path = format!("{}/messages/{sequence}", self.path());
        let edited = send_over_restarts(&self.client, "PATCH", &path, &json!({"columns": columns}));
        let message = self.messages.get_mut(&sequence).expect("it exists");
        match message.is_recalled {
            true => drop(edited.expect_status(409)),
            false => {
                edited.expect_status(200);
                message.columns = columns;
            }
        }
    }

    fn recall(&mut self) {
        let Some(sequence) = self.message() else { return };
        let path = format!("{}/messages/{sequence}/recall", self.path());
        send_over_restarts(&self.client, "POST", &path, &Value::Null).expect_status(200);
        let message = self.messages.get_mut(&sequence).expect("it exists");
        message.is_recalled = true;
        message.columns = json!({});
    }

    fn delete(&mut self) {
        let Some(sequence) = self.message() else { return };
        let path = format!("{}/messages/{sequence}", self.path());
        let deleted = send_over_restarts(&self.client, "DELETE", &path, &Value::Null);
        // A repeated deletion finds no message.
        assert!([200, 404].contains(&deleted.status), "{}", deleted.text());
        self.messages.remove(&sequence);
        self.deleted.insert(sequence);
    }

    fn join(&mut self) {
        let user = self.random.of(&USERS);
        let path = format!("{}/members/{user}", self.path());
        send_over_restarts(&self.client, "PUT", &path, &json!({})).expect_status(200);
        let member = Member {
            after: self.newest,
            cursor: 0,
        };
        self.members.entry(user).or_insert(member);
    }

    fn leave(&mut self) {
        let user = self.random.of(&USERS);
        let path = format!("{}/members/{user}", self.path());
        send_over_restarts(&self.client, "DELETE", &path, &Value::Null).expect_status(204);
        self.members.remove(user);
    }

    /// Moves the cursor of a member to a random message.
    fn read_up_to(&mut self) {
        let (user, sequence) = (self.random.of(&USERS), self.message());
        let (Some(sequence), true) = (sequence, self.members.contains_key(user)) else {
            return;
        };
        let path = format!("{TABLE}/users/{user}/cursors/room,name={}", self.name);
        let request = json!({"sequence": sequence.to_string()});
        send_over_restarts(&self.client, "PUT", &path, &request).expect_status(200);
        let member = self.members.get_mut(user).expect("a member");
        member.cursor = member.cursor.max(sequence);
    }

    /// Returns the messages that the inbox of a user shows.
    fn shown(&self, user: &str) -> BTreeMap<i64, Value> {
        let Some(member) = self.members.get(user) else {
            return BTreeMap::new();
        };
        let shown = self.messages.range(member.after + 1..);
        shown
            .map(|(sequence, message)| (*sequence, message.columns.clone()))
            .collect()
    }

    /// Returns the number of unread messages of a member, and of mentions among them.
    fn unread(&self, user: &str) -> (usize, usize) {
        let member = &self.members[user];
        let unread = self.messages.range(member.after.max(member.cursor) + 1..);
        let unread = unread.filter(|(_, message)| message.sender != user && !message.is_recalled);
        let unread: Vec<&Message> = unread.map(|(_, message)| message).collect();
        let mentions = unread.iter().filter(|message| message.mentions.contains(&user));
        (unread.len(), mentions.count())
    }
}

/// Device of a user, with its copy of the messages.
struct Device {
    user: &'static str,
    client: Client,
    random: Random,
    /// Sequence number up to which the device has read the inbox.
    cursor: String,
    copy: BTreeMap<i64, Value>,
    /// Number of earlier devices that this device has replaced.
    replaced: usize,
}

impl Device {
    /// Follows the inbox over restarts, until `is_done` is true and no message is left.
    fn run(mut self, is_done: &AtomicBool) -> Self {
        loop {
            let is_last = is_done.load(Ordering::SeqCst);
            let (limit, wait) = (1 + self.random.below(30), if is_last { "0s" } else { "1s" });
            let path = format!(
                "{TABLE}/users/{}/inbox?after={}&limit={limit}&wait={wait}",
                self.user, self.cursor
            );
            let page = send_over_restarts(&self.client, "GET", &path, &Value::Null);
            let page = page.expect_status(200).json();
            let messages = page["messages"].as_array().expect("a list");
            let mut last: i64 = self.cursor.parse().expect("a number");
            for message in messages {
                let sequence = sequence_of(message);
                assert!(
                    sequence > last,
                    "{} is repeated or out of order for {}",
                    message,
                    self.user
                );
                last = sequence;
                apply(&mut self.copy, message);
            }
            if let Some(next) = page["next"].as_str() {
                next.clone_into(&mut self.cursor);
            }
            if is_last && messages.is_empty() && page["more"] == false {
                return self;
            }
            match self.random.below(40) {
                // The device is offline.
                0 => wait::pause(Duration::from_millis(self.random.below(300))),
                // A new device begins without a cursor.
                1 => {
                    "0".clone_into(&mut self.cursor);
                    self.copy.clear();
                    self.replaced += 1;
                }
                _ => {}
            }
        }
    }
}

/// Checks the conversations of a user against the model.
fn check_conversations(client: &Client, user: &'static str, rooms: &[Room]) {
    let found = client.get(&format!("{TABLE}/users/{user}/conversations"));
    let found = found.expect_status(200).json();
    let joined: Vec<&Room> = rooms
        .iter()
        .filter(|room| room.members.contains_key(user))
        .collect();
    assert_eq!(found["total"], joined.len(), "{user}: {found}");
    let mut total = 0;
    for room in joined {
        let conversations = found["conversations"].as_array().expect("a list");
        let mut of_room = conversations
            .iter()
            .filter(|found| found["tags"]["name"] == *room.name);
        let conversation = of_room.next().expect("a conversation");
        let (unread, mentions) = room.unread(user);
        assert_eq!(
            (&conversation["unread"], &conversation["mentions"]),
            (&json!(unread), &json!(mentions)),
            "{user} in {}: {conversation}",
            room.name
        );
        total += unread;
    }
    assert_eq!(found["unread"], total, "{user}");
}

#[test]
fn each_device_has_the_messages_of_the_model_and_each_unread_count_is_exact_over_kills() {
    let seed = seed("each_device_has_the_messages_of_the_model_and_each_unread_count_is_exact_over_kills");
    let mut random = Random::new(seed);
    let steps = rounds("TIDELINE_MESSAGING_STEPS", 120, 3_000);
    let kills = rounds("TIDELINE_MESSAGING_KILLS", 3, 30);
    let folder = DataFolder::of_suite();
    let address: SocketAddr = free_address();
    let launch = Launch::default().listen(address);
    let mut server = Some(folder.start(&launch));
    let client = Client::new(address);
    let columns = json!([{"name": "text", "type": "string"}]);
    let feed = json!({"columns": columns, "inboxes": {"push_max": PUSH_MAX}});
    let table = json!({"name": "im", "model": "feed", "feed": feed});
    client.post_json("/v1/tables", &table).expect_status(201);
    let mut rooms: Vec<Room> = (0..ROOMS)
        .map(|number| Room {
            name: format!("r{number}"),
            client: Client::new(address),
            random: Random::new(random.next()),
            messages: BTreeMap::new(),
            deleted: BTreeSet::new(),
            members: BTreeMap::new(),
            newest: 0,
            sent: 0,
        })
        .collect();
    for room in &rooms {
        send_over_restarts(&client, "PUT", &room.path(), &json!({})).expect_status(200);
    }
    let is_done = AtomicBool::new(false);
    let devices = thread::scope(|scope| {
        let done = Done(&is_done);
        let mut devices = Vec::new();
        for user in USERS {
            for _ in 0..DEVICES {
                let device = Device {
                    user,
                    client: Client::new(address),
                    random: Random::new(random.next()),
                    cursor: "0".to_owned(),
                    copy: BTreeMap::new(),
                    replaced: 0,
                };
                let is_done = &is_done;
                devices.push(scope.spawn(move || device.run(is_done)));
            }
        }
        let (sender, acknowledged) = channel();
        thread::scope(|scope| {
            for room in &mut rooms {
                let sender = sender.clone();
                scope.spawn(move || room.run(steps, &sender));
            }
            let each = (steps * ROOMS / (kills + 1)) as u64;
            for _ in 0..kills {
                wait_acknowledged(&acknowledged, each / 2 + random.below(each / 2));
                server.take().expect("it runs").kill();
                server = Some(folder.start(&launch));
            }
        });
        drop(done);
        let devices = devices.into_iter().map(|device| device.join().expect("no panic"));
        devices.collect::<Vec<_>>()
    });
    for device in &devices {
        let shown: BTreeMap<i64, Value> = rooms.iter().flat_map(|room| room.shown(device.user)).collect();
        // A device keeps the messages of a room that its user has left, because the inbox does not report that the user
        // has left.
        let is_current =
            |sequence: &i64| shown.contains_key(sequence) || !is_left(&rooms, device.user, *sequence);
        let copy = device.copy.iter().filter(|(sequence, _)| is_current(sequence));
        let copy: BTreeMap<i64, Value> = copy
            .map(|(sequence, columns)| (*sequence, columns.clone()))
            .collect();
        assert_eq!(copy, shown, "{}", device.user);
    }
    for user in USERS {
        check_conversations(&client, user, &rooms);
    }
    let messages: usize = rooms.iter().map(|room| room.messages.len()).sum();
    let replaced: usize = devices.iter().map(|device| device.replaced).sum();
    println!(
        "{kills} kills, {messages} messages, {} devices, {replaced} replaced",
        devices.len()
    );
    assert!(server.expect("it runs").terminate().status.success());
    if folder.has_data() {
        let report = check_of(&folder);
        assert_eq!(report["is_sound"], true, "{report}");
    }
}

/// Returns true if a message was sent to a room that the user has left, or joined again, since then.
fn is_left(rooms: &[Room], user: &str, sequence: i64) -> bool {
    let has = |room: &&Room| room.messages.contains_key(&sequence) || room.deleted.contains(&sequence);
    let room = rooms.iter().find(has).expect("each message was sent");
    room.members
        .get(user)
        .is_none_or(|member| sequence <= member.after)
}

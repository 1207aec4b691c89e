//! The two applications of the guide at their sizes: a group with three devices of each member, and an author with many
//! followers.
//!
//! The short form has fewer members; `TIDELINE_GROUP_MEMBERS` and `TIDELINE_FOLLOWERS` set the numbers.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use serde_json::{Value, json};
use tideline_testkit::{Random, rounds, seed};
use tideline_tests::server::{DataFolder, Server};
use tideline_tests::{Client, Launch};

use crate::feeds::{apply, sequence_of};

/// Number of messages of the group.
const MESSAGES: usize = 40;
/// Number of messages of a request.
const BATCH: usize = 4;
/// Number of threads that send the requests of members.
const THREADS: usize = 8;
/// Number of followers whose inboxes are read.
const SAMPLE: usize = 40;

/// Starts a server that creates many inboxes at once.
fn start(folder: &DataFolder) -> Server {
    let launch = Launch::default().environment("TIDELINE__TABLES__TIMELINES_PER_MINUTE", "100000000");
    folder.start(&launch)
}

fn create(client: &Client, name: &str, push_max: usize) {
    let columns = json!([{"name": "text", "type": "string"}]);
    let feed = json!({"columns": columns, "inboxes": {"push_max": push_max}});
    let table = json!({"name": name, "model": "feed", "feed": feed});
    client.post_json("/v1/tables", &table).expect_status(201);
}

fn request(client: &Client, method: &str, path: &str, body: &Value) -> Value {
    let headers = [("content-type", "application/json")];
    let body = match body {
        Value::Null => String::new(),
        body => body.to_string(),
    };
    let response = client
        .send(method, path, &headers, body.as_bytes())
        .expect("a response");
    assert!(response.is_success(), "{method} {path}: {response:?}");
    match response.body.is_empty() {
        true => Value::Null,
        false => response.json(),
    }
}

/// Calls `each` with the numbers below `count` on several threads.
fn each_of(count: usize, each: impl Fn(usize) + Sync) {
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::SeqCst);
                    if number >= count {
                        return;
                    }
                    each(number);
                }
            });
        }
    });
}

/// Messages that a device has copied, by sequence number, and its cursor.
#[derive(Debug, Clone, Default)]
struct Device {
    copy: BTreeMap<i64, Value>,
    cursor: i64,
}

impl Device {
    /// Reads the new messages and events of an inbox, page by page.
    fn sync(&mut self, client: &Client, inbox: &str, limit: usize) {
        loop {
            let path = format!("{inbox}?after={}&limit={limit}", self.cursor);
            let page = request(client, "GET", &path, &Value::Null);
            for message in page["messages"].as_array().expect("a list") {
                assert!(
                    sequence_of(message) > self.cursor,
                    "{inbox}: {message} is repeated"
                );
                self.cursor = sequence_of(message);
                apply(&mut self.copy, message);
            }
            if page["more"] == false {
                return;
            }
        }
    }
}

/// Message of the model.
struct Message {
    sender: usize,
    columns: Value,
    mention: usize,
    is_recalled: bool,
}

/// Group of the model.
struct Group {
    client: Client,
    random: Random,
    members: usize,
    messages: BTreeMap<i64, Message>,
}

const ROOM: &str = "/v1/tables/im/feeds/room,name=all";

impl Group {
    fn send(&mut self, count: usize) {
        for _ in 0..count / BATCH {
            let members = self.members as u64;
            let (sender, mention) = (
                self.random.below(members) as usize,
                self.random.below(members) as usize,
            );
            let texts: Vec<String> = (0..BATCH)
                .map(|part| format!("message {} of u{sender}", self.messages.len() + part))
                .collect();
            let messages: Vec<Value> = texts
                .iter()
                .map(|text| json!({"id": text, "columns": {"text": text}, "mentions": [format!("u{mention}")]}))
                .collect();
            let path = format!("{ROOM}/messages?as=u{sender}");
            let body = json!({"messages": messages});
            let sent = request(&self.client, "POST", &path, &body);
            // A device that got no response sends the messages again.
            let again = request(&self.client, "POST", &path, &body);
            for ((text, first), second) in texts
                .iter()
                .zip(sent["messages"].as_array().expect("a list"))
                .zip(again["messages"].as_array().expect("a list"))
            {
                assert_eq!(
                    (sequence_of(first), &second["repeated"]),
                    (sequence_of(second), &json!(true))
                );
                let message = Message {
                    sender,
                    columns: json!({"text": text}),
                    mention,
                    is_recalled: false,
                };
                self.messages.insert(sequence_of(first), message);
            }
        }
    }

    /// Edits and recalls some messages.
    fn change(&mut self) {
        for number in [1, 3, 7, MESSAGES - 2] {
            let sequence = *self.messages.keys().nth(number).expect("a message");
            let message = self.messages.get_mut(&sequence).expect("a message");
            let path = format!("{ROOM}/messages/{sequence}");
            match number % 2 {
                0 => {
                    request(&self.client, "POST", &format!("{path}/recall"), &Value::Null);
                    message.is_recalled = true;
                    message.columns = json!({});
                }
                _ => {
                    message.columns = json!({"text": format!("edit of {number}")});
                    request(&self.client, "PATCH", &path, &json!({"columns": message.columns}));
                }
            }
        }
    }

    fn shown(&self) -> BTreeMap<i64, Value> {
        let messages = self.messages.iter();
        messages
            .map(|(sequence, message)| (*sequence, message.columns.clone()))
            .collect()
    }

    /// Returns the number of unread messages of a member after a cursor, and of mentions among them.
    fn unread(&self, member: usize, cursor: i64) -> (usize, usize) {
        let unread = self.messages.range(cursor + 1..).map(|(_, message)| message);
        let unread = unread.filter(|message| message.sender != member && !message.is_recalled);
        let mentions = unread.clone().filter(|message| message.mention == member);
        (unread.count(), mentions.count())
    }
}

#[test]
fn three_devices_of_each_member_of_a_group_are_in_sync() {
    let members = rounds("TIDELINE_GROUP_MEMBERS", 40, 1_000);
    let folder = DataFolder::new();
    let server = start(&folder);
    let client = server.client();
    // The messages are written to the inboxes of the whole group.
    create(&client, "im", 1_000);
    request(&client, "PUT", ROOM, &json!({"attributes": {"title": "All"}}));
    each_of(members, |member| {
        request(&client, "PUT", &format!("{ROOM}/members/u{member}"), &json!({}));
    });
    let mut group = Group {
        client: client.clone(),
        random: Random::new(seed("three_devices_of_each_member_of_a_group_are_in_sync")),
        members,
        messages: BTreeMap::new(),
    };
    let begun = Instant::now();
    group.send(MESSAGES / 2);
    let took = begun.elapsed() / (MESSAGES / BATCH) as u32;
    // Phones read now and later, tablets only later, and laptops read the history of the room.
    let phones: Vec<_> = (0..members)
        .map(|_| std::sync::Mutex::new(Device::default()))
        .collect();
    let inbox = |member: usize| format!("/v1/tables/im/users/u{member}/inbox");
    each_of(members, |member| {
        phones[member]
            .lock()
            .expect("no panic")
            .sync(&client, &inbox(member), 7);
    });
    group.send(MESSAGES - MESSAGES / 2);
    group.change();
    let shown = group.shown();
    let history = {
        let mut history = BTreeMap::new();
        let page = request(
            &client,
            "GET",
            &format!("{ROOM}/messages?limit=1000&events=false"),
            &Value::Null,
        );
        for message in page["messages"].as_array().expect("a list") {
            history.insert(sequence_of(message), message["columns"].clone());
        }
        history
    };
    assert_eq!(history, shown);
    let sequences: Vec<i64> = group.messages.keys().copied().collect();
    each_of(members, |member| {
        let mut phone = phones[member].lock().expect("no panic");
        phone.sync(&client, &inbox(member), 50);
        let mut tablet = Device::default();
        tablet.sync(&client, &inbox(member), 9);
        assert_eq!((&phone.copy, &tablet.copy), (&shown, &shown), "u{member}");
        assert_eq!(phone.cursor, tablet.cursor, "u{member}");
        // The member reads a part of the room on the phone; the unread messages are then the rest on all devices.
        let cursor = sequences[member % MESSAGES];
        let cursors = format!("/v1/tables/im/users/u{member}/cursors/room,name=all");
        request(
            &client,
            "PUT",
            &cursors,
            &json!({"sequence": cursor.to_string(), "device": "phone"}),
        );
        request(&client, "PUT", &cursors, &json!({"sequence": cursor.to_string()}));
        let found = request(
            &client,
            "GET",
            &format!("/v1/tables/im/users/u{member}/conversations"),
            &Value::Null,
        );
        let (unread, mentions) = group.unread(member, cursor);
        let conversation = &found["conversations"][0];
        assert_eq!(
            (
                &conversation["unread"],
                &conversation["mentions"],
                &found["unread"]
            ),
            (&json!(unread), &json!(mentions), &json!(unread)),
            "u{member}"
        );
    });
    let columns = ["feed", "sender", "event"].map(|column| json!({"column": column, "as": "keyword"}));
    let mut columns = columns.to_vec();
    columns.push(json!({"column": "text", "as": "text"}));
    let index = json!({"name": "texts", "columns": columns});
    request(
        &client,
        "POST",
        "/v1/tables/im/search-indexes?refresh=wait",
        &index,
    );
    let search = json!({"feeds": ["room,name=all"], "where": {"and": [
        {"column": "text", "text": "edit"}, {"column": "event", "exists": false}]}});
    let found = request(&client, "POST", "/v1/tables/im/feeds/messages/search", &search);
    let edited = group.messages.values().filter(|message| {
        message.columns["text"]
            .as_str()
            .is_some_and(|text| text.starts_with("edit"))
    });
    assert_eq!(found["total"], edited.count(), "{found}");
    println!(
        "{members} members, {} devices, {took:?} per request of {BATCH} messages",
        3 * members
    );
    assert!(server.terminate().status.success());
}

const OUTBOX: &str = "/v1/tables/social/feeds/outbox,author=ann";

/// Sends a post of an author. Returns its sequence number.
fn post(client: &Client, sender: &str, text: &str) -> i64 {
    let body = json!({"messages": [{"columns": {"text": text}}]});
    let sent = request(client, "POST", &format!("{OUTBOX}/messages?as={sender}"), &body);
    sequence_of(&sent["messages"][0])
}

/// Returns the sequence numbers of an inbox, which is read in pages.
fn inbox(client: &Client, user: &str) -> Vec<i64> {
    let mut device = Device::default();
    device.sync(client, &format!("/v1/tables/social/users/{user}/inbox"), 3);
    device.copy.into_keys().collect()
}

fn follow(client: &Client, user: &str, history: &str) {
    let path = format!("{OUTBOX}/members/{user}");
    request(client, "PUT", &path, &json!({"history": history}));
}

#[test]
fn the_posts_of_an_author_reach_followers_before_and_after_the_switch_to_pulling() {
    let followers = rounds("TIDELINE_FOLLOWERS", 240, 100_000);
    let push_max = (followers / 3).min(500);
    let folder = DataFolder::new();
    let server = start(&folder);
    let client = server.client();
    create(&client, "social", push_max);
    let mut posts = vec![post(&client, "ann", "before anyone follows")];
    // Posts are sent each time another share of the followers has joined. The first two shares are within the limit, so
    // their posts are pushed; later posts are pulled.
    let mut joined = 0;
    let mut joins = Vec::with_capacity(followers);
    for share in [push_max / 2, push_max, push_max + push_max / 2, followers] {
        let begun = Instant::now();
        each_of(share - joined, |number| {
            let number = joined + number;
            follow(
                &client,
                &format!("f{number}"),
                if number % 2 == 0 { "all" } else { "none" },
            );
        });
        joins.resize(share, posts.len());
        println!("{} followers in {:?}", share - joined, begun.elapsed());
        joined = share;
        let begun = Instant::now();
        posts.push(post(&client, "ann", &format!("to {share} followers")));
        posts.push(post(&client, "bea", &format!("of a guest to {share} followers")));
        println!("a post to {share} followers: {:?}", begun.elapsed() / 2);
    }
    // Followers of each share, before and after each boundary.
    let mut sample: Vec<usize> = vec![
        0,
        1,
        push_max / 2 - 1,
        push_max / 2,
        push_max - 1,
        push_max,
        push_max + 1,
        followers - 1,
    ];
    let mut random = Random::new(seed(
        "the_posts_of_an_author_reach_followers_before_and_after_the_switch_to_pulling",
    ));
    sample.extend((0..SAMPLE).map(|_| random.below(followers as u64) as usize));
    sample.sort_unstable();
    sample.dedup();
    let expected = |number: usize| match number % 2 {
        0 => posts.clone(),
        _ => posts[joins[number]..].to_vec(),
    };
    each_of(sample.len(), |at| {
        let number = sample[at];
        assert_eq!(
            inbox(&client, &format!("f{number}")),
            expected(number),
            "f{number}"
        );
    });
    // A block hides all posts of a sender, pushed and pulled, until the block ends.
    for number in [0, followers - 1] {
        let user = format!("f{number}");
        let block = format!("/v1/tables/social/users/{user}/blocks/bea");
        request(&client, "PUT", &block, &Value::Null);
        let is_of_ann = |post: &&i64| {
            posts
                .iter()
                .position(|other| other == *post)
                .is_some_and(|at| at == 0 || at % 2 == 1)
        };
        let of_ann: Vec<i64> = expected(number).iter().filter(is_of_ann).copied().collect();
        assert_eq!(inbox(&client, &user), of_ann, "{user}");
        request(&client, "DELETE", &block, &Value::Null);
        assert_eq!(inbox(&client, &user), expected(number), "{user}");
    }
    // A follower who leaves sees no posts, and sees all earlier posts after following again with the history `all`.
    for number in [1, push_max + 1] {
        let user = format!("f{number}");
        request(
            &client,
            "DELETE",
            &format!("{OUTBOX}/members/{user}"),
            &Value::Null,
        );
        assert_eq!(inbox(&client, &user), [] as [i64; 0], "{user}");
        follow(&client, &user, "all");
        assert_eq!(inbox(&client, &user), posts, "{user}");
    }
    assert!(server.terminate().status.success());
}

//! Copies of points, timelines, saved searches and messages: an empty server gets the same contents from a base (an
//! export of the data) and from the stream after a position before the base.
//!
//! The stream is read from a position before the base. The base therefore already has some of the changes in the
//! stream, and lacks data that was deleted between the position and the base. A change of data that the copy does
//! not have is skipped, because its deletion follows in the stream. The copy of a feed table has manual sequence
//! numbers, so that its messages and events keep the numbers of the source. The module `changes` tests a copy of
//! rows.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use tideline_testkit::{Random, rounds, seed};

use crate::client::{Response, Server};

const TABLE: &str = "/v1/tables/default";
const FEEDS: &str = "/v1/tables/chat/feeds";
/// Fields of the points.
const FIELDS: [&str; 4] = ["flag", "float", "integer", "text"];
/// Time of the first point, in nanoseconds.
const START: i64 = 1_795_000_000_000_000_000;
/// Number of random writes: before the position, between it and the base, and after the base.
const STEPS: [usize; 3] = [150, 60, 150];

pub(crate) fn json_of(server: &Server, method: &str, path: &str, body: &Value) -> Response {
    server.json(method, path, &body.to_string())
}

fn write_points(server: &Server, points: &[Value]) {
    let written = json_of(
        server,
        "POST",
        &format!("{TABLE}/points"),
        &json!({"points": points}),
    );
    assert_eq!(written.expect(200)["rejected"], 0);
}

/// Checks that a request has succeeded, or that the object that it changes does not exist. Returns true if it
/// has succeeded.
pub(crate) fn is_done(response: &Response) -> bool {
    assert!([200, 204, 404].contains(&response.status), "{}", response.text());
    response.status != 404
}

fn start(sequence: &str) -> Server {
    let server = Server::start();
    let columns = json!([{"name": "text", "type": "string"}]);
    let chat = json!({"name": "chat", "model": "feed", "feed": {"columns": columns, "sequence": sequence}});
    json_of(&server, "POST", "/v1/tables", &chat).expect(201);
    server
}

/// Database that changes at random.
struct Source {
    server: Server,
    random: Random,
    /// Messages that exist: the feed and the sequence number.
    messages: Vec<(String, String)>,
    number: u64,
}

impl Source {
    fn steps(&mut self, count: usize) {
        for _ in 0..count {
            self.step();
        }
    }

    fn step(&mut self) {
        match self.random.below(14) {
            0..=3 => self.write_points(),
            4 => self.delete_points(),
            5 => self.change_timeline(),
            6 => self.change_search(),
            7..=9 => self.send(),
            10..=12 => self.change_message(),
            _ => self.change_feed(),
        }
        if self.random.is(5) {
            self.server.engine.seal().expect("flushed");
        }
        let nanos = 1_000_000 * (1 + self.random.below(2_000));
        self.server.clock.advance(i64::try_from(nanos).expect("small"));
    }

    fn host(&mut self) -> String {
        format!("h{}", self.random.below(4))
    }

    fn write_points(&mut self) {
        let points: Vec<Value> = (0..1 + self.random.below(4))
            .map(|_| {
                let random = &mut self.random;
                let number = random.below(1_000);
                let all = [
                    ("float", json!({"float": number})),
                    ("integer", json!(number)),
                    ("flag", json!(number.is_multiple_of(2))),
                    ("text", json!(format!("line {number}\n\"quoted\""))),
                ];
                let mut fields: Map<String, Value> = Map::new();
                for (name, value) in all {
                    if random.is(50) || fields.is_empty() {
                        fields.insert(name.to_owned(), value);
                    }
                }
                let time = START + i64::try_from(random.below(40)).expect("small") * 1_000_000_000;
                let measurement = random.of(&["cpu", "disk"]);
                let tags = json!({"host": format!("h{}", random.below(4)), "of": "a b,c"});
                json!({"measurement": measurement, "tags": tags, "time": time, "fields": fields})
            })
            .collect();
        write_points(&self.server, &points);
    }

    /// Selects the timelines of a random host.
    fn selector(&mut self) -> Value {
        json!({"where": {"tag": "host", "equals": self.host()}})
    }

    fn delete_points(&mut self) {
        let timelines = self.selector();
        let bound =
            |random: &mut Random| START + i64::try_from(random.below(20)).expect("small") * 1_000_000_000;
        let range = match self.random.below(4) {
            0 => json!({"start": null, "end": bound(&mut self.random) + 1}),
            1 => json!({"start": bound(&mut self.random) + 20_000_000_000, "end": null}),
            _ => {
                let start = bound(&mut self.random);
                json!({"start": start, "end": start + 5_000_000_000})
            }
        };
        let delete = json!({"timelines": timelines, "range": range});
        json_of(&self.server, "POST", &format!("{TABLE}/points/delete"), &delete).expect(200);
    }

    /// Changes attributes of the timelines of a host, or removes the timelines.
    fn change_timeline(&mut self) {
        let selector = self.selector();
        if self.random.is(25) {
            let delete = json!({"timelines": selector});
            json_of(
                &self.server,
                "POST",
                &format!("{TABLE}/timelines/delete"),
                &delete,
            )
            .expect(200);
            return;
        }
        let found = json_of(
            &self.server,
            "POST",
            &format!("{TABLE}/timelines/search"),
            &selector,
        )
        .expect(200);
        for timeline in found["timelines"].as_array().expect("a list") {
            let changes = self.attributes();
            let id = timeline["id"].as_str().expect("an id");
            json_of(
                &self.server,
                "PATCH",
                &format!("{TABLE}/timelines/{id}/attributes"),
                &changes,
            )
            .expect(200);
        }
    }

    fn attributes(&mut self) -> Value {
        let number = self.random.below(100);
        match self.random.below(4) {
            0 => json!({"owner": null}),
            1 => json!({"rack": number, "site": {"lat": 52.5, "lon": 13.4}}),
            2 => json!({"labels": ["a", format!("l{number}")], "rack": null}),
            _ => json!({"owner": format!("team {number}"), "bought": {"time": "2026-01-31T00:00:00Z"}}),
        }
    }

    fn change_search(&mut self) {
        let path = format!("{TABLE}/searches/s{}", self.random.below(3));
        if self.random.is(30) {
            let deleted = self.server.json("DELETE", &path, "");
            is_done(&deleted);
            return;
        }
        let search = json!({"where": {"tag": "host", "equals": self.host()}, "description": "hosts"});
        json_of(&self.server, "PUT", &path, &search).expect(200);
    }

    fn feed(&mut self) -> String {
        format!("room,name=r{}", self.random.below(3))
    }

    fn send(&mut self) {
        let feed = self.feed();
        let messages: Vec<Value> = (0..1 + self.random.below(3))
            .map(|_| {
                self.number += 1;
                let text = format!("text {}", self.number);
                let mut message = json!({"sender": self.random.of(&["ann", "bea"]), "columns": {"text": text, "n": self.number}});
                if self.random.is(60) {
                    message["id"] = json!(format!("m{}", self.number));
                }
                if self.random.is(30) {
                    message["mentions"] = json!(["cem"]);
                }
                message
            })
            .collect();
        let sent = json_of(
            &self.server,
            "POST",
            &format!("{FEEDS}/{feed}/messages"),
            &json!({"messages": messages}),
        );
        for message in sent.expect(200)["messages"].as_array().expect("a list") {
            let sequence = message["sequence"].as_str().expect("a number").to_owned();
            self.messages.push((feed.clone(), sequence));
        }
    }

    fn change_message(&mut self) {
        if self.messages.is_empty() {
            return;
        }
        let at = self.random.below(self.messages.len() as u64) as usize;
        let (feed, sequence) = self.messages[at].clone();
        let path = format!("{FEEDS}/{feed}/messages/{sequence}");
        let number = self.random.below(100);
        let changed = match self.random.below(5) {
            0 => {
                self.messages.swap_remove(at);
                self.server.json("DELETE", &format!("{path}?as=cem"), "")
            }
            1 => self.server.json("POST", &format!("{path}/recall"), ""),
            2 => {
                let edit = json!({"columns": {"text": format!("edit {number}")}, "clear": ["n"]});
                json_of(&self.server, "PATCH", &format!("{path}?as=bea"), &edit)
            }
            3 => json_of(&self.server, "PATCH", &path, &json!({"columns": {"n": number}})),
            _ => json_of(
                &self.server,
                "POST",
                &format!("{path}/counters"),
                &json!({"add": {"like": 1, "seen": number}}),
            ),
        };
        // A recalled message cannot be edited.
        assert!([200, 409].contains(&changed.status), "{}", changed.text());
    }

    fn change_feed(&mut self) {
        let feed = self.feed();
        if self.random.is(20) {
            let deleted = self.server.json("DELETE", &format!("{FEEDS}/{feed}"), "");
            is_done(&deleted);
            self.messages.retain(|(of, _)| *of != feed);
            return;
        }
        let attributes = json!({"attributes": self.attributes()});
        json_of(&self.server, "PUT", &format!("{FEEDS}/{feed}"), &attributes).expect(200);
    }
}

/// Returns the points of a table by timeline.
fn points(server: &Server) -> Value {
    let found = json_of(
        server,
        "POST",
        &format!("{TABLE}/query"),
        &json!({"int64": "string", "fields": FIELDS}),
    )
    .expect(200);
    assert_eq!(found["more"], false);
    found["series"].clone()
}

/// Returns the timelines that a path of a search finds: id, measurement, tags and attributes.
fn timelines(server: &Server, path: &str) -> Vec<Value> {
    let found = json_of(server, "POST", path, &json!({"limit": 10_000})).expect(200);
    let found = found["timelines"].as_array().expect("a list").iter().cloned();
    found
        .map(|mut timeline| {
            let timeline = timeline.as_object_mut().expect("an object");
            let kept = ["id", "measurement", "tags", "attributes"];
            timeline.retain(|name, _| kept.contains(&name.as_str()));
            Value::from(timeline.clone())
        })
        .collect()
}

fn searches(server: &Server) -> Value {
    server.get(&format!("{TABLE}/searches")).expect(200)["searches"].clone()
}

/// Returns the messages and events of a feed.
fn messages(server: &Server, feed: &str) -> Vec<Value> {
    let (mut found, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = server
            .get(&format!("{FEEDS}/{feed}/messages?limit=7{cursor}"))
            .expect(200);
        found.extend(page["messages"].as_array().expect("a list").iter().cloned());
        if page["more"] == false {
            return found;
        }
        cursor = format!("&after={}", page["next"].as_str().expect("a cursor"));
    }
}

/// Replaces the times of a message, which differ in the copy, by a mark that they exist.
pub(crate) fn without_times(mut message: Value) -> Value {
    let members = message.as_object_mut().expect("an object");
    members.remove("time");
    for name in ["edited", "recalled"] {
        if members.contains_key(name) {
            members.insert(name.to_owned(), json!(true));
        }
    }
    message
}

pub(crate) fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value[name]
        .as_str()
        .unwrap_or_else(|| panic!("no {name}: {value}"))
}

/// Name of a feed, as routes accept it.
fn feed_name(timeline: &Value) -> String {
    let tags = timeline["tags"].as_object().expect("tags");
    let tags = tags
        .iter()
        .map(|(key, value)| format!(",{key}={}", value.as_str().expect("a text")));
    format!("{}{}", text(timeline, "measurement"), tags.collect::<String>())
}

/// Database that follows the source.
struct Copy {
    server: Server,
    /// Timelines with attributes but without points, which the copy cannot create yet: attributes by id.
    waiting: BTreeMap<String, Value>,
    /// Sequence number of the last message or event of each feed in the base.
    cursors: BTreeMap<String, i64>,
}

impl Copy {
    /// Copies the contents of the source.
    fn begin(&mut self, source: &Server) {
        for search in searches(source).as_array().expect("a list") {
            self.set_search(text(search, "name"), search);
        }
        for series in points(source).as_array().expect("a list") {
            self.write_series(series);
        }
        for timeline in timelines(source, &format!("{TABLE}/timelines/search")) {
            let id = text(&timeline, "id");
            if self.server.get(&format!("{TABLE}/timelines/{id}")).status == 404 {
                // A timeline without points is introduced by a point that is deleted.
                let point = json!({"measurement": timeline["measurement"], "tags": timeline["tags"], "time": START, "fields": {"integer": 0}});
                write_points(&self.server, &[point]);
                let delete = json!({"timelines": {"ids": [id]}, "range": {"start": null, "end": null}});
                json_of(&self.server, "POST", &format!("{TABLE}/points/delete"), &delete).expect(200);
            }
            self.set_attributes(&timeline);
        }
        for feed in timelines(source, &format!("{FEEDS}/search")) {
            self.put_feed(&feed);
            self.copy_feed(text(&feed, "id"), &messages(source, text(&feed, "id")));
        }
    }

    /// Sends the messages of a feed as they are now, then repeats the events. A message that was deleted is sent without
    /// columns, and deleted by its last event.
    fn copy_feed(&mut self, feed: &str, all: &[Value]) {
        let is_event = |message: &&Value| message.get("event").is_some();
        for message in all.iter().filter(|message| !is_event(message)) {
            self.send(feed, message);
        }
        let deletions = all.iter().filter(|message| message["event"] == "delete");
        for deletion in deletions {
            let mut message = json!({"sequence": deletion["target"], "columns": {}});
            if let Some(id) = deletion.get("id") {
                message["id"] = id.clone();
            }
            self.send(feed, &message);
        }
        for event in all.iter().filter(is_event) {
            self.repeat(feed, event);
        }
        if let Some(last) = all.last() {
            self.cursors
                .insert(feed.to_owned(), text(last, "sequence").parse().expect("a number"));
        }
    }

    /// Writes points in the form of query results.
    fn write_series(&mut self, series: &Value) {
        let columns = series["columns"].as_array().expect("columns");
        let points = series["points"].as_array().expect("points").iter().map(|row| {
            let row = row.as_array().expect("a row");
            let fields = columns.iter().zip(row).skip(1).filter(|(_, value)| !value.is_null());
            let fields: Map<String, Value> = fields
                .map(|(name, value)| (name.as_str().expect("a name").to_owned(), value.clone()))
                .collect();
            json!({"measurement": series["measurement"], "tags": series["tags"], "time": row[0], "fields": fields})
        });
        write_points(&self.server, &points.collect::<Vec<_>>());
        if let Some(timeline) = self.waiting.remove(text(series, "id")) {
            self.set_attributes(&timeline);
        }
    }

    /// Sets the attributes of a timeline and removes all others. If the timeline has no points yet, this is done
    /// later.
    fn set_attributes(&mut self, timeline: &Value) {
        let id = text(timeline, "id");
        let path = format!("{TABLE}/timelines/{id}");
        let found = self.server.get(&path);
        if found.status == 404 {
            self.waiting.insert(id.to_owned(), timeline.clone());
            return;
        }
        let changes = changes_of(&found.expect(200)["attributes"], &timeline["attributes"]);
        json_of(&self.server, "PATCH", &format!("{path}/attributes"), &changes).expect(200);
    }

    fn set_search(&self, name: &str, search: &Value) {
        let mut search = search.clone();
        search.as_object_mut().expect("an object").remove("name");
        json_of(&self.server, "PUT", &format!("{TABLE}/searches/{name}"), &search).expect(200);
    }

    fn put_feed(&self, feed: &Value) {
        let path = format!("{FEEDS}/{}", feed_name(feed));
        let found = self.server.get(&path);
        let known = match found.status {
            404 => json!({}),
            _ => found.expect(200)["attributes"].clone(),
        };
        let changes = changes_of(&known, &feed["attributes"]);
        json_of(&self.server, "PUT", &path, &json!({"attributes": changes})).expect(200);
    }

    fn send(&self, feed: &str, message: &Value) {
        let kept = ["sequence", "sender", "id", "mentions", "columns"];
        let mut sent = message.as_object().expect("an object").clone();
        sent.retain(|name, _| kept.contains(&name.as_str()));
        let path = format!("{FEEDS}/{feed}/messages");
        if is_done(&json_of(
            &self.server,
            "POST",
            &path,
            &json!({"messages": [sent]}),
        )) {
            self.count(feed, message);
        }
    }

    /// Gives a message its counters.
    fn count(&self, feed: &str, message: &Value) {
        let Some(counters) = message.get("counters").and_then(Value::as_object) else {
            return;
        };
        let path = format!("{FEEDS}/{feed}/messages/{}", text(message, "sequence"));
        let found = self.server.get(&path);
        if found.status == 404 {
            // The base was read after the message had been deleted.
            return;
        }
        let found = found.expect(200)["message"].clone();
        if found.get("recalled").is_some() {
            // The base was read after the recall, so it has the last counters.
            return;
        }
        let known = found["counters"].clone();
        let add = |(name, count): (&String, &Value)| {
            let known = known.get(name).and_then(Value::as_i64).unwrap_or(0);
            (name.clone(), json!(count.as_i64().expect("a number") - known))
        };
        let add: Map<String, Value> = counters.iter().map(add).collect();
        json_of(
            &self.server,
            "POST",
            &format!("{path}/counters"),
            &json!({"add": add}),
        )
        .expect(200);
    }

    /// Repeats the change that an event reports, with the sequence number of the event.
    fn repeat(&self, feed: &str, event: &Value) {
        let path = format!("{FEEDS}/{feed}/messages/{}", text(event, "target"));
        let principal = event["sender"]
            .as_str()
            .map(|sender| format!("as={sender}&"))
            .unwrap_or_default();
        let sequence = text(event, "sequence");
        let changed = match text(event, "event") {
            "delete" => self
                .server
                .json("DELETE", &format!("{path}?{principal}sequence={sequence}"), ""),
            "recall" => self.server.json(
                "POST",
                &format!("{path}/recall?{principal}sequence={sequence}"),
                "",
            ),
            _ => {
                let columns = event["columns"].as_object().expect("columns");
                let (cleared, set): (Vec<_>, Vec<_>) = columns.iter().partition(|(_, value)| value.is_null());
                let set: Map<String, Value> = set
                    .into_iter()
                    .map(|(name, value)| (name.clone(), value.clone()))
                    .collect();
                let cleared: Vec<&String> = cleared.into_iter().map(|(name, _)| name).collect();
                let edit = json!({"columns": set, "clear": cleared, "sequence": sequence});
                json_of(&self.server, "PATCH", &format!("{path}?{principal}"), &edit)
            }
        };
        is_done(&changed);
    }

    fn apply(&mut self, record: &Value) {
        match (text(record, "table"), text(record, "kind")) {
            ("default", "points") => self.write_series(&record["series"]),
            ("default", "timeline") => self.set_attributes(&record["timeline"]),
            ("default", "points_deleted") => self.delete(record),
            ("default", "search") => match record.get("deleted") {
                Some(_) => {
                    let path = format!("{TABLE}/searches/{}", text(record, "name"));
                    let deleted = self.server.json("DELETE", &path, "");
                    is_done(&deleted);
                }
                None => self.set_search(text(record, "name"), &record["search"]),
            },
            ("chat", "timeline") => self.put_feed(&record["timeline"]),
            ("chat", "points_deleted") => {
                let feed = text(record, "timeline");
                let deleted = self.server.json("DELETE", &format!("{FEEDS}/{feed}"), "");
                is_done(&deleted);
                self.cursors.remove(feed);
            }
            // The removal of the feed follows.
            ("chat", "rows_deleted") => {}
            ("chat", "message") => self.apply_message(record),
            _ => panic!("unexpected: {record}"),
        }
    }

    fn apply_message(&self, record: &Value) {
        let message = &record["message"];
        let feed = text(message, "feed");
        let sequence: i64 = text(message, "sequence").parse().expect("a number");
        let is_in_base = self.cursors.get(feed).is_some_and(|cursor| sequence <= *cursor);
        if message.get("event").is_some() {
            // A recall or deletion removes the values from earlier events, which the copy has already.
            let path = format!("{FEEDS}/{feed}/messages/{sequence}");
            if !is_in_base && self.server.get(&path).status == 404 {
                self.repeat(feed, message);
            }
        } else if record["op"] == "put" && message.get("recalled").is_none() {
            if !is_in_base {
                self.send(feed, message);
            }
        } else if record["op"] == "update" && message.get("edited").is_none() {
            self.count(feed, message);
        }
        // All other records accompany an event, which the copy repeats.
    }

    fn delete(&mut self, record: &Value) {
        let id = text(record, "timeline");
        if record["removed"] == true {
            self.waiting.remove(id);
            let removed = self.server.json("DELETE", &format!("{TABLE}/timelines/{id}"), "");
            is_done(&removed);
            return;
        }
        let delete = json!({"timelines": {"ids": [id]}, "range": {"start": record.get("start"), "end": record.get("end")}});
        is_done(&json_of(
            &self.server,
            "POST",
            &format!("{TABLE}/points/delete"),
            &delete,
        ));
    }
}

/// Returns the changes that turn attributes into others.
fn changes_of(known: &Value, wanted: &Value) -> Value {
    let known = known.as_object().into_iter().flatten();
    let mut changes: Map<String, Value> = known.map(|(name, _)| (name.clone(), Value::Null)).collect();
    changes.extend(wanted.as_object().cloned().unwrap_or_default());
    changes.into()
}

#[test]
fn a_base_and_the_stream_after_its_position_rebuild_points_timelines_and_messages() {
    let seed = seed("a_base_and_the_stream_after_its_position_rebuild_points_timelines_and_messages");
    let size = rounds("TIDELINE_COPY_SIZE", 1, 10);
    let mut source = Source {
        server: start("generated"),
        random: Random::new(seed),
        messages: Vec::new(),
        number: 0,
    };
    json_of(&source.server, "PUT", "/v1/changes/all", &json!({})).expect(200);
    source.steps(size * STEPS[0]);
    let described = source.server.get("/v1/changes/all").expect(200);
    let mut cursor = text(&described, "end").to_owned();
    source.steps(size * STEPS[1]);
    let mut copy = Copy {
        server: start("manual"),
        waiting: BTreeMap::new(),
        cursors: BTreeMap::new(),
    };
    copy.begin(&source.server);
    check_equal(&source.server, &copy.server);
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
        source.steps(usize::from(source.number.is_multiple_of(16)));
    }
    check_equal(&source.server, &copy.server);
}

/// Checks that two servers have the same contents.
fn check_equal(source: &Server, copy: &Server) {
    assert_eq!(points(copy), points(source));
    for path in [format!("{TABLE}/timelines/search"), format!("{FEEDS}/search")] {
        assert_eq!(timelines(copy, &path), timelines(source, &path));
    }
    assert_eq!(searches(copy), searches(source));
    for feed in timelines(source, &format!("{FEEDS}/search")) {
        let of = |server| -> Vec<Value> {
            let all = messages(server, text(&feed, "id"));
            all.into_iter().map(without_times).collect()
        };
        assert_eq!(of(copy), of(source), "{feed}");
    }
}

//! Database with feeds, and a naive model of its messages: random steps change both in the same way.
//!
//! A step sends messages, changes or deletes one, deletes a feed, flushes, reopens the database, advances the clock, or
//! moves, archives and drops parts. The outcome of each step, even of a refused one, must be that of the model.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use serde_json::{Map, Value, json};
use tideline_engine::feeds::FeedName;
use tideline_engine::model::{Tier, TimelineId, Timestamp};
use tideline_engine::rows::{MoveEnd, MoveProgress};
use tideline_engine::{EngineError, ErrorKind};
use tideline_message_feed::change::{self, Target};
use tideline_message_feed::read::message;
use tideline_message_feed::send::{Sent, send};
use tideline_message_feed::{MessageEncoder, change::COUNTERS_MAX};
use tideline_openapi::feed::{EditMessage, NewMessage};
use tideline_rows::{Result, RowsError};
use tideline_testkit::Random;

use crate::database::{Database, OpenBackend, SECOND, START, TABLE, key, on_behalf_of, parse};

pub(crate) const DAY: i64 = 86_400 * SECOND;
pub(crate) const FEEDS: [&str; 4] = ["room,name=lobby", "room,name=garden", "outbox,author=ann", "mail"];
const IDS: [&str; 8] = ["a", "b", "c", "4f1c-17", "ü", "e", "f", "g"];
const SENDERS: [&str; 3] = ["ann", "bea", "cy"];
const PRINCIPALS: [Option<&str>; 3] = [None, Some("ann"), Some("dan")];
const COUNTERS: [&str; 3] = ["like", "seen", "x.y"];
/// Names of columns: declared ones and others.
const COLUMNS: [&str; 5] = ["text", "size", "data", "note", "tag"];

/// Message or event of the model.
#[derive(Debug, Clone, Default)]
pub(crate) struct Entry {
    pub(crate) time: i64,
    /// Time of the last change, from which the time-to-live counts. It is exact to some nanoseconds.
    changed: i64,
    sender: Option<String>,
    id: Option<String>,
    /// Kind of an event, and the sequence number of its message.
    pub(crate) event: Option<(&'static str, i64)>,
    columns: BTreeMap<String, Value>,
    counters: BTreeMap<String, i64>,
    edited: Option<i64>,
    recalled: Option<i64>,
}

fn text(nanos: i64) -> String {
    Timestamp::from_nanos_clamped(nanos).to_rfc3339()
}

impl Entry {
    /// Returns the JSON of the message with the given sequence number. `is_returned` selects columns by name.
    pub(crate) fn json(
        &self,
        sequence: i64,
        feed: Option<TimelineId>,
        is_returned: impl Fn(&str) -> bool,
    ) -> Value {
        let mut json = json!({"sequence": sequence.to_string(), "time": text(self.time)});
        if let Some(feed) = feed {
            json["feed"] = json!(feed.to_string());
        }
        if let Some(sender) = &self.sender {
            json["sender"] = json!(sender);
        }
        if let Some(id) = &self.id {
            json["id"] = json!(id);
        }
        if let Some((kind, target)) = self.event {
            json["event"] = json!(kind);
            json["target"] = json!(target.to_string());
        }
        let columns = self.columns.iter().filter(|(name, _)| is_returned(name));
        let columns: Map<String, Value> = columns
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        json["columns"] = Value::Object(columns);
        if !self.counters.is_empty() {
            json["counters"] = json!(self.counters);
        }
        for (name, time) in [("edited", self.edited), ("recalled", self.recalled)] {
            if let Some(time) = time {
                json[name] = json!(text(time));
            }
        }
        json
    }
}

/// Messages and events of a feed that exists, by sequence number.
pub(crate) type Feed = BTreeMap<i64, Entry>;

/// Settings of the table of a lab.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Setting {
    pub(crate) is_manual: bool,
    /// True if senders choose rising sequence numbers, so that times follow them.
    pub(crate) is_rising: bool,
    /// Time-to-live in nanoseconds.
    ttl: Option<i64>,
    /// Length of a part, and whether old parts are hidden and closed.
    parts: Option<(&'static str, bool)>,
}

impl Setting {
    /// Chooses settings.
    pub(crate) fn random(random: &mut Random) -> Self {
        let is_manual = random.is(40);
        Self {
            is_manual,
            is_rising: !is_manual || random.is(60),
            // Half a second is added, because the clock of the test advances by whole seconds.
            ttl: random.is(40).then_some(2 * DAY + SECOND / 2),
            parts: match is_manual || random.is(30) {
                true => None,
                false => Some((random.of(&["day", "week", "month"]), random.is(50))),
            },
        }
    }

    fn json(self) -> Value {
        let mut json = json!({
            "sequence": if self.is_manual { "manual" } else { "generated" },
            "columns": [
                {"name": "text", "type": "string"}, {"name": "size", "type": "i64"}, {"name": "data", "type": "json"}
            ],
        });
        if let Some(ttl) = self.ttl {
            json["ttl"] = json!(format!("{}ms", ttl / 1_000_000));
        }
        if let Some((every, has_ages)) = self.parts {
            json["parts"] = match has_ages {
                true => json!({"every": every, "keep": "60d", "writable": "20d"}),
                false => json!({"every": every}),
            };
        }
        json
    }
}

/// Database with its model.
pub(crate) struct Lab {
    pub(crate) database: Database,
    pub(crate) setting: Setting,
    /// Feeds that exist.
    pub(crate) feeds: BTreeMap<&'static str, Feed>,
    /// Highest generated sequence number so far.
    highest: i64,
}

/// Result of a refused change in the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refusal {
    NoSuchFeed,
    NoSuchMessage,
    /// The message was recalled, or the sequence number of the event is used.
    Failed,
    /// The part of the message is closed, or a counter overflows.
    Invalid,
}

fn refusal(error: &RowsError) -> Refusal {
    match error {
        RowsError::Engine(EngineError::NoSuchFeed { .. }) => Refusal::NoSuchFeed,
        RowsError::Engine(EngineError::NoSuchMessage { .. }) => Refusal::NoSuchMessage,
        RowsError::ConditionFailed(_) => Refusal::Failed,
        RowsError::Invalid(_) => Refusal::Invalid,
        error => panic!("{error}"),
    }
}

/// Returns true if a feed with these rows has a row with a number, or had a message with the number, whose deletion readers
/// would apply to a new message.
fn is_used(rows: &Feed, sequence: i64) -> bool {
    let deletes =
        |(event, entry): (&i64, &Entry)| *event > sequence && entry.event == Some(("delete", sequence));
    rows.contains_key(&sequence) || rows.iter().any(deletes)
}

impl Lab {
    pub(crate) fn new(open: OpenBackend, setting: Setting) -> Self {
        // Parts are archived before they are hidden.
        let archive_after = setting
            .parts
            .map(|(_, has_ages)| if has_ages { "50d" } else { "1000d" });
        Self {
            database: Database::new(open, &setting.json(), archive_after),
            setting,
            feeds: BTreeMap::new(),
            highest: START - 1,
        }
    }

    fn now(&self) -> i64 {
        self.database.engine().store().trusted_now().now.nanos()
    }

    /// Returns the visible messages and events of a feed.
    pub(crate) fn rows(&self, feed: &str) -> Feed {
        let now = self.now();
        let parts = self.database.table().settings().parts.clone();
        let Some(rows) = self.feeds.get(feed) else {
            return Feed::new();
        };
        let is_visible = |sequence: i64, entry: &Entry| {
            let is_live = self.setting.ttl.is_none_or(|ttl| entry.changed + ttl > now);
            let is_kept = parts
                .as_ref()
                .is_none_or(|parts| parts.every.number_of(sequence) >= parts.visible_from(now));
            is_live && is_kept
        };
        let visible = rows
            .iter()
            .filter(|(sequence, entry)| is_visible(**sequence, entry));
        visible
            .map(|(sequence, entry)| (*sequence, entry.clone()))
            .collect()
    }

    /// Returns the numbers of the parts that cannot be written.
    fn closed_parts(&self) -> Vec<i32> {
        let table = self.database.table();
        let Some(parts) = table.settings().parts.clone() else {
            return Vec::new();
        };
        let listed = self.database.engine().table_parts(&table).expect("parts");
        let closed = listed
            .iter()
            .filter(|part| !part.is_writable || part.tier == Some(Tier::Archive));
        closed
            .map(|part| parts.every.number_of(part.start.nanos()))
            .collect()
    }

    fn is_closed(&self, sequence: i64) -> bool {
        let parts = self.database.table().settings().parts.clone();
        parts.is_some_and(|parts| self.closed_parts().contains(&parts.every.number_of(sequence)))
    }

    /// Returns a version of the server, which is above all earlier ones and below all later ones.
    fn version(&self) -> i64 {
        self.database.engine().next_version()
    }

    /// Returns the name of a feed in a request: its key, or its id if it exists.
    fn name(&self, feed: &'static str, random: &mut Random) -> FeedName {
        match self.feeds.contains_key(feed) && random.is(30) {
            true => FeedName::Id(self.database.id(feed)),
            false => key(feed),
        }
    }

    /// Chooses a sequence number for a row of a table with manual numbers; `None` for other tables.
    fn new_sequence(&self, feed: &str, above: i64, random: &mut Random) -> Option<i64> {
        if !self.setting.is_manual {
            return None;
        }
        let used: Vec<i64> = self.rows(feed).into_keys().collect();
        if !used.is_empty() && random.is(5) {
            return Some(random.of(&used));
        }
        // Numbers of expired rows are not used again, so that times follow the numbers.
        let highest = self.feeds.get(feed).and_then(|rows| rows.keys().next_back());
        Some(match (self.setting.is_rising, random.below(20)) {
            (true, _) => highest.copied().unwrap_or(-20).max(above) + 1 + random.below(5) as i64,
            (false, 0) => i64::MIN,
            (false, 1) => i64::MAX,
            (false, _) => random.below(400) as i64 - 200,
        })
    }

    fn columns(random: &mut Random) -> BTreeMap<String, Value> {
        let mut columns = BTreeMap::new();
        for _ in 0..random.below(4) {
            let name = random.of(&COLUMNS);
            let number = random.below(9);
            let value = match name {
                "text" => json!(format!("text \"{number}\" ü")),
                "size" => json!(number as i64 - 4),
                "data" => json!({"a": [number, null], "b": "x"}),
                "note" => random.of(&[0, 1]).to_string().into(),
                // Some rows are large, so that flushes write several blocks.
                _ => json!("long ".repeat(1 + 100 * (number as usize / 8))),
            };
            columns.insert(name.to_owned(), value);
        }
        columns
    }

    /// Changes the database and the model in the same way.
    pub(crate) fn step(&mut self, random: &mut Random) {
        match random.below(40) {
            0 => self.delete_feed(random),
            1 | 2 => self.database.engine().seal().expect("it is flushed"),
            3 => self.database.reopen(),
            4 | 5 => {
                let seconds = random.of(&[1, 60, 3_600, 86_400, 86_400, 5 * 86_400]);
                self.database.clock.advance(seconds * SECOND);
            }
            6 => self.database.clock.advance(-(random.below(4) as i64) * SECOND),
            7 => self.move_part(random),
            8 => self.drop_parts(random),
            9..=13 => self.edit(random),
            14 | 15 => self.recall(random),
            16..=18 => self.delete(random),
            19..=22 => self.count(random),
            _ => self.send(random),
        }
    }

    pub(crate) fn send(&mut self, random: &mut Random) {
        let feed = random.of(&FEEDS);
        let principal = random.of(&PRINCIPALS);
        let mut messages = Vec::new();
        let (mut last, count) = (i64::MIN + 1, 1 + random.below(6));
        for _ in 0..count {
            let sequence = self.new_sequence(feed, last, random);
            last = last.max(sequence.unwrap_or(last));
            messages.push((
                random.is(50).then(|| random.of(&IDS)),
                random.is(50).then(|| random.of(&SENDERS)),
                sequence,
                Self::columns(random),
            ));
        }
        let json = messages.iter().map(|(id, sender, sequence, columns)| {
            let mut json = json!({"columns": columns});
            if let Some(id) = id {
                json["id"] = json!(id);
            }
            if let Some(sender) = sender {
                json["sender"] = json!(sender);
            }
            if let Some(sequence) = sequence {
                // Requests accept sequence numbers as text and as number.
                json["sequence"] = match random.is(50) {
                    true => json!(sequence),
                    false => json!(sequence.to_string()),
                };
            }
            json
        });
        let json: Vec<NewMessage> = parse(&Value::Array(json.collect()));
        let name = self.name(feed, random);
        let before = self.version();
        let terms = on_behalf_of(principal);
        let sent = send(
            self.database.engine(),
            &self.database.table(),
            &name,
            &json,
            &terms,
        );
        let after = self.version();
        self.feeds.entry(feed).or_default();

        let ids: Vec<&str> = messages.iter().filter_map(|(id, ..)| *id).collect();
        let is_repeated = |id: &&str| ids.iter().filter(|other| *other == id).count() > 1;
        if ids.iter().any(is_repeated) {
            let error = sent.expect_err("two messages have one id");
            // A used sequence number is found first.
            let is_used = self.setting.is_manual && matches!(error, RowsError::ConditionFailed(_));
            assert!(
                is_used
                    || error
                        .to_string()
                        .contains("two messages of the request have the id"),
                "{error}"
            );
            return;
        }
        // An event of a deletion has the id of its message.
        let rows = self.rows(feed);
        let known = |id: Option<&str>| {
            let found = rows
                .iter()
                .find(|(_, entry)| id.is_some() && entry.id.as_deref() == id)?;
            Some(found.1.event.map_or(*found.0, |(_, target)| target))
        };
        let new: Vec<_> = messages.iter().filter(|(id, ..)| known(*id).is_none()).collect();
        if self.setting.is_manual {
            let used = |number: usize| {
                let sequence = new[number].2.expect("it is given");
                is_used(&rows, sequence)
                    || new[..number]
                        .iter()
                        .any(|(.., other, _)| *other == Some(sequence))
            };
            if (0..new.len()).any(used) {
                let error = sent.expect_err("the sequence number is used");
                assert_eq!(refusal(&error), Refusal::Failed, "{error}");
                return;
            }
        }
        let Sent {
            feed: id,
            messages: outcomes,
            position,
        } = sent.expect("they are sent");
        assert_eq!(id, self.database.id(feed));
        assert_eq!(position.is_some(), !new.is_empty());
        assert_eq!(outcomes.len(), messages.len());
        for ((id, sender, given, columns), outcome) in messages.iter().zip(outcomes) {
            if let Some(sequence) = known(*id) {
                assert!(outcome.is_repeated);
                assert_eq!(outcome.sequence, sequence);
                let time = (!self.setting.is_manual).then(|| Timestamp::from_nanos_clamped(sequence));
                assert_eq!(outcome.time, time);
                continue;
            }
            assert!(!outcome.is_repeated);
            let time = outcome.time.expect("a new message has a time").nanos();
            assert!(before < time && time < after, "{before} {time} {after}");
            match given {
                Some(given) => assert_eq!(outcome.sequence, *given),
                None => {
                    assert!(outcome.sequence > self.highest);
                    assert_eq!(outcome.sequence, time);
                    self.highest = outcome.sequence;
                }
            }
            let entry = Entry {
                time,
                changed: after,
                sender: sender.or(principal).map(str::to_owned),
                id: id.map(str::to_owned),
                columns: columns.clone(),
                ..Entry::default()
            };
            self.feeds
                .entry(feed)
                .or_default()
                .insert(outcome.sequence, entry);
        }
    }

    /// Chooses a message, an event or an unused sequence number of a feed.
    fn target(&self, random: &mut Random) -> (&'static str, i64) {
        let feed = random.of(&FEEDS);
        let rows: Vec<i64> = self.rows(feed).into_keys().collect();
        match rows.is_empty() || random.is(5) {
            true => (feed, random.below(10) as i64),
            false => (feed, random.of(&rows)),
        }
    }

    /// Returns the reason for which the model refuses a change; `None` for a possible one.
    fn refused(&self, (feed, sequence): (&str, i64)) -> Option<Refusal> {
        if !self.feeds.contains_key(feed) {
            return Some(Refusal::NoSuchFeed);
        }
        match self.rows(feed).get(&sequence) {
            None => Some(Refusal::NoSuchMessage),
            Some(entry) if entry.event.is_some() => Some(Refusal::NoSuchMessage),
            Some(entry) if entry.recalled.is_some() => Some(Refusal::Failed),
            Some(_) if self.is_closed(sequence) => Some(Refusal::Invalid),
            Some(_) => None,
        }
    }

    /// Runs a change with an event. Returns the sequence number of the event, and adds it to the model. `refused` is
    /// the refusal by the model.
    fn change(
        &mut self,
        (feed, sequence): (&'static str, i64),
        refused: Option<Refusal>,
        mut event: Entry,
        random: &mut Random,
        run: impl FnOnce(&Self, Target<'_>, Option<&'static str>) -> Result<Option<i64>>,
    ) -> Option<i64> {
        let name = self.name(feed, random);
        let principal = random.of(&PRINCIPALS);
        let given = self.new_sequence(feed, i64::MIN + 1, random);
        let is_used = given.is_some_and(|given| is_used(&self.rows(feed), given));
        let refused = refused.or(is_used.then_some(Refusal::Failed));
        let before = self.version();
        let target = Target {
            feed: &name,
            sequence,
            event: given,
        };
        let changed = run(self, target, principal);
        let after = self.version();
        let changed = match (changed, refused) {
            (Err(error), Some(refused)) => {
                assert_eq!(refusal(&error), refused, "{error}");
                return None;
            }
            (changed, None) => changed.expect("it is changed").expect("it has an event"),
            (Ok(changed), Some(refused)) => panic!("{changed:?} is refused by the model: {refused:?}"),
        };
        match given {
            Some(given) => assert_eq!(changed, given),
            None => {
                assert!(changed > self.highest);
                assert!(before < changed && changed < after);
                self.highest = changed;
            }
        }
        event.sender = principal.map(str::to_owned);
        event.changed = after;
        event.time = match given {
            None => changed,
            Some(_) => self.stored_time(feed, changed, "time", before..after),
        };
        self.feeds.entry(feed).or_default().insert(changed, event);
        if let Some(message) = self.entry(feed, sequence) {
            message.changed = after;
        }
        Some(before)
    }

    fn entry(&mut self, feed: &str, sequence: i64) -> Option<&mut Entry> {
        self.feeds.get_mut(feed)?.get_mut(&sequence)
    }

    /// Returns a time of a stored message, which must be within a range of versions.
    fn stored_time(&self, feed: &str, sequence: i64, member: &str, versions: std::ops::Range<i64>) -> i64 {
        let stored = message(
            self.database.engine(),
            &self.database.table(),
            (self.database.id(feed), sequence),
            None,
            &MessageEncoder::default(),
        );
        let stored: Value = serde_json::from_str(&stored.expect("it is stored")).expect("JSON");
        let time = stored[member].as_str().and_then(Timestamp::parse_rfc3339);
        let time = time.unwrap_or_else(|| panic!("{member} of {stored}")).nanos();
        assert!(versions.contains(&time) && time > versions.start, "{stored}");
        time
    }

    fn edit(&mut self, random: &mut Random) {
        let target = self.target(random);
        let columns = Self::columns(random);
        let mut clear: Vec<&str> = Vec::new();
        for _ in 0..random.below(3) {
            let name = random.of(&COLUMNS);
            if !clear.contains(&name) && !columns.contains_key(name) {
                clear.push(name);
            }
        }
        let edit: EditMessage = parse(&json!({"columns": columns, "clear": clear}));
        if columns.is_empty() && clear.is_empty() {
            return;
        }
        let cleared = clear.iter().map(|name| ((*name).to_owned(), Value::Null));
        let event = Entry {
            event: Some(("edit", target.1)),
            columns: columns.clone().into_iter().chain(cleared).collect(),
            ..Entry::default()
        };
        let refused = self.refused(target);
        let changed = self.change(target, refused, event, random, |lab, target, principal| {
            let (engine, table) = (lab.database.engine(), lab.database.table());
            change::edit(engine, &table, target, &edit, &on_behalf_of(principal)).map(Some)
        });
        let Some(before) = changed else { return };
        let edited = self.stored_time(target.0, target.1, "edited", before..self.version());
        let message = self.entry(target.0, target.1).expect("it exists");
        message.edited = Some(edited);
        message.columns.extend(columns);
        message.columns.retain(|name, _| !clear.contains(&name.as_str()));
    }

    fn recall(&mut self, random: &mut Random) {
        let target = self.target(random);
        let (engine, table) = (self.database.engine(), self.database.table());
        if self
            .rows(target.0)
            .get(&target.1)
            .is_some_and(|entry| entry.recalled.is_some())
        {
            let name = key(target.0);
            let again = Target {
                feed: &name,
                sequence: target.1,
                event: self.setting.is_manual.then_some(0),
            };
            let repeated = change::recall(engine, &table, again, &on_behalf_of(None));
            assert_eq!(repeated.expect("a repeated recall is safe"), None);
            return;
        }
        let event = Entry {
            event: Some(("recall", target.1)),
            ..Entry::default()
        };
        let refused = self.refused(target);
        let changed = self.change(target, refused, event, random, |lab, target, principal| {
            let (engine, table) = (lab.database.engine(), lab.database.table());
            change::recall(engine, &table, target, &on_behalf_of(principal))
        });
        let Some(before) = changed else { return };
        let recalled = self.stored_time(target.0, target.1, "recalled", before..self.version());
        let message = self.entry(target.0, target.1).expect("it exists");
        message.recalled = Some(recalled);
        message.columns.clear();
        self.remove_edits(target);
    }

    fn delete(&mut self, random: &mut Random) {
        let target = self.target(random);
        let rows = self.rows(target.0);
        let message = rows.get(&target.1);
        let event = Entry {
            event: Some(("delete", target.1)),
            id: message.and_then(|entry| entry.id.clone()),
            ..Entry::default()
        };
        // Recalled messages can be deleted.
        let refused = match message {
            Some(entry) if entry.recalled.is_some() => self.is_closed(target.1).then_some(Refusal::Invalid),
            _ => self.refused(target),
        };
        let changed = self.change(target, refused, event, random, |lab, target, principal| {
            let (engine, table) = (lab.database.engine(), lab.database.table());
            change::delete(engine, &table, target, &on_behalf_of(principal)).map(Some)
        });
        if changed.is_some() {
            self.feeds.entry(target.0).or_default().remove(&target.1);
            self.remove_edits(target);
        }
    }

    /// Removes the values from the visible events of the edits of a message, in parts that are open for writes.
    fn remove_edits(&mut self, (feed, message): (&'static str, i64)) {
        let after = self.version();
        let edits = self
            .rows(feed)
            .into_iter()
            .filter(|(sequence, entry)| entry.event == Some(("edit", message)) && !self.is_closed(*sequence));
        let edits: Vec<i64> = edits.map(|(sequence, _)| sequence).collect();
        for sequence in edits {
            let event = self.entry(feed, sequence).expect("it is visible");
            let values = event.columns.values_mut();
            for value in values.filter(|value| !value.is_null()) {
                *value = Value::Null;
                event.changed = after;
            }
        }
    }

    fn count(&mut self, random: &mut Random) {
        let target = self.target(random);
        let mut add = BTreeMap::new();
        for _ in 0..1 + random.below(3) {
            let by = match random.is(5) {
                true => i64::MAX,
                false => random.below(7) as i64 - 3,
            };
            add.insert(random.of(&COUNTERS).to_owned(), by);
        }
        let rows = self.rows(target.0);
        let counters = rows.get(&target.1).map(|entry| entry.counters.clone());
        let mut counters = counters.unwrap_or_default();
        let mut is_over = false;
        for (name, by) in &add {
            let count = counters.entry(name.clone()).or_default();
            let sum = count.checked_add(*by);
            is_over |= sum.is_none();
            *count = sum.unwrap_or_default();
        }
        assert!(counters.len() < COUNTERS_MAX);
        let refused = self.refused(target).or(is_over.then_some(Refusal::Invalid));
        let name = self.name(target.0, random);
        let request = Target {
            feed: &name,
            sequence: target.1,
            event: None,
        };
        let (engine, table) = (self.database.engine(), self.database.table());
        let counted = change::count(engine, &table, request, &add, &on_behalf_of(None));
        match (counted, refused) {
            (Err(error), Some(refused)) => assert_eq!(refusal(&error), refused, "{error}"),
            (counted, None) => {
                assert_eq!(counted.expect("it is counted"), counters);
                let after = self.version();
                let message = self.entry(target.0, target.1).expect("it exists");
                (message.counters, message.changed) = (counters, after);
            }
            (Ok(counted), Some(refused)) => panic!("{counted:?} is refused by the model: {refused:?}"),
        }
    }

    fn delete_feed(&mut self, random: &mut Random) {
        let feed = random.of(&FEEDS);
        if !self.feeds.contains_key(feed) {
            let missing = self.database.engine().feed(&self.database.table(), &key(feed));
            assert_eq!(missing.expect_err("it is missing").kind(), ErrorKind::NotFound);
            return;
        }
        let (table, id) = (self.database.table(), self.database.id(feed));
        let parts = table.settings().parts.clone();
        let first = self.rows(feed).into_keys().next();
        // A feed is not deleted if a part from its first message on cannot be written.
        let closed = self.closed_parts();
        let reaches_closed = parts.zip(first).is_some_and(|(parts, first)| {
            let first = parts.every.number_of(first);
            closed.iter().any(|number| *number >= first)
        });
        let deleted = self.database.engine().delete_feed(&table, id, &|| false);
        if reaches_closed {
            let error = deleted.expect_err("a part is closed").to_string();
            let said = ["closed for writes", "in the archive"];
            assert!(said.iter().any(|said| error.contains(said)), "{error}");
            return;
        }
        deleted.expect("it is deleted");
        self.feeds.remove(feed);
        let missing = self.database.engine().feed(&table, &FeedName::Id(id));
        assert_eq!(missing.expect_err("it is deleted").kind(), ErrorKind::NotFound);
    }

    /// Moves a part that is older than the current one to another tier or to the archive.
    fn move_part(&mut self, random: &mut Random) {
        let Some(parts) = self.database.table().settings().parts.clone() else {
            return;
        };
        let engine = self.database.engine();
        engine.seal().expect("it is flushed");
        let (table, now) = (self.database.table(), self.now());
        let mut stored = engine.table_parts(&table).expect("parts");
        stored.retain(|part| part.end.nanos() <= now && part.tier.is_some());
        if stored.is_empty() {
            return;
        }
        let part = &stored[random.below(stored.len() as u64) as usize];
        let number = parts.every.number_of(part.start.nanos());
        let id = table.table().points().id();
        let mut step = |_: &MoveProgress| ControlFlow::Continue(());
        let moved = match random.below(3) {
            0 => engine.move_table_part(id, number, Tier::Hot, &mut step),
            1 => engine.move_table_part(id, number, Tier::Cold, &mut step),
            _ => engine.archive_table_part(id, number, &mut step),
        };
        assert_ne!(moved.expect("it is moved"), MoveEnd::Stopped);
    }

    fn drop_parts(&mut self, random: &mut Random) {
        let Some(parts) = self.database.table().settings().parts.clone() else {
            return;
        };
        let before = self.now() - (1 + random.below(90) as i64) * DAY;
        let dropped = self
            .database
            .engine()
            .drop_parts(TABLE, Timestamp::from_nanos_clamped(before), false);
        dropped.expect("they are dropped");
        let first = parts.every.number_of(before);
        for rows in self.feeds.values_mut() {
            rows.retain(|sequence, _| parts.every.number_of(*sequence) >= first);
        }
    }
}

//! Random feeds against a naive model: after every few steps, all reads must return the messages of the model.
//!
//! The reads are: pages forward and backward with any size, ranges of sequence numbers and times, single messages,
//! counts, newest sequence numbers, several feeds in one response, and several feeds in one order.

use serde_json::Value;
use tideline_engine::backend::memory::Character;
use tideline_engine::feeds::FeedName;
use tideline_engine::model::{TimelineId, Timestamp};
use tideline_message_feed::MessageEncoder;
use tideline_message_feed::read::{ReadTerms, Room, count, merge, message, newest_sequence, page};
use tideline_openapi::feed::MessageOrder;
use tideline_testkit::{Random, rounds, seeds};

use crate::database::{OpenBackend, SECOND, cluster, fjall, key, memory, values};
use crate::lab::{Entry, FEEDS, Feed, Lab, Setting};

/// Number of steps between two comparisons of all reads.
const CHECK_EVERY: usize = 6;

/// Returned columns of a read, and the function that selects them in the model.
type Selection = (Option<Vec<String>>, fn(&str) -> bool);

fn selection(random: &mut Random) -> Selection {
    let owned = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect());
    match random.below(4) {
        0 => (owned(&["text", "absent"]), |name| name == "text"),
        1 => (owned(&["t*", "size"]), |name| {
            name.starts_with('t') || name == "size"
        }),
        2 => (owned(&[]), |_| false),
        _ => (None, |_| true),
    }
}

impl Lab {
    fn range(&self, rows: &Feed, random: &mut Random) -> ReadTerms {
        let known: Vec<(i64, i64)> = rows
            .iter()
            .map(|(sequence, entry)| (*sequence, entry.time))
            .collect();
        let near = |random: &mut Random| {
            let (sequence, time) = match known.is_empty() {
                true => (0, 0),
                false => random.of(&known),
            };
            let by = random.of(&[-SECOND, -1, 0, 0, 1]);
            (
                sequence.saturating_add(by),
                Timestamp::from_nanos_clamped(time + by),
            )
        };
        let mut some = |percent: u64| random.is(percent).then(|| near(random));
        ReadTerms {
            after: some(30).map(|(sequence, _)| sequence),
            before: some(30).map(|(sequence, _)| sequence),
            from: some(20).map(|(_, time)| time),
            to: some(20).map(|(_, time)| time),
            order: MessageOrder::Ascending,
            has_events: some(70).is_some(),
            viewer: None,
        }
    }

    /// Compares all reads with the model.
    pub(crate) fn check(&self, random: &mut Random) {
        for feed in FEEDS {
            let rows = self.rows(feed);
            let (engine, table) = (self.database.engine(), self.database.table());
            if !self.feeds.contains_key(feed) {
                assert!(engine.feed(&table, &key(feed)).is_err());
                continue;
            }
            let id = self.database.id(feed);
            assert_eq!(engine.feed(&table, &FeedName::Id(id)).ok(), Some(id));
            let newest = newest_sequence(engine, &table, id).expect("a read");
            assert_eq!(newest, rows.keys().next_back().copied(), "{feed}");
            self.check_single(feed, &rows, random);
            for order in [MessageOrder::Ascending, MessageOrder::Descending] {
                let all = ReadTerms {
                    order,
                    has_events: true,
                    ..ReadTerms::default()
                };
                self.check_pages(id, &rows, all, random);
                let some = ReadTerms {
                    order,
                    ..self.range(&rows, random)
                };
                self.check_pages(id, &rows, some, random);
            }
            let terms = self.range(&rows, random);
            let counted = count(engine, &table, id, &terms, &|| false).expect("a count");
            let messages = in_range(&rows, &terms).into_iter();
            let messages = messages.filter(|(_, entry)| entry.event.is_none()).count();
            assert_eq!(
                (counted.messages, counted.next),
                (messages as u64, None),
                "{terms:?}"
            );
        }
        self.check_several(random);
        self.check_merge(random);
    }

    fn check_single(&self, feed: &str, rows: &Feed, random: &mut Random) {
        let (engine, table, id) = (
            self.database.engine(),
            self.database.table(),
            self.database.id(feed),
        );
        let known: Vec<i64> = rows.keys().copied().collect();
        let sequence = match known.is_empty() {
            true => 7,
            false => random.of(&known).saturating_add(random.of(&[0, 0, 1])),
        };
        let found = message(engine, &table, (id, sequence), None, &MessageEncoder::default());
        match rows.get(&sequence) {
            None => assert!(found.is_err(), "{found:?}"),
            Some(entry) => {
                let found: Value = serde_json::from_str(&found.expect("it exists")).expect("JSON");
                assert_eq!(found, entry.json(sequence, None, |_| true));
            }
        }
    }

    /// Reads all pages of a range. Each page, its cursor and its end must be those of the model.
    fn check_pages(&self, feed: TimelineId, rows: &Feed, mut terms: ReadTerms, random: &mut Random) {
        let limit = random.of(&[1, 2, 3, 7, 1_000]);
        let (columns, is_returned) = selection(random);
        let encoder = MessageEncoder {
            columns,
            has_feed: random.is(50),
            ..MessageEncoder::default()
        };
        let shown = encoder.has_feed.then_some(feed);
        let (engine, table) = (self.database.engine(), self.database.table());
        let is_descending = terms.order == MessageOrder::Descending;
        let mut rest = in_range(rows, &terms);
        if is_descending {
            rest.reverse();
        }
        let is_wanted = |(_, entry): &(i64, &Entry)| terms.has_events || entry.event.is_none();
        let is_timed = self.setting.is_manual && (terms.from.is_some() || terms.to.is_some());
        let mut wanted: Vec<(i64, &Entry)> = rest.into_iter().filter(is_wanted).collect();
        loop {
            let mut room = Room::default();
            let read = page(
                engine,
                &table,
                (feed, &terms),
                &encoder,
                (limit, &mut room),
                &|| false,
            );
            let read = read.expect("a page");
            let following = wanted.split_off(limit.min(wanted.len()));
            let expected: Vec<Value> = wanted
                .iter()
                .map(|(sequence, entry)| entry.json(*sequence, shown, is_returned))
                .collect();
            assert_eq!(values(&read.messages), expected, "{terms:?}");
            assert_eq!(read.has_more, !following.is_empty(), "{terms:?}");
            let cursor = match is_descending {
                false => terms.after,
                true => terms.before,
            };
            // A cursor also passes rows that are not returned; the following pages show that none is lost.
            if terms.has_events && !is_timed {
                assert_eq!(read.next, wanted.last().map_or(cursor, |(last, _)| Some(*last)));
            }
            wanted = following;
            if !read.has_more {
                return;
            }
            match is_descending {
                false => terms.after = read.next,
                true => terms.before = read.next,
            }
        }
    }

    /// Reads several feeds with one limit for all of their messages.
    fn check_several(&self, random: &mut Random) {
        let (engine, table) = (self.database.engine(), self.database.table());
        let mut room = Room {
            messages: random.below(20) as usize,
            ..Room::default()
        };
        let limit = random.of(&[1, 4, 1_000]);
        for feed in self.feeds.keys() {
            let rows = self.rows(feed);
            let terms = ReadTerms {
                has_events: true,
                ..ReadTerms::default()
            };
            let encoder = MessageEncoder::default();
            let id = self.database.id(feed);
            let expected = limit.min(room.messages).min(rows.len());
            let rest = room.messages - expected;
            let read = page(
                engine,
                &table,
                (id, &terms),
                &encoder,
                (limit, &mut room),
                &|| false,
            );
            let read = read.expect("a page");
            assert_eq!(room.messages, rest);
            let first: Vec<Value> = rows
                .iter()
                .take(expected)
                .map(|(sequence, entry)| entry.json(*sequence, None, |_| true))
                .collect();
            assert_eq!(values(&read.messages), first);
            assert_eq!(read.has_more, rows.len() > expected);
        }
    }

    /// Merges feeds page by page. No message is lost or repeated.
    fn check_merge(&self, random: &mut Random) {
        if !self.setting.is_rising {
            return;
        }
        let (engine, table) = (self.database.engine(), self.database.table());
        for order in [MessageOrder::Ascending, MessageOrder::Descending] {
            let mut names: Vec<&str> = self.feeds.keys().copied().collect();
            names.retain(|_| random.is(80));
            let rows: Vec<(TimelineId, Feed)> = names
                .iter()
                .map(|name| (self.database.id(name), self.rows(name)))
                .collect();
            let mut feeds: Vec<TimelineId> = rows.iter().map(|(id, _)| *id).collect();
            // A feed that is named twice is read once.
            feeds.extend(feeds.first().copied());
            let mut all = Feed::new();
            for (_, rows) in &rows {
                all.extend(rows.clone());
            }
            let terms = ReadTerms {
                after: None,
                before: None,
                order,
                ..self.range(&all, random)
            };
            let mut places: Vec<(i64, TimelineId, i64, &Entry)> = rows
                .iter()
                .flat_map(|(id, rows)| {
                    let rows = in_range(rows, &terms).into_iter();
                    rows.map(|(sequence, entry)| (entry.time, *id, sequence, entry))
                })
                .filter(|(.., entry)| terms.has_events || entry.event.is_none())
                .collect();
            places.sort_by_key(|(time, id, sequence, _)| (*time, id.0, *sequence));
            if order == MessageOrder::Descending {
                places.reverse();
            }
            let limit = random.of(&[1, 2, 5, 1_000]);
            let (columns, is_returned) = selection(random);
            let encoder = MessageEncoder {
                columns,
                has_feed: true,
                ..MessageEncoder::default()
            };
            let mut token: Option<String> = None;
            let mut found = Vec::new();
            loop {
                let read = merge(
                    engine,
                    &table,
                    &feeds,
                    &terms,
                    &encoder,
                    (limit, token.as_deref()),
                    &|| false,
                );
                let read = read.expect("a page");
                assert!(read.messages.len() == limit || read.next.is_none());
                found.extend(values(&read.messages));
                token = read.next;
                if token.is_none() {
                    break;
                }
                assert!(found.len() < places.len(), "a page follows without messages");
            }
            let expected: Vec<Value> = places
                .iter()
                .map(|(_, id, sequence, entry)| entry.json(*sequence, Some(*id), is_returned))
                .collect();
            assert_eq!(found, expected, "{terms:?}, {limit}");
        }
    }
}

/// Returns the messages and events in a range, by sequence number.
fn in_range<'r>(rows: &'r Feed, terms: &ReadTerms) -> Vec<(i64, &'r Entry)> {
    let is_in = |sequence: i64, entry: &Entry| {
        terms.after.is_none_or(|after| sequence > after)
            && terms.before.is_none_or(|before| sequence < before)
            && terms.from.is_none_or(|from| entry.time >= from.nanos())
            && terms.to.is_none_or(|to| entry.time < to.nanos())
    };
    let rows = rows.iter().map(|(sequence, entry)| (*sequence, entry));
    rows.filter(|(sequence, entry)| is_in(*sequence, entry)).collect()
}

fn run(open: OpenBackend, seed: u64, steps: usize) {
    let mut random = Random::new(seed);
    let setting = Setting::random(&mut random);
    println!("seed {seed}: {setting:?}");
    let mut lab = Lab::new(open, setting);
    for number in 0..steps {
        lab.step(&mut random);
        if number % CHECK_EVERY == CHECK_EVERY - 1 {
            lab.check(&mut random);
        }
    }
    lab.database.reopen();
    lab.check(&mut random);
    lab.database.close();
}

#[test]
fn random_feeds_equal_a_naive_model_in_memory() {
    let steps = rounds("TIDELINE_FEED_STEPS", 250, 2_000);
    for seed in seeds("random_feeds_equal_a_naive_model_in_memory", 8) {
        let character = match seed % 2 {
            0 => Character::Embedded,
            _ => Character::Distributed,
        };
        run(memory(character), seed, steps);
    }
}

#[test]
fn random_feeds_equal_a_naive_model_on_disk() {
    let steps = rounds("TIDELINE_FEED_STEPS", 150, 1_000);
    for seed in seeds("random_feeds_equal_a_naive_model_on_disk", 2) {
        let folder = tempfile::tempdir().expect("a folder");
        run(fjall(folder.path()), seed, steps);
    }
}

#[test]
fn random_feeds_equal_a_naive_model_on_a_cluster() {
    let steps = rounds("TIDELINE_CLUSTER_STEPS", 60, 1_000);
    for seed in seeds("random_feeds_equal_a_naive_model_on_a_cluster", 1) {
        let Some(open) = cluster() else { return };
        run(open, seed, steps);
    }
}

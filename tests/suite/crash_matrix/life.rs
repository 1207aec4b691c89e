//! Table with ageing points, and the ledger of all changes to it.
//!
//! Every field of a point is derived from the number of its write. A reader can therefore identify the write
//! and detect a partial one. The ledger holds the possible states of each point: one state if the outcome is
//! known, two states while a delete is in progress.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use serde_json::{Value as Json, json};
use tideline_fleet::Random;
use tideline_model::time::format_duration;
use tideline_model::{Clock as _, SystemClock, Value};
use tideline_tests::points::json_point;
use tideline_tests::reading::{self, Fields, Row};
use tideline_tests::{Client, Response};

/// Name of the table.
pub(super) const TABLE: &str = "life";
const MEASUREMENT: &str = "pulse";
pub(super) const HOSTS: usize = 6;
const MINUTE: i64 = 60_000_000_000;
const HOUR: i64 = 60 * MINUTE;
pub(super) const DAY: i64 = 24 * HOUR;
/// Age at which points expire, in nanoseconds. No point is written with an age within half a day of this age.
const RETENTION: i64 = 30 * DAY;
/// Ages, in days, of the points that are cold from the beginning and do not expire.
pub(super) const COLD_DAYS: Range<i64> = 5..6;
/// Number of segments in one window that are enough for a fold.
const STACK: usize = 14;
/// Number of points per request.
const REQUEST_POINTS: usize = 500;

/// Machine and timestamp in nanoseconds.
pub(super) type PointKey = (String, i64);

/// Known state of the table.
#[derive(Debug, Clone)]
pub(super) struct Life {
    random: Random,
    /// Start time in nanoseconds; ages are relative to this time.
    now: i64,
    /// Number of the last write.
    written: i64,
    /// Numbers of the writes that each point may show; `None` in the list means that the point may be absent.
    points: BTreeMap<PointKey, Vec<Option<i64>>>,
    /// Points that were written more than once; several tiers may contain them.
    rewritten: BTreeSet<PointKey>,
}

/// Delete of points.
#[derive(Debug, Clone)]
pub(super) struct Delete {
    hosts: Vec<String>,
    range: Range<i64>,
}

impl Life {
    /// Creates the state of an empty table, with the current time as start.
    pub(super) fn new(seed: u64) -> Self {
        Self {
            random: Random::new(seed),
            now: SystemClock.now().nanos(),
            written: 0,
            points: BTreeMap::new(),
            rewritten: BTreeSet::new(),
        }
    }

    /// Returns the definition of the table, in which moves start only on request.
    pub(super) fn table() -> Json {
        let never = json!({"cron": "0 0 29 2 *", "time_zone": "UTC"});
        json!({"name": TABLE, "policy": {"migrate": never, "expire": never}})
    }

    /// Sets the age at which points become cold.
    pub(super) fn set_hot_ttl(client: &Client, hot_ttl: &str) {
        Self::set_policy(client, &json!({"hot_ttl": hot_ttl}));
    }

    /// Sets the retention. Older points expire, and writes of older points are refused from then on.
    pub(super) fn set_retention(client: &Client) {
        Self::set_policy(client, &json!({"retention": format_duration(RETENTION)}));
    }

    /// Enables archiving on request; randomly, archived points also stay in the cold tier.
    pub(super) fn set_archive(&mut self, client: &Client) {
        Self::set_archive_keeping(client, [None, Some("1000d")][self.random.index(2)]);
    }

    /// Enables archiving on request; archived points also stay in the cold tier for `keep_cold`, if given.
    pub(super) fn set_archive_keeping(client: &Client, keep_cold: Option<&str>) {
        let never = json!({"cron": "0 0 29 2 *", "time_zone": "UTC"});
        let archive = json!({"target": "default", "after": "3d", "schedule": never, "keep_cold": keep_cold});
        Self::set_policy(client, &json!({"archive": archive}));
    }

    fn set_policy(client: &Client, policy: &Json) {
        let body = json!({"policy": policy}).to_string();
        let headers = [("content-type", "application/json")];
        client
            .send("PATCH", &format!("/v1/tables/{TABLE}"), &headers, body.as_bytes())
            .expect("a response")
            .expect_status(200);
    }

    /// Writes a point per machine and half hour; `days` counts back from the start of the current day. The first
    /// machine gets a point every three minutes, so that its cold chunks have summaries.
    pub(super) fn write_days(&mut self, client: &Client, days: Range<i64>) {
        let start = self.now.div_euclid(DAY) * DAY;
        let steps = |span: i64| {
            (-days.end * DAY / span..-days.start * DAY / span).map(move |step| start + step * span)
        };
        let often = steps(3 * MINUTE).map(|time| (host_name(0), time));
        let seldom = steps(HOUR / 2).flat_map(|time| (1..HOSTS).map(move |host| (host_name(host), time)));
        let keys: Vec<PointKey> = often.chain(seldom).collect();
        self.write(client, &keys);
    }

    /// Writes a current point for every machine: old points expire only if newer points exist.
    pub(super) fn write_now(&mut self, client: &Client) {
        let keys: Vec<PointKey> = (0..HOSTS).map(|host| (host_name(host), self.now)).collect();
        self.write(client, &keys);
    }

    /// Writes `count` points: overwrites random points that are not expired, or adds points within ten minutes
    /// after them.
    pub(super) fn write_again(&mut self, client: &Client, count: usize) {
        let taken = |(_, time): &&PointKey| *time >= self.now - RETENTION + HOUR;
        let known: Vec<PointKey> = self.points.keys().filter(taken).cloned().collect();
        let mut keys = Vec::with_capacity(count);
        for _ in 0..count {
            let (host, time) = known[self.random.index(known.len())].clone();
            let beside = self.random.index(10) as i64 * MINUTE;
            keys.push((host, time + [0, beside][self.random.index(2)]));
        }
        self.write(client, &keys);
    }

    /// Writes the same four half-hourly points of every machine [`STACK`] times, each time followed by a seal.
    /// One window then has enough segments for a fold.
    pub(super) fn write_stack(&mut self, client: &Client, seal: impl Fn(&Client)) {
        let age = [12 * HOUR, 4 * DAY][self.random.index(2)];
        let start = (self.now - age).div_euclid(DAY) * DAY;
        let halves = (0..4).map(|half| start + half * HOUR / 2);
        let keys: Vec<PointKey> = halves
            .flat_map(|time| (0..HOSTS).map(move |host| (host_name(host), time)))
            .collect();
        for _ in 0..STACK {
            self.write(client, &keys);
            seal(client);
        }
    }

    /// Writes points; every write must be acknowledged.
    pub(super) fn write(&mut self, client: &Client, keys: &[PointKey]) {
        for keys in keys.chunks(REQUEST_POINTS) {
            let mut points = Vec::with_capacity(keys.len());
            for (host, time) in keys {
                self.written += 1;
                let tags = [("host".to_owned(), host.clone())].into();
                points.push(json_point(MEASUREMENT, &tags, *time, &fields(self.written)));
                let key = (host.clone(), *time);
                let is_visible = *time >= self.now - RETENTION;
                let known = vec![is_visible.then_some(self.written)];
                if self.points.insert(key.clone(), known).is_some() {
                    self.rewritten.insert(key);
                }
            }
            let answer = client.post_json(&format!("/v1/tables/{TABLE}/points"), &json!({"points": points}));
            answer.expect_status(200);
        }
    }

    /// Draws a delete of one to five machines over 1 to 30 hours that begin in the last five days.
    pub(super) fn draw_delete(&mut self) -> Delete {
        let count = 1 + self.random.index(HOSTS - 1);
        let hosts: BTreeSet<usize> = (0..count).map(|_| self.random.index(HOSTS)).collect();
        let start = self.now - 5 * DAY + self.random.index(5 * 24) as i64 * HOUR;
        Delete {
            hosts: hosts.into_iter().map(host_name).collect(),
            range: start..start + (1 + self.random.index(30)) as i64 * HOUR,
        }
    }

    /// Sends a random delete, which must be acknowledged.
    pub(super) fn delete(&mut self, client: &Client) {
        let delete = self.draw_delete();
        self.send_delete(client, &delete);
    }

    /// Deletes some points that were cold from the beginning, so that their segment needs only a purge.
    pub(super) fn delete_cold(&mut self, client: &Client) {
        let start = (self.now.div_euclid(DAY) - COLD_DAYS.end) * DAY;
        let delete = Delete {
            range: start..start + DAY / 2,
            ..self.draw_delete()
        };
        self.send_delete(client, &delete);
    }

    fn send_delete(&mut self, client: &Client, delete: &Delete) {
        self.begin_delete(delete);
        let answer = delete.send(client);
        assert!(answer.is_success(), "{answer:?}");
        self.finish_delete(delete);
    }

    /// Records that a delete is in progress: its points may be deleted.
    pub(super) fn begin_delete(&mut self, delete: &Delete) {
        for (_, known) in self.points.iter_mut().filter(|(key, _)| delete.holds(key)) {
            if !known.contains(&None) {
                known.push(None);
            }
        }
    }

    /// Records that a delete was acknowledged: its points are deleted.
    pub(super) fn finish_delete(&mut self, delete: &Delete) {
        for (_, known) in self.points.iter_mut().filter(|(key, _)| delete.holds(key)) {
            *known = vec![None];
        }
    }

    /// Compares rows, hourly aggregates and the union of the tiers with the ledger. Valid only while nothing
    /// moves or is deleted between the queries.
    pub(super) fn check(&self, client: &Client, context: &str) {
        let all = self.check_rows(client, context);
        check_hours(client, &all, context);
        self.check_tiers(client, &all, context);
    }

    /// Checks that every point shows a write that the ledger allows. The check is valid even while points move. Returns
    /// the write of each stored point.
    pub(super) fn check_rows(&self, client: &Client, context: &str) -> BTreeMap<PointKey, i64> {
        let all = self.read(client, "all", context);
        for (key, known) in &self.points {
            let seen = all.get(key).copied();
            assert!(
                known.contains(&seen),
                "{context}: {key:?} shows write {seen:?}, expected one of {known:?}"
            );
        }
        all
    }

    /// Checks that the tiers together hold the points in `all`. A point that was written once must be in one
    /// tier; of an overwritten point, the newest write of all tiers counts.
    fn check_tiers(&self, client: &Client, all: &BTreeMap<PointKey, i64>, context: &str) {
        let mut union = self.read(client, "hot", context);
        let old = ["cold", "archive"].map(|tier| self.read(client, tier, context));
        for (key, write) in old.into_iter().flatten() {
            let other = union.get(&key).copied();
            assert!(
                other.is_none() || self.rewritten.contains(&key),
                "{context}: {key:?} is in two tiers"
            );
            union.insert(key, other.map_or(write, |other| other.max(write)));
        }
        if union != *all {
            let odd = |key: &&PointKey| union.get(*key) != all.get(*key);
            let keys: BTreeSet<&PointKey> = union.keys().chain(all.keys()).filter(odd).collect();
            let (odd, count) = (keys.first(), keys.len());
            panic!(
                "{context}: hot, cold and archive together differ from all at {count} keys, first {odd:?}"
            );
        }
    }

    /// Returns the write of every point in a tier. Panics if a point was never written or is returned twice.
    fn read(&self, client: &Client, tier: &str, context: &str) -> BTreeMap<PointKey, i64> {
        let rows = reading::rows(client, TABLE, json!({"tier": tier})).expect("a response");
        let mut seen = BTreeMap::new();
        for row in rows {
            let (key, write) = self.recognise(&row, context);
            let before = seen.insert(key, write);
            assert!(before.is_none(), "{context}: duplicate in {tier}: {row:?}");
        }
        seen
    }

    fn recognise(&self, row: &Row, context: &str) -> (PointKey, i64) {
        let Some(Value::Signed(write)) = row.fields.get("write") else {
            panic!("{context}: no number of a write in {row:?}");
        };
        assert_eq!(
            row.fields,
            fields(*write),
            "{context}: not one whole write: {row:?}"
        );
        let key = (row.tags.get("host").cloned().unwrap_or_default(), row.time);
        assert!(
            self.points.contains_key(&key),
            "{context}: never written: {row:?}"
        );
        (key, *write)
    }

    /// Returns the number of points that are certainly stored.
    pub(super) fn points(&self) -> usize {
        let is_there = |known: &&Vec<Option<i64>>| known.len() == 1 && known[0].is_some();
        self.points.values().filter(is_there).count()
    }
}

impl Delete {
    /// Sends the delete.
    fn send(&self, client: &Client) -> Response {
        client.post_json(&format!("/v1/tables/{TABLE}/points/delete"), &self.body())
    }

    pub(super) fn body(&self) -> Json {
        json!({
            "timelines": {"where": {"tag": "host", "in": self.hosts}},
            "range": {"start": self.range.start, "end": self.range.end},
        })
    }

    fn holds(&self, (host, time): &PointKey) -> bool {
        self.hosts.contains(host) && self.range.contains(time)
    }
}

fn host_name(host: usize) -> String {
    format!("host-{host}")
}

fn fields(write: i64) -> Fields {
    [
        ("write", Value::Signed(write)),
        ("float", Value::Float(write as f64 + 0.5)),
        ("odd", Value::Boolean(write & 1 == 1)),
        ("text", Value::String(format!("t{}", write % 50).into())),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

/// Compares count and sum by machine and hour with the rows. Values are multiples of 0.5, so sums are exact.
fn check_hours(client: &Client, all: &BTreeMap<PointKey, i64>, context: &str) {
    let mut expected: BTreeMap<PointKey, (i64, i64, f64)> = BTreeMap::new();
    for ((host, time), write) in all {
        let hour = (host.clone(), time.div_euclid(HOUR) * HOUR);
        let (count, sum, floats) = expected.entry(hour).or_default();
        *count += 1;
        *sum += write;
        *floats += *write as f64 + 0.5;
    }
    let query = json!({
        "fields": ["write", "float"],
        "range": {"start": "now-50d", "end": "now+1d"},
        "times": "nanos",
        "aggregate": {"functions": ["count", "sum"], "window": "1h", "group_by": ["host"]},
    });
    let answer = client
        .post_json(&format!("/v1/tables/{TABLE}/query"), &query)
        .expect_status(200);
    for row in reading::rows_of(&answer) {
        let key = (row.tags.get("host").cloned().unwrap_or_default(), row.time);
        let Some((count, sum, floats)) = expected.remove(&key) else {
            panic!("{context}: an hour without rows: {row:?}");
        };
        let cell = |function: &str, field: &str| row.fields.get(&reading::column(function, field)).cloned();
        let told = [cell("count", "write"), cell("sum", "write"), cell("sum", "float")];
        let known = [Value::Signed(count), Value::Signed(sum), Value::Float(floats)].map(Some);
        assert_eq!(told, known, "{context}: {key:?}");
    }
    assert!(expected.is_empty(), "{context}: hours are missing: {expected:?}");
}

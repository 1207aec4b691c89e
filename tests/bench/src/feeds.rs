//! Feeds: single and batched messages, fan-out, pulled feeds, conversations, pages, watches, disk, searches.
//!
//! The text of a message is an excerpt of the guide of about 200 bytes. Every write is acknowledged after its sync.
//! *Drained* figures include the flush and the work of the storage engine until the server is idle.

mod background;
mod watches;

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tideline_fleet::Random;

use crate::benchmark::Benchmark;
use crate::control::Control;
use crate::error::{BenchError, Result};
use crate::folder;
use crate::http::{Connection, excerpt};
use crate::latency::Latencies;
use crate::report::{Report, Unit, Wanted};
use crate::rows::check;
use crate::server::Server;
use crate::set::Scale;
use crate::wanted;

/// Number of connections over which single messages are sent.
const CONNECTIONS: usize = 64;
/// Number of messages per batch.
const BATCH: u64 = 100;
/// Number of feeds over which messages are spread.
const FEEDS: u64 = 1_000;
/// Number of members of a group.
const GROUP: u64 = 1_000;
/// Number of messages of a group per request.
const GROUP_BATCH: u64 = 10;
/// Number of conversations of the user whose conversations are listed.
const CONVERSATIONS: u64 = 50;
/// Length of the text of a message, in bytes.
const TEXT_BYTES: usize = 200;
/// Settings of the server: more new feeds per minute, connections and watches than by default.
const SETTINGS: [(&str, &str); 3] = [
    ("TIDELINE__TABLES__TIMELINES_PER_MINUTE", "100000000"),
    ("TIDELINE__HTTP__CONNECTIONS_MAX", "18000"),
    ("TIDELINE__HTTP__FEED_WATCHES_MAX", "18000"),
];
/// Texts of the messages.
const GUIDE: &str = concat!(
    include_str!("../../../docs/concepts.md"),
    include_str!("../../../docs/rows.md"),
    include_str!("../../../docs/operations.md")
);

/// Part of the group `feeds`. Each part starts a separate server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// One message per request.
    Single,
    /// Messages in batches, pages and conversations.
    Batches,
    /// Messages to a group, written to the inboxes of its members in the same write.
    Group,
    /// Messages of an author whose followers read the feed.
    Author,
    /// Job that writes messages to inboxes.
    Job,
    /// Messages with a search index.
    Search,
    /// Watches.
    Watches,
}

impl FromStr for Part {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, Self::Err> {
        match text {
            "single" => Ok(Self::Single),
            "batches" => Ok(Self::Batches),
            "group" => Ok(Self::Group),
            "author" => Ok(Self::Author),
            "job" => Ok(Self::Job),
            "search" => Ok(Self::Search),
            "watches" => Ok(Self::Watches),
            _ => Err(format!(
                "{text:?} is not one of the parts single, batches, group, author, job, search and watches"
            )),
        }
    }
}

/// Sizes of a run.
struct Sizes {
    /// Duration of the single messages.
    single: Duration,
    batches: u64,
    /// Number of requests to a group.
    group_batches: u64,
    /// Number of followers of an author.
    followers: u64,
    /// Number of members of the feed whose messages a job writes to inboxes.
    job_members: u64,
    /// Number of requests to that feed.
    job_batches: u64,
    /// Duration of the searchable messages.
    searchable: Duration,
    reads: usize,
    /// Number of watches.
    watches: usize,
    /// Duration of the messages to watches.
    watched: Duration,
}

impl Benchmark {
    /// Runs the group `feeds`.
    pub(crate) fn run_feeds(&self, report: &mut Report) -> Result<()> {
        let sizes = match self.scale {
            Scale::Full => Sizes {
                single: Duration::from_secs(60),
                batches: 10_000,
                group_batches: 500,
                followers: 1_000_000,
                job_members: 10_000,
                job_batches: 20,
                searchable: Duration::from_secs(self.searchable_seconds),
                reads: 5_000,
                watches: 10_000,
                watched: Duration::from_secs(60),
            },
            Scale::Quick => Sizes {
                single: Duration::from_secs(3),
                batches: 200,
                group_batches: 10,
                followers: 2_000,
                job_members: 500,
                job_batches: 2,
                searchable: Duration::from_secs(3),
                reads: 500,
                watches: 500,
                watched: Duration::from_secs(5),
            },
        };
        for part in &self.feeds {
            match part {
                Part::Single => self.single_messages(&sizes, report)?,
                Part::Batches => self.batched_messages(&sizes, report)?,
                Part::Group => self.fan_out(&sizes, report)?,
                Part::Author => self.pulled_author(&sizes, report)?,
                Part::Job => self.fan_out_job(&sizes, report)?,
                Part::Search => self.searchable_messages(&sizes, report)?,
                Part::Watches => self.watched_feeds(&sizes, report)?,
            }
        }
        Ok(())
    }

    /// Starts a server that creates many feeds at once, and many watches.
    fn feed_server(&self, name: &str, content: &str) -> Result<(Server, PathBuf)> {
        let data = self.fresh_folder(name, content)?;
        Ok((Server::start_with(&self.server, &data, &SETTINGS)?, data))
    }

    /// Measures one message per request over [`CONNECTIONS`] connections.
    fn single_messages(&self, sizes: &Sizes, report: &mut Report) -> Result<()> {
        let name = "one message per request";
        let (server, data) = self.feed_server("feeds-single", name)?;
        create(&server, &json!({}))?;
        let end = Instant::now() + sizes.single;
        let before = server.cpu_time()?;
        let begun = Instant::now();
        let latencies = send_all(server.address(), CONNECTIONS, &|_| (), |number| {
            (Instant::now() < end).then(|| (path_of(number % FEEDS), body(number, 1)))
        })?;
        let (wall, cpu) = (begun.elapsed(), server.cpu_time()? - before);
        let messages = latencies.asked as f64;
        let rate = messages / wall.as_secs_f64() / 1e3;
        report.add(name, rate, Unit::ThousandMessagesPerSecond, wanted::FEEDS_SINGLE);
        let each = cpu.as_secs_f64() / messages * 1e6;
        let title = format!("{name}, server CPU each");
        report.add(title, each, Unit::Microseconds, wanted::FEEDS_SINGLE_CPU);
        let p99 = latencies.percentile(99).as_secs_f64() * 1e3;
        report.add(
            format!("{name}, p99"),
            p99,
            Unit::Milliseconds,
            wanted::FEEDS_SINGLE_P99,
        );
        server.kill();
        self.forget(&data)
    }

    /// Measures batches, disk usage, pages after a cursor, and the conversations of a user.
    fn batched_messages(&self, sizes: &Sizes, report: &mut Report) -> Result<()> {
        let messages = sizes.batches * BATCH;
        let (mut server, data) =
            self.feed_server("feeds", &format!("{messages} messages in batches of {BATCH}"))?;
        create(&server, &json!({"inboxes": {}}))?;
        // The feeds are created first, so that the figures include only the messages.
        send_all(server.address(), self.connections, &|_| (), |number| {
            (number < FEEDS).then(|| (path_of(number), body(number, 1)))
        })?;
        let before = server.cpu_time()?;
        let begun = Instant::now();
        send_all(server.address(), self.connections, &|_| (), |number| {
            (number < sizes.batches).then(|| (path_of(number % FEEDS), body(number * BATCH, BATCH)))
        })?;
        let wall = begun.elapsed();
        let acknowledged = server.cpu_time()? - before;
        Control::open(&server)?.seal()?;
        server.drain()?;
        let drained = server.cpu_time()? - before;
        for (name, cpu, goal) in [
            (
                "messages in batches, acknowledged",
                acknowledged,
                wanted::FEEDS_ACKNOWLEDGED,
            ),
            ("messages in batches, drained", drained, wanted::FEEDS_DRAINED),
        ] {
            let rate = messages as f64 / cpu.as_secs_f64() / 1e3;
            report.add(name, rate, Unit::ThousandMessagesPerCpuSecond, goal);
        }
        let rate = messages as f64 / wall.as_secs_f64() / 1e3;
        report.note(format!(
            "messages in batches: {rate:.0} k/s by the clock, texts of {TEXT_BYTES} bytes of the guide"
        ));
        let bytes = folder::usage(&data)?.bytes as f64 / (messages + FEEDS) as f64;
        report.add(
            "disk of a message",
            bytes,
            Unit::BytesPerMessage,
            wanted::FEEDS_DISK,
        );
        let mut connection = server.connect()?;
        // Each of these feeds has a batch.
        let filled = FEEDS.min(sizes.batches) as usize;
        let read = |random: &mut Random| {
            let path = format!("{}?after=0&limit=100", path_of(random.index(filled) as u64));
            connection.send_expecting_success("GET", &path, b"")
        };
        let pages = timed(sizes.reads, read, |page| {
            let found = page["messages"].as_array().map_or(0, Vec::len);
            check(found == 100, || format!("{found} messages instead of 100"))
        })?;
        let median = pages.percentile(50).as_secs_f64() * 1e3;
        report.add(
            "100 messages after a cursor",
            median,
            Unit::Milliseconds,
            wanted::FEEDS_PAGE,
        );
        // Half of the messages of each conversation were read.
        for feed in 0..CONVERSATIONS {
            join(&mut connection, feed, "ann")?;
            let path = format!("{}?order=descending&limit=2", path_of(feed));
            let newest = connection.send_expecting_success("GET", &path, b"")?;
            let newest: Value = serde_json::from_slice(&newest).unwrap_or_default();
            let cursor = json!({"sequence": newest["messages"][1]["sequence"]}).to_string();
            let path = format!("{TABLE}/users/ann/cursors/room,name=r{feed}");
            connection.send_expecting_success("PUT", &path, cursor.as_bytes())?;
        }
        let read = |_: &mut Random| {
            let path = format!("{TABLE}/users/ann/conversations");
            connection.send_expecting_success("GET", &path, b"")
        };
        let lists = timed(sizes.reads, read, |list| {
            check(list["total"] == CONVERSATIONS, || list["total"].to_string())
        })?;
        let p99 = lists.percentile(99).as_secs_f64() * 1e3;
        let name = format!("{CONVERSATIONS} conversations of a user, p99");
        report.add(name, p99, Unit::Milliseconds, wanted::FEEDS_CONVERSATIONS);
        server.kill();
        self.forget(&data)
    }

    /// Measures messages to a group whose members get an inbox entry each.
    fn fan_out(&self, sizes: &Sizes, report: &mut Report) -> Result<()> {
        let messages = sizes.group_batches * GROUP_BATCH;
        let (mut server, data) =
            self.feed_server("feeds-group", &format!("{messages} messages to {GROUP} inboxes"))?;
        create(&server, &json!({"inboxes": {"push_max": GROUP}}))?;
        send_all(server.address(), 1, &|_| (), |number| {
            (number < 1).then(|| (path_of(0), body(0, 1)))
        })?;
        join_all(&server, 0, GROUP)?;
        Control::open(&server)?.seal()?;
        server.drain()?;
        let (before, size) = (server.cpu_time()?, folder::usage(&data)?.bytes);
        let latencies = send_all(server.address(), self.connections, &|_| (), |number| {
            let text = || body(number * GROUP_BATCH, GROUP_BATCH);
            (number < sizes.group_batches).then(|| (path_of(0), text()))
        })?;
        Control::open(&server)?.seal()?;
        server.drain()?;
        let entries = (messages * GROUP) as f64;
        let cpu = server.cpu_time()? - before;
        let rate = entries / cpu.as_secs_f64() / 1e3;
        let unit = Unit::ThousandMessagesPerCpuSecond;
        report.add(
            "inbox entries of a group, drained",
            rate,
            unit,
            wanted::FEEDS_ENTRIES,
        );
        let p99 = latencies.percentile(99).as_secs_f64() * 1e3;
        let name = format!("{GROUP_BATCH} messages to {GROUP} inboxes, p99");
        report.add(name, p99, Unit::Milliseconds, Wanted::Nothing);
        let bytes = (folder::usage(&data)?.bytes - size) as f64 / entries;
        report.add(
            "disk of an inbox entry",
            bytes,
            Unit::BytesPerMessage,
            wanted::FEEDS_ENTRY_DISK,
        );
        server.kill();
        self.forget(&data)
    }

    /// Measures a message of an author whose followers read it from the feed.
    fn pulled_author(&self, sizes: &Sizes, report: &mut Report) -> Result<()> {
        let followers = sizes.followers;
        let (server, data) =
            self.feed_server("feeds-author", &format!("an author with {followers} followers"))?;
        create(&server, &json!({"inboxes": {"push_max": 100}}))?;
        send_all(server.address(), 1, &|_| (), |number| {
            (number < 1).then(|| (path_of(0), body(0, 1)))
        })?;
        join_all(&server, 0, followers)?;
        let mut connection = server.connect()?;
        let send = |random: &mut Random| {
            let text = body(random.index(100_000) as u64, 1);
            connection.send_expecting_success("POST", &path_of(0), &text)
        };
        let posts = timed(sizes.reads.min(1_000), send, |_| Ok(()))?;
        let median = posts.percentile(50).as_secs_f64() * 1e3;
        let name = format!("message of an author with {followers} followers");
        report.add(name, median, Unit::Milliseconds, wanted::FEEDS_PULLED);
        server.kill();
        self.forget(&data)
    }
}

/// Path of the table of the messages.
const TABLE: &str = "/v1/tables/chat";

fn create(server: &Server, feed: &Value) -> Result<()> {
    let mut feed = feed.clone();
    feed["columns"] = json!([{"name": "text", "type": "string"}]);
    let table = json!({"name": "chat", "model": "feed", "feed": feed}).to_string();
    let mut connection = server.connect()?;
    connection.send_expecting_success("POST", "/v1/tables", table.as_bytes())?;
    Ok(())
}

fn path_of(feed: u64) -> String {
    format!("{TABLE}/feeds/room,name=r{feed}/messages")
}

/// Returns an excerpt of the guide; different numbers select different excerpts.
fn text(number: u64) -> &'static str {
    let parts = (GUIDE.len() - 2 * TEXT_BYTES) as u64;
    let start = GUIDE.floor_char_boundary((number.wrapping_mul(0x9E37_79B9_7F4A_7C15) % parts) as usize);
    &GUIDE[start..GUIDE.floor_char_boundary(start + TEXT_BYTES)]
}

/// Returns the body of a request with messages.
fn body(first: u64, count: u64) -> Vec<u8> {
    let mut body = String::from("{\"messages\":[");
    for number in first..first + count {
        let separator = if number > first { "," } else { "" };
        let text = Value::from(text(number));
        let written = write!(
            body,
            "{separator}{{\"sender\":\"user-{}\",\"columns\":{{\"text\":{text}}}}}",
            number % 100
        );
        debug_assert!(written.is_ok());
    }
    body.push_str("]}");
    body.into_bytes()
}

/// Sends requests over connections until `next` returns `None` for the number of a request. `acknowledged` is called after
/// each response.
fn send_all(
    address: SocketAddr,
    connections: usize,
    acknowledged: &(dyn Fn(u64) + Sync),
    next: impl Fn(u64) -> Option<(String, Vec<u8>)> + Sync,
) -> Result<Latencies> {
    let number = AtomicU64::new(0);
    let failed = |source| BenchError::Connection {
        what: "sending messages",
        source,
    };
    let send_some = || -> Result<Vec<Duration>> {
        let mut connection = Connection::open(address).map_err(failed)?;
        let mut took = Vec::new();
        loop {
            let number = number.fetch_add(1, Ordering::Relaxed);
            let Some((path, body)) = next(number) else {
                return Ok(took);
            };
            let begun = Instant::now();
            let method = if path.contains("/members/") { "PUT" } else { "POST" };
            let response = connection.send(method, &path, "application/json", &body);
            let response = response.map_err(failed)?;
            took.push(begun.elapsed());
            acknowledged(number);
            check(response.status == 200, || excerpt(&response.body))?;
        }
    };
    thread::scope(|scope| {
        let senders: Vec<_> = (0..connections).map(|_| scope.spawn(send_some)).collect();
        let mut all = Vec::new();
        for sender in senders {
            let took = sender.join();
            all.extend(took.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
        }
        Ok(Latencies::of(all))
    })
}

fn member_path(feed: u64, user: &str) -> String {
    format!("{TABLE}/feeds/room,name=r{feed}/members/{user}")
}

fn join(connection: &mut Connection, feed: u64, user: &str) -> Result<()> {
    connection.send_expecting_success("PUT", &member_path(feed, user), b"{}")?;
    Ok(())
}

/// Makes users members of a feed.
fn join_all(server: &Server, feed: u64, users: u64) -> Result<()> {
    send_all(server.address(), CONNECTIONS, &|_| (), |number| {
        (number < users).then(|| (member_path(feed, &format!("user-{number}")), b"{}".to_vec()))
    })?;
    Ok(())
}

/// Measures requests until the whole response has arrived. `check` tests each response after that, so that the figures
/// do not include the time in which this client parses it.
fn timed(
    count: usize,
    mut request: impl FnMut(&mut Random) -> Result<Vec<u8>>,
    check: impl Fn(&Value) -> Result<()>,
) -> Result<Latencies> {
    let mut random = Random::new(13);
    let mut took = Vec::with_capacity(count);
    for _ in 0..count {
        let begun = Instant::now();
        let response = request(&mut random)?;
        took.push(begun.elapsed());
        check(&serde_json::from_slice(&response).unwrap_or_default())?;
    }
    Ok(Latencies::of(took))
}

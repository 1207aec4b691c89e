//! Work of feeds that follows the acknowledgement: the job that writes the messages of a large feed to the inboxes, and the
//! search index of messages.
//!
//! The server CPU time of searchable messages is measured until they are flushed and the index holds all of them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use serde_json::json;

use super::{BATCH, FEEDS, GROUP_BATCH, Sizes, TABLE, body, create, join_all, path_of, send_all, text};
use crate::benchmark::Benchmark;
use crate::control::Control;
use crate::error::Result;
use crate::folder::{self, INDEX};
use crate::report::{Report, Unit, Wanted};
use crate::rows::check;
use crate::search::{longest_lag, wait_indexed};
use crate::wanted;

/// Search indexes of the table of the messages.
const INDEXES: &str = "/v1/tables/chat/search-indexes";

impl Benchmark {
    /// Measures the job that writes the messages of a feed with many members to the inboxes.
    pub(super) fn fan_out_job(&self, sizes: &Sizes, report: &mut Report) -> Result<()> {
        let (members, messages) = (sizes.job_members, sizes.job_batches * GROUP_BATCH);
        let (mut server, data) = self.feed_server(
            "feeds-job",
            &format!("{messages} messages that a job writes to {members} inboxes"),
        )?;
        create(
            &server,
            &json!({"inboxes": {"push_max": 1, "fan_out_max": 100_000}}),
        )?;
        send_all(server.address(), 1, &|_| (), |number| {
            (number < 1).then(|| (path_of(0), body(0, 1)))
        })?;
        join_all(&server, 0, members)?;
        let mut control = Control::open(&server)?;
        control.run_once("fan_out", "chat")?;
        send_all(server.address(), self.connections, &|_| (), |number| {
            let text = || body(number * GROUP_BATCH, GROUP_BATCH);
            (number < sizes.job_batches).then(|| (path_of(0), text()))
        })?;
        control.seal()?;
        server.drain()?;
        let (before, begun) = (server.cpu_time()?, Instant::now());
        // A job ends after 2,000,000 entries.
        let mut written = 0;
        while written < messages * members {
            let jobs = control.run_once("fan_out", "chat")?;
            let points = jobs.iter().filter_map(|job| job["done"]["points"].as_u64());
            let more: u64 = points.sum();
            check(more > 0, || {
                format!("{written} inbox entries, then none: {jobs:?}")
            })?;
            written += more;
        }
        let wall = begun.elapsed();
        control.seal()?;
        server.drain()?;
        let cpu = server.cpu_time()? - before;
        check(written == messages * members, || {
            format!("{written} inbox entries instead of {}", messages * members)
        })?;
        let rate = written as f64 / cpu.as_secs_f64() / 1e3;
        report.add(
            "inbox entries of the job `fan_out`, drained",
            rate,
            Unit::ThousandMessagesPerCpuSecond,
            wanted::FEEDS_JOB,
        );
        let by_clock = written as f64 / wall.as_secs_f64() / 1e3;
        report.note(format!("job `fan_out`: {by_clock:.0} k entries/s by the clock"));
        server.kill();
        self.forget(&data)
    }

    /// Measures messages in batches while a search index follows them: the rate, the delay and the size of the index.
    pub(super) fn searchable_messages(&self, sizes: &Sizes, report: &mut Report) -> Result<()> {
        let seconds = sizes.searchable.as_secs();
        let name = "searchable messages";
        let (mut server, data) = self.feed_server("feeds-search", &format!("{name} for {seconds} s"))?;
        create(&server, &json!({}))?;
        let index = json!({"name": "messages", "columns": [
            {"column": "feed", "as": "keyword"},
            {"column": "sender", "as": "keyword"},
            {"column": "event", "as": "keyword"},
            {"column": "text", "as": "text"},
        ]});
        server
            .connect()?
            .send_expecting_success("POST", INDEXES, index.to_string().as_bytes())?;
        let before = server.cpu_time()?;
        let begun = Instant::now();
        let (batches, is_sent) = (AtomicU64::new(0), AtomicBool::new(false));
        let lag = thread::scope(|scope| {
            let watched = scope.spawn(|| longest_lag(&server, INDEXES, &is_sent));
            let acknowledged = |_| {
                batches.fetch_add(1, Ordering::Relaxed);
            };
            let sent = send_all(server.address(), self.connections, &acknowledged, |number| {
                let is_left = begun.elapsed() < sizes.searchable;
                is_left.then(|| (path_of(number % FEEDS), body(number * BATCH, BATCH)))
            });
            is_sent.store(true, Ordering::Relaxed);
            let lag = watched
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            sent.and(lag)
        })?;
        let wall = begun.elapsed();
        Control::open(&server)?.seal()?;
        // The server closes a connection that was idle for as long as the messages took.
        let mut connection = server.connect()?;
        wait_indexed(&mut connection, INDEXES)?;
        server.drain()?;
        let cpu = server.cpu_time()? - before;
        let messages = batches.load(Ordering::Relaxed) * BATCH;
        let found = json!({"where": {"column": "sender", "exists": true}, "limit": 1}).to_string();
        let path = format!("{TABLE}/feeds/messages/search");
        let found = connection.send_expecting_success("POST", &path, found.as_bytes())?;
        let found: serde_json::Value = serde_json::from_slice(&found).unwrap_or_default();
        check(found["total"] == messages, || {
            format!("{} messages are found instead of {messages}", found["total"])
        })?;
        let rate = messages as f64 / cpu.as_secs_f64() / 1e3;
        report.add(
            format!("{name}, indexed and drained"),
            rate,
            Unit::ThousandMessagesPerCpuSecond,
            wanted::FEEDS_SEARCHABLE,
        );
        report.add(
            "longest time until a message is searchable",
            lag.as_secs_f64(),
            Unit::Seconds,
            wanted::FEEDS_SEARCH_LAG,
        );
        let bytes: u64 = (0..messages).map(|number| text(number).len() as u64).sum();
        let usage = folder::usage(&data.join(INDEX).join("rows"))?;
        report.add(
            "search index of messages, per byte of text",
            usage.bytes as f64 / bytes as f64,
            Unit::BytesPerByte,
            wanted::FEEDS_SEARCH_DISK,
        );
        report.add(
            format!("{name}, by the clock"),
            messages as f64 / wall.as_secs_f64() / 1e3,
            Unit::ThousandMessagesPerSecond,
            Wanted::Nothing,
        );
        server.kill();
        self.forget(&data)
    }
}

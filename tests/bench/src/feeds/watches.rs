//! Watches of feeds: time from the acknowledgement of a message until its watches have received it.
//!
//! Each message has its number as sender. The receivers run on one thread, so that they leave a core to the server.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;

use super::{CONNECTIONS, FEEDS, Sizes, TABLE, body, create, path_of, send_all, text};
use crate::benchmark::{Benchmark, MEBIBYTE};
use crate::error::{BenchError, Result};
use crate::latency::Latencies;
use crate::report::{Report, Unit};
use crate::server::Server;
use crate::wait::pause;
use crate::wanted;

/// Number of messages per second while each watch follows a separate feed.
const RATE: u64 = 2_000;
/// Number of connections that send messages.
const SENDERS: usize = 16;
/// Number of watches that are opened at the same time.
const OPENING: usize = 64;
/// Number of messages to one feed that all watches follow.
const BROADCASTS: u64 = 10;
/// Time over which these messages are spread.
const BROADCASTS_SPAN: Duration = Duration::from_secs(20);
/// Number of connections of the other writers during these messages.
const WRITERS: usize = 8;
/// Longest time until the watches have a message.
const PATIENCE: Duration = Duration::from_secs(60);
/// Text before the number of a message.
const MARK: &[u8] = b"\"sender\":\"n-";

/// Nanoseconds from `start` to the acknowledgement of each message, and to its last receipt.
#[derive(Debug)]
struct Times {
    start: Instant,
    acknowledged: Vec<AtomicU64>,
    received: Vec<AtomicU64>,
    /// Number of receipts of all messages.
    receipts: AtomicU64,
}

impl Times {
    fn new(messages: u64) -> Arc<Self> {
        let zeros = || (0..messages).map(|_| AtomicU64::new(0)).collect();
        Arc::new(Self {
            start: Instant::now(),
            acknowledged: zeros(),
            received: zeros(),
            receipts: AtomicU64::new(0),
        })
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn acknowledge(&self, number: u64) {
        if let Some(acknowledged) = self.acknowledged.get(number as usize) {
            acknowledged.store(self.now(), Ordering::Relaxed);
        }
    }

    fn receive(&self, number: u64) {
        if let Some(received) = self.received.get(number as usize) {
            received.fetch_max(self.now(), Ordering::Relaxed);
            self.receipts.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until the watches have a number of messages.
    fn wait(&self, receipts: u64) -> Result<()> {
        let begun = Instant::now();
        while self.receipts.load(Ordering::Relaxed) < receipts {
            if begun.elapsed() > PATIENCE {
                return Err(BenchError::Late {
                    what: format!("{receipts} messages at their watches"),
                    limit: PATIENCE,
                });
            }
            pause(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Returns the times from the acknowledgement of each message to its last receipt.
    fn latencies(&self) -> Latencies {
        let times = self.acknowledged.iter().zip(&self.received);
        let took = times.map(|(acknowledged, received)| {
            let nanos = received.load(Ordering::Relaxed);
            Duration::from_nanos(nanos.saturating_sub(acknowledged.load(Ordering::Relaxed)))
        });
        Latencies::of(took.collect())
    }
}

impl Benchmark {
    /// Measures watches that each follow a separate feed, and then watches that all follow one feed.
    pub(super) fn watched_feeds(&self, sizes: &Sizes, report: &mut Report) -> Result<()> {
        let watches = sizes.watches as u64;
        let name = format!("{watches} watches");
        let (server, data) = self.feed_server("feeds-watches", &name)?;
        create(&server, &json!({}))?;
        send_all(server.address(), CONNECTIONS, &|_| (), |number| {
            (number < watches).then(|| (path_of(number), body(number, 1)))
        })?;
        let messages = RATE * sizes.watched.as_secs();
        let times = Times::new(messages);
        let receivers = Receivers::open(server.address(), watches, &times, |watch| watch)?;
        let before = server.cpu_time()?;
        let begun = Instant::now();
        let acknowledged = |number| times.acknowledge(number);
        send_all(server.address(), SENDERS, &acknowledged, |number| {
            let due = Duration::from_nanos(number * 1_000_000_000 / RATE);
            pause(due.saturating_sub(begun.elapsed()));
            (number < messages).then(|| (path_of(number % watches), numbered(number)))
        })?;
        times.wait(messages)?;
        let cpu = (server.cpu_time()? - before).as_secs_f64();
        let p99 = times.latencies().percentile(99).as_secs_f64() * 1e3;
        let title = format!("{name}, {RATE} messages/s: from acknowledgement to receipt, p99");
        report.add(title, p99, Unit::Milliseconds, wanted::FEEDS_WATCHED);
        let peak = server.peak_resident_bytes()? as f64 / MEBIBYTE;
        let title = format!("peak memory with {name}");
        report.add(title, peak, Unit::Mebibytes, wanted::FEEDS_WATCHED_MEMORY);
        let each = cpu / messages as f64 * 1e6;
        report.note(format!(
            "{name}: {each:.0} µs of server CPU for each message with its receipt"
        ));
        drop(receivers);
        self.broadcasts(&server, watches, report)?;
        server.kill();
        self.forget(&data)
    }

    /// Measures messages to a feed that all watches follow, and their effect on other writers.
    fn broadcasts(&self, server: &Server, watches: u64, report: &mut Report) -> Result<()> {
        let times = Times::new(BROADCASTS);
        let receivers = Receivers::open(server.address(), watches, &times, |_| 0)?;
        // Other writers send to feeds without watches.
        let write_for = |span: Duration| {
            let end = Instant::now() + span;
            send_all(server.address(), WRITERS, &|_| (), |number| {
                (Instant::now() < end).then(|| (path_of(1 + number % FEEDS), body(number, 1)))
            })
        };
        let alone = write_for(BROADCASTS_SPAN)?.percentile(99);
        let beside = thread::scope(|scope| -> Result<Duration> {
            let writers = scope.spawn(|| write_for(BROADCASTS_SPAN));
            let acknowledged = |number| times.acknowledge(number);
            let sent = send_all(server.address(), 1, &acknowledged, |number| {
                pause(BROADCASTS_SPAN / BROADCASTS as u32);
                (number < BROADCASTS).then(|| (path_of(0), numbered(number)))
            });
            let written = writers.join();
            let written = written.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            sent?;
            Ok(written.percentile(99))
        })?;
        times.wait(BROADCASTS * watches)?;
        drop(receivers);
        let last = times.latencies().percentile(50).as_secs_f64() * 1e3;
        let name = format!("one message to {watches} watches");
        report.add(
            format!("{name}: last receipt"),
            last,
            Unit::Milliseconds,
            wanted::FEEDS_BROADCAST,
        );
        let ratio = beside.as_secs_f64() / alone.as_secs_f64();
        report.add(
            format!("{name}: p99 of other writers"),
            ratio,
            Unit::Times,
            wanted::FEEDS_BROADCAST_WRITERS,
        );
        Ok(())
    }
}

/// Returns a request with the message of a number.
fn numbered(number: u64) -> Vec<u8> {
    let message = json!({"sender": format!("n-{number}"), "columns": {"text": text(number)}});
    json!({"messages": [message]}).to_string().into_bytes()
}

/// Open watches. Dropping the value closes them.
#[derive(Debug)]
struct Receivers {
    runtime: Option<Runtime>,
}

impl Receivers {
    /// Opens watches, and waits until all are open. `feed_of` returns the feed of a watch.
    fn open(address: SocketAddr, watches: u64, times: &Arc<Times>, feed_of: fn(u64) -> u64) -> Result<Self> {
        let failed = |source| BenchError::Connection {
            what: "watching feeds",
            source,
        };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .map_err(failed)?;
        let opening = Arc::new(Semaphore::new(OPENING));
        let opened: Vec<_> = (0..watches)
            .map(|watch| {
                let (opening, times) = (Arc::clone(&opening), Arc::clone(times));
                runtime.spawn(async move {
                    let _turn = opening.acquire().await;
                    let stream = open_watch(address, feed_of(watch)).await?;
                    tokio::spawn(async move {
                        // The server closes the connection at the end of the run.
                        let _ended = receive(stream, &times).await;
                    });
                    Ok(())
                })
            })
            .collect();
        for watch in opened {
            let opened: io::Result<()> = runtime.block_on(watch).map_err(io::Error::other).flatten();
            opened.map_err(failed)?;
        }
        Ok(Self {
            runtime: Some(runtime),
        })
    }
}

impl Drop for Receivers {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Opens a watch and reads its first event.
async fn open_watch(address: SocketAddr, feed: u64) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(address).await?;
    let head = format!("GET {TABLE}/feeds/room,name=r{feed}/watch HTTP/1.1\r\nHost: localhost\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    let mut received = Vec::new();
    while !received.ends_with(b"\n\n\r\n") {
        if stream.read_buf(&mut received).await? == 0 {
            let text = String::from_utf8_lossy(&received).into_owned();
            return Err(io::Error::other(text));
        }
        if !received.starts_with(b"HTTP/1.1 200") {
            return Err(io::Error::other(String::from_utf8_lossy(&received).into_owned()));
        }
    }
    Ok(stream)
}

/// Notes the numbers of the messages that a watch receives.
async fn receive(mut stream: TcpStream, times: &Times) -> io::Result<()> {
    let mut received = Vec::with_capacity(4 << 10);
    while stream.read_buf(&mut received).await? > 0 {
        let mut rest = &received[..];
        while let Some(at) = rest.windows(MARK.len()).position(|window| window == MARK) {
            let digits = &rest[at + MARK.len()..];
            // The number may not be complete yet.
            let Some(end) = digits.iter().position(|byte| *byte == b'"') else {
                break;
            };
            let number = std::str::from_utf8(&digits[..end])
                .ok()
                .and_then(|digits| digits.parse().ok());
            if let Some(number) = number {
                times.receive(number);
            }
            rest = &digits[end..];
        }
        // Keeps the bytes that may be the start of a mark and its number.
        let kept = rest.len().min(MARK.len() + 24);
        let from = received.len() - kept;
        received.drain(..from);
    }
    Ok(())
}

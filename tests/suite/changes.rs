//! Tests that kill the server while clients write, consumers read a change stream, and a webhook delivers it.
//!
//! Every acknowledged write must be in the stream exactly once, at one position, and the writes of each key must be in
//! their order. A write without a response is in the stream at most once. A consumer that keeps its position
//! reads each record once, over all kills; a consumer that fails reads exactly its unconfirmed records again. The
//! receiver of the webhook gets each record at least once, and new records in the order of the stream.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tideline_testkit::{Random, rounds, seed, skip};
use tideline_tests::disk::SmallDisk;
use tideline_tests::program::free_address;
use tideline_tests::server::{DataFolder, binary};
use tideline_tests::{Client, Launch, wait};

use crate::feeds::{Done, send_over_restarts, wait_acknowledged};
use crate::row_archive::check_of;

/// Number of threads that write.
const WRITERS: u64 = 3;
/// Maximum number of writes of each writer before a kill.
const WRITES_MAX: u64 = 10_000;
/// Number of writes of each writer after the last kill.
const LAST_WRITES: u64 = 60;
/// Number of partitions of the consumer group.
const PARTITIONS: u16 = 2;
/// Length of a column of each row, so that the buffer of rows is flushed between the kills.
const NOTE_BYTES: usize = 4_000;
/// Time limit for a state that is awaited.
const PATIENCE: Duration = Duration::from_secs(60);
/// Longest time between two measurements of the kept changes, on a slow machine.
const MEASURED: Duration = Duration::from_secs(3);
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const STREAM: &str = "/v1/changes/all";

/// Key and value of a written entry: a point of a timeline, a row of a partition, or a message of a feed.
type Entry = (String, String);

/// Returns the launch of a server that flushes often and may send webhooks to loopback.
fn launch(address: SocketAddr) -> Launch {
    Launch::default()
        .listen(address)
        .environment("TIDELINE__STORAGE__ROW_BUFFER_BYTES", "1MiB")
        .environment("TIDELINE__WEBHOOKS__HOSTS", "127.0.0.1")
        .environment("TIDELINE__WEBHOOKS__NETWORKS", "127.0.0.1/32")
}

/// Creates the tables, and a stream of their entries.
fn create(client: &Client) {
    let wide = json!({
        "key": [{"name": "customer", "type": "string"}, {"name": "number", "type": "i64"}],
        "columns": [{"name": "n", "type": "i64"}, {"name": "note", "type": "string"}],
    });
    let orders = json!({"name": "orders", "model": "wide", "wide": wide});
    let chat =
        json!({"name": "chat", "model": "feed", "feed": {"columns": [{"name": "room", "type": "string"}]}});
    for table in [orders, chat] {
        client.post_json("/v1/tables", &table).expect_status(201);
    }
    client
        .put_json(STREAM, &json!({"kinds": ["points", "row", "message"]}))
        .expect_status(200);
}

/// Request of a writer.
struct Write {
    path: String,
    content_type: &'static str,
    body: String,
    entries: Vec<Entry>,
    is_acknowledged: bool,
    /// True if the request can be sent again without a second effect.
    is_repeatable: bool,
}

/// Writer with its writes, oldest first.
struct Writer {
    number: u64,
    random: Random,
    /// Value of the next entry.
    next: u64,
    writes: Vec<Write>,
    /// Time of the first point, in nanoseconds.
    start: u64,
}

impl Writer {
    /// Writes until `count` requests are acknowledged, or the server is killed.
    fn run(&mut self, client: &Client, count: u64, acknowledged: &Sender<()>) {
        let is_pending = |write: &&Write| write.is_repeatable && !write.is_acknowledged;
        if self.writes.last().as_ref().is_some_and(is_pending) && !self.send(client) {
            return;
        }
        for _ in 0..count {
            let write = self.write();
            self.writes.push(write);
            if !self.send(client) {
                return;
            }
            // After the last kill, no thread receives these signals.
            let _ = acknowledged.send(());
        }
    }

    /// Sends the newest write. Returns true if it is acknowledged.
    fn send(&mut self, client: &Client) -> bool {
        let write = self.writes.last_mut().expect("a write");
        let headers = [("content-type", write.content_type)];
        let Ok(response) = client.send("POST", &write.path, &headers, write.body.as_bytes()) else {
            return false;
        };
        response.expect_status(200);
        write.is_acknowledged = true;
        true
    }

    /// Returns a random write of one to four entries of one kind.
    fn write(&mut self) -> Write {
        let values: Vec<u64> = (self.next..).take(1 + self.random.below(4) as usize).collect();
        self.next += values.len() as u64;
        match self.random.below(3) {
            0 => self.points(&values),
            1 => self.rows(&values),
            _ => self.messages(&values),
        }
    }

    fn points(&self, values: &[u64]) -> Write {
        let host = format!("w{}", self.number);
        let line = |n: &u64| format!("load,host={host} n={n}i {}\n", self.start + n * 1_000_000);
        Write {
            path: "/v1/tables/default/points".to_owned(),
            content_type: "text/plain",
            body: values.iter().map(line).collect(),
            entries: values
                .iter()
                .map(|n| (format!("points {host}"), n.to_string()))
                .collect(),
            is_acknowledged: false,
            is_repeatable: false,
        }
    }

    /// Returns a write of rows of a customer of this writer. Rows with the same number replace each other.
    fn rows(&mut self, values: &[u64]) -> Write {
        let customer = format!("w{}-{}", self.number, self.random.below(3));
        let first = self.random.below(8);
        let row = |(at, n): (u64, &u64)| {
            let key = json!({"customer": customer, "number": first + at});
            json!({"op": "put", "key": key, "columns": {"n": n, "note": "x".repeat(NOTE_BYTES)}})
        };
        let rows: Vec<Value> = (0..).zip(values).map(row).collect();
        Write {
            path: "/v1/tables/orders/rows".to_owned(),
            content_type: "application/json",
            body: json!({"rows": rows}).to_string(),
            entries: values
                .iter()
                .map(|n| (format!("row {customer}"), n.to_string()))
                .collect(),
            is_acknowledged: false,
            is_repeatable: false,
        }
    }

    /// Returns a write of messages with ids in a room of all writers.
    fn messages(&mut self, values: &[u64]) -> Write {
        let room = format!("r{}", self.random.below(2));
        let ids: Vec<String> = values.iter().map(|n| format!("{}-{n}", self.number)).collect();
        let messages: Vec<Value> = ids
            .iter()
            .map(|id| json!({"id": id, "columns": {"room": room}}))
            .collect();
        Write {
            path: format!("/v1/tables/chat/feeds/room,name={room}/messages"),
            content_type: "application/json",
            body: json!({"messages": messages}).to_string(),
            entries: ids
                .into_iter()
                .map(|id| (format!("message {room}"), id))
                .collect(),
            is_acknowledged: false,
            is_repeatable: true,
        }
    }
}

/// Returns the entries of a record.
fn entries_of(record: &Value) -> Vec<Entry> {
    let text = |value: &Value| value.as_str().unwrap_or_else(|| panic!("{record}")).to_owned();
    match record["kind"].as_str() {
        Some("points") => {
            let key = format!("points {}", text(&record["series"]["tags"]["host"]));
            let points = record["series"]["points"].as_array().expect("points");
            points
                .iter()
                .map(|point| (key.clone(), point[1].to_string()))
                .collect()
        }
        Some("row") => {
            let key = format!("row {}", text(&record["key"]["customer"]));
            vec![(key, record["columns"]["n"].to_string())]
        }
        Some("message") => {
            let key = format!("message {}", text(&record["message"]["columns"]["room"]));
            vec![(key, text(&record["message"]["id"]))]
        }
        _ => panic!("unexpected: {record}"),
    }
}

/// Reads a stream from its oldest change to its end. `query` begins with `&` or is empty.
fn read_all(client: &Client, query: &str) -> Vec<Value> {
    let (mut records, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = client.get(&format!("{STREAM}/records?limit=1000{query}{cursor}"));
        let page = page.expect_status(200).json();
        records.extend(page["records"].as_array().expect("a list").clone());
        if page["has_more"] == false {
            return records;
        }
        cursor = format!("&cursor={}", page["next"].as_str().expect("a cursor"));
    }
}

/// Consumer of a partition of the group.
struct Consumer<'a> {
    client: Client,
    partition: u16,
    random: Random,
    is_done: &'a AtomicBool,
    /// Records in the order in which they were processed.
    records: Vec<Value>,
    /// Number of records before the checkpoint.
    confirmed: usize,
    /// For each failure of the consumer: the position at which the consumer continued, and the records after this
    /// position that it had read before the failure.
    again: Vec<(usize, Vec<Value>)>,
}

impl Consumer<'_> {
    /// Reads over restarts of the server. Confirms at random, and fails at random: a failed consumer forgets its
    /// position and its unconfirmed records, and continues from the checkpoint. Ends at the end of the changes when
    /// `is_done` is true.
    fn run(mut self) -> Self {
        let group = format!("{STREAM}/groups/copy");
        let mut cursor: Option<String> = None;
        loop {
            let is_last = self.is_done.load(Ordering::SeqCst);
            let (partition, limit) = (self.partition, 1 + self.random.below(60));
            let wait = if is_last { "0s" } else { "1s" };
            let after = cursor
                .map(|cursor| format!("&cursor={cursor}"))
                .unwrap_or_default();
            let path = format!("{group}/records?partition={partition}&limit={limit}&wait={wait}{after}");
            let page = send_over_restarts(&self.client, "GET", &path, &Value::Null);
            let page = page.expect_status(200).json();
            let found = page["records"].as_array().expect("a list");
            self.records.extend(found.iter().cloned());
            if is_last && found.is_empty() && page["has_more"] == false {
                return self;
            }
            cursor = Some(page["next"].as_str().expect("a cursor").to_owned());
            match self.random.below(10) {
                0..=3 => {
                    let request = json!({"partition": partition, "cursor": cursor});
                    let path = format!("{group}/checkpoints");
                    // After a kill it is unknown whether the checkpoint has moved; the same request is safe.
                    send_over_restarts(&self.client, "POST", &path, &request).expect_status(200);
                    self.confirmed = self.records.len();
                }
                4 => {
                    let lost = self.records.split_off(self.confirmed);
                    self.again.push((self.confirmed, lost));
                    cursor = None;
                }
                _ => {}
            }
        }
    }
}

/// Delivery that the receiver has accepted: the id of the webhook, and the records.
type Delivery = (String, Vec<Value>);

/// Receiver of a webhook.
struct Hook {
    listener: TcpListener,
    deliveries: Mutex<Vec<Delivery>>,
    is_done: AtomicBool,
}

impl Hook {
    fn new() -> Self {
        Self {
            listener: TcpListener::bind("127.0.0.1:0").expect("a port"),
            deliveries: Mutex::new(Vec::new()),
            is_done: AtomicBool::new(false),
        }
    }

    fn address(&self) -> SocketAddr {
        self.listener.local_addr().expect("an address")
    }

    /// Accepts deliveries until an [`Ending`] is dropped. Refuses the fourth delivery, and does not answer the eighth,
    /// so that the server has to send both again.
    fn run(&self) {
        let mut count = 0;
        while let Ok((stream, _)) = self.listener.accept() {
            if self.is_done.load(Ordering::SeqCst) {
                return;
            }
            count += 1;
            // A killed server ends its request at any point.
            let _ = self.receive(stream, count);
        }
    }

    fn receive(&self, mut stream: TcpStream, count: u64) -> std::io::Result<()> {
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut reader = BufReader::new(stream.try_clone()?);
        let (mut id, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            let line = line.trim_end().to_ascii_lowercase();
            match line.split_once(": ") {
                Some(("webhook-id", value)) => value.clone_into(&mut id),
                Some(("content-length", value)) => length = value.parse().expect("a length"),
                Some(_) => {}
                None if line.is_empty() => break,
                None => {}
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        if count == 8 {
            return Ok(());
        }
        let status = if count == 4 { 503 } else { 200 };
        let response = format!("HTTP/1.1 {status} status\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        if status == 200 {
            let body: Value = serde_json::from_slice(&body).expect("JSON");
            let records = body["records"].as_array().expect("a list").clone();
            let mut deliveries = self.deliveries.lock().unwrap_or_else(PoisonError::into_inner);
            deliveries.push((id, records));
        }
        stream.write_all(response.as_bytes())
    }

    /// Waits until a record was delivered. Returns all deliveries.
    fn wait_delivered(&self, last: &Value) -> Vec<Delivery> {
        let delivered = wait::until(PATIENCE, || {
            let deliveries = self.deliveries.lock().unwrap_or_else(PoisonError::into_inner);
            let newest = deliveries.last()?;
            (newest.1.last()? == last).then(|| deliveries.clone())
        });
        delivered.expect("the newest record is delivered")
    }
}

/// Ends a receiver when the value is dropped, even by a panic.
struct Ending<'a>(&'a Hook);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.is_done.store(true, Ordering::SeqCst);
        // The receiver reads the flag after the next connection.
        let _ = TcpStream::connect(self.0.address());
    }
}

/// Checks the records of a stream against the writes: each acknowledged entry occurs once, each other entry at most
/// once, in the order of each writer and key.
fn check_stream(records: &[Value], writers: &[Writer]) {
    let mut cursors = BTreeSet::new();
    let mut positions: BTreeMap<Entry, usize> = BTreeMap::new();
    let mut found = records.iter().flat_map(entries_of).enumerate();
    for record in records {
        let cursor = record["cursor"].as_str().expect("a cursor");
        assert!(cursors.insert(cursor), "two records have the position {cursor}");
    }
    for (at, entry) in found.by_ref() {
        assert_eq!(
            positions.insert(entry.clone(), at),
            None,
            "{entry:?} is twice in the stream"
        );
    }
    let mut written = BTreeSet::new();
    for writer in writers {
        let mut last: BTreeMap<&str, usize> = BTreeMap::new();
        for write in &writer.writes {
            let in_stream = write
                .entries
                .iter()
                .filter(|entry| positions.contains_key(*entry));
            let count = in_stream.count();
            match write.is_acknowledged {
                true => assert_eq!(count, write.entries.len(), "missing: {:?}", write.entries),
                false => assert!(
                    count == 0 || count == write.entries.len(),
                    "a part of a write: {:?}",
                    write.entries
                ),
            }
            for entry in &write.entries {
                written.insert(entry.clone());
                if let Some(at) = positions.get(entry) {
                    let before = last.insert(entry.0.as_str(), *at);
                    assert!(
                        before.is_none_or(|before| before < *at),
                        "{entry:?} is out of order"
                    );
                }
            }
        }
    }
    let unknown: Vec<&Entry> = positions
        .keys()
        .filter(|entry| !written.contains(*entry))
        .collect();
    assert!(unknown.is_empty(), "not written: {unknown:?}");
    // All writers share the rooms, whose order is that of the sequence numbers.
    let mut sequences: BTreeMap<&str, i64> = BTreeMap::new();
    for record in records.iter().filter(|record| record["kind"] == "message") {
        let room = record["message"]["columns"]["room"].as_str().expect("a room");
        let sequence = record["message"]["sequence"]
            .as_str()
            .and_then(|text| text.parse().ok());
        let sequence = sequence.expect("a number");
        let before = sequences.insert(room, sequence);
        assert!(
            before.is_none_or(|before| before < sequence),
            "{record} is out of order"
        );
    }
}

/// Checks that a consumer has processed exactly the records of its partition, and that after each of its failures it read
/// the same records again.
fn check_consumer(consumer: &Consumer<'_>, expected: &[Value]) {
    let partition = consumer.partition;
    assert_eq!(consumer.records.len(), expected.len(), "partition {partition}");
    for (found, expected) in consumer.records.iter().zip(expected) {
        assert_eq!(found, expected, "partition {partition}");
    }
    for (from, lost) in &consumer.again {
        assert_eq!(
            consumer.records[*from..][..lost.len()],
            lost[..],
            "partition {partition}"
        );
    }
}

/// Checks that new records were delivered in the order of the stream, and that a repeated delivery is the same.
fn check_deliveries(deliveries: &[Delivery], expected: &[Value]) {
    let mut by_id: BTreeMap<&str, &[Value]> = BTreeMap::new();
    let mut delivered = BTreeSet::new();
    let mut next = expected.iter();
    for (id, records) in deliveries {
        let known = by_id.entry(id).or_insert(records);
        assert_eq!(*known, records, "the delivery {id} has changed");
        for record in records {
            if delivered.insert(record["cursor"].as_str().expect("a cursor")) {
                assert_eq!(Some(record), next.next(), "in delivery {id}");
            }
        }
    }
    assert_eq!(next.next(), None, "it was not delivered");
}

/// Returns the value of a metric without labels.
fn metric(client: &Client, name: &str) -> f64 {
    let metrics = client.get("/metrics").text();
    let line = metrics
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|value| value.parse().ok())
        .unwrap_or_else(|| panic!("no {name}:\n{metrics}"))
}

#[test]
fn each_acknowledged_write_is_once_in_the_stream_and_reaches_consumers_and_webhooks_over_kills() {
    let seed =
        seed("each_acknowledged_write_is_once_in_the_stream_and_reaches_consumers_and_webhooks_over_kills");
    let mut random = Random::new(seed);
    let kills = rounds("TIDELINE_CHANGE_KILLS", 4, 60);
    let folder = DataFolder::new();
    // Each start listens on the same address.
    let address = free_address();
    let launch = launch(address);
    let mut server = Some(folder.start(&launch));
    let client = Client::new(address);
    create(&client);
    let group = json!({"partitions": PARTITIONS, "hold": true, "from": "oldest"});
    client
        .put_json(&format!("{STREAM}/groups/copy"), &group)
        .expect_status(200);
    let hook = Hook::new();
    let settings = json!({"url": format!("http://{}/in", hook.address()), "secret": SECRET, "batch": 40});
    client
        .put_json(&format!("{STREAM}/webhooks/shop"), &settings)
        .expect_status(200);
    let now = SystemTime::UNIX_EPOCH.elapsed().expect("after 1970");
    let start = u64::try_from(now.as_nanos()).expect("before 2262") - 3_600_000_000_000;
    let mut writers: Vec<Writer> = (0..WRITERS)
        .map(|number| Writer {
            number,
            random: Random::new(random.next()),
            next: 0,
            writes: Vec::new(),
            start,
        })
        .collect();
    let is_done = AtomicBool::new(false);
    let (consumers, deliveries, records) = thread::scope(|scope| {
        let hook = &hook;
        scope.spawn(move || hook.run());
        let _ending = Ending(hook);
        let done = Done(&is_done);
        let consumers: Vec<_> = (0..PARTITIONS)
            .map(|partition| {
                let consumer = Consumer {
                    client: Client::new(address),
                    partition,
                    random: Random::new(random.next()),
                    is_done: done.0,
                    records: Vec::new(),
                    confirmed: 0,
                    again: Vec::new(),
                };
                scope.spawn(move || consumer.run())
            })
            .collect();
        for _ in 0..kills {
            let (sender, acknowledged) = channel();
            thread::scope(|scope| {
                for writer in &mut writers {
                    let (client, sender) = (Client::new(address), sender.clone());
                    scope.spawn(move || writer.run(&client, WRITES_MAX, &sender));
                }
                drop(sender);
                wait_acknowledged(&acknowledged, 20 + random.below(150));
                // A random pause, so that the kill does not coincide with an acknowledgement.
                wait::pause(Duration::from_micros(random.below(5_000)));
                server.take().expect("it runs").kill();
            });
            server = Some(folder.start(&launch));
        }
        // The last server writes until a file of the journal was flushed and kept for the stream.
        let kept = wait::until(PATIENCE, || {
            for writer in &mut writers {
                let (sender, _acknowledged) = channel();
                writer.run(&client, LAST_WRITES, &sender);
            }
            (metric(&client, "tideline_change_kept_bytes") > 0.0).then_some(())
        });
        assert!(kept.is_some(), "no file of the journal is kept for the stream");
        drop(done);
        let records = read_all(&client, "");
        let deliveries = hook.wait_delivered(records.last().expect("a record"));
        let consumers = consumers
            .into_iter()
            .map(|consumer| consumer.join().expect("no panic"));
        (consumers.collect::<Vec<_>>(), deliveries, records)
    });
    check_stream(&records, &writers);
    for consumer in &consumers {
        let query = format!("&partition={}&partitions={PARTITIONS}", consumer.partition);
        check_consumer(consumer, &read_all(&client, &query));
    }
    assert_eq!(
        consumers
            .iter()
            .map(|consumer| consumer.records.len())
            .sum::<usize>(),
        records.len()
    );
    check_deliveries(&deliveries, &records);
    let failures: usize = consumers.iter().map(|consumer| consumer.again.len()).sum();
    let writes: usize = writers.iter().map(|writer| writer.writes.len()).sum();
    println!(
        "{kills} kills, {writes} writes, {} records, {} deliveries, {failures} failures of consumers",
        records.len(),
        deliveries.len()
    );
    let ended = server.expect("it runs").terminate();
    assert!(ended.status.success());
    let report = check_of(&folder);
    assert_eq!(report["is_sound"], true, "{report}");
}

/// Changes of other tables are freed before and after the kill. The webhook has read all of them.
#[test]
fn a_webhook_of_a_quiet_table_gets_no_gap_after_a_kill() {
    let mut random = Random::new(seed("a_webhook_of_a_quiet_table_gets_no_gap_after_a_kill"));
    let folder = DataFolder::new();
    let address = free_address();
    let launch = launch(address).environment("TIDELINE__CHANGES__RETENTION", "1s");
    let server = folder.start(&launch);
    let client = Client::new(address);
    create(&client);
    let quiet = json!({"tables": ["default"], "kinds": ["points"]});
    client.put_json(STREAM, &quiet).expect_status(200);
    let hook = Hook::new();
    let settings = json!({"url": format!("http://{}/in", hook.address()), "secret": SECRET});
    client
        .put_json(&format!("{STREAM}/webhooks/shop"), &settings)
        .expect_status(200);
    let write_point = |host: &str| {
        let line = format!("cpu,host={host} usage=1 1795700000000000000");
        let headers = [("content-type", "text/plain")];
        let written = client.send("POST", "/v1/tables/default/points", &headers, line.as_bytes());
        written.expect("a response").expect_status(200);
    };
    let oldest = || client.get(STREAM).expect_status(200).json()["oldest"].clone();
    thread::scope(|scope| {
        let hook = &hook;
        scope.spawn(move || hook.run());
        let _ending = Ending(hook);
        let wait_records = |count: usize| {
            let records = wait::until(PATIENCE, || {
                let deliveries = hook.deliveries.lock().unwrap_or_else(PoisonError::into_inner);
                let records = deliveries.iter().flat_map(|(_, records)| records.clone());
                let records: Vec<Value> = records.collect();
                (records.len() >= count).then_some(records)
            });
            records.expect("the records are delivered")
        };
        write_point("a");
        wait_records(1);
        let begin = oldest();
        for _ in 0..12 {
            assert_eq!(write_bytes(&client, &mut random), 200);
        }
        let freed = wait::until(PATIENCE, || (oldest() != begin).then_some(()));
        assert!(freed.is_some(), "changes are freed after their retention");
        server.kill();
        // The retention of the changes that the server still had ends.
        wait::pause(Duration::from_secs(2));
        let server = folder.start(&launch);
        write_point("b");
        let records = wait_records(2);
        for record in &records {
            assert_eq!(record["kind"], "points", "{records:?}");
        }
        assert!(server.terminate().status.success());
    });
}

/// Size of the disk of the test that fills it, in bytes.
const DISK_BYTES: u64 = 768 << 20;
/// Free space below which the server of that test refuses writes. A quarter of this space is more than the test writes
/// in a second.
const FREE_BYTES_MIN: u64 = 384 << 20;
/// Bytes of a request of that test.
const REQUEST_BYTES: usize = 1 << 20;

/// Replaces some rows by others that cannot be compressed. Returns the status.
fn write_bytes(client: &Client, random: &mut Random) -> u16 {
    let note = |random: &mut Random| -> String {
        (0..REQUEST_BYTES / 32)
            .map(|_| char::from(b'A' + (random.below(26) as u8)))
            .collect()
    };
    let rows: Vec<Value> = (0..32)
        .map(|number| {
            let key = json!({"customer": format!("c{}", random.below(8)), "number": number});
            json!({"op": "put", "key": key, "columns": {"n": number, "note": note(random)}})
        })
        .collect();
    let sent = client.post_json("/v1/tables/orders/rows", &json!({"rows": rows}));
    sent.status
}

#[test]
fn changes_that_a_group_holds_end_at_their_limit_and_make_room_before_the_disk_is_full() {
    let mut random = Random::new(seed(
        "changes_that_a_group_holds_end_at_their_limit_and_make_room_before_the_disk_is_full",
    ));
    let disk = match SmallDisk::make(DISK_BYTES) {
        Ok(disk) => disk,
        Err(missing) => {
            skip(&format!("a tmpfs is needed, as root: {missing}"));
            return;
        }
    };
    let folder = DataFolder::within(disk.path());
    let launch = Launch::default()
        .environment("TIDELINE__STORAGE__FREE_BYTES_MIN", &FREE_BYTES_MIN.to_string())
        .environment("TIDELINE__STORAGE__FREE_PER_MILLE_MIN", "0")
        .environment("TIDELINE__STORAGE__ROW_BUFFER_BYTES", "4MiB");
    let limit: u64 = 64 << 20;
    let limited = launch
        .clone()
        .environment("TIDELINE__CHANGES__BYTES_MAX", &limit.to_string());
    let server = folder.start(&limited);
    let client = server.client();
    create(&client);
    let held = json!({"from": "oldest", "hold": true});
    client
        .put_json(&format!("{STREAM}/groups/slow"), &held)
        .expect_status(200);
    let mut warnings = 0;
    let overruns = || metric(&client, "tideline_change_overruns_total");
    let kept = || metric(&client, "tideline_change_kept_bytes");
    let ended = wait::until(PATIENCE, || {
        let before = kept();
        for _ in 0..4 {
            assert_eq!(write_bytes(&client, &mut random), 200);
        }
        if before > limit as f64 / 2.0 {
            // The server measures these bytes about once a second. Faster writes could pass the range of the warning in
            // between.
            wait::until(MEASURED, || (kept() != before).then_some(()));
        }
        let ready = client.get("/ready").expect_status(200).json();
        let reasons = ready["reasons"].to_string();
        warnings += u32::from(reasons.contains("slow") && reasons.contains("gap"));
        (overruns() > 0.0).then_some(())
    });
    assert!(ended.is_some(), "the changes end at their limit");
    assert!(warnings > 0, "/ready names the group before");
    assert!(metric(&client, "tideline_change_kept_bytes") <= limit as f64);
    assert!(server.terminate().status.success());

    // With a very high limit of the stream, the free space of the disk is the effective limit.
    let unlimited = launch.environment("TIDELINE__CHANGES__BYTES_MAX", "1TiB");
    let server = folder.start(&unlimited);
    let client = server.client();
    let overruns = || metric(&client, "tideline_change_overruns_total");
    let mut written = 0;
    let mut free_min = DISK_BYTES;
    while overruns() < 2.0 {
        assert!(written < 4 * DISK_BYTES, "changes make room");
        let status = write_bytes(&client, &mut random);
        assert_eq!(status, 200, "writes go on: {}", client.get("/ready").text());
        written += REQUEST_BYTES as u64;
        free_min = free_min.min(metric(&client, "tideline_disk_free_bytes") as u64);
    }
    println!("{written} bytes written, at least {free_min} bytes free");
    let page = client.get(&format!("{STREAM}/groups/slow/records?limit=10"));
    let page = page.expect_status(200).json();
    assert_eq!(page["records"][0]["kind"], "gap", "{page}");
    assert_eq!(page["records"][0]["reason"], "freed");
    assert_eq!(page["records"][1]["kind"], "row");
    assert!(server.terminate().status.success());
}

/// Writes a row that is the only one of its customer.
fn write_row(client: &Client, n: u64) {
    let key = json!({"customer": format!("c{n}"), "number": 1});
    let rows = json!({"rows": [{"op": "put", "key": key, "columns": {"n": n}}]});
    client
        .post_json("/v1/tables/orders/rows", &rows)
        .expect_status(200);
}

/// Command that runs until it is interrupted; dropping it kills the process.
struct Following(Option<Child>);

impl Following {
    fn child(&mut self) -> &mut Child {
        self.0.as_mut().expect("it runs")
    }

    /// Sends SIGINT, and waits for the end.
    fn interrupt(mut self) -> Output {
        let child = self.0.take().expect("it runs");
        let id = Pid::from_raw(i32::try_from(child.id()).expect("process ids fit")).expect("not 0");
        kill_process(id, Signal::INT).expect("the command is our child");
        child.wait_with_output().expect("it ends")
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
fn the_command_follows_changes_over_restarts_and_ends_with_its_cursor() {
    let folder = DataFolder::new();
    let address = free_address();
    let launch = launch(address);
    let mut server = folder.start(&launch);
    let client = Client::new(address);
    create(&client);
    client
        .put_json(&format!("{STREAM}/groups/copy"), &json!({"from": "oldest"}))
        .expect_status(200);
    let command = Command::new(binary())
        .args([
            "changes",
            "read",
            "all",
            "--group",
            "copy",
            "--confirm",
            "--follow",
        ])
        .args(["--server", &format!("http://{address}")])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    let mut command = Following(Some(command));
    let (sender, lines) = channel();
    let output = BufReader::new(command.child().stdout.take().expect("an output"));
    let printing = thread::spawn(move || {
        for line in output.lines().map_while(Result::ok) {
            // Fails only after the end of the test, when there is no receiver.
            let _ = sender.send(line);
        }
    });
    let mut printed = Vec::new();
    let next = AtomicU64::new(0);
    let mut follow = |client: &Client, count: usize| {
        for _ in 0..count {
            write_row(client, next.fetch_add(1, Ordering::SeqCst));
        }
        for _ in 0..count {
            let line = lines.recv_timeout(PATIENCE).expect("a record in time");
            printed.push(serde_json::from_str::<Value>(&line).expect("JSON"));
        }
    };
    follow(&client, 5);
    server.kill();
    server = folder.start(&launch);
    follow(&client, 5);
    assert!(server.terminate().status.success());
    server = folder.start(&launch);
    follow(&client, 5);
    let ended = command.interrupt();
    printing.join().expect("no panic");
    let text = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{text}");
    let records = read_all(&client, "");
    assert_eq!(printed, records);
    assert_eq!(lines.try_iter().count(), 0, "a record was printed twice");
    let described = client
        .get(&format!("{STREAM}/groups/copy"))
        .expect_status(200)
        .json();
    let checkpoint = described["checkpoints"][0]["cursor"].as_str().expect("a cursor");
    assert!(
        text.contains(&format!("continue with --cursor {checkpoint}")),
        "{text}"
    );
    assert!(text.contains("trying again"), "the restarts were noticed: {text}");
    assert!(server.terminate().status.success());
}

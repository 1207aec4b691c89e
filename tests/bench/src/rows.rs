//! Rows of wide tables: single and conditional writes, batches, a covering index, point reads, scans, merged buckets,
//! disk, restart.
//!
//! The key of a row consists of a customer and a number. A row has ten columns with about 165 bytes in JSON. Every
//! write is acknowledged after its sync. *Drained* figures include the flush and the work of the storage engine until
//! the server is idle.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tideline_fleet::Random;

use crate::benchmark::{Benchmark, MEBIBYTE};
use crate::control::Control;
use crate::error::{BenchError, Result};
use crate::folder;
use crate::http::{Connection, excerpt};
use crate::latency::Latencies;
use crate::load::{Route, load_bodies};
use crate::report::{Report, Unit, Wanted};
use crate::server::Server;
use crate::set::Scale;
use crate::wanted;

/// Number of connections of the single writes.
const CONNECTIONS: usize = 64;
/// Number of rows per batch.
pub(crate) const BATCH: u64 = 1_000;
/// Number of customers over which rows are spread.
pub(crate) const CUSTOMERS: u64 = 1_000;
/// zstd level of the compressed export, which is the reference for the disk usage.
const EXPORT_LEVEL: i32 = 3;
/// Number of buckets of the table with merged buckets.
const BUCKETS: u64 = 16;
/// Number of rows per page of a scan.
const PAGE: u64 = 100;

/// Sizes of a run.
struct Sizes {
    /// Duration of the single writes.
    single: Duration,
    batches: u64,
    reads: usize,
    pages: usize,
}

impl Benchmark {
    /// Runs the group `rows`.
    pub(crate) fn run_rows(&self, report: &mut Report) -> Result<()> {
        let sizes = match self.scale {
            Scale::Full => Sizes {
                single: Duration::from_secs(60),
                batches: 2_000,
                reads: 20_000,
                pages: 1_000,
            },
            Scale::Quick => Sizes {
                single: Duration::from_secs(3),
                batches: 100,
                reads: 1_000,
                pages: 100,
            },
        };
        self.single_rows(&sizes, report)?;
        let plain = self.batched_rows(&sizes, report)?;
        self.indexed_batches(&sizes, plain, report)?;
        self.merged_buckets(&sizes, report)
    }

    /// Measures writes of one row per request over [`CONNECTIONS`] connections, without and with a condition.
    fn single_rows(&self, sizes: &Sizes, report: &mut Report) -> Result<()> {
        for (name, is_conditional) in [
            ("one row per request", false),
            ("one conditional row per request", true),
        ] {
            let (server, data) = self.fresh("rows-single", name)?;
            create(&server, "orders", &plain_key())?;
            let before = server.cpu_time()?;
            let begun = Instant::now();
            let latencies = write_singly(server.address(), sizes.single, is_conditional)?;
            let (wall, cpu) = (begun.elapsed(), server.cpu_time()? - before);
            let rows = latencies.asked as f64;
            let goals = match is_conditional {
                false => (wanted::ROWS_SINGLE, wanted::ROWS_SINGLE_CPU),
                true => (wanted::ROWS_CONDITIONAL, Wanted::Nothing),
            };
            report.add(
                name,
                rows / wall.as_secs_f64() / 1e3,
                Unit::ThousandRowsPerSecond,
                goals.0,
            );
            let each = cpu.as_secs_f64() / rows * 1e6;
            report.add(
                format!("{name}, server CPU each"),
                each,
                Unit::Microseconds,
                goals.1,
            );
            let p99 = latencies.percentile(99).as_secs_f64() * 1e3;
            report.add(
                format!("{name}, p99"),
                p99,
                Unit::Milliseconds,
                wanted::ROWS_SINGLE_P99,
            );
            server.kill();
            self.forget(&data)?;
        }
        Ok(())
    }

    /// Measures batches, point reads, scans of the whole table, disk usage, and a start after a kill.
    ///
    /// Returns two rates of the batches, in thousands of rows per second of server CPU time: until the last
    /// acknowledgement, and drained.
    fn batched_rows(&self, sizes: &Sizes, report: &mut Report) -> Result<[f64; 2]> {
        let rows = sizes.batches * BATCH;
        let (mut server, data) = self.fresh("rows", &format!("{rows} rows in batches of {BATCH}"))?;
        create(&server, "orders", &plain_key())?;
        let before = server.cpu_time()?;
        let loaded = load_bodies(
            server.address(),
            &route("orders"),
            self.connections,
            batches(0, sizes.batches),
        )?;
        let acknowledged = server.cpu_time()? - before;
        Control::open(&server)?.seal()?;
        server.drain()?;
        let drained = server.cpu_time()? - before;
        let per_cpu = |cpu: Duration| rows as f64 / cpu.as_secs_f64() / 1e3;
        let rates = [per_cpu(acknowledged), per_cpu(drained)];
        let unit = Unit::ThousandRowsPerCpuSecond;
        report.add(
            "rows in batches, acknowledged",
            rates[0],
            unit,
            wanted::ROWS_ACKNOWLEDGED,
        );
        report.add("rows in batches, drained", rates[1], unit, wanted::ROWS_DRAINED);
        report.note(format!(
            "rows: {:.0} bytes each as sent, {:.0} k rows/s by the clock, {} refusals",
            loaded.bytes as f64 / rows as f64,
            rows as f64 / loaded.wall.as_secs_f64() / 1e3,
            loaded.refusals
        ));
        let peak = server.peak_resident_bytes()? as f64 / MEBIBYTE;
        report.add(
            "peak memory of rows in batches",
            peak,
            Unit::Mebibytes,
            wanted::ROWS_MEMORY,
        );
        let reads = point_reads(&server, rows, sizes.reads, &|number| number)?;
        for (percent, goal) in [(50, wanted::ROWS_READ_P50), (99, wanted::ROWS_READ_P99)] {
            let took = reads.percentile(percent).as_secs_f64() * 1e3;
            report.add(
                format!("point read of a row, p{percent}"),
                took,
                Unit::Milliseconds,
                goal,
            );
        }
        let export = self.scans(&server, rows, report)?;
        let compressed = zstd::stream::encode_all(&export[..], EXPORT_LEVEL);
        let compressed = compressed.map_err(|source| BenchError::Connection {
            what: "compressing the export",
            source,
        })?;
        let usage = folder::usage(&data)?;
        let ratio = usage.bytes as f64 / compressed.len() as f64;
        report.add(
            "disk of rows, relative to zstd of the export",
            ratio,
            Unit::BytesPerByte,
            wanted::ROWS_DISK,
        );
        // Fills the row buffer in memory; on disk, only the journal holds these rows.
        load_bodies(
            server.address(),
            &route("orders"),
            self.connections,
            batches(sizes.batches, sizes.batches + 150),
        )?;
        server.kill();
        let mut server = Server::spawn(&self.server, &data)?;
        server.wait_ready()?;
        let ready = server.age().as_secs_f64();
        report.add(
            "ready after kill -9 with rows in the buffer",
            ready,
            Unit::Seconds,
            wanted::ROWS_READY,
        );
        server.kill();
        self.forget(&data)?;
        Ok(rates)
    }

    /// Measures batches into a table with an index that covers one column, and pages of the index. `plain` holds the
    /// rates without an index, as [`Self::batched_rows`] returns them.
    fn indexed_batches(&self, sizes: &Sizes, plain: [f64; 2], report: &mut Report) -> Result<()> {
        let rows = sizes.batches / 2 * BATCH;
        let (mut server, data) = self.fresh("rows-index", &format!("{rows} rows with an index"))?;
        create(&server, "orders", &plain_key())?;
        let index = json!({
            "name": "by_state",
            "key": [{"name": "state"}, {"name": "placed", "order": "desc"}],
            "covers": ["total"],
        });
        let path = "/v1/tables/orders/indexes";
        server
            .connect()?
            .send_expecting_success("POST", path, index.to_string().as_bytes())?;
        let before = server.cpu_time()?;
        load_bodies(
            server.address(),
            &route("orders"),
            self.connections,
            batches(0, sizes.batches / 2),
        )?;
        let acknowledged = server.cpu_time()? - before;
        Control::open(&server)?.seal()?;
        server.drain()?;
        let drained = server.cpu_time()? - before;
        for (name, cpu, plain) in [
            ("acknowledged", acknowledged, plain[0]),
            ("drained", drained, plain[1]),
        ] {
            let rate = rows as f64 / cpu.as_secs_f64() / 1e3;
            report.add(
                format!("rows in batches with a covering index, {name}"),
                rate,
                Unit::ThousandRowsPerCpuSecond,
                Wanted::Nothing,
            );
            report.add(
                format!("rows in batches with a covering index, {name}, share of those without"),
                rate / plain * 100.0,
                Unit::Percent,
                wanted::ROWS_INDEXED,
            );
        }
        for (name, columns) in [("covered", json!(["total"])), ("with its row", json!(["note"]))] {
            let body = json!({"index": "by_state", "prefix": {"state": "paid"}, "columns": columns, "limit": 10_000});
            let before = server.cpu_time()?;
            let mut found = 0;
            for _ in 0..10 {
                let path = "/v1/tables/orders/rows/scan";
                let page =
                    server
                        .connect()?
                        .send_expecting_success("POST", path, body.to_string().as_bytes())?;
                let page: Value = serde_json::from_slice(&page).unwrap_or_default();
                found += page["returned"].as_u64().unwrap_or_default();
            }
            let cpu = (server.cpu_time()? - before).as_secs_f64();
            report.add(
                format!("scan of an index, {name}"),
                found as f64 / cpu / 1e3,
                Unit::ThousandRowsPerCpuSecond,
                Wanted::Nothing,
            );
        }
        server.kill();
        self.forget(&data)
    }

    /// Scans the whole table in each format; returns the NDJSON output.
    fn scans(&self, server: &Server, rows: u64, report: &mut Report) -> Result<Vec<u8>> {
        let body = json!({"allow_scan": true}).to_string();
        let formats = [
            ("NDJSON", "application/x-ndjson", wanted::ROWS_SCAN_NDJSON),
            (
                "Arrow",
                "application/vnd.apache.arrow.stream",
                wanted::ROWS_SCAN_ARROW,
            ),
        ];
        let mut export = Vec::new();
        for (name, accept, goal) in formats {
            let headers = format!("Content-Type: application/json\r\nAccept: {accept}");
            let before = server.cpu_time()?;
            let found =
                server
                    .connect()?
                    .send_with("POST", "/v1/tables/orders/rows/scan", &headers, body.as_bytes());
            let found = found.map_err(|source| BenchError::Connection {
                what: "scanning rows",
                source,
            })?;
            check(found.status == 200, || excerpt(&found.body))?;
            let cpu = (server.cpu_time()? - before).as_secs_f64();
            let rate = rows as f64 / cpu / 1e6;
            report.add(
                format!("scan of rows as {name}"),
                rate,
                Unit::MillionRowsPerCpuSecond,
                goal,
            );
            if export.is_empty() {
                let lines = found.body.iter().filter(|byte| **byte == b'\n').count() as u64;
                check(lines == rows + 1, || format!("{lines} lines, not {}", rows + 1))?;
                export = found.body;
            }
        }
        Ok(export)
    }

    /// Measures pages of two tables: in one, a page is read from one key range; in the other, from merged buckets.
    fn merged_buckets(&self, sizes: &Sizes, report: &mut Report) -> Result<()> {
        let (mut server, data) = self.fresh("rows-buckets", "pages over buckets")?;
        let mut medians = Vec::new();
        for (table, key) in [("orders", plain_key()), ("spread", bucket_key())] {
            create(&server, table, &key)?;
            load_bodies(
                server.address(),
                &route(table),
                self.connections,
                batches(0, sizes.batches / 10),
            )?;
            Control::open(&server)?.seal()?;
            server.drain()?;
            let rows = sizes.batches / 10 * BATCH;
            let latencies = pages(&server, table, rows, sizes.pages)?;
            let median = latencies.percentile(50).as_secs_f64() * 1e3;
            report.add(
                format!("page of {PAGE} rows of {table}"),
                median,
                Unit::Milliseconds,
                Wanted::Nothing,
            );
            medians.push(median);
        }
        report.add(
            format!("page over {BUCKETS} buckets, relative to a page of one range"),
            medians[1] / medians[0],
            Unit::Times,
            wanted::ROWS_BUCKETS,
        );
        server.kill();
        self.forget(&data)
    }
}

pub(crate) fn plain_key() -> Value {
    json!([{"name": "customer", "type": "string"}, {"name": "n", "type": "u64"}])
}

fn bucket_key() -> Value {
    json!([
        {"name": "spread", "bucket": {"of": ["customer", "n"], "count": BUCKETS}},
        {"name": "customer", "type": "string"},
        {"name": "n", "type": "u64"}
    ])
}

pub(crate) fn create(server: &Server, name: &str, key: &Value) -> Result<()> {
    let columns = [
        ("state", "string"),
        ("city", "string"),
        ("total", "decimal"),
        ("items", "u64"),
        ("weight", "f64"),
        ("paid", "bool"),
        ("placed", "timestamp"),
        ("note", "string"),
        ("agent", "i64"),
        ("code", "string"),
    ];
    let columns: Vec<Value> = columns
        .map(|(name, of)| json!({"name": name, "type": of}))
        .to_vec();
    let body = json!({"name": name, "model": "wide", "wide": {"key": key, "columns": columns}});
    server
        .connect()?
        .send_expecting_success("POST", "/v1/tables", body.to_string().as_bytes())?;
    Ok(())
}

pub(crate) fn route(table: &str) -> Route {
    Route {
        path: format!("/v1/tables/{table}/rows"),
        headers: "Content-Type: application/x-ndjson",
    }
}

/// Appends a `put` of a row as a JSON object, with `extra` as further members.
fn put(number: u64, extra: &str, out: &mut Vec<u8>) {
    const STATES: [&str; 4] = ["open", "paid", "sent", "done"];
    const CITIES: [&str; 5] = ["Hamburg", "Lisbon", "Osaka", "Lagos", "Lima"];
    let mut text = String::with_capacity(320);
    let mixed = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    let written = write!(
        text,
        "{{\"op\":\"put\",\"key\":{{\"customer\":\"customer-{:04}\",\"n\":{number}}},\"columns\":{{\"state\":\"{}\",\
         \"city\":\"{}\",\"total\":\"{}.{:02}\",\"items\":{},\"weight\":{}.5,\"paid\":{},\
         \"placed\":{},\"note\":\"order {mixed:08x}\",\"agent\":{},\"code\":\"{:06}\"}}{extra}}}",
        number % CUSTOMERS,
        STATES[mixed as usize % 4],
        CITIES[mixed as usize % 5],
        mixed % 1_000,
        mixed % 100,
        mixed % 20,
        mixed % 90,
        mixed.is_multiple_of(3),
        1_795_000_000_000_000_000 + number * 1_000_000_000,
        mixed % 500,
        mixed % 1_000_000,
    );
    debug_assert!(written.is_ok());
    out.extend_from_slice(text.as_bytes());
}

/// Returns a generator of request bodies, each with one batch as NDJSON.
pub(crate) fn batches(from: u64, to: u64) -> impl FnMut(&mut Vec<u8>) + Send {
    let mut next = from;
    move |body: &mut Vec<u8>| {
        if next == to {
            return;
        }
        for number in next * BATCH..(next + 1) * BATCH {
            put(number, "", body);
            body.push(b'\n');
        }
        next += 1;
    }
}

/// Writes one row per request for `span` over [`CONNECTIONS`] connections.
fn write_singly(address: SocketAddr, span: Duration, is_conditional: bool) -> Result<Latencies> {
    let next = AtomicU64::new(0);
    let end = Instant::now() + span;
    let extra = match is_conditional {
        true => ",\"condition\":{\"exists\":false}",
        false => "",
    };
    let write_some = || -> Result<Vec<Duration>> {
        let failed = |source| BenchError::Connection {
            what: "writing a row",
            source,
        };
        let mut connection = Connection::open(address).map_err(failed)?;
        let (mut took, mut body) = (Vec::new(), Vec::new());
        while Instant::now() < end {
            body.clear();
            body.extend_from_slice(b"{\"rows\":[");
            put(next.fetch_add(1, Ordering::Relaxed), extra, &mut body);
            body.extend_from_slice(b"]}");
            let begun = Instant::now();
            let response = connection.send("POST", "/v1/tables/orders/rows", "application/json", &body);
            let response = response.map_err(failed)?;
            took.push(begun.elapsed());
            check(response.status == 200, || excerpt(&response.body))?;
        }
        Ok(took)
    };
    thread::scope(|scope| {
        let writers: Vec<_> = (0..CONNECTIONS).map(|_| scope.spawn(write_some)).collect();
        let mut all = Vec::new();
        for writer in writers {
            let took = writer.join();
            all.extend(took.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
        }
        Ok(Latencies::of(all))
    })
}

/// Reads random rows by key; every response is checked. `of` returns the number of an existing row for a random number
/// below `rows`.
pub(crate) fn point_reads(
    server: &Server,
    rows: u64,
    count: usize,
    of: &dyn Fn(u64) -> u64,
) -> Result<Latencies> {
    let mut connection = server.connect()?;
    let mut random = Random::new(11);
    let mut took = Vec::with_capacity(count);
    for _ in 0..count {
        let number = of(random.index(rows as usize) as u64);
        let customer = format!("customer-{:04}", number % CUSTOMERS);
        let body = json!({"keys": [{"customer": customer, "n": number}]}).to_string();
        let begun = Instant::now();
        let found =
            connection.send_expecting_success("POST", "/v1/tables/orders/rows/get", body.as_bytes())?;
        took.push(begun.elapsed());
        let found: Value = serde_json::from_slice(&found).unwrap_or_default();
        check(found["found"] == 1, || format!("row {number}: {found}"))?;
    }
    Ok(Latencies::of(took))
}

/// Reads pages of the rows of random customers; every response is checked. `rows` is the number of rows in the table.
pub(crate) fn pages(server: &Server, table: &str, rows: u64, count: usize) -> Result<Latencies> {
    let mut connection = server.connect()?;
    let mut random = Random::new(12);
    let mut took = Vec::with_capacity(count);
    let path = match table {
        "spread" => "/v1/tables/spread/rows/scan",
        _ => "/v1/tables/orders/rows/scan",
    };
    for _ in 0..count {
        let customer = format!("customer-{:04}", random.index(CUSTOMERS as usize));
        let body = json!({"prefix": {"customer": customer}, "limit": PAGE}).to_string();
        let begun = Instant::now();
        let found = connection.send_expecting_success("POST", path, body.as_bytes())?;
        took.push(begun.elapsed());
        let found: Value = serde_json::from_slice(&found).unwrap_or_default();
        let expected = PAGE.min(rows / CUSTOMERS);
        check(found["returned"] == expected, || {
            format!("{customer}: {} rows", found["returned"])
        })?;
    }
    Ok(Latencies::of(took))
}

pub(crate) fn check(holds: bool, found: impl FnOnce() -> String) -> Result<()> {
    match holds {
        true => Ok(()),
        false => Err(BenchError::Wrong {
            query: "rows".into(),
            difference: found(),
        }),
    }
}

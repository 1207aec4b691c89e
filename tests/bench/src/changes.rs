//! Change streams: records read by a consumer, the time from an acknowledgement to a waiting reader, and the cost of a stream
//! for writers.
//!
//! Rows are written in batches of [`BATCH`]; points are those of [`Kind::S`]. The cost of a stream is measured in two
//! runs on separate folders that differ only in the stream.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::benchmark::Benchmark;
use crate::error::{BenchError, Result};
use crate::http::Connection;
use crate::latency::Latencies;
use crate::load::load;
use crate::report::{Report, Unit, Wanted};
use crate::rows::check;
use crate::server::Server;
use crate::set::{Kind, Scale};
use crate::wanted;

/// Number of rows per batch.
const BATCH: u64 = 1_000;
/// Number of records of a page.
const PAGE_RECORDS: usize = 1_000;
/// Path of the stream.
const STREAM: &str = "/v1/changes/all";

/// Sizes of a run.
struct Sizes {
    /// Number of batches of rows.
    batches: u64,
    /// Number of writes for which a reader waits.
    waits: u64,
}

impl Benchmark {
    /// Runs the group `changes`.
    pub(crate) fn run_changes(&self, report: &mut Report) -> Result<()> {
        let sizes = match self.scale {
            Scale::Full => Sizes {
                batches: 2_000,
                waits: 2_000,
            },
            Scale::Quick => Sizes {
                batches: 50,
                waits: 100,
            },
        };
        self.read_changes(&sizes, report)?;
        self.stream_cost(report)
    }

    /// Measures a consumer of rows, and a reader that waits for each write.
    fn read_changes(&self, sizes: &Sizes, report: &mut Report) -> Result<()> {
        let rows = sizes.batches * BATCH;
        let (mut server, data) = self.fresh(
            "changes",
            &format!("{rows} rows in batches of {BATCH}, and a stream"),
        )?;
        let mut connection = server.connect()?;
        create(&mut connection)?;
        for batch in 0..sizes.batches {
            connection.send_expecting_success("POST", "/v1/tables/orders/rows", &batch_of(batch))?;
        }
        server.seal_and_settle()?;
        let before = server.cpu_time()?;
        let begun = Instant::now();
        let (mut count, mut bytes, mut cursor) = (0, 0, String::new());
        loop {
            let path = format!("{STREAM}/records?limit={PAGE_RECORDS}{cursor}");
            let page = connection.send_expecting_success("GET", &path, b"")?;
            bytes += page.len();
            let page = parsed(&page)?;
            count += page["records"].as_array().map_or(0, Vec::len) as u64;
            if page["has_more"] == false {
                break;
            }
            cursor = after(&page);
        }
        check(count == rows, || format!("{count} records instead of {rows}"))?;
        let (wall, cpu) = (begun.elapsed(), server.cpu_time()? - before);
        report.add(
            "records of rows read by a consumer",
            count as f64 / cpu.as_secs_f64() / 1e3,
            Unit::ThousandRowsPerCpuSecond,
            wanted::CHANGES_READ,
        );
        report.note(format!(
            "records of rows: {:.0} k/s by the clock over one connection, with their parsing, {} bytes each",
            count as f64 / wall.as_secs_f64() / 1e3,
            bytes as u64 / count.max(1)
        ));
        let latencies = wait_for_writes(&server, sizes.waits)?;
        for (percent, goal) in [(50, Wanted::Nothing), (99, wanted::CHANGES_WAIT)] {
            let name = format!("from the acknowledgement of a row to a waiting reader, p{percent}");
            let took = latencies.percentile(percent).as_secs_f64() * 1e3;
            report.add(name, took, Unit::Milliseconds, goal);
        }
        server.kill();
        self.forget(&data)
    }

    /// Measures the CPU time of writing a set with and without a stream.
    fn stream_cost(&self, report: &mut Report) -> Result<()> {
        let set = self.set(Kind::S);
        let cost = |name: &str, has_stream: bool| -> Result<Duration> {
            let (mut server, data) = self.fresh(name, &set.to_string())?;
            if has_stream {
                server.connect()?.send_expecting_success("PUT", STREAM, b"{}")?;
            }
            let before = server.cpu_time()?;
            load(server.address(), &set, self.connections)?;
            server.seal_and_settle()?;
            let cpu = server.cpu_time()? - before;
            server.kill();
            self.forget(&data)?;
            Ok(cpu)
        };
        let without = cost("changes-without", false)?;
        let with = cost("changes-with", true)?;
        report.note(format!(
            "set S: CPU {:.2} s without a stream, {:.2} s with one",
            without.as_secs_f64(),
            with.as_secs_f64()
        ));
        report.add(
            "CPU time of set S with a stream, of that without",
            with.as_secs_f64() / without.as_secs_f64(),
            Unit::Times,
            wanted::CHANGES_COST,
        );
        Ok(())
    }
}

/// Creates a stream and a table of rows.
fn create(connection: &mut Connection) -> Result<()> {
    connection.send_expecting_success("PUT", STREAM, b"{\"kinds\": [\"row\"]}")?;
    let wide = json!({
        "key": [{"name": "customer", "type": "string"}, {"name": "number", "type": "i64"}],
        "columns": [{"name": "state", "type": "string"}, {"name": "total", "type": "decimal"}],
    });
    let table = json!({"name": "orders", "model": "wide", "wide": wide}).to_string();
    connection.send_expecting_success("POST", "/v1/tables", table.as_bytes())?;
    Ok(())
}

/// Returns the body of a batch of rows of a thousand customers.
fn batch_of(batch: u64) -> Vec<u8> {
    let rows: Vec<Value> = (0..BATCH)
        .map(|row| {
            let number = batch * BATCH + row;
            let key = json!({"customer": format!("customer-{}", number % 1_000), "number": number});
            let total = format!("{}.{:02}", number % 900, number % 100);
            json!({"op": "put", "key": key, "columns": {"state": "paid", "total": total}})
        })
        .collect();
    json!({"rows": rows}).to_string().into_bytes()
}

fn parsed(page: &[u8]) -> Result<Value> {
    serde_json::from_slice(page).map_err(|error| BenchError::Usage(format!("a page is not JSON: {error}")))
}

/// Returns the parameter that continues after a page.
fn after(page: &Value) -> String {
    format!("&cursor={}", page["next"].as_str().unwrap_or_default())
}

/// Writes rows one by one while a reader waits for each. Returns the times from the acknowledgements to the receipts; a record
/// that is received before the acknowledgement counts as zero.
fn wait_for_writes(server: &Server, count: u64) -> Result<Latencies> {
    let mut reader = server.connect()?;
    let described = parsed(&reader.send_expecting_success("GET", STREAM, b"")?)?;
    let mut cursor = format!("&cursor={}", described["end"].as_str().unwrap_or_default());
    let mut writer = server.connect()?;
    let (ready, begun) = std::sync::mpsc::channel();
    let reading = thread::scope(|scope| {
        let reading = scope.spawn(move || -> Result<Vec<Instant>> {
            let mut received = Vec::new();
            while (received.len() as u64) < count {
                // Fails only if the writer has ended.
                let _ = ready.send(());
                let path = format!("{STREAM}/records?wait=30s{cursor}");
                let page = parsed(&reader.send_expecting_success("GET", &path, b"")?)?;
                let now = Instant::now();
                received.extend(page["records"].as_array().into_iter().flatten().map(|_| now));
                cursor = after(&page);
            }
            Ok(received)
        });
        let mut acknowledged = Vec::new();
        for number in 0..count {
            // Each row is written when the reader is about to wait for it.
            if begun.recv().is_err() {
                break;
            }
            let key = json!({"customer": "waiting", "number": number});
            let row = json!({"rows": [{"op": "put", "key": key, "columns": {"state": "new"}}]}).to_string();
            writer.send_expecting_success("POST", "/v1/tables/orders/rows", row.as_bytes())?;
            acknowledged.push(Instant::now());
        }
        let received = reading.join();
        let received = received.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok::<_, BenchError>((acknowledged, received))
    });
    let (acknowledged, received) = reading?;
    let took = acknowledged.into_iter().zip(received);
    Ok(Latencies::of(
        took.map(|(before, after)| after.saturating_duration_since(before))
            .collect(),
    ))
}

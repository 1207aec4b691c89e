//! Search over rows: writes with a search index of five columns, the delay and the size of the index, searches, facets
//! and aggregates.
//!
//! The rows are those of the group `rows`. The server CPU time of the writes is measured until the rows are flushed and
//! the index holds all changes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tideline_fleet::Random;

use crate::benchmark::{Benchmark, MEBIBYTE};
use crate::control::Control;
use crate::error::Result;
use crate::folder;
use crate::http::Connection;
use crate::latency::Latencies;
use crate::load::load_bodies;
use crate::report::{Report, Unit, Wanted};
use crate::rows::{BATCH, CUSTOMERS, batches, check, create, plain_key, route};
use crate::server::Server;
use crate::set::Scale;
use crate::wanted;

/// Interval between two reads of the [`backlog`] of the index.
const POLL: Duration = Duration::from_millis(500);
const INDEXES: &str = "/v1/tables/orders/search-indexes";

impl Benchmark {
    /// Runs the group `search`.
    pub(crate) fn run_search(&self, report: &mut Report) -> Result<()> {
        let (count, reads) = match self.scale {
            Scale::Full => (10_000, 1_000),
            Scale::Quick => (100, 100),
        };
        let rows = count * BATCH;
        let (mut server, data) = self.fresh("search", &format!("{rows} rows with a search index"))?;
        create(&server, "orders", &plain_key())?;
        let index = json!({"name": "all", "columns": [
            {"column": "customer", "as": "keyword"},
            {"column": "state", "as": "keyword"},
            {"column": "city", "as": "keyword"},
            {"column": "items", "as": "number"},
            {"column": "placed", "as": "time"},
        ]});
        server
            .connect()?
            .send_expecting_success("POST", INDEXES, index.to_string().as_bytes())?;
        let before = server.cpu_time()?;
        let is_loaded = AtomicBool::new(false);
        let lag = thread::scope(|scope| {
            let watched = scope.spawn(|| longest_lag(&server, INDEXES, &is_loaded));
            let loaded = load_bodies(
                server.address(),
                &route("orders"),
                self.connections,
                batches(0, count),
            );
            is_loaded.store(true, Ordering::Relaxed);
            let lag = watched
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            loaded.and(lag)
        })?;
        Control::open(&server)?.seal()?;
        let mut connection = server.connect()?;
        wait_indexed(&mut connection, INDEXES)?;
        server.drain()?;
        let cpu = server.cpu_time()? - before;
        report.add(
            "rows in batches with a search index, indexed and drained",
            rows as f64 / cpu.as_secs_f64() / 1e3,
            Unit::ThousandRowsPerCpuSecond,
            wanted::SEARCH_WRITES,
        );
        report.add(
            "longest time until a write is searchable",
            lag.as_secs_f64(),
            Unit::Seconds,
            wanted::SEARCH_LAG,
        );
        let peak = server.peak_resident_bytes()? as f64 / MEBIBYTE;
        report.add(
            "peak memory of writes with a search index",
            peak,
            Unit::Mebibytes,
            Wanted::Nothing,
        );
        let usage = folder::usage(&data.join("index").join("rows"))?;
        report.add(
            "search index, per row",
            usage.bytes as f64 / rows as f64,
            Unit::BytesPerRow,
            wanted::SEARCH_DISK,
        );
        let searches = searches(&mut connection, rows, reads)?;
        for (percent, goal) in [(50, Wanted::Nothing), (99, wanted::SEARCH_P99)] {
            report.add(
                format!("search by three conditions, page of 20, p{percent}"),
                searches.percentile(percent).as_secs_f64() * 1e3,
                Unit::Milliseconds,
                goal,
            );
        }
        let counts = counts(&mut connection, reads / 10)?;
        report.add(
            "facets by 1,000 values over a tenth of the rows, p99",
            counts.percentile(99).as_secs_f64() * 1e3,
            Unit::Milliseconds,
            wanted::SEARCH_FACETS,
        );
        for (name, selection) in [
            (
                "rows of a scan, aggregated by 1,000 values",
                json!({"allow_scan": true}),
            ),
            (
                "rows of a search, aggregated by 1,000 values",
                json!({"search": {}, "where": {"column": "items", "equals": 3}}),
            ),
        ] {
            let before = server.cpu_time()?;
            let aggregated = aggregate(&mut connection, selection)?;
            let cpu = server.cpu_time()? - before;
            report.add(
                name,
                aggregated as f64 / cpu.as_secs_f64() / 1e3,
                Unit::ThousandRowsPerCpuSecond,
                Wanted::Nothing,
            );
        }
        server.kill();
        self.forget(&data)
    }
}

/// Returns the number of changes that the first index of a list does not yet hold, and the age of the oldest of them.
fn backlog(connection: &mut Connection, indexes: &str) -> Result<(u64, Duration)> {
    let found = connection.send_expecting_success("GET", indexes, b"")?;
    let found: Value = serde_json::from_slice(&found).unwrap_or_default();
    let index = &found["search_indexes"][0];
    let number = |name: &str| index[name].as_u64().unwrap_or_default();
    Ok((number("waiting"), Duration::from_millis(number("lag_ms"))))
}

/// Waits until the first index of a list holds all changes.
pub(crate) fn wait_indexed(connection: &mut Connection, indexes: &str) -> Result<()> {
    while backlog(connection, indexes)?.0 > 0 {
        thread::park_timeout(POLL);
    }
    Ok(())
}

/// Polls the [`backlog`] of the first index of a list until the load has ended; returns the greatest age of a change.
pub(crate) fn longest_lag(server: &Server, indexes: &str, is_loaded: &AtomicBool) -> Result<Duration> {
    let mut connection = server.connect()?;
    let mut longest = Duration::ZERO;
    while !is_loaded.load(Ordering::Relaxed) {
        longest = longest.max(backlog(&mut connection, indexes)?.1);
        thread::park_timeout(POLL);
    }
    Ok(longest)
}

/// Searches for the orders of a state and a city in a hundredth of the time range, newest first.
fn searches(connection: &mut Connection, rows: u64, count: usize) -> Result<Latencies> {
    let mut random = Random::new(21);
    let mut took = Vec::with_capacity(count);
    for _ in 0..count {
        let state = ["open", "paid", "sent", "done"][random.index(4)];
        let city = ["Hamburg", "Lisbon", "Osaka", "Lagos", "Lima"][random.index(5)];
        // A hundredth of the time range of all orders; the timestamps of two consecutive orders differ by one second.
        let span = (rows / 100) as i64 * 1_000_000_000;
        let from = 1_795_000_000_000_000_000 + random.index(99) as i64 * span;
        let body = json!({
            "where": {"and": [
                {"column": "state", "equals": state},
                {"column": "city", "equals": city},
                {"column": "placed", "between": [from, from + span]},
            ]},
            "sort": [{"column": "placed", "order": "descending"}],
            "limit": 20,
        });
        let begun = Instant::now();
        let found = connection.send_expecting_success(
            "POST",
            "/v1/tables/orders/rows/search",
            body.to_string().as_bytes(),
        )?;
        took.push(begun.elapsed());
        let found: Value = serde_json::from_slice(&found).unwrap_or_default();
        let has_rows = found["rows"].as_array().is_some_and(|rows| rows.len() == 20);
        check(has_rows, || format!("{body}: {found}"))?;
    }
    Ok(Latencies::of(took))
}

/// Measures facets: counts of a tenth of the rows by customer.
fn counts(connection: &mut Connection, count: usize) -> Result<Latencies> {
    let mut random = Random::new(22);
    let mut took = Vec::with_capacity(count);
    for _ in 0..count {
        // The column has twenty values of equal frequency; the range selects two of them.
        let items = random.index(19);
        let body = json!({
            "where": {"column": "items", "between": [items, items + 1]},
            "by": [{"column": "customer"}],
            "limit": 10,
        });
        let begun = Instant::now();
        let found = connection.send_expecting_success(
            "POST",
            "/v1/tables/orders/rows/facets",
            body.to_string().as_bytes(),
        )?;
        took.push(begun.elapsed());
        let found: Value = serde_json::from_slice(&found).unwrap_or_default();
        let is_counted = found["rows"].as_u64().is_some_and(|rows| rows > 0);
        check(
            is_counted
                && found["groups"]
                    .as_array()
                    .is_some_and(|groups| groups.len() == 10),
            || format!("{body}: {found}"),
        )?;
    }
    Ok(Latencies::of(took))
}

/// Aggregates rows by customer: the sum of a decimal column, and the mean and a percentile of a number column. Returns
/// the number of aggregated rows.
fn aggregate(connection: &mut Connection, selection: Value) -> Result<u64> {
    let mut body = selection;
    body["by"] = json!([{"column": "customer"}]);
    body["metrics"] = json!([
        {"column": "total", "functions": ["sum"]}, {"column": "items", "functions": ["mean", {"percentile": 95}]}
    ]);
    let found = connection.send_expecting_success(
        "POST",
        "/v1/tables/orders/rows/aggregate",
        body.to_string().as_bytes(),
    )?;
    let found: Value = serde_json::from_slice(&found).unwrap_or_default();
    let rows = found["rows"].as_u64().unwrap_or_default();
    let is_grouped = found["groups"]
        .as_array()
        .is_some_and(|groups| groups.len() as u64 == CUSTOMERS);
    check(rows > 0 && is_grouped, || {
        format!("{body}: {} rows", found["rows"])
    })?;
    Ok(rows)
}

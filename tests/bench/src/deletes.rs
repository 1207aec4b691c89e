//! Benchmark group `deletes`: loads ten million rows, and deletes nine of ten of them by their keys. The group measures
//! memory, and compares the latencies of reads before and after the deletes.
//!
//! Engines that keep a marker per deleted row read all markers of a range until they are compacted away. The figures
//! show how much slower reads are after the deletes.

use std::fmt::Write as _;
use std::time::Duration;

use crate::benchmark::{Benchmark, MEBIBYTE};
use crate::control::Control;
use crate::error::Result;
use crate::load::load_bodies;
use crate::report::{Report, Unit, Wanted};
use crate::rows::{BATCH, CUSTOMERS, batches, create, pages, plain_key, point_reads, route};
use crate::server::Server;
use crate::set::Scale;
use crate::wanted;

/// Number of consecutive rows of a customer of which only the first is kept.
const KEPT: u64 = 10;

/// Median latencies of reads.
struct Reads {
    point: Duration,
    page: Duration,
}

impl Benchmark {
    /// Runs the group `deletes`.
    pub(crate) fn run_deletes(&self, report: &mut Report) -> Result<()> {
        let (count, reads) = match self.scale {
            Scale::Full => (10_000, 5_000),
            Scale::Quick => (100, 200),
        };
        let rows = count * BATCH;
        let (mut server, data) = self.fresh("deletes", &format!("{rows} rows, nine of ten deleted"))?;
        create(&server, "orders", &plain_key())?;
        self.write_and_settle(&mut server, batches(0, count))?;
        let before = measure(&server, rows, reads, 1)?;
        self.write_and_settle(&mut server, deletes(count))?;
        let after = measure(&server, rows, reads, KEPT)?;
        let peak = server.peak_resident_bytes()? as f64 / MEBIBYTE;
        report.add(
            format!("peak memory of {} k rows", rows / 1_000),
            peak,
            Unit::Mebibytes,
            wanted::ROWS_MEMORY,
        );
        for (name, before, after) in [
            ("point read", before.point, after.point),
            ("page of 100 rows", before.page, after.page),
        ] {
            let took = before.as_secs_f64() * 1e3;
            report.add(
                format!("{name} before the deletes"),
                took,
                Unit::Milliseconds,
                Wanted::Nothing,
            );
            report.add(
                format!("{name} after the deletes, by that before"),
                after.as_secs_f64() / before.as_secs_f64(),
                Unit::Times,
                wanted::ROWS_DELETED,
            );
        }
        server.kill();
        self.forget(&data)
    }

    /// Sends all bodies, and waits until the server has flushed the rows and is idle.
    fn write_and_settle(&self, server: &mut Server, bodies: impl FnMut(&mut Vec<u8>) + Send) -> Result<()> {
        load_bodies(server.address(), &route("orders"), self.connections, bodies)?;
        Control::open(server)?.seal()?;
        server.drain()
    }
}

/// Measures reads of a table in which one of `kept` consecutive rows of each customer is left.
fn measure(server: &Server, rows: u64, reads: usize, kept: u64) -> Result<Reads> {
    let left = |number: u64| number / CUSTOMERS / kept * kept * CUSTOMERS + number % CUSTOMERS;
    let point = point_reads(server, rows, reads, &left)?;
    let pages = pages(server, "orders", rows / kept, reads)?;
    Ok(Reads {
        point: point.percentile(50),
        page: pages.percentile(50),
    })
}

/// Returns a generator of request bodies. Each body deletes all rows of one batch of the load; the first of every
/// [`KEPT`] batches is kept.
fn deletes(count: u64) -> impl FnMut(&mut Vec<u8>) + Send {
    let mut next = 0;
    move |body: &mut Vec<u8>| {
        // A batch holds one row of each customer, so that one of `KEPT` consecutive rows of each customer is kept.
        while next < count && next.is_multiple_of(KEPT) {
            next += 1;
        }
        if next == count {
            return;
        }
        let mut text = String::with_capacity(80 * BATCH as usize);
        for number in next * BATCH..(next + 1) * BATCH {
            let written = writeln!(
                text,
                "{{\"op\":\"delete\",\"key\":{{\"customer\":\"customer-{:04}\",\"n\":{number}}}}}",
                number % CUSTOMERS
            );
            debug_assert!(written.is_ok());
        }
        body.extend_from_slice(text.as_bytes());
        next += 1;
    }
}

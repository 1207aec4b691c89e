//! Ingest over HTTP: a set or other points as line protocol, or bodies of other formats. Every batch must be
//! acknowledged.
//!
//! A separate thread prepares batches in advance, so that generating data does not delay the senders.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::error::{BenchError, Result};
use crate::http::{Connection, excerpt};
use crate::set::{DEFAULT_TABLE, Set};
use crate::wait::pause;

/// Client-side figures of a load.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// Time from the opening of the connections to the last acknowledgement.
    pub(crate) wall: Duration,
    /// Number of temporary refusals (429, 503), after which the batch was sent again.
    pub(crate) refusals: u64,
    /// Total size of the request bodies, in bytes.
    pub(crate) bytes: u64,
}

/// Counters of one sender.
#[derive(Debug, Default)]
struct Sent {
    refusals: u64,
    bytes: u64,
}

/// Number of rows per request.
pub(crate) const BATCH_ROWS: u64 = 10_000;
/// Number of batches prepared in advance, so that the senders do not wait for the generator.
const BATCHES_AHEAD: usize = 8;
/// Delay before a retry if the response has no `Retry-After`.
const REFUSED_WAIT: Duration = Duration::from_millis(100);
/// Maximum number of consecutive temporary refusals of one batch; one more fails the run.
const REFUSALS_MAX: u32 = 300;

/// Sends all rows of a set over `connections` connections. Only 200 and 204 count as stored.
pub(crate) fn load(address: SocketAddr, set: &Set, connections: usize) -> Result<Loaded> {
    let mut fleet = set.fleet();
    let mut left = set.rows();
    load_batches(address, set.table, connections, move |batch| {
        let rows = left.min(BATCH_ROWS);
        fleet.write_rows(rows as usize, batch);
        left -= rows;
    })
}

/// Sends batches of line protocol; see [`load_bodies`].
pub(crate) fn load_batches(
    address: SocketAddr,
    table: &str,
    connections: usize,
    make: impl FnMut(&mut Vec<u8>) + Send,
) -> Result<Loaded> {
    let route = Route {
        path: write_path(table),
        headers: "Content-Type: text/plain; charset=utf-8",
    };
    load_bodies(address, &route, connections, make)
}

/// Target of request bodies.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) path: String,
    /// Header lines that describe the body, separated by CRLF.
    pub(crate) headers: &'static str,
}

/// Sends batches over `connections` connections until `make` leaves a batch empty. `make` gets an empty
/// buffer and runs on a separate thread, ahead of the senders.
pub(crate) fn load_bodies(
    address: SocketAddr,
    route: &Route,
    connections: usize,
    make: impl FnMut(&mut Vec<u8>) + Send,
) -> Result<Loaded> {
    let (full_out, full_in) = bounded::<Vec<u8>>(BATCHES_AHEAD);
    let (empty_out, empty_in) = bounded::<Vec<u8>>(BATCHES_AHEAD + connections);
    thread::scope(|scope| {
        let maker = scope.spawn(move || make_batches(make, &full_out, &empty_in));
        // The first batches are made before the time measurement starts.
        while full_in.len() < BATCHES_AHEAD && !maker.is_finished() {
            pause(Duration::from_millis(1));
        }
        let start = Instant::now();
        let senders: Vec<_> = (0..connections)
            .map(|_| {
                let (full_in, empty_out) = (full_in.clone(), empty_out.clone());
                scope.spawn(move || send_batches(address, route, &full_in, &empty_out))
            })
            .collect();
        // From here on, only the sender threads hold the receiver of full batches, so that the maker thread ends if
        // all of them fail.
        drop((full_in, empty_out));
        let mut all = Sent::default();
        for sender in senders {
            let sent = sender
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            all.refusals += sent.refusals;
            all.bytes += sent.bytes;
        }
        Ok(Loaded {
            wall: start.elapsed(),
            refusals: all.refusals,
            bytes: all.bytes,
        })
    })
}

/// Returns the path for line protocol with nanoseconds, on the route that agents use.
fn write_path(table: &str) -> String {
    match table {
        DEFAULT_TABLE => "/write?precision=ns".into(),
        table => format!("/write?precision=ns&db={table}"),
    }
}

fn make_batches(mut make: impl FnMut(&mut Vec<u8>), full: &Sender<Vec<u8>>, empty: &Receiver<Vec<u8>>) {
    loop {
        let mut batch = empty.try_recv().unwrap_or_default();
        batch.clear();
        make(&mut batch);
        if batch.is_empty() || full.send(batch).is_err() {
            return;
        }
    }
}

fn send_batches(
    address: SocketAddr,
    route: &Route,
    full: &Receiver<Vec<u8>>,
    empty: &Sender<Vec<u8>>,
) -> Result<Sent> {
    let broken = |what| move |source| BenchError::Connection { what, source };
    let mut connection = Connection::open(address).map_err(broken("connecting to write"))?;
    let mut sent = Sent::default();
    for batch in full {
        let mut refused = 0;
        loop {
            let response = connection
                .send_with("POST", &route.path, route.headers, &batch)
                .map_err(broken("writing a batch"))?;
            match response.status {
                200 | 204 => break,
                429 | 503 if refused < REFUSALS_MAX => {
                    refused += 1;
                    pause(response.retry_after.map_or(REFUSED_WAIT, Duration::from_secs));
                }
                status => {
                    return Err(BenchError::Refused {
                        method: "POST",
                        path: route.path.clone(),
                        status,
                        body: excerpt(&response.body),
                    });
                }
            }
        }
        sent.refusals += u64::from(refused);
        sent.bytes += batch.len() as u64;
        // Fails once the maker thread has ended; the buffer is then dropped.
        let _ = empty.try_send(batch);
    }
    Ok(sent)
}

//! Loading a set through the front door: line protocol over HTTP, acknowledged batch by batch.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::error::{BenchError, Result};
use crate::http::{Connection, excerpt};
use crate::set::Set;
use crate::wait::pause;

/// What the client saw of a load.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// From the first byte sent to the last acknowledgement.
    pub(crate) wall: Duration,
    /// Batches that were refused for now (429, 503) and sent again.
    pub(crate) refusals: u64,
}

/// Rows in a request.
pub(crate) const BATCH_ROWS: u64 = 10_000;
/// Batches that are made ahead, so that making them never holds up sending.
const BATCHES_AHEAD: usize = 8;
/// Where line protocol with nanoseconds goes: the route that agents use.
const PATH: &str = "/write?precision=ns";
/// How long a refused batch waits where the server does not say.
const REFUSED_WAIT: Duration = Duration::from_millis(100);
/// Refusals in a row of one batch that end the run.
const REFUSALS_MAX: u32 = 300;

/// Sends all rows of a set over so many connections; only 200 and 204 count as stored.
pub(crate) fn load(address: SocketAddr, set: &Set, connections: usize) -> Result<Loaded> {
    let (full_out, full_in) = bounded::<Vec<u8>>(BATCHES_AHEAD);
    let (empty_out, empty_in) = bounded::<Vec<u8>>(BATCHES_AHEAD + connections);
    thread::scope(|scope| {
        scope.spawn(move || make_batches(set, &full_out, &empty_in));
        // The first batches are made before the clock starts.
        while full_in.len() < BATCHES_AHEAD.min(batches(set)) {
            pause(Duration::from_millis(1));
        }
        let start = Instant::now();
        let senders: Vec<_> = (0..connections)
            .map(|_| {
                let (full_in, empty_out) = (full_in.clone(), empty_out.clone());
                scope.spawn(move || send_batches(address, &full_in, &empty_out))
            })
            .collect();
        // Where all senders have failed, the maker must find its channel closed.
        drop((full_in, empty_out));
        let mut refusals = 0;
        for sender in senders {
            refusals += sender
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        Ok(Loaded {
            wall: start.elapsed(),
            refusals,
        })
    })
}

fn batches(set: &Set) -> usize {
    usize::try_from(set.rows().div_ceil(BATCH_ROWS)).unwrap_or(usize::MAX)
}

fn make_batches(set: &Set, full: &Sender<Vec<u8>>, empty: &Receiver<Vec<u8>>) {
    let mut fleet = set.fleet();
    let mut left = set.rows();
    while left > 0 {
        let rows = left.min(BATCH_ROWS);
        let mut batch = empty.try_recv().unwrap_or_default();
        batch.clear();
        fleet.write_rows(rows as usize, &mut batch);
        left -= rows;
        if full.send(batch).is_err() {
            return;
        }
    }
}

fn send_batches(address: SocketAddr, full: &Receiver<Vec<u8>>, empty: &Sender<Vec<u8>>) -> Result<u64> {
    let broken = |what| move |source| BenchError::Connection { what, source };
    let mut connection = Connection::open(address).map_err(broken("connecting to write"))?;
    let mut refusals = 0;
    for batch in full {
        let mut refused = 0;
        loop {
            let answer = connection
                .ask("POST", PATH, "text/plain; charset=utf-8", &batch)
                .map_err(broken("writing a batch"))?;
            match answer.status {
                200 | 204 => break,
                429 | 503 if refused < REFUSALS_MAX => {
                    refused += 1;
                    pause(answer.retry_after.map_or(REFUSED_WAIT, Duration::from_secs));
                }
                status => {
                    return Err(BenchError::Refused {
                        method: "POST",
                        path: PATH.into(),
                        status,
                        body: excerpt(&answer.body),
                    });
                }
            }
        }
        refusals += u64::from(refused);
        // Nobody takes it back once the last batch is made.
        let _ = empty.try_send(batch);
    }
    Ok(refusals)
}

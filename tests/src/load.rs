//! Concurrent writers with a ledger.
//!
//! Writers run until they are stopped or the server no longer responds, so that a kill can happen at any point
//! of a request.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use tideline_fleet::Random;

use crate::client::{Client, NoResponse};
use crate::ledger::{Fate, Ledger, PointKey};

/// Number of points per request.
const BATCH_POINTS: i64 = 20;
/// Number of consecutive requests, counted over all writers, after which writers switch to new machines. The switches
/// are frequent, so that some kills happen during the creation of timelines.
const BATCHES_PER_HOST: i64 = 8;
/// First timestamp, in nanoseconds since the Unix epoch; each request uses the next timestamps.
const FIRST_INSTANT: i64 = 1_700_000_000_000_000_000;
const STEP_NANOS: i64 = 1_000_000_000;

/// Load by writers that share one ledger, on any number of servers.
#[derive(Debug, Clone)]
pub struct Load {
    seed: u64,
    ledger: Arc<Mutex<Ledger>>,
    /// Number of the next request; it is unique.
    next: Arc<AtomicI64>,
}

/// Running writers.
#[derive(Debug)]
pub struct Writers {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Written>>,
}

/// Request counters of writers.
#[derive(Debug, Default, Clone, Copy)]
pub struct Written {
    /// Number of requests that succeeded.
    pub acknowledged: u64,
    /// Number of requests that failed with a response.
    pub refused: u64,
    /// Number of requests without a response.
    pub unanswered: u64,
}

impl Load {
    /// Creates a load with an empty ledger.
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            ledger: Arc::new(Mutex::new(Ledger::new(seed))),
            next: Arc::default(),
        }
    }

    /// Locks and returns the ledger.
    pub fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts writers. Each sends requests on random write routes until it is stopped or three consecutive
    /// requests get no response.
    pub fn start(&self, client: &Client, writers: u64) -> Writers {
        let stop = Arc::new(AtomicBool::new(false));
        let threads = (0..writers)
            .map(|writer| {
                let (load, client, stop) = (self.clone(), client.clone(), Arc::clone(&stop));
                thread::spawn(move || load.write(&client, writer, &stop))
            })
            .collect();
        Writers { stop, threads }
    }

    /// Sends the points of unknown fate again. This is safe because each point has a timestamp, so that a repeated
    /// write overwrites the point.
    pub fn resend_unknown(&self, client: &Client) {
        let unknown = self.ledger().keys(Fate::Unknown);
        for keys in unknown.chunks(100) {
            let body = self.body(keys);
            let response = client.post_lines("/v1/tables/default/points", &body);
            assert!(response.is_success(), "resending failed: {response:?}");
            self.ledger().note(keys, Fate::Acknowledged);
        }
    }

    fn write(&self, client: &Client, writer: u64, stop: &AtomicBool) -> Written {
        let mut random = Random::new(self.seed ^ (writer + 1));
        let mut written = Written::default();
        let mut silent = 0;
        while !stop.load(Ordering::Relaxed) && silent < 3 {
            let keys = self.next_keys(writer);
            // The points are recorded before they are sent, because a concurrent reader may receive them before the
            // response.
            self.ledger().note(&keys, Fate::Unknown);
            match self.send(client, &keys, &mut random) {
                Ok(fate) => {
                    self.ledger().note(&keys, fate);
                    match fate {
                        Fate::Acknowledged => written.acknowledged += 1,
                        Fate::Refused | Fate::Unknown => written.refused += 1,
                    }
                    silent = 0;
                }
                Err(_) => {
                    written.unanswered += 1;
                    silent += 1;
                }
            }
        }
        written
    }

    /// Sends points on a random write route and returns their fate. Only the error code `overloaded` of our
    /// own routes means that nothing was written; after any other failure the outcome is unknown.
    fn send(&self, client: &Client, keys: &[PointKey], random: &mut Random) -> Result<Fate, NoResponse> {
        let body = self.body(keys);
        let plain = ("content-type", "text/plain");
        let response = match random.index(4) {
            0 => client.send("POST", "/write", &[plain], body.as_bytes()),
            1 => client.send("POST", "/api/v2/write?bucket=default", &[plain], body.as_bytes()),
            2 => {
                let key = format!("key-{}-{}", keys[0].0, keys[0].1);
                let headers = [plain, ("idempotency-key", &key)];
                client.send("POST", "/v1/tables/default/points", &headers, body.as_bytes())
            }
            _ => client.send("POST", "/v1/tables/default/points", &[plain], body.as_bytes()),
        }?;
        let is_final = response.is_success() || matches!(response.status, 500..);
        assert!(is_final, "a good write was refused: {response:?}");
        Ok(match response.is_success() {
            true => Fate::Acknowledged,
            false if response.text().contains("\"code\":\"overloaded\"") => Fate::Refused,
            false => Fate::Unknown,
        })
    }

    fn next_keys(&self, writer: u64) -> Vec<PointKey> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let host = format!("w{writer}-{:05}", number / BATCHES_PER_HOST);
        (number * BATCH_POINTS..)
            .take(BATCH_POINTS as usize)
            .map(|point| (host.clone(), FIRST_INSTANT + point * STEP_NANOS))
            .collect()
    }

    fn body(&self, keys: &[PointKey]) -> String {
        let ledger = Ledger::new(self.seed);
        let lines: Vec<String> = keys.iter().map(|key| ledger.line(key)).collect();
        lines.join("\n")
    }
}

impl Writers {
    /// Waits until all writers have ended because the server no longer responds or they were stopped. Returns the sums
    /// of their counters.
    pub fn join(self) -> Written {
        let mut all = Written::default();
        for thread in self.threads {
            let written = thread.join().expect("a writer found a contradiction");
            all.acknowledged += written.acknowledged;
            all.refused += written.refused;
            all.unanswered += written.unanswered;
        }
        all
    }

    /// Stops all writers after their current request and waits for them. Returns the sums of their counters.
    pub fn stop(self) -> Written {
        self.stop.store(true, Ordering::Relaxed);
        self.join()
    }
}

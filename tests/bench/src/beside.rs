//! Interference: how much disturbing work slows down the measured work. Time slices with and without the disturbing
//! work alternate on the same server.
//!
//! Slices alternate so that other load on the machine affects both kinds of slices equally. A move that runs during a
//! slice is cancelled afterwards, so that the same points move again in the next slice with a move.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tideline_fleet::{Fleet, Random};
use tideline_model::{Clock, SystemClock};

use crate::benchmark::{Benchmark, milliseconds};
use crate::control::{Control, has_ended, moves_by_hand};
use crate::error::{BenchError, Result};
use crate::http::Connection;
use crate::latency::{Latencies, answer_time};
use crate::load::{BATCH_ROWS, load, load_batches};
use crate::queries::{CONTENT_TYPE, Queries, count};
use crate::report::{Report, Unit, Wanted};
use crate::server::Server;
use crate::set::{DAY, Kind, STEP, Scale, Set};
use crate::truth::Truth;
use crate::wanted;

/// Number of clients that send cold queries; each sends one query at a time.
const FLOOD_CLIENTS: usize = 4;
/// Table of recent points for the hot queries.
const LIVE: &str = "live";
/// Table whose points are moved.
const MOVING: &str = "moving";
/// Table to which the measured ingest writes.
const TAKEN: &str = "taken";
/// Number of machines that write to [`TAKEN`], and the seed of their values.
const TAKEN_HOSTS: u32 = 1_000;
const TAKEN_SEED: u64 = 20_260_102;
/// Age in days of the first row in [`TAKEN`]. Timestamps advance faster than the clock and must not reach the
/// future.
const TAKEN_DAYS_AGO: i64 = 5;
/// Read limit of a move at [`Scale::Quick`], in bytes per second. Without it, the small set moves within one
/// slice.
const QUICK_MOVE_BYTES: u64 = 1 << 20;

/// Number and length of the time slices of each kind.
#[derive(Debug, Clone, Copy)]
struct Slices {
    rounds: usize,
    each: Duration,
}

/// Result of a slice that ran during a move.
struct Beside<T> {
    value: T,
    /// The job of the move, read after its cancellation.
    job: Value,
}

/// Response counters of the flood clients.
#[derive(Debug, Default)]
struct Flood {
    answered: AtomicU64,
    refused: AtomicU64,
}

impl Benchmark {
    /// Measures hot queries during cold queries, then ingest and hot queries during a move. The points of
    /// `cold` must be in the cold tier.
    pub(crate) fn run_beside(
        &self,
        server: &mut Server,
        cold: &Queries<'_>,
        report: &mut Report,
    ) -> Result<()> {
        let live = Set::new(Kind::S, self.scale, SystemClock.now().nanos()).in_table(LIVE);
        let stay = json!({ "hot_ttl": null });
        Control::open(server)?.create_table(LIVE, &stay)?;
        Control::open(server)?.create_table(TAKEN, &stay)?;
        load(server.address(), &live, self.connections)?;
        server.seal_and_settle()?;
        let truth = Truth::of(&live);
        let hot = Queries::new(&live, &truth);
        self.beside_flood(server, &hot, cold, report)?;
        let moving = cold.set().in_table(MOVING);
        Control::open(server)?.create_table(MOVING, &moves_by_hand())?;
        load(server.address(), &moving, self.connections)?;
        server.seal_and_settle()?;
        let limit = match self.scale {
            Scale::Full => None,
            Scale::Quick => Some(QUICK_MOVE_BYTES),
        };
        let policy = json!({ "hot_ttl": "1h", "move_bytes_per_second": limit });
        Control::open(server)?.set_policy(MOVING, &policy)?;
        self.ingest_beside_move(server, report)?;
        server.settle()?;
        self.queries_beside_move(server, &hot, report)?;
        answer_time(&mut server.connect()?, &count(&moving))?;
        Ok(())
    }

    fn beside_flood(
        &self,
        server: &Server,
        hot: &Queries<'_>,
        cold: &Queries<'_>,
        report: &mut Report,
    ) -> Result<()> {
        let slices = self.slices();
        let (mut without, mut with) = (Vec::new(), Vec::new());
        let (mut random, flood) = (Random::new(7), Flood::default());
        for _ in 0..slices.rounds {
            without.extend(run_for(server, hot, &mut random, slices.each)?);
            with.extend(flood.beside(server, cold, || run_for(server, hot, &mut random, slices.each))?);
        }
        compare("cold queries", without, with, wanted::BESIDE_FLOOD, report);
        report.note(format!(
            "cold queries: {FLOOD_CLIENTS} clients without pauses, all fields by host and hour, 12 h of M; {} \
             succeeded, {} were refused, in {} slices of {:?}",
            flood.answered.into_inner(),
            flood.refused.into_inner(),
            slices.rounds,
            slices.each,
        ));
        Ok(())
    }

    fn queries_beside_move(&self, server: &Server, hot: &Queries<'_>, report: &mut Report) -> Result<()> {
        let slices = self.slices();
        let (mut without, mut with) = (Vec::new(), Vec::new());
        let mut random = Random::new(11);
        let mut jobs = Vec::new();
        for _ in 0..slices.rounds {
            without.extend(run_for(server, hot, &mut random, slices.each)?);
            let slice = beside_move(server, || run_for(server, hot, &mut random, slices.each))?;
            let Some(slice) = slice else { break };
            with.extend(slice.value);
            jobs.push(slice.job);
        }
        report.note(self.moves("hot queries", &jobs));
        if jobs.is_empty() {
            return Ok(());
        }
        compare("a move", without, with, wanted::QUERIES_BESIDE_MOVE, report);
        Ok(())
    }

    fn ingest_beside_move(&self, server: &Server, report: &mut Report) -> Result<()> {
        let slices = self.slices();
        let today = SystemClock.now().nanos().div_euclid(DAY) * DAY;
        let mut fleet = Fleet::new(TAKEN_SEED, TAKEN_HOSTS, today - TAKEN_DAYS_AGO * DAY, STEP);
        let (mut without, mut with) = ((0, Duration::ZERO), (0, Duration::ZERO));
        let mut jobs = Vec::new();
        // The first slice creates the timelines and is not counted.
        self.take(server, &mut fleet, slices.each)?;
        for _ in 0..slices.rounds {
            let (rows, wall) = self.take(server, &mut fleet, slices.each)?;
            without = (without.0 + rows, without.1 + wall);
            let slice = beside_move(server, || self.take(server, &mut fleet, slices.each))?;
            let Some(Beside { value, job }) = slice else { break };
            with = (with.0 + value.0, with.1 + value.1);
            jobs.push(job);
        }
        report.note(self.moves("ingest", &jobs));
        if jobs.is_empty() {
            return Ok(());
        }
        let rate = |(rows, wall): (u64, Duration)| rows as f64 * 10.0 / wall.as_secs_f64() / 1e6;
        let (without, with) = (rate(without), rate(with));
        let shown = [("without a move", without), ("during a move", with)];
        for (name, rate) in shown {
            let name = format!("ingest by the clock, {name}");
            report.add(name, rate, Unit::MillionValuesPerSecond, Wanted::Nothing);
        }
        report.add(
            "ingest during a move, relative to ingest without",
            with / without * 100.0,
            Unit::Percent,
            wanted::INGEST_BESIDE_MOVE,
        );
        Ok(())
    }

    /// Writes rows of a fleet for `span`; returns the number of rows and the time until the last
    /// acknowledgement.
    fn take(&self, server: &Server, fleet: &mut Fleet, span: Duration) -> Result<(u64, Duration)> {
        let mut rows = 0;
        let begun = Instant::now();
        let loaded = load_batches(server.address(), TAKEN, self.connections, |batch| {
            if begun.elapsed() < span {
                fleet.write_rows(BATCH_ROWS as usize, batch);
                rows += BATCH_ROWS;
            }
        })?;
        Ok((rows, loaded.wall))
    }

    fn slices(&self) -> Slices {
        match self.scale {
            // Shorter than a move: one day of set M moves in less than two seconds if the server has no other work.
            Scale::Full => Slices {
                rounds: 15,
                each: Duration::from_millis(800),
            },
            Scale::Quick => Slices {
                rounds: 2,
                each: Duration::from_millis(500),
            },
        }
    }

    /// Describes how much was moved during the slices.
    fn moves(&self, beside: &str, jobs: &[Value]) -> String {
        if jobs.is_empty() {
            return format!("moves during {beside}: no move lasted for a whole slice");
        }
        let values: u64 = jobs.iter().filter_map(|job| job["done"]["values"].as_u64()).sum();
        format!(
            "moves during {beside}: {} slices of {:?}, {:.2} M values/s, {}",
            jobs.len(),
            self.slices().each,
            values as f64 / 1e6 / (self.slices().each.as_secs_f64() * jobs.len() as f64),
            match self.scale {
                Scale::Full => "without a rate limit".to_owned(),
                Scale::Quick => format!("limited to {QUICK_MOVE_BYTES} bytes per second"),
            },
        )
    }
}

impl Flood {
    /// Runs `slice` while all flood clients send queries.
    fn beside<T>(&self, server: &Server, cold: &Queries<'_>, slice: impl FnOnce() -> Result<T>) -> Result<T> {
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let clients: Vec<_> = (0..FLOOD_CLIENTS)
                .map(|client| {
                    let is_over = &is_over;
                    scope.spawn(move || {
                        let mut connection = server.connect()?;
                        let mut random = Random::new(client as u64);
                        while !is_over.load(Ordering::Acquire) {
                            self.send(&mut connection, cold, &mut random)?;
                        }
                        Ok(())
                    })
                })
                .collect();
            let value = slice();
            is_over.store(true, Ordering::Release);
            for client in clients {
                client
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            }
            value
        })
    }

    /// Sends one query. The response is read but not parsed: parsing would use CPU time that the server needs
    /// on a small machine.
    fn send(&self, connection: &mut Connection, cold: &Queries<'_>, random: &mut Random) -> Result<()> {
        let request = cold.all_fields_by_hour(random);
        let response = connection
            .send("POST", &request.path, CONTENT_TYPE, request.body.as_bytes())
            .map_err(|source| BenchError::Connection {
                what: "sending a cold query",
                source,
            })?;
        let counter = match response.status {
            200 => &self.answered,
            429 | 503 => &self.refused,
            status => {
                return Err(BenchError::Refused {
                    method: "POST",
                    path: request.path,
                    status,
                    body: crate::http::excerpt(&response.body),
                });
            }
        };
        counter.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

/// Runs `slice` during a move and cancels the move afterwards. Returns `None` if no move ran for the whole
/// slice.
fn beside_move<T>(server: &Server, slice: impl FnOnce() -> Result<T>) -> Result<Option<Beside<T>>> {
    let mut control = Control::open(server)?;
    let Some(id) = control.begin("migrate", MOVING)?.first().copied() else {
        return Ok(None);
    };
    control.wait_until(id, |job| job["state"] == "running" || has_ended(job))?;
    let value = slice()?;
    let (job, had_ended) = control.cancel(id)?;
    Ok((!had_ended).then_some(Beside { value, job }))
}

/// Queries single timelines for `span` on a new connection; returns the latency of each query.
fn run_for(
    server: &Server,
    queries: &Queries<'_>,
    random: &mut Random,
    span: Duration,
) -> Result<Vec<Duration>> {
    let mut connection = server.connect()?;
    let begun = Instant::now();
    let mut took = Vec::new();
    while begun.elapsed() < span {
        took.push(answer_time(&mut connection, &queries.one_timeline(random))?);
    }
    Ok(took)
}

/// Reports the latencies of the hot queries without and during other work, and the ratio of their 99th percentiles
/// (during ÷ without). `work` names the other work.
fn compare(work: &str, without: Vec<Duration>, with: Vec<Duration>, wanted: Wanted, report: &mut Report) {
    let name = "one timeline of S, 1 h by minute";
    let asked = [without.len(), with.len()];
    let both = [
        ("without", Latencies::of(without)),
        ("during", Latencies::of(with)),
    ];
    for (which, latencies) in &both {
        for percent in [50, 99] {
            let shown = milliseconds(latencies.percentile(percent));
            let name = format!("{name}, {which} {work}, p{percent}");
            report.add(name, shown, Unit::Milliseconds, Wanted::Nothing);
        }
    }
    let [without, with] = both.map(|(_, latencies)| milliseconds(latencies.percentile(99)));
    report.add(
        format!("{name}, p99 during / without {work}"),
        with / without,
        Unit::Times,
        wanted,
    );
    report.note(format!(
        "{name}: {} queries without {work}, {} during it",
        asked[0], asked[1]
    ));
}

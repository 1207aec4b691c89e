//! Sends the samples and queries of the group `prometheus` to another server that supports remote write and
//! PromQL, such as VictoriaMetrics or Prometheus. The user starts the peer empty and stops it.
//!
//! Data that Tideline receives as line protocol is sent to the peer by remote write 1.0, under the metric names that
//! Tideline exposes. Queries are byte for byte the same. If a result of the peer remains different, the query is
//! still timed and a note describes the difference.

use std::cell::Cell;
use std::net::SocketAddr;
use std::time::Duration;

use tideline_fleet::remote_write::{Series, Template};
use tideline_fleet::{FIELDS, Random};
use tideline_model::{Clock, SystemClock};

use crate::benchmark::{Benchmark, Timing, milliseconds};
use crate::error::{BenchError, Result};
use crate::http::Connection;
use crate::latency::{Latencies, answer_time};
use crate::load::{Loaded, load_bodies};
use crate::process;
use crate::prometheus::{Requests, Version, add_load};
use crate::promql::{self, Counters};
use crate::queries::CheckedRequest;
use crate::report::{Report, Unit, Wanted};
use crate::set::{Kind, STEP};
use crate::truth::Truth;
use crate::wait::pause;

/// Server that is compared with Tideline.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    /// Process id, if the peer runs on this machine; its CPU time is then reported.
    pub(crate) process: Option<u32>,
}

/// Number of retries for a peer that shows stored samples only after a delay, and the pause between two
/// retries.
const SETTLE_ROUNDS: usize = 120;
const SETTLE_PAUSE: Duration = Duration::from_millis(500);

impl Peer {
    fn connect(&self) -> Result<Connection> {
        Connection::open(self.address).map_err(|source| BenchError::Connection {
            what: "connecting to the peer",
            source,
        })
    }

    /// Returns the number of node exporter samples of the last day that the peer stores.
    fn samples_of_nodes(&self) -> Result<f64> {
        let found = Cell::new(0.0);
        let send = promql::checked_request(
            "query",
            "sum(count_over_time({job=\"node\"}[1d]))",
            "",
            |response| {
                let value = &response["data"]["result"][0]["value"][1];
                found.set(value.as_str().and_then(|text| text.parse().ok()).unwrap_or(0.0));
                Ok(())
            },
        );
        answer_time(&mut self.connect()?, &send)?;
        drop(send);
        Ok(found.get())
    }

    /// Returns the result of [`samples_of_nodes`](Self::samples_of_nodes) once it equals `wanted`, or after
    /// [`SETTLE_ROUNDS`] retries.
    fn settled_samples(&self, wanted: f64) -> Result<f64> {
        let mut found = self.samples_of_nodes()?;
        for _ in 0..SETTLE_ROUNDS {
            if found == wanted {
                break;
            }
            pause(SETTLE_PAUSE);
            found = self.samples_of_nodes()?;
        }
        Ok(found)
    }

    fn cpu_time(&self) -> Result<Option<Duration>> {
        self.process.map(process::cpu_time).transpose()
    }
}

impl Benchmark {
    /// Sends the samples and queries of the group `prometheus` to a peer; reports rates, latencies and CPU time.
    pub(crate) fn run_peer(&self, peer: &Peer, report: &mut Report) -> Result<()> {
        for version in [Version::V1, Version::V2] {
            self.write_to_peer(peer, version, report)?;
        }
        self.peer_counters(peer, report)?;
        self.peer_wide(peer, report)?;
        self.peer_series(peer, report)
    }

    fn write_to_peer(&self, peer: &Peer, version: Version, report: &mut Report) -> Result<()> {
        let name = format!("peer: {}", version.name());
        let scrapes = self.scrapes(version);
        let samples = scrapes.samples() as f64;
        let stored_before = peer.samples_of_nodes()?;
        let before = peer.cpu_time()?;
        let loaded = load_bodies(
            peer.address,
            &version.route(),
            self.connections,
            scrapes.requests(version),
        );
        let loaded = match loaded {
            Ok(loaded) => loaded,
            Err(error @ BenchError::Refused { .. }) => {
                report.note(format!("{name} is not supported: {error}"));
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let after = peer.cpu_time()?;
        // Some servers acknowledge samples that they do not store.
        let stored = peer.settled_samples(stored_before + samples)? - stored_before;
        if stored != samples {
            report.note(format!(
                "{name}: acknowledged, but {stored} of {samples} samples are stored"
            ));
            return Ok(());
        }
        let cpu = after.zip(before).map(|(after, before)| after - before);
        add_load(report, &name, samples, cpu, loaded.wall);
        Ok(())
    }

    fn peer_counters(&self, peer: &Peer, report: &mut Report) -> Result<()> {
        let counters = Counters::new(self.scale, SystemClock.now().nanos());
        let (of_counter, rounds) = (counters, counters.rounds());
        self.send_rounds(peer, &counters.all(), rounds, move |place, round| {
            of_counter.value(place as u64, round as u64)
        })?;
        self.time_peer(peer, promql::RATES, report, |_| counters.rates())?;
        self.time_peer(peer, promql::ONE_SERIES, report, |random| counters.one(random))
    }

    fn peer_wide(&self, peer: &Peer, report: &mut Report) -> Result<()> {
        let set = self.set(Kind::M);
        let mut fleet = set.fleet();
        let of_host = |host: &tideline_fleet::Host| {
            let tags = host.tags();
            FIELDS.map(|field| {
                let name = ("__name__".to_owned(), format!("cpu_{field}"));
                let tags = tags.clone().map(|(key, value)| (key.to_owned(), value));
                let mut labels: Vec<_> = std::iter::once(name).chain(tags).collect();
                labels.sort();
                Series {
                    labels,
                    ..Series::default()
                }
            })
        };
        let series: Vec<Series> = fleet.hosts().iter().flat_map(of_host).collect();
        let rounds = Rounds {
            start: set.start,
            step: STEP,
            count: set.steps as usize,
        };
        // Values are requested in the order in which the fleet generates them.
        let mut row = fleet.next_row();
        self.send_rounds(peer, &series, rounds, move |place, round| {
            let (host, field) = (place / FIELDS.len(), place % FIELDS.len());
            let instant = rounds.start + round as i64 * rounds.step;
            if (row.host, row.timestamp) != (host, instant) {
                row = fleet.next_row();
            }
            row.values[field] as f64
        })?;
        let truth = Truth::of(&set);
        self.time_peer(peer, promql::WIDE, report, |random| {
            promql::wide(&set, &truth, random)
        })
    }

    fn peer_series(&self, peer: &Peer, report: &mut Report) -> Result<()> {
        let hosts = promql::hosts(self.scale);
        let rows = hosts * promql::METRICS.len() as u64;
        let series: Vec<Series> = (0..rows).map(promql::metric).collect();
        let now = Rounds {
            start: SystemClock.now().nanos(),
            step: STEP,
            count: 1,
        };
        self.send_rounds(peer, &series, now, |place, _| place as f64)?;
        self.time_peer(peer, promql::SERIES, report, |_| promql::series(hosts))
    }

    /// Sends samples of series, round by round.
    fn send_rounds(
        &self,
        peer: &Peer,
        series: &[Series],
        rounds: Rounds,
        value: impl FnMut(usize, usize) -> f64 + Send,
    ) -> Result<Loaded> {
        eprintln!("peer: {} series, {} samples each", series.len(), rounds.count);
        let requests = Requests::new(series, Template::v1, rounds);
        // Uses one connection: a peer may refuse samples that are older than its latest samples.
        load_bodies(peer.address, &Version::V1.route(), 1, requests.make(value))
    }

    /// Measures a kind of query on a peer as [`Benchmark::time`] does on the server. A wrong result or a refusal is
    /// noted in the report and is not an error.
    fn time_peer<'a>(
        &self,
        peer: &Peer,
        timing: Timing,
        report: &mut Report,
        mut make: impl FnMut(&mut Random) -> CheckedRequest<'a>,
    ) -> Result<()> {
        let name = format!("peer: {}", timing.name);
        let mut connection = peer.connect()?;
        let is_right = match settled(&mut connection, &mut make)? {
            Settled::Right => true,
            Settled::Wrong(difference) => {
                report.note(format!("{name}: timed, but its result differs: {difference}"));
                false
            }
            Settled::Refused(body) => {
                report.note(format!("{name}: refused: {body}"));
                return Ok(());
            }
        };
        let unchecked = |send: CheckedRequest<'a>| match is_right {
            true => send,
            false => CheckedRequest {
                check: Box::new(|_| Ok(())),
                ..send
            },
        };
        let rounds = self.rounds(timing);
        let before = peer.cpu_time()?;
        let latencies = Latencies::measure(&mut connection, rounds, |random| unchecked(make(random)))?;
        for percent in [50, 99] {
            report.add(
                format!("{name}, p{percent}"),
                milliseconds(latencies.percentile(percent)),
                Unit::Milliseconds,
                Wanted::Nothing,
            );
        }
        if let (Some(before), Some(after)) = (before, peer.cpu_time()?) {
            report.add(
                format!("{name}, server CPU each"),
                milliseconds(after - before) / latencies.asked as f64,
                Unit::Milliseconds,
                Wanted::Nothing,
            );
        }
        Ok(())
    }
}

/// Timestamps at which every series has a sample.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rounds {
    /// First timestamp in nanoseconds.
    pub(crate) start: i64,
    /// Nanoseconds between two timestamps.
    pub(crate) step: i64,
    pub(crate) count: usize,
}

/// Outcome of a query to a peer.
#[derive(Debug)]
enum Settled {
    Right,
    /// The result remained wrong; holds the difference.
    Wrong(String),
    /// The query was refused; holds the response body.
    Refused(String),
}

/// Repeats a query until its result is correct, the query is refused, or the retries are used up.
fn settled<'a>(
    connection: &mut Connection,
    make: &mut impl FnMut(&mut Random) -> CheckedRequest<'a>,
) -> Result<Settled> {
    let mut last = String::new();
    for _ in 0..SETTLE_ROUNDS {
        match answer_time(connection, &make(&mut Random::new(1))) {
            Ok(_) => return Ok(Settled::Right),
            Err(BenchError::Wrong { difference, .. }) => last = difference,
            Err(BenchError::Refused { body, .. }) => return Ok(Settled::Refused(body)),
            Err(error) => return Err(error),
        }
        pause(SETTLE_PAUSE);
    }
    Ok(Settled::Wrong(last))
}

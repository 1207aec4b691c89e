//! Benchmark group `prometheus`: samples as Prometheus sends them, in both versions of remote write, 2,000 samples per
//! request, each request acknowledged after its sync. The queries of [`crate::promql`] follow.
//!
//! The series resemble a node exporter on each of 40 hosts: 250 metric names for each of two devices, and eight labels
//! per series. The series are sent in scrape order, so that a request has many names and few series per name. Half of
//! the series are counters, a quarter is constant, and a quarter is noise with two decimals.

use std::time::Duration;

use serde_json::{Value, json};
use tideline_fleet::Random;
use tideline_fleet::remote_write::{Metadata, Series, Template};
use tideline_model::{Clock, SystemClock};

use crate::benchmark::{Benchmark, MEBIBYTE, parts};
use crate::control::Control;
use crate::error::Result;
use crate::folder;
use crate::latency::answer_time;
use crate::load::{Route, load_bodies};
use crate::peer::Rounds;
use crate::queries::{CheckedRequest, QUERY, checked_request};
use crate::report::{Report, Unit, Wanted};
use crate::set::{DEFAULT_TABLE, HOUR, Scale};
use crate::wanted;

/// Number of samples per request: the default maximum of Prometheus.
pub(crate) const REQUEST_SERIES: usize = 2_000;
/// Nanoseconds between two scrapes.
pub(crate) const SCRAPE: i64 = 15_000_000_000;
pub(crate) const SUBSYSTEMS: [&str; 5] = ["cpu", "disk", "filesystem", "memory", "network"];
/// Number of metric names per subsystem.
pub(crate) const NAMES: usize = 50;
pub(crate) const DEVICES: [&str; 2] = ["sda", "sdb"];
/// Help text of every metric, of typical length.
pub(crate) const HELP: &str = "The number of events that the kernel has counted since it was started.";

/// Version of the remote write protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    V1,
    V2,
}

/// Scrapes of a group of hosts at a fixed interval.
#[derive(Debug)]
pub(crate) struct Scrapes {
    pub(crate) hosts: usize,
    /// Number of the first host. The two versions use different hosts, because both may be sent to one
    /// server.
    pub(crate) first_host: usize,
    /// Number of scrapes per host.
    pub(crate) rounds: usize,
    /// First timestamp in nanoseconds.
    pub(crate) start: i64,
}

impl Benchmark {
    /// Runs the group `prometheus`.
    pub(crate) fn run_prometheus(&self, report: &mut Report) -> Result<()> {
        self.run_remote_write(Version::V1, report)?;
        self.run_remote_write(Version::V2, report)?;
        self.run_promql(report)?;
        match &self.peer {
            Some(peer) => self.run_peer(peer, report),
            None => Ok(()),
        }
    }

    /// Loads all samples, seals, waits until the server is idle, and checks the number of stored samples. Reports
    /// throughput, memory and disk usage.
    fn run_remote_write(&self, version: Version, report: &mut Report) -> Result<()> {
        let name = version.name();
        let scrapes = self.scrapes(version);
        let samples = scrapes.samples() as f64;
        let content = format!(
            "{} hosts of {} series, scraped {} times, {REQUEST_SERIES} samples a request",
            scrapes.hosts,
            scrapes.series_of_host(),
            scrapes.rounds
        );
        let (mut server, data) = self.fresh("prometheus", &content)?;
        let before = server.cpu_time()?;
        let loaded = load_bodies(
            server.address(),
            &version.route(),
            self.connections,
            scrapes.requests(version),
        )?;
        let after_load = server.cpu_time()? - before;
        Control::open(&server)?.seal()?;
        server.drain()?;
        let cpu = server.cpu_time()? - before;
        report.add(
            name,
            samples / cpu.as_secs_f64() / 1e6,
            Unit::MillionValuesPerCpuSecond,
            wanted::REMOTE_WRITE,
        );
        add_load(report, name, samples, Some(after_load), loaded.wall);
        let peak = server.peak_resident_bytes()? as f64 / MEBIBYTE;
        report.add(
            format!("peak memory of {name}"),
            peak,
            Unit::Mebibytes,
            Wanted::Nothing,
        );
        let usage = folder::usage(&data)?;
        report.add(
            format!("disk of {name}"),
            usage.bytes as f64 / samples,
            Unit::BytesPerValue,
            Wanted::Nothing,
        );
        report.note(format!(
            "{name}: {:.1} M samples, {:.1} bytes each as sent, {} refusals; CPU {:.2} s until the last acknowledgement, \
             {:.2} s with seals and folds; disk: {}",
            samples / 1e6,
            loaded.bytes as f64 / samples,
            loaded.refusals,
            after_load.as_secs_f64(),
            cpu.as_secs_f64(),
            parts(&usage, samples),
        ));
        answer_time(&mut server.connect()?, &scrapes.count(0))?;
        server.kill();
        self.forget(&data)
    }

    /// Returns the scrapes of 40 hosts in the last three hours; at [`Scale::Quick`], only 40 scrapes of each host.
    pub(crate) fn scrapes(&self, version: Version) -> Scrapes {
        let rounds = match self.scale {
            Scale::Full => (3 * HOUR / SCRAPE) as usize,
            Scale::Quick => 40,
        };
        let now = SystemClock.now().nanos();
        let end = now - now.rem_euclid(SCRAPE);
        Scrapes {
            hosts: 40,
            first_host: match version {
                Version::V1 => 0,
                Version::V2 => 40,
            },
            rounds,
            start: end - rounds as i64 * SCRAPE,
        }
    }
}

impl Version {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::V1 => "remote write 1.0",
            Self::V2 => "remote write 2.0",
        }
    }

    pub(crate) fn route(self) -> Route {
        Route {
            path: "/api/v1/write".into(),
            headers: match self {
                Self::V1 => "Content-Type: application/x-protobuf\r\nContent-Encoding: snappy",
                Self::V2 => {
                    "Content-Type: application/x-protobuf;proto=io.prometheus.write.v2.Request\r\n\
                     Content-Encoding: snappy"
                }
            },
        }
    }
}

impl Scrapes {
    pub(crate) fn series_of_host(&self) -> usize {
        SUBSYSTEMS.len() * NAMES * DEVICES.len()
    }

    pub(crate) fn samples(&self) -> usize {
        self.hosts * self.series_of_host() * self.rounds
    }

    /// Returns the series of all hosts in scrape order.
    fn series(&self) -> Vec<Series> {
        let of_host = |host: usize| {
            let names = SUBSYSTEMS
                .iter()
                .flat_map(|subsystem| (0..NAMES).map(move |name| (*subsystem, name)));
            let devices = move |(subsystem, name)| {
                DEVICES
                    .iter()
                    .map(move |device| one(host, subsystem, name, device))
            };
            names.flat_map(devices)
        };
        let hosts = self.first_host..self.first_host + self.hosts;
        hosts.flat_map(of_host).collect()
    }

    /// Returns a generator of requests: one scrape of all hosts after another.
    pub(crate) fn requests(&self, version: Version) -> impl FnMut(&mut Vec<u8>) + Send + use<> {
        let template = match version {
            Version::V1 => Template::v1,
            Version::V2 => Template::v2,
        };
        let rounds = Rounds {
            start: self.start,
            step: SCRAPE,
            count: self.rounds,
        };
        Requests::new(&self.series(), template, rounds).make(value)
    }

    /// Returns a query that counts all samples: those of the series and `further` others.
    pub(crate) fn count(&self, further: usize) -> CheckedRequest<'static> {
        const FIELD: &str = "value";
        let expected = (self.samples() + further) as f64;
        let body = json!({
            "timelines": {"where": {"tag": "job", "equals": "node"}},
            "fields": [FIELD],
            "range": {"start": self.start, "end": self.start + self.rounds as i64 * SCRAPE},
            "aggregate": {"functions": ["count"]},
        });
        // The result has one row per metric name.
        checked_request(DEFAULT_TABLE, QUERY, &body, move |response: &Value| {
            let rows = response["series"].as_array().into_iter().flatten();
            let counts = rows.filter_map(|series| series["points"][0][1].as_f64());
            match counts.sum::<f64>() {
                found if found == expected => Ok(()),
                found => Err(format!("{expected} samples expected, {found} found")),
            }
        })
    }
}

/// Requests with one sample per series, for one timestamp after another.
#[derive(Debug)]
pub(crate) struct Requests {
    templates: Vec<Template>,
    rounds: Rounds,
}

impl Requests {
    pub(crate) fn new(series: &[Series], template: fn(&[Series]) -> Template, rounds: Rounds) -> Self {
        Self {
            templates: series.chunks(REQUEST_SERIES).map(template).collect(),
            rounds,
        }
    }

    /// Returns a generator of compressed requests. `value` returns the sample of a series in a round; it is
    /// called in sending order.
    pub(crate) fn make(
        self,
        mut value: impl FnMut(usize, usize) -> f64 + Send,
    ) -> impl FnMut(&mut Vec<u8>) + Send {
        let Self { templates, rounds } = self;
        let (mut next, mut message, mut encoder) = (0, Vec::new(), snap::raw::Encoder::new());
        move |body: &mut Vec<u8>| {
            let (round, part) = (next / templates.len(), next % templates.len());
            if round == rounds.count {
                return;
            }
            next += 1;
            let millis = (rounds.start + round as i64 * rounds.step) / 1_000_000;
            message.clear();
            let number = |place| value(part * REQUEST_SERIES + place, round);
            templates[part].write(millis, number, &mut message);
            body.resize(snap::raw::max_compress_len(message.len()), 0);
            let length = encoder
                .compress(&message, body)
                .expect("a request is far below 4 GiB");
            body.truncate(length);
        }
    }
}

/// Reports the cost of a load until the last acknowledgement; CPU time only if it is known.
pub(crate) fn add_load(report: &mut Report, name: &str, samples: f64, cpu: Option<Duration>, wall: Duration) {
    if let Some(cpu) = cpu {
        report.add(
            format!("{name}, until the last acknowledgement"),
            samples / cpu.as_secs_f64() / 1e6,
            Unit::MillionValuesPerCpuSecond,
            Wanted::Nothing,
        );
    }
    report.add(
        format!("{name}, by the clock"),
        samples / wall.as_secs_f64() / 1e6,
        Unit::MillionValuesPerSecond,
        Wanted::Nothing,
    );
}

fn one(host: usize, subsystem: &str, name: usize, device: &str) -> Series {
    let name = format!("node_{subsystem}_events_of_kind_{name}_total");
    let [cluster, rest @ ..] = host_labels(host);
    let labels = [("__name__", name), cluster, ("device", device.into())];
    Series {
        labels: labels
            .into_iter()
            .chain(rest)
            .map(|(name, value)| (name.to_owned(), value))
            .collect(),
        metadata: Some(Metadata {
            kind: 1,
            help: HELP.into(),
            ..Metadata::default()
        }),
        ..Series::default()
    }
}

/// Returns the labels of a host.
pub(crate) fn host_labels(host: usize) -> [(&'static str, String); 6] {
    [
        ("cluster", "prod-eu-central-1".into()),
        ("instance", format!("10.12.{}.{}:9100", host / 250, host % 250)),
        ("job", "node".into()),
        ("namespace", "monitoring".into()),
        (
            "pod",
            format!("node-exporter-{:05x}", Random::new(host as u64).bits() & 0xf_ffff),
        ),
        ("zone", format!("eu-central-1{}", ["a", "b", "c"][host % 3])),
    ]
}

/// Returns the sample of a series at a scrape.
pub(crate) fn value(series: usize, round: usize) -> f64 {
    match series % 4 {
        0 | 1 => (series * 7_919 + round * 15 * (series % 97 + 1)) as f64,
        2 => (series % 1_000) as f64,
        _ => (Random::new((series * 1_000_003 + round) as u64).bits() % 10_000) as f64 / 100.0,
    }
}

//! Metrics as an OpenTelemetry collector sends them: Protocol Buffers over HTTP, 2,000 data points per request, each
//! request acknowledged after its sync.
//!
//! The series are those of the group `prometheus`, with the same labels: 250 metrics for each of two devices on each
//! of 40 hosts. Two of the labels are attributes of the resource. The figures can therefore be compared with remote
//! write. Unlike in remote write 2.0, each point repeats the names and values of its attributes. Unlike in both
//! versions, each point has a start time.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use tideline_fleet::otlp::{Data, Metric, Point, Request, Resource, Scope, Template, texts};

use crate::benchmark::{Benchmark, MEBIBYTE, parts};
use crate::control::Control;
use crate::error::Result;
use crate::folder;
use crate::latency::answer_time;
use crate::load::{Route, load_bodies};
use crate::prometheus::{
    DEVICES, HELP, NAMES, REQUEST_SERIES, SCRAPE, SUBSYSTEMS, Scrapes, Version, add_load, host_labels, value,
};
use crate::report::{Report, Unit, Wanted};
use crate::wanted;

/// gzip level of the requests. A collector uses 6, the default of Go's library; the level makes no difference to the
/// server.
const GZIP_LEVEL: u32 = 3;
/// zstd level of the requests; a collector uses the same level.
const ZSTD_LEVEL: i32 = 3;

/// Compression of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Packing {
    Gzip,
    Zstd,
}

impl Benchmark {
    /// Runs the group `otlp`.
    pub(crate) fn run_otlp(&self, report: &mut Report) -> Result<()> {
        self.run_metrics(Packing::Gzip, report)?;
        self.run_metrics(Packing::Zstd, report)
    }

    /// Loads all data points, seals, waits until the server is idle, reports figures, and checks the number of
    /// stored points.
    fn run_metrics(&self, packing: Packing, report: &mut Report) -> Result<()> {
        let name = packing.name();
        let scrapes = self.scrapes(Version::V2);
        let points = scrapes.samples() as f64;
        let content = format!(
            "{} hosts of {} series, sent {} times, {REQUEST_SERIES} data points a request",
            scrapes.hosts,
            scrapes.series_of_host(),
            scrapes.rounds
        );
        let (mut server, data) = self.fresh("otlp", &content)?;
        let before = server.cpu_time()?;
        let loaded = load_bodies(
            server.address(),
            &packing.route(),
            self.connections,
            requests(&scrapes, packing),
        )?;
        let after_load = server.cpu_time()? - before;
        Control::open(&server)?.seal()?;
        server.drain()?;
        let cpu = server.cpu_time()? - before;
        report.add(
            name,
            points / cpu.as_secs_f64() / 1e6,
            Unit::MillionValuesPerCpuSecond,
            wanted::OTLP,
        );
        add_load(report, name, points, Some(after_load), loaded.wall);
        let peak = server.peak_resident_bytes()? as f64 / MEBIBYTE;
        report.add(
            format!("peak memory of {name}"),
            peak,
            Unit::Mebibytes,
            Wanted::Nothing,
        );
        let usage = folder::usage(&data)?;
        report.note(format!(
            "{name}: {:.1} M data points, {:.1} bytes each as sent, {} refusals; CPU {:.2} s until the last \
             acknowledgement, {:.2} s with seals and folds; disk: {}",
            points / 1e6,
            loaded.bytes as f64 / points,
            loaded.refusals,
            after_load.as_secs_f64(),
            cpu.as_secs_f64(),
            parts(&usage, points),
        ));
        // Each resource has a sample of `target_info` per request.
        let targets = scrapes.hosts * scrapes.rounds;
        answer_time(&mut server.connect()?, &scrapes.count(targets))?;
        server.kill();
        self.forget(&data)
    }
}

impl Packing {
    const fn name(self) -> &'static str {
        match self {
            Self::Gzip => "OTLP metrics, gzip",
            Self::Zstd => "OTLP metrics, zstd",
        }
    }

    fn route(self) -> Route {
        Route {
            path: "/v1/metrics".into(),
            headers: match self {
                Self::Gzip => "Content-Type: application/x-protobuf\r\nContent-Encoding: gzip",
                Self::Zstd => "Content-Type: application/x-protobuf\r\nContent-Encoding: zstd",
            },
        }
    }

    /// Compresses a message into `body`.
    fn pack(self, message: &[u8], body: &mut Vec<u8>) {
        let memory = "writing to memory does not fail";
        match self {
            Self::Gzip => {
                let mut encoder = GzEncoder::new(body, Compression::new(GZIP_LEVEL));
                encoder.write_all(message).expect(memory);
                encoder.finish().expect(memory);
            }
            Self::Zstd => zstd::stream::copy_encode(message, body, ZSTD_LEVEL).expect(memory),
        }
    }
}

/// Returns a generator of compressed requests: one scrape of all hosts after another.
fn requests(scrapes: &Scrapes, packing: Packing) -> impl FnMut(&mut Vec<u8>) + Send + use<> {
    let hosts = REQUEST_SERIES / scrapes.series_of_host();
    let all: Vec<usize> = (scrapes.first_host..scrapes.first_host + scrapes.hosts).collect();
    let mut templates: Vec<Template> = all.chunks(hosts).map(template).collect();
    let (start, rounds) = (scrapes.start, scrapes.rounds);
    let mut next = 0;
    move |body: &mut Vec<u8>| {
        let (round, part) = (next / templates.len(), next % templates.len());
        if round == rounds {
            return;
        }
        next += 1;
        let time = (start + round as i64 * SCRAPE).cast_unsigned();
        let number = |place| value(part * REQUEST_SERIES + place, round);
        packing.pack(templates[part].fill(time, number), body);
    }
}

/// Returns the template of a request with all series of these hosts.
fn template(hosts: &[usize]) -> Template {
    let resources = hosts.iter().map(|host| resource(*host)).collect();
    Template::new(&Request { resources })
}

fn resource(host: usize) -> Resource {
    let labels = host_labels(host);
    let of_host = |device: &str| {
        let mut attributes = vec![("device".to_owned(), device.into())];
        let outer = ["instance", "job"];
        let own = labels.iter().filter(|(name, _)| !outer.contains(name));
        attributes.extend(own.map(|(name, value)| ((*name).to_owned(), value.as_str().into())));
        Point {
            attributes,
            start: 1_790_000_000_000_000_000,
            time: Template::TIME,
            value: Some(Template::VALUE),
            ..Point::default()
        }
    };
    let metric = |subsystem: &str, number: usize| Metric {
        name: format!("node.{subsystem}.events_of_kind_{number}"),
        description: HELP.into(),
        data: Data::Sum {
            points: DEVICES.iter().map(|device| of_host(device)).collect(),
            temporality: 2,
            is_monotonic: true,
        },
        ..Metric::default()
    };
    let metrics = SUBSYSTEMS
        .iter()
        .flat_map(|subsystem| (0..NAMES).map(move |number| metric(subsystem, number)));
    let value = |wanted: &str| {
        let label = labels.iter().find(|(name, _)| *name == wanted);
        label.map_or("", |(_, value)| value)
    };
    Resource {
        attributes: texts(&[
            ("service.name", value("job")),
            ("service.instance.id", value("instance")),
            ("telemetry.sdk.language", "go"),
        ]),
        scopes: vec![Scope {
            name: "node".into(),
            metrics: metrics.collect(),
            ..Scope::default()
        }],
    }
}

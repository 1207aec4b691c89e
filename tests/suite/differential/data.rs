//! Data of the differential test: counters with resets, gauges with gaps and staleness markers, extreme
//! values, buckets.
//!
//! The data is generated from a fixed seed; only the queries vary.

use std::collections::BTreeMap;

use tideline_fleet::Random;
use tideline_fleet::remote_write::{Sample, Series, WriteRequest};
use tideline_tests::Client;

/// First timestamp, in milliseconds since the epoch.
pub(super) const START: i64 = 1_767_225_600_000;
/// Exclusive upper bound of the timestamps.
pub(super) const END: i64 = START + 2 * 3_600_000;

/// Milliseconds between two samples of a series.
const STEP: i64 = 15_000;
/// Milliseconds covered by one request. Samples are sent in time order, as Prometheus requires.
const REQUEST: i64 = 300_000;
/// Bits of the staleness marker.
const STALE: u64 = 0x7ff0_0000_0000_0002;
const INSTANCES: usize = 5;

type Labels = Vec<(String, String)>;

/// Returns all samples, in requests in time order.
pub(super) fn requests() -> Vec<WriteRequest> {
    let mut random = Random::new(7);
    let all = series(&mut random);
    let mut requests = Vec::new();
    for from in (START..END).step_by(REQUEST as usize) {
        let mut request = WriteRequest::default();
        for (labels, samples) in &all {
            let samples: Vec<Sample> = samples
                .range(from..from + REQUEST)
                .map(|(millis, value)| Sample {
                    value: *value,
                    millis: *millis,
                    start: 0,
                })
                .collect();
            if !samples.is_empty() {
                request.series.push(Series {
                    labels: labels.clone(),
                    samples,
                    ..Series::default()
                });
            }
        }
        requests.push(request);
    }
    requests
}

/// Sends a request.
pub(super) fn send(client: &Client, request: &WriteRequest) {
    let body = snap::raw::Encoder::new()
        .compress_vec(&request.to_v1())
        .expect("it is small");
    let headers = [
        ("Content-Encoding", "snappy"),
        ("Content-Type", "application/x-protobuf"),
        ("X-Prometheus-Remote-Write-Version", "0.1.0"),
    ];
    let outcome = client.send("POST", "/api/v1/write", &headers, &body);
    outcome
        .unwrap_or_else(|error| panic!("{error}"))
        .expect_status(204);
}

fn series(random: &mut Random) -> Vec<(Labels, BTreeMap<i64, f64>)> {
    let mut all = Vec::new();
    for instance in 0..INSTANCES {
        for job in ["api", "web"] {
            let labels = |metric: &str, more: &[(&str, &str)]| labels_of(metric, job, instance, more);
            for code in ["200", "404", "500"] {
                let samples = counter(random, instance, 20.0);
                all.push((labels("requests_total", &[("code", code)]), samples));
            }
            all.push((labels("errors_total", &[]), counter(random, instance, 0.7)));
            all.push((labels("temperature", &[]), temperature(random, instance)));
            all.push((labels("sparse", &[]), sparse(random, instance)));
            all.push((labels("strange", &[]), strange(random, instance)));
            buckets(random, instance, &mut all, labels);
        }
    }
    all
}

fn labels_of(metric: &str, job: &str, instance: usize, more: &[(&str, &str)]) -> Labels {
    let instance_name = format!("i{instance}");
    let zone = format!("z{}", instance % 2);
    let mut labels: BTreeMap<&str, &str> = more.iter().copied().collect();
    labels.extend([("__name__", metric), ("job", job), ("instance", &instance_name)]);
    if instance < 3 {
        labels.insert("zone", &zone);
    }
    let pairs = labels.into_iter();
    pairs
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// Returns the timestamps of a series: machines are scraped at different times, and some scrapes are late.
fn instants(random: &mut Random, instance: usize) -> Vec<i64> {
    let first = START + 2_000 * instance as i64;
    let late = |random: &mut Random| if random.index(9) == 0 { 1_000 } else { 0 };
    (first..END)
        .step_by(STEP as usize)
        .map(|at| at + late(random))
        .filter(|at| *at < END)
        .collect()
}

fn counter(random: &mut Random, instance: usize, most: f64) -> BTreeMap<i64, f64> {
    let mut total = 0.0;
    let mut samples = BTreeMap::new();
    for at in instants(random, instance) {
        total += (random.unit() * most).floor();
        if random.index(150) == 0 {
            total = 0.0;
        }
        samples.insert(at, total);
    }
    samples
}

fn temperature(random: &mut Random, instance: usize) -> BTreeMap<i64, f64> {
    let instants = instants(random, instance);
    let mut value = 20.0 + 10.0 * random.unit();
    let values = instants.into_iter().map(|at| {
        value += random.normal();
        (at, value)
    });
    values.collect()
}

/// Returns a gauge with a third of its samples, and with some staleness markers.
fn sparse(random: &mut Random, instance: usize) -> BTreeMap<i64, f64> {
    let mut samples = BTreeMap::new();
    for at in instants(random, instance) {
        match random.index(30) {
            0 => samples.insert(at, f64::from_bits(STALE)),
            1..=10 => samples.insert(at, (random.unit() * 100.0).floor()),
            _ => None,
        };
    }
    samples
}

fn strange(random: &mut Random, instance: usize) -> BTreeMap<i64, f64> {
    const VALUES: [f64; 10] = [
        0.0,
        -0.0,
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        1e300,
        -1e-300,
        0.1,
        9_007_199_254_740_993.0,
        -17.0,
    ];
    let instants = instants(random, instance);
    instants
        .into_iter()
        .map(|at| (at, VALUES[random.index(VALUES.len())]))
        .collect()
}

fn buckets(
    random: &mut Random,
    instance: usize,
    all: &mut Vec<(Labels, BTreeMap<i64, f64>)>,
    labels: impl Fn(&str, &[(&str, &str)]) -> Labels,
) {
    let bounds = ["0.1", "0.5", "1", "5", "+Inf"];
    let instants = instants(random, instance);
    let mut series = vec![BTreeMap::new(); bounds.len()];
    let mut totals = vec![0.0; bounds.len()];
    for at in instants {
        let mut more = 0.0;
        for (samples, total) in series.iter_mut().zip(&mut totals) {
            more += (random.unit() * 5.0).floor();
            *total += more;
            samples.insert(at, *total);
        }
    }
    for (bound, samples) in bounds.iter().zip(series) {
        all.push((labels("latency_bucket", &[("le", bound)]), samples));
    }
}

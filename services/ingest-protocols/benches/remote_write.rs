//! Throughput of the remote write decoders on one core, with a resolver that has all series cached.
//!
//! Run with `cargo bench -p tideline-ingest-protocols --bench remote_write`. Each figure is the best of several runs
//! over a request of 2,000 series with one sample each, which reduces the influence of other work on the machine.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::hint::black_box;
use std::time::{Duration, Instant};

use tideline_fleet::remote_write::{Series, Template};
use tideline_ingest_protocols::DecodeOptions;
use tideline_ingest_protocols::prometheus::{DecodedSamples, decode_write, decode_write_v2};
use tideline_model::{Ordinal, RejectReason, SeriesResolver, Timestamp};

const SERIES: usize = 2_000;
const RUNS: usize = 200;

/// Resolver that finds series by a cheap hash of their keys, in place of the cache of the catalog.
#[derive(Default)]
struct KnownResolver(HashMap<Box<[u8]>, Ordinal, BuildHasherDefault<WordHasher>>);

/// Hasher that mixes words of eight bytes. It is as fast as the hasher of the catalog, without a dependency on its
/// crate.
#[derive(Default)]
struct WordHasher(u64);

impl Hasher for WordHasher {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        let mix = |hash: u64, word: u64| (hash.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
        let mixed = words
            .iter()
            .fold(self.0, |hash, word| mix(hash, u64::from_le_bytes(*word)));
        self.0 = rest.iter().fold(mixed, |hash, byte| mix(hash, u64::from(*byte)));
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl SeriesResolver for KnownResolver {
    fn resolve(&mut self, key: &[u8]) -> Result<Ordinal, RejectReason> {
        if let Some(known) = self.0.get(key) {
            return Ok(*known);
        }
        let next = Ordinal(self.0.len() as u32);
        self.0.insert(key.into(), next);
        Ok(next)
    }
}

type Decode = fn(&[u8], &DecodeOptions, &mut KnownResolver) -> DecodedSamples;

fn main() {
    // `cargo test --benches` also runs this; one run is then enough.
    let runs = if std::env::args().any(|argument| argument == "--bench") {
        RUNS
    } else {
        1
    };
    let v1: Decode = |body, options, resolver| decode_write(body, options, resolver).expect("a message");
    let v2: Decode = |body, options, resolver| {
        decode_write_v2(body, options, resolver, &|_, _, _, _| false).expect("a message")
    };
    for names in [1, 250, 2_000] {
        let series = series(names);
        measure("1.0", names, &Template::v1(&series), v1, runs);
        measure("2.0", names, &Template::v2(&series), v2, runs);
    }
}

fn measure(version: &str, names: usize, template: &Template, decode: Decode, runs: usize) {
    let mut body = Vec::new();
    template.write(1_795_176_000_000, |place| place as f64 * 1.5, &mut body);
    let options = DecodeOptions::new(Timestamp::EPOCH);
    let mut resolver = KnownResolver::default();
    let mut best = Duration::MAX;
    for _ in 0..=runs {
        let start = Instant::now();
        let decoded = decode(black_box(&body), &options, &mut resolver);
        best = best.min(start.elapsed());
        assert_eq!(
            (decoded.batch.rows(), decoded.batch.groups.len()),
            (SERIES, names)
        );
    }
    println!(
        "version {version}, {names:5} names {:6.0} ns per sample of {} bytes",
        best.as_secs_f64() * 1e9 / SERIES as f64,
        body.len() / SERIES,
    );
}

/// Returns series with eight labels each. Consecutive series cycle through `names` metric names.
fn series(names: usize) -> Vec<Series> {
    let one = |place: usize| {
        let labels = [
            (
                "__name__",
                format!("node_disk_events_of_kind_{}_total", place % names),
            ),
            ("cluster", "prod-eu-central-1".into()),
            ("device", format!("sd{}", place / names)),
            ("instance", "10.12.0.17:9100".into()),
            ("job", "node".into()),
            ("namespace", "monitoring".into()),
            ("pod", "node-exporter-7f3a9".into()),
            ("zone", "eu-central-1a".into()),
        ];
        Series {
            labels: labels.map(|(name, value)| (name.to_owned(), value)).into(),
            ..Series::default()
        }
    };
    (0..SERIES).map(one).collect()
}

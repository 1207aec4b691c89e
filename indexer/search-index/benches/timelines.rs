//! Benchmark of 200,000 timelines with ten tags each: cost of catalog and index, and latency of searches.
//!
//! Run with `cargo bench -p tideline-search-index`. The tags resemble TSBS `cpu`: each machine has one timeline, and
//! all tags except the host name have values from small sets.

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tideline_backend::Stamp;
use tideline_backend::memory::{Character, MemoryBackend, MemoryDisk};
use tideline_condition::operators::{Prefix, Regex};
use tideline_condition::{Condition, Subject};
use tideline_model::{Identity, Ordinal, TableId};
use tideline_search_index::{
    FindRequest, IndexOptions, SearchIndex, Seen, SeenLookup, Sort, SortBy, SortDirection,
};
use tideline_timeline_catalog::{Catalog, CatalogOptions, LastKey, RawKeyBudget};

const TIMELINES: u32 = 200_000;
const TABLE: TableId = TableId(1);

struct NeverSeen;

impl SeenLookup for NeverSeen {
    fn seen(&self, ordinals: &[Ordinal]) -> Vec<Option<Seen>> {
        vec![None; ordinals.len()]
    }
}

fn main() {
    let catalog = Arc::new(Catalog::new(TABLE, options()));
    register(&catalog);
    save_and_load(&catalog);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("index");
    let index = SearchIndex::open(&path, IndexOptions::default()).expect("a new index");
    let naive = Instant::now();
    let found = index.search(&catalog, &two_equals(7), &NeverSeen).expect("valid");
    println!(
        "two equals, nothing indexed     {:>9.1} ms ({} hits)",
        millis(naive.elapsed()),
        found.len()
    );
    build(&index, &catalog, &path);
    for (name, condition) in queries() {
        latency(name, |n| {
            index
                .search(&catalog, &condition(n), &NeverSeen)
                .expect("valid")
                .len()
        });
    }
    let page = |sort: Vec<Sort>, condition: Condition| FindRequest {
        condition,
        sort,
        limit: 100,
        ..FindRequest::default()
    };
    let find = |request: &FindRequest| index.find(&catalog, request, &NeverSeen).expect("valid").total;
    latency("page of 100, two equals", |n| {
        find(&page(Vec::new(), two_equals(n)))
    });
    let by_source = || Sort {
        by: SortBy::Subject(Subject::Source),
        order: SortDirection::Ascending,
    };
    latency("page of 100 of all, by source", |_| {
        find(&page(vec![by_source()], Condition::All))
    });
    let names = Instant::now();
    let listed = catalog.reader().tag_values(
        "hostname",
        &tideline_timeline_catalog::NameSelection {
            prefix: "host_19",
            after: None,
            limit: 100,
        },
    );
    println!(
        "list 100 of 200,000 tag values  {:>9.1} ms ({})",
        millis(names.elapsed()),
        listed.len()
    );
    let reopened = Instant::now();
    drop(index);
    let index = SearchIndex::open(&path, IndexOptions::default()).expect("the index");
    index.attach(Arc::clone(&catalog));
    index.flush().expect("a sound disk");
    println!(
        "close, open, validate, compare  {:>9.1} ms",
        millis(reopened.elapsed())
    );
}

fn options() -> CatalogOptions {
    CatalogOptions {
        source_tags: vec!["hostname".to_owned()],
        raw_key_budget: Arc::new(RawKeyBudget::new(128 << 20)),
        unflushed: Arc::default(),
    }
}

fn tags(n: u32) -> Vec<(String, String)> {
    let region = [
        "us-east-1",
        "us-west-1",
        "us-west-2",
        "eu-west-1",
        "eu-central-1",
        "sa-east-1",
    ];
    let region = region[n as usize % region.len()];
    let pairs = [
        ("arch", ["x64", "x86"][n as usize / 3 % 2].to_owned()),
        (
            "datacenter",
            format!("{region}{}", ["a", "b", "c"][n as usize % 3]),
        ),
        ("hostname", format!("host_{n}")),
        (
            "os",
            ["Ubuntu16.10", "Ubuntu16.04LTS", "Ubuntu15.10"][n as usize / 7 % 3].to_owned(),
        ),
        (
            "rack",
            (n.wrapping_mul(2_654_435_761) >> 8)
                .wrapping_rem(1_000)
                .to_string(),
        ),
        ("region", region.to_owned()),
        ("service", (n / 11 % 20).to_string()),
        (
            "service_environment",
            ["production", "staging", "test"][n as usize / 13 % 3].to_owned(),
        ),
        ("service_version", (n / 17 % 2).to_string()),
        (
            "team",
            ["NYC", "SF", "LON", "CHI"][n as usize / 19 % 4].to_owned(),
        ),
    ];
    pairs.map(|(key, value)| (key.to_owned(), value)).to_vec()
}

fn register(catalog: &Catalog) {
    let named: Vec<(Identity, Vec<u8>)> = (0..TIMELINES)
        .map(|n| {
            let tags = tags(n);
            let mut raw = b"cpu".to_vec();
            for (key, value) in &tags {
                raw.extend_from_slice(format!(",{key}={value}").as_bytes());
            }
            (Identity::new("cpu".to_owned(), tags).expect("valid"), raw)
        })
        .collect();
    let lap = Lap::start();
    for (identity, raw) in &named {
        catalog.register(identity, Some(raw)).expect("room");
    }
    lap.print("register");
    let lap = Lap::start();
    catalog.mark_durable(&(0..TIMELINES).map(Ordinal).collect::<Vec<_>>());
    lap.print("mark durable");
    let lap = Lap::start();
    let (reader, mut last) = (catalog.reader(), LastKey::default());
    for (_, raw) in &named {
        black_box(reader.by_key(raw, &mut last)).expect("cached");
    }
    lap.print("look up by raw key");
    drop(reader);
    let raw: usize = named.iter().map(|(_, raw)| raw.len()).sum();
    print_bytes("memory with raw keys", catalog.memory_bytes());
    print_bytes("  of which text of raw keys", raw);
}

fn save_and_load(catalog: &Catalog) {
    let backend = MemoryBackend::open(&MemoryDisk::new(Character::Embedded));
    let mut stamp = 0;
    let mut next = || {
        stamp += 1;
        Ok(Stamp(stamp))
    };
    let lap = Lap::start();
    catalog
        .write_rows(&backend, &mut next)
        .expect("memory does not fail");
    lap.print("save (memory backend)");
    let lap = Lap::start();
    let loaded = Catalog::load(&backend, TABLE, options()).expect("sound rows");
    lap.print("load (memory backend)");
    assert_eq!(loaded.len(), u64::from(TIMELINES));
    print_bytes("memory without raw keys", loaded.memory_bytes());
}

fn build(index: &SearchIndex, catalog: &Arc<Catalog>, folder: &Path) {
    let lap = Lap::start();
    index.attach(Arc::clone(catalog));
    index.flush().expect("a sound disk");
    lap.print("build");
    print_bytes("index on disk", folder_bytes(folder));
}

/// Measurement of a step over all timelines, in wall time and in CPU time of all threads.
struct Lap {
    start: Instant,
    cpu_seconds: f64,
}

impl Lap {
    fn start() -> Self {
        Self {
            start: Instant::now(),
            cpu_seconds: cpu_seconds(),
        }
    }

    fn print(self, name: &str) {
        let elapsed = millis(self.start.elapsed());
        let cpu = 1_000.0 * (cpu_seconds() - self.cpu_seconds);
        let rate = f64::from(TIMELINES) * 1_000.0 / cpu;
        println!("{name:<32}{elapsed:>9.1} ms {cpu:>9.0} ms CPU, {rate:.0} per CPU-second");
    }
}

fn print_bytes(name: &str, bytes: usize) {
    println!(
        "{name:<32}{:>9.1} bytes per timeline",
        bytes as f64 / f64::from(TIMELINES)
    );
}

type NamedQuery = (&'static str, fn(u32) -> Condition);

fn queries() -> [NamedQuery; 9] {
    [
        ("two equals, few hits", two_equals),
        ("two equals, one matches half", |n| {
            Condition::And(vec![
                Condition::tag("arch", "x64"),
                Condition::tag("rack", (n % 1_000).to_string()),
            ])
        }),
        ("one equal, one hit", |n| {
            Condition::tag("hostname", format!("host_{n}"))
        }),
        ("one equal, half of all", |_| Condition::tag("arch", "x64")),
        ("two equals, a sixth of all", |_| {
            Condition::And(vec![Condition::tag("arch", "x64"), Condition::tag("team", "SF")])
        }),
        ("prefix, 111 hits", |n| {
            let prefix = format!("host_1{:02}", n % 100);
            Condition::leaf(Subject::Tag("hostname".to_owned()), Prefix(prefix))
        }),
        ("regex over all 200,000 values", |n| {
            let regex = format!("host_.*{:02}7", n % 100);
            Condition::leaf(Subject::Tag("hostname".to_owned()), Regex(regex))
        }),
        ("equal and regex over all", |n| {
            let regex = format!("host_.*{:02}7", n % 100);
            let regex = Condition::leaf(Subject::Tag("hostname".to_owned()), Regex(regex));
            Condition::And(vec![regex, Condition::tag("rack", (n % 1_000).to_string())])
        }),
        ("not equal, nearly all", |n| {
            Condition::Not(Box::new(Condition::tag("rack", (n % 1_000).to_string())))
        }),
    ]
}

fn two_equals(n: u32) -> Condition {
    let rack = (n % 1_000).to_string();
    Condition::And(vec![
        Condition::tag("rack", rack),
        Condition::tag("service", (n % 20).to_string()),
    ])
}

/// Prints the median and 99th percentile of 500 calls, each with a different parameter.
fn latency(name: &str, mut call: impl FnMut(u32) -> u64) {
    let mut times = Vec::new();
    let mut hits = 0;
    for n in 0..500u32 {
        let start = Instant::now();
        hits += call(n.wrapping_mul(7_919) % TIMELINES);
        times.push(start.elapsed());
    }
    times.sort_unstable();
    println!(
        "{name:<32}{:>9.3} ms p50 {:>9.3} ms p99 ({} hits each)",
        millis(times[249]),
        millis(times[494]),
        hits / 500
    );
}

fn millis(elapsed: Duration) -> f64 {
    elapsed.as_secs_f64() * 1_000.0
}

/// Returns the CPU time of all threads of this process so far; 0 if the system does not report it.
fn cpu_seconds() -> f64 {
    let Ok(stat) = std::fs::read_to_string("/proc/self/stat") else {
        return 0.0;
    };
    let fields: Vec<&str> = stat.split_whitespace().collect();
    let ticks = |at: usize| {
        fields
            .get(at)
            .and_then(|text| text.parse::<f64>().ok())
            .unwrap_or(0.0)
    };
    // Linux reports hundredths of a second on all common architectures.
    (ticks(13) + ticks(14)) / 100.0
}

fn folder_bytes(folder: &Path) -> usize {
    let files = std::fs::read_dir(folder).expect("a folder");
    let sizes = files.map(|file| file.and_then(|file| file.metadata()).map_or(0, |file| file.len()));
    sizes.sum::<u64>() as usize
}

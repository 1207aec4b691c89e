//! Benchmark of the two tiers: the cost of an idle cold store, and the effect of a large load on other operations.
//!
//! `cargo bench -p tideline-backend-fjall --bench tiers` prints one line per measurement. `TMPDIR` selects the disk.
//! The size of the load in MiB may be given as an argument.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tideline_backend::conformance::value_of;
use tideline_backend::{
    Backend, Direction, Epoch, JournalEntry, KeyRange, PageLimit, Partition, Row, SegmentRef, Shard,
};
use tideline_backend_fjall::{FjallBackend, FjallOptions};
use tideline_model::{Durability, GroupId, SegmentId, SequenceNumber, Tier};

const SHARD: Shard = Shard(0);
const HOT_ROWS: u64 = 10_000;
const ROUNDS: usize = 2_000;

fn main() {
    let mebibytes = std::env::args().find_map(|argument| argument.parse().ok());
    let mebibytes: u64 = mebibytes.unwrap_or(1_024);
    let folder = tempfile::tempdir().expect("a folder");
    let options = || FjallOptions {
        free_bytes_min: 0,
        free_per_mille_min: 0,
        ..FjallOptions::default()
    };
    let open = || FjallBackend::open(folder.path(), options()).expect("open");
    let chunks = Chunks::new();

    drop(open());
    idle("without a cold store", folder.path(), &open);
    let backend = open();
    let made = Instant::now();
    load(&backend, cold(1), &mut chunks.rows(20_000));
    println!("first cold load, which makes the store: {:?}", made.elapsed());
    backend.reclaim(cold(1)).expect("reclaim");
    backend.close().expect("close");
    drop(backend);
    drop(open());
    idle("with an empty cold store", folder.path(), &open);
    println!(
        "the empty cold folder occupies {} KiB",
        occupied(&folder.path().join("cold")) >> 10
    );

    let backend = open();
    let epoch = backend.take(SHARD).expect("take").epoch;
    load(&backend, hot(1), &mut (0..HOT_ROWS).map(|n| chunks.row(n)));
    let mut work = Work {
        backend: &backend,
        epoch,
        sequence: 0,
        version: 0,
    };
    // From now on the hot cache is full, so further growth of memory is caused by the load.
    read(&backend, hot(1));
    work.run("nothing else runs", &AtomicBool::new(false));
    for (what, segment) in [("a cold load runs", cold(2)), ("a hot load runs", hot(2))] {
        let is_loading = AtomicBool::new(true);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let before = resident();
                let mut peak = 0;
                let started = Instant::now();
                let mut rows = chunks
                    .rows(mebibytes << 20)
                    .inspect(|_| peak = resident().max(peak));
                load(&backend, segment, &mut rows);
                drop(rows);
                let rate = mebibytes as f64 / started.elapsed().as_secs_f64();
                println!("load of {mebibytes} MiB ({}): {rate:.0} MiB/s", segment.tier);
                println!("  memory {} MiB before, at most {} MiB", before >> 20, peak >> 20);
                is_loading.store(false, Ordering::Release);
            });
            work.run(what, &is_loading);
        });
    }
    for segment in [cold(2), hot(2)] {
        read(&backend, segment);
    }
    for segment in [cold(2), hot(2)] {
        let reclaims = Instant::now();
        backend.reclaim(segment).expect("reclaim");
        println!("reclaim ({}): {:?}", segment.tier, reclaims.elapsed());
    }
    backend.close().expect("close");
}

fn hot(segment: u64) -> SegmentRef {
    SegmentRef {
        segment: SegmentId(segment),
        group: GroupId(1),
        tier: Tier::Hot,
    }
}

fn cold(segment: u64) -> SegmentRef {
    SegmentRef {
        tier: Tier::Cold,
        ..hot(segment)
    }
}

fn load(
    backend: &FjallBackend,
    segment: SegmentRef,
    rows: &mut dyn Iterator<Item = tideline_backend::Result<Row>>,
) {
    backend.load(segment, 0, rows).expect("load");
}

/// Measures an idle backend: time to open it, threads, memory and disk space.
fn idle(what: &str, folder: &Path, open: &dyn Fn() -> FjallBackend) {
    let threads = || std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count);
    let (threads_before, memory_before) = (threads(), resident());
    let mut best = Duration::MAX;
    for _ in 0..5 {
        let opens = Instant::now();
        let backend = open();
        best = best.min(opens.elapsed());
        drop(backend);
    }
    let _backend = open();
    println!(
        "open {what}: {best:?}, {} threads, {} KiB of memory; the folder occupies {} KiB",
        threads() - threads_before,
        resident().saturating_sub(memory_before) >> 10,
        occupied(folder) >> 10
    );
}

/// Generator of chunks of 2 to 20 KiB that cannot be compressed.
struct Chunks {
    noise: Bytes,
}

impl Chunks {
    fn new() -> Self {
        let mut state = 7;
        let noise = (0..1 << 20).map(|_| random(&mut state) as u8);
        Self {
            noise: noise.collect::<Vec<u8>>().into(),
        }
    }

    fn row(&self, n: u64) -> tideline_backend::Result<Row> {
        let mut state = n + 1;
        let length = 2_048 + random(&mut state) as usize % 18_432;
        let at = random(&mut state) as usize % (self.noise.len() - length);
        Ok(Row {
            key: key(n),
            value: self.noise.slice(at..at + length),
        })
    }

    /// Returns rows with at least this many bytes in total.
    fn rows(&self, bytes: u64) -> impl Iterator<Item = tideline_backend::Result<Row>> {
        let mut left = bytes as i64;
        (0..).map_while(move |n| {
            let row = self.row(n).expect("a row");
            let is_wanted = left > 0;
            left -= row.value.len() as i64;
            is_wanted.then_some(Ok(row))
        })
    }
}

/// Returns a key with the length of a chunk key.
fn key(n: u64) -> Bytes {
    [n.to_be_bytes(), [7; 8], [1; 8]].concat().into()
}

fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^ (mixed >> 27)
}

/// Steady workload on the hot store.
struct Work<'a> {
    backend: &'a FjallBackend,
    epoch: Epoch,
    sequence: u64,
    version: u64,
}

impl Work<'_> {
    /// Runs for at least [`ROUNDS`] rounds, and as long as `goes_on` is true.
    fn run(&mut self, what: &str, goes_on: &AtomicBool) {
        let [mut appends, mut edits, mut gets] = [Vec::new(), Vec::new(), Vec::new()];
        let mut state = 3;
        while goes_on.load(Ordering::Acquire) || appends.len() < ROUNDS {
            self.sequence += 1;
            let entry = JournalEntry {
                sequence: SequenceNumber(self.sequence),
                value: Bytes::from(vec![7; 4_096]),
            };
            appends.push(timed(|| {
                let appended = self
                    .backend
                    .append(SHARD, self.epoch, &[entry], Durability::Synced);
                appended.expect("append");
            }));
            let wanted = key(random(&mut state) % HOT_ROWS);
            gets.push(timed(|| {
                let found = value_of(self.backend, Partition::segment(hot(1), 0), &wanted);
                assert!(found.expect("get").is_some());
            }));
            if appends.len() % 8 == 0 {
                edits.push(timed(|| {
                    let edited = self.backend.edit(SHARD, self.epoch, self.version, &[]);
                    edited.expect("edit");
                }));
                self.version += 1;
            }
        }
        println!("while {what}:");
        for (name, times) in [("append", appends), ("edit", edits), ("get", gets)] {
            report(name, times);
        }
    }
}

fn timed(work: impl FnOnce()) -> Duration {
    let started = Instant::now();
    work();
    started.elapsed()
}

fn report(name: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |per_mille: usize| times[(times.len() - 1) * per_mille / 1_000];
    println!(
        "  {name}: p50 {:?}, p99 {:?}, p99.9 {:?}, max {:?}, of {}",
        at(500),
        at(990),
        at(999),
        at(1_000),
        times.len()
    );
}

/// Measures a whole scan, and reads of single timelines.
fn read(backend: &FjallBackend, segment: SegmentRef) {
    let partition = Partition::segment(segment, 0);
    let cache = |backend: &FjallBackend| match segment.tier {
        Tier::Hot => backend.usage().hot_cache,
        Tier::Cold | Tier::Archive => backend.usage().cold_cache,
    };
    let limit = backend.capabilities().page_advice;
    let scans = Instant::now();
    let (mut rows, mut rest) = (0, Some(KeyRange::ALL));
    while let Some(range) = rest {
        let page = backend
            .scan(partition, &range, Direction::Ascending, limit)
            .expect("scan");
        rows += page.rows.len() as u64;
        rest = page.next;
    }
    println!("scan of {rows} chunks ({}): {:?}", segment.tier, scans.elapsed());
    let before = cache(backend);
    let mut state = 5;
    let reads = 2_000;
    let started = Instant::now();
    for _ in 0..reads {
        let wanted = random(&mut state) % rows;
        let range = KeyRange::new(key(wanted), key(wanted + 1));
        let one = PageLimit {
            rows_max: 10,
            ..limit
        };
        let page = backend.scan(partition, &range, Direction::Ascending, one);
        assert_eq!(page.expect("scan").rows.len(), 1);
    }
    let after = cache(backend);
    println!(
        "read of one timeline ({}): {:?}, {:.2} blocks of {:.1} KiB in all",
        segment.tier,
        started.elapsed() / reads,
        (after.misses - before.misses) as f64 / f64::from(reads),
        (after.read_bytes - before.read_bytes) as f64 / f64::from(reads) / 1_024.0
    );
}

/// Returns the resident memory of this process, in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = status
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * 4_096
}

/// Returns the disk space of a folder, in bytes.
fn occupied(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).expect("a folder");
    let sizes = entries.map(|entry| {
        let path = entry.expect("an entry").path();
        match path.is_dir() {
            true => occupied(&path),
            false => path.metadata().map_or(0, |metadata| metadata.blocks() * 512),
        }
    });
    sizes.sum()
}

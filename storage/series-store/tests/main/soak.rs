//! Many small moves and drops on fjall: files, file descriptors and memory stay constant after the first few moves.
//!
//! Only the slow form compares resident memory: other tests of the same process would distort it in a short run.

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tideline_backend_fjall::{FjallBackend, FjallOptions};
use tideline_model::{ManualClock, SegmentId, Tier, Timestamp, Value};
use tideline_series_store::{Recovery, Rewrite, RewriteCause, SeriesStore, Settings};
use tideline_testkit::rounds;

use crate::fixture::{Names, timeline, tiny, write};
use crate::moves::all_steps;

/// Number of moves in a regular run.
const MOVES: usize = 250;
/// Number of moves in the slow form.
const MOVES_SLOW: usize = 10_000;
/// Number of moves after which resource usage is expected to be stable in a regular run. The slow form waits for ten
/// times as many.
const WARM_UP: u64 = 50;
/// Distance between the points of two moves: the width of a group of cold segments (2^8 windows of 1,000 ns).
const SPACING: i64 = 256_000;
/// Number of cold segments that stay. Older segments are dropped.
const KEPT: usize = 3;
/// Tolerance for files that exist temporarily while fjall flushes and compacts.
const SLACK_FILES: usize = 60;
/// Tolerance for the bytes of files that exist temporarily, without fjall's log and the journal of the store.
const SLACK_BYTES: u64 = 4 << 20;
/// Tolerance for the growth of resident memory in a long run.
const SLACK_MEMORY: u64 = 48 << 20;
/// Maximum time for maintenance to free the dropped segments.
const PATIENCE: Duration = Duration::from_secs(30);

/// Resource usage of a store.
#[derive(Debug, Clone, Copy)]
struct Footprint {
    files: usize,
    open_files: usize,
    /// Bytes of all files except fjall's log and the journal of the store.
    bytes: u64,
}

impl Footprint {
    fn of(folder: &Path) -> Self {
        let mut found = Self {
            files: 0,
            open_files: 0,
            bytes: 0,
        };
        let mut folders = vec![folder.to_owned()];
        while let Some(next) = folders.pop() {
            // A folder or file may be removed during the scan.
            for path in entries(&next) {
                let Ok(metadata) = fs::metadata(&path) else {
                    continue;
                };
                if metadata.is_dir() {
                    folders.push(path);
                    continue;
                }
                found.files += 1;
                let is_log = path
                    .extension()
                    .is_some_and(|end| end == "jnl" || end == "journal");
                found.bytes += if is_log { 0 } else { metadata.len() };
            }
        }
        let open = entries(Path::new("/proc/self/fd"));
        found.open_files = open
            .iter()
            .filter(|path| fs::read_link(path).is_ok_and(|target| target.starts_with(folder)))
            .count();
        found
    }

    fn exceeds(&self, before: &Self) -> bool {
        self.files > before.files + SLACK_FILES
            || self.open_files > before.open_files + SLACK_FILES
            || self.bytes > before.bytes + SLACK_BYTES
    }
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries.filter_map(|entry| Some(entry.ok()?.path())).collect()
}

/// Returns the resident memory of this process.
fn resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("/proc");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.and_then(|line| line.split_whitespace().next());
    kibibytes.expect("a size").parse::<u64>().expect("a number") << 10
}

#[test]
fn small_moves_and_drops_leave_files_descriptors_and_memory_flat() {
    let moves = rounds("TIDELINE_MOVES", MOVES, MOVES_SLOW) as u64;
    let is_long = moves > MOVES as u64;
    let warm_up = if is_long { 10 * WARM_UP } else { WARM_UP };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let data = folder.path().join("data");
    let store = open(&data);
    let mut cold = VecDeque::new();
    (0..warm_up).for_each(|round| move_and_drop(&store, round, &mut cold));
    let (before, memory) = (Footprint::of(&data), resident_bytes());
    (warm_up..moves).for_each(|round| move_and_drop(&store, round, &mut cold));
    let deadline = Instant::now() + PATIENCE;
    let mut after = Footprint::of(&data);
    while after.exceeds(&before) && Instant::now() < deadline {
        std::thread::yield_now();
        after = Footprint::of(&data);
    }
    let grown = resident_bytes().saturating_sub(memory);
    println!(
        "after {warm_up} moves {before:?}, after {moves} {after:?}, resident memory grew by {grown} bytes"
    );
    assert!(
        !after.exceeds(&before),
        "after {warm_up} moves {before:?}, after {moves} {after:?}"
    );
    assert!(
        !is_long || grown <= SLACK_MEMORY,
        "memory grew by {grown} bytes, {SLACK_MEMORY} are allowed"
    );
    store.close().expect("it closes");
    drop(store);
    // A restart keeps the held segments and reuses the empty keyspaces.
    let store = open(&data);
    let held = store
        .backend()
        .segments(tideline_log::SHARD)
        .expect("they can be listed");
    let mut held: Vec<SegmentId> = held.iter().map(|held| held.segment).collect();
    held.sort_unstable();
    assert!(held.iter().eq(&cold), "{held:?} {cold:?}");
    let keyspaces = || entries(&data.join("cold/store/keyspaces")).len();
    let before = keyspaces();
    (moves..moves + 5).for_each(|round| move_and_drop(&store, round, &mut cold));
    assert_eq!(keyspaces(), before);
}

/// Writes a few points, seals them and moves them to the cold tier. Then drops the oldest cold segment if there are
/// more than [`KEPT`].
fn move_and_drop(store: &SeriesStore, round: u64, cold: &mut VecDeque<SegmentId>) {
    let table = store.table("default").expect("the default table");
    let at = round as i64 * SPACING;
    let points: Vec<_> = (0..4)
        .map(|id| (timeline(id), at, vec![("value", Value::Signed(at))]))
        .collect();
    let new: Vec<_> = (0..4).filter(|_| round == 0).map(timeline).collect();
    write(store, &table, &points, &new).expect("a write");
    store.seal().expect("a seal");
    let survey = store.survey();
    let all = survey.tables.iter().flat_map(|table| &table.segments);
    let hot = all.filter(|have| have.segment.tier == Tier::Hot);
    let inputs: Vec<SegmentId> = hot.map(|have| have.segment.id).collect();
    assert_eq!(inputs.len(), 1, "round {round}");
    let rewrite = Rewrite {
        table: table.id(),
        inputs,
        tier: Tier::Cold,
        cause: RewriteCause::Migrate,
    };
    let moved = store.rewrite(&rewrite, &mut all_steps()).expect("a move");
    cold.push_back(moved.outputs.first().expect("a segment").id);
    if cold.len() > KEPT {
        let oldest = cold.pop_front().expect("there are several");
        store.drop_segments(table.id(), &[oldest]).expect("a drop");
    }
}

fn open(data: &Path) -> SeriesStore {
    let options = FjallOptions {
        free_bytes_min: 0,
        free_per_mille_min: 0,
        ..FjallOptions::default()
    };
    let backend = FjallBackend::open(data, options).expect("fjall opens its folder");
    let settings = Settings {
        archive: None,
        ..tiny()
    };
    let clock = ManualClock::new(Timestamp::EPOCH);
    let recovery = Recovery::begin(Arc::new(backend), Arc::new(clock), settings).expect("it begins to open");
    let (store, _) = recovery
        .finish(Arc::new(Names::default()))
        .expect("the store opens");
    store
}

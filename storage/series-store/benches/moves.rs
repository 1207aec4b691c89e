//! Cost of seals, migrations, folds and full reads, in time and bytes.
//!
//! ```sh
//! cargo bench -p tideline-series-store
//! ```
//!
//! The first workload is one thousand timelines with one point every ten seconds for a day. Each point has ten integer
//! fields, whose values change by small steps. The second workload is a backfill of one point per minute over seven
//! months for a hundred timelines, in random order. CPU time includes all threads of the process.

use std::error::Error;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tideline_backend_fjall::{FjallBackend, FjallOptions};
use tideline_chunk::{Delta as WriteDelta, DeltaGroup, NewTimeline};
use tideline_model::time::NANOS_PER_SECOND;
use tideline_model::{
    ColumnData, Durability, ManualClock, TableId, TableName, TableSpec, Tier, TimeRange, TimelineId,
    Timestamp,
};
use tideline_series_store::{
    Order, Recovery, Rewrite, RewriteCause, RewriteCost, Selection, SeriesStore, Settings, StoreError, Table,
    Throttle, TimelineDirectory,
};

const TIMELINES: u64 = 1_000;
const FIELDS: usize = 10;
const ROWS: i64 = 8_640;
const STEP: i64 = 10 * NANOS_PER_SECOND;
/// Rows of each timeline in one delta.
const ROWS_A_DELTA: i64 = 10;
const START: i64 = 1_767_225_600 * NANOS_PER_SECOND;
const VALUES: u64 = TIMELINES * FIELDS as u64 * ROWS as u64;

/// Number of points of the random backfill.
const BACKFILL: u64 = 30_000_000;
const BACKFILL_TIMELINES: u64 = 100;
const BACKFILL_DELTA: u64 = 50_000;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let backend = Arc::new(FjallBackend::open(
        &folder.path().join("data"),
        FjallOptions::default(),
    )?);
    let clock = Arc::new(ManualClock::new(Timestamp::from_nanos_clamped(
        START + ROWS * STEP,
    )));
    let recovery = Recovery::begin(backend, clock, Settings::default())?;
    let (store, _) = recovery.finish(Arc::new(NoDirectory))?;
    let table = store.table("default")?;
    measured("write and seal", VALUES, || fill(&store, &table))?;
    shown(&store, &table, Tier::Hot);
    measured("read all hot", VALUES, || read(&store, &table, None))?;
    measured("migrate", VALUES, || migrate(&store, &table))?;
    shown(&store, &table, Tier::Cold);
    measured("read all cold", VALUES, || read(&store, &table, None))?;
    measured("read an hour of every timeline, cold", VALUES / 24, || {
        read(&store, &table, Some(TimeRange::new(START, START + 360 * STEP)))
    })?;
    let late = store.create_table(TableName::new("late")?, TableSpec::default())?;
    measured("write and seal a random backfill", BACKFILL, || {
        backfill(&store, &late)
    })?;
    shown(&store, &late, Tier::Hot);
    shown(&store, &late, Tier::Cold);
    measured("fold it", BACKFILL, || fold(&store, &late))?;
    shown(&store, &late, Tier::Cold);
    store.close()?;
    Ok(())
}

/// Runs `work` and prints its cost.
fn measured(
    what: &str,
    values: u64,
    work: impl FnOnce() -> Result<(), StoreError>,
) -> Result<(), Box<dyn Error>> {
    let (wall, cpu) = (Instant::now(), cpu()?);
    work()?;
    let (wall, cpu) = (wall.elapsed(), self::cpu()? - cpu);
    println!(
        "{what}: {:.2} s, CPU {:.2} s, {:.1} M values per CPU-second, {:.0} MiB resident",
        wall.as_secs_f64(),
        cpu.as_secs_f64(),
        values as f64 / cpu.as_secs_f64() / 1e6,
        resident_mib()?,
    );
    Ok(())
}

/// Returns the CPU time of this process so far.
fn cpu() -> Result<Duration, Box<dyn Error>> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let field = |at: usize| {
        after_name
            .split_whitespace()
            .nth(at)
            .and_then(|ticks| ticks.parse::<u64>().ok())
    };
    // User and system time, in ticks of a hundredth of a second.
    let ticks = field(11).zip(field(12)).map_or(0, |(user, system)| user + system);
    Ok(Duration::from_millis(10 * ticks))
}

fn resident_mib() -> Result<f64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<f64>().ok());
    Ok(kib.unwrap_or(0.0) / 1_024.0)
}

fn shown(store: &SeriesStore, table: &Table, tier: Tier) {
    let snapshot = store.snapshot();
    let segments: Vec<_> = snapshot
        .manifest()
        .of_table(table.id())
        .filter(|segment| segment.tier == tier)
        .collect();
    let bytes: u64 = segments.iter().map(|segment| segment.bytes).sum();
    let values: u64 = segments.iter().map(|segment| segment.values).sum();
    println!(
        "  {tier}: {} segments, {:.3} bytes per value including keys",
        segments.len(),
        bytes as f64 / values as f64
    );
}

fn fill(store: &SeriesStore, table: &Arc<Table>) -> Result<(), StoreError> {
    let ids: Vec<TimelineId> = (0..TIMELINES).map(timeline).collect();
    let mut walks: Vec<i64> = (0..TIMELINES * FIELDS as u64)
        .map(|at| (at * 37 % 101) as i64)
        .collect();
    let mut state = 88_172_645_463_325_252u64;
    let names: Vec<Box<str>> = (0..FIELDS).map(|field| format!("usage_{field}").into()).collect();
    for from in (0..ROWS).step_by(ROWS_A_DELTA as usize) {
        let mut columns = vec![Vec::new(); FIELDS];
        let (mut timelines, mut timestamps) = (Vec::new(), Vec::new());
        for row in from..ROWS.min(from + ROWS_A_DELTA) {
            for at in 0..TIMELINES as usize {
                timelines.push(at as u32);
                timestamps.push(START + row * STEP);
                for (field, column) in columns.iter_mut().enumerate() {
                    let walk = &mut walks[at * FIELDS + field];
                    *walk = (*walk + step(&mut state)).clamp(0, 100);
                    column.push(*walk);
                }
            }
        }
        let group = DeltaGroup {
            measurements: "cpu".into(),
            fields: names.clone(),
            columns: columns.into_iter().map(ColumnData::Signed).collect(),
            timelines,
            timestamps,
        };
        commit(store, table, ids.clone(), group)?;
    }
    store.seal()
}

fn commit(
    store: &SeriesStore,
    table: &Arc<Table>,
    timelines: Vec<TimelineId>,
    group: DeltaGroup,
) -> Result<(), StoreError> {
    let shape = table
        .schema()
        .shape(group.measurements.names(), &group.fields, &group.columns)?;
    let delta = WriteDelta {
        table: table.id(),
        timelines,
        groups: vec![group],
        ..WriteDelta::default()
    };
    let generation = table.timeline_generation();
    store.commit(
        table,
        &Arc::new(delta),
        vec![shape],
        Durability::Buffered,
        generation,
    )?;
    Ok(())
}

/// Returns a random integer step of a walk, with a standard deviation of about one.
fn step(state: &mut u64) -> i64 {
    let mut sum = 0;
    for _ in 0..4 {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        sum += (*state >> 40) as i64 & 0xffff;
    }
    let centred = (sum - 4 * 0x7fff) as f64 / f64::from(0xffff) * 1.73;
    centred.round() as i64
}

fn timeline(number: u64) -> TimelineId {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes());
    id[8..].copy_from_slice(&number.to_be_bytes());
    TimelineId(id)
}

fn migrate(store: &SeriesStore, table: &Table) -> Result<(), StoreError> {
    let snapshot = store.snapshot();
    let inputs = snapshot.manifest().of_table(table.id()).map(|segment| segment.id);
    let rewrite = Rewrite {
        table: table.id(),
        inputs: inputs.collect(),
        tier: Tier::Cold,
        cause: RewriteCause::Migrate,
    };
    drop(snapshot);
    let done = store.rewrite(&rewrite, &mut Unhurried)?;
    println!("  {:?}", done.cost);
    Ok(())
}

fn read(store: &SeriesStore, table: &Table, range: Option<TimeRange>) -> Result<(), StoreError> {
    let mut ids: Vec<TimelineId> = (0..TIMELINES).map(timeline).collect();
    ids.sort_unstable();
    let snapshot = store.snapshot();
    let mut reader = snapshot.reader(Selection {
        table: table.id(),
        timelines: &ids,
        range: range.unwrap_or(TimeRange::ALL),
        fields: None,
        order: Order::Ascending,
        tier: None,
    });
    ids.iter()
        .try_for_each(|id| reader.timeline(*id, &mut |_| Ok(ControlFlow::Continue(()))))
}

/// Writes one point per minute over about seven months for each of a hundred timelines, in random order.
fn backfill(store: &SeriesStore, table: &Arc<Table>) -> Result<(), StoreError> {
    let ids: Vec<TimelineId> = (0..BACKFILL_TIMELINES).map(timeline).collect();
    // The step is odd and therefore coprime to `size`, a power of two: every point is visited exactly once.
    let size = BACKFILL.next_power_of_two();
    let mut at = 0u64;
    let mut done = 0;
    while done < size {
        let (mut timelines, mut timestamps, mut values) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..BACKFILL_DELTA.min(size - done) {
            at = at.wrapping_add(0x9E37_79B9_7F4A_7C15) % size;
            done += 1;
            if at < BACKFILL {
                timelines.push((at % BACKFILL_TIMELINES) as u32);
                timestamps.push(START - (at / BACKFILL_TIMELINES) as i64 * 60 * NANOS_PER_SECOND);
                values.push((at / BACKFILL_TIMELINES % 1_000) as i64);
            }
        }
        let group = DeltaGroup {
            measurements: "late".into(),
            fields: vec!["value".into()],
            columns: vec![ColumnData::Signed(values)],
            timelines,
            timestamps,
        };
        commit(store, table, ids.clone(), group)?;
    }
    store.seal()
}

/// Folds the segments inside each widest window into one segment.
fn fold(store: &SeriesStore, table: &Table) -> Result<(), StoreError> {
    let snapshot = store.snapshot();
    let mut segments: Vec<_> = snapshot.manifest().of_table(table.id()).cloned().collect();
    drop(snapshot);
    // Widest first: the fold of a window includes the narrower windows inside it.
    segments.sort_by_key(|segment| std::cmp::Reverse(segment.window.level));
    while let Some(widest) = segments.first().map(|segment| segment.window) {
        let (inside, others) = segments
            .into_iter()
            .partition(|segment| widest.holds(segment.window));
        segments = others;
        let inside: Vec<_> = inside;
        let rewrite = Rewrite {
            table: table.id(),
            inputs: inside.iter().map(|segment| segment.id).collect(),
            tier: Tier::Cold,
            cause: RewriteCause::Fold,
        };
        store.rewrite(&rewrite, &mut Unhurried)?;
    }
    Ok(())
}

struct Unhurried;

impl Throttle for Unhurried {
    fn step(&mut self, _cost: &RewriteCost) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

/// Directory that stores nothing.
struct NoDirectory;

impl TimelineDirectory for NoDirectory {
    fn adopt(&self, _table: TableId, _timeline: &NewTimeline) -> Result<(), String> {
        Ok(())
    }

    fn made_durable(&self, _table: TableId, _timelines: &[NewTimeline]) {}

    fn removed(&self, _table: TableId, _ids: &[TimelineId]) {}
}

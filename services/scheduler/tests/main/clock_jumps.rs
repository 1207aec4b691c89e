//! Test of a wall clock that jumps, by seconds up to decades, or stands still.
//!
//! Nothing expires early, and no point with a future timestamp is dropped. Once the clock is right again, the data is
//! as if the clock had never been wrong.
//!
//! Engine and scheduler run on a manual clock, so that a year of jumps takes seconds. Clients have clocks that are
//! right, and write all the time.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use tempfile::TempDir;
use tideline_backend::memory::{Character, MemoryBackend, MemoryDisk};
use tideline_condition::Condition;
use tideline_engine::find::NEVER;
use tideline_engine::{Engine, Table, Timeline, WriteOptions};
use tideline_ingest_protocols::{DecodeOptions, line_protocol};
use tideline_model::time::NANOS_PER_SECOND;
use tideline_model::{ManualClock, Policy, TableSpec, TimeRange, Timestamp};
use tideline_scheduler::{Models, Scheduler, Settings};
use tideline_search_index::FindRequest;
use tideline_series_store::{Order, Selection};

use crate::chance::Chance;
use crate::fake::{DAY, HOUR, START};

/// Number of jumps of one run.
const JUMPS: usize = 500;
const SECOND: i64 = NANOS_PER_SECOND;
const MINUTE: i64 = 60 * SECOND;
const YEAR: i64 = 365 * DAY;
/// First second that 32 bits of seconds cannot hold, in 2106.
const END_OF_32_BITS: i64 = 4_294_967_296 * SECOND;
const RETENTION: i64 = 30 * DAY;
/// Largest deviation from the expected time at which the service still follows the wall clock.
const TOLERANCE: i64 = HOUR;
/// Age at which points are certainly freed: retention, purge delay, and the time until the whole window is old enough.
const FREED_AFTER: i64 = RETENTION + 4 * DAY;
/// Interval between the points of the client that writes all the time.
const POINT_STEP: i64 = 3 * HOUR;

/// Reading of the wall clock.
#[derive(Debug, Clone, Copy)]
enum Wall {
    OffBy(i64),
    Stuck(i64),
}

/// Simulated machine with the database: true time passes, and the wall clock has its own reading.
struct Machine {
    truth: i64,
    wall: Wall,
    /// Largest possible lead of the trusted time over the true time.
    lead: i64,
    /// Maximum of `lead` during the test.
    longest_lead: i64,
    clock: ManualClock,
    disk: Arc<MemoryDisk>,
    index: TempDir,
    engine: Arc<Engine>,
    scheduler: Scheduler,
    /// All points written, including points with future timestamps: timestamp and host.
    written: BTreeSet<(i64, String)>,
}

#[test]
fn nothing_expires_early_however_the_clock_jumps() {
    let mut chance = Chance(tideline_testkit::seed("clock_jumps").max(1));
    let jumps = tideline_testkit::rounds("TIDELINE_JUMPS", JUMPS, 10 * JUMPS) as u64;
    let mut machine = Machine::start();
    // Writes points with future timestamps, so that the newest stored point does not delay expiry.
    for days in [1, 40, 400, 4_000, 60_000] {
        machine.write(START + days * DAY, "future");
    }
    let (mut doubted, mut believed) = (0, 0);
    for jump in 1..=jumps {
        // Some clients write once and never again.
        if jump % 4 == 0 {
            machine.write(machine.truth, &format!("once-{jump}"));
        }
        machine.wall = machine.draw_wall(&mut chance);
        let context = format!("jump {jump} to {:?}", machine.wall);
        // Most jumps end within a day. A few last between one and two days: the service accepts the wrong clock after a
        // day, but frees no points before the jump ends.
        let is_long = chance.below(20) == 0;
        let lasting = match is_long {
            true => DAY + chance.below(23 * 60) * MINUTE,
            false => chance.below(23 * 60) * MINUTE,
        };
        machine.run(lasting, &mut chance);
        let trusted = machine.engine.store().trusted_now();
        doubted += usize::from(trusted.doubt.is_some());
        believed += usize::from(trusted.settled.is_some());
        if !is_long {
            machine.check_nothing_is_early(&context);
        }
        if chance.below(25) == 0 {
            machine.restart();
        }
        machine.wall = Wall::OffBy(0);
        machine.survey();
        let confirms = is_long || chance.below(4) == 0;
        if confirms {
            machine.confirm();
            machine.check_all_is_right(&context);
        }
        if chance.below(25) == 0 {
            machine.restart();
        }
        machine.run(MINUTE + chance.below(12 * 60) * MINUTE, &mut chance);
        machine.check_nothing_is_early(&format!("{context}, mended"));
    }
    machine.run(5 * DAY, &mut chance);
    machine.confirm();
    machine.check_all_is_right("at the end");
    machine.check_what_is_over_is_freed();
    println!(
        "{jumps} jumps in {} days, {doubted} in doubt, {believed} believed, {} points, lead up to {} min",
        (machine.truth - START) / DAY,
        machine.written.len(),
        machine.longest_lead / MINUTE
    );
}

impl Machine {
    fn start() -> Self {
        let clock = ManualClock::new(Timestamp::from_nanos_clamped(START));
        let disk = MemoryDisk::new(Character::Embedded);
        let index = tempfile::tempdir().expect("the temporary folder can be written");
        let (engine, scheduler) = open(&disk, &clock, &index);
        let spec = TableSpec {
            write_future: None,
            policy: Policy {
                hot_ttl: Some(2 * DAY),
                retention: Some(RETENTION),
                ..Policy::default()
            },
            ..TableSpec::default()
        };
        engine.alter_table("default", spec).expect("a right policy");
        Self {
            truth: START,
            wall: Wall::OffBy(0),
            lead: 0,
            longest_lead: 0,
            clock,
            disk,
            index,
            engine,
            scheduler,
            written: BTreeSet::new(),
        }
    }

    /// Lets time pass: clients write, the service seals, moves and drops, and sometimes the process restarts.
    fn run(&mut self, lasting: i64, chance: &mut Chance) {
        let end = self.truth + lasting;
        while self.truth < end {
            let step = (end - self.truth).min((10 + chance.below(170)) * MINUTE);
            let next_point = (self.truth / POINT_STEP + 1) * POINT_STEP;
            self.pass(step);
            if next_point <= self.truth {
                self.write(next_point, "always");
                if chance.below(3) == 0 {
                    self.engine.seal().expect("a seal");
                }
            }
            if chance.below(400) == 0 {
                self.restart();
            }
            self.scheduler.run_due();
        }
        // While the clock is right, the lead shrinks at half the speed of time.
        if matches!(self.wall, Wall::OffBy(0)) && self.lead <= TOLERANCE {
            self.lead = (self.lead - lasting / 2 + SECOND).clamp(0, self.lead);
        }
    }

    /// Lets true and monotonic time pass, and sets the wall clock to its reading.
    fn pass(&mut self, nanos: i64) {
        self.clock.advance(nanos);
        self.truth += nanos;
        self.survey();
    }

    /// Reads the wall clock as the service does. The service follows a wall clock that is near the expected time.
    fn survey(&mut self) {
        let shown = match self.wall {
            Wall::OffBy(nanos) => self.truth.saturating_add(nanos),
            Wall::Stuck(at) => at,
        };
        self.clock.set(Timestamp::from_nanos_clamped(shown));
        self.engine.store().trusted_now();
        let ahead = shown.saturating_sub(self.truth);
        if ahead <= self.lead + TOLERANCE {
            self.lead = self.lead.max(ahead);
            self.longest_lead = self.longest_lead.max(self.lead);
        }
    }

    /// Confirms that the clock is right, as an operator does.
    fn confirm(&mut self) {
        self.scheduler.confirm_clock();
        self.lead = 0;
    }

    fn write(&mut self, at: i64, host: &str) {
        let table = self.table();
        let line = format!("truth,host={host} at={at}i {at}");
        let options = DecodeOptions::new(self.engine.clock().now());
        let batch = line_protocol::decode(line.as_bytes(), options, &mut self.engine.resolver(&table));
        let outcome = self.engine.write(&table, batch, &WriteOptions::default());
        assert_eq!(outcome.expect("a write").rejects, [], "{:?}", self.wall);
        self.written.insert((at, host.to_owned()));
    }

    /// Ends the process and starts it again at once.
    fn restart(&mut self) {
        self.scheduler.stop();
        self.engine.close().expect("it closes");
        (self.engine, self.scheduler) = open(&self.disk, &self.clock, &self.index);
        self.survey();
    }

    fn table(&self) -> Table {
        self.engine.default_table().expect("the default table")
    }

    /// Returns the visible points of all timelines that are found.
    fn seen(&self) -> BTreeSet<(i64, String)> {
        let table = self.table();
        let mut timelines = timelines(&self.engine, &table);
        timelines.sort_unstable_by_key(|timeline| timeline.id);
        let ids: Vec<_> = timelines.iter().map(|timeline| timeline.id).collect();
        let snapshot = self.engine.store().snapshot();
        let mut reader = snapshot.reader(Selection {
            table: table.points().id(),
            timelines: &ids,
            range: TimeRange::ALL,
            fields: None,
            order: Order::Ascending,
            tier: None,
        });
        let mut seen = BTreeSet::new();
        for timeline in timelines {
            let host = timeline.source.expect("every point has a host");
            let mut newest = None;
            let read = reader.timeline(timeline.id, &mut |run| {
                for at in &run.timestamps {
                    assert!(seen.insert((*at, host.clone())), "{host} at {at} is there twice");
                }
                newest = newest.max(run.timestamps.last().copied());
                Ok(ControlFlow::Continue(()))
            });
            read.expect("the timeline can be read");
            let last = timeline.seen.map(|seen| seen.last.nanos());
            assert_eq!(last, newest, "the span of {host} ends with its newest point");
        }
        seen
    }

    /// Checks that every point whose age by true time is at most the retention minus the lead is visible.
    fn check_nothing_is_early(&self, context: &str) {
        self.compare(self.truth - RETENTION + self.lead, context);
    }

    /// Checks, with a right clock, that every point younger than the retention is visible, so no point was freed early.
    /// Also checks that no older point is visible.
    fn check_all_is_right(&self, context: &str) {
        self.compare(self.truth - RETENTION, context);
        let oldest = self.seen().into_iter().next();
        let over = oldest.filter(|(at, _)| *at < self.truth - RETENTION);
        assert_eq!(over, None, "{context}");
    }

    /// Checks that every point from a timestamp on is visible.
    fn compare(&self, from: i64, context: &str) {
        let seen = self.seen();
        let young = self.written.range((from, String::new())..);
        let gone: Vec<_> = young.filter(|point| !seen.contains(point)).collect();
        assert!(
            gone.is_empty(),
            "{context}: {} points are gone early: {:?}, the first {} min; lead {} min, {:?}",
            gone.len(),
            &gone[..gone.len().min(5)],
            (gone[0].0 - from) / MINUTE,
            self.lead / MINUTE,
            self.engine.store().trusted_now()
        );
    }

    /// Checks that expiry continued all the time: the number of stored sealed points is at most the number of points
    /// that the test has written with timestamps younger than [`FREED_AFTER`].
    fn check_what_is_over_is_freed(&self) {
        self.engine.seal().expect("a seal");
        self.scheduler.run_due();
        let kept = self.engine.table_stats(&self.table()).sealed_points;
        let not_over = (self.truth - FREED_AFTER, String::new());
        let young = self.written.range(not_over..).count() as u64;
        assert!(kept <= young, "{kept} points are kept, {young} are not over");
    }

    /// Draws a jump: a second to a year, forward or back, each magnitude equally likely; or 1970, 2106 or a stuck
    /// clock.
    fn draw_wall(&self, chance: &mut Chance) -> Wall {
        let magnitudes = [SECOND, MINUTE, HOUR, 2 * HOUR, DAY, YEAR];
        let largest = magnitudes[chance.below(6) as usize];
        let distance = SECOND.max(chance.below(largest.unsigned_abs()) + 1);
        let distance = if chance.below(2) == 0 { distance } else { -distance };
        match chance.below(10) {
            0 => Wall::OffBy(-self.truth),
            1 => Wall::OffBy(END_OF_32_BITS - self.truth),
            2 => Wall::Stuck(self.truth),
            3 => Wall::Stuck(self.truth + distance),
            _ => Wall::OffBy(distance),
        }
    }
}

fn open(disk: &Arc<MemoryDisk>, clock: &ManualClock, index: &TempDir) -> (Arc<Engine>, Scheduler) {
    let backend = Arc::new(MemoryBackend::open(disk));
    let settings = tideline_engine::Settings::new(index.path().join("index"));
    let engine = Engine::open(backend, Arc::new(clock.clone()), settings).expect("the engine opens");
    let engine = Arc::new(engine);
    let scheduler = Scheduler::without_thread(
        Arc::clone(&engine) as _,
        Models::of_engine(&engine),
        Settings::default(),
    );
    (engine, scheduler)
}

fn timelines(engine: &Engine, table: &Table) -> Vec<Timeline> {
    let request = FindRequest {
        condition: Condition::All,
        limit: 10_000,
        ..FindRequest::default()
    };
    let page = engine.find(table, &request, NEVER).expect("a page");
    page.found.into_iter().map(|found| found.timeline).collect()
}

//! The simulated world: true time, processes with their clocks, and the scheduler.
//!
//! One thread runs everything. The scheduler chooses each step with the random numbers of a seed. Whenever a process
//! sends a request, the scheduler may run steps of the world before the request arrives and after it was handled,
//! nested on the same stack. So a process can be overtaken at any request. Up to [`DEPTH_MAX`] requests are interrupted
//! at the same time, and continue in the reverse order. A process is overtaken in one of two ways. A *slow request*
//! leaves the other threads of its process running: the lease is renewed in time. A *pause* stops the whole process, as
//! SIGSTOP does, while its clocks go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tideline_backend::memory::{Character, MemoryBackend, MemoryDisk};
use tideline_backend::{Backend, Stamp};
use tideline_model::{Clock, Timestamp};
use tideline_testkit::Random;

use super::backend::Connection;
use super::ledger::Ledger;
use super::notes::NoteModel;
use crate::committer::{Committer, Worker as CommitterWorker};
use crate::flusher::Worker as FlusherWorker;
use crate::lease::Ownership;
use crate::log::{Log, SHARD};

/// Time for which a lease holds.
pub(super) const LEASE: Duration = Duration::from_secs(10);
/// Divisor of the lease time: a lease is renewed after a quarter of its time, as in the log.
const RENEWED_AFTER: u32 = 4;
/// Maximum number of requests that are interrupted at the same time, nested within each other.
const DEPTH_MAX: usize = 3;
/// True time at the start, by a correct wall clock.
const START_SECONDS: i64 = 1_800_000_000;

/// Probabilities of faults, and other parameters of one run, derived from its seed.
#[derive(Debug)]
pub(super) struct Plan {
    /// Steps of all processes.
    steps: u64,
    /// Number of requests per thousand during which other steps run.
    interrupted: u64,
    /// Percentage of pauses of the process among the interruptions.
    paused: u64,
    /// Number of responses per thousand that are lost.
    lost: u64,
    /// Maximum duration of one step.
    step_max: Duration,
}

/// Clock of a process, with its own speed and its own wall-clock time.
#[derive(Debug, Clone)]
struct SkewedClock {
    now: Arc<AtomicU64>,
    started: u64,
    per_mille: u64,
    wall_nanos: i64,
}

impl Clock for SkewedClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_nanos_clamped(self.wall_nanos + self.monotonic().as_nanos() as i64)
    }

    fn monotonic(&self) -> Duration {
        let elapsed = self.now.load(Ordering::Relaxed) - self.started;
        Duration::from_nanos(elapsed / 1_000 * self.per_mille)
    }
}

/// Machine of a process: the properties that survive restarts of the process.
struct Process {
    per_mille: u64,
    skew_nanos: i64,
    is_paused: AtomicBool,
    /// True time until which no request reaches the disk.
    cut_off_until: AtomicU64,
    life: Mutex<Option<Arc<Life>>>,
}

/// A process from its start to its end.
pub(super) struct Life {
    pub(super) number: u64,
    pub(super) process: usize,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) connection: Arc<Connection>,
    is_alive: AtomicBool,
    pub(super) is_opening: AtomicBool,
    /// Lease of the process, from the time at which it took the shard.
    pub(super) ownership: Mutex<Option<Arc<Ownership>>>,
    pub(super) running: Mutex<Option<Arc<Running>>>,
    /// Time of the last renewal, by the clock of the process.
    renewed: Mutex<Duration>,
    is_renewing: AtomicBool,
}

/// Parts of a process with an opened log.
pub(super) struct Running {
    pub(super) log: Arc<Log>,
    pub(super) model: Arc<NoteModel>,
    pub(super) committer: Committer,
    pub(super) committing: Mutex<CommitterWorker>,
    pub(super) flushing: Mutex<FlusherWorker>,
    pub(super) compacting: Mutex<()>,
}

/// The world of one seed.
pub(super) struct World {
    pub(super) disk: Arc<MemoryDisk>,
    pub(super) plan: Plan,
    now: Arc<AtomicU64>,
    random: Mutex<Random>,
    processes: Vec<Process>,
    pub(super) ledger: Mutex<Ledger>,
    depth: AtomicUsize,
    has_faults: AtomicBool,
    lives: AtomicU64,
    steps: AtomicU64,
    trace: Trace,
}

/// Record of the steps. It is printed only when a failed seed runs again; its hash shows that runs are equal.
#[derive(Debug, Default)]
struct Trace {
    is_printed: bool,
    hash: AtomicU64,
}

impl Life {
    pub(super) fn is_alive(&self) -> bool {
        self.is_alive.load(Ordering::Relaxed)
    }

    pub(super) fn running(&self) -> Option<Arc<Running>> {
        self.running.lock().clone().filter(|_| self.is_alive())
    }

    pub(super) fn note_renewal(&self) {
        *self.renewed.lock() = self.clock.monotonic();
    }

    /// Returns true if the lease of the process holds by its own clock.
    fn owns(&self) -> bool {
        let ownership = self.ownership.lock();
        self.is_alive()
            && ownership
                .as_ref()
                .is_some_and(|ownership| ownership.check().is_ok())
    }
}

impl World {
    pub(super) fn new(seed: u64, is_printed: bool) -> Arc<Self> {
        let mut random = Random::new(seed);
        let disk = MemoryDisk::new(Character::Distributed);
        let stamps = random.of(&[1 << 20, 1 << 52]);
        disk.limit_leases(LEASE, stamps);
        disk.fail_by_chance(random.next(), random.of(&[0, 20, 100, 250]));
        if random.is(50) {
            disk.accept_stale_appends();
        }
        let processes = (0..2 + random.below(3)).map(|_| Process {
            // The fastest clock runs less than a quarter faster than the slowest.
            per_mille: 900 + random.below(201),
            skew_nanos: random.below(7_200_000_000_000) as i64 - 3_600_000_000_000,
            is_paused: AtomicBool::new(false),
            cut_off_until: AtomicU64::new(0),
            life: Mutex::default(),
        });
        let processes = processes.collect();
        let plan = Plan {
            steps: 50 + random.below(450),
            interrupted: random.of(&[0, 20, 60, 150]),
            paused: random.of(&[20, 50, 90]),
            lost: random.of(&[0, 5, 30]),
            step_max: LEASE / random.of(&[2, 6, 20]),
        };
        Arc::new(Self {
            disk,
            plan,
            now: Arc::default(),
            random: Mutex::new(random),
            processes,
            ledger: Mutex::default(),
            depth: AtomicUsize::new(0),
            has_faults: AtomicBool::new(true),
            lives: AtomicU64::new(0),
            steps: AtomicU64::new(0),
            trace: Trace {
                is_printed,
                hash: AtomicU64::new(0),
            },
        })
    }

    // --- chance and time ---------------------------------------------------------------------------------

    pub(super) fn below(&self, limit: u64) -> u64 {
        self.random.lock().below(limit)
    }

    pub(super) fn is(&self, percent: u64) -> bool {
        self.random.lock().is(percent)
    }

    fn is_per_mille(&self, chance: u64) -> bool {
        chance > 0 && self.below(1_000) < chance
    }

    /// Records an event.
    pub(super) fn trace(&self, life: Option<&Life>, event: &str) {
        let (now, number) = (
            self.now.load(Ordering::Relaxed),
            life.map_or(0, |life| life.number),
        );
        let mut hash = self.trace.hash.load(Ordering::Relaxed);
        for byte in event.bytes().chain(now.to_le_bytes()).chain(number.to_le_bytes()) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        self.trace.hash.store(hash, Ordering::Relaxed);
        if self.trace.is_printed {
            let depth = "  ".repeat(self.depth.load(Ordering::Relaxed));
            let millis = now / 1_000_000;
            println!("{millis:>8} ms {depth}process {number}: {event}");
        }
    }

    /// Returns the hash of all events.
    pub(super) fn hash(&self) -> u64 {
        self.trace.hash.load(Ordering::Relaxed)
    }

    /// Lets time pass. The leases of running processes are renewed when they are due.
    fn pass(&self, time: Duration) {
        let mut left = time;
        while !left.is_zero() {
            let part = left.min(LEASE / 10);
            left -= part;
            self.now.fetch_add(part.as_nanos() as u64, Ordering::Relaxed);
            for process in &self.processes {
                let life = process.life.lock().clone();
                if let Some(life) = life.filter(|_| !process.is_paused.load(Ordering::Relaxed)) {
                    self.renew_if_due(&life);
                }
            }
            self.check_owners();
        }
    }

    fn renew_if_due(&self, life: &Arc<Life>) {
        let ownership = life.ownership.lock().clone();
        let Some(ownership) = ownership.filter(|_| life.is_alive()) else {
            return;
        };
        let due = *life.renewed.lock() + LEASE / RENEWED_AFTER;
        if life.clock.monotonic() < due || life.is_renewing.swap(true, Ordering::Relaxed) {
            return;
        }
        life.note_renewal();
        if ownership.renew(life.connection.as_ref()) {
            life.is_renewing.store(false, Ordering::Relaxed);
        } else if life.is_alive() {
            // The thread ends.
            self.trace(Some(life), "loses the shard");
            self.ledger.lock().counts.losses += 1;
        }
    }

    /// Checks that at most one process holds the lease by its own clock.
    fn check_owners(&self) {
        let lives = self
            .processes
            .iter()
            .filter_map(|process| process.life.lock().clone());
        let owners: Vec<u64> = lives.filter(|life| life.owns()).map(|life| life.number).collect();
        assert!(
            owners.len() <= 1,
            "processes {owners:?} hold the lease at the same time"
        );
    }

    // --- faults ------------------------------------------------------------------------------------------

    /// Runs other steps during a request of a process, at random. Returns true if steps were run.
    pub(super) fn interrupt(self: &Arc<Self>, life: &Arc<Life>, request: &str, when: &str) -> bool {
        let depth = self.depth.load(Ordering::Relaxed);
        if !self.has_faults.load(Ordering::Relaxed)
            || depth >= DEPTH_MAX
            || !self.is_per_mille(self.plan.interrupted >> depth)
        {
            return false;
        }
        let process = &self.processes[life.process];
        // A paused process sends no further requests, so its flag is not set yet.
        let is_pause = self.is(self.plan.paused);
        let kind = if is_pause { "paused" } else { "slow" };
        self.trace(Some(life), &format!("{kind} {when} {request}"));
        self.ledger.lock().counts.pauses += u64::from(is_pause);
        self.depth.fetch_add(1, Ordering::Relaxed);
        process.is_paused.store(is_pause, Ordering::Relaxed);
        let longest = self.random.lock().of(&[4, 16, 64]);
        for _ in 0..1 + self.below(longest) {
            if !self.step() {
                break;
            }
            if is_pause && self.is(30) {
                self.pass(LEASE / 3);
            }
        }
        process.is_paused.store(false, Ordering::Relaxed);
        self.depth.fetch_sub(1, Ordering::Relaxed);
        self.trace(Some(life), &format!("continues {when} {request}"));
        true
    }

    pub(super) fn is_cut_off(&self, life: &Life) -> bool {
        let until = self.processes[life.process].cut_off_until.load(Ordering::Relaxed);
        self.now.load(Ordering::Relaxed) < until
    }

    /// Returns true if the response of a request is lost. `is_late` is true if other steps ran between the request and
    /// its response.
    pub(super) fn loses_answer(&self, life: &Life, is_late: bool) -> bool {
        self.has_faults.load(Ordering::Relaxed)
            && (self.is_cut_off(life) || is_late && self.is(40) || self.is_per_mille(self.plan.lost))
    }

    // --- notes of the model and the connection -------------------------------------------------------------

    pub(super) fn note_ids(&self, ids: &[u64]) {
        let mut ledger = self.ledger.lock();
        ids.iter().for_each(|id| ledger.assign(*id));
    }

    pub(super) fn note_abandoned(&self, segments: usize) {
        self.ledger.lock().counts.abandoned += segments as u64;
    }

    pub(super) fn note_stamp(&self, life: &Life, stamp: Stamp) {
        let ownership = life.ownership.lock();
        if let Some(ownership) = &*ownership {
            self.ledger.lock().stamp(ownership.epoch, stamp);
        }
    }

    // --- steps -------------------------------------------------------------------------------------------

    /// Runs one step: advances the time, and performs one action of one process. Returns false if no steps are left.
    pub(super) fn step(self: &Arc<Self>) -> bool {
        if self.steps.fetch_add(1, Ordering::Relaxed) >= self.plan.steps {
            return false;
        }
        self.advance();
        self.check_owners();
        true
    }

    fn advance(self: &Arc<Self>) {
        let most = self.plan.step_max.as_nanos() as u64;
        let passed = match self.below(10) {
            0..7 => self.below(most / 8),
            7..9 => self.below(most / 2),
            _ => self.below(most),
        };
        self.pass(Duration::from_nanos(passed));
        let number = self.below(self.processes.len() as u64) as usize;
        let process = &self.processes[number];
        let life = process.life.lock().clone();
        if process.is_paused.load(Ordering::Relaxed) {
            if let Some(life) = life.filter(|_| self.is(5)) {
                self.kill(&life);
                process.is_paused.store(false, Ordering::Relaxed);
            }
            return;
        }
        match life {
            None if self.is(50) => self.start(number),
            None => {}
            Some(life) => self.act(&life),
        }
    }

    /// Starts a process. It does not own the shard yet.
    fn start(self: &Arc<Self>, number: usize) {
        let process = &self.processes[number];
        let clock = SkewedClock {
            now: Arc::clone(&self.now),
            started: self.now.load(Ordering::Relaxed),
            per_mille: process.per_mille,
            wall_nanos: START_SECONDS * 1_000_000_000
                + process.skew_nanos
                + self.now.load(Ordering::Relaxed) as i64,
        };
        let clock: Arc<dyn Clock> = Arc::new(clock);
        let disk = MemoryBackend::open_with_clock(&self.disk, Arc::clone(&clock));
        let life = Arc::new(Life {
            number: self.lives.fetch_add(1, Ordering::Relaxed) + 1,
            process: number,
            clock,
            connection: Arc::new(Connection::new(disk, self)),
            is_alive: AtomicBool::new(true),
            is_opening: AtomicBool::new(false),
            ownership: Mutex::default(),
            running: Mutex::default(),
            renewed: Mutex::default(),
            is_renewing: AtomicBool::new(false),
        });
        life.connection.set_life(&life);
        self.trace(Some(&life), "starts");
        *process.life.lock() = Some(life);
    }

    /// Ends a process without a close.
    fn kill(&self, life: &Life) {
        self.trace(Some(life), "is killed");
        self.ledger.lock().counts.kills += 1;
        self.end(life);
    }

    fn end(&self, life: &Life) {
        life.is_alive.store(false, Ordering::Relaxed);
        *self.processes[life.process].life.lock() = None;
    }

    fn cut_off(&self, life: &Life) {
        let time = LEASE.as_nanos() as u64 / 10 * (1 + self.below(20));
        self.trace(Some(life), "is cut off");
        let until = self.now.load(Ordering::Relaxed) + time;
        self.processes[life.process]
            .cut_off_until
            .store(until, Ordering::Relaxed);
    }

    fn act(self: &Arc<Self>, life: &Arc<Life>) {
        match self.below(100) {
            0 => return self.kill(life),
            1 => return self.cut_off(life),
            2..6 => return self.disk.land_late(),
            _ => {}
        }
        if let Some(running) = life.running() {
            self.serve(life, &running);
        } else if !life.is_opening.swap(true, Ordering::Relaxed) {
            self.open(life);
            life.is_opening.store(false, Ordering::Relaxed);
        }
    }

    /// Performs one random step of a process with an opened log.
    fn serve(self: &Arc<Self>, life: &Arc<Life>, running: &Running) {
        if running.log.is_lease_lost() && self.is(20) {
            // The server replaces itself by a new process.
            self.trace(Some(life), "ends, because it has lost the shard");
            return self.end(life);
        }
        match self.below(100) {
            0..28 => self.write(life, running),
            28..34 => self.repeat(life, running),
            34..50 => self.read(life, running),
            50..60 => self.freeze(life, running),
            60..82 => self.flush(life, running),
            82..91 => self.compact(life, running),
            91..96 => self.edit(life, running),
            96..98 => self.sync(life, running),
            _ => self.close(life, running),
        }
    }

    /// Gives up the shard, as a stopping server does.
    fn close(&self, life: &Life, running: &Running) {
        let is_idle = running.committing.try_lock().is_some()
            && running.flushing.try_lock().is_some()
            && running.compacting.try_lock().is_some()
            && running.is_editable();
        if is_idle {
            self.trace(Some(life), "closes");
            running.log.store_clock();
            // A kill during the last edit ends the process.
            if life.is_alive() {
                self.end(life);
                life.connection.disk.close().expect("it closes");
            }
        }
    }

    // --- end ---------------------------------------------------------------------------------------------

    /// Ends all processes and all faults. A last process opens the log twice, and must find everything.
    pub(super) fn finish(self: &Arc<Self>) {
        self.has_faults.store(false, Ordering::Relaxed);
        self.disk.fail_by_chance(0, 0);
        self.disk.land_late();
        for process in &self.processes {
            process.cut_off_until.store(0, Ordering::Relaxed);
            let life = process.life.lock().clone();
            if let Some(life) = life {
                self.end(&life);
            }
        }
        for _ in 0..2 {
            self.start(0);
            let life = self.processes[0].life.lock().clone().expect("it was started");
            while life.running().is_none() {
                self.open(&life);
                self.pass(LEASE);
            }
            let running = life.running().expect("it is open");
            self.read(&life, &running);
            self.freeze(&life, &running);
            self.flush(&life, &running);
            self.read(&life, &running);
            assert!(running.log.frozen.lock().is_empty(), "the last flush succeeds");
            self.close(&life, &running);
        }
        assert_eq!(self.disk_owners(), 0);
    }

    fn disk_owners(&self) -> usize {
        let lives = self
            .processes
            .iter()
            .filter(|process| process.life.lock().is_some());
        lives.count()
    }
}

impl Running {
    /// Returns true if no interrupted step is editing the manifest.
    pub(super) fn is_editable(&self) -> bool {
        self.log.edit.try_lock().is_some()
    }
}

/// Returns the numbers of the job rows in the manifest on the disk.
pub(super) fn job_numbers(backend: &dyn Backend) -> Vec<u64> {
    let manifest = backend.manifest(SHARD).expect("the disk answers");
    let jobs = manifest
        .rows
        .iter()
        .filter(|row| row.kind == tideline_backend::ManifestKind::Job);
    jobs.map(|row| String::from_utf8_lossy(&row.name).parse().expect("a number"))
        .collect()
}

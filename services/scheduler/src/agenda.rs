//! What is to be done next: planned work with its job ids, what was asked for by hand, and what has to wait.
//!
//! A plan is made anew at each look. Work that was in the plan before keeps its id; work that is not in it any more
//! disappears. Nothing here blocks or reads a clock.

use std::collections::VecDeque;
use std::time::Duration;

use hashbrown::HashMap;
use tideline_engine::model::time::NANOS_PER_SECOND;
use tideline_engine::model::{JobKind, SegmentId, TableId, TableModel};

use crate::job::{Job, JobState, JobTable};
use crate::journal::{Edit, Journal};
use crate::maintenance::{Planned, Served, Slot};
use crate::overview::Overview;
use crate::schedule::{Timetable, begins};

/// Planned jobs that are listed and numbered; the rest of a longer plan comes when these are done.
const PLANNED_MAX: usize = 1_000;
/// Wait after a failure; it doubles with each further one up to [`RETRY_MAX`].
const RETRY_MIN: Duration = Duration::from_secs(5);
/// Longest wait after a failure: a full disk is noticed to be empty again soon enough.
const RETRY_MAX: Duration = Duration::from_secs(600);
/// How long cancelled work without a schedule is left alone: time to change what led to it.
const CANCELLED_REST: Duration = Duration::from_secs(3_600);
/// An instant of a schedule at which there was nothing to do is stored this often, nanoseconds.
const SERVED_STORED_EVERY: i64 = 3_600 * NANOS_PER_SECOND;

/// A planned job.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) id: u64,
    pub(crate) work: Planned,
    pub(crate) table: Option<JobTable>,
    pub(crate) created: i64,
    /// Whether somebody asked for it.
    pub(crate) by_hand: bool,
    /// Whether it alone, and not its kind, is paused. Only for requested jobs.
    pub(crate) is_paused: bool,
}

/// Identity of a unit of work across plans.
type Identity = (Place, Vec<SegmentId>);
/// What waits after a failure or a cancel: work of the same model, kind, table and slot.
type Place = (TableModel, JobKind, Option<TableId>, Option<Slot>);

/// Until when work at a place waits.
#[derive(Debug, Clone, Copy)]
enum Hold {
    /// It failed so often in a row; monotonic time of the next try.
    Failed(u32, Duration),
    /// It was cancelled; monotonic time.
    Cancelled(Duration),
    /// It was cancelled; trusted time of the schedule's next instant.
    CancelledUntil(i64),
}

/// Work that fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Trouble {
    /// Times in a row.
    pub(crate) failures: u32,
    /// Until the next try.
    pub(crate) left: Duration,
}

impl Hold {
    fn trouble(&self, monotonic: Duration) -> Option<Trouble> {
        let Self::Failed(failures, until) = self else {
            return None;
        };
        Some(Trouble {
            failures: *failures,
            left: until.saturating_sub(monotonic),
        })
    }
}

/// Everything that waits.
#[derive(Debug, Default)]
pub(crate) struct Agenda {
    pub(crate) by_hand: VecDeque<Entry>,
    pub(crate) planned: Vec<Entry>,
    holds: HashMap<Place, Hold>,
    /// (table, job kind) pairs whose last-run time is dirty.
    worked: Vec<(TableId, JobKind)>,
}

impl Entry {
    fn identity(&self) -> Identity {
        (self.place(), self.work.inputs.clone())
    }

    fn place(&self) -> Place {
        place(&self.work)
    }

    /// As people see it.
    pub(crate) fn job(&self, journal: &Journal) -> Job {
        let mut job = Job::planned(self.id, &self.work, self.table.clone(), self.created);
        job.by_hand = self.by_hand;
        if self.is_paused || (!self.by_hand && journal.is_paused(self.work.table, self.work.kind)) {
            job.state = JobState::Paused;
        }
        job
    }
}

impl Agenda {
    /// Takes over a new plan. `running` is being done.
    pub(crate) fn renew(
        &mut self,
        overview: &Overview,
        planned: Vec<Planned>,
        running: Option<&Entry>,
        journal: &mut Journal,
    ) {
        let known = self.planned.drain(..).map(|entry| (entry.identity(), entry));
        let mut known: HashMap<Identity, Entry> = known.collect();
        // A seal that runs does not hold what was written since it began: another may be asked for.
        let running = running.filter(|entry| entry.work.kind != JobKind::Seal);
        let spoken_for: Vec<Identity> = self.by_hand.iter().chain(running).map(Entry::identity).collect();
        for work in planned {
            if self.planned.len() == PLANNED_MAX {
                break;
            }
            let identity = (place(&work), work.inputs.clone());
            if spoken_for.contains(&identity) {
                continue;
            }
            let entry = match known.remove(&identity) {
                Some(entry) => Entry { work, ..entry },
                None => Entry {
                    id: journal.next_id(),
                    table: work.table.and_then(|id| Some(overview.table(id)?.named())),
                    created: overview.now(),
                    by_hand: false,
                    is_paused: false,
                    work,
                },
            };
            self.planned.push(entry);
        }
    }

    /// Moves planned work of a kind to the front, whatever its schedule; the ids.
    pub(crate) fn ask_for(&mut self, kind: JobKind, table: Option<TableId>) -> Vec<u64> {
        let is_meant = |work: &Planned| work.is_of(kind, table);
        let (meant, rest) = self.planned.drain(..).partition(|entry| is_meant(&entry.work));
        self.planned = rest;
        let meant: Vec<Entry> = meant;
        let asked_before = self
            .by_hand
            .iter()
            .filter(|entry| is_meant(&entry.work))
            .map(|entry| entry.id);
        let ids = asked_before.chain(meant.iter().map(|entry| entry.id)).collect();
        self.by_hand.extend(meant.into_iter().map(|entry| Entry {
            by_hand: true,
            ..entry
        }));
        ids
    }

    /// Adds work that no plan has, because somebody asked for it.
    pub(crate) fn add(&mut self, work: Planned, table: JobTable, now: i64, journal: &mut Journal) -> Job {
        let entry = Entry {
            id: journal.next_id(),
            table: Some(table),
            created: now,
            by_hand: true,
            is_paused: false,
            work,
        };
        let job = entry.job(journal);
        self.by_hand.push_back(entry);
        job
    }

    /// Takes the next piece of work out of what waits.
    pub(crate) fn next(&mut self, now: i64, journal: &Journal, monotonic: Duration) -> Option<Entry> {
        if let Some(at) = self.by_hand.iter().position(|entry| !entry.is_paused) {
            return self.by_hand.remove(at);
        }
        self.holds.retain(|_, hold| match hold {
            // How often it failed is remembered a while longer.
            Hold::Failed(_, until) => monotonic < until.saturating_add(RETRY_MAX),
            Hold::Cancelled(until) => monotonic < *until,
            Hold::CancelledUntil(until) => now < *until,
        });
        let may_begin = |entry: &Entry| {
            entry.work.is_due(now)
                && !journal.is_paused(entry.work.table, entry.work.kind)
                && !self.is_held(entry, monotonic)
        };
        let at = self.planned.iter().position(may_begin)?;
        Some(self.planned.remove(at))
    }

    fn is_held(&self, entry: &Entry, monotonic: Duration) -> bool {
        match self.holds.get(&entry.place()) {
            Some(Hold::Failed(_, until)) => monotonic < *until,
            Some(Hold::Cancelled(_) | Hold::CancelledUntil(_)) => true,
            None => false,
        }
    }

    /// Puts work back that began and was given up by a pause.
    pub(crate) fn put_back(&mut self, entry: Entry) {
        if entry.by_hand {
            let is_paused = true;
            self.by_hand.push_front(Entry { is_paused, ..entry });
        } else {
            self.planned.push(entry);
        }
    }

    /// Takes a waiting job out.
    pub(crate) fn remove(&mut self, id: u64) -> Option<Entry> {
        if let Some(at) = self.by_hand.iter().position(|entry| entry.id == id) {
            return self.by_hand.remove(at);
        }
        let at = self.planned.iter().position(|entry| entry.id == id)?;
        Some(self.planned.remove(at))
    }

    /// Whether somebody asked for a job that still waits.
    pub(crate) fn is_asked(&self, id: u64) -> bool {
        self.by_hand.iter().any(|entry| entry.id == id)
    }

    /// A waiting job.
    pub(crate) fn find(&mut self, id: u64) -> Option<&mut Entry> {
        self.by_hand
            .iter_mut()
            .chain(&mut self.planned)
            .find(|entry| entry.id == id)
    }

    /// Work at its place succeeded.
    pub(crate) fn succeeded(&mut self, entry: &Entry) {
        self.holds.remove(&entry.place());
        let worked = entry.work.table.map(|table| (table, entry.work.kind));
        self.worked
            .extend(worked.filter(|worked| !self.worked.contains(worked)));
    }

    /// How often a piece of work has failed in a row, and how long it waits for the next try.
    pub(crate) fn trouble(&self, entry: &Entry, monotonic: Duration) -> Option<Trouble> {
        let hold = self.holds.get(&entry.place())?;
        hold.trouble(monotonic).filter(|trouble| !trouble.left.is_zero())
    }

    /// The worst of a table's work of some kinds.
    pub(crate) fn worst(&self, table: TableId, kinds: &[JobKind], monotonic: Duration) -> Option<Trouble> {
        let of_table = self
            .holds
            .iter()
            .filter(|((_, kind, of, _), _)| *of == Some(table) && kinds.contains(kind));
        of_table
            .filter_map(|(_, hold)| hold.trouble(monotonic))
            .max_by_key(|trouble| (trouble.failures, trouble.left))
    }

    /// Work at its place waits longer with each failure; for how long now.
    pub(crate) fn failed(&mut self, entry: &Entry, monotonic: Duration) -> Duration {
        let hold = self
            .holds
            .entry(entry.place())
            .or_insert(Hold::Failed(0, monotonic));
        let failures = if let Hold::Failed(failures, _) = hold {
            *failures
        } else {
            0
        };
        let wait = RETRY_MIN.saturating_mul(1 << failures.min(16)).min(RETRY_MAX);
        *hold = Hold::Failed(failures.saturating_add(1), monotonic.saturating_add(wait));
        wait
    }

    /// Work at its place is left alone until its schedule comes again.
    pub(crate) fn cancelled(&mut self, entry: &Entry, overview: &Overview, monotonic: Duration) {
        let table = entry.work.table.and_then(|id| overview.table(id));
        let timetable = table.and_then(|table| Timetable::new(table.schedule(entry.work.kind)).ok());
        let next = timetable
            .filter(|timetable| !timetable.is_continuous())
            .and_then(|timetable| timetable.next_after(overview.now()));
        let hold = match next {
            Some(next) => Hold::CancelledUntil(next),
            None => Hold::Cancelled(monotonic.saturating_add(CANCELLED_REST)),
        };
        self.holds.insert(entry.place(), hold);
    }

    /// Records schedules whose time has come and for which nothing is left to do; returns the rows to store.
    pub(crate) fn serve(&mut self, overview: &Overview, served: &Served, journal: &mut Journal) -> Edit {
        let mut edit = Edit::default();
        let now = overview.now();
        for table in overview.tables() {
            let mut is_to_store = false;
            // Rounds are served when they have ended.
            for (kind, schedule) in table.schedules.iter().filter(|(kind, _)| !kind.is_round()) {
                let kind = *kind;
                let since = [
                    served.get(&(table.id, kind)).copied(),
                    Some(table.created),
                    Some(table.policy_changed),
                ];
                let is_continuous = Timetable::new(schedule).is_ok_and(|it| it.is_continuous());
                let has_come = begins(schedule, since, now, i64::MIN).is_some_and(|at| at <= now);
                if is_continuous || !has_come || self.has_work(table.id, kind, now) {
                    continue;
                }
                let before = journal.serve(table.id, kind, now);
                let has_worked = self.worked.contains(&(table.id, kind));
                self.worked.retain(|worked| *worked != (table.id, kind));
                is_to_store |= has_worked
                    || before.is_none_or(|before| now.abs_diff(before) >= SERVED_STORED_EVERY.unsigned_abs());
            }
            if is_to_store {
                edit.put.push(journal.table_row(table.id));
            }
        }
        edit.remove = journal.retain_tables(|id| overview.table(id).is_some());
        edit
    }

    /// Whether planned work of a kind may begin by its schedule, and is neither paused nor cancelled.
    pub(crate) fn is_due(&self, table: TableId, kind: JobKind, now: i64, journal: &Journal) -> bool {
        !journal.is_paused(Some(table), kind) && self.has_work(table, kind, now)
    }

    /// Whether work of a kind is left since its schedule came. Cancelled work does not count.
    fn has_work(&self, table: TableId, kind: JobKind, now: i64) -> bool {
        let is_cancelled = |entry: &Entry| {
            matches!(
                self.holds.get(&entry.place()),
                Some(Hold::Cancelled(_) | Hold::CancelledUntil(_))
            )
        };
        self.planned.iter().any(|entry| {
            entry.work.table == Some(table)
                && entry.work.kind == kind
                && entry.work.is_due(now)
                && !is_cancelled(entry)
        })
    }
}

fn place(work: &Planned) -> Place {
    (work.model, work.kind, work.table, work.slot)
}

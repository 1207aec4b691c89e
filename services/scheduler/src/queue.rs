//! Queue of jobs: planned work with job ids, requested work, and waits after failures and cancels.
//!
//! Each survey makes a new plan. Work that was in the previous plan keeps its id; work that is not planned any more
//! disappears. The functions of this module neither block nor read a clock.

use std::collections::VecDeque;
use std::time::Duration;

use hashbrown::{HashMap, HashSet};
use tideline_engine::model::time::NANOS_PER_SECOND;
use tideline_engine::model::{JobKind, SegmentId, TableId, TableModel};
use tideline_engine::schedule::Timetable;

use crate::job::{Job, JobState, JobTable};
use crate::journal::{Edit, Journal};
use crate::maintenance::{Planned, Served, Slot};
use crate::overview::Overview;
use crate::schedule::begins;

/// Maximum number of planned jobs that are listed and numbered. A longer plan is truncated. Work that may not start now
/// is cut first, so that paused or failing work never displaces work that may start. The cut work is listed when the
/// listed work is done.
const PLANNED_MAX: usize = 1_000;
/// Wait after the first failure. The wait doubles with each further failure, up to [`RETRY_MAX`].
const RETRY_MIN: Duration = Duration::from_secs(5);
/// Longest wait after a failure, short enough to resume soon after a full disk has space again.
const RETRY_MAX: Duration = Duration::from_secs(600);
/// Wait after a cancel of work without a schedule. During this time, the cause of the work can be changed.
const CANCELLED_REST: Duration = Duration::from_secs(3_600);
/// Minimum interval, in nanoseconds, after which the served time of a schedule is stored again if no work was done. The
/// interval limits the writes for a schedule that runs every minute and never has work. After a restart, scheduled
/// times after the stored time count as not served.
const SERVED_STORED_EVERY: i64 = 3_600 * NANOS_PER_SECOND;

/// Waiting or running job.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) id: u64,
    pub(crate) work: Planned,
    pub(crate) table: Option<JobTable>,
    pub(crate) created: i64,
    /// True if the job was requested.
    pub(crate) by_hand: bool,
    /// True if this job alone, and not its kind, is paused. Only for requested jobs.
    pub(crate) is_paused: bool,
}

/// Identity of a unit of work across plans.
type Identity = (BackoffKey, Vec<SegmentId>);
/// Unit that waits after a failure or a cancel: work of the same model, kind, table and slot.
type BackoffKey = (TableModel, JobKind, Option<TableId>, Option<Slot>);

/// Wait of work after a failure or a cancel.
#[derive(Debug, Clone, Copy)]
enum Backoff {
    /// Number of failures in a row, and monotonic time of the next attempt.
    Failed(u32, Duration),
    /// The work was cancelled. Holds the monotonic end of the wait.
    Cancelled(Duration),
    /// The work was cancelled. Holds the next time of the schedule, in trusted time.
    CancelledUntil(i64),
}

/// Consecutive failures of a unit of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RepeatedFailure {
    /// Number of failures in a row.
    pub(crate) failures: u32,
    /// Time until the next attempt.
    pub(crate) left: Duration,
}

impl Backoff {
    fn trouble(&self, monotonic: Duration) -> Option<RepeatedFailure> {
        let Self::Failed(failures, until) = self else {
            return None;
        };
        Some(RepeatedFailure {
            failures: *failures,
            left: until.saturating_sub(monotonic),
        })
    }
}

/// All waiting work.
#[derive(Debug, Default)]
pub(crate) struct JobQueue {
    pub(crate) by_hand: VecDeque<Entry>,
    pub(crate) planned: Vec<Entry>,
    /// (table, job kind) pairs with due work that is planned but not listed. Cancelled work does not count.
    cut: HashSet<(TableId, JobKind)>,
    holds: HashMap<BackoffKey, Backoff>,
    /// (table, job kind) pairs with work that completed since their schedule was last served. The next served time of
    /// such a pair is stored.
    worked: Vec<(TableId, JobKind)>,
}

impl Entry {
    fn identity(&self) -> Identity {
        identity(&self.work)
    }

    fn backoff_key(&self) -> BackoffKey {
        backoff_key(&self.work)
    }

    /// Returns the job as shown to users.
    pub(crate) fn job(&self, journal: &Journal) -> Job {
        let mut job = Job::planned(self.id, &self.work, self.table.clone(), self.created);
        job.by_hand = self.by_hand;
        if self.is_paused || (!self.by_hand && journal.is_paused(self.work.table, self.work.kind)) {
            job.state = JobState::Paused;
        }
        job
    }
}

impl JobQueue {
    /// Replaces the planned work. Omits work that is already requested or running, except a running seal. Removes waits
    /// that have ended.
    pub(crate) fn renew(
        &mut self,
        overview: &Overview,
        planned: Vec<Planned>,
        running: Option<&Entry>,
        journal: &mut Journal,
        monotonic: Duration,
    ) {
        let now = overview.now();
        self.holds.retain(|_, hold| match hold {
            // The failure count is kept for `RETRY_MAX` after the wait.
            Backoff::Failed(_, until) => monotonic < until.saturating_add(RETRY_MAX),
            Backoff::Cancelled(until) => monotonic < *until,
            Backoff::CancelledUntil(until) => now < *until,
        });
        let known = self.planned.drain(..).map(|entry| (entry.identity(), entry));
        let mut known: HashMap<Identity, Entry> = known.collect();
        // A running seal does not include later writes, so another one may be requested.
        let running = running.filter(|entry| entry.work.kind != JobKind::Seal);
        let spoken_for: HashSet<Identity> = self.by_hand.iter().chain(running).map(Entry::identity).collect();
        let planned = planned.into_iter().map(|work| (identity(&work), work));
        let planned: Vec<_> = planned
            .filter(|(identity, _)| !spoken_for.contains(identity))
            .collect();
        let may_begin = planned
            .iter()
            .filter(|(_, work)| self.may_begin(work, now, journal, monotonic))
            .count();
        // Numbers of entries left for work that may start, and for other work.
        let (mut left, mut left_for_others) = (PLANNED_MAX, PLANNED_MAX.saturating_sub(may_begin));
        self.cut.clear();
        for (identity, work) in planned {
            let left = match self.may_begin(&work, now, journal, monotonic) {
                true => &mut left,
                false => &mut left_for_others,
            };
            if *left == 0 {
                if work.is_due(now) && !self.is_cancelled(&work) {
                    self.cut.extend(work.table.map(|table| (table, work.kind)));
                }
                continue;
            }
            *left -= 1;
            let entry = match known.remove(&identity) {
                Some(entry) => Entry { work, ..entry },
                None => Entry {
                    id: journal.next_id(),
                    table: work.table.and_then(|id| Some(overview.table(id)?.named())),
                    created: now,
                    by_hand: false,
                    is_paused: false,
                    work,
                },
            };
            self.planned.push(entry);
        }
    }

    /// Marks planned work of a kind as requested: it runs before other planned work, regardless of its schedule.
    /// Returns the ids, including the ids of work that was requested before.
    pub(crate) fn request(&mut self, kind: JobKind, table: Option<TableId>) -> Vec<u64> {
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

    /// Adds requested work that is in no plan.
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

    /// Removes and returns the next work to run; `None` if no work may start.
    pub(crate) fn next(&mut self, now: i64, journal: &Journal, monotonic: Duration) -> Option<Entry> {
        if let Some(at) = self.by_hand.iter().position(|entry| !entry.is_paused) {
            return self.by_hand.remove(at);
        }
        let may_begin = |entry: &Entry| self.may_begin(&entry.work, now, journal, monotonic);
        let at = self.planned.iter().position(may_begin)?;
        Some(self.planned.remove(at))
    }

    /// Returns true if planned work is due, and neither paused nor waiting after a failure or a cancel.
    fn may_begin(&self, work: &Planned, now: i64, journal: &Journal, monotonic: Duration) -> bool {
        work.is_due(now) && !journal.is_paused(work.table, work.kind) && !self.is_held(work, monotonic)
    }

    fn is_held(&self, work: &Planned, monotonic: Duration) -> bool {
        match self.holds.get(&backoff_key(work)) {
            Some(Backoff::Failed(_, until)) => monotonic < *until,
            Some(Backoff::Cancelled(_) | Backoff::CancelledUntil(_)) => true,
            None => false,
        }
    }

    /// Puts running work back into the queue after a pause has ended it. `is_paused` is false if the job was resumed
    /// meanwhile. If the work was requested, this one job is marked as paused, not its kind.
    pub(crate) fn put_back(&mut self, entry: Entry, is_paused: bool) {
        if entry.by_hand {
            self.by_hand.push_front(Entry { is_paused, ..entry });
        } else {
            self.planned.push(entry);
        }
    }

    /// Removes and returns a waiting job; `None` if no waiting job has this id.
    pub(crate) fn remove(&mut self, id: u64) -> Option<Entry> {
        if let Some(at) = self.by_hand.iter().position(|entry| entry.id == id) {
            return self.by_hand.remove(at);
        }
        let at = self.planned.iter().position(|entry| entry.id == id)?;
        Some(self.planned.remove(at))
    }

    /// Returns true if a job is waiting and was requested.
    pub(crate) fn is_requested(&self, id: u64) -> bool {
        self.by_hand.iter().any(|entry| entry.id == id)
    }

    /// Returns a waiting job; `None` if no waiting job has this id.
    pub(crate) fn find(&mut self, id: u64) -> Option<&mut Entry> {
        self.by_hand
            .iter_mut()
            .chain(&mut self.planned)
            .find(|entry| entry.id == id)
    }

    /// Records a success: ends the wait of the work, and records its table and kind, so that the next served time of
    /// their schedule is stored.
    pub(crate) fn succeeded(&mut self, entry: &Entry) {
        self.holds.remove(&entry.backoff_key());
        let worked = entry.work.table.map(|table| (table, entry.work.kind));
        self.worked
            .extend(worked.filter(|worked| !self.worked.contains(worked)));
    }

    /// Returns the failures of an entry that waits for its next attempt; `None` if it does not wait after a failure.
    pub(crate) fn trouble(&self, entry: &Entry, monotonic: Duration) -> Option<RepeatedFailure> {
        let hold = self.holds.get(&entry.backoff_key())?;
        hold.trouble(monotonic).filter(|trouble| !trouble.left.is_zero())
    }

    /// Finds the unit of work with the most failures in a row among a table's work of these kinds. Returns its failures
    /// and the time until its next attempt; `None` if no such unit has failed.
    pub(crate) fn worst(
        &self,
        table: TableId,
        kinds: &[JobKind],
        monotonic: Duration,
    ) -> Option<RepeatedFailure> {
        let of_table = self
            .holds
            .iter()
            .filter(|((_, kind, of, _), _)| *of == Some(table) && kinds.contains(kind));
        of_table
            .filter_map(|(_, hold)| hold.trouble(monotonic))
            .max_by_key(|trouble| (trouble.failures, trouble.left))
    }

    /// Records a failure and returns the wait. The wait doubles with each failure in a row, up to [`RETRY_MAX`].
    pub(crate) fn failed(&mut self, entry: &Entry, monotonic: Duration) -> Duration {
        let hold = self
            .holds
            .entry(entry.backoff_key())
            .or_insert(Backoff::Failed(0, monotonic));
        let failures = if let Backoff::Failed(failures, _) = hold {
            *failures
        } else {
            0
        };
        let wait = RETRY_MIN.saturating_mul(1 << failures.min(16)).min(RETRY_MAX);
        *hold = Backoff::Failed(failures.saturating_add(1), monotonic.saturating_add(wait));
        wait
    }

    /// Records a cancel. The work waits for the next time of its schedule. Without a schedule, it waits for an hour.
    pub(crate) fn cancelled(&mut self, entry: &Entry, overview: &Overview, monotonic: Duration) {
        let table = entry.work.table.and_then(|id| overview.table(id));
        let timetable = table.and_then(|table| Timetable::new(table.schedule(entry.work.kind)).ok());
        let next = timetable
            .filter(|timetable| !timetable.is_continuous())
            .and_then(|timetable| timetable.next_after(overview.now()));
        let hold = match next {
            Some(next) => Backoff::CancelledUntil(next),
            None => Backoff::Cancelled(monotonic.saturating_add(CANCELLED_REST)),
        };
        self.holds.insert(entry.backoff_key(), hold);
    }

    /// Marks each schedule as served if its time has passed and it has no due work left. Removes dropped tables from
    /// the journal. Returns the rows to store and to remove.
    pub(crate) fn serve(&mut self, overview: &Overview, served: &Served, journal: &mut Journal) -> Edit {
        let mut edit = Edit::default();
        let now = overview.now();
        for table in overview.tables() {
            let mut is_to_store = false;
            // The schedule of a round is recorded as served when the round ends.
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
                let stored = journal.serve(table.id, kind, now);
                let has_worked = self.worked.contains(&(table.id, kind));
                self.worked.retain(|worked| *worked != (table.id, kind));
                is_to_store |= has_worked
                    || stored.is_none_or(|stored| now.abs_diff(stored) >= SERVED_STORED_EVERY.unsigned_abs());
            }
            if is_to_store {
                edit.put.push(journal.table_row(table.id));
            }
        }
        edit.remove = journal.retain_tables(|id| overview.table(id).is_some());
        edit
    }

    /// Returns true if planned work of a kind may start by its schedule and is neither paused nor cancelled.
    pub(crate) fn is_due(&self, table: TableId, kind: JobKind, now: i64, journal: &Journal) -> bool {
        !journal.is_paused(Some(table), kind) && self.has_work(table, kind, now)
    }

    /// Returns true if planned work of a kind is due. Cancelled work does not count.
    fn has_work(&self, table: TableId, kind: JobKind, now: i64) -> bool {
        let is_listed = self.planned.iter().any(|entry| {
            entry.work.table == Some(table)
                && entry.work.kind == kind
                && entry.work.is_due(now)
                && !self.is_cancelled(&entry.work)
        });
        is_listed || self.cut.contains(&(table, kind))
    }

    fn is_cancelled(&self, work: &Planned) -> bool {
        matches!(
            self.holds.get(&backoff_key(work)),
            Some(Backoff::Cancelled(_) | Backoff::CancelledUntil(_))
        )
    }
}

fn identity(work: &Planned) -> Identity {
    (backoff_key(work), work.inputs.clone())
}

fn backoff_key(work: &Planned) -> BackoffKey {
    (work.model, work.kind, work.table, work.slot)
}

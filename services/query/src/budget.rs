//! Limits of a query and their enforcement while it runs.
//!
//! A [`Budget`] holds the limits, a [`Cancel`] the cancellation flag and progress counters. A [`Watch`] checks both for
//! one running query and accounts its memory. Workers share the watch; its counters are atomic.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tideline_engine::Engine;
use tideline_engine::points::Run;
use tideline_engine::runtime::{Reservation, background};

use crate::error::{QueryError, Result};

/// Limits of one query. A query that is known in advance to exceed a limit is refused before the first point is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Maximum number of selected timelines. Default 1,000,000.
    pub timelines_max: u64,
    /// Maximum number of decoded points; a summary of many points counts as one. Default 1,000,000,000.
    pub points_max: u64,
    /// Maximum number of decoded field values; a summary of many values counts as one. Default 10,000,000,000.
    pub values_max: u64,
    /// Maximum number of cells of an aggregate: windows × groups × columns, including empty cells. Default 20,000,000.
    pub cells_max: u64,
    /// Maximum number of bytes of values held at once: values for percentiles, distinct counts, modes, samples and
    /// sorted rows, and first and last strings and histograms. Values held by evaluators that read through a
    /// [`Scan`](crate::Scan) count as well. Default 256 MiB.
    pub held_bytes_max: u64,
    /// Maximum number of rows of the result. Default 50,000,000.
    pub rows_max: u64,
    /// Maximum time from the start of planning to the last row, including waiting for a slow client. Default 120 s.
    pub time_max: Duration,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            timelines_max: 1_000_000,
            points_max: 1_000_000_000,
            values_max: 10_000_000_000,
            cells_max: 20_000_000,
            held_bytes_max: 256 << 20,
            rows_max: 50_000_000,
            time_max: Duration::from_secs(120),
        }
    }
}

impl Budget {
    /// Returns the smaller value of each limit.
    pub(crate) fn at_most(&self, other: &Self) -> Self {
        Self {
            timelines_max: self.timelines_max.min(other.timelines_max),
            points_max: self.points_max.min(other.points_max),
            values_max: self.values_max.min(other.values_max),
            cells_max: self.cells_max.min(other.cells_max),
            held_bytes_max: self.held_bytes_max.min(other.held_bytes_max),
            rows_max: self.rows_max.min(other.rows_max),
            time_max: self.time_max.min(other.time_max),
        }
    }
}

/// Cancellation flag and progress counters of a query. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Cancel(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    is_cancelled: AtomicBool,
    timelines: AtomicU64,
    points: AtomicU64,
    values: AtomicU64,
}

/// Progress of the queries that share a [`Cancel`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Timelines selected.
    pub timelines: u64,
    /// Points decoded; a summary of many points counts as one.
    pub points: u64,
    /// Field values decoded; a summary of many values counts as one.
    pub values: u64,
}

impl Cancel {
    /// Returns a flag that is not set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Cancels the queries that share the flag; each stops at its next check.
    pub fn cancel(&self) {
        self.0.is_cancelled.store(true, Ordering::Relaxed);
    }

    /// Returns true if the query was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.0.is_cancelled.load(Ordering::Relaxed)
    }

    /// Returns the progress of the queries that share this flag.
    pub fn progress(&self) -> Progress {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Progress {
            timelines: read(&self.0.timelines),
            points: read(&self.0.points),
            values: read(&self.0.values),
        }
    }
}

/// Time limit and cancellation flag of one running query. The engine handle reports whether the token of the query was
/// revoked.
#[derive(Debug, Clone)]
pub(crate) struct Deadline {
    cancel: Cancel,
    engine: Arc<Engine>,
    started: Instant,
    time_max: Duration,
}

impl Deadline {
    /// Returns an error if the query was cancelled, its token was revoked, or its time is over.
    pub(crate) fn check(&self) -> Result<()> {
        if self.cancel.is_cancelled() || self.engine.is_revoked() {
            return Err(QueryError::Cancelled);
        }
        let (limit, elapsed) = (self.time_max, self.started.elapsed());
        if elapsed > limit {
            return Err(QueryError::TimedOut { limit, elapsed });
        }
        Ok(())
    }
}

/// Unit in which a query reserves memory from the process account, so that few calls take the lock of the account.
const PAGE_BYTES: u64 = 256 << 10;
/// Unused reserved bytes above which a query returns memory to the account.
const SPARE_BYTES_MAX: u64 = 4 << 20;

/// Enforcement of the budget of one running query, shared by its workers.
///
/// Held values count twice: against the budget, and, rounded up to pages, against the memory account of the
/// process. Memory of other kinds counts only against the account.
#[derive(Debug)]
pub struct Watch {
    budget: Budget,
    deadline: Deadline,
    points: AtomicU64,
    values: AtomicU64,
    held: AtomicU64,
    /// Bytes that count only against the account, in addition to `held`.
    limited_elsewhere: AtomicU64,
    /// Bytes of `reservation`, readable without its lock.
    reserved: AtomicU64,
    reservation: Mutex<Reservation>,
}

impl Watch {
    /// Starts the watch of a query that begins now. The memory of the query is charged to the memory account of the
    /// engine.
    pub(crate) fn new(budget: Budget, cancel: Cancel, engine: &Arc<Engine>) -> Self {
        Self {
            budget,
            deadline: Deadline {
                cancel,
                engine: Arc::clone(engine),
                started: Instant::now(),
                time_max: budget.time_max,
            },
            points: AtomicU64::new(0),
            values: AtomicU64::new(0),
            held: AtomicU64::new(0),
            limited_elsewhere: AtomicU64::new(0),
            reserved: AtomicU64::new(0),
            reservation: Mutex::new(engine.memory().open("queries")),
        }
    }

    /// Returns the budget.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.deadline.started.elapsed()
    }

    /// Returns the time limit and the cancellation flag.
    pub(crate) fn deadline(&self) -> &Deadline {
        &self.deadline
    }

    /// Checks the time limit and the cancellation flag. A background query yields its core here.
    ///
    /// # Errors
    ///
    /// [`QueryError::Cancelled`] if the query was cancelled or its token was revoked, [`QueryError::TimedOut`] if its time
    /// is over.
    pub fn check(&self) -> Result<()> {
        background::yield_core();
        self.deadline.check()
    }

    /// Charges a decoded run.
    pub(crate) fn charge(&self, run: &Run) -> Result<()> {
        self.check()?;
        self.add(run.rows() as u64, run.values() as u64)
    }

    /// Accounts a change of the held bytes from `before` to `now`. The held bytes can decrease: an estimate can
    /// be smaller than the values that it replaces.
    pub(crate) fn hold(&self, before: u64, now: u64) -> Result<()> {
        let what = "bytes held for percentiles, distinct counts, modes, first and last texts, samples and sorted rows";
        self.hold_of(what, before, now)
    }

    /// Accounts a change of the held bytes from `before` to `now`. `what` describes the bytes in the error message.
    ///
    /// # Errors
    ///
    /// [`QueryError::OverBudget`] with `what` if the query holds more than [`Budget::held_bytes_max`],
    /// [`QueryError::Memory`] if the memory account of the process has too little free memory.
    pub fn hold_of(&self, what: &'static str, before: u64, now: u64) -> Result<()> {
        let Some(more) = now.checked_sub(before).filter(|more| *more > 0) else {
            self.held.fetch_sub(before - now, Ordering::Relaxed);
            self.give_back();
            return Ok(());
        };
        let held = self.held.fetch_add(more, Ordering::Relaxed) + more;
        within(what, self.budget.held_bytes_max, held)?;
        self.reserve()
    }

    /// Accounts a change from `before` to `now` of bytes that have another limit than [`Budget::held_bytes_max`]: cells
    /// of aggregates, timelines, samples of PromQL.
    ///
    /// # Errors
    ///
    /// [`QueryError::Memory`] if the memory account of the process has too little free memory.
    pub fn hold_limited_elsewhere(&self, before: u64, now: u64) -> Result<()> {
        let Some(more) = now.checked_sub(before).filter(|more| *more > 0) else {
            self.limited_elsewhere.fetch_sub(before - now, Ordering::Relaxed);
            self.give_back();
            return Ok(());
        };
        self.limited_elsewhere.fetch_add(more, Ordering::Relaxed);
        self.reserve()
    }

    /// Resets the bytes held against [`Budget::held_bytes_max`] to zero.
    pub fn release(&self) {
        self.held.store(0, Ordering::Relaxed);
        self.give_back();
    }

    fn all_held(&self) -> u64 {
        let limited_elsewhere = self.limited_elsewhere.load(Ordering::Relaxed);
        self.held
            .load(Ordering::Relaxed)
            .saturating_add(limited_elsewhere)
    }

    /// Reserves pages for all held bytes.
    fn reserve(&self) -> Result<()> {
        if self.all_held() <= self.reserved.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut reservation = self.reservation.lock();
        let wanted = self.all_held().div_ceil(PAGE_BYTES).saturating_mul(PAGE_BYTES);
        if wanted > reservation.bytes() {
            reservation.resize(wanted)?;
            self.reserved.store(wanted, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Returns unused pages to the account if more than [`SPARE_BYTES_MAX`] reserved bytes are unused.
    fn give_back(&self) {
        let spare = |reserved: u64| reserved.saturating_sub(self.all_held());
        if spare(self.reserved.load(Ordering::Relaxed)) <= SPARE_BYTES_MAX {
            return;
        }
        let mut reservation = self.reservation.lock();
        let spare = spare(reservation.bytes());
        reservation.shrink(spare - spare % PAGE_BYTES);
        self.reserved.store(reservation.bytes(), Ordering::Relaxed);
    }

    /// Adds selected timelines to the progress.
    pub(crate) fn note_selected(&self, timelines: u64) {
        self.deadline
            .cancel
            .0
            .timelines
            .fetch_add(timelines, Ordering::Relaxed);
    }

    /// Charges points and values.
    pub(crate) fn add(&self, points: u64, values: u64) -> Result<()> {
        self.deadline.cancel.0.points.fetch_add(points, Ordering::Relaxed);
        self.deadline.cancel.0.values.fetch_add(values, Ordering::Relaxed);
        let add = |sum: &AtomicU64, more: u64| sum.fetch_add(more, Ordering::Relaxed) + more;
        within("points read", self.budget.points_max, add(&self.points, points))?;
        within("values read", self.budget.values_max, add(&self.values, values))
    }
}

/// Returns the row limit of a query: `requested`, or the limit of the budget if `requested` is `None`. Fails if
/// `requested` is 0 or exceeds the limit of the budget. Also fails if `requested` is `None` and the limit of the budget
/// is 0.
pub(crate) fn rows_limit(what: &'static str, budget: &Budget, requested: Option<u64>) -> Result<u64> {
    match requested {
        Some(0) => Err(QueryError::Invalid("the limit must be at least 1, not 0".into())),
        Some(requested) => within(what, budget.rows_max, requested).map(|()| requested),
        None => within(what, budget.rows_max, 1).map(|()| budget.rows_max),
    }
}

/// Returns an error if `actual` is above `limit`.
pub(crate) fn within(what: &'static str, limit: u64, actual: u64) -> Result<()> {
    if actual > limit {
        return Err(QueryError::OverBudget { what, limit, actual });
    }
    Ok(())
}

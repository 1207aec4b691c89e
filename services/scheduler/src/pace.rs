//! How a running job is held back, paused and ended.
//!
//! A job reports its cost every few milliseconds. It is held while its table has read more bytes than its
//! rate allows, and while it is paused. A pause that lasts longer than [`PAUSE_HOLD`] ends the job, which leaves
//! everything as it was: what is held open for it is freed, other work gets its turn, and it begins anew when it is
//! resumed.

use std::ops::{Add, AddAssign, ControlFlow};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tideline_engine::model::Clock;

/// For how long a paused rewrite keeps what it has done.
pub const PAUSE_HOLD: Duration = Duration::from_secs(60);
/// Between two looks at the clock while a rewrite is held; a command is heard at once.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// What a table may read at once after a time without moves.
const BURST: Duration = Duration::from_secs(1);

/// What a job has read and written so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct JobCost {
    /// Timelines done.
    pub timelines: u64,
    /// Points, rows or messages that were read.
    pub points_read: u64,
    /// Field values in them.
    pub values_read: u64,
    /// Encoded bytes of them.
    pub bytes_read: u64,
    /// Points, rows or messages of the output.
    pub points_written: u64,
    /// Field values of the output.
    pub values_written: u64,
    /// Bytes of the output, keys included.
    pub bytes_written: u64,
}

impl Add for JobCost {
    type Output = Self;

    fn add(mut self, other: Self) -> Self {
        self += other;
        self
    }
}

impl AddAssign for JobCost {
    fn add_assign(&mut self, other: Self) {
        self.timelines += other.timelines;
        self.points_read += other.points_read;
        self.values_read += other.values_read;
        self.bytes_read += other.bytes_read;
        self.points_written += other.points_written;
        self.values_written += other.values_written;
        self.bytes_written += other.bytes_written;
    }
}

/// What the running job is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JobCommand {
    /// Go on.
    GoOn,
    /// Wait.
    Pause,
    /// End, for good.
    Cancel,
    /// End, because the process does.
    Stop,
}

/// The command, and what the job has done.
#[derive(Debug)]
pub(crate) struct Control {
    state: Mutex<(JobCommand, JobCost)>,
    changed: Condvar,
}

impl Default for Control {
    fn default() -> Self {
        Self {
            state: Mutex::new((JobCommand::GoOn, JobCost::default())),
            changed: Condvar::new(),
        }
    }
}

impl Control {
    /// Clears the way for a new job. A stop stays.
    pub(crate) fn reset(&self) {
        let mut state = self.state.lock();
        let command = if state.0 == JobCommand::Stop {
            JobCommand::Stop
        } else {
            JobCommand::GoOn
        };
        *state = (command, JobCost::default());
    }

    /// Tells the running job. Nothing overrides a stop, and only that a cancel.
    pub(crate) fn command(&self, command: JobCommand) {
        let mut state = self.state.lock();
        if state.0 != JobCommand::Stop && (state.0 != JobCommand::Cancel || command == JobCommand::Stop) {
            state.0 = command;
        }
        self.changed.notify_all();
    }

    /// Takes note of what the job has done in the end.
    pub(crate) fn report(&self, cost: &JobCost) {
        self.state.lock().1 = *cost;
    }

    pub(crate) fn current(&self) -> (JobCommand, JobCost) {
        *self.state.lock()
    }
}

/// Bytes that a table may read, as they flow.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Budget {
    bytes_per_second: u64,
    /// What may be read now; below zero it was overdrawn.
    level: f64,
    at: Duration,
}

impl Budget {
    pub(crate) fn new(bytes_per_second: u64, now: Duration) -> Self {
        let bytes_per_second = bytes_per_second.max(1);
        Self {
            bytes_per_second,
            level: bytes_per_second as f64 * BURST.as_secs_f64(),
            at: now,
        }
    }

    /// The same budget at another rate from now on.
    pub(crate) fn at_rate(mut self, bytes_per_second: u64, now: Duration) -> Self {
        self.flow(now);
        Self {
            bytes_per_second: bytes_per_second.max(1),
            ..self
        }
    }

    /// Takes `bytes`; how long to wait until they are covered.
    fn take(&mut self, bytes: u64, now: Duration) -> Duration {
        self.flow(now);
        self.level -= bytes as f64;
        if self.level >= 0.0 {
            return Duration::ZERO;
        }
        Duration::try_from_secs_f64(-self.level / self.bytes_per_second as f64).unwrap_or(Duration::MAX)
    }

    fn flow(&mut self, now: Duration) {
        let rate = self.bytes_per_second as f64;
        let gained = rate * now.saturating_sub(self.at).as_secs_f64();
        self.at = self.at.max(now);
        self.level = (self.level + gained).min(rate * BURST.as_secs_f64());
    }
}

/// The pace of one job.
pub(crate) struct JobPace<'a> {
    control: &'a Control,
    clock: &'a dyn Clock,
    pub(crate) budget: Option<Budget>,
    /// Bytes that were taken from the budget.
    taken: u64,
    /// What earlier parts of the job have done.
    before: JobCost,
    /// The command that ended the job.
    pub(crate) ended_by: Option<JobCommand>,
}

impl<'a> JobPace<'a> {
    pub(crate) fn new(control: &'a Control, clock: &'a dyn Clock, budget: Option<Budget>) -> Self {
        Self {
            control,
            clock,
            budget,
            taken: 0,
            before: JobCost::default(),
            ended_by: None,
        }
    }

    /// A part of the job is done; what comes is counted on top of it. What all have done.
    pub(crate) fn part_done(&mut self, cost: &JobCost) -> JobCost {
        self.before += *cost;
        self.control.report(&self.before);
        self.before
    }

    /// Cost of all parts that have ended.
    pub(crate) fn cost(&self) -> JobCost {
        self.before
    }

    fn end(&mut self, command: JobCommand) -> ControlFlow<()> {
        self.ended_by = Some(command);
        ControlFlow::Break(())
    }

    /// Reports the cost of the running part so far; waits while the job is held, breaks when it is to end.
    pub(crate) fn step(&mut self, cost: &JobCost) -> ControlFlow<()> {
        let cost = self.before + *cost;
        let mut state = self.control.state.lock();
        state.1 = cost;
        let mut read = cost.bytes_read.saturating_sub(self.taken);
        self.taken = self.taken.max(cost.bytes_read);
        let mut paused_at = None;
        loop {
            let now = self.clock.monotonic();
            let wait = match state.0 {
                JobCommand::GoOn => match &mut self.budget {
                    Some(budget) => budget.take(std::mem::take(&mut read), now),
                    None => Duration::ZERO,
                },
                JobCommand::Pause => {
                    let since = *paused_at.get_or_insert(now);
                    if now.saturating_sub(since) >= PAUSE_HOLD {
                        return self.end(JobCommand::Pause);
                    }
                    LOOK_EVERY
                }
                command => return self.end(command),
            };
            if wait.is_zero() {
                return ControlFlow::Continue(());
            }
            self.control.changed.wait_for(&mut state, wait.min(LOOK_EVERY));
        }
    }
}

#[cfg(test)]
mod tests {
    use tideline_engine::model::{ManualClock, Timestamp};

    use super::*;

    #[test]
    fn a_budget_holds_the_rate_over_many_steps_and_jobs() {
        let mut budget = Budget::new(1_000, Duration::ZERO);
        let mut now = Duration::ZERO;
        for _ in 0..100 {
            now += budget.take(700, now);
        }
        // A second's worth is free at the start.
        assert_eq!(now, Duration::from_secs(69));
        let mut budget = budget.at_rate(10_000, now);
        assert_eq!(budget.take(1_000, now), Duration::from_millis(100));
        // After a pause there is a second's worth again, and no more.
        now += Duration::from_secs(3_600);
        assert_eq!(budget.take(15_000, now), Duration::from_millis(500));
        assert_eq!(
            Budget::new(0, now).take(2, now),
            Duration::from_secs(1),
            "a rate of nothing is very slow"
        );
    }

    #[test]
    fn a_stop_overrides_everything_and_a_cancel_all_but_a_stop() {
        let control = Control::default();
        let clock = ManualClock::new(Timestamp::EPOCH);
        for (command, ends) in [
            (JobCommand::Pause, None),
            (JobCommand::GoOn, None),
            (JobCommand::Cancel, Some(JobCommand::Cancel)),
            (JobCommand::GoOn, Some(JobCommand::Cancel)),
            (JobCommand::Stop, Some(JobCommand::Stop)),
            (JobCommand::Cancel, Some(JobCommand::Stop)),
        ] {
            control.command(command);
            if command == JobCommand::Pause {
                continue;
            }
            let mut pace = JobPace::new(&control, &clock, None);
            let went_on = pace.step(&JobCost::default()).is_continue();
            assert_eq!((went_on, pace.ended_by), (ends.is_none(), ends), "{command:?}");
        }
        control.reset();
        assert_eq!(control.current().0, JobCommand::Stop);
    }
}

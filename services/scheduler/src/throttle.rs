//! Throttle, pause and cancel of the running job.
//!
//! A job reports its cost every few milliseconds. The job waits while its table has read more bytes than the rate of
//! the table allows, and while the job is paused. A pause longer than [`PAUSE_HOLD`] ends the job; its running part
//! then has no effect. The end closes the files of the job and lets other work run. The job starts again when it is
//! resumed.

use std::ops::{Add, AddAssign, ControlFlow};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tideline_engine::model::Clock;

/// Time for which a paused job keeps its progress.
pub const PAUSE_HOLD: Duration = Duration::from_secs(60);
/// Interval between readings of the clock while a job waits. A command takes effect at once.
const CLOCK_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Credit of a table after an idle time: it may read at once as many bytes as its rate allows in this duration.
const BURST: Duration = Duration::from_secs(1);

/// Data that a job has read and written so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct JobCost {
    /// Number of timelines that are completed.
    pub timelines: u64,
    /// Number of points, rows or messages read.
    pub points_read: u64,
    /// Number of field values read.
    pub values_read: u64,
    /// Number of encoded bytes read.
    pub bytes_read: u64,
    /// Number of points, rows or messages written.
    pub points_written: u64,
    /// Number of field values written.
    pub values_written: u64,
    /// Number of bytes written, keys included.
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

/// Command to the running job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JobCommand {
    /// The job continues.
    Continue,
    /// The job waits.
    Pause,
    /// The job ends for good.
    Cancel,
    /// The job ends because the process ends.
    Stop,
}

/// Command to the running job, and its progress.
#[derive(Debug)]
pub(crate) struct Control {
    state: Mutex<(JobCommand, JobCost)>,
    changed: Condvar,
}

impl Default for Control {
    fn default() -> Self {
        Self {
            state: Mutex::new((JobCommand::Continue, JobCost::default())),
            changed: Condvar::new(),
        }
    }
}

impl Control {
    /// Resets command and progress for a new job. A stop stays in effect.
    pub(crate) fn reset(&self) {
        let mut state = self.state.lock();
        let command = if state.0 == JobCommand::Stop {
            JobCommand::Stop
        } else {
            JobCommand::Continue
        };
        *state = (command, JobCost::default());
    }

    /// Sets the command. Nothing overrides a stop, and only a stop overrides a cancel.
    pub(crate) fn command(&self, command: JobCommand) {
        let mut state = self.state.lock();
        if state.0 != JobCommand::Stop && (state.0 != JobCommand::Cancel || command == JobCommand::Stop) {
            state.0 = command;
        }
        self.changed.notify_all();
    }

    /// Records the progress of the job.
    pub(crate) fn report(&self, cost: &JobCost) {
        self.state.lock().1 = *cost;
    }

    pub(crate) fn current(&self) -> (JobCommand, JobCost) {
        *self.state.lock()
    }
}

/// Token bucket of the bytes that a table may read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Budget {
    bytes_per_second: u64,
    /// Bytes that may be read now; negative if overdrawn.
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

    /// Returns the same budget with another rate from now on.
    pub(crate) fn at_rate(mut self, bytes_per_second: u64, now: Duration) -> Self {
        self.flow(now);
        Self {
            bytes_per_second: bytes_per_second.max(1),
            ..self
        }
    }

    /// Takes `bytes` and returns the wait until the budget is no longer overdrawn.
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

/// Throttle of one job.
pub(crate) struct JobThrottle<'a> {
    control: &'a Control,
    clock: &'a dyn Clock,
    pub(crate) budget: Option<Budget>,
    /// Bytes of the job that the budget has counted.
    counted: u64,
    /// Cost of the completed parts of the job.
    before: JobCost,
    /// Command that ended the job; `None` = no command ended it.
    pub(crate) ended_by: Option<JobCommand>,
}

impl<'a> JobThrottle<'a> {
    pub(crate) fn new(control: &'a Control, clock: &'a dyn Clock, budget: Option<Budget>) -> Self {
        Self {
            control,
            clock,
            budget,
            counted: 0,
            before: JobCost::default(),
            ended_by: None,
        }
    }

    /// Completes a part of the job; the cost of later parts is added to its cost. Returns the cost of all completed
    /// parts.
    pub(crate) fn part_done(&mut self, cost: &JobCost) -> JobCost {
        self.before += *cost;
        self.control.report(&self.before);
        self.before
    }

    /// Returns the cost of all completed parts.
    pub(crate) fn cost(&self) -> JobCost {
        self.before
    }

    fn end(&mut self, command: JobCommand) -> ControlFlow<()> {
        self.ended_by = Some(command);
        ControlFlow::Break(())
    }

    /// Reports the cost of the running part so far. Waits while the job is paused or over the rate of its table. Breaks
    /// if the job must end.
    pub(crate) fn step(&mut self, cost: &JobCost) -> ControlFlow<()> {
        let cost = self.before + *cost;
        let mut state = self.control.state.lock();
        state.1 = cost;
        let mut read = cost.bytes_read.saturating_sub(self.counted);
        self.counted = self.counted.max(cost.bytes_read);
        let mut paused_at = None;
        loop {
            let now = self.clock.monotonic();
            let wait = match state.0 {
                JobCommand::Continue => match &mut self.budget {
                    Some(budget) => budget.take(std::mem::take(&mut read), now),
                    None => Duration::ZERO,
                },
                JobCommand::Pause => {
                    let since = *paused_at.get_or_insert(now);
                    if now.saturating_sub(since) >= PAUSE_HOLD {
                        return self.end(JobCommand::Pause);
                    }
                    CLOCK_POLL_INTERVAL
                }
                command => return self.end(command),
            };
            if wait.is_zero() {
                return ControlFlow::Continue(());
            }
            self.control
                .changed
                .wait_for(&mut state, wait.min(CLOCK_POLL_INTERVAL));
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
        // One second of reads is free at the start.
        assert_eq!(now, Duration::from_secs(69));
        let mut budget = budget.at_rate(10_000, now);
        assert_eq!(budget.take(1_000, now), Duration::from_millis(100));
        // After a pause one second of reads is free again, and no more.
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
            (JobCommand::Continue, None),
            (JobCommand::Cancel, Some(JobCommand::Cancel)),
            (JobCommand::Continue, Some(JobCommand::Cancel)),
            (JobCommand::Stop, Some(JobCommand::Stop)),
            (JobCommand::Cancel, Some(JobCommand::Stop)),
        ] {
            control.command(command);
            if command == JobCommand::Pause {
                continue;
            }
            let mut throttle = JobThrottle::new(&control, &clock, None);
            let went_on = throttle.step(&JobCost::default()).is_continue();
            assert_eq!(
                (went_on, throttle.ended_by),
                (ends.is_none(), ends),
                "{command:?}"
            );
        }
        control.reset();
        assert_eq!(control.current().0, JobCommand::Stop);
    }
}

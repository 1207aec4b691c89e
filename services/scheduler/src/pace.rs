//! How a running rewrite is held back, paused and ended.
//!
//! A rewrite asks every few timelines whether to go on. It is held while its table has read more bytes than its
//! rate allows, and while it is paused. A pause that lasts longer than [`PAUSE_HOLD`] ends the rewrite, which leaves
//! everything as it was: what is held open for it is freed, other work gets its turn, and it begins anew when it is
//! resumed.

use std::ops::ControlFlow;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tideline_model::Clock;
use tideline_series_store::{Pace, RewriteCost};

/// For how long a paused rewrite keeps what it has done.
pub const PAUSE_HOLD: Duration = Duration::from_secs(60);
/// Between two looks at the clock while a rewrite is held; a wish is heard at once.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// What a table may read at once after a time without moves.
const BURST: Duration = Duration::from_secs(1);

/// What the running job is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wish {
    /// Go on.
    GoOn,
    /// Wait.
    Pause,
    /// End, for good.
    Cancel,
    /// End, because the process does.
    Stop,
}

/// The wish, and what the job has done.
#[derive(Debug)]
pub(crate) struct Control {
    state: Mutex<(Wish, RewriteCost)>,
    changed: Condvar,
}

impl Default for Control {
    fn default() -> Self {
        Self {
            state: Mutex::new((Wish::GoOn, RewriteCost::default())),
            changed: Condvar::new(),
        }
    }
}

impl Control {
    /// Clears the way for a new job. A stop stays.
    pub(crate) fn reset(&self) {
        let mut state = self.state.lock();
        let wish = if state.0 == Wish::Stop {
            Wish::Stop
        } else {
            Wish::GoOn
        };
        *state = (wish, RewriteCost::default());
    }

    /// Tells the running job. Nothing overrides a stop, and only that a cancel.
    pub(crate) fn wish(&self, wish: Wish) {
        let mut state = self.state.lock();
        if state.0 != Wish::Stop && (state.0 != Wish::Cancel || wish == Wish::Stop) {
            state.0 = wish;
        }
        self.changed.notify_all();
    }

    /// Takes note of what the job has done in the end.
    pub(crate) fn report(&self, cost: &RewriteCost) {
        self.state.lock().1 = *cost;
    }

    pub(crate) fn current(&self) -> (Wish, RewriteCost) {
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
    before: RewriteCost,
    /// The wish that ended the job.
    pub(crate) ended_by: Option<Wish>,
}

impl<'a> JobPace<'a> {
    pub(crate) fn new(control: &'a Control, clock: &'a dyn Clock, budget: Option<Budget>) -> Self {
        Self {
            control,
            clock,
            budget,
            taken: 0,
            before: RewriteCost::default(),
            ended_by: None,
        }
    }

    /// A part of the job is done; what comes is counted on top of it. What all have done.
    pub(crate) fn part_done(&mut self, cost: &RewriteCost) -> RewriteCost {
        self.before += *cost;
        self.control.report(&self.before);
        self.before
    }

    fn end(&mut self, wish: Wish) -> ControlFlow<()> {
        self.ended_by = Some(wish);
        ControlFlow::Break(())
    }
}

impl Pace for JobPace<'_> {
    fn step(&mut self, cost: &RewriteCost) -> ControlFlow<()> {
        let cost = self.before + *cost;
        let mut state = self.control.state.lock();
        state.1 = cost;
        let mut read = cost.bytes_read.saturating_sub(self.taken);
        self.taken = self.taken.max(cost.bytes_read);
        let mut paused_at = None;
        loop {
            let now = self.clock.monotonic();
            let wait = match state.0 {
                Wish::GoOn => match &mut self.budget {
                    Some(budget) => budget.take(std::mem::take(&mut read), now),
                    None => Duration::ZERO,
                },
                Wish::Pause => {
                    let since = *paused_at.get_or_insert(now);
                    if now.saturating_sub(since) >= PAUSE_HOLD {
                        return self.end(Wish::Pause);
                    }
                    LOOK_EVERY
                }
                wish => return self.end(wish),
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
    use tideline_model::{ManualClock, Timestamp};

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
        for (wish, ends) in [
            (Wish::Pause, None),
            (Wish::GoOn, None),
            (Wish::Cancel, Some(Wish::Cancel)),
            (Wish::GoOn, Some(Wish::Cancel)),
            (Wish::Stop, Some(Wish::Stop)),
            (Wish::Cancel, Some(Wish::Stop)),
        ] {
            control.wish(wish);
            if wish == Wish::Pause {
                continue;
            }
            let mut pace = JobPace::new(&control, &clock, None);
            let went_on = pace.step(&RewriteCost::default()).is_continue();
            assert_eq!((went_on, pace.ended_by), (ends.is_none(), ends), "{wish:?}");
        }
        control.reset();
        assert_eq!(control.current().0, Wish::Stop);
    }
}

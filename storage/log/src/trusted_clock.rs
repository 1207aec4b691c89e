//! Trusted time for retention and expiry: the wall clock, limited by monotonic time.
//!
//! A wall clock that is set wrong must not delete data. [`TrustedClock`] compares each reading of the wall clock with
//! the expected time: the last trusted time plus the monotonic time that has passed since.
//!
//! 1. Within [`TOLERANCE`] of the expected time, the trusted time follows the wall clock slowly. Compared with
//!    monotonic time, it runs at most one part in [`SLEW_PARTS`] faster and at least half as fast. It therefore never
//!    jumps, and a wall clock that stands still exceeds the tolerance after about two hours.
//! 2. Beyond the tolerance the clock is *in doubt*: the trusted time follows monotonic time only, and nothing expires.
//! 3. Doubt ends when the wall clock is within the tolerance again, when an operator confirms it, or when it has kept
//!    its new distance for [`SETTLE`]. In the last two cases the trusted time is set to the wall clock, in either
//!    direction.
//!
//! At a start, the wall clock is accepted at once if it is not before the stored time and exceeds it by at most the
//! tolerance, because the process was stopped during this time. Otherwise the start is a reading like any other. A
//! machine that was off for a weekend is therefore in doubt until the clock settles or is confirmed. The very first
//! start has no stored time. It accepts the wall clock unless it is before the *floor*, the earliest time that a
//! correct clock can show. A clock before the floor is in doubt until it reaches the floor or is confirmed; it never
//! settles. Doubt itself is not stored: a restart begins the settling time anew. The time at which the clock last
//! settled is stored.
//!
//! # Time of new points
//!
//! New points also need a clock: for points without a timestamp, and for the limits on past and future timestamps. A
//! point that is refused or gets a wrong timestamp is lost, so new points do not wait a day for the clock to settle. A
//! wall clock that is ahead by at most [`SLEPT_MAX`] is used, because a machine that was off or suspended usually
//! causes such a difference, and a wrong clock rarely does. Any other clock in doubt is not used, and writes that
//! depend on it must be sent again ([`TrustedNow::trusts_wall`]).
//!
//! # Largest lead
//!
//! The *lead* is the time by which the trusted time is ahead of the true time. It grows only towards a wall clock that
//! is itself ahead, and never beyond that clock. It grows
//!
//! - while running, by at most one [`SLEW_PARTS`]th of the time that passes,
//! - at a start, by at most [`TOLERANCE`] minus the time since the trusted time was stored,
//! - by more only at the very first start, when the clock settles, or when an operator confirms a wrong clock.
//!
//! So if the trusted time was right and the wall clock jumps once, the lead is at most one hour, however often the
//! process restarts. The lead is larger only if the jumped clock settles or is confirmed. For each further hour of
//! lead, the wall clock must move ahead by another hour, followed by a start or a hundred hours of running. Once the
//! wall clock is right again and within the tolerance, removing a lead takes twice its length.
//!
//! The protection depends on monotonic time, which stands still while a machine is suspended. A wake-up is
//! therefore handled like a jump of the wall clock.

use std::fmt;
use std::time::Duration;

use tideline_model::Timestamp;
use tideline_model::time::format_duration;

/// Largest distance of the wall clock from the expected time that is not doubted. It exceeds clock drift and a missed
/// leap second, and is not larger than the usual error of a wrong time zone.
pub const TOLERANCE: Duration = Duration::from_secs(3_600);
/// Monotonic time for which a jumped wall clock must keep its distance before it is accepted. One day, so that
/// an operator has time to notice the doubt and correct the clock.
pub const SETTLE: Duration = Duration::from_secs(24 * 3_600);
/// Slew limit: the trusted time runs faster than monotonic time by at most one part in this number.
pub const SLEW_PARTS: i64 = 100;

/// Largest forward jump of the wall clock that is attributed to a machine that was off or suspended: a weekend and some
/// holidays. Wrong clocks usually show an epoch or a time in the far future.
pub const SLEPT_MAX: Duration = Duration::from_secs(7 * 24 * 3_600);

const TOLERANCE_NANOS: i64 = TOLERANCE.as_nanos() as i64;
const SLEPT_NANOS: i64 = SLEPT_MAX.as_nanos() as i64;

/// Converts readings of a wall clock that may jump into a time that is safe for expiry. See the module documentation.
#[derive(Debug, Clone)]
pub struct TrustedClock {
    /// Trusted time at `monotonic`.
    now: i64,
    /// Latest reading of monotonic time.
    monotonic: Duration,
    /// Earliest time that a correct clock can show.
    floor: i64,
    /// True if `now` was taken from a clock that was accepted, false if it is derived from the floor.
    is_set: bool,
    /// Newest timestamp in the store.
    newest_stored: Option<i64>,
    doubt: Option<Doubt>,
    /// Trusted time at which a jumped wall clock was last accepted because it was steady.
    settled: Option<i64>,
}

/// Clock state stored by the previous run. Nanoseconds since the epoch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoredClock {
    /// Last stored [`TrustedNow::now`]; `None` at the very first start. It should be stored every few minutes, because
    /// the time between storing and a crash counts as a jump.
    pub now: Option<i64>,
    /// [`TrustedNow::settled`] at the same time.
    pub settled: Option<i64>,
}

/// State of a wall clock that is too far from the expected time.
#[derive(Debug, Clone, Copy)]
struct Doubt {
    /// Monotonic time at which the doubt began.
    since: Duration,
    /// Distance of the wall clock from the trusted time after the last jump of the wall clock.
    distance: i64,
    /// Monotonic time of that jump.
    steady_since: Duration,
}

/// Reading of the trusted clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrustedNow {
    /// Trusted time, from which ages are counted. It gains at most 1 % on monotonic time, and jumps only at a start and
    /// when the clock settles, is confirmed, or first reaches the floor.
    pub now: Timestamp,
    /// Time for expiry: the trusted time, but at most [`TOLERANCE`] after the newest stored timestamp. `None` while the
    /// clock is in doubt or nothing is stored: then nothing expires.
    pub expire_now: Option<Timestamp>,
    /// Reason why the wall clock is not trusted; `None` while it is trusted.
    pub doubt: Option<ClockDoubt>,
    /// True if a clock was ever accepted. Otherwise `now` is only a lower bound of the time and is not stored.
    pub is_set: bool,
    /// Trusted time at which a jumped wall clock was last accepted only because it was steady. `None` if that never
    /// happened, or if an operator has confirmed the clock since. Points that became invisible because of the jump
    /// should be kept for a while, in case the clock was wrong after all.
    pub settled: Option<Timestamp>,
}

impl TrustedNow {
    /// Returns the trusted time that has passed since [`settled`](Self::settled); `None` if `settled` is `None`.
    pub fn settled_for(&self) -> Option<Duration> {
        let since = |settled: Timestamp| self.now.nanos().saturating_sub(settled.nanos());
        self.settled
            .map(|settled| Duration::from_nanos(u64::try_from(since(settled)).unwrap_or(0)))
    }

    /// Returns true if the wall clock may be used for new points: it is not in doubt, or a clock was accepted before
    /// and the wall clock is ahead of the trusted time by at most [`SLEPT_MAX`].
    pub fn trusts_wall(&self) -> bool {
        let slept = |doubt: ClockDoubt| self.is_set && (0..=SLEPT_NANOS).contains(&doubt.off_by);
        self.doubt.is_none_or(slept)
    }

    /// Returns the state to store for the next start.
    pub fn stored(&self) -> StoredClock {
        StoredClock {
            now: self.is_set.then_some(self.now.nanos()),
            settled: self.settled.map(Timestamp::nanos),
        }
    }

    /// Returns true if hidden points may become visible again because the clock was wrong: the clock is in doubt, or
    /// less than `delay` ago it was accepted only because it was steady.
    pub fn is_unsure(&self, delay: Duration) -> bool {
        self.doubt.is_some() || self.settled_for().is_some_and(|settled| settled < delay)
    }
}

/// Disagreement between the wall clock and the trusted time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockDoubt {
    /// Monotonic time since the doubt began.
    pub since: Duration,
    /// Wall clock minus trusted time, in nanoseconds.
    pub off_by: i64,
    /// Time for which the wall clock has kept this distance. At [`SETTLE`] the clock is accepted, unless it is before
    /// the floor.
    pub steady_for: Duration,
}

impl TrustedClock {
    /// Creates the clock of a start. `floor` is the earliest time that a correct clock can show; [`Timestamp::MIN`] if
    /// unknown.
    pub fn new(stored: StoredClock, floor: Timestamp, wall: Timestamp, monotonic: Duration) -> Self {
        let stopped = |stored: &i64| (0..=TOLERANCE_NANOS).contains(&wall.nanos().saturating_sub(*stored));
        // A stored time before the floor came from a wrong clock, so a wall clock after the floor is preferred.
        let is_right = |stored: &i64| Timestamp::from_nanos_clamped(*stored) >= floor || wall < floor;
        let compared = stored.now.filter(is_right);
        let now = compared
            .filter(|stored| !stopped(stored))
            .map_or(wall, Timestamp::from_nanos_clamped);
        let is_set = compared.is_some() || wall >= floor;
        let mut clock = Self {
            now: if is_set { now.nanos() } else { floor.nanos() },
            monotonic,
            floor: floor.nanos(),
            is_set,
            newest_stored: None,
            doubt: None,
            settled: stored.settled,
        };
        clock.observe(wall, monotonic);
        clock
    }

    /// Returns the trusted time of the latest reading.
    pub fn now(&self) -> Timestamp {
        Timestamp::from_nanos_clamped(self.now)
    }

    /// Takes a reading of both clocks. Takes constant time, and should be called at least every few minutes.
    pub fn observe(&mut self, wall: Timestamp, monotonic: Duration) -> TrustedNow {
        let passed = self.pass(monotonic);
        if !self.is_set && wall.nanos() >= self.floor {
            self.believe(wall);
        }
        let distance = wall.nanos().saturating_sub(self.now);
        if self.is_set && is_near(distance, 0) {
            self.doubt = None;
            let step = distance.clamp(-passed / 2, passed / SLEW_PARTS);
            self.now = self.now.saturating_add(step);
        } else {
            self.consider(distance, wall);
        }
        self.shown(wall)
    }

    /// Raises the newest timestamp of the whole store, which limits expiry.
    pub fn note_stored(&mut self, newest: i64) {
        self.newest_stored = self.newest_stored.max(Some(newest));
    }

    /// Accepts the wall clock, because an operator has confirmed it. Ends the doubt, and expiry resumes immediately.
    pub fn confirm(&mut self, wall: Timestamp, monotonic: Duration) {
        self.pass(monotonic);
        self.believe(wall);
        self.settled = None;
    }

    fn believe(&mut self, wall: Timestamp) {
        self.now = wall.nanos();
        self.is_set = true;
        self.doubt = None;
    }

    /// Advances monotonic time. Returns the time passed, in nanoseconds. Readings of concurrent threads may arrive in
    /// any order.
    fn pass(&mut self, monotonic: Duration) -> i64 {
        let passed = i64::try_from(monotonic.saturating_sub(self.monotonic).as_nanos()).unwrap_or(i64::MAX);
        self.monotonic = self.monotonic.max(monotonic);
        self.now = Timestamp::from_nanos_clamped(self.now.saturating_add(passed)).nanos();
        passed
    }

    /// Handles a wall clock that is too far away: begins or continues doubt, or settles.
    fn consider(&mut self, distance: i64, wall: Timestamp) {
        let fresh = Doubt {
            since: self.monotonic,
            distance,
            steady_since: self.monotonic,
        };
        let mut doubt = self.doubt.unwrap_or(fresh);
        if !is_near(distance, doubt.distance) {
            doubt = Doubt {
                since: doubt.since,
                ..fresh
            };
        }
        self.doubt = Some(doubt);
        let is_steady = self.monotonic.saturating_sub(doubt.steady_since) >= SETTLE;
        if is_steady && wall.nanos() >= self.floor {
            self.believe(wall);
            self.settled = Some(self.now);
        }
    }

    fn shown(&self, wall: Timestamp) -> TrustedNow {
        let now = self.now();
        let after_newest =
            |newest: i64| Timestamp::from_nanos_clamped(newest.saturating_add(TOLERANCE_NANOS));
        let expire_now = self.newest_stored.map(|newest| now.min(after_newest(newest)));
        let passed_since = |then: Duration| self.monotonic.saturating_sub(then);
        TrustedNow {
            now,
            expire_now: expire_now.filter(|_| self.doubt.is_none()),
            doubt: self.doubt.map(|doubt| ClockDoubt {
                since: passed_since(doubt.since),
                off_by: wall.nanos().saturating_sub(self.now),
                steady_for: passed_since(doubt.steady_since),
            }),
            is_set: self.is_set,
            settled: self.settled.map(Timestamp::from_nanos_clamped),
        }
    }
}

impl ClockDoubt {
    /// Returns the doubt as a message for operators.
    pub fn reason(&self) -> String {
        self.to_string()
    }
}

impl fmt::Display for ClockDoubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole_seconds = |span: Duration| {
            let nanos = Duration::from_secs(span.as_secs()).as_nanos();
            format_duration(i64::try_from(nanos).unwrap_or(i64::MAX))
        };
        let side = if self.off_by > 0 { "ahead of" } else { "behind" };
        let off_by = whole_seconds(Duration::from_nanos(self.off_by.unsigned_abs()));
        let left = whole_seconds(SETTLE.saturating_sub(self.steady_for));
        write!(
            f,
            "the wall clock is {off_by} {side} the expected time; nothing expires until it is back, \
             is confirmed, or has been steady for another {left}"
        )
    }
}

/// Returns true if two distances are within the tolerance of each other.
fn is_near(one: i64, other: i64) -> bool {
    one.abs_diff(other) <= TOLERANCE_NANOS.unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tideline_model::time::{NANOS_PER_DAY, NANOS_PER_SECOND};

    const HOUR: i64 = 3_600 * NANOS_PER_SECOND;
    const MINUTE: i64 = 60 * NANOS_PER_SECOND;
    const YEAR: i64 = 365 * NANOS_PER_DAY;

    /// Simulated machine: true time, monotonic time, and a wall clock that the test controls.
    struct Machine {
        truth: i64,
        monotonic: i64,
        wall: Wall,
    }

    #[derive(Clone, Copy)]
    enum Wall {
        OffBy(i64),
        Stuck(i64),
    }

    impl Machine {
        fn at(truth: i64) -> Self {
            Self {
                truth,
                monotonic: 5 * NANOS_PER_SECOND,
                wall: Wall::OffBy(0),
            }
        }

        fn reading(&self) -> (Timestamp, Duration) {
            let wall = match self.wall {
                Wall::OffBy(nanos) => self.truth.saturating_add(nanos),
                Wall::Stuck(at) => at,
            };
            let monotonic = Duration::from_nanos(self.monotonic.unsigned_abs());
            (Timestamp::from_nanos_clamped(wall), monotonic)
        }

        fn start(&self, now: Option<i64>) -> TrustedClock {
            let (wall, monotonic) = self.reading();
            TrustedClock::new(
                StoredClock { now, settled: None },
                Timestamp::MIN,
                wall,
                monotonic,
            )
        }

        /// Ends the process after a reading was stored, and starts it again `nanos` nanoseconds later.
        fn restart(&mut self, shown: TrustedNow, nanos: i64) -> TrustedClock {
            self.truth += nanos;
            self.monotonic = 0;
            let stored = StoredClock {
                now: Some(shown.now.nanos()),
                settled: shown.settled.map(Timestamp::nanos),
            };
            let (wall, monotonic) = self.reading();
            TrustedClock::new(stored, Timestamp::MIN, wall, monotonic)
        }

        /// Lets time pass in steps of at most five minutes. Returns the reading at the end.
        fn run(&mut self, clock: &mut TrustedClock, nanos: i64) -> TrustedNow {
            let mut left = nanos;
            while left > 0 {
                let step = left.min(5 * MINUTE);
                self.truth += step;
                self.monotonic += step;
                left -= step;
                self.observe(clock);
            }
            self.observe(clock)
        }

        fn observe(&self, clock: &mut TrustedClock) -> TrustedNow {
            let (wall, monotonic) = self.reading();
            clock.observe(wall, monotonic)
        }
    }

    const START: i64 = 1_800_000_000 * NANOS_PER_SECOND;

    #[test]
    fn a_right_clock_is_followed_to_the_nanosecond() {
        let mut machine = Machine::at(START);
        let mut clock = machine.start(None);
        clock.note_stored(START + 3 * NANOS_PER_DAY);
        let shown = machine.run(&mut clock, 2 * NANOS_PER_DAY);
        assert_eq!(shown.now.nanos(), machine.truth);
        assert_eq!(shown.expire_now, Some(shown.now));
        assert_eq!((shown.doubt, shown.settled), (None, None));
    }

    #[test]
    fn nothing_stored_means_nothing_expires_and_old_points_hold_it_back() {
        let machine = Machine::at(START);
        let mut clock = machine.start(None);
        assert_eq!(machine.observe(&mut clock).expire_now, None);
        clock.note_stored(START - YEAR);
        clock.note_stored(START - 2 * YEAR);
        let held = Timestamp::from_nanos_clamped(START - YEAR + HOUR);
        assert_eq!(machine.observe(&mut clock).expire_now, Some(held));
    }

    #[test]
    fn a_small_jump_is_followed_gently_in_both_directions() {
        let mut machine = Machine::at(START);
        let mut clock = machine.start(None);
        machine.wall = Wall::OffBy(30 * MINUTE);
        let ahead = machine.run(&mut clock, 10 * HOUR);
        assert_eq!(ahead.now.nanos(), machine.truth + 10 * HOUR / 100);
        machine.wall = Wall::OffBy(-30 * MINUTE);
        let behind = machine.run(&mut clock, 10 * MINUTE);
        assert_eq!(behind.now.nanos(), ahead.now.nanos() + 5 * MINUTE);
        let level = machine.run(&mut clock, 3 * HOUR);
        assert_eq!(level.now, machine.reading().0);
        assert_eq!(level.doubt, None);
    }

    #[test]
    fn a_large_jump_pauses_expiry_until_the_clock_is_back() {
        let mut machine = Machine::at(START);
        let mut clock = machine.start(None);
        clock.note_stored(START + YEAR);
        machine.wall = Wall::OffBy(YEAR);
        let shown = machine.run(&mut clock, 5 * HOUR);
        assert_eq!((shown.now.nanos(), shown.expire_now), (machine.truth, None));
        let doubt = shown.doubt.expect("a year is over an hour");
        assert_eq!(doubt.off_by, YEAR);
        assert_eq!(doubt.since, Duration::from_secs(5 * 3_600 - 300));
        assert_eq!(
            doubt.reason(),
            "the wall clock is 365d ahead of the expected time; nothing expires until it is back, \
             is confirmed, or has been steady for another 19h5m"
        );
        machine.wall = Wall::OffBy(0);
        assert_eq!(machine.observe(&mut clock).expire_now, Some(shown.now));
    }

    #[test]
    fn a_steady_clock_is_believed_after_a_day_and_says_so() {
        let mut machine = Machine::at(START);
        let mut clock = machine.start(None);
        machine.wall = Wall::OffBy(-YEAR);
        let before = machine.run(&mut clock, NANOS_PER_DAY);
        assert!(before.doubt.is_some());
        let after = machine.run(&mut clock, 2 * HOUR);
        assert_eq!((after.now, after.doubt), (machine.reading().0, None));
        assert_eq!(after.settled_for(), Some(Duration::from_secs(2 * 3_600 - 300)));
        let mut clock = machine.restart(after, 5 * MINUTE);
        let restarted = machine.observe(&mut clock);
        assert_eq!(restarted.settled_for(), Some(Duration::from_secs(2 * 3_600)));
        let hours = |hours: u64| Duration::from_secs(hours * 3_600);
        assert!(restarted.is_unsure(hours(3)) && !restarted.is_unsure(hours(2)));
        let (wall, monotonic) = machine.reading();
        clock.confirm(wall, monotonic);
        let confirmed = machine.observe(&mut clock);
        assert_eq!(confirmed.settled, None);
        assert!(!confirmed.is_unsure(hours(3)));
    }

    /// Before each reading, the test sets the wall clock ahead by the largest distance that the trusted clock still
    /// accepts.
    #[test]
    fn its_lead_is_what_it_is_said_to_be_at_most_and_can_be_that() {
        let mut machine = Machine::at(START);
        let mut clock = machine.start(None);
        let mut most = 0;
        for round in 0..200 {
            let mut shown = machine.observe(&mut clock);
            for _ in 0..round % 7 {
                machine.wall = Wall::OffBy(shown.now.nanos() - machine.truth + HOUR);
                shown = machine.run(&mut clock, 5 * MINUTE);
                most += 5 * MINUTE / SLEW_PARTS;
                assert_eq!(shown.now.nanos() - machine.truth, most, "round {round}");
            }
            let stopped = (round % 3) * 20 * MINUTE;
            machine.wall = Wall::OffBy(shown.now.nanos() - machine.truth + HOUR - stopped);
            clock = machine.restart(shown, stopped);
            most += HOUR - stopped;
            let shown = machine.observe(&mut clock);
            assert_eq!((shown.doubt, shown.now.nanos() - machine.truth), (None, most));
        }
    }

    #[test]
    fn one_jump_leads_by_an_hour_at_most_however_often_it_starts() {
        for ahead in [MINUTE, 30 * MINUTE, HOUR, HOUR + 1, 2 * HOUR, YEAR] {
            let mut machine = Machine::at(START);
            let mut clock = machine.start(None);
            let mut shown = machine.run(&mut clock, HOUR);
            machine.wall = Wall::OffBy(ahead);
            for start in 0..40 {
                clock = machine.restart(shown, (start % 4) * MINUTE);
                shown = machine.run(&mut clock, 20 * HOUR);
                let lead = shown.now.nanos() - machine.truth;
                assert!(lead <= ahead.min(HOUR), "{ahead}: {lead} after {start} starts");
            }
            machine.wall = Wall::OffBy(0);
            shown = machine.run(&mut clock, 2 * HOUR);
            assert!(shown.now.nanos() <= machine.truth, "{ahead}");
        }
    }

    #[test]
    fn a_clock_that_keeps_jumping_or_stands_still_never_settles() {
        let mut machine = Machine::at(START);
        let mut clock = machine.start(None);
        for round in 0..20 {
            machine.wall = Wall::OffBy(YEAR + 2 * HOUR * (round % 2));
            let shown = machine.run(&mut clock, 20 * HOUR);
            assert!(shown.doubt.is_some(), "round {round}");
        }
        machine.wall = Wall::OffBy(0);
        machine.run(&mut clock, HOUR);
        machine.wall = Wall::Stuck(machine.truth);
        assert_eq!(machine.run(&mut clock, HOUR).doubt, None);
        for hours in 3..100 {
            let shown = machine.run(&mut clock, HOUR);
            assert!(shown.doubt.is_some(), "hour {hours}");
            assert!(shown.now.nanos() <= machine.truth);
        }
    }

    #[test]
    fn an_operator_ends_doubt_in_either_direction() {
        for jump in [-YEAR, YEAR] {
            let mut machine = Machine::at(START);
            let mut clock = machine.start(None);
            clock.note_stored(START + 2 * YEAR);
            machine.wall = Wall::OffBy(jump);
            assert!(machine.run(&mut clock, HOUR).doubt.is_some());
            let (wall, monotonic) = machine.reading();
            clock.confirm(wall, monotonic);
            let shown = machine.observe(&mut clock);
            assert_eq!((shown.now, shown.expire_now), (wall, Some(wall)));
        }
    }

    #[test]
    fn a_start_near_the_stored_value_is_trusted_and_one_far_from_it_is_not() {
        let machine = Machine::at(START);
        for (restored, trusted) in [
            (START, true),
            (START - HOUR, true),
            (START + HOUR, true),
            (START - HOUR - 1, false),
            (START + HOUR + 1, false),
            (i64::MIN, false),
            (i64::MAX, false),
        ] {
            let mut clock = machine.start(Some(restored));
            let shown = machine.observe(&mut clock);
            assert_eq!(shown.doubt.is_none(), trusted, "{restored}");
            let stopped = (START - HOUR..=START).contains(&restored);
            let expected = if stopped { START } else { restored };
            assert_eq!(shown.now, Timestamp::from_nanos_clamped(expected));
        }
    }

    #[test]
    fn a_first_start_before_the_floor_believes_no_clock_until_it_is_after_it() {
        let floor = Timestamp::from_nanos_clamped(START - YEAR);
        let start = |machine: &Machine, now: Option<i64>| {
            let (wall, monotonic) = machine.reading();
            TrustedClock::new(StoredClock { now, settled: None }, floor, wall, monotonic)
        };
        let mut machine = Machine::at(START);
        // A time shortly before the floor is rejected like a time long before it.
        for wall in [0, floor.nanos() - MINUTE] {
            machine.wall = Wall::Stuck(wall);
            let mut clock = start(&machine, None);
            let shown = machine.run(&mut clock, 3 * NANOS_PER_DAY);
            assert!(shown.doubt.is_some() && !shown.trusts_wall(), "{wall}");
            assert!(shown.now >= floor && shown.expire_now.is_none());
            assert_eq!(shown.stored().now, None, "nothing to compare with");
        }
        machine.wall = Wall::OffBy(-20 * YEAR);
        let mut clock = start(&machine, None);
        machine.run(&mut clock, 2 * NANOS_PER_DAY);
        machine.wall = Wall::OffBy(0);
        let shown = machine.observe(&mut clock);
        assert_eq!((shown.doubt, shown.now), (None, machine.reading().0));
        assert_eq!(shown.stored().now, Some(machine.truth));
        // A time of a wrong clock, stored by an earlier build.
        let mut clock = start(&machine, Some(NANOS_PER_DAY));
        assert_eq!(machine.observe(&mut clock).doubt, None);
        // An operator may confirm a time before the floor.
        machine.wall = Wall::Stuck(0);
        let mut clock = start(&machine, None);
        let (wall, monotonic) = machine.reading();
        clock.confirm(wall, monotonic);
        let shown = machine.observe(&mut clock);
        assert_eq!((shown.doubt, shown.now), (None, wall));
        let mut clock = start(&machine, shown.stored().now);
        assert_eq!(machine.observe(&mut clock).doubt, None);
    }

    #[test]
    fn new_points_follow_a_machine_that_slept_but_no_clock_that_is_wrong() {
        let week = 7 * NANOS_PER_DAY;
        for (off_by, is_trusted) in [
            (0, true),
            (HOUR, true),
            (-HOUR, true),
            (2 * HOUR, true),
            (week, true),
            (week + NANOS_PER_SECOND, false),
            (YEAR, false),
            (-2 * HOUR, false),
            (-YEAR, false),
        ] {
            let mut machine = Machine::at(START);
            let mut clock = machine.start(None);
            machine.wall = Wall::OffBy(off_by);
            assert_eq!(machine.observe(&mut clock).trusts_wall(), is_trusted, "{off_by}");
            let mut clock = machine.start(Some(START));
            assert_eq!(machine.observe(&mut clock).trusts_wall(), is_trusted, "{off_by}");
        }
    }

    #[test]
    fn readings_out_of_order_and_at_the_ends_of_time_are_taken() {
        let stored = StoredClock {
            now: Some(START),
            settled: Some(i64::MIN),
        };
        let mut clock = TrustedClock::new(stored, Timestamp::MIN, Timestamp::MAX, Duration::from_secs(10));
        for (wall, monotonic) in [
            (Timestamp::MIN, Duration::from_secs(5)),
            (Timestamp::MAX, Duration::MAX),
            (Timestamp::MIN, Duration::ZERO),
        ] {
            clock.note_stored(wall.nanos());
            clock.observe(wall, monotonic);
            clock.confirm(wall, monotonic);
        }
    }

    /// xorshift64*, so that a seed reproduces a failure.
    struct Chance(u64);

    impl Chance {
        fn next(&mut self) -> u64 {
            self.0 ^= self.0 >> 12;
            self.0 ^= self.0 << 25;
            self.0 ^= self.0 >> 27;
            self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
        }

        fn below(&mut self, end: i64) -> i64 {
            (self.next() % end.unsigned_abs()) as i64
        }

        /// Returns a non-zero distance in either direction. Its upper limit is drawn from six values between one second
        /// and one year, so that small and large distances occur.
        fn distance(&mut self) -> i64 {
            let largest = [NANOS_PER_SECOND, MINUTE, HOUR, 2 * HOUR, NANOS_PER_DAY, YEAR];
            let largest = largest[self.below(6) as usize];
            let distance = self.below(largest) + 1;
            if self.next().is_multiple_of(2) {
                distance
            } else {
                -distance
            }
        }

        fn wall(&mut self, truth: i64) -> Wall {
            match self.below(8) {
                0 => Wall::OffBy(-truth),
                1 => Wall::OffBy(4_291_747_200 * NANOS_PER_SECOND - truth),
                2 => Wall::Stuck(truth + self.distance()),
                _ => Wall::OffBy(self.distance()),
            }
        }
    }

    /// Makes 500 jumps; the clock is corrected within a day after each. The store holds points with future timestamps,
    /// so only the trusted clock prevents early expiry.
    #[test]
    fn five_hundred_jumps_never_expire_anything_early() {
        for seed in tideline_testkit::seeds("five hundred jumps", 8) {
            let mut chance = Chance(seed.max(1));
            let mut machine = Machine::at(START);
            let mut clock = machine.start(None);
            clock.note_stored(START + 50 * YEAR);
            let (mut highest, mut starts) = (0, 0);
            for jump in 0..500 {
                machine.wall = chance.wall(machine.truth);
                let mut left = chance.below(23 * HOUR);
                while left > 0 {
                    let step = chance.below(6 * HOUR).min(left) + 1;
                    let mut shown = machine.run(&mut clock, step);
                    left -= step;
                    if chance.below(10) == 0 {
                        let off = chance.below(2 * HOUR);
                        starts += 1;
                        left -= off;
                        clock = machine.restart(shown, off);
                        clock.note_stored(START + 50 * YEAR);
                        shown = machine.observe(&mut clock);
                    }
                    let slewed = (machine.truth - START) / SLEW_PARTS + starts * TOLERANCE_NANOS;
                    let bound = machine.truth + slewed + NANOS_PER_SECOND;
                    let reached = shown.expire_now.map_or(0, Timestamp::nanos);
                    assert!(
                        reached <= bound,
                        "seed {seed} jump {jump}: {} s early",
                        (reached - bound) / NANOS_PER_SECOND
                    );
                    highest = highest.max(reached);
                }
                machine.wall = Wall::OffBy(0);
                machine.run(&mut clock, chance.below(3 * HOUR) + 1);
            }
            let mended = machine.run(&mut clock, 3 * NANOS_PER_DAY);
            assert_eq!(mended.doubt, None, "seed {seed}");
            assert!(mended.now.nanos().abs_diff(machine.truth) <= HOUR.unsigned_abs());
            assert!(highest > START, "seed {seed}: expiry went on between the jumps");
        }
    }

    /// A clock that stays wrong is accepted in the end; the newest stored timestamp then still limits expiry.
    #[test]
    fn a_clock_that_stays_wrong_is_held_back_by_what_is_stored() {
        for seed in tideline_testkit::seeds("a clock that stays wrong", 20) {
            let mut chance = Chance(seed.max(1));
            let mut machine = Machine::at(START);
            let mut clock = machine.start(None);
            for jump in 0..50 {
                machine.wall = chance.wall(machine.truth);
                let lasting = chance.below(10 * NANOS_PER_DAY) + 1;
                let shown = machine.run(&mut clock, lasting);
                let reached = shown.expire_now.map_or(i64::MIN, Timestamp::nanos);
                assert!(reached <= machine.truth + HOUR, "seed {seed} jump {jump}");
                clock.note_stored(machine.truth);
            }
        }
    }
}

//! The data sets that are loaded: which machines, from when, how often.

use std::fmt;
use std::str::FromStr;

use tideline_fleet::{FIELDS, Fleet};
use tideline_model::time::NANOS_PER_SECOND;

/// One data set: every machine at every step of ten seconds.
#[derive(Debug, Clone)]
pub(crate) struct Set {
    pub(crate) kind: Kind,
    /// The table that it is written to.
    pub(crate) table: &'static str,
    pub(crate) hosts: u32,
    /// Rows of every machine.
    pub(crate) steps: u32,
    /// The first instant, in nanoseconds since the Unix epoch, on a whole minute.
    pub(crate) start: i64,
}

/// Which shape of load a set stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// 4,000 machines, 1 hour.
    S,
    /// 1,000 machines, 24 hours.
    M,
    /// 200,000 machines, 10 rows.
    C,
}

/// How much of each set is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scale {
    /// All of it: what the wanted figures mean.
    Full,
    /// A sixth of S and M and a tenth of C: tells whether everything works.
    Quick,
}

/// From one row of a machine to the next, in nanoseconds.
pub(crate) const STEP: i64 = 10 * NANOS_PER_SECOND;
/// Nanoseconds of a minute, which sets begin on.
pub(crate) const MINUTE: i64 = 60 * NANOS_PER_SECOND;
/// Nanoseconds of an hour.
pub(crate) const HOUR: i64 = 60 * MINUTE;
/// Nanoseconds of a day.
pub(crate) const DAY: i64 = 24 * HOUR;
/// How many days ago a set of the past begins: young enough to be sealed into the hot tier.
const DAYS_AGO: i64 = 3;
/// The table that is always there.
pub(crate) const DEFAULT_TABLE: &str = "default";
/// Steps in a minute.
pub(crate) const STEPS_A_MINUTE: usize = (MINUTE / STEP) as usize;
/// Steps in an hour.
pub(crate) const STEPS_AN_HOUR: usize = (HOUR / STEP) as usize;
/// The seed of all sets: the same machines and values on every run.
const SEED: u64 = 20_260_101;

impl Set {
    /// The set of this kind that ends on the last whole minute before `now` (nanoseconds).
    pub(crate) fn new(kind: Kind, scale: Scale, now: i64) -> Self {
        let (hosts, steps) = Self::size(kind, scale);
        // C's ten rows do not fill its second minute.
        let minutes = (i64::from(steps) * STEP + MINUTE - 1) / MINUTE;
        Self {
            kind,
            table: DEFAULT_TABLE,
            hosts,
            steps,
            start: (now.div_euclid(MINUTE) - minutes) * MINUTE,
        }
    }

    /// The set of this kind that begins with a whole day, so long before `now` that the day is over; a day of M is
    /// one window of the cold tier.
    pub(crate) fn of_the_past(kind: Kind, scale: Scale, now: i64) -> Self {
        let start = (now.div_euclid(DAY) - DAYS_AGO) * DAY;
        Self {
            start,
            ..Self::new(kind, scale, now)
        }
    }

    /// The same in another table.
    pub(crate) fn in_table(&self, table: &'static str) -> Self {
        Self {
            table,
            ..self.clone()
        }
    }

    /// Machines, and rows of each.
    const fn size(kind: Kind, scale: Scale) -> (u32, u32) {
        match (kind, scale) {
            (Kind::S, Scale::Full) => (4_000, 360),
            (Kind::S, Scale::Quick) => (4_000, 60),
            (Kind::M, Scale::Full) => (1_000, 8_640),
            (Kind::M, Scale::Quick) => (1_000, 1_440),
            (Kind::C, Scale::Full) => (200_000, 10),
            (Kind::C, Scale::Quick) => (20_000, 10),
        }
    }

    /// The rows of the set, from the first.
    pub(crate) fn fleet(&self) -> Fleet {
        Fleet::new(SEED, self.hosts, self.start, STEP)
    }

    pub(crate) fn rows(&self) -> u64 {
        u64::from(self.hosts) * u64::from(self.steps)
    }

    pub(crate) fn values(&self) -> u64 {
        self.rows() * FIELDS.len() as u64
    }

    /// The instant after the last, in nanoseconds.
    pub(crate) fn end(&self) -> i64 {
        self.start + i64::from(self.steps) * STEP
    }
}

impl fmt::Display for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (hosts, steps, values) = (self.hosts, self.steps, self.values());
        write!(f, "{hosts} hosts, {steps} rows each, {values} values")
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "S" | "s" => Ok(Self::S),
            "M" | "m" => Ok(Self::M),
            "C" | "c" => Ok(Self::C),
            _ => Err(format!("{text:?} is not one of the sets S, M and C")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_end_just_before_now_and_begin_on_a_minute() {
        let now = 1_790_000_000 * NANOS_PER_SECOND + 7;
        for kind in [Kind::S, Kind::M, Kind::C] {
            let set = Set::new(kind, Scale::Full, now);
            assert_eq!(set.start % MINUTE, 0);
            assert!(set.end() <= now && now - set.end() < 2 * MINUTE, "{set:?}");
        }
    }
}

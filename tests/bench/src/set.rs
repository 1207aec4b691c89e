//! Data sets: number of machines, start and interval.
//!
//! All sets have the same seed, so that every run loads the same machines and values.

use std::fmt;
use std::str::FromStr;

use tideline_fleet::{FIELDS, Fleet};
use tideline_model::time::NANOS_PER_SECOND;

/// Data set with one row per machine every ten seconds.
#[derive(Debug, Clone)]
pub(crate) struct Set {
    pub(crate) kind: Kind,
    /// Table to which the set is written.
    pub(crate) table: &'static str,
    pub(crate) hosts: u32,
    /// Number of rows per machine.
    pub(crate) steps: u32,
    /// First timestamp in nanoseconds since the Unix epoch, on a whole minute.
    pub(crate) start: i64,
}

/// Name of a data set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// 4,000 machines, 1 hour.
    S,
    /// 1,000 machines, 24 hours.
    M,
    /// 200,000 machines, 10 rows each.
    C,
}

/// Fraction of each set that is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scale {
    /// Whole sets; the goals apply to this scale.
    Full,
    /// A sixth of S and M and a tenth of C; checks that everything works.
    Quick,
}

/// Nanoseconds between two rows of a machine.
pub(crate) const STEP: i64 = 10 * NANOS_PER_SECOND;
/// Nanoseconds per minute; sets begin on a whole minute.
pub(crate) const MINUTE: i64 = 60 * NANOS_PER_SECOND;
/// Nanoseconds per hour.
pub(crate) const HOUR: i64 = 60 * MINUTE;
/// Nanoseconds per day.
pub(crate) const DAY: i64 = 24 * HOUR;
/// Age in days of a set from [`Set::of_the_past`]; recent enough to be sealed into the hot tier.
const DAYS_AGO: i64 = 3;
/// Table that always exists.
pub(crate) const DEFAULT_TABLE: &str = "default";
/// Steps per minute.
pub(crate) const STEPS_A_MINUTE: usize = (MINUTE / STEP) as usize;
/// Steps per hour.
pub(crate) const STEPS_AN_HOUR: usize = (HOUR / STEP) as usize;
/// Seed of all sets.
const SEED: u64 = 20_260_101;

impl Set {
    /// Returns the set of this kind that begins on a whole minute. Its last minute ends at `now` (nanoseconds), rounded
    /// down to a whole minute, and may have fewer rows than the others.
    pub(crate) fn new(kind: Kind, scale: Scale, now: i64) -> Self {
        let (hosts, steps) = Self::size(kind, scale);
        // The ten rows of C do not fill its second minute.
        let minutes = (i64::from(steps) * STEP + MINUTE - 1) / MINUTE;
        Self {
            kind,
            table: DEFAULT_TABLE,
            hosts,
            steps,
            start: (now.div_euclid(MINUTE) - minutes) * MINUTE,
        }
    }

    /// Returns the set of this kind that begins at midnight UTC, [`DAYS_AGO`] days before the day of `now`, so that
    /// its first day has passed. A day of M is one window of the cold tier.
    pub(crate) fn of_the_past(kind: Kind, scale: Scale, now: i64) -> Self {
        let start = (now.div_euclid(DAY) - DAYS_AGO) * DAY;
        Self {
            start,
            ..Self::new(kind, scale, now)
        }
    }

    /// Returns the same set for another table.
    pub(crate) fn in_table(&self, table: &'static str) -> Self {
        Self {
            table,
            ..self.clone()
        }
    }

    /// Returns the number of machines and the number of rows per machine.
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

    /// Returns a generator of the rows of the set.
    pub(crate) fn fleet(&self) -> Fleet {
        Fleet::new(SEED, self.hosts, self.start, STEP)
    }

    pub(crate) fn rows(&self) -> u64 {
        u64::from(self.hosts) * u64::from(self.steps)
    }

    pub(crate) fn values(&self) -> u64 {
        self.rows() * FIELDS.len() as u64
    }

    /// Returns the timestamp after the last row, in nanoseconds.
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

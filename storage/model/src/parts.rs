//! Division of a wide table into parts by time: the rows of a day, a week or a month are stored, and dropped, as one
//! unit.
//!
//! The part of a row follows from a timestamp in the key of the row, and never changes. The number of a part is the
//! number of its period since 1970, in UTC.

use std::fmt;

use chrono::{DateTime, Datelike, Days, Months, NaiveDate, Utc};
use serde::{Deserialize, Serialize};

use crate::table::{Schedule, Tier};

/// Division of a wide table into parts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartsSpec {
    /// Logical key column of the type `timestamp`, or generated column, that decides the part of a row. Fixed when the
    /// table is created.
    pub by: String,
    /// Length of a part. Fixed when the table is created.
    pub every: PartPeriod,
    /// Minimum time in nanoseconds for which a part is kept after its end; `None` = until it is dropped on request.
    /// Older parts are hidden, and dropped some time later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep: Option<i64>,
    /// Minimum time in nanoseconds for which a part stays in the hot tier after its end, unless it is archived earlier.
    /// `None` = a part leaves the hot tier only for the archive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hot: Option<i64>,
    /// Minimum time in nanoseconds for which rows of a part can be written after its end, unless the part is due to be
    /// archived earlier. `None` = no limit except by the archive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writable: Option<i64>,
    /// Archive that old parts move into; `None` = parts are not archived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archive: Option<PartsArchive>,
    /// Start times of moves from the hot to the cold tier.
    #[serde(default, skip_serializing_if = "Schedule::is_continuous")]
    pub migrate: Schedule,
    /// Start times of the removal of hidden parts and expired rows.
    #[serde(default, skip_serializing_if = "Schedule::is_continuous")]
    pub expire: Schedule,
    /// Maximum number of bytes that jobs of the table read per second, at least 1; `None` = no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub move_bytes_per_second: Option<u64>,
    /// Number of the first part that was not dropped; `i32::MIN` = no part was dropped. Rows of earlier parts are
    /// refused.
    #[serde(default = "first_of_all", skip_serializing_if = "is_first_of_all")]
    pub first: i32,
}

/// Archive of the parts of a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartsArchive {
    /// Name or address of the target.
    pub target: String,
    /// Minimum time in nanoseconds between the end of a part and its archiving. Rows of older parts cannot be written,
    /// except in parts that were restored for a limited time.
    pub after: i64,
    /// Start times of archiving.
    #[serde(default, skip_serializing_if = "Schedule::is_continuous")]
    pub schedule: Schedule,
}

fn first_of_all() -> i32 {
    i32::MIN
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "called by serde")]
fn is_first_of_all(number: &i32) -> bool {
    *number == i32::MIN
}

impl PartsSpec {
    /// Returns the number of the first part that is visible at the time `now`: the first part that was not dropped and
    /// whose end is less than `keep` ago.
    pub fn visible_from(&self, now: i64) -> i32 {
        self.first_within(self.keep, now).max(self.first)
    }

    /// Returns true if an age other than `keep` is set.
    pub fn has_ages(&self) -> bool {
        self.hot.is_some() || self.writable.is_some() || self.archive.is_some()
    }

    /// Returns true if jobs of the table have a schedule or a maximum rate.
    pub fn limits_jobs(&self) -> bool {
        let archive = self.archive.as_ref();
        let is_scheduled = |schedule: &Schedule| !schedule.is_continuous();
        is_scheduled(&self.migrate)
            || is_scheduled(&self.expire)
            || archive.is_some_and(|archive| is_scheduled(&archive.schedule))
            || self.move_bytes_per_second.is_some()
    }

    /// Returns the number of the first part that can be written at the time `now`, because its end is less than
    /// `writable` ago and it is not due to be archived.
    pub fn writable_from(&self, now: i64) -> i32 {
        self.first_within(self.writable, now)
            .max(self.archived_before(now))
    }

    /// Returns the number of the first part that is not due to be archived at the time `now`, because its end is less
    /// than `archive.after` ago.
    pub fn archived_before(&self, now: i64) -> i32 {
        self.first_within(self.archive.as_ref().map(|archive| archive.after), now)
    }

    /// Returns the number of the first part whose end is less than `hot` ago at the time `now`; earlier parts leave the
    /// hot tier.
    pub fn hot_from(&self, now: i64) -> i32 {
        self.first_within(self.hot, now)
    }

    /// Returns the number of the first part whose end is less than `age` ago; `i32::MIN` without an age.
    pub fn first_within(&self, age: Option<i64>, now: i64) -> i32 {
        age.map_or(i32::MIN, |age| self.every.number_of(now.saturating_sub(age)))
    }
}

/// Tiers of the parts that an index covers, or that a read reads. A part in the archive counts as cold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TierScope {
    /// All tiers.
    #[default]
    All,
    /// The hot tier, with the rows that were never flushed.
    Hot,
    /// The cold tier and the archive.
    Cold,
}

impl TierScope {
    /// All scopes.
    pub const ALL: [Self; 3] = [Self::All, Self::Hot, Self::Cold];

    /// Returns the name used in requests, responses and stored settings.
    pub const fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Hot => "hot",
            Self::Cold => "cold",
        }
    }

    /// Returns true if the scope has the parts of a tier.
    pub const fn has(self, tier: Tier) -> bool {
        match self {
            Self::All => true,
            Self::Hot => matches!(tier, Tier::Hot),
            Self::Cold => matches!(tier, Tier::Cold | Tier::Archive),
        }
    }

    /// Returns true for the scope of all tiers.
    pub const fn is_all(&self) -> bool {
        matches!(self, Self::All)
    }
}

impl fmt::Display for TierScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Length of a part, in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PartPeriod {
    /// A day.
    Day,
    /// A week from Monday to Sunday.
    Week,
    /// A calendar month.
    Month,
}

impl PartPeriod {
    /// All periods.
    pub const ALL: [Self; 3] = [Self::Day, Self::Week, Self::Month];

    /// Returns the name used in requests, responses and stored settings.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
        }
    }

    /// Returns the number of the part that holds a timestamp in nanoseconds since 1970-01-01T00:00:00Z. The part that
    /// holds the timestamp 0 has the number 0.
    pub fn number_of(self, nanos: i64) -> i32 {
        // Timestamps of 64 bits span 584 years, so every number fits.
        let days = nanos.div_euclid(crate::time::NANOS_PER_DAY) as i32;
        match self {
            Self::Day => days,
            // 1970-01-01 was a Thursday.
            Self::Week => (days + 3).div_euclid(7),
            Self::Month => {
                let date = DateTime::<Utc>::from_timestamp_nanos(nanos);
                (date.year() - 1970) * 12 + date.month0() as i32
            }
        }
    }

    /// Returns the first timestamp of a part, in nanoseconds since 1970-01-01T00:00:00Z, clamped to the range of `i64`.
    /// The previous part ends at this timestamp.
    pub fn start_of(self, number: i32) -> i64 {
        let date = self.first_day(number);
        let start = date.and_then(|date| date.and_hms_opt(0, 0, 0)?.and_utc().timestamp_nanos_opt());
        start.unwrap_or(match number < 0 {
            true => i64::MIN,
            false => i64::MAX,
        })
    }

    fn first_day(self, number: i32) -> Option<NaiveDate> {
        let epoch = DateTime::<Utc>::UNIX_EPOCH.date_naive();
        let shifted = |days: i64| match days < 0 {
            true => epoch.checked_sub_days(Days::new(days.unsigned_abs())),
            false => epoch.checked_add_days(Days::new(days.unsigned_abs())),
        };
        match self {
            Self::Day => shifted(i64::from(number)),
            Self::Week => shifted(i64::from(number) * 7 - 3),
            Self::Month if number < 0 => epoch.checked_sub_months(Months::new(number.unsigned_abs())),
            Self::Month => epoch.checked_add_months(Months::new(number.unsigned_abs())),
        }
    }

    /// Returns the name of a part, such as `2026-11-26`, `2026-W48` or `2026-11`; the number as text if the part is
    /// beyond the calendar.
    pub fn part_name(self, number: i32) -> String {
        let Some(day) = self.first_day(number) else {
            return number.to_string();
        };
        let form = match self {
            Self::Day => "%Y-%m-%d",
            Self::Week => "%G-W%V",
            Self::Month => "%Y-%m",
        };
        day.format(form).to_string()
    }
}

impl fmt::Display for PartPeriod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::NANOS_PER_DAY;

    fn nanos(text: &str) -> i64 {
        let time = DateTime::parse_from_rfc3339(text).expect("it is valid");
        time.timestamp_nanos_opt().expect("it is in range")
    }

    #[test]
    fn parts_are_named_by_their_calendar() {
        for (period, at, name, start, end) in [
            (
                PartPeriod::Day,
                "2026-11-26T23:59:59.999999999Z",
                "2026-11-26",
                "2026-11-26",
                "2026-11-27",
            ),
            (
                PartPeriod::Week,
                "2026-11-29T23:59:59Z",
                "2026-W48",
                "2026-11-23",
                "2026-11-30",
            ),
            (
                PartPeriod::Week,
                "2027-01-01T00:00:00Z",
                "2026-W53",
                "2026-12-28",
                "2027-01-04",
            ),
            (
                PartPeriod::Month,
                "2026-02-28T12:00:00Z",
                "2026-02",
                "2026-02-01",
                "2026-03-01",
            ),
            (
                PartPeriod::Month,
                "1969-12-31T23:00:00Z",
                "1969-12",
                "1969-12-01",
                "1970-01-01",
            ),
            (
                PartPeriod::Day,
                "1969-12-31T23:00:00Z",
                "1969-12-31",
                "1969-12-31",
                "1970-01-01",
            ),
        ] {
            let number = period.number_of(nanos(at));
            assert_eq!(period.part_name(number), name);
            assert_eq!(period.start_of(number), nanos(&format!("{start}T00:00:00Z")));
            assert_eq!(period.start_of(number + 1), nanos(&format!("{end}T00:00:00Z")));
        }
    }

    #[test]
    fn every_timestamp_is_within_its_part() {
        for period in PartPeriod::ALL {
            for at in [
                i64::MIN,
                i64::MAX,
                0,
                -1,
                NANOS_PER_DAY,
                1_800_000_000_000_000_000,
            ] {
                let number = period.number_of(at);
                assert!(
                    period.start_of(number) <= at && at <= period.start_of(number + 1),
                    "{period} {at}"
                );
                assert_eq!(
                    period.number_of(period.start_of(number).max(i64::MIN + NANOS_PER_DAY * 31)),
                    number.max(period.number_of(i64::MIN + NANOS_PER_DAY * 31))
                );
            }
        }
    }

    #[test]
    fn a_part_is_kept_for_the_whole_time_after_its_end() {
        let spec = PartsSpec {
            by: "at".to_owned(),
            every: PartPeriod::Month,
            keep: Some(30 * NANOS_PER_DAY),
            hot: None,
            writable: None,
            archive: None,
            migrate: Schedule::Continuous,
            expire: Schedule::Continuous,
            move_bytes_per_second: None,
            first: i32::MIN,
        };
        let october = spec.every.number_of(nanos("2026-10-15T00:00:00Z"));
        assert_eq!(spec.visible_from(nanos("2026-11-30T23:59:59Z")), october);
        assert_eq!(spec.visible_from(nanos("2026-12-01T00:00:00Z")), october + 1);
    }
}

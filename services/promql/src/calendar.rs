//! Gregorian calendar in UTC, for the date functions.
//!
//! Any 64-bit number of seconds is accepted. Dates before the introduction of the calendar in 1582 follow the
//! proleptic Gregorian calendar.

/// Seconds per day.
const DAY: i64 = 86_400;

/// Date with time of day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Date {
    pub(crate) year: i64,
    /// Month, from 1.
    pub(crate) month: i64,
    /// Day of the month, from 1.
    pub(crate) day: i64,
    /// Day of the year, from 1.
    pub(crate) day_of_year: i64,
    /// Day of the week, from 0 (Sunday).
    pub(crate) day_of_week: i64,
    pub(crate) hour: i64,
    pub(crate) minute: i64,
    pub(crate) second: i64,
}

impl Date {
    /// Converts seconds since the epoch.
    ///
    /// Uses Howard Hinnant's algorithm `civil_from_days`: years begin in March, so that the leap day is the
    /// last day of a year, and an era has 400 years (146,097 days).
    /// <https://howardhinnant.github.io/date_algorithms.html>
    pub(crate) fn of_seconds(seconds: i64) -> Self {
        let (days, second_of_day) = (seconds.div_euclid(DAY), seconds.rem_euclid(DAY));
        let shifted = days + 719_468;
        let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
        let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_march_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let march_month = (5 * day_of_march_year + 2) / 153;
        let day = day_of_march_year - (153 * march_month + 2) / 5 + 1;
        let month = if march_month < 10 {
            march_month + 3
        } else {
            march_month - 9
        };
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        let leap_day = i64::from(is_leap(year));
        let day_of_year = match month {
            1 | 2 => day_of_march_year - 306 + 1,
            _ => day_of_march_year + 59 + leap_day + 1,
        };
        Self {
            year,
            month,
            day,
            day_of_year,
            day_of_week: (days + 4).rem_euclid(7),
            hour: second_of_day / 3600,
            minute: second_of_day / 60 % 60,
            second: second_of_day % 60,
        }
    }

    /// Returns the number of days of the month.
    pub(crate) fn days_in_month(&self) -> i64 {
        match self.month {
            2 => 28 + i64::from(is_leap(self.year)),
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        }
    }
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

/// Formats seconds since the epoch as in `2026-11-22T15:33:34Z`.
pub(crate) fn rfc3339(seconds: i64) -> String {
    let date = Date::of_seconds(seconds);
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z",
        date.year, date.month, date.day, date.hour, date.minute, date.second
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_follow_each_other_through_leap_years() {
        let mut before = Date::of_seconds(-62_135_596_800);
        assert_eq!(
            (before.year, before.month, before.day, before.day_of_year),
            (1, 1, 1, 1)
        );
        for day in 1..800_000 {
            let date = Date::of_seconds(-62_135_596_800 + day * DAY);
            let is_next_month = before.day == before.days_in_month();
            assert_eq!(date.day, if is_next_month { 1 } else { before.day + 1 });
            let is_next_year = is_next_month && before.month == 12;
            assert_eq!(date.year, before.year + i64::from(is_next_year));
            assert_eq!(
                date.day_of_year,
                if is_next_year { 1 } else { before.day_of_year + 1 }
            );
            assert_eq!(date.day_of_week, (before.day_of_week + 1) % 7);
            before = date;
        }
    }

    #[test]
    fn known_instants() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00Z");
        assert_eq!(rfc3339(951_868_799), "2000-02-29T23:59:59Z");
        assert_eq!(rfc3339(1_795_361_614), "2026-11-22T15:33:34Z");
        assert_eq!(Date::of_seconds(0).day_of_week, 4);
        Date::of_seconds(i64::MIN);
        Date::of_seconds(i64::MAX);
    }
}

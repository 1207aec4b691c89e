//! Calendar windows: days, weeks, months and years of a time zone, including its clock changes.
//!
//! A window starts at local midnight of its first day plus the offset. If a clock change skips this local time, the
//! window starts at the next existing time. If the local time occurs twice, the window starts at the first
//! occurrence. Windows therefore follow one another without gaps, and a day can have 23 or 25 hours.

use std::sync::Arc;

use chrono::{DateTime, Datelike, Days, Months, NaiveDate, NaiveDateTime, TimeDelta, TimeZone, Utc};
use chrono_tz::Tz;
use tideline_engine::model::TimeRange;
use tideline_engine::model::time::NANOS_PER_DAY;

use crate::error::{QueryError, Result};

/// Maximum number of units of a window.
pub const UNITS_MAX: u32 = 100_000;
/// Day from which windows are counted; a Thursday.
const EPOCH: NaiveDate = NaiveDate::from_ymd_opt(1970, 1, 1).expect("1970 began");
/// Number of days from the epoch to the first Monday after it.
const FIRST_MONDAY: i64 = 4;
/// Upper bound of the difference between two local clocks, in nanoseconds.
const ZONES_APART: i64 = 2 * NANOS_PER_DAY;

/// Windows of a number of days, weeks (from Monday), months or years in a time zone. Days, months and years are counted
/// from 1970-01-01, weeks from 1970-01-05, the first Monday.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CalendarWindow {
    /// Number of units, from 1 to [`UNITS_MAX`].
    pub count: u32,
    /// Unit of `count`.
    pub unit: CalendarUnit,
    /// Time zone that determines the start of a day.
    pub zone: Tz,
    /// Shift of each start in nanoseconds of local time; not negative, and shorter than the shortest window.
    pub offset: i64,
}

/// Unit of calendar windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CalendarUnit {
    /// Midnight to midnight.
    Day,
    /// Monday to Monday.
    Week,
    /// First day of a month to the first day of the next.
    Month,
    /// 1 January to the next 1 January.
    Year,
}

impl CalendarWindow {
    /// Returns an error if the count or the offset is out of range.
    pub(crate) fn check(&self) -> Result<()> {
        if !(1..=UNITS_MAX).contains(&self.count) {
            return Err(QueryError::Invalid(format!(
                "a calendar window must have 1 to {UNITS_MAX} days, weeks, months or years, not {}",
                self.count
            )));
        }
        let days = match self.unit {
            CalendarUnit::Day => 1,
            CalendarUnit::Week => 7,
            CalendarUnit::Month => 28,
            CalendarUnit::Year => 365,
        };
        let shortest = i64::from(self.count).saturating_mul(days * NANOS_PER_DAY);
        if !(0..shortest).contains(&self.offset) {
            return Err(QueryError::Invalid(
                "the offset of calendar windows must be at least 0 and shorter than a window".into(),
            ));
        }
        Ok(())
    }

    /// Returns the starts of the windows that overlap a range, followed by the end of the last window, in ascending
    /// order. The first start is at or before the start of the range, and the end of the last window is at or after the
    /// end of the range. Costs one time zone lookup per window.
    pub(crate) fn bounds(&self, range: TimeRange) -> Arc<[i64]> {
        let mut number = self.number(range.start) - 1;
        let mut bounds = vec![self.begin(number)];
        while bounds.last().is_some_and(|last| *last < range.end) {
            number += 1;
            let next = self.begin(number);
            if next <= range.start {
                bounds.clear();
            }
            // A day that the zone skipped entirely has no window.
            if bounds.last() != Some(&next) {
                bounds.push(next);
            }
            if next == i64::MAX {
                break;
            }
        }
        bounds.into()
    }

    /// Returns the number of the window that contains a timestamp, with an error of at most one.
    fn number(&self, time: i64) -> i64 {
        let wall = self.zone.from_utc_datetime(&utc(time)).naive_local();
        let date = wall
            .checked_sub_signed(TimeDelta::nanoseconds(self.offset))
            .map_or(EPOCH, |wall| wall.date());
        let days = date.signed_duration_since(EPOCH).num_days();
        let months = (i64::from(date.year()) - 1970) * 12 + i64::from(date.month0());
        let count = i64::from(self.count);
        match self.unit {
            CalendarUnit::Day => days.div_euclid(count),
            CalendarUnit::Week => (days - FIRST_MONDAY).div_euclid(7 * count),
            CalendarUnit::Month => months.div_euclid(count),
            CalendarUnit::Year => months.div_euclid(12 * count),
        }
    }

    /// Returns the timestamp at which a window starts, clamped to the range of `i64`.
    fn begin(&self, number: i64) -> i64 {
        let units = number.saturating_mul(i64::from(self.count));
        let end_of_time = if number < 0 { i64::MIN } else { i64::MAX };
        let date = match self.unit {
            CalendarUnit::Day => day(units),
            CalendarUnit::Week => day(units.saturating_mul(7).saturating_add(FIRST_MONDAY)),
            CalendarUnit::Month => month(units),
            CalendarUnit::Year => month(units.saturating_mul(12)),
        };
        let wall = date
            .and_then(|date| date.and_hms_opt(0, 0, 0))
            .and_then(|midnight| midnight.checked_add_signed(TimeDelta::nanoseconds(self.offset)));
        wall.and_then(|wall| self.first_at(wall)).unwrap_or(end_of_time)
    }

    /// Returns the first timestamp at which the local clock shows this time or a later one; `None` if the timestamp is
    /// out of the range of `i64`.
    fn first_at(&self, wall: NaiveDateTime) -> Option<i64> {
        let shown = |nanos: i64| self.zone.from_utc_datetime(&utc(nanos)).naive_local();
        let near = wall.and_utc().timestamp_nanos_opt()?;
        if let Some(first) = self.zone.from_local_datetime(&wall).earliest() {
            return first.with_timezone(&Utc).timestamp_nanos_opt();
        }
        // The clock skips this time. Search between a timestamp that is certainly before the gap and one that is
        // after it.
        let (mut before, mut at) = (near.checked_sub(ZONES_APART)?, near.checked_add(ZONES_APART)?);
        while at - before > 1 {
            let middle = before + (at - before) / 2;
            if shown(middle) < wall {
                before = middle;
            } else {
                at = middle;
            }
        }
        Some(at)
    }
}

fn utc(nanos: i64) -> NaiveDateTime {
    DateTime::from_timestamp_nanos(nanos).naive_utc()
}

/// Returns the day with this number, counted from the epoch.
fn day(number: i64) -> Option<NaiveDate> {
    let days = Days::new(number.unsigned_abs());
    match number {
        0.. => EPOCH.checked_add_days(days),
        _ => EPOCH.checked_sub_days(days),
    }
}

/// Returns the first day of the month with this number, counted from the epoch.
fn month(number: i64) -> Option<NaiveDate> {
    let months = Months::new(u32::try_from(number.unsigned_abs()).ok()?);
    match number {
        0.. => EPOCH.checked_add_months(months),
        _ => EPOCH.checked_sub_months(months),
    }
}

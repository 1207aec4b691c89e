//! Windows of the calendar: days, weeks, months and years of a time zone, with all its changes of clocks.
//!
//! A window begins where the clock on the wall first shows its start: midnight of its first day, moved by the offset. A
//! start that the clock passes over begins with the next instant there is; one that it shows twice begins with the
//! first. So windows follow one another without gaps, and a day may have 23 or 25 hours.

use std::sync::Arc;

use chrono::{DateTime, Datelike, Days, Months, NaiveDate, NaiveDateTime, TimeDelta, TimeZone, Utc};
use chrono_tz::Tz;
use tideline_engine::model::TimeRange;
use tideline_engine::model::time::NANOS_PER_DAY;

use crate::error::{QueryError, Result};

/// Most units that a window has.
pub const UNITS_MAX: u32 = 100_000;
/// The first day of the calendar that windows are counted from: a Thursday.
const EPOCH: NaiveDate = NaiveDate::from_ymd_opt(1970, 1, 1).expect("1970 began");
/// Days from the epoch to its first Monday.
const FIRST_MONDAY: i64 = 4;
/// Nanoseconds that no two clocks on walls are apart.
const ZONES_APART: i64 = 2 * NANOS_PER_DAY;

/// Windows of so many days, weeks (from Monday), months or years of a time zone, counted from 1970-01-01.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CalendarWindow {
    /// How many units, from 1 to [`UNITS_MAX`].
    pub count: u32,
    /// Of what.
    pub unit: CalendarUnit,
    /// Whose clock decides where a day begins.
    pub zone: Tz,
    /// Moves each start by so many nanoseconds on the wall clock; not negative, and below the shortest window.
    pub offset: i64,
}

/// A unit of the calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CalendarUnit {
    /// From midnight to midnight.
    Day,
    /// From Monday to Monday.
    Week,
    /// From the first of a month to the first of the next one.
    Month,
    /// From the first of January to the next one.
    Year,
}

impl CalendarWindow {
    /// Refuses what cannot be counted.
    pub(crate) fn check(&self) -> Result<()> {
        if !(1..=UNITS_MAX).contains(&self.count) {
            return Err(QueryError::Invalid(format!(
                "a window of the calendar has from 1 to {UNITS_MAX} days, weeks, months or years, and not {}",
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
                "the offset of windows of the calendar is shorter than they are".into(),
            ));
        }
        Ok(())
    }

    /// Where the windows begin that a range touches, and where the last of them ends: rising, the first not after the
    /// start of the range, the last not before its end. Costs a look into the rules of the zone a window.
    pub(crate) fn bounds(&self, range: TimeRange) -> Arc<[i64]> {
        let mut number = self.number(range.start) - 1;
        let mut bounds = vec![self.begin(number)];
        while bounds.last().is_some_and(|last| *last < range.end) {
            number += 1;
            let next = self.begin(number);
            if next <= range.start {
                bounds.clear();
            }
            // A day that a zone has left out has no window.
            if bounds.last() != Some(&next) {
                bounds.push(next);
            }
            if next == i64::MAX {
                break;
            }
        }
        bounds.into()
    }

    /// The number of the window of an instant, or of the one before or after it.
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

    /// The instant at which a window begins, clamped to what can be told.
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

    /// The first instant at which the clock on the wall shows this time or a later one.
    fn first_at(&self, wall: NaiveDateTime) -> Option<i64> {
        let shown = |nanos: i64| self.zone.from_utc_datetime(&utc(nanos)).naive_local();
        let near = wall.and_utc().timestamp_nanos_opt()?;
        if let Some(first) = self.zone.from_local_datetime(&wall).earliest() {
            return first.with_timezone(&Utc).timestamp_nanos_opt();
        }
        // The clock skips this time: what follows lies between an instant that surely shows less, and one that shows more.
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

/// A day by its number, counted from the epoch.
fn day(number: i64) -> Option<NaiveDate> {
    let days = Days::new(number.unsigned_abs());
    match number {
        0.. => EPOCH.checked_add_days(days),
        _ => EPOCH.checked_sub_days(days),
    }
}

/// The first day of a month by its number, counted from the epoch.
fn month(number: i64) -> Option<NaiveDate> {
    let months = Months::new(u32::try_from(number.unsigned_abs()).ok()?);
    match number {
        0.. => EPOCH.checked_add_months(months),
        _ => EPOCH.checked_sub_months(months),
    }
}

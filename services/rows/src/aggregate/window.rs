//! Time windows of requests: conversion of a width, a time zone and an offset to a window, and the window that contains
//! a time.
//!
//! For aggregates of points, the range of the windows is given in advance. Aggregates of rows determine the window of
//! each time when they read the time, and keep the windows that they have determined.

use std::collections::BTreeMap;

use chrono_tz::Tz;
use tideline_engine::model::TimeRange;
use tideline_engine::model::time::NANOS_PER_DAY;
use tideline_openapi::query::{CalendarUnit, WindowWidth};
use tideline_openapi::time::DurationText;
use tideline_query::window::Windows;
use tideline_query::{CalendarWindow, QueryError, Window, WindowSpec};

use crate::error::{Result, RowsError};

/// Number of kept windows at which all of them are discarded.
const KNOWN_MAX: usize = 10_000;

/// Converts a window. Windows of a fixed duration, and days and weeks in UTC, have a fixed width. Other windows follow
/// the calendar.
///
/// # Errors
///
/// [`RowsError::Invalid`] for a zone that does not exist, or for a zone together with a fixed duration.
pub fn window_of(width: WindowWidth, zone: Option<&str>, offset: Option<DurationText>) -> Result<Window> {
    let invalid = |message: String| Err(RowsError::Invalid(message));
    let offset = offset.map_or(0, |offset| offset.0);
    let (count, unit) = match width {
        WindowWidth::Fixed(_) if zone.is_some() => {
            return invalid(
                "zone applies to windows of days, weeks, months or years; use offset for others".into(),
            );
        }
        WindowWidth::Fixed(width) => return Ok(WindowSpec { width, offset }.into()),
        WindowWidth::Calendar(count, unit) => (count, unit),
    };
    let zone = match zone {
        None => Tz::UTC,
        Some(name) => match name.parse() {
            Ok(zone) => zone,
            Err(_) => {
                return invalid(format!(
                    "{name:?} is not a valid time zone; use a name such as Europe/Berlin or UTC"
                ));
            }
        },
    };
    let days = |each: i64, first: i64| WindowSpec {
        width: i64::from(count).saturating_mul(each * NANOS_PER_DAY),
        offset: offset.saturating_add(first * NANOS_PER_DAY),
    };
    let unit = match unit {
        CalendarUnit::Day if zone == Tz::UTC => return Ok(days(1, 0).into()),
        // The first Monday after the epoch is January 5.
        CalendarUnit::Week if zone == Tz::UTC => return Ok(days(7, 4).into()),
        CalendarUnit::Day => tideline_query::CalendarUnit::Day,
        CalendarUnit::Week => tideline_query::CalendarUnit::Week,
        CalendarUnit::Month => tideline_query::CalendarUnit::Month,
        CalendarUnit::Year => tideline_query::CalendarUnit::Year,
    };
    Ok(Window::Calendar(CalendarWindow {
        count,
        unit,
        zone,
        offset,
    }))
}

/// Windows of times that are not known in advance.
#[derive(Debug)]
pub(super) struct KnownWindows {
    window: Window,
    /// End of each known window, by its start.
    known: BTreeMap<i64, i64>,
    /// Start and end of the last window that was returned. Neighboring rows are often in the same window.
    last: (i64, i64),
}

impl KnownWindows {
    /// Checks a window.
    ///
    /// # Errors
    ///
    /// [`RowsError::Invalid`] if the width or the offset is out of range.
    pub(super) fn new(window: Window) -> Result<Self> {
        let mut this = Self {
            window,
            known: BTreeMap::new(),
            last: (0, 0),
        };
        this.start(0)?;
        Ok(this)
    }

    /// Returns the start of the window that contains a time. The start is clamped to the range of timestamps.
    ///
    /// # Errors
    ///
    /// [`RowsError::Invalid`] if the width or the offset is out of range.
    pub(super) fn start(&mut self, time: i64) -> Result<i64> {
        if (self.last.0..self.last.1).contains(&time) {
            return Ok(self.last.0);
        }
        let before = self.known.range(..=time).next_back();
        if let Some((start, end)) = before.filter(|(_, end)| time < **end) {
            self.last = (*start, *end);
            return Ok(*start);
        }
        let bounds = bounds_of(self.window, time)?;
        if self.known.len() >= KNOWN_MAX {
            self.known.clear();
        }
        self.last = bounds;
        self.known.insert(bounds.0, bounds.1);
        Ok(bounds.0)
    }
}

/// Returns the start and the exclusive end of the window that contains a time, clamped to the range of timestamps.
///
/// # Errors
///
/// [`RowsError::Invalid`] if the width or the offset is out of range.
pub(crate) fn bounds_of(window: Window, time: i64) -> Result<(i64, i64)> {
    // The exclusive end of the last nanosecond cannot be represented, so the window of the previous nanosecond is
    // used.
    let time = time.min(i64::MAX - 1);
    let range = TimeRange::new(time, time + 1);
    let windows = Windows::new(range, Some(window)).map_err(|error| match error {
        QueryError::Invalid(message) => RowsError::Invalid(message),
        error => RowsError::Invalid(error.to_string()),
    })?;
    Ok((windows.start(0), windows.start(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000_000_000;

    #[test]
    fn windows_of_a_zone_follow_its_clock_changes() {
        let width = WindowWidth::Calendar(1, CalendarUnit::Day);
        let window = window_of(width, Some("Europe/Berlin"), None).expect("a window");
        let mut windows = KnownWindows::new(window).expect("it is valid");
        // 2026-10-25 is a day of 25 hours. It begins at 22:00 UTC of the previous day.
        let begin = 20_751 * 24 * HOUR - 2 * HOUR;
        for (time, start) in [
            (begin, begin),
            (begin + 25 * HOUR - 1, begin),
            (begin + 25 * HOUR, begin + 25 * HOUR),
            (begin - 1, begin - 24 * HOUR),
            (begin + HOUR, begin),
        ] {
            assert_eq!(windows.start(time).expect("it is valid"), start, "{time}");
        }
    }

    #[test]
    fn windows_that_make_no_sense_are_refused() {
        let fixed = WindowWidth::Fixed(HOUR);
        assert!(window_of(fixed, Some("UTC"), None).is_err());
        assert!(window_of(WindowWidth::Calendar(1, CalendarUnit::Day), Some("Mars"), None).is_err());
        let endless = window_of(WindowWidth::Calendar(200_000, CalendarUnit::Month), None, None);
        assert!(KnownWindows::new(endless.expect("a window")).is_err());
    }

    #[test]
    fn the_ends_of_time_have_windows() {
        for width in [
            WindowWidth::Fixed(HOUR),
            WindowWidth::Calendar(1, CalendarUnit::Month),
            WindowWidth::Calendar(1, CalendarUnit::Week),
        ] {
            let window = window_of(width, None, None).expect("a window");
            let mut windows = KnownWindows::new(window).expect("it is valid");
            for time in [i64::MIN, i64::MIN + 1, -1, 0, i64::MAX - 1, i64::MAX] {
                let start = windows.start(time).expect("it is valid");
                assert!(start <= time, "{width:?} {time} {start}");
            }
        }
    }
}

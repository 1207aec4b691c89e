//! Calendar windows, compared with a local clock that is sampled every 15 minutes.
//!
//! Covers time zones with unusual offsets and clock changes.

use std::collections::BTreeMap;

use chrono::{DateTime, Datelike, NaiveDate, NaiveDateTime, TimeDelta, TimeZone};
use chrono_tz::Tz;
use tideline_model::{TimeRange, Value};
use tideline_query::{
    Aggregate, CalendarUnit, CalendarWindow, Fill, Function, GroupBy, PointQuery, Shape, Window,
};

use crate::support::{Dice, World, rows_query};

const MINUTE: i64 = 60_000_000_000;
const QUARTER: i64 = 15 * MINUTE;
const DAY: i64 = 96 * QUARTER;

/// Time zones with offsets of whole, half and quarter hours. Some change their clocks at midnight or by half an hour,
/// one skipped a day, and some never change their clocks.
const ZONES: [Tz; 9] = [
    Tz::UTC,
    Tz::Europe__Berlin,
    Tz::America__New_York,
    Tz::Asia__Kolkata,
    Tz::Asia__Kathmandu,
    Tz::Australia__Lord_Howe,
    Tz::America__Sao_Paulo,
    Tz::Pacific__Apia,
    Tz::Africa__Casablanca,
];

fn instant(text: &str) -> i64 {
    let instant = DateTime::parse_from_rfc3339(text).expect(text);
    instant.timestamp_nanos_opt().expect("in range")
}

fn wall(zone: Tz, nanos: i64) -> NaiveDateTime {
    let utc = DateTime::from_timestamp_nanos(nanos).naive_utc();
    zone.from_utc_datetime(&utc).naive_local()
}

/// Returns the number of the window that contains a local time.
fn name(window: &CalendarWindow, wall: NaiveDateTime) -> i64 {
    let date = (wall - TimeDelta::nanoseconds(window.offset)).date();
    let epoch = NaiveDate::from_ymd_opt(1970, 1, 1).expect("a day");
    let days = (date - epoch).num_days();
    let count = i64::from(window.count);
    let month = i64::from(date.year() - 1970) * 12 + i64::from(date.month0());
    match window.unit {
        CalendarUnit::Day => days.div_euclid(count),
        // Weeks are computed from the day of the week of the date.
        CalendarUnit::Week => {
            let monday = date - TimeDelta::days(i64::from(date.weekday().num_days_from_monday()));
            let first = NaiveDate::from_ymd_opt(1970, 1, 5).expect("a Monday");
            (monday - first).num_weeks().div_euclid(count)
        }
        CalendarUnit::Month => month.div_euclid(count),
        CalendarUnit::Year => i64::from(date.year() - 1970).div_euclid(count),
    }
}

/// Returns the starts of the windows of a range. A window starts when the local clock first shows a time in it.
fn naive(window: &CalendarWindow, range: TimeRange) -> Vec<i64> {
    let longest = match window.unit {
        CalendarUnit::Day => 2,
        CalendarUnit::Week => 9,
        CalendarUnit::Month => 33,
        CalendarUnit::Year => 368,
    };
    let mut at = range.start.div_euclid(DAY) * DAY - longest * i64::from(window.count) * DAY;
    let mut latest = name(window, wall(window.zone, at));
    let mut starts = Vec::new();
    while at < range.end {
        let now = name(window, wall(window.zone, at));
        if now > latest {
            latest = now;
            if at <= range.start {
                starts.clear();
            }
            starts.push(at);
        }
        at += QUARTER;
    }
    starts
}

/// Returns a world in which all tested days are in the past.
fn world() -> World {
    World::at(instant("2026-12-01T00:00:00Z"))
}

fn query(window: CalendarWindow, range: TimeRange) -> PointQuery {
    PointQuery {
        range,
        shape: Shape::Aggregate(Aggregate {
            functions: vec![Function::Count, Function::Sum, Function::First],
            window: Some(Window::Calendar(window)),
            fill: Some(Fill::Null),
            group_by: GroupBy::Nothing,
            ..Aggregate::default()
        }),
        ..rows_query()
    }
}

#[test]
fn windows_are_those_of_the_wall_clock() {
    let mut dice = Dice::new(51);
    let (from, to) = (instant("2011-11-01T00:00:00Z"), instant("2013-04-01T00:00:00Z"));
    let world = world();
    // Timeline b has so many points in a week with clock changes that its chunk has summaries.
    let (close_from, close_to) = (instant("2012-03-22T00:00:00Z"), instant("2012-03-29T00:00:00Z"));
    let mut points: BTreeMap<i64, i64> = BTreeMap::new();
    for at in 0..8_000 {
        let (from, to) = if at < 5_000 {
            (close_from, close_to)
        } else {
            (from, to)
        };
        points.insert(from + dice.below((to - from) as u64) as i64, dice.below(9) as i64);
    }
    let mut summaries = 0;
    let written: Vec<_> = points
        .iter()
        .map(|(time, value)| {
            let is_close = (close_from..close_to).contains(time);
            let key = if is_close { "m,host=b" } else { "m,host=a" };
            (key, *time, vec![("v", Value::Signed(*value))])
        })
        .collect();
    world.write(&written);
    for round in 0..120 {
        if round == 60 {
            world.seal();
        }
        let unit = [
            CalendarUnit::Day,
            CalendarUnit::Week,
            CalendarUnit::Month,
            CalendarUnit::Year,
        ];
        let window = CalendarWindow {
            count: 1 + dice.below(3) as u32,
            unit: unit[dice.below(4) as usize],
            zone: ZONES[dice.below(9) as usize],
            // The naive clock is sampled every 15 minutes, so the offset is a multiple of 15 minutes.
            offset: if dice.one_in(2) {
                0
            } else {
                dice.below(96) as i64 * QUARTER
            },
        };
        let start = from + dice.below((to - from) as u64) as i64;
        let range = TimeRange::new(start, (start + 1 + dice.below(300 * DAY as u64) as i64).min(to));
        let starts = naive(&window, range);
        let result = world.run(&query(window, range)).expect("answered");
        summaries += result.summary().cost.total().summaries;
        let rows = result.rows();
        if rows.is_empty() {
            assert_eq!(points.range(range.start..range.end).count(), 0);
            continue;
        }
        let found: Vec<i64> = rows.iter().map(|(start, _)| *start).collect();
        assert_eq!(found, starts, "{window:?} {range:?}");
        for (at, (_, values)) in rows.iter().enumerate() {
            let begin = starts[at].max(range.start);
            let end = starts.get(at + 1).copied().unwrap_or(range.end);
            let inside: Vec<i64> = points.range(begin..end).map(|(_, value)| *value).collect();
            let count = Value::Unsigned(inside.len() as u64);
            let sum = (!inside.is_empty()).then(|| Value::Signed(inside.iter().sum()));
            let first = inside.first().map(|value| Value::Signed(*value));
            assert_eq!(*values, [Some(count), sum, first], "{window:?} {range:?} {at}");
        }
    }
    assert!(
        summaries > 0,
        "windows of days are made of stored summaries of hours"
    );
}

#[test]
fn days_have_the_hours_that_the_clock_gives_them() {
    let starts = |zone, range: (&str, &str), offset| {
        let window = CalendarWindow {
            count: 1,
            unit: CalendarUnit::Day,
            zone,
            offset,
        };
        let range = TimeRange::new(instant(range.0), instant(range.1));
        let world = world();
        world.write(&[("m,host=a", range.start, vec![("v", Value::Signed(1))])]);
        let rows = world.run(&query(window, range)).expect("answered").rows();
        let shown = rows
            .iter()
            .map(|(start, _)| DateTime::from_timestamp_nanos(*start).to_rfc3339());
        shown.map(|text| text[..16].to_owned()).collect::<Vec<_>>()
    };
    // Days of 23, 24 and 25 hours.
    assert_eq!(
        starts(
            Tz::Europe__Berlin,
            ("2026-03-29T10:00:00Z", "2026-03-31T00:00:00Z"),
            0
        ),
        ["2026-03-28T23:00", "2026-03-29T22:00", "2026-03-30T22:00"]
    );
    assert_eq!(
        starts(
            Tz::Europe__Berlin,
            ("2026-10-25T10:00:00Z", "2026-10-26T01:00:00Z"),
            0
        ),
        ["2026-10-24T22:00", "2026-10-25T23:00"]
    );
    // The local time 02:30 is skipped in spring and occurs twice in autumn.
    let half_past_two = 10 * QUARTER;
    assert_eq!(
        starts(
            Tz::Europe__Berlin,
            ("2026-03-29T10:00:00Z", "2026-03-29T11:00:00Z"),
            half_past_two
        ),
        ["2026-03-29T01:00"]
    );
    assert_eq!(
        starts(
            Tz::Europe__Berlin,
            ("2026-10-25T10:00:00Z", "2026-10-25T11:00:00Z"),
            half_past_two
        ),
        ["2026-10-25T00:30"]
    );
    // Samoa skipped 30 December 2011.
    assert_eq!(
        starts(
            Tz::Pacific__Apia,
            ("2011-12-29T12:00:00Z", "2012-01-01T00:00:00Z"),
            0
        ),
        ["2011-12-29T10:00", "2011-12-30T10:00", "2011-12-31T10:00"]
    );
}

#[test]
fn what_cannot_be_counted_is_refused_and_the_ends_of_time_are_not() {
    let world = World::with(&[("m,host=a", 0, vec![("v", Value::Signed(1))])]);
    let run = |count, unit, offset| {
        let window = CalendarWindow {
            count,
            unit,
            zone: Tz::Europe__Berlin,
            offset,
        };
        world
            .run(&query(window, TimeRange::ALL))
            .map(|result| result.rows().len())
    };
    for (count, offset, said) in [
        (0, 0, "must have 1 to"),
        (100_001, 0, "must have 1 to"),
        (1, DAY, "shorter than a window"),
        (1, -1, "shorter than a window"),
    ] {
        let error = run(count, CalendarUnit::Day, offset).expect_err(said).to_string();
        assert!(error.contains(said), "{error}");
    }
    assert_eq!(run(1, CalendarUnit::Year, 0).expect("answered"), 2262 - 1677 + 1);
    assert_eq!(run(100_000, CalendarUnit::Year, 0).expect("answered"), 2);
    assert_eq!(run(100_000, CalendarUnit::Month, 5).expect("answered"), 2);
}

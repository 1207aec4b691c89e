//! Schedules: the times at which a kind of job may start.
//!
//! Cron expressions are parsed and evaluated by `croner`; time zones come from the built-in IANA database. If the
//! clocks of a zone go forward and skip a fixed time, that time is replaced by the first moment after the change. If
//! the clocks go back and repeat a fixed time, only its first occurrence counts. Expressions for every n minutes or
//! hours follow elapsed time through both changes.

use chrono::{DateTime, Utc};
use chrono_tz::{TZ_VARIANTS, Tz};
use croner::Cron;
use croner::parser::{CronParser, Year};
use tideline_model::Schedule;
use tideline_model::time::NANOS_PER_SECOND;

/// Length of the longest accepted expression, in bytes. A list of every minute of an hour is shorter.
pub const EXPRESSION_CHARS_MAX: usize = 256;
/// Number of letters of a time zone name per tolerated spelling mistake.
const LETTERS_PER_ERROR: usize = 3;

/// Schedule compiled for evaluation.
///
/// # Examples
///
/// ```
/// use tideline_engine::model::{Schedule, Timestamp};
/// use tideline_engine::schedule::Timetable;
///
/// let schedule = Schedule::Cron {
///     expression: "30 2 * * *".to_owned(),
///     time_zone: "Europe/Berlin".to_owned(),
/// };
/// let timetable = Timetable::new(&schedule)?;
/// let noon = Timestamp::parse_rfc3339("2026-11-20T12:00:00Z").ok_or("not a timestamp")?.nanos();
/// let next = timetable.next_after(noon).ok_or("no time matches")?;
/// assert_eq!(Timestamp::from_nanos(next)?.to_rfc3339(), "2026-11-21T01:30:00Z");
/// assert!(!timetable.is_due(noon, next - 1) && timetable.is_due(noon, next));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Timetable(Kind);

#[derive(Debug, Clone)]
enum Kind {
    Continuous,
    Cron(Box<Cron>, Tz),
}

/// Error of an invalid schedule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// The text is not a cron expression, or is too long.
    #[error("{expression:?} is not a cron expression: {reason}")]
    Expression {
        /// First 80 characters of the given expression.
        expression: String,
        /// Reason why it is invalid.
        reason: String,
    },
    /// No time within the supported range matches.
    #[error("{0:?} names a date that never comes")]
    Never(String),
    /// The text is not the name of a time zone.
    #[error("{0:?} is not a time zone of the IANA database, such as Europe/Berlin or UTC")]
    TimeZone(String),
}

/// Checks a cron expression of five or six fields and a time zone; see [`Schedule::Cron`].
///
/// # Errors
///
/// Returns [`ScheduleError::Expression`] or [`ScheduleError::TimeZone`] for invalid text, and
/// [`ScheduleError::Never`] if no time matches.
pub fn validate(expression: &str, time_zone: &str) -> Result<(), ScheduleError> {
    Timetable::cron(expression, time_zone).map(|_| ())
}

impl Timetable {
    /// Compiles a schedule. This takes microseconds.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`validate`], for a schedule that is not continuous.
    pub fn new(schedule: &Schedule) -> Result<Self, ScheduleError> {
        match schedule {
            Schedule::Continuous => Ok(Self(Kind::Continuous)),
            Schedule::Cron {
                expression,
                time_zone,
            } => Self::cron(expression, time_zone),
        }
    }

    fn cron(expression: &str, time_zone: &str) -> Result<Self, ScheduleError> {
        let shown = |text: &str| text.chars().take(80).collect::<String>();
        let refused = |reason: String| ScheduleError::Expression {
            expression: shown(expression),
            reason,
        };
        if expression.len() > EXPRESSION_CHARS_MAX {
            return Err(refused(format!("over {EXPRESSION_CHARS_MAX} characters")));
        }
        let parser = CronParser::builder().year(Year::Disallowed).build();
        let cron = parser
            .parse(expression)
            .map_err(|error| refused(error.to_string()))?;
        let zone: Tz = time_zone
            .parse()
            .map_err(|_| ScheduleError::TimeZone(shown(time_zone)))?;
        let timetable = Self(Kind::Cron(Box::new(cron), zone));
        match timetable.next_after(0) {
            Some(_) => Ok(timetable),
            None => Err(ScheduleError::Never(shown(expression))),
        }
    }

    /// Returns true if work may start at any time.
    pub fn is_continuous(&self) -> bool {
        matches!(self.0, Kind::Continuous)
    }

    /// Returns the first time after `after` at which work may start, nanoseconds since the epoch. This is `after`
    /// itself for a continuous schedule, and `None` if no time within the supported range matches.
    pub fn next_after(&self, after: i64) -> Option<i64> {
        let Kind::Cron(cron, zone) = &self.0 else {
            return Some(after);
        };
        // Scheduled times are whole seconds.
        let from = DateTime::<Utc>::from_timestamp(after.div_euclid(NANOS_PER_SECOND), 0)?;
        let next = cron.find_next_occurrence(&from.with_timezone(zone), false).ok()?;
        next.timestamp_nanos_opt()
    }

    /// Returns true if a scheduled time is after `since` and not after `now`, however long ago it was. `since` is, for
    /// example, the end of the last run. A continuous schedule is due unless `since` is after `now`.
    pub fn is_due(&self, since: i64, now: i64) -> bool {
        self.next_after(since).is_some_and(|next| next <= now)
    }
}

/// Checks a schedule.
///
/// # Errors
///
/// Returns the errors of [`validate`] as a message, with a suggestion or an example of a valid value.
pub fn check(schedule: &Schedule) -> Result<(), String> {
    let Schedule::Cron {
        expression,
        time_zone,
    } = schedule
    else {
        return Ok(());
    };
    validate(expression, time_zone).map_err(|error| match &error {
        ScheduleError::TimeZone(_) => match similar_zone(time_zone) {
            Some(zone) => format!("{error}; did you mean {zone}?"),
            None => error.to_string(),
        },
        ScheduleError::Expression { .. } | ScheduleError::Never(_) => {
            format!("{error}; write one such as \"0 3 * * *\", every night at three")
        }
    })
}

/// Returns the time zone that is most similar to a text, by its whole name or its city: `berlin` yields
/// `Europe/Berlin`. `None` if no name is similar enough, or if the text is longer than 64 bytes.
fn similar_zone(text: &str) -> Option<&'static str> {
    if text.len() > 64 {
        return None;
    }
    let text = text.to_ascii_lowercase().replace(' ', "_");
    let distance = |name: &str| {
        let name = name.to_ascii_lowercase();
        let city = name.rsplit('/').next().unwrap_or(&name);
        let by_city = strsim::damerau_levenshtein(city, &text);
        strsim::damerau_levenshtein(&name, &text).min(by_city)
    };
    let zones = TZ_VARIANTS.iter().map(|zone| zone.name());
    let nearest = zones.map(|name| (distance(name), name.len(), name)).min()?;
    (nearest.0 <= text.len() / LETTERS_PER_ERROR).then_some(nearest.2)
}

#[cfg(test)]
mod tests {
    use tideline_model::Timestamp;

    use super::*;

    fn timetable(expression: &str, time_zone: &str) -> Timetable {
        Timetable::cron(expression, time_zone).expect("a schedule")
    }

    fn at(text: &str) -> i64 {
        Timestamp::parse_rfc3339(text).expect("a timestamp").nanos()
    }

    /// Returns the next `count` scheduled times after a start, in the local time of the zone.
    fn instants(expression: &str, zone: &str, start: &str, count: usize) -> Vec<String> {
        let timetable = timetable(expression, zone);
        let tz: Tz = zone.parse().expect("a zone");
        let mut now = at(start);
        (0..count)
            .map(|_| {
                now = timetable.next_after(now).expect("a next time");
                let shown = Timestamp::from_nanos_clamped(now).nanos();
                DateTime::from_timestamp_nanos(shown)
                    .with_timezone(&tz)
                    .to_rfc3339()
            })
            .collect()
    }

    #[test]
    fn every_night_at_three() {
        assert_eq!(
            instants("0 3 * * *", "Europe/Berlin", "2026-11-20T02:00:00.5Z", 2),
            ["2026-11-21T03:00:00+01:00", "2026-11-22T03:00:00+01:00"]
        );
        assert_eq!(
            instants("30 15 4 * * MON", "UTC", "2026-11-20T00:00:00Z", 1),
            ["2026-11-23T04:15:30+00:00"]
        );
    }

    #[test]
    fn a_time_that_the_clocks_leave_out_comes_when_they_go_on() {
        assert_eq!(
            instants("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", 2),
            ["2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"]
        );
        assert_eq!(
            instants("0 * * * *", "Europe/Berlin", "2026-03-29T00:00:00Z", 2),
            ["2026-03-29T03:00:00+02:00", "2026-03-29T04:00:00+02:00"]
        );
    }

    #[test]
    fn a_time_that_comes_twice_is_kept_once() {
        assert_eq!(
            instants("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", 2),
            ["2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"]
        );
        assert_eq!(
            instants("30 * * * *", "Europe/Berlin", "2026-10-25T00:00:00Z", 3),
            [
                "2026-10-25T02:30:00+02:00",
                "2026-10-25T02:30:00+01:00",
                "2026-10-25T03:30:00+01:00"
            ]
        );
    }

    #[test]
    fn a_missed_instant_stays_due_until_it_is_served() {
        let nightly = timetable("0 3 * * *", "UTC");
        let served = at("2026-11-20T03:00:00.2Z");
        assert!(!nightly.is_due(served, at("2026-11-21T02:59:59.9Z")));
        assert!(nightly.is_due(served, at("2026-11-21T03:00:00Z")));
        assert!(nightly.is_due(served, at("2026-12-24T17:00:00Z")));
        assert!(!nightly.is_due(at("2026-12-24T17:00:00Z"), at("2026-12-25T02:00:00Z")));
        let continuous = Timetable::new(&Schedule::Continuous).expect("always one");
        assert!(continuous.is_continuous() && continuous.is_due(5, 5));
    }

    #[test]
    fn what_cannot_be_kept_is_refused_in_words() {
        for (expression, zone, words) in [
            ("", "UTC", "is not a cron expression"),
            ("* * *", "UTC", "is not a cron expression"),
            ("61 * * * *", "UTC", "is not a cron expression"),
            ("0 3 * * * * 2027", "UTC", "is not a cron expression"),
            ("0 0 30 2 *", "UTC", "never comes"),
            ("0 3 * * *", "Berlin", "is not a time zone"),
            ("0 3 * * *", "", "is not a time zone"),
        ] {
            let error = validate(expression, zone).expect_err(expression).to_string();
            assert!(error.contains(words), "{expression:?} {zone:?}: {error}");
        }
        let long = format!("{} * * * *", "1,".repeat(1_000));
        let error = validate(&long, "UTC").expect_err("too long").to_string();
        assert!(error.len() < 200, "{error}");
    }

    #[test]
    fn the_ends_of_time_have_no_next_instant_and_do_not_panic() {
        let nightly = timetable("0 3 * * *", "Asia/Tokyo");
        for end in [i64::MIN, i64::MAX] {
            let next = nightly.next_after(end);
            assert!(next.is_none() || next > Some(end));
        }
        assert!(!nightly.is_due(i64::MAX, i64::MAX));
    }

    #[test]
    fn a_time_zone_is_guessed_by_its_place() {
        for (text, zone) in [
            ("berlin", Some("Europe/Berlin")),
            ("america/new york", Some("America/New_York")),
            ("Asia/Tokio", Some("Asia/Tokyo")),
            ("utc", Some("UTC")),
            ("middle of nowhere", None),
            ("", None),
        ] {
            assert_eq!(similar_zone(text), zone, "{text}");
        }
    }
}

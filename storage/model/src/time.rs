//! Timestamps, time ranges, precisions, durations, and the clock that is passed to all time-dependent code.
//!
//! All timestamps are nanoseconds since the epoch in an `i64`. The two lowest values and the highest value of `i64` are
//! not timestamps, as in InfluxDB. A half-open [`TimeRange`] can therefore include every timestamp.

use std::fmt;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use chrono::{DateTime, Datelike, SecondsFormat, Timelike, Utc};

/// Nanoseconds since 1970-01-01T00:00:00 UTC, without leap seconds; negative before that time.
///
/// Range: 1677-09-21 to 2262-04-11, which is all of `i64` except its two lowest values and its highest value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(i64);

/// Error of a time outside the range of [`Timestamp`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("time outside the range 1677-09-21T00:12:43Z to 2262-04-11T23:47:16Z")]
pub struct TimestampOutOfRange;

impl Timestamp {
    /// Earliest timestamp.
    pub const MIN: Self = Self(i64::MIN + 2);
    /// Latest timestamp.
    pub const MAX: Self = Self(i64::MAX - 1);
    /// 1970-01-01T00:00:00Z.
    pub const EPOCH: Self = Self(0);

    /// Converts nanoseconds since the epoch.
    ///
    /// # Errors
    ///
    /// Returns [`TimestampOutOfRange`] for the three reserved values.
    pub fn from_nanos(nanos: i64) -> Result<Self, TimestampOutOfRange> {
        let this = Self(nanos);
        if (Self::MIN..=Self::MAX).contains(&this) {
            Ok(this)
        } else {
            Err(TimestampOutOfRange)
        }
    }

    /// Converts nanoseconds since the epoch, clamped to the range; for arithmetic at the ends of the range.
    pub const fn from_nanos_clamped(nanos: i64) -> Self {
        if nanos < Self::MIN.0 {
            Self::MIN
        } else if nanos > Self::MAX.0 {
            Self::MAX
        } else {
            Self(nanos)
        }
    }

    /// Converts a count of `precision` units since the epoch.
    ///
    /// # Errors
    ///
    /// Returns [`TimestampOutOfRange`] if the time is out of range.
    pub fn from_units(count: i64, precision: Precision) -> Result<Self, TimestampOutOfRange> {
        count
            .checked_mul(precision.nanos())
            .ok_or(TimestampOutOfRange)
            .and_then(Self::from_nanos)
    }

    /// Returns the nanoseconds since the epoch.
    pub const fn nanos(self) -> i64 {
        self.0
    }

    /// Returns this timestamp plus `nanos`, clamped to the range.
    pub const fn saturating_add(self, nanos: i64) -> Self {
        Self::from_nanos_clamped(self.0.saturating_add(nanos))
    }

    /// Parses RFC 3339 text (`2026-11-20T12:00:00.5Z`, any offset). Returns `None` if it is not valid or out of range.
    pub fn parse_rfc3339(text: &str) -> Option<Self> {
        let instant = DateTime::parse_from_rfc3339(text).ok()?;
        Self::from_nanos(instant.timestamp_nanos_opt()?).ok()
    }

    /// Returns true for RFC 3339 text whose time is out of range.
    pub fn is_outside_rfc3339(text: &str) -> bool {
        DateTime::parse_from_rfc3339(text).is_ok() && Self::parse_rfc3339(text).is_none()
    }

    /// Formats as RFC 3339 in UTC, with as many fractional digits (0, 3, 6 or 9) as necessary.
    pub fn to_rfc3339(self) -> String {
        DateTime::<Utc>::from_timestamp_nanos(self.0).to_rfc3339_opts(SecondsFormat::AutoSi, true)
    }

    /// Appends the text of [`to_rfc3339`](Self::to_rfc3339). This is several times as fast, because it writes single
    /// digits, and needs no text of its own. Responses have such a text for each row.
    pub fn write_rfc3339(self, out: &mut Vec<u8>) {
        let time = DateTime::<Utc>::from_timestamp_nanos(self.0);
        // The years of all timestamps have four digits.
        push_digits(time.year().unsigned_abs(), 4, out);
        for (separator, number) in [
            (b'-', time.month()),
            (b'-', time.day()),
            (b'T', time.hour()),
            (b':', time.minute()),
            (b':', time.second()),
        ] {
            out.push(separator);
            push_digits(number, 2, out);
        }
        let nanos = time.timestamp_subsec_nanos();
        let (fraction, digits) = match nanos {
            0 => (0, 0),
            _ if nanos.is_multiple_of(1_000_000) => (nanos / 1_000_000, 3),
            _ if nanos.is_multiple_of(1_000) => (nanos / 1_000, 6),
            _ => (nanos, 9),
        };
        if digits > 0 {
            out.push(b'.');
            push_digits(fraction, digits, out);
        }
        out.push(b'Z');
    }
}

/// Appends the last `count` decimal digits of a number.
fn push_digits(mut number: u32, count: usize, out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + count, b'0');
    for digit in out[start..].iter_mut().rev() {
        *digit += (number % 10) as u8;
        number /= 10;
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_rfc3339())
    }
}

/// Half-open time range: includes `start`, excludes `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TimeRange {
    /// First nanosecond of the range.
    pub start: i64,
    /// First nanosecond after the range.
    pub end: i64,
}

impl TimeRange {
    /// Range of all timestamps.
    pub const ALL: Self = Self {
        start: i64::MIN,
        end: i64::MAX,
    };

    /// Returns the range from `start` (inclusive) to `end` (exclusive), in nanoseconds.
    pub const fn new(start: i64, end: i64) -> Self {
        Self { start, end }
    }

    /// Returns true if `end` is not after `start`.
    pub const fn is_empty(&self) -> bool {
        self.start >= self.end
    }

    /// Returns true if `nanos` is in the range.
    pub const fn contains(&self, nanos: i64) -> bool {
        self.start <= nanos && nanos < self.end
    }

    /// Returns true if the ranges share a timestamp. Both ranges must be non-empty.
    pub const fn overlaps(&self, other: &Self) -> bool {
        self.start < other.end && other.start < self.end
    }

    /// Returns the intersection, which may be empty.
    pub fn intersect(&self, other: &Self) -> Self {
        Self {
            start: self.start.max(other.start),
            end: self.end.min(other.end),
        }
    }
}

/// Unit of an integer timestamp in requests and responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Precision {
    /// Nanoseconds; the default.
    #[default]
    Nanosecond,
    /// Microseconds.
    Microsecond,
    /// Milliseconds.
    Millisecond,
    /// Seconds.
    Second,
    /// Minutes.
    Minute,
    /// Hours.
    Hour,
}

impl Precision {
    /// Returns the nanoseconds in one unit.
    pub const fn nanos(self) -> i64 {
        match self {
            Self::Nanosecond => 1,
            Self::Microsecond => 1_000,
            Self::Millisecond => 1_000_000,
            Self::Second => 1_000_000_000,
            Self::Minute => 60_000_000_000,
            Self::Hour => 3_600_000_000_000,
        }
    }

    /// Parses a unit name of InfluxDB 1 or 2: `n ns u us µ µs ms s m h`. Returns `None` for other texts.
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "n" | "ns" => Self::Nanosecond,
            "u" | "us" | "µ" | "µs" => Self::Microsecond,
            "ms" => Self::Millisecond,
            "s" => Self::Second,
            "m" => Self::Minute,
            "h" => Self::Hour,
            _ => return None,
        })
    }
}

/// Parses a duration such as `90s`, `2h`, `30d` or `1h30m` into nanoseconds.
///
/// A duration is a sequence of whole numbers with units, which are added up. Units: `ns us µs ms s m h d w y`; a day
/// has 24 h, a year 365 days. Returns `None` for any other text and for results beyond `i64`.
///
/// # Examples
///
/// ```
/// use tideline_model::time::{NANOS_PER_SECOND, format_duration, parse_duration};
///
/// assert_eq!(parse_duration("1h30m"), Some(5_400 * NANOS_PER_SECOND));
/// assert_eq!(parse_duration("90"), None, "a unit is required");
/// assert_eq!(format_duration(5_400 * NANOS_PER_SECOND), "1h30m");
/// ```
pub fn parse_duration(text: &str) -> Option<i64> {
    const UNITS: [(&str, i64); 11] = [
        ("ns", 1),
        ("us", 1_000),
        ("µs", 1_000),
        ("ms", 1_000_000),
        ("s", NANOS_PER_SECOND),
        ("m", 60 * NANOS_PER_SECOND),
        ("h", 3_600 * NANOS_PER_SECOND),
        ("d", NANOS_PER_DAY),
        ("w", 7 * NANOS_PER_DAY),
        ("y", 365 * NANOS_PER_DAY),
        ("", 0),
    ];
    let mut rest = text;
    let mut total = 0i64;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, tail) = rest.split_at(digits);
        let unit_len = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_len);
        let nanos = UNITS.iter().find(|(name, _)| *name == unit)?.1;
        if nanos == 0 {
            return None;
        }
        total = total.checked_add(number.parse::<i64>().ok()?.checked_mul(nanos)?)?;
        rest = tail;
    }
    (!text.is_empty()).then_some(total)
}

/// Formats nanoseconds as a duration that [`parse_duration`] reads back, such as `1h30m`. Negative values become `0s`.
pub fn format_duration(nanos: i64) -> String {
    const UNITS: [(&str, i64); 7] = [
        ("d", NANOS_PER_DAY),
        ("h", 3_600 * NANOS_PER_SECOND),
        ("m", 60 * NANOS_PER_SECOND),
        ("s", NANOS_PER_SECOND),
        ("ms", 1_000_000),
        ("us", 1_000),
        ("ns", 1),
    ];
    let mut rest = nanos.max(0);
    let mut text = String::new();
    for (unit, size) in UNITS {
        if rest >= size {
            text.push_str(&format!("{}{unit}", rest / size));
            rest %= size;
        }
    }
    if text.is_empty() { "0s".into() } else { text }
}

/// Nanoseconds in a second.
pub const NANOS_PER_SECOND: i64 = 1_000_000_000;
/// Nanoseconds in a day of 24 hours.
pub const NANOS_PER_DAY: i64 = 86_400 * NANOS_PER_SECOND;

/// Source of the current time. All time-dependent code receives a clock as an argument, so that tests can set the time.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Returns the current time. The time can jump in either direction when the system clock is set.
    fn now(&self) -> Timestamp;

    /// Returns the time since a fixed start within this process. This time never jumps or goes back.
    fn monotonic(&self) -> Duration;
}

/// System clock. All code reads the system clock through this type.
#[derive(Debug, Default, Clone, Copy)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the one implementation of the clock"
    )]
    fn now(&self) -> Timestamp {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let nanos = match since {
            Ok(after) => i64::try_from(after.as_nanos()).unwrap_or(i64::MAX),
            Err(before) => i64::try_from(before.duration().as_nanos()).map_or(i64::MIN, |nanos| -nanos),
        };
        Timestamp::from_nanos_clamped(nanos)
    }

    fn monotonic(&self) -> Duration {
        static START: OnceLock<Instant> = OnceLock::new();
        START.get_or_init(Instant::now).elapsed()
    }
}

/// Clock for tests, with explicitly set time. Clones share the time.
#[derive(Debug, Clone)]
pub struct ManualClock {
    wall: Arc<AtomicI64>,
    monotonic: Arc<AtomicU64>,
}

impl ManualClock {
    /// Creates a clock with the given wall-clock time.
    pub fn new(now: Timestamp) -> Self {
        Self {
            wall: Arc::new(AtomicI64::new(now.nanos())),
            monotonic: Arc::default(),
        }
    }

    /// Sets the wall clock forward or back, like an operator or a faulty time server. The monotonic time does not
    /// change.
    pub fn set(&self, now: Timestamp) {
        self.wall.store(now.nanos(), Ordering::SeqCst);
    }

    /// Advances both clocks by `nanos`; a negative number only sets the wall clock back.
    pub fn advance(&self, nanos: i64) {
        self.wall.fetch_add(nanos, Ordering::SeqCst);
        self.monotonic
            .fetch_add(u64::try_from(nanos).unwrap_or(0), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_nanos_clamped(self.wall.load(Ordering::SeqCst))
    }

    fn monotonic(&self) -> Duration {
        Duration::from_nanos(self.monotonic.load(Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_back() {
        for (text, nanos) in [
            ("90s", 90 * NANOS_PER_SECOND),
            ("2h", 7_200 * NANOS_PER_SECOND),
            ("1h30m", 5_400 * NANOS_PER_SECOND),
        ] {
            assert_eq!(parse_duration(text), Some(nanos));
            assert_eq!(parse_duration(&format_duration(nanos)), Some(nanos));
        }
        for wrong in ["", "5", "h", "1.5h", "-3s", "9999999999y", "1x", "1h-"] {
            assert_eq!(parse_duration(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn wire_precisions_overflow_into_an_error() {
        assert_eq!(
            Timestamp::from_units(2, Precision::Second).map(Timestamp::nanos),
            Ok(2_000_000_000)
        );
        assert!(Timestamp::from_units(i64::MAX, Precision::Second).is_err());
        assert!(Timestamp::from_nanos(i64::MIN).is_err());
    }

    #[test]
    fn rfc_3339_reads_back() {
        for text in ["1969-12-31T23:59:59.999999999Z", "2026-11-20T12:00:00Z"] {
            assert_eq!(
                Timestamp::parse_rfc3339(text)
                    .map(Timestamp::to_rfc3339)
                    .as_deref(),
                Some(text)
            );
        }
        assert_eq!(Timestamp::parse_rfc3339("3000-01-01T00:00:00Z"), None);
        assert!(Timestamp::is_outside_rfc3339("3000-01-01T00:00:00Z"));
        assert!(!Timestamp::is_outside_rfc3339("2026-11-20T12:00:00Z"));
        assert!(!Timestamp::is_outside_rfc3339("3000-01-01"));
    }

    #[test]
    fn both_forms_of_rfc_3339_are_equal() {
        let spread = (-5_000..5_000).map(|part| part * (i64::MAX / 5_000));
        let rounded = spread.clone().flat_map(|nanos| {
            [1_000, 1_000_000, NANOS_PER_SECOND].map(|unit| nanos.div_euclid(unit).saturating_mul(unit))
        });
        let bounds = [Timestamp::MIN.0, Timestamp::MAX.0, -1, 0, 1];
        for nanos in spread.chain(rounded).chain(bounds) {
            let time = Timestamp::from_nanos_clamped(nanos);
            let mut written = b"at ".to_vec();
            time.write_rfc3339(&mut written);
            assert_eq!(
                String::from_utf8(written).expect("a text"),
                format!("at {}", time.to_rfc3339())
            );
        }
    }
}

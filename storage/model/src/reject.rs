//! Why a line of a write is not stored, and the one place that words it.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use crate::table::TableName;
use crate::time::{Timestamp, format_duration};
use crate::value::ValueType;

/// Remedy while the clock of the server is in doubt; ends every message about it.
pub const CLOCK_REMEDY: &str = "send it again later, or confirm the clock";

/// Characters of a tag key that a message shows.
const SHOWN_CHARS: usize = 64;

/// A line that was not stored, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineReject {
    /// The line, or the index of the element; the first is 1.
    pub line: u32,
    /// The reason.
    pub reason: RejectReason,
    /// The start of the offending line, for people, cut at a character boundary. Empty where no line is shown, as
    /// behind the first thousand of a body.
    pub excerpt: String,
}

/// Why a line was not stored. [`Display`](fmt::Display) words it: short and lower case, naming the offending token.
///
/// As large as a text, since decoders return it from their innermost functions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RejectReason {
    /// It cannot be read, or breaks a limit of its protocol, in the words of that protocol.
    Unreadable(Cow<'static, str>),
    /// It has no time, and the clock of the server is in doubt.
    NoArrivalTime,
    /// It is of a new timeline, and the table has taken as many as it may in a minute.
    TooManyTimelines(Arc<TimelineGrowth>),
    /// It is of a new timeline, and the identities of its table take all the memory that they may.
    IdentitiesFull(Box<IdentitiesFull>),
    /// Its time has expired already.
    PastRetention {
        /// Its time, nanoseconds since the epoch.
        at: i64,
        /// The age at which points of the table expire, in nanoseconds.
        age: i64,
    },
    /// Its time is not one that the table takes.
    OutOfBounds {
        /// Its time, nanoseconds since the epoch.
        at: i64,
        /// The bound that it is beyond.
        bound: TimeBound,
        /// Whether it may be within the bound, since the clock of the server is in doubt.
        is_in_doubt: bool,
    },
    /// A field has values of another kind.
    TypeConflict(Arc<TypeConflict>),
    /// Its request has too many sets of fields for one timeline and time.
    TooManyFieldSets {
        /// The limit.
        limit: usize,
    },
    /// It was rejected when its request was first sent.
    Remembered(Box<RememberedReject>),
}

/// A bound of the times that a table takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeBound {
    /// [`TableSpec::write_past`](crate::TableSpec::write_past)
    Past,
    /// [`TableSpec::write_future`](crate::TableSpec::write_future)
    Future,
}

/// A table that takes no further timelines this minute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimelineGrowth {
    /// The table.
    pub table: TableName,
    /// New timelines that it takes in a minute.
    pub limit: u64,
    /// The tag with the most new values; `None` where all values are known.
    pub fastest: Option<GrowingTag>,
}

/// A tag that brings new timelines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrowingTag {
    /// Its key.
    pub key: Box<str>,
    /// New values in the last minute, estimated.
    pub values: u64,
}

/// A table whose identities take all the memory that they may.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdentitiesFull {
    /// The table.
    pub table: TableName,
    /// Bytes that they take.
    pub bytes: u64,
    /// Bytes that they may take.
    pub limit: u64,
}

/// Numbers, text and booleans do not mix in one field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "field type conflict: input field \"{field}\" on measurement \"{measurement}\" is type {}, already exists as type {}",
    .input.name(), .existing.name()
)]
pub struct TypeConflict {
    /// The measurement.
    pub measurement: String,
    /// The field.
    pub field: String,
    /// The type that came in.
    pub input: ValueType,
    /// The type that is there.
    pub existing: ValueType,
}

/// A reject of an earlier request with the same idempotency key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RememberedReject {
    /// Its wording.
    pub text: String,
    /// Whether its line may be stored later, under another key.
    pub is_retryable: bool,
}

/// Condition that a retryable line waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitsFor {
    /// A clock that can be trusted.
    Clock,
    /// Room for new timelines.
    Room,
}

impl RejectReason {
    /// Returns the condition under which the line can be stored later; `None` where sending it again cannot help.
    pub fn waits_for(&self) -> Option<WaitsFor> {
        match self {
            Self::NoArrivalTime
            | Self::OutOfBounds {
                is_in_doubt: true, ..
            } => Some(WaitsFor::Clock),
            Self::TooManyTimelines(_) => Some(WaitsFor::Room),
            // A request of which lines wait for the clock is not remembered.
            Self::Remembered(reject) => reject.is_retryable.then_some(WaitsFor::Room),
            Self::Unreadable(_)
            | Self::IdentitiesFull(_)
            | Self::PastRetention { .. }
            | Self::OutOfBounds { .. }
            | Self::TypeConflict(_)
            | Self::TooManyFieldSets { .. } => None,
        }
    }

    /// Whether the same line may be stored when it is sent again later.
    pub fn is_retryable(&self) -> bool {
        self.waits_for().is_some()
    }

    /// Whether the line became a row, which its table refused. `false` for one that no row was made of, and for a
    /// remembered reject, of which this is not kept.
    pub fn is_of_row(&self) -> bool {
        match self {
            Self::PastRetention { .. }
            | Self::OutOfBounds { .. }
            | Self::TypeConflict(_)
            | Self::TooManyFieldSets { .. } => true,
            Self::Unreadable(_)
            | Self::NoArrivalTime
            | Self::TooManyTimelines(_)
            | Self::IdentitiesFull(_)
            | Self::Remembered(_) => false,
        }
    }
}

impl fmt::Display for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(text) => f.write_str(text),
            Self::NoArrivalTime => write!(
                f,
                "the point has no time, and the clock of the server is in doubt: {CLOCK_REMEDY}"
            ),
            Self::TooManyTimelines(growth) => growth.fmt(f),
            Self::IdentitiesFull(full) => full.fmt(f),
            Self::PastRetention { at, age } => {
                let (at, age) = (Timestamp::from_nanos_clamped(*at), format_duration(*age));
                write!(f, "time {at} is past the table's retention of {age}")
            }
            Self::OutOfBounds {
                at,
                bound,
                is_in_doubt,
            } => {
                let bound = match bound {
                    TimeBound::Past => "before write_past",
                    TimeBound::Future => "after write_future",
                };
                let at = Timestamp::from_nanos_clamped(*at);
                write!(f, "time {at} is {bound} of the table")?;
                match is_in_doubt {
                    true => write!(f, " by a clock of the server that is in doubt: {CLOCK_REMEDY}"),
                    false => Ok(()),
                }
            }
            Self::TypeConflict(conflict) => conflict.fmt(f),
            Self::TooManyFieldSets { limit } => write!(
                f,
                "more than {limit} sets of fields for one instant of a timeline in one request"
            ),
            Self::Remembered(reject) => f.write_str(&reject.text),
        }
    }
}

impl fmt::Display for TimelineGrowth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { table, limit, .. } = self;
        write!(f, "table {table} takes at most {limit} new timelines a minute; ")?;
        match &self.fastest {
            Some(GrowingTag { key, values }) => {
                let key = key.chars().take(SHOWN_CHARS);
                let key: String = key.flat_map(char::escape_debug).collect();
                write!(
                    f,
                    "tag `{key}` grows fastest ({values} new values in the last minute)"
                )?;
            }
            None => f.write_str("they are new combinations of known tag values")?,
        }
        f.write_str("; retry later or raise timelines_per_minute")
    }
}

impl fmt::Display for IdentitiesFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { table, bytes, limit } = self;
        write!(
            f,
            "the names and tags of the timelines of table {table} take {bytes} bytes of memory, and tables.identity_bytes_max \
             allows {limit}; only known timelines are written; delete timelines and restart, or raise the limit"
        )
    }
}

impl From<&'static str> for RejectReason {
    fn from(text: &'static str) -> Self {
        Self::Unreadable(text.into())
    }
}

impl From<String> for RejectReason {
    fn from(text: String) -> Self {
        Self::Unreadable(text.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_as_large_as_a_text() {
        assert_eq!(size_of::<RejectReason>(), size_of::<String>());
        assert_eq!(size_of::<Result<(), RejectReason>>(), size_of::<String>());
    }

    #[test]
    fn what_waits_for_the_clock_or_for_room_is_retryable() {
        let table = TableName::new("t").expect("valid");
        let growth = TimelineGrowth {
            table: table.clone(),
            limit: 5,
            fastest: Some(GrowingTag {
                key: "a\nb".into(),
                values: 7,
            }),
        };
        let full = IdentitiesFull {
            table,
            bytes: 9,
            limit: 8,
        };
        let outside = |bound, is_in_doubt| RejectReason::OutOfBounds {
            at: 0,
            bound,
            is_in_doubt,
        };
        let remembered = |is_retryable| {
            RejectReason::Remembered(Box::new(RememberedReject {
                text: "as it was".into(),
                is_retryable,
            }))
        };
        for (reason, waits_for, text) in [
            (RejectReason::from("missing fields"), None, "missing fields"),
            (
                RejectReason::NoArrivalTime,
                Some(WaitsFor::Clock),
                "the point has no time, and the clock of the server is in doubt: send it again later, or confirm the clock",
            ),
            (
                RejectReason::TooManyTimelines(Arc::new(growth)),
                Some(WaitsFor::Room),
                "table t takes at most 5 new timelines a minute; tag `a\\nb` grows fastest (7 new values in the last \
                 minute); retry later or raise timelines_per_minute",
            ),
            (
                RejectReason::IdentitiesFull(Box::new(full)),
                None,
                "the names and tags of the timelines of table t take 9 bytes of memory, and tables.identity_bytes_max \
                 allows 8; only known timelines are written; delete timelines and restart, or raise the limit",
            ),
            (
                RejectReason::PastRetention {
                    at: 0,
                    age: 3_600_000_000_000,
                },
                None,
                "time 1970-01-01T00:00:00Z is past the table's retention of 1h",
            ),
            (
                outside(TimeBound::Past, false),
                None,
                "time 1970-01-01T00:00:00Z is before write_past of the table",
            ),
            (
                outside(TimeBound::Future, true),
                Some(WaitsFor::Clock),
                "time 1970-01-01T00:00:00Z is after write_future of the table by a clock of the server that is in \
                 doubt: send it again later, or confirm the clock",
            ),
            (
                RejectReason::TooManyFieldSets { limit: 64 },
                None,
                "more than 64 sets of fields for one instant of a timeline in one request",
            ),
            (remembered(true), Some(WaitsFor::Room), "as it was"),
            (remembered(false), None, "as it was"),
        ] {
            assert_eq!(reason.waits_for(), waits_for, "{reason:?}");
            assert_eq!(reason.is_retryable(), waits_for.is_some(), "{reason:?}");
            assert_eq!(reason.to_string(), text);
        }
    }
}

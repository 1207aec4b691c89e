//! Reasons why a line of a write is not stored, and their messages.
//!
//! All protocols report the messages defined here, so that the same mistake has the same message everywhere.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use crate::table::TableName;
use crate::time::{Timestamp, format_duration};
use crate::value::ValueType;

/// Remedy for lines rejected because the server clock may be wrong. The message of each of these lines ends with this
/// text.
pub const CLOCK_REMEDY: &str = "send it again later, or confirm the clock";

/// Maximum number of characters of a tag key in a message.
const SHOWN_CHARS: usize = 64;

/// Line that was not stored, with the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineReject {
    /// Line number or element number; starts at 1.
    pub line: u32,
    /// Reason why the line was not stored.
    pub reason: RejectReason,
    /// Text that identifies the line, for display: the start of the line, or the measurement of a decoded row. Long
    /// texts are cut at a character boundary. Decoders leave the text empty after the first thousand rejects of a body.
    pub excerpt: String,
}

/// Reason why a line was not stored. [`Display`](fmt::Display) returns its message: short, in lower case, with the
/// offending token.
///
/// Not larger than a `String`, because the innermost functions of decoders return it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RejectReason {
    /// The line cannot be parsed or exceeds a limit of its protocol; holds the message of the decoder.
    Unreadable(Cow<'static, str>),
    /// The line has no timestamp, and the server clock may be wrong.
    NoArrivalTime,
    /// The line has a new timeline, and the table has reached its limit of new timelines per minute.
    TooManyTimelines(Arc<TimelineGrowth>),
    /// The line has a new timeline, and the timeline identities of the table have reached their memory limit.
    IdentitiesFull(Box<IdentitiesFull>),
    /// The tenant of the writer has as many timelines as its budget allows.
    TenantFull(Box<TenantFull>),
    /// The timestamp is older than the age at which points of the table expire.
    PastRetention {
        /// Timestamp of the point, nanoseconds since the epoch.
        at: i64,
        /// Age at which points of the table expire, in nanoseconds.
        age: i64,
    },
    /// The timestamp is outside the range that the table accepts.
    OutOfBounds {
        /// Timestamp of the point, nanoseconds since the epoch.
        at: i64,
        /// Violated bound.
        bound: TimeBound,
        /// True if the timestamp may be within the bound, because the server clock may be wrong.
        is_in_doubt: bool,
    },
    /// The field already has values of another kind.
    TypeConflict(Arc<TypeConflict>),
    /// The request has too many sets of fields for one timeline and timestamp.
    TooManyFieldSets {
        /// Maximum number of sets.
        limit: usize,
    },
    /// The timeline does not match the condition to which the token of the writer is restricted; holds the condition.
    OutsideOfToken(Arc<str>),
    /// The line was rejected when its request was first processed.
    Remembered(Box<RememberedReject>),
}

/// Bound of the timestamps that a table accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeBound {
    /// Lower bound, set by [`TableSpec::write_past`](crate::TableSpec::write_past).
    Past,
    /// Upper bound, set by [`TableSpec::write_future`](crate::TableSpec::write_future).
    Future,
}

/// Details of a table, or of a tenant, that has reached its limit of new timelines per minute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimelineGrowth {
    /// Name of the table.
    pub table: TableName,
    /// Maximum number of new timelines per minute.
    pub limit: u64,
    /// Cause of the growth.
    pub cause: GrowthCause,
}

/// Cause of many new timelines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GrowthCause {
    /// Tag with the most new values in the last minute.
    Tag(GrowingTag),
    /// No tag had new values; the timelines are new combinations of known values.
    Combinations,
    /// Not disclosed, because the token of the writer is restricted to certain timelines.
    Undisclosed,
    /// All tables of this tenant together have reached the budget of the tenant.
    Tenant(Box<str>),
}

/// Tag with many new values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrowingTag {
    /// Tag key.
    pub key: Box<str>,
    /// Estimated number of new values in the last minute.
    pub values: u64,
}

/// Details of a table whose timeline identities have reached their memory limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdentitiesFull {
    /// Name of the table.
    pub table: TableName,
    /// Bytes in use.
    pub bytes: u64,
    /// Maximum number of bytes.
    pub limit: u64,
}

/// Details of a tenant whose budget of timelines is used up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantFull {
    /// Name of the tenant.
    pub tenant: Box<str>,
    /// Maximum number of timelines in all of its tables.
    pub limit: u64,
}

/// Conflict of value kinds: numbers, strings, booleans and histograms do not mix in one field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "field type conflict: input field \"{field}\" on measurement \"{measurement}\" is type {}, already exists as type {}",
    .input.name(), .existing.name()
)]
pub struct TypeConflict {
    /// Measurement of the field.
    pub measurement: String,
    /// Name of the field.
    pub field: String,
    /// Type of the new value.
    pub input: ValueType,
    /// Type of the stored values.
    pub existing: ValueType,
}

/// Reject of an earlier request with the same idempotency key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RememberedReject {
    /// Message of the reject.
    pub text: String,
    /// True if the line can be stored later, under another key.
    pub is_retryable: bool,
}

/// Condition that must hold before a retry can succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitsFor {
    /// The server clock is trusted again.
    Clock,
    /// The table accepts new timelines again.
    Room,
}

impl RejectReason {
    /// Returns the condition under which a retry can succeed; `None` if no retry can succeed.
    pub fn waits_for(&self) -> Option<WaitsFor> {
        match self {
            Self::NoArrivalTime
            | Self::OutOfBounds {
                is_in_doubt: true, ..
            } => Some(WaitsFor::Clock),
            Self::TooManyTimelines(_) => Some(WaitsFor::Room),
            // Requests with lines that wait for the clock are not recorded under their idempotency key, so a remembered
            // reject never waits for the clock.
            Self::Remembered(reject) => reject.is_retryable.then_some(WaitsFor::Room),
            Self::Unreadable(_)
            | Self::IdentitiesFull(_)
            | Self::TenantFull(_)
            | Self::PastRetention { .. }
            | Self::OutOfBounds { .. }
            | Self::TypeConflict(_)
            | Self::TooManyFieldSets { .. }
            | Self::OutsideOfToken(_) => None,
        }
    }

    /// Returns true if sending the same line again later can succeed.
    pub fn is_retryable(&self) -> bool {
        self.waits_for().is_some()
    }

    /// Returns true if the line was decoded into a row that the table rejected.
    ///
    /// Returns false if no row was decoded, and for a remembered reject, which does not record whether a row was
    /// decoded.
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
            | Self::TenantFull(_)
            | Self::OutsideOfToken(_)
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
            Self::TenantFull(full) => full.fmt(f),
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
                "more than {limit} sets of fields for one timestamp of a timeline in one request"
            ),
            Self::OutsideOfToken(condition) => write!(
                f,
                "the token may write only timelines with {condition}, which this one does not match"
            ),
            Self::Remembered(reject) => f.write_str(&reject.text),
        }
    }
}

impl fmt::Display for TimelineGrowth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { table, limit, .. } = self;
        if let GrowthCause::Tenant(tenant) = &self.cause {
            return write!(
                f,
                "the tables of the tenant {tenant} take at most {limit} new timelines a minute, which is its budget; \
                 retry later"
            );
        }
        write!(f, "table {table} takes at most {limit} new timelines a minute; ")?;
        match &self.cause {
            GrowthCause::Tag(GrowingTag { key, values }) => {
                let key = key.chars().take(SHOWN_CHARS);
                let key: String = key.flat_map(char::escape_debug).collect();
                write!(
                    f,
                    "tag `{key}` grows fastest ({values} new values in the last minute); "
                )?;
            }
            GrowthCause::Combinations => f.write_str("they are new combinations of known tag values; ")?,
            GrowthCause::Undisclosed | GrowthCause::Tenant(_) => {}
        }
        f.write_str("retry later or raise timelines_per_minute")
    }
}

impl fmt::Display for TenantFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tenant, limit } = self;
        write!(
            f,
            "the tenant {tenant} has as many timelines as its budget of {limit} allows; delete timelines that are not \
             needed any more, or raise the budget"
        )
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
            cause: GrowthCause::Tag(GrowingTag {
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
                "more than 64 sets of fields for one timestamp of a timeline in one request",
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

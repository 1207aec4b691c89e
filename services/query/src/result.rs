//! Streamed query result: columns first, then the rows series by series.
//!
//! The engine pushes rows into a [`RowSink`], so that no result is held in memory as a whole. The module also holds
//! the [`Summary`] that ends a result.

use std::time::Duration;

use tideline_engine::Suggestion;
use tideline_engine::model::{ColumnData, Tier, TimelineId, Value, ValueType};
use tideline_engine::points::ReadCost;
use tideline_histogram::Histogram;

use crate::error::QueryError;
use crate::explain::Plan;

/// Receiver of a streamed query result, implemented by the output formats.
///
/// [`begin`](Self::begin) is called once. Then, for each series that has rows, [`series`](Self::series) is called once
/// and [`row`](Self::row) once per row. If rows are sorted by a value, a series is started again whenever the timeline
/// changes. A call returns [`SinkClosed`] if the client has disconnected; the query then stops. Arguments are valid
/// only during the call. Calls may be made from a thread other than the one that started the query.
pub trait RowSink: Send {
    /// Returns true if the header must list tags. Costs a catalog lookup per timeline.
    fn needs_tags(&self) -> bool {
        false
    }

    /// Returns true if the header must list types. Costs a lookup in the schema of the table.
    fn needs_types(&self) -> bool {
        false
    }

    /// Starts the result. All errors that can be detected before reading points have been ruled out.
    ///
    /// # Errors
    ///
    /// [`SinkClosed`] if the sink accepts no more rows; the query then stops.
    fn begin(&mut self, header: &Header) -> Result<(), SinkClosed>;

    /// Starts a series; the following rows belong to it.
    ///
    /// # Errors
    ///
    /// [`SinkClosed`] if the sink accepts no more rows; the query then stops.
    fn series(&mut self, series: &Series<'_>) -> Result<(), SinkClosed>;

    /// Receives a row. `time` is the timestamp of the point, or for an aggregate the start of the window, in
    /// nanoseconds since the epoch. `values` has one value for each column of the series, `None` if the value is
    /// missing.
    ///
    /// # Errors
    ///
    /// [`SinkClosed`] if the sink accepts no more rows; the query then stops.
    fn row(&mut self, time: i64, values: &[Option<ValueRef<'_>>]) -> Result<(), SinkClosed>;
}

/// Error of a sink that accepts no more rows because its client has disconnected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SinkClosed;

impl From<SinkClosed> for QueryError {
    fn from(_: SinkClosed) -> Self {
        Self::Cancelled
    }
}

/// Columns and tags that a result may have, for formats that declare them before the rows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Header {
    /// True if each series is one timeline with all its tags, false if it is a group.
    pub is_by_timeline: bool,
    /// Tag keys that series may have. Keys of timelines are sorted and listed only if the sink needs them; keys of
    /// groups are in the order of the query.
    pub tags: Vec<String>,
    /// Columns that series may have; each series has some of them, in this order.
    pub columns: Vec<String>,
    /// For each column, the type that holds all its values: float for numbers of several types, `None` for values of
    /// several kinds or if no type is known. Empty if the sink does not need types.
    pub types: Vec<Option<ValueType>>,
}

/// One series of a result: a timeline, or a group of timelines of one measurement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Series<'a> {
    /// Id of the timeline; `None` if the series is a group.
    pub id: Option<TimelineId>,
    /// Measurement name.
    pub measurement: &'a str,
    /// Tags of the timeline, sorted by key. For a group: the tags of the grouping, in the order of the query; the value
    /// of a missing tag is the empty string.
    pub tags: &'a [(String, String)],
    /// Columns of the series: ascending positions in [`Header::columns`].
    pub columns: &'a [usize],
}

/// Borrowed value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ValueRef<'a> {
    /// Double.
    Float(f64),
    /// Signed integer.
    Signed(i64),
    /// Unsigned integer.
    Unsigned(u64),
    /// Boolean.
    Boolean(bool),
    /// String.
    String(&'a str),
    /// Native histogram in its stored form.
    Histogram(&'a [u8]),
}

impl<'a> ValueRef<'a> {
    /// Returns the value of a row.
    ///
    /// # Panics
    ///
    /// If `row` is out of bounds.
    pub fn at(values: &'a ColumnData, row: usize) -> Self {
        match values {
            ColumnData::Float(values) => Self::Float(values[row]),
            ColumnData::Signed(values) => Self::Signed(values[row]),
            ColumnData::Unsigned(values) => Self::Unsigned(values[row]),
            ColumnData::Boolean(values) => Self::Boolean(values[row]),
            ColumnData::String(values) => Self::String(values.get(row)),
            ColumnData::Histogram(values) => Self::Histogram(values.get(row)),
        }
    }

    /// Returns the value as an owned value.
    pub fn to_value(self) -> Value {
        match self {
            Self::Float(value) => Value::Float(value),
            Self::Signed(value) => Value::Signed(value),
            Self::Unsigned(value) => Value::Unsigned(value),
            Self::Boolean(value) => Value::Boolean(value),
            Self::String(value) => Value::String(value.into()),
            Self::Histogram(value) => Value::Histogram(value.into()),
        }
    }
}

/// Returns a stored histogram in the notation of the Prometheus tests: `{{schema:1 count:3 buckets:[1 2]}}`. A
/// histogram that cannot be decoded becomes `{{unreadable: …}}` with the error.
pub fn histogram_text(stored: &[u8]) -> String {
    match Histogram::from_bytes(stored) {
        Ok(histogram) => histogram.notation(),
        Err(error) => format!("{{{{unreadable: {error}}}}}"),
    }
}

impl<'a> From<&'a Value> for ValueRef<'a> {
    fn from(value: &'a Value) -> Self {
        match value {
            Value::Float(value) => Self::Float(*value),
            Value::Signed(value) => Self::Signed(*value),
            Value::Unsigned(value) => Self::Unsigned(*value),
            Value::Boolean(value) => Self::Boolean(*value),
            Value::String(value) => Self::String(value),
            Value::Histogram(value) => Self::Histogram(value),
        }
    }
}

/// Summary of a finished query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Number of rows passed to the sink.
    pub rows: u64,
    /// True if rows were omitted because of a limit.
    pub more: bool,
    /// Token of the next page, if the query has pages and more rows.
    pub next: Option<String>,
    /// Columns with at least one estimated value, and columns computed from them, in the order of the header.
    pub estimated: Vec<String>,
    /// Columns in which some integer sum is missing because its type cannot hold it, and columns computed from them,
    /// in the order of the header.
    pub overflowed: Vec<String>,
    /// Names in the query that the table does not have.
    pub suggestions: Vec<Suggestion>,
    /// Read cost.
    pub cost: QueryCost,
    /// Executed plan.
    pub plan: Plan,
}

/// Read cost of a query.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueryCost {
    /// Timelines examined.
    pub timelines: u64,
    /// Time from the start of planning to the last row, including waiting.
    pub elapsed: Duration,
    tiers: [TierCost; 3],
}

/// Read cost of one tier or of all tiers together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TierCost {
    /// Segments whose time range overlaps the queried range.
    pub segments: u64,
    /// Fragments read at least in part: chunks, blocks and open rows of unsealed points, and rows of archive files.
    pub chunks: u64,
    /// Points decoded.
    pub points: u64,
    /// Field values decoded.
    pub values: u64,
    /// Encoded bytes of the chunks read.
    pub bytes: u64,
    /// Time spans in which summaries replaced the points, for all fields or for some fields.
    pub summaries: u64,
    /// Points in those time spans.
    pub summarized_points: u64,
}

impl QueryCost {
    pub(crate) fn new(read: &ReadCost, segments: Segments, elapsed: Duration) -> Self {
        let of = |tier: Tier| {
            let cost = read.of(tier);
            TierCost {
                segments: segments.of(tier),
                chunks: cost.chunks,
                points: cost.points,
                values: cost.values,
                bytes: cost.bytes,
                summaries: cost.summaries,
                summarized_points: cost.summarized_points,
            }
        };
        Self {
            timelines: read.timelines,
            elapsed,
            tiers: Tier::ALL.map(of),
        }
    }

    /// Returns the cost of one tier. Unsealed points and newest values kept in memory are hot.
    pub fn of(&self, tier: Tier) -> TierCost {
        self.tiers[tier as usize]
    }

    /// Returns the cost of all tiers together.
    pub fn total(&self) -> TierCost {
        let mut total = TierCost::default();
        for tier in &self.tiers {
            total.segments += tier.segments;
            total.chunks += tier.chunks;
            total.points += tier.points;
            total.values += tier.values;
            total.bytes += tier.bytes;
            total.summaries += tier.summaries;
            total.summarized_points += tier.summarized_points;
        }
        total
    }

    /// Adds values that were read from memory.
    pub(crate) fn add_kept_values(&mut self, values: u64) {
        self.tiers[Tier::Hot as usize].values += values;
    }
}

/// Number of segments of each tier whose time range overlaps the range of a query.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Segments([u64; 3]);

impl Segments {
    /// Counts one segment.
    pub(crate) fn count(&mut self, tier: Tier) {
        self.0[tier as usize] += 1;
    }

    pub(crate) fn of(self, tier: Tier) -> u64 {
        self.0[tier as usize]
    }

    /// Returns the number of hot segments.
    pub(crate) fn hot(self) -> u64 {
        self.of(Tier::Hot)
    }

    /// Returns true if there are cold or archived segments; the query then runs in the cold thread pool.
    pub(crate) fn are_old(self) -> bool {
        self.of(Tier::Cold) + self.of(Tier::Archive) > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_is_shown_as_text_and_one_that_is_none_as_such() {
        let histogram = Histogram::parse("{{schema:1 count:3 sum:5 buckets:[1 2]}}").expect("a histogram");
        let mut stored = Vec::new();
        histogram.to_bytes(&mut stored);
        assert_eq!(
            histogram_text(&stored),
            "{{schema:1 count:3 sum:5 buckets:[1 2]}}"
        );
        assert!(histogram_text(&[0xff; 3]).starts_with("{{unreadable"));
    }
}

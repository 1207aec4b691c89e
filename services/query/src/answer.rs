//! The answer as it streams: columns, then series by series their rows.

use std::time::Duration;

use tideline_engine::Suggestion;
use tideline_engine::model::{ColumnData, Tier, TimelineId, Value, ValueType};
use tideline_engine::points::ReadCost;
use tideline_histogram::Histogram;

use crate::error::QueryError;
use crate::explain::Plan;

/// Receives an answer. Formats implement it and write as they receive.
///
/// Calls come in this order: [`begin`](Self::begin) once, then for each series that has a row
/// [`series`](Self::series) once and [`row`](Self::row) for each of its rows. When a call fails the query stops.
/// What is handed over is valid during the call only. Calls may come from another thread than the one that asked.
pub trait AnswerSink: Send {
    /// Whether the header shall list tags; that costs a look at each timeline.
    fn needs_tags(&self) -> bool {
        false
    }

    /// Whether the header shall state types; that costs a look at the schema of the table.
    fn needs_types(&self) -> bool {
        false
    }

    /// The answer begins; nothing that could have been foreseen is wrong with the query.
    fn begin(&mut self, header: &Header) -> Result<(), SinkClosed>;

    /// A series begins; the rows that follow are its.
    fn series(&mut self, series: &Series<'_>) -> Result<(), SinkClosed>;

    /// A row: its time in nanoseconds since the epoch (of an aggregate the start of its window), and one value
    /// for each column of its series, `None` where there is none.
    fn row(&mut self, time: i64, values: &[Option<ValueRef<'_>>]) -> Result<(), SinkClosed>;
}

/// A sink takes no more: whoever reads the answer has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SinkClosed;

impl From<SinkClosed> for QueryError {
    fn from(_: SinkClosed) -> Self {
        Self::Cancelled
    }
}

/// What an answer may hold, for formats that state all columns first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Header {
    /// Whether each series is one timeline with all its tags, and not a group.
    pub is_by_timeline: bool,
    /// The tags that series may bear. Those of timelines are sorted, and listed only if the sink needs them;
    /// those of groups stand as the query grouped.
    pub tags: Vec<String>,
    /// The columns that series may have; each series has some of them, in this order.
    pub columns: Vec<String>,
    /// The type that holds all values of each column; floats where there are numbers of several types, `None` where there are
    /// values of several kinds. Empty where the sink does not need them.
    pub types: Vec<Option<ValueType>>,
}

/// One series of an answer: a timeline, or a group of timelines of one measurement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Series<'a> {
    /// The timeline, where the series is one.
    pub id: Option<TimelineId>,
    /// The measurement.
    pub measurement: &'a str,
    /// The tags of the timeline, sorted by key; of a group the tags that it was grouped by, missing ones with
    /// the empty text.
    pub tags: &'a [(String, String)],
    /// Its columns: positions in [`Header::columns`], rising.
    pub columns: &'a [usize],
}

/// A value that is read but not kept.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ValueRef<'a> {
    /// A double.
    Float(f64),
    /// A signed integer.
    Signed(i64),
    /// An unsigned integer.
    Unsigned(u64),
    /// True or false.
    Boolean(bool),
    /// Text.
    String(&'a str),
    /// A native histogram in its stored form.
    Histogram(&'a [u8]),
}

impl<'a> ValueRef<'a> {
    /// The value of a row.
    ///
    /// # Panics
    ///
    /// When there is no such row.
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

    /// The value to keep.
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

/// A stored histogram as answers show it: in the notation of Prometheus' tests, `{{schema:1 count:3 buckets:[1 2]}}`.
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

/// How an answer ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Rows handed to the sink.
    pub rows: u64,
    /// Whether a limit left rows out.
    pub more: bool,
    /// The token of the next page, where the query can be continued and has more.
    pub next: Option<String>,
    /// Columns in which some value is an estimate, in the order of the header.
    pub estimated: Vec<String>,
    /// Columns in which some sum of integers is missing because its type cannot hold it, in the order of the header.
    pub overflowed: Vec<String>,
    /// Names in the query that the table does not have.
    pub suggestions: Vec<Suggestion>,
    /// What it took.
    pub cost: QueryCost,
    /// How it was answered.
    pub plan: Plan,
}

/// What a query has read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueryCost {
    /// Timelines looked at.
    pub timelines: u64,
    /// Time from the start of planning to the last row, waiting included.
    pub elapsed: Duration,
    tiers: [TierCost; 3],
}

/// What one tier, or all of them, have given to an answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TierCost {
    /// Segments with points in the range, of whichever timelines.
    pub segments: u64,
    /// Chunks, blocks and open rows that something was taken from.
    pub chunks: u64,
    /// Points decoded.
    pub points: u64,
    /// Field values decoded.
    pub values: u64,
    /// Encoded bytes of those chunks.
    pub bytes: u64,
    /// Stretches of time that summaries stood for, in all fields or in some.
    pub summaries: u64,
    /// Points in those stretches.
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

    /// What one tier has given; points that were not sealed yet, and newest values kept in memory, are hot.
    pub fn of(&self, tier: Tier) -> TierCost {
        self.tiers[tier as usize]
    }

    /// What all tiers have given.
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

    /// Counts values that were at hand in memory.
    pub(crate) fn add_kept_values(&mut self, values: u64) {
        self.tiers[Tier::Hot as usize].values += values;
    }
}

/// How many segments of each tier have points in the range of a query.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Segments([u64; 3]);

impl Segments {
    /// Counts one.
    pub(crate) fn count(&mut self, tier: Tier) {
        self.0[tier as usize] += 1;
    }

    pub(crate) fn of(self, tier: Tier) -> u64 {
        self.0[tier as usize]
    }

    /// Those of the hot tier.
    pub(crate) fn hot(self) -> u64 {
        self.of(Tier::Hot)
    }

    /// Whether some are read in the lane of old points.
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

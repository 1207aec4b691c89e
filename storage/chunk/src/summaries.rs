//! Summaries of the numeric columns of a chunk per aligned time bucket.
//!
//! Queries over hours or days use summaries instead of decoding the rows. A bucket starts at a multiple of `width` and
//! covers `width` nanoseconds. Only buckets with rows exist. There is one [`ColumnSummary`] per bucket and numeric
//! column. `FORMAT.md` describes the layout.

mod lone;
mod reader;
mod writer;

pub use lone::{LoneSummaries, LoneSummaryWriter};
pub use reader::Summaries;
pub(crate) use writer::SummaryEncoder;

use std::ops::Range;

/// Minimum number of rows per bucket, on average, for which a chunk gets summaries. With fewer rows, summaries save
/// too little work.
const ROWS_PER_BUCKET_MIN: usize = 16;
/// Minimum number of rows of a chunk with summaries. In a chunk of sixty rows and one column of small integers,
/// summaries took a third of the chunk size. Values are decoded in blocks of 128 rows, so summaries of fewer rows save
/// little.
const ROWS_MIN: usize = 128;

/// States of a column in a bucket.
mod state {
    pub(super) const EMPTY: i64 = 0;
    pub(super) const UNKNOWN: i64 = 1;
    pub(super) const KNOWN: i64 = 2;
}

/// Bits of the first byte of a column.
mod flag {
    /// At least one bucket has a state other than `KNOWN`; the states follow.
    pub(super) const PARTIAL: u8 = 1;
    /// At least one bucket with state `KNOWN` has a row without a value; gap counts and the offsets of the first and
    /// last value follow.
    pub(super) const SPARSE: u8 = 2;
    /// At least one stored sum needs more than 64 bits.
    pub(super) const WIDE: u8 = 4;
    /// Reserved for later versions.
    pub(super) const RESERVED: u8 = 0xf8;
}

/// Form byte of floats that are not short decimals. Lower form bytes are the exponent of decimals.
const BITS: u8 = 64;

/// Number of low bits that are dropped from the correction of a float sum. The stored correction keeps thirteen
/// significant bits. The correction is at most 2⁻⁵³ of the sum, or for sums stored as decimals, 2⁻⁴⁴ of the largest
/// magnitude.
const CORRECTION_SHIFT: u32 = 40;

/// Aligned time bucket with at least one row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SummaryBucket {
    /// Start of the bucket: a multiple of the width, or `i64::MIN` if the multiple is below that.
    pub start: i64,
    /// Rows of the chunk in the bucket, at least one.
    pub rows: Range<usize>,
    /// Timestamp of the first of these rows.
    pub first_timestamp: i64,
    /// Timestamp of the last of these rows.
    pub last_timestamp: i64,
}

/// Summary of one column in one bucket.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ColumnSummary {
    /// No row of the bucket has a value in the column.
    Empty,
    /// The bucket has values but no summary, so the values must be decoded. Applies if the values include a NaN or an
    /// infinity, if their sum exceeds the range of doubles, or if the summaries of the column are damaged.
    Unknown,
    /// Summary of the values, of which there is at least one.
    Known(ValueSummary),
}

/// Aggregates of the values of one column in one bucket.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ValueSummary {
    /// Number of values, at least one.
    pub count: u64,
    /// Sum of the values.
    pub sum: Sum,
    /// Minimum of the values. For floats, −0.0 is less than 0.0.
    pub min: Number,
    /// Maximum of the values.
    pub max: Number,
    /// Timestamp and value of the first point.
    pub first: (i64, Number),
    /// Timestamp and value of the last point.
    pub last: (i64, Number),
}

/// Sum of many values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Sum {
    /// Exact sum of integers.
    Integer(i128),
    /// Sum of floats. The exact value of `sum + correction` deviates from the exact sum of the doubles by at most 2⁻⁶⁶
    /// of the sum. If `sum` is a decimal, the limit is 2⁻⁵⁷ of the largest magnitude. To add several sums, add their
    /// corrections separately, as in compensated summation.
    Float {
        /// The sum, or a short decimal close to it.
        sum: f64,
        /// Difference between the exact sum and `sum`. Small compared with the largest magnitude or the sum.
        correction: f64,
    },
}

/// Value of a numeric column.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    /// Value of a float column; never NaN or infinite.
    Float(f64),
    /// Value of a signed integer column.
    Signed(i64),
    /// Value of an unsigned integer column.
    Unsigned(u64),
}

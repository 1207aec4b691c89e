//! Summaries: what the numbers of a chunk add up to in aligned buckets of time, so that a reader that asks for
//! hours or days need not decode the rows.
//!
//! A bucket is `width` nanoseconds from a multiple of `width`, and only buckets with rows exist. For each of
//! them, and for each numeric column, there is one [`ColumnSummary`]. The layout is drawn in `FORMAT.md`.

mod lone;
mod reader;
mod writer;

pub use lone::{LoneSummaries, LoneSummaryWriter};
pub use reader::Summaries;
pub(crate) use writer::SummaryEncoder;

use std::ops::Range;

/// Fewest rows a bucket, on average, for which summaries are written in a chunk: below, they save too little work.
const ROWS_PER_BUCKET_MIN: usize = 16;
/// Fewest rows of a chunk: of sixty rows of one small integer, summaries were a third of the chunk, and rows of one block
/// are decoded together anyway.
const ROWS_MIN: usize = 128;

/// States of a column in a bucket.
mod state {
    pub(super) const EMPTY: i64 = 0;
    pub(super) const UNKNOWN: i64 = 1;
    pub(super) const KNOWN: i64 = 2;
}

/// Bits of the first byte of a column.
mod flag {
    /// Some bucket is not known; the states follow.
    pub(super) const PARTIAL: u8 = 1;
    /// In some bucket a row has no value; counts and offsets of the edges follow.
    pub(super) const SPARSE: u8 = 2;
    /// Some sum has more than 64 bits.
    pub(super) const WIDE: u8 = 4;
    /// Free for later versions.
    pub(super) const RESERVED: u8 = 0xf8;
}

/// Form byte of floats that are no short decimals; lower ones are the exponent of decimals.
const BITS: u8 = 64;

/// Low bits of a float sum's correction that are not kept. What is left has thirteen significant bits, of a number
/// that is 2⁻⁵³ of the sum or 2⁻⁴⁴ of the largest magnitude at most.
const CORRECTION_SHIFT: u32 = 40;

/// A stretch of aligned time that has rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SummaryBucket {
    /// Where it begins: a multiple of the width, or `i64::MIN` where that lies before time does.
    pub start: i64,
    /// The rows of the chunk in it, at least one.
    pub rows: Range<usize>,
    /// The instant of the first of these rows.
    pub first_timestamp: i64,
    /// The instant of the last of these rows.
    pub last_timestamp: i64,
}

/// What is known of one column in one bucket.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ColumnSummary {
    /// No row of the bucket has a value in the column.
    Empty,
    /// There are values, and only they can tell: a NaN or an infinity is among them, or their sum passes the
    /// range of doubles.
    Unknown,
    /// There are values, and this is what they come to.
    Known(ValueSummary),
}

/// What the values of one column in one bucket come to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ValueSummary {
    /// How many values, at least one.
    pub count: u64,
    /// Their sum.
    pub sum: Sum,
    /// The lowest; among floats −0.0 is below 0.0.
    pub min: Number,
    /// The highest.
    pub max: Number,
    /// The earliest value, and its instant.
    pub first: (i64, Number),
    /// The latest value, and its instant.
    pub last: (i64, Number),
}

/// A sum of many values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Sum {
    /// Of integers: exact.
    Integer(i128),
    /// Of floats: `sum + correction`, unrounded, is the sum of the doubles to 2⁻⁶⁶ of itself or 2⁻⁵⁷ of the largest
    /// magnitude among them. Corrections of several sums may be added apart, as compensated summation does.
    Float {
        /// The sum, or a short decimal close to it.
        sum: f64,
        /// What is missing from it: little beside the largest magnitude or the sum.
        correction: f64,
    },
}

/// A value of a numeric column.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    /// Of a column of floats; never NaN or infinite.
    Float(f64),
    /// Of a column of signed integers.
    Signed(i64),
    /// Of a column of unsigned integers.
    Unsigned(u64),
}

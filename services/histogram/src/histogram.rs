//! The value itself.

/// Bits of the NaN that says that a series has ended: a marker, not a measurement. Kept bit for bit from
/// writer to reader.
pub const STALE_NAN_BITS: u64 = 0x7ff0_0000_0000_0002;

/// Whether a value is the marker that a series has ended.
pub const fn is_stale(value: f64) -> bool {
    value.to_bits() == STALE_NAN_BITS
}

/// A distribution of observations over buckets.
///
/// Buckets are held sparsely: spans of neighbours, with the counts of all spans one after another. Counts are
/// absolute.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Histogram {
    /// What is known of a reset between the histogram before and this one.
    pub reset_hint: ResetHint,
    /// From -4 to 8: every power of two is divided into 2^schema buckets; -53: bounds are `custom_values`.
    pub schema: i32,
    /// Observations of at most this absolute value count as zero.
    pub zero_threshold: f64,
    /// Observations in the zero bucket.
    pub zero_count: f64,
    /// All observations.
    pub count: f64,
    /// Their sum. The stale marker here makes the whole histogram one.
    pub sum: f64,
    /// Where the positive buckets lie.
    pub positive_spans: Vec<Span>,
    /// Where the negative buckets lie, counted away from zero.
    pub negative_spans: Vec<Span>,
    /// Observations in each positive bucket.
    pub positive_buckets: Vec<f64>,
    /// Observations in each negative bucket.
    pub negative_buckets: Vec<f64>,
    /// Upper bounds of custom buckets, rising; the last bucket, up to infinity, is not named.
    pub custom_values: Vec<f64>,
}

/// A run of neighbouring buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Span {
    /// Of the first span: the index of its first bucket; of others: buckets left out since the span before.
    pub offset: i32,
    /// Buckets.
    pub length: u32,
}

/// What is known of a counter reset before a histogram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum ResetHint {
    /// Nothing: it has to be found by comparing.
    #[default]
    Unknown = 0,
    /// There was one.
    Reset = 1,
    /// There was none.
    NotReset = 2,
    /// It is a gauge: nothing resets.
    Gauge = 3,
}

//! The histogram value type, and the stale marker.

/// Bits of the stale marker: a NaN that is stored instead of a measurement and marks the end of a series. The marker is
/// preserved bit for bit from writer to reader.
pub const STALE_NAN_BITS: u64 = 0x7ff0_0000_0000_0002;

/// Returns true if a value is the stale marker.
pub const fn is_stale(value: f64) -> bool {
    value.to_bits() == STALE_NAN_BITS
}

/// Distribution of observations over buckets.
///
/// Buckets are stored sparsely: spans of adjacent buckets, and the counts of all spans concatenated. Counts
/// are absolute, not cumulative.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Histogram {
    /// Counter-reset information relative to the previous histogram of the series.
    pub reset_hint: ResetHint,
    /// Resolution: from -4 to 8, each power of two is divided into 2^schema buckets; -53 uses `custom_values`
    /// as bounds.
    pub schema: i32,
    /// Threshold of the zero bucket: observations of at most this absolute value are counted in it.
    pub zero_threshold: f64,
    /// Number of observations in the zero bucket.
    pub zero_count: f64,
    /// Total number of observations.
    pub count: f64,
    /// Sum of all observations. The stale marker in this field makes the histogram a stale marker.
    pub sum: f64,
    /// Index ranges of the positive buckets.
    pub positive_spans: Vec<Span>,
    /// Index ranges of the negative buckets, counted away from zero.
    pub negative_spans: Vec<Span>,
    /// Number of observations in each positive bucket.
    pub positive_buckets: Vec<f64>,
    /// Number of observations in each negative bucket.
    pub negative_buckets: Vec<f64>,
    /// Upper bounds of custom buckets, rising. The bound `+Inf` of the last bucket is not included.
    pub custom_values: Vec<f64>,
}

/// Run of adjacent buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Span {
    /// Index of the first bucket in the first span; in later spans, number of buckets skipped since the
    /// previous span.
    pub offset: i32,
    /// Number of buckets.
    pub length: u32,
}

/// Information on a counter reset between the previous histogram and this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum ResetHint {
    /// Unknown; a reader must compare the two histograms.
    #[default]
    Unknown = 0,
    /// Reset between the two histograms.
    Reset = 1,
    /// No reset between the two histograms.
    NotReset = 2,
    /// Gauge, to which resets do not apply.
    Gauge = 3,
}

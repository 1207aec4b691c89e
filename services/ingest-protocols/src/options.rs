//! What a request says about its points, and how large the parts of a body may be.

use tideline_model::{Precision, RejectReason, Timestamp};

/// What a decoder must know beside the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecodeOptions {
    /// The unit of integer timestamps.
    pub precision: Precision,
    /// The time of points that have none, usually the arrival; it is cut down to whole units of `precision`. `None` where the
    /// clock is in doubt: such points are rejected then as [`RejectReason::NoArrivalTime`].
    pub default_time: Option<Timestamp>,
    /// How large the parts of the body may be.
    pub limits: Limits,
}

impl DecodeOptions {
    /// Nanoseconds, `default_time` for points without a time, and the default limits.
    pub fn new(default_time: impl Into<Option<Timestamp>>) -> Self {
        Self {
            precision: Precision::default(),
            default_time: default_time.into(),
            limits: Limits::default(),
        }
    }

    /// The default time in whole units of the precision, as InfluxDB stores it.
    pub(crate) fn default_nanos(&self) -> Option<i64> {
        let nanos = self.default_time?.nanos();
        let whole = nanos.saturating_sub(nanos.rem_euclid(self.precision.nanos()));
        Some(Timestamp::from_nanos_clamped(whole).nanos())
    }
}

/// The time of a point that has none.
pub(crate) fn or_unknown(default: Option<i64>) -> Result<i64, RejectReason> {
    default.ok_or(RejectReason::NoArrivalTime)
}

/// How large the parts of a body may be. What is larger rejects its own line or element and nothing else.
///
/// The limits of a timeline's name are constants of [`crate::series_key`], because every way in shares them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one line, line end excluded, or of one JSON element. Default 1 MiB: sixteen of the longest strings.
    pub line_bytes: usize,
    /// Fields of one point. Default 1,024.
    pub fields: usize,
    /// Bytes of one string value, as stored. Default 64 KiB, as InfluxDB 2 has it.
    pub string_bytes: usize,
    /// Different shapes (measurement, field names and types) in one body. Default 65,536: each costs some
    /// hundred bytes however short its line is, so without a bound a small body could fill the memory.
    pub shapes: usize,
    /// Rejects kept for one body. Default 100,000, for the same reason. The reject after the last says that,
    /// and how many lines, were not read.
    pub rejects: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            line_bytes: 1 << 20,
            fields: 1_024,
            string_bytes: 64 << 10,
            shapes: 65_536,
            rejects: 100_000,
        }
    }
}

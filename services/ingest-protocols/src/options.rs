//! Options and size limits of a decoder.

use tideline_model::{Precision, RejectReason, Timestamp};

/// Options of a decoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecodeOptions {
    /// Unit of integer timestamps. The Prometheus formats ignore it: each has a fixed unit.
    pub precision: Precision,
    /// Timestamp of points that have none, usually the arrival time. It is truncated to whole units of `precision`, in
    /// Prometheus formats to whole milliseconds. `None` if the clock is not trusted; points without a timestamp are
    /// then rejected with [`RejectReason::NoArrivalTime`].
    pub default_time: Option<Timestamp>,
    /// Size limits for the parts of the body.
    pub limits: Limits,
}

impl DecodeOptions {
    /// Creates options with nanosecond precision, the given default time and the default limits.
    pub fn new(default_time: impl Into<Option<Timestamp>>) -> Self {
        Self {
            precision: Precision::default(),
            default_time: default_time.into(),
            limits: Limits::default(),
        }
    }

    /// Returns the default time truncated to whole units of the precision, as InfluxDB stores it; `None` without a
    /// default time.
    pub(crate) fn default_nanos(&self) -> Option<i64> {
        let nanos = self.default_time?.nanos();
        let whole = nanos.saturating_sub(nanos.rem_euclid(self.precision.nanos()));
        Some(Timestamp::from_nanos_clamped(whole).nanos())
    }
}

/// Returns the default time, or the reject reason of a point without a timestamp.
pub(crate) fn or_unknown(default: Option<i64>) -> Result<i64, RejectReason> {
    default.ok_or(RejectReason::NoArrivalTime)
}

/// Size limits for the parts of a body. A line or element over a limit is rejected; other lines and elements are not
/// affected. Only the limit `rejects` ends the decoding.
///
/// The limits of series keys are constants of [`crate::series_key`], because all protocols share them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum size in bytes of one line without its line end, or of one JSON element. Default 1 MiB: sixteen times the
    /// default of `string_bytes`.
    pub line_bytes: usize,
    /// Maximum number of fields of one point. Default 1,024.
    pub fields: usize,
    /// Maximum size in bytes of one string value; in line protocol, with its escapes. Default 64 KiB, as in InfluxDB 2.
    pub string_bytes: usize,
    /// Maximum number of distinct shapes (measurement, names, order and types of the fields) in one body; in Prometheus
    /// formats, maximum number of distinct metric names. Default 65,536. Each shape takes several hundred bytes even if
    /// its line is short; without a limit, a small body could exhaust the memory.
    pub shapes: usize,
    /// Maximum number of rejects kept for one body. Default 100,000: a small body could otherwise exhaust the memory.
    /// If the limit is reached before the end of the body, one more reject reports how many lines or elements were not
    /// read.
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

//! Decoder of native histograms.
//!
//! Both versions of remote write use the same `Histogram` message. Client libraries expose a different message with
//! other field numbers.

use tideline_histogram::{BUCKETS_MAX, Histogram, IntegerHistogram, ResetHint, Span};

use super::wire::{Fields, Payload, Read};
use crate::reject::Reason;

/// Histogram with its timestamps.
#[derive(Debug)]
pub(crate) struct TimedHistogram {
    /// Histogram, or the reason to reject it.
    pub(crate) histogram: Result<Histogram, Reason>,
    /// Timestamp in milliseconds since the epoch.
    pub(crate) millis: i64,
    /// Start timestamp in milliseconds since the epoch, if known.
    pub(crate) start: Option<i64>,
}

/// Decodes a `Histogram` message of remote write. Counts are integers with delta-encoded buckets, or doubles.
pub(crate) fn read(message: &[u8]) -> Read<TimedHistogram> {
    let mut parts = Parts::default();
    let mut fields = Fields::new(message);
    while let Some((number, payload)) = fields.next()? {
        parts.take(number, payload)?;
    }
    Ok(TimedHistogram {
        millis: parts.millis,
        start: (parts.start != 0).then_some(parts.start),
        histogram: parts.finish(),
    })
}

/// Decodes the native part of an `io.prometheus.client.Histogram` message; `None` if the message has no such part. The
/// fields are the same as in remote write, but have other numbers. The histogram has double counts if the double field
/// of its count or of its zero count is above zero.
pub(crate) fn read_of_client(message: &[u8], is_gauge: bool) -> Read<Option<Result<Histogram, Reason>>> {
    let (mut parts, mut count) = (Parts::default(), 0.0);
    let mut fields = Fields::new(message);
    while let Some((number, payload)) = fields.next()? {
        match number {
            1 => parts.take(1, payload)?,
            2 => parts.take(3, payload)?,
            4 => count = payload.double()?,
            5..=14 => parts.take(number - 1, payload)?,
            _ => {}
        }
    }
    let integers = &mut parts.integers;
    let is_native = integers.zero_threshold > 0.0
        || integers.zero_count > 0
        || parts.zero_count > 0.0
        || !(integers.positive_spans.is_empty() && integers.negative_spans.is_empty());
    if !is_native {
        return Ok(None);
    }
    if is_gauge {
        integers.reset_hint = ResetHint::Gauge;
    }
    parts.count = (count > 0.0 || parts.zero_count > 0.0).then_some(count);
    Ok(Some(parts.finish()))
}

/// Fields of a message with integer or double counts.
#[derive(Debug, Default)]
struct Parts {
    /// Integer counts, and all fields that both forms share.
    integers: IntegerHistogram,
    /// Count as a double; `Some` selects the double form.
    count: Option<f64>,
    zero_count: f64,
    positive: Vec<f64>,
    negative: Vec<f64>,
    millis: i64,
    start: i64,
    is_too_large: bool,
}

impl Parts {
    fn take(&mut self, number: u32, payload: Payload<'_>) -> Read<()> {
        let too_large = &mut self.is_too_large;
        let integers = &mut self.integers;
        match number {
            1 => integers.count = payload.varint()?,
            2 => self.count = Some(payload.double()?),
            3 => integers.sum = payload.double()?,
            4 => integers.schema = small(payload.zigzag()?),
            5 => integers.zero_threshold = payload.double()?,
            6 => integers.zero_count = payload.varint()?,
            7 => self.zero_count = payload.double()?,
            8 => push(&mut integers.negative_spans, span(payload)?, too_large),
            9 => payload.each_zigzag(|delta| push(&mut integers.negative_deltas, delta, too_large))?,
            10 => payload.each_double(|count| push(&mut self.negative, count, too_large))?,
            11 => push(&mut integers.positive_spans, span(payload)?, too_large),
            12 => payload.each_zigzag(|delta| push(&mut integers.positive_deltas, delta, too_large))?,
            13 => payload.each_double(|count| push(&mut self.positive, count, too_large))?,
            14 => integers.reset_hint = reset_hint(payload.varint()?),
            15 => self.millis = payload.int64()?,
            16 => payload.each_double(|bound| push(&mut integers.custom_values, bound, too_large))?,
            17 => self.start = payload.int64()?,
            _ => {}
        }
        Ok(())
    }

    fn finish(self) -> Result<Histogram, Reason> {
        if self.is_too_large {
            return Err(format!("histogram too large: limit {BUCKETS_MAX} buckets").into());
        }
        let integers = self.integers;
        let histogram = match self.count {
            None => Histogram::from_integer_deltas(integers),
            Some(count) => Histogram {
                reset_hint: integers.reset_hint,
                schema: integers.schema,
                zero_threshold: integers.zero_threshold,
                zero_count: self.zero_count,
                count,
                sum: integers.sum,
                positive_spans: integers.positive_spans,
                negative_spans: integers.negative_spans,
                positive_buckets: self.positive,
                negative_buckets: self.negative,
                custom_values: integers.custom_values,
            }
            .checked(),
        };
        histogram.map_err(|error| error.to_string().into())
    }
}

/// Appends to a list, up to the limit of a stored histogram. Without the limit, a byte of the message could take eight
/// bytes of memory.
fn push<T>(list: &mut Vec<T>, value: T, is_too_large: &mut bool) {
    match list.len() < BUCKETS_MAX {
        true => list.push(value),
        false => *is_too_large = true,
    }
}

/// Decodes `BucketSpan { 1: sint32 offset, 2: uint32 length }`.
fn span(payload: Payload<'_>) -> Read<Span> {
    let mut span = Span::default();
    let mut fields = Fields::new(payload.bytes()?);
    while let Some((number, payload)) = fields.next()? {
        match number {
            1 => span.offset = small(payload.zigzag()?),
            2 => span.length = u32::try_from(payload.varint()?).unwrap_or(u32::MAX),
            _ => {}
        }
    }
    Ok(span)
}

/// Converts to 32 bits; a value out of range becomes `i32::MAX`, which the validation rejects.
fn small(value: i64) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

fn reset_hint(number: u64) -> ResetHint {
    match number {
        1 => ResetHint::Reset,
        2 => ResetHint::NotReset,
        3 => ResetHint::Gauge,
        _ => ResetHint::Unknown,
    }
}

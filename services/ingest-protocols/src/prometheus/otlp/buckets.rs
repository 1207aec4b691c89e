//! Buckets of OTLP histograms as native histograms.
//!
//! OTLP lists every bucket from an offset on. A native histogram stores spans of buckets that are in use. A gap of at
//! most two empty buckets is filled, because a new span costs more. Bucket `i` of OTLP has the bounds
//! `(base^i, base^(i+1)]`, and bucket `i` of Prometheus `(base^(i-1), base^i]`, so indices differ by one.

use tideline_histogram::{
    BUCKETS_MAX, CUSTOM_BUCKETS_SCHEMA, IntegerHistogram, SCHEMA_MAX, SCHEMA_MIN, STALE_NAN_BITS, Span,
};

use super::super::wire::{Fields, Payload, Read};
use crate::reject::Reason;

/// Default zero threshold, as in Prometheus.
const ZERO_THRESHOLD: f64 = 1e-128;
/// Largest gap of empty buckets that is filled.
const GAP_MAX: i64 = 2;

/// Schema of an exponential histogram, and the number of steps by which its buckets become coarser.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Resolution {
    pub(super) schema: i32,
    down: u32,
}

impl Resolution {
    /// Returns the resolution for a scale. Scales above 8 are reduced to 8.
    ///
    /// # Errors
    ///
    /// Returns a reason for a scale below -4, which no native histogram has.
    pub(super) fn of_scale(scale: i64) -> Result<Self, Reason> {
        if scale < i64::from(SCHEMA_MIN) {
            return Err(format!(
                "the scale of an exponential histogram must be at least {SCHEMA_MIN}, actual {scale}"
            )
            .into());
        }
        let schema = scale.min(i64::from(SCHEMA_MAX));
        Ok(Self {
            schema: schema as i32,
            down: u32::try_from(scale - schema).unwrap_or(u32::MAX),
        })
    }
}

/// Returns the zero threshold of a message; the default if the message contains 0, which denotes an unknown threshold.
/// Fails for a negative number, NaN and infinity.
pub(super) fn zero_threshold(sent: f64) -> Result<f64, Reason> {
    match sent {
        0.0 => Ok(ZERO_THRESHOLD),
        sent if sent.is_finite() && sent > 0.0 => Ok(sent),
        sent => Err(format!("the zero threshold {sent} of a histogram is not a positive number").into()),
    }
}

/// Returns an empty histogram that is a stale marker.
pub(super) fn stale(schema: i32) -> IntegerHistogram {
    IntegerHistogram {
        schema,
        sum: f64::from_bits(STALE_NAN_BITS),
        ..IntegerHistogram::default()
    }
}

/// Positive or negative side of a histogram: spans, and bucket counts as differences.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Side {
    pub(super) spans: Vec<Span>,
    pub(super) deltas: Vec<i64>,
    /// Index after the last bucket.
    end: i64,
    last: u64,
    is_too_large: bool,
}

impl Side {
    /// Adds a bucket that is not empty. Its index must be greater than those of earlier buckets.
    fn push(&mut self, index: i64, count: u64) {
        let gap = index - self.end;
        match self.spans.last_mut() {
            Some(span) if gap <= GAP_MAX => {
                span.length += gap as u32 + 1;
                for _ in 0..gap {
                    self.put(0);
                }
            }
            _ => match i32::try_from(gap) {
                Ok(offset) => self.spans.push(Span { offset, length: 1 }),
                Err(_) => self.is_too_large = true,
            },
        }
        self.put(count);
        self.end = index + 1;
    }

    fn put(&mut self, count: u64) {
        if self.deltas.len() >= BUCKETS_MAX {
            self.is_too_large = true;
            return;
        }
        // The difference wraps if a count exceeds 63 bits. The check that adds up the differences rejects such a count.
        self.deltas.push(count.wrapping_sub(self.last).cast_signed());
        self.last = count;
    }

    fn finish(self) -> Result<Self, Reason> {
        match self.is_too_large {
            true => Err(
                format!("histogram too large: limit {BUCKETS_MAX} buckets, with indices of 32 bits").into(),
            ),
            false => Ok(self),
        }
    }
}

/// Decodes `Buckets { 1: sint32 offset, 2: uint64 bucket_counts* }` of an exponential histogram.
///
/// The counts are read one by one, so that a long list of empty buckets takes no memory.
pub(super) fn exponential(message: &[u8], resolution: Resolution) -> Read<Result<Side, Reason>> {
    let mut offset = 0;
    let mut fields = Fields::new(message);
    while let Some((number, payload)) = fields.next()? {
        if number == 1 {
            offset = payload.zigzag()?;
        }
    }
    if i32::try_from(offset).is_err() {
        return Ok(Err(format!(
            "the bucket offset {offset} of a histogram exceeds 32 bits"
        )
        .into()));
    }
    let mut side = Side::default();
    let (mut at, mut index, mut count) = (offset, i64::MIN, 0_u64);
    let mut fields = Fields::new(message);
    while let Some((number, payload)) = fields.next()? {
        if number != 2 {
            continue;
        }
        payload.each_varint(|more| {
            if more > 0 {
                let coarse = (at >> resolution.down.min(63)) + 1;
                if coarse != index && count > 0 {
                    side.push(index, count);
                    count = 0;
                }
                index = coarse;
                count = count.saturating_add(more);
            }
            at += 1;
        })?;
    }
    if count > 0 {
        side.push(index, count);
    }
    Ok(side.finish())
}

/// Returns a histogram with the explicit bounds of a data point as custom buckets. `counts` has one entry more than
/// `bounds`, or is empty.
pub(super) fn custom(bounds: &[f64], counts: &[u64]) -> Result<IntegerHistogram, Reason> {
    let mut side = Side::default();
    for (index, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        side.push(index as i64, *count);
    }
    let side = side.finish()?;
    Ok(IntegerHistogram {
        schema: CUSTOM_BUCKETS_SCHEMA,
        positive_spans: side.spans,
        positive_deltas: side.deltas,
        custom_values: bounds.to_vec(),
        ..IntegerHistogram::default()
    })
}

/// Appends the numbers of a repeated `fixed64` field, packed or not, up to one more than the limit of buckets.
///
/// Also accepts single varints: the conversion of JSON writes them, because a count of one digit would otherwise take
/// eight bytes.
pub(super) fn push_counts(payload: Payload<'_>, counts: &mut Vec<u64>) -> Read<()> {
    let mut push = |count: u64| {
        if counts.len() <= BUCKETS_MAX {
            counts.push(count);
        }
    };
    match payload {
        Payload::Varint(count) => push(count),
        words => words.each_fixed64(push)?,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tideline_wire::protobuf::PutFields;

    use super::*;

    fn read(offset: i64, counts: &[u64], scale: i64) -> Side {
        let mut message = Vec::new();
        message.put_sint(1, offset);
        message.put_uints(2, counts.iter().copied());
        let resolution = Resolution::of_scale(scale).expect("a valid scale");
        exponential(&message, resolution)
            .expect("a message")
            .expect("valid buckets")
    }

    /// Returns the index and count of each bucket that is not empty.
    fn filled(side: &Side) -> Vec<(i64, u64)> {
        let mut deltas = side.deltas.iter();
        let (mut index, mut count, mut found) = (0, 0, Vec::new());
        for span in &side.spans {
            index += i64::from(span.offset);
            for _ in 0..span.length {
                count += *deltas.next().expect("a bucket");
                if count > 0 {
                    found.push((index, count.cast_unsigned()));
                }
                index += 1;
            }
        }
        assert_eq!(deltas.next(), None);
        found
    }

    #[test]
    fn buckets_keep_their_place_at_every_resolution() {
        assert_eq!(
            filled(&read(1, &[4, 3, 2, 1], 0)),
            [(2, 4), (3, 3), (4, 2), (5, 1)]
        );
        // One step coarser: index i becomes i / 2, rounded up, so indices 2, 3, 4, 5 become 1, 2, 2, 3.
        assert_eq!(filled(&read(1, &[4, 3, 2, 1], 9)), [(1, 4), (2, 5), (3, 1)]);
        assert_eq!(filled(&read(1, &[4, 3, 2, 1], 10)), [(1, 9), (2, 1)]);
        assert_eq!(filled(&read(-3, &[4, 3, 2, 1], 9)), [(-1, 4), (0, 5), (1, 1)]);
        assert_eq!(filled(&read(-3, &[4, 0, 0, 1], 0)), [(-2, 4), (1, 1)]);
        assert_eq!(filled(&read(0, &[0, 0, 7], 20)), [(1, 7)]);
        assert_eq!(filled(&read(-1, &[5, 7], i64::from(i32::MAX))), [(0, 5), (1, 7)]);
        assert_eq!(read(7, &[], 0), Side::default());
        assert_eq!(read(7, &[0; 1_000], 0), Side::default());
    }

    #[test]
    fn only_large_gaps_start_a_span() {
        let near = read(0, &[1, 0, 0, 1], 0);
        assert_eq!(near.spans, [Span { offset: 1, length: 4 }]);
        assert_eq!(near.deltas, [1, -1, 0, 1]);
        let far = read(0, &[1, 0, 0, 0, 1], 0);
        assert_eq!(
            far.spans,
            [Span { offset: 1, length: 1 }, Span { offset: 3, length: 1 }]
        );
        assert_eq!(far.deltas, [1, 0]);
    }

    #[test]
    fn huge_histograms_are_refused_without_taking_memory() {
        let refused = |offset: i64, counts: &[u64]| {
            let mut message = Vec::new();
            message.put_sint(1, offset);
            message.put_uints(2, counts.iter().copied());
            let resolution = Resolution::of_scale(0).expect("a valid scale");
            let read = exponential(&message, resolution).expect("a message");
            read.err().map(|reason| reason.to_string())
        };
        assert!(refused(0, &vec![1; BUCKETS_MAX + 1]).is_some());
        assert!(refused(1 << 40, &[1]).is_some());
        assert!(refused(i64::from(i32::MAX), &[1]).is_some());
        assert_eq!(refused(0, &vec![0; 1 << 20]), None);
        assert!(Resolution::of_scale(-5).is_err());
        assert!(zero_threshold(f64::NAN).is_err() && zero_threshold(-1.0).is_err());
        assert_eq!(zero_threshold(0.0), Ok(ZERO_THRESHOLD));
    }

    #[test]
    fn explicit_bounds_are_custom_buckets() {
        let histogram = custom(&[1.0, 2.0, 5.0], &[0, 3, 0, 4]).expect("valid");
        assert_eq!(histogram.positive_spans, [Span { offset: 1, length: 3 }]);
        assert_eq!(histogram.positive_deltas, [3, -3, 4]);
        assert_eq!(histogram.custom_values, [1.0, 2.0, 5.0]);
    }
}

//! Chunks in the format of Prometheus' storage, as streamed by remote read.
//!
//! Chunks of numbers and of histograms start with the number of samples in two bytes. Timestamps are encoded as
//! deltas of deltas, numbers by XOR with the previous number. The histograms of a chunk share one schema and one
//! bucket layout, which precede them. The format is described in Prometheus' `tsdb/docs/format/chunks.md`.

use tideline_histogram::{Histogram, ResetHint, is_stale};
use tideline_wire::varint::zigzag;

use super::bits::{Bits, Xor, is_within};

/// Maximum number of samples of a chunk, as in Prometheus.
const SAMPLES_MAX: usize = 120;
/// Schema of histograms with custom bounds.
const CUSTOM_SCHEMA: i32 = -53;

/// Chunk of samples of one series.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chunk {
    /// First timestamp in milliseconds.
    pub(crate) first: i64,
    /// Last timestamp in milliseconds.
    pub(crate) last: i64,
    pub(crate) encoding: Encoding,
    pub(crate) data: Vec<u8>,
}

/// Encoding of a chunk. The discriminants are the encoding numbers of Prometheus.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Encoding {
    Xor = 1,
    FloatHistogram = 3,
}

/// Encodes numbers in ascending order of time.
pub(crate) fn of_numbers(times: &[i64], values: &[f64]) -> impl Iterator<Item = Chunk> {
    times
        .chunks(SAMPLES_MAX)
        .zip(values.chunks(SAMPLES_MAX))
        .map(|(times, values)| number_chunk(times, values))
}

fn number_chunk(times: &[i64], values: &[f64]) -> Chunk {
    let mut bits = Bits::after((times.len() as u16).to_be_bytes().to_vec());
    bits.put_varint(zigzag(times[0]));
    bits.put(values[0].to_bits(), 64);
    let mut xor = Xor::after(values[0]);
    let mut distance = 0;
    for (at, value) in values.iter().enumerate().skip(1) {
        let next = times[at].wrapping_sub(times[at - 1]);
        match at {
            1 => bits.put_varint(next as u64),
            _ => put_change(next.wrapping_sub(distance), &mut bits),
        }
        distance = next;
        xor.put(*value, &mut bits);
    }
    Chunk {
        first: times[0],
        last: times[times.len() - 1],
        encoding: Encoding::Xor,
        data: bits.into_bytes(),
    }
}

/// Writes the delta of deltas of a timestamp.
fn put_change(change: i64, bits: &mut Bits) {
    match change {
        0 => bits.put_bit(false),
        _ if is_within(change, 14) => {
            bits.put(0b10, 2);
            bits.put(change as u64, 14);
        }
        _ if is_within(change, 17) => {
            bits.put(0b110, 3);
            bits.put(change as u64, 17);
        }
        _ if is_within(change, 20) => {
            bits.put(0b1110, 4);
            bits.put(change as u64, 20);
        }
        _ => {
            bits.put(0b1111, 4);
            bits.put(change as u64, 64);
        }
    }
}

/// Encodes histograms in ascending order of time. Reset hints are preserved: a histogram is in the chunk of its
/// predecessor only if there is no reset between them.
pub(crate) fn of_histograms<'a>(
    times: &'a [i64],
    histograms: &'a [Histogram],
) -> impl Iterator<Item = Chunk> + 'a {
    let mut next = 0;
    std::iter::from_fn(move || {
        let first = next;
        let one = histograms.get(first)?;
        next += 1;
        while next < histograms.len() && next - first < SAMPLES_MAX && follows(one, &histograms[next]) {
            next += 1;
        }
        Some(histogram_chunk(&times[first..next], &histograms[first..next]))
    })
}

/// Returns true if a histogram may be in a chunk that starts with `first`.
fn follows(first: &Histogram, next: &Histogram) -> bool {
    let same_reset = match first.reset_hint {
        ResetHint::Gauge => next.reset_hint == ResetHint::Gauge,
        _ => next.reset_hint == ResetHint::NotReset,
    };
    same_reset
        && !is_stale(first.sum)
        && !is_stale(next.sum)
        && first.schema == next.schema
        && first.zero_threshold.to_bits() == next.zero_threshold.to_bits()
        && first.positive_spans == next.positive_spans
        && first.negative_spans == next.negative_spans
        && first.custom_values == next.custom_values
}

fn histogram_chunk(times: &[i64], histograms: &[Histogram]) -> Chunk {
    let mut header = (times.len() as u16).to_be_bytes().to_vec();
    header.push(match histograms[0].reset_hint {
        ResetHint::Unknown => 0,
        ResetHint::Reset => 0b1000_0000,
        ResetHint::NotReset => 0b0100_0000,
        ResetHint::Gauge => 0b1100_0000,
    });
    let mut bits = Bits::after(header);
    // A stale marker is written without buckets.
    let marker = Histogram {
        sum: histograms[0].sum,
        ..Histogram::default()
    };
    let first = if is_stale(marker.sum) {
        &marker
    } else {
        &histograms[0]
    };
    put_layout(first, &mut bits);
    bits.put_signed(times[0]);
    let mut xors: Vec<Xor> = numbers(first)
        .map(|number| {
            bits.put(number.to_bits(), 64);
            Xor::after(number)
        })
        .collect();
    let mut distance = 0;
    for at in 1..histograms.len() {
        let next = times[at].wrapping_sub(times[at - 1]);
        bits.put_signed(next.wrapping_sub(distance));
        distance = next;
        for (xor, number) in xors.iter_mut().zip(numbers(&histograms[at])) {
            xor.put(number, &mut bits);
        }
    }
    Chunk {
        first: times[0],
        last: times[times.len() - 1],
        encoding: Encoding::FloatHistogram,
        data: bits.into_bytes(),
    }
}

/// Returns the numbers of a histogram in the order of a chunk.
fn numbers(histogram: &Histogram) -> impl Iterator<Item = f64> + '_ {
    let Histogram {
        count,
        zero_count,
        sum,
        positive_buckets,
        negative_buckets,
        ..
    } = histogram;
    let buckets = positive_buckets.iter().chain(negative_buckets);
    [*count, *zero_count, *sum].into_iter().chain(buckets.copied())
}

fn put_layout(histogram: &Histogram, bits: &mut Bits) {
    put_zero_threshold(histogram.zero_threshold, bits);
    bits.put_signed(i64::from(histogram.schema));
    for spans in [&histogram.positive_spans, &histogram.negative_spans] {
        bits.put_unsigned(spans.len() as u64);
        for span in spans {
            bits.put_unsigned(u64::from(span.length));
            bits.put_signed(i64::from(span.offset));
        }
    }
    if histogram.schema == CUSTOM_SCHEMA {
        bits.put_unsigned(histogram.custom_values.len() as u64);
        histogram
            .custom_values
            .iter()
            .for_each(|bound| put_bound(*bound, bits));
    }
}

/// Writes zero and the powers of two from 2^-243 to 2^10 in one byte, and other values in nine bytes.
fn put_zero_threshold(threshold: f64, bits: &mut Bits) {
    if threshold == 0.0 {
        return bits.put(0, 8);
    }
    let fraction = threshold.to_bits() & (u64::MAX >> 12);
    // As with Go's `math.Frexp`, the mantissa is at least 1/2 and less than 1.
    let exponent = (threshold.to_bits() >> 52) as i32 - 1_022;
    if fraction == 0 && threshold > 0.0 && (-242..=11).contains(&exponent) {
        return bits.put((exponent + 243) as u64, 8);
    }
    bits.put(255, 8);
    bits.put(threshold.to_bits(), 64);
}

/// Writes a whole number of thousandths in few bits, and other values in full after a zero bit.
fn put_bound(bound: f64, bits: &mut Bits) {
    /// Largest number of thousandths that takes at most four bytes. The stored number is larger by one, because 0 marks
    /// a value that is written in full.
    const THOUSANDTHS_MAX: f64 = 33_554_430.0;
    let thousandths = (bound * 1e3).round();
    if (0.0..=THOUSANDTHS_MAX).contains(&(bound * 1e3)) && thousandths / 1e3 == bound {
        return bits.put_unsigned(thousandths as u64 + 1);
    }
    bits.put_bit(false);
    bits.put(bound.to_bits(), 64);
}

#[cfg(test)]
mod tests;

//! The messages of remote read's answers, as Protocol Buffers.

use tideline_histogram::{Histogram, Span};
use tideline_promql::{Labels, Samples};
use tideline_wire::varint::{put as put_varint, zigzag};

use super::chunk::{Chunk, of_histograms, of_numbers};

/// Bytes of a message of chunks, as Prometheus cuts them; a chunk more may be in it.
const FRAME_BYTES: usize = 1 << 20;

/// Wire types.
const VARINT: u64 = 0;
const WORD: u64 = 1;
const BYTES: u64 = 2;

/// The samples of a `TimeSeries`.
pub(super) fn put_samples(samples: &Samples<'_>, out: &mut Vec<u8>) {
    let mut message = Vec::with_capacity(32);
    for (time, value) in samples.times.iter().zip(samples.values) {
        message.clear();
        put_double(1, *value, &mut message);
        put_int(2, *time as u64, &mut message);
        put_bytes(2, &message, out);
    }
    for (time, histogram) in samples.histogram_times.iter().zip(samples.histograms) {
        message.clear();
        put_histogram(*time, histogram, &mut message);
        put_bytes(4, &message, out);
    }
}

/// `ChunkedReadResponse`s with the chunks of a series, by rising times, each behind its length and checksum.
pub(super) fn put_chunked_series(labels: &Labels, samples: &Samples<'_>, query: u64, out: &mut Vec<u8>) {
    let mut numbers = of_numbers(samples.times, samples.values).peekable();
    let mut histograms = of_histograms(samples.histogram_times, samples.histograms).peekable();
    let mut head = Vec::new();
    put_labels(labels, &mut head);
    let mut series = head.clone();
    let mut next = || match (numbers.peek(), histograms.peek()) {
        (Some(number), Some(histogram)) if histogram.first < number.first => histograms.next(),
        (Some(_), _) => numbers.next(),
        (None, _) => histograms.next(),
    };
    let mut chunk = next();
    while let Some(one) = chunk {
        put_chunk(&one, &mut series);
        chunk = next();
        if series.len() >= FRAME_BYTES || chunk.is_none() {
            put_frame(&series, query, out);
            series.clone_from(&head);
        }
    }
}

fn put_frame(series: &[u8], query: u64, out: &mut Vec<u8>) {
    let mut message = Vec::with_capacity(series.len() + 16);
    put_bytes(1, series, &mut message);
    put_int(2, query, &mut message);
    put_varint(message.len() as u64, out);
    out.extend_from_slice(&crc32c::crc32c(&message).to_be_bytes());
    out.extend_from_slice(&message);
}

fn put_chunk(chunk: &Chunk, out: &mut Vec<u8>) {
    let mut message = Vec::with_capacity(chunk.data.len() + 32);
    put_int(1, chunk.first as u64, &mut message);
    put_int(2, chunk.last as u64, &mut message);
    put_int(3, chunk.encoding as u64, &mut message);
    put_bytes(4, &chunk.data, &mut message);
    put_bytes(2, &message, out);
}

/// The labels of a `TimeSeries` or a `ChunkedSeries`.
pub(super) fn put_labels(labels: &Labels, out: &mut Vec<u8>) {
    let mut message = Vec::new();
    for (name, value) in labels.iter() {
        message.clear();
        put_bytes(1, name.as_bytes(), &mut message);
        put_bytes(2, value.as_bytes(), &mut message);
        put_bytes(1, &message, out);
    }
}

/// A `Histogram` with counts as doubles.
fn put_histogram(time: i64, histogram: &Histogram, out: &mut Vec<u8>) {
    put_tag(2, WORD, out);
    out.extend_from_slice(&histogram.count.to_le_bytes());
    put_double(3, histogram.sum, out);
    put_int(4, zigzag(i64::from(histogram.schema)), out);
    put_double(5, histogram.zero_threshold, out);
    put_tag(7, WORD, out);
    out.extend_from_slice(&histogram.zero_count.to_le_bytes());
    put_spans(8, &histogram.negative_spans, out);
    put_doubles(10, &histogram.negative_buckets, out);
    put_spans(11, &histogram.positive_spans, out);
    put_doubles(13, &histogram.positive_buckets, out);
    put_int(14, histogram.reset_hint as u64, out);
    put_int(15, time as u64, out);
    put_doubles(16, &histogram.custom_values, out);
}

fn put_spans(field: u64, spans: &[Span], out: &mut Vec<u8>) {
    let mut message = Vec::new();
    for span in spans {
        message.clear();
        put_int(1, zigzag(i64::from(span.offset)), &mut message);
        put_int(2, u64::from(span.length), &mut message);
        put_bytes(field, &message, out);
    }
}

fn put_doubles(field: u64, numbers: &[f64], out: &mut Vec<u8>) {
    if numbers.is_empty() {
        return;
    }
    put_tag(field, BYTES, out);
    put_varint(numbers.len() as u64 * 8, out);
    numbers
        .iter()
        .for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
}

fn put_tag(field: u64, wire_type: u64, out: &mut Vec<u8>) {
    put_varint(field << 3 | wire_type, out);
}

/// An integer; zero is left out, as everywhere in this format.
fn put_int(field: u64, value: u64, out: &mut Vec<u8>) {
    if value != 0 {
        put_tag(field, VARINT, out);
        put_varint(value, out);
    }
}

/// A double; zero, but not its negative, is left out.
fn put_double(field: u64, value: f64, out: &mut Vec<u8>) {
    if value.to_bits() != 0 {
        put_tag(field, WORD, out);
        out.extend_from_slice(&value.to_le_bytes());
    }
}

/// What stands in front of so many bytes of a field.
pub(super) fn put_bytes_head(field: u64, bytes: usize, out: &mut Vec<u8>) {
    put_tag(field, BYTES, out);
    put_varint(bytes as u64, out);
}

fn put_bytes(field: u64, bytes: &[u8], out: &mut Vec<u8>) {
    put_bytes_head(field, bytes.len(), out);
    out.extend_from_slice(bytes);
}

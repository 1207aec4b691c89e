//! Protocol Buffers messages of remote read responses.
//!
//! Messages are written directly in the wire format, without generated types.

use tideline_histogram::{Histogram, Span};
use tideline_promql::{Labels, Samples};
use tideline_wire::protobuf::PutFields;
use tideline_wire::varint;

use super::chunk::{Chunk, of_histograms, of_numbers};

/// Size in bytes after which a message of chunks ends, as in Prometheus. The message can be larger by
/// one chunk.
const FRAME_BYTES: usize = 1 << 20;

/// Writes the samples of a `TimeSeries`.
pub(crate) fn put_samples(samples: &Samples<'_>, out: &mut Vec<u8>) {
    let mut message = Vec::with_capacity(32);
    for (time, value) in samples.times.iter().zip(samples.values) {
        message.clear();
        message.put_double(1, *value);
        message.put_int(2, *time);
        out.put_bytes(2, &message);
    }
    for (time, histogram) in samples.histogram_times.iter().zip(samples.histograms) {
        message.clear();
        put_histogram(*time, histogram, &mut message);
        out.put_bytes(4, &message);
    }
}

/// Writes the chunks of a series in ascending order of time as `ChunkedReadResponse` messages, each after its
/// length and checksum.
pub(crate) fn put_chunked_series(labels: &Labels, samples: &Samples<'_>, query: u64, out: &mut Vec<u8>) {
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
    message.put_bytes(1, series);
    message.put_uint(2, query);
    varint::put(message.len() as u64, out);
    out.extend_from_slice(&crc32c::crc32c(&message).to_be_bytes());
    out.extend_from_slice(&message);
}

fn put_chunk(chunk: &Chunk, out: &mut Vec<u8>) {
    let mut message = Vec::with_capacity(chunk.data.len() + 32);
    message.put_int(1, chunk.first);
    message.put_int(2, chunk.last);
    message.put_uint(3, chunk.encoding as u64);
    message.put_bytes(4, &chunk.data);
    out.put_bytes(2, &message);
}

/// Writes the labels of a `TimeSeries` or a `ChunkedSeries`.
pub(crate) fn put_labels(labels: &Labels, out: &mut Vec<u8>) {
    let mut message = Vec::new();
    for (name, value) in labels.iter() {
        message.clear();
        message.put_bytes(1, name.as_bytes());
        message.put_bytes(2, value.as_bytes());
        out.put_bytes(1, &message);
    }
}

/// Writes a `Histogram` with counts as doubles.
fn put_histogram(time: i64, histogram: &Histogram, out: &mut Vec<u8>) {
    out.put_fixed64(2, histogram.count.to_bits());
    out.put_double(3, histogram.sum);
    out.put_sint(4, i64::from(histogram.schema));
    out.put_double(5, histogram.zero_threshold);
    out.put_fixed64(7, histogram.zero_count.to_bits());
    put_spans(8, &histogram.negative_spans, out);
    out.put_doubles(10, &histogram.negative_buckets);
    put_spans(11, &histogram.positive_spans, out);
    out.put_doubles(13, &histogram.positive_buckets);
    out.put_uint(14, histogram.reset_hint as u64);
    out.put_int(15, time);
    out.put_doubles(16, &histogram.custom_values);
}

fn put_spans(field: u32, spans: &[Span], out: &mut Vec<u8>) {
    let mut message = Vec::new();
    for span in spans {
        message.clear();
        message.put_sint(1, i64::from(span.offset));
        message.put_uint(2, u64::from(span.length));
        out.put_bytes(field, &message);
    }
}

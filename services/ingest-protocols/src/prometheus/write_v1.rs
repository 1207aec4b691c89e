//! Decoder of remote write 1.0: `prometheus.WriteRequest`.
//!
//! ```text
//! WriteRequest { 1: TimeSeries*, 3: MetricMetadata* }
//! TimeSeries   { 1: Label*, 2: Sample*, 3: Exemplar*, 4: Histogram* }
//! ```
//!
//! The labels of a series are usually contiguous at its start. The bytes of these labels are then used as the raw key
//! without copying.

use tideline_model::SeriesResolver;

use super::decoded::DecodedSamples;
use super::exemplar::ExemplarText;
use super::histogram;
use super::labels::{self, LABEL};
use super::metadata::kind_of_number;
use super::samples::{SampleWriter, Series};
use super::wire::{Fields, Malformed, Payload, Read};
use crate::error::IngestError;
use crate::options::DecodeOptions;
use crate::reject::Reason;

/// Decodes a decompressed request.
///
/// The outermost fields are checked to be complete before anything is decoded, so a truncated body costs no memory. A
/// series with invalid labels is rejected alone.
///
/// # Errors
///
/// Returns [`IngestError::Protobuf`] if the body is not a valid message. No sample is returned then.
pub fn decode_write(
    body: &[u8],
    options: &DecodeOptions,
    resolver: &mut impl SeriesResolver,
) -> Result<DecodedSamples, IngestError> {
    read(body, options, resolver).map_err(|Malformed(reason)| IngestError::Protobuf {
        message: "prometheus.WriteRequest",
        reason,
    })
}

fn read(body: &[u8], options: &DecodeOptions, resolver: &mut impl SeriesResolver) -> Read<DecodedSamples> {
    let mut series = super::count_messages(body, 1)?;
    let mut writer = SampleWriter::new(body.len(), series, options, resolver);
    let mut scratch = Scratch::default();
    let mut fields = Fields::new(body);
    while let Some((number, payload)) = fields.next()? {
        match number {
            1 => {
                let message = payload.bytes()?;
                series -= 1;
                if !one_series(message, &mut writer, &mut scratch)? {
                    writer.reject_unread(series);
                    break;
                }
            }
            3 => metadata(payload.bytes()?, &mut writer)?,
            _ => {}
        }
    }
    Ok(writer.finish())
}

/// Buffers that are reused for each series.
#[derive(Debug, Default)]
struct Scratch {
    key: Vec<u8>,
    exemplar: ExemplarText,
}

/// Decodes a series; returns `false` if reading must stop.
fn one_series<R: SeriesResolver>(
    message: &[u8],
    writer: &mut SampleWriter<'_, R>,
    scratch: &mut Scratch,
) -> Read<bool> {
    if let Some((series, length)) = writer.expected(message) {
        let (key, rest) = message.split_at(length);
        if !has_label(rest)? {
            return items(rest, series, key, writer, &mut scratch.exemplar);
        }
    }
    let (run, rest) = leading_labels(message)?;
    let key = match has_label(rest)? {
        false => run,
        true => {
            gather_labels(message, &mut scratch.key)?;
            &scratch.key
        }
    };
    match writer.series(key) {
        Ok(series) => items(rest, series, key, writer, &mut scratch.exemplar),
        Err(reason) => Ok(writer.reject(reason, key)),
    }
}

/// Returns the encoded labels at the start of a series, and the bytes after them.
fn leading_labels(message: &[u8]) -> Read<(&[u8], &[u8])> {
    let mut fields = Fields::new(message);
    fields.skip_runs(LABEL)?;
    let rest = fields.rest();
    Ok((&message[..message.len() - rest.len()], rest))
}

/// Returns true if one of the fields is a label.
fn has_label(rest: &[u8]) -> Read<bool> {
    let mut fields = Fields::new(rest);
    while let Some((number, _)) = fields.next()? {
        if number == 1 {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Copies the labels of a series into one key, for labels that are not contiguous.
fn gather_labels(message: &[u8], key: &mut Vec<u8>) -> Read<()> {
    key.clear();
    let mut fields = Fields::new(message);
    while let Some((number, payload)) = fields.next()? {
        if number == 1 {
            let label = payload.bytes()?;
            key.push(LABEL);
            tideline_wire::varint::put(label.len() as u64, key);
            key.extend_from_slice(label);
        }
    }
    Ok(())
}

/// Decodes the samples, histograms and exemplars of a series; returns `false` if reading must stop.
fn items<R: SeriesResolver>(
    message: &[u8],
    series: Series,
    key: &[u8],
    writer: &mut SampleWriter<'_, R>,
    text: &mut ExemplarText,
) -> Read<bool> {
    let mut last_millis = None;
    let mut fields = Fields::new(message);
    while let Some((number, payload)) = fields.next()? {
        let written = match number {
            2 => {
                let (value, millis) = sample(payload.bytes()?)?;
                last_millis = Some(millis);
                writer.number(series, millis, value, None)
            }
            4 => {
                let read = histogram::read(payload.bytes()?)?;
                last_millis = Some(read.millis);
                read.histogram
                    .and_then(|histogram| writer.histogram(series, read.millis, &histogram, read.start))
            }
            3 => exemplar(payload.bytes()?, last_millis, series, writer, text)?,
            _ => continue,
        };
        if let Err(reason) = written
            && !writer.reject(reason, key)
        {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Decodes `Sample { 1: double value, 2: int64 timestamp }`.
#[inline]
fn sample(message: &[u8]) -> Read<(f64, i64)> {
    if let Some((value, millis)) = Fields::double_and_varint(message) {
        return Ok((value, millis.cast_signed()));
    }
    let (mut value, mut millis) = (0.0, 0);
    let mut fields = Fields::new(message);
    while let Some((number, payload)) = fields.next()? {
        match number {
            1 => value = payload.double()?,
            2 => millis = payload.int64()?,
            _ => {}
        }
    }
    Ok((value, millis))
}

/// Decodes `Exemplar { 1: Label*, 2: double value, 3: int64 timestamp }`. An exemplar without a timestamp gets that of
/// the preceding sample or histogram, or 0 if no such item precedes it.
fn exemplar<R: SeriesResolver>(
    message: &[u8],
    last_millis: Option<i64>,
    series: Series,
    writer: &mut SampleWriter<'_, R>,
    text: &mut ExemplarText,
) -> Read<Result<(), Reason>> {
    let (mut value, mut millis) = (0.0, 0);
    text.start();
    let mut fields = Fields::new(message);
    while let Some((number, payload)) = fields.next()? {
        match number {
            1 => {
                let (name, value) = labels::label(payload.bytes()?)?;
                text.label(name, value);
            }
            2 => value = payload.double()?,
            3 => millis = payload.int64()?,
            _ => {}
        }
    }
    let millis = if millis == 0 {
        last_millis.unwrap_or(0)
    } else {
        millis
    };
    Ok(text
        .finish(value)
        .and_then(|text| writer.exemplar(series, millis, text)))
}

/// Decodes `MetricMetadata { 1: type, 2: metric_family_name, 4: help, 5: unit }`.
fn metadata<R>(message: &[u8], writer: &mut SampleWriter<'_, R>) -> Read<()> {
    let (mut kind, mut name, mut help, mut unit) = (0, "", "", "");
    let mut fields = Fields::new(message);
    while let Some((number, payload)) = fields.next()? {
        match number {
            1 => kind = payload.varint()?,
            2 => name = text(payload)?,
            4 => help = text(payload)?,
            5 => unit = text(payload)?,
            _ => {}
        }
    }
    if !name.is_empty() {
        writer.metadata.set(name, kind_of_number(kind), help, unit);
    }
    Ok(())
}

fn text(payload: Payload<'_>) -> Read<&str> {
    std::str::from_utf8(payload.bytes()?).map_err(|_| Malformed("text is not UTF-8"))
}

//! Decoder of remote write 2.0: `io.prometheus.write.v2.Request`.
//!
//! ```text
//! Request    { 4: string symbol*, 5: TimeSeries* }
//! TimeSeries { 1: uint32 labels_ref*, 2: Sample*, 3: Histogram*, 4: Exemplar*, 5: Metadata }
//! ```
//!
//! All texts are references into the table of symbols. The key of a series is built from the symbols in the encoding of
//! version 1.0, so both versions share the cache of known series.

use tideline_model::SeriesResolver;

use super::decoded::DecodedSamples;
use super::exemplar::ExemplarText;
use super::histogram;
use super::labels;
use super::metadata::{KINDS, KnownMetadata, kind_of_number};
use super::samples::{SampleWriter, Series};
use super::wire::{Fields, Malformed, Payload, Read};
use crate::error::IngestError;
use crate::options::DecodeOptions;
use crate::reject::{Reason, too_large};
use crate::series_key::{KEY_BYTES_MAX, NAME_BYTES_MAX, TAGS_MAX};

/// Maximum number of symbols of one request. A symbol takes sixteen bytes in memory but may take only two in the body.
/// A request with 2,000 series has a few thousand symbols.
const SYMBOLS_MAX: usize = 1 << 20;
/// Maximum number of references of one list: the name and value of each tag and of the metric name.
const REFS_MAX: usize = 2 * (TAGS_MAX + 1);

/// Maximum total size of the keys of all series of one request, in bytes. A few references can expand to 64 KiB of
/// labels. Without a limit, the decoding of such a body would take minutes.
const KEYS_BYTES_MAX: usize = 1 << 30;

/// Decodes a decompressed request.
///
/// The outermost fields are checked to be complete before anything is decoded. A series with invalid labels, invalid
/// references or no samples is rejected alone. Senders repeat the metadata of a metric with each of its series;
/// metadata for which `is_known` returns true is skipped.
///
/// # Errors
///
/// Returns [`IngestError::Protobuf`] if the body is not a valid message, has more than 1,048,576 symbols, or its first
/// symbol is not the empty string. No sample is returned then.
pub fn decode_write_v2(
    body: &[u8],
    options: &DecodeOptions,
    resolver: &mut impl SeriesResolver,
    is_known: &KnownMetadata<'_>,
) -> Result<DecodedSamples, IngestError> {
    read(body, options, resolver, is_known).map_err(|Malformed(reason)| IngestError::Protobuf {
        message: "io.prometheus.write.v2.Request",
        reason,
    })
}

fn read(
    body: &[u8],
    options: &DecodeOptions,
    resolver: &mut impl SeriesResolver,
    is_known: &KnownMetadata<'_>,
) -> Read<DecodedSamples> {
    let mut series = super::count_messages(body, 5)?;
    let symbols = symbols(body)?;
    let mut reader = SeriesReader {
        symbols,
        writer: SampleWriter::new(body.len(), series, options, resolver),
        refs: Vec::new(),
        exemplar_refs: Vec::new(),
        key: Vec::new(),
        starts: Vec::new(),
        last: LastKey::default(),
        key_bytes: 0,
        exemplar: ExemplarText::default(),
        described: Vec::new(),
        is_known,
    };
    let mut fields = Fields::new(body);
    while let Some((number, payload)) = fields.next()? {
        if number == 5 {
            let message = payload.bytes()?;
            series -= 1;
            if !reader.one_series(message)? || reader.key_bytes > KEYS_BYTES_MAX {
                reader.writer.reject_unread(series);
                break;
            }
        }
    }
    Ok(reader.writer.finish())
}

/// Returns the table of symbols. Each symbol includes its encoded length, so that it can be copied into a key as it is.
fn symbols(body: &[u8]) -> Read<Vec<&[u8]>> {
    let count = super::count_messages(body, 4)?;
    if count > SYMBOLS_MAX {
        return Err(Malformed("more than 1,048,576 symbols"));
    }
    let mut symbols = Vec::with_capacity(count);
    let mut fields = Fields::new(body);
    loop {
        let before = fields.rest();
        match fields.next()? {
            None => break,
            Some((4, payload)) => {
                let length = before.len() - fields.rest().len();
                // The minimal encoding of the tag of field 4 is one byte.
                if before.first() != Some(&SYMBOL) {
                    return Err(Malformed("the tag of a symbol is not minimally encoded"));
                }
                payload.bytes()?;
                symbols.push(&before[1..length]);
            }
            Some(_) => {}
        }
    }
    if symbols.first().is_some_and(|first| !text_of(first).is_empty()) {
        return Err(Malformed("the first symbol is not the empty string"));
    }
    Ok(symbols)
}

/// Tag of a symbol: field 4 with length-delimited bytes.
const SYMBOL: u8 = 0x22;

/// Encoded symbol of the label that holds the metric name.
const METRIC_NAME_SPELT: &[u8] = b"\x08__name__";

/// Returns the text of a symbol without its length.
fn text_of(symbol: &[u8]) -> &[u8] {
    let mut fields = Fields::new(symbol);
    match fields.varint() {
        Ok(_) => fields.rest(),
        Err(_) => b"",
    }
}

/// Undecoded metadata: type number, help reference, unit reference.
type Description = (u64, u64, u64);

/// Previous series: its references, its key, and the start of each label in the key.
#[derive(Debug, Default)]
struct LastKey {
    refs: Vec<u64>,
    key: Vec<u8>,
    starts: Vec<usize>,
}

struct SeriesReader<'a, 'r, R> {
    symbols: Vec<&'a [u8]>,
    writer: SampleWriter<'r, R>,
    /// Label references of the current series.
    refs: Vec<u64>,
    /// Label references of an exemplar.
    exemplar_refs: Vec<u64>,
    /// Key of the current series, or of an earlier series if the current series did not need a key.
    key: Vec<u8>,
    /// Start of each label in `key`.
    starts: Vec<usize>,
    last: LastKey,
    /// Total bytes of all keys so far.
    key_bytes: usize,
    exemplar: ExemplarText,
    /// Last handled metadata, by index of the metric name. Series of one name usually repeat it.
    described: Vec<Option<Description>>,
    is_known: &'a KnownMetadata<'a>,
}

impl<R: SeriesResolver> SeriesReader<'_, '_, R> {
    /// Decodes a series; returns `false` if reading must stop.
    fn one_series(&mut self, message: &[u8]) -> Read<bool> {
        let mut description = None;
        let mut has_samples = false;
        self.refs.clear();
        let mut fields = Fields::new(message);
        while let Some((number, payload)) = fields.next()? {
            match number {
                1 => read_refs(payload, &mut self.refs)?,
                2 | 3 => has_samples = true,
                5 => description = Some(read_description(payload.bytes()?)?),
                _ => {}
            }
        }
        let series = self.resolve(has_samples, description);
        match series {
            Ok(series) => self.items(message, series),
            Err(reason) => Ok(self.reject(reason)),
        }
    }

    /// Rejects an item of the current series; returns `false` if reading must stop.
    #[cold]
    fn reject(&mut self, reason: Reason) -> bool {
        // If the labels themselves are invalid, the reject shows the valid part of the key.
        let _ = self.spell_key();
        self.writer.reject(reason, &self.key)
    }

    fn resolve(&mut self, has_samples: bool, description: Option<Description>) -> Result<Series, Reason> {
        let expected = if has_samples { self.expected() } else { None };
        let series = match expected {
            Some(series) => series,
            None => {
                self.spell_key()?;
                self.key_bytes += self.key.len();
                if !has_samples {
                    return Err("a series must have at least one sample or histogram".into());
                }
                self.writer.series(&self.key)?
            }
        };
        if let Some(description) = description {
            self.describe(series, description)?;
        }
        Ok(series)
    }

    /// Returns the series that the resolver guesses as the next one, if its key equals the labels of the current
    /// series. The symbols are compared directly with that key, without building a key.
    fn expected(&mut self) -> Option<Series> {
        let (pairs, odd) = self.refs.as_chunks::<2>();
        let symbols = self.symbols.as_slice();
        let symbol = |reference: u64| symbols.get(reference as usize).copied();
        let is_name = |pair: &&[u64; 2]| symbol(pair[0]) == Some(METRIC_NAME_SPELT);
        let metric = text_of(symbol(pairs.iter().find(is_name)?[1])?);
        if !odd.is_empty() {
            return None;
        }
        let mut compared = 0;
        let is_it = |key: &[u8]| {
            compared = key.len();
            let rest = pairs.iter().try_fold(key, |rest, [name, value]| {
                labels::strip_spelt(rest, symbol(*name)?, symbol(*value)?)
            });
            rest.is_some_and(<[u8]>::is_empty)
        };
        let series = self.writer.expected_of(metric, is_it)?;
        self.key_bytes += compared;
        Some(series)
    }

    /// Stores the metadata of a series. Skips empty metadata, known metadata, and a repetition of the previous metadata
    /// of this metric in the body. Fails if a reference is invalid.
    fn describe(&mut self, series: Series, description: Description) -> Result<(), Reason> {
        let (_, number) = self.writer.name(series);
        if self.described.len() <= number {
            self.described.resize(number + 1, None);
        }
        if self.described[number] == Some(description) {
            return Ok(());
        }
        let (kind, help, unit) = description;
        let help = symbol_text("help_ref", help, &self.symbols)?;
        let unit = symbol_text("unit_ref", unit, &self.symbols)?;
        let texts = (kind_of_number(kind), help, unit);
        // Some encoders write empty metadata for every series.
        if texts == (KINDS[0], "", "") {
            return Ok(());
        }
        self.described[number] = Some(description);
        self.writer.describe(series, texts, self.is_known);
        Ok(())
    }

    /// Builds the key of the current series. Series of one machine are usually consecutive and end with the same
    /// labels; the common suffix is copied from the previous key.
    fn spell_key(&mut self) -> Result<(), Reason> {
        std::mem::swap(&mut self.key, &mut self.last.key);
        std::mem::swap(&mut self.starts, &mut self.last.starts);
        self.key.clear();
        self.starts.clear();
        let (pairs, last_pairs) = (self.refs.as_chunks::<2>().0, self.last.refs.as_chunks::<2>().0);
        let backwards = pairs.iter().rev().zip(last_pairs.iter().rev());
        let same = match self.refs.len().is_multiple_of(2) {
            true => backwards.take_while(|(one, other)| one == other).count(),
            false => 0,
        };
        let own = self.refs.len() - 2 * same;
        let spelt = each_pair(&self.refs[..own], &self.symbols, |name, value| {
            self.starts.push(self.key.len());
            labels::push_spelt(name, value, &mut self.key);
            self.key.len() <= KEY_BYTES_MAX
        });
        if let Err(reason) = spelt {
            self.last.refs.clear();
            return Err(reason);
        }
        let shared = self.last.starts.len() - same;
        if let Some(from) = self.last.starts.get(shared) {
            let (begin, from) = (self.key.len(), *from);
            self.key.extend_from_slice(&self.last.key[from..]);
            let moved = self.last.starts[shared..]
                .iter()
                .map(|start| start - from + begin);
            self.starts.extend(moved);
        }
        self.last.refs.clone_from(&self.refs);
        Ok(())
    }

    fn items(&mut self, message: &[u8], series: Series) -> Read<bool> {
        let mut last_millis = None;
        let mut fields = Fields::new(message);
        while let Some((number, payload)) = fields.next()? {
            let written = match number {
                2 => {
                    let (value, millis, start) = sample(payload.bytes()?)?;
                    last_millis = Some(millis);
                    self.writer.number(series, millis, value, start)
                }
                3 => {
                    let read = histogram::read(payload.bytes()?)?;
                    last_millis = Some(read.millis);
                    read.histogram.and_then(|histogram| {
                        self.writer.histogram(series, read.millis, &histogram, read.start)
                    })
                }
                4 => self.exemplar(payload.bytes()?, last_millis, series)?,
                _ => continue,
            };
            if let Err(reason) = written
                && !self.reject(reason)
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Decodes and stores `Exemplar { 1: uint32 labels_ref*, 2: double value, 3: int64 timestamp }`. An exemplar
    /// without a timestamp gets that of the preceding sample or histogram, or 0 if no such item precedes it.
    fn exemplar(
        &mut self,
        message: &[u8],
        last_millis: Option<i64>,
        series: Series,
    ) -> Read<Result<(), Reason>> {
        let (mut value, mut millis) = (0.0, 0);
        self.exemplar_refs.clear();
        let mut fields = Fields::new(message);
        while let Some((number, payload)) = fields.next()? {
            match number {
                1 => read_refs(payload, &mut self.exemplar_refs)?,
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
        let text = &mut self.exemplar;
        text.start();
        let labels = each_pair(&self.exemplar_refs, &self.symbols, |name, value| {
            text.label(text_of(name), text_of(value));
            true
        });
        Ok(labels
            .and_then(|()| text.finish(value))
            .and_then(|text| self.writer.exemplar(series, millis, text)))
    }
}

/// Appends references to a list, up to one more than the limit. The excess is detected by [`each_pair`].
fn read_refs(payload: Payload<'_>, refs: &mut Vec<u64>) -> Read<()> {
    payload.each_varint(|reference| {
        if refs.len() <= REFS_MAX {
            refs.push(reference);
        }
    })
}

/// Calls `take` for each label of the reference pairs, with length-prefixed texts. Fails if a reference is invalid, if
/// there are too many references or an odd number of them, if a label is too long, or if `take` returns `false`.
fn each_pair(
    refs: &[u64],
    symbols: &[&[u8]],
    mut take: impl FnMut(&[u8], &[u8]) -> bool,
) -> Result<(), Reason> {
    if refs.len() > REFS_MAX {
        return Err(format!("too many labels: limit {}", REFS_MAX / 2).into());
    }
    let (pairs, odd) = refs.as_chunks::<2>();
    if !odd.is_empty() {
        return Err(format!(
            "labels_refs has {} entries, which is not a multiple of two",
            refs.len()
        )
        .into());
    }
    for [name, value] in pairs {
        let (name, value) = (
            symbol("labels_refs", *name, symbols)?,
            symbol("labels_refs", *value, symbols)?,
        );
        let longest = name.len().max(value.len());
        if longest > NAME_BYTES_MAX {
            return Err(too_large("label", longest, NAME_BYTES_MAX));
        }
        if !take(name, value) {
            return Err(format!("labels too large: limit {KEY_BYTES_MAX}").into());
        }
    }
    Ok(())
}

#[inline]
fn symbol<'a>(what: &str, reference: u64, symbols: &[&'a [u8]]) -> Result<&'a [u8], Reason> {
    let known = usize::try_from(reference).ok().and_then(|at| symbols.get(at));
    known.copied().ok_or_else(|| {
        format!(
            "{what} {reference} is outside of the table of {} symbols",
            symbols.len()
        )
        .into()
    })
}

/// Returns the text of an optional symbol. Reference 0 is the empty string even without a table.
fn symbol_text<'a>(what: &str, reference: u64, symbols: &[&'a [u8]]) -> Result<&'a str, Reason> {
    if reference == 0 {
        return Ok("");
    }
    let text = std::str::from_utf8(text_of(symbol(what, reference, symbols)?));
    text.map_err(|_| format!("{what} {reference} is not UTF-8").into())
}

/// Decodes `Metadata { 1: type, 3: help_ref, 4: unit_ref }`.
fn read_description(message: &[u8]) -> Read<Description> {
    let (mut kind, mut help, mut unit) = (0, 0, 0);
    let mut fields = Fields::new(message);
    while let Some((number, payload)) = fields.next()? {
        match number {
            1 => kind = payload.varint()?,
            3 => help = payload.varint()?,
            4 => unit = payload.varint()?,
            _ => {}
        }
    }
    Ok((kind, help, unit))
}

/// Decodes `Sample { 1: double value, 2: int64 timestamp, 3: int64 start_timestamp }`. A start of 0 means `None`.
#[inline]
fn sample(message: &[u8]) -> Read<(f64, i64, Option<i64>)> {
    if let Some((value, millis)) = Fields::double_and_varint(message) {
        return Ok((value, millis.cast_signed(), None));
    }
    let (mut value, mut millis, mut start) = (0.0, 0, 0);
    let mut fields = Fields::new(message);
    while let Some((number, payload)) = fields.next()? {
        match number {
            1 => value = payload.double()?,
            2 => millis = payload.int64()?,
            3 => start = payload.int64()?,
            _ => {}
        }
    }
    Ok((value, millis, (start != 0).then_some(start)))
}

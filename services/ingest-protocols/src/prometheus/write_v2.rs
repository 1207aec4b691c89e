//! Remote write 2.0: `io.prometheus.write.v2.Request`.
//!
//! ```text
//! Request    { 4: string symbol*, 5: TimeSeries* }
//! TimeSeries { 1: uint32 labels_ref*, 2: Sample*, 3: Histogram*, 4: Exemplar*, 5: Metadata }
//! ```
//!
//! Every text is a number that refers to the list of symbols. The key of a series is put together from them, in the
//! form in which version 1.0 sends it, so that both share what is known of a series.

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

/// Symbols of one request. Each takes sixteen bytes here and may take two in the body, so without a bound a body could
/// grow in memory; 2,000 series have some thousands.
const SYMBOLS_MAX: usize = 1 << 20;
/// References of one list: those of the most tags that a timeline may have, and of its name.
const REFS_MAX: usize = 2 * (TAGS_MAX + 1);

/// Bytes of the keys of all series of one request. A few references spell 64 KiB of labels: without a bound, a body
/// of them would cost minutes.
const KEYS_BYTES_MAX: usize = 1 << 30;

/// Reads a request, decompressed.
///
/// Nothing is known of it before its outermost fields are seen to be whole. A series whose labels are wrong, whose
/// references lead nowhere or that holds no sample rejects itself alone. Senders say the metadata of a metric with each
/// of its series: what `is_known` knows is not handed on.
///
/// # Errors
///
/// [`IngestError::Protobuf`] when the body is not such a message or its first symbol is not the empty text. Nothing is
/// to be stored then.
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

/// The list of symbols, each as it lies in the body: its length, then its bytes. So it is copied into a key at once.
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
                // The tag of field 4 is one byte, unless it is spelt longer than it has to be.
                if before.first() != Some(&SYMBOL) {
                    return Err(Malformed("a tag is longer than it has to be"));
                }
                payload.bytes()?;
                symbols.push(&before[1..length]);
            }
            Some(_) => {}
        }
    }
    if symbols.first().is_some_and(|first| !text_of(first).is_empty()) {
        return Err(Malformed("the first symbol is not the empty text"));
    }
    Ok(symbols)
}

/// The tag of a symbol: field 4, a run of bytes.
const SYMBOL: u8 = 0x22;

/// The symbol of the label that holds the name of the metric.
const METRIC_NAME_SPELT: &[u8] = b"\x08__name__";

/// The bytes of a symbol without its length.
fn text_of(symbol: &[u8]) -> &[u8] {
    let mut fields = Fields::new(symbol);
    match fields.varint() {
        Ok(_) => fields.rest(),
        Err(_) => b"",
    }
}

/// Metadata as it is sent: type, help and unit.
type Description = (u64, u64, u64);

/// The series before: its references, its key, and where each label begins in that.
#[derive(Debug, Default)]
struct LastKey {
    refs: Vec<u64>,
    key: Vec<u8>,
    starts: Vec<usize>,
}

struct SeriesReader<'a, 'r, R> {
    symbols: Vec<&'a [u8]>,
    writer: SampleWriter<'r, R>,
    /// The references of the labels at hand.
    refs: Vec<u64>,
    /// Those of an exemplar.
    exemplar_refs: Vec<u64>,
    /// The key of the series at hand, or where that needed none of the last one that did.
    key: Vec<u8>,
    /// Where each label begins in it.
    starts: Vec<usize>,
    last: LastKey,
    /// Bytes of all keys so far.
    key_bytes: usize,
    exemplar: ExemplarText,
    /// What was said of each name of the body: every series of a name says the same again.
    described: Vec<Option<Description>>,
    is_known: &'a KnownMetadata<'a>,
}

impl<R: SeriesResolver> SeriesReader<'_, '_, R> {
    /// Reads a series; `false` when nothing more may be read.
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

    /// Notes that something of the series at hand is not stored; `false` when nothing more may be read.
    #[cold]
    fn reject(&mut self, reason: Reason) -> bool {
        // What is wrong with the labels themselves leaves a part of the key, which is shown.
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

    /// The series at hand where it is the one that is expected now: its labels are compared with that one's key as they
    /// are, and nothing is spelt.
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

    /// Takes in what is said of a series' metric, unless the body has said the same of that name before.
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
        // Some encoders write a description of every series, also where nothing is known.
        if texts == (KINDS[0], "", "") {
            return Ok(());
        }
        self.described[number] = Some(description);
        self.writer.describe(series, texts, self.is_known);
        Ok(())
    }

    /// Spells the key of the series at hand. Series of one machine follow one another and end in the same labels, which
    /// are copied as they were spelt before.
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

    /// `Exemplar { 1: uint32 labels_ref*, 2: double value, 3: int64 timestamp }`.
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

/// Adds references to a list that shows, but does not hold, what is too much.
fn read_refs(payload: Payload<'_>, refs: &mut Vec<u64>) -> Read<()> {
    payload.each_varint(|reference| {
        if refs.len() <= REFS_MAX {
            refs.push(reference);
        }
    })
}

/// Hands the labels that pairs of references name to `take`, each text with its length before it, as long as it wants more.
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

/// A symbol that need not be there: 0 without a table is the empty text.
fn symbol_text<'a>(what: &str, reference: u64, symbols: &[&'a [u8]]) -> Result<&'a str, Reason> {
    if reference == 0 {
        return Ok("");
    }
    let text = std::str::from_utf8(text_of(symbol(what, reference, symbols)?));
    text.map_err(|_| format!("{what} {reference} is not UTF-8").into())
}

/// `Metadata { 1: type, 3: help_ref, 4: unit_ref }`.
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

/// `Sample { 1: double value, 2: int64 timestamp, 3: int64 start_timestamp }`; a start of 0 is none.
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

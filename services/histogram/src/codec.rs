//! Encoding of histograms as stored bytes, specified in `FORMAT.md`.
//!
//! The encoding is compact, and every double is restored bit for bit. The decoder accepts untrusted bytes: it
//! limits allocations and rejects spans that do not fit their buckets.

use thiserror::Error;
use tideline_wire::varint::{self, VarintError, unzigzag, zigzag};

use crate::histogram::{Histogram, ResetHint, Span};
use crate::schema::{CUSTOM_BUCKETS_SCHEMA, SCHEMA_MAX, SCHEMA_MIN};
use crate::spans::{LayoutError, check_layout};

/// Format version: the first stored byte.
const VERSION: u8 = 1;

/// Maximum number of buckets of each side of a stored histogram, and of custom bounds. The limit is 256 times the
/// largest number that client libraries write, and bounds each of the three lists to 512 KiB of doubles.
pub const BUCKETS_MAX: usize = 1 << 16;

/// Zero threshold of client libraries, 2^-128. Storing it takes no bytes.
const USUAL_ZERO_THRESHOLD: f64 = 2.938735877055719e-39;

/// Exclusive limit of the magnitude of whole numbers: from 2^53 on, doubles do not hold every integer.
const WHOLE_MAX: i64 = 1 << 53;

/// Bits of the flags field: the reset hint, and the encoding of the other fields.
mod flag {
    pub(super) const HINT: u64 = 0b11;
    pub(super) const COUNT_WHOLE: u64 = 1 << 2;
    pub(super) const ZERO_COUNT_WHOLE: u64 = 1 << 3;
    pub(super) const SUM_WHOLE: u64 = 1 << 4;
    pub(super) const POSITIVE_WHOLE: u64 = 1 << 5;
    pub(super) const NEGATIVE: u64 = 1 << 6;
    pub(super) const NEGATIVE_WHOLE: u64 = 1 << 7;
    pub(super) const ZERO_THRESHOLD_USUAL: u64 = 1 << 8;
    pub(super) const ZERO_THRESHOLD_RAW: u64 = 1 << 9;
    pub(super) const CUSTOM: u64 = 1 << 10;
    pub(super) const CUSTOM_THOUSANDTHS: u64 = 1 << 11;
    pub(super) const ALL: u64 = (1 << 12) - 1;
}

/// Reason why bytes are not a stored histogram.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CodecError {
    /// Input that ends within the named field.
    #[error("a stored histogram ends within its {0}")]
    Short(&'static str),
    /// Unsupported format version.
    #[error("a stored histogram has version {0}, not {VERSION}")]
    Version(u8),
    /// Named field with a value that the writer never produces.
    #[error("a stored histogram has a bad {0}")]
    Bad(&'static str),
    /// List longer than [`BUCKETS_MAX`].
    #[error("a stored histogram has {found} {part}, more than {BUCKETS_MAX}")]
    TooMany {
        /// Name of the list.
        part: &'static str,
        /// Length found.
        found: u64,
    },
    /// Spans that do not fit the buckets.
    #[error("a stored histogram's {0}")]
    Layout(#[from] LayoutError),
    /// Trailing bytes after the histogram.
    #[error("a stored histogram is followed by {0} bytes")]
    Rest(usize),
}

impl Histogram {
    /// Appends the stored bytes: about 20 bytes, and for each bucket usually one or two bytes if all counts of its
    /// side are whole, otherwise eight.
    ///
    /// [`Self::from_bytes`] reads them back if [`Self::validate`] accepts the schema, the spans and the
    /// buckets.
    pub fn to_bytes(&self, out: &mut Vec<u8>) {
        let flags = self.flags();
        out.push(VERSION);
        varint::put(flags, out);
        push_signed(out, i64::from(self.schema));
        push_number(out, self.count, flags & flag::COUNT_WHOLE != 0);
        push_number(out, self.sum, flags & flag::SUM_WHOLE != 0);
        push_number(out, self.zero_count, flags & flag::ZERO_COUNT_WHOLE != 0);
        if flags & flag::ZERO_THRESHOLD_RAW != 0 {
            push_number(out, self.zero_threshold, false);
        }
        let positive_whole = flags & flag::POSITIVE_WHOLE != 0;
        push_side(out, &self.positive_spans, &self.positive_buckets, positive_whole);
        if flags & flag::NEGATIVE != 0 {
            let negative_whole = flags & flag::NEGATIVE_WHOLE != 0;
            push_side(out, &self.negative_spans, &self.negative_buckets, negative_whole);
        }
        if flags & flag::CUSTOM != 0 {
            self.push_custom_values(out, flags & flag::CUSTOM_THOUSANDTHS != 0);
        }
    }

    /// Decodes the bytes of [`Self::to_bytes`].
    ///
    /// Every operation on the result is free of panics, because the spans are checked against the buckets.
    /// The other rules of [`Self::validate`], such as rising bounds, are not checked; the writer checked them
    /// before storing. Allocates at most eight times the length of `bytes`.
    ///
    /// # Errors
    ///
    /// Returns [`CodecError::Version`] for another format version, [`CodecError::Short`] for truncated bytes,
    /// [`CodecError::Rest`] for trailing bytes, [`CodecError::TooMany`] for a list longer than
    /// [`BUCKETS_MAX`], [`CodecError::Layout`] if spans and buckets do not fit, and [`CodecError::Bad`] for
    /// any other invalid field.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, CodecError> {
        let mut reader = Reader(bytes);
        let version = reader.byte("version")?;
        if version != VERSION {
            return Err(CodecError::Version(version));
        }
        let flags = reader.varint("flags")?;
        let has = |bit: u64| flags & bit != 0;
        if flags & !flag::ALL != 0 || (has(flag::ZERO_THRESHOLD_RAW) && has(flag::ZERO_THRESHOLD_USUAL)) {
            return Err(CodecError::Bad("form"));
        }
        let schema = reader.schema()?;
        let count = reader.number(has(flag::COUNT_WHOLE), "count")?;
        let sum = reader.number(has(flag::SUM_WHOLE), "sum")?;
        let zero_count = reader.number(has(flag::ZERO_COUNT_WHOLE), "zero count")?;
        let zero_threshold = match (has(flag::ZERO_THRESHOLD_RAW), has(flag::ZERO_THRESHOLD_USUAL)) {
            (true, _) => reader.number(false, "zero threshold")?,
            (false, true) => USUAL_ZERO_THRESHOLD,
            (false, false) => 0.0,
        };
        let (positive_spans, positive_buckets) = reader.side(has(flag::POSITIVE_WHOLE))?;
        let (negative_spans, negative_buckets) = match has(flag::NEGATIVE) {
            true => reader.side(has(flag::NEGATIVE_WHOLE))?,
            false => Default::default(),
        };
        let custom_values = match has(flag::CUSTOM) {
            true => reader.custom_values(has(flag::CUSTOM_THOUSANDTHS))?,
            false => Vec::new(),
        };
        if !reader.0.is_empty() {
            return Err(CodecError::Rest(reader.0.len()));
        }
        Ok(Self {
            reset_hint: hint_of(flags & flag::HINT),
            schema,
            zero_threshold,
            zero_count,
            count,
            sum,
            positive_spans,
            negative_spans,
            positive_buckets,
            negative_buckets,
            custom_values,
        })
    }

    fn flags(&self) -> u64 {
        let mut flags = self.reset_hint as u64;
        let mut set = |condition: bool, bit: u64| flags |= if condition { bit } else { 0 };
        set(whole(self.count).is_some(), flag::COUNT_WHOLE);
        set(whole(self.zero_count).is_some(), flag::ZERO_COUNT_WHOLE);
        set(whole(self.sum).is_some(), flag::SUM_WHOLE);
        set(all_whole(&self.positive_buckets), flag::POSITIVE_WHOLE);
        let has_negative = !self.negative_spans.is_empty() || !self.negative_buckets.is_empty();
        set(has_negative, flag::NEGATIVE);
        set(
            has_negative && all_whole(&self.negative_buckets),
            flag::NEGATIVE_WHOLE,
        );
        let threshold = self.zero_threshold.to_bits();
        let is_usual = threshold == USUAL_ZERO_THRESHOLD.to_bits();
        set(is_usual, flag::ZERO_THRESHOLD_USUAL);
        set(!is_usual && threshold != 0, flag::ZERO_THRESHOLD_RAW);
        set(!self.custom_values.is_empty(), flag::CUSTOM);
        let in_thousandths = self
            .custom_values
            .iter()
            .all(|value| thousandths(*value).is_some());
        set(
            !self.custom_values.is_empty() && in_thousandths,
            flag::CUSTOM_THOUSANDTHS,
        );
        flags
    }

    fn push_custom_values(&self, out: &mut Vec<u8>, in_thousandths: bool) {
        varint::put(self.custom_values.len() as u64, out);
        let mut before = 0;
        for value in &self.custom_values {
            match thousandths(*value) {
                Some(all) if in_thousandths => {
                    push_signed(out, all - before);
                    before = all;
                }
                _ => push_number(out, *value, false),
            }
        }
    }
}

fn hint_of(bits: u64) -> ResetHint {
    match bits {
        1 => ResetHint::Reset,
        2 => ResetHint::NotReset,
        3 => ResetHint::Gauge,
        _ => ResetHint::Unknown,
    }
}

/// Converts to an integer; `None` if the integer does not restore the double bit for bit.
fn whole(value: f64) -> Option<i64> {
    // Saturated or truncated values and the negative zero do not convert back to the same bits.
    let whole = value as i64;
    (whole.unsigned_abs() < WHOLE_MAX.unsigned_abs() && (whole as f64).to_bits() == value.to_bits())
        .then_some(whole)
}

fn all_whole(values: &[f64]) -> bool {
    values.iter().all(|value| whole(*value).is_some())
}

/// Converts to thousandths, for example 0.005 to 5; `None` if they do not restore the double bit for bit.
fn thousandths(value: f64) -> Option<i64> {
    let all = whole((value * 1000.0).round())?;
    (of_thousandths(all).to_bits() == value.to_bits()).then_some(all)
}

fn of_thousandths(all: i64) -> f64 {
    all as f64 / 1000.0
}

fn push_signed(out: &mut Vec<u8>, value: i64) {
    varint::put(zigzag(value), out);
}

fn push_number(out: &mut Vec<u8>, value: f64, is_whole: bool) {
    match whole(value) {
        Some(value) if is_whole => push_signed(out, value),
        _ => out.extend_from_slice(&value.to_bits().to_le_bytes()),
    }
}

fn push_side(out: &mut Vec<u8>, spans: &[Span], buckets: &[f64], is_whole: bool) {
    varint::put(spans.len() as u64, out);
    for span in spans {
        push_signed(out, i64::from(span.offset));
        varint::put(u64::from(span.length), out);
    }
    varint::put(buckets.len() as u64, out);
    let mut before = 0;
    for value in buckets {
        match whole(*value) {
            Some(value) if is_whole => {
                push_signed(out, value - before);
                before = value;
            }
            _ => push_number(out, *value, false),
        }
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn byte(&mut self, part: &'static str) -> Result<u8, CodecError> {
        let (first, rest) = self.0.split_first().ok_or(CodecError::Short(part))?;
        self.0 = rest;
        Ok(*first)
    }

    fn varint(&mut self, part: &'static str) -> Result<u64, CodecError> {
        let before = self.0.len();
        let value = varint::take(&mut self.0).map_err(|error| match error {
            VarintError::CutOff => CodecError::Short(part),
            VarintError::TooLong => CodecError::Bad(part),
        })?;
        // Each integer has a single valid encoding: the shortest varint.
        match before - self.0.len() == varint::len(value) {
            true => Ok(value),
            false => Err(CodecError::Bad(part)),
        }
    }

    fn signed(&mut self, part: &'static str) -> Result<i64, CodecError> {
        self.varint(part).map(unzigzag)
    }

    fn schema(&mut self) -> Result<i32, CodecError> {
        match i32::try_from(self.signed("schema")?) {
            Ok(schema @ (CUSTOM_BUCKETS_SCHEMA | SCHEMA_MIN..=SCHEMA_MAX)) => Ok(schema),
            _ => Err(CodecError::Bad("schema")),
        }
    }

    fn number(&mut self, is_whole: bool, part: &'static str) -> Result<f64, CodecError> {
        if is_whole {
            return whole_of(self.signed(part)?, part).map(|value| value as f64);
        }
        let (bits, rest) = self.0.split_first_chunk().ok_or(CodecError::Short(part))?;
        self.0 = rest;
        Ok(f64::from_bits(u64::from_le_bytes(*bits)))
    }

    /// Reads the length of a list whose items take at least `item_bytes` bytes each.
    fn length(&mut self, part: &'static str, item_bytes: usize) -> Result<usize, CodecError> {
        let found = self.varint(part)?;
        if found > BUCKETS_MAX as u64 {
            return Err(CodecError::TooMany { part, found });
        }
        let length = found as usize;
        if length * item_bytes > self.0.len() {
            return Err(CodecError::Short(part));
        }
        Ok(length)
    }

    fn side(&mut self, is_whole: bool) -> Result<(Vec<Span>, Vec<f64>), CodecError> {
        let length = self.length("spans", 2)?;
        let mut spans = Vec::with_capacity(length);
        for _ in 0..length {
            let offset = i32::try_from(self.signed("span")?).map_err(|_| CodecError::Bad("span"))?;
            let length = u32::try_from(self.varint("span")?).map_err(|_| CodecError::Bad("span"))?;
            spans.push(Span { offset, length });
        }
        let length = self.length("buckets", if is_whole { 1 } else { 8 })?;
        check_layout(&spans, length)?;
        let mut buckets = Vec::with_capacity(length);
        let mut before = 0;
        for _ in 0..length {
            if is_whole {
                before = self.after(before, "bucket")?;
                buckets.push(before as f64);
            } else {
                buckets.push(self.number(false, "bucket")?);
            }
        }
        Ok((spans, buckets))
    }

    fn custom_values(&mut self, in_thousandths: bool) -> Result<Vec<f64>, CodecError> {
        let length = self.length("bounds", if in_thousandths { 1 } else { 8 })?;
        let mut values = Vec::with_capacity(length);
        let mut before = 0;
        for _ in 0..length {
            if in_thousandths {
                before = self.after(before, "bound")?;
                values.push(of_thousandths(before));
            } else {
                values.push(self.number(false, "bound")?);
            }
        }
        Ok(values)
    }

    /// Reads the difference from the previous whole number and returns the new number.
    fn after(&mut self, before: i64, part: &'static str) -> Result<i64, CodecError> {
        let difference = self.signed(part)?;
        let value = before.checked_add(difference).ok_or(CodecError::Bad(part))?;
        whole_of(value, part)
    }
}

fn whole_of(value: i64, part: &'static str) -> Result<i64, CodecError> {
    match value.unsigned_abs() < WHOLE_MAX.unsigned_abs() {
        true => Ok(value),
        false => Err(CodecError::Bad(part)),
    }
}

//! Encodes entropy-coded integers.
//!
//! 1. The residuals are offsets from the first value or differences of neighbors, whichever take fewer bits in a
//!    sample. The residuals are divided by their greatest common divisor.
//! 2. Residuals are grouped in bins ([`Alphabet`]), whose frequencies determine the counts of a code.
//! 3. The code of each frame is computed from the last residual to the first. Its bits are then written from the
//!    first to the last, each step followed by the extra bits of its residual.

use std::ops::Range;

use super::bins::{Alphabet, SAMPLE};
use super::coded::{DIFFERENCES, FRAME, LOG_MIN};
use super::packed::PackedEncoder;
use super::{CODED, PackedInt};
use crate::bitpack::bits;
use crate::entropy::{EncodeTable, LOG_MAX, Step, scale};
use crate::packed_array::PackedArray;
use crate::wire::put_varint;

/// Approximate size of a column in bytes, without bins, frames and residuals.
const HEAD_BYTES: usize = 16;
/// Approximate size of a bin in bytes.
const BIN_BYTES: usize = 2;
/// Approximate size of a frame in bytes, without its residuals.
const FRAME_BYTES: usize = 6;

/// Encoder of entropy-coded columns with reusable buffers.
#[derive(Debug, Default)]
pub(super) struct CodedEncoder {
    is_differences: bool,
    /// Greatest common divisor of all residuals.
    scale: u64,
    /// Residuals of all values except the first of each frame, divided by `scale`.
    residuals: Vec<i64>,
    alphabet: Alphabet,
    counts: Vec<u16>,
    log: usize,
    table: EncodeTable,
    steps: Vec<Step>,
    packed: PackedEncoder,
    payload: Vec<u8>,
    lengths: Vec<i64>,
    column: Vec<i64>,
}

impl CodedEncoder {
    /// Prepares the code for `values`, and returns the approximate encoded size in bytes; `usize::MAX` if the values
    /// cannot be coded.
    pub(super) fn plan<T: PackedInt>(&mut self, values: &[T]) -> usize {
        let mut sample = self.sample(values);
        self.fill(values);
        self.divide(&mut sample);
        if !self.alphabet.choose(&self.residuals, &mut sample) {
            return usize::MAX;
        }
        let bins = &self.alphabet.bins;
        self.log = match bins.len() {
            0 => return usize::MAX,
            1 => 0,
            count => (bits(values.len() as u64).saturating_sub(3))
                .max(bits(count as u64) + 1)
                .clamp(LOG_MIN, LOG_MAX),
        };
        scale(&self.alphabet.frequencies, self.log, &mut self.counts);
        let widths = bins
            .iter()
            .zip(&self.counts)
            .map(|(bin, count)| f64::from(bin.extra) + self.log as f64 - f64::from(*count).log2());
        let frequencies = self.alphabet.frequencies.iter();
        let residual_bits: f64 = widths
            .zip(frequencies)
            .map(|(width, frequency)| width * f64::from(*frequency))
            .sum();
        (residual_bits / 8.0) as usize
            + HEAD_BYTES
            + BIN_BYTES * bins.len()
            + FRAME_BYTES * values.len().div_ceil(FRAME)
    }

    /// Appends `values`, which must be those passed to [`CodedEncoder::plan`].
    pub(super) fn write<T: PackedInt>(&mut self, values: &[T], out: &mut Vec<u8>) {
        self.table.build(&self.counts, self.log);
        self.payload.clear();
        self.lengths.clear();
        let mut start = 0;
        for frame in values.chunks(FRAME) {
            let end = start + frame.len() - 1;
            let before = self.payload.len();
            self.put_frame(start..end);
            self.lengths.push((self.payload.len() - before) as i64);
            start = end;
        }
        out.push(CODED);
        out.push(self.log as u8 | if self.is_differences { DIFFERENCES } else { 0 });
        put_varint(self.scale, out);
        PackedArray::encode(values.chunks(FRAME).map(|frame| frame[0].into_packed()), out);
        PackedArray::encode(self.lengths.iter().copied(), out);
        let bins = &self.alphabet.bins;
        put_varint(bins.len() as u64, out);
        self.column.clear();
        self.column.extend(bins.iter().map(|bin| bin.lower));
        self.packed.encode(&self.column, out);
        self.column.clear();
        self.column.extend(bins.iter().map(|bin| i64::from(bin.extra)));
        self.packed.encode(&self.column, out);
        self.column.clear();
        self.column
            .extend(self.counts.iter().map(|count| i64::from(*count)));
        self.packed.encode(&self.column, out);
        out.extend_from_slice(&self.payload);
    }

    /// Chooses between offsets and differences as residuals, and returns a sample of the chosen residuals.
    fn sample<T: PackedInt>(&mut self, values: &[T]) -> [i64; SAMPLE] {
        let offset_of = |index: usize| 1 + index * (values.len() - 1) / SAMPLE;
        let value = |row: usize| values[row].into_packed();
        let offsets = std::array::from_fn(|index| value(offset_of(index)).wrapping_sub(value(0)));
        let differences =
            std::array::from_fn(|index| value(offset_of(index)).wrapping_sub(value(offset_of(index) - 1)));
        self.is_differences = spread(differences) <= spread(offsets);
        if self.is_differences { differences } else { offsets }
    }

    fn fill<T: PackedInt>(&mut self, values: &[T]) {
        self.residuals.clear();
        let first = values[0].into_packed();
        for frame in values.chunks(FRAME) {
            let later = frame[1..].iter().map(|value| value.into_packed());
            if self.is_differences {
                let before = frame.iter().map(|value| value.into_packed());
                self.residuals.extend(
                    later
                        .zip(before)
                        .map(|(value, before)| value.wrapping_sub(before)),
                );
            } else {
                self.residuals
                    .extend(later.map(|value| value.wrapping_sub(first)));
            }
        }
    }

    /// Divides all residuals by their greatest common divisor.
    fn divide(&mut self, sample: &mut [i64]) {
        self.scale = 0;
        for residual in &self.residuals {
            self.scale = greatest_common_divisor(self.scale, residual.unsigned_abs());
            if self.scale == 1 {
                return;
            }
        }
        self.scale = self.scale.max(1);
        let scale = self.scale as i64;
        if scale != 1 {
            for residual in self.residuals.iter_mut().chain(sample) {
                *residual /= scale;
            }
        }
    }

    fn put_frame(&mut self, range: Range<usize>) {
        let symbols = &self.alphabet.symbols[range.clone()];
        let mut states = [self.table.start(); 2];
        self.steps.clear();
        for (index, symbol) in symbols.iter().enumerate().rev() {
            let state = &mut states[index % 2];
            self.steps.push(self.table.step(state, usize::from(*symbol)));
        }
        let mut bits = BitWriter::new(&mut self.payload);
        for state in states {
            bits.put(self.table.slot(state), self.log);
        }
        let bins = &self.alphabet.bins;
        let steps = self.steps.iter().rev();
        if bins.iter().all(|bin| bin.extra == 0) {
            steps.for_each(|step| bits.put(step.bits(), step.width()));
        } else {
            let residuals = symbols.iter().zip(&self.residuals[range]);
            for (step, (symbol, residual)) in steps.zip(residuals) {
                bits.put(step.bits(), step.width());
                let bin = &bins[usize::from(*symbol)];
                let above = residual.wrapping_sub(bin.lower) as u64;
                let low = usize::from(bin.extra).min(32);
                bits.put(above & u64::from(u32::MAX), low);
                bits.put(above >> 32, usize::from(bin.extra) - low);
            }
        }
        bits.finish();
    }
}

/// Returns the total number of bits of the distances between the sampled residuals and their median.
fn spread(mut sample: [i64; SAMPLE]) -> usize {
    sample.sort_unstable();
    let middle = sample[SAMPLE / 2];
    let distances = sample
        .iter()
        .map(|member| member.wrapping_sub(middle).unsigned_abs());
    distances.map(bits).sum()
}

fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Writer of bits, lowest bit first.
struct BitWriter<'a> {
    out: &'a mut Vec<u8>,
    word: u64,
    /// Number of bits in `word`, less than 32.
    filled: usize,
}

impl<'a> BitWriter<'a> {
    fn new(out: &'a mut Vec<u8>) -> Self {
        Self {
            out,
            word: 0,
            filled: 0,
        }
    }

    /// Appends the low `width` bits of `bits`; all higher bits must be zero. `width` is at most 32.
    fn put(&mut self, bits: u64, width: usize) {
        self.word |= bits << self.filled;
        self.filled += width;
        if self.filled >= 32 {
            self.out.extend_from_slice(&(self.word as u32).to_le_bytes());
            self.word >>= 32;
            self.filled -= 32;
        }
    }

    /// Appends the remaining bits, and pads the last byte with zeros.
    fn finish(self) {
        let bytes = self.word.to_le_bytes();
        self.out.extend_from_slice(&bytes[..self.filled.div_ceil(8)]);
    }
}

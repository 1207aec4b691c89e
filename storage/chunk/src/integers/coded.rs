//! Decodes entropy-coded integers: frames of 2,048 values that are decoded from their start.
//!
//! Two decoders alternate within a frame. Each step depends only on the previous step of the same decoder, so the CPU
//! can overlap the steps of both decoders. Bins and counts are small and are parsed again for each read, so an open
//! view allocates nothing.

use std::ops::Range;

use super::bins::{BINS_MAX, Bin};
use super::packed::Packed;
use crate::bitpack::{BLOCK, read_bits};
use crate::entropy::{DecodeTable, LOG_MAX, SLOTS_MAX, Slot, build_decode_table};
use crate::packed_array::PackedArray;
use crate::wire::{Damaged, Reader};

/// Number of values in a full frame, and thus the maximum number of values to decode for reading one value. Each frame
/// adds about six bytes.
pub(super) const FRAME: usize = 2_048;

/// Flag in the byte after the form byte: the residuals are differences. The low four bits of that byte hold the log,
/// which is the binary logarithm of the number of table slots.
pub(super) const DIFFERENCES: u8 = 0x10;
const LOG: u8 = 0x0f;

/// Minimum log of a table with more than one slot; see [`DIFFERENCES`]. Smaller tables cannot spread the slots of the
/// bins.
pub(super) const LOG_MIN: usize = 5;

/// Minimum number of valid bits in a word that is loaded at any bit offset.
const WORD_BITS: usize = 57;

/// View of a stored column. Opening it checks every length, so reading cannot fail.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Coded<'a> {
    count: usize,
    is_differences: bool,
    log: usize,
    /// Common divisor of the residuals.
    scale: i64,
    /// First value of each frame; `lengths` holds the size of each frame in bytes.
    firsts: PackedArray<'a>,
    lengths: PackedArray<'a>,
    /// Positioned at the bins.
    bins: Reader<'a>,
    payload: &'a [u8],
}

/// Bins of a column, and the number of table slots of each bin.
struct Bins {
    bins: [Bin; BINS_MAX],
    counts: [u16; BINS_MAX],
    len: usize,
}

/// Tables for decoding residuals.
struct Code {
    bins: Bins,
    table: DecodeTable,
    /// True if no bin has extra bits and all residuals fit 32 bits. A slot then holds the residual itself.
    is_narrow: bool,
}

impl<'a> Coded<'a> {
    /// Opens the column of `count` values whose form byte has already been read.
    pub(super) fn open(reader: &mut Reader<'a>, count: usize) -> Result<Self, Damaged> {
        if count == 0 {
            return Err(Damaged("empty column has frames"));
        }
        let flags = reader.byte()?;
        let log = usize::from(flags & LOG);
        if flags & !(LOG | DIFFERENCES) != 0 || !(log == 0 || (LOG_MIN..=LOG_MAX).contains(&log)) {
            return Err(Damaged("unknown flags of coded integers"));
        }
        let scale = reader.varint()? as i64;
        let frames = count.div_ceil(FRAME);
        let firsts = PackedArray::open(reader, frames)?;
        let lengths = PackedArray::open(reader, frames)?;
        let bins = *reader;
        let counts = Bins::read(reader)?.counts;
        if counts.iter().map(|count| usize::from(*count)).sum::<usize>() != 1 << log {
            return Err(Damaged("counts of a code do not fill its table"));
        }
        let mut length = 0usize;
        for frame in 0..frames {
            length = usize::try_from(lengths.get(frame))
                .ok()
                .and_then(|bytes| length.checked_add(bytes))
                .ok_or(Damaged("invalid frame length"))?;
        }
        Ok(Self {
            count,
            is_differences: flags & DIFFERENCES != 0,
            log,
            scale,
            firsts,
            lengths,
            bins,
            payload: reader.take_padded(length)?,
        })
    }

    /// Returns the number of values.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Returns the first values of the frames, and the number of values in a full frame.
    pub(super) fn heads(&self) -> (PackedArray<'a>, usize) {
        (self.firsts, FRAME)
    }

    /// Calls `visit` with the values of `rows`, block by block in order. `rows` must be within the column.
    pub(super) fn for_each_block(&self, rows: Range<usize>, mut visit: impl FnMut(&[i64])) {
        if rows.is_empty() {
            return;
        }
        if rows.len() == 1 && rows.start.is_multiple_of(FRAME) {
            visit(&[self.firsts.get(rows.start / FRAME)]);
            return;
        }
        // The bins were validated when the column was opened.
        let Ok(bins) = Bins::read(&mut self.bins.clone()) else {
            return;
        };
        let code = Code::new(bins, self.log);
        let frames = rows.start / FRAME..rows.end.div_ceil(FRAME);
        let mut offset: usize = (0..frames.start).map(|frame| self.frame_bytes(frame)).sum();
        let mut block = [0; BLOCK];
        for index in frames {
            let mut frame = Frame::open(&self.payload[offset..], self.log);
            offset += self.frame_bytes(index);
            let start = index * FRAME;
            let wanted = rows.start.max(start)..rows.end.min(start + FRAME);
            for at in (start..wanted.end).step_by(BLOCK) {
                let values = &mut block[..BLOCK.min(self.count - at)];
                self.decode_block(index, at == start, &code, &mut frame, values);
                if at + values.len() > wanted.start {
                    let end = values.len().min(wanted.end - at);
                    visit(&values[wanted.start.saturating_sub(at)..end]);
                }
            }
        }
    }

    fn frame_bytes(&self, frame: usize) -> usize {
        self.lengths.get(frame) as usize
    }

    /// Decodes the next values of a frame.
    fn decode_block(
        &self,
        index: usize,
        is_first: bool,
        code: &Code,
        frame: &mut Frame<'_>,
        out: &mut [i64],
    ) {
        // The first value of a frame is stored in `firsts`, not in the coded payload.
        let coded = &mut out[usize::from(is_first)..];
        match (code.is_narrow, self.is_differences) {
            (true, true) => frame.narrow::<true>(code, coded),
            (true, false) => frame.narrow::<false>(code, coded),
            (false, true) => frame.wide::<true>(code, coded),
            (false, false) => frame.wide::<false>(code, coded),
        }
        let first = self.firsts.get(if self.is_differences { index } else { 0 });
        if self.scale == 1 {
            out.iter_mut()
                .for_each(|value| *value = value.wrapping_add(first));
        } else {
            out.iter_mut()
                .for_each(|value| *value = value.wrapping_mul(self.scale).wrapping_add(first));
        }
        if is_first {
            out[0] = self.firsts.get(index);
        }
    }
}

impl Bins {
    /// Reads the bins: lowest residuals, extra bits and counts.
    fn read(reader: &mut Reader<'_>) -> Result<Self, Damaged> {
        let len = reader.count(BINS_MAX)?;
        let mut this = Self {
            bins: [Bin::default(); BINS_MAX],
            counts: [0; BINS_MAX],
            len,
        };
        let mut is_whole = true;
        let mut bins = this.bins.iter_mut();
        Packed::open(reader, len)?.for_each_block(0..len, |lowers| {
            for (lower, bin) in lowers.iter().zip(&mut bins) {
                bin.lower = *lower;
            }
        });
        let mut bins = this.bins.iter_mut();
        Packed::open(reader, len)?.for_each_block(0..len, |extras| {
            for (extra, bin) in extras.iter().zip(&mut bins) {
                is_whole &= (0..=64).contains(extra);
                bin.extra = *extra as u8;
            }
        });
        let mut counts = this.counts.iter_mut();
        Packed::open(reader, len)?.for_each_block(0..len, |stored| {
            for (stored, count) in stored.iter().zip(&mut counts) {
                is_whole &= (1..=SLOTS_MAX as i64).contains(stored);
                *count = *stored as u16;
            }
        });
        if is_whole {
            Ok(this)
        } else {
            Err(Damaged("bin out of bounds"))
        }
    }
}

impl Code {
    fn new(bins: Bins, log: usize) -> Self {
        let used = &bins.bins[..bins.len];
        let is_narrow = used
            .iter()
            .all(|bin| bin.extra == 0 && i32::try_from(bin.lower).is_ok());
        let mut table = [Slot::default(); SLOTS_MAX];
        let counts = bins.counts[..bins.len].iter().map(|count| usize::from(*count));
        let stands_for = |symbol: usize| {
            let bin = used[symbol];
            let value = if is_narrow {
                bin.lower as i32
            } else {
                symbol as i32
            };
            (value, bin.extra)
        };
        build_decode_table(counts, log, stands_for, &mut table);
        Self {
            bins,
            table,
            is_narrow,
        }
    }
}

/// Decoding state of two alternating decoders within a frame.
struct Frame<'a> {
    bytes: &'a [u8],
    /// Position of the next bit.
    at: usize,
    /// Current slots of the two decoders. The first decoder makes the next step.
    slots: [usize; 2],
    /// Sum of all residuals so far, if they are differences.
    sum: i64,
}

impl<'a> Frame<'a> {
    fn open(bytes: &'a [u8], log: usize) -> Self {
        let slot = |index: usize| read_bits(bytes, index * log, log) as usize;
        Self {
            bytes,
            at: 2 * log,
            slots: [slot(0), slot(1)],
            sum: 0,
        }
    }

    /// Decodes residuals without extra bits. If `SUM` is set, the residuals are differences and are summed up.
    fn narrow<const SUM: bool>(&mut self, code: &Code, out: &mut [i64]) {
        let (mut at, mut sum, mut slots) = (self.at, self.sum, self.slots);
        let mut step = |word: &mut u64, slot: &mut usize| {
            let entry = code.table[*slot % SLOTS_MAX];
            *slot = usize::from(entry.next) + (*word & ((1 << entry.bits) - 1)) as usize;
            *word >>= entry.bits;
            let residual = i64::from(entry.value);
            sum = if SUM { sum.wrapping_add(residual) } else { residual };
            (sum, usize::from(entry.bits))
        };
        // The bits of four steps fit into one word.
        let (fours, rest) = out.as_chunks_mut::<4>();
        for four in fours {
            let mut word = load(self.bytes, at);
            for pair in four.as_chunks_mut::<2>().0 {
                let (value, bits) = step(&mut word, &mut slots[0]);
                pair[0] = value;
                at += bits;
                let (value, bits) = step(&mut word, &mut slots[1]);
                pair[1] = value;
                at += bits;
            }
        }
        for out in rest {
            let (value, bits) = step(&mut load(self.bytes, at), &mut slots[0]);
            *out = value;
            at += bits;
            slots.swap(0, 1);
        }
        (self.at, self.sum, self.slots) = (at, sum, slots);
    }

    /// Decodes residuals with extra bits; see [`Frame::narrow`].
    fn wide<const SUM: bool>(&mut self, code: &Code, out: &mut [i64]) {
        let (mut at, mut sum, mut slots) = (self.at, self.sum, self.slots);
        for out in out {
            let entry = code.table[slots[0] % SLOTS_MAX];
            let word = load(self.bytes, at);
            slots = [
                slots[1],
                usize::from(entry.next) + (word & ((1 << entry.bits) - 1)) as usize,
            ];
            at += usize::from(entry.bits);
            let extra = usize::from(entry.extra);
            let above = if extra <= WORD_BITS - LOG_MAX {
                (word >> entry.bits) & ((1 << extra) - 1)
            } else {
                read_bits(self.bytes, at, extra)
            };
            at += extra;
            let bin = code.bins.bins[entry.value as usize % BINS_MAX];
            let residual = bin.lower.wrapping_add(above as i64);
            sum = if SUM { sum.wrapping_add(residual) } else { residual };
            *out = sum;
        }
        (self.at, self.sum, self.slots) = (at, sum, slots);
    }
}

/// Returns at least [`WORD_BITS`] bits from bit `at`. Bits after the end of `bytes` are 0.
fn load(bytes: &[u8], at: usize) -> u64 {
    match bytes.get(at / 8..).and_then(|rest| rest.first_chunk::<8>()) {
        Some(word) => u64::from_le_bytes(*word) >> (at % 8),
        None => read_bits(bytes, at, WORD_BITS),
    }
}

//! Bit-packed integers: the encodings `DELTA_BINARY_PACKED` and `RLE` of Parquet.

use tideline_wire::varint::{self, zigzag};

/// Number of differences in a block. A block is divided into miniblocks, each with its own bit width.
const BLOCK: usize = 128;
const MINIBLOCK: usize = 32;

/// Returns the number of bits of a number.
pub(super) const fn width_of(number: u64) -> u32 {
    u64::BITS - number.leading_zeros()
}

/// Appends numbers of at most `width` bits, lowest bits first. Bits up to the next byte are 0.
fn put_bits(numbers: impl Iterator<Item = u64>, width: u32, out: &mut Vec<u8>) {
    let (mut bits, mut filled) = (0_u128, 0);
    for number in numbers {
        bits |= u128::from(number) << filled;
        filled += width;
        if filled >= u64::BITS {
            out.extend_from_slice(&(bits as u64).to_le_bytes());
            bits >>= u64::BITS;
            filled -= u64::BITS;
        }
    }
    out.extend_from_slice(&bits.to_le_bytes()[..filled.div_ceil(8) as usize]);
}

/// Appends integers as differences in `DELTA_BINARY_PACKED`.
pub(super) fn put_deltas(mut numbers: impl ExactSizeIterator<Item = i64>, out: &mut Vec<u8>) {
    varint::put(BLOCK as u64, out);
    varint::put((BLOCK / MINIBLOCK) as u64, out);
    varint::put(numbers.len() as u64, out);
    let mut before = numbers.next().unwrap_or_default();
    varint::put(zigzag(before), out);
    let mut block = [0; BLOCK];
    while numbers.len() > 0 {
        let mut count = 0;
        for (to, number) in block.iter_mut().zip(numbers.by_ref()) {
            *to = number.wrapping_sub(before);
            before = number;
            count += 1;
        }
        put_block(&block[..count], out);
    }
}

fn put_block(differences: &[i64], out: &mut Vec<u8>) {
    let least = differences.iter().copied().min().unwrap_or_default();
    varint::put(zigzag(least), out);
    let above = |difference: &i64| difference.wrapping_sub(least).cast_unsigned();
    let widths = out.len();
    out.extend_from_slice(&[0; BLOCK / MINIBLOCK]);
    for (at, part) in differences.chunks(MINIBLOCK).enumerate() {
        let width = width_of(part.iter().map(above).fold(0, |all, one| all | one));
        out[widths + at] = width as u8;
        let padding = std::iter::repeat_n(0, MINIBLOCK - part.len());
        put_bits(part.iter().map(above).chain(padding), width, out);
    }
}

/// Appends numbers as one bit-packed run of the hybrid encoding `RLE`.
pub(super) fn put_packed(numbers: impl ExactSizeIterator<Item = u64>, width: u32, out: &mut Vec<u8>) {
    let groups = numbers.len().div_ceil(8);
    varint::put((groups as u64) << 1 | 1, out);
    let padding = std::iter::repeat_n(0, groups * 8 - numbers.len());
    put_bits(numbers.chain(padding), width, out);
}

/// Appends one number of at most 8 bits, repeated `count` times, as a run of the hybrid encoding `RLE`.
pub(super) fn put_run(number: u8, count: usize, out: &mut Vec<u8>) {
    varint::put((count as u64) << 1, out);
    out.push(number);
}

/// Appends definition levels of 0 and 1, preceded by their length in bytes. Returns the number of zeros.
pub(super) fn put_levels(levels: &[i16], out: &mut Vec<u8>) -> u64 {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    let nulls = levels.iter().filter(|level| **level == 0).count();
    match nulls {
        0 => put_run(1, levels.len(), out),
        all if all == levels.len() => put_run(0, all, out),
        _ => put_packed(levels.iter().map(|level| u64::from(*level != 0)), 1, out),
    }
    let length = (out.len() - start - 4) as u32;
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
    nulls as u64
}

/// Appends booleans, one bit each.
pub(super) fn put_booleans(values: &[bool], out: &mut Vec<u8>) {
    put_bits(values.iter().map(|value| u64::from(*value)), 1, out);
}

//! Packs integers of equal width. Unpacking adds a base or computes prefix sums in the same pass.
//!
//! Value `i` of width `w` occupies bits `i·w .. (i+1)·w` of a little-endian bit string, so eight values fill exactly
//! `w` bytes. Every kernel is specialized by width and processes these groups of eight values. Offsets and shifts are
//! then constants, and unpacking a value costs one unaligned load, a shift and a mask.

/// Number of values in a full block.
pub(crate) const BLOCK: usize = 128;

/// Number of values that fill whole bytes at any width.
const GROUP: usize = 8;

/// Number of bytes after a group that its kernel may access.
const SLACK: usize = 8;

/// Values of one block.
pub(crate) type Block = [i64; BLOCK];

/// Returns the number of bits needed to hold `value`, 0 to 64.
pub(crate) fn bits(value: u64) -> usize {
    (u64::BITS - value.leading_zeros()) as usize
}

/// Returns the number of bytes that `count` values of `width` bits occupy.
pub(crate) fn packed_bytes(count: usize, width: usize) -> usize {
    (count * width).div_ceil(8)
}

/// Calls `$kernel::<WIDTH>(…)` for the run-time `$width` in 0..=64.
macro_rules! by_width {
    ($width:expr, $kernel:ident $args:tt) => {
        by_width!(@ $width, $kernel, $args,
            0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32
            33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64)
    };
    (@ $width:expr, $kernel:ident, $args:tt, $($w:literal)*) => {
        match $width {
            $($w => $kernel::<$w> $args,)*
            _ => unreachable!("a width was checked to be at most 64"),
        }
    };
}

/// Appends `value − base` for the first `count` values, with `width` bits each.
///
/// All differences must fit the width. Overwrites the slots after `count` in the last group of eight.
pub(crate) fn pack(block: &mut Block, count: usize, base: i64, width: usize, out: &mut Vec<u8>) {
    let groups = count.div_ceil(GROUP);
    block[count..groups * GROUP].fill(base);
    let start = out.len();
    out.resize(start + groups * width + SLACK, 0);
    let window = &mut out[start..];
    by_width!(width, pack_groups(block, groups, base, window));
    out.truncate(start + packed_bytes(count, width));
}

fn pack_groups<const W: usize>(block: &Block, groups: usize, base: i64, out: &mut [u8]) {
    let (eights, _) = block.as_chunks::<GROUP>();
    for (group, eight) in eights[..groups].iter().enumerate() {
        let mut words = [0u64; GROUP + 1];
        for (slot, value) in eight.iter().enumerate() {
            let (word, shift) = (slot * W / 64, slot * W % 64);
            let value = value.wrapping_sub(base) as u64;
            words[word] |= value << shift;
            if shift + W > 64 {
                words[word + 1] |= value >> (64 - shift);
            }
        }
        let window = &mut out[group * W..group * W + W + SLACK];
        for word in 0..W.div_ceil(8) {
            window[word * 8..word * 8 + 8].copy_from_slice(&words[word].to_le_bytes());
        }
    }
}

/// Unpacks `count` values of `width` bits and adds `base` to each.
///
/// `packed` starts with the [`packed_bytes`] of the values. Bytes after them may be read but do not affect the
/// result. Afterwards the slots of the block after `count` may hold arbitrary values.
pub(crate) fn unpack(packed: &[u8], count: usize, width: usize, base: i64, block: &mut Block) {
    with_slack(packed, count, width, |packed, groups| {
        by_width!(width, unpack_groups(packed, groups, base, block));
    });
}

/// Unpacks `count` differences of `width` bits, adds `base` to each, and computes their prefix sums. `first` is the
/// value of slot 0. The packed difference in slot 0 must be 0, so that the first sum is `first`.
pub(crate) fn unpack_deltas(
    packed: &[u8],
    count: usize,
    width: usize,
    base: i64,
    first: i64,
    block: &mut Block,
) {
    with_slack(packed, count, width, |packed, groups| {
        by_width!(width, unpack_delta_groups(packed, groups, base, first, block));
    });
}

/// Calls `kernel` with bytes that extend [`SLACK`] bytes past the last group. Copies the bytes only if `packed` is
/// too short.
fn with_slack(packed: &[u8], count: usize, width: usize, kernel: impl FnOnce(&[u8], usize)) {
    let groups = count.div_ceil(GROUP);
    if packed.len() >= groups * width + SLACK {
        kernel(packed, groups);
    } else {
        let mut copy = [0; BLOCK * 8 + SLACK];
        let length = packed_bytes(count, width);
        copy[..length].copy_from_slice(&packed[..length]);
        kernel(&copy, groups);
    }
}

/// Returns the value in `slot` of the group at the start of `window`.
#[inline(always)]
fn extract<const W: usize>(window: &[u8], slot: usize) -> u64 {
    let (byte, shift) = (slot * W / 8, slot * W % 8);
    let mut low = [0; 8];
    low.copy_from_slice(&window[byte..byte + 8]);
    let mut value = u64::from_le_bytes(low) >> shift;
    if shift + W > 64 {
        value |= u64::from(window[byte + 8]) << (64 - shift);
    }
    if W == 64 { value } else { value & ((1 << W) - 1) }
}

fn unpack_groups<const W: usize>(packed: &[u8], groups: usize, base: i64, block: &mut Block) {
    let (eights, _) = block.as_chunks_mut::<GROUP>();
    for (group, eight) in eights[..groups].iter_mut().enumerate() {
        let window = &packed[group * W..group * W + W + SLACK];
        for (slot, value) in eight.iter_mut().enumerate() {
            *value = base.wrapping_add(extract::<W>(window, slot) as i64);
        }
    }
}

fn unpack_delta_groups<const W: usize>(
    packed: &[u8],
    groups: usize,
    base: i64,
    first: i64,
    block: &mut Block,
) {
    let mut sum = first.wrapping_sub(base);
    let (eights, _) = block.as_chunks_mut::<GROUP>();
    for (group, eight) in eights[..groups].iter_mut().enumerate() {
        let window = &packed[group * W..group * W + W + SLACK];
        for (slot, value) in eight.iter_mut().enumerate() {
            sum = sum
                .wrapping_add(base)
                .wrapping_add(extract::<W>(window, slot) as i64);
            *value = sum;
        }
    }
}

/// Reads `width` bits (at most 64) that start at bit `at`. Bits after the end of `bytes` are read as 0.
pub(crate) fn read_bits(bytes: &[u8], at: usize, width: usize) -> u64 {
    if width == 0 {
        return 0;
    }
    let (byte, shift) = (at / 8, at % 8);
    let rest = bytes.get(byte..).unwrap_or_default();
    let mask = u64::MAX >> (64 - width);
    if let Some(low) = rest.first_chunk::<8>()
        && shift + width <= 64
    {
        return (u64::from_le_bytes(*low) >> shift) & mask;
    }
    let mut word = [0; 16];
    let length = rest.len().min(9);
    word[..length].copy_from_slice(&rest[..length]);
    (u128::from_le_bytes(word) >> shift) as u64 & mask
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walk(width: usize) -> Block {
        let mask = if width == 64 { u64::MAX } else { (1 << width) - 1 };
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        std::array::from_fn(|slot| {
            state = state
                .wrapping_mul(0x5851_f42d_4c95_7f2d)
                .wrapping_add(slot as u64);
            ((state ^ (state >> 29)) & mask) as i64
        })
    }

    #[test]
    fn every_width_and_count_reads_back() {
        for width in 0..=64 {
            for count in [1, 7, 8, 9, 28, 127, 128] {
                let base = -17;
                let values: Block = walk(width).map(|value| value.wrapping_add(base));
                let mut packed = Vec::new();
                pack(&mut values.clone(), count, base, width, &mut packed);
                assert_eq!(packed.len(), packed_bytes(count, width));
                for slack in [0, SLACK, 100] {
                    let mut bytes = packed.clone();
                    bytes.resize(packed.len() + slack, 0xff);
                    let mut block = [0; BLOCK];
                    unpack(&bytes, count, width, base, &mut block);
                    assert_eq!(block[..count], values[..count], "width {width}, count {count}");
                }
                for (slot, value) in values[..count].iter().enumerate() {
                    let read = read_bits(&packed, slot * width, width) as i64;
                    assert_eq!(read.wrapping_add(base), *value);
                }
            }
        }
    }

    #[test]
    fn differences_sum_up_from_the_first_value() {
        for width in 0..=64 {
            let (base, first) = (-3, i64::MAX - 1);
            let mut steps: Block = walk(width).map(|step| step.wrapping_add(base));
            steps[0] = base;
            let mut value = first.wrapping_sub(base);
            let values = steps.map(|step| {
                value = value.wrapping_add(step);
                value
            });
            let mut packed = Vec::new();
            pack(&mut steps, BLOCK, base, width, &mut packed);
            let mut block = [0; BLOCK];
            unpack_deltas(&packed, BLOCK, width, base, first, &mut block);
            assert_eq!(block, values, "width {width}");
        }
    }
}

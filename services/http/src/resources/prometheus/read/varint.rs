//! Numbers in as many bytes as they need, as Protocol Buffers have them.

/// Hands the bytes of a number to `put`: seven bits each, the lowest first, the highest bit set in all but the last.
pub(super) fn varint(mut value: u64, mut put: impl FnMut(u8)) {
    while value >= 0x80 {
        put(value as u8 | 0x80);
        value >>= 7;
    }
    put(value as u8);
}

/// How many bytes they are.
pub(super) fn varint_length(value: u64) -> usize {
    (64 - (value | 1).leading_zeros()).div_ceil(7) as usize
}

/// A signed number as one without sign: small where it is near zero.
pub(super) fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

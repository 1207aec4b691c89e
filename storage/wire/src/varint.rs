//! Variable-length integers (LEB128, as in Protocol Buffers) and zigzag codes.
//!
//! Each byte holds seven bits of the value, lowest bits first. The highest bit of a byte is set if another byte
//! follows:
//!
//! ```text
//! 300 = 0b10_0101100  →  1_0101100 0_0000010
//! ```
//!
//! Writers emit the shortest form. [`take`] and [`read`] reject values above 64 bits; [`take_wrapping`] drops the
//! excess bits, as Protocol Buffers require. All readers accept redundant trailing zero groups (`80 00` is 0). A format
//! that allows only the shortest form compares the number of bytes read with [`len`].

/// Length of the longest form, in bytes.
pub const BYTES_MAX: usize = 10;

/// Continuation bits of eight bytes.
const CONTINUES: u64 = 0x8080_8080_8080_8080;

/// Continuation bit of the last of eight bytes; it is clear if the varint ends there.
const LAST_ENDS: u64 = 1 << 63;

/// Error of decoding a varint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum VarintError {
    /// The bytes end before the varint does.
    #[error("varint cut off")]
    CutOff,
    /// The varint has more than [`BYTES_MAX`] bytes, or its value exceeds 64 bits and the function rejects such values.
    #[error("varint longer than 64 bits")]
    TooLong,
}

/// Appends `value` in 1 to 10 bytes.
#[inline]
pub fn put(value: u64, out: &mut Vec<u8>) {
    // Most values are short. The first two branches grow the buffer at most once.
    if value < 1 << 7 {
        out.push(value as u8);
    } else if value < 1 << 14 {
        out.extend_from_slice(&[value as u8 | 0x80, (value >> 7) as u8]);
    } else {
        write(value, |byte| out.push(byte));
    }
}

/// Passes the encoded bytes of `value` to `put` one by one; for outputs that are not a `Vec`.
#[inline]
pub fn write(mut value: u64, mut put: impl FnMut(u8)) {
    while value >= 0x80 {
        put(value as u8 | 0x80);
        value >>= 7;
    }
    put(value as u8);
}

/// Returns the number of bytes that [`put`] appends for `value`.
#[inline]
pub const fn len(value: u64) -> usize {
    (64 - (value | 1).leading_zeros()).div_ceil(7) as usize
}

/// Removes a varint from the front of `bytes` and returns its value. Rejects values above 64 bits.
///
/// # Errors
///
/// Returns [`VarintError::CutOff`] if `bytes` ends within the varint, and [`VarintError::TooLong`] if the varint has
/// more than [`BYTES_MAX`] bytes or its value exceeds 64 bits. `bytes` is then unchanged.
#[inline(always)]
pub fn take(bytes: &mut &[u8]) -> Result<u64, VarintError> {
    let (value, length) = read(bytes)?;
    *bytes = &bytes[length..];
    Ok(value)
}

/// Removes a varint from the front of `bytes` and returns its value without bits above the 64th.
///
/// # Errors
///
/// Returns [`VarintError::CutOff`] if `bytes` ends within the varint, and [`VarintError::TooLong`] if the varint has
/// more than [`BYTES_MAX`] bytes. `bytes` is then unchanged.
#[inline(always)]
pub fn take_wrapping(bytes: &mut &[u8]) -> Result<u64, VarintError> {
    let (value, length) = read_either::<false>(bytes)?;
    *bytes = &bytes[length..];
    Ok(value)
}

/// Returns the varint at the front of `bytes` and its length in bytes. Rejects values above 64 bits.
///
/// # Errors
///
/// Returns [`VarintError::CutOff`] if `bytes` ends within the varint, and [`VarintError::TooLong`] if the varint has
/// more than [`BYTES_MAX`] bytes or its value exceeds 64 bits.
#[inline(always)]
pub fn read(bytes: &[u8]) -> Result<(u64, usize), VarintError> {
    read_either::<true>(bytes)
}

/// Decodes one-byte forms inline. Forms of up to eight bytes are decoded from one word if eight bytes are available,
/// other forms byte by byte. If `IS_STRICT` is true, rejects values above 64 bits; otherwise drops the excess bits.
#[inline(always)]
fn read_either<const IS_STRICT: bool>(bytes: &[u8]) -> Result<(u64, usize), VarintError> {
    match *bytes {
        // Most lengths and differences take one byte.
        [first, ..] if first < 0x80 => Ok((u64::from(first), 1)),
        _ => read_long::<IS_STRICT>(bytes),
    }
}

#[inline]
fn read_long<const IS_STRICT: bool>(bytes: &[u8]) -> Result<(u64, usize), VarintError> {
    if let Some(head) = bytes.first_chunk::<8>() {
        let word = u64::from_le_bytes(*head);
        let ends = !word & CONTINUES;
        if ends != 0 {
            let bits = ends.trailing_zeros() + 1;
            return Ok((squeeze(word & (u64::MAX >> (64 - bits))), bits as usize / 8));
        }
    }
    read_any::<IS_STRICT>(bytes)
}

#[cold]
fn read_any<const IS_STRICT: bool>(bytes: &[u8]) -> Result<(u64, usize), VarintError> {
    let mut value = 0;
    for (at, byte) in bytes.iter().enumerate().take(BYTES_MAX) {
        let (group, shift) = (u64::from(byte & 0x7f), at * 7);
        if IS_STRICT && group << shift >> shift != group {
            return Err(VarintError::TooLong);
        }
        value |= group << shift;
        if *byte < 0x80 {
            return Ok((value, at + 1));
        }
    }
    Err(match bytes.len() < BYTES_MAX {
        true => VarintError::CutOff,
        false => VarintError::TooLong,
    })
}

/// Returns the value of a varint of exactly `bytes` bytes (1 to 8), stored in the lowest bytes of `word`; the other
/// bytes of `word` must be zero. Returns `None` if the varint has another length.
#[inline]
pub const fn filling(word: u64, bytes: u32) -> Option<u64> {
    let unused = 64 - 8 * bytes;
    let ends = !word & (CONTINUES >> unused);
    match ends == LAST_ENDS >> unused {
        true => Some(squeeze(word)),
        false => None,
    }
}

/// Packs the lower seven bits of each of eight bytes into 56 bits.
#[inline]
const fn squeeze(word: u64) -> u64 {
    let sevens = word & !CONTINUES;
    let fourteens = (sevens & 0x7f00_7f00_7f00_7f00) >> 1 | sevens & 0x007f_007f_007f_007f;
    let halves = (fourteens & 0x3fff_0000_3fff_0000) >> 2 | fourteens & 0x0000_3fff_0000_3fff;
    (halves & 0x0fff_ffff_0000_0000) >> 4 | halves & 0x0fff_ffff
}

/// Maps signed to unsigned integers so that small magnitudes get small codes: 0, −1, 1, −2 become 0, 1, 2, 3.
#[inline]
pub const fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// Reverses [`zigzag`].
#[inline]
pub const fn unzigzag(code: u64) -> i64 {
    (code >> 1) as i64 ^ -((code & 1) as i64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(value: u64) -> Vec<u8> {
        let mut out = Vec::new();
        put(value, &mut out);
        out
    }

    #[test]
    fn stored_forms_stay_as_they_are() {
        for (value, bytes) in [
            (0, &[0][..]),
            (1, &[1]),
            (127, &[0x7f]),
            (128, &[0x80, 1]),
            (300, &[0xac, 2]),
            (16_383, &[0xff, 0x7f]),
            (16_384, &[0x80, 0x80, 1]),
            (u64::from(u32::MAX), &[0xff, 0xff, 0xff, 0xff, 0x0f]),
            ((1 << 56) - 1, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]),
            (
                1 << 63,
                &[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1],
            ),
            (
                u64::MAX,
                &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1],
            ),
        ] {
            assert_eq!(written(value), bytes, "{value}");
            assert_eq!(len(value), bytes.len(), "{value}");
        }
        let signed = [0, -1, 1, -2, i64::MAX, i64::MIN];
        assert_eq!(signed.map(zigzag), [0, 1, 2, 3, u64::MAX - 1, u64::MAX]);
    }

    #[test]
    fn values_above_64_bits_are_refused_or_wrapped() {
        let mut bytes = [0xff; 11];
        assert_eq!(take(&mut &bytes[..]), Err(VarintError::TooLong));
        assert_eq!(take_wrapping(&mut &bytes[..]), Err(VarintError::TooLong));
        assert_eq!(take_wrapping(&mut &bytes[..10]), Err(VarintError::TooLong));
        bytes[9] = 0x03;
        let mut rest = &bytes[..];
        assert_eq!(take(&mut rest), Err(VarintError::TooLong));
        assert_eq!(rest, bytes, "an error takes nothing");
        assert_eq!(take_wrapping(&mut rest), Ok(u64::MAX));
        assert_eq!(rest, [0xff]);
        bytes[9] = 0x01;
        assert_eq!(take(&mut &bytes[..]), Ok(u64::MAX));
    }

    #[test]
    fn longer_forms_are_read_at_every_length() {
        for value in [0u64, 1, 0x55] {
            for more in 1..BYTES_MAX {
                let mut bytes = vec![0x80 | value as u8];
                bytes.resize(more, 0x80);
                bytes.push(0);
                for tail in [&[][..], &[0xff; 9]] {
                    let long = [&bytes[..], tail].concat();
                    let mut rest = &long[..];
                    assert_eq!((take(&mut rest), rest), (Ok(value), tail), "{long:?}");
                    let mut rest = &long[..];
                    assert_eq!((take_wrapping(&mut rest), rest), (Ok(value), tail), "{long:?}");
                }
            }
        }
    }

    /// Decodes a varint byte by byte, as a reference.
    fn reference(bytes: &[u8], is_strict: bool) -> Result<(u64, usize), VarintError> {
        let mut value = 0u128;
        for at in 0..BYTES_MAX {
            let byte = *bytes.get(at).ok_or(VarintError::CutOff)?;
            value |= u128::from(byte & 0x7f) << (7 * at);
            if is_strict && value > u128::from(u64::MAX) {
                return Err(VarintError::TooLong);
            }
            if byte < 0x80 {
                return Ok((value as u64, at + 1));
            }
        }
        Err(VarintError::TooLong)
    }

    proptest! {
        #![proptest_config(tideline_testkit::proptest_config(512))]

        #[test]
        fn values_read_back(value in any::<u64>(), bits in 0..64u32, tail in prop::collection::vec(any::<u8>(), 0..12)) {
            let value = value >> bits;
            let bytes = written(value);
            prop_assert_eq!(bytes.len(), len(value));
            let longer = [&bytes[..], &tail].concat();
            let (mut strict, mut wrapping) = (&longer[..], &longer[..]);
            prop_assert_eq!(take(&mut strict), Ok(value));
            prop_assert_eq!(take_wrapping(&mut wrapping), Ok(value));
            prop_assert_eq!(read(&longer), Ok((value, bytes.len())));
            prop_assert_eq!(strict, &tail[..]);
            prop_assert_eq!(wrapping, &tail[..]);
            for end in 0..bytes.len() {
                prop_assert_eq!(take(&mut &bytes[..end]), Err(VarintError::CutOff));
            }
            if bytes.len() <= 8 {
                let mut word = [0; 8];
                word[..bytes.len()].copy_from_slice(&bytes);
                let word = u64::from_le_bytes(word);
                for filled in 1..=8 {
                    let is_filled = filled as usize == bytes.len();
                    let low = word & (u64::MAX >> (64 - 8 * filled));
                    prop_assert_eq!(filling(low, filled), is_filled.then_some(value));
                }
            }
            prop_assert_eq!(zigzag(unzigzag(value)), value);
        }

        #[test]
        fn any_bytes_are_read_as_defined(
            bytes in prop::collection::vec(prop_oneof![any::<u8>(), Just(0x80), Just(0xff), 0..4u8], 0..16),
        ) {
            for is_strict in [false, true] {
                let mut rest = &bytes[..];
                let found = match is_strict {
                    true => take(&mut rest),
                    false => take_wrapping(&mut rest),
                };
                let taken = bytes.len() - rest.len();
                let expected = reference(&bytes, is_strict);
                prop_assert_eq!(found, expected.map(|(value, _)| value));
                prop_assert_eq!(taken, expected.map_or(0, |(_, taken)| taken));
            }
        }
    }
}

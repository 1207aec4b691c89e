//! Parser of decimal numbers and timestamps from bytes.
//!
//! Short numbers, which are nearly all, are parsed by integer arithmetic; a fraction then takes one division that
//! rounds correctly. Longer ones are parsed by `fast-float2` or with overflow checks. Functions that parse a prefix
//! return the number of bytes they consumed.

use tideline_model::{Precision, Timestamp};

/// Number of decimal digits that always fit into a `u64`.
const DIGITS_SAFE: usize = 19;

/// Number of decimal digits that a double always represents exactly.
const DIGITS_EXACT: usize = 15;

/// Powers of ten up to 10^[`DIGITS_EXACT`]; a double represents each of them exactly.
const POWERS_OF_TEN: [u64; DIGITS_EXACT + 1] = {
    let mut powers = [1; DIGITS_EXACT + 1];
    let mut exponent = 1;
    while exponent <= DIGITS_EXACT {
        powers[exponent] = powers[exponent - 1] * 10;
        exponent += 1;
    }
    powers
};

/// Parses the digits at the start of `bytes`. Returns the number and the count of digits. The number may wrap around
/// from 20 digits on.
#[inline]
pub(crate) fn digits(bytes: &[u8]) -> (u64, usize) {
    let mut number = 0u64;
    let mut taken = 0;
    let mut rest = bytes;
    while let Some(eight) = rest.first_chunk::<8>().and_then(|chunk| eight_digits(*chunk)) {
        number = number.wrapping_mul(100_000_000).wrapping_add(eight);
        rest = &rest[8..];
        taken += 8;
    }
    for byte in rest {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            break;
        }
        number = number.wrapping_mul(10).wrapping_add(u64::from(digit));
        taken += 1;
    }
    (number, taken)
}

/// Parses eight digits in one word (SWAR); `None` if one of the bytes is not a digit.
/// Method: <https://lemire.me/blog/2022/01/21/swar-explained-parsing-eight-digits/>.
#[inline]
fn eight_digits(chunk: [u8; 8]) -> Option<u64> {
    const HIGH_NIBBLES: u64 = 0xf0f0_f0f0_f0f0_f0f0;
    const ZEROS: u64 = 0x3030_3030_3030_3030;
    const SIXES: u64 = 0x0606_0606_0606_0606;
    let word = u64::from_le_bytes(chunk);
    let all_digits = word & HIGH_NIBBLES == ZEROS && word.wrapping_add(SIXES) & HIGH_NIBBLES == ZEROS;
    if !all_digits {
        return None;
    }
    let pairs = (word & 0x0f0f_0f0f_0f0f_0f0f).wrapping_mul(2_561) >> 8;
    let fours = (pairs & 0x00ff_00ff_00ff_00ff).wrapping_mul(6_553_601) >> 16;
    Some((fours & 0x0000_ffff_0000_ffff).wrapping_mul(42_949_672_960_001) >> 32)
}

/// Parses a whole token of the form `[-]digits`; `None` for any other text, or if the number does not fit.
pub(crate) fn signed(token: &[u8]) -> Option<i64> {
    let (negative, magnitude) = match token.strip_prefix(b"-") {
        Some(tail) => (true, unsigned(tail)?),
        None => (false, unsigned(token)?),
    };
    if negative {
        0i64.checked_sub_unsigned(magnitude)
    } else {
        i64::try_from(magnitude).ok()
    }
}

/// Parses 1 to 19 digits at the start of `bytes`, which always fit into a `u64`; `None` for any other count.
#[inline]
pub(crate) fn short_unsigned(bytes: &[u8]) -> Option<(u64, usize)> {
    let (number, taken) = digits(bytes);
    (1..=DIGITS_SAFE).contains(&taken).then_some((number, taken))
}

/// Parses a whole token of digits; `None` for any other text, or if the number does not fit.
pub(crate) fn unsigned(token: &[u8]) -> Option<u64> {
    let (number, taken) = digits(token);
    if taken == 0 || taken != token.len() {
        return None;
    }
    if taken <= DIGITS_SAFE {
        return Some(number);
    }
    token.iter().try_fold(0u64, |number, digit| {
        number
            .checked_mul(10)?
            .checked_add(u64::from(digit.wrapping_sub(b'0')))
    })
}

/// Parses a whole token as a timestamp in units of `precision`; returns nanoseconds. The error texts are those of
/// InfluxDB.
pub(crate) fn timestamp(token: &[u8], precision: Precision) -> Result<i64, &'static str> {
    const OUT_OF_RANGE: &str = "time outside range 1677-09-21T00:12:43Z to 2262-04-11T23:47:16Z";
    let digits = token.strip_prefix(b"-").unwrap_or(token);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err("bad timestamp");
    }
    signed(token)
        .and_then(|count| Timestamp::from_units(count, precision).ok())
        .map(Timestamp::nanos)
        .ok_or(OUT_OF_RANGE)
}

/// Parses `[-]digits`, `[-]digits.[digits]` or `[-].digits` at the start of `bytes`. `None` without a digit, or with
/// more than 15 digits, because the result could then be rounded twice. Does not check the bytes after the number.
#[inline]
pub(crate) fn short_decimal(bytes: &[u8]) -> Option<(f64, usize)> {
    let negative = bytes.first() == Some(&b'-');
    let unsigned = &bytes[usize::from(negative)..];
    let (whole, whole_digits) = digits(unsigned);
    let mut taken = whole_digits;
    let mut mantissa = whole;
    let mut fraction_digits = 0;
    if unsigned.get(taken) == Some(&b'.') {
        let (fraction, count) = digits(&unsigned[taken + 1..]);
        if whole_digits + count > DIGITS_EXACT {
            return None;
        }
        mantissa = mantissa * POWERS_OF_TEN[count] + fraction;
        fraction_digits = count;
        taken += 1 + count;
    }
    let all_digits = whole_digits + fraction_digits;
    if all_digits == 0 || all_digits > DIGITS_EXACT {
        return None;
    }
    // Both operands are exact in a double, so the division rounds correctly.
    let magnitude = mantissa as f64 / POWERS_OF_TEN[fraction_digits] as f64;
    let value = if negative { -magnitude } else { magnitude };
    Some((value, taken + usize::from(negative)))
}

/// Parses a whole token as a finite decimal with an optional exponent. Returns `None` for any other text, such as a
/// number with a leading `+`, a hexadecimal number or a word, and for a number that overflows to infinity.
pub(crate) fn float(token: &[u8]) -> Option<f64> {
    if let Some((value, taken)) = short_decimal(token)
        && taken == token.len()
    {
        return Some(value);
    }
    let is_decimal = |byte: &u8| byte.is_ascii_digit() || matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E');
    if token.first() == Some(&b'+') || !token.iter().all(is_decimal) {
        return None;
    }
    let value: f64 = fast_float2::parse(token).ok()?;
    value.is_finite().then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_end_exactly_at_their_range() {
        assert_eq!(signed(b"-9223372036854775808"), Some(i64::MIN));
        assert_eq!(signed(b"0009223372036854775807"), Some(i64::MAX));
        assert_eq!(signed(b"9223372036854775808"), None);
        assert_eq!(signed(b"-9223372036854775809"), None);
        assert_eq!(unsigned(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(unsigned(b"18446744073709551616"), None);
        assert_eq!(unsigned(b"99999999999999999999999999999999999"), None);
        for wrong in [
            "",
            "-",
            "1.5",
            "+5",
            "1_000",
            "0x10",
            " 1",
            "--1",
            "1234567x",
            "12345678:",
        ] {
            assert_eq!(signed(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn eight_digits_at_once_are_the_same_number() {
        for text in ["00000000", "12345678", "99999999", "90807060"] {
            assert_eq!(digits(text.as_bytes()), (text.parse().expect("digits"), 8));
        }
        assert_eq!(digits(b"1234567890123456789i"), (1_234_567_890_123_456_789, 19));
        for at in 0..8 {
            for wrong in [b'/', b':', b' ', 0xb0, b'\0'] {
                let mut text = *b"12345678";
                text[at] = wrong;
                assert_eq!(digits(&text).1, at, "{wrong} at {at}");
            }
        }
    }

    #[test]
    fn floats_are_read_as_the_standard_library_reads_them() {
        for text in [
            "0",
            "-0",
            "1",
            "-1.5",
            ".5",
            "5.",
            "-.25",
            "0.1",
            "123456.789012345",
            "1e3",
            "1E-3",
            "1.e2",
            "1.7976931348623157e308",
            "5e-324",
            "0.30000000000000004",
            "9007199254740993",
            "1e-400",
            "000000000000000000000000001.5",
            "0.000001",
            "99.99999999999999",
        ] {
            let expected: f64 = text.parse().expect("a float");
            let read = float(text.as_bytes()).expect(text);
            assert_eq!(read.to_bits(), expected.to_bits(), "{text}");
        }
        for wrong in [
            "",
            "-",
            ".",
            "-.",
            "+5",
            "1e",
            "e5",
            "1e400",
            "-1e400",
            "NaN",
            "nan",
            "inf",
            "-inf",
            "-Infinity",
            "0x10",
            "1_0",
            "1.1.1",
            "1 ",
            "--1",
            "1-",
        ] {
            assert_eq!(float(wrong.as_bytes()), None, "{wrong}");
        }
    }
}

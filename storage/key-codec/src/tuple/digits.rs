//! The stored bytes of a decimal: an exponent byte, then one byte per two digits.

use super::decode::ColumnReader;
use super::encode::complement;
use super::{Decimal, KeyDamage};

/// Only byte of the number 0. Positive numbers have larger first bytes, negative numbers smaller ones.
const ZERO: u8 = 0x80;

/// Difference between the first byte of a positive number and its exponent. The smallest exponent, −37, is stored as
/// the byte after [`ZERO`].
const EXPONENT_BIAS: i32 = ZERO as i32 + 38;

/// Exclusive upper bound of a byte of digits: 2 × 99 for the largest pair, plus 1 for the continuation bit, plus 1
/// because the bound is exclusive.
const PAIR_BYTES_END: u8 = 200;

/// Appends the ascending form of a decimal.
pub(super) fn push_decimal(number: Decimal, out: &mut Vec<u8>) {
    let Some(exponent) = number.exponent() else {
        out.push(ZERO);
        return;
    };
    let start = out.len();
    out.push((EXPONENT_BIAS + exponent) as u8);
    push_pairs(number.mantissa().unsigned_abs(), out);
    if number.mantissa() < 0 {
        complement(&mut out[start..]);
    }
}

/// Appends the digits of a number other than 0, without its trailing zeros.
fn push_pairs(mut digits: u128, out: &mut Vec<u8>) {
    while digits.is_multiple_of(10) {
        digits /= 10;
    }
    let start = out.len();
    let mut more = 0;
    // Pairs are split off from the end. If the number of digits is odd, a 0 is appended to the last digit.
    if digits.ilog10().is_multiple_of(2) {
        out.push((digits % 10) as u8 * 20);
        digits /= 10;
        more = 1;
    }
    while digits > 0 {
        out.push((digits % 100) as u8 * 2 + more);
        digits /= 100;
        more = 1;
    }
    out[start..].reverse();
}

/// Reads a decimal; refuses every form that [`push_decimal`] does not produce.
pub(super) fn read_decimal(reader: &mut ColumnReader<'_>) -> Result<Decimal, KeyDamage> {
    let first = reader.byte()?;
    if first == ZERO {
        return Ok(Decimal::ZERO);
    }
    let is_negative = first < ZERO;
    let sign_mask = if is_negative { u8::MAX } else { 0 };
    let exponent = i32::from(first ^ sign_mask) - EXPONENT_BIAS;
    let (digits, count) = read_pairs(reader, sign_mask)?;
    from_digits(is_negative, digits, count - exponent).ok_or(KeyDamage::Decimal)
}

/// Reads pairs up to the last pair. Returns the digits as a number without a trailing zero, and their count.
fn read_pairs(reader: &mut ColumnReader<'_>, sign_mask: u8) -> Result<(u128, i32), KeyDamage> {
    let (mut digits, mut count) = (0_u128, 0);
    loop {
        let byte = reader.byte()? ^ sign_mask;
        let (pair, is_last) = (byte / 2, byte.is_multiple_of(2));
        let starts_with_zero = count == 0 && pair < 10;
        if byte >= PAIR_BYTES_END || starts_with_zero || (is_last && pair == 0) {
            return Err(KeyDamage::Decimal);
        }
        let (unit, added, length) = match is_last && pair.is_multiple_of(10) {
            true => (10, pair / 10, 1),
            false => (100, pair, 2),
        };
        let sum = digits
            .checked_mul(unit)
            .and_then(|sum| sum.checked_add(added.into()));
        digits = sum.ok_or(KeyDamage::Decimal)?;
        count += length;
        if is_last {
            return Ok((digits, count));
        }
    }
}

/// Returns `±digits × 10^-scale`; `None` outside the range of [`Decimal`]. A negative `scale` appends zeros.
fn from_digits(is_negative: bool, digits: u128, scale: i32) -> Option<Decimal> {
    let zeros = u32::try_from(-scale).unwrap_or(0);
    let magnitude = digits.checked_mul(10_u128.checked_pow(zeros)?)?;
    let mantissa = match is_negative {
        true => 0_i128.checked_sub_unsigned(magnitude)?,
        false => i128::try_from(magnitude).ok()?,
    };
    Decimal::new(mantissa, u8::try_from(scale.max(0)).ok()?).ok()
}

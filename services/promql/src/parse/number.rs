//! Values of number literals: decimal, hexadecimal, or octal after a leading zero; underscores between
//! digits.

use crate::quote::quote;

/// Parses the value of a number, or returns an error message.
pub(super) fn parse(text: &str) -> Result<f64, String> {
    if let Some(value) = integer(text) {
        return Ok(value as f64);
    }
    let fault = |why| {
        format!(
            "error parsing number: strconv.ParseFloat: parsing {}: {why}",
            quote(text)
        )
    };
    let digits = text.replace('_', "");
    let is_special = digits.starts_with(|at: char| at.is_ascii_alphabetic());
    match digits.parse::<f64>() {
        Ok(value) if value.is_infinite() && !is_special => Err(fault("value out of range")),
        Ok(value) if has_good_underscores(text) => Ok(value),
        _ => Err(fault("invalid syntax")),
    }
}

fn integer(text: &str) -> Option<i64> {
    if !has_good_underscores(text) {
        return None;
    }
    let digits = text.replace('_', "");
    let lower = digits.to_ascii_lowercase();
    if let Some(hex) = lower.strip_prefix("0x") {
        i64::from_str_radix(hex, 16).ok()
    } else if lower.len() > 1 && lower.starts_with('0') {
        i64::from_str_radix(&lower, 8).ok()
    } else {
        lower.parse().ok()
    }
}

/// Returns true if each underscore is between two digits; the prefix `0x` counts as a digit.
fn has_good_underscores(text: &str) -> bool {
    let is_hex = text.starts_with("0x") || text.starts_with("0X");
    let bytes = text.as_bytes();
    let is_digit = |at: Option<&u8>| {
        at.is_some_and(|at| {
            if is_hex {
                at.is_ascii_hexdigit()
            } else {
                at.is_ascii_digit()
            }
        })
    };
    bytes.iter().enumerate().all(|(at, byte)| {
        let is_behind_prefix = is_hex && at == 2;
        *byte != b'_' || ((is_behind_prefix || is_digit(bytes[..at].last())) && is_digit(bytes.get(at + 1)))
    })
}

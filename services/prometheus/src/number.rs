//! Numbers and times in the text forms of Prometheus.
//!
//! Times are seconds, with three decimals unless they are whole. Numbers have the shortest form that parses to the
//! same value, in the notation of Go.

/// Nonzero numbers whose absolute value is below this limit are written with an exponent in [`NumberForm::Short`].
const PLAIN_MIN: f64 = 1e-6;
/// Numbers whose absolute value is at least this limit are written with an exponent in [`NumberForm::Short`].
const PLAIN_END: f64 = 1e21;
/// Whole numbers whose absolute value is below this limit are formatted as integers.
const INTEGER_END: f64 = 1e15;

/// Notation of very small and very large numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NumberForm {
    /// With an exponent, `1e-07`.
    Short,
    /// With all digits, `0.0000001`.
    Plain,
}

/// Writes a time in milliseconds as seconds.
pub(crate) fn put_time(millis: i64, out: &mut Vec<u8>) {
    if millis < 0 {
        out.push(b'-');
    }
    let millis = millis.unsigned_abs();
    out.extend_from_slice(itoa::Buffer::new().format(millis / 1_000).as_bytes());
    let part = (millis % 1_000) as u16;
    if part > 0 {
        let digit = |unit: u16| b'0' + (part / unit % 10) as u8;
        out.extend_from_slice(&[b'.', digit(100), digit(10), digit(1)]);
    }
}

/// Writes a number as a JSON string.
pub(crate) fn put_number(value: f64, form: NumberForm, out: &mut Vec<u8>) {
    out.push(b'"');
    put_plain_number(value, form, out);
    out.push(b'"');
}

/// Writes a number without quotes.
pub(crate) fn put_plain_number(value: f64, form: NumberForm, out: &mut Vec<u8>) {
    if value.is_nan() {
        return out.extend_from_slice(b"NaN");
    }
    if value.is_infinite() {
        return out.extend_from_slice(if value > 0.0 { b"+Inf" } else { b"-Inf" });
    }
    let size = value.abs();
    if size < INTEGER_END && size.fract() == 0.0 && !(value == 0.0 && value.is_sign_negative()) {
        return out.extend_from_slice(itoa::Buffer::new().format(value as i64).as_bytes());
    }
    let mut buffer = zmij::Buffer::new();
    let text = buffer.format_finite(value);
    let has_exponent = form == NumberForm::Short && size != 0.0 && !(PLAIN_MIN..PLAIN_END).contains(&size);
    if !has_exponent && !text.contains('e') {
        return out.extend_from_slice(text.strip_suffix(".0").unwrap_or(text).as_bytes());
    }
    let (digits, exponent) = Digits::of(text);
    if value < 0.0 {
        out.push(b'-');
    }
    match has_exponent {
        true => digits.put_short(exponent, out),
        false => digits.put_plain(exponent, out),
    }
}

/// Decimal digits of a nonzero number, without leading and trailing zeros.
struct Digits {
    bytes: [u8; 24],
    count: usize,
}

impl Digits {
    /// Splits the text of a number into its digits and the power of ten of the first one.
    fn of(text: &str) -> (Self, i32) {
        let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
        let mantissa = mantissa.trim_start_matches('-');
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let mut digits = Self {
            bytes: [0; 24],
            count: 0,
        };
        let mut leading_zeros = 0;
        for digit in whole.bytes().chain(fraction.bytes()) {
            if digits.count == 0 && digit == b'0' {
                leading_zeros += 1;
            } else if digits.count < digits.bytes.len() {
                digits.bytes[digits.count] = digit;
                digits.count += 1;
            }
        }
        while digits.count > 1 && digits.bytes[digits.count - 1] == b'0' {
            digits.count -= 1;
        }
        let written: i32 = exponent.parse().unwrap_or(0);
        (digits, written + whole.len() as i32 - 1 - leading_zeros)
    }

    fn all(&self) -> &[u8] {
        &self.bytes[..self.count]
    }

    /// Writes `d.ddde±xx`; the exponent has at least two digits.
    fn put_short(&self, exponent: i32, out: &mut Vec<u8>) {
        let (first, rest) = self.all().split_at(1);
        out.extend_from_slice(first);
        if !rest.is_empty() {
            out.push(b'.');
            out.extend_from_slice(rest);
        }
        out.extend_from_slice(if exponent < 0 { b"e-" } else { b"e+" });
        let size = exponent.unsigned_abs();
        if size < 10 {
            out.push(b'0');
        }
        out.extend_from_slice(itoa::Buffer::new().format(size).as_bytes());
    }

    /// Writes all digits and the zeros between them and the decimal point.
    fn put_plain(&self, exponent: i32, out: &mut Vec<u8>) {
        let digits = self.all();
        if exponent < 0 {
            out.extend_from_slice(b"0.");
            out.resize(out.len() + (-exponent - 1) as usize, b'0');
            return out.extend_from_slice(digits);
        }
        let whole = exponent as usize + 1;
        if digits.len() <= whole {
            out.extend_from_slice(digits);
            return out.resize(out.len() + whole - digits.len(), b'0');
        }
        out.extend_from_slice(&digits[..whole]);
        out.push(b'.');
        out.extend_from_slice(&digits[whole..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(value: f64, form: NumberForm) -> String {
        let mut out = Vec::new();
        put_plain_number(value, form, &mut out);
        String::from_utf8(out).expect("digits")
    }

    #[test]
    fn numbers_are_written_as_go_writes_them() {
        for (value, short, plain) in [
            (0.0, "0", "0"),
            (-0.0, "-0", "-0"),
            (2.0, "2", "2"),
            (-1.5, "-1.5", "-1.5"),
            (0.1, "0.1", "0.1"),
            (1e-6, "0.000001", "0.000001"),
            (1e-7, "1e-07", "0.0000001"),
            (-1.25e-7, "-1.25e-07", "-0.000000125"),
            (0.000_012_5, "0.0000125", "0.0000125"),
            (1e20, "100000000000000000000", "100000000000000000000"),
            (
                123_456_789_012_345_680_000.0,
                "123456789012345680000",
                "123456789012345680000",
            ),
            (1e21, "1e+21", "1000000000000000000000"),
            (1.5e300, "1.5e+300", &format!("15{}", "0".repeat(299))),
            (5e-324, "5e-324", &format!("0.{}5", "0".repeat(323))),
            (
                f64::MAX,
                "1.7976931348623157e+308",
                &format!("17976931348623157{}", "0".repeat(292)),
            ),
            (9_007_199_254_740_993.0, "9007199254740992", "9007199254740992"),
            (1e15, "1000000000000000", "1000000000000000"),
            (
                1_234_567_890_123_456.5,
                "1234567890123456.5",
                "1234567890123456.5",
            ),
            (f64::NAN, "NaN", "NaN"),
            (f64::INFINITY, "+Inf", "+Inf"),
            (f64::NEG_INFINITY, "-Inf", "-Inf"),
        ] {
            assert_eq!(number(value, NumberForm::Short), short);
            assert_eq!(number(value, NumberForm::Plain), plain);
        }
    }

    #[test]
    fn every_number_reads_back_the_same() {
        let mut bits = tideline_testkit::seed("every number");
        for _ in 0..20_000 {
            bits = bits
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let value = f64::from_bits(bits);
            if !value.is_finite() {
                continue;
            }
            for form in [NumberForm::Short, NumberForm::Plain] {
                let text = number(value, form);
                assert_eq!(text.parse::<f64>().map(f64::to_bits), Ok(bits), "{text}");
            }
        }
    }

    #[test]
    fn times_have_three_digits_of_milliseconds_or_none() {
        for (millis, text) in [
            (0, "0"),
            (4_000, "4"),
            (4_001, "4.001"),
            (1_435_781_451_780, "1435781451.780"),
            (-1, "-0.001"),
            (-1_500, "-1.500"),
            (i64::MIN, "-9223372036854775.808"),
        ] {
            let mut out = Vec::new();
            put_time(millis, &mut out);
            assert_eq!(String::from_utf8_lossy(&out), text);
        }
    }
}

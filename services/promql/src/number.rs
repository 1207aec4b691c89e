//! Number formats of Go, which PromQL's messages and quantile labels use.
//!
//! Prometheus' test scripts compare these texts literally.

use tideline_histogram::Shortest;

/// Formats a number with the fewest digits that identify it, like Go's `%g`: with an exponent below 1e-4 and
/// from 1e6 on.
pub(crate) fn general(value: f64) -> String {
    Shortest(value).to_string()
}

/// Formats a number rounded to `digits` significant digits, like Go's `%.{digits}g`: with an
/// exponent below 1e-4 and from 10^`digits` on.
pub(crate) fn general_rounded(value: f64, digits: usize) -> String {
    if let Some(text) = special(value) {
        return text.to_owned();
    }
    let scientific = format!("{value:.*e}", digits.saturating_sub(1));
    from_scientific(&scientific, digits as i32)
}

/// Formats a number like [`general`], but marks integers as floats: `1.0`.
pub(crate) fn open_metrics(value: f64) -> String {
    let mut text = general(value);
    if value.is_finite() && !text.contains(['.', 'e']) {
        text.push_str(".0");
    }
    text
}

/// Formats a number with the fewest digits that identify it, without an exponent.
pub(crate) fn plain(value: f64) -> String {
    special(value).map_or_else(|| value.to_string(), str::to_owned)
}

fn special(value: f64) -> Option<&'static str> {
    if value.is_nan() {
        Some("NaN")
    } else if value == f64::INFINITY {
        Some("+Inf")
    } else if value == f64::NEG_INFINITY {
        Some("-Inf")
    } else {
        None
    }
}

/// Converts `d.ddde±x` to Go's format; exponents below −4 and from `exponent_from` on are kept.
fn from_scientific(text: &str, exponent_from: i32) -> String {
    let (mantissa, exponent) = text.split_once('e').expect("written with an exponent");
    let exponent: i32 = exponent.parse().expect("the exponent is an integer");
    let (sign, mantissa) = match mantissa.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", mantissa),
    };
    let digits: String = mantissa.chars().filter(|char| *char != '.').collect();
    let digits = match digits.trim_end_matches('0') {
        "" => "0",
        digits => digits,
    };
    if exponent < -4 || exponent >= exponent_from {
        let (first, rest) = digits.split_at(1);
        let dot = if rest.is_empty() { "" } else { "." };
        let exponent_sign = if exponent < 0 { '-' } else { '+' };
        return format!("{sign}{first}{dot}{rest}e{exponent_sign}{:02}", exponent.abs());
    }
    if exponent < 0 {
        let zeros = "0".repeat((-exponent - 1) as usize);
        return format!("{sign}0.{zeros}{digits}");
    }
    let whole = exponent as usize + 1;
    match digits.split_at_checked(whole) {
        Some((digits, "")) => format!("{sign}{digits}"),
        Some((digits, rest)) => format!("{sign}{digits}.{rest}"),
        None => format!("{sign}{digits}{}", "0".repeat(whole - digits.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_go_writes_them() {
        for (value, text) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (0.5, "0.5"),
            (100_000.0, "100000"),
            (1_000_000.0, "1e+06"),
            (-1_234_567.5, "-1.2345675e+06"),
            (0.0001, "0.0001"),
            (0.000_012, "1.2e-05"),
            (1e100, "1e+100"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "+Inf"),
        ] {
            assert_eq!(general(value), text);
        }
        assert_eq!(general_rounded(0.12345, 2), "0.12");
        assert_eq!(general_rounded(10.0, 2), "10");
        assert_eq!(general_rounded(123.0, 2), "1.2e+02");
        assert_eq!(
            (open_metrics(1.0), open_metrics(0.99)),
            ("1.0".to_owned(), "0.99".to_owned())
        );
        assert_eq!(plain(1e21), "1000000000000000000000");
    }
}

//! Formats times and numbers with the digits that readers need.
//!
//! Shortened times stay distinct. Numbers keep six significant digits and are aligned at their decimal point.

use tideline_openapi::model::Timestamp;

/// Number of significant digits shown of a number. More are shown only for a large integer part.
const DIGITS: usize = 6;
/// Numbers of fractional digits of seconds, in the order in which they are tried.
const FRACTIONS: [usize; 4] = [0, 3, 6, 9];
/// Minimum length of an id, in hexadecimal digits.
const ID_CHARS_MIN: usize = 24;

/// Content of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Times in RFC 3339.
    Time,
    /// Numbers.
    Number,
    /// Timeline ids.
    Id,
    /// Anything else.
    Text,
}

/// Returns the content of a column. Empty cells are ignored; mixed cells count as text.
pub(crate) fn kind<'a>(cells: impl Iterator<Item = &'a str>) -> Kind {
    let kind_of = |cell: &str| match cell {
        _ if is_time(cell) => Kind::Time,
        _ if cell.parse::<f64>().is_ok() => Kind::Number,
        _ if cell.len() >= ID_CHARS_MIN && cell.bytes().all(|byte| byte.is_ascii_hexdigit()) => Kind::Id,
        _ => Kind::Text,
    };
    let mut kinds = cells.map(str::trim).filter(|cell| !cell.is_empty()).map(kind_of);
    let first = kinds.next().unwrap_or(Kind::Text);
    match kinds.all(|kind| kind == first) {
        true => first,
        false => Kind::Text,
    }
}

/// Shortens the cells of a column. Fractions of seconds are shortened only as far as different times stay different.
/// Numbers with a fraction or an exponent are rounded to six digits. Trailing spaces align their decimal points.
pub(crate) fn shorten(cells: &mut [&mut String]) {
    match kind(cells.iter().map(|cell| cell.as_str())) {
        Kind::Time => shorten_times(cells),
        Kind::Number => shorten_numbers(cells),
        Kind::Id | Kind::Text => {}
    }
}

/// Formats two times with the fractional digits that are needed to distinguish them.
pub(crate) fn span(first: i64, last: i64) -> (String, String) {
    let text = |nanos| Timestamp::from_nanos_clamped(nanos).to_rfc3339();
    let (mut first, mut last) = (text(first), text(last));
    shorten_times(&mut [&mut first, &mut last]);
    (first, last)
}

/// Formats a number with six significant digits, or with one decimal if its integer part has six digits or more.
/// Trailing zeros are removed.
pub(crate) fn number(value: f64) -> String {
    let size = value.abs();
    let text = match size {
        0.0 => return "0".into(),
        _ if !value.is_finite() => return value.to_string(),
        _ if (1e-4..1e15).contains(&size) => {
            let whole = size.log10().floor() as i64 + 1;
            let decimals = (DIGITS as i64 - whole).clamp(1, 9);
            format!("{value:.*}", decimals as usize)
        }
        _ => format!("{value:.*e}", DIGITS - 1),
    };
    let (digits, exponent) = text.split_at(text.find('e').unwrap_or(text.len()));
    let digits = digits.trim_end_matches('0').trim_end_matches('.');
    format!("{digits}{exponent}")
}

fn is_time(cell: &str) -> bool {
    cell.ends_with('Z') && cell.contains('T') && Timestamp::parse_rfc3339(cell).is_some()
}

fn shorten_times(cells: &mut [&mut String]) {
    let distinct = |texts: &[String]| texts.iter().collect::<std::collections::BTreeSet<_>>().len();
    let all: Vec<String> = cells.iter().map(|cell| with_fraction(cell, 9)).collect();
    for digits in FRACTIONS {
        let short: Vec<String> = cells.iter().map(|cell| with_fraction(cell, digits)).collect();
        if distinct(&short) == distinct(&all) {
            cells
                .iter_mut()
                .zip(short)
                .for_each(|(cell, short)| **cell = short);
            return;
        }
    }
}

/// Formats a time with `digits` fractional digits of seconds.
fn with_fraction(time: &str, digits: usize) -> String {
    let Some(time) = time.strip_suffix('Z') else {
        return time.to_owned();
    };
    let (seconds, fraction) = time.split_once('.').unwrap_or((time, ""));
    match digits {
        0 => format!("{seconds}Z"),
        _ => format!("{seconds}.{:0<digits$}Z", &fraction[..fraction.len().min(digits)]),
    }
}

fn shorten_numbers(cells: &mut [&mut String]) {
    let has_point = cells.iter().any(|cell| cell.contains(['.', 'e']));
    if !has_point {
        return;
    }
    for cell in cells.iter_mut() {
        let digits = cell.bytes().filter(u8::is_ascii_digit).count();
        // Short cells and whole numbers are unchanged, because they may be texts such as versions.
        if let (true, false, Ok(value)) = (digits > DIGITS, cell.ends_with(".0"), cell.parse::<f64>())
            && cell.contains(['.', 'e'])
        {
            **cell = number(value);
        }
    }
    let fraction = |cell: &str| cell.find(['.', 'e']).map_or(0, |point| cell.len() - point);
    let widest = cells.iter().map(|cell| fraction(cell)).max().unwrap_or_default();
    for cell in cells.iter_mut().filter(|cell| !cell.is_empty()) {
        let space = widest - fraction(cell);
        cell.push_str(&" ".repeat(space));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_columns_are_recognised() {
        for (cells, expected) in [
            (&["2026-11-20T12:00:00Z", ""][..], Kind::Time),
            (&["1", "-2.5", "1e9"], Kind::Number),
            (&["3f2a9c017bde45a18c40f1e29d3b6a57"], Kind::Id),
            (&["1", "x"], Kind::Text),
            (&["", ""], Kind::Text),
        ] {
            assert_eq!(kind(cells.iter().copied()), expected, "{cells:?}");
        }
    }

    #[test]
    fn numbers_have_six_digits() {
        for (value, text) in [
            (0.0, "0"),
            (43.333_333_333, "43.3333"),
            (1_234_567.891, "1234567.9"),
            (-0.000_123_456_789, "-0.000123457"),
            (1e-9, "1e-9"),
            (1.234_567_89e20, "1.23457e20"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn times_keep_the_digits_that_tell_them_apart() {
        assert_eq!(
            span(0, 1_500_000_000),
            ("1970-01-01T00:00:00Z".into(), "1970-01-01T00:00:01Z".into())
        );
        assert_eq!(
            span(0, 1_500_000),
            (
                "1970-01-01T00:00:00.000Z".into(),
                "1970-01-01T00:00:00.001Z".into()
            )
        );
    }
}

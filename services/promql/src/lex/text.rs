//! String literals: scanning and unquoting.
//!
//! The scanner validates all escapes, so unquoting cannot fail.

/// Returns the length of a string after its opening quote, including the closing quote, or an error message.
pub(super) fn scan(text: &str, quote: char) -> Result<usize, String> {
    let mut rest = text.chars();
    loop {
        match rest.next() {
            None | Some('\n') => return Err("unterminated quoted string".to_owned()),
            // The replacement character represents bytes that were not UTF-8 when the query was decoded.
            Some('\u{fffd}') => return Err("invalid UTF-8 rune".to_owned()),
            Some('\\') => escape(&mut rest, quote)?,
            Some(at) if at == quote => return Ok(text.len() - rest.as_str().len()),
            Some(_) => {}
        }
    }
}

/// Validates an escape after its backslash.
fn escape(rest: &mut std::str::Chars<'_>, quote: char) -> Result<(), String> {
    const OPEN: &str = "escape sequence not terminated";
    let at = rest.next().ok_or(OPEN)?;
    let (digits, radix, max) = match at {
        'a' | 'b' | 'f' | 'n' | 'r' | 't' | 'v' | '\\' => return Ok(()),
        _ if at == quote => return Ok(()),
        '0'..='7' => (2, 8, 255),
        'x' => (2, 16, 255),
        'u' => (4, 16, u64::from(u32::from(char::MAX))),
        'U' => (8, 16, u64::from(u32::from(char::MAX))),
        _ => return Err(format!("unknown escape sequence {}", named(at))),
    };
    let mut value = u64::from(at.to_digit(8).unwrap_or(0));
    for _ in 0..digits {
        let at = rest.next().ok_or(OPEN)?;
        let digit = at
            .to_digit(radix)
            .ok_or_else(|| format!("illegal character {} in escape sequence", named(at)))?;
        value = value * u64::from(radix) + u64::from(digit);
    }
    if value > max || (0xd800..0xe000).contains(&value) {
        return Err("escape sequence is an invalid Unicode code point".to_owned());
    }
    Ok(())
}

/// Formats a character as `U+0041 'A'`.
fn named(at: char) -> String {
    format!("U+{:04X} '{at}'", u32::from(at))
}

/// Decodes a quoted string to bytes. The string must have passed [`scan`], so every escape is complete.
pub(crate) fn unquote(quoted: &str) -> Vec<u8> {
    let inner = &quoted[1..quoted.len() - 1];
    if quoted.starts_with('`') || !inner.contains('\\') {
        return inner.as_bytes().to_vec();
    }
    let mut bytes = Vec::with_capacity(inner.len());
    let mut rest = inner;
    while let Some(at) = rest.find('\\') {
        bytes.extend_from_slice(&rest.as_bytes()[..at]);
        rest = unescape(&rest[at + 1..], &mut bytes);
    }
    bytes.extend_from_slice(rest.as_bytes());
    bytes
}

/// Decodes an escape after its backslash and returns the rest of the text.
fn unescape<'a>(text: &'a str, bytes: &mut Vec<u8>) -> &'a str {
    let first = text.as_bytes().first().copied().unwrap_or(b'\\');
    let code = |range: std::ops::Range<usize>, radix| {
        let digits = text.get(range).unwrap_or_default();
        u32::from_str_radix(digits, radix).unwrap_or(0)
    };
    let length = match first {
        b'0'..=b'7' => {
            bytes.push(code(0..3, 8) as u8);
            3
        }
        b'x' => {
            bytes.push(code(1..3, 16) as u8);
            3
        }
        b'u' | b'U' => {
            let length = if first == b'u' { 5 } else { 9 };
            let at = char::from_u32(code(1..length, 16)).unwrap_or(char::REPLACEMENT_CHARACTER);
            bytes.extend_from_slice(at.encode_utf8(&mut [0; 4]).as_bytes());
            length
        }
        _ => {
            bytes.push(match first {
                b'a' => 0x07,
                b'b' => 0x08,
                b'f' => 0x0c,
                b'n' => b'\n',
                b'r' => b'\r',
                b't' => b'\t',
                b'v' => 0x0b,
                other => other,
            });
            1
        }
    };
    text.get(length..).unwrap_or_default()
}

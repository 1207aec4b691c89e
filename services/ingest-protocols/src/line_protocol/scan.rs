//! Scanner for the parts of a line.
//!
//! The functions read in place and return the position after the part, or its length. Nothing is copied except
//! unescaped strings.

use crate::grouping::FieldValue;
use crate::number;
use crate::reject::{Reason, quote, too_large};

/// Error in a line, and the position from which to search for the end of the line.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) reason: Reason,
    pub(super) at: usize,
}

impl Fault {
    pub(super) fn new(reason: impl Into<Reason>, at: usize) -> Self {
        Self {
            reason: reason.into(),
            at,
        }
    }
}

/// Field value. A string borrows from the body and still has its escapes.
#[derive(Debug, Clone, Copy)]
pub(super) struct RawValue<'a> {
    /// Value; for a string, the raw text between the quotes.
    pub(super) value: FieldValue<'a>,
    /// True if the text contains backslashes and needs [`unescape_string`].
    pub(super) escaped: bool,
}

/// Returns the first position from `at` on that is not a space.
#[inline]
pub(super) fn skip_spaces(body: &[u8], mut at: usize) -> usize {
    while body.get(at) == Some(&b' ') {
        at += 1;
    }
    at
}

/// Returns the start of the next line if a line ends at `at`: at LF, CRLF, the end of the body, or a CR that is the
/// last byte of the body. Otherwise returns `None`.
#[inline]
pub(super) fn line_end(body: &[u8], at: usize) -> Option<usize> {
    match (body.get(at), body.get(at + 1)) {
        (None, _) => Some(at),
        (Some(b'\n'), _) | (Some(b'\r'), None) => Some(at + 1),
        (Some(b'\r'), Some(b'\n')) => Some(at + 2),
        _ => None,
    }
}

/// Returns the end of the series key that begins at `at`: the first space without a backslash before it. Fails if the
/// line ends before such a space.
#[inline]
pub(super) fn key_end(body: &[u8], at: usize) -> Result<usize, Fault> {
    let mut from = at;
    loop {
        let Some(found) = memchr::memchr2(b' ', b'\n', &body[from..]) else {
            return Err(Fault::new("missing fields", body.len()));
        };
        let end = from + found;
        if body[end] == b'\n' {
            return Err(Fault::new("missing fields", end));
        }
        if end == at || body[end - 1] != b'\\' {
            return Ok(end);
        }
        from = end + 1;
    }
}

/// Returns the length of the unquoted value at the start of `bytes`.
#[inline]
pub(super) fn token_len(bytes: &[u8]) -> usize {
    bytes
        .iter()
        .position(|byte| ends_value(*byte))
        .unwrap_or(bytes.len())
}

/// Returns true if `byte` ends an unquoted value.
#[inline]
pub(super) fn ends_value(byte: u8) -> bool {
    matches!(byte, b',' | b' ' | b'\n' | b'\r')
}

/// Parses the value at `at` of the field `name`; returns it with its end position.
pub(super) fn value<'a>(
    body: &'a [u8],
    at: usize,
    name: &[u8],
    string_bytes_max: usize,
) -> Result<(RawValue<'a>, usize), Fault> {
    let rest = &body[at..];
    if rest.first() == Some(&b'"') {
        let (value, taken) =
            string(rest, string_bytes_max).map_err(|(reason, taken)| Fault::new(reason, at + taken))?;
        return Ok((value, at + taken));
    }
    let token = &rest[..token_len(rest)];
    let wrong = |what: &str| {
        let reason = format!("invalid {what} {} in field {}", quote(token), quote(name));
        Fault::new(reason, at)
    };
    let value = match token {
        [] => {
            return Err(Fault::new(
                format!("missing field value of field {}", quote(name)),
                at,
            ));
        }
        [b't' | b'T' | b'f' | b'F', ..] => {
            FieldValue::Boolean(boolean(token).ok_or_else(|| wrong("boolean"))?)
        }
        [b'-' | b'.' | b'0'..=b'9', .., b'i'] => {
            FieldValue::Signed(number::signed(&token[..token.len() - 1]).ok_or_else(|| wrong("integer"))?)
        }
        [b'-' | b'.' | b'0'..=b'9', .., b'u'] => FieldValue::Unsigned(
            number::unsigned(&token[..token.len() - 1]).ok_or_else(|| wrong("unsigned"))?,
        ),
        [b'-' | b'.' | b'0'..=b'9', ..] => {
            FieldValue::Float(number::float(token).ok_or_else(|| wrong("number"))?)
        }
        _ => return Err(wrong("field value")),
    };
    Ok((
        RawValue {
            value,
            escaped: false,
        },
        at + token.len(),
    ))
}

/// Parses a whole token as a boolean; `None` if it is not one.
pub(super) fn boolean(token: &[u8]) -> Option<bool> {
    match token {
        b"t" | b"T" | b"true" | b"True" | b"TRUE" => Some(true),
        b"f" | b"F" | b"false" | b"False" | b"FALSE" => Some(false),
        _ => None,
    }
}

/// Parses the quoted string at the start of `bytes`. Returns the string and its length including the quotes; on error,
/// the reason and the number of bytes read.
pub(super) fn string(bytes: &[u8], bytes_max: usize) -> Result<(RawValue<'_>, usize), (Reason, usize)> {
    let mut end = 1;
    let mut escaped = false;
    loop {
        let Some(found) = bytes
            .get(end..)
            .and_then(|rest| memchr::memchr2(b'"', b'\\', rest))
        else {
            return Err(("unbalanced quotes".into(), bytes.len()));
        };
        end += found;
        if bytes[end] == b'"' {
            break;
        }
        escaped = true;
        end += 2;
    }
    let raw = &bytes[1..end];
    if raw.len() > bytes_max {
        return Err((too_large("string value", raw.len(), bytes_max), end));
    }
    match std::str::from_utf8(raw) {
        Ok(text) => {
            let value = FieldValue::String(text);
            Ok((RawValue { value, escaped }, end + 1))
        }
        Err(_) => Err((format!("invalid UTF-8 in string {}", quote(raw)).into(), end)),
    }
}

/// Writes the unescaped text of `raw` to `out`. Only `\"` and `\\` are escapes.
pub(super) fn unescape_string(raw: &str, out: &mut String) {
    out.clear();
    let mut rest = raw;
    while let Some((before, after)) = rest.split_once('\\') {
        out.push_str(before);
        rest = match after.chars().next() {
            Some(escaped @ ('"' | '\\')) => {
                out.push(escaped);
                &after[1..]
            }
            _ => {
                out.push('\\');
                after
            }
        };
    }
    out.push_str(rest);
}

//! Quoting of texts in Go's format, which Prometheus' messages and test scripts use.

use std::fmt::Write;

/// Quotes a text with double quotes. Escapes double quotes, backslashes and characters that cannot
/// be printed.
pub fn quote(text: &str) -> String {
    quote_bytes(text.as_bytes())
}

/// Quotes bytes with double quotes. Bytes that are not UTF-8 become `\x` and two digits.
pub fn quote_bytes(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len() + 2);
    out.push('"');
    for chunk in bytes.utf8_chunks() {
        for at in chunk.valid().chars() {
            push_char(&mut out, at, '"');
        }
        for byte in chunk.invalid() {
            push(&mut out, format_args!("\\x{byte:02x}"));
        }
    }
    out.push('"');
    out
}

/// Quotes a character with single quotes.
pub(crate) fn quote_char(at: char) -> String {
    let mut out = String::from("'");
    push_char(&mut out, at, '\'');
    out.push('\'');
    out
}

fn push_char(out: &mut String, at: char, quote: char) {
    match at {
        '\x07' => out.push_str("\\a"),
        '\x08' => out.push_str("\\b"),
        '\x0c' => out.push_str("\\f"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        '\x0b' => out.push_str("\\v"),
        '\\' => out.push_str("\\\\"),
        _ if at == quote => {
            out.push('\\');
            out.push(at);
        }
        _ if is_printable(at) => out.push(at),
        _ => match u32::from(at) {
            code @ 0..0x80 => push(out, format_args!("\\x{code:02x}")),
            code @ 0x80..0x1_0000 => push(out, format_args!("\\u{code:04x}")),
            code => push(out, format_args!("\\U{code:08x}")),
        },
    }
}

/// Returns true for letters, marks, numbers, punctuation, symbols and the ASCII space.
fn is_printable(at: char) -> bool {
    if at.is_ascii() {
        return (' '..='~').contains(&at);
    }
    // Rust's `escape_debug` keeps the same characters, but marks only after a letter.
    let mut text = String::with_capacity(8);
    text.push('a');
    text.push(at);
    text.escape_debug().nth(1) == Some(at)
}

fn push(out: &mut String, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("a string takes every text");
}

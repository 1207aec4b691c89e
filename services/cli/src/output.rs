//! Output of commands: tables and charts for terminals, the server's JSON for programs.
//!
//! A terminal gets shortened tables; a pipe or a file gets every value in full.

use std::io::{self, Read, Write};

use serde_json::Value;

pub(crate) mod chart;
pub(crate) mod grid;
mod readable;

use crate::error::Result;

/// Size of the copy buffer, in bytes.
const COPY_BYTES: usize = 64 << 10;

/// Writes a text to standard output, and a line end if the text has none.
///
/// # Errors
///
/// Returns [`CliError::Output`](crate::CliError::Output) if standard output cannot be written.
pub fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    if !text.ends_with('\n') {
        out.write_all(b"\n")?;
    }
    Ok(out.flush()?)
}

/// Returns the width of the terminal, or `None` if standard output is a pipe or a file. Output is shortened for
/// terminals only.
pub(crate) fn columns() -> Option<usize> {
    let (_, columns) = console::Term::stdout().size_checked()?;
    Some(usize::from(columns)).filter(|columns| *columns > 0)
}

/// Copies all bytes as they arrive. The error states whether reading or writing failed.
pub(crate) fn copy(from: &mut dyn Read, to: &mut dyn Write) -> std::result::Result<(), CopyError> {
    let mut buffer = vec![0; COPY_BYTES];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return to.flush().map_err(CopyError::Write),
            Ok(read) => to.write_all(&buffer[..read]).map_err(CopyError::Write)?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(CopyError::Read(error)),
        }
    }
}

/// Error of a copy: reading or writing has failed.
pub(crate) enum CopyError {
    Read(io::Error),
    Write(io::Error),
}

/// Formats a JSON value as a cell of a table.
pub(crate) fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Formats a member of an object as a cell. A missing member is an empty cell.
pub(crate) fn member(object: &Value, name: &str) -> String {
    object.get(name).map(cell).unwrap_or_default()
}

/// Formats an object as `key=value` pairs, separated by spaces.
pub(crate) fn pairs(object: &Value) -> String {
    let entries = object.as_object().into_iter().flatten();
    let pairs: Vec<String> = entries
        .map(|(key, value)| format!("{key}={}", cell(value)))
        .collect();
    pairs.join(" ")
}

/// Formats a number of bytes, such as `1.5 KiB`.
pub fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut shown = bytes as f64;
    let mut unit = 0;
    while shown >= 1024.0 && unit + 1 < UNITS.len() {
        shown /= 1024.0;
        unit += 1;
    }
    if unit == 0 {
        format!("{bytes} B")
    } else {
        format!("{shown:.1} {}", UNITS[unit])
    }
}

/// Formats a count with separated thousands, such as `12,345`.
pub fn count(count: u64) -> String {
    let digits = count.to_string();
    let mut out = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_readable() {
        assert_eq!((bytes(0), bytes(1023)), ("0 B".into(), "1023 B".into()));
        assert_eq!(
            (bytes(1536), bytes(3 << 30)),
            ("1.5 KiB".into(), "3.0 GiB".into())
        );
        assert_eq!(
            (count(999), count(1_000), count(12_345_678)),
            ("999".into(), "1,000".into(), "12,345,678".into())
        );
    }
}

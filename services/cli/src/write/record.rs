//! Record boundaries of the input formats. Batches are cut only between records.
//!
//! Quoted line ends do not end a record, so the functions follow the quoting rules of each format. The functions parse
//! nothing else.

use memchr::{memchr, memchr2};

/// Rule that separates records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    /// Line protocol: a line end inside a quoted string does not end a record.
    Lines,
    /// CSV: a line end inside a quoted cell does not end a record.
    Csv { delimiter: u8 },
    /// One JSON value per line.
    Ndjson,
}

impl Framing {
    /// Returns the end of the record that begins at `at`, including its line end. Returns `None` if the record
    /// is incomplete.
    #[inline]
    pub(super) fn end(self, bytes: &[u8], at: usize) -> Option<usize> {
        match self {
            Self::Lines => end_of_point(bytes, at),
            Self::Csv { delimiter } => end_of_row(bytes, at, delimiter),
            Self::Ndjson => after(memchr(b'\n', &bytes[at..]), at),
        }
    }
}

/// Returns the position after a byte that was found in the bytes from `at` on; `None` if no byte was found.
fn after(found: Option<usize>, at: usize) -> Option<usize> {
    found.map(|found| at + found + 1)
}

/// Returns the end of a point in line protocol; `None` if the point is incomplete. Only field values can be quoted:
/// fields begin at the first space without a preceding backslash, and a quoted value directly follows an equals sign.
fn end_of_point(bytes: &[u8], start: usize) -> Option<usize> {
    let mut at = start;
    while matches!(bytes.get(at), Some(b' ' | b'\t')) {
        at += 1;
    }
    if *bytes.get(at)? == b'#' {
        return after(memchr(b'\n', &bytes[at..]), at);
    }
    loop {
        let found = at + memchr2(b' ', b'\n', &bytes[at..])?;
        if bytes[found] == b'\n' {
            return Some(found + 1);
        }
        at = found + 1;
        if found == start || bytes[found - 1] != b'\\' {
            break;
        }
    }
    loop {
        let found = at + memchr2(b'"', b'\n', &bytes[at..])?;
        if bytes[found] == b'\n' {
            return Some(found + 1);
        }
        at = found + 1;
        if bytes[found - 1] == b'=' {
            at = end_of_string(bytes, at)?;
        }
    }
}

/// Returns the position after the quote that ends a string; `None` if the string has no end. A backslash escapes the
/// next byte.
fn end_of_string(bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        let found = at + memchr2(b'"', b'\\', bytes.get(at..)?)?;
        if bytes[found] == b'"' {
            return Some(found + 1);
        }
        at = found + 2;
    }
}

/// Returns the end of a CSV row; `None` if the row is incomplete. A cell is quoted if its first byte is a quote; two
/// quotes inside the cell encode one.
fn end_of_row(bytes: &[u8], start: usize, delimiter: u8) -> Option<usize> {
    let mut at = start;
    loop {
        let found = at + memchr2(b'"', b'\n', bytes.get(at..)?)?;
        if bytes[found] == b'\n' {
            return Some(found + 1);
        }
        at = found + 1;
        if found == start || bytes[found - 1] == delimiter {
            loop {
                at += memchr(b'"', bytes.get(at..)?)? + 1;
                if *bytes.get(at)? != b'"' {
                    break;
                }
                at += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(framing: Framing, text: &str) -> Vec<&str> {
        let mut at = 0;
        let mut found = Vec::new();
        while let Some(end) = framing.end(text.as_bytes(), at) {
            found.push(&text[at..end]);
            at = end;
        }
        found.push(&text[at..]);
        found
    }

    #[test]
    fn points_end_at_line_ends_outside_of_strings() {
        let text = "a f=1\n# it's \"so\n\n a\\ b,t=\"x f=\"1\n2\\\"\n\",g=2 5\r\nc f=\"\\\\\" 1\nno fields\nrest f=\"x\ny";
        assert_eq!(
            records(Framing::Lines, text),
            [
                "a f=1\n",
                "# it's \"so\n",
                "\n",
                " a\\ b,t=\"x f=\"1\n2\\\"\n\",g=2 5\r\n",
                "c f=\"\\\\\" 1\n",
                "no fields\n",
                "rest f=\"x\ny"
            ]
        );
    }

    #[test]
    fn rows_end_at_line_ends_outside_of_quoted_cells() {
        let csv = Framing::Csv { delimiter: b';' };
        assert_eq!(
            records(csv, "a;b\n\"x\ny\";\"1\"\"\n\"\n5\" tall;2\r\n\"open\n"),
            ["a;b\n", "\"x\ny\";\"1\"\"\n\"\n", "5\" tall;2\r\n", "\"open\n"]
        );
        assert_eq!(records(Framing::Ndjson, "{}\n\n{"), ["{}\n", "\n", "{"]);
    }
}

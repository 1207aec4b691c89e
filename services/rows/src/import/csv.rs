//! Records of CSV (RFC 4180), read from a stream.
//!
//! As in exports, an empty cell without quotes is a missing value, and `""` is an empty text. CSV libraries do not
//! report this difference, so this module has its own parser. A quoted cell may contain line ends.

use std::io::{BufRead, BufReader, Read};

use super::columns::{FileColumns, FileValue, Target};
use super::{RECORD_BYTES_MAX, Record};
use crate::error::{Result, RowsError};

/// Capacity of the read buffer, in bytes.
const BUFFER_BYTES: usize = 64 << 10;
/// Maximum number of columns.
const COLUMNS_MAX: usize = 10_000;

/// Cells of a CSV record.
#[derive(Debug, Default)]
struct Cells {
    text: Vec<u8>,
    /// End of each cell in `text`, with true if the cell was quoted.
    ends: Vec<(usize, bool)>,
}

impl Cells {
    fn clear(&mut self) {
        self.text.clear();
        self.ends.clear();
    }

    /// Returns the cells; `None` for an empty cell without quotes.
    fn iter(&self) -> impl Iterator<Item = Option<&[u8]>> {
        let starts = std::iter::once(0).chain(self.ends.iter().map(|(end, _)| *end));
        starts.zip(&self.ends).map(|(start, (end, is_quoted))| {
            let cell = &self.text[start..*end];
            (*is_quoted || !cell.is_empty()).then_some(cell)
        })
    }
}

/// Byte-order mark of UTF-8. Some programs write it at the start of a file.
const MARK: &[u8] = b"\xef\xbb\xbf";

/// Reads CSV with a header line and passes each record with its size to `take`.
pub(super) fn read(
    input: impl Read,
    columns: &FileColumns<'_>,
    take: &mut dyn FnMut(Record, usize) -> Result<()>,
) -> Result<()> {
    let input = without_mark(input).map_err(RowsError::Input)?;
    let mut reader = BufReader::with_capacity(BUFFER_BYTES, input);
    let mut cells = Cells::default();
    if !next(&mut reader, &mut cells)? {
        return Ok(());
    }
    let names: Vec<String> = cells
        .iter()
        .map(|cell| String::from_utf8_lossy(cell.unwrap_or_default()).into_owned())
        .collect();
    if names.len() > COLUMNS_MAX {
        return Err(RowsError::over(
            "number of columns of the file",
            COLUMNS_MAX as u64,
            names.len() as u64,
        ));
    }
    if names.iter().any(|name| name.replace("\r\n", "").contains('\r')) {
        return Err(RowsError::Invalid(
            "the header line contains a carriage return without a line feed; lines of CSV must end with a line feed, or \
             with a carriage return and a line feed"
                .into(),
        ));
    }
    if let Some(number) = names.iter().position(|name| name.is_empty()) {
        return Err(RowsError::Invalid(format!(
            "column {} of the header line has no name",
            number + 1
        )));
    }
    let targets: Vec<Target> = names.iter().map(|name| columns.target(name)).collect();
    while next(&mut reader, &mut cells)? {
        let bytes = cells.text.len();
        if cells.ends.len() != targets.len() {
            let reason = format!(
                "the record has {} cells, and the header line {}",
                cells.ends.len(),
                targets.len()
            );
            take(Err(reason), bytes)?;
            continue;
        }
        let mut record = columns.record();
        let mut is_text = true;
        for (target, cell) in targets.iter().zip(cells.iter()) {
            let Some(cell) = cell else { continue };
            match std::str::from_utf8(cell) {
                Ok(text) => record.add(target, FileValue::Text(text)),
                Err(_) => is_text = false,
            }
        }
        match is_text {
            true => {
                let (record, size) = record.end();
                take(record, size.max(bytes))?;
            }
            false => take(Err("the record is not UTF-8 text".into()), bytes)?,
        }
    }
    Ok(())
}

/// Returns the input without a byte-order mark at its start.
fn without_mark(mut input: impl Read) -> std::io::Result<impl Read> {
    let mut start = Vec::with_capacity(MARK.len());
    input.by_ref().take(MARK.len() as u64).read_to_end(&mut start)?;
    if start == MARK {
        start.clear();
    }
    Ok(std::io::Cursor::new(start).chain(input))
}

/// Reads the next record. Returns false at the end of the input. Empty lines are skipped. Outside of quotes, a carriage
/// return belongs to the line end if a line feed follows, and otherwise to the cell.
fn next(reader: &mut impl BufRead, cells: &mut Cells) -> Result<bool> {
    cells.clear();
    let mut state = State::Start;
    let mut has_return = false;
    loop {
        let buffer = match reader.fill_buf() {
            Ok(buffer) => buffer,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(RowsError::Input(error)),
        };
        if buffer.is_empty() {
            if state == State::Quoted {
                return Err(RowsError::Invalid(
                    "the CSV ends within a quoted cell; a quote is missing, or the file is cut off".into(),
                ));
            }
            let is_record = !cells.ends.is_empty() || !cells.text.is_empty() || state != State::Start;
            if is_record {
                cells.ends.push((cells.text.len(), state == State::AfterQuote));
            }
            return Ok(is_record);
        }
        let (mut used, mut is_complete) = (0, false);
        for byte in buffer {
            used += 1;
            if std::mem::take(&mut has_return) && *byte != b'\n' {
                cells.text.push(b'\r');
                state = State::Plain;
            }
            match (state, *byte) {
                (State::Quoted, b'"') => state = State::AfterQuote,
                (State::Quoted, byte) => cells.text.push(byte),
                (State::AfterQuote, b'"') => {
                    cells.text.push(b'"');
                    state = State::Quoted;
                }
                (state_now, b',') => {
                    cells
                        .ends
                        .push((cells.text.len(), state_now == State::AfterQuote));
                    state = State::Start;
                }
                (State::Start, b'"') => state = State::Quoted,
                (_, b'\r') => has_return = true,
                (state_now, b'\n') => {
                    let is_empty =
                        cells.ends.is_empty() && cells.text.is_empty() && state_now == State::Start;
                    if is_empty {
                        continue;
                    }
                    cells
                        .ends
                        .push((cells.text.len(), state_now == State::AfterQuote));
                    is_complete = true;
                    break;
                }
                (_, byte) => {
                    cells.text.push(byte);
                    state = State::Plain;
                }
            }
        }
        reader.consume(used);
        if is_complete {
            return Ok(true);
        }
        if cells.text.len() > RECORD_BYTES_MAX {
            return Err(RowsError::over(
                "size of a record in bytes",
                RECORD_BYTES_MAX as u64,
                cells.text.len() as u64,
            ));
        }
    }
}

/// State of the parser within a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Start,
    Plain,
    Quoted,
    AfterQuote,
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::{option, prop_assert_eq, proptest};
    use tideline_results::put_csv_text;

    use super::*;

    fn records(text: &str, capacity: usize) -> Vec<Vec<Option<String>>> {
        let mut reader = BufReader::with_capacity(capacity, text.as_bytes());
        let (mut cells, mut records) = (Cells::default(), Vec::new());
        while next(&mut reader, &mut cells).expect("valid") {
            let text = |cell: &[u8]| String::from_utf8_lossy(cell).into_owned();
            records.push(cells.iter().map(|cell| cell.map(text)).collect());
        }
        records
    }

    #[test]
    fn missing_and_empty_cells_differ_wherever_the_buffer_ends() {
        let text = "a,b\r\n1,\"x\"\"y,\n z\"\r\n\r\n\"\",\n,\"\"";
        let some = |text: &str| Some(text.to_owned());
        for capacity in [1, 2, 3, 64] {
            assert_eq!(
                records(text, capacity),
                [
                    vec![some("a"), some("b")],
                    vec![some("1"), some("x\"y,\n z")],
                    vec![some(""), None],
                    vec![None, some("")],
                ],
                "{capacity}"
            );
        }
        assert!(records("", 8).is_empty());
    }

    proptest! {
        #![proptest_config(tideline_testkit::proptest_config(300))]

        #[test]
        fn written_records_are_read_back(
            rows in vec(vec(option::of("[a\",\r\n ]{0,6}"), 2..4), 1..5),
            capacity in 1_usize..9,
        ) {
            let mut text = Vec::new();
            for row in &rows {
                for (number, cell) in row.iter().enumerate() {
                    if number > 0 {
                        text.push(b',');
                    }
                    if let Some(cell) = cell {
                        put_csv_text(cell, &mut text);
                    }
                }
                text.extend_from_slice(b"\r\n");
            }
            let text = String::from_utf8(text).expect("text");
            prop_assert_eq!(records(&text, capacity), rows);
        }
    }

    #[test]
    fn a_carriage_return_within_a_cell_is_kept() {
        let some = |text: &str| Some(text.to_owned());
        for capacity in [1, 2, 64] {
            let found = records("a\rb,c\r\n\rd,\r\r\ne,f\r", capacity);
            let expected = vec![
                vec![some("a\rb"), some("c")],
                vec![some("\rd"), some("\r")],
                vec![some("e"), some("f")],
            ];
            assert_eq!(found, expected, "{capacity}");
        }
    }

    #[test]
    fn a_byte_order_mark_is_skipped_before_a_quoted_name() {
        for (text, expected) in [
            ("\u{feff}\"a\",b\n", "\"a\",b\n"),
            ("\u{feff}", ""),
            ("ab", "ab"),
            ("", ""),
        ] {
            let mut rest = String::new();
            let input = without_mark(text.as_bytes()).expect("it is read");
            { input }.read_to_string(&mut rest).expect("it is text");
            assert_eq!(rest, expected);
        }
    }

    #[test]
    fn a_file_that_ends_in_quotes_is_refused() {
        let mut reader = BufReader::new("a,\"b".as_bytes());
        assert!(next(&mut reader, &mut Cells::default()).is_err());
    }
}

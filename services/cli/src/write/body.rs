//! Request body of a batch: the whole batch, or the records that are still to be stored after a partial
//! success.
//!
//! The server reports rejected records by line number of the body. This module maps these lines back to
//! positions in the batch.

use std::borrow::Cow;

use super::csv::Converted;
use super::feed::Batch;
use super::record::Framing;

/// Body of a request.
pub(super) struct Body<'b> {
    bytes: Cow<'b, [u8]>,
    framing: Framing,
    origins: Origins<'b>,
    /// Number of the body's records that are not stored yet. `None` for a whole batch.
    pub(super) owed: Option<u64>,
}

/// Mapping from the records of the body to their positions in the batch.
enum Origins<'b> {
    /// The body is the batch.
    Same,
    /// For each line of the body, the position of its source row in the batch.
    Rows(&'b [usize]),
    /// First line of each record in the body, and position of the record in the batch; ascending in both.
    Chosen(Vec<(usize, usize)>),
}

/// Body with the offsets of its lines.
pub(super) struct LineOffsets<'p, 'b> {
    body: &'p Body<'b>,
    /// Offset of each line in the body.
    starts: Vec<usize>,
}

impl<'b> Body<'b> {
    /// Creates the body of a whole batch: the converted rows if there are any, otherwise the bytes of the batch.
    pub(super) fn of(batch: &'b Batch, converted: Option<&'b Converted>) -> Self {
        let (bytes, framing, origins) = match converted {
            Some(converted) => (&converted.body, Framing::Ndjson, Origins::Rows(&converted.starts)),
            None => (&batch.block.bytes, batch.framing, Origins::Same),
        };
        Self {
            bytes: Cow::Borrowed(bytes),
            framing,
            origins,
            owed: None,
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) const fn content_type(&self) -> &'static str {
        match self.framing {
            Framing::Lines => "text/plain",
            Framing::Csv { .. } | Framing::Ndjson => "application/x-ndjson",
        }
    }

    /// Finds the offsets of all lines.
    pub(super) fn line_offsets(&self) -> LineOffsets<'_, 'b> {
        let starts = std::iter::once(0).chain(memchr::memchr_iter(b'\n', &self.bytes).map(|end| end + 1));
        LineOffsets {
            body: self,
            starts: starts.filter(|start| *start < self.bytes.len()).collect(),
        }
    }
}

impl LineOffsets<'_, '_> {
    /// Returns the position, within the batch, of the record that begins with this line of the body; `None` if no
    /// record begins there. Lines count from 1.
    pub(super) fn origin(&self, line: usize) -> Option<usize> {
        let at = line.checked_sub(1)?;
        match &self.body.origins {
            Origins::Same => self.starts.get(at).copied(),
            Origins::Rows(rows) => rows.get(at).copied(),
            Origins::Chosen(chosen) => {
                let found = chosen.binary_search_by_key(&line, |(line, _)| *line).ok()?;
                Some(chosen[found].1)
            }
        }
    }

    /// Creates a body of the records that begin at the line numbers `lines`, which must be in ascending order. If
    /// `after` is a line number, all records after the one that begins at this line are added; `Some(0)` adds all
    /// records of the body.
    pub(super) fn again(&self, lines: &[usize], after: Option<usize>, owed: u64) -> Body<'static> {
        let mut bytes = Vec::new();
        let mut chosen = Vec::new();
        let mut lines_written = 0;
        let mut add = |line: usize, record: &[u8]| {
            if let Some(origin) = self.origin(line) {
                chosen.push((lines_written + 1, origin));
                bytes.extend_from_slice(record);
                if !record.ends_with(b"\n") {
                    bytes.push(b'\n');
                }
                lines_written += lines_of(record).max(1);
            }
        };
        let mut next = match after {
            Some(0) => Some(1),
            _ => None,
        };
        for &line in lines {
            if let Some(record) = self.record(line) {
                add(line, record);
            }
        }
        if let Some(line) = after.filter(|line| *line > 0) {
            next = self.record(line).map(|record| line + lines_of(record).max(1));
        }
        while let Some(line) = next
            && let Some(record) = self.record(line)
        {
            add(line, record);
            next = Some(line + lines_of(record).max(1));
        }
        Body {
            bytes: Cow::Owned(bytes),
            framing: self.body.framing,
            origins: Origins::Chosen(chosen),
            owed: Some(owed),
        }
    }

    /// Returns the record that begins with a line; `None` if the body has no such line.
    fn record(&self, line: usize) -> Option<&[u8]> {
        let start = *self.starts.get(line.checked_sub(1)?)?;
        Some(record_at(self.body.framing, &self.body.bytes, start))
    }
}

/// Returns the record that begins at `start`, or its first line without the line end if the record is incomplete. Empty
/// if `start` is at the end or beyond.
pub(super) fn record_at(framing: Framing, bytes: &[u8], start: usize) -> &[u8] {
    if start >= bytes.len() {
        return &[];
    }
    let end = framing
        .end(bytes, start)
        .unwrap_or_else(|| memchr::memchr(b'\n', &bytes[start..]).map_or(bytes.len(), |found| start + found));
    &bytes[start..end]
}

fn lines_of(record: &[u8]) -> usize {
    memchr::memchr_iter(b'\n', record).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(text: &'static str) -> Body<'static> {
        Body {
            bytes: Cow::Borrowed(text.as_bytes()),
            framing: Framing::Lines,
            origins: Origins::Same,
            owed: None,
        }
    }

    fn origins(body: &Body<'_>, lines: &[usize]) -> Vec<Option<usize>> {
        let line_offsets = body.line_offsets();
        lines.iter().map(|line| line_offsets.origin(*line)).collect()
    }

    #[test]
    fn the_rest_of_a_batch_knows_where_it_comes_from() {
        let all = body("a v=1\nb s=\"x\ny\"\nc v=1\nd v=1\ne v=1");
        let rest = all.line_offsets().again(&[2, 4], None, 2);
        assert_eq!(rest.bytes(), b"b s=\"x\ny\"\nc v=1\n");
        assert_eq!(origins(&rest, &[1, 2, 3, 4]), [Some(6), None, Some(16), None]);
        // A further partial body still maps to positions in the batch.
        let last = rest.line_offsets().again(&[3], None, 1);
        assert_eq!(
            (last.bytes(), origins(&last, &[1])),
            (&b"c v=1\n"[..], vec![Some(16)])
        );
    }

    #[test]
    fn what_lies_behind_the_last_line_that_was_named_goes_along() {
        let all = body("a v=1\nb s=\"x\ny\"\nc v=1\nd v=1");
        let rest = all.line_offsets().again(&[1], Some(2), 3);
        assert_eq!(rest.bytes(), b"a v=1\nc v=1\nd v=1\n");
        assert_eq!(origins(&rest, &[1, 2, 3]), [Some(0), Some(16), Some(22)]);
        let rest = all.line_offsets().again(&[], Some(0), 4);
        assert_eq!(rest.bytes(), b"a v=1\nb s=\"x\ny\"\nc v=1\nd v=1\n");
    }
}

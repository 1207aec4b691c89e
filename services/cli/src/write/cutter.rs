//! Cuts a stream of bytes into batches of whole records, limited in bytes and rows.
//!
//! Lines before the first quote of a batch, and all lines of ndjson, are found with vector instructions. Later
//! records are parsed one by one.
//!
//! Positions and line numbers of batches refer to the uncompressed stream.

use std::io::{self, ErrorKind, Read};

use super::record::Framing;

/// Maximum number of bytes per read.
const READ_BYTES: usize = 256 << 10;
/// Size of an incomplete record, in bytes, at which the search for its end stops. An unclosed quote would
/// otherwise join the rest of a file into one record. Instead the first line of the record is sent alone, so
/// that the server rejects only that line.
const RECORD_BYTES_MAX: usize = 1 << 20;

/// Size of the blocks that are scanned for lines without quotes, in bytes: small enough for the CPU cache.
const BLOCK_BYTES: usize = 16 << 10;

/// Limits of a batch.
#[derive(Debug, Clone, Copy)]
pub(super) struct BatchLimits {
    pub(super) bytes: usize,
    pub(super) rows: usize,
}

/// Cutter of one stream.
pub(super) struct Cutter<R> {
    reader: R,
    framing: Framing,
    limits: BatchLimits,
    /// Bytes read but not returned yet, followed by free space whose content is undefined.
    buffer: Vec<u8>,
    filled: usize,
    /// Buffer for the next batch, if one was lent.
    spare: Option<Vec<u8>>,
    is_at_end: bool,
    /// Offset of the buffer in the stream.
    offset: u64,
    /// Line number of the first line in the buffer.
    line: u64,
}

/// Sequence of whole records.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RecordBlock {
    /// Offset of the first byte in the stream.
    pub(super) start: u64,
    /// Offset after the last byte.
    pub(super) end: u64,
    /// Line number of the first line; the stream starts with line 1.
    pub(super) first_line: u64,
    pub(super) bytes: Vec<u8>,
}

impl<R: Read> Cutter<R> {
    pub(super) fn new(reader: R, framing: Framing, limits: BatchLimits) -> Self {
        Self {
            reader,
            framing,
            limits,
            buffer: Vec::new(),
            filled: 0,
            spare: None,
            is_at_end: false,
            offset: 0,
            line: 1,
        }
    }

    /// Lends a buffer for the next batch, unless one is already lent or `spare` returns `None`. Reused memory causes no
    /// page faults and needs no zeroing.
    pub(super) fn lend(&mut self, spare: impl FnOnce() -> Option<Vec<u8>>) {
        if self.spare.is_none() {
            self.spare = spare();
        }
    }

    /// Returns the offset of the next block.
    pub(super) const fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the next batch, which ends at `stop` or before, unless its first record ends later. Returns
    /// `None` at the end of the stream.
    pub(super) fn next(&mut self, stop: Option<u64>) -> io::Result<Option<RecordBlock>> {
        let room = stop.map_or(u64::MAX, |stop| stop.saturating_sub(self.offset));
        let bytes_max = self.limits.bytes.min(usize::try_from(room).unwrap_or(usize::MAX));
        self.cut(bytes_max, self.limits.rows)
    }

    /// Returns the next record alone; `None` at the end of the stream.
    pub(super) fn record(&mut self) -> io::Result<Option<RecordBlock>> {
        self.cut(0, 1)
    }

    /// Returns the next `bytes` bytes, or fewer at the end of the stream. The block can be put back with
    /// [`give_back`](Self::give_back).
    pub(super) fn take(&mut self, bytes: usize) -> io::Result<RecordBlock> {
        while self.filled < bytes && !self.is_at_end {
            self.fill()?;
        }
        Ok(self.take_block(bytes.min(self.filled), 0, 0))
    }

    /// Puts back the block that was returned last, so that it is read again.
    pub(super) fn give_back(&mut self, block: RecordBlock) {
        self.offset = block.start;
        self.line = block.first_line;
        let rest = std::mem::replace(&mut self.buffer, block.bytes);
        self.buffer.extend_from_slice(&rest[..self.filled]);
        self.filled = self.buffer.len();
    }

    fn cut(&mut self, bytes_max: usize, rows_max: usize) -> io::Result<Option<RecordBlock>> {
        let (plain, plain_rows) = self.plain_lines(bytes_max, rows_max)?;
        let (mut cut, mut rows) = (plain, plain_rows);
        while rows < rows_max {
            if cut == self.filled {
                if self.is_at_end {
                    break;
                }
                self.fill()?;
                continue;
            }
            let read = &self.buffer[..self.filled];
            let end = match self.framing.end(read, cut) {
                Some(end) => end,
                None if !self.is_at_end && read.len() - cut < RECORD_BYTES_MAX => {
                    if cut > 0 && read.len() > bytes_max {
                        break;
                    }
                    self.fill()?;
                    continue;
                }
                // An incomplete record is a separate block: if the input is longer in the next run, only this
                // block has changed. On the server an open quote would also include the records after it.
                None if cut > 0 => break,
                None if !read.contains(&b'\n') && self.is_at_end => read.len(),
                None => {
                    cut = self.end_of_broken_record()?;
                    break;
                }
            };
            if cut > 0 && end > bytes_max {
                break;
            }
            cut = end;
            rows += 1;
        }
        Ok((cut > 0).then(|| self.take_block(cut, plain, plain_rows)))
    }

    /// Finds the lines before the first quote, within `bytes_max` and at most `rows_max`. Each of these lines is a
    /// record, so no further parsing is needed. Returns the end of the last line and the number of lines.
    ///
    /// The cost is two passes of vector instructions over the bytes just read, whatever the length of the lines.
    fn plain_lines(&mut self, bytes_max: usize, rows_max: usize) -> io::Result<(usize, usize)> {
        if bytes_max == 0 {
            return Ok((0, 0));
        }
        let (mut end, mut rows, mut at) = (0, 0, 0);
        loop {
            let until = self.filled.min(bytes_max).min(at + BLOCK_BYTES);
            let block = &self.buffer[at..until];
            if block.is_empty() {
                if at >= bytes_max || self.is_at_end {
                    return Ok((end, rows));
                }
                self.fill()?;
                continue;
            }
            let quote = match self.framing {
                Framing::Ndjson => None,
                Framing::Lines | Framing::Csv { .. } => memchr::memchr(b'"', block),
            };
            let plain = &block[..quote.unwrap_or(block.len())];
            let lines = memchr::memchr_iter(b'\n', plain).count();
            if rows + lines >= rows_max {
                let last = memchr::memchr_iter(b'\n', plain).nth(rows_max - rows - 1);
                return Ok((last.map_or(end, |last| at + last + 1), rows_max));
            }
            rows += lines;
            if let Some(last) = memchr::memrchr(b'\n', plain) {
                end = at + last + 1;
            }
            if quote.is_some() {
                return Ok((end, rows));
            }
            at = until;
        }
    }

    /// Returns the end of the first line, for a record without an end. Fails if no line end was read.
    fn end_of_broken_record(&self) -> io::Result<usize> {
        match memchr::memchr(b'\n', &self.buffer[..self.filled]) {
            Some(found) => Ok(found + 1),
            None => Err(io::Error::new(
                ErrorKind::InvalidData,
                format!("line {} exceeds {RECORD_BYTES_MAX} bytes", self.line),
            )),
        }
    }

    /// Returns the first `bytes` bytes of the buffer as a block. The first `counted` of them contain `lines`
    /// line ends, which are not counted again.
    fn take_block(&mut self, bytes: usize, counted: usize, lines: usize) -> RecordBlock {
        let rest = self.filled - bytes;
        let mut next = self.spare.take().unwrap_or_default();
        if next.len() < rest {
            next.resize(rest, 0);
        }
        next[..rest].copy_from_slice(&self.buffer[bytes..self.filled]);
        let mut out = std::mem::replace(&mut self.buffer, next);
        self.filled = rest;
        out.truncate(bytes);
        let block = RecordBlock {
            start: self.offset,
            end: self.offset + bytes as u64,
            first_line: self.line,
            bytes: out,
        };
        self.offset += bytes as u64;
        let more = memchr::memchr_iter(b'\n', &block.bytes[counted..]).count();
        self.line += (lines + more) as u64;
        block
    }

    fn fill(&mut self) -> io::Result<()> {
        let room = self.filled + READ_BYTES;
        if self.buffer.is_empty() {
            // Fresh memory is zeroed by the system, and takes no space until it is written.
            self.buffer = vec![0; room.max(self.limits.bytes.saturating_add(READ_BYTES))];
        } else if self.buffer.len() < room {
            self.buffer.resize(room, 0);
        }
        let read = loop {
            match self.reader.read(&mut self.buffer[self.filled..room]) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        let bytes = read?;
        self.filled += bytes;
        self.is_at_end = bytes == 0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(text: &str, framing: Framing, bytes: usize, rows: usize) -> Vec<String> {
        let mut cutter = Cutter::new(text.as_bytes(), framing, BatchLimits { bytes, rows });
        let mut blocks = Vec::new();
        while let Some(block) = cutter.next(None).expect("memory reads") {
            let lines = text[..usize::try_from(block.start).expect("small")]
                .matches('\n')
                .count();
            assert_eq!(block.first_line, 1 + lines as u64);
            blocks.push(String::from_utf8(block.bytes).expect("text"));
        }
        assert_eq!(blocks.concat(), text, "nothing is lost");
        blocks
    }

    #[test]
    fn batches_are_whole_records_within_their_limits() {
        let text = "aaaa\nbb\ncc\nddddddddd\ne";
        assert_eq!(
            blocks(text, Framing::Ndjson, 8, 100),
            ["aaaa\nbb\n", "cc\n", "ddddddddd\n", "e"]
        );
        assert_eq!(
            blocks(text, Framing::Ndjson, 100, 2),
            ["aaaa\nbb\n", "cc\nddddddddd\n", "e"]
        );
        assert_eq!(blocks("", Framing::Ndjson, 8, 1), [""; 0]);
    }

    #[test]
    fn long_streams_are_cut_the_same_however_they_arrive() {
        let text: String = (0..200_000).map(|at| format!("m f=\"a\nb\",g={at}\n")).collect();
        let all = blocks(&text, Framing::Lines, 1 << 20, 10_000);
        assert!(
            all.iter()
                .all(|block| block.ends_with('\n') && block.starts_with("m f="))
        );
        assert!(all.iter().all(|block| block.len() <= 1 << 20), "within the limit");
        assert_eq!(all.len(), 20);
    }

    /// Reference implementation: cuts record by record.
    fn naive(text: &str, framing: Framing, bytes: usize, rows: usize) -> Vec<&str> {
        let mut blocks = Vec::new();
        let (mut start, mut cut, mut count) = (0, 0, 0);
        while cut < text.len() {
            let end = framing.end(text.as_bytes(), cut);
            if cut > start && (count == rows || end.is_none_or(|end| end - start > bytes)) {
                blocks.push(&text[start..cut]);
                (start, count) = (cut, 0);
            } else {
                (cut, count) = (end.unwrap_or(text.len()), count + 1);
            }
        }
        blocks.extend((start < cut).then(|| &text[start..cut]));
        blocks
    }

    #[test]
    fn plain_lines_are_cut_as_if_each_was_inspected() {
        let mut random = tideline_testkit::seed("cutter").max(1);
        let mut below = |bound: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % bound
        };
        for round in 0..300 {
            let quoted_in = [1_000_000, 400, 3][below(3) as usize];
            let mut text = String::new();
            for _ in 0..below(400) {
                match below(quoted_in) {
                    0 => text.push_str(["# \"\n", "m f=\"a\nb\"\n", "m,t=\" f=1\n"][below(3) as usize]),
                    _ => text.push_str(&format!("m f={}\n", "1".repeat(below(300) as usize))),
                }
            }
            // Text after an open quote is cut by other rules, which `naive` does not follow.
            if below(2) == 0 && !text.ends_with("\"\n") {
                text.pop();
            }
            let framing = [Framing::Lines, Framing::Ndjson][below(2) as usize];
            let (bytes, rows) = (1 + below(40_000) as usize, 1 + below(200) as usize);
            let found = blocks(&text, framing, bytes, rows);
            assert_eq!(found, naive(&text, framing, bytes, rows), "round {round}");
        }
    }

    #[test]
    fn lent_buffers_hold_nothing_of_before() {
        let limits = BatchLimits { bytes: 8, rows: 100 };
        let mut cutter = Cutter::new("aaaa\nbb\ncc\ndddd".as_bytes(), Framing::Lines, limits);
        let mut found = Vec::new();
        loop {
            cutter.lend(|| Some(vec![b'\n'; 5]));
            let Some(block) = cutter.next(None).expect("memory") else {
                break;
            };
            found.push((block.first_line, String::from_utf8(block.bytes).expect("text")));
        }
        let expected = [(1, "aaaa\nbb\n"), (3, "cc\n"), (4, "dddd")];
        assert_eq!(found, expected.map(|(line, text)| (line, text.to_owned())));
    }

    #[test]
    fn an_open_quote_takes_nothing_else_with_it() {
        let text = format!("a f=1\nb f=\"open\n{}", "c f=2\n".repeat(300_000));
        let all = blocks(&text, Framing::Lines, 64 << 10, 1_000_000);
        assert_eq!(all[..2], ["a f=1\n", "b f=\"open\n"]);
        assert!(all[2..].iter().all(|block| block.starts_with("c f=2\n")));
    }

    #[test]
    fn a_stop_is_kept_and_what_is_given_back_comes_again() {
        let limits = BatchLimits {
            bytes: 100,
            rows: 100,
        };
        let mut cutter = Cutter::new("a\nb\nc\nd\n".as_bytes(), Framing::Ndjson, limits);
        assert_eq!(
            cutter.next(Some(4)).expect("memory").expect("more").bytes,
            b"a\nb\n"
        );
        let taken = cutter.take(3).expect("memory");
        assert_eq!(
            (taken.start, taken.first_line, &*taken.bytes),
            (4, 3, &b"c\nd"[..])
        );
        cutter.give_back(taken);
        let rest = cutter.next(None).expect("memory").expect("more");
        assert_eq!(
            (rest.start, rest.first_line, &*rest.bytes),
            (4, 3, &b"c\nd\n"[..])
        );
        assert_eq!(cutter.next(None).expect("memory"), None);
    }
}

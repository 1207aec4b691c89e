//! Cuts a stream of bytes into batches of whole records, within a number of bytes and of rows.

use std::io::{self, ErrorKind, Read};

use super::record::Framing;

/// Bytes read at once.
const READ_BYTES: usize = 256 << 10;
/// Most bytes of one record. A quote that nobody closes would otherwise make one record of the rest of a file; such a
/// line is sent by itself instead, so that the server rejects it and nothing else.
const RECORD_BYTES_MAX: usize = 1 << 20;

/// How large batches may be.
#[derive(Debug, Clone, Copy)]
pub(super) struct BatchLimits {
    pub(super) bytes: usize,
    pub(super) rows: usize,
}

/// A stream that is cut.
pub(super) struct Cutter<R> {
    reader: R,
    framing: Framing,
    limits: BatchLimits,
    /// What was read and not handed out.
    buffer: Vec<u8>,
    is_at_end: bool,
    /// Where the buffer begins in the stream.
    offset: u64,
    /// The number of its first line.
    line: u64,
}

/// Some whole records.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// Where it begins in the stream.
    pub(super) start: u64,
    /// Where it ends.
    pub(super) end: u64,
    /// The number of its first line; the first of the stream is 1.
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
            is_at_end: false,
            offset: 0,
            line: 1,
        }
    }

    /// Where the next piece begins.
    pub(super) const fn offset(&self) -> u64 {
        self.offset
    }

    /// The next batch, which ends at `stop` or before; `None` at the end of the stream.
    pub(super) fn next(&mut self, stop: Option<u64>) -> io::Result<Option<Piece>> {
        let room = stop.map_or(u64::MAX, |stop| stop.saturating_sub(self.offset));
        let bytes_max = self.limits.bytes.min(usize::try_from(room).unwrap_or(usize::MAX));
        self.cut(bytes_max, self.limits.rows)
    }

    /// The next record by itself.
    pub(super) fn record(&mut self) -> io::Result<Option<Piece>> {
        self.cut(0, 1)
    }

    /// The next `bytes`, or fewer at the end of the stream. They may be given back.
    pub(super) fn take(&mut self, bytes: usize) -> io::Result<Piece> {
        while self.buffer.len() < bytes && !self.is_at_end {
            self.fill()?;
        }
        Ok(self.hand_out(bytes.min(self.buffer.len())))
    }

    /// Takes back what was handed out last.
    pub(super) fn give_back(&mut self, piece: Piece) {
        self.offset = piece.start;
        self.line = piece.first_line;
        let rest = std::mem::replace(&mut self.buffer, piece.bytes);
        self.buffer.extend_from_slice(&rest);
    }

    fn cut(&mut self, bytes_max: usize, rows_max: usize) -> io::Result<Option<Piece>> {
        let mut cut = 0;
        let mut rows = 0;
        while rows < rows_max {
            if cut == self.buffer.len() {
                if self.is_at_end {
                    break;
                }
                self.fill()?;
                continue;
            }
            let end = match self.framing.end(&self.buffer, cut) {
                Some(end) => end,
                None if !self.is_at_end && self.buffer.len() - cut < RECORD_BYTES_MAX => {
                    if cut > 0 && self.buffer.len() > bytes_max {
                        break;
                    }
                    self.fill()?;
                    continue;
                }
                // A record without an end is a piece of its own: should the stream be longer the next time, it is the
                // only one that has changed. And on the other side an open quote would take in what follows.
                None if cut > 0 => break,
                None if !self.buffer.contains(&b'\n') && self.is_at_end => self.buffer.len(),
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
        Ok((cut > 0).then(|| self.hand_out(cut)))
    }

    /// Where the first line ends, of a record that has no end.
    fn end_of_broken_record(&self) -> io::Result<usize> {
        match memchr::memchr(b'\n', &self.buffer) {
            Some(found) => Ok(found + 1),
            None => Err(io::Error::new(
                ErrorKind::InvalidData,
                format!("line {} is longer than {RECORD_BYTES_MAX} bytes", self.line),
            )),
        }
    }

    fn hand_out(&mut self, bytes: usize) -> Piece {
        let rest = self.buffer.split_off(bytes);
        let piece = Piece {
            start: self.offset,
            end: self.offset + bytes as u64,
            first_line: self.line,
            bytes: std::mem::replace(&mut self.buffer, rest),
        };
        self.offset += piece.bytes.len() as u64;
        self.line += memchr::memchr_iter(b'\n', &piece.bytes).count() as u64;
        piece
    }

    fn fill(&mut self) -> io::Result<()> {
        let filled = self.buffer.len();
        self.buffer.resize(filled + READ_BYTES, 0);
        let read = loop {
            match self.reader.read(&mut self.buffer[filled..]) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        let bytes = *read.as_ref().unwrap_or(&0);
        self.buffer.truncate(filled + bytes);
        self.is_at_end = read? == 0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(text: &str, framing: Framing, bytes: usize, rows: usize) -> Vec<String> {
        let mut cutter = Cutter::new(text.as_bytes(), framing, BatchLimits { bytes, rows });
        let mut pieces = Vec::new();
        while let Some(piece) = cutter.next(None).expect("memory reads") {
            let lines = text[..usize::try_from(piece.start).expect("small")]
                .matches('\n')
                .count();
            assert_eq!(piece.first_line, 1 + lines as u64);
            pieces.push(String::from_utf8(piece.bytes).expect("text"));
        }
        assert_eq!(pieces.concat(), text, "nothing is lost");
        pieces
    }

    #[test]
    fn batches_are_whole_records_within_their_limits() {
        let text = "aaaa\nbb\ncc\nddddddddd\ne";
        assert_eq!(
            pieces(text, Framing::Ndjson, 8, 100),
            ["aaaa\nbb\n", "cc\n", "ddddddddd\n", "e"]
        );
        assert_eq!(
            pieces(text, Framing::Ndjson, 100, 2),
            ["aaaa\nbb\n", "cc\nddddddddd\n", "e"]
        );
        assert_eq!(pieces("", Framing::Ndjson, 8, 1), [""; 0]);
    }

    #[test]
    fn long_streams_are_cut_the_same_however_they_arrive() {
        let text: String = (0..200_000).map(|at| format!("m f=\"a\nb\",g={at}\n")).collect();
        let all = pieces(&text, Framing::Lines, 1 << 20, 10_000);
        assert!(
            all.iter()
                .all(|piece| piece.ends_with('\n') && piece.starts_with("m f="))
        );
        assert!(all.iter().all(|piece| piece.len() <= 1 << 20), "within the limit");
        assert_eq!(all.len(), 20);
    }

    #[test]
    fn an_open_quote_takes_nothing_else_with_it() {
        let text = format!("a f=1\nb f=\"open\n{}", "c f=2\n".repeat(300_000));
        let all = pieces(&text, Framing::Lines, 64 << 10, 1_000_000);
        assert_eq!(all[..2], ["a f=1\n", "b f=\"open\n"]);
        assert!(all[2..].iter().all(|piece| piece.starts_with("c f=2\n")));
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

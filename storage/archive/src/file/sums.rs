//! Block checksums of a file: every part that is read back is verified before it is decoded.
//!
//! Readers fetch parts of a file, but its SHA-256 covers the whole file. A metadata entry in the footer therefore has a
//! CRC-32 of each block before the page indexes. The description of the segment, a separate object, has one SHA-256 per
//! file, which covers the page indexes that readers use and the footer. Blocks are independent of pages, so page
//! headers and the bytes between pages are covered too.

use std::io::{self, Write};
use std::ops::Range;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Key of the metadata entry with the checksums.
pub(crate) const NOTE_SUMS: &str = "tideline.checksums";
/// Block size in bytes. Smaller blocks enlarge the footer; larger blocks cause more unneeded bytes to be read.
const BLOCK: u64 = 8 << 10;
/// Name of the algorithm in the metadata entry: CRC-32 (ISO 3309), as in gzip.
const ALGORITHM: &str = "crc32";

/// CRC-32 of each block of a file, from its start up to an end offset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BlockSums {
    sums: Box<[u32]>,
    /// Block size in bytes; the last block may be shorter.
    block: u64,
    /// Number of bytes covered.
    end: u64,
}

impl BlockSums {
    /// Returns the number of bytes covered, from the start of the file.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Returns the memory usage in bytes.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.sums)
    }

    /// Returns the indexes of the blocks that contain a range; `None` if the range exceeds the covered bytes or ends
    /// before it starts.
    pub(crate) fn blocks(&self, range: &Range<u64>) -> Option<Range<usize>> {
        if range.start > range.end || range.end > self.end {
            return None;
        }
        let first = usize::try_from(range.start / self.block).ok()?;
        let end = usize::try_from(range.end.div_ceil(self.block)).ok()?;
        Some(first..end.max(first))
    }

    /// Returns the byte range of blocks.
    pub(crate) fn range(&self, blocks: &Range<usize>) -> Range<u64> {
        let at = |block: usize| (block as u64).saturating_mul(self.block).min(self.end);
        at(blocks.start)..at(blocks.end)
    }

    /// Verifies `content`, which must start at the block boundary `start`. Returns the first block that does not match:
    /// its byte range in the file, the stored checksum and the actual checksum. Returns `None` if all blocks match.
    pub(crate) fn first_wrong(&self, start: u64, content: &[u8]) -> Option<(Range<u64>, u32, u32)> {
        let first = usize::try_from(start / self.block).unwrap_or(usize::MAX);
        let parts = content.chunks(usize::try_from(self.block).unwrap_or(usize::MAX));
        parts.zip(first..).find_map(|(part, block)| {
            let range = self.range(&(block..block + 1));
            let stored = self.sums.get(block).copied().unwrap_or_default();
            let found = crc32fast::hash(part);
            let is_right = found == stored && range.end - range.start == part.len() as u64;
            (!is_right).then_some((range, stored, found))
        })
    }

    /// Encodes the metadata entry: algorithm, block size, number of covered bytes, and the little-endian checksums in
    /// base64.
    pub(crate) fn to_note(&self) -> String {
        let bytes: Vec<u8> = self.sums.iter().flat_map(|sum| sum.to_le_bytes()).collect();
        let Self { block, end, .. } = self;
        format!("{ALGORITHM} {block} {end} {}", STANDARD.encode(bytes))
    }

    /// Decodes a metadata entry; `None` if it is not valid or has an unknown algorithm.
    pub(crate) fn from_note(note: &str) -> Option<Self> {
        let mut parts = note.split(' ');
        let mut next = || parts.next();
        if next()? != ALGORITHM {
            return None;
        }
        let block: u64 = next()?.parse().ok()?;
        let end: u64 = next()?.parse().ok()?;
        let bytes = STANDARD.decode(next()?).ok()?;
        let (sums, rest) = bytes.as_chunks();
        let is_whole = block > 0 && rest.is_empty() && sums.len() as u64 == end.div_ceil(block);
        is_whole.then(|| Self {
            sums: sums.iter().map(|sum| u32::from_le_bytes(*sum)).collect(),
            block,
            end,
        })
    }
}

/// Incremental computation of block checksums.
#[derive(Debug, Default)]
pub(crate) struct Summer {
    sums: Vec<u32>,
    hasher: crc32fast::Hasher,
    /// Bytes in the incomplete block.
    filled: u64,
}

impl Summer {
    /// Adds the next bytes.
    pub(crate) fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = usize::try_from(BLOCK - self.filled).unwrap_or(usize::MAX);
            let (part, rest) = bytes.split_at(room.min(bytes.len()));
            self.hasher.update(part);
            self.filled += part.len() as u64;
            if self.filled == BLOCK {
                self.complete();
            }
            bytes = rest;
        }
    }

    fn complete(&mut self) {
        self.sums.push(std::mem::take(&mut self.hasher).finalize());
        self.filled = 0;
    }

    /// Returns the checksums of all bytes added.
    pub(crate) fn sums(mut self) -> BlockSums {
        let end = self.sums.len() as u64 * BLOCK + self.filled;
        if self.filled > 0 {
            self.complete();
        }
        BlockSums {
            sums: self.sums.into(),
            block: BLOCK,
            end,
        }
    }
}

/// Writer that computes the checksums of the written bytes.
#[derive(Debug)]
pub(crate) struct Summed<W> {
    out: W,
    summer: Summer,
}

impl<W> Summed<W> {
    pub(crate) fn new(out: W) -> Self {
        Self {
            out,
            summer: Summer::default(),
        }
    }

    /// Returns the writer.
    pub(crate) fn into_inner(self) -> W {
        self.out
    }

    /// Returns the checksums of the bytes written so far. Further bytes are not covered.
    pub(crate) fn take_sums(&mut self) -> BlockSums {
        std::mem::take(&mut self.summer).sums()
    }
}

impl<W: Write> Write for Summed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.summer.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sums_of(bytes: &[u8], step: usize) -> BlockSums {
        let mut summed = Summed::new(Vec::new());
        for part in bytes.chunks(step) {
            summed.write_all(part).expect("a Vec takes all");
        }
        assert_eq!(summed.out, bytes);
        summed.take_sums()
    }

    #[test]
    fn every_flipped_bit_is_found_whatever_the_parts() {
        let bytes: Vec<u8> = (0..3 * BLOCK + 17).map(|at| (at * 31 % 251) as u8).collect();
        let sums = sums_of(&bytes, 1_000);
        assert_eq!(sums, sums_of(&bytes, 100_000));
        assert_eq!(sums.blocks(&(0..0)), Some(0..0));
        assert_eq!(sums.blocks(&(BLOCK - 1..BLOCK + 1)), Some(0..2));
        assert_eq!(sums.blocks(&(0..sums.end() + 1)), None);
        assert_eq!(sums.range(&(2..4)), 2 * BLOCK..bytes.len() as u64);
        assert_eq!(sums.first_wrong(0, &bytes), None);
        assert_eq!(sums.first_wrong(BLOCK, &bytes[BLOCK as usize..]), None);
        for at in (0..bytes.len()).step_by(97) {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << (at % 8);
            let (range, ..) = sums.first_wrong(0, &flipped).expect("it differs");
            assert!(range.contains(&(at as u64)), "{at}: {range:?}");
        }
        assert!(sums.first_wrong(0, &bytes[..bytes.len() - 1]).is_some());
    }

    #[test]
    fn a_note_reads_back_and_others_are_refused() {
        for length in [0, 1, BLOCK, BLOCK + 1] {
            let sums = sums_of(&vec![7; length as usize], 512);
            assert_eq!(BlockSums::from_note(&sums.to_note()), Some(sums));
        }
        for wrong in [
            "",
            "crc32 8192 1",
            "crc32 0 0 ",
            "crc32 8192 1 AAAA",
            "crc32 8192 8193 AAAAAA==",
            "xxh3 8192 1 AAAAAA==",
            "crc32 8192 1 ????????",
        ] {
            assert_eq!(BlockSums::from_note(wrong), None, "{wrong}");
        }
    }
}

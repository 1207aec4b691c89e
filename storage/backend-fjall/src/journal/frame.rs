//! Byte layout of a journal file: a header, then frames. `FORMAT.md` has the tables.
//!
//! The checksum of a frame depends on the file, so frames of other files are never accepted. A search finds intact
//! frames after a bad frame. The headers of the intact frames show whether the bad frame is damage or a torn write.

use std::fmt;
use std::ops::Range;

use tideline_backend::{Epoch, Shard, VALUE_BYTES_MAX};
use tideline_model::SequenceNumber;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// Length of a file's header, in bytes.
pub(crate) const HEADER_BYTES: usize = 48;
/// Length of a frame's header, in bytes.
pub(crate) const FRAME_HEADER_BYTES: usize = 28;

const MAGIC: [u8; 8] = *b"TLJOURNL";
const VERSION: u16 = 1;
/// Part of a frame's header that the checksum covers: everything but the checksum itself.
const CHECKED: Range<usize> = 0..20;

/// Identity of a journal file. It seeds the checksums of the frames, so that a block of another file is never accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct FileId {
    pub(crate) shard: Shard,
    pub(crate) epoch: Epoch,
    /// Number of the file within its epoch.
    pub(crate) generation: u64,
}

impl FileId {
    /// Returns the file name, such as `0000-0000000000000001-00000000.journal`: shard, epoch, generation in hexadecimal
    /// digits.
    pub(crate) fn name(self) -> String {
        format!(
            "{:04x}-{:016x}-{:08x}.journal",
            self.shard.0, self.epoch.0, self.generation
        )
    }

    /// Parses a file name; `None` if it is not the name of a journal file.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let mut parts = name.strip_suffix(".journal")?.split('-');
        let mut number = || u64::from_str_radix(parts.next()?, 16).ok();
        let id = Self {
            shard: Shard(u16::try_from(number()?).ok()?),
            epoch: Epoch(number()?),
            generation: number()?,
        };
        (id.name() == name).then_some(id)
    }

    /// Returns true if `next` is the next file of the same epoch.
    pub(crate) fn precedes(self, next: Self) -> bool {
        self.epoch == next.epoch && self.generation.checked_add(1) == Some(next.generation)
    }

    /// Returns the seed of the checksums of the file's frames.
    pub(crate) fn seed(self) -> u64 {
        let mut bytes = [0; 18];
        bytes[..2].copy_from_slice(&self.shard.0.to_le_bytes());
        bytes[2..10].copy_from_slice(&self.epoch.0.to_le_bytes());
        bytes[10..].copy_from_slice(&self.generation.to_le_bytes());
        xxh3_64(&bytes)
    }

    /// Returns the header of the file. `first` is the sequence of its first entry.
    pub(crate) fn header(self, first: SequenceNumber) -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        header[..8].copy_from_slice(&MAGIC);
        header[8..10].copy_from_slice(&VERSION.to_le_bytes());
        header[10..12].copy_from_slice(&self.shard.0.to_le_bytes());
        header[16..24].copy_from_slice(&self.epoch.0.to_le_bytes());
        header[24..32].copy_from_slice(&self.generation.to_le_bytes());
        header[32..40].copy_from_slice(&first.0.to_le_bytes());
        let checksum = xxh3_64(&header[..40]);
        header[40..].copy_from_slice(&checksum.to_le_bytes());
        header
    }

    /// Checks a header against the identity of the file.
    pub(crate) fn check_header(self, header: &[u8]) -> HeaderCheck {
        let Some(header) = header.first_chunk::<HEADER_BYTES>() else {
            return HeaderCheck::Damaged;
        };
        if u64_at(header, 40) != xxh3_64(&header[..40]) || header[..8] != MAGIC {
            return HeaderCheck::Damaged;
        }
        let version = u16::from_le_bytes([header[8], header[9]]);
        if version != VERSION {
            return HeaderCheck::Version(version);
        }
        let first = SequenceNumber(u64_at(header, 32));
        if self.header(first) == *header {
            HeaderCheck::Intact
        } else {
            HeaderCheck::Misnamed
        }
    }
}

/// Returns the sequence of the first entry that a header holds; `None` if the header is incomplete.
pub(crate) fn first_of(header: &[u8]) -> Option<SequenceNumber> {
    let header = header.first_chunk::<HEADER_BYTES>()?;
    Some(SequenceNumber(u64_at(header, 32)))
}

/// Result of checking a file's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeaderCheck {
    Intact,
    /// The header is incomplete, or was changed after it was written.
    Damaged,
    /// A build with another format version wrote the header.
    Version(u16),
    /// The header belongs to another file.
    Misnamed,
}

/// Header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    /// Length of the payload, in bytes.
    pub(crate) length: u32,
    pub(crate) sequence: SequenceNumber,
    /// Number of bytes of this file that were durable when the frame was written. A bad frame within these bytes is
    /// damage, not a torn write.
    pub(crate) synced: u64,
    checksum: u64,
}

impl FrameHeader {
    /// Parses a header without checking it; see [`is_intact`](Self::is_intact).
    pub(crate) fn parse(bytes: &[u8; FRAME_HEADER_BYTES]) -> Self {
        Self {
            length: u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]),
            sequence: SequenceNumber(u64_at(bytes, 4)),
            synced: u64_at(bytes, 12),
            checksum: u64_at(bytes, 20),
        }
    }

    /// Returns true if this could be the header of a frame at `position`, after a frame with sequence `last`. Prevents
    /// a large allocation for a damaged length.
    pub(crate) fn is_plausible(&self, position: u64, last: Option<SequenceNumber>) -> bool {
        self.length as usize <= VALUE_BYTES_MAX
            && self.synced <= position
            && last.is_none_or(|last| self.sequence > last)
    }

    /// Returns true if the checksum of header and payload is correct.
    pub(crate) fn is_intact(&self, seed: u64, payload: &[u8]) -> bool {
        let header = encode_checked(self.length, self.sequence, self.synced);
        self.checksum == checksum(seed, &header, payload)
    }
}

/// Appends a frame to `buffer`. The payload has at most [`VALUE_BYTES_MAX`] bytes.
pub(crate) fn encode(buffer: &mut Vec<u8>, seed: u64, sequence: SequenceNumber, synced: u64, payload: &[u8]) {
    let header = encode_checked(payload.len() as u32, sequence, synced);
    buffer.extend_from_slice(&header);
    buffer.extend_from_slice(&checksum(seed, &header, payload).to_le_bytes());
    buffer.extend_from_slice(payload);
}

fn encode_checked(length: u32, sequence: SequenceNumber, synced: u64) -> [u8; CHECKED.end] {
    let mut header = [0; CHECKED.end];
    header[..4].copy_from_slice(&length.to_le_bytes());
    header[4..12].copy_from_slice(&sequence.0.to_le_bytes());
    header[12..20].copy_from_slice(&synced.to_le_bytes());
    header
}

/// Returns the hash of the payload, seeded with the hash of the header, which is seeded with the file's seed.
fn checksum(seed: u64, header: &[u8], payload: &[u8]) -> u64 {
    xxh3_64_with_seed(payload, xxh3_64_with_seed(header, seed))
}

/// Reads a number at an offset that is within bounds.
fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(number)
}

/// Intact frames in the part of a file that begins with a bad frame or header.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Rest {
    /// Number of intact frames.
    pub(crate) entries: u64,
    /// First and last sequence of the intact frames.
    pub(crate) sequences: Option<(SequenceNumber, SequenceNumber)>,
    /// Highest `synced` of the intact frames; `None` without intact frames. A bad frame before this offset is damage,
    /// not a torn write.
    pub(crate) synced: Option<u64>,
    /// Byte ranges of the file that hold no intact frame.
    pub(crate) unreadable: Vec<Range<u64>>,
}

impl Rest {
    /// Searches `rest`, which begins at offset `start` of the file, for frames with sequences above `last`.
    pub(crate) fn search(rest: &[u8], start: u64, seed: u64, last: Option<SequenceNumber>) -> Self {
        let mut found = Self::default();
        let (mut at, mut unreadable_from) = (0, 0);
        while let Some(header) = rest.get(at..).and_then(|rest| rest.first_chunk()) {
            let frame = FrameHeader::parse(header);
            let payload_at = at + FRAME_HEADER_BYTES;
            let payload = frame
                .is_plausible(start + at as u64, last)
                .then(|| rest.get(payload_at..payload_at + frame.length as usize))
                .flatten();
            match payload {
                Some(payload) if frame.is_intact(seed, payload) => {
                    found.skip(unreadable_from..at, start);
                    found.add(&frame);
                    at = payload_at + payload.len();
                    unreadable_from = at;
                }
                _ => at += 1,
            }
        }
        found.skip(unreadable_from..rest.len(), start);
        found
    }

    /// Adds an intact frame.
    pub(crate) fn add(&mut self, frame: &FrameHeader) {
        self.entries += 1;
        self.synced = self.synced.max(Some(frame.synced));
        let first = self.sequences.map_or(frame.sequence, |(first, _)| first);
        self.sequences = Some((first, frame.sequence));
    }

    fn skip(&mut self, range: Range<usize>, start: u64) {
        if !range.is_empty() {
            self.unreadable
                .push(start + range.start as u64..start + range.end as u64);
        }
    }
}

impl fmt::Display for Rest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.sequences {
            Some((first, last)) => {
                write!(f, "{} intact entries, sequences {first} to {last}", self.entries)?;
            }
            None => f.write_str("no intact entry")?,
        }
        for (n, Range { start, end }) in self.unreadable.iter().enumerate() {
            let before = if n == 0 { ", unreadable bytes " } else { ", " };
            write!(f, "{before}{start} to {end}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: FileId = FileId {
        shard: Shard(1),
        epoch: Epoch(2),
        generation: 3,
    };

    #[test]
    fn names_read_back() {
        assert_eq!(FileId::parse(&ID.name()), Some(ID));
        assert_eq!(FileId::parse("1-2-3.journal"), None);
        assert_eq!(FileId::parse("LOCK"), None);
    }

    #[test]
    fn every_flipped_bit_of_a_header_or_frame_is_seen() {
        let header = ID.header(SequenceNumber(7));
        assert_eq!(ID.check_header(&header), HeaderCheck::Intact);
        for bit in 0..HEADER_BYTES * 8 {
            let mut flipped = header;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(ID.check_header(&flipped), HeaderCheck::Intact, "bit {bit}");
        }
        let mut frame = Vec::new();
        encode(&mut frame, ID.seed(), SequenceNumber(7), 48, b"payload");
        assert_eq!(Rest::search(&frame, 48, ID.seed(), None).synced, Some(48));
        for bit in 0..frame.len() * 8 {
            let mut flipped = frame.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let found = Rest::search(&flipped, 48, ID.seed(), None);
            assert_eq!((found.entries, found.synced), (0, None), "bit {bit}");
        }
        let other = FileId { generation: 4, ..ID };
        assert_eq!(Rest::search(&frame, 48, other.seed(), None).entries, 0);
    }
}

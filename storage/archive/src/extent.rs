//! Location of a run of one timeline in the files of a segment.
//!
//! The local store keeps an extent instead of a chunk. An extent takes about twenty bytes per run of up to a few
//! thousand points. Summaries of the numeric columns are stored with the extent: per hour, or per day if hours have few
//! points. Therefore no request is needed to find a timeline in the archive, or to compute an aggregate over whole
//! hours or days that have summaries. Both operations work while the target is not reachable.
//!
//! ```text
//! format    1 byte    1; 2 with dense summaries; 3 with sparse summaries, which older builds reject
//! first     8 bytes   first timestamp, little-endian
//! file      varint    index in the file list of the segment
//! row       varint    first row in that file
//! rows      varint    number of rows from this row on
//! span      varint    last − first timestamp
//! points    varint
//! values    varint
//! lowest    varint    lowest journal sequence number of its points
//! more      varint    highest − lowest
//! summaries rest      in formats 2 and 3: `LoneSummaries` of `tideline-chunk`
//! ```

use bytes::Bytes;
use tideline_chunk::{LoneSummaries, SequenceSpan};
use tideline_model::SequenceNumber;
use tideline_model::time::{NANOS_PER_DAY, NANOS_PER_SECOND};
use tideline_wire::varint;

use crate::error::{ArchiveError, Result};

/// Run of one timeline in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Index in [`ArchiveCopy::files`](crate::ArchiveCopy::files).
    pub file: u32,
    /// First row in the file.
    pub row: u64,
    /// Number of rows of the run in the file: one per point. In a shared file: one per value, and one per point without
    /// values.
    pub rows: u32,
    /// First timestamp, nanoseconds since the epoch.
    pub first: i64,
    /// Last timestamp, nanoseconds since the epoch.
    pub last: i64,
    /// Number of points.
    pub points: u32,
    /// Number of field values; `u32::MAX` means this number or more.
    pub values: u32,
    /// Range of the journal sequence numbers of the points.
    pub sequences: SequenceSpan,
}

/// Format without summaries.
const FORMAT_PLAIN: u8 = 1;
/// Format with summaries of buckets that have at least 16 rows on average.
const FORMAT_DENSE: u8 = 2;
/// Format with summaries of buckets with any number of rows.
const FORMAT: u8 = 3;
/// Widths of summary buckets, in nanoseconds. Cold chunks also use hours, so archiving hardly changes the cost of
/// aggregates. Runs with few rows per hour use days.
pub(crate) const SUMMARY_WIDTHS: [i64; 2] = [3_600 * NANOS_PER_SECOND, NANOS_PER_DAY];
/// Maximum size in bytes of summaries that are not dense. Larger summaries that are not dense are omitted, because they
/// would be about as large as the rows. The summaries of a run reach this size with about thirty fields.
pub(crate) const SPARSE_SUMMARIES_BYTES_MAX: usize = 1 << 10;

impl Extent {
    /// Appends the stored form to `out`. `summaries` may be empty.
    pub fn encode(&self, summaries: &[u8], out: &mut Vec<u8>) {
        out.push(match summaries {
            [] => FORMAT_PLAIN,
            _ if is_dense(summaries) => FORMAT_DENSE,
            _ => FORMAT,
        });
        out.extend_from_slice(&self.first.to_le_bytes());
        let span = self.last.wrapping_sub(self.first) as u64;
        let SequenceSpan { lowest, highest } = self.sequences;
        for number in [
            u64::from(self.file),
            self.row,
            u64::from(self.rows),
            span,
            u64::from(self.points),
            u64::from(self.values),
            lowest.0,
            highest.0 - lowest.0,
        ] {
            varint::put(number, out);
        }
        out.extend_from_slice(summaries);
    }

    /// Decodes the stored form. Returns the extent and its summaries, which may be empty.
    ///
    /// # Errors
    ///
    /// [`ArchiveError::Format`] if the bytes are damaged or have an unknown format number.
    pub fn decode(stored: &Bytes) -> Result<(Self, Bytes)> {
        let bytes: &[u8] = stored;
        let damaged = || ArchiveError::format("an extent", "it is damaged");
        let (format, rest) = bytes.split_first().ok_or_else(damaged)?;
        if ![FORMAT_PLAIN, FORMAT_DENSE, FORMAT].contains(format) {
            return Err(ArchiveError::format(
                "an extent",
                format!("format {format} is not known to this build"),
            ));
        }
        let (first, mut rest) = rest.split_first_chunk().ok_or_else(damaged)?;
        let first = i64::from_le_bytes(*first);
        let mut next = || varint::take_wrapping(&mut rest).map_err(|_| damaged());
        let small = |number: u64| u32::try_from(number).map_err(|_| damaged());
        let file = small(next()?)?;
        let row = next()?;
        let rows = small(next()?)?;
        let last = first.checked_add_unsigned(next()?).ok_or_else(damaged)?;
        let (points, values) = (small(next()?)?, small(next()?)?);
        let lowest = next()?;
        let highest = lowest.checked_add(next()?).ok_or_else(damaged)?;
        let summaries = match *format {
            FORMAT_PLAIN => Bytes::new(),
            _ => stored.slice(stored.len() - rest.len()..),
        };
        let extent = Self {
            file,
            row,
            rows,
            first,
            last,
            points,
            values,
            sequences: SequenceSpan {
                lowest: SequenceNumber(lowest),
                highest: SequenceNumber(highest),
            },
        };
        Ok((extent, summaries))
    }
}

/// Returns true if the summaries are valid and dense. Earlier builds can read such summaries.
pub(crate) fn is_dense(summaries: &[u8]) -> bool {
    LoneSummaries::open(summaries).is_ok_and(|lone| lone.is_dense())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extent_reads_back_and_damage_is_noticed() {
        let extent = Extent {
            file: 3,
            row: 1 << 40,
            rows: 8_640,
            first: i64::MIN + 2,
            last: i64::MAX - 1,
            points: 8_640,
            values: u32::MAX,
            sequences: SequenceSpan {
                lowest: SequenceNumber(5),
                highest: SequenceNumber(u64::MAX),
            },
        };
        let stored = |summaries: &[u8]| {
            let mut bytes = Vec::new();
            extent.encode(summaries, &mut bytes);
            bytes
        };
        let plain = stored(&[]);
        assert_eq!(plain[0], FORMAT_PLAIN, "earlier builds read it");
        for summaries in [&b""[..], b"hours"] {
            let read = Extent::decode(&stored(summaries).into()).expect("just written");
            assert_eq!(read, (extent, Bytes::copy_from_slice(summaries)));
        }
        for end in 0..plain.len() {
            assert!(Extent::decode(&Bytes::copy_from_slice(&plain[..end])).is_err());
        }
        let mut later = plain;
        later[0] = 4;
        let error = Extent::decode(&later.into()).expect_err("of a later format");
        assert!(error.to_string().contains("format 4"), "{error}");
    }
}

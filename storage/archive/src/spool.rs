//! Temporary storage of the extents of a segment on the local disk while its files are written.
//!
//! Extents arrive in the final order, by timeline, but the location of rows of small measurements is determined later.
//! Therefore records have a fixed size, and locations are filled in when they are determined.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;

use tideline_chunk::SequenceSpan;
use tideline_model::{SequenceNumber, TimelineId};

use crate::error::{ArchiveError, Result};
use crate::extent::Extent;

/// Size of a record in bytes: id, the numbers of an extent starting with its location, and the length of its summaries.
const RECORD: usize = 16 + 4 + 8 + 4 + 4 + 4 + 4 * 8 + 4;
/// Offset of the location (file, row, rows) in a record.
const LOCATION_OFFSET: u64 = 16;

/// Writer of extents.
#[derive(Debug)]
pub(crate) struct SpoolWriter {
    out: BufWriter<File>,
    /// Summaries of all records, concatenated.
    summaries: BufWriter<File>,
    records: u64,
}

/// Location of a run: file, first row, number of rows.
pub(crate) type RowLocation = (u32, u64, u32);

/// Iterator over extents, ordered by timeline and time. Reads from disk; memory usage is constant.
#[derive(Debug)]
pub struct Extents {
    from: BufReader<File>,
    summaries: BufReader<File>,
    /// Summaries of the extent returned last.
    at_hand: Vec<u8>,
    left: u64,
}

impl SpoolWriter {
    pub(crate) fn new(directory: &std::path::Path) -> Result<Self> {
        let file = || tempfile::tempfile_in(directory).map_err(ArchiveError::local("making"));
        Ok(Self {
            out: BufWriter::new(file()?),
            summaries: BufWriter::new(file()?),
            records: 0,
        })
    }

    /// Appends an extent with its summaries. Returns the number of the record.
    pub(crate) fn push(&mut self, id: TimelineId, extent: &Extent, summaries: &[u8]) -> Result<u64> {
        let mut record = [0; RECORD];
        record[..16].copy_from_slice(&id.0);
        put_location(&mut record[16..32], (extent.file, extent.row, extent.rows));
        record[32..36].copy_from_slice(&extent.points.to_le_bytes());
        record[36..40].copy_from_slice(&extent.values.to_le_bytes());
        record[40..48].copy_from_slice(&extent.first.to_le_bytes());
        record[48..56].copy_from_slice(&extent.last.to_le_bytes());
        record[56..64].copy_from_slice(&extent.sequences.lowest.0.to_le_bytes());
        record[64..72].copy_from_slice(&extent.sequences.highest.0.to_le_bytes());
        record[72..].copy_from_slice(&(summaries.len() as u32).to_le_bytes());
        let written = self.out.write_all(&record);
        written
            .and_then(|()| self.summaries.write_all(summaries))
            .map_err(ArchiveError::local("writing"))?;
        self.records += 1;
        Ok(self.records - 1)
    }

    /// Fills in the locations of earlier extents.
    pub(crate) fn location(&mut self, locations: impl Iterator<Item = (u64, RowLocation)>) -> Result<()> {
        self.out.flush().map_err(ArchiveError::local("writing"))?;
        for (number, location) in locations {
            let mut bytes = [0; 16];
            put_location(&mut bytes, location);
            let at = number * RECORD as u64 + LOCATION_OFFSET;
            self.out
                .get_ref()
                .write_all_at(&bytes, at)
                .map_err(ArchiveError::local("writing"))?;
        }
        Ok(())
    }

    /// Returns an iterator over all extents.
    pub(crate) fn finish(self) -> Result<Extents> {
        let whole = |out: BufWriter<File>| {
            let file = out.into_inner().map_err(|error| error.into_error());
            file.map(BufReader::new).map_err(ArchiveError::local("writing"))
        };
        let mut extents = Extents {
            from: whole(self.out)?,
            summaries: whole(self.summaries)?,
            at_hand: Vec::new(),
            left: self.records,
        };
        extents.rewind(self.records)?;
        Ok(extents)
    }
}

impl Extents {
    /// Restarts from the first extent. `records` is the total number of extents.
    pub(crate) fn rewind(&mut self, records: u64) -> Result<()> {
        self.left = records;
        let begun = self.from.seek(SeekFrom::Start(0));
        begun
            .and_then(|_| self.summaries.seek(SeekFrom::Start(0)))
            .map(drop)
            .map_err(ArchiveError::local("reading"))
    }

    /// Returns the summaries of the extent returned last; empty if it has none.
    pub fn summaries(&self) -> &[u8] {
        &self.at_hand
    }

    /// Returns the number of remaining extents.
    pub fn left(&self) -> u64 {
        self.left
    }

    fn read(&mut self) -> Result<(TimelineId, Extent)> {
        let mut record = [0; RECORD];
        self.from
            .read_exact(&mut record)
            .map_err(ArchiveError::local("reading"))?;
        let four = |at: usize| u32::from_le_bytes(*record[at..].first_chunk().expect("inside the record"));
        let eight = |at: usize| u64::from_le_bytes(*record[at..].first_chunk().expect("inside the record"));
        let extent = Extent {
            file: four(16),
            row: eight(20),
            rows: four(28),
            points: four(32),
            values: four(36),
            first: eight(40) as i64,
            last: eight(48) as i64,
            sequences: SequenceSpan {
                lowest: SequenceNumber(eight(56)),
                highest: SequenceNumber(eight(64)),
            },
        };
        self.at_hand.resize(four(72) as usize, 0);
        self.summaries
            .read_exact(&mut self.at_hand)
            .map_err(ArchiveError::local("reading"))?;
        let id = TimelineId(*record.first_chunk().expect("inside the record"));
        Ok((id, extent))
    }
}

impl Iterator for Extents {
    type Item = Result<(TimelineId, Extent)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        Some(self.read())
    }
}

fn put_location(to: &mut [u8], (file, row, rows): RowLocation) {
    to[..4].copy_from_slice(&file.to_le_bytes());
    to[4..12].copy_from_slice(&row.to_le_bytes());
    to[12..16].copy_from_slice(&rows.to_le_bytes());
}

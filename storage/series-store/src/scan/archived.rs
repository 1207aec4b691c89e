//! Rows in files: what a segment of the archive has instead of chunks.
//!
//! The backend keeps where the rows of each timeline are; the rows themselves are asked for when a cluster that holds them
//! is read, and let go after it.

use std::sync::Arc;

use bytes::Bytes;
use tideline_archive::{Extent, ReadMemory, SegmentReader};
use tideline_model::{FieldId, SegmentId, SequenceNumber, Tier};

use super::piece::{ArchivedRows, Piece, PieceData};
use crate::error::{Result, StoreError};
use crate::manifest::Segment;
use crate::shared::Shared;
use crate::tables::Table;

/// Bytes that one read may fetch before they are asked for, from all segments together, where it reads them through.
const AHEAD_BYTES: u64 = 32 << 20;
/// The least that is worth a request.
const AHEAD_BYTES_MIN: u64 = 128 << 10;

/// Memory of one read, from all segments together: what was fetched, and what is known of open files.
const MEMORY_BYTES: u64 = 64 << 20;

/// What one read of some segments may take.
#[derive(Debug)]
pub(crate) struct Allowance {
    /// Archived segments of the read.
    segments: usize,
    memory: Arc<ReadMemory>,
    /// Whether what it fetches is kept for later reads.
    keeps: bool,
}

impl Allowance {
    /// For a read of these segments.
    pub(crate) fn new<'s>(segments: impl Iterator<Item = &'s Arc<Segment>>) -> Self {
        Self {
            segments: segments.filter(|segment| segment.tier == Tier::Archive).count(),
            memory: Arc::new(ReadMemory::new(MEMORY_BYTES)),
            keeps: true,
        }
    }

    /// The same for a rewrite: what it reads is replaced, and takes no room from queries.
    #[must_use]
    pub(crate) fn passing(mut self) -> Self {
        self.keeps = false;
        self
    }

    /// Bytes that one of the segments may fetch ahead.
    fn ahead(&self) -> u64 {
        (AHEAD_BYTES / self.segments.max(1) as u64).max(AHEAD_BYTES_MIN)
    }
}

/// Reads the rows of one segment.
#[derive(Debug)]
pub(crate) struct FilesReader {
    segment: SegmentId,
    reader: Option<SegmentReader>,
    table: Option<Arc<Table>>,
    /// Why there is no reader.
    failure: Option<StoreError>,
    bytes: u64,
    values: u64,
}

impl FilesReader {
    /// A reader of a segment; `None` of one that is no archive. That it cannot be opened is said when it is read from.
    /// Where all timelines are wanted, it `reads_through` and may fetch ahead.
    pub(crate) fn new(
        shared: &Shared,
        segment: &Segment,
        fields: Option<&[FieldId]>,
        reads_through: bool,
        allowance: &Allowance,
    ) -> Option<Self> {
        let files = segment
            .archive
            .as_ref()
            .filter(|_| segment.tier == Tier::Archive)?;
        let ahead = if reads_through { allowance.ahead() } else { 0 };
        let opened = match &shared.settings.archive {
            Some(archive) => shared.files_at(segment.reference(), files).and_then(|copy| {
                let reader = archive.reader(&copy, fields, ahead)?;
                let reader = match allowance.keeps {
                    true => reader,
                    false => reader.passing(),
                };
                Ok(reader.within(&allowance.memory))
            }),
            None => Err(StoreError::NoArchive(segment.id)),
        };
        let (reader, failure) = match opened {
            Ok(reader) => (Some(reader), None),
            Err(error) => (None, Some(error)),
        };
        Some(Self {
            segment: segment.id,
            reader,
            table: shared.tables.read().by_id.get(&segment.table).cloned(),
            failure,
            bytes: files.bytes(),
            values: segment.values.max(1),
        })
    }

    /// What is stored of a run, as a piece.
    pub(crate) fn piece(
        &self,
        stored: &Bytes,
        rank: u64,
        deletes_from: SequenceNumber,
    ) -> Result<(Piece, Extent)> {
        let (extent, summaries) = Extent::decode(stored)?;
        let bytes = u128::from(self.bytes) * u128::from(extent.values) / u128::from(self.values);
        let piece = Piece {
            first: extent.first,
            last: extent.last,
            rank,
            tier: Tier::Archive,
            deletes_from,
            data: PieceData::Archived(ArchivedRows {
                extent,
                bytes: u64::try_from(bytes).unwrap_or(u64::MAX),
                summaries,
            }),
        };
        Ok((piece, extent))
    }

    /// Reads the rows of a piece, if that was not done yet.
    pub(crate) fn read(&mut self, piece: &mut Piece) -> Result<()> {
        let PieceData::Archived(ArchivedRows { extent, bytes, .. }) = &piece.data else {
            return Ok(());
        };
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        let (Some(reader), Some(table)) = (&mut self.reader, &self.table) else {
            return Err(StoreError::NoArchive(self.segment));
        };
        let run = reader.read(extent, table.schema())?;
        piece.data = PieceData::Read(run, *bytes);
        Ok(())
    }
}

/// Lets go of rows that were read.
pub(crate) fn let_go(pieces: &mut [Piece]) {
    for piece in pieces {
        if let PieceData::Read(run, _) = &mut piece.data {
            *run = tideline_chunk::Run::default();
        }
    }
}

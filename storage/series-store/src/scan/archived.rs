//! Rows in archive files, which an archive segment has instead of chunks.
//!
//! The backend stores the location of the rows of each timeline. The rows themselves are fetched when their overlap
//! group is read, and freed afterwards.

use std::sync::Arc;

use bytes::Bytes;
use tideline_archive::{Extent, ReadMemory, SegmentReader};
use tideline_model::{FieldId, SegmentId, SequenceNumber, Tier};

use super::fragment::{ArchivedRows, Fragment, FragmentData};
use crate::error::{Result, StoreError};
use crate::manifest::Segment;
use crate::shared::Shared;
use crate::tables::Table;

/// Prefetch limit in bytes of one read for all segments together. Exceeded only if the segments are so many that each
/// has its minimum of [`AHEAD_BYTES_MIN`].
const AHEAD_BYTES: u64 = 32 << 20;
/// Minimum prefetch size in bytes per segment that is worth a request.
const AHEAD_BYTES_MIN: u64 = 128 << 10;

/// Memory limit in bytes of one read for all segments together: fetched data and metadata of open files.
const MEMORY_BYTES: u64 = 64 << 20;

/// Resource limits of one read over several segments.
#[derive(Debug)]
pub(crate) struct Allowance {
    /// Number of archive segments of the read.
    segments: usize,
    memory: Arc<ReadMemory>,
    /// True if fetched data is cached for later reads.
    keeps: bool,
}

impl Allowance {
    /// Returns the limits for a read of these segments.
    pub(crate) fn new<'s>(segments: impl Iterator<Item = &'s Arc<Segment>>) -> Self {
        Self {
            segments: segments.filter(|segment| segment.tier == Tier::Archive).count(),
            memory: Arc::new(ReadMemory::new(MEMORY_BYTES)),
            keeps: true,
        }
    }

    /// Returns the limits for a compaction. The input of a compaction is not cached, because it will be replaced and
    /// must not displace data of queries.
    #[must_use]
    pub(crate) fn passing(mut self) -> Self {
        self.keeps = false;
        self
    }

    /// Returns the prefetch limit in bytes of one segment.
    fn ahead(&self) -> u64 {
        (AHEAD_BYTES / self.segments.max(1) as u64).max(AHEAD_BYTES_MIN)
    }
}

/// Reader of the rows of one segment.
#[derive(Debug)]
pub(crate) struct FilesReader {
    segment: SegmentId,
    reader: Option<SegmentReader>,
    table: Option<Arc<Table>>,
    /// Error that occurred while the reader was opened. The first read returns it.
    failure: Option<StoreError>,
    bytes: u64,
    values: u64,
}

impl FilesReader {
    /// Creates a reader of a segment; `None` if the segment is not an archive segment. The first read returns an error
    /// that occurs while the reader is opened. If `reads_through` is true, the segment is read from front to back, and
    /// the reader may prefetch.
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

    /// Decodes a stored extent as a fragment.
    pub(crate) fn fragment(
        &self,
        stored: &Bytes,
        rank: u64,
        deletes_from: SequenceNumber,
    ) -> Result<(Fragment, Extent)> {
        let (extent, summaries) = Extent::decode(stored)?;
        let bytes = u128::from(self.bytes) * u128::from(extent.values) / u128::from(self.values);
        let fragment = Fragment {
            first: extent.first,
            last: extent.last,
            rank,
            tier: Tier::Archive,
            deletes_from,
            data: FragmentData::Archived(ArchivedRows {
                extent,
                bytes: u64::try_from(bytes).unwrap_or(u64::MAX),
                summaries,
            }),
        };
        Ok((fragment, extent))
    }

    /// Reads the rows of a fragment, unless they are already read.
    pub(crate) fn read(&mut self, fragment: &mut Fragment) -> Result<()> {
        let FragmentData::Archived(ArchivedRows { extent, bytes, .. }) = &fragment.data else {
            return Ok(());
        };
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        let (Some(reader), Some(table)) = (&mut self.reader, &self.table) else {
            return Err(StoreError::NoArchive(self.segment));
        };
        let run = reader.read(extent, table.schema())?;
        fragment.data = FragmentData::Read(run, *bytes);
        Ok(())
    }
}

/// Frees rows that were read.
pub(crate) fn release(fragments: &mut [Fragment]) {
    for fragment in fragments {
        if let FragmentData::Read(run, _) = &mut fragment.data {
            *run = tideline_chunk::Run::default();
        }
    }
}

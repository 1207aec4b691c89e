//! Rows of a copy: key spaces, parts and segments, piece by piece.
//!
//! A piece of a part or key space is a range of keys; rows that an interrupted copy has written are written again. A
//! piece of a segment is a whole bucket. Each piece is read back and compared by a digest before it counts.

use std::collections::BTreeSet;

use tideline_backend::{
    Backend, BackendError, Direction, ManifestKind, Page, PageLimit, Row, RowChange, WRITE_BYTES_MAX,
    WRITE_ROWS_MAX,
};
use tideline_key_codec::{part_name, segment_name, space_partitions};
use tideline_model::{Durability, KeyRange, PartRef, Partition, SegmentRef, Unit};

use super::{Copy, CopyError, Digest, Result, Side};
use crate::groups::Groups;
use crate::log::SHARD;

/// Size of the pages that are read.
const PAGE: PageLimit = PageLimit {
    rows_max: WRITE_ROWS_MAX,
    bytes_max: 1 << 20,
};

impl Copy<'_> {
    /// Copies all rows that are not copied yet.
    pub(super) fn copy_rows(&mut self) -> Result<()> {
        let partitions = self.partitions()?;
        self.row.progress.partitions_total = partitions.len() as u64;
        let done = usize::try_from(self.row.progress.partitions).unwrap_or(usize::MAX);
        for partition in partitions.into_iter().skip(done) {
            match partition.unit {
                Unit::Segment(segment) => self.copy_segment(segment, partition)?,
                Unit::Part(_) | Unit::Space(_) => self.copy_partition(partition)?,
            }
        }
        self.record()
    }

    /// Returns the partitions that the manifest of the source publishes. The order is always the same.
    fn partitions(&self) -> Result<Vec<Partition>> {
        let named = |kind| -> BTreeSet<&[u8]> {
            let rows = self.manifest.rows.iter().filter(move |row| row.kind == kind);
            rows.map(|row| row.name.as_ref()).collect()
        };
        let (parts, segments) = (named(ManifestKind::Part), named(ManifestKind::Segment));
        let mut units: Vec<Unit> = Vec::new();
        let held: Vec<PartRef> = self.source.read(|source| source.parts(SHARD))?;
        let is_named = |part: &PartRef| parts.contains(part_name(part.part).as_slice());
        units.extend(held.into_iter().filter(is_named).map(Unit::Part));
        let held: Vec<SegmentRef> = self.source.read(|source| source.segments(SHARD))?;
        let is_named = |held: &SegmentRef| segments.contains(segment_name(held.segment).as_slice());
        units.extend(held.into_iter().filter(is_named).map(Unit::Segment));
        units.sort_unstable();
        let mut partitions = space_partitions().to_vec();
        for unit in units {
            let buckets = self.source.read(|source| source.buckets(unit))?;
            partitions.extend(buckets.into_iter().map(|bucket| Partition { unit, bucket }));
        }
        Ok(partitions)
    }

    /// Copies a bucket of a segment. A bucket that an interrupted copy has loaded is loaded again with the same rows.
    fn copy_segment(&mut self, segment: SegmentRef, partition: Partition) -> Result<()> {
        let mut digest = Digest::default();
        let mut failed = None;
        {
            let mut rows = Rows::of(&self.source, partition, &mut digest, &mut failed);
            self.target.check().map_err(CopyError::Target)?;
            let loaded = self.target.backend.load(segment, partition.bucket, &mut rows);
            if let Some(error) = failed {
                return Err(error);
            }
            loaded.map_err(|error| CopyError::Target(error.into()))?;
        }
        self.compare(partition, &KeyRange::ALL, &digest)?;
        self.end_piece(&digest, None)
    }

    /// Copies the rest of a partition whose rows are changed in place.
    fn copy_partition(&mut self, partition: Partition) -> Result<()> {
        let mut rest = Some(KeyRange {
            start: std::mem::take(&mut self.row.from),
            end: None,
        });
        while let Some(range) = rest {
            let mut digest = Digest::default();
            let mut next = Some(range.clone());
            let mut groups = Groups::default();
            while digest.bytes < self.piece_bytes as u64
                && let Some(range) = next
            {
                let page = self.source.page(partition, &range)?;
                for Row { key, value } in page.rows {
                    digest.add(&key, &value);
                    groups.push(RowChange {
                        key,
                        value: Some(value),
                    });
                }
                if groups.bytes >= WRITE_BYTES_MAX {
                    self.target.write(partition, &groups.take())?;
                }
                next = page.next;
            }
            self.target.write(partition, &groups.take())?;
            let copied = KeyRange {
                start: range.start,
                end: next.as_ref().map(|next| next.start.clone()),
            };
            self.compare(partition, &copied, &digest)?;
            self.end_piece(&digest, next.as_ref().map(|next| next.start.clone()))?;
            rest = next;
        }
        Ok(())
    }

    /// Counts a piece, and stores the progress if enough bytes were copied since it was last stored. `next` is the key
    /// from which the partition has more rows.
    fn end_piece(&mut self, digest: &Digest, next: Option<Vec<u8>>) -> Result<()> {
        let progress = &mut self.row.progress;
        progress.rows += digest.count;
        progress.bytes += digest.bytes;
        progress.partitions += u64::from(next.is_none());
        self.row.from = next.unwrap_or_default();
        self.unrecorded_bytes += digest.bytes;
        if self.unrecorded_bytes >= self.piece_bytes as u64 {
            self.record()?;
        }
        self.report()
    }

    /// Reads rows of the target back and compares them.
    fn compare(&self, partition: Partition, range: &KeyRange, expected: &Digest) -> Result<()> {
        let mut found = Digest::default();
        let mut rest = Some(range.clone());
        while let Some(range) = rest {
            let page = self.target.scan(partition, &range)?;
            for row in &page.rows {
                found.add(&row.key, &row.value);
            }
            rest = page.next;
        }
        match found.is_equal(expected) {
            true => Ok(()),
            false => Err(CopyError::Differs(format!("rows of {partition:?}"))),
        }
    }
}

/// Iterator over the rows of a partition of the source. `Backend::load` consumes it.
struct Rows<'a> {
    source: &'a Side,
    partition: Partition,
    digest: &'a mut Digest,
    /// Error of the source. The load gets a copy of its message.
    failed: &'a mut Option<CopyError>,
    page: std::vec::IntoIter<Row>,
    rest: Option<KeyRange>,
}

impl<'a> Rows<'a> {
    fn of(
        source: &'a Side,
        partition: Partition,
        digest: &'a mut Digest,
        failed: &'a mut Option<CopyError>,
    ) -> Self {
        Self {
            source,
            partition,
            digest,
            failed,
            page: Vec::new().into_iter(),
            rest: Some(KeyRange::ALL),
        }
    }
}

impl Iterator for Rows<'_> {
    type Item = std::result::Result<Row, BackendError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(row) = self.page.next() {
                self.digest.add(&row.key, &row.value);
                return Some(Ok(row));
            }
            let range = self.rest.take()?;
            match self.source.page(self.partition, &range) {
                Ok(page) => {
                    self.page = page.rows.into_iter();
                    self.rest = page.next;
                }
                Err(error) => {
                    let reason = error.to_string();
                    *self.failed = Some(error);
                    return Some(Err(BackendError::Refused { reason }));
                }
            }
        }
    }
}

impl Side {
    /// Reads from the source.
    pub(super) fn read<T>(
        &self,
        read: impl FnOnce(&dyn Backend) -> tideline_backend::Result<T>,
    ) -> Result<T> {
        read(self.backend.as_ref()).map_err(|error| CopyError::Source(error.into()))
    }

    /// Calls the target.
    pub(super) fn call<T>(
        &self,
        call: impl FnOnce(&dyn Backend) -> tideline_backend::Result<T>,
    ) -> Result<T> {
        call(self.backend.as_ref()).map_err(|error| CopyError::Target(error.into()))
    }

    /// Reads a page of the source.
    fn page(&self, partition: Partition, range: &KeyRange) -> Result<Page> {
        self.read(|source| source.scan(partition, range, Direction::Ascending, PAGE))
    }

    /// Reads a page of the target.
    pub(super) fn scan(&self, partition: Partition, range: &KeyRange) -> Result<Page> {
        self.call(|target| target.scan(partition, range, Direction::Ascending, PAGE))
    }

    /// Writes rows of a part or key space. They are durable after the next `sync_rows`.
    fn write(&self, partition: Partition, groups: &[Vec<RowChange>]) -> Result<()> {
        self.check().map_err(CopyError::Target)?;
        let stamp = self.ownership.stamp_min;
        self.call(|target| match partition.unit {
            Unit::Part(_) => target.write_sorted(partition, groups, stamp),
            _ => groups
                .iter()
                .try_for_each(|group| target.write(partition, group, stamp, Durability::Buffered)),
        })
    }
}

//! Manifest content of the series store: segments, in addition to the rows that all models share
//! ([`tideline_log::manifest`]).
//!
//! The stored form is described in `FORMAT.md`. In memory the manifest is an immutable value; an edit publishes a new
//! manifest, and snapshots keep the manifest that they have pinned.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use hashbrown::HashMap;
use serde::{Deserialize, Serialize};
use tideline_archive::PagedList;
use tideline_backend::{Manifest, ManifestChange, ManifestKind, ManifestRow, Partition, SegmentRef};
use tideline_key_codec::{BUCKET_BITS_MAX, chunk_bucket, segment_name};
use tideline_log::Versioned;
use tideline_log::manifest::stored::{group, id, sequence, table};
pub use tideline_log::manifest::{
    Adopted, Cursor, Manifest as SharedRows, TableCounts, TableRow, put_cursor, put_table, remove_table,
};
use tideline_log::manifest::{FORMAT, SEQUENCE_END, parse_row, put_row};
use tideline_model::{GroupId, SegmentId, SequenceNumber, TableId, Tier, TimeRange, TimelineId};

use crate::error::{Result, StoreError};
use crate::window::{LEVEL_MAX, Window};

mod files;
mod stored;
mod totals;
mod writes;

pub use files::{FilesList, SegmentFiles};
pub use totals::SegmentTotals;
pub use writes::{WriteRank, WriteSpan};

/// Manifest after an edit of tables or segments. Immutable, and shared by all snapshots that pin it.
#[derive(Debug, Clone, Default)]
pub struct ManifestState {
    /// Rows that all models share. The cursor and the job rows in the log may be newer.
    pub common: SharedRows,
    /// All published segments of each table, by id.
    pub segments: HashMap<TableId, BTreeMap<SegmentId, Arc<Segment>>>,
}

impl Versioned for ManifestState {
    fn version(&self) -> u64 {
        self.common.version
    }
}

/// Published segment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    format: u8,
    /// Id of the segment.
    #[serde(with = "id")]
    pub id: SegmentId,
    /// Group in which the segment is stored.
    #[serde(with = "group")]
    pub group: GroupId,
    /// Table of the points.
    #[serde(with = "table")]
    pub table: TableId,
    /// Window that contains all points.
    pub window: Window,
    /// First timestamp.
    pub first: i64,
    /// Last timestamp.
    pub last: i64,
    /// Number of timelines with a chunk.
    pub timelines: u64,
    /// Number of chunks, or of extents in an archive segment.
    pub chunks: u64,
    /// Number of points.
    pub points: u64,
    /// Number of field values.
    pub values: u64,
    /// Bytes of keys and values as passed to the backend, or bytes of the files of an archive segment.
    pub bytes: u64,
    /// Number of leading bits of timeline ids that select the bucket of a chunk; `0` for one bucket.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub bucket_bits: u8,
    /// Tier of the segment. Absent in format 1, in which all segments were hot.
    #[serde(default)]
    pub tier: Tier,
    /// Oldest and newest seal whose points are in the segment. Absent in format 1, in which segments were ordered by
    /// id.
    #[serde(default)]
    pub written: WriteSpan,
    /// Deletes below this sequence are applied.
    #[serde(default, with = "sequence")]
    pub deletes_applied: SequenceNumber,
    /// Machines with the most bytes of chunks, largest first: the first half of their timeline ids, in hexadecimal, and
    /// the bytes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub largest_sources: Vec<(String, u64)>,
    /// Files of an archive segment. Its rows are extents, which refer to these files.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "stored::files")]
    pub archive: Option<SegmentFiles>,
    /// Time of the trusted clock at which the files were written, in nanoseconds since the epoch. Absent for files of
    /// earlier builds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archived: Option<i64>,
    /// Archive segment with the same points. It replaces this segment when the time of this segment in the cold tier
    /// is over. Until then, readers ignore it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy: Option<Box<Segment>>,
    /// Time of the trusted clock, in nanoseconds since the epoch, before which policies do not move the segment out of
    /// its tier. Set by a restore request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stays_until: Option<i64>,
    /// Names of descriptions that other databases wrote and whose points this segment contains. The described files may
    /// outlive this segment.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replaces: Vec<String>,
    /// Separate list of these names, stored with the segment. Used in place of `replaces` if the names are too many for
    /// the row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces_list: Option<PagedList>,
}

impl Segment {
    /// Creates the description of a segment.
    pub fn new(
        reference: SegmentRef,
        table: TableId,
        window: Window,
        written: WriteSpan,
        deletes_applied: SequenceNumber,
        totals: SegmentTotals,
    ) -> Self {
        let SegmentTotals {
            first,
            last,
            timelines,
            chunks,
            points,
            values,
            bytes,
            largest_sources,
        } = totals;
        let SegmentRef {
            segment: id,
            group,
            tier,
        } = reference;
        Self {
            format: FORMAT,
            id,
            group,
            table,
            window,
            first,
            last,
            timelines,
            chunks,
            points,
            values,
            bytes,
            bucket_bits: 0,
            tier,
            written,
            deletes_applied,
            largest_sources,
            archive: None,
            archived: None,
            copy: None,
            stays_until: None,
            replaces: Vec::new(),
            replaces_list: None,
        }
    }

    /// Returns the segment as part of the archive tier, with its points in files that were written at `now`.
    #[must_use]
    pub fn in_files(self, files: SegmentFiles, now: i64) -> Self {
        Self {
            tier: Tier::Archive,
            archive: Some(files),
            archived: Some(now),
            ..self
        }
    }

    /// Returns the segment with its chunks in buckets that are selected by `bucket_bits` leading id bits.
    #[must_use]
    pub fn in_buckets(self, bucket_bits: u8) -> Self {
        Self { bucket_bits, ..self }
    }

    /// Returns the partition with the chunks of a timeline.
    pub(crate) fn partition(&self, id: TimelineId) -> Partition {
        Partition::segment(self.reference(), chunk_bucket(id, self.bucket_bits))
    }

    /// Returns the partitions with chunks, in timeline order.
    pub(crate) fn partitions(&self) -> impl Iterator<Item = Partition> {
        let reference = self.reference();
        let last = chunk_bucket(TimelineId::MAX, self.bucket_bits);
        (0..=last).map(move |bucket| Partition::segment(reference, bucket))
    }

    /// Returns the segment with the names of the descriptions that it replaces.
    #[must_use]
    pub fn replacing(self, replaces: Vec<String>) -> Self {
        Self { replaces, ..self }
    }

    /// Returns the segment with another copy, or without a copy.
    #[must_use]
    pub fn with_copy(self, copy: Option<Segment>) -> Self {
        let copy = copy.map(Box::new);
        Self { copy, ..self }
    }

    /// Returns the segment with another [`stays_until`](Self::stays_until).
    #[must_use]
    pub fn staying_until(self, stays_until: Option<i64>) -> Self {
        Self { stays_until, ..self }
    }

    /// Returns the copy as the segment that replaces this one; `None` without a copy. The result has the
    /// `deletes_applied` of this segment, because points purged from this segment are not in the copy either.
    pub fn evicted(&self) -> Option<Self> {
        let copy = Self::clone(self.copy.as_deref()?);
        Some(Self {
            deletes_applied: self.deletes_applied,
            ..copy
        })
    }

    /// Iterates over the segment and its copy, if it has one.
    pub fn parts(&self) -> impl Iterator<Item = &Self> {
        [Some(self), self.copy.as_deref()].into_iter().flatten()
    }

    /// Returns the lowest sequence number of a delete that may still have to be applied to this segment.
    pub fn deletes_from(&self) -> SequenceNumber {
        let written = SequenceNumber(self.written.newest.sequence + 1);
        self.deletes_applied.max(written)
    }

    /// Returns the location in the backend.
    pub fn reference(&self) -> SegmentRef {
        SegmentRef {
            segment: self.id,
            group: self.group,
            tier: self.tier.kept_in(),
        }
    }

    /// Parses the segment from a description, and checks its values as far as possible without reading its rows.
    ///
    /// # Errors
    ///
    /// [`StoreError::StoredRow`] if a member is missing or out of range, or the format is not supported.
    pub fn described(said: &serde_json::Value) -> Result<Self> {
        let detail = serde_json::to_vec(said).expect("JSON always serialises");
        let segment = parse_row::<Self>("description of a segment", &detail)?.upgraded();
        let WriteSpan { oldest, newest } = segment.written;
        let sequences = [newest.sequence, segment.deletes_applied.0];
        let is_sound = segment.first <= segment.last
            && segment.first > i64::MIN
            && segment.last < i64::MAX
            && oldest <= newest
            && segment.window.level <= LEVEL_MAX
            && segment.bucket_bits <= BUCKET_BITS_MAX
            && sequences.into_iter().max() < Some(SEQUENCE_END);
        match is_sound {
            true => Ok(segment),
            false => Err(StoreError::StoredRow {
                what: "description of a segment",
                reason: "its times, sequences or levels are out of range".into(),
            }),
        }
    }

    /// Converts a row of an older format to the current one.
    fn upgraded(mut self) -> Self {
        self.format = FORMAT;
        self.copy = self.copy.map(|copy| Box::new(copy.upgraded()));
        if self.written == WriteSpan::default() {
            self.written = WriteSpan::of(WriteRank {
                sequence: 0,
                seal: self.id.0,
            });
        }
        self
    }

    /// Returns the half-open time range of the points.
    pub fn range(&self) -> TimeRange {
        TimeRange::new(self.first, self.last.saturating_add(1))
    }
}

fn is_zero(bits: &u8) -> bool {
    *bits == 0
}

impl ManifestState {
    /// Reads all rows.
    ///
    /// # Errors
    ///
    /// [`StoreError::StoredRow`] if a row is damaged or has a format that this build does not support.
    pub fn read(stored: &Manifest) -> Result<Self> {
        Self::of(SharedRows::read(stored)?, &stored.rows)
    }

    /// Creates the state from the shared rows and the segment rows among `rows`.
    ///
    /// # Errors
    ///
    /// The errors of [`read`](Self::read).
    pub fn of(common: SharedRows, rows: &[ManifestRow]) -> Result<Self> {
        let mut state = Self {
            common,
            segments: HashMap::new(),
        };
        for row in rows.iter().filter(|row| row.kind == ManifestKind::Segment) {
            state.add(parse_row::<Segment>("segment row", &row.detail)?.upgraded());
        }
        Ok(state)
    }

    /// Adds a segment, or replaces the segment with its id.
    pub fn add(&mut self, segment: Segment) {
        self.segments
            .entry(segment.table)
            .or_default()
            .insert(segment.id, Arc::new(segment));
    }

    /// Returns the segments of a table.
    pub fn of_table(&self, table: TableId) -> impl Iterator<Item = &Arc<Segment>> {
        self.segments.get(&table).into_iter().flat_map(BTreeMap::values)
    }

    /// Returns the segments of a table whose time ranges overlap `range`, in write order: the later segment wins.
    pub fn overlapping(&self, table: TableId, range: TimeRange) -> Vec<Arc<Segment>> {
        let all = self.of_table(table);
        let mut found: Vec<Arc<Segment>> = all
            .filter(|segment| segment.range().overlaps(&range))
            .map(Arc::clone)
            .collect();
        found.sort_unstable_by_key(|segment| segment.written.newest);
        found
    }
}

/// Returns the change that publishes a segment.
pub fn put_segment(segment: &Segment) -> ManifestChange {
    put_row(ManifestKind::Segment, &segment_name(segment.id), segment)
}

/// Returns the change that removes a segment.
pub fn remove_segment(id: SegmentId) -> ManifestChange {
    ManifestChange::Remove(ManifestKind::Segment, Bytes::copy_from_slice(&segment_name(id)))
}

#[cfg(test)]
mod tests;

//! What the shard's manifest holds for the series store: segments, beside the rows that all models share
//! ([`tideline_log::manifest`]).

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

/// The manifest as read structures, as of an edit of tables or segments: never changed, shared by all snapshots that pin it.
#[derive(Debug, Clone, Default)]
pub struct ManifestState {
    /// The rows that all models share. Positions and jobs may have moved on in the log's own.
    pub common: SharedRows,
    /// All published segments of each table, by id.
    pub segments: HashMap<TableId, BTreeMap<SegmentId, Arc<Segment>>>,
}

impl Versioned for ManifestState {
    fn version(&self) -> u64 {
        self.common.version
    }
}

/// A published segment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    format: u8,
    /// Its id.
    #[serde(with = "id")]
    pub id: SegmentId,
    /// The group it is stored with.
    #[serde(with = "group")]
    pub group: GroupId,
    /// Whose points.
    #[serde(with = "table")]
    pub table: TableId,
    /// The window that all its points lie in.
    pub window: Window,
    /// First instant in it.
    pub first: i64,
    /// Last instant in it.
    pub last: i64,
    /// Timelines with a chunk in it.
    pub timelines: u64,
    /// Chunks.
    pub chunks: u64,
    /// Points.
    pub points: u64,
    /// Field values.
    pub values: u64,
    /// Bytes of keys and values as handed to the backend.
    pub bytes: u64,
    /// Leading bits of timeline ids by which its chunks lie in buckets; `0` for one bucket.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub bucket_bits: u8,
    /// The tier that it belongs to. Absent in format 1, when all were hot.
    #[serde(default)]
    pub tier: Tier,
    /// The writes in it. Absent in format 1, when ids were enough.
    #[serde(default)]
    pub written: WriteSpan,
    /// Deletes below this sequence have been applied to it.
    #[serde(default, with = "sequence")]
    pub deletes_applied: SequenceNumber,
    /// Its largest machines: first half of the timeline id, in hexadecimal, and bytes; largest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub largest_sources: Vec<(String, u64)>,
    /// Its files: of a segment of the archive tier, whose chunks are only places of rows in them.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "stored::files")]
    pub archive: Option<SegmentFiles>,
    /// When those were written, trusted nanoseconds since the epoch. Absent of files of earlier builds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archived: Option<i64>,
    /// What takes its place when its time in the cold tier is over: the same points in files, which nobody reads before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy: Option<Box<Segment>>,
    /// Policies leave it in its tier until then, trusted nanoseconds since the epoch: somebody asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stays_until: Option<i64>,
    /// The names of descriptions of other databases whose points are in it: of files that may stay when this one goes on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replaces: Vec<String>,
    /// The same names, where they are too many for the row: a list that is stored with the segment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces_list: Option<PagedList>,
}

impl Segment {
    /// Describes a segment.
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

    /// The same, of the archive tier with its points in files that were written at `now`.
    #[must_use]
    pub fn in_files(self, files: SegmentFiles, now: i64) -> Self {
        Self {
            tier: Tier::Archive,
            archive: Some(files),
            archived: Some(now),
            ..self
        }
    }

    /// The same with its chunks in buckets by so many leading bits of ids.
    #[must_use]
    pub fn in_buckets(self, bucket_bits: u8) -> Self {
        Self { bucket_bits, ..self }
    }

    /// The part of it that holds a timeline's chunks.
    pub(crate) fn partition(&self, id: TimelineId) -> Partition {
        Partition::segment(self.reference(), chunk_bucket(id, self.bucket_bits))
    }

    /// The parts of it that hold chunks, in the order of timelines.
    pub(crate) fn partitions(&self) -> impl Iterator<Item = Partition> {
        let reference = self.reference();
        let last = chunk_bucket(TimelineId::MAX, self.bucket_bits);
        (0..=last).map(move |bucket| Partition::segment(reference, bucket))
    }

    /// The same in place of what others have described.
    #[must_use]
    pub fn replacing(self, replaces: Vec<String>) -> Self {
        Self { replaces, ..self }
    }

    /// The same with another copy, or without.
    #[must_use]
    pub fn with_copy(self, copy: Option<Segment>) -> Self {
        let copy = copy.map(Box::new);
        Self { copy, ..self }
    }

    /// The same, left in its tier by policies until then.
    #[must_use]
    pub fn staying_until(self, stays_until: Option<i64>) -> Self {
        Self { stays_until, ..self }
    }

    /// Its copy, as what takes its place: what was purged from the one is in neither.
    pub fn evicted(&self) -> Option<Self> {
        let copy = Self::clone(self.copy.as_deref()?);
        Some(Self {
            deletes_applied: self.deletes_applied,
            ..copy
        })
    }

    /// Everything that a backend and a target keep of it: itself, and its copy.
    pub fn parts(&self) -> impl Iterator<Item = &Self> {
        [Some(self), self.copy.as_deref()].into_iter().flatten()
    }

    /// Deletes of this sequence and above are still to be applied to its points.
    pub fn deletes_from(&self) -> SequenceNumber {
        let written = SequenceNumber(self.written.newest.sequence + 1);
        self.deletes_applied.max(written)
    }

    /// Where the backend keeps it.
    pub fn reference(&self) -> SegmentRef {
        SegmentRef {
            segment: self.id,
            group: self.group,
            tier: self.tier.kept_in(),
        }
    }

    /// What the description of a segment says of it, checked as far as it stands alone.
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
                reason: "its numbers cannot be right".into(),
            }),
        }
    }

    /// A row of format 1 as this build would have written it.
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

    /// The span of its points, half-open.
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
    /// A row is damaged, or of a format that this build does not know.
    pub fn read(stored: &Manifest) -> Result<Self> {
        Self::of(SharedRows::read(stored)?, &stored.rows)
    }

    /// Reads the segments among all rows.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
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

    /// Adds a segment.
    pub fn add(&mut self, segment: Segment) {
        self.segments
            .entry(segment.table)
            .or_default()
            .insert(segment.id, Arc::new(segment));
    }

    /// The segments of a table.
    pub fn of_table(&self, table: TableId) -> impl Iterator<Item = &Arc<Segment>> {
        self.segments.get(&table).into_iter().flat_map(BTreeMap::values)
    }

    /// The segments of a table with points in `range`, in the order of their writes: a later one wins.
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

/// The change that publishes a segment.
pub fn put_segment(segment: &Segment) -> ManifestChange {
    put_row(ManifestKind::Segment, &segment_name(segment.id), segment)
}

/// The change that takes a segment back.
pub fn remove_segment(id: SegmentId) -> ManifestChange {
    ManifestChange::Remove(ManifestKind::Segment, Bytes::copy_from_slice(&segment_name(id)))
}

#[cfg(test)]
mod tests;

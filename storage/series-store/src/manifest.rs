//! What the shard's manifest holds for the series store: segments, tables and the journal cursor.
//!
//! Rows are JSON with a `format` number: few, small and read once at start, so being readable by people in a
//! bad hour is worth more than bytes.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use hashbrown::HashMap;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tideline_archive::PagedList;
use tideline_backend::{Manifest, ManifestChange, ManifestKind, ManifestRow, SegmentRef};
use tideline_key_codec::{segment_name, table_name};
use tideline_model::{
    GroupId, SegmentId, SequenceNumber, StoredClock, TableId, TableName, TableSpec, Tier, TimeRange,
};

use crate::error::{Result, StoreError};
use crate::window::{LEVEL_MAX, Window};

mod files;
mod stored;
mod totals;
mod writes;

pub use files::{FilesList, SegmentFiles};
use stored::{group, id, sequence, table};
pub use totals::SegmentTotals;
pub use writes::{WriteRank, WriteSpan};

/// The manifest as read structures: one version, never changed, shared by all snapshots that pin it.
#[derive(Debug, Clone, Default)]
pub struct ManifestState {
    /// Version of the shard's manifest.
    pub version: u64,
    /// How far the journal is sealed and the next ids.
    pub cursor: Cursor,
    /// All published segments of each table, by id.
    pub segments: HashMap<TableId, BTreeMap<SegmentId, Arc<Segment>>>,
    /// All tables.
    pub tables: BTreeMap<TableId, TableRow>,
    /// Rows about jobs, which belong to whoever plans them.
    pub jobs: BTreeMap<Bytes, Bytes>,
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
        let segment = parse::<Self>("description of a segment", &detail)?.upgraded();
        let WriteSpan { oldest, newest } = segment.written;
        let sequences = [newest.sequence, segment.deletes_applied.0];
        let is_sound = segment.first <= segment.last
            && segment.first > i64::MIN
            && segment.last < i64::MAX
            && oldest <= newest
            && segment.window.level <= LEVEL_MAX
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

/// A table and its settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableRow {
    format: u8,
    /// Its number.
    #[serde(with = "table")]
    pub id: TableId,
    /// Its name.
    pub name: TableName,
    /// What a user has set.
    pub spec: TableSpec,
    /// When it was made, nanoseconds since the epoch.
    pub created: i64,
    /// When its policy was last changed, nanoseconds since the epoch. What a change hides is kept for a while after.
    #[serde(default)]
    pub policy_changed: i64,
    /// What other databases had written of it and is this one's now: swept as its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub adopted: Vec<Adopted>,
    /// Rows of catalog and schema that the segments of the table need; only of use where the cursor is
    /// [`counted`](Cursor::counted).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts: Option<TableCounts>,
}

/// Rows of a table outside the manifest that were durable at a seal. A start with fewer is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TableCounts {
    /// Timelines with a row in the catalog.
    pub timelines: u64,
    /// The highest field number that a schema row has, plus one.
    pub fields: u32,
    /// The lowest field number that may be given to a new field.
    pub next_field: u32,
}

/// Objects of another database that are this one's now.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Adopted {
    /// The target, as its segments name it.
    pub target: String,
    /// What the table is called there.
    pub table: TableName,
    /// The database that wrote them.
    pub origin: String,
}

impl TableRow {
    /// Describes a table.
    pub fn new(id: TableId, name: TableName, spec: TableSpec, created: i64, policy_changed: i64) -> Self {
        Self {
            format: FORMAT,
            id,
            name,
            spec,
            created,
            policy_changed,
            adopted: Vec::new(),
            counts: None,
        }
    }

    /// The same with counts.
    #[must_use]
    pub fn with_counts(self, counts: Option<TableCounts>) -> Self {
        Self { counts, ..self }
    }

    /// The same with what it has adopted.
    #[must_use]
    pub fn with_adopted(self, adopted: Vec<Adopted>) -> Self {
        Self { adopted, ..self }
    }
}

/// Positions of the shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor {
    format: u8,
    /// Entries below this sequence are sealed; replay begins here.
    #[serde(with = "sequence")]
    pub sealed_to: SequenceNumber,
    /// The next segment or group id.
    pub next_segment: u64,
    /// The next table id.
    pub next_table: u32,
    /// The trusted time of the last edit, nanoseconds since the epoch: a start compares the clock with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trusted_now: Option<i64>,
    /// When a jumped clock was last believed only because it was steady, in trusted time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trusted_settled: Option<i64>,
    /// What tells this database from others that keep files in the same target; made with the first archive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<u64>,
    /// The first sequence that the last run with a write gave: the next begins above it although all of them are lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequences_from: Option<u64>,
    /// Whether the counts of tables are of the last seal. A build that does not count them leaves this out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub counted: bool,
}

impl Cursor {
    /// The time that a start compares the wall clock with.
    pub fn stored_clock(&self) -> StoredClock {
        StoredClock {
            now: self.trusted_now,
            settled: self.trusted_settled,
        }
    }
}

impl Default for Cursor {
    fn default() -> Self {
        Self {
            format: FORMAT,
            sealed_to: SequenceNumber(1),
            next_segment: 1,
            next_table: 1,
            trusted_now: None,
            trusted_settled: None,
            origin: None,
            sequences_from: None,
            counted: false,
        }
    }
}

/// The stored form that this build writes; it reads all from 1 on. A build that knows only format 1 would show
/// points again that were deleted, and one that knows only format 2 would take places of rows in files for damaged chunks,
/// and one that knows only format 3 would free what copies consist of, and remove files of other databases, and one that knows
/// only format 4 would take segments with listed files for ones without any, so they must refuse.
const FORMAT: u8 = 5;
/// No journal comes this far: what says so is damaged.
pub(crate) const SEQUENCE_END: u64 = 1 << 56;
const CURSOR_NAME: &[u8] = b"series";

impl ManifestState {
    /// Reads all rows.
    pub fn read(manifest: &Manifest) -> Result<Self> {
        let mut state = Self {
            version: manifest.version,
            ..Self::default()
        };
        for row in &manifest.rows {
            match row.kind {
                ManifestKind::Segment => state.add(parse::<Segment>("segment row", &row.detail)?.upgraded()),
                ManifestKind::Table => {
                    let table: TableRow = parse("table row", &row.detail)?;
                    let table = TableRow {
                        format: FORMAT,
                        ..table
                    };
                    state.tables.insert(table.id, table);
                }
                ManifestKind::Cursor => {
                    let cursor: Cursor = parse("cursor row", &row.detail)?;
                    state.cursor = Cursor {
                        format: FORMAT,
                        ..cursor
                    };
                }
                ManifestKind::Job => {
                    state.jobs.insert(row.name.clone(), row.detail.clone());
                }
                ManifestKind::Pin => {}
            }
        }
        if !state.cursor.counted {
            // A build that does not count has sealed since.
            state.tables.values_mut().for_each(|table| table.counts = None);
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
    put(ManifestKind::Segment, &segment_name(segment.id), segment)
}

/// The change that takes a segment back.
pub fn remove_segment(id: SegmentId) -> ManifestChange {
    ManifestChange::Remove(ManifestKind::Segment, Bytes::copy_from_slice(&segment_name(id)))
}

/// The change that adds or alters a row about a job.
pub fn put_job(name: &Bytes, detail: &Bytes) -> ManifestChange {
    ManifestChange::Put(ManifestRow {
        kind: ManifestKind::Job,
        name: name.clone(),
        detail: detail.clone(),
    })
}

/// The change that removes a row about a job.
pub fn remove_job(name: &Bytes) -> ManifestChange {
    ManifestChange::Remove(ManifestKind::Job, name.clone())
}

/// The change that adds or alters a table.
pub fn put_table(table: &TableRow) -> ManifestChange {
    put(ManifestKind::Table, &table_name(table.id), table)
}

/// Notes the counts of tables that are there; the changes that store them.
pub fn put_counts(manifest: &mut ManifestState, counts: &[(TableId, TableCounts)]) -> Vec<ManifestChange> {
    let mut changes = Vec::with_capacity(counts.len());
    for (table, counts) in counts {
        if let Some(row) = manifest.tables.get_mut(table) {
            row.counts = Some(*counts);
            changes.push(put_table(row));
        }
    }
    changes
}

/// The change that drops a table.
pub fn remove_table(id: TableId) -> ManifestChange {
    ManifestChange::Remove(ManifestKind::Table, Bytes::copy_from_slice(&table_name(id)))
}

/// The change that moves the cursor.
pub fn put_cursor(cursor: &Cursor) -> ManifestChange {
    put(ManifestKind::Cursor, CURSOR_NAME, cursor)
}

fn put(kind: ManifestKind, name: &[u8], detail: &impl Serialize) -> ManifestChange {
    let detail = serde_json::to_vec(detail).expect("plain structures always serialise");
    ManifestChange::Put(ManifestRow {
        kind,
        name: Bytes::copy_from_slice(name),
        detail: detail.into(),
    })
}

fn parse<T: DeserializeOwned>(what: &'static str, detail: &[u8]) -> Result<T> {
    #[derive(Deserialize)]
    struct Version {
        format: u8,
    }
    let failed = |reason: String| StoreError::StoredRow { what, reason };
    let version: Version = serde_json::from_slice(detail).map_err(|error| failed(error.to_string()))?;
    if !(1..=FORMAT).contains(&version.format) {
        return Err(failed(format!(
            "format {} is not known to this build",
            version.format
        )));
    }
    serde_json::from_slice(detail).map_err(|error| failed(error.to_string()))
}

#[cfg(test)]
mod tests;

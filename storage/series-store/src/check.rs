//! Offline check: reads the segments, the journal and the metadata rows of a store, and compares the segments with the
//! manifest. The check writes nothing and starts no threads. The backend must not be in use by a running store.
//!
//! Every chunk of a segment is decoded, and the totals are compared with the manifest row of the segment. For an
//! archive segment every extent is checked; its files are stored at an archive target and are checked separately.
//! Journal entries that are not yet in segments are decoded, and rows of schemas, deletes and requests are read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use hashbrown::HashSet;
use tideline_archive::{ArchiveCopy, Extent};
use tideline_backend::{Backend, Direction, KeyRange, Partition};
use tideline_chunk::{Chunk, Delta, LoneSummaries};
use tideline_key_codec::{SegmentList, parse_chunk_key};
use tideline_log::{ModelTag, Requests, SHARD};
use tideline_model::{FieldId, TableId, TimelineId};

use crate::deletes::Deletes;
use crate::error::{Result, StoreError};
use crate::lists;
use crate::manifest::{ManifestState, Segment, SegmentTotals, TableRow};
use crate::schema::TableSchema;

/// Result of a check: counts of the content that was read, and the damage found.
#[derive(Debug, Clone, Default)]
pub struct Checked {
    /// Manifest rows of the tables.
    pub tables: Vec<TableRow>,
    /// Published segments, without copies.
    pub segments: u64,
    /// Chunks in the segments; extents in archive segments.
    pub chunks: u64,
    /// Points in the segments.
    pub points: u64,
    /// Field values in the segments.
    pub values: u64,
    /// Bytes of the keys and chunks; in archive segments, of the files.
    pub bytes: u64,
    /// Readable journal entries after the last seal, of all models.
    pub journal_entries: u64,
    /// Points in these entries.
    pub journal_points: u64,
    /// Timelines that these entries introduce and remove, by table. Excludes tables that do not exist.
    pub journal_timelines: BTreeMap<TableId, JournalTimelines>,
    /// Fields of all tables.
    pub fields: u64,
    /// Descriptions of the damage found. Each is one sentence that contains the location of the damage. The content of
    /// a segment is read only up to its first damage.
    pub findings: Vec<String>,
}

/// Timelines of a table in journal entries. The catalog may lack rows of introduced timelines, and may still have rows
/// of removed timelines.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JournalTimelines {
    /// Timelines that were introduced, and not removed afterwards.
    pub introduced: BTreeSet<TimelineId>,
    /// Timelines that were removed, and not introduced afterwards.
    pub removed: BTreeSet<TimelineId>,
}

impl JournalTimelines {
    fn apply(&mut self, delta: &Delta) {
        for timeline in &delta.new_timelines {
            self.removed.remove(&timeline.id);
            self.introduced.insert(timeline.id);
        }
        if let Some(delete) = delta.delete.as_ref().filter(|delete| delete.removes_timelines) {
            for id in &delete.timelines {
                self.introduced.remove(id);
                self.removed.insert(*id);
            }
        }
    }
}

impl Checked {
    /// Counts the points and timelines of a delta.
    fn count(&mut self, manifest: &ManifestState, delta: &Delta) {
        let groups = delta.groups.iter();
        self.journal_points += groups.map(|group| group.timestamps.len() as u64).sum::<u64>();
        if manifest.common.tables.contains_key(&delta.table) {
            let timelines = self.journal_timelines.entry(delta.table).or_default();
            timelines.apply(delta);
        }
    }

    fn take<T>(&mut self, context: &str, read: Result<T>) -> Option<T> {
        match read {
            Ok(value) => Some(value),
            Err(error) => {
                self.findings.push(format!("{context}: {error}"));
                None
            }
        }
    }
}

/// Function that checks a journal entry of another model. If the entry is damaged, the error describes the damage.
pub type CheckEntry<'a> = dyn FnMut(&Bytes) -> std::result::Result<(), String> + 'a;

/// Performs the check. Damage is recorded as a finding; the check continues where possible. `other` is called with
/// the journal entries of other models.
pub fn check(backend: &dyn Backend, other: &mut CheckEntry<'_>) -> Checked {
    let mut checked = Checked::default();
    let manifest = backend.manifest(SHARD).map_err(StoreError::from);
    let manifest = manifest.and_then(|manifest| ManifestState::read(&manifest));
    let Some(manifest) = checked.take("manifest", manifest) else {
        return checked;
    };
    for row in manifest.common.tables.values() {
        check_table(backend, &manifest, row, &mut checked);
        checked.tables.push(row.clone());
    }
    let unknown = manifest.segments.keys();
    for table in unknown.filter(|table| !manifest.common.tables.contains_key(*table)) {
        checked.findings.push(format!(
            "manifest: there are segments of table {table}, which does not exist"
        ));
    }
    let journal = check_journal(backend, &manifest, other, &mut checked);
    checked.take("journal", journal);
    checked
}

fn check_table(backend: &dyn Backend, manifest: &ManifestState, row: &TableRow, checked: &mut Checked) {
    let name = row.name.as_str();
    let schema = TableSchema::load(backend, row.id);
    let schema = checked.take(&format!("table {name}"), schema);
    checked.fields += schema.as_ref().map_or(0, |schema| schema.fields().len() as u64);
    if let (Some(schema), Some(counts)) = (&schema, row.counts)
        && schema.saved() < counts.fields
    {
        checked.findings.push(format!(
            "table {name}: the schema has {} of at least {} field numbers that segments need",
            schema.saved(),
            counts.fields
        ));
    }
    let requests = Requests::default().load(backend, row.id);
    let requests = requests.map_err(StoreError::from);
    checked.take(&format!("table {name}"), requests);
    let deletes = Deletes::default().load(backend, row.id);
    checked.take(&format!("table {name}"), deletes);
    for segment in manifest.of_table(row.id) {
        for part in segment.parts() {
            let is_copy = part.id != segment.id;
            let what = if is_copy { "copy" } else { "segment" };
            let context = format!("table {name}, {} {what} {}", part.tier, part.id.0);
            let files = part.archive.as_ref();
            let files = files.map(|files| lists::files(backend, part.reference(), files));
            let files = checked.take(&context, files.transpose()).flatten();
            if files.is_none() && part.archive.is_some() {
                continue;
            }
            let mut reading = Reading {
                files,
                segment: part,
                schema: schema.as_ref(),
                totals: SegmentTotals::default(),
                last: None,
                fields: HashSet::new(),
            };
            let replaces = part.replaces_list.as_ref();
            let replaces = replaces
                .map(|list| lists::read::<String>(backend, part.reference(), SegmentList::Replaces, list));
            checked.take(&context, replaces.transpose());
            let read = reading.all(backend);
            if !is_copy {
                let totals = &reading.totals;
                checked.segments += 1;
                checked.chunks += totals.chunks;
                checked.points += totals.points;
                checked.values += totals.values;
                checked.bytes += totals.bytes;
            }
            checked.take(&context, read);
        }
    }
}

/// State of reading a segment.
struct Reading<'a> {
    segment: &'a Segment,
    /// Files of an archive segment.
    files: Option<Arc<ArchiveCopy>>,
    schema: Option<&'a TableSchema>,
    totals: SegmentTotals,
    /// Timeline and last timestamp of the previous chunk or extent.
    last: Option<(TimelineId, i64)>,
    /// Fields that were found in chunks so far and that exist in the schema.
    fields: HashSet<FieldId>,
}

impl Reading<'_> {
    fn all(&mut self, backend: &dyn Backend) -> Result<()> {
        let limit = backend.capabilities().page_advice;
        for partition in self.segment.partitions() {
            let mut range = Some(KeyRange::ALL);
            while let Some(keys) = range {
                let page = backend.scan(partition, &keys, Direction::Ascending, limit)?;
                for row in &page.rows {
                    self.chunk(partition, &row.key, &row.value)?;
                }
                range = page.next;
            }
        }
        self.compare()
    }

    fn chunk(&mut self, partition: Partition, key: &[u8], value: &Bytes) -> Result<()> {
        let (id, start) = parse_chunk_key(key).ok_or_else(|| wrong("a key of a wrong length".into()))?;
        if self.segment.partition(id) != partition {
            return Err(wrong(format!(
                "a chunk of timeline {id} is not in the bucket of that timeline"
            )));
        }
        let damaged = |cause| StoreError::chunk(id, cause);
        if let Some(files) = self.files.clone() {
            let (extent, summaries) = Extent::decode(value)?;
            if !summaries.is_empty() {
                LoneSummaries::open(&summaries).map_err(damaged)?;
            }
            return self.extent(id, start, extent, &files);
        }
        let chunk = Chunk::open(value).map_err(damaged)?;
        let run = chunk.to_run().map_err(damaged)?;
        let (first, last) = (chunk.first_timestamp(), chunk.last_timestamp());
        let rises = run.timestamps.windows(2).all(|pair| pair[0] < pair[1]);
        if first != start || !rises || run.timestamps.first() != Some(&first) {
            return Err(wrong(format!(
                "a chunk of timeline {id} at {start} has unsorted timestamps or another start than its key"
            )));
        }
        if self
            .last
            .is_some_and(|(before, end)| before == id && end >= first)
        {
            return Err(wrong(format!("chunks of timeline {id} overlap at {start}")));
        }
        for column in &run.columns {
            let is_known = |schema: &TableSchema| schema.field_name(column.field).is_some();
            if !self.fields.contains(&column.field) {
                if !self.schema.is_none_or(is_known) {
                    return Err(wrong(format!(
                        "a chunk of timeline {id} has a field {:?} that is not in the schema",
                        column.field
                    )));
                }
                self.fields.insert(column.field);
            }
        }
        self.count(
            id,
            (first, last),
            run.timestamps.len() as u64,
            chunk.values() as u64,
        );
        self.totals.bytes += (key.len() + value.len()) as u64;
        Ok(())
    }

    /// Checks an extent, which locates rows in a file.
    fn extent(&mut self, id: TimelineId, start: i64, extent: Extent, files: &ArchiveCopy) -> Result<()> {
        let (first, last) = (extent.first, extent.last);
        let rows = extent.row.saturating_add(u64::from(extent.rows));
        let file = files.files.get(extent.file as usize);
        if first != start || first > last || file.is_none_or(|file| rows > file.rows) {
            return Err(wrong(format!("extent of timeline {id} at {start} is invalid")));
        }
        if self
            .last
            .is_some_and(|(before, end)| before == id && end >= first)
        {
            return Err(wrong(format!("rows of timeline {id} overlap at {start}")));
        }
        self.count(
            id,
            (first, last),
            u64::from(extent.points),
            u64::from(extent.values),
        );
        // The bytes of an archive segment are those of its files, which are not read here.
        self.totals.bytes = self.segment.bytes;
        Ok(())
    }

    fn count(&mut self, id: TimelineId, span: (i64, i64), points: u64, values: u64) {
        let totals = &mut self.totals;
        totals.count(span, points, values);
        totals.timelines += u64::from(self.last.is_none_or(|(before, _)| before != id));
        totals.chunks += 1;
        self.last = Some((id, span.1));
    }

    fn compare(&self) -> Result<()> {
        let (found, said) = (&self.totals, self.segment);
        for (what, found, said) in [
            ("timelines", found.timelines, said.timelines),
            ("chunks", found.chunks, said.chunks),
            ("points", found.points, said.points),
            ("values", found.values, said.values),
            ("bytes", found.bytes, said.bytes),
        ] {
            if found != said {
                return Err(wrong(format!(
                    "it has {found} {what}, but its manifest row has {said}"
                )));
            }
        }
        if (found.first, found.last) != (said.first, said.last) {
            return Err(wrong(format!(
                "its points span {} to {}, but its manifest row has {} to {}",
                found.first, found.last, said.first, said.last
            )));
        }
        Ok(())
    }
}

fn check_journal(
    backend: &dyn Backend,
    manifest: &ManifestState,
    other: &mut CheckEntry<'_>,
    checked: &mut Checked,
) -> Result<()> {
    let from = manifest.common.cursor.sealed_to;
    for epoch in backend.epochs(SHARD)? {
        backend.replay(SHARD, epoch.epoch, from, &mut |sequence, entry| {
            let read = match ModelTag::of(&entry) {
                Some(ModelTag::SERIES) | None => match Delta::decode(&entry) {
                    Ok(delta) => {
                        checked.count(manifest, &delta);
                        Ok(())
                    }
                    Err(cause) => Err(cause.to_string()),
                },
                Some(_) => other(&entry),
            };
            match read {
                Ok(()) => checked.journal_entries += 1,
                Err(cause) => checked
                    .findings
                    .push(format!("journal entry {}: {cause}", sequence.0)),
            }
            Ok(())
        })?;
    }
    Ok(())
}

fn wrong(reason: String) -> StoreError {
    StoreError::StoredRow {
        what: "segment",
        reason,
    }
}

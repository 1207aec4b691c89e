//! Opening a store: from what the backend kept to a running one.
//!
//! 1. Take the shard: a new epoch, so nothing an older process still sends can land.
//! 2. Read the manifest, the tables' schemas and the remembered requests; make the default table if missing.
//! 3. The caller loads what it keeps about timelines (it needs to know the tables for that).
//! 4. Replay the journals of older epochs from the published cursor on into a new head, and close them. Sequences go on
//!    after the highest that was found, whatever became of its table.
//! 5. Start the threads. The sealer frees the segments that no manifest named in step 2: loads that a crash cut off.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use hashbrown::HashSet;
use tideline_backend::{Backend, Epoch, Health, SegmentRef};
use tideline_chunk::Delta;
use tideline_model::{
    Clock, SegmentId, SequenceNumber, TableId, TableName, TableSpec, TimelineId, Timestamp, TrustedClock,
};

use crate::deletes::Deletes;
use crate::error::{Result, StoreError};
use crate::head::Head;
use crate::manifest::{ManifestState, TableCounts, TableRow, put_counts};
use crate::requests::Requests;
use crate::schema::{Shape, TableSchema};
use crate::settings::Settings;
use crate::sharding::ShardedDelta;
use crate::shared::{SHARD, Shared, State, Tables};
use crate::store::{SeriesStore, TimelineDirectory};
use crate::tables::Table;
use crate::tail::{Tail, TailEntry};

/// A store that has read its manifest and not yet its journal.
#[derive(Debug)]
pub struct Recovery {
    backend: Arc<dyn Backend>,
    clock: Arc<dyn Clock>,
    settings: Settings,
    epoch: Epoch,
    manifest: ManifestState,
    tables: Tables,
    deletes: Deletes,
    requests: Requests,
    /// Segments that no manifest names: loads that a crash cut off.
    orphans: Vec<SegmentRef>,
    guard: Guard,
}

/// What a replay found.
#[derive(Debug, Clone, Copy, Default)]
pub struct Replayed {
    /// Journal entries applied.
    pub deltas: u64,
    /// Rows in them.
    pub points: u64,
}

impl Recovery {
    /// Steps 1 and 2.
    pub fn begin(backend: Arc<dyn Backend>, clock: Arc<dyn Clock>, settings: Settings) -> Result<Self> {
        let epoch = backend.take(SHARD)?;
        let mut manifest = ManifestState::read(&backend.manifest(SHARD)?)?;
        let held = backend.segments()?;
        let highest = held
            .iter()
            .map(|at| at.segment.0.max(at.group.0))
            .max()
            .unwrap_or(0);
        manifest.cursor.next_segment = manifest.cursor.next_segment.max(highest + 1);
        // Looked for before anybody loads: a load that runs must not be taken for one.
        let segments = manifest.segments.values().flat_map(BTreeMap::values);
        let named: HashSet<SegmentId> = segments
            .flat_map(|segment| segment.parts())
            .map(|part| part.id)
            .collect();
        let is_published = |at: &SegmentRef| named.contains(&at.segment);
        let orphans = held.iter().filter(|at| !is_published(at)).copied().collect();
        let mut guard = Guard::new(backend.as_ref(), &settings);
        let mut tables = Tables::default();
        let mut deletes = Deletes::default();
        let requests = Requests::default();
        for row in manifest.tables.values() {
            let schema = TableSchema::load(backend.as_ref(), row.id)?;
            if let Some(counts) = row.counts {
                guard.check_fields(row, schema.saved(), counts)?;
                schema.reserve(counts.next_field);
            }
            tables.insert(Arc::new(Table::new(row, schema)));
            requests.load(backend.as_ref(), row.id)?;
            deletes.load(backend.as_ref(), row.id)?;
        }
        Ok(Self {
            backend,
            clock,
            settings,
            epoch,
            manifest,
            tables,
            deletes,
            requests,
            orphans,
            guard,
        })
    }

    /// The tables that there are.
    pub fn tables(&self) -> Vec<Arc<Table>> {
        self.tables.by_id.values().cloned().collect()
    }

    /// The backend, for the caller's own rows.
    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.backend
    }

    /// The time, as far as it can be trusted.
    fn trusted_now(&self) -> Timestamp {
        let stored = self.manifest.cursor.stored_clock();
        let (floor, clock) = (self.settings.clock_floor, &self.clock);
        TrustedClock::new(stored, floor, clock.now(), clock.monotonic()).now()
    }

    /// Steps 4 and 5.
    pub fn finish(mut self, directory: Arc<dyn TimelineDirectory>) -> Result<(SeriesStore, Replayed)> {
        let from = self.manifest.cursor.sealed_to;
        let mut guard = std::mem::take(&mut self.guard);
        let loaded = self.manifest.tables.keys();
        let loaded: BTreeMap<_, _> = loaded
            .filter_map(|table| Some((*table, directory.saved(*table)?)))
            .collect();
        let mut replay = Replay {
            recovery: &self,
            directory: directory.as_ref(),
            found: Replayed::default(),
            highest: None,
            deletes: self.deletes.clone(),
            waiting_rows: BTreeMap::new(),
            removed: HashSet::new(),
            newest: None,
            tail: Tail::new(from, self.settings.tail_bytes_max),
            now: self.trusted_now(),
        };
        let head = Head::new(from);
        let older = self
            .backend
            .epochs(SHARD)?
            .into_iter()
            .filter(|epoch| epoch.epoch < self.epoch);
        let mut ends = Vec::new();
        for journal in older {
            self.backend
                .replay(SHARD, journal.epoch, from, &mut |sequence, entry| {
                    replay.apply(&head, sequence, &entry).map_err(as_backend_error)
                })?;
            if journal.end.is_none() {
                let end = replay
                    .highest
                    .map_or(from, |highest| SequenceNumber(highest.0 + 1));
                ends.push((journal.epoch, end));
            }
        }
        for row in self.manifest.tables.values() {
            if let (Some(found), Some(counts)) = (loaded.get(&row.id), row.counts) {
                let removed = replay.removed.iter().filter(|(table, _)| *table == row.id);
                guard.check_timelines(row, *found, removed.count() as u64, counts)?;
            }
        }
        // Everything has been read: only now is something stored.
        for (epoch, end) in ends {
            self.backend.close_epoch(SHARD, epoch, end)?;
        }
        let Replay {
            found,
            deletes,
            waiting_rows,
            newest,
            tail,
            ..
        } = replay;
        let lost = guard.lost;
        let state = State {
            deletes,
            manifest: Arc::new(self.manifest),
            frozen: Vec::new(),
            active: Arc::new(head),
        };
        let default_exists = self
            .tables
            .by_name
            .keys()
            .any(|name| name.as_str() == TableName::DEFAULT);
        let shared = Arc::new(Shared::new(
            self.backend,
            self.epoch,
            self.clock,
            self.settings,
            directory,
            state,
            self.tables,
            self.requests,
            self.orphans,
            tail,
        ));
        *shared.waiting_rows.lock() = waiting_rows;
        if let Some(newest) = newest {
            shared.note_newest(newest);
        }
        if !lost.is_empty() {
            // The operator has accepted it: the next start is not to be refused.
            shared.edit(|manifest| put_counts(manifest, &lost))?;
        }
        if let Err(error) = shared.check_not_read_only() {
            tracing::error!(%error, "the store is opened for reading");
        } else if !default_exists {
            let name = TableName::new(TableName::DEFAULT).expect("the default name follows its own rules");
            shared.create_table(name, TableSpec::default())?;
        }
        Ok((SeriesStore::start(shared), found))
    }
}

/// Compares the rows of catalog and schema with what the segments were written with.
#[derive(Debug, Default)]
struct Guard {
    /// Whether the backend is kept as it is: it has said already that something is missing.
    is_read_only: bool,
    accept_loss: bool,
    /// The counts of tables of which an operator accepts that rows are lost.
    lost: Vec<(TableId, TableCounts)>,
}

impl Guard {
    fn new(backend: &dyn Backend, settings: &Settings) -> Self {
        Self {
            is_read_only: matches!(backend.health(), Health::ReadOnly { .. }),
            accept_loss: settings.accept_loss,
            lost: Vec::new(),
        }
    }

    fn check_fields(&mut self, row: &TableRow, found: u32, counts: TableCounts) -> Result<()> {
        if found >= counts.fields {
            return Ok(());
        }
        let remaining = TableCounts {
            fields: found,
            next_field: counts.next_field.max(counts.fields),
            ..counts
        };
        let error = StoreError::RowsLost {
            table: row.name.clone(),
            what: "field numbers",
            place: "schema",
            found: found.into(),
            expected: counts.fields.into(),
        };
        self.lose(row.id, remaining, error)
    }

    /// `removed` timelines may have lost their rows since they were counted.
    fn check_timelines(
        &mut self,
        row: &TableRow,
        found: u64,
        removed: u64,
        counts: TableCounts,
    ) -> Result<()> {
        let expected = counts.timelines.saturating_sub(removed);
        if found >= expected {
            return Ok(());
        }
        let known = self.lost.iter().find(|(table, _)| *table == row.id);
        let remaining = TableCounts {
            timelines: found,
            ..known.map_or(counts, |(_, counts)| *counts)
        };
        let error = StoreError::RowsLost {
            table: row.name.clone(),
            what: "timelines",
            place: "catalog",
            found,
            expected,
        };
        self.lose(row.id, remaining, error)
    }

    /// Refuses a loss, unless it is known already or accepted.
    fn lose(&mut self, table: TableId, remaining: TableCounts, error: StoreError) -> Result<()> {
        if !self.is_read_only && !self.accept_loss {
            return Err(error);
        }
        tracing::error!(%error, accepted = self.accept_loss, "rows that segments need are lost");
        if !self.is_read_only {
            self.lost.retain(|(known, _)| *known != table);
            self.lost.push((table, remaining));
        }
        Ok(())
    }
}

struct Replay<'a> {
    recovery: &'a Recovery,
    directory: &'a dyn TimelineDirectory,
    found: Replayed,
    /// The highest sequence of all entries, whatever their tables.
    highest: Option<SequenceNumber>,
    deletes: Deletes,
    waiting_rows: BTreeMap<SequenceNumber, (TableId, Bytes)>,
    /// Timelines that were removed since the last seal: their rows may be gone.
    removed: HashSet<(TableId, TimelineId)>,
    /// The newest instant that was met.
    newest: Option<i64>,
    tail: Tail,
    /// The trusted time of the start.
    now: Timestamp,
}

impl Replay<'_> {
    fn apply(&mut self, head: &Head, sequence: SequenceNumber, entry: &[u8]) -> Result<()> {
        self.highest = self.highest.max(Some(sequence));
        let delta = Delta::decode(entry).map_err(|cause| StoreError::Delta {
            sequence: sequence.0,
            cause,
        })?;
        let encoded = Bytes::copy_from_slice(entry);
        // Also of a dropped table: cursors of others may be behind it.
        self.tail.push(TailEntry {
            sequence,
            table: delta.table,
            encoded: encoded.clone(),
        });
        let Some(table) = self.recovery.tables.by_id.get(&delta.table) else {
            // The table was dropped after this entry was written. Its sequence is used up all the same: a watcher of
            // another table has a cursor after it.
            head.pass(sequence);
            return Ok(());
        };
        for timeline in &delta.new_timelines {
            self.directory
                .adopt(delta.table, timeline)
                .map_err(StoreError::Directory)?;
        }
        let shape = |group: &tideline_chunk::DeltaGroup| {
            table
                .schema()
                .shape(group.measurements.names(), &group.fields, &group.columns)
        };
        let shapes = delta
            .groups
            .iter()
            .map(shape)
            .collect::<Result<Vec<Arc<Shape>>>>()?;
        let settings = &self.recovery.settings;
        let sharded = ShardedDelta::new(&delta, &shapes);
        head.apply(&sharded, sequence, settings.head);
        let nothing_sealed = !self.recovery.manifest.segments.contains_key(&delta.table);
        table.latest().apply(&sharded, sequence, nothing_sealed);
        let instants = delta.groups.iter().flat_map(|group| &group.timestamps);
        self.newest = self.newest.max(instants.max().copied());
        if let Some(record) = &delta.delete {
            head.delete(delta.table, &record.timelines, record.range, sequence)?;
            self.deletes.add(delta.table, sequence, record);
            self.waiting_rows.insert(sequence, (delta.table, encoded));
            table.latest().forget(&record.timelines);
            if record.removes_timelines {
                let removed = record.timelines.iter().map(|id| (delta.table, *id));
                self.removed.extend(removed);
                self.directory.removed(delta.table, &record.timelines);
            }
        }
        if let Some(request) = &delta.request {
            self.recovery
                .requests
                .remember(delta.table, request, self.now, settings);
        }
        self.found.deltas += 1;
        self.found.points += delta
            .groups
            .iter()
            .map(|group| group.timestamps.len() as u64)
            .sum::<u64>();
        Ok(())
    }
}

/// Carries a failure of ours through the backend's replay.
fn as_backend_error(error: StoreError) -> tideline_backend::BackendError {
    match error {
        StoreError::Backend(error) => error,
        other => tideline_backend::BackendError::corrupt(other.to_string()),
    }
}

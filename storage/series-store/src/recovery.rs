//! Opens a store from the data in the backend.
//!
//! 1. The log takes the shard and reads the manifest ([`tideline_log::Opening`]).
//! 2. Segments, table schemas and pending deletes are read.
//! 3. The caller loads its own rows about timelines. For this, the caller needs the tables of step 2.
//! 4. The log replays the journals of older epochs from the published cursor on. Their deltas are applied to a new
//!    head.
//! 5. The threads are started, and the default table is created if it is missing. Segments that the manifest did not
//!    reference in step 2 are freed. Such segments are left by a crash while a segment was written, or by a crash
//!    before a removed segment was freed.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use hashbrown::HashSet;
use tideline_backend::{Backend, Health, SegmentRef};
use tideline_chunk::{Delta, DeltaGroup};
use tideline_log::{Log, LogModel, ModelError, ModelTag, Opening, Replay, ReplayedEntry, RequestRecord};
use tideline_model::{Clock, SegmentId, SequenceNumber, TableId, TableName, TableSpec, TimelineId};

use crate::deletes::Deletes;
use crate::error::{Result, StoreError};
use crate::head::{Head, HeadBudget};
use crate::manifest::{ManifestState, TableCounts, TableRow};
use crate::schema::{Shape, TableSchema};
use crate::settings::Settings;
use crate::sharding::ShardedDelta;
use crate::shared::{Shared, State, Tables};
use crate::store::{SeriesStore, TimelineDirectory};
use crate::tables::Table;

/// Store that has read its manifest but not yet its journal.
#[derive(Debug)]
pub struct Recovery {
    log: Opening,
    settings: Settings,
    manifest: ManifestState,
    tables: Tables,
    deletes: Deletes,
    /// Segments that the manifest does not reference, left by a crash.
    orphans: Vec<SegmentRef>,
    guard: Guard,
}

/// Result of a replay.
#[derive(Debug, Clone, Copy, Default)]
pub struct Replayed {
    /// Applied journal entries of all models.
    pub entries: u64,
    /// Applied journal entries of the series model.
    pub deltas: u64,
    /// Rows in the entries of the series model.
    pub points: u64,
}

impl Recovery {
    /// Performs steps 1 and 2.
    ///
    /// # Errors
    ///
    /// [`StoreError::StoredRow`] if a row cannot be read; [`StoreError::RowsLost`] if schema rows are missing; the
    /// errors of [`Opening::begin`].
    pub fn begin(backend: Arc<dyn Backend>, clock: Arc<dyn Clock>, settings: Settings) -> Result<Self> {
        let log = Opening::begin(backend, clock, settings.log.clone())?;
        let backend = log.backend().as_ref();
        let manifest = ManifestState::of(log.manifest().clone(), log.rows())?;
        // Orphans are collected before any segment is written, because a segment that is being written must not be
        // mistaken for an orphan.
        let segments = manifest.segments.values().flat_map(BTreeMap::values);
        let named: HashSet<SegmentId> = segments
            .flat_map(|segment| segment.parts())
            .map(|part| part.id)
            .collect();
        let is_published = |at: &SegmentRef| named.contains(&at.segment);
        let orphans = log
            .segments()
            .iter()
            .filter(|at| !is_published(at))
            .copied()
            .collect();
        let mut guard = Guard::new(backend, &settings);
        let mut tables = Tables::default();
        let mut deletes = Deletes::default();
        for row in manifest.common.tables.values() {
            let schema = TableSchema::load(backend, row.id)?;
            if let Some(counts) = row.counts {
                guard.check_fields(row, schema.saved(), counts)?;
                schema.reserve(counts.next_field);
            }
            tables.insert(Arc::new(Table::new(row, schema)));
            deletes.load(backend, row.id)?;
        }
        Ok(Self {
            log,
            settings,
            manifest,
            tables,
            deletes,
            orphans,
            guard,
        })
    }

    /// Returns the tables.
    pub fn tables(&self) -> Vec<Arc<Table>> {
        self.tables.by_id.values().cloned().collect()
    }

    /// Returns the log that is being opened, for models other than the series model.
    pub fn opening(&self) -> &Opening {
        &self.log
    }

    /// Returns the backend, for the caller's own rows.
    pub fn backend(&self) -> &Arc<dyn Backend> {
        self.log.backend()
    }

    /// Performs steps 4 and 5.
    ///
    /// # Errors
    ///
    /// [`StoreError::Delta`] if a journal entry is damaged; [`StoreError::Directory`] if `directory` rejects a
    /// timeline; [`StoreError::RowsLost`] if catalog rows are missing; the errors of the log.
    pub fn finish(self, directory: Arc<dyn TimelineDirectory>) -> Result<(SeriesStore, Replayed)> {
        self.finish_beside(directory, &mut [], |_| Vec::new())
    }

    /// Performs steps 4 and 5 together with other models on the same log. `replays` receive the journal entries of
    /// their models from earlier runs, and `models` creates the models once the log is open.
    ///
    /// # Errors
    ///
    /// The errors of [`finish`](Self::finish), and those of `replays`.
    pub fn finish_beside(
        self,
        directory: Arc<dyn TimelineDirectory>,
        replays: &mut [&mut dyn Replay],
        models: impl FnOnce(&Arc<Log>) -> Vec<Arc<dyn LogModel>>,
    ) -> Result<(SeriesStore, Replayed)> {
        let Self {
            log,
            settings,
            manifest,
            tables,
            deletes,
            orphans,
            mut guard,
        } = self;
        let rows = manifest.common.tables.values();
        let saved = rows
            .clone()
            .filter_map(|row| Some((row.id, directory.saved(row.id)?)));
        let saved: BTreeMap<TableId, u64> = saved.collect();
        let mut replay = SeriesReplay {
            tables: &tables,
            manifest: &manifest,
            budget: settings.head,
            directory: directory.as_ref(),
            head: Head::new(manifest.common.cursor.sealed_to),
            found: Replayed::default(),
            deletes,
            waiting_rows: BTreeMap::new(),
            removed: HashSet::new(),
            newest: None,
        };
        let mut all: Vec<&mut dyn Replay> = vec![&mut replay];
        all.extend(replays.iter_mut().map(|other| &mut **other as &mut dyn Replay));
        let replayed = log.replay(&mut all)?;
        for row in rows {
            if let (Some(found), Some(counts)) = (saved.get(&row.id), row.counts) {
                let removed = replay.removed.iter().filter(|(table, _)| *table == row.id);
                guard.check_timelines(row, *found, removed.count() as u64, counts)?;
            }
        }
        let SeriesReplay {
            head,
            found,
            deletes,
            waiting_rows,
            newest,
            ..
        } = replay;
        let found = Replayed {
            entries: replayed.entries,
            ..found
        };
        // All data has been read. Before this point, only the lease has been stored.
        let log = replayed.open()?;
        let lost = guard.lost;
        let state = State {
            deletes,
            manifest: Arc::new(manifest),
            frozen: Vec::new(),
            active: Arc::new(head),
        };
        let default_exists = tables
            .by_name
            .keys()
            .any(|name| name.as_str() == TableName::DEFAULT);
        let shared = Arc::new(Shared::new(log, settings, directory, state, tables, orphans));
        *shared.waiting_rows.lock() = waiting_rows;
        if let Some(newest) = newest {
            shared.log.note_newest(newest);
        }
        let others = models(&shared.log);
        let store = SeriesStore::start(Arc::clone(&shared), others);
        if !lost.is_empty() {
            // The operator has accepted the loss, so the next start must not fail because of it.
            shared.edit(|manifest| manifest.common.put_counts(&lost))?;
        }
        if let Err(error) = shared.check_not_read_only() {
            tracing::error!(%error, "the store is opened read-only");
        } else if !default_exists {
            let name = TableName::new(TableName::DEFAULT).expect("the default name follows its own rules");
            shared.create_table(name, TableSpec::default())?;
        }
        Ok((store, found))
    }
}

/// Start-up check for missing catalog and schema rows that segments need.
#[derive(Debug, Default)]
struct Guard {
    /// True if the backend is read-only. The backend itself has then reported the missing data.
    is_read_only: bool,
    accept_loss: bool,
    /// Remaining counts of each table with a loss that the operator has accepted.
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
            component: "schema",
            found: found.into(),
            expected: counts.fields.into(),
        };
        self.lose(row.id, remaining, error)
    }

    /// Checks the timelines of the catalog. The rows of up to `removed` timelines may have been deleted since the
    /// timelines were counted.
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
            component: "catalog",
            found,
            expected,
        };
        self.lose(row.id, remaining, error)
    }

    /// Returns the error of a loss, unless the backend is read-only or the operator has accepted losses.
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

/// Replay of the deltas of a journal.
struct SeriesReplay<'a> {
    tables: &'a Tables,
    manifest: &'a ManifestState,
    budget: HeadBudget,
    directory: &'a dyn TimelineDirectory,
    head: Head,
    found: Replayed,
    deletes: Deletes,
    waiting_rows: BTreeMap<SequenceNumber, (TableId, Bytes)>,
    /// Timelines that were removed since the last seal. Their catalog rows may be missing.
    removed: HashSet<(TableId, TimelineId)>,
    /// Newest timestamp found.
    newest: Option<i64>,
}

impl Replay for SeriesReplay<'_> {
    fn tag(&self) -> ModelTag {
        ModelTag::SERIES
    }

    fn apply(
        &mut self,
        sequence: SequenceNumber,
        entry: &Bytes,
    ) -> std::result::Result<ReplayedEntry, ModelError> {
        Ok(self.take_in(sequence, entry)?)
    }
}

impl SeriesReplay<'_> {
    fn take_in(&mut self, sequence: SequenceNumber, entry: &Bytes) -> Result<ReplayedEntry> {
        let delta = Delta::decode(entry).map_err(|cause| StoreError::Delta {
            sequence: sequence.0,
            cause,
        })?;
        let Some(table) = self.tables.by_id.get(&delta.table) else {
            // The table was dropped after this entry was written. The head must still advance past the sequence,
            // because a watcher of another table may have a cursor after it.
            self.head.pass(sequence);
            return Ok(ReplayedEntry {
                table: delta.table,
                request: None,
            });
        };
        for timeline in &delta.new_timelines {
            self.directory
                .adopt(delta.table, timeline)
                .map_err(StoreError::Directory)?;
        }
        let shape = |group: &DeltaGroup| {
            table
                .schema()
                .shape(group.measurements.names(), &group.fields, &group.columns)
        };
        let shapes = delta
            .groups
            .iter()
            .map(shape)
            .collect::<Result<Vec<Arc<Shape>>>>()?;
        let sharded = ShardedDelta::new(&delta, &shapes);
        self.head.apply(&sharded, sequence, self.budget);
        let nothing_sealed = !self.manifest.segments.contains_key(&delta.table);
        table.latest().apply(&sharded, sequence, nothing_sealed);
        let instants = delta.groups.iter().flat_map(|group| &group.timestamps);
        self.newest = self.newest.max(instants.max().copied());
        if let Some(record) = &delta.delete {
            self.head
                .delete(delta.table, &record.timelines, record.range, sequence)?;
            self.deletes.add(delta.table, sequence, record);
            self.waiting_rows.insert(sequence, (delta.table, entry.clone()));
            table.latest().forget(&record.timelines);
            if record.removes_timelines {
                let removed = record.timelines.iter().map(|id| (delta.table, *id));
                self.removed.extend(removed);
                self.directory.removed(delta.table, &record.timelines);
            }
        }
        self.found.deltas += 1;
        self.found.points += delta
            .groups
            .iter()
            .map(|group| group.timestamps.len() as u64)
            .sum::<u64>();
        Ok(ReplayedEntry {
            table: delta.table,
            request: delta.request.map(|request| RequestRecord {
                key: request.key,
                outcome: request.outcome.into(),
            }),
        })
    }
}

//! The store itself: what its parts share, and what others may ask of it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use tideline_backend::{Backend, Health, Usage};
use tideline_chunk::{Delta, NewTimeline};
use tideline_model::{Durability, FieldId, SequenceNumber, TableId, TableName, TableSpec, TimelineId};

use crate::committer::Committer;
use crate::error::{Result, StoreError};
use crate::latest::{LatestRow, Seen};
use crate::manifest::put_table;
use crate::requests::RequestKey;
use crate::scan::Snapshot;
use crate::schema::Shape;
use crate::seal::Sealer;
use crate::shared::{Shared, Stamps};
use crate::tables::Table;

/// Keeps what the store must not know: the identities behind timeline ids.
pub trait TimelineDirectory: Send + Sync {
    /// Takes in a timeline that a replayed journal entry introduces. The same one again is no error.
    fn adopt(&self, table: TableId, timeline: &NewTimeline) -> std::result::Result<(), String>;

    /// Takes note that the identities of these timelines are now in the journal. Called before the write that
    /// introduces them is answered.
    fn announced(&self, table: TableId, timelines: &[NewTimeline]);

    /// Makes everything adopted or announced so far durable: the journal that carried it is about to go.
    fn save(&self) -> std::result::Result<(), StoreError>;
}

/// An embedded store of series points.
#[derive(Debug)]
pub struct SeriesStore {
    shared: Arc<Shared>,
    committer: Committer,
    sealer: Sealer,
}

/// What became of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed {
    /// Its place in the journal.
    pub sequence: SequenceNumber,
}

/// Sizes and counts, for `/metrics` and table statistics.
#[derive(Debug, Clone, Default)]
pub struct StoreStats {
    /// Bytes of unsealed points in memory, frozen heads included.
    pub head_bytes: usize,
    /// Unsealed points in memory.
    pub head_points: u64,
    /// Heads waiting to be sealed or being sealed.
    pub frozen_heads: usize,
    /// Published segments.
    pub segments: usize,
    /// Points in them.
    pub segment_points: u64,
    /// Field values in them.
    pub segment_values: u64,
    /// Bytes of their keys and chunks.
    pub segment_bytes: u64,
    /// Deltas committed since the start.
    pub commits: u64,
    /// Journal appends since the start: `commits` over this is the size of a group.
    pub appends: u64,
    /// Seals done since the start.
    pub seals: u64,
    /// Why the last seal failed, until one succeeds.
    pub seal_error: Option<String>,
    /// The backend's own sizes.
    pub usage: Usage,
}

impl SeriesStore {
    pub(crate) fn start(shared: Arc<Shared>) -> Self {
        let sealer = Sealer::start(Arc::clone(&shared));
        let committer = Committer::start(Arc::clone(&shared));
        Self {
            shared,
            committer,
            sealer,
        }
    }

    // --- tables ----------------------------------------------------------------------------------------

    /// A table by name.
    pub fn table(&self, name: &str) -> Result<Arc<Table>> {
        let missing = || StoreError::NoSuchTable(name.chars().take(80).collect());
        let name = TableName::new(name).map_err(|_| missing())?;
        let tables = self.shared.tables.read();
        let id = tables.by_name.get(&name).ok_or_else(missing)?;
        tables.by_id.get(id).cloned().ok_or_else(missing)
    }

    /// All tables, by name.
    pub fn tables(&self) -> Vec<Arc<Table>> {
        let mut all: Vec<_> = self.shared.tables.read().by_id.values().cloned().collect();
        all.sort_by(|a, b| a.name().cmp(b.name()));
        all
    }

    /// Makes a table.
    pub fn create_table(&self, name: TableName, spec: TableSpec) -> Result<Arc<Table>> {
        self.shared.create_table(name, spec)
    }

    /// Changes a table's settings. Source tags are fixed once the table has a point.
    pub fn alter_table(&self, name: &str, spec: TableSpec) -> Result<Arc<Table>> {
        let table = self.table(name)?;
        if table.spec().source_tags != spec.source_tags && self.has_points(table.id()) {
            return Err(StoreError::SourceTagsFixed(table.name().clone()));
        }
        let row = table.row(spec, self.shared.clock.now().nanos());
        self.shared.edit(|manifest| {
            manifest.tables.insert(table.id(), row.clone());
            vec![put_table(&row)]
        })?;
        table.set_spec(&row);
        Ok(table)
    }

    /// Drops a table with all its points: invisible at once, bytes freed when its last reader is done.
    ///
    /// Catalog rows and index entries are the caller's to remove.
    pub fn drop_table(&self, name: &str) -> Result<TableId> {
        let table = self.table(name)?;
        if name == TableName::DEFAULT {
            return Err(StoreError::DefaultTable(table.name().clone()));
        }
        self.shared.drop_table(&table)?;
        self.sealer.wake();
        Ok(table.id())
    }

    fn has_points(&self, table: TableId) -> bool {
        let state = self.shared.state.read();
        let in_heads = state
            .frozen
            .iter()
            .chain([&state.active])
            .any(|head| head.table(table).is_some());
        in_heads
            || state
                .manifest
                .segments
                .get(&table)
                .is_some_and(|segments| !segments.is_empty())
    }

    // --- writing ---------------------------------------------------------------------------------------

    /// Commits a delta and waits for its acknowledgement.
    ///
    /// `shapes` holds the table's shape of each group of the delta. After `Ok` with [`Durability::Synced`] the
    /// points are on stable storage, and every later read sees them. After an error the outcome is unknown
    /// unless the error says otherwise; the same delta may be sent again. Blocks for a group commit.
    pub fn commit(
        &self,
        table: &Arc<Table>,
        delta: Delta,
        shapes: Vec<Arc<Shape>>,
        durability: Durability,
    ) -> Result<Committed> {
        self.committer
            .commit(Arc::clone(table), delta, shapes, durability)
    }

    /// The outcome of an earlier request with this idempotency key.
    pub fn request_outcome(&self, table: &Table, key: RequestKey) -> Option<Bytes> {
        self.shared.requests.outcome(table.id(), key)
    }

    /// Seals everything that was committed before the call, and waits for it.
    pub fn seal(&self) -> Result<()> {
        let end = self.committer.freeze()?;
        self.sealer.wait(end)
    }

    // --- reading ---------------------------------------------------------------------------------------

    /// The points of this moment.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(Arc::clone(&self.shared.backend), self.shared.state.read().clone())
    }

    /// The newest value of every field of a timeline.
    ///
    /// From memory, but for a timeline that was last written before the start: then its newest chunks are read
    /// once. `expected` names the fields of its measurement: reading stops when all are found.
    pub fn latest(&self, table: &Table, id: TimelineId, expected: &[FieldId]) -> Result<LatestRow> {
        match table.latest().known(id) {
            Some(known) if known.complete => Ok(known.row),
            _ => {
                let stored = self.snapshot().newest(table.id(), id, expected)?;
                table.latest().complete(id, stored);
                Ok(table
                    .latest()
                    .known(id)
                    .map(|known| known.row)
                    .unwrap_or_default())
            }
        }
    }

    /// The span of each timeline's points; `None` where there is none.
    ///
    /// From memory, but for timelines that were last written before the start: their chunks' keys and headers are
    /// read once, in one sweep for all of them.
    pub fn seen(&self, table: &Table, ids: &[TimelineId]) -> Result<Vec<Option<Seen>>> {
        let known = |id: &TimelineId| table.latest().seen(*id);
        let mut unknown: Vec<TimelineId> = ids.iter().filter(|id| known(id).is_none()).copied().collect();
        if !unknown.is_empty() {
            unknown.sort_unstable();
            unknown.dedup();
            let spans = self.snapshot().spans(table.id(), &unknown)?;
            unknown
                .iter()
                .zip(spans)
                .for_each(|(id, span)| table.latest().widen(*id, span));
        }
        Ok(ids.iter().map(|id| known(id).flatten()).collect())
    }

    // --- operation -------------------------------------------------------------------------------------

    /// The backend, for the rows of others: catalog and the like.
    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.shared.backend
    }

    /// Rising stamps for such rows.
    pub fn stamps(&self) -> &Stamps {
        &self.shared.stamps
    }

    /// Whether promises can be kept now.
    pub fn health(&self) -> Health {
        self.shared.backend.health()
    }

    /// Why the last seal failed, until one succeeds.
    pub fn seal_error(&self) -> Option<String> {
        self.shared.sealing.lock().error.clone()
    }

    /// Sizes and counts.
    pub fn stats(&self) -> StoreStats {
        let state = self.shared.state.read().clone();
        let heads = || state.frozen.iter().chain([&state.active]);
        let segments = || {
            state
                .manifest
                .segments
                .values()
                .flat_map(|segments| segments.values())
        };
        StoreStats {
            head_bytes: heads().map(|head| head.bytes()).sum(),
            head_points: heads().map(|head| head.points()).sum(),
            frozen_heads: state.frozen.len(),
            segments: segments().count(),
            segment_points: segments().map(|segment| segment.points).sum(),
            segment_values: segments().map(|segment| segment.values).sum(),
            segment_bytes: segments().map(|segment| segment.bytes).sum(),
            commits: self.shared.counters.commits.load(Ordering::Relaxed),
            appends: self.shared.counters.appends.load(Ordering::Relaxed),
            seals: self.shared.counters.seals.load(Ordering::Relaxed),
            seal_error: self.seal_error(),
            usage: self.shared.backend.usage(),
        }
    }

    /// Stops taking writes, answers those that wait, syncs and closes the backend. Unsealed points stay in the
    /// journal and are there again after the next start.
    pub fn close(&self) -> Result<()> {
        self.committer.stop();
        self.sealer.stop();
        Ok(self.shared.backend.close()?)
    }
}

impl Drop for SeriesStore {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            tracing::error!(%error, "closing the store failed");
        }
    }
}

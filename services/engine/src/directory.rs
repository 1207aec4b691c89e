//! Directory of the timeline catalogs of all tables, used by the log and the store.
//!
//! The directory applies replayed journal entries to the catalogs, and writes catalog rows before their journal
//! entries are dropped.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use hashbrown::HashMap;
use parking_lot::RwLock;
use tideline_archive::TimelineMetadata;
use tideline_backend::{Backend, ManifestChange, ManifestRow, SegmentRef};
use tideline_chunk::NewTimeline;
use tideline_log::{
    Flushed, Log, LogEntry, LogModel, Manifest, ModelError, ModelTag, Pressure, Refusal, Replay,
    ReplayedEntry, Stamps,
};
use tideline_model::{Durability, Identity, Ordinal, SequenceNumber, TableId, TimelineId};
use tideline_series_store::TimelineDirectory;
use tideline_timeline_catalog::value::AttributeRef;
use tideline_timeline_catalog::{
    Catalog, CatalogChange, CatalogError, ChangeLog, RawKeyBudget, UnflushedBytes,
};

use crate::activity::Activity;

/// All catalogs by table, with the activity of each table.
#[derive(Debug, Default)]
pub(crate) struct Catalogs {
    by_table: RwLock<HashMap<TableId, TableState>>,
    backend: OnceLock<Arc<dyn Backend>>,
    /// True after the journal has been replayed.
    replayed: AtomicBool,
    /// Journal bytes of catalog changes that are not in rows yet.
    unflushed: Arc<UnflushedBytes>,
    /// Budget of the raw key caches of all catalogs.
    raw_key_budget: Arc<RawKeyBudget>,
    /// Log of changed catalog rows, for standbys.
    change_log: Arc<ChangeLog>,
}

/// Number of journal bytes of catalog changes at which rows are written; bounds the replay of the next start.
const UNFLUSHED_BYTES_MAX: u64 = 16 << 20;

/// Engine state of one table.
#[derive(Debug, Clone)]
pub(crate) struct TableState {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) activity: Arc<Activity>,
}

impl Catalogs {
    /// Creates an empty directory, whose catalogs use at most `raw_key_bytes` bytes for raw keys.
    pub(crate) fn new(raw_key_bytes: usize) -> Self {
        Self {
            raw_key_budget: Arc::new(RawKeyBudget::new(raw_key_bytes)),
            ..Self::default()
        }
    }

    /// Marks the journal as replayed, and deletes the rows of timelines that the replay removed.
    pub(crate) fn replayed(&self, stamps: &Stamps) {
        self.replayed.store(true, Ordering::SeqCst);
        for catalog in self.all() {
            catalog.replayed();
            if let Err(error) = self.save_removals(&catalog, stamps) {
                tracing::warn!(%error, "failed to delete rows of removed timelines; they are deleted later");
            }
        }
    }

    /// Deletes the rows of removed timelines. Must be called before a removal is acknowledged.
    pub(crate) fn save_removals(&self, catalog: &Catalog, stamps: &Stamps) -> Result<(), CatalogError> {
        match self.backend.get() {
            Some(backend) => catalog.save_removals(backend.as_ref(), &mut || stamps.next()),
            None => Ok(()),
        }
    }

    /// Sets the backend for rows. Called once, before anything is saved.
    pub(crate) fn use_backend(&self, backend: Arc<dyn Backend>) {
        let _ = self.backend.set(backend);
    }

    /// Returns the counter to which catalogs add the bytes of their changes.
    pub(crate) fn unflushed(&self) -> &Arc<UnflushedBytes> {
        &self.unflushed
    }

    /// Returns the log of changed catalog rows.
    pub(crate) fn change_log(&self) -> &Arc<ChangeLog> {
        &self.change_log
    }

    /// Returns the budget of the raw key caches of all catalogs.
    pub(crate) fn raw_key_budget(&self) -> &Arc<RawKeyBudget> {
        &self.raw_key_budget
    }

    pub(crate) fn get(&self, table: TableId) -> Option<TableState> {
        self.by_table.read().get(&table).cloned()
    }

    /// Returns the state of a table; `catalog` creates the catalog of a new table.
    pub(crate) fn get_or_insert(&self, table: TableId, catalog: impl FnOnce() -> Catalog) -> TableState {
        if let Some(known) = self.get(table) {
            return known;
        }
        let mut by_table = self.by_table.write();
        let table_state = by_table.entry(table).or_insert_with(|| {
            let catalog = Arc::new(catalog());
            catalog.log_changes(Arc::clone(&self.change_log));
            TableState {
                catalog,
                activity: Arc::default(),
            }
        });
        table_state.clone()
    }

    /// Removes a table and returns its state.
    pub(crate) fn remove(&self, table: TableId) -> Option<TableState> {
        self.by_table.write().remove(&table)
    }

    /// Restores a table whose rows could not be removed.
    pub(crate) fn put_back(&self, table: TableId, table_state: TableState) {
        self.by_table.write().insert(table, table_state);
    }

    /// Returns the ids of all tables.
    pub(crate) fn tables(&self) -> Vec<TableId> {
        self.by_table.read().keys().copied().collect()
    }

    fn all(&self) -> Vec<Arc<Catalog>> {
        let states = self.by_table.read();
        states
            .values()
            .map(|table_state| Arc::clone(&table_state.catalog))
            .collect()
    }

    fn catalog(&self, table: TableId) -> Option<Arc<Catalog>> {
        Some(self.get(table)?.catalog)
    }
}

impl TimelineDirectory for Catalogs {
    fn adopt(&self, table: TableId, timeline: &NewTimeline) -> Result<(), String> {
        let catalog = self
            .catalog(table)
            .ok_or_else(|| format!("table {table} has no catalog"))?;
        catalog
            .adopt(timeline.id, timeline.ordinal, &timeline.identity)
            .map_err(|error| error.to_string())
    }

    fn made_durable(&self, table: TableId, timelines: &[NewTimeline]) {
        if let Some(catalog) = self.catalog(table).filter(|_| !timelines.is_empty()) {
            let ordinals: Vec<Ordinal> = timelines.iter().map(|timeline| timeline.ordinal).collect();
            catalog.mark_durable(&ordinals);
        }
    }

    fn removed(&self, table: TableId, ids: &[TimelineId]) {
        if let Some(catalog) = self.catalog(table) {
            if self.replayed.load(Ordering::SeqCst) {
                catalog.remove(ids);
            } else {
                catalog.remove_replayed(ids);
            }
        }
    }

    fn saved(&self, table: TableId) -> Option<u64> {
        Some(self.catalog(table)?.saved())
    }

    fn metadata(&self, table: TableId) -> Option<Arc<dyn TimelineMetadata>> {
        let catalog = self.catalog(table)?;
        let keys = OnceLock::new();
        Some(Arc::new(Names { catalog, keys }))
    }
}

/// Replay of catalog entries in the journal.
pub(crate) struct CatalogReplay(pub(crate) Arc<Catalogs>);

impl Replay for CatalogReplay {
    fn tag(&self) -> ModelTag {
        ModelTag::CATALOG
    }

    fn apply(&mut self, _: SequenceNumber, entry: &Bytes) -> Result<ReplayedEntry, ModelError> {
        let table = Catalog::table_of(entry)?;
        // A table without a catalog was dropped.
        if let Some(catalog) = self.0.catalog(table) {
            catalog.replay(entry)?;
        }
        Ok(ReplayedEntry { table, request: None })
    }
}

/// Log model of the catalogs. It is flushed before the model of the series: rows of timelines must be durable before
/// the journal of the points that introduced them is dropped.
pub(crate) struct CatalogModel {
    pub(crate) catalogs: Arc<Catalogs>,
    pub(crate) log: Arc<Log>,
}

/// Log entry of a catalog change.
pub(crate) struct CatalogEntry(pub(crate) CatalogChange);

impl LogEntry for CatalogEntry {
    fn kind(&self) -> &'static str {
        "catalog"
    }

    fn table(&self) -> TableId {
        self.0.table()
    }

    fn encoded(&self) -> &Bytes {
        self.0.encoded()
    }

    fn durability(&self) -> Durability {
        Durability::Synced
    }

    fn check(&self) -> Result<(), Refusal> {
        match self.0.is_current() {
            true => Ok(()),
            false => Err(Refusal::Outdated),
        }
    }

    fn apply(&self, _: SequenceNumber) -> Result<(), ModelError> {
        self.0.apply();
        Ok(())
    }
}

impl LogModel for CatalogModel {
    fn pressure(&self) -> Pressure {
        match self.catalogs.unflushed.get() < UNFLUSHED_BYTES_MAX {
            true => Pressure::Low,
            false => Pressure::Full,
        }
    }

    fn is_empty(&self) -> bool {
        self.catalogs.unflushed.get() == 0
    }

    /// Resets the counter of unflushed bytes. Rows hold the newest state, so changes before and after the freeze are
    /// not separated: a flush may also write later changes.
    fn freeze(&self, _: SequenceNumber) {
        self.catalogs.unflushed.reset();
    }

    fn flush(&self, _: SequenceNumber) -> Result<Option<Box<dyn Flushed>>, ModelError> {
        let backend = self.log.backend().as_ref();
        let catalogs = self.catalogs.all();
        for catalog in &catalogs {
            catalog.write_rows(backend, &mut || self.log.stamps().next())?;
        }
        Ok(Some(Box::new(FlushedCatalogs(catalogs))))
    }

    fn flushed(&self, _: SequenceNumber) {}

    fn tidy(&self) {}

    fn take_over(&self, _: &Arc<Manifest>, _: &[ManifestRow]) -> Result<(), ModelError> {
        Ok(())
    }

    fn doubt(&self, _: &[TableId]) {}

    fn abandon(&self, _: &[SegmentRef]) {}
}

/// Catalogs whose rows were written.
struct FlushedCatalogs(Vec<Arc<Catalog>>);

impl Flushed for FlushedCatalogs {
    fn synced(&mut self) -> Result<(), ModelError> {
        self.0.iter().for_each(|catalog| catalog.rows_synced());
        Ok(())
    }

    fn edit(&mut self, _: &mut Manifest) -> Result<Vec<ManifestChange>, ModelError> {
        Ok(Vec::new())
    }

    fn adds(&self) -> Vec<SegmentRef> {
        Vec::new()
    }

    fn follow(self: Box<Self>, _: &Arc<Manifest>) {}
}

/// Number of timelines read under one lock, so that writers wait for at most about a millisecond.
const READ_GROUP: usize = 4_096;

/// Timelines of a catalog, resolved for archive files.
struct Names {
    catalog: Arc<Catalog>,
    /// Tag keys of each measurement, collected on first use.
    keys: OnceLock<HashMap<String, BTreeSet<String>>>,
}

impl Names {
    fn keys(&self) -> HashMap<String, BTreeSet<String>> {
        let visible: Vec<u32> = self.catalog.reader().visible().iter().collect();
        let mut keys: HashMap<String, BTreeSet<String>> = HashMap::new();
        for group in visible.chunks(READ_GROUP) {
            let reader = self.catalog.reader();
            for ordinal in group {
                let Some(entry) = reader.entry(Ordinal(*ordinal)) else {
                    continue;
                };
                let of_measurement = keys.entry_ref(entry.measurement()).or_default();
                for (key, _) in entry.tags() {
                    if !of_measurement.contains(key) {
                        of_measurement.insert(key.to_owned());
                    }
                }
            }
        }
        keys
    }
}

impl TimelineMetadata for Names {
    fn identity(&self, id: TimelineId) -> Option<Arc<Identity>> {
        let reader = self.catalog.reader();
        let mut encoded = Vec::new();
        reader.encode_identity(reader.by_id(id)?, &mut encoded);
        Identity::decode(&encoded).ok().map(Arc::new)
    }

    fn attributes(&self, id: TimelineId) -> Option<String> {
        let reader = self.catalog.reader();
        let entry = reader.entry(reader.by_id(id)?)?;
        let all = entry
            .attributes()
            .map(|(key, value)| (key.to_owned(), as_json(value)));
        let all: serde_json::Map<String, serde_json::Value> = all.collect();
        (!all.is_empty()).then(|| serde_json::Value::Object(all).to_string())
    }

    fn tag_keys(&self, measurement: &str) -> Vec<String> {
        let keys = self.keys.get_or_init(|| self.keys());
        let of_measurement = keys.get(measurement).into_iter().flatten();
        of_measurement.cloned().collect()
    }
}

/// Converts a value to the JSON form of archive files. Both kinds of lists become arrays.
fn as_json(value: AttributeRef<'_>) -> serde_json::Value {
    use serde_json::{Value, json};
    match value {
        AttributeRef::Text(text) => Value::from(text),
        AttributeRef::Number(number) => Value::from(number),
        AttributeRef::Boolean(boolean) => Value::from(boolean),
        AttributeRef::Time(time) => json!({ "time": time.to_string() }),
        AttributeRef::Point(point) => json!({ "latitude": point.latitude(), "longitude": point.longitude() }),
        AttributeRef::Texts(texts) => texts.iter().map(Value::from).collect(),
        AttributeRef::Numbers(numbers) => numbers.iter().map(Value::from).collect(),
    }
}

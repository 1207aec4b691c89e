//! The catalogs of all tables, as the store sees them: who takes in timelines found in a replayed journal, and
//! makes them durable before that journal goes.

use std::sync::{Arc, OnceLock};

use hashbrown::HashMap;
use parking_lot::RwLock;
use tideline_backend::Backend;
use tideline_chunk::NewTimeline;
use tideline_model::{Clock, Ordinal, TableId};
use tideline_series_store::{Stamps, StoreError, TimelineDirectory};
use tideline_timeline_catalog::{Catalog, CatalogError};

/// All catalogs by table.
#[derive(Debug)]
pub(crate) struct Catalogs {
    by_table: RwLock<HashMap<TableId, Arc<Catalog>>>,
    backend: OnceLock<Arc<dyn Backend>>,
    stamps: Stamps,
}

impl Catalogs {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            by_table: RwLock::default(),
            backend: OnceLock::new(),
            stamps: Stamps::new(clock),
        }
    }

    /// Says where rows go. Once, before anything is saved.
    pub(crate) fn use_backend(&self, backend: Arc<dyn Backend>) {
        let _ = self.backend.set(backend);
    }

    pub(crate) fn get(&self, table: TableId) -> Option<Arc<Catalog>> {
        self.by_table.read().get(&table).cloned()
    }

    pub(crate) fn insert(&self, catalog: Arc<Catalog>) {
        self.by_table.write().insert(catalog.table(), catalog);
    }

    pub(crate) fn remove(&self, table: TableId) -> Option<Arc<Catalog>> {
        self.by_table.write().remove(&table)
    }

    pub(crate) fn stamps(&self) -> &Stamps {
        &self.stamps
    }

    fn all(&self) -> Vec<Arc<Catalog>> {
        self.by_table.read().values().cloned().collect()
    }
}

impl TimelineDirectory for Catalogs {
    fn adopt(&self, table: TableId, timeline: &NewTimeline) -> Result<(), String> {
        let catalog = self
            .get(table)
            .ok_or_else(|| format!("table {table} has no catalog"))?;
        catalog
            .adopt(timeline.id, timeline.ordinal, &timeline.identity)
            .map_err(|error| error.to_string())
    }

    fn announced(&self, table: TableId, timelines: &[NewTimeline]) {
        if let Some(catalog) = self.get(table).filter(|_| !timelines.is_empty()) {
            let ordinals: Vec<Ordinal> = timelines.iter().map(|timeline| timeline.ordinal).collect();
            catalog.announced(&ordinals);
        }
    }

    fn save(&self) -> Result<(), StoreError> {
        let Some(backend) = self.backend.get() else {
            return Ok(());
        };
        for catalog in self.all() {
            catalog
                .save(backend.as_ref(), &mut || self.stamps.next())
                .map_err(|error| match error {
                    CatalogError::Backend(error) => StoreError::Backend(error),
                    other => StoreError::Directory(other.to_string()),
                })?;
        }
        Ok(())
    }
}

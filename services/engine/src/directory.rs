//! The catalogs of all tables, as the store sees them: who takes in timelines found in a replayed journal, and
//! makes them durable before that journal goes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use hashbrown::HashMap;
use parking_lot::RwLock;
use tideline_backend::Backend;
use tideline_chunk::NewTimeline;
use tideline_model::{Clock, Ordinal, TableId, TimelineId};
use tideline_series_store::{Stamps, StoreError, TimelineDirectory};
use tideline_timeline_catalog::{Catalog, CatalogError};

use crate::activity::Activity;

/// All catalogs by table, and what goes on in each.
#[derive(Debug)]
pub(crate) struct Catalogs {
    by_table: RwLock<HashMap<TableId, Member>>,
    backend: OnceLock<Arc<dyn Backend>>,
    stamps: Stamps,
    /// Whether the journal has been replayed.
    replayed: AtomicBool,
}

/// What the engine keeps of one table.
#[derive(Debug, Clone)]
pub(crate) struct Member {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) activity: Arc<Activity>,
}

impl Catalogs {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            by_table: RwLock::default(),
            backend: OnceLock::new(),
            stamps: Stamps::new(clock),
            replayed: AtomicBool::new(false),
        }
    }

    /// The journal has been replayed: what comes from now on is new.
    pub(crate) fn replayed(&self) {
        self.replayed.store(true, Ordering::SeqCst);
        for catalog in self.all() {
            catalog.replayed();
            if let Err(error) = self.save_removals(&catalog) {
                tracing::warn!(%error, "rows of removed timelines are deleted later");
            }
        }
    }

    /// Deletes the rows of timelines that were removed, as is due before a removal is answered.
    pub(crate) fn save_removals(&self, catalog: &Catalog) -> Result<(), CatalogError> {
        match self.backend.get() {
            Some(backend) => catalog.save_removals(backend.as_ref(), &mut || self.stamps.next()),
            None => Ok(()),
        }
    }

    /// Says where rows go. Once, before anything is saved.
    pub(crate) fn use_backend(&self, backend: Arc<dyn Backend>) {
        let _ = self.backend.set(backend);
    }

    pub(crate) fn get(&self, table: TableId) -> Option<Member> {
        self.by_table.read().get(&table).cloned()
    }

    /// What is kept of a table; `catalog` makes what is not there yet.
    pub(crate) fn get_or_insert(&self, table: TableId, catalog: impl FnOnce() -> Catalog) -> Member {
        if let Some(known) = self.get(table) {
            return known;
        }
        let mut by_table = self.by_table.write();
        let member = by_table.entry(table).or_insert_with(|| Member {
            catalog: Arc::new(catalog()),
            activity: Arc::default(),
        });
        member.clone()
    }

    pub(crate) fn remove(&self, table: TableId) {
        self.by_table.write().remove(&table);
    }

    pub(crate) fn stamps(&self) -> &Stamps {
        &self.stamps
    }

    fn all(&self) -> Vec<Arc<Catalog>> {
        let members = self.by_table.read();
        members
            .values()
            .map(|member| Arc::clone(&member.catalog))
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

    fn announced(&self, table: TableId, timelines: &[NewTimeline]) {
        if let Some(catalog) = self.catalog(table).filter(|_| !timelines.is_empty()) {
            let ordinals: Vec<Ordinal> = timelines.iter().map(|timeline| timeline.ordinal).collect();
            catalog.announced(&ordinals);
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

//! From the raw bytes that name a timeline to its ordinal, for one batch.

use std::sync::Arc;

use tideline_ingest_protocols::series_key;
use tideline_model::{Clock, Identity, Ordinal, SeriesError, SeriesResolver};
use tideline_timeline_catalog::{CatalogReader, LastKey};

use crate::engine::Engine;
use crate::tables::Table;

/// Resolves the timelines of one batch. Known keys are looked up under one shared lock that is held over the
/// whole batch; only an unknown one gives it up for a moment, to be parsed and registered.
#[derive(Debug)]
pub struct BatchResolver<'a> {
    table: &'a Table,
    clock: Arc<dyn Clock>,
    /// New timelines that the table takes in a minute.
    limit: Option<u64>,
    reader: Option<CatalogReader<'a>>,
    last: LastKey,
}

impl Engine {
    /// A resolver for a batch that goes to `table`. Drop it before waiting for anything.
    pub fn resolver<'a>(&self, table: &'a Table) -> BatchResolver<'a> {
        BatchResolver {
            table,
            clock: Arc::clone(&self.clock),
            limit: table.spec().policy.timelines_per_minute,
            reader: None,
            last: LastKey::default(),
        }
    }
}

impl BatchResolver<'_> {
    fn register(&self, identity: &Identity, key: &[u8]) -> Result<Ordinal, SeriesError> {
        let catalog = &self.table.catalog;
        let Some(limit) = self.limit else {
            let registered = catalog.register(identity, Some(key));
            return registered
                .map(|timeline| timeline.ordinal)
                .map_err(|error| SeriesError(error.to_string()));
        };
        let (now, mut refusal) = (self.clock.monotonic(), String::new());
        let growth = &self.table.activity.growth;
        let admit = |novel: &[(&str, &str)]| {
            let admitted = growth.admit(now, limit, self.table.name().as_str(), novel);
            admitted.map_err(|reason| refusal = reason).is_ok()
        };
        match catalog.register_admitted(identity, Some(key), admit) {
            Ok(Some(timeline)) => Ok(timeline.ordinal),
            Ok(None) => Err(SeriesError(refusal)),
            Err(error) => Err(SeriesError(error.to_string())),
        }
    }
}

impl SeriesResolver for BatchResolver<'_> {
    fn resolve(&mut self, key: &[u8]) -> Result<Ordinal, SeriesError> {
        let reader = self.reader.get_or_insert_with(|| self.table.catalog.reader());
        if let Some(known) = reader.by_key(key, &mut self.last) {
            return Ok(known);
        }
        self.reader = None;
        let identity = series_key::parse(key)?;
        self.register(&identity, key)
    }

    fn guess(&mut self, is_it: impl FnOnce(&[u8]) -> bool) -> Option<Ordinal> {
        self.reader.as_ref()?.guess(is_it, &mut self.last)
    }
}

//! From the raw bytes that name a timeline to its ordinal, for one batch.

use std::sync::Arc;

use tideline_ingest_protocols::series_key;
use tideline_model::{Ordinal, SeriesError, SeriesResolver};
use tideline_timeline_catalog::{Catalog, CatalogReader};

use crate::engine::Engine;
use crate::tables::Table;

/// Resolves the timelines of one batch. Known keys are looked up under one shared lock that is held over the
/// whole batch; only an unknown one gives it up for a moment, to be parsed and registered.
#[derive(Debug)]
pub struct BatchResolver<'a> {
    catalog: &'a Arc<Catalog>,
    reader: Option<CatalogReader<'a>>,
}

impl Engine {
    /// A resolver for a batch that goes to `table`. Drop it before waiting for anything.
    pub fn resolver<'a>(&self, table: &'a Table) -> BatchResolver<'a> {
        BatchResolver {
            catalog: &table.catalog,
            reader: None,
        }
    }
}

impl SeriesResolver for BatchResolver<'_> {
    fn resolve(&mut self, key: &[u8]) -> Result<Ordinal, SeriesError> {
        let reader = self.reader.get_or_insert_with(|| self.catalog.reader());
        if let Some(known) = reader.by_key(key) {
            return Ok(known);
        }
        self.reader = None;
        let identity = series_key::parse(key)?;
        let registered = self.catalog.register(&identity, Some(key));
        registered
            .map(|timeline| timeline.ordinal)
            .map_err(|error| SeriesError(error.to_string()))
    }
}

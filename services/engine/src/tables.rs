//! Tables: create, list, alter, drop, and what each holds.

use std::sync::Arc;

use tideline_model::{TableName, TableSpec};
use tideline_timeline_catalog::Catalog;

use crate::engine::Engine;
use crate::error::Result;

/// A table, joined with its catalog. A handle stays valid when the table is dropped; its writes are refused.
#[derive(Debug, Clone)]
pub struct Table {
    pub(crate) points: Arc<tideline_series_store::Table>,
    pub(crate) catalog: Arc<Catalog>,
}

/// What a table holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TableStats {
    /// Visible timelines.
    pub timelines: u64,
    /// Published segments.
    pub segments: u64,
    /// Sealed points; unsealed ones are counted for the whole store.
    pub sealed_points: u64,
    /// Sealed field values.
    pub sealed_values: u64,
    /// Bytes of sealed chunks and their keys.
    pub sealed_bytes: u64,
    /// Oldest and newest sealed instant, nanoseconds since the epoch.
    pub sealed_span: Option<(i64, i64)>,
}

impl Table {
    /// Its name.
    pub fn name(&self) -> &TableName {
        self.points.name()
    }

    /// What a user has set, as of now.
    pub fn spec(&self) -> Arc<TableSpec> {
        self.points.spec()
    }

    /// When it was made, nanoseconds since the epoch.
    pub fn created(&self) -> i64 {
        self.points.created()
    }

    /// The store's side: schema, and what reads of points need.
    pub fn points(&self) -> &Arc<tideline_series_store::Table> {
        &self.points
    }

    /// The indexer's side: its timelines.
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }
}

impl Engine {
    /// A table by name.
    pub fn table(&self, name: &str) -> Result<Table> {
        let points = self.store.table(name)?;
        Ok(self.joined(points))
    }

    /// The table that exists from the first start.
    pub fn default_table(&self) -> Result<Table> {
        self.table(TableName::DEFAULT)
    }

    /// All tables, by name.
    pub fn tables(&self) -> Vec<Table> {
        self.store
            .tables()
            .into_iter()
            .map(|points| self.joined(points))
            .collect()
    }

    /// Makes a table.
    pub fn create_table(&self, name: TableName, spec: TableSpec) -> Result<Table> {
        let table = self.joined(self.store.create_table(name, spec)?);
        self.index.attach(Arc::clone(&table.catalog));
        Ok(table)
    }

    /// Changes a table's settings; source tags are fixed by the first write.
    pub fn alter_table(&self, name: &str, spec: TableSpec) -> Result<Table> {
        let table = self.table(name)?;
        if table.spec().source_tags != spec.source_tags {
            table.catalog.set_source_tags(spec.source_tags.clone())?;
        }
        Ok(self.joined(self.store.alter_table(name, spec)?))
    }

    /// Drops a table with its points, timelines and attributes. Invisible at once; bytes go soon after.
    pub fn drop_table(&self, name: &str) -> Result<()> {
        let id = self.store.drop_table(name)?;
        self.catalogs.remove(id);
        self.index.detach(id);
        let stamps = self.catalogs.stamps();
        Catalog::remove_all(self.store.backend().as_ref(), id, &mut || stamps.next())?;
        Ok(())
    }

    /// What a table holds.
    pub fn table_stats(&self, table: &Table) -> TableStats {
        let snapshot = self.store.snapshot();
        let mut stats = TableStats {
            timelines: table.catalog.len(),
            ..TableStats::default()
        };
        let segments = snapshot.manifest().segments.get(&table.points.id());
        for segment in segments.into_iter().flat_map(|segments| segments.values()) {
            stats.segments += 1;
            stats.sealed_points += segment.points;
            stats.sealed_values += segment.values;
            stats.sealed_bytes += segment.bytes;
            let (first, last) = stats.sealed_span.unwrap_or((segment.first, segment.last));
            stats.sealed_span = Some((first.min(segment.first), last.max(segment.last)));
        }
        stats
    }

    fn joined(&self, points: Arc<tideline_series_store::Table>) -> Table {
        let catalog = self.catalog_or_new(&points);
        Table { points, catalog }
    }
}

//! Rules of the wide tables, compiled from the manifest: versions to keep, and secondary indexes.
//!
//! The rules of a table are compiled again only after its settings have changed. The rules of the entries of an index
//! are stored under the id of the index, so that buffers and parts handle entries like the rows of a table.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tideline_log::Manifest;
use tideline_model::{RowTtl, TableId, TableModel, WideSpec};

use crate::error::{Result, WideError};
use crate::index::Index;

/// Rules of a wide table, or of the entries of an index.
#[derive(Debug)]
pub(crate) struct TableRules {
    /// Maximum number of versions that are kept per column.
    pub(crate) versions_max: usize,
    /// Time after which data expires; `None` = never.
    pub(crate) ttl: Option<RowTtl>,
    /// Secondary indexes of the table, in the order of their ids.
    pub(crate) indexes: Vec<Arc<Index>>,
    /// Ids of the search indexes of the table.
    pub(crate) searches: Vec<TableId>,
    /// Reason why the indexes of the table cannot be compiled; `None` unless the settings are damaged.
    damage: Option<String>,
    spec: Option<Box<WideSpec>>,
}

impl TableRules {
    fn new(spec: Option<&WideSpec>) -> Self {
        let indexes = spec.map_or(Ok(Vec::new()), Index::all_of);
        let (indexes, damage) = match indexes {
            Ok(indexes) => (indexes, None),
            Err(reason) => (Vec::new(), Some(reason)),
        };
        Self {
            versions_max: spec.map_or(1, |spec| spec.max_versions.max(1) as usize),
            ttl: spec.and_then(|spec| spec.ttl),
            indexes,
            searches: spec.map_or(Vec::new(), |spec| {
                spec.search_indexes
                    .iter()
                    .map(|index| TableId(index.id))
                    .collect()
            }),
            damage,
            spec: spec.map(|spec| Box::new(spec.clone())),
        }
    }

    /// Returns the rules of the entries of an index.
    fn of_index(ttl: Option<RowTtl>) -> Self {
        Self {
            ttl,
            ..Self::new(None)
        }
    }

    /// Returns an error if the indexes cannot be maintained; writes to the table are then refused.
    ///
    /// # Errors
    ///
    /// [`WideError::Settings`] if the settings of the indexes are damaged.
    pub(crate) fn check(&self, table: TableId) -> Result<()> {
        match self.damage.clone() {
            Some(reason) => Err(WideError::Settings { table, reason }),
            None => Ok(()),
        }
    }

    /// Returns the ids of the indexes, ascending.
    pub(crate) fn index_ids(&self) -> impl Iterator<Item = TableId> {
        self.indexes.iter().map(|index| index.id)
    }

    /// Returns an index by its id.
    pub(crate) fn index(&self, id: TableId) -> Option<&Arc<Index>> {
        self.indexes.iter().find(|index| index.id == id)
    }
}

/// Rules of all wide tables and indexes of one version of the manifest.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    rules: BTreeMap<TableId, Arc<TableRules>>,
}

impl Tables {
    /// Compiles the rules of a manifest. Takes the rules of unchanged tables from `before`.
    pub(crate) fn new(manifest: &Manifest, before: &Self) -> Self {
        let mut tables = Self::default();
        let wide = manifest.tables.values();
        for row in wide.filter(|row| row.spec.model == TableModel::Wide) {
            let spec = row.spec.wide.as_ref();
            let known = before
                .rules
                .get(&row.id)
                .filter(|rules| rules.spec.as_ref() == spec);
            let rules = match known {
                Some(known) => Arc::clone(known),
                None => Arc::new(TableRules::new(spec.map(AsRef::as_ref))),
            };
            for index in rules.index_ids() {
                let known = before.rules.get(&index).filter(|known| known.ttl == rules.ttl);
                let of_entries = match known {
                    Some(known) => Arc::clone(known),
                    None => Arc::new(TableRules::of_index(rules.ttl)),
                };
                tables.rules.insert(index, of_entries);
            }
            tables.rules.insert(row.id, rules);
        }
        tables
    }

    /// Returns the rules of a table or index; `None` if it does not exist.
    pub(crate) fn get(&self, id: TableId) -> Option<&Arc<TableRules>> {
        self.rules.get(&id)
    }

    /// Returns true if the table or index exists.
    pub(crate) fn contains(&self, id: TableId) -> bool {
        self.rules.contains_key(&id)
    }
}

/// Cached rules of the newest manifest.
#[derive(Debug, Default)]
pub(crate) struct TablesCache(Mutex<Option<(Arc<Manifest>, Arc<Tables>)>>);

impl TablesCache {
    /// Returns the rules of the current manifest. Compiles them only if the manifest has changed.
    pub(crate) fn of(&self, manifest: &Arc<Manifest>) -> Arc<Tables> {
        let mut cached = self.0.lock();
        if let Some((known, tables)) = &*cached
            && Arc::ptr_eq(known, manifest)
        {
            return Arc::clone(tables);
        }
        let before = cached.take().map_or_else(Arc::default, |(_, tables)| tables);
        let tables = Arc::new(Tables::new(manifest, &before));
        *cached = Some((Arc::clone(manifest), Arc::clone(&tables)));
        tables
    }
}

/// Returns the rules of a table.
///
/// # Errors
///
/// [`WideError::NoTable`] if the table or index does not exist.
pub(crate) fn rules_of(tables: &Tables, id: TableId) -> Result<Arc<TableRules>> {
    tables.get(id).cloned().ok_or(WideError::NoTable(id))
}

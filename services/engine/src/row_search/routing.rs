//! Assignment of rows to the shards of a search index, by the values of columns of their keys.
//!
//! The key of a row never changes, so its document never moves to another shard.

use std::sync::Arc;

use tideline_key_codec::layout::{KeyLayout, shard_of};
use tideline_key_codec::tuple::KeyValue;
use tideline_model::SearchIndexSpec;
use tideline_search_index::rows::Sharding;

use crate::wide_table::WideTable;

/// Division of the rows over the shards of an index that has at least two.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Routing {
    shards: u16,
    columns: Vec<usize>,
}

impl Routing {
    /// Compiles the settings of an index; `None` if it has one shard.
    pub(super) fn new(layout: &KeyLayout, index: &SearchIndexSpec) -> Option<Self> {
        let columns = index.routing.iter().map(|name| layout.logical_number(name).ok());
        let columns: Option<Vec<usize>> = columns.collect();
        columns.filter(|_| index.shards > 1).map(|columns| Self {
            shards: index.shards,
            columns,
        })
    }

    /// Returns the number of shards.
    pub fn shards(&self) -> usize {
        self.shards.into()
    }

    /// Returns the numbers of the logical key columns whose values determine the shard.
    pub fn columns(&self) -> &[usize] {
        &self.columns
    }

    /// Returns the shard of the rows with these values, in the order of [`columns`](Self::columns).
    pub fn shard_of<'v>(&self, values: impl Iterator<Item = &'v KeyValue<'v>>) -> usize {
        shard_of(values, self.shards)
    }

    /// Returns the division of the stored keys of a table.
    pub(super) fn sharding(&self, table: Arc<WideTable>) -> Sharding {
        let routing = self.clone();
        Sharding::new(self.shards(), move |key| {
            // The indexer refuses a row with a damaged key, so the shard of such a key is not used.
            let values = table.layout().decode(key).unwrap_or_default();
            routing.shard_of(routing.columns.iter().filter_map(|number| values.get(*number)))
        })
    }
}

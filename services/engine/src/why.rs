//! Diagnosis of one key of a wide table: the data stored for it, and the reason why reads do not return it.

use tideline_wide_table::StoredRow;
pub use tideline_wide_table::why::{
    ChangeTrace, EntryTrace, Hidden, HidingRule, IndexTrace, KeyTrace, LayerLocation, LayerTrace, PartTrace,
    PartVisibility, VersionTrace,
};

use crate::engine::Engine;
use crate::error::Result;
use crate::wide_table::WideTable;

impl Engine {
    /// Returns all data that is stored for a key.
    ///
    /// # Errors
    ///
    /// Returns a store error if the table was dropped or stored data cannot be read.
    pub fn trace_row(&self, table: &WideTable, key: &[u8]) -> Result<KeyTrace> {
        Ok(self.rows.trace(table.table().points().id(), key)?)
    }

    /// Returns the entries of a row in the secondary indexes of its table. `row` is the visible row; `None` if reads do
    /// not return it.
    ///
    /// # Errors
    ///
    /// The errors of [`trace_row`](Self::trace_row).
    pub fn trace_indexes(
        &self,
        table: &WideTable,
        key: &[u8],
        row: Option<&StoredRow>,
    ) -> Result<Vec<IndexTrace>> {
        let id = table.table().points().id();
        let damaged = |reason| tideline_wide_table::WideError::Damaged { table: id, reason };
        let row = row.map(StoredRow::columns).transpose().map_err(damaged)?;
        Ok(self.rows.trace_indexes(id, key, row.as_ref())?)
    }
}

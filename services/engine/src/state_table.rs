//! State of services as rows of a table of the server.
//!
//! A state row stores a text under the key (owner, name, part). Requests cannot read the table, because it holds
//! secrets.

use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use tideline_backend::Direction;
use tideline_key_codec::tuple::KeyValue;
use tideline_model::{ColumnType, SequenceNumber};
use tideline_series_store::StoreError;
use tideline_wide_table::{CellValue, StoredRow};

use crate::engine::Engine;
use crate::error::{EngineError, Result};
use crate::rows::RowPath;
use crate::system_table::{SYSTEM_ROWS_MAX, SystemRow};
use crate::wide_table::WideTable;

/// Name of the table.
pub const STATE_TABLE: &str = "tideline-state";
const KEY: [(&str, ColumnType); 3] = [
    ("owner", ColumnType::String),
    ("name", ColumnType::String),
    ("part", ColumnType::String),
];
/// Column with the text.
const VALUE: &str = "value";
/// Maximum number of rows of one change.
pub const STATE_ROWS_MAX: usize = SYSTEM_ROWS_MAX;

/// Row of the state of an owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateRow {
    /// First part of the name.
    pub name: String,
    /// Second part of the name; may be empty.
    pub part: String,
    /// The text; `None` deletes the row.
    pub value: Option<String>,
}

impl Engine {
    /// Returns all state rows of an owner, by name and part.
    ///
    /// # Errors
    ///
    /// [`EngineError::Rows`] if a row cannot be read, and the errors of the store.
    pub fn state_rows(&self, owner: &str) -> Result<Vec<StateRow>> {
        let mut rows = Vec::new();
        self.visit_state(owner, &mut |table, row| {
            let key = table.layout().decode(&row.key).map_err(|error| damaged(&error))?;
            let columns = row.columns().map_err(|error| damaged(&error))?;
            let value = columns
                .column(&table.column(VALUE).0)
                .and_then(|column| column.newest());
            if let ([_, KeyValue::String(name), KeyValue::String(part)], Some(CellValue::String(text))) =
                (key.as_slice(), value.map(|version| &version.value))
            {
                rows.push(StateRow {
                    name: name.to_string(),
                    part: part.to_string(),
                    value: Some(text.to_string()),
                });
            }
            Ok(())
        })?;
        Ok(rows)
    }

    /// Returns the number of state rows of an owner.
    ///
    /// # Errors
    ///
    /// [`EngineError::Rows`] if a row cannot be read, and the errors of the store.
    pub fn state_count(&self, owner: &str) -> Result<usize> {
        let mut count = 0;
        self.visit_state(owner, &mut |_, _| {
            count += 1;
            Ok(())
        })?;
        Ok(count)
    }

    fn visit_state(
        &self,
        owner: &str,
        visit: &mut dyn FnMut(&WideTable, &StoredRow) -> Result<()>,
    ) -> Result<()> {
        let Some(table) = self.system_table(STATE_TABLE)? else {
            return Ok(());
        };
        let prefix = [KeyValue::String(owner.into())];
        let ranges = table
            .layout()
            .ranges(&prefix, (Bound::Unbounded, Bound::Unbounded));
        let ranges = ranges.map_err(|error| damaged(&error))?;
        // The rows concern all tables, so a tenant whose request reads them is not charged for them.
        let server = self.as_server();
        let mut scan = server.scan_rows(
            Arc::clone(&table),
            RowPath::Primary,
            ranges,
            Direction::Ascending,
            None,
            STATE_ROWS_MAX,
        );
        while let Some(found) = scan.next_row()? {
            visit(&table, &found.row)?;
        }
        Ok(())
    }

    /// Writes and deletes state rows of an owner, all or none. They are on stable storage on return. Returns the
    /// sequence of their journal entry; `None` without rows.
    ///
    /// # Errors
    ///
    /// [`EngineError::OverLimit`] for more than [`STATE_ROWS_MAX`] rows or a text that is too large,
    /// [`EngineError::Invalid`] if a table of the user has the name of the state table, and the errors of
    /// [`write_rows`](Self::write_rows).
    pub fn put_state(&self, owner: &str, rows: &[StateRow]) -> Result<Option<SequenceNumber>> {
        let table = self.system_table_or_new(STATE_TABLE, &KEY, &[(VALUE, ColumnType::String)], None)?;
        let row = |row: &StateRow| SystemRow {
            key: [owner, &row.name, &row.part]
                .map(|text| KeyValue::String(text.to_owned().into()))
                .to_vec(),
            columns: row
                .value
                .clone()
                .map(|text| vec![(VALUE, CellValue::String(text.into()))]),
        };
        self.write_system_rows(&table, rows.iter().map(row))
    }
}

fn damaged(reason: &dyn fmt::Display) -> EngineError {
    EngineError::Store(StoreError::StoredRow {
        what: "state row",
        reason: reason.to_string(),
    })
}

//! Tables of the server: wide tables that it creates itself. No request writes their rows or drops them.
//!
//! Their rows are written through the journal like all rows, so they are as durable as other rows and need no separate
//! file. A table is created with its first rows. Requests read only the [audit table](crate::audit_table), with a token
//! of the role `admin`.

use std::sync::Arc;

use tideline_access::{Access, Action as AccessAction};
use tideline_key_codec::tuple::KeyValue;
use tideline_model::{
    ColumnCompression, ColumnSpec, ColumnType, Durability, KeyColumnSpec, KeyOrder, KeySource, RowTtl,
    SequenceNumber, TableModel, TableName, TableSpec, TtlScope, WideSpec,
};
use tideline_series_store::StoreError;
use tideline_wide_table::{CellValue, Column};

use crate::audit_table::AUDIT_TABLE;
use crate::engine::Engine;
use crate::error::{EngineError, Result};
use crate::rows::{
    Action, COLUMN_BYTES_MAX, Image, ROW_BYTES_MAX, Refused, RowOutcome, RowWrite, RowWriteOptions,
    WRITE_BYTES_MAX,
};
use crate::state_table::STATE_TABLE;
use crate::tables::Table;
use crate::wide_table::WideTable;

/// Names and types of columns.
pub(crate) type Columns<'c> = &'c [(&'c str, ColumnType)];

/// Maximum number of rows of one write.
pub(crate) const SYSTEM_ROWS_MAX: usize = 1_000;

/// Row to be written to a table of the server.
pub(crate) struct SystemRow {
    pub(crate) key: Vec<KeyValue<'static>>,
    /// Columns by name; `None` deletes the row.
    pub(crate) columns: Option<Vec<(&'static str, CellValue<'static>)>>,
}

/// Returns true if users cannot create a table of this name.
pub(crate) fn is_reserved(name: &str) -> bool {
    [STATE_TABLE, AUDIT_TABLE].contains(&name)
}

/// Refuses a table of the server.
pub(crate) fn check_not_system(table: &Table) -> Result<()> {
    match table.spec().is_system {
        true => Err(EngineError::SystemTable(table.name().clone())),
        false => Ok(()),
    }
}

impl Engine {
    /// Refuses a table of the server, except the audit table for a read by an admin.
    pub(crate) fn check_rows_reachable(&self, table: &Table) -> Result<()> {
        let is_admin = |access: &Access| {
            access.action() == AccessAction::Read && access.with_action(AccessAction::Administer).is_ok()
        };
        match table.name().as_str() == AUDIT_TABLE && self.access.as_ref().is_some_and(is_admin) {
            true => Ok(()),
            false => check_not_system(table),
        }
    }

    /// Refuses the description of a table of the server, except to an admin.
    ///
    /// # Errors
    ///
    /// Returns [`EngineError::SystemTable`] for such a table.
    pub fn check_describable(&self, table: &Table) -> Result<()> {
        let is_admin = |access: &Access| access.with_action(AccessAction::Administer).is_ok();
        match self.access.as_ref().is_none_or(is_admin) {
            true => Ok(()),
            false => check_not_system(table),
        }
    }

    /// Returns a table of the server; `None` before its first row, or if a table of a user has the name.
    ///
    /// # Errors
    ///
    /// The errors of the store, for example if this process does not own the data now.
    pub(crate) fn system_table(&self, name: &str) -> Result<Option<Arc<WideTable>>> {
        match self.store.table(name) {
            Ok(points) if points.spec().is_system => Ok(Some(self.compiled(self.joined(points))?)),
            Ok(_) | Err(StoreError::NoSuchTable(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns a table of the server, and creates it if it does not exist.
    ///
    /// # Errors
    ///
    /// [`EngineError::Invalid`] if a table of the user has the name, and the errors of the store.
    pub(crate) fn system_table_or_new(
        &self,
        name: &str,
        key: Columns<'_>,
        columns: Columns<'_>,
        ttl: Option<RowTtl>,
    ) -> Result<Arc<WideTable>> {
        if let Some(table) = self.system_table(name)? {
            return Ok(table);
        }
        let spec = TableSpec {
            model: TableModel::Wide,
            wide: Some(Box::new(spec(key, columns, ttl))),
            is_system: true,
            ..TableSpec::default()
        };
        let invalid = |error| EngineError::Invalid(format!("the name {name}: {error}"));
        let created = self.create_unchecked(TableName::new(name).map_err(invalid)?, spec);
        match (created, self.system_table(name)?) {
            (Ok(table), _) => self.compiled(table),
            // Another thread has created it.
            (Err(_), Some(table)) => Ok(table),
            (Err(_), None) if self.store.table(name).is_ok() => Err(EngineError::Invalid(format!(
                "the server needs the name {name} for a table of its own, and a table of the user has it; copy that \
                 table to another one and drop it"
            ))),
            (Err(error), None) => Err(error),
        }
    }

    /// Writes and deletes rows of a table of the server, all or none. They are on stable storage on return. Returns the
    /// sequence of their journal entry; `None` without rows.
    ///
    /// # Errors
    ///
    /// [`EngineError::OverLimit`] for more than [`SYSTEM_ROWS_MAX`] rows, or for a row or column that is too large, and
    /// the errors of [`write_rows`](Self::write_rows).
    pub(crate) fn write_system_rows(
        &self,
        table: &Arc<WideTable>,
        rows: impl ExactSizeIterator<Item = SystemRow>,
    ) -> Result<Option<SequenceNumber>> {
        if rows.len() > SYSTEM_ROWS_MAX {
            return Err(EngineError::OverLimit {
                what: "number of rows of the server",
                limit: SYSTEM_ROWS_MAX as u64,
                actual: rows.len() as u64,
            });
        }
        let keyed = rows.map(|row| Ok((table.encode_key(&row.key)?, row.columns)));
        let keyed: Vec<_> = keyed.collect::<Result<_>>()?;
        let make = |next_time: &mut dyn FnMut() -> i64| {
            let mut writes = Vec::with_capacity(keyed.len());
            for ((key, partition), columns) in &keyed {
                let time = next_time();
                let cell = |(name, value): &(&str, CellValue<'static>)| {
                    Column::with(table.column(name).0.into_owned(), time, value.clone())
                };
                writes.push(RowWrite {
                    key: key.clone(),
                    partition: *partition,
                    time,
                    action: match columns {
                        Some(columns) => Action::Put(columns.iter().map(cell).collect()),
                        None => Action::Delete,
                    },
                    condition: None,
                    image: Image::None,
                });
            }
            Ok(writes)
        };
        let options = RowWriteOptions {
            durability: Some(Durability::Synced),
            is_whole: true,
            ..RowWriteOptions::default()
        };
        // Rows of the server are charged to no tenant, even if they are written for a request of a tenant.
        let server = self.as_server();
        let (_, written) = server.write_rows(table, &make, &options)?;
        // A row that cannot be written prevents the other rows from being applied, so it is the reason to report.
        let is_reason =
            |outcome: &&RowOutcome| !matches!(outcome, RowOutcome::Written(_) | RowOutcome::NotApplied);
        match written.rows.iter().find(is_reason) {
            Some(outcome) => Err(not_written(outcome)),
            None => Ok(written.sequence),
        }
    }
}

/// Returns the error for a row that was not written.
fn not_written(outcome: &RowOutcome) -> EngineError {
    let over = |what, limit: usize, actual: usize| EngineError::OverLimit {
        what,
        limit: limit as u64,
        actual: actual as u64,
    };
    match outcome {
        RowOutcome::Refused(Refused::TooLarge(bytes)) => {
            over("size of a row of the server", ROW_BYTES_MAX, *bytes)
        }
        RowOutcome::Refused(Refused::WriteTooLarge(bytes)) => {
            over("size of a row of the server", WRITE_BYTES_MAX, *bytes)
        }
        RowOutcome::Refused(Refused::ColumnTooLarge(_, bytes)) => {
            over("size of a value of the server", COLUMN_BYTES_MAX, *bytes)
        }
        // The rows have no condition, and their tables no indexes and parts, so only their size can prevent a write.
        _ => EngineError::Invalid("a row of the server was refused; report this as a bug".to_owned()),
    }
}

fn spec(key: Columns<'_>, columns: Columns<'_>, ttl: Option<RowTtl>) -> WideSpec {
    let key_column = |(name, of): &(&str, ColumnType)| KeyColumnSpec {
        name: (*name).to_owned(),
        source: KeySource::Type(*of),
        order: KeyOrder::Ascending,
    };
    let column = |(number, (name, of)): (u32, &(&str, ColumnType))| ColumnSpec {
        name: (*name).to_owned(),
        column_type: *of,
        number,
        compression: ColumnCompression::Auto,
    };
    WideSpec {
        key: key.iter().map(key_column).collect(),
        columns: (0..).zip(columns).map(column).collect(),
        next_column: u32::try_from(columns.len()).unwrap_or(u32::MAX),
        max_versions: 1,
        version_guard: None,
        // A key that begins with a time does not spread writes evenly. The server writes too few rows for that to
        // matter.
        allow_rising_key: key.iter().any(|(_, of)| *of == ColumnType::Timestamp),
        indexes: Vec::new(),
        ttl,
        parts: None,
        search_indexes: Vec::new(),
        large_values: None,
        groups: Vec::new(),
        cut_values: false,
        codecs: false,
        ttl_of: TtlScope::default(),
        limits: Vec::new(),
    }
}

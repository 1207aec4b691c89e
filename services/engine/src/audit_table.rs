//! Audit table: rows with the originator of each change, and with the number of refused requests.
//!
//! The rows are ordered by time, and expire after a separate retention time.

use std::sync::Arc;

use tideline_key_codec::tuple::KeyValue;
use tideline_model::time::NANOS_PER_SECOND;
use tideline_model::{
    ColumnCompression, ColumnSpec, ColumnType, RowTtl, TableSpec, Timestamp, TtlScope, WideSpec,
};
use tideline_wide_table::CellValue;

use crate::engine::Engine;
use crate::error::{EngineError, Result};
use crate::system_table::SystemRow;
use crate::wide_table::WideTable;

/// Name of the table.
pub const AUDIT_TABLE: &str = "tideline-audit";
/// Retention time until an admin sets another one, in nanoseconds.
pub const RETENTION_DEFAULT: i64 = 365 * DAY;
/// Shortest retention time, in nanoseconds: the records of a change stay for at least a day.
pub const RETENTION_MIN: i64 = DAY;

const DAY: i64 = 86_400 * NANOS_PER_SECOND;
/// Key: the time, and a number, because records can have the same time.
const KEY: [(&str, ColumnType); 2] = [("time", ColumnType::Timestamp), ("number", ColumnType::I64)];
/// Columns. A new column is also added to the tables of earlier releases.
const COLUMNS: [(&str, ColumnType); 12] = [
    ("kind", ColumnType::String),
    ("principal", ColumnType::String),
    ("tenant", ColumnType::String),
    ("client", ColumnType::String),
    ("proxy", ColumnType::String),
    ("method", ColumnType::String),
    ("path", ColumnType::String),
    ("status", ColumnType::I64),
    ("code", ColumnType::String),
    ("count", ColumnType::I64),
    ("request_id", ColumnType::String),
    ("detail", ColumnType::String),
];

/// Record of a change, or of equal refusals.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRecord {
    /// Time of the change, or of the first refusal.
    pub at: Timestamp,
    /// Number that distinguishes records of the same time. A record that is written again keeps its
    /// number.
    pub number: i64,
    /// Kind of the record.
    pub kind: AuditKind,
    /// Principal of the requests; `None` if it was not known.
    pub principal: Option<String>,
    /// Tenant for which the requests acted.
    pub tenant: Option<String>,
    /// Address of the client, or the user of a local process.
    pub client: Option<String>,
    /// Proxy that has named the client.
    pub proxy: Option<String>,
    /// HTTP method.
    pub method: String,
    /// Path of a change, or route of refusals.
    pub path: String,
    /// HTTP status; `None` if the client left before the response, so that the outcome is not known.
    pub status: Option<u16>,
    /// Error code of the response.
    pub code: Option<String>,
    /// Number of requests.
    pub count: u64,
    /// Id of the request of a change.
    pub request_id: Option<String>,
    /// Description of the change, without secrets.
    pub detail: Option<String>,
}

/// Kind of an audit record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AuditKind {
    /// A request that changed something, or that failed while it changed something.
    Change,
    /// Requests that were refused.
    Refusal,
}

impl AuditKind {
    /// Returns the name in the rows.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Change => "change",
            Self::Refusal => "refusal",
        }
    }
}

impl AuditRecord {
    /// Returns the record of one change with these values; all other values are unknown.
    pub fn of_change(at: Timestamp, method: &str, path: String) -> Self {
        Self {
            at,
            number: 0,
            kind: AuditKind::Change,
            principal: None,
            tenant: None,
            client: None,
            proxy: None,
            method: method.to_owned(),
            path,
            status: None,
            code: None,
            count: 1,
            request_id: None,
            detail: None,
        }
    }

    /// Returns the columns that have a value.
    fn columns(&self) -> Vec<(&'static str, CellValue<'static>)> {
        let text = |value: &Option<String>| value.clone().map(|text| CellValue::String(text.into()));
        let integer = |value: u64| CellValue::I64(i64::try_from(value).unwrap_or(i64::MAX));
        let values = [
            Some(CellValue::String(self.kind.name().into())),
            text(&self.principal),
            text(&self.tenant),
            text(&self.client),
            text(&self.proxy),
            Some(CellValue::String(self.method.clone().into())),
            Some(CellValue::String(self.path.clone().into())),
            self.status.map(|status| integer(status.into())),
            text(&self.code),
            Some(integer(self.count)),
            text(&self.request_id),
            text(&self.detail),
        ];
        let columns = COLUMNS.iter().zip(values);
        columns
            .filter_map(|((name, _), value)| Some((*name, value?)))
            .collect()
    }
}

/// Returns the expiry of records after a retention time in nanoseconds.
fn ttl(after: i64) -> RowTtl {
    RowTtl {
        after,
        of: TtlScope::Row,
    }
}

impl Engine {
    /// Writes audit records. They are on stable storage on return.
    ///
    /// # Errors
    ///
    /// [`EngineError::OverLimit`] for more than 1,000 records or a record that is too large,
    /// [`EngineError::Invalid`] if a table of the user has the name of the audit table, and the errors of
    /// [`write_rows`](Self::write_rows).
    pub fn put_audit(&self, records: &[AuditRecord]) -> Result<()> {
        let table = self.audit_table(RETENTION_DEFAULT)?;
        let row = |record: &AuditRecord| SystemRow {
            key: vec![KeyValue::Timestamp(record.at), KeyValue::Signed(record.number)],
            columns: Some(record.columns()),
        };
        self.write_system_rows(&table, records.iter().map(row))?;
        Ok(())
    }

    /// Returns the retention time of audit records, in nanoseconds.
    ///
    /// # Errors
    ///
    /// Returns a store error if the table cannot be read.
    pub fn audit_retention(&self) -> Result<i64> {
        let table = self.system_table(AUDIT_TABLE)?;
        let ttl = table.and_then(|table| table.settings().ttl);
        Ok(ttl.map_or(RETENTION_DEFAULT, |ttl| ttl.after))
    }

    /// Sets the retention time of audit records, in nanoseconds.
    ///
    /// # Errors
    ///
    /// [`EngineError::Invalid`] for less than [`RETENTION_MIN`], and the errors of
    /// [`alter_table`](Self::alter_table).
    pub fn set_audit_retention(&self, nanos: i64) -> Result<()> {
        if nanos < RETENTION_MIN {
            return Err(EngineError::Invalid(
                "the retention of audit records is at least 1d".into(),
            ));
        }
        let ttl = ttl(nanos);
        let table = self.audit_table(nanos)?;
        let _settings = self.lock_settings();
        let mut spec = TableSpec::clone(&table.table().spec());
        if let Some(wide) = spec.wide.as_deref_mut() {
            wide.ttl = Some(ttl);
        }
        self.alter_known(table.table(), spec)?;
        Ok(())
    }

    /// Returns the audit table. Creates it with this retention time if it does not exist, and adds the columns that the
    /// table of an earlier release lacks.
    fn audit_table(&self, retention: i64) -> Result<Arc<WideTable>> {
        let find = || self.system_table_or_new(AUDIT_TABLE, &KEY, &COLUMNS, Some(ttl(retention)));
        let table = find()?;
        if missing_columns(table.settings()).next().is_none() {
            return Ok(table);
        }
        let _settings = self.lock_settings();
        let table = find()?;
        self.change_wide(&table, |wide| {
            let missing: Vec<ColumnSpec> = missing_columns(wide).collect();
            wide.columns.extend(missing);
        })?;
        find()
    }
}

/// Returns the columns of [`COLUMNS`] that a table does not declare.
fn missing_columns(wide: &WideSpec) -> impl Iterator<Item = ColumnSpec> {
    let is_missing = move |name: &str| wide.columns.iter().all(|column| column.name != name);
    let missing = COLUMNS.iter().filter(move |(name, _)| is_missing(name));
    missing.map(|(name, column_type)| ColumnSpec {
        name: (*name).to_owned(),
        column_type: *column_type,
        // Columns that are declared later have no number.
        number: 0,
        compression: ColumnCompression::Auto,
    })
}

//! Secondary indexes of wide tables: definition, state and use.
//!
//! A definition names columns of the table. The server adds their types, and appends the missing columns of the primary
//! key.

use serde::{Deserialize, Serialize};
use tideline_model::wide::{IndexCover, IndexScope, IndexState};
use tideline_model::{ColumnType, IndexSpec};
use utoipa::ToSchema;

use crate::tier::RowTiers;
use crate::wide::KeyColumn;

/// Definition of a secondary index.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "name": "by_total",
    "key": [{"name": "total", "order": "desc"}],
    "covers": ["color"]
}))]
pub struct CreateIndex {
    /// Name, unique within the table; 1 to 255 bytes.
    pub name: String,
    /// Columns by which the entries are sorted, 1 to 8: declared columns of the rows and columns of the primary key, in
    /// the form of the key columns of a table. `type` can be omitted. The server appends the other columns of the
    /// primary key.
    pub key: Vec<KeyColumn>,
    /// Columns that the entries hold in addition to their key: a list of names, or `"all"`. A read that needs only
    /// these columns, the key of the index and the primary key does not read the rows. Default: none.
    #[serde(default, skip_serializing_if = "IndexColumns::is_empty")]
    pub covers: IndexColumns,
    /// Scope of the order. Default `global`.
    #[serde(default)]
    pub scope: Scope,
    /// Tiers of the parts whose rows have entries; only for tables that are divided into parts. Default `all`.
    #[serde(default, skip_serializing_if = "RowTiers::is_all")]
    pub tier: RowTiers,
    /// True to accept a first column that rises with time, although all new entries then go to the end of the order.
    /// Default false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_rising_key: bool,
}

/// Columns that the entries of an index hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged, expecting = "expected a list of column names, or \"all\"")]
pub enum IndexColumns {
    /// The named columns, at most 1,000.
    Named(Vec<String>),
    /// All columns: `"all"`.
    All(AllColumns),
}

/// All columns of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum AllColumns {
    /// All columns.
    All,
}

impl Default for IndexColumns {
    fn default() -> Self {
        Self::Named(Vec::new())
    }
}

impl IndexColumns {
    fn is_empty(&self) -> bool {
        matches!(self, Self::Named(names) if names.is_empty())
    }
}

/// Scope of the order of an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// One order of all rows of the table.
    #[default]
    Global,
    /// One order of the rows per partition. The columns of the partition come first in the key of the index.
    Local,
}

/// State of an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum IndexStatus {
    /// The job `build_index` adds the entries of the rows that existed before the index. Until it ends, reads of
    /// the index are refused with status 503.
    Building,
    /// The build is complete, and the index can be read.
    Ready,
}

/// Secondary index of a table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "name": "by_total",
    "key": [{"name": "total", "type": "decimal", "order": "desc"}],
    "covers": ["color"],
    "scope": "global",
    "tier": "all",
    "status": "ready",
    "scans": 42,
    "entries_read": 1300,
    "entries_written": 10500
}))]
pub struct IndexView {
    /// Name.
    pub name: String,
    /// Columns by which the entries are sorted. The other columns of the primary key follow.
    pub key: Vec<KeyColumn>,
    /// Columns that the entries hold in addition to their key.
    pub covers: IndexColumns,
    /// Scope of the order.
    pub scope: Scope,
    /// Tiers of the parts whose rows have entries.
    pub tier: RowTiers,
    /// State.
    pub status: IndexStatus,
    /// Number of scans of the index since the start of the server.
    pub scans: u64,
    /// Number of entries that scans have read since the start of the server.
    pub entries_read: u64,
    /// Number of entries that writes and builds have written or removed since the start of the server.
    pub entries_written: u64,
}

/// Secondary indexes of a table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct IndexList {
    /// The indexes, in the order of their creation.
    pub indexes: Vec<IndexView>,
    /// Id of the request.
    #[schema(example = "01jd3k5w8v-000002a1")]
    pub request_id: String,
}

/// Response with one secondary index.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct IndexDetail {
    /// The index.
    #[serde(flatten)]
    pub index: IndexView,
    /// Id of the request.
    #[schema(example = "01jd3k5w8v-000002a1")]
    pub request_id: String,
}

impl CreateIndex {
    /// Converts the definition to an [`IndexSpec`]. `type_of` returns the type of a column of the table.
    ///
    /// # Errors
    ///
    /// Returns a message if a column has more than one of `type` and the modifiers, or if it has none of them and is
    /// not a column of the table.
    pub fn into_spec(self, type_of: impl Fn(&str) -> Option<ColumnType>) -> Result<IndexSpec, String> {
        let mut key = Vec::with_capacity(self.key.len());
        for mut column in self.key {
            if column.has_no_form() {
                column.column_type = Some(type_of(&column.name).ok_or_else(|| {
                    format!(
                        "column {:?} is neither declared by its name nor part of the key; declare it with its type first (a \
                         pattern that matches the name is not sufficient)",
                        column.name
                    )
                })?);
            }
            key.push(column.into_spec()?);
        }
        Ok(IndexSpec {
            id: 0,
            name: self.name,
            key,
            covers: match self.covers {
                IndexColumns::Named(names) => IndexCover::Columns(names),
                IndexColumns::All(AllColumns::All) => IndexCover::All,
            },
            scope: match self.scope {
                Scope::Global => IndexScope::Global,
                Scope::Local => IndexScope::Local,
            },
            allow_rising_key: self.allow_rising_key,
            tier: self.tier.into(),
            state: IndexState::Ready,
        })
    }
}

impl IndexView {
    /// Creates the view of an index, with usage counters of 0.
    pub fn new(spec: &IndexSpec) -> Self {
        Self {
            name: spec.name.clone(),
            key: spec.key.iter().map(KeyColumn::from).collect(),
            covers: match &spec.covers {
                IndexCover::All => IndexColumns::All(AllColumns::All),
                IndexCover::Columns(names) => IndexColumns::Named(names.clone()),
            },
            scope: match spec.scope {
                IndexScope::Global => Scope::Global,
                IndexScope::Local => Scope::Local,
            },
            tier: spec.tier.into(),
            status: match spec.state {
                IndexState::Building { .. } => IndexStatus::Building,
                IndexState::Ready => IndexStatus::Ready,
            },
            scans: 0,
            entries_read: 0,
            entries_written: 0,
        }
    }
}

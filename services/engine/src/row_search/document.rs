//! Row of a table as input of its document in a search index.
//!
//! The origins of the indexed columns are resolved once per index, and rows are decoded without copies.

use std::sync::Arc;

use tideline_condition::ValueRef;
use tideline_key_codec::tuple::KeyValue;
use tideline_model::{ColumnType, PartPeriod, SearchColumnSpec, SearchForm, TableId};
use tideline_search_index::rows::{RowDocument, RowTraits};
use tideline_wide_table::{CellValue, ColumnName, Damage, Mutation, StoredRow};

use crate::row_values::each_compared;
use crate::wide_table::WideTable;

/// Origins of the values of the indexed columns.
#[derive(Debug)]
pub(super) struct Sources {
    table: Arc<WideTable>,
    columns: Vec<Source>,
    /// Number of the logical key column that decides the part of a row, and the length of the parts; `None` if the
    /// table is not divided into parts.
    parts: Option<(usize, PartPeriod)>,
    /// True if the cells of a row expire individually.
    cells_expire: bool,
}

#[derive(Debug)]
struct Source {
    origin: Origin,
    declared: Option<ColumnType>,
    /// True if the values are decimals that are indexed as doubles, for metrics. Conditions compare decimals exactly,
    /// as keywords.
    is_rounded: bool,
}

#[derive(Debug)]
enum Origin {
    /// Number of a logical key column.
    Key(usize),
    /// Stored name of a column.
    Column(ColumnName<'static>),
}

/// Decoded row.
pub(super) struct RowOfTable<'r> {
    sources: &'r Sources,
    key: &'r [u8],
    key_values: Vec<KeyValue<'r>>,
    row: Mutation<'r>,
}

impl Sources {
    pub(super) fn new(table: Arc<WideTable>, columns: &[SearchColumnSpec]) -> Self {
        let source = |column: &SearchColumnSpec| {
            let logical = table.layout().logical();
            let (origin, declared) = match logical.iter().position(|key| key.name == column.column) {
                Some(number) => (Origin::Key(number), Some(logical[number].kind.column_type())),
                None => {
                    let (name, declared) = table.column(&column.column);
                    (Origin::Column(name), declared)
                }
            };
            Source {
                origin,
                declared,
                is_rounded: column.form == SearchForm::Number && declared == Some(ColumnType::Decimal),
            }
        };
        let columns = columns.iter().map(source).collect();
        let parts = table.settings().parts.as_ref().and_then(|parts| {
            let logical = table.layout().logical();
            let number = logical.iter().position(|key| key.name == parts.by)?;
            Some((number, parts.every))
        });
        Self {
            cells_expire: table.settings().cells_expire(),
            table,
            columns,
            parts,
        }
    }

    /// Returns the properties of the table that decide the fields of its documents.
    pub(super) fn traits(&self) -> RowTraits {
        RowTraits {
            has_parts: self.parts.is_some(),
            cells_expire: self.cells_expire,
        }
    }

    /// Returns the id of the table.
    pub(super) fn table_id(&self) -> TableId {
        self.table.table().points().id()
    }

    /// Decodes a row.
    pub(super) fn row<'r>(&'r self, row: &'r StoredRow) -> Result<RowOfTable<'r>, Damage> {
        let damaged = |_| Damage("the key of a row is damaged");
        Ok(RowOfTable {
            sources: self,
            key: &row.key,
            key_values: self.table.layout().decode(&row.key).map_err(damaged)?,
            row: row.columns()?,
        })
    }
}

impl RowDocument for RowOfTable<'_> {
    fn key(&self) -> &[u8] {
        self.key
    }

    fn time(&self) -> i64 {
        self.row.time
    }

    fn part(&self) -> i32 {
        let part = self.sources.parts.and_then(|(column, every)| {
            let nanos = match self.key_values.get(column)? {
                KeyValue::Timestamp(time) => time.nanos(),
                // A generated id.
                KeyValue::Signed(nanos) => *nanos,
                _ => return None,
            };
            Some(every.number_of(nanos))
        });
        part.unwrap_or_default()
    }

    fn cell_time(&self, column: usize) -> Option<i64> {
        match &self.sources.columns[column].origin {
            Origin::Key(_) => None,
            Origin::Column(name) => Some(self.row.column(name)?.newest()?.time),
        }
    }

    fn each_value(&self, column: usize, take: &mut dyn FnMut(ValueRef<'_>)) {
        let source = &self.sources.columns[column];
        let of_key;
        let value = match &source.origin {
            Origin::Key(number) => {
                let Some(value) = self.key_values.get(*number) else {
                    return;
                };
                of_key = CellValue::of_key(value);
                &of_key
            }
            Origin::Column(name) => {
                let newest = self.row.column(name).and_then(|column| column.newest());
                let Some(version) = newest else {
                    return;
                };
                &version.value
            }
        };
        match value {
            CellValue::Decimal(number) if source.is_rounded => take(ValueRef::Float(number.to_f64())),
            value => {
                each_compared(value, source.declared, &mut |value| {
                    take(value);
                    false
                });
            }
        }
    }
}

//! Returned columns, and rows as flat JSON objects.
//!
//! `SELECT *` returns the key columns, then the other columns of the row. Listed columns are returned in the listed
//! order under their result names. A listed column that the row does not have is `null`.

use tideline_engine::WideTable;
use tideline_engine::model::ColumnType;
use tideline_engine::rows::{ColumnName, Mutation, RowDigest};
use tideline_openapi::row::RowIntegers;
use tideline_rows::read::NeededColumns;
use tideline_rows::value::{cell_of, write_plain, write_text, write_value};
use tideline_rows::{RowEncoder, RowsError};

use crate::statement::Name;

/// Returned columns.
#[derive(Debug, Clone)]
pub struct Projection {
    columns: Vec<ProjectedColumn>,
    /// True if the other columns of the row are returned after `columns`.
    has_others: bool,
    /// Names of the listed columns.
    names: Vec<String>,
    integers: RowIntegers,
}

/// Column of a result.
#[derive(Debug, Clone)]
struct ProjectedColumn {
    label: String,
    source: Source,
}

#[derive(Debug, Clone)]
enum Source {
    /// Position of a logical key column.
    Key(usize),
    /// Stored name and declared type.
    Column(ColumnName<'static>, Option<ColumnType>),
}

impl Projection {
    /// Returns the projection on all columns.
    pub fn all(table: &WideTable) -> Self {
        let logical = table.layout().logical().iter().enumerate();
        let columns = logical.map(|(number, column)| ProjectedColumn {
            label: column.name.clone(),
            source: Source::Key(number),
        });
        Self {
            columns: columns.collect(),
            has_others: true,
            names: Vec::new(),
            integers: RowIntegers::default(),
        }
    }

    /// Returns the projection on listed columns, each with its name in the result.
    pub fn listed(table: &WideTable, columns: &[(Name, String)]) -> Self {
        let names = columns.iter().map(|(name, _)| name.text.clone()).collect();
        let columns = columns.iter().map(|(name, label)| ProjectedColumn {
            label: label.clone(),
            source: match table.layout().logical_number(&name.text) {
                Ok(number) => Source::Key(number),
                Err(_) => {
                    let (stored, declared) = table.column(&name.text);
                    Source::Column(stored, declared)
                }
            },
        });
        Self {
            columns: columns.collect(),
            has_others: false,
            names,
            integers: RowIntegers::default(),
        }
    }

    /// Returns the projection with another form of integers.
    #[must_use]
    pub fn with_integers(self, integers: RowIntegers) -> Self {
        Self { integers, ..self }
    }

    /// Returns the columns of rows that the result needs.
    pub fn needed(&self) -> NeededColumns<'_> {
        match self.has_others {
            true => NeededColumns::All,
            false => NeededColumns::Named(&self.names),
        }
    }

    /// Returns bytes that identify the projection in page tokens.
    pub fn terms(&self) -> Vec<u8> {
        let mut terms = vec![u8::from(self.has_others)];
        for column in &self.columns {
            let text = format!("{:?}", column.source);
            terms.extend_from_slice(&(text.len() as u64).to_le_bytes());
            terms.extend_from_slice(text.as_bytes());
        }
        terms
    }
}

impl RowEncoder for Projection {
    fn write_row(
        &self,
        table: &WideTable,
        key: &[u8],
        row: &Mutation<'_>,
        _revision: Option<RowDigest>,
        out: &mut Vec<u8>,
    ) -> tideline_rows::Result<()> {
        let values = table.layout().decode(key).map_err(|error| RowsError::Damaged {
            table: table.table().name().to_string(),
            reason: error.to_string(),
        })?;
        let mut is_first = true;
        let mut name = |name: &str, out: &mut Vec<u8>| {
            out.push(if std::mem::take(&mut is_first) { b'{' } else { b',' });
            write_text(name, out);
            out.push(b':');
        };
        for column in &self.columns {
            name(&column.label, out);
            match &column.source {
                Source::Key(number) => match values.get(*number) {
                    Some(value) => write_plain(&cell_of(value), self.integers, out),
                    None => out.extend_from_slice(b"null"),
                },
                Source::Column(stored, declared) => {
                    match row.column(stored).and_then(|column| column.newest()) {
                        Some(version) => write_value(&version.value, *declared, self.integers, out),
                        None => out.extend_from_slice(b"null"),
                    }
                }
            }
        }
        for column in row.columns.iter().filter(|_| self.has_others) {
            // If the declaration of a column was removed from the settings, the column has no name.
            let (Some(label), Some(newest)) = (table.name_of(&column.name), column.newest()) else {
                continue;
            };
            name(label, out);
            write_value(&newest.value, table.column(label).1, self.integers, out);
        }
        out.push(b'}');
        Ok(())
    }
}

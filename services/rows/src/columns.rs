//! Pages of the columns of rows with many columns.
//!
//! Columns are returned in the order of their names. If a row has more columns than fit in a page, the page contains
//! the name of the next column. The client continues at this column, so the server keeps no state. For a page of a
//! large row, only the stored fragments with the columns of the page are read.

use tideline_engine::rows::{ColumnSpan, Mutation};
use tideline_engine::{Engine, WideTable};
use tideline_openapi::row::GetRows;

use crate::error::{Result, RowsError};
use crate::selection::{RowEncoder, Selection};
use crate::value;

/// Maximum number of columns of a page of a row.
pub const COLUMNS_MAX: u32 = 10_000;

/// Range and maximum number of the columns that a request returns from each row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnPages {
    from: String,
    to: Option<String>,
    limit: usize,
}

impl ColumnPages {
    /// Parses the requested column pages; `None` if the request has neither `column_range` nor `column_limit`.
    ///
    /// # Errors
    ///
    /// [`RowsError::Invalid`] if `column_limit` is 0, or if the request also selects columns by name or requests
    /// revisions; [`RowsError::OverLimit`] for a `column_limit` above [`COLUMNS_MAX`].
    pub fn new(request: &GetRows) -> Result<Option<Self>> {
        if request.column_range.is_none() && request.column_limit.is_none() {
            return Ok(None);
        }
        let excluded = [
            ("columns", request.columns.is_some()),
            ("revisions", request.revisions),
        ];
        if let Some((name, _)) = excluded.iter().find(|(_, is_given)| *is_given) {
            return Err(RowsError::Invalid(format!(
                "`{name}` cannot be used with column_range and column_limit, which return a part of each row"
            )));
        }
        let limit = request.column_limit.unwrap_or(COLUMNS_MAX);
        match limit {
            0 => {
                return Err(RowsError::Invalid(
                    "column_limit is 0; it must be at least 1".into(),
                ));
            }
            1..=COLUMNS_MAX => {}
            _ => {
                return Err(RowsError::over("column_limit", COLUMNS_MAX.into(), limit.into()));
            }
        }
        let range = request.column_range.clone().unwrap_or_default();
        Ok(Some(Self {
            from: range.from.unwrap_or_default(),
            to: range.to,
            limit: limit as usize,
        }))
    }

    fn contains(&self, name: &str) -> bool {
        name >= self.from.as_str() && self.to.as_deref().is_none_or(|to| name < to)
    }

    /// Reads the requested columns of the rows with the given stored keys. Passes each row to `take` as JSON, or `None`
    /// if the row does not exist. Returns the number of rows that exist.
    ///
    /// # Errors
    ///
    /// [`RowsError::Cancelled`] if `is_stopped` returns true, the errors of [`Engine::row_columns`], and those of
    /// `take`.
    pub fn get(
        &self,
        engine: &Engine,
        table: &WideTable,
        keys: &[Vec<u8>],
        selection: &Selection,
        is_stopped: &dyn Fn() -> bool,
        take: &mut dyn FnMut(Option<&[u8]>) -> Result<()>,
    ) -> Result<u64> {
        let declared = table.declared_names();
        let declared: Vec<u32> = declared
            .filter(|(name, _)| self.contains(name))
            .map(|(_, number)| number)
            .collect();
        let span = ColumnSpan {
            declared: &declared,
            from: &self.from,
            to: self.to.as_deref(),
            // One extra column is read, to detect whether more columns follow.
            limit: self.limit + 1,
        };
        let (mut found, mut json) = (0, Vec::new());
        for key in keys {
            if is_stopped() {
                return Err(RowsError::Cancelled);
            }
            let Some(page) = engine.row_columns(table, key, &span)? else {
                take(None)?;
                continue;
            };
            found += 1;
            json.clear();
            let row = page.row.columns().map_err(|reason| RowsError::Damaged {
                table: table.table().name().to_string(),
                reason: reason.to_string(),
            })?;
            self.write_row(table, key, row, selection, &mut json)?;
            take(Some(&json))?;
        }
        Ok(found)
    }

    /// Appends the first columns of a row as JSON, sorted by name. If the row has more columns, also appends the name
    /// of the next one.
    fn write_row(
        &self,
        table: &WideTable,
        key: &[u8],
        row: Mutation<'_>,
        selection: &Selection,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let mut columns = Vec::with_capacity(row.columns.len());
        for column in row.columns {
            // A column has no name if its declaration was removed from the settings.
            if let Some(name) = table.name_of(&column.name) {
                columns.push((name.to_owned(), column));
            }
        }
        columns.sort_by(|(one, _), (other, _)| one.cmp(other));
        let next = columns.get(self.limit).map(|(name, _)| name.clone());
        columns.truncate(self.limit);
        let row = Mutation {
            effect: row.effect,
            time: row.time,
            columns: columns.into_iter().map(|(_, column)| column).collect(),
        };
        selection.write_row(table, key, &row, None, out)?;
        if let Some(next) = next {
            out.truncate(out.len() - 1);
            out.extend_from_slice(b",\"next_column\":");
            value::write_text(&next, out);
            out.push(b'}');
        }
        Ok(())
    }
}

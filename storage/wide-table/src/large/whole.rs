//! Rows with the contents of their cut values: large values that are stored in pieces outside the row.
//!
//! A row is read with references to its cut values. Their contents are read afterwards, only for the columns that a
//! reader needs. If the row was overwritten in between, pieces may be missing; the row is then read again. A reader
//! therefore sees each row in a state that it had at some time during the read.

use std::borrow::Cow;

use tideline_model::TableId;

use super::{LargeKind, LargeValue, open_piece, partition, piece_key};
use crate::codec;
use crate::error::{Damage, Result, WideError};
use crate::mutation::{Column, ColumnName, Mutation};
use crate::read::StoredRow;
use crate::store::WideStore;
use crate::tables::TableRules;
use crate::value::CellValue;

impl WideStore {
    /// Returns true if rows of a table may have cut values. From then on, always returns true: the settings of a table
    /// have this mark before a row has such a value, and keep it.
    ///
    /// # Errors
    ///
    /// [`WideError::NoTable`] if the table does not exist.
    pub fn has_cut_values(&self, table: TableId) -> Result<bool> {
        Ok(self.rules(table)?.cut_values)
    }

    /// Returns a row with the contents of the cut values in the columns for which `needs` returns true. If pieces are
    /// missing, calls `again`, which reads the row again. Returns `None` if `again` returns `None`.
    ///
    /// # Errors
    ///
    /// [`WideError::LargeMissing`] if the row still references pieces that are missing, [`WideError::Damaged`] if
    /// stored bytes are damaged, the errors of the backend and of the lease, and the errors of `again`.
    pub fn whole(
        &self,
        table: TableId,
        mut row: StoredRow,
        needs: &dyn Fn(&ColumnName<'_>) -> bool,
        again: &mut dyn FnMut() -> Result<Option<StoredRow>>,
    ) -> Result<Option<StoredRow>> {
        let rules = self.rules(table)?;
        if !rules.cut_values {
            return Ok(Some(row));
        }
        loop {
            let whole = {
                let columns = row.columns();
                let columns = columns.map_err(|reason| WideError::Damaged { table, reason })?;
                match references_cut(&columns, needs) {
                    true => self.with_contents(table, &rules, &row.key, columns, needs)?,
                    false => return Ok(Some(row.clone())),
                }
                .map(|columns| codec::encoded(&columns))
            };
            if let Some(whole) = whole {
                return Ok(Some(row.with_whole(whole)));
            }
            match again()? {
                None => return Ok(None),
                Some(next) if next == row => return Err(WideError::LargeMissing(table)),
                Some(next) => row = next,
            }
        }
    }

    /// Returns the columns of a row with the contents of the cut values in the columns for which `needs` returns true.
    /// Returns `None` if pieces are missing.
    pub(crate) fn with_contents<'m>(
        &self,
        table: TableId,
        rules: &TableRules,
        key: &[u8],
        mut row: Mutation<'m>,
        needs: &dyn Fn(&ColumnName<'_>) -> bool,
    ) -> Result<Option<Mutation<'m>>> {
        for column in row.columns.iter_mut().filter(|column| needs(&column.name)) {
            for version in &mut column.versions {
                if let CellValue::Large(value) = version.value
                    && value.is_cut
                {
                    match self.content_of(table, rules, key, &value)? {
                        Some(content) => version.value = content,
                        None => return Ok(None),
                    }
                }
            }
        }
        Ok(Some(row))
    }

    /// Returns a mutation with the contents of its cut values, as far as they are still stored. A value that a later
    /// write has replaced can stay a reference.
    ///
    /// # Errors
    ///
    /// [`WideError::Damaged`] if stored bytes are damaged, and the errors of the backend and of the lease.
    pub fn with_stored_contents<'m>(
        &self,
        table: TableId,
        key: &[u8],
        mut row: Mutation<'m>,
    ) -> Result<Mutation<'m>> {
        let rules = self.rules(table)?;
        if !rules.cut_values {
            return Ok(row);
        }
        for version in row.columns.iter_mut().flat_map(|column| &mut column.versions) {
            if let CellValue::Large(value) = version.value
                && value.is_cut
                && let Some(content) = self.content_of(table, &rules, key, &value)?
            {
                version.value = content;
            }
        }
        Ok(row)
    }

    /// Reads a cut value. Returns `None` if a piece is missing.
    fn content_of<'v>(
        &self,
        table: TableId,
        rules: &TableRules,
        key: &[u8],
        value: &LargeValue,
    ) -> Result<Option<CellValue<'v>>> {
        let damaged = |reason| WideError::Damaged { table, reason };
        let Some(part) = self.large_part(table, rules, key)? else {
            return Ok(None);
        };
        self.log.check_lease()?;
        let backend = self.log.backend();
        let mut content = Vec::with_capacity(usize::try_from(value.bytes).unwrap_or_default());
        for piece in 0..value.pieces() {
            let Some(stored) = backend.get(partition(part.at), &piece_key(value.id, piece))? else {
                return Ok(None);
            };
            content.extend_from_slice(&open_piece(value, piece, &stored).map_err(damaged)?);
        }
        let text = |content| {
            let text = String::from_utf8(content);
            text.map_err(|_| damaged(Damage("a large text is not UTF-8")))
        };
        Ok(Some(match value.kind {
            LargeKind::Text => CellValue::String(Cow::Owned(text(content)?)),
            LargeKind::Json => CellValue::Json(Cow::Owned(text(content)?)),
            LargeKind::Binary => CellValue::Binary(Cow::Owned(content)),
        }))
    }
}

/// Returns true if a row references cut values in the columns for which `needs` returns true.
pub(crate) fn references_cut(row: &Mutation<'_>, needs: &dyn Fn(&ColumnName<'_>) -> bool) -> bool {
    let mut columns = row.columns.iter().filter(|column| needs(&column.name));
    columns.any(|column| cut_bytes(column) > 0)
}

/// Returns the total size of the cut values of a column, in bytes.
pub(crate) fn cut_bytes(column: &Column<'_>) -> usize {
    let bytes = column.versions.iter().map(|version| match &version.value {
        CellValue::Large(value) if value.is_cut => usize::try_from(value.bytes).unwrap_or(usize::MAX),
        _ => 0,
    });
    bytes.fold(0, usize::saturating_add)
}

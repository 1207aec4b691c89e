//! Large values of ordinary writes. They are stored in pieces before their rows are written.
//!
//! The rows then hold references. Reads of rows return the values themselves, so this is invisible to users.

use tideline_engine::large::{CutValue, ValueToCut};
use tideline_engine::rows::{CellValue, ColumnName, RowOutcome, Written};
use tideline_engine::{Engine, EngineError, WideTable};

use crate::error::Result;
use crate::large::is_unknown;

/// Value of a row that is about to be written.
pub(crate) struct RowValue<'r> {
    /// Position of the row in the write.
    pub(crate) row: usize,
    /// Stored key of the row.
    pub(crate) key: &'r [u8],
    /// Stored name of the column.
    pub(crate) column: &'r ColumnName<'static>,
    /// The value.
    pub(crate) value: &'r mut CellValue<'static>,
}

/// Values in pieces whose rows are not written yet.
pub(crate) struct Cut {
    /// Each value with the position of its row in the write.
    values: Vec<(usize, CutValue)>,
}

impl Cut {
    /// Stores the large values among the values of rows in pieces, durably, and replaces them by references.
    ///
    /// # Errors
    ///
    /// The errors of [`Engine::cut_values`].
    pub(crate) fn store<'r>(
        engine: &Engine,
        table: &WideTable,
        values: impl Iterator<Item = RowValue<'r>>,
    ) -> Result<Self> {
        let values = values.filter(|value| ValueToCut::is_cut(value.value));
        let values: Vec<RowValue<'_>> = values.collect();
        if values.is_empty() {
            return Ok(Self { values: Vec::new() });
        }
        let to_cut = values.iter().map(|value| ValueToCut {
            key: value.key,
            column: value.column,
            value: value.value,
        });
        let stored = engine.cut_values(table, &to_cut.collect::<Vec<_>>())?;
        let stored = values.into_iter().zip(stored).filter_map(|(place, stored)| {
            let stored = stored?;
            *place.value = CellValue::Large(stored.value());
            Some((place.row, stored))
        });
        Ok(Self {
            values: stored.collect(),
        })
    }

    /// Ends the write of the rows. Removes the values of rows that were not written. The outcomes are in the order of
    /// the positions of the rows.
    pub(crate) fn end<W>(
        self,
        engine: &Engine,
        written: std::result::Result<(W, Written), EngineError>,
    ) -> std::result::Result<(W, Written), EngineError> {
        let rows = match &written {
            Ok((_, Written { rows, .. })) => &rows[..],
            // The rows may reference the values, now or later.
            Err(error) if is_unknown(error) => {
                self.values.into_iter().for_each(|(_, value)| value.hold());
                return written;
            }
            Err(_) => &[],
        };
        let is_written = |row: usize| matches!(rows.get(row), Some(RowOutcome::Written(_)));
        let unwritten = self.values.into_iter().filter(|(row, _)| !is_written(*row));
        let unwritten: Vec<CutValue> = unwritten.map(|(_, value)| value).collect();
        engine.abandon_cut(&unwritten);
        written
    }
}

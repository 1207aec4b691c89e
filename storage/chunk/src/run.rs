//! The decoded form of a chunk.
//!
//! Seals (flushes of the head), merges and queries exchange points as runs.

use std::ops::Range;

use tideline_model::{ColumnData, FieldId};

use crate::ChunkError;
use crate::presence::Presence;

/// Maximum number of rows in one run. A day at one point per second fits; writers split longer runs.
pub const ROWS_MAX: usize = 1 << 17;

/// Maximum number of rows × columns in one run. Limits the memory that a damaged chunk can make a reader allocate.
pub const VALUES_MAX: usize = 1 << 24;

/// Consecutive points of one timeline in columns.
///
/// Rows are sorted by strictly increasing timestamp. There are between one and [`ROWS_MAX`] rows. Columns are sorted
/// by strictly increasing (field, type code). A field may have several columns of numeric types; a row has a value
/// in at most one of these columns.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Run {
    /// Timestamp of each row in nanoseconds since the epoch.
    pub timestamps: Vec<i64>,
    /// Columns with the values.
    pub columns: Vec<RunColumn>,
}

/// Values of one field and type in a [`Run`].
#[derive(Debug, Clone, PartialEq)]
pub struct RunColumn {
    /// Field of the values.
    pub field: FieldId,
    /// Rows that have a value in this column.
    pub presence: Presence,
    /// Values of the present rows only, in row order.
    pub values: ColumnData,
}

impl RunColumn {
    /// Returns the sort key of columns.
    pub(crate) fn order(&self) -> (FieldId, u8) {
        (self.field, self.values.value_type().code())
    }
}

impl Run {
    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.timestamps.len()
    }

    /// Returns the number of field values in all columns.
    pub fn values(&self) -> usize {
        self.columns.iter().map(|column| column.values.len()).sum()
    }

    /// Returns a copy of the given rows, without columns that have no value in these rows. If `rows` are all rows,
    /// every column is kept.
    #[must_use]
    pub fn slice(&self, rows: Range<usize>) -> Self {
        if rows == (0..self.rows()) {
            return self.clone();
        }
        let columns = self.columns.iter().filter_map(|column| {
            let values = column.presence.rank(rows.start)..column.presence.rank(rows.end);
            if values.is_empty() {
                return None;
            }
            let presence = match &column.presence {
                Presence::Some(bitmap) if values.len() < rows.len() => {
                    Presence::Some(rows.clone().map(|row| bitmap.get(row)).collect())
                }
                _ => Presence::All,
            };
            Some(RunColumn {
                field: column.field,
                presence,
                values: part(&column.values, values),
            })
        });
        Self {
            columns: columns.collect(),
            timestamps: self.timestamps[rows.clone()].to_vec(),
        }
    }

    /// Checks the invariants that the encoder relies on: sizes, order and lengths. Costs one pass over timestamps and
    /// presence bitmaps.
    ///
    /// # Errors
    ///
    /// [`ChunkError::TooLarge`] if the run exceeds [`ROWS_MAX`] or [`VALUES_MAX`], [`ChunkError::Malformed`] if it
    /// has no rows, is not sorted, or a column does not match its presence.
    pub fn check(&self) -> Result<(), ChunkError> {
        let rows = self.rows();
        if rows == 0 {
            return Err(ChunkError::Malformed("it has no rows"));
        }
        if rows > ROWS_MAX || rows * self.columns.len() > VALUES_MAX {
            return Err(ChunkError::TooLarge {
                rows,
                columns: self.columns.len(),
            });
        }
        if !self.timestamps.is_sorted_by(|a, b| a < b) {
            return Err(ChunkError::Malformed("its timestamps are not increasing"));
        }
        if !self.columns.is_sorted_by(|a, b| a.order() < b.order()) {
            return Err(ChunkError::Malformed(
                "its columns are not sorted by field and type",
            ));
        }
        for column in &self.columns {
            if let Presence::Some(bitmap) = &column.presence
                && bitmap.len() != rows
            {
                return Err(ChunkError::Malformed(
                    "a presence bitmap is not as long as the run",
                ));
            }
            if column.presence.count(rows) != column.values.len() {
                return Err(ChunkError::Malformed(
                    "a column's values and present rows differ in number",
                ));
            }
        }
        Ok(())
    }
}

/// Copies a range of values.
fn part(values: &ColumnData, range: Range<usize>) -> ColumnData {
    match values {
        ColumnData::Float(values) => ColumnData::Float(values[range].to_vec()),
        ColumnData::Signed(values) => ColumnData::Signed(values[range].to_vec()),
        ColumnData::Unsigned(values) => ColumnData::Unsigned(values[range].to_vec()),
        ColumnData::Boolean(values) => ColumnData::Boolean(values[range].to_vec()),
        ColumnData::String(_) | ColumnData::Histogram(_) => values.pick(range),
    }
}

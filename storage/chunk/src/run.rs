//! The unpacked form of a chunk: what seals, merges and reads exchange.

use std::ops::Range;

use tideline_model::{ColumnData, FieldId};

use crate::ChunkError;
use crate::presence::Presence;

/// Most rows in one run. A day at one second fits; writers split what is longer.
pub const ROWS_MAX: usize = 1 << 17;

/// Most rows × columns in one run: bounds what a damaged chunk may make a reader allocate.
pub const VALUES_MAX: usize = 1 << 24;

/// Consecutive points of one timeline in columns.
///
/// Rows are sorted by strictly rising timestamp, at least one, at most [`ROWS_MAX`]. Columns are sorted by
/// strictly rising (field, type code). A field may have several columns of numeric types; a row has a value in
/// at most one of them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Run {
    /// Nanoseconds since the epoch, one a row.
    pub timestamps: Vec<i64>,
    /// The values.
    pub columns: Vec<RunColumn>,
}

/// The values of one field and type in a [`Run`].
#[derive(Debug, Clone, PartialEq)]
pub struct RunColumn {
    /// The field.
    pub field: FieldId,
    /// Which rows have a value here.
    pub presence: Presence,
    /// The values of those rows only, in row order.
    pub values: ColumnData,
}

impl RunColumn {
    /// What columns are sorted by.
    pub(crate) fn order(&self) -> (FieldId, u8) {
        (self.field, self.values.value_type().code())
    }
}

impl Run {
    /// Rows held.
    pub fn rows(&self) -> usize {
        self.timestamps.len()
    }

    /// Field values held.
    pub fn values(&self) -> usize {
        self.columns.iter().map(|column| column.values.len()).sum()
    }

    /// Some of its rows. Columns without a value in them are left out.
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

    /// Checks what the encoder relies on: sizes, order and lengths. Costs one pass over the timestamps.
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
            return Err(ChunkError::Malformed("its timestamps do not rise"));
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
                    "a column has not one value for each present row",
                ));
            }
        }
        Ok(())
    }
}

/// Values one after another.
fn part(values: &ColumnData, range: Range<usize>) -> ColumnData {
    match values {
        ColumnData::Float(values) => ColumnData::Float(values[range].to_vec()),
        ColumnData::Signed(values) => ColumnData::Signed(values[range].to_vec()),
        ColumnData::Unsigned(values) => ColumnData::Unsigned(values[range].to_vec()),
        ColumnData::Boolean(values) => ColumnData::Boolean(values[range].to_vec()),
        ColumnData::String(_) | ColumnData::Histogram(_) => values.pick(range),
    }
}

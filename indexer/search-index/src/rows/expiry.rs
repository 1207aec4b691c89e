//! Times of cells that expire individually.
//!
//! A document keeps the values of expired cells until its row changes. The search decides which values have expired
//! when it reads them. All tests, sort keys and metrics of a search use the same time.

use tantivy::SegmentReader;
use tantivy::columnar::Column;

use super::RowsShown;
use super::schema::ColumnFields;

/// Expired values of a column in a segment.
pub(super) struct CellExpiry {
    times: Column<i64>,
    expired_at: i64,
}

impl CellExpiry {
    /// Opens the times of a column; `None` if its values do not expire, or expire with their rows.
    pub(super) fn open(
        reader: &SegmentReader,
        column: &ColumnFields,
        shown: RowsShown<'_>,
    ) -> tantivy::Result<Option<Self>> {
        let (Some(times), Some(expired_at)) = (&column.times, shown.expired_at) else {
            return Ok(None);
        };
        let times = reader.fast_fields().i64(&times.name)?;
        Ok(Some(Self { times, expired_at }))
    }

    /// Returns true if the value of a document has expired.
    pub(super) fn has_expired(&self, document: u32) -> bool {
        self.times
            .first(document)
            .is_some_and(|time| time <= self.expired_at)
    }
}

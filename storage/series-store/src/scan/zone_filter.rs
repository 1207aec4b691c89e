//! Zone filter: buckets of a chunk are not decoded if their summaries exclude all rows.
//!
//! A bucket may be skipped if none of its rows can match the filter, regardless of deletes. This requires that no
//! other fragment overlaps the chunk: a row combines the values of all overlapping fragments and may match the filter
//! because of a value from another fragment.

use std::fmt;

use tideline_chunk::{Chunk, ColumnSummary};
use tideline_model::{FieldId, TimeRange};

/// Filter of rows by the summaries of their values.
pub trait ZoneFilter: fmt::Debug + Sync {
    /// Returns the stored fields that the filter uses.
    fn filtered_fields(&self) -> &[FieldId];

    /// Returns true if a row of a bucket may match the filter, or if that cannot be determined.
    fn admits(&self, bucket: Bucket<'_>) -> bool;
}

/// Summaries of one bucket of a chunk.
#[derive(Debug, Clone, Copy)]
pub struct Bucket<'a> {
    columns: &'a [Column],
    number: usize,
}

/// Column that a filter uses. Reused for the next chunk.
#[derive(Debug, Default)]
struct Column {
    field: FieldId,
    /// Summary of each bucket; empty if the column has no summaries.
    summaries: Vec<ColumnSummary>,
}

/// Evaluates a filter on chunks.
#[derive(Debug, Default)]
pub(super) struct ZoneFilterReader {
    columns: Vec<Column>,
    admitted: Vec<TimeRange>,
}

impl<'a> Bucket<'a> {
    /// Returns the summaries of a field in the bucket, one per type; [`ColumnSummary::Unknown`] for columns without
    /// summaries. The iterator is empty if the chunk does not have the field.
    pub fn of(self, field: FieldId) -> impl Iterator<Item = ColumnSummary> + use<'a> {
        let columns = self.columns.iter().filter(move |column| column.field == field);
        columns.map(move |column| {
            let summary = column.summaries.get(self.number);
            summary.copied().unwrap_or(ColumnSummary::Unknown)
        })
    }
}

impl ZoneFilterReader {
    /// Returns the time spans of a chunk in which rows of `range` may match the filter, in time order; `None` if the
    /// chunk has no summaries.
    pub(super) fn admitted(
        &mut self,
        chunk: &Chunk<'_>,
        range: TimeRange,
        zone_filter: &dyn ZoneFilter,
    ) -> Option<&[TimeRange]> {
        let summaries = chunk.summaries()?;
        let mut count = 0;
        for info in chunk.columns_of(Some(zone_filter.filtered_fields())) {
            if count == self.columns.len() {
                self.columns.push(Column::default());
            }
            let column = &mut self.columns[count];
            column.field = info.field();
            summaries.column(info.field(), info.value_type(), &mut column.summaries);
            count += 1;
        }
        self.admitted.clear();
        let mut is_open = false;
        for (number, bucket) in summaries.buckets().iter().enumerate() {
            let of_bucket = TimeRange::new(bucket.first_timestamp, bucket.last_timestamp.saturating_add(1));
            let columns = &self.columns[..count];
            if !of_bucket.overlaps(&range) || !zone_filter.admits(Bucket { columns, number }) {
                is_open = false;
                continue;
            }
            match self.admitted.last_mut() {
                Some(last) if is_open => last.end = of_bucket.end,
                _ => self.admitted.push(of_bucket),
            }
            is_open = true;
        }
        self.admitted
            .iter_mut()
            .for_each(|span| *span = span.intersect(&range));
        Some(&self.admitted)
    }
}

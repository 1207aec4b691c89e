//! Rows that are wanted for their values: where summaries rule all of them out, a stretch of a chunk is not decoded.
//!
//! A bucket may be left out where none of its rows can be wanted, whatever deletes hide of it. That only holds where no
//! other piece overlaps the chunk: a row is put together of all that overlap, and may be wanted for a value of another one.

use std::fmt;

use tideline_chunk::{Chunk, ColumnSummary};
use tideline_model::{FieldId, TimeRange};

/// Says which rows may be wanted, by what their values come to.
pub trait Screen: fmt::Debug + Sync {
    /// The stored fields that it looks at.
    fn looks_at(&self) -> &[FieldId];

    /// Whether a row of a bucket may be wanted; `true` where it cannot be known.
    fn admits(&self, bucket: Bucket<'_>) -> bool;
}

/// A bucket of a chunk, as a screen sees it.
#[derive(Debug, Clone, Copy)]
pub struct Bucket<'a> {
    columns: &'a [Column],
    number: usize,
}

/// A column that a screen looks at; kept from chunk to chunk.
#[derive(Debug, Default)]
struct Column {
    field: FieldId,
    /// In each bucket; empty where it has no summaries.
    summaries: Vec<ColumnSummary>,
}

/// Finds what is left of chunks behind a screen.
#[derive(Debug, Default)]
pub(super) struct ScreenReader {
    columns: Vec<Column>,
    admitted: Vec<TimeRange>,
}

impl<'a> Bucket<'a> {
    /// What the values of a field come to in it, type by type; nothing where the chunk does not have the field, and
    /// [`ColumnSummary::Unknown`] for what has no summaries.
    pub fn of(self, field: FieldId) -> impl Iterator<Item = ColumnSummary> + use<'a> {
        let columns = self.columns.iter().filter(move |column| column.field == field);
        columns.map(move |column| {
            let summary = column.summaries.get(self.number);
            summary.copied().unwrap_or(ColumnSummary::Unknown)
        })
    }
}

impl ScreenReader {
    /// The stretches of a chunk in which rows of `range` may be wanted, in the order of time; `None` where it has no
    /// summaries to tell.
    pub(super) fn admitted(
        &mut self,
        chunk: &Chunk<'_>,
        range: TimeRange,
        screen: &dyn Screen,
    ) -> Option<&[TimeRange]> {
        let summaries = chunk.summaries()?;
        let mut count = 0;
        for info in chunk.columns_of(Some(screen.looks_at())) {
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
            if !of_bucket.overlaps(&range) || !screen.admits(Bucket { columns, number }) {
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
            .for_each(|stretch| *stretch = stretch.intersect(&range));
        Some(&self.admitted)
    }
}

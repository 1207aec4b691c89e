//! Results as one table, for the formats that name all columns before the first row (CSV, Arrow, Parquet).

use tideline_query::{Header, Series, ValueRef};

/// Columns of a result, and the positions of the values of the current series.
#[derive(Debug, Default)]
pub(crate) struct FlatColumns {
    pub(crate) header: Header,
    /// For each column, the index of its value in the rows of the current series; `None` if the series lacks the
    /// column.
    positions: Vec<Option<usize>>,
}

impl FlatColumns {
    /// Sets the columns of the result.
    pub(crate) fn begin(&mut self, header: &Header) {
        self.header = header.clone();
    }

    /// Starts a series: maps its values to the columns.
    pub(crate) fn series(&mut self, series: &Series<'_>) {
        self.positions.clear();
        self.positions.resize(self.header.columns.len(), None);
        for (position, column) in series.columns.iter().enumerate() {
            self.positions[*column] = Some(position);
        }
    }

    /// Returns the value of each tag column. An empty tag value equals a missing tag; both yield `None`.
    pub(crate) fn tags<'s>(&'s self, series: &'s Series<'_>) -> impl Iterator<Item = Option<&'s str>> {
        self.header.tags.iter().map(|tag| {
            let mut tags = series.tags.iter();
            let found = tags.find(|(key, value)| key == tag && !value.is_empty());
            found.map(|(_, value)| value.as_str())
        })
    }

    /// Returns the cells of all columns for a row of the current series.
    pub(crate) fn cells<'v>(
        &self,
        values: &'v [Option<ValueRef<'v>>],
    ) -> impl Iterator<Item = Option<ValueRef<'v>>> {
        self.positions
            .iter()
            .map(|position| position.and_then(|position| values[position]))
    }
}

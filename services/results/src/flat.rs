//! Answers as one table: what the formats have in common that state all columns first, each row with a cell for each.

use tideline_query::{Header, Series, ValueRef};

/// The columns of an answer, and where the series at hand has its values.
#[derive(Debug, Default)]
pub(crate) struct FlatColumns {
    pub(crate) header: Header,
    /// For each column its place in the rows of the series.
    places: Vec<Option<usize>>,
}

impl FlatColumns {
    /// The answer begins.
    pub(crate) fn begin(&mut self, header: &Header) {
        self.header = header.clone();
    }

    /// A series begins.
    pub(crate) fn series(&mut self, series: &Series<'_>) {
        self.places.clear();
        self.places.resize(self.header.columns.len(), None);
        for (place, column) in series.columns.iter().enumerate() {
            self.places[*column] = Some(place);
        }
    }

    /// The value of each tag column. A missing tag equals the empty text, so there is nothing to tell apart.
    pub(crate) fn tags<'s>(&'s self, series: &'s Series<'_>) -> impl Iterator<Item = Option<&'s str>> {
        self.header.tags.iter().map(|tag| {
            let mut tags = series.tags.iter();
            let found = tags.find(|(key, value)| key == tag && !value.is_empty());
            found.map(|(_, value)| value.as_str())
        })
    }

    /// A row of the series, with a cell for each column.
    pub(crate) fn cells<'v>(
        &self,
        values: &'v [Option<ValueRef<'v>>],
    ) -> impl Iterator<Item = Option<ValueRef<'v>>> {
        self.places
            .iter()
            .map(|place| place.and_then(|place| values[place]))
    }
}

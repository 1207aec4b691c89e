//! Order and paging of the rows that a search finds.
//!
//! Each segment yields its first rows in the order of the search; the pages of the segments are merged. Within a
//! segment, texts and keys are compared by their ordinals in the dictionary of the column. A page begins after a mark,
//! which holds the sort values and the key of the last row of the previous page. Paging is therefore stateless.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use roaring::RoaringBitmap;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use tantivy::columnar::{BytesColumn, Column, Dictionary, StrColumn, TermOrdHit};
use tantivy::{SegmentReader, TantivyError};
use tideline_condition::Node;
use tideline_model::GeoPoint;

use super::expiry::CellExpiry;
use super::geo::GeoColumn;
use super::schema::{ColumnFields, KEY};
use super::{RowForm, RowIndex, RowsShown};

/// Search over rows.
pub struct RowQuery<'q> {
    /// Compiled condition; [`RowIndex::check`] has accepted it.
    pub root: &'q Node,
    /// Order of the rows. Rows with equal values are ordered by their keys.
    pub sort: &'q [RowSort],
    /// Position after which the page begins; `None` for the first page.
    pub after: Option<&'q RowMark>,
    /// Maximum number of rows.
    pub limit: usize,
    /// Returns true if the search should stop. Once true, it must stay true.
    pub is_stopped: &'q dyn Fn() -> bool,
}

/// Sort key of a search. Rows without a value come last.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RowSort {
    /// Sorted property.
    pub by: RowSortBy,
    /// True if the highest value comes first.
    pub is_descending: bool,
}

/// Property by which rows are sorted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RowSortBy {
    /// Value of an indexed column, given by its index in the list of columns. If a row has several values, the one that
    /// comes first in the sort order counts.
    Column(usize),
    /// Distance from a point to the nearest geo point of an indexed column.
    Distance(usize, GeoPoint),
}

/// Position of a row in the order of a search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RowMark {
    /// Sort values, in the order of the sort keys.
    pub values: Vec<SortValue>,
    /// Stored key.
    pub key: Vec<u8>,
}

/// Sort value of a row, or value of a group of rows.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum SortValue {
    /// The row has no value.
    Missing,
    /// Number, time, boolean or distance, as bits that sort like the values.
    Bits(u64),
    /// Text.
    Text(Vec<u8>),
}

/// Row that a search found.
#[derive(Debug, Clone, PartialEq)]
pub struct RowHit {
    /// Position of the row, with its key.
    pub mark: RowMark,
    /// Distance in meters for each sort key by distance, in the order of these keys; `None` for a row without a geo
    /// point.
    pub distances: Vec<Option<f64>>,
}

/// Page of a search.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RowPage {
    /// Rows in the order of the search.
    pub hits: Vec<RowHit>,
    /// Number of all rows that match.
    pub total: u64,
    /// True if more rows follow.
    pub has_more: bool,
}

impl RowIndex {
    /// Returns a page of the rows that match a condition, as of the last commit. The page is incomplete if the
    /// search was stopped.
    ///
    /// # Errors
    ///
    /// An error of reading the index, which must then be built again.
    pub fn search(&self, query: &RowQuery<'_>, shown: RowsShown<'_>) -> super::Result<RowPage> {
        let searchers = self.searchers(shown.shards);
        let mut page = RowPage::default();
        for found in self.each_segment(&searchers, query.root, shown, query.is_stopped) {
            let (reader, found) = found?;
            page.total += found.len();
            let (mut hits, is_cut) = self.first(reader, query, shown, &found)?;
            page.has_more |= is_cut;
            page.hits.append(&mut hits);
        }
        page.hits
            .sort_by(|one, other| compare(query.sort, &one.mark, &other.mark));
        page.has_more |= page.hits.len() > query.limit;
        page.hits.truncate(query.limit);
        Ok(page)
    }

    /// Returns the first rows of a segment after the mark, and true if more follow.
    fn first(
        &self,
        reader: &SegmentReader,
        query: &RowQuery<'_>,
        shown: RowsShown<'_>,
        found: &RoaringBitmap,
    ) -> tantivy::Result<(Vec<RowHit>, bool)> {
        if found.is_empty() {
            return Ok((Vec::new(), false));
        }
        let keys = reader.fast_fields().bytes(KEY)?;
        let keys = keys.ok_or_else(|| TantivyError::SystemError("no column of keys".to_owned()))?;
        let mut sources = Vec::with_capacity(query.sort.len());
        for sort in query.sort {
            sources.push(Source::open(reader, &self.fields.columns, *sort, shown)?);
        }
        let after = match query.after {
            Some(mark) => Some(Rank {
                values: sources
                    .iter()
                    .zip(&mark.values)
                    .map(|(source, value)| source.rank_of(value))
                    .collect::<tantivy::Result<_>>()?,
                key: rank_in(&keys, &mark.key)?,
            }),
            None => None,
        };
        let mut first: BinaryHeap<(Rank, u32)> = BinaryHeap::new();
        let mut is_cut = false;
        for document in found {
            let key = keys.ords().first(document).unwrap_or_default();
            let rank = Rank {
                values: sources.iter().map(|source| source.rank(document)).collect(),
                key: exact(key),
            };
            if after.as_ref().is_some_and(|after| rank <= *after) {
                continue;
            }
            if first.len() < query.limit {
                first.push((rank, document));
            } else {
                is_cut = true;
                if first.peek().is_some_and(|(last, _)| rank < *last) {
                    first.pop();
                    first.push((rank, document));
                }
            }
        }
        let mut hits = Vec::with_capacity(first.len());
        for (rank, document) in first.into_sorted_vec() {
            let mut key = Vec::new();
            keys.ord_to_bytes(rank.key / 2, &mut key)?;
            let mut values = Vec::with_capacity(sources.len());
            let mut distances = Vec::new();
            for source in &sources {
                let value = source.value(document)?;
                match (&source.values, &value) {
                    (Values::Distance(..), SortValue::Bits(bits)) => {
                        distances.push(Some(f64::from_bits(*bits)));
                    }
                    (Values::Distance(..), _) => distances.push(None),
                    _ => {}
                }
                values.push(value);
            }
            hits.push(RowHit {
                mark: RowMark { values, key },
                distances,
            });
        }
        Ok((hits, is_cut))
    }
}

/// Position of a document in the order of a search, comparable within its segment.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    /// For each sort key, true if the value is missing, and the value as bits that sort in the direction of the key.
    values: SmallVec<[(bool, u64); 2]>,
    key: u64,
}

/// Values of a sort key in a segment.
struct Source {
    values: Values,
    expiry: Option<CellExpiry>,
    is_descending: bool,
}

enum Values {
    Bits(Column<u64>),
    Text(StrColumn),
    Distance(GeoColumn, GeoPoint),
    /// No document of the segment has a value.
    Nothing,
}

/// Returns the rank of a text or key from its ordinal in the dictionary. These ranks are odd; a text that is not in the
/// dictionary has an even rank between them.
fn exact(number: u64) -> u64 {
    number * 2 + 1
}

impl Source {
    fn open(
        reader: &SegmentReader,
        columns: &[ColumnFields],
        sort: RowSort,
        shown: RowsShown<'_>,
    ) -> tantivy::Result<Self> {
        let (RowSortBy::Column(number) | RowSortBy::Distance(number, _)) = sort.by;
        let values = match sort.by {
            RowSortBy::Distance(column, from) => {
                Values::Distance(GeoColumn::open(reader, &columns[column])?, from)
            }
            RowSortBy::Column(column) => {
                let column = &columns[column];
                match column.form {
                    RowForm::Keyword => {
                        let texts = reader.fast_fields().str(&column.name)?;
                        texts.map_or(Values::Nothing, Values::Text)
                    }
                    RowForm::Text(_) => Values::Nothing,
                    _ => Values::Bits(column.bits(reader)?),
                }
            }
        };
        Ok(Self {
            values,
            expiry: CellExpiry::open(reader, &columns[number], shown)?,
            is_descending: sort.is_descending,
        })
    }

    /// Returns the value of a document that is first in the sort order: for texts, the ordinal in the dictionary.
    /// Returns `None` if the value is missing or has expired.
    fn bits(&self, document: u32) -> Option<u64> {
        if self
            .expiry
            .as_ref()
            .is_some_and(|expiry| expiry.has_expired(document))
        {
            return None;
        }
        let first = |column: &Column<u64>| match self.is_descending {
            true => column.values_for_doc(document).max(),
            false => column.values_for_doc(document).min(),
        };
        match &self.values {
            Values::Bits(column) => first(column),
            Values::Text(column) => first(column.ords()),
            Values::Distance(column, from) => column.nearest(document, *from).map(f64::to_bits),
            Values::Nothing => None,
        }
    }

    /// Returns the rank of a document; missing values come last in both directions.
    fn rank(&self, document: u32) -> (bool, u64) {
        let bits = self.bits(document);
        self.directed(match &self.values {
            Values::Text(_) => bits.map(exact),
            _ => bits,
        })
    }

    fn directed(&self, bits: Option<u64>) -> (bool, u64) {
        match bits {
            None => (true, 0),
            Some(bits) if self.is_descending => (false, !bits),
            Some(bits) => (false, bits),
        }
    }

    /// Returns the rank of the value of a mark.
    fn rank_of(&self, value: &SortValue) -> tantivy::Result<(bool, u64)> {
        let bits = match (value, &self.values) {
            (SortValue::Missing, _) => None,
            (SortValue::Bits(bits), _) => Some(*bits),
            (SortValue::Text(text), Values::Text(column)) => {
                Some(rank_in_dictionary(column.dictionary(), text)?)
            }
            // No document of the segment has a value, so all documents come after the text.
            (SortValue::Text(_), _) => Some(0),
        };
        Ok(self.directed(bits))
    }

    /// Returns the sort value of a document.
    fn value(&self, document: u32) -> tantivy::Result<SortValue> {
        Ok(match (self.bits(document), &self.values) {
            (None, _) => SortValue::Missing,
            (Some(number), Values::Text(column)) => {
                let mut text = String::new();
                column.ord_to_str(number, &mut text)?;
                SortValue::Text(text.into_bytes())
            }
            (Some(bits), _) => SortValue::Bits(bits),
        })
    }
}

fn rank_in(keys: &BytesColumn, key: &[u8]) -> tantivy::Result<u64> {
    rank_in_dictionary(keys.dictionary(), key)
}

/// Returns the rank of a text relative to the texts of a dictionary.
fn rank_in_dictionary(dictionary: &Dictionary, text: &[u8]) -> tantivy::Result<u64> {
    let hit = dictionary.term_ord_or_next(text)?;
    Ok(match hit {
        TermOrdHit::Exact(number) => exact(number),
        TermOrdHit::Next(number) => number.min(dictionary.num_terms() as u64) * 2,
    })
}

/// Compares two rows of different segments.
fn compare(sort: &[RowSort], one: &RowMark, other: &RowMark) -> Ordering {
    for (sort, (one, other)) in sort.iter().zip(one.values.iter().zip(&other.values)) {
        let ordering = match (one, other) {
            (SortValue::Missing, SortValue::Missing) => Ordering::Equal,
            (SortValue::Missing, _) => Ordering::Greater,
            (_, SortValue::Missing) => Ordering::Less,
            (SortValue::Bits(one), SortValue::Bits(other)) => directed(sort, one.cmp(other)),
            (SortValue::Text(one), SortValue::Text(other)) => directed(sort, one.cmp(other)),
            (SortValue::Bits(_), SortValue::Text(_)) => Ordering::Less,
            (SortValue::Text(_), SortValue::Bits(_)) => Ordering::Greater,
        };
        if ordering != Ordering::Equal {
            return ordering;
        }
    }
    one.key.cmp(&other.key)
}

fn directed(sort: &RowSort, ordering: Ordering) -> Ordering {
    match sort.is_descending {
        true => ordering.reverse(),
        false => ordering,
    }
}

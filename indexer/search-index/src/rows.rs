//! Search index over the rows of a wide table.
//!
//! Each index has a dedicated folder, and one document per row. A document holds the values of the indexed columns, the
//! stored key of the row, and the time of the row. The index is disposable: a damaged or missing folder is built again
//! from the rows. Unlike a search of timelines, a search of rows returns the rows of the last commit; a caller that
//! needs newer rows waits for the next commit.
//!
//! | module | holds |
//! |---|---|
//! | `schema` | fields of the documents, and the mapping from a row to its document |
//! | `shards` | division of an index over several tantivy indexes |
//! | `evaluate` | evaluation of a condition tree on one segment, as a set of documents |
//! | `expiry` | times of cells that expire individually |
//! | `geo` | geo points of a column |
//! | `keys` | lookup and removal of documents by their keys |
//! | `matching` | keys of all rows that match |
//! | `page` | order and paging |
//! | `facets` | counts and metrics by values |
//!
//! The evaluation of a tree is exact. [`RowIndex::check`] rejects a tree with a test that the indexed forms of its
//! column cannot decide.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use roaring::RoaringBitmap;
use serde::{Deserialize, Serialize};
use tantivy::indexer::UserOperation;
use tantivy::query::RangeQuery;
use tantivy::{Index, IndexWriter, Searcher, SegmentReader, TantivyDocument, TantivyError, Term};
use tideline_condition::{Node, ValueRef};
use tideline_model::{KeyRange, SearchAnalyzer};

use crate::folder;

mod evaluate;
mod expiry;
mod facets;
mod geo;
mod keys;
mod matching;
mod page;
mod schema;
mod shards;

pub use crate::highlight::highlights_of_row as highlights;
use evaluate::Segment;
pub use evaluate::{RowTestAccess, RowTestPlan};
pub use facets::{
    FACET_GROUPS_MAX, FACET_KEYS_MAX, RowFacetKey, RowFacetQuery, RowFacets, RowMetric, RowSums, RowWindows,
};
use keys::KeysQuery;
pub use page::{RowHit, RowMark, RowPage, RowQuery, RowSort, RowSortBy, SortValue};
use schema::Fields;
pub use schema::KEYWORD_BYTES_MAX;
use shards::Shard;
pub use shards::{SHARDS_MAX, ShardSet, Sharding, shard_folder};

/// Failure of an index: an error of the file system, or damage. The index must be built again.
#[derive(Debug, thiserror::Error)]
#[error("search index of rows: {0}")]
pub struct RowIndexError(#[from] TantivyError);

/// Result of a call of an index.
pub type Result<T> = std::result::Result<T, RowIndexError>;

/// Column of a search index over rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowColumn {
    /// Name in conditions.
    pub name: String,
    /// Form of the values in the index.
    pub form: RowForm,
}

/// Form of the values of a column in the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RowForm {
    /// Whole texts.
    Keyword,
    /// Words of texts, split by an analyzer, with their positions.
    Text(SearchAnalyzer),
    /// Signed integers, and times in nanoseconds since 1970-01-01T00:00:00Z.
    Signed,
    /// Unsigned integers.
    Unsigned,
    /// Doubles.
    Float,
    /// Booleans.
    Boolean,
    /// Geo points.
    Geo,
}

impl RowForm {
    /// Returns true if a document holds a value in this form. Other values are not indexed.
    pub fn holds(self, value: ValueRef<'_>) -> bool {
        match (self, value) {
            (Self::Keyword, ValueRef::Text(text)) => text.len() <= KEYWORD_BYTES_MAX,
            (Self::Text(_), ValueRef::Text(_))
            | (Self::Signed, ValueRef::Signed(_))
            | (Self::Unsigned, ValueRef::Unsigned(_))
            | (Self::Float, ValueRef::Float(_))
            | (Self::Boolean, ValueRef::Boolean(_))
            | (Self::Geo, ValueRef::Point(_)) => true,
            _ => false,
        }
    }

    /// Returns true for integers, times and doubles.
    pub fn is_number(self) -> bool {
        matches!(self, Self::Signed | Self::Unsigned | Self::Float)
    }
}

/// Row as input of its document.
pub trait RowDocument {
    /// Returns the stored key.
    fn key(&self) -> &[u8];

    /// Returns the time from which the age of the row is measured, in nanoseconds since 1970-01-01T00:00:00Z.
    fn time(&self) -> i64;

    /// Returns the number of the part of the row; only used if the table is divided into parts.
    fn part(&self) -> i32;

    /// Returns the time of the value of a column, in nanoseconds since 1970-01-01T00:00:00Z; `None` if the column has
    /// no value, or a value that expires with the row. Only used if cells expire individually.
    fn cell_time(&self, column: usize) -> Option<i64>;

    /// Calls `take` with each value of a column; `column` is its index in the list of indexed columns.
    fn each_value(&self, column: usize, take: &mut dyn FnMut(ValueRef<'_>));
}

/// Parts whose rows searches can find.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PartsShown {
    /// The parts with these numbers.
    Only(BTreeSet<i32>),
    /// All parts except the parts with these numbers.
    Except(BTreeSet<i32>),
}

impl PartsShown {
    fn has(&self, part: i64) -> bool {
        let is_listed = |parts: &BTreeSet<i32>| i32::try_from(part).is_ok_and(|part| parts.contains(&part));
        match self {
            Self::Only(parts) => is_listed(parts),
            Self::Except(parts) => !is_listed(parts),
        }
    }
}

/// Rows that searches can find.
#[derive(Debug, Clone, Copy, Default)]
pub struct RowsShown<'p> {
    /// Rows whose time is at or before this time have expired. If cells expire individually, the same applies to the
    /// time of each cell. `None` if rows do not expire.
    pub expired_at: Option<i64>,
    /// Rows of parts with a lower number are hidden; `None` if the table is not divided into parts.
    pub first_part: Option<i32>,
    /// Parts whose rows are shown; `None` for all parts.
    pub parts: Option<&'p PartsShown>,
    /// Shards that are read. A search that can only match rows of some shards need not read the others.
    pub shards: ShardSet,
}

/// Properties of a table that decide the fields of the documents.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RowTraits {
    /// True if the table is divided into parts.
    pub has_parts: bool,
    /// True if the cells of a row expire individually.
    pub cells_expire: bool,
}

/// Document of a row.
#[derive(Debug)]
pub struct Document {
    shard: usize,
    fields: TantivyDocument,
}

/// Progress of an index, stored with each commit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowPosition {
    /// The index contains all changes of the journal with a lower sequence number.
    pub end: u64,
    /// Stored key, in hexadecimal, at which the build continues; `None` if the build is complete.
    pub build: Option<String>,
}

/// Search index over rows.
pub struct RowIndex {
    columns: Vec<RowColumn>,
    fields: Fields,
    sharding: Sharding,
    /// Shards by their numbers, at least one.
    shards: Vec<Shard>,
}

impl std::fmt::Debug for RowIndex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RowIndex")
            .field("columns", &self.columns)
            .finish_non_exhaustive()
    }
}

impl RowIndex {
    /// Opens the index in a folder. Creates an empty index if the folder has no index, or one that is damaged or has
    /// other columns or traits. Returns the position of the index; `None` if it is empty, or if it must be cleared and
    /// built again. `heap_bytes` is the memory of the writer of each shard.
    ///
    /// # Errors
    ///
    /// An error of the file system.
    pub fn open(
        folder: &Path,
        columns: Vec<RowColumn>,
        traits: RowTraits,
        sharding: Sharding,
        heap_bytes: usize,
    ) -> Result<(Self, Option<RowPosition>)> {
        let (schema, fields) = schema::schema(&columns, traits);
        let decode = |payload: &str| serde_json::from_str(payload).ok();
        let folders: Vec<_> = (0..sharding.count())
            .map(|shard| shard_folder(folder, shard))
            .collect();
        let shard = |index: Index| {
            register_tokenizers(&index, &columns);
            Shard::new(index, heap_bytes)
        };
        let opened = folders.iter().map(|folder| {
            let (index, position) = folder::open::<RowPosition>(folder, &schema, decode)?;
            Ok((shard(index)?, position))
        });
        let (shards, positions): (Vec<Shard>, Vec<_>) = match opened.collect::<Result<Vec<_>>>() {
            Ok(found) => found.into_iter().unzip(),
            Err(error) => {
                if folder.exists() {
                    tracing::info!(%error, folder = %folder.display(), "a search index of rows is created again");
                }
                // The first shard is created first. From then on, the index has no position.
                let created = folders.iter().map(|folder| {
                    let index = folder::create(folder, schema.clone())?;
                    Ok((shard(index)?, None))
                });
                let created = created.collect::<Result<Vec<_>>>()?;
                created.into_iter().unzip()
            }
        };
        // The position of the first shard is that of the index, unless another shard was never committed.
        let is_complete = positions.iter().all(Option::is_some);
        let position = positions.into_iter().next().flatten().filter(|_| is_complete);
        let opened = Self {
            columns,
            fields,
            shards,
            sharding,
        };
        Ok((opened, position))
    }

    /// Returns the indexed columns.
    pub fn columns(&self) -> &[RowColumn] {
        &self.columns
    }

    /// Returns the number of documents.
    pub fn documents(&self) -> u64 {
        self.documents_of(ShardSet::ALL)
    }

    /// Returns the number of documents in some shards.
    pub fn documents_of(&self, shards: ShardSet) -> u64 {
        self.searchers(shards).iter().map(Searcher::num_docs).sum()
    }

    /// Returns the number of shards.
    pub fn shards(&self) -> usize {
        self.shards.len()
    }

    /// Returns the size of the files of the last commit, in bytes.
    ///
    /// # Errors
    ///
    /// An error of reading the index.
    pub fn bytes(&self) -> Result<u64> {
        let mut bytes = 0;
        for searcher in self.searchers(ShardSet::ALL) {
            let usage = searcher.space_usage().map_err(TantivyError::from)?;
            bytes += usage.total().get_bytes();
        }
        Ok(bytes)
    }

    /// Returns the time of the row with this key as of the last commit; `None` if the index has no document of the row.
    ///
    /// # Errors
    ///
    /// An error of reading the index, which must then be built again.
    pub fn time_of(&self, key: &[u8]) -> Result<Option<i64>> {
        let searcher = self.shard(key).searcher();
        for reader in searcher.segment_readers() {
            if let Some(document) = keys::find(reader, self.fields.key, key)? {
                let times = reader.fast_fields().i64(schema::TIME)?;
                return Ok(times.first(document));
            }
        }
        Ok(None)
    }

    /// Returns the document of a row.
    pub fn document(&self, row: &dyn RowDocument) -> Document {
        Document {
            shard: self.sharding.shard_of(row.key()),
            fields: self.fields.document(row),
        }
    }

    /// Removes the documents with these keys, and adds documents. `keys` must include the keys of the added documents.
    /// No two documents may have the same key.
    ///
    /// # Errors
    ///
    /// An error of the writer.
    pub fn replace(&self, keys: Vec<Vec<u8>>, documents: Vec<Document>) -> Result<()> {
        let mut changes: Vec<(Vec<Vec<u8>>, Vec<TantivyDocument>)> =
            vec![Default::default(); self.shards.len()];
        for key in keys {
            changes[self.sharding.shard_of(&key)].0.push(key);
        }
        for document in documents {
            changes[document.shard].1.push(document.fields);
        }
        for (shard, (mut keys, documents)) in self.shards.iter().zip(changes) {
            if keys.is_empty() {
                continue;
            }
            keys.sort_unstable();
            let query = KeysQuery {
                field: self.fields.key,
                keys: Arc::new(keys),
            };
            shard.change(|writer| {
                writer.delete_query(Box::new(query))?;
                writer.run(documents.into_iter().map(UserOperation::Add))?;
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Removes the documents of all rows whose keys are in a range.
    ///
    /// # Errors
    ///
    /// An error of the writer.
    pub fn delete_range(&self, range: &KeyRange) -> Result<()> {
        let term = |key: &[u8]| Term::from_field_bytes(self.fields.key, key);
        let end = range
            .end
            .as_deref()
            .map_or(Bound::Unbounded, |end| Bound::Excluded(term(end)));
        self.delete(&RangeQuery::new(Bound::Included(term(&range.start)), end))
    }

    /// Removes the documents of all rows whose time is at or before `time`.
    ///
    /// # Errors
    ///
    /// An error of the writer.
    pub fn delete_expired(&self, time: i64) -> Result<()> {
        let upper = Bound::Included(Term::from_field_i64(self.fields.time, time));
        let lower = Bound::Included(Term::from_field_i64(self.fields.time, i64::MIN));
        self.delete(&RangeQuery::new(lower, upper))
    }

    /// Removes the documents of all parts with a number below `first`. Does nothing if the table is not divided into
    /// parts.
    ///
    /// # Errors
    ///
    /// An error of the writer.
    pub fn delete_parts_before(&self, first: i32) -> Result<()> {
        let Some(part) = self.fields.part else {
            return Ok(());
        };
        let lower = Bound::Included(Term::from_field_i64(part, i64::MIN));
        let upper = Bound::Excluded(Term::from_field_i64(part, i64::from(first)));
        self.delete(&RangeQuery::new(lower, upper))
    }

    /// Removes the documents of a part. Does nothing if the table is not divided into parts.
    ///
    /// # Errors
    ///
    /// An error of the writer.
    pub fn delete_part(&self, number: i32) -> Result<()> {
        let Some(part) = self.fields.part else {
            return Ok(());
        };
        let of_part = || Bound::Included(Term::from_field_i64(part, i64::from(number)));
        self.delete(&RangeQuery::new(of_part(), of_part()))
    }

    /// Makes all changes durable together with a position, and visible to searches.
    ///
    /// # Errors
    ///
    /// An error of the writer. The changes since the last commit are then lost.
    pub fn commit(&self, position: &RowPosition) -> Result<()> {
        let payload = serde_json::to_string(position).expect("a plain structure");
        let (first, others) = self.shards.split_first().expect("an index has a shard");
        // A commit mostly waits for the syncs of its files, so the shards are committed at the same time.
        std::thread::scope(|scope| {
            let mut commits = Vec::new();
            for shard in others.iter().filter(|shard| shard.is_changed()) {
                let thread = std::thread::Builder::new().name("row-commit".to_owned());
                let commit = thread.spawn_scoped(scope, || shard.commit(Some(&payload)));
                commits.push(commit.map_err(TantivyError::from)?);
            }
            commits.into_iter().try_for_each(|commit| {
                commit
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
        })?;
        first.commit(Some(&payload))?;
        self.reload()
    }

    /// Makes segments that were merged since the last commit visible to searches.
    ///
    /// # Errors
    ///
    /// An error of the file system.
    pub fn reload(&self) -> Result<()> {
        self.shards.iter().try_for_each(Shard::reload)
    }

    /// Waits for running merges and releases the writers, with their memory and their locks on the folders. Changes
    /// since the last commit are lost.
    ///
    /// # Errors
    ///
    /// An error of a merge.
    pub fn release_writer(&self) -> Result<()> {
        // After an error, the other writers are released too.
        let released: Vec<Result<()>> = self.shards.iter().map(Shard::release_writer).collect();
        released.into_iter().collect()
    }

    /// Removes all documents. The index has no position until the next commit.
    ///
    /// # Errors
    ///
    /// An error of the writer.
    pub fn clear(&self) -> Result<()> {
        let clear = |shard: &Shard| {
            shard.change(|writer| {
                writer.delete_all_documents()?;
                Ok(())
            })
        };
        if let [first, _, ..] = &self.shards[..] {
            // Otherwise, a crash during the next commit could leave the old position with cleared shards.
            clear(first)?;
            first.commit(None)?;
        }
        self.shards.iter().try_for_each(clear)
    }

    /// Checks that the index can decide every test of the tree.
    ///
    /// # Errors
    ///
    /// A message with the column and the missing form, or with the indexed columns if the column is not indexed.
    pub fn check(&self, root: &Node) -> std::result::Result<(), String> {
        evaluate::check(&self.columns, root)
    }

    /// Returns the searchers of some shards, as of the last commit.
    fn searchers(&self, shards: ShardSet) -> Vec<Searcher> {
        let numbered = self.shards.iter().enumerate();
        let chosen = numbered.filter(|(number, _)| shards.has(*number));
        chosen.map(|(_, shard)| shard.searcher()).collect()
    }

    /// Finds the documents of each segment that match a condition and are shown. The documents are incomplete if the
    /// search is stopped.
    fn each_segment<'a>(
        &'a self,
        searchers: &'a [Searcher],
        root: &'a Node,
        shown: RowsShown<'a>,
        is_stopped: &'a dyn Fn() -> bool,
    ) -> impl Iterator<Item = Result<(&'a SegmentReader, RoaringBitmap)>> {
        let readers = searchers.iter().flat_map(|searcher| searcher.segment_readers());
        readers.map(move |reader| {
            let segment = Segment::new(reader, &self.fields, &self.columns, shown, is_stopped);
            Ok((reader, segment.matching(root)?))
        })
    }

    /// Returns the shard of a key.
    fn shard(&self, key: &[u8]) -> &Shard {
        &self.shards[self.sharding.shard_of(key)]
    }

    /// Removes the documents that a query matches.
    fn delete(&self, query: &RangeQuery) -> Result<()> {
        let delete = |writer: &mut IndexWriter| {
            writer.delete_query(Box::new(query.clone()))?;
            Ok(())
        };
        self.shards.iter().try_for_each(|shard| shard.change(delete))
    }
}

/// Registers the tokenizers of the text columns, which an index needs to add documents.
fn register_tokenizers(index: &Index, columns: &[RowColumn]) {
    for column in columns {
        if let RowForm::Text(analyzer) = column.form {
            let tokenizers = index.tokenizers();
            tokenizers.register(&schema::tokenizer_name(analyzer), schema::tokenizer(analyzer));
        }
    }
}

//! The tantivy index on disk: opening, recreating, writing and releasing.
//!
//! Also holds the deletion of documents by key.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use tantivy::indexer::UserOperation;
use tantivy::query::{BitSetDocSet, ConstScorer, EnableScoring, Explanation, Query, Scorer, Weight};
use tantivy::{
    BitSet, DocId, Index, IndexReader, IndexWriter, Score, Searcher, SegmentReader, TantivyDocument, Term,
};

use crate::folder;
use crate::mapping::{Fields, KEY_FIELD, Token, schema};
use crate::positions::{self, Positions};

/// Minimum number of segments of similar size that are merged into one. Fewer segments make searches faster, but each
/// merge rewrites documents.
const MERGED_SEGMENTS: usize = 4;

/// The index and its reader. The writer uses much memory, so it exists only while there is work.
pub(super) struct OpenIndex {
    index: Index,
    reader: IndexReader,
    writer: Option<IndexWriter>,
    pub(super) fields: Fields,
}

impl OpenIndex {
    /// Opens the index on disk and decodes its positions. Fails if the schema differs, a checksum is wrong or the
    /// positions are unreadable.
    pub(super) fn open(folder: &Path) -> tantivy::Result<(Self, Positions)> {
        let (schema, fields) = schema();
        let (index, positions) = folder::open(folder, &schema, positions::decode)?;
        Ok((Self::over(index, fields)?, positions.unwrap_or_default()))
    }

    /// Deletes the files of the folder and creates an empty index.
    pub(super) fn remake(folder: &Path) -> tantivy::Result<Self> {
        let (schema, fields) = schema();
        Self::over(folder::create(folder, schema)?, fields)
    }

    fn over(index: Index, fields: Fields) -> tantivy::Result<Self> {
        Ok(Self {
            reader: folder::reader(&index)?,
            index,
            writer: None,
            fields,
        })
    }

    /// Returns a searcher over the documents of the last reload.
    pub(super) fn searcher(&self) -> Searcher {
        self.reader.searcher()
    }

    pub(super) fn has_writer(&self) -> bool {
        self.writer.is_some()
    }

    /// Returns the writer, creating it if necessary.
    pub(super) fn writer(&mut self, heap_bytes: usize) -> tantivy::Result<&mut IndexWriter> {
        Ok(match &mut self.writer {
            Some(writer) => writer,
            none => none.insert(folder::writer(&self.index, heap_bytes, MERGED_SEGMENTS)?),
        })
    }

    /// Waits for running merges, drops the writer and reloads the reader.
    pub(super) fn release_writer(&mut self) -> tantivy::Result<()> {
        if let Some(writer) = self.writer.take() {
            writer.wait_merging_threads()?;
        }
        self.reader.reload()
    }

    /// Makes the last commit visible to [`searcher`](Self::searcher).
    pub(super) fn reload(&self) -> tantivy::Result<()> {
        self.reader.reload()
    }
}

/// Deletes all documents that contain the token.
pub(super) fn delete_token(writer: &IndexWriter, fields: Fields, token: &Token) -> tantivy::Result<()> {
    let term = Term::from_field_bytes(fields.tokens, &token.0);
    writer.run([UserOperation::Delete(term)]).map(|_| ())
}

/// Adds documents in one batch.
pub(super) fn add(writer: &IndexWriter, documents: Vec<TantivyDocument>) -> tantivy::Result<()> {
    let operations: Vec<UserOperation> = documents.into_iter().map(UserOperation::Add).collect();
    writer.run(operations).map(|_| ())
}

/// Deletes the documents with these keys in one scan over all documents.
///
/// An indexed term per key would make this faster but every document larger; edits are rarer than new timelines.
pub(super) fn delete_keys(writer: &IndexWriter, keys: HashSet<u64>) -> tantivy::Result<()> {
    let keys = Arc::new(keys);
    writer.delete_query(Box::new(KeyQuery { keys })).map(|_| ())
}

/// Query that matches documents by key.
#[derive(Debug, Clone)]
struct KeyQuery {
    keys: Arc<HashSet<u64>>,
}

impl Query for KeyQuery {
    fn weight(&self, _: EnableScoring<'_>) -> tantivy::Result<Box<dyn Weight>> {
        Ok(Box::new(self.clone()))
    }
}

impl Weight for KeyQuery {
    fn scorer(&self, segment: &SegmentReader, boost: Score) -> tantivy::Result<Box<dyn Scorer>> {
        let keys = segment.fast_fields().u64(KEY_FIELD)?.first_or_default_col(0);
        let mut found = BitSet::with_max_value(segment.max_doc());
        for document in 0..segment.max_doc() {
            if self.keys.contains(&keys.get_val(document)) {
                found.insert(document);
            }
        }
        Ok(Box::new(ConstScorer::new(BitSetDocSet::from(found), boost)))
    }

    fn explain(&self, _: &SegmentReader, _: DocId) -> tantivy::Result<Explanation> {
        Ok(Explanation::new("document key", 1.0))
    }
}

//! The tantivy index on disk: opening, recreating, writing and releasing.
//!
//! Also holds the merge policy and the deletion of documents by key.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use tantivy::indexer::{IndexWriterOptions, UserOperation};
use tantivy::merge_policy::LogMergePolicy;
use tantivy::query::{BitSetDocSet, ConstScorer, EnableScoring, Explanation, Query, Scorer, Weight};
use tantivy::{
    BitSet, DocId, Index, IndexReader, IndexWriter, ReloadPolicy, Score, Searcher, SegmentReader,
    TantivyDocument, TantivyError, Term,
};

use crate::mapping::{Fields, KEY_FIELD, Token, schema};
use crate::positions::{self, Positions};

/// Minimum number of segments of similar size that are merged into one. Fewer segments make searches faster, but each
/// merge rewrites documents.
const MERGED_SEGMENTS: usize = 4;
/// Ratio of deleted documents above which a segment is rewritten.
const DELETED_RATIO_MAX: f32 = 0.3;

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
        let unsound = |what: &str| TantivyError::SystemError(what.to_owned());
        let index = Index::open_in_dir(folder)?;
        let (schema, fields) = schema();
        if index.schema() != schema {
            return Err(unsound("different schema"));
        }
        if !index.validate_checksum()?.is_empty() {
            return Err(unsound("wrong checksum"));
        }
        let meta = index.load_metas()?;
        let positions = match meta.payload {
            // The index was created and closed before its first commit.
            None if meta.segments.is_empty() => Positions::new(),
            payload => positions::decode(&payload.unwrap_or_default())
                .ok_or_else(|| unsound("unreadable positions"))?,
        };
        Ok((Self::over(index, fields)?, positions))
    }

    /// Deletes the files of the folder and creates an empty index.
    pub(super) fn remake(folder: &Path) -> tantivy::Result<Self> {
        std::fs::create_dir_all(folder)?;
        for file in std::fs::read_dir(folder)? {
            let file = file?;
            if file.file_type()?.is_file() {
                std::fs::remove_file(file.path())?;
            }
        }
        let (schema, fields) = schema();
        Self::over(Index::create_in_dir(folder, schema)?, fields)
    }

    fn over(index: Index, fields: Fields) -> tantivy::Result<Self> {
        let reader = index
            .reader_builder()
            .reload_policy(ReloadPolicy::Manual)
            .try_into()?;
        let writer = None;
        Ok(Self {
            index,
            reader,
            writer,
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
        if self.writer.is_none() {
            let options = IndexWriterOptions::builder()
                .num_worker_threads(1)
                .num_merge_threads(1)
                .memory_budget_per_thread(heap_bytes)
                .build();
            let writer: IndexWriter = self.index.writer_with_options(options)?;
            let mut policy = LogMergePolicy::default();
            policy.set_min_num_segments(MERGED_SEGMENTS);
            policy.set_del_docs_ratio_before_merge(DELETED_RATIO_MAX);
            writer.set_merge_policy(Box::new(policy));
            // A new writer starts with the operation number of the last commit. A merge that starts from that commit
            // would treat a delete with that number as already applied and restore the deleted documents. The empty
            // batch uses up the number.
            writer.run(Vec::new())?;
            self.writer = Some(writer);
        }
        let none = || TantivyError::SystemError("no writer".to_owned());
        self.writer.as_mut().ok_or_else(none)
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

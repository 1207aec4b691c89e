//! Lookup of one document by its key, and removal of many documents by their keys.
//!
//! A removal per key would need a separate query per key. Instead, one query looks up all keys of a batch in the
//! dictionary of each segment.

use std::sync::Arc;

use tantivy::query::{BitSetDocSet, ConstScorer, EnableScoring, Explanation, Query, Scorer, Weight};
use tantivy::schema::Field;
use tantivy::{BitSet, DocId, Score, SegmentReader};

use crate::terms::Terms;

/// Returns the document with a key in a segment; `None` if the segment has no such document, or if the document was
/// removed.
pub(super) fn find(segment: &SegmentReader, field: Field, key: &[u8]) -> tantivy::Result<Option<DocId>> {
    let terms = Terms::open(segment, field, &|| false)?;
    let mut found = None;
    terms.each_block(&terms.known([key])?, |documents| {
        let mut alive = documents
            .iter()
            .filter(|document| !segment.is_deleted(**document));
        found = found.or(alive.next().copied());
    })?;
    Ok(found)
}

/// Query that matches the documents with these keys.
#[derive(Debug, Clone)]
pub(super) struct KeysQuery {
    pub(super) field: Field,
    /// Keys in ascending order.
    pub(super) keys: Arc<Vec<Vec<u8>>>,
}

impl Query for KeysQuery {
    fn weight(&self, _: EnableScoring<'_>) -> tantivy::Result<Box<dyn Weight>> {
        Ok(Box::new(self.clone()))
    }
}

impl Weight for KeysQuery {
    fn scorer(&self, segment: &SegmentReader, boost: Score) -> tantivy::Result<Box<dyn Scorer>> {
        let terms = Terms::open(segment, self.field, &|| false)?;
        let mut found = BitSet::with_max_value(segment.max_doc());
        terms.each_block(&terms.known(self.keys.iter())?, |documents| {
            for document in documents {
                found.insert(*document);
            }
        })?;
        Ok(Box::new(ConstScorer::new(BitSetDocSet::from(found), boost)))
    }

    fn explain(&self, _: &SegmentReader, _: DocId) -> tantivy::Result<Explanation> {
        Ok(Explanation::new("keys of rows", 1.0))
    }
}

//! Progress of the index per table, stored in the payload of every tantivy commit.
//!
//! # Stored form
//!
//! JSON: `{"format": 4, "tables": {"<table>": {"indexed": "<bits>", "edits": n, "fingerprint": n, "analyzers": {…}}}}`.
//!
//! `indexed` is the set of ordinals with a document, written as the hexadecimal digits of a roaring bitmap in its
//! portable form. The digits take at most two bits per assigned ordinal. `edits` is a settled edit counter of the
//! catalog: the documents contain all attribute edits up to that counter. `fingerprint` is the sum of a hash of id and
//! ordinal over all indexed timelines. If the ids in the catalog have another sum, the catalog has lost timelines in a
//! power failure, because its journal was not synced, and has then reused their ordinals. `analyzers` holds the
//! analyzers of attributes that the documents were built with; it is omitted if it is empty. An index with another
//! format is rebuilt from the catalog.

use std::collections::BTreeMap;
use std::sync::Arc;

use roaring::RoaringBitmap;
use serde::{Deserialize, Serialize};
use tideline_condition::text::TextTest;
use tideline_condition::{Node, Subject};
use tideline_model::{Ordinal, SearchAnalyzer, TableId, TimelineId};
use tideline_timeline_catalog::CatalogReader;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::mapping::Analyzers;

/// Format version. Increased when documents of the same schema change their meaning, or when the stored form of
/// positions changes.
const FORMAT: u32 = 4;

/// Progress of the index for one table.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Position {
    /// Ordinals with a document.
    pub(crate) indexed: RoaringBitmap,
    /// Edit counter that the documents reflect.
    pub(crate) edits: u64,
    /// Settled edit counter, at most `edits`. It is still valid after a restart; see `CatalogReader::settled_edits`.
    pub(crate) edits_settled: u64,
    /// Ordinals in `indexed` whose document is outdated although no edit is recorded. Recomputed at each start.
    pub(crate) outdated: RoaringBitmap,
    /// Analyzers of attributes that all documents were built with.
    pub(crate) analyzers: Arc<Analyzers>,
    fingerprint: u64,
}

/// Positions by table.
pub(crate) type Positions = BTreeMap<TableId, Position>;

impl Position {
    /// Creates the position of a table without documents. Its documents are built with these analyzers.
    pub(crate) fn new(analyzers: Arc<Analyzers>) -> Self {
        Self {
            analyzers,
            ..Self::default()
        }
    }

    /// Returns true if the documents hold the words that a condition tests. Returns false if the condition splits the
    /// words of an attribute with an analyzer, other than the default one, with which the documents were not built.
    pub(crate) fn serves(&self, root: &Node) -> bool {
        match root {
            Node::And(nodes) | Node::Or(nodes) => nodes.iter().all(|node| self.serves(node)),
            Node::Not(node) => self.serves(node),
            Node::Text(Subject::Attribute(key), TextTest::Words(query) | TextTest::Phrase(query)) => {
                let analyzer = query.analyzer();
                let is_held = || self.analyzers.get(key) == Some(&analyzer);
                analyzer == SearchAnalyzer::Words || is_held()
            }
            _ => true,
        }
    }

    /// Records that a timeline has a document.
    pub(crate) fn add(&mut self, ordinal: Ordinal, id: TimelineId) {
        if self.indexed.insert(ordinal.0) {
            self.fingerprint = self.fingerprint.wrapping_add(fingerprint(ordinal, id));
        }
    }

    /// Records that a timeline no longer has a document.
    pub(crate) fn remove(&mut self, ordinal: Ordinal, id: TimelineId) {
        self.outdated.remove(ordinal.0);
        if self.indexed.remove(ordinal.0) {
            self.fingerprint = self.fingerprint.wrapping_sub(fingerprint(ordinal, id));
        }
    }

    /// Returns true if a position from disk is consistent with this catalog, apart from attributes. Timelines that were
    /// removed after the position was stored may still have a document.
    pub(crate) fn fits(&self, catalog: &CatalogReader<'_>) -> bool {
        let mut sum = 0u64;
        for ordinal in self.indexed.iter().map(Ordinal) {
            let Some(id) = catalog.known_id(ordinal) else {
                return false;
            };
            sum = sum.wrapping_add(fingerprint(ordinal, id));
        }
        sum == self.fingerprint
    }

    /// Returns the differences between the documents of the index and the current catalog.
    pub(crate) fn difference(&self, catalog: &CatalogReader<'_>) -> Difference {
        let visible = catalog.visible();
        let mut difference = Difference {
            edited: catalog.edits_since(self.edits).map(|ordinal| ordinal.0).collect(),
            ..Difference::default()
        };
        difference.edited |= &self.outdated & visible;
        let nothing_gone = self.indexed.is_subset(visible);
        if !nothing_gone {
            difference.gone = &self.indexed - visible;
        }
        if !nothing_gone || self.indexed.len() != visible.len() {
            difference.new = visible - &self.indexed;
        }
        difference
    }
}

/// Differences between an index and its catalog. Only `new` and `edited` may overlap.
#[derive(Debug, Default)]
pub(crate) struct Difference {
    /// Visible timelines without a document.
    pub(crate) new: RoaringBitmap,
    /// Visible timelines whose document, if any, is outdated.
    pub(crate) edited: RoaringBitmap,
    /// Timelines with a document that are no longer visible.
    pub(crate) gone: RoaringBitmap,
}

fn fingerprint(ordinal: Ordinal, id: TimelineId) -> u64 {
    xxh3_64_with_seed(&id.0, u64::from(ordinal.0))
}

#[derive(Serialize, Deserialize)]
struct Payload {
    format: u32,
    tables: BTreeMap<u32, TablePayload>,
}

#[derive(Serialize, Deserialize)]
struct TablePayload {
    /// Roaring bitmap in hexadecimal digits.
    indexed: String,
    edits: u64,
    fingerprint: u64,
    #[serde(default, skip_serializing_if = "Analyzers::is_empty")]
    analyzers: Analyzers,
}

/// Encodes the payload of a commit.
pub(crate) fn encode(positions: &Positions) -> String {
    let table = |position: &Position| TablePayload {
        indexed: to_hex(&position.indexed),
        edits: position.edits_settled,
        fingerprint: position.fingerprint,
        analyzers: Analyzers::clone(&position.analyzers),
    };
    let tables = positions.iter().map(|(id, position)| (id.0, table(position)));
    let payload = Payload {
        format: FORMAT,
        tables: tables.collect(),
    };
    serde_json::to_string(&payload).expect("numbers and texts always have a JSON form")
}

/// Decodes a payload. Returns `None` if it has another format or is damaged.
pub(crate) fn decode(payload: &str) -> Option<Positions> {
    let payload: Payload = serde_json::from_str(payload).ok()?;
    if payload.format != FORMAT {
        return None;
    }
    let tables = payload.tables.into_iter();
    let position = |(id, table): (u32, TablePayload)| {
        let position = Position {
            indexed: from_hex(&table.indexed)?,
            edits: table.edits,
            edits_settled: table.edits,
            outdated: RoaringBitmap::new(),
            analyzers: Arc::new(table.analyzers),
            fingerprint: table.fingerprint,
        };
        Some((TableId(id), position))
    };
    tables.map(position).collect()
}

fn to_hex(bits: &RoaringBitmap) -> String {
    let mut bits = bits.clone();
    bits.optimize();
    let mut bytes = Vec::with_capacity(bits.serialized_size());
    bits.serialize_into(&mut bytes)
        .expect("memory takes what is written");
    let digit = |half: u8| char::from_digit(u32::from(half), 16).expect("below sixteen");
    let digits = bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]);
    digits.collect()
}

fn from_hex(hex: &str) -> Option<RoaringBitmap> {
    let digit = |c: u8| char::from(c).to_digit(16);
    let pairs = hex.as_bytes().chunks(2);
    let byte = |pair: &[u8]| match pair {
        [high, low] => Some((digit(*high)? << 4 | digit(*low)?) as u8),
        _ => None,
    };
    let bytes: Option<Vec<u8>> = pairs.map(byte).collect();
    RoaringBitmap::deserialize_from(bytes?.as_slice()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Position {
        let mut position = Position {
            edits: 9,
            edits_settled: 7,
            ..Position::default()
        };
        for ordinal in (0..70_000).chain([80_000, u32::MAX - 1]) {
            position.add(Ordinal(ordinal), TimelineId::MAX);
        }
        position
    }

    #[test]
    fn positions_read_back() {
        let mut position = sample();
        position.analyzers = Arc::new(Analyzers::from([("title".to_owned(), SearchAnalyzer::Ngram(3))]));
        let text = encode(&Positions::from([(TableId(3), position.clone())]));
        assert!(text.len() < 300, "holes are rare: {text}");
        position.edits = 7;
        assert_eq!(
            decode(&text),
            Some(Positions::from([(TableId(3), position.clone())]))
        );
        for ordinal in (0..70_000).step_by(2) {
            position.remove(Ordinal(ordinal), TimelineId::MAX);
        }
        let text = encode(&Positions::from([(TableId(3), position.clone())]));
        assert!(text.len() < 40_000, "a hole each costs two bits: {}", text.len());
        assert_eq!(decode(&text), Some(Positions::from([(TableId(3), position)])));
        assert_eq!(decode(&text.replace("\"format\":4", "\"format\":3")), None);
        assert_eq!(decode(&text.replace("indexed\":\"", "indexed\":\"0")), None);
        assert_eq!(decode("{}"), None);
    }

    #[test]
    fn what_was_added_and_removed_leaves_no_trace() {
        let mut position = sample();
        for ordinal in (0..70_000).chain([80_000, u32::MAX - 1, 90_000]) {
            position.remove(Ordinal(ordinal), TimelineId::MAX);
        }
        assert_eq!(position.fingerprint, 0);
        assert!(position.indexed.is_empty());
    }
}

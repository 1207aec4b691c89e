//! How far the index has come with each table, as stored in the payload of every tantivy commit.
//!
//! # Stored form
//!
//! JSON: `{"format": 1, "tables": {"<table>": {"indexed": [[first, last], …], "edits": n, "fingerprint": n}}}`.
//! `indexed` lists the ordinals that have a document, as inclusive ranges. `edits` is the catalog's edit counter
//! up to which attributes are in the documents. `fingerprint` sums a hash of id and ordinal over all indexed
//! timelines: after a power cut a catalog whose journal was only buffered may have lost timelines that the index
//! kept, and given their ordinals to others.

use std::collections::BTreeMap;

use roaring::RoaringBitmap;
use serde::{Deserialize, Serialize};
use tideline_model::{Ordinal, TableId, TimelineId};
use tideline_timeline_catalog::CatalogReader;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Raised when documents of the same schema get another meaning; older payloads then mean a rebuild.
const FORMAT: u32 = 1;

/// How far the index has come with one table.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Position {
    /// Ordinals that have a document.
    pub(crate) indexed: RoaringBitmap,
    /// The edit counter that the documents reflect.
    pub(crate) edits: u64,
    /// What of `edits` still holds after a restart; see `CatalogReader::settled_edits`.
    pub(crate) edits_settled: u64,
    fingerprint: u64,
}

/// Positions by table.
pub(crate) type Positions = BTreeMap<TableId, Position>;

impl Position {
    /// Notes that a timeline has a document now.
    pub(crate) fn add(&mut self, ordinal: Ordinal, id: TimelineId) {
        if self.indexed.insert(ordinal.0) {
            self.fingerprint = self.fingerprint.wrapping_add(fingerprint(ordinal, id));
        }
    }

    /// Whether a position that was read from disk can belong to this catalog.
    pub(crate) fn fits(&self, catalog: &CatalogReader<'_>) -> bool {
        if self.edits > catalog.edit_counter() || !self.indexed.is_subset(catalog.visible()) {
            return false;
        }
        let ordinals = self.indexed.iter().map(Ordinal);
        let sum = ordinals.fold(0u64, |sum, ordinal| {
            sum.wrapping_add(fingerprint(ordinal, catalog.id(ordinal)))
        });
        sum == self.fingerprint
    }
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
    indexed: Vec<[u32; 2]>,
    edits: u64,
    fingerprint: u64,
}

/// The payload of a commit.
pub(crate) fn encode(positions: &Positions) -> String {
    let table = |position: &Position| {
        let mut indexed = Vec::new();
        let mut iter = position.indexed.iter();
        while let Some(range) = iter.next_range() {
            indexed.push([*range.start(), *range.end()]);
        }
        TablePayload {
            indexed,
            edits: position.edits_settled,
            fingerprint: position.fingerprint,
        }
    };
    let tables = positions.iter().map(|(id, position)| (id.0, table(position)));
    let payload = Payload {
        format: FORMAT,
        tables: tables.collect(),
    };
    serde_json::to_string(&payload).expect("numbers and lists always have a JSON form")
}

/// Reads a payload; `None` when it is of another format or damaged.
pub(crate) fn decode(payload: &str) -> Option<Positions> {
    let payload: Payload = serde_json::from_str(payload).ok()?;
    let position = |table: TablePayload| {
        let mut indexed = RoaringBitmap::new();
        for [first, last] in table.indexed {
            indexed.insert_range(first..=last);
        }
        Position {
            indexed,
            edits: table.edits,
            edits_settled: table.edits,
            fingerprint: table.fingerprint,
        }
    };
    let tables = payload.tables.into_iter();
    (payload.format == FORMAT).then(|| tables.map(|(id, table)| (TableId(id), position(table))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_read_back() {
        let mut position = Position {
            edits: 9,
            edits_settled: 7,
            ..Position::default()
        };
        for ordinal in (0..70_000).chain([80_000, u32::MAX - 1]) {
            position.add(Ordinal(ordinal), TimelineId::MAX);
        }
        let text = encode(&Positions::from([(TableId(3), position.clone())]));
        assert!(text.len() < 200, "holes are rare, so ranges are few: {text}");
        position.edits = 7;
        assert_eq!(decode(&text), Some(Positions::from([(TableId(3), position)])));
        assert_eq!(decode(&text.replace("\"format\":1", "\"format\":2")), None);
        assert_eq!(decode("{}"), None);
    }
}

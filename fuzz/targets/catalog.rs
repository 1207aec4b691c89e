//! Fuzz target for the catalog: arbitrary bytes as a journal entry, and rows with arbitrary content and valid
//! checksums, both in the backend and in an entry. Decoding returns an error or a catalog and never panics. A catalog
//! replayed from an entry equals the catalog loaded from the same rows, before and after it is written and loaded
//! again.
#![no_main]

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use tideline_backend::memory::{Character, MemoryBackend, MemoryDisk};
use tideline_backend::{Backend, RowChange, Shard, Space, Stamp};
use tideline_key_codec::{catalog_key, named_key, space, table_rows};
use tideline_model::{Durability, ModelTag, Ordinal, TableId, TimelineId};
use tideline_timeline_catalog::{Catalog, CatalogOptions, MetricMetadata};
use tideline_wire::varint;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

const TABLE: TableId = TableId(7);
/// Version of the layout of an entry.
const ENTRY_VERSION: u8 = 1;

/// Content of one fuzzing run.
#[derive(Debug, Arbitrary)]
enum Input {
    /// Arbitrary bytes. They are checked as an entry twice: unchanged, and after a valid header (model tag and
    /// version).
    Entry(Vec<u8>),
    /// Rows of the catalog.
    Rows(Vec<Row>),
}

/// Row of the catalog, without its checksum. Later rows replace earlier ones with the same key.
#[derive(Debug, Arbitrary)]
enum Row {
    /// Timeline. The ordinal is small, because memory is proportional to the highest one.
    Timeline {
        id: [u8; 16],
        version: u8,
        ordinal: u8,
        rest: Vec<u8>,
    },
    /// Saved search; without content, the entry deletes it.
    Search { name: Vec<u8>, content: Option<Vec<u8>> },
    /// Metadata of a metric.
    Metric { name: Vec<u8>, content: Vec<u8> },
}

/// Key in the backend, kind of row in an entry, and key in an entry.
type RowKey = (Space, Vec<u8>, u8, Vec<u8>);

impl Row {
    /// Returns the key of the row, and its value with a valid checksum; `None` as value deletes the row.
    fn stored(self) -> (RowKey, Option<Vec<u8>>) {
        match self {
            Self::Timeline {
                id,
                version,
                ordinal,
                rest,
            } => {
                let mut value = vec![version % 4];
                varint::put(u64::from(ordinal), &mut value);
                value.extend_from_slice(&rest);
                let id = TimelineId(id);
                let checksum = xxh3_64_with_seed(&value, id.low());
                let key = (space::CATALOG, catalog_key(TABLE, id).to_vec(), 1, id.0.to_vec());
                (key, Some(with_checksum(value, checksum)))
            }
            Self::Search { name, content } => {
                let value = content.map(|content| {
                    let checksum = xxh3_64(&[&name[..], &content].concat());
                    with_checksum(content, checksum)
                });
                ((space::SEARCHES, named_key(TABLE, &name), 2, name), value)
            }
            Self::Metric { name, content } => {
                let checksum = xxh3_64(&[&name[..], &content].concat());
                let value = Some(with_checksum(content, checksum));
                ((space::METADATA, named_key(TABLE, &name), 3, name), value)
            }
        }
    }
}

fn with_checksum(mut content: Vec<u8>, checksum: u64) -> Vec<u8> {
    content.extend_from_slice(&(checksum as u32).to_le_bytes());
    content
}

fn options() -> CatalogOptions {
    CatalogOptions {
        source_tags: vec!["host".to_owned()],
        raw_key_budget: Arc::default(),
        unflushed: Arc::default(),
    }
}

/// Content of a catalog, in a comparable form.
#[derive(Debug, PartialEq)]
struct Content {
    timelines: Vec<Timeline>,
    edits: Vec<(u64, Ordinal)>,
    searches: Vec<(String, Arc<str>)>,
    metrics: Vec<MetricMetadata>,
}

/// One timeline. Attribute values are encoded, so that NaN is equal to NaN.
#[derive(Debug, PartialEq)]
struct Timeline {
    id: TimelineId,
    ordinal: Ordinal,
    identity: Vec<u8>,
    attributes: Vec<(String, Vec<u8>)>,
}

fn content(catalog: &Catalog) -> Content {
    let reader = catalog.reader();
    let timeline = |ordinal: u32| {
        let entry = reader.entry(Ordinal(ordinal)).expect("a visible timeline");
        let mut identity = Vec::new();
        reader.encode_identity(entry.ordinal(), &mut identity);
        let attributes = entry.attributes();
        Timeline {
            id: entry.id(),
            ordinal: entry.ordinal(),
            identity,
            attributes: attributes
                .map(|(key, value)| (key.to_owned(), value.to_bytes()))
                .collect(),
        }
    };
    Content {
        timelines: reader.visible().iter().map(timeline).collect(),
        edits: reader.numbered_edits_since(0).collect(),
        searches: catalog.searches().all(),
        metrics: catalog.metadata().all(),
    }
}

/// Writes all unsaved rows to an empty backend, and loads them.
fn reloaded(catalog: &Catalog) -> Catalog {
    let backend = MemoryBackend::open(&MemoryDisk::new(Character::Embedded));
    let mut count = 0;
    let mut stamp = || {
        count += 1;
        Ok(Stamp(count))
    };
    catalog.write_rows(&backend, &mut stamp).expect("room");
    backend.sync_rows(Shard(0)).expect("synced");
    catalog.rows_synced();
    Catalog::load(&backend, TABLE, options()).expect("what was written can be read")
}

/// Encodes an entry with all rows.
fn entry(rows: &BTreeMap<RowKey, Option<Vec<u8>>>) -> Bytes {
    let mut entry = ModelTag::CATALOG.0.to_vec();
    entry.push(ENTRY_VERSION);
    varint::put(u64::from(TABLE.0), &mut entry);
    for ((_, _, kind, key), value) in rows {
        entry.push(*kind);
        for part in [key, value.as_ref().unwrap_or(&Vec::new())] {
            varint::put(part.len() as u64, &mut entry);
            entry.extend_from_slice(part);
        }
    }
    entry.into()
}

fn check(rows: Vec<Row>) {
    let rows: BTreeMap<RowKey, Option<Vec<u8>>> = rows.into_iter().map(Row::stored).collect();
    let entry = entry(&rows);
    let checked = Catalog::check_entry(&entry);
    let backend = MemoryBackend::open(&MemoryDisk::new(Character::Embedded));
    for (stamp, ((space, key, ..), value)) in (1..).zip(&rows) {
        let (partition, _) = table_rows(*space, TABLE);
        let change = RowChange {
            key: key.clone().into(),
            value: value.clone().map(Bytes::from),
        };
        let written = backend.write(partition, &[change], Stamp(stamp), Durability::Synced);
        if written.is_err() {
            return; // The key is too long.
        }
    }
    let Ok(loaded) = Catalog::load(&backend, TABLE, options()) else {
        return;
    };
    if checked.is_err() {
        // Loading skips damaged metadata of metrics; an entry with a damaged row is refused.
        return;
    }
    let expected = content(&loaded);
    let replayed = Catalog::new(TABLE, options());
    for timeline in &expected.timelines {
        replayed
            .adopt(timeline.id, timeline.ordinal, &timeline.identity)
            .expect("a loaded timeline");
    }
    replayed.replay(&entry).expect("a checked entry");
    replayed.replayed();
    assert_eq!(content(&replayed), expected);
    assert_eq!(content(&reloaded(&replayed)), expected);
}

fuzz_target!(|input: Input| {
    match input {
        Input::Entry(bytes) => {
            let mut entry = ModelTag::CATALOG.0.to_vec();
            entry.push(ENTRY_VERSION);
            entry.extend_from_slice(&bytes);
            for entry in [Bytes::from(bytes), entry.into()] {
                if Catalog::check_entry(&entry).is_ok() {
                    Catalog::table_of(&entry).expect("a checked entry names its table");
                }
            }
        }
        Input::Rows(rows) => check(rows),
    }
});

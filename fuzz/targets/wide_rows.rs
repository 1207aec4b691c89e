//! Fuzz target for the stored forms of rows and messages: arbitrary bytes as mutations of a row, as a journal entry, and
//! as the body of a block with a valid header. Decoding returns an error or rows and never panics. A mutation is
//! unchanged after it is encoded and decoded again, also after it was merged with another one.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use tideline_model::ModelTag;
use tideline_wide_table::check::rows_of_block;
use tideline_wide_table::{EntryChange, Mutation, StoredRow, changes_of, written_keys};
use tideline_wire::varint;
use xxhash_rust::xxh3::xxh3_64;

/// Format of a block without segments.
const BLOCK_FORMAT: u8 = 1;
/// Number of versions that a merge of two mutations keeps.
const VERSIONS_MAX: usize = 3;

/// Content of one fuzzing run.
#[derive(Debug, Arbitrary)]
enum Input {
    /// Two mutations of one row, the older one first.
    Mutations(Vec<u8>, Vec<u8>),
    /// Journal entry, without its model tag.
    Entry(Vec<u8>),
    /// Block with any header.
    Raw(Vec<u8>),
    /// Block with a valid header. The sizes are small, because memory is proportional to them.
    Block {
        rows: u8,
        bytes: u16,
        first: Vec<u8>,
        filter: Vec<u8>,
        body: Vec<u8>,
    },
}

/// Checks a decoded mutation.
fn check(mutation: &Mutation<'_>) {
    let encoded = mutation.encoded();
    let again = Mutation::decode(&encoded).expect("what was encoded can be decoded");
    assert_eq!(again.encoded(), encoded);
    for column in &mutation.columns {
        // Columns are found by their names.
        assert!(mutation.column(&column.name).is_some());
    }
}

fn mutations(older: &[u8], newer: &[u8]) {
    let row = StoredRow::with_columns(Bytes::new(), Bytes::copy_from_slice(older));
    let (Ok(older), Ok(newer)) = (row.columns(), Mutation::decode(newer)) else {
        return;
    };
    check(&older);
    check(&newer);
    check(&older.into_owned().then(newer.into_owned(), VERSIONS_MAX));
}

fn entry(bytes: &[u8]) {
    let entry = Bytes::from([&ModelTag::WIDE.0[..], bytes].concat());
    let Ok((_, changes)) = changes_of(&entry) else {
        return;
    };
    let rows = changes.iter().filter(|change| match change {
        EntryChange::Row { mutation, .. } => {
            if let Ok(mutation) = Mutation::decode(mutation) {
                check(&mutation);
            }
            true
        }
        EntryChange::DeleteRange(_) => false,
    });
    let rows = rows.count();
    let keys = written_keys(&entry).expect("a decoded entry");
    assert_eq!(keys.len(), rows);
}

fn block(bytes: &[u8]) {
    let Ok(rows) = rows_of_block(bytes) else { return };
    for (_, row) in rows {
        if let Ok(mutation) = Mutation::decode(&row) {
            check(&mutation);
        }
    }
}

fuzz_target!(|input: Input| {
    match input {
        Input::Mutations(older, newer) => mutations(&older, &newer),
        Input::Entry(bytes) => entry(&bytes),
        Input::Raw(bytes) => block(&bytes),
        Input::Block {
            rows,
            bytes,
            first,
            filter,
            body,
        } => {
            let mut stored = vec![BLOCK_FORMAT];
            for size in [u64::from(rows), u64::from(bytes), body.len() as u64] {
                varint::put(size, &mut stored);
            }
            for part in [&first, &filter] {
                varint::put(part.len() as u64, &mut stored);
                stored.extend_from_slice(part);
            }
            let checksum = xxh3_64(&stored) as u32;
            stored.extend_from_slice(&checksum.to_le_bytes());
            stored.extend_from_slice(&zstd::bulk::compress(&body, 1).expect("a small body"));
            block(&stored);
        }
    }
});

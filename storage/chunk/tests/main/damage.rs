//! Damaged bytes never make a reader panic, and are rejected if they do not match the checksum. Bytes of other formats
//! and newer versions are rejected with their own errors.
//!
//! Some tests recompute the checksum after the damage, so that the checks of the content itself are exercised.

use proptest::collection::vec;
use proptest::prelude::*;
use tideline_chunk::{Bitmap, Chunk, ChunkError, ChunkOptions, DeleteRecord, Delta, DeltaError};
use tideline_model::{ColumnData, TimeRange, TimelineId, ValueType};
use xxhash_rust::xxh3::xxh3_64;

use crate::samples::{delta, run};
use crate::workload::{COLD, cpu_delta, cpu_run, encoded, encoded_delta, encoded_with};

/// Offset of the content after magic, version and checksum, in both formats.
const CONTENT_AT: usize = 7;

/// Recomputes the checksum, so that the reader checks the damaged content.
fn seal(bytes: &mut [u8]) {
    if bytes.len() >= CONTENT_AT {
        let sum = (xxh3_64(&bytes[CONTENT_AT..]) as u32).to_le_bytes();
        bytes[3..CONTENT_AT].copy_from_slice(&sum);
    }
}

/// Calls all reading functions on the chunk, opened with and without checks.
fn read_all(bytes: &[u8]) {
    let opened = [Chunk::open(bytes), Chunk::open_trusted(bytes)];
    opened.iter().flatten().for_each(read_chunk);
}

fn read_chunk(chunk: &Chunk<'_>) {
    let rows = chunk.rows();
    let _ = (chunk.first_timestamp(), chunk.last_timestamp(), chunk.values());
    let middle = chunk.row_range(TimeRange::new(chunk.timestamps().get(rows / 2), i64::MAX));
    assert!(middle.start <= middle.end && middle.end <= rows);
    let mut values = ColumnData::new(ValueType::Signed);
    let mut presence = Bitmap::default();
    for column in chunk.columns() {
        if chunk
            .decode(&column, middle.clone(), &mut values, &mut presence)
            .is_ok()
        {
            assert_eq!(presence.len(), middle.len());
        }
    }
    let _ = chunk.to_run();
    if let Some(summaries) = chunk.summaries() {
        let mut found = Vec::new();
        for column in chunk.columns() {
            let is_numeric = summaries.column(column.field(), column.value_type(), &mut found);
            let buckets = summaries.buckets().len();
            assert_eq!(found.len(), if is_numeric { buckets } else { 0 });
        }
    }
}

fn damage(bytes: &mut Vec<u8>, edits: &[(prop::sample::Index, u8)], cut: Option<prop::sample::Index>) {
    for (at, byte) in edits {
        let at = at.index(bytes.len());
        bytes[at] = *byte;
    }
    if let Some(cut) = cut {
        bytes.truncate(cut.index(bytes.len()));
    }
}

fn edits() -> impl Strategy<Value = Vec<(prop::sample::Index, u8)>> {
    vec((any::<prop::sample::Index>(), any::<u8>()), 1..5)
}

proptest! {
    #![proptest_config(tideline_testkit::proptest_config(600))]

    #[test]
    fn a_damaged_chunk_with_its_checksum_made_right_never_panics(
        run in run(), changes in edits(), cut in prop::option::weighted(0.2, any::<prop::sample::Index>())
    ) {
        for options in [ChunkOptions::default(), COLD] {
            let mut bytes = encoded_with(&run, &options);
            damage(&mut bytes, &changes, cut);
            seal(&mut bytes);
            read_all(&bytes);
        }
    }

    #[test]
    fn a_damaged_delta_with_its_checksum_made_right_never_panics(
        delta in delta(), changes in edits(), cut in prop::option::weighted(0.2, any::<prop::sample::Index>())
    ) {
        let mut bytes = encoded_delta(&delta);
        damage(&mut bytes, &changes, cut);
        seal(&mut bytes);
        let _ = Delta::decode(&bytes);
    }

    #[test]
    fn arbitrary_bytes_never_panic(content in vec(any::<u8>(), 0..200)) {
        for magic in [b"TC\x01", b"TC\x02", b"TD\x01"] {
            let mut bytes = magic.to_vec();
            bytes.extend_from_slice(&[0; 4]);
            bytes.extend_from_slice(&content);
            seal(&mut bytes);
            read_all(&bytes);
            let _ = Delta::decode(&bytes);
        }
    }
}

#[test]
fn every_changed_byte_of_a_chunk_is_noticed() {
    let whole = encoded_with(&cpu_run(3, 130), &COLD);
    assert_eq!(whole[2], 2);
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x40;
        assert!(Chunk::open(&bytes).is_err(), "byte {at}");
        assert!(Chunk::open(&whole[..at]).is_err(), "cut at {at}");
    }
}

#[test]
fn every_changed_byte_of_a_delta_is_noticed() {
    let whole = encoded_delta(&cpu_delta(3, 20, 4));
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x40;
        assert!(Delta::decode(&bytes).is_err(), "byte {at}");
        assert!(Delta::decode(&whole[..at]).is_err(), "cut at {at}");
    }
}

#[test]
fn a_delete_that_breaks_a_rule_is_refused() {
    let delta = Delta {
        delete: Some(DeleteRecord {
            timelines: vec![TimelineId([1; 16]), TimelineId([2; 16])],
            range: TimeRange::new(0, 1),
            removes_timelines: true,
        }),
        ..Delta::default()
    };
    let whole = encoded_delta(&delta);
    // The table is followed by kind, length and flag. The last 32 bytes are the first halves of both ids, then their
    // second halves.
    let flag_at = CONTENT_AT + 4 + 2;
    let first_id_at = whole.len() - 32;
    for (at, was, becomes) in [(flag_at, 1, 2), (first_id_at, 1, 9)] {
        let mut bytes = whole.clone();
        assert_eq!(bytes[at], was);
        bytes[at] = becomes;
        seal(&mut bytes);
        let outcome = Delta::decode(&bytes);
        assert!(matches!(outcome, Err(DeltaError::Damaged(_))), "{outcome:?}");
    }
}

#[test]
fn what_is_newer_or_foreign_is_refused_by_name() {
    let mut chunk = encoded(&cpu_run(3, 20));
    chunk[2] = 9;
    assert_eq!(Chunk::open(&chunk).err(), Some(ChunkError::UnknownVersion(9)));
    assert_eq!(Chunk::open(b"PK\x03").err(), Some(ChunkError::NotAChunk));

    let mut delta = encoded_delta(&cpu_delta(3, 20, 4));
    delta[2] = 9;
    assert_eq!(Delta::decode(&delta).err(), Some(DeltaError::UnknownVersion(9)));
    delta[2] = 1;
    delta.extend_from_slice(&[8, 0]);
    seal(&mut delta);
    assert_eq!(Delta::decode(&delta).err(), Some(DeltaError::UnknownSection(8)));
    assert_eq!(Delta::decode(b"TC\x01").err(), Some(DeltaError::NotADelta));
}

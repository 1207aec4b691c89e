//! Tests of blocks: rows are returned byte for byte, and a changed byte never leads to other rows.
//!
//! The rows are random: with one or several versions, with declared and undeclared columns, and with values of all
//! types but large values.

use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;
use tideline_backend::{Direction, PageLimit};
use tideline_model::{GroupCompression, KeyRange, Timestamp};
use zstd::bulk::Compressor;

use super::*;
use crate::codec;
use crate::codecs::ColumnCodecs;
use crate::mutation::{Column, ColumnName, Effect, Mutation, Version};
use crate::value::CellValue;

fn values() -> impl Strategy<Value = CellValue<'static>> {
    prop_oneof![
        ".{0,8}|[ab]{80,120}".prop_map(|text: String| CellValue::String(text.into())),
        any::<i64>().prop_map(CellValue::I64),
        any::<u64>().prop_map(CellValue::U64),
        any::<f64>().prop_map(CellValue::F64),
        any::<bool>().prop_map(CellValue::Bool),
        proptest::collection::vec(any::<u8>(), 0..8)
            .prop_map(|bytes: Vec<u8>| CellValue::Binary(bytes.into())),
        (-1_000..1_000_i64, 0..4_u8).prop_map(|(mantissa, scale)| {
            let number = tideline_key_codec::tuple::Decimal::new(mantissa.into(), scale);
            CellValue::Decimal(number.expect("a valid scale"))
        }),
        "[0-9]{1,4}".prop_map(|text: String| CellValue::Json(text.into())),
        any::<i32>().prop_map(|time| CellValue::Timestamp(Timestamp::from_nanos_clamped(time.into()))),
    ]
}

fn rows() -> impl Strategy<Value = Vec<(Vec<u8>, Vec<u8>)>> {
    let names = prop_oneof![
        (0..3_u32).prop_map(ColumnName::Declared),
        "[a-c]".prop_map(|name: String| ColumnName::Named(name.into())),
    ];
    let versions = proptest::collection::btree_map(-3..3_i64, values(), 1..3);
    let columns = proptest::collection::btree_map(names, versions, 0..4);
    let row = (any::<i64>(), any::<bool>(), columns).prop_map(|(time, is_uniform, columns)| {
        let columns = columns.into_iter().map(|(name, versions)| {
            let versions = versions.into_iter().rev();
            let version = |(difference, value): (i64, CellValue<'static>)| Version {
                time: match is_uniform {
                    true => time,
                    false => time.wrapping_add(difference) >> 1,
                },
                value,
            };
            let count = if is_uniform { 1 } else { usize::MAX };
            Column {
                name,
                clears: false,
                versions: versions.map(version).take(count).collect(),
            }
        });
        let row = Mutation {
            effect: Effect::Replace,
            time,
            columns: columns.collect(),
        };
        let mut out = Vec::new();
        codec::encode(&row, &mut out);
        out
    });
    let keys = proptest::collection::vec(0..4_u8, 0..6);
    proptest::collection::btree_map(keys, row, 1..40).prop_map(|rows| rows.into_iter().collect())
}

fn block_of(encoder: &mut BlockEncoder, rows: &[(Vec<u8>, Vec<u8>)]) -> Bytes {
    for (key, row) in rows {
        encoder.push(key, row).expect("a valid row");
    }
    let mut zstd = Compressor::new(6).expect("a context is created");
    let finished = encoder.finish(&mut |_, contents| {
        let bytes = zstd
            .compress(contents)
            .expect("memory takes the compressed bytes");
        Ok((bytes.len() < contents.len()).then_some(Packed {
            codec: SegmentCodec::Zstd,
            dictionary: 0,
            bytes,
        }))
    });
    finished.expect("a block")
}

/// Returns an encoder for the columns of [`rows`]. If `is_apart`, some of them have a separate compression
/// setting.
fn encoder(is_apart: bool) -> BlockEncoder {
    let columns = match is_apart {
        true => serde_json::json!([
            {"name": "one", "type": "string", "number": 1, "compression": "zstd"},
            {"name": "two", "type": "string", "number": 2, "compression": "none"},
            {"name": "a", "type": "json", "compression": "lz4"},
            {"name": "b*", "type": "binary", "compression": "zstd"},
        ]),
        false => serde_json::json!([]),
    };
    let spec = serde_json::json!({"key": [{"name": "id", "type": "string"}], "columns": columns});
    let spec = serde_json::from_value(spec).expect("valid settings");
    BlockEncoder::new(GroupCompression::Fast, &Arc::new(ColumnCodecs::new(&spec)))
}

fn copied(rows: Vec<(Bytes, Bytes)>) -> Vec<(Vec<u8>, Vec<u8>)> {
    rows.into_iter()
        .map(|(key, row)| (key.to_vec(), row.to_vec()))
        .collect()
}

proptest! {
    #![proptest_config(tideline_testkit::proptest_config(256))]

    #[test]
    fn a_block_returns_its_rows_byte_for_byte(one in rows(), other in rows(), is_apart in any::<bool>()) {
        let mut encoder = encoder(is_apart);
        for rows in [one, other] {
            let bytes = block_of(&mut encoder, &rows);
            let block = Block::open(&bytes).expect("a valid header");
            prop_assert_eq!(block.first, &rows[0].0[..]);
            prop_assert_eq!(block.rows, rows.len());
            let size: usize = rows.iter().map(|(key, row)| key.len() + row.len()).sum();
            prop_assert_eq!(block.bytes, size);
            prop_assert_eq!(copied(block.all_rows().expect("a valid block")), rows);
        }
    }

    #[test]
    fn a_page_of_a_block_is_a_page_of_its_rows(
        rows in rows(),
        start in proptest::collection::vec(0..4_u8, 0..4),
        end in proptest::option::of(proptest::collection::vec(0..4_u8, 0..4)),
        is_descending in any::<bool>(),
        rows_max in 1..50_usize,
        bytes_max in 1..2_000_usize,
        is_apart in any::<bool>(),
    ) {
        let bytes = block_of(&mut encoder(is_apart), &rows);
        let range = KeyRange { start, end };
        let (direction, mut expected) = (
            if is_descending { Direction::Descending } else { Direction::Ascending },
            rows.iter().filter(|(key, _)| range.contains(key)).cloned().collect::<Vec<_>>(),
        );
        if is_descending {
            expected.reverse();
        }
        let found = Block::open(&bytes).expect("a valid header");
        let found = found.rows_in(&range, direction, PageLimit { rows_max, bytes_max }).expect("a valid block");
        let all = expected.len();
        let (mut count, mut size) = (0, 0);
        while count < all.min(rows_max) && size <= bytes_max {
            size += expected[count].0.len() + expected[count].1.len();
            count += 1;
        }
        expected.truncate(count);
        prop_assert_eq!(found.is_cut, count < all);
        prop_assert_eq!(copied(found.rows), expected);
        let key = &rows[rows.len() / 2];
        let block = Block::open(&bytes).expect("a valid header");
        prop_assert_eq!(block.row(&key.0).expect("a valid block"), Some(Bytes::from(key.1.clone())));
    }

    #[test]
    fn a_changed_byte_never_gives_other_rows(
        rows in rows(),
        place in any::<prop::sample::Index>(),
        bit in 0..8_u8,
        is_apart in any::<bool>(),
    ) {
        let bytes = block_of(&mut encoder(is_apart), &rows);
        let mut changed = bytes.to_vec();
        let at = place.index(changed.len());
        changed[at] ^= 1 << bit;
        if let Ok(block) = Block::open(&changed)
            && let Ok(found) = block.all_rows()
        {
            prop_assert_eq!(copied(found), rows);
        }
    }
}

#[test]
fn the_bytes_of_a_block_never_change() {
    let row = |number: i64| {
        let column = |name, value| Column::with(name, 5, value);
        let row = Mutation {
            effect: Effect::Replace,
            time: 5,
            columns: vec![
                column(ColumnName::Declared(1), CellValue::I64(number)),
                column(ColumnName::Named("b".into()), CellValue::String("x".into())),
            ],
        };
        let mut out = Vec::new();
        codec::encode(&row, &mut out);
        out
    };
    let rows = [(b"ka".to_vec(), row(1)), (b"kb".to_vec(), row(3))];
    let bytes = block_of(&mut encoder(false), &rows);
    let mut body = Vec::new();
    let frame = &bytes[15..];
    zstd::stream::copy_decode(frame, &mut body).expect("a frame");
    let header = [1, 2, 40, body.len() as u8, 2, b'k', b'a', 3, 24, 167, 103];
    assert_eq!(bytes[..11], header);
    assert_eq!(bytes[11..15], checksum(&header));
    #[rustfmt::skip]
    let expected = [
        2, 1, 2, 2, 2, 3, b'b', 1,
        1, 2, 0, 1,
        4, 3, 2, 2, 0, 2, 0, 2, 2,
        0, 2, 1, 1,
        b'k', b'a', b'b',
        1, 1,
        10, 0,
        2, 4,
        1, 1,
        b'x', b'x',
    ];
    assert_eq!(body, expected);
}

/// Rows whose first column is stored as it is and whose second one is compressed; the second row has two versions.
fn rows_with_segments() -> Vec<(Vec<u8>, Vec<u8>)> {
    let row = |one: &str, two: &[&str]| {
        let versions = two.iter().enumerate().map(|(age, text)| Version {
            time: 5 - age as i64,
            value: CellValue::String((*text).to_owned().into()),
        });
        let row = Mutation {
            effect: Effect::Replace,
            time: 5,
            columns: vec![
                Column {
                    name: ColumnName::Declared(1),
                    clears: false,
                    versions: versions.collect(),
                },
                Column::with(
                    ColumnName::Declared(2),
                    5,
                    CellValue::String(one.to_owned().into()),
                ),
            ],
        };
        let mut out = Vec::new();
        codec::encode(&row, &mut out);
        out
    };
    let long = "ab".repeat(40);
    vec![
        (b"ka".to_vec(), row("x", &[&long])),
        (b"kb".to_vec(), row("y", &[&long, "c"])),
    ]
}

#[test]
fn the_bytes_of_a_block_with_segments_never_change() {
    let rows = rows_with_segments();
    let bytes = block_of(&mut encoder(true), &rows);
    let long = "ab".repeat(40);
    let contents = format!("{long}{long}c");
    let stored = zstd::bulk::compress(contents.as_bytes(), 6).expect("compressed bytes");
    let segments = [&stored[..], b"xy"].concat();
    let Some(header) = bytes
        .len()
        .checked_sub(segments.len() + usize::from(bytes[12]) + CHECKSUM_BYTES)
    else {
        panic!("a block of {} bytes", bytes.len());
    };
    // Format, rows; after the sizes of the rows and of the body: first key, filter, bytes of the frame, segments.
    assert_eq!(bytes[..2], [2, 2]);
    assert_eq!(bytes[5..14], [2, b'k', b'a', 3, 24, 167, 103, bytes[12], 2]);
    // Codec, dictionary, bytes of the contents, stored bytes, checksum.
    let heads = [
        &[2, 0, 161, 1, stored.len() as u8][..],
        &checksum(&stored),
        &[0, 0, 2, 2],
        &checksum(b"xy"),
    ];
    assert_eq!(bytes[header - 17..header], heads.concat());
    assert_eq!(bytes[header..header + CHECKSUM_BYTES], checksum(&bytes[..header]));
    assert_eq!(bytes[bytes.len() - segments.len()..], segments);
    let mut body = Vec::new();
    let frame = &bytes[header + CHECKSUM_BYTES..bytes.len() - segments.len()];
    zstd::stream::copy_decode(frame, &mut body).expect("a frame");
    #[rustfmt::skip]
    let expected = [
        // Columns: length of the name, name, type, segment.
        2, 1, 2, 1, 1, 1, 4, 1, 2,
        1, 2, 0, 1,
        4, 3, 2, 1, 26, 1, 0, 1, 0,
        0, 2, 1, 1,
        b'k', b'a', b'b',
        1, 0,
        10,
        // The row that is stored whole, without the contents of its columns.
        25, 1, 5, 0, 0, 0, 0, 0, 0, 0, 2, 2, 0, 2, 0, 1, 80, 1, 1, 1, 4, 0, 1, 0, 1, 1,
        80,
        1,
    ];
    assert_eq!(body, expected);
    assert_eq!(
        copied(Block::open(&bytes).expect("a header").all_rows().expect("rows")),
        rows
    );
}

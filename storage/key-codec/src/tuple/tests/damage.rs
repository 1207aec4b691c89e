//! Tests of damaged keys: decoding returns an error, never panics, and accepts only the canonical form of a key.
//!
//! Inputs are random bytes, and valid keys that were changed, cut or extended.

use super::*;

/// Checks that bytes are refused, or that they are the canonical form of the tuple that they decode to.
fn assert_refused_or_canonical(schema: &KeySchema, bytes: &[u8]) {
    if let Ok(values) = schema.decode(bytes) {
        assert_eq!(encoded(schema, &values), bytes, "{values:?}");
    }
}

/// Checks the damage that decoding reports for the only column of a key, ascending and descending.
#[track_caller]
fn assert_damaged(kind: KeyKind, bytes: &[u8], damage: KeyDamage) {
    let complement: Vec<u8> = bytes.iter().map(|byte| !byte).collect();
    for (order, bytes) in [
        (ColumnOrder::Ascending, bytes),
        (ColumnOrder::Descending, &complement),
    ] {
        let decoded = schema_of(&[(kind, order)]).decode(bytes);
        assert_eq!(
            decoded,
            Err(KeyError::Damaged { column: 0, damage }),
            "{bytes:02x?}"
        );
    }
}

proptest! {
    #![proptest_config(tideline_testkit::proptest_config(4_000))]

    #[test]
    fn any_bytes_are_refused_or_canonical(schema in schemas(), bytes in vec(any::<u8>(), 0..80)) {
        assert_refused_or_canonical(&schema, &bytes);
    }

    #[test]
    fn bytes_of_one_column_are_refused_or_canonical(
        kind in prop::sample::select(&KeyKind::ALL[..]),
        bytes in vec(prop_oneof![prop::sample::select(&[0, 1, 2, 20, 0x80, 0xfe, 0xff][..]), any::<u8>()], 0..24),
    ) {
        for order in [ColumnOrder::Ascending, ColumnOrder::Descending] {
            assert_refused_or_canonical(&schema_of(&[(kind, order)]), &bytes);
        }
    }

    #[test]
    fn a_changed_key_is_refused_or_canonical(
        (schema, tuples) in tuples(1),
        at in any::<prop::sample::Index>(),
        change in any::<u8>(),
    ) {
        let mut key = encoded(&schema, &tuples[0]);
        let at = at.index(key.len());
        key[at] ^= change;
        assert_refused_or_canonical(&schema, &key);
    }

    #[test]
    fn a_cut_or_extended_key_is_refused(
        (schema, tuples) in tuples(1),
        at in any::<prop::sample::Index>(),
        added in vec(any::<u8>(), 1..4),
    ) {
        let mut key = encoded(&schema, &tuples[0]);
        let cut = schema.decode(&key[..at.index(key.len())]);
        let is_cut = matches!(cut, Err(KeyError::Damaged { damage: KeyDamage::Truncated, .. }));
        prop_assert!(is_cut, "{:?}", cut);
        key.extend_from_slice(&added);
        prop_assert_eq!(schema.decode(&key), Err(KeyError::TrailingBytes { bytes: added.len() }));
    }
}

#[test]
fn damaged_text() {
    assert_damaged(KeyKind::String, b"a", KeyDamage::Truncated);
    assert_damaged(KeyKind::String, b"a\x00", KeyDamage::Truncated);
    assert_damaged(KeyKind::String, b"a\x00\xff", KeyDamage::Truncated);
    assert_damaged(
        KeyKind::String,
        b"a\x00\x02\x00\x01",
        KeyDamage::Escape { found: 2 },
    );
    assert_damaged(KeyKind::Binary, b"\x00\x00", KeyDamage::Escape { found: 0 });
    assert_damaged(KeyKind::String, b"\xff\x00\x01", KeyDamage::Utf8);
    assert_damaged(KeyKind::String, b"\x00\xff\xc3\x00\x01", KeyDamage::Utf8);
}

#[test]
fn damaged_numbers() {
    assert_damaged(KeyKind::Signed, &[0; 7], KeyDamage::Truncated);
    assert_damaged(KeyKind::Boolean, &[], KeyDamage::Truncated);
    assert_damaged(KeyKind::Boolean, &[2], KeyDamage::Boolean { found: 2 });
    assert_damaged(
        KeyKind::Timestamp,
        &[0; 8],
        KeyDamage::Timestamp { nanos: i64::MIN },
    );
    assert_damaged(
        KeyKind::Timestamp,
        &[0xff; 8],
        KeyDamage::Timestamp { nanos: i64::MAX },
    );
}

#[test]
fn the_error_names_the_column() {
    let columns = [
        (KeyKind::Unsigned, ColumnOrder::Descending),
        (KeyKind::Boolean, ColumnOrder::Descending),
    ];
    let error = schema_of(&columns).decode(&[0; 9]).expect_err("damaged");
    assert_eq!(
        error.to_string(),
        "a stored key is damaged in column 1: byte 0xff is not a boolean"
    );
}

#[test]
fn a_key_over_the_limit_is_refused() {
    let schema = schema_of(&[(KeyKind::Binary, ColumnOrder::Ascending)]);
    let mut key = vec![1; TUPLE_BYTES_MAX - 1];
    key.extend([0, 1]);
    assert_eq!(
        schema.decode(&key),
        Err(KeyError::StoredTooLong { actual: key.len() })
    );
}
